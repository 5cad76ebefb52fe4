"""tests/e2e/vm/s3.py: objects over real queue pairs: for one guest with itself, and for a pair of guests."""

import filecmp
import random
import shutil

import guest

SIZES = {"1": 1, "4k": 4096, "1m": 1 << 20, "16m": 16 << 20}
# Every size is a part of it or a multiple.
BLOCK_BYTES = 1 << 20
BUCKET = "s3://guests"


class Objects:
    """A client, and files to send back and forth."""

    def __init__(self, tap, label, client):
        self.tap, self.label, self.client = tap, label, client
        self.folder = guest.DATA / "files"
        self.folder.mkdir(exist_ok=True)

    def file(self, name, size):
        """A file of that name and size, no two of whose blocks are the same."""
        path = self.folder / name
        if not path.exists():
            block = random.Random(name).randbytes(min(size, BLOCK_BYTES))
            with open(path, "wb") as file:
                for at in range(0, size, BLOCK_BYTES):
                    file.write(block if at == 0 else at.to_bytes(8) + block[8:])
        return path

    def put(self, name, size):
        self.client.run("cp", self.file(name, size), f"{BUCKET}/{name}")

    def get(self, name):
        back = self.folder / f"{name}.back"
        self.client.run("cp", f"{BUCKET}/{name}", back)
        assert filecmp.cmp(self.folder / name, back, shallow=False), f"{name}: the bytes differ"
        back.unlink()

    def put_all(self):
        """All sizes in one command: a process takes seconds to start here."""
        for name, size in SIZES.items():
            self.file(name, size)
        self.client.run("cp", "-r", self.folder, f"{BUCKET}/")

    def get_all(self):
        back = self.folder.with_name("files.back")
        self.client.run("cp", "-r", f"{BUCKET}/", back)
        for name in SIZES:
            assert filecmp.cmp(self.folder / name, back / name, shallow=False), f"{name}: the bytes differ"
        shutil.rmtree(back)

    def round_trips(self):
        sizes = ", ".join(SIZES)
        self.tap.test(f"{self.label}: put {sizes} by RDMA", self.put_all)
        self.tap.test(f"{self.label}: get {sizes} by RDMA, the same bytes", self.get_all)

    def is_absent(self, name):
        done = self.client.run("stat", f"{BUCKET}/{name}", check=False)
        assert done.returncode != 0, f"{name} is there: {done.stdout}"
        assert "NoSuchKey" in done.stderr + done.stdout or "not found" in (done.stderr + done.stdout).lower() \
            or "404" in done.stderr + done.stdout, f"stat says: {done.stdout}{done.stderr}"
