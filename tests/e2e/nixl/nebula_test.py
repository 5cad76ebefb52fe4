"""tests/e2e/nixl/nebula_test.py: nixl's agents as the wheel is, with our plugin NEBULA over the simulated device; run-nixl starts
this. NIXL_PLUGIN_DIR is a folder with NEBULA and the wheel's OBJ."""
import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import blocks  # noqa: E402
from nebula import ACCESS_KEY, PATIENCE_S, ROOT, SECRET_KEY, Client, Server, Tap, becomes, kept_port, tenant_of  # noqa: E402
from nixl_test import FOLDER, MIB, Agent, moves  # noqa: E402

WHEEL = pathlib.Path(os.environ["NIXL_OBJ_PLUGIN"])
PLUGINS = pathlib.Path(os.environ["NIXL_PLUGIN_DIR"])
ABI = ROOT / "integrations/nixl/abi.h"
ENGINE = "_ZTV17nixlBackendEngine", "_ZTV13nixlObjEngine"
POINTER = 8
BATCH, ROUNDS = 32, 8
GET = 'nebulaio_s3_requests_total{operation="GetObject",status="2xx"}'


def agent_of(name, server, **more):
    return Agent(name, server, backend="NEBULA", **{
        "endpoint": f"rdma://{server.rdma},http://{server.http}", "device": "simulated", "transport": "strict", **more})


# ---- The binary interface. ----

def wheels_functions():
    """The names of the virtual functions of the wheel's own engine for objects, in order."""
    symbols = subprocess.run(["readelf", "-W", "--dyn-syms", WHEEL], check=True, capture_output=True, text=True).stdout
    table = re.search(rf"([0-9a-f]{{16}})\s+(\d+) OBJECT .* {ENGINE[1]}$", symbols, re.M)
    start, size = int(table[1], 16), int(table[2])
    relocations = subprocess.run(["readelf", "-rW", WHEEL], check=True, capture_output=True, text=True).stdout
    there = {int(where, 16): name for where, name in re.findall(r"^([0-9a-f]{16})  \S+ \S+ +[0-9a-f]{16} (\S+)", relocations, re.M)}
    names = []
    for at in range(start + 2 * POINTER, start + size, POINTER):
        mangled = there.get(at, "")
        scope = re.match(r"_ZNK?(\d+)", mangled)
        rest = mangled[scope.end() + int(scope[1]):]
        length = re.match(r"\d+", rest)
        names.append(rest[length.end():length.end() + int(length[0])] if length else "~" if rest[0] == "D" else rest)
    return names


def interface(tap):
    body = re.search(r"^class nixlBackendEngine \{.*?^\};", ABI.read_text(), re.M | re.S)[0]
    declared = re.findall(r"^\tvirtual [^(;{]*?([~\w]+)\(", body, re.M)
    ours = ["~" if name.startswith("~") else name for name in declared]
    ours.insert(ours.index("~"), "~")  # a destructor has two entries
    theirs = wheels_functions()
    tap.check(len(theirs) == 27 and ours == theirs, "abi: our declaration has the wheel's virtual functions, in its order",
              (ours, theirs))


def refused(tap):
    """A program that is not a NIXL of the tested version gets no plugin, and is told why."""
    script = f"import ctypes; print(ctypes.CDLL('{PLUGINS / 'libplugin_NEBULA.so'}').nixl_plugin_init())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    tap.check(done.stdout == "0\n" and "NIXL of an unknown version" in done.stderr and "tested with 1.5.1" in done.stderr,
              "refused: what is no NIXL of a tested version", done)


def settings(tap, server):
    for what, more, said in (("no bucket", {"bucket": ""}, "no bucket"), ("an unknown setting", {"colour": "blue"}, "colour"),
                             ("no such transport", {"transport": "pigeon"}, "pigeon"), ("a wrong switch", {"one_sided": "maybe"}, "maybe"),
                             ("no such device", {"device": "mlx5_9"}, "no client")):
        try:
            agent_of("wrong", server, **more)
            tap.check(False, f"settings: {what} is refused")
        except Exception as error:
            tap.check("BACKEND" in str(error), f"settings: {what} is refused", (error, said))


# ---- What goes wrong. ----

