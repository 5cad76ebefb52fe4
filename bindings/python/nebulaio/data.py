"""Training data in, checkpoints out.

prefetch()         objects one after the other, while the next ones are on their way
ObjectDataset      objects by number; a torch.utils.data.Dataset where torch is installed
StreamDataset      objects in order, split among a DataLoader's workers, by prefetch()
save_tensors(),    named arrays or tensors as one object, in the layout of the safetensors format
load_tensors()

Needs numpy; torch only where its own classes are wanted."""

from __future__ import annotations

import errno
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from . import _native
from .errors import BufferTooSmallError, NebulaError
from .multipart import PART_BYTES_MIN, MultipartUpload
from .npy import memory as memory_of
from .rdma import PUT_BYTES_MAX, ObjectInfo, RDMAClient

if TYPE_CHECKING:
    Dataset: Any = object
    IterableDataset: Any = object
else:
    try:
        from torch.utils.data import Dataset, IterableDataset
    except ImportError:
        Dataset = IterableDataset = object

DEPTH = 16
PART_BYTES = 64 << 20
ALIGNMENT = 8
HEADER_GUESS_BYTES = 64 << 10
HEADER_BYTES_MAX = 100 << 20

Decode = Callable[[str, Any], Any]


def _objects(client: RDMAClient, bucket: str, keys: Iterable[Any] | None, prefix: str) -> list[tuple[str, int]]:
    """Key and length; a length that is not known is 0 and asked for when its turn comes."""
    if keys is None:
        return [(entry.key, entry.size) for entry in client.list_objects(bucket, prefix) if not entry.is_prefix]
    return [(key.key, key.size) if isinstance(key, ObjectInfo) else (key, 0) for key in keys]


def _room(client: RDMAClient, size: int, pooled: bool) -> Any:
    """Memory for an object; of the pool while that has room."""
    if pooled and size:
        try:
            return numpy.frombuffer(memoryview(client.allocate_buffer(size)), numpy.uint8)
        except NebulaError as error:
            if error.errno != errno.ENOMEM:
                raise
    return numpy.empty(size, numpy.uint8)


def prefetch(client: RDMAClient, bucket: str, keys: Iterable[Any] | None = None, *, prefix: str = "",
             depth: int = DEPTH, pooled: bool = False) -> Iterator[tuple[str, Any]]:
    """Yields (key, array of uint8) in the order of keys, or of everything below prefix. Up to depth objects are on their
    way while the caller works: the server writes them into the arrays' memory by itself. keys: strings, or the entries of
    list_objects(), which spare a HEAD each. pooled: the arrays lie in the client's registered memory while that has room
    (pool_bytes), which comes back as the arrays go: on a real card this spares a registration each.

    Between first and last the client belongs to the iterator: give it one of its own (client.clone())."""
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
        # What is on its way still has its memory; its results are nobody's.
        while ahead and not native.closed:
            wait_for(ahead.popleft())


def _as_it_is(key: str, array: Any) -> Any:
    return array


class _PerProcess:
    """A client for each process: what a DataLoader forks opens its own."""

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
    """Objects by number, each decoded by decode(key, array of uint8). A batch asked for as one (__getitems__, as torch's
    loaders do) goes as one window of requests."""

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
    """Objects in order, the next ones already on their way. In a DataLoader with workers each takes its share; elsewhere
    part=(number, count) says which."""

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


# ---- Checkpoints. ----

_TYPES = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "float16": "F16",
          "uint32": "U32", "int32": "I32", "float32": "F32", "uint64": "U64", "int64": "I64", "float64": "F64"}
_NAMES = {short: name for name, short in _TYPES.items()}


def _as_array(tensor: Any) -> Any:
    if isinstance(tensor, numpy.ndarray):
        return tensor
    if hasattr(tensor, "detach"):
        tensor = tensor.detach()
    return numpy.from_dlpack(tensor) if hasattr(tensor, "__dlpack__") else numpy.asarray(tensor)


