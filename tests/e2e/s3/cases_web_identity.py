"""OpenID Connect: providers in IAM; sessions for callers with a token, from the test's own identity provider."""

import contextlib
import functools
import hashlib
import hmac
import json
import pathlib
import time

from botocore.exceptions import ClientError
from cases_access import denied, made, policy
from cases_iam import allow
from identity import CURVES, SCRATCH, Issuer, coded, jwk, key_file, openssl, token
from suite import equal, refused


def test_providers(s):
    iam = s.one("iam")
    url, thumbprint = "https://id.example.com/realms/x", "AB" * 20
    arn = "arn:aws:iam::111111111111:oidc-provider/id.example.com/realms/x"
    tags = [{"Key": "Team", "Value": "red"}]
    try:
        made = iam.create_open_id_connect_provider(Url=url, ClientIDList=["one"], ThumbprintList=[thumbprint], Tags=tags)
        equal((made["OpenIDConnectProviderArn"], made["Tags"]), (arn, tags))
        refused(409, "EntityAlreadyExists", iam.create_open_id_connect_provider, Url=url + "/", ThumbprintList=[])
        told = iam.get_open_id_connect_provider(OpenIDConnectProviderArn=arn)
        equal((told["Url"], told["ClientIDList"], told["ThumbprintList"], told["Tags"]),
              ("id.example.com/realms/x", ["one"], [thumbprint], tags))
        equal(iam.get_open_id_connect_provider(OpenIDConnectProviderArn=arn.replace("111111111111", ""))["Url"], told["Url"])
        equal(iam.list_open_id_connect_providers()["OpenIDConnectProviderList"], [{"Arn": arn}])
        equal(s.two("iam").list_open_id_connect_providers()["OpenIDConnectProviderList"], [])
        equal(iam.get_account_summary()["SummaryMap"]["Providers"], 1)
        for client in ("two", "two", "one"):
            iam.add_client_id_to_open_id_connect_provider(OpenIDConnectProviderArn=arn, ClientID=client)
        for client in ("one", "none"):
            iam.remove_client_id_from_open_id_connect_provider(OpenIDConnectProviderArn=arn, ClientID=client)
        iam.update_open_id_connect_provider_thumbprint(OpenIDConnectProviderArn=arn, ThumbprintList=["cd" * 20, "ef" * 20])
        iam.tag_open_id_connect_provider(OpenIDConnectProviderArn=arn, Tags=[{"Key": "a", "Value": "b"}])
        iam.untag_open_id_connect_provider(OpenIDConnectProviderArn=arn, TagKeys=["team"])
        told = iam.get_open_id_connect_provider(OpenIDConnectProviderArn=arn)
        equal((told["ClientIDList"], told["ThumbprintList"]), (["two"], ["cd" * 20, "ef" * 20]))
        equal(iam.list_open_id_connect_provider_tags(OpenIDConnectProviderArn=arn)["Tags"], [{"Key": "a", "Value": "b"}])
        refused(409, "LimitExceeded", iam.update_open_id_connect_provider_thumbprint, OpenIDConnectProviderArn=arn,
                ThumbprintList=[f"{n:02x}" * 20 for n in range(6)])
        refused(400, "InvalidInput", iam.update_open_id_connect_provider_thumbprint, OpenIDConnectProviderArn=arn,
                ThumbprintList=["z" * 40])
        equal(iam.get_open_id_connect_provider(OpenIDConnectProviderArn=arn)["ThumbprintList"], ["cd" * 20, "ef" * 20])
        refused(409, "LimitExceeded", iam.create_open_id_connect_provider, Url="https://many.example.com", ThumbprintList=[],
                ClientIDList=[f"client-{n}" for n in range(101)])
        for bad in ("ftp://id.example.com", "https://", "https://id.example.com/?a=b", "https://user@id.example.com"):
            refused(400, "InvalidInput", iam.create_open_id_connect_provider, Url=bad, ThumbprintList=[])
        refused(404, "NoSuchEntity", s.two("iam").get_open_id_connect_provider, OpenIDConnectProviderArn=arn)
        refused(404, "NoSuchEntity", iam.get_open_id_connect_provider, OpenIDConnectProviderArn=arn + "/y")
        refused(400, "InvalidInput", iam.get_open_id_connect_provider, OpenIDConnectProviderArn="arn:aws:iam::1:user/one-of-many")
        denied(s.three("iam").create_open_id_connect_provider, Url=url, ThumbprintList=[])
    finally:
        iam.delete_open_id_connect_provider(OpenIDConnectProviderArn=arn)
    refused(404, "NoSuchEntity", iam.get_open_id_connect_provider, OpenIDConnectProviderArn=arn)
    refused(404, "NoSuchEntity", iam.delete_open_id_connect_provider, OpenIDConnectProviderArn=arn)


