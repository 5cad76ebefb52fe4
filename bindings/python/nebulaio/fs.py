"""nebulaio://bucket/key for fsspec, through which pandas, pyarrow, zarr and dask read and write. The package's entry
point registers it; needs fsspec.

    pandas.read_csv("nebulaio://bucket/table.csv", storage_options={"endpoint": "127.0.0.1:9100"})

Options are RDMAClient's. Each thread and each process has its own client, which the first call opens."""

from __future__ import annotations

import inspect
import os
import threading
from datetime import datetime
from typing import Any

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem  # type: ignore[import-untyped]

from .errors import ConflictError, NotFoundError, PreconditionError
from .multipart import MultipartUpload
from .rdma import ObjectInfo, RDMAClient

CREATE = {"if-none-match": "*"}
CLIENT_OPTIONS = frozenset(inspect.signature(RDMAClient).parameters)


class NebulaFileSystem(AbstractFileSystem):  # type: ignore[misc]
    protocol = "nebulaio"
    root_marker = ""

    def __init__(self, endpoint: str | None = None, access_key: str | None = None, secret_key: str | None = None,
                 **options: Any) -> None:
        super().__init__(endpoint=endpoint, access_key=access_key, secret_key=secret_key, **options)
        unknown = [name for name in options if name not in CLIENT_OPTIONS and name not in (
            "use_listings_cache", "listings_expiry_time", "max_paths", "skip_instance_cache", "asynchronous", "loop",
            "batch_size")]
        if unknown:
            raise TypeError(f"nebulaio has no option {', '.join(unknown)}")
        self._named = dict(endpoint=endpoint, access_key=access_key, secret_key=secret_key,
                           **{name: options[name] for name in options if name in CLIENT_OPTIONS})
        self._mine = threading.local()

    @property
    def client(self) -> RDMAClient:
        """The client of this thread, in this process."""
        if getattr(self._mine, "pid", None) != os.getpid():
            self._mine.client = RDMAClient(**self._named)
            self._mine.pid = os.getpid()
        client: RDMAClient = self._mine.client
        return client

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = str(path)
        if path.startswith("nebulaio://"):
            path = path[len("nebulaio://"):]
        return path.strip("/") if path.count("/") < 2 else path.lstrip("/").rstrip("/")

    @staticmethod
    def _split(path: str) -> tuple[str, str]:
        bucket, _, key = path.partition("/")
        return bucket, key

    # ---- Reading the namespace. ----

    @staticmethod
    def _info_of(bucket: str, entry: ObjectInfo) -> dict[str, Any]:
        name = f"{bucket}/{entry.key}"
        if entry.is_prefix:
            return {"name": name.rstrip("/"), "size": 0, "type": "directory"}
        return {"name": name, "size": entry.size, "type": "file", "ETag": entry.etag,
                "LastModified": entry.last_modified}

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        bucket, key = self._split(self._strip_protocol(path))
        if not bucket:
            entries = [{"name": one.name, "size": 0, "type": "directory", "created": one.created}
                       for one in self.client.list_buckets()]
        else:
            prefix = key + "/" if key else ""
            entries = [self._info_of(bucket, entry) for entry in self.client.list_objects(bucket, prefix, delimiter="/")
                       if entry.key != prefix]
            if key and not entries:
                entries = [self.info(path)]
                if entries[0]["type"] == "directory":
                    entries = []
        return entries if detail else sorted(entry["name"] for entry in entries)

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        bucket, key = self._split(path)
        if not bucket:
            return {"name": "", "size": 0, "type": "directory"}
        if not key:
            self.client.head_bucket(bucket)
            return {"name": bucket, "size": 0, "type": "directory"}
        try:
            result = self.client.head_object(bucket, key)
        except NotFoundError:
            if not self.client.list_objects(bucket, key + "/", limit=1):
                raise FileNotFoundError(path) from None
            return {"name": path, "size": 0, "type": "directory"}
        headers = result.headers or {}
        return {"name": path, "size": result.object_bytes, "type": "file", "ETag": result.etag,
                "LastModified": headers.get("last-modified"), "ContentType": headers.get("content-type")}

    def modified(self, path: str) -> datetime:
        from email.utils import parsedate_to_datetime

        return parsedate_to_datetime(self.info(path)["LastModified"])

    def checksum(self, path: str) -> int:
        return int.from_bytes(self.info(path)["ETag"].encode(), "big")

    # ---- Changes of the namespace. ----

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        bucket, key = self._split(self._strip_protocol(path))
        if not key:
            self.client.create_bucket(bucket)
        elif create_parents:
            self.makedirs(bucket, exist_ok=True)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        bucket, key = self._split(self._strip_protocol(path))
        try:
            self.client.create_bucket(bucket)
        except ConflictError:
            if not exist_ok and not key:
                raise

    def rmdir(self, path: str) -> None:
        bucket, key = self._split(self._strip_protocol(path))
        if not key:
            self.client.delete_bucket(bucket)

    def _rm(self, path: str) -> None:
        bucket, key = self._split(self._strip_protocol(path))
        if key:
            self.client.delete_object(bucket, key)
        else:
            self.client.delete_bucket(bucket)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Common prefixes are no objects: a prefix disappears with its last object."""
        for one in reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth)):
            self._rm(one)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        source, target = self._split(self._strip_protocol(path1)), self._split(self._strip_protocol(path2))
        if self.isdir(path1):
            self.makedirs(target[0], exist_ok=True)
        else:
            self.client.copy_object(*source, *target)

    # ---- Bytes. ----

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, if_match: str | None = None,
                 **options: Any) -> bytes:
        bucket, key = self._split(self._strip_protocol(path))
        if start is None and end is None:
            return self.client.get_object(bucket, key, if_match=if_match)
        if (start or 0) < 0 or (end or 0) < 0:
            head = self.client.head_object(bucket, key)
            size, if_match = head.object_bytes, if_match or head.etag
            start = max(size + start, 0) if start is not None and start < 0 else start
            end = size + end if end is not None and end < 0 else end
        start = start or 0
        if end is None:
            return self.client.get_object(bucket, key, offset=start, if_match=if_match)
        if end <= start:
            return b""
        return self.client.get_object(bucket, key, offset=start, length=end - start, if_match=if_match)

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **options: Any) -> None:
        bucket, key = self._split(self._strip_protocol(path))
        client = self.client
        # The caller, who gave it, does not know the client.
        with client._passing(value if isinstance(value, (list, tuple)) else [value]):
            client.put_object(bucket, key, value, headers=CREATE if mode == "create" else None)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, autocommit: bool = True,
              cache_options: dict[str, Any] | None = None, **options: Any) -> NebulaFile:
        return NebulaFile(self, path, mode, block_size or NebulaFile.DEFAULT_BLOCK_SIZE, autocommit,
                          cache_options=cache_options, **options)


class NebulaFile(AbstractBufferedFile):  # type: ignore[misc]
    """Reads by ranges, all of the object that was opened; writes a short file by one request, else an upload in parts."""

    DEFAULT_BLOCK_SIZE = 8 << 20
    fs: NebulaFileSystem

    def __init__(self, fs: NebulaFileSystem, path: str, mode: str, block_size: int, autocommit: bool,
                 **options: Any) -> None:
        if mode not in ("rb", "wb", "xb"):
            raise ValueError(f"mode {mode}: objects are read or written whole")
        self._upload: MultipartUpload | None = None
        self._bucket, self._key = fs._split(fs._strip_protocol(path))
        super().__init__(fs, path, mode, max(block_size, 5 << 20) if "r" not in mode else block_size, autocommit,
                         **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        try:
            return self.fs.cat_file(self.path, start, end, if_match=self.details["ETag"])
        except PreconditionError as error:
            error.strerror = f"{self.path} was replaced after it was opened: open it again ({error.strerror})"
            raise

    def _initiate_upload(self) -> None:
        """The first part decides: see _upload_chunk."""

    def _upload_chunk(self, final: bool = False) -> bool:
        chunk = self.buffer.getvalue()
        if final and self._upload is None:
            if not self.autocommit:
                return False  # fsspec then keeps the buffer, which commit() stores
            self.commit()
            return True
        if self._upload is None:
            self._upload = MultipartUpload(self.fs.client, self._bucket, self._key, CREATE if "x" in self.mode else None)
        if chunk:
            with self._upload._client._passing([chunk]):
                self._upload.part(chunk)
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        if self._upload is None:
            self.fs.pipe_file(self.path, self.buffer.getvalue(), "create" if "x" in self.mode else "overwrite")
            return
        try:
            self._upload.complete()
        except (ConflictError, PreconditionError):
            self.discard()
            raise

    def discard(self) -> None:
        if self._upload is not None:
            self._upload.abort()
            self._upload = None
