"""The same for LMCache's multi-process mode: a tier below the memory of LMCache's server process, by its adapter type "plugin":

    lmcache server ... --l2-adapter '{"type": "plugin", "module_path": "nebulaio.lmcache_l2", "class_name": "NebulaAdapter",
        "adapter_params": {"bucket": "kvcache", "endpoint": "rdma://127.0.0.1:9100,http://127.0.0.1:9000"}}'

adapter_params are the settings of lmcache.py without "nebulaio.". Each chunk is an object, moved between the server and
LMCache's memory, which is registered once with each client, as a whole or chunk by chunk. Stores, lookups and loads each have a thread with a client.

An object is as long as its chunk; one of another length counts as missing. When the server gives no answer, stores fail
and chunks are missing, too, and it is asked again after retry_s seconds. Written for LMCache 0.5.6."""

from __future__ import annotations

import ctypes
import hashlib
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from lmcache.lmcache_native import Bitmap
from lmcache.logging import init_logger
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
from lmcache.v1.platform import create_event_notifier

from .errors import NebulaError, NotFoundError
from .lmcache import KEY_BYTES_MAX, REMEMBERED_MAX, Settings, _Lane

logger = init_logger(__name__)


def _memory(desc: Any) -> Any:
    """LMCache's memory, as far as LMCache says that it stays; None: it says nothing, as of shared memory."""
    size = (desc.stable_registration_size or 0) if desc is not None else 0
    return memoryview((ctypes.c_ubyte * size).from_address(desc.ptr)) if size else None


class _Tasks:
    """Results of one kind of task until LMCache takes them, and the descriptor that tells of them."""

    def __init__(self, lane: _Lane, otherwise: Callable[[Sequence[Any]], Any]) -> None:
        self.lane, self.otherwise = lane, otherwise
        self.notifier = create_event_notifier()
        self.done: dict[int, Any] = {}
        self.ended = False


