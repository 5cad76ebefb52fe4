"""tests/e2e/lmcache/l2_test.py: nebulaio.lmcache_l2 as LMCache's adapter of type "plugin", made by LMCache's own factory: chunks,
lengths, tenants, scarce memory, a killed server. run-lmcache starts it where LMCache's package is."""

import json
import os
import pathlib
import select
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE)]
import blocks  # noqa: E402
import nebula  # noqa: E402
from package import KEYS, RDMA, needs, opened, run, tap, tenant_keys  # noqa: E402

import torch  # noqa: E402
from lmcache.v1.distributed.api import GroupedObjectKeys, MemoryLayoutDesc, ObjectKey, PrefetchTaskSpec  # noqa: E402
from lmcache.v1.distributed.config import parse_args  # noqa: E402
from lmcache.v1.distributed.internal_api import L1MemoryDesc  # noqa: E402
from lmcache.v1.distributed.l2_adapters import create_l2_adapter  # noqa: E402
from lmcache.v1.distributed.l2_adapters.plugin_l2_adapter import PluginL2AdapterConfig  # noqa: E402
from lmcache.v1.distributed.storage_manager import StorageManager  # noqa: E402
from lmcache.v1.memory_management import MemoryObjMetadata, TensorMemoryObj  # noqa: E402

FOLDER = pathlib.Path(os.environ["NEBULAIO_TEST_DIR"])
BUCKET, CHUNK_BYTES, COUNT = "l2cache", 256 << 10, 40


class Tier:
    """An adapter over an arena of its own, in which chunk n has place n."""

    def __init__(self, endpoint=f"rdma://{RDMA}", keys=KEYS, bucket=BUCKET, **params):
        self.arena = torch.zeros(COUNT * CHUNK_BYTES, dtype=torch.uint8)
        params.update(bucket=bucket, endpoint=endpoint, access_key=keys[0], secret_key=keys[1])
        config = PluginL2AdapterConfig.from_dict({"module_path": "nebulaio.lmcache_l2", "class_name": "NebulaAdapter", "adapter_params": params})
        self.adapter = create_l2_adapter(config, L1MemoryDesc(self.arena.data_ptr(), self.arena.nbytes, 4096, self.arena.nbytes))
        self.adapter.set_backend_identity("plugin")

    def key(self, number, salt=""):
        return ObjectKey(chunk_hash=number.to_bytes(8, "big"), model_name="a model/of a test", kv_rank=1, cache_salt=salt)

    def chunk(self, number, size=CHUNK_BYTES, seed=None):
        """Memory of the arena; with a seed, full of its bytes."""
        place = self.arena[number * CHUNK_BYTES:number * CHUNK_BYTES + size]
        if seed is not None:
            place.copy_(torch.frombuffer(bytearray(filled(seed)[:size]), dtype=torch.uint8))
        return TensorMemoryObj(place, MemoryObjMetadata(torch.Size([size]), torch.uint8, 0, size, 1, shapes=[torch.Size([size])],
                                                        dtypes=[torch.uint8]), None)

    def until(self, fd, take):
        """The outcome of a task, when its descriptor tells of it."""
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while (outcome := take()) is None:
            if not poll.poll(nebula.PATIENCE_S * 1000):
                raise TimeoutError
        return outcome

    def store(self, numbers, seed=0, **more):
        task = self.adapter.submit_store_task([self.key(n, **more) for n in numbers], [self.chunk(n, seed=n + seed) for n in numbers])
        done = {}

        def take():
            done.update(self.adapter.pop_completed_store_tasks())
            return done.get(task)

        return self.until(self.adapter.get_store_event_fd(), take)

    def lookup(self, numbers, **more):
        task = self.adapter.submit_lookup_and_lock_task([self.key(n, **more) for n in numbers], {})
        return bits(self.until(self.adapter.get_lookup_and_lock_event_fd(), lambda: self.adapter.query_lookup_and_lock_result(task)))

    def load(self, numbers, size=CHUNK_BYTES, **more):
        task = self.adapter.submit_load_task([self.key(n, **more) for n in numbers], [self.chunk(i, size) for i in range(len(numbers))])
        return bits(self.until(self.adapter.get_load_event_fd(), lambda: self.adapter.query_load_result(task)))

    def has(self, place, seed):
        return self.arena[place * CHUNK_BYTES:(place + 1) * CHUNK_BYTES].numpy().tobytes() == filled(seed)


