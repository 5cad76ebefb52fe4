"""tests/e2e/nixl/nixl_test.py: nixl's agents as the wheel is, with its backend OBJ; run-nixl installs it and starts this."""
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from nebula import ACCESS_KEY, PATIENCE_S, SECRET_KEY, Client, Server, Tap  # noqa: E402

import numpy  # noqa: E402
from nixl._api import nixl_agent, nixl_agent_config  # noqa: E402

FOLDER = pathlib.Path(os.environ["TEST_DIR"])
MIB = 1 << 20
BUFFER = 16 * MIB
GET, PUT = ('nebulaio_s3_requests_total{operation="%sObject",status="2xx"}' % verb for verb in ("Get", "Put"))


class Agent:
    """One agent with the backend OBJ or another, a buffer of memory, and a number for each key."""

    def __init__(self, name, server, secret_key=SECRET_KEY, backend="OBJ", **more):
        self.name, self.backend = name, backend
        self.agent = nixl_agent(name, nixl_agent_config(backends=[]))
        self.agent.create_backend(backend, {
            "access_key": ACCESS_KEY, "secret_key": secret_key, "bucket": "bucket", "region": "us-east-1", "scheme": "http",
            "endpoint_override": f"http://{server.http}", "use_virtual_addressing": "false", **more})
        self.buffer = numpy.zeros(BUFFER, dtype=numpy.uint8)
        self.held = [self.agent.register_memory([(self.buffer.ctypes.data, BUFFER, 0, "")], "DRAM", backends=[backend])]
        self.keys = {}

    def key(self, key):
        if key not in self.keys:
            self.keys[key] = len(self.keys) + 1
            self.held.append(self.agent.register_memory([(0, BUFFER, self.keys[key], key)], "OBJ", backends=[self.backend]))
        return self.keys[key]

    def move(self, way, moves):
        """moves: (place in the buffer, key, first byte, bytes). "DONE", or the error."""
        objects = [self.key(key) for _, key, _, _ in moves]
        ours = self.agent.get_xfer_descs([(self.buffer.ctypes.data + at, size, 0) for at, _, _, size in moves], "DRAM")
        theirs = self.agent.get_xfer_descs([(first, size, number) for (_, _, first, size), number in zip(moves, objects)], "OBJ")
        try:
            handle = self.agent.initialize_xfer(way, ours, theirs, self.name, b"", [self.backend])
            state, deadline = self.agent.transfer(handle), time.monotonic() + PATIENCE_S
            while state == "PROC" and time.monotonic() < deadline:
                state = self.agent.check_xfer_state(handle)
            self.agent.release_xfer_handle(handle)
            return state
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def put(self, key, data):
        self.buffer[:len(data)] = numpy.frombuffer(data, dtype=numpy.uint8)
        return self.move("WRITE", [(0, key, 0, len(data))])

    def get(self, key, size, first=0):
        self.buffer[:size + 64] = 0xee
        return self.move("READ", [(0, key, first, size)])

    def has(self, data):
        """Whether the buffer begins with these bytes, and nothing was written behind them."""
        return self.buffer[:len(data)].tobytes() == data and self.buffer[len(data):len(data) + 64].tobytes() == b"\xee" * 64

    def query(self, *keys):
        return self.agent.query_memory([(0, 0, 0, key) for key in keys], self.backend, "OBJ")


def moves(tap, server, plain, agent):
    for size in (1, 4096, 65537, MIB, 12 * MIB + 3):
        data = os.urandom(size)
        before = server.metrics_at_rest()
        state = agent.put(f"o{size}", data)
        tap.check(state == "DONE" and plain.request("GET", f"/bucket/o{size}")[2] == data, f"put: {size} bytes, as HTTP reads them",
                  state)
        state = agent.get(f"o{size}", size)
        after = server.metrics_at_rest()
        tap.check(state == "DONE" and agent.has(data), f"get: the same {size} bytes", state)
        tap.check(after[PUT] - before[PUT] == 1 and after[GET] - before[GET] == 2, "one request each", (before[GET], after[GET]))
    for first, size in ((0, 1), (1, 4095), (MIB - 5, MIB + 10), (12 * MIB, 3)):
        state = agent.get(f"o{12 * MIB + 3}", size, first)
        tap.check(state == "DONE" and agent.has(data[first:first + size]), f"get: {size} bytes from {first}", state)
    parts = [os.urandom(100_000 + n) for n in range(16)]
    places = [(n * MIB, f"many-{n}", 0, len(part)) for n, part in enumerate(parts)]
    for (at, _, _, size), part in zip(places, parts):
        agent.buffer[at:at + size] = numpy.frombuffer(part, dtype=numpy.uint8)
    state = agent.move("WRITE", places)
    tap.check(state == "DONE" and all(plain.request("GET", f"/bucket/many-{n}")[2] == part for n, part in enumerate(parts)),
              "put: sixteen objects in one transfer", state)
    agent.buffer[:] = 0
    state = agent.move("READ", places)
    tap.check(state == "DONE" and all(agent.buffer[at:at + size].tobytes() == part for (at, _, _, size), part in zip(places, parts)),
              "get: and all of them back", state)
    tap.check(agent.put("many-0", b"new") == "DONE" and plain.request("GET", "/bucket/many-0")[2] == b"new", "put: in place of an object")


def errors(tap, server, plain, agent):
    found = agent.query("o1", "missing", "many-3", "also/missing")
    tap.check([one is not None for one in found] == [True, False, True, False], "query: of four keys the two that are there", found)
    state = agent.get("missing", 10)
    tap.check(state not in ("DONE", "PROC"), "get: a key that is not there is an error", state)
    state = agent.get("o4096", 10, 5000)
    tap.check(state not in ("DONE", "PROC"), "get: behind an object's end", state)
    stranger = Agent("stranger", server, secret_key="wrong-secret-key")
    state = stranger.put("strange", b"x")
    tap.check(state not in ("DONE", "PROC") and plain.request("HEAD", "/bucket/strange")[0] == 404,
              "put: with a wrong secret key nothing is stored", state)
    tap.check(stranger.get("o1", 1) not in ("DONE", "PROC"), "get: nor read")


def main():
    tap = Tap()
    with Server(FOLDER / "data", FOLDER / "data.log") as server:
        plain = Client(server.http)
        plain.request("PUT", "/bucket")
        agent = Agent("agent", server)
        moves(tap, server, plain, agent)
        errors(tap, server, plain, agent)
        plain.close()
        tap.check(server.stop() == 0, "the server stops in order", server.log_tail())
        code, text = server.fsck("--deep")
        tap.check(code == 0, "and leaves its data whole", text)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
