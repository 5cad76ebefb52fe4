"""tests/e2e/flow/flows.py: a running `nebulaio flow`, for the tests of flows."""

import json
import os
import re
import select
import subprocess
import time

from nebula import PATIENCE_S, PROGRAM, clean_env

MIB = 1 << 20
ENV = clean_env()


class Flow:
    """A running `nebulaio flow`, whose output is collected."""

    BEFORE = ()  # of its command: what it is run by

    def __init__(self, source, target, *extra):
        self.process = subprocess.Popen([*self.BEFORE, PROGRAM, "flow", "--from", str(source), "--to", str(target), "--json", *map(str, extra)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV)
        os.set_blocking(self.process.stderr.fileno(), False)
        self.text = ""
        self.code = None

    def read(self, seconds):
        ready, _, _ = select.select([self.process.stderr], [], [], seconds)
        if not ready:
            return True
        chunk = os.read(self.process.stderr.fileno(), 65536)
        self.text += chunk.decode(errors="replace")
        return bool(chunk)

    def until(self, pattern, seconds=PATIENCE_S):
        """The match of a pattern in its output."""
        deadline = time.monotonic() + seconds
        while not (match := re.search(pattern, self.text)):
            if time.monotonic() > deadline or not self.read(max(0, deadline - time.monotonic())):
                self.process.kill()
                self.process.wait()
                raise RuntimeError(f"'{pattern}' was not said:\n{self.text}")
        return match

    def port(self):
        return self.until(r"listening on \S*:(\d+),").group(1)

    def wait(self, seconds=PATIENCE_S):
        """The summary, after the program has ended by itself."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.read(max(0, deadline - time.monotonic())):
            pass
        if time.monotonic() >= deadline:
            self.process.kill()
        self.code = self.process.wait()
        text = self.process.stdout.read().decode()
        return json.loads(text) if text.strip() else {}


def pair(source, target, *extra, listener_extra=()):
    """source → stream → target, by two processes; their summaries and flows."""
    receiver = Flow("rdma::0", target, *listener_extra)
    sender = Flow(source, f"rdma:127.0.0.1:{receiver.port()}", *extra)
    return sender.wait(), receiver.wait(), sender, receiver
