"""tests/e2e/rados/history.py: clients that read and write a few keys over HTTP and RDMA and record when, while one failure
happens: which one, and its times, a seed decides."""

import contextlib
import http.client
import json
import random
import re
import signal
import threading
import time

from gateways import boot_ns
from nebula import PATIENCE_S, Client, becomes, freeze
from native import Native

BUCKET, KEYS, HTTP_CLIENTS, NATIVE_CLIENTS = "history", 5, 4, 2
ACTIONS = ("freeze", "two osds", "kill", "monitor", "osd", "double", "blink", "stop", "race", "freeze and osd")
# Between two operations of a client: more of them would only be more of the same, on a machine that has other work.
PAUSE_S = 0.003


class Recorder:
    def __init__(self, path):
        self.file, self.lock, self.count, self.next = open(path, "w"), threading.Lock(), 0, 0

    def note(self, client, key, kind, value, begin, end):
        with self.lock:
            self.file.write(json.dumps({"client": client, "key": key, "kind": kind, "value": value, "begin": begin, "end": end}) + "\n")
            self.count += bool(end)

    def draw(self):
        """A value that no other write of this seed has: its body's length, which HEAD and LIST tell, too."""
        with self.lock:
            self.next += 1
            size = 64 + 13 * self.next
        return str(size), (b"%d " % size).ljust(size, b".")


def value_of(body):
    """Of a body that is whole."""
    value = body.split(b" ")[0].decode()
    return value if len(body) == int(value) else f"{len(body)} bytes of {value}"


def listed_of(text):
    """The sizes of a list's keys."""
    return dict(re.findall(r"<Key>([^<]*)</Key>.*?<Size>([0-9]+)</Size>", text.decode()))


class Worker(threading.Thread):
    """One operation after the other until it is told to stop. A write without a good answer may have happened."""

    def __init__(self, recorder, gateways, keys, number, seed):
        super().__init__(daemon=True)
        self.recorder, self.gateways, self.keys, self.number = recorder, gateways, keys, number
        self.random, self.stopping, self.errors = random.Random(f"{seed} {number}"), threading.Event(), []
        self.client, self.to = None, None

    def run(self):
        try:
            while not self.stopping.is_set():
                good = self.step()
                if not good:
                    self.drop()
                self.stopping.wait(PAUSE_S if good else 0.2)
        except Exception as error:  # noqa: BLE001 (any: the test reports it)
            self.errors.append(f"{self.number}: {type(error).__name__}: {error}")
        self.drop()

    def drop(self):
        if self.client:
            self.client.close()
        self.client = None

    def connect(self):
        """Whether there is a server to ask."""
        owner = self.gateways.owner
        if self.client and self.to is owner.process:
            return True
        self.drop()
        if not owner.ready.is_set():
            return False
        try:
            self.client, self.to = self.open(owner), owner.process
        except OSError:
            self.client = None
        return self.client is not None

    def write(self, key, value, body):
        begin = boot_ns()
        taken = self.put(key, body)
        self.recorder.note(self.number, key, "write", value, begin, boot_ns() if taken else 0)
        return taken


class HttpWorker(Worker):
    def open(self, owner):
        client = Client(owner.http, timeout=15)
        client.connection.connect()
        return client

    def ask(self, *words, **more):
        try:
            return self.client.request(*words, **more)
        except (OSError, http.client.HTTPException):
            return 0, {}, b""

    def put(self, key, body):
        if body is None:
            return self.ask("DELETE", f"/{BUCKET}/{key}")[0] == 204
        return self.ask("PUT", f"/{BUCKET}/{key}", body)[0] == 200

    def step(self):
        if not self.connect():
            return False
        key, kind, begin = self.random.choice(self.keys), self.random.random(), boot_ns()
        if kind < 0.3:
            return self.write(key, *self.recorder.draw())
        if kind < 0.35:
            return self.write(key, "", None)
        if kind < 0.5:
            return self.list(begin)
        method = "GET" if kind < 0.8 else "HEAD"
        status, headers, body = self.ask(method, f"/{BUCKET}/{key}")
        if status == 200:
            value = value_of(body) if method == "GET" else headers["content-length"]
            self.recorder.note(self.number, key, "read", value, begin, boot_ns())
        elif status == 404:
            self.recorder.note(self.number, key, "read", "", begin, boot_ns())
        return status in (200, 404)

    def list(self, begin):
        status, _, text = self.ask("GET", f"/{BUCKET}", query={"list-type": "2", "prefix": self.keys[0].rsplit("-", 1)[0] + "-"})
        if status != 200:
            return False
        end, listed = boot_ns(), listed_of(text)
        for key in self.keys:
            self.recorder.note(self.number, key, "read", listed.get(key, ""), begin, end)
        return True


class NativeWorker(Worker):
    """Its reads are one-sided where they can be."""

    one_sided = 0

    def open(self, owner):
        return Native(f"rdma://{owner.rdma}", one_sided_reads=True, request_timeout_ns=15 * 10**9, retries_max=1,
                      log=lambda *_: None)

    def put(self, key, body):
        return self.client.put(key.encode(), body, BUCKET.encode())[0] == 200

    def step(self):
        if not self.connect():
            return False
        key, begin = self.random.choice(self.keys), boot_ns()
        if self.random.random() < 0.02:
            return self.write(key, *self.recorder.draw())
        status, _, body, one_sided = self.client.get(key.encode(), BUCKET.encode())
        if status in (200, 404):
            self.one_sided += one_sided
            # Most of them say what the one before said.
            if not one_sided or self.random.random() < 0.05:
                value = value_of(body) if status == 200 else ""
                self.recorder.note(self.number, key, "read", value, begin, boot_ns())
        return status in (200, 404)


