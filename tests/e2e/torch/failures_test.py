"""tests/e2e/torch/failures_test.py: checkpoints, files of torch.save() and datasets when something is missing: rights, keys, memory,
the rest of an iteration, the server. run-torch starts it with a server."""

import io
import os
import pathlib
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import nebula  # noqa: E402
from package import KEYS, MIB, needs, opened, run, tap, tenant_keys  # noqa: E402

import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402

from nebulaio import RDMAClient, data  # noqa: E402
from nebulaio.checkpoint import Reader, Writer  # noqa: E402
from nebulaio.torchfile import TorchFile  # noqa: E402

FOLDER = pathlib.Path(os.environ["NEBULAIO_TEST_DIR"])
RDMA = os.environ["NEBULAIO_TEST_RDMA"]
BUCKET, COUNT = "failures", 40
nebula.ACCESS_KEY, nebula.SECRET_KEY = KEYS


def filled(client, bucket):
    """Objects, a checkpoint and a file in a bucket; what they hold."""
    client.create_bucket(bucket)
    client.put_many((bucket, f"objects/{number:03}", bytes([number]) * (100 << 10)) for number in range(COUNT))
    state = {"weight": torch.arange(MIB, dtype=torch.float32)}
    dcp.save(state, storage_writer=Writer(client, bucket, "checkpoint"), no_dist=True)
    written = io.BytesIO()
    torch.save(state, written)
    client.put_object(bucket, "file.pt", written.getbuffer())
    return state


def users(client, bucket, keys):
    """Each way to read, by name."""
    state = {"weight": torch.zeros(MIB)}
    file = "file.pt"
    return {"EpochDataset": lambda: list(data.EpochDataset(client, bucket, keys, batch=8)),
            "StreamDataset": lambda: list(data.StreamDataset(client, bucket, keys)),
            "ObjectDataset": lambda: data.ObjectDataset(client, bucket, keys).__getitems__(range(COUNT)),
            "checkpoint.Reader": lambda: dcp.load(state, storage_reader=Reader(client, bucket, "checkpoint"), no_dist=True),
            "TorchFile": lambda: (lambda one: one.load(one.content))(TorchFile(client, bucket, file))}


def failure(call):
    """The error in what a call raises; torch wraps it in one that is no Exception. None: it succeeded."""
    try:
        call()
        return None
    except BaseException as error:
        return str(error)


@needs()
def test_rights():
    with opened() as client:
        filled(client, BUCKET)
        keys = client.list_objects(BUCKET, "objects/")
        for name, read in users(client, BUCKET, keys).items():
            tap.check(failure(read) is None, f"{name} reads")
        for who, given, words in (("a tenant of another bucket", tenant_keys(), ("AccessDenied", "403", "Access Denied")),
                                  ("wrong keys", ("minioadmin", "wrong-secret"), ("SignatureDoesNotMatch", "proof", "403"))):
            with RDMAClient(RDMA, *given) as other:
                for name, read in users(other, BUCKET, keys).items():
                    said = failure(read)
                    tap.check(said and any(word in said for word in words), f"{name}: {who} is refused", said)
                said = failure(lambda: dcp.save({"weight": torch.ones(3)}, storage_writer=Writer(other, BUCKET, "theirs"), no_dist=True))
                tap.check(said and not client.list_objects(BUCKET, "theirs/"), f"checkpoint.Writer: {who} is refused, and leaves nothing", said)


@needs()
def test_scarce():
    """A pool that has no room for an object, and an iteration that ends early."""
    with opened(pool_bytes=MIB) as client:
        held = client.allocate_buffer(MIB - (64 << 10))
        keys = client.list_objects(BUCKET, "objects/")
        found = dict(data.prefetch(client.clone(), BUCKET, keys, pooled=True))
        tap.check(len(found) == COUNT and all(array[0] == array[-1] == int(key[-3:]) for key, array in found.items()), "a pool without room: every byte")
        for name, read in users(client, BUCKET, keys).items():
            tap.check(failure(read) is None, f"{name}: a pool without room")
        held.release()
        before = threading.active_count()
        for make in (data.EpochDataset, data.StreamDataset):
            dataset = make(client, BUCKET, keys)
            for _ in zip(range(5), dataset):
                pass
            tap.check(failure(lambda dataset=dataset: list(dataset)) is None, f"{make.__name__}: an iteration that ended early, and the next one")
        tap.check(nebula.becomes(lambda: threading.active_count() == before), "no thread is left", threading.enumerate())


@needs()
def test_killed():
    port = nebula.kept_port()
    server = nebula.Server(FOLDER / "killed", FOLDER / "killed.log", "--rdma", f"127.0.0.1:{port}").start()
    try:
        with RDMAClient(f"127.0.0.1:{port}", *KEYS) as patient:
            expected = filled(patient, BUCKET)
            keys = patient.list_objects(BUCKET, "objects/")
        # Each call takes so long when nobody answers; the first client's must succeed before and after that, also on a busy
        # machine.
        with RDMAClient(f"127.0.0.1:{port}", *KEYS, request_timeout=30) as client, \
                RDMAClient(f"127.0.0.1:{port}", *KEYS, request_timeout=5) as brief:
            items = iter(data.EpochDataset(client, BUCKET, keys, batch=4))
            stream = iter(data.StreamDataset(client, BUCKET, keys, depth=2))
            file = TorchFile(client, BUCKET, "file.pt")
            next(items), next(stream)
            server.kill()
            for name, rest in (("EpochDataset", items), ("StreamDataset", stream)):
                said = failure(lambda rest=rest: list(rest))
                tap.check(said, f"{name}: killed while it iterates: an error", said)
            said = failure(lambda: file.load(file.content))
            tap.check(said, "TorchFile: killed between structure and tensors: an error", said)
            for name, read in users(brief, BUCKET, keys).items():
                tap.check(failure(read), f"{name}: a killed server is an error")
            server.start()
            loaded = {"weight": torch.zeros(MIB)}
            tap.check(nebula.becomes(lambda: failure(lambda: dcp.load(loaded, storage_reader=Reader(client, BUCKET, "checkpoint"), no_dist=True)) is None) and
                      torch.equal(loaded["weight"], expected["weight"]), "the server is back: the checkpoint is, too")
            tap.check(torch.equal(file.load(file.content)["weight"], expected["weight"]), "and the file that was open")
    finally:
        if server.process.poll() is None:
            server.kill()


if __name__ == "__main__":
    sys.exit(run())
