"""LMCache keeps KV caches in NebulaIO: a storage plug-in, each chunk an object, moved over RDMA between the server and
LMCache's own memory. LMCache's configuration names it:

    storage_plugins: ["nebulaio"]
    extra_config:
      storage_plugin.nebulaio.module_path: nebulaio.lmcache
      storage_plugin.nebulaio.class_name: NebulaBackend
      nebulaio.endpoint: "rdma://127.0.0.1:9100,http://127.0.0.1:9000"
      nebulaio.bucket: kvcache

Settings below says which other keys there are. LMCache's memory is registered once for each of two clients, one that
reads and one that writes; a third asks which chunks exist, by many HEAD requests in flight. Each client has a thread of
its own, so that no call of LMCache's event loop waits for the server. Nothing is evicted here: LMCache removes a chunk
by remove(), and a lifecycle rule of the bucket expires the others.

A chunk's object carries the chunk's layout. A chunk of another layout than this engine's is a chunk that is missing.
When the server gives no answer, chunks are missing, too, and it is asked again after nebulaio.retry_s seconds.

Written for LMCache 0.5.6; needs LMCache and numpy."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import math
import re
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import quote

from lmcache.logging import init_logger
from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.storage_backend.abstract_backend import StoragePluginInterface

from .errors import NebulaError, NotFoundError
from .rdma import RDMAClient

logger = init_logger(__name__)

LAYOUT_HEADER = "x-amz-meta-lmcache-layout"
LAYOUT_CHARACTERS_MAX = 1024
KEY_BYTES_MAX = 1024  # S3's
REMEMBERED_MAX = 1 << 16
TRIES_MAX = 2  # of a chunk that is replaced while it is read
_GROUP = re.compile(r"([a-z0-9_]{1,32}):(\d{1,12}(?:,\d{1,12}){0,7})")
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Keys of extra_config, each behind "nebulaio.". endpoint: or NEBULAIO_ENDPOINT; several with commas. bucket: needed.
    prefix: of all keys; engines with the same bucket, prefix and model share their chunks. access_key, secret_key: or
    the environment's. timeout_s: of each request, so how long a call waits for a server that is away. connect_timeout_s: of
    a session. retry_s: how long chunks then count as missing, without a question. window: requests in flight. pending_bytes: chunks that wait to be written;
    others are not stored while so many wait. require_encryption: only encrypted sessions."""

    bucket: str = ""
    endpoint: str = ""
    prefix: str = "lmcache"
    access_key: str = ""
    secret_key: str = ""
    timeout_s: float = 3.0
    connect_timeout_s: float = 2.0
    retry_s: float = 30.0
    window: int = 32
    pending_bytes: int = 1 << 30
    require_encryption: bool = False

    @classmethod
    def of(cls, extra: Mapping[str, Any] | None) -> Settings:
        """ValueError names the key that is unknown, or whose value is wrong."""
        given = {name.removeprefix("nebulaio."): value for name, value in (extra or {}).items()
                 if name.startswith("nebulaio.")}
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for name, value in given.items():
            if name not in fields:
                raise ValueError(f"extra_config nebulaio.{name}: there are {', '.join('nebulaio.' + one for one in fields)}")
            kind = type(fields[name].default)
            if kind is float and type(value) is int:
                given[name] = value = float(value)
            if type(value) is not kind:
                raise ValueError(f"extra_config nebulaio.{name}: {value!r} is no {kind.__name__}")
        settings = cls(**given)
        if not settings.bucket:
            raise ValueError("extra_config nebulaio.bucket: no bucket is named")
        for name, least, most in (("timeout_s", 0.001, 3600), ("connect_timeout_s", 0.001, 3600), ("retry_s", 0, 3600),
                                  ("window", 1, 256), ("pending_bytes", 1, 1 << 50)):
            if not least <= getattr(settings, name) <= most:
                raise ValueError(f"extra_config nebulaio.{name}: {getattr(settings, name)} is not from {least} to {most}")
        return settings

    def client(self, **more: Any) -> RDMAClient:
        return RDMAClient(None, self.access_key or None, self.secret_key or None,
                          endpoints=[part for part in self.endpoint.replace(",", " ").split()],
                          transport="auto" if "http" in self.endpoint else None,
                          request_timeout=self.timeout_s, connect_timeout=self.connect_timeout_s,
                          requests_max=self.window, require_encryption=self.require_encryption, **more)


