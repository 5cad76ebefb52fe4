"""tests/e2e/console/openid.py: signing in at an OpenID Connect provider: the redirects over plain HTTP, the attacks on them, and the page
in Chromium."""
import base64
import contextlib
import hashlib
import http.client
import json
import time
import urllib.parse
import uuid

import browser
import nebula
from identity import Issuer, key_file, token

SECRET = "s+cret /of:the console"
CLIENT = "console:1"


class Provider(Issuer):
    """Signs everybody in as alice, at once. bend changes the claims, or is called with the answer to a code."""

    def __init__(self):
        self.codes, self.bend, self.refuses, self.secret, self.seen = {}, {}, None, SECRET, []
        super().__init__()

    def document(self):
        return {**super().document(), "authorization_endpoint": f"{self.url}/authorize?realm=lab", "token_endpoint": f"{self.url}/token"}

    def answer(self, handler):
        url = urllib.parse.urlsplit(handler.path)
        if url.path.endswith("/authorize"):
            self.authorize(handler, dict(urllib.parse.parse_qsl(url.query)))
        elif url.path.endswith("/token"):
            size = int(handler.headers["Content-Length"])
            self.redeem(handler, dict(urllib.parse.parse_qsl(handler.rfile.read(size).decode())))
        else:
            super().answer(handler)

    def authorize(self, handler, asked):
        self.seen.append(asked)
        code = uuid.uuid4().hex
        self.codes[code] = asked
        back = {"error": self.refuses} if self.refuses else {"code": code, "iss": self.url}
        handler.send_response(302)
        handler.send_header("Location", asked["redirect_uri"] + "?" + urllib.parse.urlencode({**back, "state": asked["state"]}))
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def redeem(self, handler, form):
        asked = self.codes.pop(form.get("code"), None)
        keys = base64.b64encode(f"{urllib.parse.quote(CLIENT, safe='')}:{urllib.parse.quote(self.secret, safe='')}".encode()).decode()
        proof = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest()).rstrip(b"=").decode()
        good = (asked and proof == asked["code_challenge"] and asked["code_challenge_method"] == "S256" and form["redirect_uri"] == asked["redirect_uri"]
                and form["grant_type"] == "authorization_code" and handler.headers["Authorization"] == f"Basic {keys}")
        if not good:
            self.send(handler, 400, {"error": "invalid_grant"})
            return
        claims = self.claims(aud=CLIENT, nonce=asked["nonce"], preferred_username="Alice Doe")
        self.send(handler, 200, {"token_type": "Bearer", "access_token": "x", "id_token": token({**claims, **self.bend}, key_file("RSA"))})


class Visitor:
    """A browser without a page: it keeps cookies, and follows no redirect."""

    def __init__(self, address):
        self.address, self.cookies = address, {}

    def get(self, path, **headers):
        connection = http.client.HTTPConnection(self.address, timeout=nebula.PATIENCE_S)
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection.request("GET", path, headers={**({"Cookie": cookies} if cookies else {}), **headers})
        answer = connection.getresponse()
        for name, value in answer.getheaders():
            if name.lower() == "set-cookie":
                pair, *more = value.split("; ")
                name, _, value = pair.partition("=")
                self.cookies.pop(name, None) if "Max-Age=0" in more else self.cookies.update({name: value})
                self.attributes = more
        return answer.status, answer.getheader("Location") or "", answer.read()

    def to_provider(self):
        """The URL to which the provider would redirect the browser."""
        status, where, body = self.get("/openid/begin", **{"Sec-Fetch-Site": "same-origin"})
        assert status == 303, (status, body)
        url = urllib.parse.urlsplit(where)
        connection = http.client.HTTPConnection(url.netloc, timeout=nebula.PATIENCE_S)
        connection.request("GET", f"{url.path}?{url.query}")
        back = urllib.parse.urlsplit(connection.getresponse().getheader("Location"))
        return f"{back.path}?{back.query}"

    def come_back(self, path):
        return self.get(path, **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})[1]

    def session(self):
        status, _, body = self.get("/api/session")
        return json.loads(body) if status == 200 else None


def iam(server, action, **fields):
    form = urllib.parse.urlencode({"Action": action, "Version": "2010-05-08", **fields}).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded", "x-amz-content-sha256": hashlib.sha256(form).hexdigest()}
    return nebula.Client(server.http, service="iam").request("POST", "/", form, headers=headers)