@contextlib.contextmanager
def issuer(iam, chain=None, thumbprints=(), **options):
    """An issuer that is a provider of the account, and a role that gives its alice objects below alice/."""
    one = Issuer(chain)
    arn = iam.create_open_id_connect_provider(
        Url=one.url, **{"ClientIDList": ["app"], "ThumbprintList": list(thumbprints), **options})["OpenIDConnectProviderArn"]
    trust = {"Effect": "Allow", "Principal": {"Federated": arn}, "Action": "sts:AssumeRoleWithWebIdentity",
             "Condition": {"StringEquals": {f"{one.name}:sub": "alice", f"{one.name}:aud": "app"}}}
    try:
        one.role = iam.create_role(RoleName="web", AssumeRolePolicyDocument=policy(trust))["Role"]["Arn"]
        iam.put_role_policy(RoleName="web", PolicyName="own", PolicyDocument=allow(["s3:PutObject", "s3:GetObject"]))
        yield one
    finally:
        one.shutdown()
        one.server_close()
        iam.delete_open_id_connect_provider(OpenIDConnectProviderArn=arn)
        iam.delete_role_policy(RoleName="web", PolicyName="own")
        iam.delete_role(RoleName="web")


def enter_once(s, role, text, **more):
    return s.client(unsigned=True, service="sts").assume_role_with_web_identity(
        RoleArn=role, RoleSessionName="visit", WebIdentityToken=text, **more)


# Answers that the issuer did not answer.
FAILED = []


def enter(*words, **more):
    """The server waits some seconds for the issuer, which is this process: a busy machine may keep it from its processor for
    longer. Then again."""
    deadline = time.monotonic() + 180
    while True:
        try:
            given = enter_once(*words, **more)
            FAILED.extend(["repeated by the SDK"] * given["ResponseMetadata"]["RetryAttempts"])
            return given
        except ClientError as error:
            if error.response["Error"]["Code"] != "IDPCommunicationError" or time.monotonic() > deadline:
                raise
            FAILED.extend([str(error)] * (1 + error.response["ResponseMetadata"]["RetryAttempts"]))


def session(s, given):
    keys = given["Credentials"]
    return s.client(keys["AccessKeyId"], keys["SecretAccessKey"], token=keys["SessionToken"])


def test_sessions(s):
    iam, rsa, failed = s.one("iam"), key_file("RSA"), len(FAILED)
    bucket = made(s, s.one())
    with issuer(iam) as idp:
        given = enter(s, idp.role, token(idp.claims(), rsa))
        equal((given["SubjectFromWebIdentityToken"], given["Audience"], given["Provider"]), ("alice", "app", idp.url))
        equal(given["AssumedRoleUser"]["Arn"], "arn:aws:sts::111111111111:assumed-role/web/visit")
        client = session(s, given)
        client.put_object(Bucket=bucket, Key="key", Body=b"x")
        denied(client.list_objects_v2, Bucket=bucket)
        narrow = session(s, enter(s, idp.role, token(idp.claims(), rsa), Policy=allow("s3:GetObject"), DurationSeconds=900))
        narrow.get_object(Bucket=bucket, Key="key")
        denied(narrow.put_object, Bucket=bucket, Key="key", Body=b"x")
        refused(400, "ValidationError", enter, s, idp.role, token(idp.claims(), rsa), DurationSeconds=7200)
        refused(400, "MalformedPolicyDocument", enter, s, idp.role, token(idp.claims(), rsa), Policy="{}")
        # One of several audiences; another client's token for us; a token for other services, too.
        for claims in ({"aud": ["other", "app"]}, {"aud": "app", "azp": "other"}):
            enter(s, idp.role, token(idp.claims(**claims), rsa))
        # Each algorithm; new keys are found, too.
        for algorithm in CURVES:
            idp.keys.append(jwk(key_file(algorithm), algorithm, kid=algorithm, alg=algorithm))
        for algorithm in ("RS384", "RS512"):
            enter(s, idp.role, token(idp.claims(), rsa, algorithm))
        for algorithm in CURVES:
            enter(s, idp.role, token(idp.claims(), key_file(algorithm), algorithm, kid=algorithm))
        fetches = len([path for path in idp.asked if path.endswith("/keys")])
        assert 2 <= fetches <= 2 + len(FAILED) - failed, (idp.asked, FAILED)


