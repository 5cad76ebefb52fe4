"""tests/e2e/conformance/breaker.py: an S3 endpoint that breaks rules of the RDMA token contract, one at a time: it stands
before a server and changes a request, or an answer, on the way. Bytes still move by RDMA, between the client and the
server behind it."""
import http.client
import http.server
import re
import threading

import nebula

TOKEN, REPLY, MOVED = "x-amz-rdma-token", "x-amz-rdma-reply", "x-amz-rdma-bytes-transferred"
# The proxy does not pass these on: they belong to one connection, or it sets them itself.
HOPS = ("connection", "keep-alive", "transfer-encoding", "content-length")
SIGNING = ("authorization", "x-amz-date", "host", "x-amz-content-sha256")


class Exchange:
    """A request and, after it was sent on, its answer."""

    def __init__(self, method, target, headers, body):
        self.method, self.target, self.headers, self.body = method, target, headers, body
        self.path, _, self.query = target.partition("?")
        self.signed_again = False
        self.status, self.answer, self.document = 0, {}, b""

    @property
    def token(self):
        return self.headers.get(TOKEN)

    @property
    def connecting(self):
        return "rdma-connect" in self.query

    def without(self, *names):
        """Removes these headers from the request, which the breaker then signs again."""
        for name in names:
            self.headers.pop(name, None)
        self.signed_again = True

    def says(self, status, document=b"", **answer):
        """Replaces the server's answer."""
        self.status, self.document = status, document
        self.answer = {name.replace("_", "-"): value for name, value in answer.items()}


