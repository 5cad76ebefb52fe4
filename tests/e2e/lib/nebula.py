"""tests/e2e/lib/nebula.py: the tests' own server, a signed HTTP client, and TAP lines. Standard library only."""

import hashlib
import hmac
import http.client
import http.server
import json
import os
import pathlib
import random
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = pathlib.Path(os.environ.get("NEBULAIO", ROOT / "build" / "nebulaio"))
ACCESS_KEY = "testaccesskey"
SECRET_KEY = "test-secret-key-0123456789"
# A start may wait until the kernel releases a killed server's device (30 s), and then replays a log.
READY_S = 180
# For the work of another process: long enough that only a hang exceeds it, even on a busy machine.
PATIENCE_S = 180

# The same for a request of our clients, whose preset of 30 s a disk that others keep busy can exceed; and for their
# sessions: after 2 s a request would go by HTTP.
os.environ.setdefault("NEBULAIO_REQUEST_TIMEOUT_S", str(PATIENCE_S))
os.environ.setdefault("NEBULAIO_CONNECT_TIMEOUT_S", str(PATIENCE_S))

# A region is written as a server starts: the default of 512 MiB would cost each start more than the rest of it. A test's
# own setting overrides this.
REGION = "memory.bytes=128MiB"
# The default time for a transfer by a token, 6 s, covers reads of a disk that others keep busy: this is the most that it can be.
TOKEN_TIMEOUT = "rdma.token_timeout_s=9"
# A server with minimal resources: 8 MiB for all bodies, no cache, queue pairs of depth 8, one request at a time on a
# session, a log of 1 MiB. Any suite runs against such a server with NEBULAIO_TEST_SMALL=1; its own settings override
# these.
SMALL = ("memory.bytes=8MiB", "memory.cache_bytes=0", "memory.records_bytes=1MiB",
         "memory.index_cache_bytes=1MiB", "rdma.max_send_wr=8", "rdma.max_recv_wr=8", "rdma.cq_size=16",
         "rdma.session_requests=1", "data.log_bytes=1MiB", "cpu.reactors=1")


def kept_port():
    """A free port of 127.0.0.1 outside the kernel's range for bind(0) and outgoing connections, so that it stays free
    while nothing listens."""
    first_given = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10000, max(10001, min(first_given, 32768)))
        with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagram:
            try:
                stream.bind(("127.0.0.1", port))
                datagram.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass  # it is in use


def becomes(condition, seconds=PATIENCE_S):
    """Whether it becomes true in time. For actions of another program without a notification."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def taken(ask):
    """The first answer that is not 503: a store may take no writes for a moment, e.g. while its lease is late."""
    answers = []
    becomes(lambda: answers.append(ask()) or answers[-1][0] != 503)
    return answers[-1]


def within(seconds, attempt):
    """The result of an attempt that took less than this. One that a busy machine held up for longer says nothing about what a
    server does in that time: it is made again."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        begun = time.monotonic()
        result = attempt()
        ended = time.monotonic()
        if ended - begun < seconds or ended > deadline:
            return result


def freeze(pid):
    """SIGSTOP, and waits for it: one thread is told, and the others still work until the kernel has run that one."""
    os.kill(pid, signal.SIGSTOP)

    def stopped(task):
        try:
            return (task / "stat").read_text().rsplit(")", 1)[1].split()[0] in "TZX"
        except (FileNotFoundError, ProcessLookupError):  # it has ended, before or after the file was opened
            return True
    if not becomes(lambda: all(map(stopped, pathlib.Path(f"/proc/{pid}/task").iterdir()))):
        raise RuntimeError(f"process {pid} did not stop on SIGSTOP")


def clean_env(*prefixes, **more):
    """The environment of a client: without settings of NebulaIO, of AWS and of these prefixes, but with the time limits above;
    and with these variables."""
    kept = ("NEBULAIO_REQUEST_TIMEOUT_S", "NEBULAIO_CONNECT_TIMEOUT_S")
    left_out = ("NEBULAIO_", "AWS_", *prefixes)
    return {**{name: value for name, value in os.environ.items() if name in kept or not name.startswith(left_out)}, **more}


class Listener(http.server.ThreadingHTTPServer):
    """A listener for a test's own handlers: its backlog holds all connections that a server opens at once. With a backlog of
    5 the kernel drops the others, and they are tried again only a second or more later."""

    request_queue_size = 256


