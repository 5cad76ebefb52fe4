"""Training data in, checkpoints out.

prefetch()         objects one after the other, while the next ones are being received
ObjectDataset      objects by number; a torch.utils.data.Dataset where torch is installed
StreamDataset      objects in order, split among a DataLoader's workers, by prefetch()
EpochDataset       objects in another order each epoch, split among ranks and workers, many by one call; resumes
save_tensors(),    named arrays or tensors as one object, in the layout of the safetensors format: see tensors.py
load_tensors(), map_tensors(),
list_tensors()

Needs numpy; needs torch only for torch's own classes."""

from __future__ import annotations

import errno
import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from . import _native
from .errors import BufferTooSmallError, NebulaError
from .rdma import ObjectInfo, RDMAClient
from .tensors import TensorInfo, list_tensors, load_tensors, map_tensors, save_tensors

if TYPE_CHECKING:
    Dataset: Any = object
    IterableDataset: Any = object
else:
    try:
        from torch.utils.data import Dataset, IterableDataset
    except ImportError:
        Dataset = IterableDataset = object

__all__ = ["EpochDataset", "ObjectDataset", "StreamDataset", "TensorInfo", "list_tensors", "load_tensors", "map_tensors", "prefetch",
           "save_tensors"]

DEPTH = 16

Decode = Callable[[str, Any], Any]


def _objects(client: RDMAClient, bucket: str, keys: Iterable[Any] | None, prefix: str) -> list[tuple[str, int]]:
    """Key and length; 0 stands for an unknown length, which is asked for later."""
    if keys is None:
        return [(entry.key, entry.size) for entry in client.list_objects(bucket, prefix) if not entry.is_prefix]
    return [(key.key, key.size) if isinstance(key, ObjectInfo) else (key, 0) for key in keys]


def _room(client: RDMAClient, size: int, pooled: bool) -> Any:
    """Memory for an object; from the pool while it has room."""
    if pooled and size:
        try:
            return numpy.frombuffer(memoryview(client.allocate_buffer(size)), numpy.uint8)
        except NebulaError as error:
            if error.errno != errno.ENOMEM:
                raise
    return numpy.empty(size, numpy.uint8)


def prefetch(client: RDMAClient, bucket: str, keys: Iterable[Any] | None = None, *, prefix: str = "",
             depth: int = DEPTH, pooled: bool = True) -> Iterator[tuple[str, Any]]:
    """Yields (key, array of uint8) in the order of keys, or of everything below prefix. Up to depth objects are being
    received while the caller works: the server writes them into the arrays' memory. keys: strings, or the entries of
    list_objects(), which save a HEAD each. pooled: the arrays lie in the client's registered memory while that has room
    (pool_bytes); an array that is freed gives it back. This saves a registration for each array. Not for arrays that
    are kept for long: they keep the client's session open, too.

    From the first object to the last the iterator uses the client: give it its own (client.clone())."""
    native = client.native
    todo = deque(_objects(client, bucket, keys, prefix))
    ahead: deque[int] = deque()
    flights: dict[int, tuple[str, Any]] = {}
    landed: dict[int, Any] = {}

    def launch() -> None:
        key, size = todo.popleft()
        if not size:
            size = client.head_object(bucket, key).object_bytes
        array = _room(client, size, pooled)
        number = native.submit(_native.GET_OBJECT, bucket, key, into=array)
        flights[number] = (key, array)
        ahead.append(number)

    def wait_for(number: int) -> None:
        while number not in landed:
            pairs = native.wait()
            if not pairs:
                raise RuntimeError("another call took this iterator's results: give it a client of its own")
            landed.update(pairs)

    def land(number: int) -> tuple[str, Any]:
        wait_for(number)
        key, array = flights.pop(number)
        outcome = landed.pop(number)
        client._forget_all([array])
        if isinstance(outcome, BufferTooSmallError):  # it grew since it was listed
            return key, numpy.frombuffer(client.get_object(bucket, key), numpy.uint8)
        if isinstance(outcome, Exception):
            raise outcome
        return key, array[:outcome.bytes]

    try:
        while todo or ahead:
            while todo and len(ahead) < max(depth, 1):
                launch()
            yield land(ahead.popleft())
    finally:
        # Requests in flight still use their memory; their results are dropped.
        with client._passing([array for _, array in flights.values()]):
            while ahead and not native.closed:
                wait_for(ahead.popleft())


def _as_it_is(key: str, array: Any) -> Any:
    return array


class _PerProcess:
    """A client for each process: a worker that a DataLoader forks opens its own."""

    def __init__(self, client: RDMAClient) -> None:
        self._origin, self._client, self._pid = client, client, os.getpid()

    def get(self) -> RDMAClient:
        if self._pid != os.getpid():
            self._client, self._pid = self._origin.clone(), os.getpid()
        return self._client

    def __getstate__(self) -> dict[str, Any]:
        return {"client": self._origin}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["client"])  # type: ignore[misc]


