"""tests/e2e/lmcache/lmcache_test.py: nebulaio.lmcache against a server, in LMCache or in the stand-in of it: worlds.py says
which. run-lmcache starts it."""

import asyncio
import os
import pathlib
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE)]
import nebula  # noqa: E402
from package import KEYS, RDMA, needs, opened, run, tap, tenant_keys  # noqa: E402
from worlds import CHUNK_BYTES, LAYERS, REAL, Engine, filled  # noqa: E402

from nebulaio import NebulaError  # noqa: E402
from nebulaio.lmcache import LAYOUT_HEADER, Settings  # noqa: E402

BUCKET = "kvcache"
HTTP = os.environ["NEBULAIO_TEST_HTTP"]
FOLDER = pathlib.Path(os.environ["NEBULAIO_TEST_DIR"])


def engine(prefix, keys=KEYS, endpoint=f"rdma://{RDMA}", bucket=BUCKET, cpu_bytes=64 << 20, mla=False, layerwise=False, **more):
    return Engine({"nebulaio.timeout_s": 60, "nebulaio.connect_timeout_s": 60, "nebulaio.endpoint": endpoint, "nebulaio.bucket": bucket, "nebulaio.prefix": prefix,
                   "nebulaio.access_key": keys[0], "nebulaio.secret_key": keys[1],
                   **{f"nebulaio.{name}": value for name, value in more.items()}}, cpu_bytes, mla, layerwise)


def bytes_and_release(objs):
    """The bytes of chunks; the references go back."""
    found = [bytes(obj.byte_array) for obj in objs]
    for obj in objs:
        obj.ref_count_down()
    return found


@needs()
def test_settings():
    for extra, word in (({}, "bucket"), ({"nebulaio.bucket": 3}, "bucket"), ({"nebulaio.bucket": "b", "nebulaio.buckets": "b"}, "buckets"),
                        ({"nebulaio.bucket": "b", "nebulaio.window": 0}, "window"), ({"nebulaio.bucket": "b", "nebulaio.window": 2.5}, "window"),
                        ({"nebulaio.bucket": "b", "nebulaio.retry_s": -1}, "retry_s"), ({"nebulaio.bucket": "b", "nebulaio.require_encryption": "yes"}, "require")):
        try:
            Settings.of(extra)
            tap.check(False, f"settings: {extra} is refused")
        except ValueError as error:
            tap.check(f"nebulaio.{word}" in str(error), f"settings: {extra} is refused by name", error)
    tap.check(Settings.of({"nebulaio.bucket": "b", "nebulaio.timeout_s": 3, "other": 1}).timeout_s == 3.0, "settings: whole seconds, keys of others")