def test_tags_of_tokens(s):
    iam, rsa, claim = s.one("iam"), key_file("RSA"), "https://aws.amazon.com/tags"
    bucket = made(s, s.one())
    with issuer(iam) as idp:
        iam.put_role_policy(RoleName="web", PolicyName="own", PolicyDocument=allow(
            "s3:PutObject", f"arn:aws:s3:::{bucket}/${{aws:PrincipalTag/Team}}/*"))
        text = token({**idp.claims(), claim: {"principal_tags": {"Team": ["red"]}, "transitive_tag_keys": ["Team"]}}, rsa)
        refused(403, "AccessDenied", enter, s, idp.role, text)
        trust = iam.get_role(RoleName="web")["Role"]["AssumeRolePolicyDocument"]
        trust["Statement"].append({**trust["Statement"][0], "Action": "sts:TagSession",
                                   "Condition": {"StringEquals": {"aws:RequestTag/Team": "red"}}})
        iam.update_assume_role_policy(RoleName="web", PolicyDocument=json.dumps(trust))
        client = session(s, enter(s, idp.role, text))
        client.put_object(Bucket=bucket, Key="red/key", Body=b"x")
        denied(client.put_object, Bucket=bucket, Key="blue/key", Body=b"x")
        for tags in ({"Team": "blue"}, {"Team": ["blue"]}):
            refused(403, "AccessDenied", enter, s, idp.role, token({**idp.claims(), claim: {"principal_tags": tags}}, rsa))
        refused(400, "InvalidIdentityToken", enter, s, idp.role,
                token({**idp.claims(), claim: {"principal_tags": {"Team": ["red", "blue"]}}}, rsa))


def test_many_groups(s):
    """A trust policy sees all values of a claim; a token with more than it can see is refused."""
    iam, rsa = s.one("iam"), key_file("RSA")
    with issuer(iam) as idp:
        trust = iam.get_role(RoleName="web")["Role"]["AssumeRolePolicyDocument"]
        trust["Statement"].append({"Effect": "Deny", "Principal": "*", "Action": "sts:AssumeRoleWithWebIdentity",
                                   "Condition": {"ForAnyValue:StringEquals": {f"{idp.name}:groups": "banned"}}})
        iam.update_assume_role_policy(RoleName="web", PolicyDocument=json.dumps(trust))
        enter(s, idp.role, token(idp.claims(groups=["x"] * 256), rsa))
        for groups in (["x"] * 99 + ["banned"], ["x"] * 257):
            refused(403, "AccessDenied", enter, s, idp.role, token(idp.claims(groups=groups), rsa))


