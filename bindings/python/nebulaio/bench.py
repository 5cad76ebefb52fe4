"""Measures a training job: an epoch over a dataset, a checkpoint saved and restored.

    python3 -m nebulaio.bench epoch --bucket NAME [--objects 1000] [--object-bytes 102400]
    python3 -m nebulaio.bench checkpoint --bucket NAME [--bytes 268435456]

The server is the program's usual one: --endpoint, or NEBULAIO_ENDPOINT, and the keys of the environment. Each source
reads the same bytes, and sources take turns (--turns), so that other work of the machine affects all alike; the table
has the median of each and its ratio to the first. Sources beside the server's own ways:

    --http URL      the same server over HTTP: by this package, and by boto3 where it is installed
    --folder DIR    files in a folder, for example one that NFS mounts; more than once for several; with --cold DIR is
                    emptied from the page cache of this host before each turn (a file server's own cache stays)

Everything that is made has a prefix of its own, and goes away at the end. Needs numpy."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy

from . import data
from .errors import NebulaError
from .rdma import RDMAClient

THREADS = 16  # of boto3 and of the folder's readers
TENSORS = 8


class Source:
    """One way to the bytes. fill() stores them once, turn() is what is measured, clear() removes all."""

    name = ""

    def fill(self) -> None:
        raise NotImplementedError

    def ready(self) -> None:
        """Before each turn, outside of its time."""

    def turn(self, number: int) -> None:
        raise NotImplementedError

    def clear(self) -> None:
        raise NotImplementedError


def _wake(client: RDMAClient) -> None:
    """While other sources had their turns, an idle session may have been lost: then this makes the new one, not the turn."""
    try:
        client.ping()
    except NebulaError:
        client.ping()


def _forget_pages(paths: Sequence[str]) -> None:
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def _write_durably(path: str, pieces: Sequence[Any]) -> None:
    with open(path, "wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def _s3(options: argparse.Namespace) -> Any:
    """boto3's client, or None where it is not installed."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        return None
    access = os.environ.get("NEBULAIO_ACCESS_KEY") or os.environ.get("AWS_ACCESS_KEY_ID")
    secret = os.environ.get("NEBULAIO_SECRET_KEY") or os.environ.get("AWS_SECRET_ACCESS_KEY")
    return boto3.client("s3", endpoint_url=options.http, region_name="us-east-1", aws_access_key_id=access,
                        aws_secret_access_key=secret, config=Config(max_pool_connections=THREADS,
                                                                    s3={"addressing_style": "path"}))


# ---- An epoch: every object once, in another order each time. ----

class Dataset:
    """Objects of one size and their bytes, which are made again from the number instead of kept."""

    def __init__(self, options: argparse.Namespace, prefix: str) -> None:
        self.bucket, self.count, self.bytes = options.bucket, options.objects, options.object_bytes
        self.prefix = prefix
        self._noise = numpy.random.default_rng(1).integers(0, 256, self.bytes, numpy.uint8)

    def key(self, number: int) -> str:
        return f"{self.prefix}{number:08d}"

    def body(self, number: int) -> Any:
        return self._noise ^ numpy.uint8(number % 251)

    def check(self, key: str, array: Any) -> None:
        number = int(key.rsplit("/", 1)[-1])
        if len(array) != self.bytes or array[0] != self._noise[0] ^ (number % 251) or array[-1] != self._noise[-1] ^ (number % 251):
            raise SystemExit(f"nebulaio.bench: {key}: these are not the bytes that were stored")

    def order(self, turn: int) -> list[int]:
        return [int(number) for number in numpy.random.default_rng((0, turn)).permutation(self.count)]

    def expect(self, seen: int) -> None:
        if seen != self.count:
            raise SystemExit(f"nebulaio.bench: {seen} of {self.count} objects came")


