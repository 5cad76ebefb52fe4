"""AsyncRDMAClient: the same calls, awaited. Each runs in a thread of a pool, and each thread has a client, because the
library serves one thread at a time and blocks while it waits; the interpreter's lock is released meanwhile. As many
requests are in flight as there are workers; get_many() and put_many() send a window of many requests.

A cancelled call continues in its thread, and its memory stays in use, until its request has ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

from ._native import Result
from .errors import NebulaError
from .rdma import BucketInfo, ObjectData, ObjectInfo, RDMAClient

WORKERS = 4
_T = TypeVar("_T")


class AsyncRDMAClient:
    """Takes RDMAClient's arguments and the number of workers. The first call connects."""

    def __init__(self, *args: Any, workers: int = WORKERS, **options: Any) -> None:
        self._first = RDMAClient(*args, **options)
        self._mine = threading.local()
        self._clients = [self._first]
        self._unused = [self._first]  # no worker has taken it yet
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="nebulaio")

    def _client(self) -> RDMAClient:
        client: RDMAClient | None = getattr(self._mine, "client", None)
        if client is None:
            with self._lock:
                client = self._unused.pop() if self._unused else None
            if client is None:
                client = self._first.clone()
                with self._lock:
                    self._clients.append(client)
            self._mine.client = client
        return client

    async def _call(self, method: Callable[..., _T], *args: Any, **options: Any) -> _T:
        def work() -> _T:
            return method(self._client(), *args, **options)

        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def ping(self) -> Result:
        return await self._call(RDMAClient.ping)

    async def get_object(self, bucket: str, key: str, **options: Any) -> ObjectData:
        return await self._call(RDMAClient.get_object, bucket, key, **options)

    async def get_into(self, bucket: str, key: str, buffer: Any, **options: Any) -> Result:
        return await self._call(RDMAClient.get_into, bucket, key, buffer, **options)

    async def get_fan_out(self, bucket: str, key: str, buffer: Any, **options: Any) -> Result:
        return await self._call(RDMAClient.get_fan_out, bucket, key, buffer, **options)

    async def put_object(self, bucket: str, key: str, body: Any, **options: Any) -> Result:
        return await self._call(RDMAClient.put_object, bucket, key, body, **options)

    async def put_from(self, bucket: str, key: str, buffer: Any, **options: Any) -> Result:
        return await self._call(RDMAClient.put_from, bucket, key, buffer, **options)

    async def delete_object(self, bucket: str, key: str, **options: Any) -> Result:
        return await self._call(RDMAClient.delete_object, bucket, key, **options)

    async def head_object(self, bucket: str, key: str, **options: Any) -> Result:
        return await self._call(RDMAClient.head_object, bucket, key, **options)

    async def copy_object(self, source_bucket: str, source_key: str, bucket: str, key: str) -> Result:
        return await self._call(RDMAClient.copy_object, source_bucket, source_key, bucket, key)

    async def get_many(self, requests: Iterable[tuple[Any, ...]], **options: Any) -> list[Result]:
        return await self._call(RDMAClient.get_many, requests, **options)

    async def read_many(self, requests: Iterable[tuple[Any, ...]], **options: Any) -> list[Any]:
        return await self._call(RDMAClient.read_many, requests, **options)

    async def put_many(self, requests: Iterable[tuple[Any, ...]], **options: Any) -> list[Any]:
        return await self._call(RDMAClient.put_many, requests, **options)

    async def head_many(self, requests: Iterable[tuple[str, str]], **options: Any) -> list[Any]:
        return await self._call(RDMAClient.head_many, requests, **options)

    async def delete_many(self, requests: Iterable[tuple[str, str]], **options: Any) -> list[Any]:
        return await self._call(RDMAClient.delete_many, requests, **options)

    async def get_object_numpy(self, bucket: str, key: str, **options: Any) -> Any:
        return await self._call(RDMAClient.get_object_numpy, bucket, key, **options)

    async def put_object_numpy(self, bucket: str, key: str, array: Any, **options: Any) -> Result:
        return await self._call(RDMAClient.put_object_numpy, bucket, key, array, **options)

    async def list_objects(self, bucket: str, prefix: str = "", **options: Any) -> list[ObjectInfo]:
        return await self._call(RDMAClient.list_objects, bucket, prefix, **options)

    async def create_bucket(self, bucket: str) -> Result:
        return await self._call(RDMAClient.create_bucket, bucket)

    async def delete_bucket(self, bucket: str) -> Result:
        return await self._call(RDMAClient.delete_bucket, bucket)

    async def list_buckets(self) -> list[BucketInfo]:
        return await self._call(RDMAClient.list_buckets)

    async def forget(self, memory: Any) -> None:
        """RDMAClient's: drops the registrations that any worker's client has of memory that is about to be freed."""
        def work() -> None:
            with self._lock:
                clients = list(self._clients)
            failed: NebulaError | None = None
            for client in clients:
                try:
                    client.forget(memory)
                except NebulaError as error:  # a request uses the memory; the others drop theirs
                    failed = failed or error
            if failed:
                raise failed

        await asyncio.get_running_loop().run_in_executor(None, work)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        for client in self._clients:
            client.close()

    async def __aenter__(self) -> AsyncRDMAClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()
