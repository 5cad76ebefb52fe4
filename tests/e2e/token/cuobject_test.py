"""tests/e2e/token/cuobject_test.py: buffers and objects by a NIXL agent, whose OBJ plugin mints its tokens by our
libcuobjclient.so.1; run-cuobject starts this. Version 1.5.1 sends them in x-rdma-info, with a signed empty body, which
one vendor's server accepts. So a relay here sends the same requests in the form of docs/spec/token.md."""
import ctypes
import http.server
import os
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import numpy  # noqa: E402
from nebula import ACCESS_KEY, PATIENCE_S, SECRET_KEY, Client, Server, Tap  # noqa: E402
from nixl_cu13._api import nixl_agent, nixl_agent_config  # noqa: E402

FOLDER = pathlib.Path(os.environ["TEST_DIR"])
MIB = 1 << 20
THEIRS, OURS, REPLY = "x-rdma-info", "x-amz-rdma-token", "x-amz-rdma-reply"
SET_BY_CLIENT = ("host", "authorization", "x-amz-date", "x-amz-content-sha256", "user-agent", "accept", THEIRS)


class Relay(http.server.ThreadingHTTPServer):
    """Sends each request on to the server with the token in our header, and signs it again."""
    daemon_threads = True

    def __init__(self, server):
        super().__init__(("127.0.0.1", 0), Handler)
        self.server, self.replies = server, []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def relay(self):
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() not in SET_BY_CLIENT}
        headers[OURS] = self.headers[THEIRS]
        client = Client(self.server.server.http)
        status, answer, body = client.request(self.command, self.path, headers=headers)
        client.close()
        self.server.replies.append((self.command, answer.get(REPLY)))
        self.send_response_only(status)
        for name, value in answer.items():
            if name in ("etag", "content-range", "content-type"):
                self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = relay

    def log_message(self, *_):
        pass


class Agent:
    def __init__(self, server, relay):
        for name, value in {"AWS_ENDPOINT_URL": f"http://{server.http}", "AWS_ACCESS_KEY_ID": ACCESS_KEY,
                            "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "NEBULAIO_RDMA_DEVICE_NAME": "simulated"}.items():
            ctypes.CDLL(None).setenv(name.encode(), value.encode(), 1)
        self.agent = nixl_agent("us", nixl_agent_config(backends=[]))
        self.agent.create_backend("OBJ", {
            "bucket": "nixl", "endpoint_override": "http://127.0.0.1:%d" % relay.server_address[1], "scheme": "http",
            "access_key": ACCESS_KEY, "secret_key": SECRET_KEY, "req_checksum": "required", "accelerated": "true",
            "type": "dell"})

    def register(self, kind, *what):
        return self.agent.register_memory(list(what), kind, backends=["OBJ"])

    def move(self, operation, address, size, number, offset=0):
        ours = self.agent.get_xfer_descs([(address, size, 0)], "DRAM")
        theirs = self.agent.get_xfer_descs([(offset, size, number)], "OBJ")
        transfer = self.agent.initialize_xfer(operation, ours, theirs, "us", backends=["OBJ"])
        state, end = self.agent.transfer(transfer), time.monotonic() + PATIENCE_S
        while state == "PROC" and time.monotonic() < end:
            state = self.agent.check_xfer_state(transfer)
        self.agent.release_xfer_handle(transfer)
        return state


def moves(tap, server, relay):
    client = Client(server.http)
    client.request("PUT", "/nixl")
    nixl = Agent(server, relay)
    data = numpy.frombuffer(os.urandom(4 * MIB), dtype=numpy.uint8).copy()
    back = numpy.zeros(4 * MIB, dtype=numpy.uint8)
    buffers = nixl.register("DRAM", (data.ctypes.data, data.size, 0, ""), (back.ctypes.data, back.size, 0, ""))
    objects = nixl.register("OBJ", (0, data.size, 7, "key"))
    tap.check(nixl.move("WRITE", data.ctypes.data, data.size, 7) == "DONE", "NIXL writes a buffer to an object")
    answer = client.request("GET", "/nixl/key")
    tap.check(answer[0] == 200 and answer[2] == data.tobytes(), "which has its bytes")
    tap.check(nixl.move("READ", back.ctypes.data, back.size, 7) == "DONE" and (back == data).all(), "and reads it, the same bytes")
    back[:] = 0
    tap.check(nixl.move("READ", back.ctypes.data, MIB, 7, 2 * MIB) == "DONE", "it reads a part of the object")
    tap.check((back[:MIB] == data[2 * MIB:3 * MIB]).all() and not back[MIB:].any(), "whose bytes stand there, and nowhere else")
    tap.check(relay.replies == [("PUT", "200"), ("GET", "206"), ("GET", "206")], "all of them moved by RDMA", relay.replies)
    nixl.agent.deregister_memory(buffers)
    nixl.agent.deregister_memory(objects)
    client.close()


def main():
    tap = Tap()
    with Server(FOLDER / "data", FOLDER / "data.log") as server:
        relay = Relay(server)
        moves(tap, server, relay)
        relay.shutdown()
        tap.check(server.stop() == 0, "the server ends in order", server.log_tail())
    return tap.done()


sys.exit(main())