def test_tokens_that_are_refused(s):
    iam, rsa = s.one("iam"), key_file("RSA")
    now = int(time.time())

    def bad(code, text, role=None, status=400):
        refused(status, code, enter, s, role or idp.role, text)

    with issuer(iam) as idp:
        claims, good = idp.claims(), token(idp.claims(), rsa)
        head, body, signature = good.split(".")
        bad("ExpiredTokenException", token(idp.claims(exp=now - 300), rsa))
        for more in ({"aud": "else"}, {"nbf": now + 3600}, {"iat": now + 3600}, {"exp": "soon"}, {"iss": "http://else"}, {"sub": 7}):
            bad("InvalidIdentityToken", token({**claims, **more}, rsa))
        bad("AccessDenied", token(idp.claims(sub="mallory"), rsa), status=403)
        bad("AccessDenied", good, idp.role.replace("web", "none"), 403)
        bad("InvalidIdentityToken", good, idp.role.replace("111111111111", "222222222222"))
        # Unsigned, signed with a public secret, with another key of the same name, and changed after signing.
        bad("InvalidIdentityToken", f"{coded({'alg': 'none'})}.{body}.")
        secret = openssl("pkey", "-in", rsa, "-pubout")
        text = f"{coded({'alg': 'HS256', 'kid': 'rsa'})}.{body}"
        bad("InvalidIdentityToken", f"{text}.{coded(hmac.new(secret, text.encode(), hashlib.sha256).digest())}")
        bad("InvalidIdentityToken", token(claims, key_file("RSA", "other")))
        bad("InvalidIdentityToken", token(claims, key_file("ES256"), "ES256"))
        bad("InvalidIdentityToken", f"{head}.{coded(idp.claims(sub='alice', exp=now + 9999))}.{signature}")
        bad("InvalidIdentityToken", token(claims, rsa, crit=["x"]))
        for text in ("not.a.token", "....", good[:-6], "x" * 20):
            bad("InvalidIdentityToken", text)
        enter(s, idp.role, good)
        # Unknown keys are fetched only a few times.
        began = time.monotonic()
        for n in range(20):
            bad("InvalidIdentityToken", token(claims, rsa, kid=f"none-{n}"))
        minutes = 1 + (time.monotonic() - began) // 60
        assert len([path for path in idp.asked if path.endswith("/keys")]) <= 4 * (minutes + 1), idp.asked
        enter(s, idp.role, good)
    # A deleted provider, and a false issuer.
    with issuer(iam) as idp:
        idp.said = "http://127.0.0.1/another"
        refused(400, "IDPCommunicationError", enter_once, s, idp.role, token(idp.claims(), rsa))
        idp.shutdown()
        idp.server_close()
        refused(400, "IDPCommunicationError", enter_once, s, idp.role, token(idp.claims(), rsa))
    with issuer(iam, ClientIDList=[]) as idp:
        refused(400, "InvalidIdentityToken", enter, s, idp.role, token(idp.claims(), rsa))


@functools.cache
def chain(address):
    """A certificate for an address, followed by its own authority's: (chain, key), the authority's thumbprint."""
    base = SCRATCH / address
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9"]
    openssl("req", "-x509", *new, "-subj", "/CN=authority", "-keyout", f"{base}-ca.key", "-out", f"{base}-ca.pem")
    openssl("req", "-x509", *new, "-subj", "/CN=leaf", "-addext", f"subjectAltName=IP:{address}", "-addext", "basicConstraints=CA:FALSE",
            "-CA", f"{base}-ca.pem", "-CAkey", f"{base}-ca.key", "-keyout", f"{base}.key", "-out", f"{base}.pem")
    both = pathlib.Path(f"{base}-chain.pem")
    both.write_bytes(pathlib.Path(f"{base}.pem").read_bytes() + pathlib.Path(f"{base}-ca.pem").read_bytes())
    return (both, f"{base}.key"), hashlib.sha1(openssl("x509", "-in", f"{base}-ca.pem", "-outform", "DER")).hexdigest()


def test_issuers_certificates(s):
    """An unknown authority is trusted by its thumbprint, for the hosts in its certificates."""
    iam, rsa = s.one("iam"), key_file("RSA")
    good, thumbprint = chain("127.0.0.1")
    with issuer(iam, good, [thumbprint]) as idp:
        enter(s, idp.role, token(idp.claims(), rsa))
        # Keys fetched with one thumbprint are not used with another.
        iam.update_open_id_connect_provider_thumbprint(
            OpenIDConnectProviderArn=f"arn:aws:iam::111111111111:oidc-provider/{idp.name}", ThumbprintList=["ab" * 20])
        refused(400, "IDPCommunicationError", enter_once, s, idp.role, token(idp.claims(), rsa))
    elsewhere, thumbprint = chain("127.0.0.9")
    with issuer(iam, elsewhere, [thumbprint]) as idp:
        refused(400, "IDPCommunicationError", enter_once, s, idp.role, token(idp.claims(), rsa))
