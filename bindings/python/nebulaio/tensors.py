"""Checkpoints: named arrays or tensors as one object, in the layout of the safetensors format.

    8 bytes    the header's length, little-endian
    header     JSON: name -> dtype, shape, data_offsets; "__metadata__" -> text by text
    data       the tensors' memory, one behind the other

The data is sent from, and received into, the tensors' own memory. bfloat16 and the float8 types, which numpy lacks, go
as torch tensors or as arrays of ml_dtypes' types. Needs numpy; needs torch and ml_dtypes only for their own types."""

from __future__ import annotations

import errno
import json
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy

from . import _native
from ._native import Map
from .errors import NebulaError, PreconditionError
from .multipart import MultipartUpload
from .npy import memory as memory_of
from .rdma import RDMAClient

PART_BYTES = 64 << 20
MAP_UNIT_BYTES = 64 << 10  # a map brings whole ones
ALIGNMENT = 8
HEADER_GUESS_BYTES = 64 << 10
HEADER_BYTES_MAX = 100 << 20
REPLACED = "the object ends early, or was replaced while it was read"

# By the format's name: bytes of one element, and the name in numpy (or ml_dtypes) and torch.
_TYPES = {"BOOL": (1, "bool"), "U8": (1, "uint8"), "I8": (1, "int8"), "U16": (2, "uint16"), "I16": (2, "int16"),
          "U32": (4, "uint32"), "I32": (4, "int32"), "U64": (8, "uint64"), "I64": (8, "int64"), "F16": (2, "float16"),
          "F32": (4, "float32"), "F64": (8, "float64"), "C64": (8, "complex64"), "BF16": (2, "bfloat16"),
          "F8_E4M3": (1, "float8_e4m3fn"), "F8_E5M2": (1, "float8_e5m2"), "F8_E8M0": (1, "float8_e8m0fnu")}
_SHORT = {name: short for short, (_, name) in _TYPES.items()}


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a stored object. dtype: numpy's and torch's name. begin, end: its bytes in the object."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass
class _Header:
    etag: str
    metadata: dict[str, str]
    tensors: dict[str, TensorInfo] = field(default_factory=dict)


# ---- Arrays and tensors as memory. ----


def _is_torch(tensor: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def _as_array(tensor: Any) -> Any:
    if isinstance(tensor, numpy.ndarray):
        return tensor
    try:
        return numpy.from_dlpack(tensor) if hasattr(tensor, "__dlpack__") else numpy.asarray(tensor)
    except (BufferError, RuntimeError, TypeError):  # a type that DLPack or numpy has no name for
        return numpy.asarray(tensor)


def _view(name: str, tensor: Any) -> tuple[str, tuple[int, ...], Any]:
    """The dtype's name, the shape, and the memory as an array of uint8, or None if it is not contiguous in C order."""
    if _is_torch(tensor):
        import torch

        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            raise ValueError(f"{name}: a {tensor.layout} tensor on {tensor.device}: bring it to host memory first, dense")
        tensor = tensor.detach()
        memory = tensor.reshape(-1).view(torch.uint8).numpy() if tensor.is_contiguous() else None
        return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), memory
    array = _as_array(tensor)
    if array.dtype.byteorder == ">":
        raise ValueError(f"{name}: the format has no big-endian types")
    return array.dtype.name, array.shape, memory_of(array) if array.flags.c_contiguous else None


def _contiguous(tensor: Any) -> Any:
    return tensor.detach().contiguous() if _is_torch(tensor) else numpy.ascontiguousarray(_as_array(tensor))


def _numpy_type(name: str, dtype: str) -> Any:
    try:
        return numpy.dtype(dtype)
    except TypeError:
        pass
    try:
        import ml_dtypes  # type: ignore[import-not-found,unused-ignore]

        return numpy.dtype(getattr(ml_dtypes, dtype))
    except (ImportError, AttributeError):
        raise ValueError(f"{name}: numpy has no {dtype}: install ml_dtypes, or load with framework=\"torch\"") from None


def _empty(name: str, info: TensorInfo, framework: str) -> Any:
    if framework == "numpy":
        return numpy.empty(info.shape, _numpy_type(name, info.dtype))
    import torch

    if not hasattr(torch, info.dtype):
        raise ValueError(f"{name}: this torch has no {info.dtype}")
    return torch.empty(info.shape, dtype=getattr(torch, info.dtype))


# ---- Saving. ----


def put_pieces(client: RDMAClient, bucket: str, key: str, pieces: list[Any]) -> _native.Result:
    """Stores pieces of memory, one behind the other, as one object: by one request, or in parts."""
    if len(pieces) <= _native.PIECES_MAX:
        return client.put_object(bucket, key, pieces)
    return MultipartUpload(client, bucket, key).put(pieces, PART_BYTES)


