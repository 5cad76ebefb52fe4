"""tests/e2e/token/contract.py: an independent client of the RDMA token contract: this file makes and signs its
requests, and token_peer has its memory and its queue pairs. It does not use the project's client library."""
import mmap
import os
import pathlib
import secrets
import subprocess

import nebula

BUILD = pathlib.Path(os.environ.get("BUILD_DIR", nebula.ROOT / "build"))
PEER = BUILD / "tests/e2e/token/token_peer"
TOKEN, REPLY, MOVED = "x-amz-rdma-token", "x-amz-rdma-reply", "x-amz-rdma-bytes-transferred"
PSN, MTU = "x-nebulaio-rdma-psn", "x-nebulaio-rdma-mtu"


def crc64nvme(data):
    """The CRC as the contract's source defines it, bit by bit except for a table of bytes."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x9A6C9329AC4BC9B5 if byte & 1 else 0)
        table.append(byte)
    crc = 0xFFFFFFFFFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFFFFFFFFFF


class QueuePair:
    """One end of ours. joined() is its description in tokens."""

    def __init__(self, number, lid, qpn, has_gid, gid, psn, mtu):
        self.number, self.lid, self.qpn, self.gid = int(number), int(lid), int(qpn), gid
        self.has_gid, self.psn, self.mtu = int(has_gid), int(psn), int(mtu)

    def token(self, addr=0, size=0, rkey=0):
        return f"{addr:016x}:{size:08x}:{rkey:08x}:{self.lid:04x}:{self.qpn:06x}:{self.has_gid}:{self.gid}"


class Peer:
    """token_peer, and its memory in this process."""

    def __init__(self, device="simulated", size=64 << 20, folder="/dev/shm"):
        self.path = pathlib.Path(folder) / f"token-peer-{os.getpid()}-{secrets.token_hex(4)}"
        with open(self.path, "wb") as file:
            file.truncate(size)
        with open(self.path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), size)
        self.process = subprocess.Popen([PEER, device, self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        addr, size, rkey = self.order("reg rw")
        self.addr, self.size, self.rkey = int(addr), int(size), int(rkey)
        self.path.unlink()

    def order(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        words = self.process.stdout.readline().split()
        if not words or words[0] != "ok":
            raise RuntimeError(f"token_peer: {line}: {words}")
        return words[1:]

    def queue_pair(self):
        return QueuePair(*self.order("qp"))

    def join(self, ours, theirs):
        self.order(f"join {ours.number} {theirs.lid} {theirs.qpn} {theirs.has_gid} {theirs.gid} {theirs.psn} {theirs.mtu}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        if self.process.wait(nebula.PATIENCE_S) not in (0, -9):
            raise RuntimeError(f"token_peer ended with {self.process.returncode}")
        self.process.stdout.close()
        self.memory.close()


def parse_end(headers):
    """The server's queue pair, as its answer to ?rdma-connect describes it."""
    fields = headers[TOKEN].split(":")
    assert [len(f) for f in fields] == [16, 8, 8, 4, 6, 1, 32], headers[TOKEN]
    return QueuePair(0, int(fields[3], 16), int(fields[4], 16), int(fields[5], 16), fields[6], headers[PSN], headers[MTU])


class TokenClient(nebula.Client):
    """Requests with tokens, over one connection and one queue pair."""

    def __init__(self, address, peer, **options):
        super().__init__(address, **options)
        self.peer = peer
        self.pair = None

    def connect(self):
        """None, or the refusal: (status, headers, body)."""
        pair = self.peer.queue_pair()
        answer = self.request("POST", "/", query={"rdma-connect": ""}, headers={
            TOKEN: pair.token(), PSN: str(pair.psn), MTU: str(pair.mtu)})
        if answer[0] != 200:
            return answer
        self.peer.join(pair, parse_end(answer[1]))
        self.pair = pair
        return None

    def disconnect(self):
        return self.request("DELETE", "/", query={"rdma-connect": ""}, headers={TOKEN: self.pair.token()})

    def token(self, offset=0, size=None, rkey=None):
        size = self.peer.size - offset if size is None else size
        return self.pair.token(self.peer.addr + offset, size, self.peer.rkey if rkey is None else rkey)

    def put(self, path, data, offset=0, query=None, headers=None):
        self.peer.memory[offset:offset + len(data)] = data
        return self.request("PUT", path, query=query,
                            headers={TOKEN: self.token(offset, len(data)), "content-length": "0", **(headers or {})})

    def get(self, path, offset=0, size=None, query=None, headers=None):
        return self.request("GET", path, query=query,
                            headers={TOKEN: self.token(offset, size), **(headers or {})})