def _parts(pieces: list[Any]) -> Iterator[list[Any]]:
    """Pieces of memory in groups that a part may have: PART_BYTES, at most as many pieces as a request takes. Where small
    pieces would make a part too short, those are gathered by a copy."""
    group: list[Any] = []
    size = 0
    for piece in pieces:
        view = memoryview(piece).cast("B")
        while len(view):
            cut = view[:PART_BYTES - size]
            view = view[len(cut):]
            if len(group) == _native.PIECES_MAX:
                group = [b"".join(group)] if size < PART_BYTES_MIN else group
                if len(group) > 1:
                    yield group
                    group, size = [], 0
            group.append(cut)
            size += len(cut)
            if size >= PART_BYTES:
                yield group
                group, size = [], 0
    if group:
        yield group


def save_tensors(client: RDMAClient, bucket: str, key: str, tensors: Mapping[str, Any],
                 metadata: Mapping[str, str] | None = None) -> _native.Result:
    """Arrays, or torch tensors in host memory, by name, as one object that safetensors reads. Sent from their own memory;
    what is not contiguous in C order is made so by a copy first."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    pieces: list[Any] = []
    at = 0
    for name, tensor in tensors.items():
        array = _as_array(tensor)
        if array.dtype.name not in _TYPES or array.dtype.byteorder == ">":
            raise ValueError(f"{name}: the format has no type for {array.dtype}")
        if not array.flags.c_contiguous:
            array = numpy.ascontiguousarray(array)
        header[name] = {"dtype": _TYPES[array.dtype.name], "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
        if array.nbytes:
            pieces.append(memory_of(array))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    pieces.insert(0, len(text).to_bytes(8, "little") + text)
    if len(pieces) <= _native.PIECES_MAX and at + len(text) + 8 <= PUT_BYTES_MAX:
        return client.put_object(bucket, key, pieces)
    upload = MultipartUpload(client, bucket, key)
    try:
        for group in _parts(pieces):
            upload.part(group)
        return upload.complete()
    except BaseException:
        upload.abort()
        raise


def _header_of(client: RDMAClient, bucket: str, key: str) -> tuple[dict[str, Any], int, str]:
    with client.allocate_buffer(HEADER_GUESS_BYTES) as room:
        result = client.get_into(bucket, key, room, length=HEADER_GUESS_BYTES)
        with memoryview(room) as view:
            start = bytes(view[:result.bytes])
    size = int.from_bytes(start[:8], "little")
    if len(start) < 8 or size > HEADER_BYTES_MAX:
        raise ValueError("the object is not a file of tensors")
    text = start[8:8 + size] if 8 + size <= len(start) else client.get_object(bucket, key, offset=8, length=size)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        for fields in header.values():
            begin, end = fields["data_offsets"]
            count = 1
            for length in fields["shape"]:
                count *= length
            if end - begin != count * numpy.dtype(_NAMES[fields["dtype"]]).itemsize or begin < 0:
                raise ValueError
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError("the object is not a file of tensors that numpy has types for") from error
    return header, 8 + size, result.etag


def load_tensors(client: RDMAClient, bucket: str, key: str, into: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What save_tensors() stored, as numpy arrays (torch.from_numpy() takes them as they are). into: arrays or tensors by
    name to receive into, of the stored type and shape. Everything comes straight into their memory."""
    header, base, etag = _header_of(client, bucket, key)
    tensors: dict[str, Any] = {}
    todo: list[tuple[int, int, Any]] = []
    for name, fields in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape = numpy.dtype(_NAMES[fields["dtype"]]), tuple(fields["shape"])
        tensors[name] = into[name] if into is not None and name in into else numpy.empty(shape, dtype)
        array = _as_array(tensors[name])
        if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
            raise ValueError(f"{name}: not a contiguous array of {dtype}, shape {shape}")
        begin, end = fields["data_offsets"]
        if end > begin:
            todo.append((begin, end, memory_of(array)))
    window: list[tuple[Any, ...]] = []
    while todo:
        # Neighbours come by one request, up to the pieces that one takes.
        group = [todo.pop(0)]
        while todo and len(group) < _native.PIECES_MAX and todo[0][0] == group[-1][1] and \
                todo[0][1] - group[0][0] <= PART_BYTES:
            group.append(todo.pop(0))
        begin, end = group[0][0], group[-1][1]
        window.append((bucket, key, [piece for _, _, piece in group], base + begin, end - begin))
    for (_, _, _, _, size), result in zip(window, client.get_many(window)):
        if result.bytes != size or result.etag != etag:
            raise ValueError("the object ends early, or was replaced while it was read")
    return tensors