class NebulaAdapter(L2AdapterInterface):  # type: ignore[misc]
    """counts: stored, hit, miss, failed (of chunks), dropped (of chunks: too many waited, or the server was away)."""

    def __init__(self, params: Mapping[str, Any], l1_memory_desc: Any = None) -> None:
        super().__init__()
        self._settings = settings = Settings.of({f"nebulaio.{name}": value for name, value in params.items()})
        with settings.client() as client:  # connects nothing; tells a wrong endpoint, or keys that are missing
            client.native
        memory = _memory(l1_memory_desc)
        # LMCache's memory ends after its adapters do. Where it is not registered as a whole, each chunk stays registered.
        cache = {"registration_cache_bytes": l1_memory_desc.size} if l1_memory_desc is not None and memory is None else {}
        self._stores = _Tasks(_Lane("stores", settings, memory, **cache), lambda keys: L2StoreResult(False, 0))
        self._lookups = _Tasks(_Lane("lookups", settings, None), lambda keys: Bitmap(len(keys)))
        self._loads = _Tasks(_Lane("loads", settings, memory, **cache), lambda keys: Bitmap(len(keys)))
        self._lock = threading.Lock()
        self._next = 0
        self._pending_bytes = 0
        self._locked: Counter[Any] = Counter()
        self._sizes: OrderedDict[Any, int] = OrderedDict()
        self._away_until = 0.0
        self._told: set[int] = set()
        self._closed = False
        self.counts: Counter[str] = Counter()

    # ---- Tasks. ----

    def get_store_event_fd(self) -> int:
        return int(self._stores.notifier.fileno())

    def get_lookup_and_lock_event_fd(self) -> int:
        return int(self._lookups.notifier.fileno())

    def get_load_event_fd(self) -> int:
        return int(self._loads.notifier.fileno())

    def _submit(self, tasks: _Tasks, work: Callable[..., Any], keys: Sequence[Any], *args: Any) -> int:
        """Of work(client, keys, ...). A task that is not begun ends at once, with no chunk."""
        with self._lock:
            self._next += 1
            number = self._next
        if not self._closed and time.monotonic() >= self._away_until and self._begun(tasks, number, work, keys, args):
            return number
        self.counts["dropped"] += len(keys)
        self._finish(tasks, number, tasks.otherwise(keys))
        return number

    def _begun(self, tasks: _Tasks, number: int, work: Callable[..., Any], keys: Sequence[Any], args: Sequence[Any]) -> bool:
        size = sum(obj.get_size() for obj in args[0]) if tasks is self._stores else 0
        with self._lock:
            if size and self._pending_bytes and self._pending_bytes + size > self._settings.pending_bytes:
                return False
            self._pending_bytes += size
        try:
            future = tasks.lane.submit(self._perform, tasks, number, work, keys, *args)
        except RuntimeError:  # it is closed
            self._ended(size)
            return False
        future.add_done_callback(lambda _: self._ended(size))
        return True

    def _ended(self, size: int) -> None:
        with self._lock:
            self._pending_bytes -= size

    def _perform(self, lane: _Lane, tasks: _Tasks, number: int, work: Callable[..., Any], keys: Sequence[Any], *args: Any) -> None:
        outcome = tasks.otherwise(keys)
        failed = self.counts["failed"]
        try:
            outcome = work(lane.client, keys, *args)
            if self.counts["failed"] == failed:
                self._told.clear()
        except NebulaError as error:
            self._failed(error)
        except Exception:
            logger.exception("a task of %d chunks", len(keys))  # LMCache waits for its end
        finally:
            self._finish(tasks, number, outcome)

    def _finish(self, tasks: _Tasks, number: int, outcome: Any) -> None:
        with self._lock:
            tasks.done[number] = outcome
            if not tasks.ended:
                tasks.notifier.notify()

    def _take(self, tasks: _Tasks, number: int) -> Any:
        with self._lock:
            return tasks.done.pop(number, None)

    def _failed(self, error: NebulaError) -> None:
        self.counts["failed"] += 1
        if not error.status:
            self._away_until = time.monotonic() + self._settings.retry_s
        if error.status not in self._told:  # once for each status, until a task ends without a failure
            self._told.add(error.status)
            logger.warning("chunks count as missing: %s", error)

    def _place(self, key: Any) -> tuple[str, str]:
        salt = f"@{key.cache_salt}" if key.cache_salt else ""
        text = f"{key.model_name}@{key.kv_rank:08x}@{key.object_group_id:x}@{key.chunk_hash.hex()}{salt}"
        name = f"{self._settings.prefix}/{quote(text, safe='/@-_.~')}"
        if len(name) > KEY_BYTES_MAX:
            name = f"{self._settings.prefix}/{hashlib.sha256(name.encode()).hexdigest()}"
        return self._settings.bucket, name

    # ---- Chunks in. ----

    def submit_store_task(self, keys: list[Any], objects: list[Any]) -> int:
        return self._submit(self._stores, self._store, list(keys), list(objects))

    def pop_completed_store_tasks(self) -> dict[int, Any]:
        with self._lock:
            done, self._stores.done = self._stores.done, {}
        return done

    def _store(self, client: Any, keys: Sequence[Any], objects: Sequence[Any]) -> Any:
        outcomes = client.put_many(((*self._place(key), obj.byte_array) for key, obj in zip(keys, objects)),
                                   window=self._settings.window, errors=True)
        new: list[Any] = []
        well = True
        for key, obj, outcome in zip(keys, objects, outcomes):
            if isinstance(outcome, NebulaError):
                self._failed(outcome)
                well = False
                continue
            self.counts["stored"] += 1
            with self._lock:
                if key not in self._sizes:
                    new.append((key, obj.get_size()))
                self._sizes[key] = obj.get_size()
                if len(self._sizes) > REMEMBERED_MAX:
                    self._sizes.popitem(last=False)
        if new:
            self._notify_keys_stored([key for key, _ in new], [bytes_ for _, bytes_ in new])
        return L2StoreResult(well, sum(bytes_ for _, bytes_ in new))

    # ---- Which chunks there are. ----

    def submit_lookup_and_lock_task(self, keys: list[Any], group_layout_descs: Any) -> int:
        return self._submit(self._lookups, self._look_up, list(keys))

    def query_lookup_and_lock_result(self, task_id: int) -> Any:
        return self._take(self._lookups, task_id)

    def _look_up(self, client: Any, keys: Sequence[Any]) -> Any:
        found = Bitmap(len(keys))
        seen = []
        for number, outcome in enumerate(client.head_many(map(self._place, keys), window=self._settings.window, errors=True)):
            if isinstance(outcome, NotFoundError):
                continue
            if isinstance(outcome, NebulaError):
                self._failed(outcome)
            elif outcome.object_bytes:
                found.set(number)
                seen.append(keys[number])
        with self._lock:
            self._locked.update(seen)
        if seen:
            self._notify_keys_accessed(seen)
        return found

    def submit_unlock(self, keys: list[Any]) -> None:
        with self._lock:
            self._locked.subtract([key for key in keys if key in self._locked])
            self._locked = +self._locked

    # ---- Chunks out. ----

    def submit_load_task(self, keys: list[Any], objects: list[Any]) -> int:
        return self._submit(self._loads, self._load, list(keys), list(objects))

    def query_load_result(self, task_id: int) -> Any:
        return self._take(self._loads, task_id)

    def _load(self, client: Any, keys: Sequence[Any], objects: Sequence[Any]) -> Any:
        found = Bitmap(len(keys))
        outcomes = client.native.get_batch([(*self._place(key), obj.byte_array) for key, obj in zip(keys, objects)],
                                           self._settings.window, 0.0)
        for number, (obj, outcome) in enumerate(zip(objects, outcomes)):
            if not isinstance(outcome, Exception) and outcome.bytes == obj.get_size():
                found.set(number)
            elif isinstance(outcome, NebulaError) and not isinstance(outcome, NotFoundError):
                self._failed(outcome)
        self.counts["hit"] += found.popcount()
        self.counts["miss"] += len(keys) - found.popcount()
        return found

    # ---- Removal, state, end. ----

    def delete(self, keys: list[Any]) -> None:
        """Removes chunks, but for those that a load has locked. LMCache's eviction calls it."""
        with self._lock:
            keys = [key for key in keys if self._locked[key] <= 0]
        try:
            gone = self._lookups.lane.submit(self._delete, keys).result() if keys else []
        except (NebulaError, RuntimeError) as error:
            logger.warning("%d chunks are not removed: %s", len(keys), error)
            return
        with self._lock:
            sizes = [self._sizes.pop(key, 0) for key in gone]
        if gone:
            self._notify_keys_deleted(gone, sizes)

    def _delete(self, lane: _Lane, keys: Sequence[Any]) -> list[Any]:
        outcomes = lane.client.delete_many(map(self._place, keys), window=self._settings.window, errors=True)
        return [key for key, outcome in zip(keys, outcomes) if not isinstance(outcome, Exception)]

    def client_stats(self) -> dict[str, Any]:
        """Stats of the clients that are open: bytes copied, requests by transport."""
        lanes = {"lookups": self._lookups.lane, "loads": self._loads.lane, "stores": self._stores.lane}
        return {name: lane.stats for name, lane in lanes.items() if lane.stats}

    def report_status(self) -> dict[str, Any]:
        return {"is_healthy": not self._closed and time.monotonic() >= self._away_until, "type": type(self).__name__,
                "bucket": self._settings.bucket, **self.counts}

    def close(self) -> None:
        """Waits for the tasks that were submitted."""
        if not self._closed:
            self._closed = True
            for tasks in (self._stores, self._lookups, self._loads):
                tasks.lane.close()
                with self._lock:
                    tasks.ended = True
                    tasks.notifier.close()
