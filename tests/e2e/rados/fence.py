"""tests/e2e/rados/fence.py: an owner is stopped, another server takes the volume, the owner goes on: what it still
answers and writes, and what its clients read from its memory."""

import http.client
import signal
import threading

import stores
from gateways import boot_ns
from nebula import PATIENCE_S, Client, becomes, freeze
from native import Native

SIZE = 4096
BUCKET = b"fence"
TRIES = 5


class Reader(threading.Thread):
    """Reads one key over RDMA again and again, until the session ends. 503 does not end it: the lease of an owner may be late at
    any time."""

    def __init__(self, gateway, key):
        super().__init__(daemon=True)
        self.native = Native(f"rdma://{gateway.rdma}", one_sided_reads=True, request_timeout_ns=PATIENCE_S * 10**9, retries_max=1)
        self.key, self.answers = key, []
        self.one_sided = becomes(lambda: self.native.leased(key, BUCKET)[3] or not gateway.alive()) and gateway.alive()

    def run(self):
        status = 200
        while status in (200, 503):
            begun = boot_ns()
            status, _, body, one_sided = self.native.get(self.key, BUCKET)
            self.answers.append((begun, boot_ns(), status, body, one_sided))


class Late:
    """A request that a stopped server finds when it goes on."""

    def __init__(self, gateway):
        self.client = Client(gateway.http)
        self.client.request("HEAD", "/fence")

    def send(self, method, path, query="", body=b""):
        headers = self.client.sign(method, path, query, {"content-length": str(len(body))} if body else {})
        self.client.connection.putrequest(method, path + ("?" + query if query else ""), skip_host=True, skip_accept_encoding=True)
        for header in headers.items():
            self.client.connection.putheader(*header)
        self.client.connection.endheaders(body or None)

    def answer(self):
        try:
            return self.client.connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__


def one_late(native, key, answers):
    answers.append(native.get(key, BUCKET)[:3])


def prepare(gateways, key, old):
    """The owner, which has the object, and its clients. An owner that loses the volume meanwhile, because it stood still, is left
    for the next."""
    for _ in range(TRIES):
        owner = gateways.settle()
        try:
            client = stores.Client(owner.http)
            client.request("PUT", "/fence")
            status = client.request("PUT", f"/fence/{key}", old)[0]
            if status != 200:
                raise RuntimeError(f"the first object was not taken: {status}")
            reader = Reader(owner, key.encode())
            late_native = Native(f"rdma://{owner.rdma}", request_timeout_ns=PATIENCE_S * 10**9, retries_max=1)
            late_native.get(key.encode(), BUCKET)
            lates = [Late(owner) for _ in range(5)]
            if owner.alive():
                return owner, reader, late_native, lates
        except (OSError, http.client.HTTPException) as error:
            print(f"# {owner.name} while its clients began: {error!r}", flush=True)
    raise RuntimeError(f"none of {TRIES} owners kept the volume until its clients had begun")


def fence_round(gateways, number, totals):
    """One round; the list of its errors."""
    key, old, new = f"round-{number}", b"old %d" % number + bytes(SIZE), b"new %d" % number + bytes(SIZE)
    (owner, reader, late_native, lates), answers, wrong = prepare(gateways, key, old), [], []
    others = gateways.others()
    reader.start()
    frozen = boot_ns()
    freeze(owner.process.pid)
    gateways.wait_for(others)
    if gateways.ask(others, "PUT", f"/fence/{key}", new)[0] != 200:
        wrong.append("the taker does not take a write")
    acked = boot_ns()
    for late, request in zip(lates, (("GET", f"/fence/{key}"), ("HEAD", f"/fence/{key}"), ("GET", "/fence", "list-type=2"),
                                     ("PUT", f"/fence/late-{number}", "", old), ("GET", f"/fence/{key}"))):
        late.send(*request)
    thread = threading.Thread(target=one_late, args=(late_native, key.encode(), answers), daemon=True)
    thread.start()
    owner.send(signal.SIGCONT)
    statuses = [late.answer() for late in lates]
    if any(isinstance(status, int) and status != 503 for status in statuses):
        wrong.append(("late answers over HTTP", statuses))
    thread.join(PATIENCE_S)
    reader.join(PATIENCE_S)
    if not answers or answers[0][0] == 200:
        wrong.append(("a late answer over RDMA", answers))
    stale = [answer for answer in reader.answers if answer[0] > acked and answer[2] == 200 and answer[3] != new]
    if stale or reader.is_alive():
        wrong.append(("stale reads", len(stale), stale[:1], reader.is_alive()))
    code = owner.process.wait(PATIENCE_S)
    if code != 75:
        wrong.append(("the owner's exit code", code, owner.log_tail()))
    if gateways.ask(others, "GET", f"/fence/late-{number}")[0] != 404:
        wrong.append("a late write arrived")
    if gateways.ask(others, "GET", f"/fence/{key}")[2] != new:
        wrong.append("the taker's object is not there")
    totals["one-sided before"] += bool(reader.one_sided)
    totals["one-sided while stopped"] += sum(answer[4] and answer[0] > frozen for answer in reader.answers)
    totals["refused with 503"] += sum(status == 503 for status in statuses) + sum(answer[0] == 503 for answer in answers)
    totals["rounds"] += 1
    gateways.stand_by(owner)
    return wrong
