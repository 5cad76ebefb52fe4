"""tests/e2e/lib/identity.py: an OpenID Connect provider of the test's own: its keys, its tokens, its server."""

import base64
import functools
import http.server
import json
import pathlib
import ssl
import subprocess
import tempfile
import threading
import time
import uuid

from nebula import PATIENCE_S, Listener

FOLDER = tempfile.TemporaryDirectory(prefix="identity-")
SCRATCH = pathlib.Path(FOLDER.name)
CURVES = {"ES256": ("P-256", 32), "ES384": ("P-384", 48)}


def openssl(*words, data=None):
    return subprocess.run(["openssl", *words], input=data, check=True, capture_output=True, timeout=PATIENCE_S).stdout


def coded(data):
    return base64.urlsafe_b64encode(data if isinstance(data, bytes) else json.dumps(data).encode()).rstrip(b"=").decode()


@functools.cache
def key_file(kind, name="first"):
    """kind: RSA, or the algorithm of a curve."""
    path = SCRATCH / f"{kind}-{name}.pem"
    how = (["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"] if kind == "RSA" else
           ["-algorithm", "EC", "-pkeyopt", f"ec_paramgen_curve:{CURVES[kind][0]}"])
    openssl("genpkey", *how, "-out", path)
    return path


def jwk(path, kind, **more):
    if kind == "RSA":
        modulus = openssl("rsa", "-in", path, "-noout", "-modulus").decode().strip().split("=")[1]
        return {"kty": "RSA", "use": "sig", "n": coded(bytes.fromhex(modulus)), "e": "AQAB", **more}
    curve, half = CURVES[kind]
    point = openssl("pkey", "-in", path, "-pubout", "-outform", "DER")[-2 * half:]
    return {"kty": "EC", "crv": curve, "x": coded(point[:half]), "y": coded(point[half:]), **more}


def halves(der, half):
    """An ECDSA signature in the format of tokens: r and s concatenated."""
    at, out = 2 if der[1] < 0x80 else 3, b""
    for _ in range(2):
        size = der[at + 1]
        out += der[at + 2:at + 2 + size].lstrip(b"\0").rjust(half, b"\0")
        at += 2 + size
    return out


def token(claims, path, algorithm="RS256", kid="rsa", **header):
    text = f"{coded({'alg': algorithm, 'typ': 'JWT', 'kid': kid, **header})}.{coded(claims)}"
    signature = openssl("dgst", f"-sha{algorithm[2:]}", "-sign", path, data=text.encode())
    if algorithm in CURVES:
        signature = halves(signature, CURVES[algorithm][1])
    return f"{text}.{coded(signature)}"


class Issuer(Listener):
    daemon_threads = True

    def __init__(self, chain=None):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(handler):  # noqa: N805
                handler.server.asked.append(handler.path)
                self.answer(handler)

            do_POST = do_GET

            def log_message(handler, *words):  # noqa: N805
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.asked, self.keys, self.said = [], [jwk(key_file("RSA"), "RSA", kid="rsa")], None
        if chain:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*chain)
            # The connection's thread does the handshake, which may fail there.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        # A port may be reused while the server still has the keys of its former user.
        self.name = f"127.0.0.1:{self.server_address[1]}/{uuid.uuid4().hex}"
        self.url = f"{'https' if chain else 'http'}://{self.name}"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def document(self):
        return {"issuer": self.said or self.url, "jwks_uri": f"{self.url}/keys"}

    def answer(self, handler):
        self.send(handler, 200, self.document() if handler.path.endswith("/openid-configuration") else {"keys": self.keys})

    @staticmethod
    def send(handler, status, value):
        body = json.dumps(value).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def handle_error(self, *words):
        pass

    def claims(self, **more):
        now = int(time.time())
        return {"iss": self.url, "sub": "alice", "aud": "app", "iat": now, "nbf": now, "exp": now + 3600, **more}
