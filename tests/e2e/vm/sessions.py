"""tests/e2e/vm/sessions.py: features of libnebulaio's sessions that no command shows, over real queue pairs: several
event loops, reads from the server's memory, lists whose pages are streamed, a link that goes away under a client."""

import concurrent.futures
import json
import os
import pathlib
import queue
import re
import sys
import threading
import time
import urllib.request

import guest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import nebula  # noqa: E402
import native  # noqa: E402

KEYS = (guest.ACCESS_KEY, guest.SECRET_KEY)
BUCKET = b"sessions"
LOOPS = 2
MIB = 1 << 20
ACCOUNT, ACCOUNT_KEYS = "222233334444", ("second-account-key", "second-account-secret")
LIST_KEYS, PAGE_KEYS = 300, 50
# Of a request; the link comes back as soon as the client has reported its loss.
PATIENCE_NS = 400 * 10**9


def open_native(address, keys=KEYS, **options):
    # The set-up of a session takes long on a busy emulated machine.
    endpoints = options.pop("endpoints", f"rdma://{address}:9100?paths=given")
    return native.Native(endpoints, keys, request_timeout_ns=PATIENCE_NS,
                         **{"device_name": guest.DEVICE, "connect_timeout_ns": 120 * 10**9, "keepalive_ns": 60 * 10**9, **options})


def why_not():
    """The reason why there are none here, or nothing."""
    return os.environ.get("ASAN_OPTIONS") and "a library that the sanitizers watch does not load into Python"


def metric(address, name):
    """The sum over all labels that the name does not fix."""
    with urllib.request.urlopen(f"http://{address}:9001/metrics", timeout=guest.READY_SECONDS_MAX) as reply:
        text = reply.read().decode()
    values = re.findall(rf"^{re.escape(name)}(?:{{\S*)? (\S+)$", text, re.MULTILINE)
    assert values, f"no {name} in:\n{text}"
    return sum(float(value) for value in values)


