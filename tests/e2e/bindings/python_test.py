"""tests/e2e/bindings/python_test.py: the package nebulaio against a server; run-bindings-python installs it and starts this.
Each function below is a group of checks; its decorator lists its requirements besides the package."""

import asyncio
import contextlib
import ctypes
import errno
import gc
import http.server
import importlib.util
import json
import logging
import multiprocessing
import os
import pathlib
import pickle
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import urllib.request
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from nebula import ACCESS_KEY, PATIENCE_S, Client, PROGRAM, SECRET_KEY, Server, becomes, freeze  # noqa: E402
from package import KEYS, MIB, RDMA, needs, opened, run, tap  # noqa: E402

import nebulaio  # noqa: E402
from nebulaio import AsyncRDMAClient, NebulaError, RDMAClient, settings  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
HTTP = os.environ["NEBULAIO_TEST_HTTP"]
SERVER_PID = os.environ["NEBULAIO_TEST_PID"]
ADMIN = os.environ["NEBULAIO_TEST_ADMIN"]
BUCKET = "python"
OBJECTS, OBJECT_BYTES = 10000, 100 << 10
CHECKPOINT_BYTES = 1 << 30
SILENT = []  # listeners, kept open


def raised(kind, call, *args, **options):
    """The exception of this kind that the call raises, or None."""
    try:
        call(*args, **options)
    except kind as error:
        return error
    except Exception:
        traceback.print_exc(file=sys.stdout)
    return None


class Alarm(Exception):
    pass


def interrupted(ready, call, *args, then=lambda: None, **options):
    """The exception of a signal handler that ends the call once ready() is true, or None. After the handler, then() may let
    go on what the call waits for."""
    handled = threading.Event()

    def on_alarm(number, frame):
        handled.set()
        raise Alarm

    def ring():
        if becomes(ready):
            os.kill(os.getpid(), signal.SIGALRM)
            handled.wait(PATIENCE_S)
        then()

    before = signal.signal(signal.SIGALRM, on_alarm)
    thread = threading.Thread(target=ring)
    thread.start()
    try:
        return raised(Alarm, call, *args, **options)
    finally:
        thread.join()
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def stopped_server():
    """The server does nothing meanwhile."""
    try:
        freeze(int(SERVER_PID))
        yield
    finally:
        os.kill(int(SERVER_PID), signal.SIGCONT)


def nobody_answers():
    """An endpoint that accepts connections and sends nothing."""
    silent = socket.create_server(("127.0.0.1", 0))
    SILENT.append(silent)
    return f"http://127.0.0.1:{silent.getsockname()[1]}"


def nobody_is_asked():
    """Whether a client has connected to the last of those endpoints."""
    return bool(select.select(SILENT[-1:], [], [], 0)[0])


@needs()
def test_objects():
    with opened() as client:
        client.create_bucket(BUCKET)
        put = client.put_object(BUCKET, "hello", b"hi there", content_type="text/plain", metadata={"colour": "red"})
        tap.check(put.status == 200 and put.transport == "rdma" and put.fallback is None and put.etag, "put: result", put)
        data = client.get_object(BUCKET, "hello")
        tap.check(data == b"hi there" and isinstance(data, bytes), "get: bytes", data)
        tap.check(hash(data) == hash(b"hi there") and {b"hi there": 1}[data] == 1, "get: as good a key as other bytes")
        tap.check(data.transport == "rdma" and data.etag == put.etag and data.request_id and data.fallback is None,
                  "get: how it came", data.result)
        tap.check(client.get_object(BUCKET, "hello", offset=3) == b"there", "get: from an offset on")
        tap.check(client.get_object(BUCKET, "hello", offset=1, length=4) == b"i th", "get: a range")
        tap.check(client.get_object(BUCKET, "hello", offset=3, length=100) == b"there", "get: a range over the end")
        head = client.head_object(BUCKET, "hello")
        tap.check(head.object_bytes == 8 and head.headers["content-type"] == "text/plain" and
                  head.headers.get("x-amz-meta-colour") == "red", "head: length, type, metadata", head)
        for size in (0, 1, 512, 4096, 65536, 65537, 3 * MIB):
            body = os.urandom(size)
            client.put_object(BUCKET, "sized", body, checksum=True)
            first, again = client.get_object(BUCKET, "sized"), client.get_object(BUCKET, "sized")
            tap.check(first == body and again == body, f"{size} bytes there and back, twice")
        client.put_object(BUCKET, "pieces", [b"one ", bytearray(b"two "), memoryview(b"three")])
        rooms = [bytearray(4), bytearray(9)]
        client.get_into(BUCKET, "pieces", rooms)
        tap.check(b"".join(rooms) == b"one two three", "pieces of memory, sent and received")
        client.copy_object(BUCKET, "pieces", BUCKET, "a copy of it/ä")
        tap.check(client.get_object(BUCKET, "a copy of it/ä") == b"one two three", "copy")
        keys = [entry.key for entry in client.list_objects(BUCKET)]
        tap.check(keys == sorted(keys) and "a copy of it/ä" in keys and len(keys) == 4, "list", keys)
        entries = client.list_objects(BUCKET, delimiter="/")
        tap.check([entry.key for entry in entries if entry.is_prefix] == ["a copy of it/"], "list: common prefixes", entries)
        tap.check(len(client.list_objects(BUCKET, limit=2)) == 2 and
                  client.list_objects(BUCKET, after="pieces")[0].key == "sized", "list: limit and after")
        tap.check(BUCKET in [bucket.name for bucket in client.list_buckets()], "buckets")
        for key in keys:
            client.delete_object(BUCKET, key)
        client.create_bucket("soon-gone")
        for call in (client.delete_object, client.head_object, client.get_object, lambda b, k: client.put_object(b, k, b"")):
            error = raised(NebulaError, call, "soon-gone", "")
            tap.check(error is not None and error.errno == errno.EINVAL and "missing" in str(error),
                      "a request for an object without a key is refused, not sent as one for the bucket", error)
        client.head_bucket("soon-gone")
        client.delete_bucket("soon-gone")
        tap.check(raised(nebulaio.NotFoundError, client.head_bucket, "soon-gone") is not None, "a bucket deleted")
        tap.check(client.list_objects(BUCKET) == [], "delete")


@needs()
def test_fan_out():
    """Two clients that read an object in step, and what is refused."""
    body = os.urandom(36 * MIB + 5)
    room, other = bytearray(len(body)), bytearray(len(body) + 9)
    results = []

    def second():
        with opened() as mine:
            results.append(mine.get_fan_out(BUCKET, "weights", other, name="py.job-1", members=2, wait=60))

    with opened() as client:
        client.put_object(BUCKET, "weights", body)
        thread = threading.Thread(target=second)
        thread.start()
        result = client.get_fan_out(BUCKET, "weights", room, name="py.job-1", members=2, wait=60)
        thread.join()
        roles = [one.headers["x-nebulaio-fan-out"] for one in (result, *results)]
        tap.check(roles == ["member; members=2"] * 2 and result.bytes == len(body) and result.transport == "rdma",
                  "fan-out: two members", (roles, result))
        tap.check(room == body and other[:len(body)] == body, "fan-out: every byte")
        tap.check(client.last_result == result and result.multicast is None, "fan-out: the last result")
        again = bytearray(len(body))
        came, read, why = client.get_fan_out(BUCKET, "weights", again, name="py.job-2", members=1, multicast=True).multicast
        tap.check(again == body and (came > 0 and came + read >= len(body) or why), "fan-out: by multicast, and what was lost over the session",
                  (came, read, why))
        tap.check(raised(nebulaio.BufferTooSmallError, client.get_fan_out, BUCKET, "weights", bytearray(5), name="a", members=1)
                  is not None and raised(NebulaError, client.get_fan_out, BUCKET, "weights", room, name="a b", members=1).errno ==
                  errno.EINVAL and raised(nebulaio.NotFoundError, client.get_fan_out, BUCKET, "not there", room, name="a",
                                          members=1).key == "not there", "fan-out: what is wrong is told")
        rest = bytearray(len(body))

        def begin():
            """The first part's request ends when the group begins."""
            with opened() as mine:
                mine.get_fan_out(BUCKET, "weights", other, name="ended", members=2, wait=60)

        error = interrupted(lambda: metric("nebulaio_fan_out_waiting"), client.get_fan_out, BUCKET, "weights", rest, name="ended",
                            members=2, wait=60, then=begin)
        tap.check(error is not None and client.native.in_flight == 0 and rest[8 * MIB:] == bytes(len(rest) - 8 * MIB),
                  "fan-out: a signal ends it before its second part", client.native.in_flight)
        client.delete_object(BUCKET, "weights")


MAP_DIES = """
import sys
from nebulaio import RDMAClient
client = RDMAClient(sys.argv[1])
client.put_object("python", "replaced", bytes(4 << 20))
view = memoryview(client.map("python", "replaced"))
assert view[0] == 0
client.put_object("python", "replaced", b"\\1" * (4 << 20))
assert view[1] == 0
print("one page is there", flush=True)
view[3 << 20]
"""


@needs()
def test_map():
    body = os.urandom(40 * MIB + 5)
    with opened(map_bytes_max=32 * MIB) as client:
        client.put_object(BUCKET, "mapped", body)
        mapped = client.map(BUCKET, "mapped")
        view = memoryview(mapped)
        tap.check(len(mapped) == len(view) == len(body) and view.readonly and mapped.stats().bytes_fetched == 0,
                  "map: the object's length, and nothing is fetched", mapped.stats())
        tap.check(view[30 * MIB] == body[30 * MIB] and mapped.stats().bytes_fetched == 64 << 10 and
                  mapped.stats().fetches_rdma == 1, "map: a touch brings 64 KiB by RDMA", mapped.stats())
        tap.check(view == body, "map: every byte of an object beyond the bound")
        tap.check(0 < mapped.stats().bytes_resident <= 32 * MIB and mapped.stats().bytes_dropped > 0,
                  "map: within the bound", mapped.stats())
        tap.check(raised(BufferError, mapped.close) is not None, "map: it stays while there are views")
        before = mapped.stats().faults
        mapped.prefetch(MIB, MIB, 60)
        tap.check(view[MIB:2 * MIB] == body[MIB:2 * MIB] and mapped.stats().faults == before, "map: prefetched bytes are there")
        tap.check(raised(NebulaError, mapped.prefetch, len(body), 5).errno == errno.ERANGE and
                  raised(nebulaio.NotFoundError, client.map, BUCKET, "not there").key == "not there", "map: what is wrong is told")
    tap.check(view[20 * MIB] == body[20 * MIB], "map: it outlives the client")
    pid = os.fork()
    if not pid:
        try:
            mapped.stats()
        except nebulaio.ForkError:
            os._exit(0)
        os._exit(1)
    tap.check(os.waitpid(pid, 0)[1] == 0, "map: not for a forked process")
    del view
    mapped.close()
    tap.check(raised(ValueError, mapped.stats) is not None, "map: closed")
    done = subprocess.run([sys.executable, "-c", MAP_DIES, RDMA], capture_output=True, text=True,
                          env={**os.environ, "NEBULAIO_ACCESS_KEY": KEYS[0], "NEBULAIO_SECRET_KEY": KEYS[1]})
    tap.check(done.returncode == -signal.SIGBUS and done.stdout == "one page is there\n" and
              "the map of python/replaced ends" in done.stderr, "map: a replaced object is an error, never a mixture", done)


