"""tests/e2e/vm/guest.py: common parts of the programs inside a guest: the network, the soft-RoCE device, TAP lines."""

import ipaddress
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import threading
import time

BUILD = pathlib.Path(os.environ["BUILD_DIR"])
PROGRAM = pathlib.Path(os.environ["NEBULAIO"])
DEVICE = "rxe0"
NETDEV = "eth0"
# The second way between two guests.
SECOND_DEVICE, SECOND_NETDEV = "rxe1", "eth1"


def namespace(number):
    """The block device of an NVMe namespace: newer kernels name them in order of detection."""
    found, = [path.parent.name for path in pathlib.Path("/sys/block").glob("nvme*/nsid") if int(path.read_text()) == number]
    return f"/dev/{found}"


# The NVMe controller's namespaces: one for files, one for jobs that use it without a file system.
DISK, RAW_BLOCK = namespace(1), namespace(2)
RAW_PASSTHROUGH = RAW_BLOCK.replace("nvme", "ng")
DATA = pathlib.Path("/mnt/data")
SERVER_ADDRESS = "192.0.2.1"
CLIENT_ADDRESS = "192.0.2.2"
SECOND = {SERVER_ADDRESS: "198.51.100.1", CLIENT_ADDRESS: "198.51.100.2"}
# A VLAN over the first way, in which RoCE's packets have a priority.
VLAN, VLAN_NETDEV, VLAN_PRIORITY = 7, "eth0.7", 5
IN_VLAN = {SERVER_ADDRESS: "203.0.113.1", CLIENT_ADDRESS: "203.0.113.2"}
# The default of network.dscp.
DSCP = 26
AGENT_PORT = 7000
ACCESS_KEY = "vm-access-key"
SECRET_KEY = "vm-secret-key-0123456789"
# An emulated machine on two busy cores: generous, and never reached without a fault.
READY_SECONDS_MAX = 600
STOP_SECONDS_MAX = 300
COPY_SECONDS_MAX = 600
# The preset of 30 s can be too short for it.
os.environ["NEBULAIO_REQUEST_TIMEOUT_S"] = str(READY_SECONDS_MAX)

CONFIG = """\
data:
  dir: {data}
http:
  address: {address}:9000
admin:
  address: {address}:9001
auth:
  root_user: {access_key}
  root_password: {secret_key}
memory:
  bytes: 128MiB
  cache_bytes: 32MiB
  records_bytes: 16MiB
  huge_pages: false
cpu:
  reactors: 1
rdma:
  enabled: true
  address: {address}
  port: 9100
  device_name: auto
  request_timeout_s: 9
  token_timeout_s: 9
"""


def run(*command, check=True, timeout=COPY_SECONDS_MAX, **options):
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=timeout, **options)


def spawn(argv):
    """A background process whose output is not needed."""
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def set_up(address):
    """The link with its address, a file system on the NVMe disk, and the RDMA device; once in a guest."""
    if DATA.is_mount():
        return
    run("ip", "address", "add", f"{address}/24", "dev", NETDEV)
    run("ip", "link", "set", NETDEV, "up")
    run("rdma", "link", "add", DEVICE, "type", "rxe", "netdev", NETDEV)
    if pathlib.Path("/sys/class/net", SECOND_NETDEV).exists():
        run("ip", "address", "add", f"{SECOND[address]}/24", "dev", SECOND_NETDEV)
        run("ip", "link", "set", SECOND_NETDEV, "up")
        run("rdma", "link", "add", SECOND_DEVICE, "type", "rxe", "netdev", SECOND_NETDEV)
    run("mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1", DISK)
    DATA.mkdir(parents=True, exist_ok=True)
    run("mount", DISK, str(DATA))


def processors(count):
    """A guest starts with one of its two."""
    pathlib.Path("/sys/devices/system/cpu/cpu1/online").write_text(str(count - 1))


def vlan_up(address):
    """The VLAN's interface, and the index of its address among the RDMA device's GIDs. As an administrator of a lossless class
    would, it makes a priority of RoCE's DSCP; everything else has priority 0."""
    run("ip", "link", "add", "link", NETDEV, "name", VLAN_NETDEV, "type", "vlan", "id", str(VLAN), "egress-qos-map", f"{VLAN_PRIORITY}:{VLAN_PRIORITY}")
    run("ip", "address", "add", f"{IN_VLAN[address]}/24", "dev", VLAN_NETDEV)
    run("ip", "link", "set", VLAN_NETDEV, "up")
    run("tc", "qdisc", "add", "dev", VLAN_NETDEV, "clsact")
    run("tc", "filter", "add", "dev", VLAN_NETDEV, "egress", "protocol", "ip", "prio", "1", "u32",
        "match", "ip", "dsfield", f"{DSCP << 2:#x}", "0xfc", "action", "skbedit", "priority", str(VLAN_PRIORITY))
    gid = ipaddress.IPv6Address(f"::ffff:{IN_VLAN[address]}").exploded
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        for path in pathlib.Path(f"/sys/class/infiniband/{DEVICE}/ports/1/gids").iterdir():
            if path.read_text().strip() == gid:
                return path.name
        time.sleep(0.1)
    raise RuntimeError(f"{DEVICE} has no GID {gid}")