@dataclasses.dataclass(frozen=True)
class _Chunk:
    """A stored chunk, and how its memory is allocated."""

    size: int
    etag: str
    shapes: list[Any]
    dtypes: list[Any]
    fmt: Any


def _name_of(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


class _Layouts:
    """The layouts that an engine's chunks have, as text in a header, and back."""

    def __init__(self, config: Any, metadata: Any) -> None:
        self._metadata = metadata
        self._tokens_max = max(metadata.chunk_size, config.chunk_size, metadata.kv_shape[2])
        if metadata.use_mla:
            self._layer = self._whole = MemoryFormat.KV_MLA_FMT
        else:
            self._whole = MemoryFormat.KV_2LTD
            self._layer = MemoryFormat.KV_2TD if config.enable_blending else MemoryFormat.KV_T2D

    @staticmethod
    def text(obj: Any) -> str:
        """Of a chunk in memory."""
        shapes = obj.meta.shapes or [obj.meta.shape]
        dtypes = obj.meta.dtypes or [obj.meta.dtype]
        groups = [f"{_name_of(dtype)}:{','.join(str(int(length)) for length in shape)}"
                  for shape, dtype in zip(shapes, dtypes)]
        return f"{obj.meta.fmt.name} {' '.join(groups)}"

    def chunk(self, key: Any, text: str, size: int, etag: str) -> _Chunk | None:
        """Of a stored chunk; None: this engine has none of that layout. The text is whatever someone stored."""
        words = text.split(" ") if len(text) <= LAYOUT_CHARACTERS_MAX else []
        groups = [_GROUP.fullmatch(word) for word in words[1:]]
        if not groups or not all(groups):
            return None
        names = [group[1] for group in groups if group]
        shapes = [tuple(int(length) for length in group[2].split(",")) for group in groups if group]
        fmt = MemoryFormat.__members__.get(words[0])
        if fmt in (MemoryFormat.EC_TD, MemoryFormat.HS_TD):
            dtypes = [key.dtype] if names == [_name_of(key.dtype)] else []
        elif hasattr(key, "layer_id"):
            dtypes = self._layer_dtypes(names, shapes) if fmt == self._layer else []
        else:
            dtypes = self._whole_dtypes(names, shapes) if fmt == self._whole else []
        if not dtypes or sum(math.prod(shape) * dtype.itemsize for shape, dtype in zip(shapes, dtypes)) != size:
            return None
        kind = type(self._metadata.get_shapes(1)[0])
        return _Chunk(size, etag, [kind(shape) for shape in shapes], dtypes, fmt)

    def _whole_dtypes(self, names: list[str], shapes: list[tuple[int, ...]]) -> list[Any]:
        """All layers of up to chunk_size tokens."""
        dtypes = self._metadata.get_dtypes()
        tokens = shapes[0][2] if len(shapes[0]) == 4 else 0
        good = 0 < tokens <= self._tokens_max and names == [_name_of(dtype) for dtype in dtypes] and \
            shapes == [tuple(shape) for shape in self._metadata.get_shapes(tokens)]
        return dtypes if good else []

    def _layer_dtypes(self, names: list[str], shapes: list[tuple[int, ...]]) -> list[Any]:
        """One layer of up to chunk_size tokens."""
        for dtype, shape in zip(self._metadata.get_dtypes(), self._metadata.get_shapes(1)):
            token_elements = math.prod(shape) // max(int(shape[1]), 1)
            elements = math.prod(shapes[0])
            if names == [_name_of(dtype)] and elements % token_elements == 0 and \
                    0 < elements // token_elements <= self._tokens_max and elements // token_elements in shapes[0]:
                return [dtype]
        return []


class _Lane:
    """A thread with a client of its own, which opens when it is first used. memory: registered with it, or None. options:
    of the client."""

    def __init__(self, name: str, settings: Settings, memory: Any, **options: Any) -> None:
        self._settings, self._memory, self._options = settings, memory, options
        self._thread = ThreadPoolExecutor(1, f"nebulaio-{name}")
        self._client: RDMAClient | None = None
        self._registration: Any = None

    def submit(self, work: Callable[..., _T], *args: Any) -> Future[_T]:
        """Of work(lane, ...). RuntimeError: it is closed."""
        return self._thread.submit(work, self, *args)

    @property
    def client(self) -> RDMAClient:
        """For work alone. NebulaError, ValueError: it cannot be opened."""
        if self._client is None:
            self._client = self._settings.client(**self._options)
            if self._memory is not None:
                try:
                    self._registration = self._client.register(self._memory)
                except (NebulaError, TypeError, BufferError) as error:
                    logger.warning("LMCache's memory is registered anew for each chunk, because it cannot be as a whole: %s", error)
        return self._client

    @property
    def stats(self) -> Any:
        return self._client.stats() if self._client else None

    def close(self) -> None:
        """Waits for what was submitted."""
        self._thread.shutdown(wait=True)
        if self._registration is not None:
            self._registration.release()
        if self._client:
            self._client.close()
        self._registration = None


class NebulaBackend(StoragePluginInterface):  # type: ignore[misc]
    """counts: what became of chunks: hit, miss, stored, there (it was stored already), dropped (too many waited, or the
    server was away), strange (of another layout), failed."""

    def __init__(self, dst_device: str = "cpu", config: Any = None, metadata: Any = None, local_cpu_backend: Any = None,
                 loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(dst_device=dst_device, config=config, metadata=metadata, local_cpu_backend=local_cpu_backend, loop=loop)
        if config is None or metadata is None:
            raise ValueError("the plug-in needs LMCache's configuration and metadata")
        self._settings = settings = Settings.of(config.extra_config)
        with settings.client() as client:  # connects nothing; tells a wrong endpoint, or keys that are missing
            client.native
        self._layouts = _Layouts(config, metadata)
        allocator = local_cpu_backend.get_memory_allocator() if local_cpu_backend is not None else None
        memory = getattr(getattr(allocator, "cpu_allocator", allocator), "buffer", None)
        self._lookups = _Lane("lookups", settings, None)
        self._reads = _Lane("reads", settings, memory)
        self._writes = _Lane("writes", settings, memory)
        self._lock = threading.Lock()
        self._written = threading.Condition(self._lock)
        self._putting: set[Any] = set()
        self._pending_bytes = 0
        self._remembered: OrderedDict[Any, _Chunk] = OrderedDict()
        self._away_until = 0.0
        self._told: set[str] = set()
        self._bucket_seen = self._closed = False
        self.counts: Counter[str] = Counter()
        self._close_before(allocator)

    def __str__(self) -> str:
        return type(self).__name__

    def _close_before(self, allocator: Any) -> None:
        """LMCache closes its allocator before its plug-ins: no request may use the memory by then."""
        if allocator is not None and hasattr(allocator, "close"):
            close = allocator.close

            def closed() -> None:
                self.close()
                close()

            allocator.close = closed

    def client_stats(self) -> dict[str, Any]:
        """Stats of the clients that are open: bytes copied, requests by transport."""
        lanes = {"lookups": self._lookups, "reads": self._reads, "writes": self._writes}
        return {name: lane.stats for name, lane in lanes.items() if lane.stats}

    # ---- The server's answers. ----

    def _tell(self, kind: str, text: str, *args: Any) -> None:
        """A warning once for each kind, until the server has answered again."""
        if kind not in self._told:
            self._told.add(kind)
            logger.warning(text, *args)

    def _away(self) -> bool:
        return self._closed or time.monotonic() < self._away_until

    def _failed(self, error: NebulaError) -> None:
        self.counts["failed"] += 1
        if error.status:
            self._tell(f"{error.status}", "chunks count as missing: %s", error)
            return
        self._away_until = time.monotonic() + self._settings.retry_s
        self._tell("away", "chunks count as missing for %g s: %s", self._settings.retry_s, error)

    def _answered(self) -> None:
        if "away" in self._told:
            self._told.discard("away")
            logger.warning("the server of %s answers again", self._settings.bucket)
        self._away_until = 0.0

    def _object_key(self, key: Any) -> str:
        name = f"{self._settings.prefix}/{quote(key.to_string(), safe='/@-_.~')}"
        if len(name) > KEY_BYTES_MAX:
            name = f"{self._settings.prefix}/{hashlib.sha256(name.encode()).hexdigest()}"
        return name

    def _place(self, key: Any) -> tuple[str, str]:
        return self._settings.bucket, self._object_key(key)

    def _see_bucket(self, client: RDMAClient) -> None:
        """HEAD of a chunk tells no missing bucket from a missing chunk."""
        if not self._bucket_seen:
            try:
                client.head_bucket(self._settings.bucket)
                self._bucket_seen = True
            except NotFoundError:
                self._tell("bucket", "there is no bucket %s: make it; chunks count as missing until then", self._settings.bucket)
            except NebulaError as error:
                self._failed(error)

    # ---- Which chunks there are. ----

    def _remember(self, key: Any, chunk: _Chunk | None) -> None:
        with self._lock:
            self._remembered.pop(key, None)
            if chunk:
                self._remembered[key] = chunk
                if len(self._remembered) > REMEMBERED_MAX:
                    self._remembered.popitem(last=False)

    def _seen(self, client: RDMAClient, keys: Sequence[Any]) -> list[_Chunk | None]:
        """The stored chunk of each key, or None, by HEAD requests in a window."""
        if self._away():
            return [None] * len(keys)
        self._see_bucket(client)
        chunks: list[_Chunk | None] = []
        outcomes = client.head_many(map(self._place, keys), window=self._settings.window, errors=True)
        for key, outcome in zip(keys, outcomes):
            chunk = None
            if isinstance(outcome, NotFoundError):
                self._answered()
            elif isinstance(outcome, NebulaError):
                self._failed(outcome)
            else:
                self._answered()
                chunk = self._layouts.chunk(key, outcome.headers.get(LAYOUT_HEADER, ""), outcome.object_bytes, outcome.etag)
                if chunk is None:
                    self.counts["strange"] += 1
                    self._tell("strange", "%s/%s is no chunk of this engine's layout, and counts as missing",
                               self._settings.bucket, self._object_key(key))
            self._remember(key, chunk)
            chunks.append(chunk)
        return chunks

    def _prefix(self, lane: _Lane, keys: Sequence[Any]) -> int:
        """How many of the first keys are stored."""
        count, step = 0, self._settings.window
        while count < len(keys):
            part = self._seen(lane.client, keys[count:count + step])
            found = next((i for i, chunk in enumerate(part) if chunk is None), len(part))
            count += found
            if found < len(part):
                break
        return count

    def contains(self, key: Any, pin: bool = False) -> bool:
        return self.batched_contains([key], pin) == 1

    def batched_contains(self, keys: list[Any], pin: bool = False) -> int:
        """Nothing is evicted here, so there is nothing to pin."""
        return 0 if self._away() else self._result(self._lookups, 0, self._prefix, list(keys))

    async def batched_async_contains(self, lookup_id: str, keys: list[Any], pin: bool = False) -> int:
        future = None if self._away() else self._submit(self._lookups, self._prefix, list(keys))
        try:
            return await asyncio.wrap_future(future) if future else 0
        except NebulaError as error:
            self._failed(error)
            return 0

    def _submit(self, lane: _Lane, work: Callable[..., _T], *args: Any) -> Future[_T] | None:
        try:
            return lane.submit(work, *args)
        except RuntimeError:  # it is closed
            return None

    def _result(self, lane: _Lane, otherwise: _T, work: Callable[..., _T], *args: Any) -> _T:
        future = self._submit(lane, work, *args)
        try:
            return future.result() if future else otherwise
        except NebulaError as error:
            self._failed(error)
            return otherwise

    # ---- Chunks in. ----

    def exists_in_put_tasks(self, key: Any) -> bool:
        with self._lock:
            return key in self._putting

    def batched_submit_put_task(self, keys: Sequence[Any], objs: list[Any], transfer_spec: Any = None,
                                on_complete_callback: Callable[[Any], None] | None = None) -> list[Future[None]] | None:
        taken: list[tuple[Any, Any]] = []
        if self._away():
            self.counts["dropped"] += len(keys)
            return None
        with self._lock:
            for key, obj in zip(keys, objs):
                if key in self._putting:
                    continue
                if self._pending_bytes + obj.get_size() > self._settings.pending_bytes and self._pending_bytes:
                    self.counts["dropped"] += 1
                    continue
                self._putting.add(key)
                self._pending_bytes += obj.get_size()
                obj.ref_count_up()
                taken.append((key, obj))
        future = self._submit(self._writes, self._write, taken, on_complete_callback) if taken else None
        if taken and not future:
            self._release(taken)
        return [future] if future else None

    async def async_batched_submit_put_task(self, keys: Sequence[Any], objs: list[Any], transfer_spec: Any = None,
                                            on_complete_callback: Callable[[Any], None] | None = None) -> None:
        for future in self.batched_submit_put_task(keys, objs, transfer_spec, on_complete_callback) or ():
            # A write that was cancelled before it began would never give back its references.
            await asyncio.shield(asyncio.wrap_future(future))

    def _release(self, taken: Iterable[tuple[Any, Any]]) -> None:
        with self._written:
            for key, obj in taken:
                self._putting.discard(key)
                self._pending_bytes -= obj.get_size()
            self._written.notify_all()
        for _, obj in taken:
            obj.ref_count_down()

    def _write(self, lane: _Lane, taken: list[tuple[Any, Any]], callback: Callable[[Any], None] | None) -> None:
        done: list[Any] = []
        try:
            there = self._seen(lane.client, [key for key, _ in taken])
            done = [key for (key, _), chunk in zip(taken, there) if chunk]
            self.counts["there"] += len(done)
            done += self._put(lane.client, [one for one, chunk in zip(taken, there) if not chunk])
        except Exception:
            logger.exception("%d chunks are not stored", len(taken) - len(done))  # LMCache looks at no future
            raise
        finally:
            self._release(taken)
        for key in done if callback else ():
            try:
                callback(key)  # type: ignore[misc]
            except Exception:
                logger.exception("the caller's on_complete_callback of %s", key)

    def _put(self, client: RDMAClient, missing: list[tuple[Any, Any]]) -> list[Any]:
        if self._away():
            self.counts["dropped"] += len(missing)
            return []
        done = []
        outcomes = client.put_many(((*self._place(key), obj.byte_array, {LAYOUT_HEADER: self._layouts.text(obj)})
                                    for key, obj in missing), window=self._settings.window, errors=True)
        for (key, obj), outcome in zip(missing, outcomes):
            if isinstance(outcome, NebulaError):
                self._failed(outcome)
                continue
            self.counts["stored"] += 1
            self._remember(key, self._layouts.chunk(key, self._layouts.text(obj), obj.get_size(), outcome.etag))
            done.append(key)
        return done

    # ---- Chunks out. ----

    def _allocated(self, chunk: _Chunk) -> Any:
        """Memory of LMCache's, or None. Waits for our own writes, which hold such memory, and for nothing else."""
        while True:
            with self._lock:
                waiting = self._pending_bytes
            obj = self.local_cpu_backend.allocate(chunk.shapes, chunk.dtypes, chunk.fmt, busy_loop=False)
            if obj is not None or not waiting:
                return obj
            with self._written:
                if self._pending_bytes >= waiting and not self._written.wait(self._settings.timeout_s):
                    return None

    def _room(self, client: RDMAClient, keys: Sequence[Any]) -> list[tuple[Any, _Chunk, Any]]:
        """Key, chunk and memory for each of the first keys that are stored."""
        with self._lock:
            known = {key: self._remembered[key] for key in keys if key in self._remembered}
        unknown = [key for key in keys if key not in known]
        known.update((key, chunk) for key, chunk in zip(unknown, self._seen(client, unknown)) if chunk)
        room: list[tuple[Any, _Chunk, Any]] = []
        for key in keys:
            chunk = known.get(key)
            obj = self._allocated(chunk) if chunk else None
            if chunk is None or obj is None:
                break
            room.append((key, chunk, obj))
        return room

    def _read(self, lane: _Lane, keys: Sequence[Any]) -> list[Any]:
        """The chunks of the first keys that are stored, each with a reference for the caller."""
        objs: list[Any] = []
        for _ in range(TRIES_MAX):
            if self._away():
                break
            room = self._room(lane.client, keys[len(objs):])
            outcomes: list[Any] = []
            try:
                outcomes = lane.client.native.get_batch([(*self._place(key), obj.byte_array) for key, _, obj in room],
                                                   self._settings.window) if room else []
            finally:
                good = self._landed(room, outcomes)
                objs += [obj for _, _, obj in room[:good]]
                for key, _, obj in room[good:]:
                    obj.ref_count_down()
            # The object there may be another one by now: its layout is asked for again.
            if good == len(room) or isinstance(outcomes[good], NotFoundError):
                break
            self._remember(room[good][0], None)
        self.counts["hit"] += len(objs)
        self.counts["miss"] += len(keys) - len(objs)
        return objs

    def _landed(self, room: list[tuple[Any, _Chunk, Any]], outcomes: list[Any]) -> int:
        """How many of the first chunks have their bytes."""
        for number, ((key, chunk, _), outcome) in enumerate(zip(room, outcomes)):
            if isinstance(outcome, NotFoundError):
                self._remember(key, None)
            elif isinstance(outcome, NebulaError):
                self._failed(outcome)
            elif (outcome.bytes, outcome.etag) == (chunk.size, chunk.etag):
                continue
            return number
        return len(outcomes)

    def get_blocking(self, key: Any) -> Any:
        return self.batched_get_blocking([key])[0]

    def batched_get_blocking(self, keys: list[Any]) -> list[Any]:
        """None from the first chunk on that is missing."""
        if self._away() or self.local_cpu_backend is None:
            return [None] * len(keys)
        objs = self._result(self._reads, [], self._read, list(keys))
        return objs + [None] * (len(keys) - len(objs))

    def get_non_blocking(self, key: Any, location: str | None = None) -> Future[Any] | None:
        if self._away() or self.local_cpu_backend is None:
            return None
        return self._submit(self._reads, lambda lane: (self._read(lane, [key]) or [None])[0])

    async def batched_get_non_blocking(self, lookup_id: str, keys: list[Any], transfer_spec: Any = None) -> list[Any]:
        """The chunks up to the first one that is missing."""
        if self._away() or self.local_cpu_backend is None:
            return []
        future = self._submit(self._reads, self._read, list(keys))
        if future is None:
            return []
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except NebulaError as error:
            self._failed(error)
            return []
        except asyncio.CancelledError:
            future.add_done_callback(_drop)
            raise

    # ---- The rest. ----

    def pin(self, key: Any) -> bool:
        return True

    def unpin(self, key: Any) -> bool:
        return True

    def touch_cache(self) -> None:
        pass

    def remove(self, key: Any, force: bool = True) -> bool:
        return self.batched_remove([key], force) == 1

    def batched_remove(self, keys: list[Any], force: bool = True) -> int:
        return 0 if self._away() else self._result(self._lookups, 0, self._delete, list(keys))

    def _delete(self, lane: _Lane, keys: list[Any]) -> int:
        stored = [key for key, chunk in zip(keys, self._seen(lane.client, keys)) if chunk]
        removed = 0
        for key, outcome in zip(stored, lane.client.delete_many(map(self._place, stored), errors=True)):
            self._remember(key, None)
            if isinstance(outcome, NebulaError):
                self._failed(outcome)
            else:
                removed += 1
        return removed

    def get_allocator_backend(self) -> Any:
        return self.local_cpu_backend

    def close(self) -> None:
        """Waits for the chunks that are being written."""
        for lane in (self._lookups, self._reads, self._writes):
            lane.close()
        self._closed = True


def _drop(future: Future[list[Any]]) -> None:
    """Nobody waits for these chunks any more."""
    if not future.cancelled() and not future.exception():
        for obj in future.result():
            obj.ref_count_down()
