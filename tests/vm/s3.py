"""tests/vm/s3.py: objects over real queue pairs: what one guest does with itself and a pair with each other."""

import random

import guest

SIZES = {"1": 1, "4k": 4096, "1m": 1 << 20, "64m": 64 << 20}
BUCKET = "s3://guests"


class Objects:
    """A client, and files to send back and forth."""

    def __init__(self, tap, label, client):
        self.tap, self.label, self.client = tap, label, client
        self.folder = guest.DATA / "files"
        self.folder.mkdir(exist_ok=True)
        self.sums = {}

    def file(self, name, size):
        path = self.folder / name
        if name not in self.sums:
            path.write_bytes(random.Random(name).randbytes(size))
            self.sums[name] = guest.sha(path)
        return path

    def put(self, name, size):
        self.client.run("cp", self.file(name, size), f"{BUCKET}/{name}")

    def get(self, name):
        back = self.folder / f"{name}.back"
        self.client.run("cp", f"{BUCKET}/{name}", back)
        assert guest.sha(back) == self.sums[name], f"{name}: the bytes differ"
        back.unlink()

    def round_trips(self):
        for name, size in SIZES.items():
            self.tap.test(f"{self.label}: put {name} by RDMA", self.put, name, size)
            self.tap.test(f"{self.label}: get {name} by RDMA, the same bytes", self.get, name)

    def is_absent(self, name):
        done = self.client.run("stat", f"{BUCKET}/{name}", check=False)
        assert done.returncode != 0, f"{name} is there: {done.stdout}"
        assert "NoSuchKey" in done.stderr + done.stdout or "not found" in (done.stderr + done.stdout).lower() \
            or "404" in done.stderr + done.stdout, f"stat says: {done.stdout}{done.stderr}"