@needs()
def test_chunks():
    with opened() as client:
        client.create_bucket(BUCKET)
    one = engine("chunks")
    try:
        told = []
        keys, objs = one.keys(*range(40)), [one.chunk(i) for i in range(40)]
        before = one.in_use()
        tap.check(one.backend.batched_contains(keys) == 0 and not one.backend.contains(keys[0]), "nothing is stored before")
        one.stored(keys, objs, on_complete_callback=told.append)
        tap.check(told == keys and one.in_use() == 0 and before >= 40 * CHUNK_BYTES, "40 chunks are stored, each is told, their memory is free",
                  (len(told), one.in_use()))
        tap.check(not one.backend.exists_in_put_tasks(keys[0]), "no put is left")
        missing = one.keys(1000, 1001)
        tap.check(one.backend.batched_contains(keys + missing) == 40 and one.backend.batched_contains(keys[:7] + missing + keys) == 7 and
                  one.backend.batched_contains([]) == 0, "existence checks: the first ones that are stored")
        found = one.backend.batched_get_blocking(keys[:30] + missing[:1] + keys[30:])
        tap.check(found[30:] == [None] * 11 and bytes_and_release(found[:30]) == [filled(i, CHUNK_BYTES) for i in range(30)] and
                  one.in_use() == 0, "30 chunks, up to one that is missing: every byte")
        obj = one.backend.get_blocking(keys[39])
        tap.check(bytes_and_release([obj]) == [filled(39, CHUNK_BYTES)] and one.backend.get_blocking(missing[0]) is None, "one chunk, one that is missing")
        stats = one.backend.client_stats()
        tap.check(set(stats) == {"lookups", "reads", "writes"} and all(one.bytes_copied == 0 and one.requests_http == 0 for one in stats.values()),
                  "by RDMA, from and to LMCache's memory: nothing is copied", stats)
        counts = dict(one.backend.counts)
        one.stored(keys[:5], [one.chunk(i) for i in range(5)])
        tap.check(one.backend.counts["there"] == counts.get("there", 0) + 5 and one.backend.counts["stored"] == 40, "what is stored is not sent again",
                  one.backend.counts)
        tap.check(one.backend.get_allocator_backend() is one.cpu and one.backend.pin(keys[0]) and one.backend.unpin(keys[0]), "pins, and the allocator")
        one.backend.touch_cache()
        tap.check(one.backend.remove(keys[0]) and not one.backend.remove(keys[0]) and one.backend.batched_remove(keys[:3] + missing) == 2 and
                  one.backend.batched_contains(keys) == 0 and one.backend.batched_contains(keys[3:]) == 37, "LMCache removes chunks")
    finally:
        one.close()
    again = engine("chunks")
    try:
        tap.check(bytes_and_release(again.backend.batched_get_blocking(again.keys(20, 21))) == [filled(20, CHUNK_BYTES), filled(21, CHUNK_BYTES)],
                  "another engine with the same model has them")
        tap.check(not again.backend.contains(again.key(20, model="another model")), "another model has not")
        long = "m" * 2000 + "/ä?"
        again.stored([again.key(1, model=long)], [again.chunk(77)])
        tap.check(bytes_and_release([again.backend.get_blocking(again.key(1, model=long))]) == [filled(77, CHUNK_BYTES)] and
                  not again.backend.contains(again.key(1, model=long[1:])), "a name that is too long for a key of S3")
    finally:
        again.close()