class StoreEpoch(Source):
    """This package's loader, many objects by one call. Those of one server have the same objects: one of them fills."""

    def __init__(self, name: str, client: RDMAClient, dataset: Dataset, fills: bool) -> None:
        self.name, self._client, self._set, self._fills = name, client, dataset, fills
        self._loader: data.EpochDataset | None = None

    def fill(self) -> None:
        if self._fills:
            for at in range(0, self._set.count, 64):
                numbers = range(at, min(at + 64, self._set.count))
                self._client.put_many((self._set.bucket, self._set.key(number), self._set.body(number)) for number in numbers)

    def ready(self) -> None:
        _wake(self._client)
        if not self._loader:
            self._loader = data.EpochDataset(self._client, self._set.bucket, prefix=self._set.prefix,
                                             decode=lambda key, array: (key, array))

    def turn(self, number: int) -> None:
        assert self._loader
        self._loader.set_epoch(number)
        seen = 0
        for key, array in self._loader:
            self._set.check(key, array)
            seen += 1
        self._set.expect(seen)

    def clear(self) -> None:
        if self._fills:
            _wake(self._client)
            self._client.delete_many((self._set.bucket, self._set.key(number)) for number in range(self._set.count))


class ThreadsEpoch(Source):
    """One object a call, on threads."""

    def _read(self, number: int) -> Any:
        raise NotImplementedError

    def __init__(self, dataset: Dataset) -> None:
        self._set = dataset

    def turn(self, number: int) -> None:
        seen = 0
        with ThreadPoolExecutor(THREADS) as pool:
            order = self._set.order(number)
            for at, body in zip(order, pool.map(self._read, order)):
                self._set.check(self._set.key(at), body)
                seen += 1
        self._set.expect(seen)


class BotoEpoch(ThreadsEpoch):
    name = f"boto3, {THREADS} threads"

    def __init__(self, s3: Any, dataset: Dataset) -> None:
        super().__init__(dataset)
        self._s3 = s3

    def fill(self) -> None:
        pass  # the store's objects

    def _read(self, number: int) -> Any:
        answer = self._s3.get_object(Bucket=self._set.bucket, Key=self._set.key(number))
        return numpy.frombuffer(answer["Body"].read(), numpy.uint8)

    def clear(self) -> None:
        pass


class FolderEpoch(ThreadsEpoch):
    def __init__(self, folder: str, cold: bool, dataset: Dataset) -> None:
        super().__init__(dataset)
        self.name = f"files in {folder}{', cold' if cold else ''}, {THREADS} threads"
        self._folder, self._cold = os.path.join(folder, dataset.prefix.strip("/")), cold

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"{number:08d}")

    def fill(self) -> None:
        os.makedirs(self._folder)
        for number in range(self._set.count):
            _write_durably(self._path(number), [self._set.body(number)])

    def ready(self) -> None:
        if self._cold:
            _forget_pages([self._path(number) for number in range(self._set.count)])

    def _read(self, number: int) -> Any:
        with open(self._path(number), "rb", buffering=0) as file:
            array = numpy.empty(self._set.bytes, numpy.uint8)
            if file.readinto(array.data) != self._set.bytes:
                raise SystemExit(f"nebulaio.bench: {self._path(number)} is short")
        return array

    def clear(self) -> None:
        for number in range(self._set.count):
            try:
                os.unlink(self._path(number))
            except FileNotFoundError:
                pass
        if os.path.isdir(self._folder):
            os.rmdir(self._folder)


# ---- A checkpoint: saved until it is durable, and restored into memory that is there. ----

class Tensors:
    """The arrays that are saved, and the memory that receives them."""

    def __init__(self, total_bytes: int) -> None:
        each = total_bytes // TENSORS // 4
        self.saved = {f"block{number}": numpy.arange(number, each + number, dtype="f4") for number in range(TENSORS)}
        self.into = {name: numpy.ones_like(array) for name, array in self.saved.items()}
        self.bytes = sum(array.nbytes for array in self.saved.values())


class Checkpoint(Source):
    """An even turn saves, the odd one after it restores and compares."""

    def __init__(self, tensors: Tensors) -> None:
        self.tensors, self.into = tensors.saved, tensors.into

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def fill(self) -> None:
        self.save()

    def turn(self, number: int) -> None:
        if number % 2 == 0:
            self.save()
        else:
            self.restore()

    def ready(self) -> None:
        for array in self.into.values():
            array[0] = -1

    def check(self) -> None:
        if not all((self.into[name] == array).all() for name, array in self.tensors.items()):
            raise SystemExit(f"nebulaio.bench: {self.name}: other tensors came back than were saved")


