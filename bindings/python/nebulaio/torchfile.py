"""Files that torch.save() wrote, as objects: their structure first, then the tensors that are wanted, by ranges.

    from nebulaio.torchfile import TorchFile

    file = TorchFile(client, "checkpoints", "run-7/model.pt")
    file.content["model"]["0.weight"].shape                     # tensors on torch's device "meta": nothing of them is read
    weights = file.load(file.content["model"])                  # these tensors
    rows = file.load(file.content["model"]["0.weight"][10:20])  # these rows

torch reads the structure itself, by torch.load(weights_only=True, map_location="meta"): a file brings what that permits,
and runs no code. The lengths that a file names are checked against the object's before memory is allocated.

Needs numpy and a torch that keeps the place of each tensor of the device "meta" in its file: 2.15 was tested."""

from __future__ import annotations

import copy
import io
import zipfile
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import torch

from .errors import NebulaError
from .rdma import RDMAClient

DIRECTORY_BYTES_MAX = 8 << 20  # of the zip format's directory: about 80,000 tensors
PICKLE_BYTES_MAX = 64 << 20
OTHER_BYTES_MAX = 64 << 10  # of a record that is neither the pickle nor a tensor's data
TAIL_BYTES = 64 << 10
AHEAD_BYTES = 4 << 10
PART_BYTES = 64 << 20
ALIGNMENT = 64
HEADER_BYTES = 30  # of a record's header in the zip format, without name and extra field
HEADER_MAGIC = b"PK\x03\x04"


class _Ranges(io.RawIOBase):
    """An object as a file for zipfile and torch: the last bytes are kept, other reads are requests. limit: the most bytes
    of one read."""

    def __init__(self, client: RDMAClient, bucket: str, key: str) -> None:
        super().__init__()
        self._client, self._bucket, self._key = client, bucket, key
        head = client.head_object(bucket, key)
        self.size, self.etag = head.object_bytes, head.etag
        self.limit = DIRECTORY_BYTES_MAX
        self._at = 0
        tail = max(self.size - TAIL_BYTES, 0)
        self._kept = [(tail, self._fetch(tail, self.size))]

    def _fetch(self, begin: int, end: int) -> bytes:
        if begin == end:
            return b""
        data = self._client.get_object(self._bucket, self._key, offset=begin, length=end - begin)
        if data.etag != self.etag or len(data) != end - begin:
            raise ValueError("it was replaced while it was read")
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise OSError("a seek before the first byte")
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self.size if size < 0 else min(self._at + size, self.size)
        if end <= self._at:
            return b""
        if end - self._at > self.limit:
            raise ValueError(f"{end - self._at} bytes of its structure are in one piece")
        for begin, data in self._kept:
            if begin <= self._at and end <= begin + len(data):
                break
        else:
            begin, data = self._at, self._fetch(self._at, min(max(end, self._at + AHEAD_BYTES), self.size))
            self._kept[1:] = [(begin, data)]
        part = data[self._at - begin:end - begin]
        self._at = end
        return part

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[:len(data)] = data
        return len(data)


class _Memory:
    """Memory for spans of the object. Spans that overlap are one piece: tensors that share memory in the file do here."""

    def __init__(self, spans: list[tuple[int, int, int]]) -> None:
        """spans: first byte, the byte after the last, first byte of the storage, in the object."""
        self._begins: list[int] = []
        self._pieces: list[tuple[int, int, Any]] = []
        merged: list[list[int]] = []
        for begin, end, place in sorted(spans):
            if merged and begin < merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([begin, end, place])
        for begin, end, place in merged:
            base = begin - (begin - place) % ALIGNMENT  # so that each element stays aligned
            self._begins.append(begin)
            self._pieces.append((base, end, torch.empty(end - base, dtype=torch.uint8)))

    def parts(self) -> Iterator[tuple[int, Any]]:
        """Offset in the object, and memory, of at most PART_BYTES each."""
        for begin, (base, end, memory) in zip(self._begins, self._pieces):
            array = memory.numpy()
            for at in range(begin, end, PART_BYTES):
                yield at, array[at - base:min(at + PART_BYTES, end) - base]

    def tensor(self, meta: Any, span: tuple[int, int, int]) -> Any:
        base, _, memory = self._pieces[bisect_right(self._begins, span[0]) - 1]
        first = (span[0] - base) // meta.element_size()
        return torch.empty(0, dtype=meta.dtype).set_(memory.untyped_storage(), first, meta.shape, meta.stride())


