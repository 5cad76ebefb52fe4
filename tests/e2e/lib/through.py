"""tests/e2e/lib/through.py: a suite's server as a cluster in Ceph RADOS with one store: its HTTP address is a gateway's that does not own
the store, its RDMA and admin addresses are the owner's. With NEBULAIO_TEST_GATEWAY=POOL nebula.Server is this, so suites run through a
gateway unchanged; the pool is of the cluster of $CEPH_CONF."""

import base64
import hashlib
import os
import pathlib
import socket
import stat

import nebula
import stores


def listening(pid):
    """The ports of 127.0.0.1 at which this process listens."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            info = entry.stat()
        except OSError:
            continue
        if stat.S_ISSOCK(info.st_mode):
            inodes.add(str(info.st_ino))
    found = []
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and words[9] in inodes and words[1].startswith(socket.inet_aton("127.0.0.1")[::-1].hex().upper()):
            found.append(int(words[1].split(":")[1], 16))
    return found


def runs(pid):
    """Whether a thread of it is left: only then it has closed its files."""
    try:
        return any((task / "stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X") for task in pathlib.Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return pathlib.Path(f"/proc/{pid}").exists()


Plain = nebula.Server


class Half(Plain):
    """One of the two gateways."""

    def __init__(self, server, name, *more):
        super().__init__(server.data / name, server.log_path, *server.extra, *more)
        self.name = name

    def command(self):
        pool = os.environ["NEBULAIO_TEST_GATEWAY"]
        key = self.data.parent / "recovery.key"
        settings = ["cluster.enabled=true", f"cluster.pool={pool}", f"cluster.gateway={self.name}", "cluster.stores=1", "cluster.spread=false",
                    "cluster.name=" + hashlib.sha256(bytes(self.data.parent.resolve())).hexdigest()[:16], "cluster.memory_bytes=64MiB",
                    "cluster.wait_s=120", "storage.rados.lease_s=5", f"storage.recovery_key_file={key}", "data.volume_bytes_max=2GiB"]
        # Both are on this host: only the one that clients know may have the port that the test names.
        port = ["--http", "127.0.0.1:0"] if self.name == "owner" else []
        return [*super().command(), *port, *(word for at in settings for word in ("--set", at))]

    def volume(self):
        return []

    children = stores.Gateway.children


class Server(Plain):
    def start(self):
        self.data.mkdir(parents=True, exist_ok=True)
        key = self.data / "recovery.key"
        if not key.exists():
            key.write_bytes(base64.b64encode(os.urandom(32)) + b"\n")
            key.chmod(0o600)
        self.owner, self.other = Half(self, "owner"), Half(self, "other")
        self.owner.start()
        if not nebula.becomes(self.serves):
            raise RuntimeError(f"the store does not serve:\n{self.owner.log_tail()}")
        self.other.start()
        store = stores.view(self.owner.admin)["stores"][0]
        pid = self.owner.children()[0]
        self.http, self.https, self.process = self.other.http, self.other.https, self.other.process
        self.rdma = None if store["rdma"] in ("", "-", None) else store["rdma"]
        self.admin = next(f"127.0.0.1:{port}" for port in listening(pid) if not store["http"].endswith(f":{port}"))
        return self

    def serves(self):
        """Whether the process of the store's entry is the owner's: after a kill the entry is the former process's for some time."""
        pid, found = self.owner.children().get(0), stores.view(self.owner.admin)["stores"]
        return bool(pid and found and found[0]["state"] == "serving" and int(found[0]["http"].rsplit(":", 1)[1]) in listening(pid))

    def stop(self):
        return self.other.stop() or self.owner.stop()

    def kill(self):
        code = 0
        for half in (self.other, self.owner):
            if half.process and half.process.poll() is None:
                pids = list(half.children().values())
                code = Plain.kill(half)
                for pid in pids:
                    try:
                        os.kill(pid, 9)
                    except ProcessLookupError:
                        pass
                # They are no children of the test.
                nebula.becomes(lambda gone=pids: not any(runs(pid) for pid in gone))
        return code

    def fsck(self, *options):
        store = Plain(self.owner.data / "store-0", self.log_path)
        return store.fsck(*options, "--ceph-conf", os.environ["CEPH_CONF"])

    def log_tail(self, lines=30):
        return super().log_tail(2 * lines)