class ObjectDataset(Dataset):  # type: ignore[misc]
    """Objects by number, each decoded by decode(key, array of uint8). A batch (__getitems__, which torch's loaders
    call) is one window of requests. pooled: as of prefetch(), but in the memory of the client itself, not of a clone."""

    def __init__(self, client: RDMAClient, bucket: str, keys: Iterable[Any] | None = None, *, prefix: str = "",
                 decode: Decode | None = None, pooled: bool = False) -> None:
        self._clients = _PerProcess(client)
        self._bucket = bucket
        self._objects = _objects(client, bucket, keys, prefix)
        self._decode: Decode = decode or _as_it_is
        self._pooled = pooled

    def __len__(self) -> int:
        return len(self._objects)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        client = self._clients.get()
        wanted = []
        for index in indices:
            key, size = self._objects[index]
            if not size:
                size = client.head_object(self._bucket, key).object_bytes
            wanted.append((self._bucket, key, _room(client, size, self._pooled)))
        with client._passing([array for _, _, array in wanted]):
            results = client.get_many(wanted)
        return [self._decode(key, array[:result.bytes]) for (_, key, array), result in zip(wanted, results)]


class StreamDataset(IterableDataset):  # type: ignore[misc]
    """Objects in order, while the next ones are being received. In a DataLoader each worker takes its share; elsewhere
    part=(number, count) selects one. pooled: as of prefetch()."""

    def __init__(self, client: RDMAClient, bucket: str, keys: Iterable[Any] | None = None, *, prefix: str = "",
                 depth: int = DEPTH, decode: Decode | None = None, part: tuple[int, int] = (0, 1),
                 pooled: bool = True) -> None:
        self._clients = _PerProcess(client)
        self._bucket, self._depth, self._part, self._pooled = bucket, depth, part, pooled
        self._entries = [ObjectInfo(key, False, size, "", "") for key, size in _objects(client, bucket, keys, prefix)]
        self._decode: Decode = decode or _as_it_is

    def __iter__(self) -> Iterator[Any]:
        number, count = _worker() or self._part
        with self._clients.get().clone() as client:
            for key, array in prefetch(client, self._bucket, self._entries[number::count], depth=self._depth,
                                       pooled=self._pooled):
                yield self._decode(key, array)


def _worker() -> tuple[int, int] | None:
    """Number and count of a DataLoader's workers, inside of one."""
    try:
        from torch.utils.data import get_worker_info  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    info = get_worker_info()
    return (info.id, info.num_workers) if info else None


class EpochDataset(IterableDataset):  # type: ignore[misc]
    """All objects once in each epoch, in an order that seed and epoch give. rank=(number, count) takes a share of that
    order, and in a DataLoader each worker a share of the rank's; every object is in one share. A call reads batch objects
    while the program has those of the call before. pooled: as of prefetch().

    state_dict() and load_state_dict() are those of the process that iterates, for which torchdata's
    StatefulDataLoader calls them in each worker: {"epoch", "taken"}: the next iteration goes on there. An iteration
    that ends moves on to the next epoch; set_epoch() chooses one, as for torch's DistributedSampler."""

    def __init__(self, client: RDMAClient, bucket: str, keys: Iterable[Any] | None = None, *, prefix: str = "",
                 seed: int = 0, batch: int = 64, rank: tuple[int, int] = (0, 1), part: tuple[int, int] = (0, 1),
                 decode: Decode | None = None, pooled: bool = True) -> None:
        if batch < 1 or not 0 <= rank[0] < rank[1] or not 0 <= part[0] < part[1]:
            raise ValueError(f"batch={batch}, rank={rank}, part={part}: one of them is out of bounds")
        self._clients = _PerProcess(client)
        self._bucket, self._seed, self._batch, self._rank, self._part = bucket, seed, batch, rank, part
        self._objects = _objects(client, bucket, keys, prefix)
        self._decode: Decode = decode or _as_it_is
        self._epoch = self._taken = 0
        self._pooled = pooled

    def __len__(self) -> int:
        """Objects of the rank's share."""
        return len(range(self._rank[0], len(self._objects), self._rank[1]))

    def set_epoch(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._epoch, self._taken = epoch, 0

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self._epoch, "taken": self._taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        epoch, taken = state["epoch"], state["taken"]
        if epoch < 0 or taken < 0:
            raise ValueError(f"no state of an iteration: {state}")
        self._epoch, self._taken = epoch, taken

    def _order(self) -> Any:
        """Numbers of this share's objects in this epoch."""
        order = numpy.random.default_rng((self._seed, self._epoch)).permutation(len(self._objects))
        number, count = _worker() or self._part
        return order[self._rank[0]::self._rank[1]][number::count]

    def _read(self, client: RDMAClient, numbers: Any) -> list[tuple[str, Any]]:
        objects = [self._objects[number] for number in numbers]
        unknown = [key for key, size in objects if not size]
        heads = dict(zip(unknown, client.head_many((self._bucket, key) for key in unknown)))
        arrays = [_room(client, size or heads[key].object_bytes, self._pooled) for key, size in objects]
        with client._passing(arrays):
            results = client.get_many((self._bucket, key, array) for (key, _), array in zip(objects, arrays))
        return [(key, array[:result.bytes]) for (key, _), array, result in zip(objects, arrays, results)]

    def __iter__(self) -> Iterator[Any]:
        order = self._order()
        parts = deque(order[at:at + self._batch] for at in range(self._taken, len(order), self._batch))
        with self._clients.get().clone() as client, ThreadPoolExecutor(1, "nebulaio-data") as reader:
            ahead = reader.submit(self._read, client, parts.popleft()) if parts else None
            while ahead:
                objects = ahead.result()
                ahead = reader.submit(self._read, client, parts.popleft()) if parts else None
                for key, array in objects:
                    self._taken += 1
                    yield self._decode(key, array)
        self._epoch, self._taken = self._epoch + 1, 0
