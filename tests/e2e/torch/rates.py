"""tests/e2e/torch/rates.py: rates beside S3's own Python packages, against one server, in turns: a Dataset of 100 KiB objects by
workers of a DataLoader, beside boto3, s3torchconnector, and a Dataset that reads nothing, which shows the limit of the loader; a checkpoint saved and loaded by torch.distributed.checkpoint,
beside s3torchconnector. Every byte is compared; rates are printed, not judged. Of 16 MiB once, or of $NEBULAIO_TEST_MIB twice."""

import importlib.util
import os
import pathlib
import resource
import sys
import time
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from package import KEYS, MIB, needs, opened, run, tap  # noqa: E402

import numpy  # noqa: E402
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from nebulaio import data  # noqa: E402
from nebulaio.checkpoint import Reader, Writer  # noqa: E402

HTTP = "http://" + os.environ["NEBULAIO_TEST_HTTP"]
BYTES = max(16, int(os.environ.get("NEBULAIO_TEST_MIB", "16"))) * MIB
BUCKET, OBJECT_BYTES = "rates", 100 << 10
COUNT = BYTES // OBJECT_BYTES
BATCH = 32
FULL = BYTES > 16 * MIB
TURNS = 2 if FULL else 1
WORKERS = (1, 2, 4) if FULL else (2,)
os.environ.update(AWS_ACCESS_KEY_ID=KEYS[0], AWS_SECRET_ACCESS_KEY=KEYS[1], AWS_EC2_METADATA_DISABLED="true")


def body(number):
    return numpy.random.default_rng(number).bytes(OBJECT_BYTES)


def processor():
    """Seconds of this process and of its children that ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


class Timed:
    def __enter__(self):
        self.wall, self.processor = time.perf_counter(), processor()
        return self

    def __exit__(self, *_):
        self.wall, self.processor = time.perf_counter() - self.wall, processor() - self.processor

    def told(self, size):
        return f"{size / 1e9 / self.wall:.3f} GB/s, {self.processor / size * 1e9:.2f} s of processor time for a GB"


class Nothing(Dataset):
    """Reads nothing: zeros of the same size."""

    def __len__(self):
        return COUNT

    def __getitem__(self, number):
        return numpy.zeros(OBJECT_BYTES, numpy.uint8)


class ByBoto3(Dataset):
    """As people write it: a client in each worker, an object at a time."""

    def __init__(self, keys):
        self.keys, self.client = keys, None

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, number):
        if not self.client:
            import boto3
            from botocore.config import Config

            self.client = boto3.client("s3", endpoint_url=HTTP, region_name="us-east-1", config=Config(s3={"addressing_style": "path"}))
        return numpy.frombuffer(bytearray(self.client.get_object(Bucket=BUCKET, Key=self.keys[number])["Body"].read()), numpy.uint8)


def whole(object_):
    """An object of s3torchconnector, which a DataLoader's workers decode."""
    return numpy.frombuffer(bytearray(object_.read()), numpy.uint8)


def connector():
    from s3torchconnector import S3ClientConfig

    return {"region": "us-east-1", "endpoint": HTTP}, S3ClientConfig(force_path_style=True)


def by_connector(_):
    from s3torchconnector import S3MapDataset

    where, config = connector()
    return S3MapDataset.from_prefix(f"s3://{BUCKET}/objects/", transform=whole, s3client_config=config, **where)


def ways():
    """Name, and the dataset that it makes of a client and a listing."""
    found = [("EpochDataset, over RDMA (simulated)", lambda client, keys: data.EpochDataset(client, BUCKET, keys, decode=lambda _, array: array))]
    if importlib.util.find_spec("boto3"):
        found.append(("boto3", lambda client, keys: ByBoto3([key.key for key in keys])))
    if importlib.util.find_spec("s3torchconnector"):
        found.append(("s3torchconnector", lambda client, keys: by_connector(keys)))
    return [*found, ("no storage", lambda client, keys: Nothing())]


@needs()
def test_dataset():
    with opened() as client:
        client.create_bucket(BUCKET)
        client.put_many((BUCKET, f"objects/{number:06}", body(number)) for number in range(COUNT))
        keys = client.list_objects(BUCKET, "objects/")
        expected = sorted(hash(body(number)) for number in range(COUNT))
        for workers in WORKERS:
            for turn in range(TURNS):
                for name, make in ways()[::-1 if turn % 2 else 1]:
                    loader = DataLoader(make(client, keys), num_workers=workers, batch_size=BATCH)
                    with Timed() as timed:
                        batches = list(loader)
                    found = sorted(hash(row.numpy().tobytes()) for batch in batches for row in batch)
                    tap.check(found == expected or (name == "no storage" and len(found) == COUNT), f"{workers} workers, {name}: every byte, turn {turn}")
                    print(f"# dataset: {COUNT} objects of 100 KiB in batches of {BATCH}, {workers} workers, {name}: {timed.told(COUNT * OBJECT_BYTES)}; "
                          f"load of the machine {os.getloadavg()[0]:.1f}", flush=True)
                    del batches


def checkpoints(client):
    """Name, and the writer and the reader of a checkpoint with this number."""
    found = [("nebulaio.checkpoint, over RDMA (simulated)", lambda number: (
        Writer(client, BUCKET, f"ours/{number}"), Reader(client, BUCKET, f"ours/{number}")))]
    if importlib.util.find_spec("s3torchconnector"):
        from s3torchconnector._s3client import S3Client
        from s3torchconnector.dcp import S3StorageReader, S3StorageWriter
        from s3torchconnector.dcp.s3_file_system import S3FileSystem

        where, config = connector()

        def theirs(number):
            both = [kind("us-east-1", f"s3://{BUCKET}/theirs/{number}/") for kind in (S3StorageWriter, S3StorageReader)]
            for one in both:  # neither takes an endpoint
                one.fs = S3FileSystem("us-east-1", s3_client=S3Client(**where, s3client_config=config))
            return both

        found.append(("s3torchconnector", theirs))
    return found


@needs()
def test_checkpoint():
    tensors = 8
    with opened() as client:
        for turn in range(TURNS):
            state = {f"layer.{number}": torch.randn(BYTES // tensors // 4) for number in range(tensors)}
            for name, make in checkpoints(client)[::-1 if turn % 2 else 1]:
                writer, reader = make(turn)
                with Timed() as saved:
                    dcp.save(state, storage_writer=writer, no_dist=True)
                loaded = {key: torch.zeros_like(tensor) for key, tensor in state.items()}
                with Timed() as read:
                    dcp.load(loaded, storage_reader=reader, no_dist=True)
                tap.check(all(torch.equal(loaded[key], tensor) for key, tensor in state.items()), f"a checkpoint by {name}: every byte, turn {turn}")
                print(f"# checkpoint of {BYTES // MIB} MiB, {name}: saved {saved.told(BYTES)}; loaded {read.told(BYTES)}; "
                      f"load of the machine {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(run())
