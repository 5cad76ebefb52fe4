"""torch.distributed.checkpoint on NebulaIO: checkpoints of a training run, sharded over its ranks.

    import torch.distributed.checkpoint as dcp
    from nebulaio.checkpoint import Reader, Writer

    dcp.save(state, storage_writer=Writer(client, "checkpoints", "run-7/step-1000"))
    dcp.load(state, storage_reader=Reader(client, "checkpoints", "run-7/step-1000"))

Each rank writes one object: its tensors' memory, one behind the other, sent from where it lies; a GPU's tensors are
brought to the host first. The object .metadata, written last, makes the checkpoint valid; objects of a checkpoint that it replaces go after that. A
rank reads the ranges that it needs, into its tensors' own memory where a tensor takes a stored shard whole: another
number of ranks, or some of the tensors only, read no more than their bytes, rounded to rows of the shard.

.metadata is a pickle, like that of torch's own writers: load checkpoints only from buckets whose writers you trust.
Needs torch 2.1 or later and numpy."""

from __future__ import annotations

import dataclasses
import io
import math
import os
import pickle
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import (LoadItemType, LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner,
                                                  WriteItemType)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from .data import _PerProcess
from .rdma import RDMAClient
from .tensors import put_pieces

METADATA = ".metadata"
SUFFIX = ".shard"
# Memory for shards that are not read into their tensors' own memory.
STAGED_BYTES_MAX = 256 << 20


@dataclasses.dataclass(frozen=True)
class Stored:
    """Where an item of a checkpoint is: bytes of an object, and for a tensor the shape of the shard there."""

    key: str
    offset: int
    length: int
    etag: str
    shape: tuple[int, ...] | None = None
    dtype: str = ""


@dataclasses.dataclass(frozen=True)
class _Share:
    """The object that a rank writes."""

    key: str


def _bytes_of(tensor: Any) -> Any:
    """The memory of a contiguous tensor of the host, as bytes."""
    return tensor.reshape(-1).view(torch.uint8).numpy()


class _Place:
    """A checkpoint's place: a bucket and a prefix of its own in it."""

    def __init__(self, client: RDMAClient, bucket: str, prefix: str) -> None:
        self._clients = _PerProcess(client)
        self._bucket, self._prefix = bucket, prefix.strip("/")

    def _move(self, checkpoint_id: str | os.PathLike[str] | None) -> None:
        if checkpoint_id is not None:
            self._prefix = str(checkpoint_id).removeprefix(f"nebulaio://{self._bucket}/").strip("/")

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    @property
    def _client(self) -> RDMAClient:
        return self._clients.get()