def _extent(meta: Any) -> tuple[int, int]:
    """The bytes of its storage that a tensor with elements takes."""
    begin = meta.storage_offset()
    end = begin + sum((length - 1) * stride for length, stride in zip(meta.shape, meta.stride())) + 1
    return begin * meta.element_size(), end * meta.element_size()


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list) or type(value) is tuple else []


def _tensors(value: Any) -> list[Any]:
    """All tensors in a structure, each once."""
    found, seen, todo = [], set(), [value]
    while todo:
        one = todo.pop()
        if id(one) not in seen:
            seen.add(id(one))
            if isinstance(one, torch.Tensor):
                found.append(one)
            todo += _children(one)
    return found


def _copy(value: Any, tensors: dict[int, Any], done: dict[int, Any]) -> Any:
    """The structure with other tensors, by the id of each. done: what is copied already, by its id."""
    if isinstance(value, torch.Tensor):
        return tensors[id(value)]
    if id(value) in done or not _children(value):
        return done.get(id(value), value)
    if isinstance(value, tuple):
        return tuple(_copy(one, tensors, done) for one in value)
    made = done[id(value)] = copy.copy(value)
    for place, one in list(value.items() if isinstance(value, dict) else enumerate(value)):
        made[place] = _copy(one, tensors, done)
    return made


def _reason(error: Exception) -> str:
    """The line that matters; torch's refusals of a pickle begin with advice to trust it."""
    if isinstance(error, NotImplementedError):  # torch checks the elements of sparse tensors, which are not there
        return "it has a sparse tensor, which torch makes of elements alone: torch.load() reads the whole file"
    lines = [line.strip() for line in str(error).rpartition("WeightsUnpickler error:")[2].splitlines() if line.strip()]
    return f"{'weights_only: ' if 'WeightsUnpickler' in str(error) else ''}{lines[0] if lines else type(error).__name__}"


