"""tests/e2e/lib/rdma_send.py: boto3 over RDMA. botocore's HTTP requests are sent as generic request capsules over a
native session, by libnebulaio: the same requests and answers on another transport."""

import ctypes
import io
import os
import threading
import urllib.parse
from xml.sax.saxutils import escape

from botocore.awsrequest import AWSResponse

from native import Header, Iov, Native, Request, Result

BODY_BYTES_MAX = 96 << 20
DOCUMENT_BYTES_MAX = 4 << 20  # maximum of an answer to a request with a body
NEB_S3 = 32
HEADERS_MAX = 32
# Headers of the connection, not of the request; or of a signature, which a session does not need.
NOT_SENT = {"host", "connection", "content-length", "transfer-encoding", "expect", "authorization", "x-amz-date",
            "x-amz-content-sha256", "user-agent", "amz-sdk-invocation-id", "amz-sdk-request", "accept-encoding"}


def unchunked(body, headers):
    """The bytes inside an aws-chunked body; its trailing headers join the others."""
    plain = b""
    rest = body
    while True:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size.split(b";")[0], 16)
        if not length:
            break
        plain += rest[:length]
        rest = rest[length + 2:]
    for line in rest.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon:
            headers[name.decode().lower()] = value.decode().strip()
    encoding = [e for e in headers.pop("content-encoding").replace(" ", "").split(",") if e and e != "aws-chunked"]
    if encoding:
        headers["content-encoding"] = ",".join(encoding)
    return plain


class Session:
    """One authenticated native session; strict: requests that RDMA cannot serve fail."""

    def __init__(self, address, access_key, secret_key):
        self.native = Native(f"rdma://{address}", (access_key, secret_key), BODY_BYTES_MAX, pool_bytes=32 << 20)
        self.lock = threading.Lock()  # a client is used by one thread at a time, boto3's transfers have many

    def close(self):
        self.native.close()

    def perform(self, *request):
        """Method, target, headers, body: returns (status, headers, body)."""
        with self.lock:
            return self._perform(*request)

    def _perform(self, method, target, headers, body):
        path, _, query = target.partition("?")
        if "aws-chunked" in headers.get("content-encoding", ""):
            body = unchunked(body, headers)
            headers = {k: v for k, v in headers.items() if k not in ("x-amz-decoded-content-length", "x-amz-trailer")}
        headers = {"x-nebulaio-etag": "md5", **headers}  # as over HTTP, so that one suite fits both
        fields = [(k.encode(), v.encode()) for k, v in headers.items() if k not in NOT_SENT]
        assert len(fields) <= HEADERS_MAX, f"{len(fields)} headers"
        table = (Header * max(1, len(fields)))(*[Header(*field) for field in fields])
        memory = ctypes.create_string_buffer(body, len(body)) if body else None
        request = Request(op=NEB_S3, method=method.encode(), path=path.encode(), query=query.encode() or None,
                          headers=table, header_count=len(fields), want_headers=True)
        if memory:
            request.body = ctypes.pointer(Iov(ctypes.addressof(memory), len(body)))
            request.body_count = 1
        if method != "HEAD":
            room = DOCUMENT_BYTES_MAX if body else BODY_BYTES_MAX
            request.into = ctypes.pointer(Iov(ctypes.addressof(self.native.into), room))
            request.into_count = 1
        result = Result()
        self.native.library.neb_perform(self.native.client, ctypes.byref(request), ctypes.byref(result))
        if not result.status:
            raise OSError(-result.error, f"{method} {path}: {os.strerror(-result.error)}")
        answer = {}
        for line in result.headers.decode().splitlines():
            name, _, value = line.partition(": ")
            answer[name.lower()] = value
        if result.code:  # the library has parsed the error's document: its results as a document again
            text = "".join(f"<{tag}>{escape(value.decode())}</{tag}>" for tag, value in (
                ("Code", result.code), ("Message", result.message), ("RequestId", result.request_id)))
            answer["content-length"] = str(len(text))
            return result.status, answer, f"<Error>{text}</Error>".encode()
        if result.etag:
            answer.setdefault("etag", f"\"{result.etag.decode()}\"")
        answer.setdefault("content-length", str(result.object_bytes if method == "HEAD" else result.bytes))
        return result.status, answer, ctypes.string_at(self.native.into, result.bytes)



class Raw(io.BytesIO):
    def stream(self, amt=65536, **_):
        while chunk := self.read(amt):
            yield chunk


def attach(client, session):
    """From now on this boto3 client's requests use the session."""

    def send(request, **_):
        url = urllib.parse.urlsplit(request.url)
        body = request.body or b""
        if hasattr(body, "read"):
            body = body.read()
        headers = {k.lower(): v.decode() if isinstance(v, bytes) else str(v) for k, v in request.headers.items()}
        target = url.path + ("?" + url.query if url.query else "")
        status, answer, text = session.perform(request.method, target or "/", headers, bytes(body))
        return AWSResponse(request.url, status, answer, Raw(text))

    client.meta.events.register("before-send.s3", send)
    return client