def save_tensors(client: RDMAClient, bucket: str, key: str, tensors: Mapping[str, Any],
                 metadata: Mapping[str, str] | None = None) -> _native.Result:
    """Stores arrays, or torch tensors in host memory, by name, as one object that safetensors can read. Sends them from
    their own memory; one that is not contiguous in C order is copied first. ValueError for a type without a name in the
    format."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    pieces: list[Any] = []
    made: list[Any] = []
    at = 0
    for name, tensor in tensors.items():
        dtype, shape, memory = _view(name, tensor)
        if dtype not in _SHORT:
            raise ValueError(f"{name}: the format has no type for {dtype}")
        if memory is None:
            memory = _view(name, _contiguous(tensor))[2]
            made.append(memory)
        header[name] = {"dtype": _SHORT[dtype], "shape": list(shape), "data_offsets": [at, at + memory.nbytes]}
        at += memory.nbytes
        if memory.nbytes:
            pieces.append(memory)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    if len(text) > HEADER_BYTES_MAX:
        raise ValueError(f"the names and shapes take {len(text)} bytes: the format's header ends at {HEADER_BYTES_MAX}")
    pieces.insert(0, len(text).to_bytes(8, "little") + text)
    with client._passing([pieces[0], *made]):
        return put_pieces(client, bucket, key, pieces)


# ---- Loading. ----


def _info(fields: Any, base: int, object_bytes: int) -> TensorInfo:
    """A header's entry. KeyError, TypeError or ValueError: malformed."""
    begin, end = fields["data_offsets"]
    shape = tuple(fields["shape"])
    if not all(type(number) is int and number >= 0 for number in (begin, end, *shape)):
        raise ValueError
    size, dtype = _TYPES[fields["dtype"]]
    for length in shape:
        size *= length
    if end - begin != size or base + end > object_bytes:
        raise ValueError
    return TensorInfo(dtype, shape, base + begin, base + end)


def _read_header(client: RDMAClient, bucket: str, key: str) -> _Header:
    with client.allocate_buffer(HEADER_GUESS_BYTES) as room:
        result = client.get_into(bucket, key, room, length=HEADER_GUESS_BYTES)
        with memoryview(room) as view:
            start = bytes(view[:result.bytes])
    # The lengths in a header are checked against the object's length before memory is allocated for them.
    total = len(start)
    if total == HEADER_GUESS_BYTES:
        head = client.head_object(bucket, key)
        if head.etag != result.etag:
            raise ValueError(REPLACED)
        total = head.object_bytes
    size = int.from_bytes(start[:8], "little")
    if len(start) < 8 or size > min(HEADER_BYTES_MAX, total - 8):
        raise ValueError("the object is not a file of tensors")
    text = start[8:8 + size]
    if len(text) < size:
        try:
            text = client.get_object(bucket, key, offset=8, length=size, if_match=result.etag)
        except PreconditionError as error:
            raise ValueError(REPLACED) from error
    return _parse_header(text, result.etag, total)


def _parse_header(text: bytes, etag: str, total: int) -> _Header:
    size = len(text)
    try:
        entries = json.loads(text)
        header = _Header(etag, entries.pop("__metadata__", {}))
        for name, fields in sorted(entries.items(), key=lambda entry: entry[1]["data_offsets"]):
            header.tensors[name] = _info(fields, 8 + size, total)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError("the object is not a file of tensors, or has a type that is not known here") from error
    return header


def list_tensors(client: RDMAClient, bucket: str, key: str) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    """The tensors of a stored object, in its order, and its metadata; reads only the header."""
    header = _read_header(client, bucket, key)
    return header.tensors, header.metadata


def _target(name: str, info: TensorInfo, tensor: Any) -> Any:
    dtype, shape, memory = _view(name, tensor)
    if (dtype, shape) != (info.dtype, info.shape) or memory is None:
        raise ValueError(f"{name}: {dtype} of shape {shape}{'' if memory is not None else ', not contiguous'}: "
                         f"the stored one is {info.dtype} of shape {info.shape}")
    return memory