@contextlib.contextmanager
def working(workers):
    """They work meanwhile. RuntimeError: one of them failed, or does not end."""
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.stopping.set()
        for worker in workers:
            worker.join(PATIENCE_S)
    errors = [error for worker in workers for error in worker.errors]
    if errors or any(worker.is_alive() for worker in workers):
        raise RuntimeError(f"clients failed: {errors[:3]}")


class Failures:
    def __init__(self, cluster, gateways, recorder, monitor_s):
        self.cluster, self.gateways, self.recorder, self.monitor_s = cluster, gateways, recorder, monitor_s
        status = gateways.ask(gateways.all, "PUT", f"/{BUCKET}")[0]
        if status != 200:
            raise RuntimeError(f"no bucket: {status}")
        gateways.settle()

    def more(self, count=40):
        """Until the clients have so many more answers."""
        wanted = self.recorder.count + count

        def enough():
            # A cluster that recovers may change the owner once more.
            serving = [gateway for gateway in self.gateways.all if gateway.alive() and gateway.ready.is_set()]
            if serving and self.gateways.owner not in serving:
                self.gateways.owner = serving[0]
            return self.recorder.count >= wanted

        if not becomes(enough):
            raise RuntimeError("the clients get no answers any more")

    def settle(self):
        """One server serves, the others stand by."""
        def one():
            serving = [gateway for gateway in self.gateways.all if gateway.alive() and gateway.ready.is_set()]
            if len(serving) != 1:
                for gateway in self.gateways.all:
                    if not gateway.alive():
                        gateway.begin()
                return False
            try:
                good = Client(serving[0].http, timeout=15).request("HEAD", f"/{BUCKET}")[0] == 200
            except (OSError, http.client.HTTPException):
                good = False
            if good:
                self.gateways.owner = serving[0]
            return good

        if not becomes(one):
            raise RuntimeError("no server serves")
        for gateway in self.gateways.all:
            if not gateway.alive():
                self.gateways.stand_by(gateway)

    def act(self, action, rng):
        gateways, owner = self.gateways, self.gateways.owner
        if action == "kill":
            owner.kill()
            gateways.wait_for(gateways.others())
        elif action == "stop":
            owner.send(signal.SIGTERM)
            gateways.wait_for(gateways.others())
            owner.process.wait(PATIENCE_S)
        elif action == "race":
            # Three takers, and one of them was the owner.
            owner.kill()
            owner.begin()
            gateways.wait_for(gateways.all)
        elif action in ("freeze", "double", "freeze and osd"):
            freeze(owner.process.pid)
            if action == "freeze and osd":
                down = rng.randrange(self.cluster.osds)
                self.cluster.kill(f"osd.{down}")
            taker = gateways.wait_for(gateways.others())
            if action == "double":
                taker.kill()
                gateways.wait_for([gateway for gateway in gateways.all if gateway not in (owner, taker)])
            self.more(rng.randrange(5, 60))
            owner.send(signal.SIGCONT)
            owner.process.wait(PATIENCE_S)
            if action == "freeze and osd":
                self.osds_begin([down])
        elif action == "blink":
            freeze(owner.process.pid)
            time.sleep(rng.uniform(0.5, 5))
            owner.send(signal.SIGCONT)
        elif action == "monitor":
            self.cluster.kill("mon.a")
            time.sleep(self.monitor_s)
            self.cluster.begin("mon.a")
        else:
            down = rng.sample(range(self.cluster.osds), 2 if action == "two osds" else 1)
            for number in down:
                self.cluster.kill(f"osd.{number}")
            if action == "two osds":
                time.sleep(rng.uniform(0.1, 5))
            else:
                self.more()
            self.osds_begin(down)

    def osds_begin(self, numbers):
        for number in numbers:
            self.cluster.begin(f"osd.{number}")
        if not becomes(lambda: self.cluster.osds_up() == self.cluster.osds):
            raise RuntimeError("the osds do not come up")

    def seed(self, seed):
        """Its failure, and how many reads were one-sided."""
        self.recorder.next = 0
        rng, action = random.Random(seed), ACTIONS[seed % len(ACTIONS)]
        keys = [f"seed-{seed}-{number}" for number in range(KEYS)]
        workers = [HttpWorker(self.recorder, self.gateways, keys, number, seed) for number in range(HTTP_CLIENTS)]
        workers += [NativeWorker(self.recorder, self.gateways, keys, HTTP_CLIENTS + number, seed) for number in range(NATIVE_CLIENTS)]
        with working(workers):
            self.more(rng.randrange(20, 120))
            self.act(action, rng)
            self.settle()
            self.more()
        last = HttpWorker(self.recorder, self.gateways, keys, len(workers), seed)
        if not becomes(lambda: last.connect() and last.list(boot_ns())):
            raise RuntimeError("no last reading")
        return action, sum(worker.one_sided for worker in workers[HTTP_CLIENTS:])