def prepare(server, provider):
    """Creates the provider in IAM, and a role with read access for its user alice."""
    arn = f"arn:aws:iam::000000000000:oidc-provider/{provider.name}"
    trust = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Federated": arn}, "Action": "sts:AssumeRoleWithWebIdentity",
                                                    "Condition": {"StringEquals": {f"{provider.name}:sub": "alice"}}}]}
    done = [iam(server, "CreateOpenIDConnectProvider", Url=provider.url, **{"ClientIDList.member.1": CLIENT, "ClientIDList.member.2": "other"})[0],
            iam(server, "CreateRole", RoleName="reader", AssumeRolePolicyDocument=json.dumps(trust))[0],
            iam(server, "AttachRolePolicy", RoleName="reader", PolicyArn="arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess")[0]]
    assert done == [200, 200, 200], done


def redirects(tap, server, provider):
    visitor = Visitor(server.console)
    back = visitor.to_provider()
    begun = dict(visitor.cookies)
    tap.check({"HttpOnly", "SameSite=Lax", "Path=/openid/", "Max-Age=600"} <= set(visitor.attributes), "the begun sign-in's cookie is the browser's alone", visitor.attributes)
    asked = provider.seen[-1]
    tap.check(asked["realm"] == "lab" and asked["scope"] == "openid email" and asked["client_id"] == CLIENT and len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
              and asked["redirect_uri"] == f"http://{server.console}/openid/callback", "the provider is asked for a code, with state, nonce and a challenge", asked)
    tap.check(visitor.come_back(back) == "/" and "SameSite=Lax" in visitor.attributes, "and leads back")
    session = visitor.session()
    tap.check(session and session["user"] == "Alice-Doe" and session["arn"] == "arn:aws:sts::000000000000:assumed-role/reader/Alice-Doe", "alice has a session of the role, by her name", session)
    tap.check(not [name for name in visitor.cookies if name.endswith("-openid")], "nothing of the sign-in stays in the browser", visitor.cookies)
    tap.check(visitor.get("/s3/")[0] == 200 and visitor.get("/admin/v1/info")[0] == 403, "it may do what the role may, and no more")
    visitor.cookies.update(begun)
    tap.check(visitor.come_back(back).endswith("/provider"), "a code is good for once")
    thief = Visitor(server.console)
    tap.check(thief.come_back(thief.to_provider().replace("state=", "state=0")).endswith("/again"), "a state that is not the browser's own is refused")
    back = Visitor(server.console).to_provider()
    tap.check(thief.come_back(back).endswith("/again") and not thief.session(), "another browser's code is not taken: nobody is signed in as somebody else")
    thief = Visitor(server.console)
    back = thief.to_provider()
    (name, value), = thief.cookies.items()
    thief.cookies[name] = value[:64] + ".99999999999"
    tap.check(thief.come_back(back).endswith("/again"), "nor is a cookie whose time was changed")
    for path in ("/openid/callback", "/openid/callback?code=x&state=", "/openid/callback?state=%zz&code=%zz", "/openid/callback?" + "a=b&" * 900):
        tap.check(Visitor(server.console).get(path)[1].endswith("/again"), f"{path[:40]}: refused")
    tap.check(Visitor(server.console).get("/openid/begin", **{"Sec-Fetch-Site": "cross-site"})[0] == 403, "another site begins no sign-in")


def tokens(tap, server, provider):
    for bend, why, word in (({"nonce": "0" * 64}, "token", "another nonce"), ({"nonce": None}, "token", "no nonce"), ({"aud": "other"}, "token", "another client of the same provider"),
                            ({"aud": ["other", CLIENT], "azp": "other"}, "token", "a token that another client asked for"), ({"iss": "https://elsewhere.example.com"}, "token", "another issuer"),
                            ({"exp": 1}, "role", "a token that is over"), ({"sub": "mallory"}, "role", "a user whom the role does not name")):
        provider.bend = bend
        visitor = Visitor(server.console)
        said = visitor.come_back(visitor.to_provider())
        tap.check(said.endswith("/" + why) and not visitor.session(), f"{word} is refused", said)
    for size, where in ((13000, "/"), (16000, "/#/sign-in/")):
        provider.bend = {"padding": "x" * size}
        visitor = Visitor(server.console)
        said = visitor.come_back(visitor.to_provider())
        tap.check(said.startswith(where) and bool(visitor.session()) == (where == "/"), f"a token with a claim of {size} characters: {where}", said)
    provider.bend = {}
    provider.refuses = "access_denied"
    visitor = Visitor(server.console)
    tap.check(visitor.come_back(visitor.to_provider()).endswith("/provider"), "so is a user whom the provider refuses")
    provider.refuses = None


def lasts(server, seconds):
    """Whether a new sign-in lasts for so long, within a second; what was said."""
    visitor = Visitor(server.console)
    before = time.time()
    where = visitor.come_back(visitor.to_provider())
    after = time.time()
    session = visitor.session()
    good = where == "/" and session and before - 1 <= session["expires"] / 1000 - seconds <= after + 1
    return bool(good), f"{where} {session} {before} {after}"


