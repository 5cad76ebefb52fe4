"""tests/e2e/xdp/veth.py: a veth pair in network namespaces of its own, `nebulaio flow` at its near end, packets from its far one,
and the captures that it writes."""

import contextlib
import ctypes
import fcntl
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

for shared in ("lib", "flow"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / shared))
import flows  # noqa: E402
from nebula import PATIENCE_S, Tap  # noqa: E402

NEAR, FAR = f"nebx{os.getpid()}a", f"nebx{os.getpid()}b"  # namespaces: where we receive, where the load comes from
WINDOW = 4096
PORT, OTHER_PORT = 9999, 7777
CLONE_NEWNET = 0x40000000
SIOCETHTOOL, ETHTOOL_STXCSUM = 0x8946, 0x17
LIBC = ctypes.CDLL(None, use_errno=True)


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)


class inside:
    """Opens sockets and files in a namespace."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.back = open("/proc/self/ns/net")
        with open(f"/run/netns/{self.name}") as namespace:
            if LIBC.setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

    def __exit__(self, *_):
        LIBC.setns(self.back.fileno(), CLONE_NEWNET)
        self.back.close()


def link_up():
    """near0 (10.9.0.1) and far0 (10.9.0.2), a pair; far0 computes its checksums itself."""
    ip("link", "add", "near0", "netns", NEAR, "mtu", "1500", "type", "veth", "peer", "name", "far0", "netns", FAR)
    for name, link, address in ((NEAR, "near0", "10.9.0.1/24"), (FAR, "far0", "10.9.0.2/24")):
        ip("-n", name, "addr", "add", address, "dev", link)
        ip("-n", name, "link", "set", link, "up")
        ip("-n", name, "link", "set", "lo", "up")
    macs = {}
    for name, link in ((NEAR, "near0"), (FAR, "far0")):
        text = ip("-n", name, "-o", "link", "show", link).stdout
        macs[link] = re.search(r"link/ether (\S+)", text).group(1)
    ip("-n", FAR, "neigh", "replace", "10.9.0.1", "lladdr", macs["near0"], "dev", "far0", "nud", "permanent")
    ip("-n", NEAR, "neigh", "replace", "10.9.0.2", "lladdr", macs["far0"], "dev", "near0", "nud", "permanent")
    with inside(FAR), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        value = ctypes.create_string_buffer(struct.pack("II", ETHTOOL_STXCSUM, 0))
        fcntl.ioctl(control, SIOCETHTOOL, struct.pack("16sQ16x", b"far0", ctypes.addressof(value)))
    return {link: bytes.fromhex(mac.replace(":", "")) for link, mac in macs.items()}


def permitted(folder):
    """None, or the reason why these tests cannot run."""
    if os.geteuid():
        return "not root"
    for name in (NEAR, FAR):
        done = ip("netns", "add", name, check=False)
        if done.returncode:
            return f"no network namespaces: {done.stderr.strip()}"
    try:
        link_up()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no veth pair: {error}"
    flow = Flow("xdp:near0,udp=9", folder / "try.pcapng")
    try:
        flow.ready()
    except RuntimeError as error:
        return f"no AF_XDP: {str(error).strip().splitlines()[-1]}"
    flow.end()
    return None


class Flow(flows.Flow):
    """A running `nebulaio flow` in the near namespace."""

    BEFORE = ("ip", "netns", "exec", NEAR)

    def until(self, text, seconds=PATIENCE_S):
        super().until(re.escape(text), seconds)
        return self

    def ready(self):
        return self.until("receiving on")

    def settle(self, count):
        """Waits until so many packets were received, so that no load runs far ahead of a busy machine."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self.text = self.text[-4000:]
            lines = self.text.count("packets  ")
            self.process.send_signal(signal.SIGUSR1)
            while self.text.count("packets  ") == lines and time.monotonic() < deadline:
                if not self.read(1):
                    return
            if int(re.findall(r"(\d+) packets  ", self.text)[-1]) >= count:
                return

    def feed(self, packets):
        """Sends packets, never more than a ring holds ahead of the flow; returns how many."""
        sent = 0
        with contextlib.closing(wire()) as raw:
            for sent, data in enumerate(packets, 1):
                raw.send(data)
                if sent % WINDOW == 0:
                    self.settle(sent - WINDOW // 2)
        return sent

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        return self.wait()


def packet(macs, number, payload, port=PORT, source=5555):
    """A UDP packet from far to near; with a valid IPv4 checksum and without a UDP checksum."""
    length = len(payload)
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + length, number & 0xffff, 0, 64, 17, 0,
                       bytes([10, 9, 0, 2]), bytes([10, 9, 0, 1]))
    total = sum(struct.unpack(">10H", head))
    total = (total & 0xffff) + (total >> 16)
    total = (total & 0xffff) + (total >> 16)
    head = head[:10] + struct.pack(">H", ~total & 0xffff) + head[12:]
    return macs["near0"] + macs["far0"] + b"\x08\0" + head + struct.pack(">HHHH", source, port, 8 + length, 0) + payload


