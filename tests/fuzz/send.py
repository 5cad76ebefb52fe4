"""tests/fuzz/send.py: signs the cases of grammar.py unchanged, frames their bodies, sends them and reads the
answers."""
import base64
import hashlib
import hmac
import http.client
import random
import re
import socket
import time
import urllib.parse
import zlib

PATIENCE_S = 120
CHUNKS = 64
EMPTY = hashlib.sha256(b"").hexdigest()


class NoAnswer(Exception):
    """The server closed the connection, or sent invalid HTTP."""


def mac(key, text):
    return hmac.new(key, text, hashlib.sha256).digest()


def encoded(text, safe=""):
    """A part of a URI as SigV4 signs it: decoded and encoded once."""
    return urllib.parse.quote(urllib.parse.unquote_to_bytes(text), safe=safe + "-_.~").encode()


class Signer:
    def __init__(self, access_key, secret_key):
        now = time.gmtime()
        self.stamp = time.strftime("%Y%m%dT%H%M%SZ", now).encode()
        self.scope = b"%s/us-east-1/s3/aws4_request" % self.stamp[:8]
        self.credential = access_key.encode() + b"/" + self.scope
        self.key = b"AWS4" + secret_key.encode()
        for part in self.scope.split(b"/"):
            self.key = mac(self.key, part)

    def chain(self, kind, previous, *digests):
        return mac(self.key, b"\n".join([kind, self.stamp, self.scope, previous, *digests])).hex().encode()

    def signature(self, method, path, query, headers, payload):
        names = sorted({name.lower() for name, _ in headers})
        lines = [name + b":" + b",".join(b" ".join(value.strip(b" \t").replace(b"\t", b" ").split(b" "))
                                         if b"  " not in value else re.sub(rb"[ \t]+", b" ", value.strip(b" \t"))
                                         for given, value in headers if given.lower() == name) for name in names]
        items = sorted((encoded(n), encoded(v)) for n, v in query)
        canonical = b"\n".join([method, encoded(path, "/") or b"/", b"&".join(n + b"=" + v for n, v in items), *lines, b"",
                                b";".join(names), payload])
        digest = hashlib.sha256(canonical).hexdigest().encode()
        return mac(self.key, b"\n".join([b"AWS4-HMAC-SHA256", self.stamp, self.scope, digest])).hex().encode(), names


def bent_bytes(chance, data):
    """A small change of framed bytes."""
    at = chance.randrange(len(data) + 1)
    end = min(len(data), at + chance.choice((1, 2, 30)))
    return chance.choice((data[:at] + data[end:], data[:at] + bytes([chance.randrange(256)]) + data[at + 1:],
                          data[:at] + data[at:end] * 3 + data[end:], data[:end],
                          re.sub(rb"^[0-9a-f]+", chance.choice((b"ffffffffffffffff", b"0", b"-1", b"10000000000000000", b"")), data, 1)))


def chunks(signer, case, body, seed_signature):
    """The body as aws-chunked. The chain of signatures is valid; changes are made before signing, where possible."""
    kind, shape = case["payload"], case["chunked"] or {"sizes": [4096], "trailer": True, "seed": None}
    signed, trailer = "AWS4-HMAC" in kind, kind.endswith("TRAILER")
    chance = random.Random(shape["seed"])
    out, previous, at, turn = b"", seed_signature, 0, 0
    while True:
        size = max(shape["sizes"][turn % len(shape["sizes"])], len(body) // CHUNKS)
        piece, at, turn = body[at:at + size], at + size, turn + 1
        line = b"%x" % len(piece)
        if shape["seed"] is not None and chance.random() < 0.1:
            line = chance.choice((line.upper(), b"000" + line, line + b" ", b"-" + line, line + b"0", b"fffffffffffffff1"))
        if signed:
            previous = signer.chain(b"AWS4-HMAC-SHA256-PAYLOAD", previous, EMPTY.encode(),
                                    hashlib.sha256(piece).hexdigest().encode())
            line += b";chunk-signature=" + previous
        out += line + b"\r\n" + piece + (b"\r\n" if piece else b"")
        if not piece:
            break
    if trailer:
        crc = base64.b64encode(zlib.crc32(body).to_bytes(4, "big"))
        lines = b"x-amz-checksum-crc32:" + crc + b"\n" if shape["trailer"] else b""
        if shape["seed"] is not None and chance.random() < 0.5:
            lines = bent_bytes(chance, lines) if lines else b"x-amz-meta-t:" + b"v" * chance.choice((1, 9000)) + b"\n"
        out += lines.replace(b"\n", b"\r\n")
        if signed:
            out += b"x-amz-trailer-signature:" + signer.chain(
                b"AWS4-HMAC-SHA256-TRAILER", previous, hashlib.sha256(lines).hexdigest().encode()) + b"\r\n"
    out += b"\r\n"
    return bent_bytes(chance, out) if shape["seed"] is not None and chance.random() < 0.3 else out


def form_body(signer, case):
    boundary, out = case["boundary"].encode("latin-1", "replace"), b""
    for name, value in case["fields"]:
        if name == "{form}":
            value = value.encode()
            pairs = [(b"policy", value), (b"x-amz-signature", mac(signer.key, value).hex().encode()),
                     (b"x-amz-credential", signer.credential), (b"x-amz-date", signer.stamp),
                     (b"x-amz-algorithm", b"AWS4-HMAC-SHA256")]
        else:
            pairs = [(name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))]
        for name, value in pairs:
            extra = b'; filename="f"' if name == b"file" else b""
            out += b"--" + boundary + b'\r\nContent-Disposition: form-data; name="' + name + b'"' + extra + b"\r\n\r\n" + value + b"\r\n"
    out += b"--" + boundary + b"--\r\n"
    return bent_bytes(random.Random(len(out)), out) if case["bent_form"] else out