def pattern(number, size=4096):
    return number.to_bytes(8, "little") * (size // 8)


class Sessions:
    def __init__(self, address):
        self.address = address
        # Room for the pages of a list that arrive together.
        self.client = open_native(address, pool_bytes=32 * MIB)
        assert self.client.make_bucket(BUCKET) == 200

    def close(self):
        self.client.close()

    def metric(self, name):
        return metric(self.address, name)

    # ---- Several event loops. ----

    def submitted(self):
        return [self.metric(f'nebulaio_ring_submitted_total{{ring="rdma",core="{core}"}}') for core in range(LOOPS)]

    def side_by_side(self):
        """A session goes to the loop with the fewest, so both loops have some; each session reads another one's
        objects."""
        before = self.submitted()
        clients = [self.client] + [open_native(self.address) for _ in range(2 * LOOPS - 1)]
        bodies = [os.urandom(300_000 + 4097 * i) for i in range(len(clients))]
        with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
            put = list(pool.map(lambda i: clients[i].put(b"loop-%d" % i, bodies[i], BUCKET)[0], range(len(clients))))
            got = list(pool.map(lambda i: clients[i].get(b"loop-%d" % (i - 1 if i else len(clients) - 1), BUCKET)[2], range(len(clients))))
        for client in clients[1:]:
            client.close()
        assert put == [200] * len(clients), put
        assert got == bodies[-1:] + bodies[:-1], "other bytes"
        grown = [after - was for after, was in zip(self.submitted(), before)]
        assert min(grown) > 0, f"work submitted by each loop: {grown}"
        print(f"#   {len(clients)} sessions; entries that each loop's ring took: {grown}", flush=True)

    # ---- Read from the server's memory. ----

    def never_stale(self):
        """One session overwrites objects that another reads from the server's memory: in turns, then at any time."""
        reader = open_native(self.address, one_sided_reads=True)
        key = b"leased"
        for turn in range(8):
            assert self.client.put(key, pattern(turn), BUCKET)[0] == 200
            status, _, body, one_sided = reader.get(key, BUCKET)
            assert (status, body, one_sided) == (200, pattern(turn), False), f"turn {turn}: {status}, {one_sided}"
            status, _, body, one_sided = reader.leased(key, BUCKET)
            assert (status, body, one_sided) == (200, pattern(turn), True), f"turn {turn}, leased: {status}, {one_sided}"
        # The server does not see these reads. It counts the earlier ones after their answers.
        assert nebula.becomes(lambda: self.metric("nebulaio_s3_requests_in_flight") == 0)
        before = self.metric("nebulaio_s3_requests_total")
        assert all(reader.get(key, BUCKET)[3] for _ in range(20)), "a read went to the server"
        assert self.metric("nebulaio_s3_requests_total") == before
        self.race(reader, key)
        stats = reader.stats()
        assert self.metric('nebulaio_lease_ends_total{why="changed"}') >= 7
        print(f"#   {stats.leases} leases, {stats.one_sided_reads} reads, {stats.one_sided_misses} that found a change", flush=True)
        reader.close()

    def race(self, reader, key):
        acknowledged = [100]
        assert self.client.put(key, pattern(100), BUCKET)[0] == 200

        def write():
            for number in range(101, 121):
                assert self.client.put(key, pattern(number), BUCKET)[0] == 200
                acknowledged[0] = number

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            while not writing.done():
                least = acknowledged[0]
                status, _, body, one_sided = reader.get(key, BUCKET)
                number = int.from_bytes(body[:8], "little")
                assert status == 200 and body == pattern(number), f"torn: {status}, {number}, one-sided {one_sided}"
                assert number >= least, f"{number} after {least} was acknowledged, one-sided {one_sided}"
            writing.result()

    def revoked(self):
        """A client that reads from the server's memory can no longer read after its key is deleted."""
        admin = nebula.Client(f"{self.address}:9001", *KEYS, timeout=guest.READY_SECONDS_MAX)
        account = {"account_id": ACCOUNT, "access_key": ACCOUNT_KEYS[0], "secret_key": ACCOUNT_KEYS[1]}
        status, _, text = admin.request("PUT", f"/admin/v1/accounts/{ACCOUNT}", json.dumps(account).encode())
        assert status == 200, (status, text)
        reader = open_native(self.address, ACCOUNT_KEYS, one_sided_reads=True)
        assert reader.make_bucket(b"seconds") == 200 and reader.put(b"key", pattern(1), b"seconds")[0] == 200
        answer = reader.leased(b"key", b"seconds")
        assert answer[0] == 200 and answer[3], answer[:2]
        before = self.metric('nebulaio_lease_ends_total{why="rights"}')
        status, _, text = admin.request("DELETE", f"/admin/v1/accounts/{ACCOUNT}/keys/{ACCOUNT_KEYS[0]}")
        assert status == 204, (status, text)
        answer = reader.get(b"key", b"seconds")
        assert answer[0] in (401, 403) and not answer[3], (answer, reader.result.message)
        assert self.metric('nebulaio_lease_ends_total{why="rights"}') > before
        reader.close()

    # ---- The server's memory. ----

    def region_changes(self):
        """The server's memory region grows and shrinks while bodies move and leased objects are read."""
        reader = open_native(self.address, one_sided_reads=True)
        assert self.client.put(b"leased", pattern(3), BUCKET)[0] == 200
        assert reader.leased(b"leased", BUCKET)[3]
        body, counts, ended = os.urandom(MIB), [0, 0], threading.Event()

        def move():
            while not ended.is_set():
                assert self.client.put(b"moved", body, BUCKET)[0] == 200
                status, _, got, _ = self.client.get(b"moved", BUCKET)
                assert status == 200 and got == body, status
                counts[0] += 1

        def read():
            while not ended.is_set():
                status, _, got, _ = reader.get(b"leased", BUCKET)
                assert status == 200 and got == pattern(3), status
                counts[1] += 1

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            work = [pool.submit(move), pool.submit(read)]

            def under():
                before = list(counts)
                await_that(lambda: any(one.done() for one in work) or all(now > was + 1 for now, was in zip(counts, before)), "nothing moves")

            try:
                guest.change_region(f"{self.address}:9001", KEYS, lambda: self.metric("nebulaio_region_bytes"), under)
            finally:
                ended.set()
            for one in work:
                one.result()
        print(f"#   {counts[0]} bodies moved, {counts[1]} reads, {reader.stats().one_sided_reads} by leases", flush=True)
        reader.close()

    # ---- Lists. ----

    def streamed_list(self):
        """Four pages to a request: three pages of the first request and one of the second are followed by another."""
        names = [b"list/%03d" % number for number in range(LIST_KEYS)]
        for name in names:
            assert self.client.put(name, b"x", BUCKET)[0] == 200
        before = self.metric("nebulaio_native_streamed_pages_total")
        error, entries = self.client.list(BUCKET, prefix=b"list/", page_keys=PAGE_KEYS)
        assert error == 0 and entries == [(name, False, 1) for name in names], (error, len(entries))
        followed = self.metric("nebulaio_native_streamed_pages_total") - before
        assert followed == 4, followed


class Reader(threading.Thread):
    """Gets one object again and again until told to end; the results, and what the library says meanwhile."""

    def __init__(self, address, key, body):
        super().__init__()
        self.said = queue.Queue()
        self.client = open_native(address, transport=native.RDMA, connect_timeout_ns=10**10, log=lambda _, text: self.said.put(text))
        self.key, self.body = key, body
        self.ending = threading.Event()
        self.count = 0
        self.wrong = None

    def run(self):
        while not self.ending.is_set() and not self.wrong:
            status, _, body, _ = self.client.get(self.key, BUCKET)
            result = self.client.result
            if (status, result.error, result.transport) != (200, 0, native.RDMA) or body != self.body:
                self.wrong = f"status {status}, error {result.error}, transport {result.transport}: {result.message.decode()}"
                self.said.put(f"get failed: {self.wrong}")
            self.count += 1

    def hear(self, expected):
        """The next matching message."""
        heard = []
        while True:
            try:
                text = self.said.get(timeout=guest.READY_SECONDS_MAX)
            except queue.Empty:
                raise AssertionError(f"not said: {expected}, but {heard}") from None
            heard.append(text)
            match = re.search(expected, text)
            assert match or not self.wrong, heard
            if match:
                print(f"#   {text}", flush=True)
                return match


def link_lost(address):
    """The client's own link goes down under its reads and comes back: no read fails, and all are complete."""
    reader = Reader(address, b"link", os.urandom(MIB))
    assert reader.client.make_bucket(BUCKET) == 200 and reader.client.put(b"link", reader.body, BUCKET)[0] == 200
    reader.start()
    try:
        guest.run("ip", "link", "set", guest.NETDEV, "down")
        reader.hear(r"^rdma://\S+: (?!no session).")
        # Each pause is up to twice as long as the previous one, half of it random.
        for most in (100, 200, 400):
            pause = int(reader.hear(r"no session: .+; tried again in (\d+) ms").group(1))
            assert most / 2 - 1 <= pause <= most, f"{pause} ms, of {most}"
        guest.run("ip", "link", "set", guest.NETDEV, "up")
        reader.hear(r"^rdma://\S+: back$")
        before = reader.count
    finally:
        guest.run("ip", "link", "set", guest.NETDEV, "up")
        reader.ending.set()
        reader.join()
    assert not reader.wrong, reader.wrong
    assert reader.count > before, "nothing was read once the link was back"
    stats = reader.client.stats()
    assert stats.sessions_opened > 1 and stats.sessions_lost > 0 and stats.requests_http == 0
    reader.client.close()


def cut(agent, wanted):
    agent.do("cut", wanted=wanted)
    guest.rdma_cut(wanted)


def await_that(true, otherwise):
    deadline = time.monotonic() + guest.READY_SECONDS_MAX
    while not true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.2)