class Server:
    """`nebulaio serve` on free ports. Its log is a file; its end is always waited for."""

    small = os.environ.get("NEBULAIO_TEST_SMALL", "") == "1"

    def __init__(self, data, log, *extra):
        self.data = pathlib.Path(data)
        self.log_path = pathlib.Path(log)
        self.extra = extra
        self.process = None
        self.http = None
        self.rdma = None
        self.https = None
        self.admin = None
        self.console = None

    def command(self):
        return [PROGRAM, "serve", "--data", self.data, "--http", "127.0.0.1:0", "--rdma", "127.0.0.1:0",
                "--set", "admin.address=127.0.0.1:0", "--set", REGION, "--set", TOKEN_TIMEOUT,
                *(word for setting in SMALL if self.small for word in ("--set", setting)), *self.volume(), *self.extra]

    def volume(self):
        """With NEBULAIO_TEST_RADOS=POOL every store whose test names no volume is in that pool of the cluster of $CEPH_CONF."""
        pool = os.environ.get("NEBULAIO_TEST_RADOS")
        if not pool or any(str(word).startswith(("--volume", "storage.volume")) for word in self.extra):
            return []
        return ["--volume", f"rados://{pool}/{hashlib.sha256(bytes(self.data.resolve())).hexdigest()[:16]}"]

    def env(self):
        # The run time of sanitizers that a Python needs is in a watched server already.
        env = {name: value for name, value in os.environ.items() if not name.startswith("NEBULAIO_") and name != "LD_PRELOAD"}
        return dict(env, NEBULAIO_ROOT_USER=ACCESS_KEY, NEBULAIO_ROOT_PASSWORD=SECRET_KEY, NEBULAIO_CONSOLE_ADDRESS="127.0.0.1:0")

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=log, env=self.env())
        line = self._ready_line()
        fields = dict(f.split("=", 1) for f in line.split()[1:])
        self.http = fields.get("http")
        self.rdma = fields.get("rdma")
        self.https = fields.get("https")
        self.admin = fields.get("admin")
        self.console = fields.get("console")
        return self

    def _ready_line(self):
        deadline = time.monotonic() + READY_S
        text = b""
        fd = self.process.stdout.fileno()
        while not re.search(rb"^ready .*\n", text, re.M):
            ready, _, _ = select.select([fd], [], [], max(0, deadline - time.monotonic()))
            chunk = os.read(fd, 4096) if ready else b""
            if not chunk:
                self.kill()
                raise RuntimeError(f"the server did not get ready; its log:\n{self.log_tail()}")
            text += chunk
        return re.search(rb"^ready .*$", text, re.M).group().decode()

    def metrics(self):
        """/metrics: values by name with labels."""
        connection = http.client.HTTPConnection(self.admin, timeout=PATIENCE_S)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        return {name: float(value) for name, value in re.findall(r"^(nebulaio_\S+) (\S+)$", text, re.M)}

    def metrics_at_rest(self):
        """The same, when no S3 request is in flight: a client has its answer before the request is counted."""
        becomes(lambda: self.metric("nebulaio_s3_requests_in_flight") == 0)
        return self.metrics()

    def metric(self, name):
        """Over all labels, when name has none."""
        found = [value for key, value in self.metrics().items() if key == name or key.startswith(name + "{")]
        if not found:
            raise KeyError(name)
        return sum(found)

    def log_tail(self, lines=30):
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def kill(self):
        """SIGKILL: like a power cut for the process."""
        self.process.kill()
        return self.process.wait()

    def stop(self):
        """SIGTERM, and the exit code of an orderly end."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"the server did not end on SIGTERM; its log:\n{self.log_tail()}")

    def fsck(self, *options):
        done = subprocess.run([PROGRAM, "fsck", *options, self.data], capture_output=True, text=True, timeout=600)
        return done.returncode, done.stdout + done.stderr

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.kill()


def _hmac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Client:
    """One keep-alive connection; each request is signed with SigV4 over UNSIGNED-PAYLOAD, unless its headers say another
    x-amz-content-sha256."""

    def __init__(self, address, access_key=ACCESS_KEY, secret_key=SECRET_KEY, timeout=PATIENCE_S, region="us-east-1",
                 service="s3"):
        self.region = region
        self.service = service
        self.address = address
        self.keys = (access_key, secret_key)
        self.connection = http.client.HTTPConnection(address, timeout=timeout)

    def sign(self, method, path, query, headers):
        now = time.gmtime()
        date, stamp = time.strftime("%Y%m%d", now), time.strftime("%Y%m%dT%H%M%SZ", now)
        headers = {k.lower(): v for k, v in headers.items()}
        headers.update({"host": self.address, "x-amz-date": stamp})
        headers.setdefault("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
        names = sorted(headers)
        canonical = "\n".join([
            method, path, query,
            *(f"{n}:{' '.join(headers[n].split())}" for n in names), "",
            ";".join(names), headers["x-amz-content-sha256"]])
        scope = f"{date}/{self.region}/{self.service}/aws4_request"
        key = ("AWS4" + self.keys[1]).encode()
        for part in scope.split("/"):
            key = _hmac(key, part)
        to_sign = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
        headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={self.keys[0]}/{scope}, "
                                    f"SignedHeaders={';'.join(names)}, Signature={signature}")
        return headers

    def signed(self, method, path, query, headers):
        """The target of the request, and its headers."""
        path = urllib.parse.quote(path, safe="/-_.~")
        query = "&".join(f"{urllib.parse.quote(k, safe='-_.~')}={urllib.parse.quote(v, safe='-_.~')}"
                         for k, v in sorted((query or {}).items()))
        return path + ("?" + query if query else ""), self.sign(method, path, query, headers or {})

    def answer(self):
        answer = self.connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()

    def request(self, method, path, body=b"", query=None, headers=None):
        """Returns (status, headers by lower-case name, body)."""
        target, signed = self.signed(method, path, query, headers)
        self.leave_closed()
        self.connection.request(method, target, body=body, headers=signed)
        return self.answer()

    def insist(self, *request, **options):
        """As request, and again while the server answers 503, as SDKs do: it says so to those that wait in it when their
        turn does not come, as while the process of its other clients is stopped."""
        deadline = time.monotonic() + max(PATIENCE_S, self.connection.timeout)
        while True:
            status, headers, body = self.request(*request, **options)
            if status != 503 or time.monotonic() > deadline:
                return status, headers, body
            time.sleep(float(headers.get("retry-after", 0.1)))

    def begin(self, method, path, body, query=None, headers=None):
        """Sends a request without its body, and waits until the server asks for that. Returns a function that sends it,
        and returns what request does."""
        target, signed = self.signed(method, path, query, {**(headers or {}), "content-length": str(len(body))})
        self.leave_closed()
        self.connection.putrequest(method, target, skip_host=True)
        for name, value in {**signed, "expect": "100-continue"}.items():
            self.connection.putheader(name, value)
        self.connection.endheaders()
        said = b""
        while not said.endswith(b"\r\n\r\n"):
            byte = self.connection.sock.recv(1)
            assert byte, said
            said += byte
        assert said.startswith(b"HTTP/1.1 100 "), said

        def end():
            self.connection.send(body)
            return self.answer()
        return end

    def leave_closed(self):
        """A server closes idle connections: the next request opens another."""
        if self.connection.sock:
            poll = select.poll()
            poll.register(self.connection.sock, select.POLLRDHUP)
            if poll.poll(0):
                self.connection.close()

    def close(self):
        self.connection.close()


def seen(frame):
    """The place of a check, and the variables of its function."""
    plain = (bool, int, float, str, bytes, list, tuple, dict, set, type(None), subprocess.CompletedProcess)
    found = [f"{name} = {repr(value)[:300]}" for name, value in frame.f_locals.items()
             if isinstance(value, plain) and name != "env"]
    return "\n".join([f"at {frame.f_code.co_filename}:{frame.f_lineno}", *found])


def tenant_of(http, keys, name="tenant"):
    """The keys of a new user of the server, who has rights on the bucket of that name alone."""
    client = Client(http, *keys, service="iam")

    def call(**fields):
        body = urllib.parse.urlencode({"Version": "2010-05-08", "UserName": name, **fields}).encode()
        status, _, answer = client.request("POST", "/", body, headers={
            "content-type": "application/x-www-form-urlencoded", "x-amz-content-sha256": hashlib.sha256(body).hexdigest()})
        assert status == 200, answer
        return answer.decode()

    call(Action="CreateUser")
    call(Action="PutUserPolicy", PolicyName="own", PolicyDocument=json.dumps({
        "Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": [f"arn:aws:s3:::{name}", f"arn:aws:s3:::{name}/*"]}]}))
    text = call(Action="CreateAccessKey")
    client.connection.close()
    return tuple(text.split(f"<{field}>")[1].split("<")[0] for field in ("AccessKeyId", "SecretAccessKey"))


def session_of(http):
    """Temporary keys of the root user: access key, secret key and token, with spaces between."""
    body = b"Action=GetSessionToken&Version=2011-06-15"
    client = Client(http, ACCESS_KEY, SECRET_KEY, service="sts")
    status, _, answer = client.request("POST", "/", body, headers={
        "content-type": "application/x-www-form-urlencoded", "x-amz-content-sha256": hashlib.sha256(body).hexdigest()})
    client.close()
    assert status == 200, answer
    return " ".join(answer.decode().split(f"<{field}>")[1].split("<")[0] for field in ("AccessKeyId", "SecretAccessKey", "SessionToken"))


class Tap:
    """Counts checks and prints them as TAP lines."""

    def __init__(self):
        self.count = 0
        self.failed = 0

    def check(self, ok, name, why=""):
        self.count += 1
        if not ok:
            self.failed += 1
        print(f"{'ok' if ok else 'not ok'} {self.count} - {name}", flush=True)
        if not ok:
            print("\n".join("# " + line for line in (str(why) or seen(sys._getframe(1))).splitlines()), flush=True)
        return ok

    def skip(self, name, why):
        self.count += 1
        print(f"ok {self.count} - {name} # SKIP {why}", flush=True)

    def done(self):
        print(f"1..{self.count}", flush=True)
        return 1 if self.failed else 0


if os.environ.get("NEBULAIO_TEST_GATEWAY"):
    import through
    Server = through.Server