@needs()
def test_layouts():
    one = engine("layouts")
    try:
        one.stored(one.keys(1, 2), [one.chunk(1, tokens=17), one.chunk(2)])
        short, whole = one.backend.batched_get_blocking(one.keys(1, 2))
        tap.check(tuple(short.meta.shape)[2] == 17 and bytes_and_release([short, whole]) == [filled(1, CHUNK_BYTES // 64 * 17), filled(2, CHUNK_BYTES)],
                  "a chunk of fewer tokens")
    finally:
        one.close()
    for mla in (False, True):
        one = engine("layers", layerwise=not mla, mla=mla)
        try:
            keys = [one.key(5, layer=layer) for layer in range(LAYERS)] if not mla else one.keys(6)
            objs = [one.chunk(50 + i, layer=not mla) for i in range(len(keys))]
            size = objs[0].get_size()
            one.stored(keys, objs)
            found = one.run(one.backend.batched_get_non_blocking("a lookup", keys))
            tap.check(bytes_and_release(found) == [filled(50 + i, size) for i in range(len(keys))],
                      "chunks of a model with one latent vector" if mla else "layer by layer")
        finally:
            one.close()
    other = engine("layouts", mla=True)
    try:
        tap.check(other.backend.batched_contains(other.keys(1)) == 0 and other.backend.get_blocking(other.key(2)) is None and
                  other.backend.counts["strange"] > 0, "chunks of another layout count as missing", other.backend.counts)
        other.stored(other.keys(1), [other.chunk(9)])
        tap.check(bytes_and_release([other.backend.get_blocking(other.key(1))]) == [filled(9, CHUNK_BYTES // 2)], "and are replaced")
    finally:
        other.close()


@needs()
def test_strange():
    """Objects that others stored or changed."""
    one = engine("strange")
    try:
        def put(number, body, headers=None):
            with opened() as client:
                client.put_object(BUCKET, one.backend._object_key(one.key(number)), body, headers=headers)

        good = one.backend._layouts.text(obj := one.chunk(1))
        obj.ref_count_down()
        for name, body, layout in (("no layout", b"x" * CHUNK_BYTES, None), ("too few bytes", b"x" * (CHUNK_BYTES - 1), good),
                                   ("too many bytes", b"x" * (CHUNK_BYTES + 1), good), ("no bytes", b"", good),
                                   ("no numbers", b"x" * CHUNK_BYTES, "KV_2LTD bfloat16:a,b"), ("another format", b"x" * CHUNK_BYTES, "KV_T2D" + good[7:]),
                                   ("an unknown format", b"x" * CHUNK_BYTES, "__class__" + good[7:]), ("another type", b"x" * CHUNK_BYTES, good.replace("bfloat16", "float16")),
                                   ("more tokens than chunks have", b"x" * CHUNK_BYTES * 2, "KV_2LTD bfloat16:2,4,128,128"),
                                   ("dimensions in another order", b"x" * CHUNK_BYTES, "KV_2LTD bfloat16:4,2,64,128"),
                                   ("huge dimensions", b"x" * CHUNK_BYTES, "KV_2LTD bfloat16:" + ",".join(["999999999999"] * 4)),
                                   ("a long layout", b"x" * CHUNK_BYTES, "KV_2LTD" + " bfloat16:1,1,1,1" * 90),
                                   ("two groups", b"x" * CHUNK_BYTES, good + good[7:])):
            put(1, body, {LAYOUT_HEADER: layout} if layout else None)
            tap.check(one.backend.batched_contains(one.keys(1)) == 0 and one.backend.get_blocking(one.key(1)) is None and one.in_use() == 0,
                      f"an object with {name} counts as missing", one.backend.counts)
        one.stored(one.keys(1, 2, 3), [one.chunk(i) for i in (1, 2, 3)])
        tap.check(one.backend.batched_contains(one.keys(1, 2, 3)) == 3, "a chunk takes its place")
        # Since the lookup it has been replaced by bytes of the same length, by longer ones, or removed.
        put(1, filled(11, CHUNK_BYTES), {LAYOUT_HEADER: good})
        tap.check(bytes_and_release(one.backend.batched_get_blocking(one.keys(1, 2))) == [filled(11, CHUNK_BYTES), filled(2, CHUNK_BYTES)],
                  "a chunk that was replaced meanwhile: the new one")
        put(2, b"y" * (CHUNK_BYTES * 2), {LAYOUT_HEADER: good})
        found = one.backend.batched_get_blocking(one.keys(1, 2, 3))
        tap.check(found[1:] == [None, None] and bytes_and_release(found[:1]) == [filled(11, CHUNK_BYTES)], "by a longer object: up to there")
        with opened() as client:
            client.delete_object(BUCKET, one.backend._object_key(one.key(3)))
        tap.check(one.backend.get_blocking(one.key(3)) is None and one.backend.batched_get_blocking(one.keys(3, 1)) == [None, None] and one.in_use() == 0,
                  "a chunk that was removed meanwhile")
    finally:
        one.close()


@needs()
def test_async():
    one = engine("async")
    try:
        keys = one.keys(*range(20))
        one.run(one.backend.async_batched_submit_put_task(keys, objs := [one.chunk(i) for i in range(20)]))
        for obj in objs:
            obj.ref_count_down()
        tap.check(one.run(one.backend.batched_async_contains("a lookup", keys + one.keys(99))) == 20, "async: existence checks")

        async def together():
            return await asyncio.gather(*(one.backend.batched_get_non_blocking("a lookup", part) for part in (keys[:10], keys[10:] + one.keys(99), one.keys(99))))

        first, second, third = one.run(together())
        tap.check(bytes_and_release(first + second) == [filled(i, CHUNK_BYTES) for i in range(20)] and third == [] and one.in_use() == 0,
                  "async: three reads at a time")
        tap.check(bytes_and_release([one.backend.get_non_blocking(keys[3]).result()]) == [filled(3, CHUNK_BYTES)], "async: a future")

        async def cancelled():
            task = asyncio.ensure_future(one.backend.batched_get_non_blocking("a lookup", keys))
            await asyncio.sleep(0)
            task.cancel()
            try:
                await task
                return False
            except asyncio.CancelledError:
                return True

        tap.check(one.run(cancelled()), "async: a read is cancelled")
        one.backend.get_blocking(one.key(99))  # behind it
        tap.check(one.in_use() == 0, "async: and its memory is free", one.in_use())
    finally:
        one.close()


@needs()
def test_scarce():
    one = engine("scarce", cpu_bytes=16 * CHUNK_BYTES)
    try:
        for at in (0, 10):
            one.stored(one.keys(*range(at, at + 10)), [one.chunk(i) for i in range(at, at + 10)])
        found = one.backend.batched_get_blocking(one.keys(*range(20)))
        tap.check(found[16:] == [None] * 4 and bytes_and_release(found[:16]) == [filled(i, CHUNK_BYTES) for i in range(16)],
                  "more chunks than LMCache has memory for: as many as it has")
    finally:
        one.close()
    one = engine("pending", pending_bytes=3 * CHUNK_BYTES)
    try:
        gate = threading.Event()
        one.backend._writes.submit(lambda lane: gate.wait(nebula.PATIENCE_S))
        future, = one.put(one.keys(*range(5)), [one.chunk(i) for i in range(5)])
        tap.check(one.backend.exists_in_put_tasks(one.key(0)) and one.put(one.keys(0), [one.chunk(0)]) is None and one.backend.counts["dropped"] == 2,
                  "too many chunks wait: the others are not stored", one.backend.counts)
        gate.set()
        future.result()
        tap.check(one.backend.batched_contains(one.keys(*range(5))) == 3 and one.in_use() == 0, "and those that waited are")
        gate.clear()
        one.backend._writes.submit(lambda lane: gate.wait(nebula.PATIENCE_S))
        one.put(one.keys(10), [one.chunk(10)])
        threading.Thread(target=gate.set).start()
    finally:
        one.close()  # writes what waits, before LMCache's memory ends
    again = engine("pending")
    tap.check(again.backend.contains(again.key(10)), "an engine that ends stores what waited")
    again.close()
    tap.check(again.backend.batched_submit_put_task(again.keys(1), []) is None and not again.backend.contains(again.key(10)), "an engine that ended stores and finds nothing")


@needs()
def test_tenants():
    """A user who may only use a bucket of his own; another prefix; wrong keys; no bucket."""
    made = {}
    with opened() as client:
        client.create_bucket("tenant")
        made = tenant_keys()
    root, other = engine("shared"), engine("other")
    theirs, stranger = engine("shared", keys=made, bucket="tenant"), engine("shared", keys=made)
    wrong, lost = engine("shared", keys=("minioadmin", "wrong-secret")), engine("shared", bucket="no-such-bucket")
    everyone = (root, other, theirs, stranger, wrong, lost)
    try:
        root.stored(root.keys(1), [root.chunk(1)])
        tap.check(not other.backend.contains(other.key(1)), "another prefix: nothing is there")
        tap.check(not theirs.backend.contains(theirs.key(1)), "a tenant's own bucket: nothing is there")
        theirs.stored(theirs.keys(1), [theirs.chunk(2)])
        tap.check(bytes_and_release([theirs.backend.get_blocking(theirs.key(1))]) == [filled(2, CHUNK_BYTES)] and
                  bytes_and_release([root.backend.get_blocking(root.key(1))]) == [filled(1, CHUNK_BYTES)], "each tenant reads its own")
        for one, name in ((stranger, "a bucket that is not the tenant's"), (wrong, "wrong keys"), (lost, "no bucket")):
            one.stored(one.keys(1, 2), [one.chunk(3), one.chunk(4)])
            tap.check(one.backend.batched_contains(one.keys(1, 2)) == 0 and one.backend.get_blocking(one.key(1)) is None and
                      one.backend.batched_remove(one.keys(1)) == 0 and one.in_use() == 0 and one.backend.counts["stored"] == 0,
                      f"{name}: nothing is read, stored or removed", one.backend.counts)
        tap.check(bytes_and_release([root.backend.get_blocking(root.key(1))]) == [filled(1, CHUNK_BYTES)], "what was stored is as it was")
        lost_client = opened()
        lost_client.create_bucket("no-such-bucket")
        lost_client.close()
        lost.stored(lost.keys(1), [lost.chunk(5)])
        tap.check(lost.backend.contains(lost.key(1)), "a bucket that is made later")
    finally:
        for one in everyone:
            one.close()


@needs()
def test_killed():
    port = nebula.kept_port()
    words = ("--rdma", f"127.0.0.1:{port}")
    nebula.ACCESS_KEY, nebula.SECRET_KEY = KEYS
    server = nebula.Server(FOLDER / "killed", FOLDER / "killed.log", *words).start()
    there = f"rdma://127.0.0.1:{port}"
    # Calls without an answer end after timeout_s: it is short for the engines that call a dead server.
    steady = engine("killed", endpoint=there)
    one = engine("killed", endpoint=there, retry_s=0, timeout_s=0.5, connect_timeout_s=0.5)
    patient = engine("killed", endpoint=there, retry_s=3600, timeout_s=0.5, connect_timeout_s=0.5)
    try:
        with opened_at(port) as client:
            client.create_bucket(BUCKET)
        keys = one.keys(*range(10))
        steady.stored(keys, [steady.chunk(i) for i in range(10)])
        tap.check(all(nebula.becomes(lambda e=e: e.backend.batched_contains(keys) == 10) for e in (steady, one)), "a server that will be killed")
        server.kill()
        found = one.backend.batched_get_blocking(keys)
        tap.check(found == [None] * 10 and one.in_use() == 0 and one.backend.batched_contains(keys) == 0 and
                  one.run(one.backend.batched_get_non_blocking("a lookup", keys)) == [] and not one.backend.remove(keys[0]),
                  "a killed server: chunks are missing, memory is free", one.backend.counts)
        one.stored(one.keys(20, 21), [one.chunk(20), one.chunk(21)])
        tap.check(one.backend.counts["stored"] == 0 and one.in_use() == 0 and not one.backend.exists_in_put_tasks(one.key(20)), "and nothing waits to be stored",
                  one.backend.counts)
        tap.check(patient.backend.batched_contains(keys) == 0, "it is asked")
        failed = patient.backend.counts["failed"]
        tap.check(patient.backend.batched_contains(keys) == 0 and patient.put(one.keys(30), [patient.chunk(30)]) is None and
                  patient.backend.batched_get_blocking(keys) == [None] * 10 and patient.backend.counts["failed"] == failed,
                  "and then not again for retry_s", patient.backend.counts)
        server = nebula.Server(FOLDER / "killed", FOLDER / "killed.log", *words).start()
        tap.check(nebula.becomes(lambda: one.backend.batched_contains(keys) == 10), "the server is back: its chunks are, too", one.backend.counts)
        tap.check(bytes_and_release(steady.backend.batched_get_blocking(keys)) == [filled(i, CHUNK_BYTES) for i in range(10)], "with every byte")
        ended = threading.Event()

        def read_on():
            try:
                while (objs := one.backend.batched_get_blocking(keys))[-1]:
                    bytes_and_release(objs)
                    ended.set()
                bytes_and_release([obj for obj in objs if obj])
            finally:
                ended.set()

        reader = threading.Thread(target=read_on)
        reader.start()
        ended.wait(nebula.PATIENCE_S)
        server.kill()
        reader.join(nebula.PATIENCE_S)
        tap.check(not reader.is_alive() and one.in_use() == 0, "killed while chunks are read: the read ends, memory is free", one.in_use())
    finally:
        for each in (steady, one, patient):
            each.close()
        if server.process.poll() is None:
            server.kill()


def opened_at(port):
    from nebulaio import RDMAClient

    return RDMAClient(f"127.0.0.1:{port}", *KEYS)


@needs()
def test_http():
    """Where RDMA leads nowhere."""
    one = engine("http", endpoint=f"rdma://127.0.0.1:{nebula.kept_port()},http://{HTTP}", connect_timeout_s=1)
    try:
        one.stored(one.keys(1), [one.chunk(1)])
        tap.check(bytes_and_release([one.backend.get_blocking(one.key(1))]) == [filled(1, CHUNK_BYTES)] and
                  one.backend.client_stats()["reads"].requests_http > 0, "by HTTP where no RDMA answers")
    finally:
        one.close()
    for extra, word in (({"nebulaio.endpoint": "ftp://nowhere"}, "ftp"), ({"nebulaio.endpoint": ""}, "endpoint")):
        from nebulaio.lmcache import NebulaBackend

        try:
            one = Engine({"nebulaio.bucket": BUCKET, "nebulaio.access_key": KEYS[0], "nebulaio.secret_key": KEYS[1], **extra})
            refused, error = one.backend is None, "LMCache logs it"
            one.loop.call_soon_threadsafe(one.loop.stop)
        except (ValueError, NebulaError) as error_raised:
            refused, error = word in str(error_raised), error_raised
        tap.check(refused, f"{extra}: refused at once", error)
    tap.check(NebulaBackend is not None, f"LMCache: {'the package' if REAL else 'the stand-in'}")


if __name__ == "__main__":
    sys.exit(run())