class Breaker:
    """break_request(exchange) may change it, or answer it; break_answer(exchange) may change its answer."""

    def __init__(self, server):
        self.server = server
        self.break_request = self.break_answer = None
        breaker = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                exchange = Exchange(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
                breaker.serve(exchange)
                self.send_response_only(exchange.status)
                answer = {k: v for k, v in exchange.answer.items() if k not in HOPS or self.command == "HEAD"}
                if exchange.status != 204 and self.command != "HEAD":
                    answer["content-length"] = str(len(exchange.document))
                for name, value in answer.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(exchange.document)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = pass_on

            def log_message(self, *_):
                pass

        self.listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.listener.daemon_threads = True
        self.address = f"127.0.0.1:{self.listener.server_address[1]}"
        self.thread = threading.Thread(target=self.listener.serve_forever, daemon=True)
        self.thread.start()

    def serve(self, exchange):
        if self.break_request:
            self.break_request(exchange)
        if not exchange.status:
            self.send(exchange)
        if self.break_answer:
            self.break_answer(exchange)

    def send(self, exchange):
        headers = {k: v for k, v in exchange.headers.items() if k not in HOPS}
        if exchange.signed_again:
            signer = nebula.Client(self.server.http)
            headers = signer.sign(exchange.method, exchange.path, exchange.query,
                                  {k: v for k, v in headers.items() if k not in SIGNING})
        target = exchange.path + ("?" + exchange.query if exchange.query else "")
        connection = http.client.HTTPConnection(self.server.http, timeout=nebula.PATIENCE_S)
        connection.putrequest(exchange.method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        if exchange.body or exchange.method in ("PUT", "POST"):
            connection.putheader("content-length", str(len(exchange.body)))
        connection.endheaders(exchange.body or None)
        answer = connection.getresponse()
        exchange.status, exchange.document = answer.status, answer.read()
        exchange.answer = {k.lower(): v for k, v in answer.getheaders()}
        connection.close()

    def close(self):
        self.listener.shutdown()
        self.listener.server_close()
        self.thread.join()


def field(token, number, change):
    """The token with one field changed: change(number) -> number."""
    fields = token.split(":")
    fields[number] = f"{change(int(fields[number], 16)):0{len(fields[number])}x}"
    return ":".join(fields)


# ---- The faults: (name, the cases that must find it, the change of the request, the change of the answer). ----

def answers(when, change):
    """Changes the answers to these requests."""
    def at_answer(exchange):
        if when(exchange):
            change(exchange)
    return None, at_answer


def requests(when, change):
    def at_request(exchange):
        if when(exchange):
            change(exchange)
    return at_request, None


def put(x):
    return x.method == "PUT" and x.token and not x.connecting


def stranger(x):
    """Whether this is the suite's own request, by the number of its queue pair, which is not the one that its tokens
    name."""
    return x.connecting and x.status == 200 and int(x.token.split(":")[4], 16) & 0x400000


def get(x):
    return x.method == "GET" and x.token


def moved(x):
    return x.status in (200, 206) and REPLY in x.answer


def drop(*names):
    return lambda x: [x.answer.pop(name, None) for name in names]


def put_header(name, value):
    return lambda x: x.answer.update({name: value})


def code(old, new):
    return lambda x: setattr(x, "document", x.document.replace(f"<Code>{old}</Code>".encode(), f"<Code>{new}</Code>".encode()))


def status(number):
    return lambda x: setattr(x, "status", number)


def has_code(x, name):
    return f"<Code>{name}</Code>".encode() in x.document


def wider(x):
    """The server writes more than requested: past the window."""
    x.without()
    x.headers[TOKEN] = field(x.token, 1, lambda size: size + 100)
    first, last = re.fullmatch(r"bytes=(\d+)-(\d+)", x.headers["range"]).groups()
    x.headers["range"] = f"bytes={first}-{int(last) + 100}"


def done(x):
    x.says(200, etag='"0"', **{REPLY: "200"})


def got(x):
    x.says(200, etag='"0"', **{REPLY: "200", MOVED: "70001"})


def forget_query(x):
    x.query = ""
    x.without(*SIGNING[:2])


def forgetful():
    """The server declines all requests after its first failed transfer."""
    failed = []

    def at_request(x):
        if failed and x.token and not x.connecting:
            x.says(501, b"<Error><Code>NotImplemented</Code></Error>", **{REPLY: "501"})

    def at_answer(x):
        if has_code(x, "RDMATransferFailed"):
            failed.append(x)
    return at_request, at_answer


def once():
    """The server connects a queue pair of one number only once."""
    seen = set()

    def at_request(x):
        if x.connecting and x.method == "POST" and x.token in seen:
            x.says(409, b"<Error><Code>Conflict</Code></Error>")
        seen.add(x.token)
    return at_request, None


BREAKS = (
    ("an answer to ?rdma-connect without a packet number", (101,),
     *answers(stranger, drop("x-nebulaio-rdma-psn"))),
    ("a queue pair in upper case", (101,),
     *answers(stranger, lambda x: x.answer.update({TOKEN: x.answer[TOKEN].upper()}))),
    ("an MTU above the client's", (102,),
     *answers(lambda x: x.connecting and x.status == 200, put_header("x-nebulaio-rdma-mtu", "4096"))),
    ("a queue pair that connects once", (103,), *once()),
    ("tokens that no signature covers", (104, 402, 403),
     *requests(lambda x: x.token and TOKEN not in x.headers.get("authorization", ""), lambda x: x.without())),
    ("malformed tokens that are taken for an internal error", (105, 401), *answers(
        lambda x: has_code(x, "InvalidRDMAToken"), code("InvalidRDMAToken", "InternalError"))),
    ("the end of an unknown queue pair that is a success", (106,),
     *answers(lambda x: x.connecting and x.status == 404, lambda x: x.says(204))),
    ("a queue pair that never ends", (107,),
     *requests(lambda x: x.connecting and x.method == "DELETE", lambda x: x.says(204))),
    ("anybody's queue pair that anybody ends", (108, 505), *requests(
        lambda x: x.token and nebula.ACCESS_KEY not in x.headers.get("authorization", ""), lambda x: x.without())),
    ("no reply header", (201, 203, 205, 301), *answers(lambda x: moved(x), drop(REPLY))),
    ("reply 200 to a range", (203, 307), *answers(lambda x: moved(x) and x.status == 206, put_header(REPLY, "200"))),
    ("status 200 to a range", (203,), *answers(lambda x: moved(x) and x.status == 206, status(200))),
    ("a count of bytes that is too high", (201, 202, 205),
     *answers(lambda x: MOVED in x.answer, lambda x: x.answer.update({MOVED: str(int(x.answer[MOVED]) + 1)}))),
    ("no count of bytes", (201, 203), *answers(moved, drop(MOVED))),
    ("a body beside the bytes", (201, 301), *answers(moved, lambda x: setattr(x, "document", b"body"))),
    ("a GET that overlooks the token", (201, 202), *requests(get, lambda x: x.without(TOKEN))),
    ("bytes that stand elsewhere in the window", (202, 203), *requests(get, lambda x: (
        x.without(), x.headers.update({TOKEN: field(x.token, 0, lambda addr: addr + 1)})))),
    ("bytes behind the range", (203,), *requests(lambda x: get(x) and x.headers.get("range", "").startswith("bytes=100-"), wider)),
    ("no Content-Range", (204,), *answers(moved, drop("content-range"))),
    ("another ETag", (209,), *answers(lambda x: get(x) and moved(x), put_header("etag", '"0"'))),
    ("a checksum of other bytes", (210,),
     *answers(lambda x: "x-amz-checksum-crc64nvme" in x.answer, put_header("x-amz-checksum-crc64nvme", "AAAAAAAAAAA="))),
    ("a reply header on errors", (206, 207, 208, 302, 404), *answers(
        lambda x: x.token and 400 <= x.status < 500, put_header(REPLY, "200"))),
    ("an absent key that moves bytes", (206,), *requests(
        lambda x: get(x) and x.path.endswith("absent"), lambda x: (x.without(), setattr(x, "path", x.path.replace("absent", "object"))))),
    ("a range that is not looked at", (203, 207), *requests(get, lambda x: x.without("range"))),
    ("preconditions that are not looked at", (208, 304), *requests(
        lambda x: get(x) or put(x), lambda x: x.without("if-match", "if-none-match"))),
    ("a PUT that overlooks the token, and stores an empty object", (301, 502, 503),
     *requests(lambda x: put(x) and not x.query and "authorization" in x.headers, lambda x: x.without(TOKEN))),
    ("a part that overlooks the token", (306, 504), *requests(lambda x: put(x) and x.query, lambda x: x.without(TOKEN))),
    ("a PUT that is not done, and says so not", (301, 305, 602), *requests(put, done)),
    ("a PUT without an ETag", (301,), *answers(put, drop("etag"))),
    ("checksums that are not compared", (302,), *requests(put, lambda x: x.without("x-amz-checksum-crc64nvme"))),
    ("Content-MD5 that is not compared", (303,), *requests(put, lambda x: x.without("content-md5"))),
    ("metadata that is lost", (305,), *requests(put, lambda x: x.without("x-amz-meta-colour"))),
    ("partNumber that is not looked at", (307,), *requests(lambda x: get(x) and "partNumber" in x.query, forget_query)),
    ("a window that is taken for larger", (404,), *requests(get, lambda x: (
        x.without(), x.headers.update({TOKEN: field(x.token, 1, lambda size: size + 1)})))),
    ("an empty window that is an empty object", (405,), *requests(
        lambda x: put(x) and x.token.split(":")[1] == "00000000", lambda x: x.without(TOKEN))),
    ("a body that goes before the token", (406,), *requests(lambda x: put(x) and x.body, lambda x: x.without(TOKEN))),
    ("a signed digest of nothing", (407,), *requests(
        lambda x: put(x) and x.headers["x-amz-content-sha256"] != "UNSIGNED-PAYLOAD", lambda x: x.without())),
    ("a DELETE that overlooks the token", (408,), *requests(
        lambda x: x.method == "DELETE" and not x.connecting and x.token, lambda x: x.without(TOKEN))),
    ("a decline without the reply header", (501, 502, 503, 504), *answers(
        lambda x: x.answer.get(REPLY) == "501", drop(REPLY))),
    ("a decline that is a success", (501, 502), *answers(lambda x: x.answer.get(REPLY) == "501", lambda x: x.says(
        200, etag='"0"', **{REPLY: "501"}))),
    ("a failure that is told as a wish to retry", (601, 602, 605), *answers(
        lambda x: has_code(x, "RDMATransferFailed"), status(503))),
    ("a failure that counts bytes", (601,), *answers(lambda x: has_code(x, "RDMATransferFailed"), put_header(MOVED, "70001"))),
    ("success, whatever happened", (601, 603, 605, 606), *requests(get, got)),
    ("a server that declines for ever after a failure", (604,), *forgetful()),
)
