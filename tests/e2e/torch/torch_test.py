"""tests/e2e/torch/torch_test.py: torch.distributed.checkpoint over NebulaIO, by nebulaio.checkpoint and by torch's own
fsspec classes: one process, and ranks that exchange their plans by gloo. run-torch starts it with a server."""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from package import KEYS, MIB, RDMA, needs, opened, run, tap  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

from nebulaio.checkpoint import Reader, Writer  # noqa: E402

BUCKET = "checkpoints"
ROWS, COLUMNS = 301, 40  # no number of ranks divides it


def made(seed):
    torch.manual_seed(seed)
    return {"model": {"weight": torch.randn(1000, 300), "bias": torch.randn(300), "half": torch.randn(64, 64).bfloat16(),
                      "scalar": torch.tensor(3.5), "empty": torch.empty(0, 4), "turned": torch.randn(30, 50).t(),
                      "flags": torch.rand(1000) > 0.5, "large": torch.randn(3 * MIB)},
            "step": seed, "name": "run"}


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@needs()
def test_one_process():
    with opened() as client:
        client.create_bucket(BUCKET)
        state = made(1)
        copied = client.stats().bytes_copied
        dcp.save(state, storage_writer=Writer(client, BUCKET, "one"))
        small = sum(t.nbytes for t in state["model"].values() if isinstance(t, torch.Tensor) and t.nbytes <= 64 << 10)
        tap.check(client.stats().bytes_copied - copied < small + (64 << 10), "a save copies no large tensor",
                  client.stats().bytes_copied - copied)
        loaded = made(2)
        dcp.load(loaded, storage_reader=Reader(client, BUCKET, "one"))
        tap.check(same(loaded, state), "every tensor and value is back", loaded)
        part = {"model": {"bias": torch.zeros(300), "large": torch.zeros(3 * MIB)}}
        before = client.stats().requests_rdma
        dcp.load(part, storage_reader=Reader(client, BUCKET, "one"))
        tap.check(torch.equal(part["model"]["bias"], state["model"]["bias"]) and
                  torch.equal(part["model"]["large"], state["model"]["large"]) and
                  client.stats().requests_rdma - before == 3, "two tensors alone: their ranges and the metadata",
                  client.stats().requests_rdma - before)
        newer = made(3)
        dcp.save(newer, storage_writer=Writer(client, BUCKET, "one"))
        dcp.load(loaded, storage_reader=Reader(client, BUCKET, "one"))
        keys = [entry.key for entry in client.list_objects(BUCKET, "one/")]
        tap.check(same(loaded, newer) and len(keys) == 2, "a checkpoint is replaced, and the old one's objects go", keys)
        reader = Reader(client, BUCKET, "one")
        metadata = reader.read_metadata()
        shard = next(key for key in keys if key.endswith(".shard"))
        body = client.get_object(BUCKET, shard)
        client.put_object(BUCKET, shard, body[:-1] + b"?")
        try:
            dcp.load(made(2), storage_reader=Reader(client, BUCKET, "one"))
            tap.check(False, "a shard that is another object is refused")
        except BaseException as error:  # torch wraps it in one that is no Exception
            tap.check("not the object" in str(error), "a shard that is another object is refused", error)
        tap.check(metadata.storage_meta is not None, "the metadata names its storage")


@needs()
def test_many_tensors():
    with opened() as client:
        state = {"model": {f"layer{i}": torch.randn(100 + i) for i in range(40)}}  # more than one request takes
        dcp.save(state, storage_writer=Writer(client, BUCKET, "many"))
        loaded = {"model": {name: torch.zeros_like(tensor) for name, tensor in state["model"].items()}}
        dcp.load(loaded, storage_reader=Reader(client, BUCKET, "many"))
        tap.check(same(loaded, state), "a checkpoint of 40 tensors, which goes in parts")


@needs()
def test_async():
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
    try:
        with opened() as client:
            state = made(4)
            future = dcp.async_save(state, storage_writer=Writer(client, BUCKET, "async"))
            for tensor in state["model"].values():
                tensor.zero_()  # training goes on: what is saved is what was
            future.result()
            loaded = made(5)
            dcp.load(loaded, storage_reader=Reader(client, BUCKET, "async"))
            tap.check(same(loaded, made(4)), "a save in the background has the state of its begin")
    finally:
        dist.destroy_process_group()