@needs("numpy")
def test_map_tensors():
    import numpy
    from nebulaio import data

    with opened() as client:
        tensors = {f"layer.{i}": numpy.random.rand(512, 1024).astype(numpy.float32) for i in range(16)}
        data.save_tensors(client, BUCKET, "mapped.safetensors", {**tensors, "none": numpy.zeros((0, 3))}, {"of": "a test"})
        arrays, mapped = data.map_tensors(client, BUCKET, "mapped.safetensors")
        tap.check(arrays.keys() == tensors.keys() | {"none"} and arrays["none"].shape == (0, 3) and
                  mapped.stats().bytes_fetched == 64 << 10, "map_tensors: only the header is fetched", mapped.stats())
        tap.check(numpy.array_equal(arrays["layer.9"][100], tensors["layer.9"][100]) and
                  mapped.stats().bytes_fetched <= 192 << 10, "map_tensors: a row brings its pages", mapped.stats())
        one, mapped = data.map_tensors(client, BUCKET, "mapped.safetensors", names=["layer.9"])
        info = data.list_tensors(client, BUCKET, "mapped.safetensors")[0]["layer.9"]
        mapped.prefetch(info.begin, info.end - info.begin, 60)
        tap.check(list(one) == ["layer.9"] and numpy.array_equal(one["layer.9"], tensors["layer.9"]) and
                  not one["layer.9"].flags.writeable, "map_tensors: one tensor, read-only")
        tap.check(mapped.stats().bytes_fetched <= one["layer.9"].nbytes + (256 << 10) and client.stats().bytes_copied < MIB,
                  "map_tensors: its pages, no others", mapped.stats())
        del mapped
        gc.collect()
        tap.check(numpy.array_equal(one["layer.9"], tensors["layer.9"]), "map_tensors: an array keeps the map")
        ahead = data.map_tensors(client, BUCKET, "mapped.safetensors", names=["layer.2", "none"], prefetch=True)[0]
        tap.check(numpy.array_equal(ahead["layer.2"], tensors["layer.2"]), "map_tensors: prefetched")
        tap.check(raised(KeyError, data.map_tensors, client, BUCKET, "mapped.safetensors", names=["no"]) is not None,
                  "map_tensors: no such tensor")
        client.put_object(BUCKET, "no tensors", b"1234")
        tap.check(raised(ValueError, data.map_tensors, client, BUCKET, "no tensors") is not None, "map_tensors: no such file")
        tap.check(all(numpy.array_equal(arrays[name], tensors[name]) for name in tensors), "map_tensors: all of them")


@needs("numpy")
def test_map_tensors_prefetched():
    """Of many tensors, while nothing comes and the wishes pile up."""
    import numpy
    from nebulaio import data, tensors

    parse = tensors._parse_header
    some = {f"layer.{i:03}": numpy.full(40 << 10, i, numpy.float32) for i in range(200)}
    with opened() as client:
        data.save_tensors(client, BUCKET, "many.safetensors", some)
        for names, least in ((list(some), len(some)), (list(some)[::2], 64)):
            with contextlib.ExitStack() as stack:
                def parsed(*args):
                    stack.enter_context(stopped_server())
                    return parse(*args)

                stack.enter_context(mock.patch.object(tensors, "_parse_header", parsed))
                arrays, mapped = data.map_tensors(client, BUCKET, "many.safetensors", names=names, prefetch=True)
            tap.check(becomes(lambda: mapped.stats().bytes_fetched >= least * some[names[0]].nbytes) and mapped.stats().faults == 1,
                      f"map_tensors: {len(names)} of {len(some)} tensors are prefetched, {least} at least", mapped.stats())
            tap.check(all(numpy.array_equal(arrays[name], some[name]) for name in names), "map_tensors: and have their bytes")
        client.delete_object(BUCKET, "many.safetensors")


@needs()
def test_ranges_into_memory():
    body = os.urandom(100000)
    for how, endpoint in (("RDMA", RDMA), ("HTTP", f"http://{HTTP}")):
        with RDMAClient(endpoint, *KEYS) as client:
            client.put_object(BUCKET, "ranges", body)
            room, end, pieces = bytearray(1000), bytearray(100000), [bytearray(7), bytearray(80000)]
            results = [client.get_into(BUCKET, "ranges", room, offset=10), client.get_into(BUCKET, "ranges", end, offset=99990),
                       client.get_into(BUCKET, "ranges", pieces, offset=3)]
            tap.check([result.bytes for result in results] == [1000, 10, 80007] and room == body[10:1010] and
                      end == body[99990:] + bytes(99990) and b"".join(pieces) == body[3:80010],
                      f"get_into: from an offset on, what the memory holds, by {how}", results)
            rooms = [bytearray(9), bytearray(9), [bytearray(4), bytearray(5)]]
            client.get_many([(BUCKET, "ranges", rooms[0], 5)])
            client.get_many([(BUCKET, "ranges", rooms[1], 6, None), (BUCKET, "ranges", rooms[2], 7)])
            tap.check([bytes(rooms[0]), bytes(rooms[1]), b"".join(rooms[2])] == [body[5:14], body[6:15], body[7:16]],
                      f"get_many: the same, by {how}", rooms)
            for span in ((0, 0), (0, -1), (-1,), (-1, 4), (5, 0)):
                options = dict(zip(("offset", "length"), span))
                tap.check(raised(ValueError, client.get_into, BUCKET, "ranges", room, **options) and
                          raised(ValueError, client.get_many, [(BUCKET, "ranges", room, *span)]) and
                          raised(ValueError, client.get_many, [(BUCKET, "ranges", [room], *span)]), f"a range out of bounds, by {how}: {span}")
            tap.check(raised(ValueError, client.get_into, BUCKET, "ranges", bytearray(), offset=5) and
                      raised(nebulaio.BufferTooSmallError, client.get_into, BUCKET, "ranges", bytearray(9), offset=5, length=10),
                      f"get_into: memory that is too small for a range, by {how}")

    async def work():
        async with AsyncRDMAClient(RDMA, *KEYS, workers=1) as client:
            await client.get_into(BUCKET, "ranges", room, offset=20)
            await client.delete_object(BUCKET, "ranges")

    asyncio.run(work())
    tap.check(room == body[20:1020], "asyncio: get_into from an offset on")


@needs()
def test_many():
    with opened(requests_max=16) as client:
        bodies = [bytes([i]) * (i * 331) for i in range(200)]
        client.put_many([(BUCKET, f"many/{i:03}", body) for i, body in enumerate(bodies)])
        rooms = [bytearray(len(body)) for body in bodies]
        results = client.get_many([(BUCKET, f"many/{i:03}", room) for i, room in enumerate(rooms)])
        tap.check(rooms == bodies and [r.bytes for r in results] == [len(b) for b in bodies], "200 objects in a window")
        error = raised(nebulaio.NotFoundError, client.get_many,
                       [(BUCKET, "many/001", bytearray(400)), (BUCKET, "not there", bytearray(1)),
                        (BUCKET, "many/002", bytearray(700))])
        tap.check(error is not None and error.key == "not there", "one of many is missing", error)
        tap.check(client.native.in_flight == 0, "nothing is left in flight")
        room = bytearray(331)
        client.get_many([(BUCKET, "many/199", room, 331, 331)])
        tap.check(room == bytes([199]) * 331, "many: ranges")
        many = [(BUCKET, f"many/{1 + i % 199:03}", 199 * 331) for i in range(1000)]
        views = client.read_many(many)
        tap.check(all(view == bodies[1 + i % 199] for i, view in enumerate(views)) and client.native.in_flight == 0,
                  "read_many: 1,000 reads by one call, in one piece of memory that is not registered")
        with opened(pool_bytes=64 * MIB) as roomy:
            views = roomy.read_many(many[:500])
            tap.check(all(view == bodies[1 + i % 199] for i, view in enumerate(views)) and
                      roomy.stats().bytes_copied == 0, "read_many: in registered memory, without a copy", roomy.stats())
        tap.check(views[198] == bodies[199], "its views outlive the client")
        views = client.read_many([(BUCKET, "many/003", 10), (BUCKET, "not there", 10), (BUCKET, "many/003", 331, 662),
                                  (BUCKET, "many/003", 9999, 331)], errors=True)
        tap.check(isinstance(views[0], nebulaio.BufferTooSmallError) and isinstance(views[1], nebulaio.NotFoundError) and
                  views[1].code == "NoSuchKey" and views[1].key == "not there", "read_many: failures in their places", views)
        tap.check(views[2] == bytes([3]) * 331 and views[3] == bytes([3]) * 662, "read_many: ranges, one past the end")
        tap.check(raised(nebulaio.NotFoundError, client.read_many, [(BUCKET, "not there", 10)]) is not None and
                  raised(ValueError, client.read_many, [(BUCKET, "many/003", 0)]) is not None and
                  raised(nebulaio.NebulaError, client.read_many, many[:2], window=5000) is not None and
                  client.read_many([]) == [], "read_many: what is wrong is told")
        heads = client.head_many([(BUCKET, f"many/{i:03}") for i in range(200)] + [(BUCKET, "not there")], errors=True)
        tap.check([head.object_bytes for head in heads[:200]] == [len(body) for body in bodies] and
                  isinstance(heads[200], nebulaio.NotFoundError) and
                  raised(nebulaio.NotFoundError, client.head_many, [(BUCKET, "not there")]) is not None, "head_many: lengths, one is missing")
        puts = client.put_many([(BUCKET, "many/000", b"new", {"x-amz-meta-colour": "red"}), ("no-such-bucket-here", "a", b"b")], errors=True)
        tap.check(puts[0].status == 200 and puts[1].code == "NoSuchBucket" and
                  client.head_many([(BUCKET, "many/000")])[0].headers["x-amz-meta-colour"] == "red", "put_many: headers, one fails", puts)
        tap.check(len(client.delete_many([(BUCKET, f"many/{i:03}") for i in range(200)])) == 200 and
                  client.list_objects(BUCKET, "many/") == [], "delete_many")


@needs()
def test_many_beside_other_calls():
    """A request of the iterable's own takes the results of those in flight: they are looked at all the same."""
    with opened() as client:
        def then_asked(*request):
            yield request
            becomes(lambda: client.ping() and not client.native.in_flight)

        missing = "no-such-bucket-here"
        for call, request in ((client.put_many, (missing, "a", b"b")), (client.delete_many, (missing, "a")), (client.head_many, (BUCKET, "not there"))):
            outcome = call(then_asked(*request), errors=True)
            tap.check(isinstance(outcome[0], nebulaio.NotFoundError) and raised(nebulaio.NotFoundError, call, then_asked(*request)) is not None and
                      client.native.wait() == [], f"{call.__name__}: a failure that another request's wait received", outcome)
        tap.check(client.put_many([(BUCKET, "beside", b"put")])[0].status == 200 and client.delete_many([(BUCKET, "beside")])[0].status == 204,
                  "many: and the next calls have results of their own")