def hosts_lost(address, agent):
    """RoCE packets are dropped, both ports stay up, and HTTP continues. A server that is only stopped is waited
    for; once nothing acknowledges, its requests go by HTTP, and the server ends the sessions, also one without requests."""
    said = queue.Queue()
    waiting = open_native(address, transport=native.AUTO, endpoints=f"rdma://{address}:9100?paths=given,http://{address}:9000",
                          keepalive_ns=10**9, connect_timeout_ns=10**10, log=lambda _, text: said.put(text))
    idle = open_native(address)
    body = os.urandom(MIB)
    assert waiting.make_bucket(BUCKET) in (200, 409) and waiting.put(b"waiting", body, BUCKET)[0] == 200
    assert waiting.result.transport == native.RDMA and idle.put(b"idle", b"x", BUCKET)[0] == 200
    agent.do("pause")
    while not said.empty():
        said.get()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        getting = pool.submit(waiting.get, b"waiting", BUCKET)
        # The second is sent after the first was acknowledged, so the request was, too.
        for _ in range(2):
            text = said.get(timeout=guest.READY_SECONDS_MAX)
            assert "silent, with requests in flight" in text, text
        cut(agent, True)
        start = time.monotonic()
        try:
            agent.do("resume")
            status, _, got, _ = getting.result()
            went_by, fallback = waiting.result.transport, waiting.result.fallback
            print(f"#   by HTTP {time.monotonic() - start:.1f} s later: {fallback.decode()}", flush=True)
            await_that(lambda: metric(address, "nebulaio_native_sessions") == 0, "the server keeps sessions of hosts that vanished")
            print(f"#   the server's sessions ended {time.monotonic() - start:.1f} s later", flush=True)
        finally:
            cut(agent, False)
    assert (status, went_by) == (200, native.HTTP) and got == body, (status, went_by, waiting.result.message)
    assert b"no longer answers" in fallback, fallback
    await_that(lambda: waiting.get(b"waiting", BUCKET)[2] == body and waiting.result.transport == native.RDMA, "RDMA does not come back")
    stats = waiting.stats()
    assert stats.sessions_lost == 1 and stats.sessions_opened == 2 and stats.keepalives >= 2, (stats.sessions_lost, stats.keepalives)
    waiting.close()
    idle.close()


