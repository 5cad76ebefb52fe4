"""tests/e2e/vm/kernel_tls.py: HTTPS whose records the guest's kernel makes (https.kernel_tls)."""

import http.client
import re
import socket
import ssl
import subprocess
import time
import urllib.request

import guest
import s3

# Of the kernel: sessions whose sent data it has encrypted.
STAT = "/proc/net/tls_stat"
# Answers of one record, of many, and beyond the socket's buffer.
NAMES = ("1", "4k", "1m", "16m")
# The server's buffer is full once as much waits in it at two looks so far apart.
FULL_SECONDS = 2


def settings(address):
    """The server's, with a certificate of its own."""
    pem, key = guest.DATA / "https.pem", guest.DATA / "https.key"
    guest.run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9",
              "-subj", "/CN=guest", "-addext", f"subjectAltName=IP:{address}", "-keyout", key, "-out", pem)
    return [f"https.address={address}:9443", f"https.certificate={pem}", f"https.key={key}", "https.kernel_tls=true"]


class Https:
    """Clients that check the certificate, and URLs that need no keys."""

    def __init__(self, address, objects):
        self.address, self.objects = address, objects
        self.authority = guest.DATA / "https.pem"

    def context(self, version):
        context = ssl.create_default_context(cafile=self.authority)
        context.minimum_version = context.maximum_version = version
        return context

    def path(self, name, method="GET"):
        url = guest.run(guest.PROGRAM, "presign", "--method", method, "--endpoint", f"https://{self.address}:9443", "--access-key",
                        guest.ACCESS_KEY, "--secret-key", guest.SECRET_KEY, f"{s3.BUCKET}/{name}").stdout.strip()
        return url[url.index("/", len("https://")):]

    def connect(self, version):
        connection = http.client.HTTPSConnection(self.address, 9443, timeout=guest.COPY_SECONDS_MAX, context=self.context(version))
        connection.connect()
        return connection

    def sent_by_kernel(self):
        """Sessions, by the server and by the kernel."""
        with urllib.request.urlopen(f"http://{self.address}:9001/metrics", timeout=guest.READY_SECONDS_MAX) as reply:
            ours = int(re.search(r"^nebulaio_tls_kernel_sessions_total (\d+)$", reply.read().decode(), re.MULTILINE)[1])
        with open(STAT, encoding="ascii") as file:
            return ours, int(re.search(r"^TlsTxSw\s+(\d+)$", file.read(), re.MULTILINE)[1])

    def bodies(self, version):
        """Every size in both directions on one connection, which ends in order."""
        before = self.sent_by_kernel()
        connection = self.connect(version)
        for name in NAMES:
            sent = self.objects.file(name, s3.SIZES[name]).read_bytes()
            connection.request("PUT", self.path(f"tls-{name}", "PUT"), body=sent)
            reply = connection.getresponse()
            assert reply.status == 200, (name, reply.status, reply.read())
            reply.read()
            connection.request("GET", self.path(f"tls-{name}"), headers={"Connection": "close"} if name == NAMES[-1] else {})
            assert connection.getresponse().read() == sent, f"{name}: the bytes differ"
        assert self.sent_by_kernel() == tuple(count + 1 for count in before), (before, self.sent_by_kernel())

    def ends_in_order(self, version):
        """The close of the server is the protocol's own, not a cut, which raises here."""
        raw = socket.create_connection((self.address, 9443), timeout=guest.COPY_SECONDS_MAX)
        with self.context(version).wrap_socket(raw, server_hostname=self.address, suppress_ragged_eofs=False) as secure:
            secure.sendall(f"GET {self.path('tls-4k')} HTTP/1.1\r\nHost: {self.address}:9443\r\nConnection: close\r\n\r\n".encode())
            got = b""
            while piece := secure.recv(65536):
                got += piece
        assert got.endswith(self.objects.file("4k", s3.SIZES["4k"]).read_bytes()), got[:300]

    def full_socket(self, version):
        """A client that stops reading until the server can send nothing more, and then reads all."""
        connection = self.connect(version)
        connection.request("GET", self.path("tls-16m"))
        reply = connection.getresponse()
        first = reply.read(1000)
        held = 0
        while (now := self.unsent()) != held or not held:
            held = now
            time.sleep(FULL_SECONDS)
        assert first + reply.read() == self.objects.file("16m", s3.SIZES["16m"]).read_bytes(), "the bytes differ"

    def unsent(self):
        """Bytes that wait in the sockets of the server's port."""
        lines = guest.run("ss", "-tnH", "sport", "=", ":9443").stdout.splitlines()
        return sum(int(line.split()[2]) for line in lines)

    def new_keys(self):
        """A peer that asks for new keys is not sent anything under the old ones: the server ends the connection."""
        with subprocess.Popen(["openssl", "s_client", "-tls1_3", "-crlf", "-connect", f"{self.address}:9443", "-CAfile", self.authority],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            # Its input stays open: it ends because the server does.
            process.stdin.write(b"K\n")
            process.stdin.flush()
            said = b""
            while b"KEYUPDATE" not in said:
                piece = process.stdout.read1()
                assert piece, said
                said += piece
            process.stdin.write(f"GET {self.path('tls-4k')} HTTP/1.1\nHost: {self.address}:9443\n\n".encode())
            process.stdin.flush()
            answer = process.stdout.read()
            process.stdin.close()
        assert b"HTTP/1.1" not in answer, answer


def test(tap, address, objects):
    https = Https(address, objects)
    for name, version in (("1.2", ssl.TLSVersion.TLSv1_2), ("1.3", ssl.TLSVersion.TLSv1_3)):
        tap.test(f"one: TLS {name} by the kernel: put and get {', '.join(NAMES)}", https.bodies, version)
        tap.test(f"one: TLS {name} by the kernel: a connection ends in order", https.ends_in_order, version)
        tap.test(f"one: TLS {name} by the kernel: a client that stops reading and goes on", https.full_socket, version)
    tap.test("one: TLS by the kernel: who asks for new keys is disconnected", https.new_keys)