def wire(signer, case, host, known):
    """The request as bytes, and whether its framing is falsified: then nothing may follow it on its connection."""
    def data(text):
        return re.sub(r"\{(upload|version|etag)\}", lambda m: known[m.group(1)], text).encode("latin-1", "replace")

    method, path = case["method"].encode(), data(case["path"])
    query = [(data(n), data(v)) for n, v in case["query"]]
    headers = [(data(n), data(v)) for n, v in case["headers"]] + [(b"host", host.encode())]
    form = "fields" in case
    body = form_body(signer, case) if form else data(case["body"])
    chunked = case["payload"].startswith("STREAMING") and not case["presigned"]
    payload = case["payload"].encode() if case["payload"] != "hash" else hashlib.sha256(body).hexdigest().encode()
    if chunked:
        headers += [(b"x-amz-decoded-content-length", b"%d" % len(body)), (b"content-encoding", b"aws-chunked")]
        if case["payload"].endswith("TRAILER"):
            headers.append((b"x-amz-trailer", b"x-amz-checksum-crc32"))
    # These characters end a path or a parameter in the request line, for the server as for this program.
    whole = path + (b"?" + b"&".join(n + b"=" + v for n, v in query) if query else b"")
    path, _, text = whole.partition(b"?")
    query = [(item.partition(b"=")[0], item.partition(b"=")[2]) for item in text.split(b"&") if item]
    if form:
        pass
    elif case["presigned"]:
        query += [(b"X-Amz-Algorithm", b"AWS4-HMAC-SHA256"), (b"X-Amz-Credential", signer.credential.replace(b"/", b"%2F")),
                  (b"X-Amz-Date", signer.stamp), (b"X-Amz-Expires", b"3600"),
                  (b"X-Amz-SignedHeaders", b"%3B".join(sorted({n.lower() for n, _ in headers})))]
        signature, _ = signer.signature(method, path, query, headers, b"UNSIGNED-PAYLOAD")
        query.append((b"X-Amz-Signature", signature))
    else:
        headers += [(b"x-amz-date", signer.stamp), (b"x-amz-content-sha256", payload)]
        signature, names = signer.signature(method, path, query, headers, payload)
        headers.append((b"authorization", b"AWS4-HMAC-SHA256 Credential=" + signer.credential + b", SignedHeaders=" +
                        b";".join(names) + b", Signature=" + signature))
    if chunked:
        body = chunks(signer, case, body, signature)
    own = bool(case["length"]) or case["transfer"] or bool(case["chunked"] and case["chunked"]["seed"] is not None)
    if case["transfer"]:
        headers.append((b"transfer-encoding", b"chunked"))
        body = b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n" if body else b"0\r\n\r\n"
    elif body or method in (b"PUT", b"POST") or case["length"]:
        headers.append((b"content-length", case["length"].encode() if case["length"] else b"%d" % len(body)))
    target = path + (b"?" + b"&".join(n + b"=" + v for n, v in query) if query else b"")
    return method + b" " + target + b" HTTP/1.1\r\n" + b"".join(n + b": " + v + b"\r\n" for n, v in headers) + b"\r\n", body, own


class Door:
    """A connection that is kept open as long as the server does."""

    def __init__(self, address):
        self.address = (address.rsplit(":", 1)[0], int(address.rsplit(":", 1)[1]))
        self.stream = None

    def exchange(self, head, body, method, own):
        """(status, headers, body) of the answer."""
        for again in (True, False):
            fresh = self.stream is None
            if fresh:
                self.stream = socket.create_connection(self.address, timeout=PATIENCE_S)
            try:
                return self.once(head, body, method, own)
            except (http.client.HTTPException, ConnectionError, OSError) as error:
                self.close()
                if isinstance(error, TimeoutError) or fresh or not again:
                    raise NoAnswer(f"{type(error).__name__}: {error}") from error
        raise NoAnswer("never")

    def once(self, head, body, method, own):
        try:
            self.stream.sendall(head + body)
            if own:
                self.stream.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before it was complete: the answer has arrived
        answer = http.client.HTTPResponse(self.stream, method=method)
        answer.begin()
        text = answer.read()
        found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, text
        if own or answer.will_close:
            self.close()
        return found

    def close(self):
        if self.stream:
            self.stream.close()
        self.stream = None