@needs("fsspec")
def test_fsspec():
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

    options = {"endpoint": RDMA, "access_key": KEYS[0], "secret_key": KEYS[1]}
    state, loaded = made(6), made(7)
    path = f"nebulaio://{BUCKET}/by-fsspec"
    dcp.save(state, storage_writer=FsspecWriter(path, **options))
    dcp.load(loaded, storage_reader=FsspecReader(path, **options))
    tap.check(same(loaded, state), "torch's own FsspecWriter and FsspecReader over nebulaio://")
    dcp.save(made(8), storage_writer=FsspecWriter(path, **options))
    dcp.load(loaded, storage_reader=FsspecReader(path, **options))
    tap.check(same(loaded, made(8)), "and a second time to the same path")


# ---- Ranks. ----


def whole():
    return torch.arange(ROWS * COLUMNS, dtype=torch.float32).reshape(ROWS, COLUMNS)


def rank_main(rank, count, port, job, dim, good):
    """A rank of a save, or of a load which checks that its shard is right."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(count))
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (count,))
    tensor = whole() if job == "save" else torch.zeros(ROWS, COLUMNS)
    state = {"sharded": distribute_tensor(tensor, mesh, [Shard(dim)]), "step": 9 if job == "save" else 0}
    with opened() as client:
        if job == "save":
            dcp.save(state, storage_writer=Writer(client, BUCKET, "sharded"))
        else:
            dcp.load(state, storage_reader=Reader(client, BUCKET, "sharded"))
    expected = distribute_tensor(whole(), mesh, [Shard(dim)])
    good[rank] = int(torch.equal(state["sharded"].to_local(), expected.to_local()) and state["step"] == 9)
    dist.destroy_process_group()


def ranks(count, port, job, dim):
    good = mp.get_context("spawn").Array("i", [0] * count)
    mp.spawn(rank_main, (count, port, job, dim, good), nprocs=count)
    return list(good) == [1] * count


@needs()
def test_ranks():
    import nebula

    tap.check(ranks(2, nebula.kept_port(), "save", 0), "two ranks save their rows")
    with opened() as client:
        shards = [entry.key for entry in client.list_objects(BUCKET, "sharded/") if entry.key.endswith(".shard")]
        tap.check(len(shards) == 2, "an object for each rank", shards)
    tap.check(ranks(3, nebula.kept_port(), "load", 0), "three ranks load other rows")
    tap.check(ranks(2, nebula.kept_port(), "load", 1), "two ranks load columns")
    with opened() as client:
        state = {"sharded": torch.zeros(ROWS, COLUMNS), "step": 0}
        dcp.load(state, storage_reader=Reader(client, BUCKET, "sharded"))
        tap.check(torch.equal(state["sharded"], whole()) and state["step"] == 9, "one process loads all")


@needs("fsspec")
def test_guide():
    """The blocks of checkpoints.md, one after the other."""
    import blocks

    guide = pathlib.Path(__file__).resolve().parents[3] / "docs/guide/checkpoints.md"
    program = [block for block in blocks.of(guide) if block.language == "python"]
    with opened() as client:
        for entry in client.list_objects(BUCKET):
            client.delete_object(BUCKET, entry.key)
        client.delete_bucket(BUCKET)
    names = {}
    for block in program:
        exec(compile(block.text, block.name, "exec"), names)
    dist.destroy_process_group()
    whole_step, part = names["state"], names["part"]["model"]["1.weight"]
    tap.check(len(program) == 6 and torch.equal(names["rows"], whole_step["model"]["0.weight"][100:200]), "checkpoints.md: rows of a tensor", program)
    tap.check(whole_step["step"] == 1000 and torch.equal(part, whole_step["model"]["1.weight"]),
              "checkpoints.md: its blocks run, and what comes back is what was saved")


if __name__ == "__main__":
    sys.exit(run())
