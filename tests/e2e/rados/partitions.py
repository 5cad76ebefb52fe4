"""tests/e2e/rados/partitions.py: gateways of a cluster in network name spaces of their own. A seed decides which of them is cut from
whom, in which direction, or stopped, while clients work through all of them and record what they see."""

import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import history  # noqa: E402
import stores  # noqa: E402
from gateways import boot_ns  # noqa: E402
from nebula import PATIENCE_S, Client, becomes, freeze  # noqa: E402

CLIENTS, CEPH, FIRST = "10.99.0.2", "10.99.0.1", 11
NOBODY = "02:00:00:00:00:99"
# A command's words, in name spaces that end with it, names of further ones included.
WITHIN = ("unshare", "--net", "--mount", "sh", "-c", 'mkdir -p /run/netns && mount -t tmpfs none /run/netns && exec "$0" "$@"')
STORES, GATEWAYS, CLIENT_COUNT, KEYS = 3, 3, 6, 4
WAIT_S = 10  # cluster.wait_s
# A request for a store on the other side of a cut gets 503: a gateway notices the cut in 10 s, asks again for WAIT_S, and the last
# connect takes 5 s. On a busy machine it may be longer; the time is told.
CUT_ANSWER_S = 10 + WAIT_S + 5
# A gateway is cut from these; the direction is lost: "out" is what the gateway sends.
CUTS = tuple((whom, way) for whom in ("ceph", "gateways", "clients") for way in ("both", "out", "in"))
ACTIONS = tuple(f"{whom} {way}" for whom, way in CUTS) + ("stop", "stop and cut", "blink", "kill")


def lacking():
    """Why there can be no name spaces here, or None."""
    done = subprocess.run([*WITHIN, "sh", "-c", "ip link add probe type bridge && ip netns add probe"], capture_output=True, text=True)
    return f"no network name spaces (root and iproute2 are needed): {done.stderr.strip()}" if done.returncode else None


def sh(*words, **more):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, **more)


