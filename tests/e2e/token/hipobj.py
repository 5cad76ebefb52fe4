"""tests/e2e/token/hipobj.py: an independent client of hipobj-rc-v2: this file makes and signs its control requests;
token_peer has its memory and its queue pairs."""
import secrets
import struct

import nebula

PROTOCOL, STATUS, REPLY = "x-amz-rdma-protocol", "x-amz-rdma-protocol-status", "x-amz-rdma-reply"
SESSION, PSN, QPN, COOKIE = "x-amz-rdma-session", "x-amz-rdma-psn", "x-amz-rdma-qpn", "x-amz-rdma-cookie"
ADDR, RKEY, MOVED = "x-amz-rdma-mr-addr", "x-amz-rdma-mr-rkey", "x-amz-rdma-bytes-transferred"
VALUE = "hipobj-rc-v2"


def token(pair, addr=0, size=0, rkey=0, transport=1):
    return struct.pack("<BI16sIQQBH", transport, pair.qpn, bytes.fromhex(pair.gid), rkey, addr, size, 1, pair.lid).hex()


class End:
    """The server's queue pair, as PREPARE's answer describes it; token_peer joins it."""

    def __init__(self, headers, mtu):
        code, text = headers[REPLY].split(":")
        fields = struct.unpack("<BI16sIQQBH", bytes.fromhex(text))
        assert code == "200" and len(text) == 88 and fields[0] == 1, headers[REPLY]
        self.qpn, self.gid, self.rkey, self.addr, self.size, self.lid = (
            fields[1], fields[2].hex(), fields[3], fields[4], fields[5], fields[7])
        self.has_gid, self.psn, self.mtu = 1, int(headers[PSN], 16), mtu
        assert self.qpn == int(headers[QPN], 16), headers


class Transfer:
    """One session, from PREPARE on."""

    def __init__(self, client, op, target, size, offset=None, headers=None, pair=None):
        self.client, self.peer, self.op, self.size = client, client.peer, op, size
        self.pair = pair or self.peer.queue_pair()
        while not self.pair.psn:
            self.pair = self.peer.queue_pair()
        self.cookie = secrets.randbelow(0xffffffff) + 1
        self.asked = {PROTOCOL: VALUE, "x-amz-rdma-token": token(self.pair), PSN: f"{self.pair.psn:06x}",
                      COOKIE: f"{self.cookie:08x}", "x-amz-rdma-op": op, "x-amz-rdma-target": target,
                      "x-amz-rdma-size": str(size), **(headers or {})}
        if offset is not None:
            self.asked["x-amz-rdma-offset"] = str(offset)

    def prepare(self):
        """The answer; with 200 the queue pairs are joined."""
        answer = self.client.control("prepare", self.asked)
        if answer[0] == 200:
            self.session, self.end = answer[1][SESSION], End(answer[1], self.pair.mtu)
            if ADDR in answer[1]:
                self.addr, self.rkey = int(answer[1][ADDR], 16), int(answer[1][RKEY], 16)
            self.peer.join(self.pair, self.end)
        return answer

    def ready_headers(self, at=0, rkey=None):
        return {PROTOCOL: VALUE, SESSION: self.session, COOKIE: f"{self.cookie:08x}", QPN: f"{self.pair.qpn:x}",
                ADDR: f"{self.peer.addr + at:x}", RKEY: f"{self.peer.rkey if rkey is None else rkey:x}"}

    def ready_send(self, **options):
        """Sends READY on a connection of its own; the caller waits for the answer later."""
        self.other = nebula.Client(self.client.address, *self.client.keys)
        headers = self.other.sign("POST", "/.hipobj-rc/ready", "", self.ready_headers(**options))
        self.other.connection.request("POST", "/.hipobj-rc/ready", headers={**headers, "content-length": "0"})

    def ready_take(self):
        answer = self.other.connection.getresponse()
        found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        self.other.close()
        return found

    def write(self, at=0, size=None, cookie=None, addr=None):
        """The client's write with the immediate; the status of its completion."""
        return " ".join(self.peer.order(
            f"write {self.pair.number} {at} {self.size if size is None else size} {self.addr if addr is None else addr} "
            f"{self.rkey} {self.cookie if cookie is None else cookie}"))

    def cancel(self):
        return self.client.control("cancel", {PROTOCOL: VALUE, SESSION: self.session, COOKIE: f"{self.cookie:08x}"})

    def close(self):
        self.peer.order(f"close {self.pair.number}")


class HipobjClient(nebula.Client):
    def __init__(self, address, peer, *args, **options):
        super().__init__(address, *args, **options)
        self.peer = peer

    def control(self, step, headers, body=b""):
        return self.request("POST", f"/.hipobj-rc/{step}", body, headers=headers)

    def put(self, target, data, at=0, headers=None):
        """PREPARE's answer if it is a refusal, else READY's."""
        self.peer.memory[at:at + len(data)] = data
        transfer = Transfer(self, "PUT", target, len(data), headers=headers)
        answer = transfer.prepare()
        if answer[0] == 200:
            transfer.ready_send()
            transfer.write(at)
            answer = transfer.ready_take()
        transfer.close()
        return answer

    def get(self, target, size, offset=None, at=0, headers=None):
        """The same, and the immediate: (IMMEDIATE, BYTES, COOKIE)."""
        transfer = Transfer(self, "GET", target, size, offset, headers)
        answer, immediate = transfer.prepare(), None
        if answer[0] == 200:
            self.peer.order(f"recv {transfer.pair.number}")
            transfer.ready_send(at=at)
            answer = transfer.ready_take()
            if answer[0] == 200:
                immediate = (*map(int, self.peer.order(f"immediate {transfer.pair.number}")), transfer.cookie)
        transfer.close()
        return (*answer, immediate)
