"""tests/e2e/vm/capture.py: counts the packets of an interface by their RDMA operation (IBTA 9.2.1, RoCE v2 annex
17)."""

import collections
import select
import socket
import struct
import threading

ROCE_PORT = 4791
ETH_P_ALL = 3
SNAP_BYTES = 96
SO_RCVBUFFORCE = 33
# The kernel takes a VLAN's tag off an arriving frame and hands it beside (packet(7), struct tpacket_auxdata).
SOL_PACKET, PACKET_AUXDATA = 263, 8
AUXDATA = struct.Struct("=IIIHHHH")
TP_STATUS_VLAN_VALID = 1 << 4
# Room for all packets of the largest object, if they are not read meanwhile.
QUEUE_BYTES = 128 << 20
# First, middle, last, last with immediate, only, only with immediate.
RDMA_WRITES = range(0x06, 0x0C)
# First, middle, last, only.
RDMA_READ_RESPONSES = range(0x0D, 0x11)
# Header bytes of an operation's packets behind the base transport header's 12, and the 4 of the trailing checksum.
RETH_OPCODES = (0x06, 0x0A, 0x0B)
AETH_OPCODES = (0x0D, 0x0F, 0x10)
IMM_OPCODES = (0x09, 0x0B)


class Seen:
    def __init__(self):
        self.packets = collections.Counter()
        self.bytes = collections.Counter()
        self.largest = 0  # payload of one packet
        self.tcp_bytes = 0
        # Of the RDMA WRITE packets that arrive. The leaving ones are keepalives: a client that waits long enough for its
        # data asks the server's device whether it is there, by a write of no bytes.
        self.dscps = collections.Counter()
        # Of the same packets: VLAN and priority code point, or None.
        self.tags = collections.Counter()

    def payload(self, opcodes):
        return sum(self.bytes[opcode] for opcode in opcodes)

    def __str__(self):
        return (f"{sum(self.packets.values())} packets on UDP {ROCE_PORT}, of these "
                f"{sum(self.packets[o] for o in RDMA_WRITES)} RDMA WRITE ({self.payload(RDMA_WRITES)} bytes) and "
                f"{sum(self.packets[o] for o in RDMA_READ_RESPONSES)} RDMA READ response "
                f"({self.payload(RDMA_READ_RESPONSES)} bytes); {self.tcp_bytes} bytes of TCP payload")


def tag_of(beside):
    for level, kind, data in beside:
        if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
            status, *_, tci, _ = AUXDATA.unpack_from(data)
            if status & TP_STATUS_VLAN_VALID:
                return tci & 0xFFF, tci >> 13
    return None


class Capture:
    """Counts from its creation until stop()."""

    def __init__(self, netdev):
        self.seen = Seen()
        self.ending, self.end = socket.socketpair()
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, QUEUE_BYTES)
        self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.socket.bind((netdev, ETH_P_ALL))
        self.socket.setblocking(False)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def run(self):
        ending = False
        while not ending:
            ready, _, _ = select.select([self.socket, self.ending], [], [])
            ending = self.ending in ready
            self.drain()

    def drain(self):
        while True:
            try:
                frame, beside, _, address = self.socket.recvmsg(SNAP_BYTES, socket.CMSG_SPACE(AUXDATA.size))
                self.count(frame, address[2] != socket.PACKET_OUTGOING, tag_of(beside))
            except BlockingIOError:
                return

    def count(self, frame, arrives, tag):
        if len(frame) < 34 or frame[12:14] != b"\x08\x00":
            return
        ip_bytes = (frame[14] & 15) * 4
        total, = struct.unpack_from("!H", frame, 16)
        protocol, at = frame[23], 14 + ip_bytes
        if protocol == socket.IPPROTO_TCP:
            self.seen.tcp_bytes += total - ip_bytes - (frame[at + 12] >> 4) * 4
        elif protocol == socket.IPPROTO_UDP and struct.unpack_from("!H", frame, at + 2)[0] == ROCE_PORT:
            opcode, flags = frame[at + 8], frame[at + 9]
            self.seen.packets[opcode] += 1
            if opcode in RDMA_WRITES and arrives:
                self.seen.dscps[frame[15] >> 2] += 1
                self.seen.tags[tag] += 1
            headers = 8 + 12 + 4 + (16 if opcode in RETH_OPCODES else 0) + (4 if opcode in AETH_OPCODES else 0) + \
                (4 if opcode in IMM_OPCODES else 0)
            payload = total - ip_bytes - headers - (flags >> 4 & 3)
            self.seen.bytes[opcode] += payload
            self.seen.largest = max(self.seen.largest, payload)

    def stop(self):
        """The packets until now, including those in the queue. Idempotent."""
        self.end.close()
        self.thread.join()
        self.ending.close()
        self.socket.close()
        return self.seen