@needs()
def test_batch_ends():
    """A batch ends by its time, by a signal's exception, and when its server is killed."""
    with RDMAClient(nobody_answers(), *KEYS) as client:
        error = raised(nebulaio.NebulaTimeoutError, client.read_many, [(BUCKET, f"{i}", 10) for i in range(100)], timeout=0.3)
        tap.check(error is not None, "a batch without answers ends by its time", error)
    with RDMAClient(nobody_answers(), *KEYS, request_timeout=60.0) as client:
        many = [(BUCKET, f"{i}", 10) for i in range(1000)]
        tap.check(interrupted(nobody_is_asked, client.read_many, many, window=4, then=SILENT[-1].close) is not None,
                  "a signal handler's exception ends a batch")
    with Server(pathlib.Path(os.environ["NEBULAIO_TEST_DIR"]) / "killed", pathlib.Path(os.environ["NEBULAIO_TEST_DIR"]) / "killed.log") as server, \
            RDMAClient(access_key=ACCESS_KEY, secret_key=SECRET_KEY, request_timeout=2.0 * PATIENCE_S,
                       endpoints=[f"rdma://{server.rdma}", f"http://{server.http}"]) as client:
        client.create_bucket(BUCKET)
        client.put_many([(BUCKET, f"{i}", bytes([i]) * 1000) for i in range(250)])
        read = client.read_many([(BUCKET, f"{i % 250}", 1000) for i in range(4000)])
        tap.check(all(view == bytes([i % 250]) * 1000 for i, view in enumerate(read)), "4,000 reads before")
        results = []
        started = threading.Event()

        def read_on():
            while not results or not isinstance(results[-1], Exception):
                results[:] = client.read_many([(BUCKET, f"{i % 250}", 1000) for i in range(4000)], errors=True)
                started.set()

        thread = threading.Thread(target=read_on)
        thread.start()
        started.wait()
        server.process.kill()
        thread.join(PATIENCE_S)
        tap.check(not thread.is_alive() and len(results) == 4000 and isinstance(results[-1], NebulaError),
                  "each of 4,000 reads has an end when the server is killed", results[-1:])
        tap.check(all(isinstance(one, NebulaError) and one.status == 0 or one == bytes([i % 250]) * 1000
                      for i, one in enumerate(results)), "what was read before is whole")
        heads = client.head_many([(BUCKET, f"{i}") for i in range(4000)], errors=True)
        tap.check(len(heads) == 4000 and all(isinstance(one, NebulaError) and one.status == 0 for one in heads),
                  "each of 4,000 HEAD requests has an end when no server answers", heads[-1:])


@needs("numpy")
def test_epochs():
    """Objects of 100 KiB in another order each epoch, over ranks and workers."""
    from nebulaio import data

    count = 60
    with opened() as client:
        client.put_many([(BUCKET, f"epochs/{i:03}", bytes([i]) * OBJECT_BYTES) for i in range(count)])

        def made(**more):
            return data.EpochDataset(client, BUCKET, prefix="epochs/", batch=7, decode=lambda key, array: (
                int(key[-3:]) if array.nbytes == OBJECT_BYTES and (array == int(key[-3:])).all() else None), **more)

        dataset = made(seed=3)
        first, second = list(dataset), list(dataset)
        tap.check(sorted(first) == sorted(second) == list(range(count)) and first != second and dataset.state_dict() == {"epoch": 2, "taken": 0},
                  "epochs: every byte of each object once, in another order each time", dataset.state_dict())
        dataset.set_epoch(0)
        tap.check(list(dataset) == first and list(made(seed=3)) == first and list(made(seed=4)) != first, "epochs: seed and epoch give the order")
        shares = [list(made(seed=3, rank=(rank, 3), part=(worker, 2))) for rank in range(3) for worker in range(2)]
        tap.check(sorted(sum(shares, [])) == list(range(count)) and all(len(share) == 10 for share in shares) and len(made(rank=(1, 3))) == 20,
                  "epochs: three ranks with two workers share the objects", [len(share) for share in shares])
        begun = made(seed=3)
        items = iter(begun)
        taken = [next(items) for _ in range(17)]
        state = json.loads(json.dumps(begun.state_dict()))
        items.close()
        again = made(seed=3)
        again.load_state_dict(state)
        tap.check(taken + list(again) == first and list(again) == second, "epochs: another process goes on where one stopped", state)
        keyed = data.EpochDataset(client, BUCKET, [f"epochs/{i:03}" for i in range(5)] + ["epochs/none"])
        tap.check(raised(nebulaio.NotFoundError, list, keyed) is not None and raised(ValueError, made, rank=(3, 3)) is not None and
                  raised(ValueError, lambda: data.EpochDataset(client, BUCKET, prefix="epochs/", batch=0)) is not None and raised(ValueError, begun.load_state_dict, {"epoch": 0, "taken": -1}) is not None and
                  list(data.EpochDataset(client, BUCKET, prefix="nothing/")) == [], "epochs: what is wrong is told; no objects")
        client.delete_many([(BUCKET, f"epochs/{i:03}") for i in range(count)])


@needs()
def test_errors():
    with opened() as client:
        error = raised(FileNotFoundError, client.get_object, BUCKET, "missing")
        tap.check(isinstance(error, nebulaio.NotFoundError) and error.code == "NoSuchKey" and error.status == 404 and
                  error.request_id and error.message and error.transport == "rdma" and
                  (error.bucket, error.key) == (BUCKET, "missing"), "a missing key is a FileNotFoundError", error)
        copy = pickle.loads(pickle.dumps(error))
        tap.check(copy.code == error.code and str(copy) == str(error) and type(copy) is type(error), "errors are pickled")
        client.put_object(BUCKET, "long", bytes(1000))
        error = raised(nebulaio.BufferTooSmallError, client.get_into, BUCKET, "long", bytearray(10))
        tap.check(error is not None, "memory that is too small", error)
        tap.check(raised(nebulaio.ConflictError, client.delete_bucket, BUCKET) is not None, "a bucket that is not empty")
        client.delete_object(BUCKET, "long")
        tap.check(raised(TypeError, client.put_object, BUCKET, "k", "text") is not None, "text is no body")
        tap.check(raised(TypeError, client.put_object, BUCKET, "k", object()) is not None, "an object without memory")
        tap.check(raised((BufferError, TypeError), client.get_into, BUCKET, "k", b"fixed") is not None,
                  "nothing is received into bytes")
        tap.check(raised(BufferError, client.put_object, BUCKET, "k", memoryview(bytes(10))[::2]) is not None,
                  "memory with gaps")
        tap.check(raised(ValueError, client.put_object, BUCKET, "k", [b"x"] * 17) is not None, "too many pieces")
        tap.check(raised(ValueError, client.put_object, BUCKET, "nul\0", b"") is not None, "a key with a NUL")
    tap.check(raised(ValueError, client.get_object, BUCKET, "x") is not None and client.closed, "a closed client")
    logging.getLogger("nebulaio").addHandler(handler := Lines())
    error = raised(PermissionError, RDMAClient(RDMA, "nobody", "nothing-at-all").ping)
    tap.check(error is not None and "InvalidAccessKeyId" in str(error), "unknown keys are a PermissionError", error)
    error = raised(nebulaio.NebulaConnectionError, RDMAClient("127.0.0.1:1", *KEYS, request_timeout=3600.0).ping)
    tap.check(error is not None and error.status == 0 and "server listens" in str(error), "a missing server is reported at once", error)
    tap.check(any("server listens" in line for line in handler.lines), "and logged, by the logger nebulaio", handler.lines)
    logging.getLogger("nebulaio").removeHandler(handler)


