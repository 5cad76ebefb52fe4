"""tests/e2e/token/elbencho.py: a client of elbencho's dialect that acts like elbencho's library: a session for each
token, by unsigned requests on connections of their own; token_peer has the memory and the queue pairs."""
import http.client
import struct

import nebula
from contract import TOKEN

SESSION, REPLY, PSN = "x-amz-rdma-session", "x-amz-rdma-reply", "x-amz-rdma-psn"
FORMAT = "<BI16sIQQBH"


def describe(pair, transport=1):
    return struct.pack(FORMAT, transport, pair.qpn, bytes.fromhex(pair.gid), 0, 0, 0, 1, pair.lid).hex()


def post(address, step, headers, body=b""):
    """An unsigned request: (status, headers, body)."""
    connection = http.client.HTTPConnection(address, timeout=nebula.PATIENCE_S)
    try:
        connection.request("POST", f"/.s3rdma-rc/{step}", body=body,
                           headers={"content-type": "application/octet-stream", "content-length": str(len(body)), **headers})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


class End:
    """The server's queue pair, which token_peer joins."""

    def __init__(self, headers, mtu):
        code, text = headers[REPLY].split(":")
        fields = struct.unpack(FORMAT, bytes.fromhex(text))
        assert code == "200" and len(text) == 88 and fields[0] == 1 and len(headers[PSN]) == 6, headers
        self.qpn, self.gid, self.lid = fields[1], fields[2].hex(), fields[7]
        self.has_gid, self.psn, self.mtu = 1, int(headers[PSN], 16), mtu


class Session:
    def __init__(self, address, peer, pair=None):
        self.address, self.peer = address, peer
        self.pair = pair or peer.queue_pair()
        while not self.pair.psn:
            self.pair = peer.queue_pair()
        self.id = None

    def connect(self):
        """The answer; with 200 the queue pairs are joined."""
        answer = post(self.address, "connect", {TOKEN: describe(self.pair), PSN: f"{self.pair.psn:06x}"})
        if answer[0] == 200:
            self.id = answer[1][SESSION]
            self.peer.join(self.pair, End(answer[1], self.pair.mtu))
        return answer

    def token(self, size, at=0, rkey=None):
        return f"rc:{self.id}:{self.peer.addr + at:016x}:{size:08x}:{self.peer.rkey if rkey is None else rkey:08x}"

    def disconnect(self):
        return post(self.address, "disconnect", {SESSION: self.id})

    def close(self):
        self.peer.order(f"close {self.pair.number}")


class ElbenchoClient(nebula.Client):
    def __init__(self, address, peer, *args, **options):
        super().__init__(address, *args, **options)
        self.peer = peer

    def once(self, use):
        """Uses a session of its own, as the library does for each token."""
        session = Session(self.address, self.peer)
        answer = session.connect()
        if answer[0] == 200:
            answer = use(session)
            assert session.disconnect()[0] == 204
        session.close()
        return answer

    def put_by(self, session, path, data, query=None, headers=None, at=0):
        self.peer.memory[at:at + len(data)] = data
        return self.request("PUT", path, query=query, headers={
            TOKEN: session.token(len(data), at), "content-type": "application/octet-stream", "content-length": "0",
            **(headers or {})})

    def get_by(self, session, path, size, first=0, at=0, headers=None, rkey=None):
        return self.request("GET", path, headers={
            TOKEN: session.token(size, at, rkey), "range": f"bytes={first}-{first + size - 1}", **(headers or {})})

    def put(self, path, data, **options):
        return self.once(lambda session: self.put_by(session, path, data, **options))

    def get(self, path, size, first=0, **options):
        return self.once(lambda session: self.get_by(session, path, size, first, **options))