class StoreCheckpoint(Checkpoint):
    def __init__(self, name: str, client: RDMAClient, tensors: Tensors, bucket: str, key: str) -> None:
        super().__init__(tensors)
        self.name, self._client, self._bucket, self._key = name, client, bucket, key

    def ready(self) -> None:
        super().ready()
        _wake(self._client)

    def save(self) -> None:
        data.save_tensors(self._client, self._bucket, self._key, self.tensors)

    def restore(self) -> None:
        data.load_tensors(self._client, self._bucket, self._key, self.into)

    def clear(self) -> None:
        _wake(self._client)
        self._client.delete_object(self._bucket, self._key)


class BotoCheckpoint(Checkpoint):
    name = "boto3, its transfer manager"

    def __init__(self, s3: Any, tensors: Tensors, bucket: str, key: str) -> None:
        super().__init__(tensors)
        self._s3, self._bucket, self._key = s3, bucket, key

    def _name(self, name: str) -> str:
        return f"{self._key}-{name}"

    def save(self) -> None:
        import io
        for name, array in self.tensors.items():
            self._s3.upload_fileobj(io.BytesIO(array.data.cast("B")), self._bucket, self._name(name))

    def restore(self) -> None:
        import io
        for name, array in self.into.items():
            file = io.BytesIO()
            self._s3.download_fileobj(self._bucket, self._name(name), file)
            array[:] = numpy.frombuffer(file.getbuffer(), array.dtype)

    def clear(self) -> None:
        for name in self.tensors:
            self._s3.delete_object(Bucket=self._bucket, Key=self._name(name))


class FolderCheckpoint(Checkpoint):
    def __init__(self, folder: str, key: str, cold: bool, tensors: Tensors) -> None:
        super().__init__(tensors)
        self.name, self._path, self._cold = f"a file in {folder}{', cold' if cold else ''}", os.path.join(folder, key), cold

    def save(self) -> None:
        _write_durably(self._path, [array.data for array in self.tensors.values()])

    def ready(self) -> None:
        super().ready()
        if self._cold and os.path.exists(self._path):
            _forget_pages([self._path])

    def restore(self) -> None:
        with open(self._path, "rb", buffering=0) as file:
            for array in self.into.values():
                view, at = array.data.cast("B"), 0
                while at < len(view):
                    got = file.readinto(view[at:])
                    if not got:
                        raise SystemExit(f"nebulaio.bench: {self._path} is short")
                    at += got

    def clear(self) -> None:
        if os.path.exists(self._path):
            os.unlink(self._path)


# ---- Running and telling. ----

def _clients(options: argparse.Namespace) -> list[tuple[str, RDMAClient]]:
    """The store's ways: RDMA alone, whose session is set up again when it is lost, and HTTP if asked for."""
    extra: dict[str, Any] = {"device_name": options.device} if options.device else {}
    ways = [("rdma", RDMAClient(options.endpoint, transport="rdma", request_timeout=120.0, **extra))]
    if options.http:
        ways.append(("http", RDMAClient(options.http, transport="http", request_timeout=120.0)))
    return ways


def _measured(sources: Sequence[Source], turns: int, step: Callable[[Source, int], float]) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {source.name: [] for source in sources}
    for turn in range(turns):
        for source in sources if turn % 2 == 0 else reversed(sources):
            took[source.name].append(step(source, turn))
            print(f"turn {turn + 1} of {turns}: {source.name}: {took[source.name][-1]:.3f} s", file=sys.stderr, flush=True)
    return took


def _compared(sources: Sequence[Source], ways: Sequence[tuple[str, RDMAClient]], turns: int,
              step: Callable[[Source, int], float]) -> dict[str, list[float]]:
    """Fills all sources, measures them, and leaves nothing."""
    try:
        for source in sources:
            source.fill()
        return _measured(sources, turns, step)
    finally:
        for source in sources:
            source.clear()
        for _, client in ways:
            client.close()


def _timed(source: Source, number: int) -> float:
    source.ready()
    begin = time.monotonic()
    source.turn(number)
    return time.monotonic() - begin


def _rows(what: str, took: dict[str, list[float]], total_bytes: int) -> list[dict[str, Any]]:
    """Ratios are those of each turn, so that only times of one moment are compared."""
    first = next(iter(took.values()))
    return [{"what": what, "source": name, "seconds": statistics.median(seconds), "least": min(seconds), "most": max(seconds),
             "bytes_per_second": total_bytes / statistics.median(seconds),
             "times_the_first": statistics.median(mine / its for mine, its in zip(seconds, first))}
            for name, seconds in took.items()]


