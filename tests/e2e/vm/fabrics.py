"""tests/e2e/vm/fabrics.py: NVMe over Fabrics between the two guests: the server's guest exports by its kernel, the client's guest
has a store on the volume by its own; paths are lost, the target is torn down, the server is killed. And our own volume
protocol beside it, on the same disk."""

import pathlib
import random
import re
import subprocess
import sys
import threading

import guest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import nebula  # noqa: E402

FOLDER = pathlib.Path("/tmp/nvmeof")
HOST = "nqn.2014-08.org.nvmexpress:uuid:5a1e0c1e-0001-4000-8000-000000000001"
PORT, TCP_PORT, OWN_PORT, UNUSED_PORT = 4420, 4421, 9110, 4429
SECOND_ADDRESS = "192.0.2.3"
MIB = 1 << 20
SIZES = (700, 4096, 70001, MIB)
# Of the guest's clock, for an emulated machine on a busy one.
PATIENCE_S = 600
SETTINGS = ("memory.bytes=96MiB", "memory.cache_bytes=0", "memory.records_bytes=16MiB", "memory.huge_pages=false",
            "cpu.reactors=1", "rdma.enabled=false", "data.inline_bytes_max=0")
PERF = guest.BUILD / "tests/e2e/vm/disk_perf"
PERF_SECONDS = 1


def controllers():
    """The state of each controller that is no PCI device."""
    return {path.parent.name: path.read_text().strip() for path in pathlib.Path("/sys/class/nvme").glob("nvme*/state")
            if (path.parent / "transport").read_text().strip() != "pcie"}


def all_live(count):
    """A starved guest may lose a path for a moment, which then comes back."""
    return nebula.becomes(lambda: list(controllers().values()) == ["live"] * count, PATIENCE_S)


class Writer:
    """Puts one object after the other, and knows which were acknowledged."""

    def __init__(self, store):
        self.store = store
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.write)
        self.statuses = []

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def write(self):
        while not self.ended.is_set():
            self.statuses.append(self.store.put(16384))

    def more(self, status, count=3):
        """Waits until so many more have ended in that status."""
        before = self.statuses.count(status)
        assert nebula.becomes(lambda: self.statuses.count(status) >= before + count, PATIENCE_S), (self.statuses[-5:], self.store.tail())


class Store:
    """A store on volumes, whose objects are remembered."""

    def __init__(self, name, *volumes, settings=()):
        self.server = nebula.Server(FOLDER / name, FOLDER / f"{name}.log", *(word for volume in volumes for word in ("--volume", volume)),
                                    *(word for setting in (*SETTINGS, *settings) for word in ("--set", setting)))
        self.random = random.Random(name)
        self.bodies = {}
        self.count = 0

    def tail(self):
        return self.server.log_tail(30)

    def said(self, words):
        return words in self.server.log_path.read_text(errors="replace")

    def start(self):
        self.server.start()
        status = nebula.Client(self.server.http).request("PUT", "/box")[0]
        assert status in (200, 409), status

    def put(self, size):
        key, body = f"k{self.count}", self.random.randbytes(size)
        self.count += 1
        status = nebula.Client(self.server.http, timeout=PATIENCE_S).request("PUT", f"/box/{key}", body)[0]
        if status == 200:
            self.bodies[key] = body
        assert status in (200, 503), status
        return status

    def whole(self):
        client = nebula.Client(self.server.http, timeout=PATIENCE_S)
        for key, body in self.bodies.items():
            status, _, got = client.request("GET", f"/box/{key}")
            assert status == 200 and got == body, (key, status, len(got))