def load_tensors(client: RDMAClient, bucket: str, key: str, into: Mapping[str, Any] | None = None, *,
                 names: Iterable[str] | None = None, framework: str = "numpy") -> dict[str, Any]:
    """The tensors that save_tensors() or safetensors stored, by name. into: arrays or tensors to receive into, of the
    stored type and shape; the others are created, as numpy arrays or, by framework="torch", as tensors. names: only
    these (for example a rank's share of a model). The bytes go directly to their memory. KeyError: no such name."""
    if framework not in ("numpy", "torch"):
        raise ValueError(f"framework={framework!r}: numpy and torch are known")
    header = _read_header(client, bucket, key)
    wanted = set(header.tensors if names is None else names)
    if not wanted <= header.tensors.keys():
        raise KeyError(f"no tensor {sorted(wanted - header.tensors.keys())[0]!r} in {bucket}/{key}")
    tensors: dict[str, Any] = {}
    todo: list[tuple[TensorInfo, Any]] = []
    made: list[Any] = []
    for name, info in header.tensors.items():
        if name in wanted:
            given = into is not None and name in into
            tensors[name] = into[name] if into is not None and given else _empty(name, info, framework)
            memory = _target(name, info, tensors[name])
            if not given:
                made.append(memory)
            if memory.nbytes:
                todo.append((info, memory))
    window: list[tuple[Any, ...]] = []
    todo.reverse()
    while todo:
        # One request reads neighbours, up to the number of pieces that a request takes.
        group = [todo.pop()]
        begin, end = group[0][0].begin, group[0][0].end
        while todo and len(group) < _native.PIECES_MAX and todo[-1][0].begin == end and \
                todo[-1][0].end - begin <= PART_BYTES:
            group.append(todo.pop())
            end = group[-1][0].end
        window.append((bucket, key, [memory for _, memory in group], begin, end - begin))
    with client._passing(made):
        results = client.get_many(window)
    for (_, _, _, _, size), result in zip(window, results):
        if result.bytes != size or result.etag != header.etag:
            raise ValueError(REPLACED)
    return tensors


# ---- As memory. ----


def map_tensors(client: RDMAClient, bucket: str, key: str, *, names: Iterable[str] | None = None,
                framework: str = "numpy", prefetch: bool = False) -> tuple[dict[str, Any], Map]:
    """The tensors of a stored object as read-only arrays over a map of it (RDMAClient.map()), and the map: their bytes
    come when they are first touched, as with a mapped file, so that a tensor that is not used is not fetched. names: only
    these. framework="torch": as tensors, which must not be written. prefetch: brings the named ones at once, in the
    background: of each row of neighbours at most half of map_bytes_max, and of more than 64 rows the first ones. The map
    ends with its last array. KeyError: no such name."""
    if framework not in ("numpy", "torch"):
        raise ValueError(f"framework={framework!r}: numpy and torch are known")
    mapped = client.map(bucket, key)
    with memoryview(mapped) as view:
        size = int.from_bytes(view[:8], "little")
        if len(view) < 8 or size > min(HEADER_BYTES_MAX, len(view) - 8):
            raise ValueError("the object is not a file of tensors")
        header = _parse_header(bytes(view[8:8 + size]), mapped.etag, len(view))
    wanted = set(header.tensors if names is None else names)
    if not wanted <= header.tensors.keys():
        raise KeyError(f"no tensor {sorted(wanted - header.tensors.keys())[0]!r} in {bucket}/{key}")
    tensors: dict[str, Any] = {}
    spans: list[tuple[int, int]] = []
    for name, info in header.tensors.items():
        if name not in wanted:
            continue
        tensors[name] = _mapped(name, info, mapped, framework)
        spans.append((info.begin, info.end))
    if prefetch:
        _prefetch(mapped, spans)
    return tensors, mapped


def _prefetch(mapped: Map, spans: Iterable[tuple[int, int]]) -> None:
    """Brings these bytes, given in the object's order: neighbours are one range, because the map notes few. Ranges that
    it cannot note come when they are touched."""
    ranges: list[list[int]] = []
    for begin, end in spans:
        if end == begin:
            continue
        if ranges and begin // MAP_UNIT_BYTES * MAP_UNIT_BYTES <= -(-ranges[-1][1] // MAP_UNIT_BYTES) * MAP_UNIT_BYTES:
            ranges[-1][1] = max(end, ranges[-1][1])
        else:
            ranges.append([begin, end])
    for begin, end in ranges:
        try:
            mapped.prefetch(begin, end - begin)
        except NebulaError as error:
            if error.errno != errno.EAGAIN:
                raise
            return


def _mapped(name: str, info: TensorInfo, mapped: Map, framework: str) -> Any:
    if info.end == info.begin:
        return _empty(name, info, framework)
    memory = numpy.frombuffer(mapped, numpy.uint8, info.end - info.begin, info.begin)
    if framework == "numpy":
        return memory.view(_numpy_type(name, info.dtype)).reshape(info.shape)
    import torch

    if not hasattr(torch, info.dtype):
        raise ValueError(f"{name}: this torch has no {info.dtype}")
    with warnings.catch_warnings():  # that the memory is read-only
        warnings.simplefilter("ignore")
        return torch.frombuffer(memory, dtype=getattr(torch, info.dtype)).reshape(info.shape)