class TorchFile:
    """An object that torch.save() wrote, by torch 1.6 or later. content: as torch.load() returns it, each tensor on the
    device "meta". ValueError: it is no such file, or it holds what weights_only does not permit. One thread at a time."""

    def __init__(self, client: RDMAClient, bucket: str, key: str) -> None:
        self._client, self._bucket, self._key = client, bucket, key
        try:
            self._ranges = _Ranges(client, bucket, key)
            self._records = self._directory()
            self._ranges.limit = PICKLE_BYTES_MAX
            self._ranges.seek(0)
            self.content: Any = torch.load(self._ranges, map_location="meta", weights_only=True)
            storages = [meta.untyped_storage() for meta in _tensors(self.content) if meta.layout == torch.strided]
        except NebulaError:
            raise
        except Exception as error:  # of zipfile, pickle, torch: a damaged file leads to any
            raise self._bad(_reason(error)) from error
        if any(not hasattr(one, "_checkpoint_offset") for one in storages if one.nbytes()):
            raise RuntimeError(f"torch {torch.__version__} does not tell where a tensor is in its file: 2.15 does")
        self._begins = [begin for begin, _ in self._records]
        # By the number that torch gives a storage, which slices of a tensor share.
        self._places = {one._cdata: one._checkpoint_offset for one in storages if one.nbytes()}
        self._starts: dict[int, int] = {}

    def _bad(self, why: str) -> ValueError:
        return ValueError(f"{self._bucket}/{self._key} cannot be read as a file of torch.save(): {why}")

    def _directory(self) -> list[tuple[int, int]]:
        """Where each record's header begins, in their order, and the length of its data."""
        records = []
        with zipfile.ZipFile(self._ranges) as archive:  # type: ignore[arg-type,unused-ignore]
            for info in archive.infolist():
                name = info.filename.partition("/")[2]
                most = PICKLE_BYTES_MAX if name == "data.pkl" else OTHER_BYTES_MAX
                if name.startswith("data/"):
                    most = self._ranges.size
                if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.file_size > most:
                    raise ValueError(f"its record {info.filename[:80]!r} is compressed or too long")
                if name == "byteorder" and archive.read(info) != b"little":
                    raise ValueError("it is not little-endian")
                records.append((info.header_offset, info.file_size))
        return sorted(records)

    def _record(self, place: int) -> tuple[int, int]:
        at = bisect_right(self._begins, place) - 1
        if at < 0:
            raise self._bad("a tensor is before its first record")
        return self._records[at]

    def _find_starts(self, places: set[int]) -> None:
        """Reads the headers of these records: the data begins behind their names."""
        asked = {begin: bytearray(HEADER_BYTES) for begin in {self._record(place)[0] for place in places} if begin not in self._starts}
        self._read([(begin, header) for begin, header in asked.items()])
        for begin, header in asked.items():
            if header[:4] != HEADER_MAGIC:
                raise self._bad("a record has no header")
            self._starts[begin] = begin + HEADER_BYTES + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")

    def _read(self, parts: list[tuple[int, Any]]) -> None:
        with self._client._passing([memory for _, memory in parts]):
            results = self._client.get_many((self._bucket, self._key, memory, at, len(memory)) for at, memory in parts)
        for (_, memory), result in zip(parts, results):
            if result.bytes != len(memory) or result.etag != self._ranges.etag:
                raise ValueError(f"{self._bucket}/{self._key} was replaced while it was read")

    def _span(self, meta: Any) -> tuple[int, int, int]:
        """The bytes of the object that a tensor takes, and where its storage begins."""
        place = self._places[meta.untyped_storage()._cdata]
        begin, end = _extent(meta)
        header, size = self._record(place)
        if self._starts[header] != place or end > size or place + size > self._ranges.size:
            raise self._bad(f"a tensor of shape {tuple(meta.shape)} is not within its record")
        return place + begin, place + end, place

    def _check(self, meta: Any) -> None:
        kind = type(meta)
        if kind not in (torch.Tensor, torch.nn.Parameter) or meta.layout != torch.strided or meta.is_quantized or meta.is_conj() or meta.is_neg():
            raise ValueError(f"a tensor of shape {tuple(meta.shape)} is a {kind.__name__} of another kind than a dense one: load all of the "
                             f"file by torch.load()")
        if meta.numel() and meta.untyped_storage()._cdata not in self._places:
            raise ValueError(f"a tensor of shape {tuple(meta.shape)} is not a part of {self._bucket}/{self._key}, or not a view of one")

    def load(self, part: Any) -> Any:
        """A part of content, such as one tensor, some rows of one, a dict of tensors, with its tensors in the host's memory:
        only their bytes are read, into that memory. A view that leaves out bytes in between reads those, too."""
        metas = [one for one in _tensors(part) if one.device.type == "meta"]
        for meta in metas:
            self._check(meta)
        full = [meta for meta in metas if meta.numel()]
        self._find_starts({self._places[meta.untyped_storage()._cdata] for meta in full})
        spans = {id(meta): self._span(meta) for meta in full}
        memory = _Memory(list(spans.values()))
        self._read(list(memory.parts()))
        tensors = {id(one): one for one in _tensors(part)}
        for meta in metas:
            made = torch.empty_strided(meta.shape, meta.stride(), dtype=meta.dtype)
            if meta.numel():
                made = memory.tensor(meta, spans[id(meta)])
            if isinstance(meta, torch.nn.Parameter):
                made = torch.nn.Parameter(made, meta.requires_grad)
            elif meta.requires_grad and meta.is_leaf:
                made.requires_grad_()
            tensors[id(meta)] = made
        try:
            return _copy(part, tensors, {})
        except RecursionError:
            raise self._bad("it is nested too deeply") from None