class Writer(_Place, StorageWriter):  # type: ignore[misc]
    """Writes checkpoints to bucket, below prefix. dcp.save() and dcp.async_save() may name other prefixes, as
    checkpoint_id. In another process the client is a clone of this one."""

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        self._move(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *unused: Any, **options: Any) -> None:
        pass

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        # Names that no earlier checkpoint has: until .metadata is replaced, that one stays whole.
        name = uuid.uuid4().hex
        return [dataclasses.replace(plan, storage_data=_Share(self._key(f"{name}-{rank}{SUFFIX}")))
                for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        pieces: list[Any] = []
        places: list[tuple[Any, int, int, Any]] = []
        at = 0
        for item in plan.items:
            data = planner.resolve_data(item)
            if item.type == WriteItemType.BYTE_IO:
                tensor, memory = None, data.getbuffer()
            else:
                tensor = data.detach().cpu().contiguous()
                memory = _bytes_of(tensor)
            places.append((item.index, at, memory.nbytes, tensor))
            at += memory.nbytes
            if memory.nbytes:
                pieces.append(memory)
        key, client = plan.storage_data.key, self._client
        with client._passing(pieces):  # torch's copies are among them
            result = put_pieces(client, self._bucket, key, pieces) if pieces else None
        etag = result.etag if result else ""
        future: Future[list[WriteResult]] = Future()
        future.set_result([
            WriteResult(index, size, Stored(key, offset, size, etag) if tensor is None else Stored(
                key, offset, size, etag, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")))
            for index, offset, size, tensor in places])
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        metadata.storage_data = {one.index: one.storage_data for rank in results for one in rank}
        metadata.storage_meta = self.storage_meta()
        client = self._client
        body = pickle.dumps(metadata)
        with client._passing([body]):
            client.put_object(self._bucket, self._key(METADATA), body)
        current = {stored.key for stored in metadata.storage_data.values()}
        for entry in client.list_objects(self._bucket, self._key(""), delimiter="/"):
            if not entry.is_prefix and entry.key.endswith(SUFFIX) and entry.key not in current:
                client.delete_object(self._bucket, entry.key)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True

    def storage_meta(self) -> Any:
        try:
            from torch.distributed.checkpoint.metadata import StorageMeta
        except ImportError:
            return None
        return StorageMeta(checkpoint_id=self._prefix)


@dataclasses.dataclass
class _Wanted:
    """A read in progress. memory: where the bytes go; tensor: what they are there, if they must be copied from there."""

    item: ReadItem
    stored: Stored
    offset: int
    memory: Any
    target: Any
    tensor: Any = None

    @property
    def staged(self) -> bool:
        """The memory is made for the read, and is not the target's."""
        return self.tensor is not None or self.target is None


def _rows(item: ReadItem, stored: Stored) -> tuple[int, int, tuple[int, ...]]:
    """The bytes of the stored shard that hold what is wanted: whole rows of its first dimension, or all of it."""
    shape = stored.shape or ()
    size = getattr(torch, stored.dtype).itemsize
    if not shape:
        return 0, size, ()
    row = math.prod(shape[1:]) * size
    first, count = item.storage_offsets[0], item.lengths[0]
    return first * row, count * row, (count, *shape[1:])


class Reader(_Place, StorageReader):  # type: ignore[misc]
    """Reads the checkpoints that Writer wrote: all of one, or the tensors that a state dict names."""

    def __init__(self, client: RDMAClient, bucket: str, prefix: str) -> None:
        super().__init__(client, bucket, prefix)
        self._stored: dict[MetadataIndex, Stored] = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        self._move(checkpoint_id)
        self._stored = {}

    def read_metadata(self, *unused: Any, **options: Any) -> Metadata:
        metadata = pickle.loads(self._client.get_object(self._bucket, self._key(METADATA)))
        if not isinstance(metadata, Metadata):
            raise ValueError(f"{self._bucket}/{self._key(METADATA)} is no metadata of a checkpoint")
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *unused: Any, **options: Any) -> None:
        self._stored = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def _wanted(self, item: ReadItem, planner: LoadPlanner) -> _Wanted:
        stored = self._stored[item.storage_index]
        if item.type == LoadItemType.BYTE_IO:
            return _Wanted(item, stored, 0, bytearray(stored.length), None)
        target = planner.resolve_tensor(item).detach()
        offset, length, shape = _rows(item, stored)
        dtype = getattr(torch, stored.dtype)
        if shape == tuple(item.lengths) == tuple(target.shape) and target.dtype == dtype and target.is_contiguous() and \
                target.device.type == "cpu":
            return _Wanted(item, stored, offset, _bytes_of(target), target)
        staged = torch.empty(shape, dtype=dtype)
        return _Wanted(item, stored, offset, _bytes_of(staged), target, staged)

    def _groups(self, plan: LoadPlan, planner: LoadPlanner) -> Iterator[list[_Wanted]]:
        group: list[_Wanted] = []
        staged = 0
        for item in plan.items:
            wanted = self._wanted(item, planner)
            group.append(wanted)
            staged += len(wanted.memory) if wanted.staged else 0
            if staged > STAGED_BYTES_MAX:
                yield group
                group, staged = [], 0
        if group:
            yield group

    def _read(self, group: Iterable[_Wanted]) -> None:
        reads = [wanted for wanted in group if len(wanted.memory)]
        client = self._client
        with client._passing([wanted.memory for wanted in reads if wanted.staged]):
            results = client.get_many((self._bucket, wanted.stored.key, wanted.memory,
                                       wanted.stored.offset + wanted.offset, len(wanted.memory)) for wanted in reads)
        for wanted, result in zip(reads, results):
            if result.bytes != len(wanted.memory) or result.etag != wanted.stored.etag:
                raise ValueError(f"{self._bucket}/{wanted.stored.key} is not the object that the checkpoint names")

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for group in self._groups(plan, planner):
            self._read(group)
            for wanted in group:
                if wanted.item.type == LoadItemType.BYTE_IO:
                    planner.load_bytes(wanted.item, io.BytesIO(wanted.memory))
                    continue
                if wanted.tensor is not None:
                    part = wanted.tensor
                    for dim in range(1, part.dim()):
                        part = part.narrow(dim, wanted.item.storage_offsets[dim], wanted.item.lengths[dim])
                    wanted.target.copy_(part)
                planner.commit_tensor(wanted.item, wanted.target)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True
