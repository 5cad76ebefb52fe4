"""tests/e2e/lmcache/rates.py: chunks stored and loaded by LMCache's plug-in of ours, and by LMCache's own S3 connector from the
same server in the same run: the same bytes; GB/s and seconds of processor time. Of 64 MiB, or $NEBULAIO_TEST_MIB."""

import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE)]
import nebula  # noqa: E402
from package import KEYS, MIB, RDMA, needs, opened, run, tap  # noqa: E402
from worlds import Engine, filled  # noqa: E402

# The connector speaks to bucket.DOMAIN alone: this bucket of the domain 0.0.1, which run-lmcache configures.
BUCKET = "127"
HTTP = os.environ["NEBULAIO_TEST_HTTP"]
LAYERS, TOKENS = 32, 256
CHUNK_BYTES = 4 * MIB
COUNT = max(1, int(os.environ.get("NEBULAIO_TEST_MIB", "64")) * MIB // CHUNK_BYTES)


def ours():
    return Engine({"nebulaio.endpoint": f"rdma://{RDMA}", "nebulaio.bucket": BUCKET, "nebulaio.access_key": KEYS[0],
                   "nebulaio.secret_key": KEYS[1], "nebulaio.pending_bytes": 1 << 40}, (COUNT + 2) * CHUNK_BYTES, layers=LAYERS, tokens=TOKENS)


def closed(one):
    """LMCache's own backend may wait for ever in its close(), so it ends with the process."""
    one.cpu.close()
    if type(one.backend).__name__ == "NebulaBackend":
        one.backend.close()


def theirs():
    from lmcache.v1.storage_backend.remote_backend import RemoteBackend

    one = ours()
    one.backend.close()
    one.config.remote_url = f"s3://{HTTP}"
    one.config.extra_config.update(s3_region="us-east-1", disable_tls=True, save_chunk_meta=False, s3_prefer_http2=False,
                                   aws_access_key_id=KEYS[0], aws_secret_access_key=KEYS[1])
    one.backend = RemoteBackend(one.config, one.metadata, one.loop, one.cpu, "cpu")
    return one


class Timed:
    def __enter__(self):
        self.wall, self.processor = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_):
        self.wall, self.processor = time.perf_counter() - self.wall, time.process_time() - self.processor

    def __str__(self):
        size = COUNT * CHUNK_BYTES / 1e9
        return f"{size / self.wall:.2f} GB/s, {self.processor / size:.2f} s of processor time for a GB"


@needs()
def test_rates():
    with opened() as client:
        client.create_bucket(BUCKET)
    for turn in range(2):
        for name, make in (("over RDMA (simulated)", ours), ("by LMCache's own S3 connector", theirs)):
            one = make()
            numbers = range(turn * COUNT, (turn + 1) * COUNT)
            objs = [one.chunk(number) for number in numbers]
            with Timed() as stored:
                one.stored(one.keys(*numbers), objs)
                nebula.becomes(lambda: not getattr(one.backend, "put_tasks", None))
            closed(one)
            one = make()
            with Timed() as loaded:
                there = one.backend.batched_contains(one.keys(*numbers))
                found = one.backend.batched_get_blocking(one.keys(*numbers))
            good = None not in found and all(bytes(obj.byte_array) == filled(number, CHUNK_BYTES) for obj, number in zip(found, numbers))
            for obj in found:
                if obj:
                    obj.ref_count_down()
            closed(one)
            tap.check(good and there == COUNT, f"{COUNT} chunks of 4 MiB {name}: every byte")
            print(f"# {name}: stored {stored}; loaded {loaded}; load of the machine {os.getloadavg()[0]:.1f}", flush=True)
            with opened() as client:
                client.delete_many([(BUCKET, entry.key) for entry in client.list_objects(BUCKET)])


if __name__ == "__main__":
    status = run()
    sys.stdout.flush()
    os._exit(status)