class Foreign(http.server.BaseHTTPRequestHandler):
    """Another server, whose texts are Latin-1, or longer than a result's."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        latin = self.path.endswith("latin")
        message = b"caf\xe9" if latin else "\u00e4".encode() * 300
        body = b"<Error><Code>NoSuchKey</Code><Message>" + message + b"</Message></Error>"
        self.send_response(404)
        for name, value in (("content-length", str(len(body))), ("x-amz-request-id", "caf\xe9" if latin else "id")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


@needs()
def test_foreign_texts():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign) as server, \
            RDMAClient(f"http://127.0.0.1:{server.server_port}", *KEYS) as client:
        threading.Thread(target=server.serve_forever).start()
        try:
            latin, long = (raised(nebulaio.NotFoundError, client.get_into, BUCKET, key, bytearray(9)) for key in ("latin", "long"))
            tap.check(latin and (latin.message, latin.request_id) == ("caf\ufffd", "caf\ufffd"), "errors: texts that are not UTF-8", latin)
            tap.check(long and long.message.startswith("\u00e4\u00e4"), "errors: a text that is cut within a character", long)
        finally:
            server.shutdown()
    logging.getLogger("nebulaio").addHandler(handler := Lines())
    for more in ("", "a"):  # one of the lines is cut within a character
        hosts = [f"http://{more}" + "\u00e4" * 100] * 4
        raised(NebulaError, RDMAClient, None, *KEYS, endpoints=hosts, transport="rdma")
    logging.getLogger("nebulaio").removeHandler(handler)
    tap.check(sum("\u00e4\u00e4" in line for line in handler.lines) == 2, "log: a line that is cut within a character", handler.lines)


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@needs()
def test_settings():
    text = settings.endpoints_text
    tap.check(text(["192.168.100.1:9100"], False) == "rdma://192.168.100.1:9100", "an address is RDMA")
    tap.check(text(["rdma://a", "rdma://b:1"], True) == "rdma://a:9100,rdma://b:1,http://a:9000,http://b:9000",
              "fallback_http adds the hosts", text(["rdma://a", "rdma://b:1"], True))
    tap.check(text(["rdma://a", "https://c"], True) == "rdma://a:9100,https://c:9443", "unless HTTP is named")
    tap.check(text(["[::1]:7", "[fe80::1]"], False) == "rdma://[::1]:7,rdma://[fe80::1]:9100", "IPv6")
    ways = ["http://a/?rdma=owner", "https://b:1?rdma=hipobj", "http://c?rdma"]
    tap.check(text(ways, True) == "http://a:9000?rdma=owner,https://b:1?rdma=hipobj,http://c:9000?rdma", "ways of RDMA behind HTTP", text(ways, True))
    tap.check(text(["rdma://a?paths=given"], False) == "rdma://a:9100?paths=given", "no paths but those that were given", text(["rdma://a?paths=given"], False))
    with RDMAClient(f"http://{HTTP}?rdma=owner", *KEYS) as client:
        tap.check(client.create_bucket("owner-asked").transport == "http", "?rdma=owner of a server that is no gateway is HTTP")
        client.delete_bucket("owner-asked")
    for bad in ("ftp://x", "a:b", "::1", "a:0", ":9", "a:70000", "http://a?rdma=other", "rdma://a?rdma=owner", "http://a?", "http://a?paths=given", "rdma://a?paths=all"):
        tap.check(raised(ValueError, text, [bad], False) is not None, f"no endpoint: {bad}")
    os.environ["NEBULAIO_CONNECT_TO"] = f"a:9100={RDMA}"
    with RDMAClient("rdma://a", *KEYS) as client:
        tap.check(client.ping().transport == "rdma", "NEBULAIO_CONNECT_TO leads to the server")
    os.environ["NEBULAIO_CONNECT_TO"] = "nonsense"
    tap.check(raised(nebulaio.NebulaError, RDMAClient, "a", *KEYS) is not None, "NEBULAIO_CONNECT_TO that is nonsense")
    del os.environ["NEBULAIO_CONNECT_TO"]
    tap.check("NEBULAIO_ACCESS_KEY" in str(raised(ValueError, RDMAClient, RDMA)), "without keys it says which to set")
    os.environ.update(NEBULAIO_ENDPOINT=f"rdma://{RDMA}", AWS_ACCESS_KEY_ID=KEYS[0], AWS_SECRET_ACCESS_KEY=KEYS[1])
    with RDMAClient() as client:
        tap.check(client.ping().transport == "rdma", "endpoint and keys of the environment")
    del os.environ["NEBULAIO_ENDPOINT"], os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    client = RDMAClient(None, *KEYS)
    tap.check("connect" in str(raised(ValueError, client.ping)), "without an endpoint")
    host, port = RDMA.rsplit(":", 1)
    tap.check(client.connect(host, int(port)).ping().transport == "rdma", "connect(host, port)")
    again = pickle.loads(pickle.dumps(client))
    tap.check(again.ping().status == 200 and client.clone().ping().status == 200, "pickled and cloned")
    os.environ["NEBULAIO_RDMA_DEVICE_NAME"] = "simulated"
    tap.check(opened(device_name="mlx5_0").ping().transport == "rdma", "NEBULAIO_RDMA_DEVICE_NAME wins")
    del os.environ["NEBULAIO_RDMA_DEVICE_NAME"]
    with RDMAClient(endpoints=["rdma://127.0.0.1:1", f"http://{HTTP}"], access_key=KEYS[0], secret_key=KEYS[1]) as client:
        result = client.ping()
        tap.check(result.transport == "http" and "server listens" in (result.fallback or ""), "HTTP instead, and why", result)


@needs()
def test_http():
    """The same calls without RDMA."""
    with RDMAClient(f"http://{HTTP}", *KEYS) as client:
        bodies = {f"http/{size}": os.urandom(size) for size in (0, 1, 70000, 3 * MIB)}
        puts = [client.put_object(BUCKET, key, body) for key, body in bodies.items()]
        tap.check({put.transport for put in puts} == {"http"}, "http: put", puts)
        tap.check(all(client.get_object(BUCKET, key) == body for key, body in bodies.items()), "http: get")
        rooms = [bytearray(len(body)) for body in bodies.values()]
        client.get_many([(BUCKET, key, room) for key, room in zip(bodies, rooms)])
        tap.check(rooms == list(bodies.values()), "http: many")
        tap.check([entry.key for entry in client.list_objects(BUCKET, "http/")] == sorted(bodies), "http: list")
        error = raised(nebulaio.NotFoundError, client.get_into, BUCKET, "missing", bytearray(1))
        tap.check(error is not None and error.code == "NoSuchKey" and error.transport == "http", "http: error", error)
        tap.check(raised(nebulaio.BufferTooSmallError, client.get_into, BUCKET, "http/70000", bytearray(10)) is not None,
                  "http: memory that is too small")
        error = raised(PermissionError, RDMAClient(f"http://{HTTP}", "nobody", "nothing-at-all").ping)
        tap.check(error is not None and error.status == 403, "http: unknown keys", error)
        for key in bodies:
            client.delete_object(BUCKET, key)


@needs()
def test_temporary_keys():
    key, secret, token = os.environ["NEBULAIO_TEST_SESSION"].split()
    with RDMAClient(f"http://{HTTP}?rdma", key, secret, session_token=token) as client:
        put = client.put_object(BUCKET, "temporary", b"t" * 70000)
        tap.check(put.transport == "token" and client.get_object(BUCKET, "temporary") == b"t" * 70000, "temporary keys: a body by an RDMA token", put)
        tap.check(client.clone().head_object(BUCKET, "temporary").status == 200, "temporary keys: a clone has them")
    error = raised(PermissionError, RDMAClient(f"http://{HTTP}", key, secret).ping)
    tap.check(error is not None, "temporary keys: without their token they are refused", error)
    os.environ.update(AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=secret, AWS_SESSION_TOKEN=token)
    with RDMAClient(endpoints=[f"rdma://{RDMA}", f"http://{HTTP}"]) as client:
        result = client.delete_object(BUCKET, "temporary")
        tap.check(result.transport == "http" and "temporary credentials" in (result.fallback or ""), "temporary keys: of the environment, not over RDMA", result)
    error = raised(nebulaio.NebulaError, RDMAClient, f"rdma://{RDMA}")
    tap.check(error is not None, "temporary keys: without an HTTP endpoint", error)
    with RDMAClient(f"rdma://{RDMA}", *KEYS) as client:
        tap.check(client.ping().transport == "rdma", "temporary keys: the environment's token is for its own key")
    del os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"], os.environ["AWS_SESSION_TOKEN"]


@needs()
def test_buffers():
    client = opened()
    buffer = client.allocate_buffer(3 * MIB)
    view = memoryview(buffer)
    tap.check(len(buffer) == view.nbytes == 3 * MIB and not view.readonly and buffer.address % 4096 == 0, "a buffer")
    view[:] = os.urandom(3 * MIB)
    before = client.stats()
    client.put_from(BUCKET, "pooled", buffer)
    client.get_into(BUCKET, "pooled", view[:])
    client.put_from(BUCKET, "pooled", view[100:200])
    client.get_into(BUCKET, "pooled", view[:100])
    after = client.stats()
    tap.check(after.bytes_copied - before.bytes_copied <= 100 and after.registrations == before.registrations,
              "buffers are neither copied nor registered (100 bytes travel inside a message)", (before, after))
    tap.check(view[:100] == view[100:200], "the received bytes are those sent")
    tap.check(raised(BufferError, buffer.release) is not None, "a buffer with views is not released")
    view.release()
    buffer.release()
    buffer.release()
    tap.check(raised(ValueError, memoryview, buffer) is not None and len(buffer) == 0, "a released buffer has no memory")
    whole = [client.allocate_buffer(16 * MIB) for _ in range(4)]
    tap.check(raised(nebulaio.NebulaError, client.allocate_buffer, MIB).errno == 12, "the pool can be full")
    del whole
    gc.collect()
    with client.allocate_buffer(60 * MIB) as large:
        tap.check(len(large) == 60 * MIB, "and its memory comes back")
    survivor = memoryview(client.allocate_buffer(4096))
    client.close()
    survivor[:] = bytes(range(256)) * 16
    tap.check(bytes(survivor[:3]) == b"\0\1\2" and client.closed, "a view outlives its client")
    del survivor


@needs()
def test_registrations():
    with opened() as client:
        memory = bytearray(os.urandom(2 * MIB))
        registration = client.register(memory)
        before = client.stats()
        client.put_from(BUCKET, "registered", memoryview(memory)[:MIB])
        client.get_into(BUCKET, "registered", memoryview(memory)[MIB:])
        after = client.stats()
        tap.check(memory[:MIB] == memory[MIB:], "registered memory: the bytes")
        tap.check(after.bytes_copied == before.bytes_copied and after.registrations == before.registrations,
                  "registered memory is neither copied nor registered again")
        tap.check(raised(nebulaio.ConflictError, client.register, memory) is not None, "it is registered once")
        tap.check(raised(BufferError, memory.append, 1) is not None, "its memory stays where it is")
        registration.release()
        memory.append(1)
        tap.check(len(memory) == 2 * MIB + 1, "until it is released")
        registration.release()
        with client.register(memory):
            pass
        before = client.stats()
        client.put_from(BUCKET, "registered", memoryview(memory)[:MIB])
        tap.check(client.stats().registrations == before.registrations + 1, "large memory that is not: registered, not copied")
        tap.check(client.stats().bytes_copied == before.bytes_copied, "large memory that is not: no copy")


@needs()
def test_ways():
    """The device is found and reported; reads from the server's memory, encryption and cached registrations work."""
    with opened() as client:
        tap.check(client.device == "simulated" and "127.0.0.1" in client.device_why, "the device is told", client.device_why)
        client.put_object(BUCKET, "hot", b"hot")
    with RDMAClient(RDMA, *KEYS, one_sided_reads=True) as client:
        room = bytearray(3)
        for _ in range(100):
            client.get_into(BUCKET, "hot", room)
        tap.check(room == b"hot" and client.stats().one_sided_reads > 0, "one-sided reads", client.stats())
        client.put_object(BUCKET, "hot", b"new")
        client.get_into(BUCKET, "hot", room)
        tap.check(room == b"new", "which see what has changed", room)
    with RDMAClient(RDMA, *KEYS, require_encryption=True, one_sided_reads=True) as client:
        for _ in range(10):
            client.get_into(BUCKET, "hot", room)
        tap.check(room == b"new" and client.stats().one_sided_reads == 0, "encrypted, nothing is read one-sidedly", client.stats())
    with RDMAClient(RDMA, *KEYS, registration_cache_bytes=64 * MIB) as client:
        memory = bytearray(MIB)
        for _ in range(3):
            client.put_from(BUCKET, "kept", memory)
        stats = client.stats()
        tap.check((stats.registrations, stats.registration_misses, stats.registration_hits) == (0, 1, 2), "registrations are kept", stats)
        client.forget(memory)
        client.put_from(BUCKET, "kept", memory)
        tap.check(client.stats().registration_misses == 2, "until they are forgotten", client.stats())


