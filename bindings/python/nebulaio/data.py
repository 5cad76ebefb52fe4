"""Training data in, checkpoints out.

prefetch()         objects one after the other, while the next ones are being received
ObjectDataset      objects by number; a torch.utils.data.Dataset where torch is installed
StreamDataset      objects in order, split among a DataLoader's workers, by prefetch()
save_tensors(),    named arrays or tensors as one object, in the layout of the safetensors format: see tensors.py
load_tensors(),
list_tensors()

Needs numpy; needs torch only for torch's own classes."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from . import _native
from .errors import BufferTooSmallError, NebulaError
from .rdma import ObjectInfo, RDMAClient
from .tensors import TensorInfo, list_tensors, load_tensors, save_tensors

if TYPE_CHECKING:
    Dataset: Any = object
    IterableDataset: Any = object
else:
    try:
        from torch.utils.data import Dataset, IterableDataset
    except ImportError:
        Dataset = IterableDataset = object

__all__ = ["ObjectDataset", "StreamDataset", "TensorInfo", "list_tensors", "load_tensors", "prefetch", "save_tensors"]

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
             depth: int = DEPTH, pooled: bool = False) -> Iterator[tuple[str, Any]]:
    """Yields (key, array of uint8) in the order of keys, or of everything below prefix. Up to depth objects are being
    received while the caller works: the server writes them into the arrays' memory. keys: strings, or the entries of
    list_objects(), which save a HEAD each. pooled: the arrays lie in the client's registered memory while that has room
    (pool_bytes); an array that is freed gives it back. On a real card this saves a registration for each array.

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
    call) is one window of requests."""

    def __init__(self, client: RDMAClient, bucket: str, keys: Iterable[Any] | None = None, *, prefix: str = "",
                 decode: Decode | None = None) -> None:
        self._clients = _PerProcess(client)
        self._bucket = bucket
        self._objects = _objects(client, bucket, keys, prefix)
        self._decode: Decode = decode or _as_it_is

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
            wanted.append((self._bucket, key, numpy.empty(size, numpy.uint8)))
        results = client.get_many(wanted)
        return [self._decode(key, array[:result.bytes]) for (_, key, array), result in zip(wanted, results)]


class StreamDataset(IterableDataset):  # type: ignore[misc]
    """Objects in order, while the next ones are being received. In a DataLoader each worker takes its share; elsewhere
    part=(number, count) selects one."""

    def __init__(self, client: RDMAClient, bucket: str, keys: Iterable[Any] | None = None, *, prefix: str = "",
                 depth: int = DEPTH, decode: Decode | None = None, part: tuple[int, int] = (0, 1),
                 pooled: bool = False) -> None:
        self._clients = _PerProcess(client)
        self._bucket, self._depth, self._part, self._pooled = bucket, depth, part, pooled
        self._entries = [ObjectInfo(key, False, size, "", "") for key, size in _objects(client, bucket, keys, prefix)]
        self._decode: Decode = decode or _as_it_is

    def _share(self) -> tuple[int, int]:
        try:
            from torch.utils.data import get_worker_info  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            return self._part
        info = get_worker_info()
        return (info.id, info.num_workers) if info else self._part

    def __iter__(self) -> Iterator[Any]:
        number, count = self._share()
        with self._clients.get().clone() as client:
            for key, array in prefetch(client, self._bucket, self._entries[number::count], depth=self._depth,
                                       pooled=self._pooled):
                yield self._decode(key, array)
