"""tests/vm/guest.py: what the programs inside a guest share: the network, the soft-RoCE device, TAP lines."""

import os
import pathlib
import re
import subprocess
import sys
import threading

BUILD = pathlib.Path(os.environ["BUILD_DIR"])
PROGRAM = pathlib.Path(os.environ["NEBULAIO"])
DEVICE = "rxe0"
NETDEV = "eth0"
DISK = "/dev/nvme0n1"
DATA = pathlib.Path("/mnt/data")


def run(*command, check=True, timeout=60, **options):
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=timeout, **options)


def set_up(address):
    """The link with its address, a file system on the NVMe disk, and the RDMA device."""
    run("ip", "address", "add", f"{address}/24", "dev", NETDEV)
    run("ip", "link", "set", NETDEV, "up")
    run("rdma", "link", "add", DEVICE, "type", "rxe", "netdev", NETDEV)
    run("mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1", DISK)
    DATA.mkdir(parents=True, exist_ok=True)
    run("mount", DISK, str(DATA))


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
        """Every point of a cmocka program, under a label; a plan that is not kept is a point that fails."""
        # Line by line, so that what stands still can be seen to.
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


def details(err):
    if isinstance(err, subprocess.CalledProcessError):
        return f"\n{err.stdout}\n{err.stderr}"
    return ""
