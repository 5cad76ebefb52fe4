"""tests/e2e/lib/stores.py: gateways of a cluster, each `nebulaio serve` with the processes of its stores."""

import base64
import json
import os
import re
import subprocess

import nebula
from nebula import ACCESS_KEY, PATIENCE_S, PROGRAM, SECRET_KEY, Server, taken

# Three quarters of it may pass after a renewal, of which there are three: a process that stands still for 4 s is not late. The
# stores of a gateway that is gone are taken when it is over.
LEASE_S = 10


def recovery_key(folder):
    path = folder / "recovery.key"
    path.write_bytes(base64.b64encode(os.urandom(32)) + b"\n")
    path.chmod(0o600)
    return path


def view(admin):
    """`nebulaio admin cluster` of a gateway's address for operators."""
    done = subprocess.run([PROGRAM, "admin", "--endpoint", f"http://{admin}", "--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY, "cluster",
                           "--json"], capture_output=True, text=True, timeout=PATIENCE_S)
    return json.loads(done.stdout) if done.returncode == 0 else {"stores": [], "gateways": [], "error": done.stderr}


class Client(nebula.Client):
    """Asks again what is answered 503, see taken()."""

    def request(self, *words, **more):
        return taken(lambda: nebula.Client.request(self, *words, **more))


class Gateway(Server):
    """Of the pools `index` and `bodies` of the cluster of $CEPH_CONF. `extra`: further words of the command line. `within`: words
    before it."""

    def __init__(self, folder, name, recovery, *extra, stores=3, address="127.0.0.1", within=()):
        super().__init__(folder / name, folder / f"{name}.log", *extra)
        self.name, self.recovery, self.stores, self.address, self.within = name, recovery, stores, address, within

    def command(self):
        settings = [
            "cluster.enabled=true", "cluster.pool=index", "cluster.data_pool=bodies", f"cluster.gateway={self.name}",
            f"cluster.stores={self.stores}", "cluster.memory_bytes=32MiB", "cluster.wait_s=120", f"admin.address={self.address}:0",
            "memory.bytes=32MiB", "memory.cache_bytes=0", "memory.records_bytes=2MiB", "memory.index_cache_bytes=2MiB",
            "data.log_bytes=4MiB", "data.volume_bytes_max=512MiB", "cpu.reactors=1", "storage.rados.timeout_s=10",
            f"storage.rados.lease_s={LEASE_S}", f"storage.recovery_key_file={self.recovery}", nebula.TOKEN_TIMEOUT,
        ]
        return [*self.within, PROGRAM, "serve", "--data", self.data, "--http", f"{self.address}:0", "--https", "off", "--rdma", "127.0.0.1:0",
                *(word for setting in settings for word in ("--set", setting)), *self.extra]

    def children(self):
        """Processes of stores, by the number of the store."""
        found = {}
        for line in subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(self.process.pid)], capture_output=True,
                                   text=True).stdout.splitlines():
            number = re.search(r"cluster\.store=(\d+)", line)
            if number:
                found[int(number.group(1)) - 1] = int(line.split()[0])
        return found

    def kill_all(self):
        """As if the host were gone."""
        pids = list(self.children().values())
        self.process.kill()
        for pid in pids:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        self.process.wait()