def errors(tap, server, plain, agent):
    found = agent.query("o1", "missing", "many-3", "also/missing")
    tap.check([one is not None for one in found] == [True, False, True, False] and found[0]["size"] == "1",
              "query: of four keys the two that are there, with their sizes", found)
    for what, state, error in (
            ("a key that is not there", agent.get("missing", 10), "NOT_FOUND"),
            ("behind an object's end", agent.get("o4096", 10, 5000), "MISMATCH"),
            ("more than the object has", agent.get("o4096", 5000), "MISMATCH"),
            ("across its end", agent.get("o4096", 100, 4090), "MISMATCH"),
            ("no bytes", agent.get("o4096", 0), "INVALID_PARAM"),
            ("a write at an offset", agent.move("WRITE", [(0, "o4096", 10, 5)]), "INVALID_PARAM"),
            ("one wrong key of three", agent.move("READ", [(0, "o1", 0, 1), (MIB, "missing", 0, 9), (2 * MIB, "o4096", 0, 4096)]),
             "NOT_FOUND")):
        tap.check(error in state, f"errors: {what}", state)
    tap.check(plain.request("GET", "/bucket/o4096")[2] == agent.buffer[2 * MIB:2 * MIB + 4096].tobytes(),
              "errors: the others of that transfer have their bytes")
    tap.check(agent.get("o4096", 4096) == "DONE", "errors: and the next transfer is served")
    stranger = agent_of("stranger", server, secret_key="wrong-secret-key", transport="auto")
    state = stranger.put("strange", b"x")
    tap.check(state != "DONE" and plain.request("HEAD", "/bucket/strange")[0] == 404,
              "errors: with a wrong secret key nothing is stored", state)
    access_key, secret_key = tenant_of(server.http, (ACCESS_KEY, SECRET_KEY))
    tenant = agent_of("tenant", server, access_key=access_key, secret_key=secret_key)
    states = tenant.put("strange", b"x"), tenant.get("o1", 1)
    tap.check(all("NOT_ALLOWED" in state for state in states) and plain.request("HEAD", "/bucket/strange")[0] == 404,
              "errors: a tenant of another bucket neither stores nor reads", states)


def begun(agent, key, size, count):
    """A transfer in flight: count reads of an object, one behind the other."""
    number = agent.key(key)
    ours = agent.agent.get_xfer_descs([(agent.buffer.ctypes.data + at * size, size, 0) for at in range(count)], "DRAM")
    theirs = agent.agent.get_xfer_descs([(0, size, number)] * count, "OBJ")
    handle = agent.agent.initialize_xfer("READ", ours, theirs, agent.name, b"", [agent.backend])
    agent.agent.transfer(handle)
    return handle


def ended(agent, handle):
    """The state of a transfer when it is in progress no more, or the error."""
    state, deadline = "PROC", time.monotonic() + PATIENCE_S
    try:
        while state == "PROC" and time.monotonic() < deadline:
            state = agent.agent.check_xfer_state(handle)
        return state
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def cancelled(tap, agent):
    for _ in range(20):
        agent.agent.release_xfer_handle(begun(agent, f"o{MIB}", MIB, 8))
    agent.buffer[:] = 0
    tap.check(agent.get("o4096", 4096) == "DONE" and not agent.buffer[MIB:].any(),
              "cancelled: transfers that are released in flight write nothing later, and the next one is served")