def _tell(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"rows": list(rows)}))
        return
    width = max(32, *(len(row["source"]) for row in rows))
    print(f"{'':12} {'source':{width}} {'median s':>10} {'min':>9} {'max':>9} {'MiB/s':>10} {'of first':>9}")
    for row in rows:
        print(f"{row['what']:12} {row['source']:{width}} {row['seconds']:10.3f} {row['least']:9.3f} {row['most']:9.3f} "
              f"{row['bytes_per_second'] / (1 << 20):10.1f} {row['times_the_first']:9.2f}")


def epoch(options: argparse.Namespace) -> list[dict[str, Any]]:
    dataset = Dataset(options, f"nebulaio-bench-{uuid.uuid4().hex}/")
    ways = _clients(options)
    sources: list[Source] = [StoreEpoch(name, client, dataset, number == 0) for number, (name, client) in enumerate(ways)]
    s3 = _s3(options) if options.http else None
    if s3:
        sources.append(BotoEpoch(s3, dataset))
    sources += [FolderEpoch(folder, options.cold, dataset) for folder in options.folder]
    took = _compared(sources, ways, options.turns, _timed)
    return _rows("epoch", took, dataset.count * dataset.bytes)


def checkpoint(options: argparse.Namespace) -> list[dict[str, Any]]:
    key = f"nebulaio-bench-{uuid.uuid4().hex}"
    tensors = Tensors(options.bytes)
    ways = _clients(options)
    sources: list[Checkpoint] = [StoreCheckpoint(name, client, tensors, options.bucket, f"{key}-{name}")
                                 for name, client in ways]
    s3 = _s3(options) if options.http else None
    if s3:
        sources.append(BotoCheckpoint(s3, tensors, options.bucket, key))
    sources += [FolderCheckpoint(folder, key, options.cold, tensors) for folder in options.folder]
    restored: dict[str, list[float]] = {source.name: [] for source in sources}

    def both(source: Source, turn: int) -> float:
        assert isinstance(source, Checkpoint)
        saving = _timed(source, 2 * turn)
        restored[source.name].append(_timed(source, 2 * turn + 1))
        source.check()
        return saving

    saved = _compared(sources, ways, options.turns, both)
    return _rows("save", saved, tensors.bytes) + _rows("restore", restored, tensors.bytes)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _size(text: str) -> int:
    number = _positive(text)
    if number < 4 * TENSORS:
        raise argparse.ArgumentTypeError(f"at least {4 * TENSORS} bytes: {TENSORS} tensors of four")
    return number


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--bucket", required=True, help="an existing bucket")
    common.add_argument("--endpoint", help="HOST:PORT of RDMA (NEBULAIO_ENDPOINT)")
    common.add_argument("--device", help="RDMA device, for example simulated (NEBULAIO_RDMA_DEVICE_NAME)")
    common.add_argument("--http", metavar="URL", help="the same server's HTTP: http://HOST:PORT")
    common.add_argument("--folder", metavar="DIR", action="append", default=[], help="an existing folder to compare with; may be repeated")
    common.add_argument("--cold", action="store_true", help="forget DIR's pages on this host before each turn")
    common.add_argument("--turns", type=_positive, default=5)
    common.add_argument("--json", action="store_true")
    parser = argparse.ArgumentParser(prog="python3 -m nebulaio.bench", description="Measures a training job.")
    which = parser.add_subparsers(dest="which", required=True)
    sets = which.add_parser("epoch", parents=[common], help="every object of a dataset once, in another order each turn")
    sets.add_argument("--objects", type=_positive, default=1000)
    sets.add_argument("--object-bytes", type=_positive, default=100 << 10)
    saves = which.add_parser("checkpoint", parents=[common], help="tensors saved until they are durable, and restored")
    saves.add_argument("--bytes", type=_size, default=256 << 20)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.cold and not options.folder:
        _parser().error("--cold is for --folder")
    try:
        _tell(epoch(options) if options.which == "epoch" else checkpoint(options), options.json)
    except (NebulaError, OSError, ValueError) as error:
        print(f"nebulaio.bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
