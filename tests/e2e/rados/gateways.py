"""tests/e2e/rados/gateways.py: servers that all may own one store, in RADOS or with its lease in etcd: one serves, the others
stand by."""

import http.client
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import stores  # noqa: E402
from nebula import Server, becomes  # noqa: E402

# Each takeover waits for it. An owner that stands still for a third of it is late, and for all of it loses the store.
LEASE_S = 5


def boot_ns():
    """The clock that the leases go by."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Gateway(Server):
    """Its start returns at once; `ready` is set when it owns the volume and serves."""

    def __init__(self, folder, name, volume, recovery, *more):
        super().__init__(folder / name, folder / f"{name}.log", "--set",
                         f"storage.{'volumes' if ',' in volume else 'volume'}={volume}", "--set", "storage.protect_index=true",
                         "--set", f"storage.recovery_key_file={recovery}", "--set", "memory.bytes=128MiB",
                         "--set", "data.log_bytes=4MiB", "--set", "data.volume_bytes_max=1GiB",
                         "--set", "storage.rados.timeout_s=10", "--set", f"storage.rados.lease_s={LEASE_S}",
                         "--set", "rdma.lease_seconds=60", "--set", "cluster.standby=true", *more)
        self.name, self.ready, self.thread = name, threading.Event(), None

    def begin(self):
        self.ready.clear()
        at = self.log_path.stat().st_size if self.log_path.exists() else 0
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=log, env=self.env())
        self.thread = threading.Thread(target=self._wait, args=(self.process,), daemon=True)
        self.thread.start()
        return at

    def _wait(self, process):
        for line in process.stdout:
            if line.startswith(b"ready "):
                fields = dict(field.split("=", 1) for field in line.decode().split()[1:])
                self.http, self.rdma, self.admin = fields.get("http"), fields.get("rdma"), fields.get("admin")
                if process is self.process:
                    self.ready.set()

    def said(self, words, at=0):
        return words in self.log_path.read_bytes()[at:].decode(errors="replace")

    def send(self, number):
        self.process.send_signal(number)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def end(self):
        if self.alive():
            self.send(signal.SIGCONT)
            self.kill()


class Gateways:
    """The first becomes the owner before the others begin."""

    def __init__(self, folder, count, volume, recovery, *more):
        self.all = [Gateway(folder, f"gateway-{number}", volume, recovery, *more) for number in range(count)]
        self.owner = self.all[0]
        self.owner.begin()
        self.wait_for([self.owner])
        for other in self.all[1:]:
            self.stand_by(other)

    def stand_by(self, gateway):
        """Starts it, and again when it ends, as a service manager does: a start that meets a cluster without quorum fails."""
        at = [gateway.begin()]

        def there():
            if not gateway.alive():
                at[0] = gateway.begin()
            return gateway.said("standing by", at[0]) or gateway.ready.is_set()

        if not becomes(there):
            raise RuntimeError(f"{gateway.name} does not stand by:\n{gateway.log_tail()}")

    def wait_for(self, some):
        """The one of these that owns the volume."""
        def there():
            for gateway in some:
                if not gateway.alive():
                    gateway.begin()
            # A former owner ends when it finds another one.
            return sum(gateway.ready.is_set() and gateway.alive() for gateway in some) == 1

        becomes(there)
        found = [gateway for gateway in some if gateway.ready.is_set() and gateway.alive()]
        if len(found) != 1:
            raise RuntimeError(f"{len(found)} servers serve:\n" + "\n".join(gateway.log_tail() for gateway in some))
        self.owner = found[0]
        return self.owner

    def settle(self):
        """The owner: another one than the last, if that one stood still for longer than its lease. The others stand by."""
        owner = self.wait_for(self.all)
        for other in self.others():
            if not other.alive():
                self.stand_by(other)
        return owner

    def ask(self, some, *request):
        """The answer of the one of these that owns the volume: of the next owner, when it loses the volume meanwhile."""
        answers = []

        def answered():
            try:
                answers.append(stores.Client(self.wait_for(some).http).request(*request))
            except (OSError, http.client.HTTPException):
                pass
            return bool(answers)

        if not becomes(answered):
            raise RuntimeError(f"no owner answers {request[:2]}")
        return answers[0]

    def others(self):
        return [gateway for gateway in self.all if gateway is not self.owner]

    def end(self):
        for gateway in self.all:
            gateway.end()


def wait_said(text):
    """How long the last takeover in a log was held back for the former owner's readers, in ms."""
    found = re.findall(r"it is served in (\d+) ms", text)
    return int(found[-1]) if found else 0


def recovery_key(folder):
    path = folder / "recovery.key"
    path.write_text("bmVidWxhaW8gdGVzdCBrZXkgb2YgMzIgYnl0ZXMgISE=\n")
    os.chmod(path, 0o600)
    return path