def rdma_cut(wanted, netdev=NETDEV):
    """Drops every incoming RoCE packet, or stops dropping: for the peers of this guest's queue pairs its host has
    vanished, while its port stays up and everything else goes on."""
    if not wanted:
        run("tc", "qdisc", "del", "dev", netdev, "clsact")
        return
    run("tc", "qdisc", "add", "dev", netdev, "clsact")
    run("tc", "filter", "add", "dev", netdev, "ingress", "protocol", "ip", "prio", "1", "u32",
        "match", "ip", "protocol", "17", "0xff", "match", "ip", "dport", "4791", "0xffff", "action", "drop")


class Tap:
    def __init__(self):
        self.failures = 0

    def point(self, passed, name):
        self.failures += not passed
        print(f"{'ok' if passed else 'not ok'} - {name}", flush=True)
        return passed

    def test(self, name, function, *args):
        """One point for a function that raises when it fails."""
        try:
            function(*args)
        except Exception as err:  # any way of failing is a failure of this one test
            for line in f"{type(err).__name__}: {err}{details(err)}".splitlines():
                print(f"#   {line}", flush=True)
            return self.point(False, name)
        return self.point(True, name)

    def skip(self, name, why):
        self.point(True, f"{name} # SKIP {why}")

    def cmocka(self, label, command, timeout):
        """Every point of a cmocka program, under a label; a plan that is not met is a failed point."""
        # Line by line, so that a hang is visible.
        process = subprocess.Popen(["stdbuf", "-oL", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, env={**os.environ, "CMOCKA_MESSAGE_OUTPUT": "TAP"})
        timer = threading.Timer(timeout, process.kill)
        timer.start()
        planned = seen = 0
        for line in process.stdout:
            plan = re.match(r"1\.\.(\d+)", line)
            match = re.match(r"(not )?ok\b\s*\d*\s*-?\s*(.*)", line)
            if plan:
                planned += int(plan.group(1))
            if match:
                seen += 1
                self.point(not match.group(1), f"{label}: {match.group(2)}")
            else:
                print(f"#   {line.rstrip()}", flush=True)
        timer.cancel()
        status = process.wait()
        self.point(planned == seen > 0 and status >= 0, f"{label}: all {planned} tests ran")

    def done(self):
        print("# guest done", flush=True)
        sys.exit(1 if self.failures else 0)


def change_region(admin, keys, size_of, under):
    """A server's memory region grows by a step and shrinks again, twice; under() waits for work that goes on meanwhile, and
    size_of() is the region's size by the server's metrics."""
    base = size_of()
    for verb, larger in (("grow", True), ("shrink", False)) * 2:
        # A shrink that waits long for transfers says so, and is done when they have ended.
        done = run(PROGRAM, "region", "--endpoint", f"http://{admin}", "--access-key", keys[0], "--secret-key", keys[1], verb, check=False)
        deadline = time.monotonic() + READY_SECONDS_MAX
        while (size_of() > base) != larger:
            assert time.monotonic() < deadline, f"{verb}: {size_of()} of {base} bytes: {done.stdout}{done.stderr}"
            time.sleep(0.1)
        under()


def details(err):
    if isinstance(err, subprocess.CalledProcessError):
        return f"\n{err.stdout}\n{err.stderr}"
    return ""


class Server:
    """`nebulaio serve` on the RDMA device, its data on the NVMe disk."""

    def __init__(self, address):
        self.config = DATA / "nebulaio.yaml"
        self.config.write_text(CONFIG.format(address=address, data=DATA / "store",
                                             access_key=ACCESS_KEY, secret_key=SECRET_KEY))
        self.log = DATA / "nebulaio.log"
        self.process = None

    def start(self, *settings):
        sets = [word for setting in settings for word in ("--set", setting)]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([PROGRAM, "serve", "--config", self.config, *sets], stdout=subprocess.PIPE,
                                            stderr=log)
        deadline = time.monotonic() + READY_SECONDS_MAX
        text = b""
        while b"ready" not in text or not text.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            chunk = os.read(self.process.stdout.fileno(), 4096) if ready else b""
            if not chunk:
                self.kill()
                raise RuntimeError(f"the server did not get ready; its log:\n{self.log_tail()}")
            text += chunk
        return text.decode()

    def kill(self):
        self.process.kill()
        return self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS_MAX)

    def log_tail(self, lines=20):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Client:
    """`nebulaio cp` and its kin over RDMA only; they find the device by themselves."""

    def __init__(self, address):
        self.options = ["--transport", "strict", "--endpoint", f"rdma://{address}:9100?paths=given",
                        "--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]

    def command(self, verb, *operands):
        return [str(word) for word in (PROGRAM, verb, *self.options, *operands)]

    def run(self, verb, *operands, check=True):
        return run(*self.command(verb, *operands), check=check, timeout=COPY_SECONDS_MAX)

    def start(self, verb, *operands):
        return subprocess.Popen(self.command(verb, *operands), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True)
