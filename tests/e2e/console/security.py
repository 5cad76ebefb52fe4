"""tests/e2e/console/security.py: the requests that the console's server refuses, answers and passes on, over plain
HTTP."""
import http.client
import json
import re
import ssl
import subprocess
import urllib.parse

import nebula

LIMITED = {"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Action": ["s3:ListBucket", "s3:GetObject"], "Resource": ["arn:aws:s3:::shared", "arn:aws:s3:::shared/*"]}]}
ACCOUNT = {"display_name": "People", "users": [{"name": "reader", "inline": {"read": LIMITED}, "access_key": "READERKEY",
                                                "secret_key": "reader-secret-0123"}],
           "access_key": "PEOPLEKEY", "secret_key": "people-secret-0123"}


class Browser:
    """Requests as the page sends them, with its cookie."""

    def __init__(self, address, tls=None):
        self.address = address
        self.connection = http.client.HTTPSConnection(address, timeout=nebula.PATIENCE_S, context=tls) if tls else \
            http.client.HTTPConnection(address, timeout=nebula.PATIENCE_S)
        self.cookie = None

    def __call__(self, method, path, body=None, own=True, **headers):
        """(status, headers by lower-case name, body); own: as the page itself does."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if own:
            headers.setdefault("X-Console", "1")
        if self.cookie and "Cookie" not in headers:
            headers["Cookie"] = self.cookie
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        self.connection.request(method, path, body=body, headers=headers)
        answer = self.connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()

    def sign_in(self, access_key, secret_key, **headers):
        status, told, body = self("POST", "/api/sign-in", {"accessKey": access_key, "secretKey": secret_key}, **headers)
        if status == 200:
            self.cookie = told["set-cookie"].split(";")[0]
        return status, told, body


def page(tap, server):
    browser = Browser(server.console)
    status, headers, body = browser("GET", "/", own=False)
    tap.check(status == 200 and b"<!doctype html>" in body and headers["content-type"].startswith("text/html"), "the page is there")
    policy = headers["content-security-policy"]
    tap.check("unsafe" not in policy and "default-src 'none'" in policy and "frame-ancestors 'none'" in policy, "its policy is strict", policy)
    tap.check(b"<script>" not in body and b"style=" not in body and b" on" not in body, "nothing in it is inline", body)
    tap.check(headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY" and
              headers["referrer-policy"] == "no-referrer", "nor framed, nor guessed at", headers)
    for path in re.findall(rb'(?:src|href)="(/[^"]+)"', body):
        status, headers, text = browser("GET", path.decode(), own=False)
        tap.check(status == 200 and text, f"{path.decode()} is there")
        tap.check(browser("GET", path.decode(), own=False, If_None_Match=headers["etag"])[0] == 304, "and is not sent twice")
    tap.check(browser("GET", "/../etc/passwd")[0] == 401 and browser("GET", "/index.htm")[0] == 401, "no other file is")


def sign_in(tap, server):
    browser = Browser(server.console)
    for path in ("/s3/", "/s3/shared/a", "/admin/v1/info", "/metrics", "/api/session"):
        tap.check(browser("GET", path)[0] == 401, f"{path}: not without a session")
    tap.check(browser("POST", "/iam", "Action=ListUsers")[0] == 401, "nor IAM")
    status, headers, body = browser.sign_in(nebula.ACCESS_KEY, "wrong")
    tap.check(status == 401 and b"wrong" in body and "set-cookie" not in headers, "a wrong secret is refused", body)
    unknown = browser.sign_in("nobody", nebula.SECRET_KEY)
    tap.check((unknown[0], unknown[2]) == (status, body), "a key that is not there is refused in the same words", unknown)
    longer = browser.sign_in(nebula.ACCESS_KEY, "A" * 129)
    tap.check((longer[0], longer[2]) == (status, body), "a secret that is longer than any is refused in the same words", longer)
    for bad in (b"", b"[]", b"{", b'{"accessKey": 1}', b"x" * 100_000):
        tap.check(browser("POST", "/api/sign-in", bad)[0] in (400, 401), f"not understood: {bad[:20]}")
    status, headers, body = browser("POST", "/api/sign-in", {"roleArn": "arn:aws:iam::000000000000:role/none", "token": "a.b.c"})
    tap.check(status == 401 and b"token" in body and "set-cookie" not in headers, "a token that is none is refused", body)
    status, headers, body = browser.sign_in(nebula.ACCESS_KEY, nebula.SECRET_KEY)
    cookie = headers.get("set-cookie", "")
    tap.check(status == 200 and "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie and "Secure" not in cookie,
              "the right one gets a cookie", (status, headers))
    tap.check(nebula.SECRET_KEY not in body.decode() and b"oken" not in body and "no-store" in headers["cache-control"], "and no secret", body)
    told = json.loads(browser("GET", "/api/session")[2])
    tap.check(told["user"] == nebula.ACCESS_KEY and told["arn"].endswith(":root") and told["expires"] > 0, "the session is told", told)
    tap.check("Secure" in Browser(server.console).sign_in(nebula.ACCESS_KEY, nebula.SECRET_KEY, X_Forwarded_Proto="https")[1]["set-cookie"],
              "behind TLS the cookie is for TLS alone")
    return browser


def forged(tap, root):
    """Requests that a page of another site can make a browser send."""
    cases = [("without the header", {"own": False}), ("from another origin", {"Origin": "https://evil.example"}),
             ("from another port", {"Origin": "http://127.0.0.1:1"}), ("from no origin", {"Origin": "null"}),
             ("from another site", {"Sec_Fetch_Site": "cross-site"}), ("from the same site", {"Sec_Fetch_Site": "same-site"})]
    for name, headers in cases:
        tap.check(root("PUT", "/s3/forged", **headers)[0] == 403, f"a PUT {name} is refused")
        tap.check(root("POST", "/api/sign-out", **headers)[0] == 403, f"a sign-out {name} is refused")
    tap.check(root("GET", "/s3/shared/a", own=False, Sec_Fetch_Site="cross-site")[0] == 403, "a GET from another site is refused")
    tap.check(root("HEAD", "/s3/forged")[0] == 404, "none of them did anything")
    status, headers, _ = root("OPTIONS", "/s3/shared", Origin="https://evil.example", Access_Control_Request_Method="PUT")
    tap.check(status == 405 and not any(name.startswith("access-control") for name in headers), "no preflight is answered", (status, headers))
    tap.check(root("PUT", "/s3/own", Origin=f"http://{root.address}", Sec_Fetch_Site="same-origin")[0] == 200, "the page's own PUT is done")


def passed_on(tap, root):
    body = b"<script>alert(1)</script>"
    tap.check(root("PUT", "/s3/shared")[0] == 200, "a bucket is made")
    for name, headers in (("signed headers", {"x_amz_date": "19700101T000000Z"}), ("a digest", {"x_amz_content_sha256": "0" * 64}),
                          ("a token", {"x_amz_security_token": "x"}), ("a signature", {"Authorization": "AWS4-HMAC-SHA256 x"})):
        tap.check(root("PUT", "/s3/shared/a", body, Content_Type="text/html", x_amz_meta_who="me", **headers)[0] == 200,
                  f"{name} of the page's own do not count")
    status, headers, told = root("GET", "/s3/shared/a?response-content-type=text/html&response-content-disposition=inline")
    tap.check(status == 200 and told == body and headers["x-amz-meta-who"] == "me", "an object comes back with its metadata", headers)
    tap.check(headers["content-type"] == "application/octet-stream" and headers["x-content-type-options"] == "nosniff" and
              headers["content-disposition"].startswith("attachment") and "sandbox" in headers["content-security-policy"] and
              headers["x-console-content-type"] == "text/html", "but is never a page of the console's origin", headers)
    name = "/s3/shared/" + urllib.parse.quote('x/"a b"\r\nSet-Cookie: x=y\r\n/é.html')
    status, headers, told = root("PUT", name, b"1")
    _, headers, _ = root("GET", name)
    tap.check(status == 200 and headers["content-disposition"] == "attachment; filename*=UTF-8''%C3%A9.html" and "set-cookie" not in headers,
              "nor does its name make a header", headers)
    status, headers, told = root("GET", "/s3/shared?list-type=2&prefix=x/&delimiter=/&encoding-type=url")
    tap.check(status == 200 and b"<ListBucketResult" in told, "parameters go along", told)
    status, headers, _ = root("GET", "/s3/shared/a", Range="bytes=1-6")
    tap.check(status == 206 and headers["content-length"] == "6", "and ranges", headers)
    tap.check(b"NoSuchKey" in root("GET", "/s3/shared/nothing")[2], "and errors come back")
    tap.check(root("GET", "/s3/shared/%zz")[0] == 400, "a path that is none is refused")
    tap.check(root("POST", "/iam", "Action=ListUsers&Version=2010-05-08")[0] == 200, "IAM answers root")
    status, headers, told = root("GET", "/admin/v1/info")
    tap.check(status == 200 and "store" in json.loads(told), "the admin API answers root", told)
    tap.check(b"nebulaio_build_info" in root("GET", "/metrics")[2], "and so do the metrics")


def restricted(tap, server, root):
    tap.check(root("PUT", "/admin/v1/accounts/555", ACCOUNT)[0] == 200, "an account is made through the console")
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::555:user/reader"},
              "Action": ["s3:ListBucket", "s3:GetObject"], "Resource": ["arn:aws:s3:::shared", "arn:aws:s3:::shared/*"]}]}
    tap.check(root("PUT", "/s3/shared?policy", policy)[0] == 204, "and a bucket's policy")
    reader = Browser(server.console)
    status, _, body = reader.sign_in("READERKEY", "reader-secret-0123")
    tap.check(status == 200 and json.loads(body)["arn"] == "arn:aws:iam::555:user/reader", "its user signs in", body)
    tap.check(reader("GET", "/s3/shared?list-type=2")[0] == 200 and reader("GET", "/s3/shared/a")[0] == 200, "and reads what its policy lets it")
    for method, path in (("PUT", "/s3/shared/b"), ("DELETE", "/s3/shared/a"), ("GET", "/s3/shared?policy"), ("PUT", "/s3/new"),
                         ("GET", "/admin/v1/info"), ("GET", "/admin/v1/accounts"), ("GET", "/metrics")):
        status, _, body = reader(method, path, b"")
        tap.check(status == 403, f"not {method} {path}", (status, body))
    tap.check(reader("POST", "/iam", "Action=CreateUser&UserName=x&Version=2010-05-08")[0] == 403, "nor IAM")
    _, _, body = reader("POST", "/api/share", {"path": "/shared/a", "seconds": 3600})
    told = json.loads(body)
    url = urllib.parse.urlsplit(told["url"])
    connection = http.client.HTTPConnection(url.netloc, timeout=nebula.PATIENCE_S)
    connection.request("GET", f"{url.path}?{url.query}")
    tap.check(connection.getresponse().read() == b"<script>alert(1)</script>" and told["seconds"] == 3600, "a share link works without keys", told)
    tap.check(json.loads(reader("POST", "/api/share", {"path": "/shared/a", "seconds": 10**9})[2])["seconds"] <= 43200,
              "and no longer than the session")
    for bad in ({"path": "shared", "seconds": 1}, {"path": "/shared/a", "seconds": 0}, {"path": "/shared/%zz", "seconds": 9}, {}):
        tap.check(reader("POST", "/api/share", bad)[0] == 400, f"no link of {bad}")
    return reader


def sessions(tap, server, root, reader):
    other = Browser(server.console)
    other.cookie = reader.cookie[:-1] + ("a" if reader.cookie[-1] != "a" else "b")
    tap.check(other("GET", "/api/session")[0] == 401, "a cookie that was guessed is none")
    tap.check(reader("DELETE", "/s3/")[0] in (400, 403, 405), "nothing below S3's root is deleted")
    status, headers, _ = reader("POST", "/api/sign-out")
    tap.check(status == 200 and "Max-Age=0" in headers["set-cookie"] and reader("GET", "/api/session")[0] == 401, "a sign-out ends the session")
    tap.check(root("GET", "/api/session")[0] == 200, "and no other")
    many = [Browser(server.console) for _ in range(9)]
    tap.check([each.sign_in("PEOPLEKEY", "people-secret-0123")[0] for each in many] == [200] * 9, "a user signs in nine times")
    tap.check([each("GET", "/api/session")[0] for each in many] == [401] + [200] * 8, "and has eight sessions")
    reader.sign_in("READERKEY", "reader-secret-0123")
    tap.check(root("DELETE", "/admin/v1/accounts/555/users/reader")[0] == 204, "a user is deleted")
    tap.check(b"<Code>InvalidToken<" in reader("GET", "/s3/shared/a")[2], "and its session can do nothing more")


def limited(tap, server):
    """The last test, because this host must wait afterwards. Tries that succeed do not count."""
    browser = Browser(server.console)
    tap.check(all(browser.sign_in(nebula.ACCESS_KEY, nebula.SECRET_KEY)[0] == 200 for _ in range(15)), "fifteen sign-ins in a row")
    answers = []

    def guesses():
        """Guesses until it has to wait, and then brings the right key: a try comes back every 6 s, perhaps between the two."""
        answers.append(browser.sign_in(nebula.ACCESS_KEY, "guess"))
        if answers[-1][0] != 429:
            return False
        answers.append(browser.sign_in(nebula.ACCESS_KEY, nebula.SECRET_KEY))
        return answers[-1][0] == 429

    waits = nebula.becomes(guesses)
    told = [(status, headers) for status, headers, body in answers if status == 429 and 1 <= int(headers["retry-after"]) <= 6 and b"Too many" in body]
    tap.check(told, "a host that guesses has to wait", answers[-2:])
    tap.check(waits, "whatever it brings then", answers[-2:])
    metrics = server.metrics()
    tap.check(metrics['nebulaio_console_sign_ins_total{result="ok"}'] >= 15 and
              metrics['nebulaio_console_sign_ins_total{result="limited"}'] == len(told), "and the metrics tell")


def over_tls(tap, folder):
    """The console uses the certificate of S3 over HTTPS, also when S3's is off; links have the configured address."""
    pem, key = folder / "console.pem", folder / "console.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", key, "-out", pem], check=True, capture_output=True)
    sets = ("console.https=true", f"https.certificate={pem}", f"https.key={key}", "console.s3_url=https://s3.example.com/")
    with nebula.Server(folder / "tls", folder / "tls.log", *(word for each in sets for word in ("--set", each))) as server:
        browser = Browser(server.console, ssl.create_default_context(cafile=pem))
        status, headers, body = browser.sign_in(nebula.ACCESS_KEY, nebula.SECRET_KEY)
        tap.check(status == 200 and "; Secure" in headers["set-cookie"], "over TLS the cookie is for TLS alone", (status, headers))
        url = json.loads(browser("POST", "/api/share", {"path": "/b/k", "seconds": 60})[2])["url"]
        tap.check(url.startswith("https://s3.example.com/b/k?X-Amz-"), "a link begins with console.s3_url", url)
        tap.check(server.stop() == 0, "a server whose console has TLS ends in order")


def from_admin(tap, server):
    """Users of MinIO open 9001: here the metrics are there, and a browser is sent on."""
    def ask(path, **headers):
        connection = http.client.HTTPConnection(server.admin, timeout=nebula.PATIENCE_S)
        connection.putrequest("GET", path, skip_host=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status, answer.getheader("Location")

    port = server.console.rsplit(":", 1)[1]
    tap.check(ask("/", Host="nebula.example.com:9001", Accept="text/html,*/*") == (303, f"http://nebula.example.com:{port}/"), "a browser at the admin port is sent to the console")
    tap.check(ask("/", Host="[::1]:9001", Accept="text/html") == (303, f"http://[::1]:{port}/"), "by the same host")
    tap.check(ask("/", Host="x", Accept="*/*") == (404, None) and ask("/y", Host="x", Accept="text/html") == (404, None), "other clients are not, nor other paths")
    tap.check(ask("/", Host="a@b/c", Accept="text/html")[0] in (400, 404), "nor by a host that is none")


def run(tap, server):
    page(tap, server)
    from_admin(tap, server)
    root = sign_in(tap, server)
    passed_on(tap, root)
    forged(tap, root)
    reader = restricted(tap, server, root)
    sessions(tap, server, root, reader)
    limited(tap, server)