class Fabrics:
    def __init__(self, tap, agent):
        self.tap = tap
        self.agent = agent
        self.store = None
        self.nqn = None

    def volume(self, nqn=None, port=PORT, addresses=(guest.SERVER_ADDRESS,), **options):
        words = {"transport": "rdma", "hostnqn": HOST, "fast_io_fail_tmo": 5, "reconnect_delay": 1, **options}
        return (f"nvmeof://{'+'.join(f'{address}:{port}' for address in addresses)}/{nqn or self.nqn}?"
                + "&".join(f"{key}={value}" for key, value in words.items()))

    def export(self, path, transport, port, *options):
        text = self.agent.do("export", argv=["--nvmeof", "--transport", transport, "--listen", f"0.0.0.0:{port}", "--allow-host", HOST,
                                             *options, f"disk={path}"])
        return re.search(r"^disk nqn=(\S+)$", text, re.M).group(1)

    def exported(self):
        self.nqn = self.export(guest.RAW_BLOCK, "rdma", PORT)
        shown = self.agent.do("shown")
        assert f"subsystems/{self.nqn}/allowed_hosts/{HOST}" in shown, shown

    def refused(self):
        """Errors for people: each names what is wrong."""
        secret = FOLDER / "host.key"
        secret.write_text("DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:\n")
        for volume, words in (
                (self.volume("nqn.2014-08.org.example:no-such-disk"), "has no such NQN"),
                (self.volume(hostnqn="nqn.2014-08.org.example:somebody"), "does not allow this host's NQN"),
                (self.volume(port=UNUSED_PORT, transport="tcp"), "nothing listens there"),
                (self.volume(nsid=9), "has no name space 9"),
                (self.volume(dhchap_secret_file=secret), "without DH-HMAC-CHAP")):
            done = guest.run(guest.PROGRAM, "volume", "nbd", "--listen", f"unix:{FOLDER}/nbd.sock", f"x={volume}", check=False)
            assert done.returncode == 1 and words in done.stderr, (volume, done.stderr)
        assert not controllers(), controllers()

    def objects(self):
        self.store = Store("rdma", self.volume())
        self.store.start()
        assert all_live(1), controllers()
        for size in SIZES:
            assert self.store.put(size) == 200
        self.store.whole()

    def cut_short(self):
        """The requests of a short loss wait; whether a busy machine makes it a long one does not matter here."""
        with Writer(self.store) as writer:
            writer.more(200)
            self.agent.do("cut", wanted=True)
            gone = nebula.becomes(lambda: "live" not in controllers().values(), PATIENCE_S)
            self.agent.do("cut", wanted=False)
            assert gone, controllers()
            writer.more(200)
        print(f"#   nvmeof: a short loss: {writer.statuses.count(200)} PUTs acknowledged, {writer.statuses.count(503)} 503", flush=True)
        self.store.whole()

    def cut_long(self):
        with Writer(self.store) as writer:
            writer.more(200)
            self.agent.do("cut", wanted=True)
            try:
                writer.more(503)
                ready = nebula.Client(self.store.server.admin).request("GET", "/health/ready")[0]
                assert ready == 503, ready
            finally:
                self.agent.do("cut", wanted=False)
            writer.more(200)
        assert self.store.said("no path to it came back in time") and self.store.said("a path is live again"), self.store.tail()
        self.store.whole()

    def torn_down(self):
        """For the initiator a target that is torn down and made anew is one whose host crashed and started again."""
        with Writer(self.store) as writer:
            writer.more(200)
            before = self.agent.do("kill_export")
            assert self.nqn in before, before
            assert self.export(guest.RAW_BLOCK, "rdma", PORT) == self.nqn
            writer.more(200)
        assert "which a killed process had left" in self.agent.do("export_log")
        self.store.whole()

    def killed(self):
        self.store.server.kill()
        assert all_live(1), controllers()
        self.store.start()
        assert self.store.said("is connected to it already, and is used"), self.store.tail()
        self.store.whole()

    def ended(self):
        assert self.store.server.stop() == 0, self.store.tail()
        assert not controllers(), controllers()
        assert not list(pathlib.Path("/run").glob("nebulaio-nvmeof.*"))
        code, text = self.store.server.fsck("--deep")
        assert code == 0, text[-3000:]
        assert not controllers(), controllers()
        self.agent.do("end_export")
        assert self.nqn not in self.agent.do("shown")

    def export_file(self):
        return self.export(guest.DATA / "exported", "tcp", TCP_PORT, "--bytes", str(256 * MIB))

    def two_paths(self):
        """By TCP, over two addresses; one goes away. The volume is a member of an array, 2+1, with two files."""
        self.nqn = self.export_file()
        self.agent.do("address", act="add", address=SECOND_ADDRESS)
        files = [guest.DATA / name for name in ("member1", "member2")]
        for path in files:
            path.touch()
        store = self.store = Store("tcp", self.volume(port=TCP_PORT, addresses=(guest.SERVER_ADDRESS, SECOND_ADDRESS), transport="tcp"),
                                   *map(str, files), settings=("storage.erasure.data=2", "storage.erasure.parity=1"))
        store.start()
        assert all_live(2), controllers()
        with Writer(store) as writer:
            writer.more(200)
            self.agent.do("address", act="del", address=SECOND_ADDRESS)
            assert nebula.becomes(lambda: list(controllers().values()) != ["live"] * 2, PATIENCE_S)
            writer.more(200)
            self.agent.do("address", act="add", address=SECOND_ADDRESS)
            assert all_live(2), controllers()
            assert 503 not in writer.statuses, writer.statuses
        store.whole()

    def member_lost(self):
        """The target ends: the array goes on without that member, and takes it back."""
        store = self.store
        self.agent.do("end_export")
        with Writer(store) as writer:
            assert nebula.becomes(lambda: store.said("no path to it came back in time"), PATIENCE_S), store.tail()
            writer.more(200)
        store.whole()
        assert self.export_file() == self.nqn
        assert nebula.becomes(lambda: store.said("volume 0 is rebuilt"), PATIENCE_S), store.tail()
        store.whole()
        assert store.server.stop() == 0, store.tail()
        assert not controllers(), controllers()
        self.agent.do("end_export")

    def perf(self, volume, *options):
        text = guest.run(PERF, volume, str(PERF_SECONDS), *options).stdout
        print(f"#   nvmeof: {volume.split('?')[0]}: {' '.join(text.split())}", flush=True)
        return {name: float(value) for name, value in (line.split("=") for line in text.split())}

    def compared(self):
        """The same disk by both protocols, over soft-RoCE; only the ratios mean something."""
        self.nqn = self.export(guest.RAW_BLOCK, "rdma", PORT)
        theirs = self.perf(self.volume())
        self.agent.do("end_export")
        secret = FOLDER / "secret"
        secret.write_text("0123456789abcdef0123456789abcdef\n")
        self.agent.do("export", secret=secret.read_text(),
                      argv=["--device", guest.DEVICE, "--listen", f"{guest.SERVER_ADDRESS}:{OWN_PORT}", f"disk={guest.RAW_BLOCK}"])
        ours = self.perf(f"rdma://{guest.SERVER_ADDRESS}:{OWN_PORT}/disk", str(secret), guest.DEVICE)
        self.agent.do("end_export")
        for name, value in ours.items():
            print(f"#   nvmeof: {name}: ours {value:.0f}/s, NVMe-oF {theirs[name]:.0f}/s under emulation, ratio {value / theirs[name]:.2f}",
                  flush=True)
            assert value > 0 and theirs[name] > 0

    def run(self):
        test = self.tap.test
        FOLDER.mkdir(parents=True)
        try:
            if not test("nvmeof: the kernel's target exports a disk to one host, by RDMA", self.exported):
                return
            test("nvmeof: a wrong NQN, another host, a wrong port: each is told", self.refused)
            if test("nvmeof: a store on the volume, objects there and back", self.objects):
                test("nvmeof: a path is lost and comes back: nothing acknowledged is lost", self.cut_short)
                test("nvmeof: a long loss: 503, then all goes on by itself, nothing acknowledged is lost", self.cut_long)
                test("nvmeof: the exporter is killed, its target torn down and made anew: all goes on", self.torn_down)
                test("nvmeof: the server is killed and started again: it uses the connection that is there", self.killed)
                test("nvmeof: the server ends and disconnects; fsck --deep finds nothing; the target leaves nothing", self.ended)
            if test("nvmeof: two paths by TCP, one goes away and comes back under load", self.two_paths):
                test("nvmeof: a member of an array is lost, missed, taken back and rebuilt", self.member_lost)
            test("nvmeof: beside our own protocol, on the same disk", self.compared)
        finally:
            if self.tap.failures:
                self.tell()
            if self.store and self.store.server.process and self.store.server.process.poll() is None:
                self.store.server.kill()

    def tell(self):
        for log in FOLDER.glob("*.log"):
            for line in log.read_text(errors="replace").splitlines()[-30:]:
                print(f"#   {log.name}: {line}", flush=True)
        print(f"#   {controllers()}; {self.agent.do('export_log')}", flush=True)
        for line in subprocess.run(["dmesg"], capture_output=True, text=True).stdout.splitlines()[-40:]:
            print(f"#   dmesg: {line}", flush=True)
