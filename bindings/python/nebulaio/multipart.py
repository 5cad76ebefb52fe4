"""An object sent in parts: larger than the limit of one request, or not complete when the first part is sent."""

from __future__ import annotations

import base64
import contextlib
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import unescape

from . import _native
from .errors import NebulaError, invalid

if TYPE_CHECKING:
    from .rdma import RDMAClient

PART_BYTES_MIN = 5 << 20
PARTS_MAX = 10000
ANSWER_BYTES = 64 << 10
# S3 applies these when the upload is completed, not when it begins.
CONDITIONS = ("if-match", "if-none-match")
ETAG_FIELD = 5  # of a Result


def crc32_of(pieces: Iterable[Any]) -> bytes:
    """Of pieces of memory, one behind the other, as the server takes it."""
    crc = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
    return crc.to_bytes(4, "big")


def cut(pieces: Iterable[Any], part_bytes: int) -> Iterator[list[Any]]:
    """Groups pieces of memory into parts of part_bytes, each with at most as many pieces as a request takes. Where
    small pieces would make a part too short, a copy gathers them: a bytes object among the memoryviews."""
    group: list[Any] = []
    size = 0
    for piece in pieces:
        view = memoryview(piece).cast("B")
        while len(view):
            first = view[:part_bytes - size]
            view = view[len(first):]
            if len(group) == _native.PIECES_MAX:
                group = [b"".join(group)] if size < PART_BYTES_MIN else group
                if len(group) > 1:
                    yield group
                    group, size = [], 0
            group.append(first)
            size += len(first)
            if size >= part_bytes:
                yield group
                group, size = [], 0
    if group:
        yield group


class MultipartUpload:
    """part() numbers the parts from 1. Readers see the object after complete(), or not at all. headers: the object's;
    with if-match or if-none-match complete() raises PreconditionError when the key's object is another one by then.
    checksum: the server verifies each part's CRC-32. timeout: seconds of each request."""

    def __init__(self, client: RDMAClient, bucket: str, key: str, headers: dict[str, str] | None = None, *,
                 checksum: bool = False, timeout: float = 0.0) -> None:
        self._client, self._bucket, self._key = client, bucket, key
        self._checksum, self._timeout = checksum, timeout
        self._parts: list[str] = []
        self._answer = bytearray(ANSWER_BYTES)
        self._conditions: dict[str, str] = {}
        of_object: dict[str, str] = {}
        for name, value in (headers or {}).items():
            (self._conditions if name.lower() in CONDITIONS else of_object)[name] = value
        if checksum:
            of_object["x-amz-checksum-algorithm"] = "CRC32"
        with client._passing([self._answer]):
            result = client.native.perform(_native.CREATE_MULTIPART, bucket, key, headers=of_object, into=self._answer,
                                           timeout=timeout)
        found = re.search(rb"<UploadId>([^<]+)</UploadId>", self._answer[:result.bytes])
        if not found:
            raise invalid("the server's answer names no upload", bucket=bucket, key=key)
        self._upload = unescape(found[1].decode())

    @property
    def part_count(self) -> int:
        return len(self._parts)

    def part(self, body: Any) -> _native.Result:
        """body: memory, or a list of up to 16 pieces of memory. Every part but the last has at least 5 MiB."""
        from urllib.parse import quote

        if len(self._parts) == PARTS_MAX:
            raise invalid(f"an object has at most {PARTS_MAX} parts", bucket=self._bucket, key=self._key)
        number = len(self._parts) + 1
        query = f"partNumber={number}&uploadId={quote(self._upload, safe='')}"
        options: dict[str, Any] = {}
        checksum = ""
        if self._checksum:
            crc = crc32_of(body if isinstance(body, list) else [body])
            options = {"checksum_kind": _native.CHECKSUM_CRC32, "checksum": crc}
            checksum = f"<ChecksumCRC32>{base64.b64encode(crc).decode()}</ChecksumCRC32>"
        result = self._client.native.perform(_native.UPLOAD_PART, self._bucket, self._key, body=body, query=query,
                                             timeout=self._timeout, **options)
        self._parts.append(f'<Part><PartNumber>{number}</PartNumber><ETag>"{result.etag}"</ETag>{checksum}</Part>')
        return result

    def complete(self) -> _native.Result:
        from urllib.parse import quote

        document = f"<CompleteMultipartUpload>{''.join(self._parts)}</CompleteMultipartUpload>".encode()
        with self._client._passing([document, self._answer]):
            result = self._client.native.perform(
                _native.COMPLETE_MULTIPART, self._bucket, self._key, body=document,
                query=f"uploadId={quote(self._upload, safe='')}", headers=self._conditions, into=self._answer,
                timeout=self._timeout)
        # S3 names the object's ETag in the document, not in a header.
        found = re.search(rb"<ETag>([^<]+)</ETag>", self._answer[:result.bytes])
        etag = unescape(found[1].decode(), {"&quot;": '"'}).strip('"') if found else result.etag
        return _native.Result((*result[:ETAG_FIELD], etag, *result[ETAG_FIELD + 1:]))

    def put(self, pieces: Iterable[Any], part_bytes: int) -> _native.Result:
        """Sends pieces of memory, one behind the other, in parts, and completes the upload; after an error it is aborted."""
        try:
            for group in cut(pieces, part_bytes):
                with self._client._passing([piece for piece in group if isinstance(piece, bytes)]):  # gathered by cut()
                    self.part(group)
            return self.complete()
        except BaseException:
            with contextlib.suppress(NebulaError):  # the first error is the one to tell
                self.abort()
            raise

    def abort(self) -> None:
        from urllib.parse import quote

        self._client.native.perform(_native.ABORT_MULTIPART, self._bucket, self._key,
                                    query=f"uploadId={quote(self._upload, safe='')}")