def durations(tap, server):
    good, said = lasts(server, 3600)
    tap.check(good, "a session lasts as long as its role allows, where that is less than console.session_s", said)
    iam(server, "UpdateRole", RoleName="reader", MaxSessionDuration="7200")
    good, said = lasts(server, 7200)
    tap.check(good, "also when the role allows more than STS's default", said)
    iam(server, "UpdateRole", RoleName="reader", MaxSessionDuration="43200")
    good, said = lasts(server, 43200)
    tap.check(good, "and else for console.session_s", said)


def limited(tap, server):
    said = {Visitor(server.console).get("/openid/callback")[1] for _ in range(30)}
    tap.check("/#/sign-in/wait" in said, "a host has so many tries", said)


def page(tap, server, folder):
    why = browser.missing()
    if why:
        tap.skip("the page signs in at a provider", why)
        return
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(browser.Page(server.console, folder)) as chromium:
        chromium.driver.get(chromium.url)
        chromium.one("a.button", "Sign in with Lab")
        chromium.picture("openid")
        chromium.click("a.button", "Sign in with Lab")
        chromium.one(".who .name", "Alice-Doe")
        tap.check(chromium.one(".empty") and chromium.driver.current_url.startswith(chromium.url), "the page signs in at the provider, and is there again", chromium.driver.current_url)
        chromium.picture("openid-signed-in")
        chromium.click("button", "Sign out")
        chromium.one("a.button", "Sign in with Lab")
        chromium.driver.get(chromium.url + "/openid/callback?code=x&state=y")
        tap.check("Try again" in chromium.one(".sign-in .problem").text, "a sign-in that failed says why")
        chromium.picture("openid-refused")
        tap.check(not chromium.complaints(), "the browser found nothing wrong with it", chromium.complaints())


def settings(provider, **more):
    keys = {"issuer": provider.url, "name": "Lab", "client_id": CLIENT, "role": "arn:aws:iam::000000000000:role/reader", "scopes": "openid email", **more}
    words = [word for key, value in keys.items() for word in ("--set", f"console.openid.{key}={value}")]
    return [*words, "--set", "auth.web_identity=any"]


def run(tap, folder):
    with contextlib.closing(Provider()) as provider:
        provider.close = provider.server_close
        secret = folder / "client-secret"
        secret.write_text(SECRET + "\n")
        with nebula.Server(folder / "openid", folder / "openid.log", *settings(provider, client_secret_file=secret)) as server:
            prepare(server, provider)
            page(tap, server, folder / "screens-openid")
            redirects(tap, server, provider)
            durations(tap, server)
            said = (folder / "openid.log").read_text()
            tap.check(SECRET not in said and "id_token" not in said, "the log has no secret of it")
        # Refused tries are counted, so this uses another server, with a claim that contains the role.
        with nebula.Server(folder / "openid", folder / "claims.log", *settings(provider, client_secret_file=secret, role="", role_claim="roles"),
                           "--set", "console.session_s=900") as server:
            provider.bend = {"roles": ["admins", "arn:aws:iam::000000000000:role/reader"]}
            good, said = lasts(server, 900)
            tap.check(good, "a claim names the role, and the session lasts for a console.session_s that is less than the role's maximum", said)
            visitor = Visitor(server.console)
            provider.bend = {}
            tap.check(visitor.come_back(visitor.to_provider()).endswith("/role"), "a token without it is refused")
        with nebula.Server(folder / "openid", folder / "tokens.log", *settings(provider, client_secret_file=secret)) as server:
            tokens(tap, server, provider)
            limited(tap, server)
        with nebula.Server(folder / "openid", folder / "slash.log", *settings(provider, issuer=provider.url + "/", client_secret_file=secret)) as server:
            visitor = Visitor(server.console)
            tap.check(visitor.come_back(visitor.to_provider()) == "/" and visitor.session(), "an issuer that is configured with a slash at its end")
        provider.secret = "another"
        with nebula.Server(folder / "openid", folder / "away.log", *settings(provider, client_secret_file=secret)) as server:
            visitor = Visitor(server.console)
            tap.check(visitor.come_back(visitor.to_provider()).endswith("/provider"), "a wrong client secret is refused by the provider")
        provider.shutdown()
        with nebula.Server(folder / "openid", folder / "gone.log", *settings(provider, issuer="http://127.0.0.1:9/x", client_secret_file=secret)) as server:
            tap.check(Visitor(server.console).get("/openid/begin")[1].endswith("/away"), "a provider that does not answer: the page says so")