@needs("numpy")
def test_registrations_of_the_package():
    """Memory that the package makes does not stay registered: it is freed, and what comes to its place would be taken for it."""
    import numpy
    from nebulaio import data, multipart

    with RDMAClient(RDMA, *KEYS, registration_cache_bytes=64 * MIB, pool_bytes=8 * MIB) as client:
        wide = numpy.random.rand(400, 400)
        client.put_object(BUCKET, "passing/short", bytes(100 << 10))
        client.put_object(BUCKET, "passing/long", bytes(300 << 10))
        client.put_object_numpy(BUCKET, "passing/array", wide[::2])
        pieces = [memoryview(client.allocate_buffer(10 << 10)) for _ in range(40)]
        keys = ["passing/short", "passing/long"]

        def uploaded():
            multipart.MultipartUpload(client, BUCKET, "passing/parts").put(pieces, 64 * MIB)

        def saved():
            data.save_tensors(client, BUCKET, "passing/tensors", {f"name {i} {'x' * 100}": wide[i:, ::2] for i in range(3)})
            data.load_tensors(client, BUCKET, "passing/tensors")

        def with_numpy():
            client.put_object_numpy(BUCKET, "passing/array", wide[:, ::2])
            return client.get_object_numpy(BUCKET, "passing/array")

        for name, made in (("get_object", lambda: client.get_object(BUCKET, keys[1], offset=9)),
                           ("get_object's guesses", lambda: [client.get_object(BUCKET, key) for key in keys]),
                           ("numpy", with_numpy), ("tensors", saved), ("parts", uploaded),
                           ("read_many", lambda: client.read_many([(BUCKET, key, 5 * MIB) for key in keys])),
                           ("prefetch", lambda: list(data.prefetch(client, BUCKET, keys, pooled=False))),
                           ("a dataset", lambda: data.ObjectDataset(client, BUCKET, keys).__getitems__([0, 1]))):
            before = client.stats()
            for _ in range(5):
                made()
            after = client.stats()
            tap.check(after.registration_hits == before.registration_hits and after.registration_misses > before.registration_misses,
                      f"registrations are kept of the program's memory, not of the package's: {name}", (before, after))
        got = client.get_object(BUCKET, keys[1])
        before = client.stats()
        client.put_object(BUCKET, keys[1], got)
        client.put_object(BUCKET, keys[1], got)
        after = client.stats()
        tap.check((after.registration_misses, after.registration_hits) == (before.registration_misses + 1, before.registration_hits + 1),
                  "what get_object() returned is kept when the program sends it", (before, after))
        client.forget(got)
        columns = numpy.asfortranarray(wide)
        client.put_object(BUCKET, keys[1], columns)
        client.forget(columns)
        before = client.stats().registration_misses
        client.put_object(BUCKET, keys[1], columns)
        tap.check(client.stats().registration_misses == before + 1, "forget: an array in Fortran's order")
        client.forget(columns)
        client.delete_many([(BUCKET, entry.key) for entry in client.list_objects(BUCKET, "passing/")])


@needs("fsspec")
def test_registrations_of_fsspec():
    import fsspec

    fs = fsspec.filesystem("nebulaio", endpoint=RDMA, access_key=KEYS[0], secret_key=KEYS[1], registration_cache_bytes=64 * MIB)
    body = os.urandom(13 * MIB)
    for _ in range(3):
        with fs.open(f"{BUCKET}/passing", "wb", block_size=5 * MIB) as file:
            for at in range(0, len(body), MIB):
                file.write(body[at:at + MIB])
        with fs.open(f"{BUCKET}/passing", "rb", block_size=MIB) as file:
            tap.check(file.read() == body, "fsspec: what was written, with registrations that are kept")
        fs.pipe_file(f"{BUCKET}/passing", body[:MIB])
    pieces = [bytearray(body[:MIB]), bytearray(body[MIB:3 * MIB])]
    for _ in range(2):
        fs.pipe_file(f"{BUCKET}/passing", pieces)
    tap.check(fs.cat_file(f"{BUCKET}/passing") == body[:3 * MIB], "fsspec: a list of pieces")
    stats = fs.client.stats()
    tap.check(stats.registration_misses > 0 and stats.registration_hits == 0, "fsspec: no registration outlives its memory", stats)
    fs.rm(f"{BUCKET}/passing")


@needs()
def test_threads():
    with opened() as client:
        client.put_object(BUCKET, "shared", b"s" * 100000)
        wrong = []

        def work(number):
            room = bytearray(100000)
            for i in range(50):
                client.put_object(BUCKET, f"thread-{number}", bytes([number]) * (i + 1))
                if client.get_object(BUCKET, f"thread-{number}") != bytes([number]) * (i + 1) or \
                        client.get_into(BUCKET, "shared", room).bytes != 100000:
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tap.check(not wrong, "six threads share a client, one at a time")
    # The request waits for what never comes: a call that held the interpreter's lock would stop the other threads.
    silent = RDMAClient(nobody_answers(), *KEYS, request_timeout=60.0)
    counted, done, marks = [0], threading.Event(), []

    def count():
        while not done.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()

    def counting():
        """Whether the other thread goes on after the request was sent."""
        if nobody_is_asked():
            marks.append(counted[0])
        return marks and counted[0] - marks[0] > 1000

    error = interrupted(counting, silent.ping)
    done.set()
    thread.join()
    tap.check(error is not None, "the interpreter's lock is free while a request waits", marks[:1])
    silent.close()


@needs()
def test_signals():
    client = RDMAClient(nobody_answers(), *KEYS, request_timeout=2.0 * PATIENCE_S)
    room = bytearray(MIB)
    tap.check(interrupted(lambda: client.native.in_flight, client.get_into, BUCKET, "x", room) is not None, "a signal ends the wait")
    tap.check(client.native.in_flight == 1 and raised(BufferError, room.append, 1) is not None,
              "the request it left behind holds on to its memory")
    client.close()
    room.append(1)
    tap.check(len(room) == MIB + 1, "until the client is closed")


def pools():
    """How many clients' pools this process has: a session's end ends its pool."""
    gc.collect()
    return pathlib.Path("/proc/self/maps").read_text().count("nebulaio-client")


@needs()
def test_interrupted_buffers():
    before = pools()
    client = opened()
    native, buffer = client.native, client.allocate_buffer(MIB)
    client.put_object(BUCKET, "left", b"left")
    with stopped_server():
        error = interrupted(lambda: native.in_flight, client.get_into, BUCKET, "left", buffer)
        native.submit(nebulaio._native.GET_OBJECT, BUCKET, "left", into=client.allocate_buffer(MIB))
    tap.check(error and native.in_flight == 2 and pools() == before + 1, "interrupted: two requests hold their buffers", native.in_flight)
    del buffer, error
    client.close()
    tap.check(native.in_flight == 0 and pools() == before, "interrupted: close() ends them, and the session with the last buffer",
              (native.in_flight, before, pools()))
    client = RDMAClient(nobody_answers(), *KEYS, request_timeout=600.0)
    native, buffer = client.native, client.allocate_buffer(MIB)
    error = interrupted(lambda: native.in_flight, client.get_into, BUCKET, "left", buffer)
    tap.check(error and interrupted(lambda: client.closed, client.close) and native.in_flight == 1, "interrupted: a signal ends close()", error)


def divided(made):
    """A block of the object, with a view of it, that an exception ends."""
    with made as held:
        view = memoryview(held)
        view[0] // 0


@needs()
def test_interrupted_blocks():
    before = pools()
    with opened() as client:
        def read():
            with client.allocate_buffer(MIB) as buffer:
                client.get_into(BUCKET, "blocks", buffer)

        client.put_object(BUCKET, "blocks", b"blocks")
        with stopped_server():
            error = interrupted(lambda: client.native.in_flight, read)
        tap.check(isinstance(error, Alarm), "interrupted: within a buffer's block, the signal's exception", error)
        made = client.allocate_buffer(MIB)
        tap.check(raised(ZeroDivisionError, divided, made) and len(made) == MIB and raised(ZeroDivisionError, divided, client.map(BUCKET, "blocks")),
                  "a block of a buffer or a map that an exception ends: that exception, though there are views")
        with made as buffer:
            pass
        view = memoryview(client.allocate_buffer(MIB))
        tap.check(len(buffer) == 0 and raised(BufferError, view.obj.__exit__, None, None, None), "a block that ends well: released, or its views are told")
        del error, view
    tap.check(pools() == before, "interrupted: and the session ends")


@needs()
def test_fork():
    client = opened()
    client.put_object(BUCKET, "before the fork", b"parent")
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 10
        try:
            error = raised(nebulaio.ForkError, client.get_object, BUCKET, "before the fork")
            fresh = client.clone()
            code = 0 if error and "fork" in str(error) and fresh.get_object(BUCKET, "before the fork") == b"parent" else 11
            fresh.close()
            client.close()
            del client
            gc.collect()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    tap.check(os.waitstatus_to_exitcode(status) == 0, "in a forked process the client says so, and a clone works", status)
    tap.check(client.get_object(BUCKET, "before the fork") == b"parent", "the parent's goes on when the child has ended")
    client.close()


