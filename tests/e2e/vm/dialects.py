"""tests/e2e/vm/dialects.py: S3 by RDMA tokens, hipobj-rc-v2 and elbencho's sessions, over real queue pairs that are joined by
hand on both sides, by independent clients: tests/e2e/token has the clients, and token_peer the memory. For one guest with itself,
and for a pair of guests."""
import os
import pathlib
import re
import subprocess
import sys
import urllib.request

import guest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / "lib"), str(TESTS / "token")]
import contract  # noqa: E402
import elbencho  # noqa: E402
import hipobj  # noqa: E402

MIB = 1 << 20
# The smallest part that is not the last.
PART_BYTES = 5 * MIB


def begun(client, path):
    """The id of a new multipart upload."""
    body = client.request("POST", path, query={"uploads": ""})[2]
    return re.search(rb"<UploadId>(.*?)</UploadId>", body)[1].decode()


def completed(client, path, upload, etags):
    """An upload of these parts is completed, and HTTP reads the object."""
    parts = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>" for number, etag in enumerate(etags, 1))
    answer = client.request("POST", path, f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode(),
                            query={"uploadId": upload})
    assert answer[0] == 200 and b"<ETag>" in answer[2], answer
    return client.request("GET", path)[2]


class Tokens:
    def __init__(self, address, peer):
        self.address, self.peer = address, peer
        self.client = contract.TokenClient(f"{address}:9000", peer, access_key=guest.ACCESS_KEY,
                                           secret_key=guest.SECRET_KEY)

    def connect(self):
        refusal = self.client.connect()
        assert refusal is None, refusal
        self.client.request("PUT", "/tokens")

    def round_trip(self, size):
        data = os.urandom(size)
        answer = self.client.put(f"/tokens/o{size}", data)
        assert answer[0] == 200 and answer[1][contract.REPLY] == "200" and answer[1]["etag"], answer
        self.peer.memory[:size + 8] = bytes(size + 8)
        answer = self.client.get(f"/tokens/o{size}")
        assert answer[0] == 200 and answer[1][contract.MOVED] == str(size) and not answer[2], answer
        assert self.peer.memory[:size] == data and self.peer.memory[size:size + 8] == bytes(8), "other bytes"

    def a_range(self):
        data = os.urandom(2 * MIB)
        self.client.put("/tokens/ranged", data)
        answer = self.client.get("/tokens/ranged", 4096, 100001, headers={"range": "bytes=1000-101000"})
        assert answer[0] == 206 and answer[1][contract.REPLY] == "206", answer
        assert self.peer.memory[4096:4096 + 100001] == data[1000:101001], "other bytes"

    def parts(self):
        path, pieces, etags = "/tokens/parts", (os.urandom(PART_BYTES), os.urandom(70001)), []
        upload = begun(self.client, path)
        for number, piece in enumerate(pieces, 1):
            answer = self.client.put(path, piece, query={"partNumber": str(number), "uploadId": upload})
            assert answer[0] == 200 and answer[1][contract.REPLY] == "200", answer
            etags.append(answer[1]["etag"])
        assert completed(self.client, path, upload, etags) == b"".join(pieces), "other bytes"

    def wrong_key(self, method):
        answer = self.client.request(method, "/tokens/ranged", headers={
            contract.TOKEN: self.client.token(0, 2 * MIB, self.peer.rkey ^ 0x7FFFFF00), "content-length": "0"})
        assert answer[0] == 500 and b"RDMATransferFailed" in answer[2] and "etag" not in answer[1], answer
        answer = self.client.get("/tokens/ranged")
        assert answer[0] == 501 and answer[1][contract.REPLY] == "501", answer
        self.connect()
        answer = self.client.get("/tokens/ranged")
        assert answer[0] == 200, answer

    def client_gone(self):
        with contract.Peer(guest.DEVICE, MIB) as victim:
            doomed = Tokens(self.address, victim)
            doomed.connect()
            victim.kill()
            answer = doomed.client.request("PUT", "/tokens/lost", headers={
                contract.TOKEN: doomed.client.token(0, MIB), "content-length": "0"})
            assert answer[0] == 500 and b"RDMATransferFailed" in answer[2], answer
        assert self.client.request("HEAD", "/tokens/lost")[0] == 404
        self.round_trip(4096)

    def conforms(self):
        """Runs the suite of rules; libnebulaio mints its tokens on the device."""
        done = subprocess.run([guest.PROGRAM, "conformance", "--device", guest.DEVICE, "--access-key", guest.ACCESS_KEY,
                               "--secret-key", guest.SECRET_KEY, f"http://{self.address}:9000"], capture_output=True, text=True,
                              timeout=guest.READY_SECONDS_MAX)
        assert done.returncode == 0, done.stdout + done.stderr
        print("#   " + done.stdout.splitlines()[-1].removeprefix("# "), flush=True)

    def counted(self):
        text = urllib.request.urlopen(f"http://{self.address}:9001/metrics", timeout=guest.READY_SECONDS_MAX).read().decode()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and line[0] != "#")
        assert float(values['nebulaio_token_requests_total{result="failed"}']) == 3, text
        copied = {name: value for name, value in values.items() if name.startswith("nebulaio_copied_bytes_total")}
        print(f"#   copied by the server: {copied}", flush=True)