def wire(protocol=0, link="far0"):
    """A socket on the far side; with a protocol it also receives."""
    with inside(FAR):
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
        raw.bind((link, protocol))
        return raw


def load(macs, count):
    """The bounded load: (number, packet) of 64 to 1,500 bytes above Ethernet's head, all different."""
    pattern = bytes(range(256)) * 8
    for number in range(count):
        length = 22 + (number * 7919) % 1437
        shift = number % 256
        yield packet(macs, number, struct.pack(">I", number) + pattern[shift:shift + length - 4])


def pcapng_packets(path, wire_bytes=None):
    """Every packet of a file with its time, the structure of every block checked; and the statistics of its end. A list
    gets the lengths that the packets had."""
    data = memoryview(pathlib.Path(path).read_bytes())
    at, packets, statistics, kinds = 0, [], {}, []
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if length < 12 or length % 4 or struct.unpack_from("<I", data, at + length - 4)[0] != length:
            raise ValueError(f"{path}: a broken block at {at}")
        kinds.append(kind)
        if kind == 6:
            interface, high, low, captured, original = struct.unpack_from("<IIIII", data, at + 8)
            if wire_bytes is not None:
                wire_bytes.append(original)
            if interface or (captured != original and wire_bytes is None) or length != 32 + (captured + 3) // 4 * 4:
                raise ValueError(f"{path}: a broken packet block at {at}")
            packets.append((high << 32 | low, bytes(data[at + 28:at + 28 + captured])))
        elif kind == 5:
            option = at + 20
            while True:
                code, size = struct.unpack_from("<HH", data, option)
                if code == 0:
                    break
                if code in (4, 5):
                    statistics["received" if code == 4 else "dropped"] = struct.unpack_from("<Q", data, option + 4)[0]
                option += 4 + (size + 3) // 4 * 4
        at += length
    if kinds[:2] != [0x0a0d0d0a, 1] or struct.unpack_from("<I", data, 8)[0] != 0x1a2b3c4d:
        raise ValueError(f"{path}: does not begin with a section and an interface")
    if kinds[-1] != 5:
        raise ValueError(f"{path}: does not end with statistics")
    return packets, statistics


def mtu(size):
    for name, link in ((NEAR, "near0"), (FAR, "far0")):
        ip("-n", name, "link", "set", link, "mtu", str(size))


def run(tests):
    """Calls each with a Tap, the links' addresses and a folder; the exit status."""
    folder = pathlib.Path(os.environ.get("TEST_DIR") or tempfile.mkdtemp(prefix="nebulaio-xdp-"))
    tap = Tap()
    try:
        why = permitted(folder)
        if why:
            print(f"1..0 # SKIP AF_XDP is not tested: {why}")
            return 0
        macs = {link: bytes.fromhex(re.search(r"link/ether (\S+)", ip("-n", name, "-o", "link", "show", link).stdout).group(1).replace(":", ""))
                for name, link in ((NEAR, "near0"), (FAR, "far0"))}
        for test in tests:
            test(tap, macs, folder)
        print(f"1..{tap.count}")
    finally:
        for name in (NEAR, FAR):
            ip("netns", "del", name, check=False)
        if "TEST_DIR" not in os.environ:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if tap.failed else 0