class Writer(threading.Thread):
    """Puts new objects by two paths, the second network first, on condition that there is none, and reads them back. One
    writer is given both, the other learns the second one from the server."""

    def __init__(self, address, number):
        super().__init__()
        self.said = queue.Queue()
        # Silence on a path is asked after a quarter of this.
        given = f"rdma://{guest.SECOND[address]}:9100" + ("" if number else f",{address}:9100")
        self.client = open_native(address, endpoints=given, device_name="auto",
                                  keepalive_ns=8 * 10**9, connect_timeout_ns=10**10, log=lambda _, text: self.said.put(text))
        self.number, self.count = number, 0
        self.stats = self.client.stats()
        self.body = os.urandom(MIB // 2)
        self.ending = threading.Event()
        self.wrong = None

    def run(self):
        while not self.ending.is_set() and not self.wrong:
            key = b"path-%d-%d" % (self.number, self.count)
            status = self.client.put_new(key, self.body, BUCKET)
            if status == 200:
                status, _, got, _ = self.client.get(key, BUCKET)
            result = self.client.result
            if (status, result.transport) != (200, native.RDMA) or got != self.body:
                self.wrong = f"{key}: status {status}, error {result.error}: {result.message.decode()}"
            # Only this thread may ask the client.
            self.stats = self.client.stats()
            self.count += 1


def paths_become(writers, verdict, otherwise):
    await_that(lambda: any(writer.wrong for writer in writers) or all(verdict(writer) for writer in writers), otherwise)
    assert not any(writer.wrong for writer in writers), [writer.wrong for writer in writers]


def path_lost(address, agent):
    """The path that the writers use is cut in both directions, which nobody is told of, and later by the client's own link.
    """
    writers = [Writer(address, number) for number in range(2)]
    assert writers[0].client.make_bucket(BUCKET) in (200, 409)
    for writer in writers:
        writer.start()
    try:
        paths_become(writers, lambda writer: writer.stats.paths_up == 2, "there are no two paths")
        for cut_down in (False, True):
            moved = [writer.stats.requests_moved for writer in writers]
            counts = [writer.count for writer in writers]
            start = time.monotonic()
            if cut_down:
                guest.run("ip", "link", "set", guest.SECOND_NETDEV, "down")
            else:
                agent.do("cut", wanted=True, netdev=guest.SECOND_NETDEV)
                guest.rdma_cut(True, guest.SECOND_NETDEV)
            paths_become(writers, lambda writer: writer.stats.paths_up == 1 and writer.count > counts[writer.number] + 2,
                         "the requests do not go on by the other path")
            print(f"#   on by the other path {time.monotonic() - start:.1f} s later", flush=True)
            assert all(writer.stats.requests_moved > before for writer, before in zip(writers, moved)), "none was moved"
            if cut_down:
                guest.run("ip", "link", "set", guest.SECOND_NETDEV, "up")
            else:
                agent.do("cut", wanted=False, netdev=guest.SECOND_NETDEV)
                guest.rdma_cut(False, guest.SECOND_NETDEV)
            paths_become(writers, lambda writer: writer.stats.paths_up == 2, "the path does not come back")
            print(f"#   both paths again {time.monotonic() - start:.1f} s later", flush=True)
    finally:
        guest.run("ip", "link", "set", guest.SECOND_NETDEV, "up")
        for writer in writers:
            writer.ending.set()
            writer.join()
    assert not any(writer.wrong for writer in writers), [writer.wrong for writer in writers]
    stats = [writer.client.stats() for writer in writers]
    print(f"#   {[writer.count for writer in writers]} objects, {[found.requests_moved for found in stats]} requests moved, "
          f"{[found.sessions_lost for found in stats]} sessions lost", flush=True)
    assert all(found.requests_http == 0 for found in stats)
    for writer in writers:
        writer.client.close()