def guide(tap, server, plain):
    """The blocks of nixl.md, against this server."""
    plain.request("PUT", "/kv-cache")
    program = "".join(block.text + "\n" for block in blocks.of(ROOT / "docs/guide/nixl.md") if block.language == "python")
    for said, here in (("127.0.0.1:9100", server.rdma), ("127.0.0.1:9000", server.http), ('"secret_key": "minioadmin"', f'"secret_key": "{SECRET_KEY}"'),
                       ('"access_key": "minioadmin"', f'"access_key": "{ACCESS_KEY}", "device": "simulated"')):
        assert said in program, said
        program = program.replace(said, here)
    names = {}
    exec(compile(program, "nixl.md", "exec"), names)
    whole = bytes(range(256)) * (8 * MIB // 256)
    tap.check(names["stored"] == names["loaded"] == "DONE" and names["cache"].tobytes() == whole and
              names["known"] == [{"size": str(MIB)}, None], "nixl.md: its blocks run, and the blocks are back", names["known"])


def killed(tap):
    port, rdma = kept_port(), kept_port()
    server = Server(FOLDER / "killed", FOLDER / "killed.log", "--http", f"127.0.0.1:{port}", "--rdma", f"127.0.0.1:{rdma}")
    with server:
        plain = Client(server.http)
        plain.request("PUT", "/bucket")
        agent = agent_of("killed", server, transport="auto")
        data = os.urandom(3 * MIB)
        tap.check(agent.put("kept", data) == "DONE", "killed: an object is stored")
        handle = begun(agent, "kept", len(data), 5)
        server.kill()
        state = ended(agent, handle)
        tap.check(state != "PROC", "killed during a transfer: it ends", state)
        state = agent.get("kept", len(data))
        tap.check("REMOTE_DISCONNECT" in state or "BACKEND" in state, "killed: without the server a read is an error", state)
        server.start()
        tap.check(becomes(lambda: agent.get("kept", len(data)) == "DONE") and agent.has(data),
                  "killed: with the server back the same agent reads it")


# ---- Reads without the server's processor. ----

def leases(tap, server, plain):
    agent = agent_of("leases", server)
    data = os.urandom(4096)
    agent.put("hot", data)
    before, count = server.metric(GET), 400
    states = {agent.get("hot", 4096) for _ in range(count)}
    asked = server.metric(GET) - before
    tap.check(states == {"DONE"} and agent.has(data) and asked < count / 2 and server.metric("nebulaio_lease_grants_total") > 0,
              f"leases: of {count} reads of a hot object few reach the server", (states, asked))
    plain.request("PUT", "/bucket/hot", b"z" * 4096)
    tap.check(agent.get("hot", 4096) == "DONE" and agent.has(b"z" * 4096), "leases: and one after a change has the new bytes")


# ---- Rates beside OBJ by HTTP. ----

def rate(agent, way, size):
    """Transfers of BATCH objects: objects a second, processor seconds of this process an object."""
    places = [(n * size, f"rate-{size}-{n}", 0, size) for n in range(BATCH)]
    objects = [agent.key(key) for _, key, _, _ in places]
    ours = agent.agent.get_xfer_descs([(agent.buffer.ctypes.data + at, size, 0) for at, _, _, size in places], "DRAM")
    theirs = agent.agent.get_xfer_descs([(0, size, number) for (_, _, _, size), number in zip(places, objects)], "OBJ")
    start, cpu = time.monotonic(), time.process_time()
    for _ in range(ROUNDS):
        handle = agent.agent.initialize_xfer(way, ours, theirs, agent.name, b"", [agent.backend])
        state, deadline = agent.agent.transfer(handle), time.monotonic() + PATIENCE_S
        while state == "PROC" and time.monotonic() < deadline:
            state = agent.agent.check_xfer_state(handle)
        agent.agent.release_xfer_handle(handle)
        if state != "DONE":
            raise RuntimeError(state)
    seconds = time.monotonic() - start
    return BATCH * ROUNDS / seconds, (time.process_time() - cpu) / BATCH / ROUNDS


def rates(tap, server):
    """Printed, not judged: the machine has other work."""
    obj = Agent("rates-obj", server)
    for name, agent in (("NEBULA", agent_of("rates", server, one_sided="false")), ("NEBULA, one-sided", agent_of("rates-one", server))):
        for size in (4096, MIB // 2):
            for way in ("WRITE", "READ"):
                beside, theirs_cpu = rate(obj, way, size)
                ours, ours_cpu = rate(agent, way, size)
                print(f"# rate: {way} {size} B, {BATCH} a transfer: {name} {ours:.0f}/s, {ours_cpu * 1e6:.0f} us CPU each; "
                      f"OBJ by HTTP {beside:.0f}/s, {theirs_cpu * 1e6:.0f} us CPU each; {ours / beside:.2f} times", flush=True)
    tap.check(True, "rates: both backends moved all of them")


def main():
    tap = Tap()
    interface(tap)
    refused(tap)
    with Server(FOLDER / "nebula", FOLDER / "nebula.log") as server:
        plain = Client(server.http)
        plain.request("PUT", "/bucket")
        settings(tap, server)
        agent = agent_of("agent", server, one_sided="false")
        moves(tap, server, plain, agent)
        errors(tap, server, plain, agent)
        cancelled(tap, agent)
        by_http = Agent("by-http", server, backend="NEBULA", secret_key=SECRET_KEY)
        tap.check(by_http.put("by-http", b"h" * 5000) == "DONE" and by_http.get("by-http", 5000) == "DONE" and
                  by_http.has(b"h" * 5000), "http: OBJ's own settings serve, by HTTP")
        leases(tap, server, plain)
        guide(tap, server, plain)
        rates(tap, server)
        plain.close()
        tap.check(server.stop() == 0, "the server stops in order", server.log_tail())
        code, text = server.fsck("--deep")
        tap.check(code == 0, "and leaves its data whole", text)
    killed(tap)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