def bits(bitmap):
    return [bitmap.test(i) for i in range(len(bitmap))]


def filled(seed):
    return (b"%016x" % (seed * 2654435761 % (1 << 64))) * (CHUNK_BYTES // 16)


@needs()
def test_chunks():
    with opened() as client:
        client.create_bucket(BUCKET)
    tier = Tier()
    numbers = list(range(COUNT))
    fds = {tier.adapter.get_store_event_fd(), tier.adapter.get_lookup_and_lock_event_fd(), tier.adapter.get_load_event_fd()}
    tap.check(len(fds) == 3 and tier.lookup(numbers) == [False] * COUNT, "nothing is stored before")
    result = tier.store(numbers)
    tap.check(result.is_successful() and result.bytes_transferred() == COUNT * CHUNK_BYTES, "40 chunks are stored", result)
    tap.check(tier.lookup([3, 99, 0]) == [True, False, True], "lookups tell which are there")
    tier.arena.zero_()
    tap.check(tier.load([5, 98, 7]) == [True, False, True] and tier.has(0, 5) and tier.has(2, 7) and not tier.arena[CHUNK_BYTES:2 * CHUNK_BYTES].any(),
              "loads bring those, and leave the memory of the missing one alone")
    stats = tier.adapter.client_stats()
    tap.check(set(stats) == {"stores", "lookups", "loads"} and all(one.bytes_copied == 0 and one.requests_http == 0 for one in stats.values()) and
              stats["loads"].registrations <= 2, "over RDMA, without a copy, in memory that was registered once", stats)
    tap.check(tier.load([1], size=CHUNK_BYTES - 1) == [False] and tier.load([1]) == [True], "a chunk of another length is missing")
    usage = tier.adapter.get_usage()
    tap.check(usage.total_bytes_used == COUNT * CHUNK_BYTES and tier.store([0, 1]).is_successful() and
              tier.adapter.get_usage().total_bytes_used == usage.total_bytes_used, "the bytes are counted, once", usage)
    tap.check(tier.lookup([5], salt="someone") == [False] and tier.store([5], seed=100, salt="someone").is_successful() and
              tier.load([5], salt="someone") == [True] and tier.has(0, 105) and tier.load([5]) == [True] and tier.has(0, 5), "a salt keeps users apart")
    tier.adapter.delete([tier.key(3), tier.key(8), tier.key(9)])
    tap.check(tier.lookup([3, 8, 9]) == [True, False, False], "chunks are removed, but for one that a lookup has locked")
    tier.adapter.submit_unlock([tier.key(3)] * 2)
    tier.adapter.delete([tier.key(3)])
    tap.check(tier.lookup([3]) == [False] and tier.adapter.get_usage().total_bytes_used == (COUNT - 2) * CHUNK_BYTES, "and that one when it is unlocked",
              tier.adapter.get_usage())
    tap.check(tier.adapter.report_status()["is_healthy"], "its status")
    tier.adapter.close()
    tap.check(tier.adapter.submit_load_task([tier.key(1)], [tier.chunk(1)]) is not None, "a task after the end ends at once")


@needs()
def test_storage_manager():
    """LMCache's own storage manager of the multi-process mode, configured by its command line as kv-cache.md says: its
    memory, in which chunks are written and read, and the adapter below it."""
    [adapter] = [json.loads(block.text) for block in blocks.of(nebula.ROOT / "docs/guide/kv-cache.md") if block.language == "json"]
    adapter["adapter_params"].update(endpoint=f"rdma://{RDMA}", access_key=KEYS[0], secret_key=KEYS[1])
    with opened() as client:
        client.create_bucket(adapter["adapter_params"]["bucket"])
    manager = StorageManager(parse_args(["--l1-size-gb", "0.0625", "--no-l1-use-lazy", "--eviction-policy", "LRU", "--l2-adapter", json.dumps(adapter)]))
    layout = MemoryLayoutDesc([torch.Size([CHUNK_BYTES])], [torch.uint8])
    keys = [ObjectKey(number.to_bytes(8, "big"), "a model", 1) for number in range(8)]
    try:
        ours = manager.l2_adapters()[0][1]
        for turn in range(2):
            room = manager.reserve_write(keys, layout)
            for number, key in enumerate(keys):
                room[key].byte_array.cast("B")[:] = filled(number)
            manager.finish_write(keys)
            tap.check(nebula.becomes(lambda: ours.counts["stored"] == 8 * (turn + 1)), f"LMCache's storage manager: 8 chunks go down, turn {turn}", ours.counts)
            tap.check(nebula.becomes(lambda: manager.delete_l1_keys(keys)[0] or manager.get_l1_usage()[0] == 0), "and leave its memory", manager.get_l1_usage())
        task = manager.submit_prefetch_task(PrefetchTaskSpec([GroupedObjectKeys(keys, 0, layout)]))
        came = manager.wait_prefetch_status(task, nebula.PATIENCE_S) and manager.query_prefetch_status(task)
        tap.check(came and bits(came.l2_hit_cells[0]) == [True] * 8, "they come back", came)
        with manager.read_prefetched_results(keys) as objs:
            tap.check(objs and [bytes(obj.byte_array) for obj in objs] == [filled(number) for number in range(8)], "with every byte", objs)
        manager.finish_read_prefetched(keys)
        stats = ours.client_stats()
        tap.check(all(one.bytes_copied == 0 and one.requests_http == 0 for one in stats.values()), "without a copy, over RDMA", stats)
    finally:
        manager.close()


@needs()
def test_scarce_and_tenants():
    with opened() as client:
        client.create_bucket("tenant-l2")
        client.create_bucket("tenant")
    made = tenant_keys()
    small = Tier(pending_bytes=2 * CHUNK_BYTES)
    stores = [small.adapter.submit_store_task([small.key(200 + n)], [small.chunk(n, seed=n)]) for n in range(20)]
    done = {}
    nebula.becomes(lambda: done.update(small.adapter.pop_completed_store_tasks()) or len(done) == 20)
    stored = [done[task].is_successful() for task in stores]
    tap.check(stored[0] and len(done) == 20 and stored == small.lookup(range(200, 220)), "while too many wait, others are not stored, and that is told", stored)
    small.adapter.close()
    theirs, stranger, wrong = Tier(keys=made, bucket="tenant"), Tier(keys=made), Tier(keys=("minioadmin", "wrong-secret"))
    tap.check(theirs.store([1], seed=7).is_successful() and theirs.load([1]) == [True] and theirs.has(0, 8), "a tenant's own bucket")
    for one, name in ((stranger, "a bucket that is not the tenant's"), (wrong, "wrong keys")):
        tap.check(not one.store([1]).is_successful() and one.lookup([1]) == [False] and one.load([1]) == [False], f"{name}: nothing is stored, found, read")
    for one in (theirs, stranger, wrong):
        one.adapter.close()
    for params, said in (({"colour": 1}, "colour"), ({"window": 0}, "window"), ({"endpoint": "ftp://x"}, "")):
        try:
            Tier(**params)
            tap.check(False, f"{params} is refused")
        except ValueError as error:
            tap.check(said in str(error), f"{params} is refused", error)


@needs()
def test_killed():
    port = nebula.kept_port()
    nebula.ACCESS_KEY, nebula.SECRET_KEY = KEYS
    server = nebula.Server(FOLDER / "l2-killed", FOLDER / "l2-killed.log", "--rdma", f"127.0.0.1:{port}").start()
    tier = Tier(f"rdma://127.0.0.1:{port}", retry_s=0, timeout_s=0.5, connect_timeout_s=0.5)
    try:
        from nebulaio import RDMAClient

        with RDMAClient(f"127.0.0.1:{port}", *KEYS) as client:
            client.create_bucket(BUCKET)
        tap.check(nebula.becomes(lambda: tier.store([0, 1]).is_successful()), "a server that will be killed")
        task = [tier.adapter.submit_load_task([tier.key(n % 2) for n in range(COUNT)], [tier.chunk(n) for n in range(COUNT)]) for _ in range(20)]
        server.kill()
        ends = [bits(tier.until(tier.adapter.get_load_event_fd(), lambda one=one: tier.adapter.query_load_result(one))) for one in task]
        tap.check(len(ends) == 20, "killed while chunks are loaded: each load ends", ends[-1])
        tap.check(tier.lookup([0]) == [False] and not tier.store([5]).is_successful() and tier.load([0]) == [False], "without it nothing is there")
        server.start()
        tap.check(nebula.becomes(lambda: tier.lookup([0, 1]) == [True, True]) and nebula.becomes(lambda: tier.load([1]) == [True]) and tier.has(0, 1),
                  "the server is back: its chunks are, too")
    finally:
        tier.adapter.close()
        if server.process.poll() is None:
            server.kill()


if __name__ == "__main__":
    sys.exit(run())