class Sessions:
    """hipobj-rc-v2: a session and a queue pair for each transfer."""

    def __init__(self, address, peer):
        self.address, self.peer = address, peer
        self.client = hipobj.HipobjClient(f"{address}:9000", peer, guest.ACCESS_KEY, guest.SECRET_KEY)

    def round_trip(self, size):
        data = os.urandom(size)
        answer = self.client.put(f"/tokens/h{size}", data)
        assert answer[0] == 200 and answer[1][hipobj.MOVED] == str(size), answer
        self.peer.memory[:size + 8] = bytes(size + 8)
        answer = self.client.get(f"/tokens/h{size}", size)
        assert answer[0] == 200 and answer[3][0] == answer[3][2], answer
        assert self.peer.memory[:size] == data and self.peer.memory[size:size + 8] == bytes(8), "other bytes"
        answer = self.client.get(f"/tokens/h{size}", size - size // 2, size // 2)
        assert answer[0] == 200 and self.peer.memory[:size - size // 2] == data[size // 2:], answer

    def parts(self):
        path, pieces, etags = "/tokens/hipobj-parts", (os.urandom(PART_BYTES), os.urandom(70001)), []
        upload = begun(self.client, path)
        for number, piece in enumerate(pieces, 1):
            answer = self.client.put(f"{path}?partNumber={number}&uploadId={upload}", piece)
            assert answer[0] == 200 and answer[1][hipobj.MOVED] == str(len(piece)), answer
            etags.append(answer[1].get("etag") or answer[1]["x-amz-rdma-etag"])
        assert completed(self.client, path, upload, etags) == b"".join(pieces), "other bytes"

    def by_our_client(self, folder):
        """libnebulaio's own client of it, both ways."""
        source, back = folder / "by-hipobj", folder / "by-hipobj.back"
        source.write_bytes(os.urandom(MIB + 5))
        before = moved_by_hipobj(self.address)
        for operands in ((source, "s3://tokens/ours"), ("s3://tokens/ours", back)):
            guest.run(guest.PROGRAM, "cp", "--endpoint", f"http://{self.address}:9000?rdma=hipobj", "--device", guest.DEVICE,
                      "--access-key", guest.ACCESS_KEY, "--secret-key", guest.SECRET_KEY, *map(str, operands))
        assert back.read_bytes() == source.read_bytes(), "other bytes"
        moved = moved_by_hipobj(self.address) - before
        assert moved == 2 * (MIB + 5), f"{moved} bytes moved by hipobj-rc-v2"

    def nothing_left(self):
        text = urllib.request.urlopen(f"http://{self.address}:9001/metrics", timeout=guest.READY_SECONDS_MAX).read().decode()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and line[0] != "#")
        assert not any(float(values[f"nebulaio_hipobj_{what}"]) for what in ("sessions", "windows", "staging_bytes")), text


class Elbencho:
    """elbencho's sessions: an unsigned connect before each transfer; the server needs rdma.token_elbencho."""

    def __init__(self, address, peer):
        self.address, self.peer = address, peer
        self.client = elbencho.ElbenchoClient(f"{address}:9000", peer, guest.ACCESS_KEY, guest.SECRET_KEY)

    def round_trip(self, size):
        data = os.urandom(size)
        answer = self.client.put(f"/tokens/e{size}", data)
        assert answer[0] == 200 and answer[1][contract.REPLY] == "200" and answer[1]["etag"], answer
        self.peer.memory[:size + 8] = bytes(size + 8)
        answer = self.client.get(f"/tokens/e{size}", size)
        assert answer[0] == 206 and answer[1][contract.MOVED] == str(size) and not answer[2], answer
        assert self.peer.memory[:size] == data and self.peer.memory[size:size + 8] == bytes(8), "other bytes"
        answer = self.client.get(f"/tokens/e{size}", size - size // 2, size // 2)
        assert answer[0] == 206 and self.peer.memory[:size - size // 2] == data[size // 2:], answer

    def parts(self):
        path, pieces, etags = "/tokens/elbencho-parts", (os.urandom(PART_BYTES), os.urandom(70001)), []
        upload = begun(self.client, path)
        for number, piece in enumerate(pieces, 1):
            answer = self.client.put(path, piece, query={"partNumber": str(number), "uploadId": upload})
            assert answer[0] == 200 and answer[1][contract.REPLY] == "200", answer
            etags.append(answer[1]["etag"])
        assert completed(self.client, path, upload, etags) == b"".join(pieces), "other bytes"

    def nothing_left(self):
        text = urllib.request.urlopen(f"http://{self.address}:9001/metrics", timeout=guest.READY_SECONDS_MAX).read().decode()
        assert "\nnebulaio_token_sessions_unproven 0\n" in text, text


def moved_by_hipobj(address):
    text = urllib.request.urlopen(f"http://{address}:9001/metrics", timeout=guest.READY_SECONDS_MAX).read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("nebulaio_hipobj_bytes_total"))