def region_frames():
    """Frames by owner, without those that are free or cached."""
    done = subprocess.run([PROGRAM, "region", "dump", "--json", "--pid", SERVER_PID], capture_output=True, text=True,
                          timeout=300, env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"})
    owners = json.loads(done.stdout)["frames"]["by_owner"]
    return {owner: count for owner, count in owners.items() if owner not in ("free", "cache") and count}


def metric(name):
    """A number of the server's."""
    with urllib.request.urlopen(f"http://{ADMIN}/metrics", timeout=300) as answer:
        return int(re.search(rf"^{name} (\d+)".encode(), answer.read(), re.M)[1])


def in_flight():
    """The server's requests in progress."""
    return metric("nebulaio_s3_requests_in_flight")


@needs()
def test_kill():
    program = """
import os, sys
from nebulaio import RDMAClient
client = RDMAClient(sys.argv[1], "minioadmin", "minioadmin")
memory = bytearray(256 << 20)
client.ping()
while True:
    client.put_from("python", "killed", memory)
    client.get_into("python", "killed", memory)
"""
    becomes(lambda: not region_frames())
    for number in range(3):
        child = subprocess.Popen([sys.executable, "-c", program, RDMA])
        busy = becomes(lambda: in_flight() or child.poll() is not None) and child.poll() is None
        child.kill()
        child.wait()
        free = becomes(lambda: not region_frames())
        tap.check(busy and free, f"killed in mid-transfer {number + 1}: the server's frames are free again", (busy, region_frames()))
    with opened() as client:
        tap.check(client.ping().status == 200, "and it serves others")


@needs()
def test_asyncio():
    async def work():
        async with AsyncRDMAClient(RDMA, *KEYS, workers=3) as client:
            puts = await asyncio.gather(*[client.put_object(BUCKET, f"async-{i}", bytes([i]) * 1000) for i in range(40)])
            gets = await asyncio.gather(*[client.get_object(BUCKET, f"async-{i}") for i in range(40)])
            missing = await asyncio.gather(client.get_object(BUCKET, "not there"), return_exceptions=True)
            listed = await client.list_objects(BUCKET, "async-")
            await asyncio.gather(*[client.delete_object(BUCKET, f"async-{i}") for i in range(40)])
            return puts, gets, missing[0], listed

    puts, gets, missing, listed = asyncio.run(work())
    tap.check(all(put.status == 200 for put in puts) and gets == [bytes([i]) * 1000 for i in range(40)], "asyncio: 40 at once")
    tap.check(isinstance(missing, nebulaio.NotFoundError) and len(listed) == 40, "asyncio: errors and listings")

    async def kept():
        async with AsyncRDMAClient(RDMA, *KEYS, workers=1, registration_cache_bytes=64 * MIB) as client:
            memory = bytearray(MIB)
            for _ in range(2):
                await client.put_from(BUCKET, "async-kept", memory)
            await client.forget(memory)
            await client.put_from(BUCKET, "async-kept", memory)
            await client.delete_object(BUCKET, "async-kept")
            await client.forget(memory)
            return client._first.stats()

    stats = asyncio.run(kept())
    tap.check((stats.registration_misses, stats.registration_hits) == (2, 1), "asyncio: registrations are kept until they are forgotten",
              stats)


@needs("numpy")
def test_numpy():
    import numpy as np

    with opened() as client:
        arrays = {
            "C order": np.arange(300000, dtype="<f8").reshape(300, 1000),
            "Fortran order": np.asfortranarray(np.arange(300000, dtype="<i4").reshape(500, 600)),
            "big endian": np.arange(70000, dtype=">u2"),
            "structured": np.zeros(30000, dtype=[("x", "<f4"), ("name", "S12")]),
            "dates": np.arange("2026-01-01", "2026-12-01", dtype="datetime64[m]"),
            "complex": np.arange(20000).astype("c16"),
            "bool": np.arange(100000) % 3 == 0,
            "no dimensions": np.array(3.25),
            "empty": np.empty((0, 7), "f4"),
            "text": np.array(["ä", "bc"], dtype="U5"),
            "long header": np.zeros(2, dtype=[(f"field_{i:05}", "<f4") for i in range(4000)]),
        }
        for name, array in arrays.items():
            client.put_object_numpy(BUCKET, "array.npy", array)
            for how in ("first", "again", "pooled"):
                back = client.get_object_numpy(BUCKET, "array.npy", pooled=how == "pooled")
                tap.check(back.dtype == array.dtype and back.shape == array.shape and (back == array).all() and
                          back.flags.f_contiguous == array.flags.f_contiguous and back.flags.writeable,
                          f"numpy: {name}, {how}", (back.dtype, back.shape, back.flags))
        np.save("numpy-itself.npy", arrays["structured"])
        client.put_object(BUCKET, "from numpy.npy", pathlib.Path("numpy-itself.npy").read_bytes())
        tap.check((client.get_object_numpy(BUCKET, "from numpy.npy") == arrays["structured"]).all(), "numpy: its own file")
        client.put_object_numpy(BUCKET, "array.npy", arrays["C order"])
        pathlib.Path("numpy-itself.npy").write_bytes(client.get_object(BUCKET, "array.npy"))
        tap.check((np.load("numpy-itself.npy") == arrays["C order"]).all(), "numpy: numpy reads ours")
        client.put_object_numpy(BUCKET, "array.npy", arrays["C order"][:, ::2])
        tap.check((client.get_object_numpy(BUCKET, "array.npy") == arrays["C order"][:, ::2]).all(), "numpy: with gaps")

        before = client.stats().bytes_copied
        client.put_object_numpy(BUCKET, "weights.npy", arrays["C order"])
        out = np.empty_like(arrays["C order"])
        address = out.ctypes.data
        back = client.get_object_numpy(BUCKET, "weights.npy", out=out)
        tap.check(back is out and out.ctypes.data == address and (out == arrays["C order"]).all(), "numpy: into an array")
        again = client.get_object_numpy(BUCKET, "weights.npy")
        tap.check(again.base is None and (again == out).all(), "numpy: into memory of the array's own")
        small = client.empty(1000, "i4")
        small[:] = range(1000)
        client.put_object_numpy(BUCKET, "small.npy", small)
        pooled = client.get_object_numpy(BUCKET, "small.npy", pooled=True)
        tap.check((pooled == small).all() and pooled.ctypes.data % 4096 == 0, "numpy: small, in registered memory")
        tap.check(client.stats().bytes_copied == before, "numpy: nothing was copied", client.stats().bytes_copied - before)
        requests = client.stats().requests_rdma
        for _ in range(10):
            client.get_object_numpy(BUCKET, "weights.npy", out=out)
        tap.check(client.stats().requests_rdma - requests <= 11, "numpy: one request for each array of a kind")
        tap.check(raised(ValueError, client.get_object_numpy, BUCKET, "weights.npy", out=np.empty(3)) is not None,
                  "numpy: an array of another shape")
        tap.check(raised(ValueError, client.put_object_numpy, BUCKET, "o.npy", np.array([{}])) is not None,
                  "numpy: Python objects are refused")
        for name, junk in {"no magic": b"x" * 200, "version": b"\x93NUMPY\x09\x00" + bytes(100), "short": b"\x93NUM",
                           "code": b"\x93NUMPY\x01\x00\x20\x00" + b"__import__('os')".ljust(32),
                           "cut": client.get_object(BUCKET, "weights.npy", length=5000)}.items():
            client.put_object(BUCKET, "junk.npy", junk)
            tap.check(raised(ValueError, client.get_object_numpy, BUCKET, "junk.npy") is not None, f"numpy: junk: {name}")


@needs("numpy")
def test_numpy_interrupted():
    """The server reads an array's header and data after the call for it was interrupted."""
    import numpy as np

    ones, twos = np.ones((300, 1000)), np.full((700, 500), 2)
    with opened() as client:
        client.ping()
        with stopped_server():
            error = interrupted(lambda: client.native.in_flight, client.put_object_numpy, BUCKET, "ones.npy", ones)
            done = threading.Thread(target=client.put_object_numpy, args=(BUCKET, "twos.npy", twos))
            done.start()
            becomes(lambda: client.native.in_flight == 2)
        done.join()
        becomes(lambda: client.ping() and not client.native.in_flight)
        for key, array in (("ones.npy", ones), ("twos.npy", twos)):
            back = client.get_object_numpy(BUCKET, key)
            tap.check(error and back.shape == array.shape and back.dtype == array.dtype and (back == array).all(),
                      f"numpy: a put, interrupted, and the next one have their own headers: {key}", (error, back.shape, back.dtype))


class OnlyDLPack:
    """Like a torch tensor for this package: no buffer protocol."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__()


class Meddling(OnlyDLPack):
    """Changes the request's headers while the request is being made, as another thread could."""

    def __init__(self, array, headers):
        super().__init__(array)
        self.headers = headers

    def __dlpack__(self, **options):
        self.headers.clear()
        self.others = ["-" * 600 for _ in range(1000)]  # where the texts were
        return super().__dlpack__()


@needs("numpy")
def test_headers_that_change():
    import numpy as np

    colour = "blue" * 150
    with opened() as client:
        headers = {"".join(("x-amz-meta-", "colour")): "".join(list(colour))}
        client.put_many([(BUCKET, "meddled", Meddling(np.zeros(10), headers), headers)])
        told = client.head_object(BUCKET, "meddled").headers
        tap.check(headers == {} and told.get("x-amz-meta-colour") == colour, "headers are as they were given", told)


@needs("numpy")
def test_dlpack():
    import numpy as np

    with opened() as client:
        source, target = np.random.default_rng(1).random((500, 700)), np.zeros((500, 700))
        references = sys.getrefcount(source), sys.getrefcount(target)
        before = client.stats().bytes_copied
        client.put_from(BUCKET, "tensor", OnlyDLPack(source))
        result = client.get_into(BUCKET, "tensor", OnlyDLPack(target))
        tap.check(result.bytes == source.nbytes and (source == target).all(), "DLPack: the tensor's own memory")
        tap.check(client.stats().bytes_copied == before, "DLPack: nothing was copied")
        tap.check((sys.getrefcount(source), sys.getrefcount(target)) == references, "DLPack: tensors are given back")
        client.put_from(BUCKET, "tensor", OnlyDLPack(np.asfortranarray(source)))
        tap.check(client.get_object(BUCKET, "tensor") == source.tobytes("F"), "DLPack: Fortran order")
        tap.check(raised(BufferError, client.put_from, BUCKET, "tensor", OnlyDLPack(source[:, ::2])) is not None,
                  "DLPack: with gaps")
        fixed = np.zeros(5)
        fixed.flags.writeable = False
        tap.check(raised((BufferError, TypeError, ValueError), client.get_into, BUCKET, "tensor", OnlyDLPack(fixed)) is not None,
                  "DLPack: read-only")
        client.put_from(BUCKET, "checked", OnlyDLPack(source), checksum=True)
        tap.check(client.get_object(BUCKET, "checked") == source.tobytes(), "DLPack: with a checksum")


class OnCard:
    """A tensor in a GPU's memory, like a framework's; this class builds the capsule itself."""

    class Managed(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                    ("ndim", ctypes.c_int32), ("type_code", ctypes.c_uint8), ("type_bits", ctypes.c_uint8),
                    ("type_lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p),
                    ("byte_offset", ctypes.c_uint64), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

    def __init__(self, address, size, device_type=2):
        self.shape = (ctypes.c_int64 * 1)(size)
        self.managed = self.Managed(address, device_type, 0, 1, 1, 8, 1, self.shape, None, 0, None, None)

    def __dlpack__(self, **options):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor", None)


@needs()
def test_gpu():
    """Device memory of an emulated driver: pages that the processor must not access (tests/unit/client/fake_cuda.c)."""
    library = pathlib.Path(os.environ["BUILD_DIR"]) / "tests/unit/client/libfake_cuda.so"
    if not library.exists():
        tap.skip("GPU memory", "the tests' driver was not built")
        return
    fake = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    fake.fake_device_memory.restype = fake.fake_device_shadow.restype = ctypes.c_void_p
    size = 3 * MIB
    address = fake.fake_device_memory()
    shadow = (ctypes.c_char * size).from_address(fake.fake_device_shadow())
    body = os.urandom(size)
    shadow.raw = body
    with opened() as client:
        client.put_from(BUCKET, "on-card", OnCard(address, size))
        tap.check(client.get_object(BUCKET, "on-card") == body, "GPU memory is stored")
        shadow.raw = bytes(size)
        client.get_into(BUCKET, "on-card", OnCard(address, size))
        tap.check(shadow.raw == body, "and received into")
        tap.check(client.stats().bytes_staged == 2 * size, "each through host memory, which is counted", client.stats())
        tap.check(raised(BufferError, client.put_from, BUCKET, "on-card", OnCard(address, size, 8)) is not None,
                  "another maker's device is refused")


def first_byte(key, array):
    return int(array[0])


@needs("numpy")
def test_data():
    import numpy as np
    from nebulaio import data

    with opened() as client:
        want = {f"train/{i:03}": np.full(5000 + 37 * i, i, np.uint8) for i in range(60)}
        client.put_many([(BUCKET, key, array) for key, array in want.items()])
        with client.clone() as mine:
            seen, most = [], 0
            for key, array in data.prefetch(mine, BUCKET, prefix="train/", depth=8):
                seen.append((key, (array == want[key]).all() and len(array) == len(want[key])))
                most = max(most, mine.native.in_flight)
            tap.check([key for key, _ in seen] == sorted(want) and all(same for _, same in seen), "prefetch: all, in order")
            tap.check(1 <= most <= 8, "prefetch: the next ones are on their way", most)
            tap.check(mine.native.in_flight == 0, "prefetch: nothing is left")
            keys = ["train/000", "not there", "train/001"]
            iterator = data.prefetch(mine, BUCKET, [nebulaio.ObjectInfo(key, False, 5000 + 37, "", "") for key in keys])
            tap.check(next(iterator)[0] == "train/000", "prefetch: up to one that is missing")
            tap.check(raised(nebulaio.NotFoundError, next, iterator) is not None, "prefetch: which raises in its turn")
            stale = nebulaio.ObjectInfo("train/059", False, 10, "", "")
            tap.check((next(data.prefetch(mine, BUCKET, [stale]))[1] == want["train/059"]).all(), "prefetch: one that grew")
            before = mine.stats().bytes_copied
            rooms = [array for _, array in data.prefetch(mine, BUCKET, prefix="train/", pooled=True)]
            tap.check([int(room[-1]) for room in rooms] == list(range(60)) and mine.stats().bytes_copied == before and
                      all(room.ctypes.data % 4096 == 0 for room in rooms), "prefetch: into registered memory, no copy")
            del rooms, array
            iterator = data.prefetch(mine, BUCKET, prefix="train/", depth=4)
            next(iterator)
            iterator.close()
            tap.check(mine.native.in_flight == 0 and mine.ping().status == 200, "prefetch: ended early")
        dataset = data.ObjectDataset(client, BUCKET, prefix="train/", decode=first_byte)
        tap.check(len(dataset) == 60 and dataset[7] == 7 and dataset.__getitems__([3, 50, 3]) == [3, 50, 3], "dataset: by number")
        sys.stdout.flush()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            tap.check(pool.map(dataset.__getitem__, range(60)) == list(range(60)), "dataset: in forked workers")
        plain = data.StreamDataset(client, BUCKET, prefix="train/", part=(1, 3))
        tap.check([int(array[0]) for array in plain] == list(range(1, 60, 3)), "stream: a worker's share")
        tap.check([int(array[0]) for array in pickle.loads(pickle.dumps(data.ObjectDataset(client, BUCKET, prefix="train/")))
                   .__getitems__([4, 9])] == [4, 9], "dataset: pickled")

        tensors = {f"layer{i}.weight": np.random.default_rng(i).random((64, 10 + i)).astype("f4") for i in range(9)}
        tensors.update(step=np.array(17), nothing=np.empty((0, 3), "f8"), mask=np.arange(11) % 2 == 0)
        data.save_tensors(client, BUCKET, "few.safetensors", tensors, {"epoch": "3"})
        back = data.load_tensors(client, BUCKET, "few.safetensors")
        tap.check(sorted(back) == sorted(tensors) and all((back[k] == v).all() and back[k].dtype == v.dtype and
                  back[k].shape == v.shape for k, v in tensors.items()), "checkpoint: few tensors")
        many = {f"t{i}": np.full(1000 + i, i, "i8") for i in range(100)}
        many["large"] = np.arange(12 * MIB // 8)
        many.update({f"u{i}": np.full(3, i, "u1") for i in range(40)})
        data.save_tensors(client, BUCKET, "many.safetensors", many)
        into = {"large": np.zeros_like(many["large"])}
        back = data.load_tensors(client, BUCKET, "many.safetensors", into)
        tap.check(all((back[k] == v).all() for k, v in many.items()) and back["large"] is into["large"],
                  "checkpoint: many tensors, in parts; into an array that is there")
        if importlib.util.find_spec("safetensors"):
            from safetensors.numpy import load
            tap.check((load(bytes(client.get_object(BUCKET, "few.safetensors")))["step"] == 17).all(), "checkpoint: safetensors reads it")
        few = data.load_tensors(client, BUCKET, "many.safetensors", names=["t7", "u39"])
        tap.check(sorted(few) == ["t7", "u39"] and all((few[k] == many[k]).all() for k in few), "checkpoint: some by name", few)
        found, metadata = data.list_tensors(client, BUCKET, "few.safetensors")
        tap.check(metadata == {"epoch": "3"} and {name: (info.dtype, info.shape) for name, info in found.items()} ==
                  {name: (array.dtype.name, array.shape) for name, array in tensors.items()}, "checkpoint: what is in it", found)
        tap.check("no tensor 'nobody'" in str(raised(KeyError, data.load_tensors, client, BUCKET, "few.safetensors",
                                                     names=["nobody"])), "checkpoint: a name that is not there")
        wrong = raised(ValueError, data.load_tensors, client, BUCKET, "few.safetensors", {"step": np.zeros(2, "i8")})
        tap.check("step: int64 of shape (2,): the stored one is int64 of shape ()" in str(wrong), "checkpoint: a wrong shape", wrong)
        client.put_object(BUCKET, "junk", b"\xff" * 100)
        for header in (b"\xff" * 92, b'{"a":7}', b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}', b"[" * 100_000,
                       b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[4,0]}}', b'{"a":{"dtype":"X","shape":[],"data_offsets":[0,0]}}'):
            client.put_object(BUCKET, "junk", len(header).to_bytes(8, "little") + header)
            tap.check("not a file of tensors" in str(raised(ValueError, data.load_tensors, client, BUCKET, "junk")),
                      f"checkpoint: junk, {header[:50]!r}")


@needs("numpy")
def test_checkpoint():
    import numpy as np
    from nebulaio import data

    with opened(request_timeout=120.0) as client:
        tensors = {f"block{i}": np.full(CHECKPOINT_BYTES // 8 // 4, i, "f4") for i in range(8)}
        into = {name: np.empty_like(array) for name, array in tensors.items()}
        for array in into.values():
            array[::1024] = 0  # maps its pages before the measurement
        begin, before = time.monotonic(), client.stats()
        data.save_tensors(client, BUCKET, "checkpoint", tensors)
        saved = time.monotonic()
        data.load_tensors(client, BUCKET, "checkpoint", into)
        loaded, after = time.monotonic(), client.stats()
        tap.check(all((into[name] == tensors[name]).all() for name in tensors), "1 GiB checkpoint: what was saved")
        tap.check(after.bytes_copied - before.bytes_copied < 4096, "1 GiB checkpoint: no copy",
                  after.bytes_copied - before.bytes_copied)
        print(f"# 1 GiB checkpoint, simulated: saved in {saved - begin:.2f} s, restored in {loaded - saved:.2f} s, "
              f"{after.bytes_copied - before.bytes_copied} bytes copied", flush=True)
        client.delete_object(BUCKET, "checkpoint")


@needs("fsspec")
def test_fsspec():
    import fsspec

    options = {"endpoint": RDMA, "access_key": KEYS[0], "secret_key": KEYS[1]}
    fs = fsspec.filesystem("nebulaio", **options)
    root = f"{BUCKET}/fs"
    fs.pipe(f"{root}/a/one.txt", b"1111")
    fs.pipe(f"{root}/a/two.txt", b"22")
    fs.pipe(f"{root}/b.bin", bytes(range(256)) * 100)
    tap.check(fs.cat(f"{root}/a/one.txt") == b"1111" and fs.cat_file(f"nebulaio://{root}/b.bin", 1, 4) == b"\1\2\3" and
              fs.cat_file(f"{root}/b.bin", -2) == b"\xfe\xff", "fsspec: cat")
    tap.check(fs.ls(root, detail=False) == [f"{root}/a", f"{root}/b.bin"], "fsspec: ls", fs.ls(root))
    tap.check(fs.isdir(f"{root}/a") and fs.isfile(f"{root}/b.bin") and not fs.exists(f"{root}/c") and fs.isdir(BUCKET),
              "fsspec: kinds")
    tap.check(fs.find(root) == [f"{root}/a/one.txt", f"{root}/a/two.txt", f"{root}/b.bin"], "fsspec: find", fs.find(root))
    tap.check(fs.glob(f"{root}/a/*.txt") == [f"{root}/a/one.txt", f"{root}/a/two.txt"], "fsspec: glob")
    tap.check(fs.size(f"{root}/b.bin") == 25600 and fs.modified(f"{root}/b.bin").year >= 2024, "fsspec: size and time")
    body = os.urandom(13 * MIB + 5)
    with fs.open(f"{root}/big", "wb") as file:
        for at in range(0, len(body), 1 << 20):
            file.write(body[at:at + (1 << 20)])
    with fs.open(f"{root}/big", "rb") as file:
        file.seek(9 * MIB)
        middle = file.read(1000)
    tap.check(fs.cat(f"{root}/big") == body and middle == body[9 * MIB:9 * MIB + 1000], "fsspec: written in parts, read within")
    with fs.open(f"{root}/empty", "wb"):
        pass
    tap.check(fs.cat(f"{root}/empty") == b"", "fsspec: an empty file")
    with fsspec.open(f"nebulaio://{root}/text", "wt", **options) as file:
        file.write("zeile ä\n")
    with fsspec.open(f"nebulaio://{root}/text", "rt", **options) as file:
        tap.check(file.read() == "zeile ä\n", "fsspec: text by URL")
    tap.check(raised(FileNotFoundError, fs.open, f"{root}/none", "rb") is not None, "fsspec: a missing file")
    fs.cp(f"{root}/a/one.txt", f"{root}/three.txt")
    fs.mv(f"{root}/a/two.txt", f"{root}/four.txt")
    tap.check(fs.cat(f"{root}/three.txt") == b"1111" and fs.cat(f"{root}/four.txt") == b"22" and
              not fs.exists(f"{root}/a/two.txt"), "fsspec: cp and mv")
    fs.get(f"{root}/b.bin", "b.bin")
    fs.put("b.bin", f"{root}/c.bin")
    tap.check(fs.cat(f"{root}/c.bin") == fs.cat(f"{root}/b.bin"), "fsspec: get and put")
    fs.mkdir("fs-bucket")
    fs.makedirs("fs-bucket/below", exist_ok=True)
    fs.rmdir("fs-bucket")
    tap.check(not fs.exists("fs-bucket"), "fsspec: buckets come and go")
    sealed = fsspec.filesystem("nebulaio", **options, require_encryption=True, registration_cache_bytes=MIB)
    tap.check(sealed.cat(f"{root}/a/one.txt") == b"1111" and raised(TypeError, fsspec.filesystem, "nebulaio", **options, encryption=1),
              "fsspec: all options of the client, and no others")
    fs.rm(root, recursive=True)
    tap.check(not fs.exists(root), "fsspec: rm")


def fsspec_named(root):
    """A filesystem of fsspec, and whether uploads below root have begun and not ended."""
    import fsspec

    fs = fsspec.filesystem("nebulaio", endpoint=RDMA, access_key=KEYS[0], secret_key=KEYS[1])
    client = Client(HTTP, *KEYS)
    return fs, lambda: root.encode() in client.request("GET", "/" + BUCKET, query={"uploads": ""})[2]


@needs("fsspec")
def test_fsspec_transactions():
    root = f"{BUCKET}/transactions"
    fs, begun = fsspec_named("transactions/")
    bodies = {"short": b"data", "empty": b"", "a block": os.urandom(8 * MIB), "long": os.urandom(9 * MIB)}
    with fs.transaction:
        for name, body in bodies.items():
            with fs.open(f"{root}/{name}", "wb") as file:
                file.write(body)
        tap.check(begun() and not fs.exists(root), "fsspec: a transaction shows nothing before its end")
    got = {name: fs.cat_file(f"{root}/{name}") for name in bodies}
    tap.check(got == bodies, "fsspec: a transaction stores what was written", {name: len(body) for name, body in got.items()})

    def broken():
        with fs.transaction:
            for name in bodies:
                with fs.open(f"{root}/{name}", "wb") as file:
                    file.write(bodies[name][::-1] + b"other")
            raise ZeroDivisionError

    tap.check(raised(ZeroDivisionError, broken) and not begun() and
              all(fs.cat_file(f"{root}/{name}") == body for name, body in bodies.items()),
              "fsspec: a transaction that an exception ends changes nothing, and leaves nothing")


@needs("fsspec")
def test_fsspec_create():
    root = f"{BUCKET}/create"
    fs, begun = fsspec_named("create/")

    def create(name, body):
        with fs.open(f"{root}/{name}", "xb") as file:
            file.write(body)

    for how, body in (("short", b"new"), ("long", os.urandom(9 * MIB))):
        create(how, body)
        tap.check(fs.cat_file(f"{root}/{how}") == body and raised(nebulaio.PreconditionError, create, how, body[::-1]) and
                  fs.cat_file(f"{root}/{how}") == body and not begun(), f"fsspec: mode x creates, and never replaces: {how}")


@needs("fsspec")
def test_fsspec_versions():
    path = f"{BUCKET}/opened"
    fs, _ = fsspec_named("opened")
    fs.pipe_file(path, b"A" * (3 * MIB))
    with fs.open(path, "rb", block_size=MIB) as file:
        first = file.read(MIB)
        fs.pipe_file(path, b"B" * (3 * MIB))
        error = raised(nebulaio.PreconditionError, file.read)
    tap.check(first == b"A" * MIB and error and f"{path} was replaced after it was opened" in str(error) and error.status == 412,
              "fsspec: a file that is replaced while it is read is an error, never a mixture", error)


@contextlib.contextmanager
def replaced_after(client, method, key, body):
    """Replaces an object after the first request that this method of the client makes."""
    original = getattr(client, method)
    bodies = [body]

    def and_replaced(*args, **options):
        result = original(*args, **options)
        if bodies:
            client.put_object(BUCKET, key, bodies.pop())
        return result

    with mock.patch.object(client, method, and_replaced):
        yield


@needs()
def test_versions():
    with opened() as client:
        old = client.put_object(BUCKET, "versions", b"old")
        with replaced_after(client, "head_object", "versions", b"a new one"):
            tap.check(client.get_object(BUCKET, "versions", offset=1) == b" new one", "get: from an offset on, of one version")
        for part, wanted in (({}, b"a new one"), ({"offset": 1}, b" new one"), ({"offset": 2, "length": 3}, b"new")):
            error = raised(nebulaio.PreconditionError, client.get_object, BUCKET, "versions", if_match=old.etag, **part)
            new = client.head_object(BUCKET, "versions").etag
            tap.check(error and client.get_object(BUCKET, "versions", if_match=new, **part) == wanted, f"get: if_match: {wanted}", error)
        client.delete_object(BUCKET, "versions")


@needs("numpy")
def test_versions_of_tensors():
    import numpy as np
    from nebulaio import data

    with opened() as client:
        key, count = "versions.safetensors", 2000  # names that are longer than what the first request reads
        files = [{f"{kind}-{i}": np.zeros(1) for i in range(count)} for kind in ("some", "more names")]
        data.save_tensors(client, BUCKET, key, files[1])
        other = client.get_object(BUCKET, key)
        for method in ("get_into", "head_object"):
            data.save_tensors(client, BUCKET, key, files[0])
            with replaced_after(client, method, key, other):
                error = raised(ValueError, data.list_tensors, client, BUCKET, key)
            tap.check(error and "was replaced" in str(error), f"checkpoint: replaced after {method} of its header", error)
        tap.check(list(data.list_tensors(client, BUCKET, key)[0]) == list(files[1]), "checkpoint: names longer than a first read")
        client.delete_object(BUCKET, key)


@needs()
def test_put_in_parts():
    # A body over the limit of one request, with limits that fit a test's memory.
    with opened() as client, mock.patch.object(nebulaio.rdma, "PUT_BYTES_MAX", 5 * MIB), \
            mock.patch.object(nebulaio.rdma, "PART_BYTES", 5 * MIB):
        body, headers = os.urandom(6 * MIB), {"If-None-Match": "*", "x-amz-meta-colour": "red"}
        put = client.put_object(BUCKET, "conditional", body, headers=headers)
        head = client.head_object(BUCKET, "conditional")
        error = raised(nebulaio.PreconditionError, client.put_object, BUCKET, "conditional", body[::-1], headers=headers)
        tap.check(put.etag == head.etag and put.etag.endswith("-2"), "in parts: the result has the object's ETag", put)
        tap.check(error and client.get_object(BUCKET, "conditional") == body and head.headers["x-amz-meta-colour"] == "red",
                  "in parts: a condition holds", (put, error))
        client.put_object(BUCKET, "conditional", body[::-1], headers={"if-match": f'"{head.etag}"'})
        tap.check(client.get_object(BUCKET, "conditional") == body[::-1], "in parts: a condition that is met")
        pieces = [body[:2 * MIB], body[2 * MIB:]]
        put = client.put_object(BUCKET, "conditional", pieces, checksum=True, timeout=60)
        tap.check(client.get_object(BUCKET, "conditional") == body and put.etag.endswith("-2"), "in parts: pieces of memory")
        with mock.patch.object(nebulaio.multipart, "crc32_of", lambda pieces: b"none"):
            error = raised(nebulaio.NebulaError, client.put_object, BUCKET, "conditional", body[::-1], checksum=True)
        tap.check(error and error.code == "BadDigest" and client.get_object(BUCKET, "conditional") == body,
                  "in parts: a checksum that is wrong", error)
        client.delete_object(BUCKET, "conditional")


def bench(*arguments):
    """A run of nebulaio.bench: its exit status, rows and errors."""
    env = dict(os.environ, NEBULAIO_ACCESS_KEY=KEYS[0], NEBULAIO_SECRET_KEY=KEYS[1])
    done = subprocess.run([sys.executable, "-m", "nebulaio.bench", *arguments, "--json"], env=env, capture_output=True, text=True,
                          timeout=300)
    return done.returncode, json.loads(done.stdout)["rows"] if done.returncode == 0 else [], done.stderr


class Lost:
    """A client whose session was lost while it lay idle, or whose server is gone."""

    def __init__(self, failures):
        self.failures = failures

    def ping(self):
        self.failures -= 1
        if self.failures >= 0:
            raise NebulaError(104, "the server is gone")


@needs("numpy")
def test_bench_goes_on_after_a_lost_session():
    from nebulaio import bench as module
    with opened() as client:
        module._wake(client)
    module._wake(Lost(1))
    tap.check(raised(NebulaError, module._wake, Lost(2)) is not None, "bench: a session lost between turns is made again, once")


@needs("numpy")
def test_bench():
    with opened() as client:
        client.create_bucket("bench-rows")
        folders = ("bench-folder", "bench-other")
        for folder in folders:
            os.mkdir(folder)
        common = ("--bucket", "bench-rows", "--endpoint", RDMA, "--http", f"http://{HTTP}", "--folder", folders[0], "--folder", folders[1],
                  "--cold", "--turns", "2")
        boto = importlib.util.find_spec("boto3") is not None
        status, rows, errors = bench("epoch", *common, "--objects", "70", "--object-bytes", "5000")
        tap.check(status == 0 and [row["source"] for row in rows] ==
                  ["rdma", "http", *["boto3, 16 threads"] * boto, *(f"files in {folder}, cold, 16 threads" for folder in folders)],
                  "bench: an epoch, by each source", errors)
        tap.check(all(0 < row["least"] <= row["seconds"] <= row["most"] for row in rows) and rows[0]["times_the_first"] == 1,
                  "bench: its figures", rows)
        status, rows, errors = bench("checkpoint", *common, "--bytes", "1000000")
        tap.check(status == 0 and [(row["what"], row["source"]) for row in rows] ==
                  [(what, source) for what in ("save", "restore")
                   for source in ("rdma", "http", *["boto3, its transfer manager"] * boto, *(f"a file in {folder}, cold" for folder in folders))],
                  "bench: a checkpoint saved and restored, by each source", errors)
        tap.check(not list(client.list_objects("bench-rows")) and not any(map(os.listdir, folders)), "bench: leaves nothing")
        for folder in folders:
            os.rmdir(folder)
        client.delete_bucket("bench-rows")
        status, _, errors = bench("epoch", *common[:8], "--objects", "3")
        tap.check(status == 1 and "bench-rows" in errors, "bench: no such bucket, no such folder: says so", errors)
        status, _, errors = bench("checkpoint", "--bucket", "bench-rows", "--endpoint", RDMA, "--bytes", "8")
        tap.check(status == 2 and "at least 32 bytes" in errors, "bench: too few bytes", errors)


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@needs("numpy", "boto3")
def test_training_loop():
    """Objects of one size into an array, over RDMA and by boto3 over HTTP, from one server in one run. Speed is reported,
    not judged."""
    import boto3
    import numpy as np

    array = np.empty(OBJECT_BYTES, np.uint8)
    keys = [f"samples/{i:05}" for i in range(OBJECTS)]
    figures = {}
    with opened() as client:
        client.put_many([(BUCKET, key, np.full(OBJECT_BYTES, i % 251, np.uint8)) for i, key in enumerate(keys)])
        room = client.empty(OBJECT_BYTES, np.uint8)

        def by_rdma(key):
            client.get_into(BUCKET, key, room)
            return int(room[-1])

        s3 = boto3.client("s3", endpoint_url=f"http://{HTTP}", aws_access_key_id=KEYS[0], aws_secret_access_key=KEYS[1],
                          region_name="us-east-1")

        def by_boto3(key):
            body = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
            array[:] = np.frombuffer(body, np.uint8)
            return int(array[-1])

        before = client.stats().bytes_copied
        for name, get in (("RDMA (simulated)", by_rdma), ("boto3", by_boto3)):
            get(keys[0])
            begin, processor = time.monotonic(), processor_seconds()
            last = [get(key) for key in keys]
            figures[name] = (OBJECTS / (time.monotonic() - begin), (processor_seconds() - processor) / OBJECTS * 1e6)
            tap.check(last == [i % 251 for i in range(OBJECTS)], f"training loop: every object, by {name}")
        tap.check(client.stats().bytes_copied == before, "training loop: nothing was copied over RDMA")
        for name, (rate, cpu) in figures.items():
            print(f"# {OBJECTS} objects of {OBJECT_BYTES >> 10} KiB by {name}: {rate:.0f} objects/s, "
                  f"{cpu:.0f} µs of processor time each in the client", flush=True)
        (rate, cpu), (boto_rate, boto_cpu) = figures.values()
        print(f"# RDMA (simulated) to boto3: {rate / boto_rate:.1f} times the objects/s, {boto_cpu / cpu:.1f} times less "
              "processor time", flush=True)


if __name__ == "__main__":
    sys.exit(run())