class Network:
    """A bridge in the name space of the clients; Ceph and each gateway have a name space and one address. A direction is lost by a
    false entry of the sender's neighbour table: its frames go to nobody, silently."""

    def __init__(self):
        sh("ip", "link", "set", "lo", "up")
        sh("ip", "link", "add", "middle", "type", "bridge")
        sh("ip", "addr", "add", f"{CLIENTS}/24", "dev", "middle")
        sh("ip", "link", "set", "middle", "up")
        self.cuts = set()

    def add(self, name, address):
        sh("ip", "netns", "add", name)
        sh("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "out", "netns", name)
        sh("ip", "link", "set", f"to-{name}", "master", "middle", "up")
        sh("ip", "-n", name, "link", "set", "lo", "up")
        sh("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "out")
        sh("ip", "-n", name, "link", "set", "out", "up")
        return "ip", "netns", "exec", name

    @staticmethod
    def _neighbour(name, verb, address, *more):
        where = ("ip", "-n", name) if name else ("ip",)
        subprocess.run([*where, "neigh", verb, address, *more, "dev", "out" if name else "middle"], check=verb == "replace",
                       capture_output=True)

    def cut(self, name, address):
        """Frames from name ("": the clients) to this address are lost."""
        self._neighbour(name, "replace", address, "lladdr", NOBODY, "nud", "permanent")
        self.cuts.add((name, address))

    def heal(self):
        for name, address in self.cuts:
            self._neighbour(name, "del", address)
        self.cuts.clear()


class Worker(history.HttpWorker):
    """Works through one gateway until that does not answer, and then through another, in buckets of all stores."""

    def connect(self):
        if self.client:
            return True
        gateway = self.random.choice(self.gateways)
        if not gateway.http:
            return False
        try:
            self.client = Client(gateway.http, timeout=5)
            self.client.connection.connect()
        except OSError:
            self.client = None
        return self.client is not None

    def step(self):
        if not self.connect():
            return False
        (bucket, key), kind, begin = self.random.choice(self.keys), self.random.random(), boot_ns()
        if kind < 0.35:
            return self.write((bucket, key), *(self.recorder.draw() if kind < 0.3 else ("", None)))
        if kind < 0.5:
            return self.list(bucket, begin)
        method = "GET" if kind < 0.8 else "HEAD"
        status, headers, body = self.ask(method, f"/{bucket}/{key}")
        if status == 200:
            value = history.value_of(body) if method == "GET" else headers["content-length"]
            self.note(bucket, key, "read", value, begin, boot_ns())
        elif status == 404:
            self.note(bucket, key, "read", "", begin, boot_ns())
        return status in (200, 404)

    def note(self, bucket, key, *what):
        self.recorder.note(self.number, f"{bucket}/{key}", *what)

    def write(self, at, value, body):
        begin = boot_ns()
        status = self.ask("DELETE" if body is None else "PUT", "/%s/%s" % at, body)[0]
        taken = status == (204 if body is None else 200)
        self.note(*at, "write", value, begin, boot_ns() if taken else 0)
        return taken

    def list(self, bucket, begin):
        keys = [key for at, key in self.keys if at == bucket]
        status, _, text = self.ask("GET", f"/{bucket}", query={"list-type": "2", "prefix": keys[0].rsplit("-", 1)[0] + "-"})
        if status != 200:
            return False
        end, listed = boot_ns(), history.listed_of(text)
        for key in keys:
            self.note(bucket, key, "read", listed.get(key, ""), begin, end)
        return True


class Asker(threading.Thread):
    """Asks one gateway again and again, until it is cut from the store and that does not answer any more: so a cut finds a request
    under way, or a link that was just used."""

    def __init__(self, gateway, method, path, body=b""):
        super().__init__(daemon=True)
        self.gateway, self.words = gateway, (method, path, body)
        self.answered, self.cut, self.status, self.took = False, False, None, None

    def run(self):
        client, status = Client(self.gateway.http, timeout=2 * PATIENCE_S), 200
        while status == 200 or not self.cut:
            began = time.monotonic()
            try:
                status = client.request(*self.words)[0]
            except (OSError, history.http.client.HTTPException) as problem:
                status = repr(problem)
            self.answered |= status == 200
        self.status, self.took = status, time.monotonic() - began

    def __str__(self):
        method, path, body = self.words
        return f"{self.gateway.name}: {method} {path}, {len(body)} bytes: {self.status}, {self.took and round(self.took, 1)} s"


class Partitions:
    def __init__(self, folder, recorder, network, recovery):
        self.recorder, self.network, self.gateways = recorder, network, []
        for number in range(GATEWAYS):
            name, address = f"gateway{number}", f"10.99.0.{FIRST + number}"
            self.gateways.append(stores.Gateway(
                folder, name, recovery, "--rdma", "off", "--set", f"cluster.address={address}", "--set", f"cluster.wait_s={WAIT_S}",
                "--set", "http.stall_timeout_s=10", stores=STORES, address=address, within=network.add(name, address)))
        for gateway in self.gateways:
            gateway.start()
        if not becomes(self.whole):
            raise RuntimeError("the gateways do not share the stores\n" + self.logs())
        # A bucket in each store: the owners' processes make them.
        self.buckets = [f"store-{number}" for number in range(STORES)]
        for store, bucket in zip(self.view()["stores"], self.buckets):
            status = stores.Client(store["http"]).request("PUT", f"/{bucket}")[0]
            if status != 200:
                raise RuntimeError(f"no bucket in {store}: {status}\n{self.logs()}")

    def logs(self):
        return "\n".join(f"--- {gateway.name}\n{gateway.log_tail(40)}" for gateway in self.gateways)

    def view(self, gateway=None):
        return stores.view((gateway or self.gateways[0]).admin)

    def whole(self):
        """Each gateway owns one store, and each answers for each bucket."""
        for gateway in self.gateways:
            if gateway.process.poll() is not None:
                gateway.start()
        try:
            stores_now = self.view()["stores"]
        except OSError:
            return False
        if len(stores_now) != STORES or any(store["state"] != "serving" for store in stores_now):
            return False
        if len({store["owner"] for store in stores_now}) != GATEWAYS:
            return False
        try:
            return all(Client(gateway.http, timeout=15).request("HEAD", f"/{bucket}")[0] == 200
                       for gateway in self.gateways for bucket in getattr(self, "buckets", ()))
        except (OSError, history.http.client.HTTPException):
            return False

    def more(self, count=40):
        wanted = self.recorder.count + count
        if not becomes(lambda: self.recorder.count >= wanted):
            raise RuntimeError(f"the clients get no answers any more\n{self.logs()}")

    def cut(self, victim, whom, way):
        others = [gateway for gateway in self.gateways if gateway is not victim]
        peers = {"ceph": [("ceph", CEPH)], "clients": [("", CLIENTS)], "gateways": [(at.name, at.address) for at in others]}[whom]
        for name, address in peers:
            if way in ("both", "out"):
                self.network.cut(victim.name, address)
            if way in ("both", "in"):
                self.network.cut(name, victim.address)

    def askers(self, victim):
        """Of stores that will be on the other side."""
        if not becomes(self.whole):
            raise RuntimeError(f"before the cut the gateways do not share the stores\n{self.logs()}")
        other = next(gateway for gateway in self.gateways if gateway is not victim)
        owners = {store["owner"]: bucket for store, bucket in zip(self.view()["stores"], self.buckets)}
        askers = []
        for gateway, bucket in ((victim, owners[other.name]), (other, owners[victim.name])):
            askers += [Asker(gateway, "HEAD", f"/{bucket}"), Asker(gateway, "PUT", f"/{bucket}/asked"),
                       Asker(gateway, "PUT", f"/{bucket}/asked", bytes(4096))]
        for asker in askers:
            asker.start()
        if not becomes(lambda: all(asker.answered for asker in askers)):
            raise RuntimeError(f"no answers before the cut\n{self.logs()}")
        return askers

    def refused(self, askers):
        """Requests for the other side do not hang."""
        until = time.monotonic() + PATIENCE_S
        for asker in askers:
            asker.join(max(until - time.monotonic(), 0))
        print("".join(f"# {asker} (on an idle machine at most {CUT_ANSWER_S} s)\n" for asker in askers), end="", flush=True)
        if any(asker.status != 503 for asker in askers):
            raise RuntimeError("not 503:\n" + "\n".join(str(asker) for asker in askers))

    def taken(self, victim):
        """Others serve all stores."""
        other = next(gateway for gateway in self.gateways if gateway is not victim)

        def there():
            owners = [store["owner"] for store in self.view(other)["stores"] if store["state"] == "serving"]
            return len(owners) == STORES and victim.name not in owners

        if not becomes(there):
            raise RuntimeError(f"the stores of {victim.name} are not taken\n{self.logs()}")

    def act(self, action, rng):
        victim = rng.choice(self.gateways)
        if action == "kill":
            victim.kill_all()
            self.taken(victim)
        elif action in ("stop", "stop and cut", "blink"):
            freeze(victim.process.pid)
            try:
                if action == "stop and cut":
                    # Operations that its processes had begun arrive late.
                    self.cut(victim, "ceph", rng.choice(("both", "out", "in")))
                if action == "blink":
                    self.more(rng.randrange(20, 100))
                else:
                    self.taken(victim)
                    self.more(rng.randrange(5, 60))
            finally:
                self.network.heal()
                victim.process.send_signal(signal.SIGCONT)
        else:
            whom, way = action.split()
            askers = self.askers(victim) if whom == "gateways" else []
            for asker in askers:
                asker.cut = True
            self.cut(victim, whom, way)
            try:
                if whom == "ceph" and rng.random() < 0.7:
                    self.taken(victim)
                # A cut of some seconds lets connections and leases run out of time; an answer may come at once.
                time.sleep(rng.uniform(0.2, 8))
                self.refused(askers)
                # Most requests wait for their 503 while gateways are cut from each other, and these clients do not await it.
                self.more(rng.randrange(10, 40 if whom == "gateways" else 150))
            finally:
                self.network.heal()

    def seed(self, seed):
        """Its failure."""
        self.recorder.next = 0
        rng, action = random.Random(seed), ACTIONS[seed % len(ACTIONS)]
        keys = [(bucket, f"seed-{seed}-{number}") for number in range(KEYS) for bucket in self.buckets]
        workers = [Worker(self.recorder, self.gateways, keys, number, seed) for number in range(CLIENT_COUNT)]
        with history.working(workers):
            self.more(rng.randrange(20, 120))
            self.act(action, rng)
            if not becomes(self.whole):
                raise RuntimeError(f"after it the gateways do not share the stores\n{self.logs()}")
            self.more()
        last = Worker(self.recorder, self.gateways, keys, len(workers), seed)
        for bucket in self.buckets:
            if not becomes(lambda at=bucket: last.connect() and last.list(at, boot_ns())):
                raise RuntimeError("no last reading")
        return action

    def end(self):
        for gateway in self.gateways:
            if gateway.process and gateway.process.poll() is None:
                gateway.process.send_signal(signal.SIGCONT)
                gateway.kill_all()
