"""tests/e2e/lib/exporter.py: a host that exports a volume over RDMA."""

import os
import re
import select
import signal
import subprocess

from nebula import PROGRAM, READY_S, kept_port


class Exporter:
    """`nebulaio volume serve` with one volume, on a port that stays the same."""

    def __init__(self, folder, number, secret, host="127.0.0.1", device="simulated"):
        self.folder, self.number, self.secret = folder, number, secret
        self.path = folder / f"volume{number}"
        self.log_path = folder / f"exporter{number}.log"
        self.address = f"{host}:{kept_port()}"
        self.device = device
        self.process = None

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "volume", "serve", "--secret-file", self.secret, "--listen", self.address, "--device", self.device,
                 "--memory", "32", "--reserve", "16",
                 f"shard{self.number}={self.path}"], stdout=subprocess.PIPE, stderr=log)
        text = b""
        while b"\n" not in text:
            ready, _, _ = select.select([self.process.stdout.fileno()], [], [], READY_S)
            chunk = os.read(self.process.stdout.fileno(), 4096) if ready else b""
            if not chunk:
                self.process.kill()
                raise RuntimeError(f"exporter {self.number} did not get ready:\n{self.log_path.read_text()[-2000:]}")
            text += chunk
        self.address = re.search(r"^ready volumes=(\S+)", text.decode()).group(1)
        return self

    def name(self):
        return f"rdma://{self.address}/shard{self.number}"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(READY_S)
