"""An object sent in parts: larger than the limit of one request, or not complete when the first part is sent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import unescape

from . import _native
from .errors import invalid

if TYPE_CHECKING:
    from .rdma import RDMAClient

PART_BYTES_MIN = 5 << 20
PARTS_MAX = 10000
ANSWER_BYTES = 64 << 10
# S3 applies these when the upload is completed, not when it begins.
CONDITIONS = ("if-match", "if-none-match")
ETAG_FIELD = 5  # of a Result


class MultipartUpload:
    """part() numbers the parts from 1. Readers see the object after complete(), or not at all. headers: the object's;
    with if-match or if-none-match complete() raises PreconditionError when the key's object is another one by then."""

    def __init__(self, client: RDMAClient, bucket: str, key: str, headers: dict[str, str] | None = None) -> None:
        self._client, self._bucket, self._key = client, bucket, key
        self._etags: list[str] = []
        self._answer = bytearray(ANSWER_BYTES)
        self._conditions: dict[str, str] = {}
        of_object: dict[str, str] = {}
        for name, value in (headers or {}).items():
            (self._conditions if name.lower() in CONDITIONS else of_object)[name] = value
        result = client.native.perform(_native.CREATE_MULTIPART, bucket, key, headers=of_object, into=self._answer)
        found = re.search(rb"<UploadId>([^<]+)</UploadId>", self._answer[:result.bytes])
        if not found:
            raise invalid("the server's answer names no upload", bucket=bucket, key=key)
        self._upload = unescape(found[1].decode())

    @property
    def part_count(self) -> int:
        return len(self._etags)

    def part(self, body: Any) -> _native.Result:
        """body: memory, or a list of up to 16 pieces of memory. Every part but the last has at least 5 MiB."""
        from urllib.parse import quote

        if len(self._etags) == PARTS_MAX:
            raise invalid(f"an object has at most {PARTS_MAX} parts", bucket=self._bucket, key=self._key)
        query = f"partNumber={len(self._etags) + 1}&uploadId={quote(self._upload, safe='')}"
        result = self._client.native.perform(_native.UPLOAD_PART, self._bucket, self._key, body=body, query=query)
        self._etags.append(result.etag)
        return result

    def complete(self) -> _native.Result:
        from urllib.parse import quote

        parts = "".join(f'<Part><PartNumber>{number}</PartNumber><ETag>"{etag}"</ETag></Part>'
                        for number, etag in enumerate(self._etags, 1))
        document = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        result = self._client.native.perform(_native.COMPLETE_MULTIPART, self._bucket, self._key, body=document,
                                             query=f"uploadId={quote(self._upload, safe='')}", headers=self._conditions,
                                             into=self._answer)
        # S3 names the object's ETag in the document, not in a header.
        found = re.search(rb"<ETag>([^<]+)</ETag>", self._answer[:result.bytes])
        etag = unescape(found[1].decode(), {"&quot;": '"'}).strip('"') if found else result.etag
        return _native.Result((*result[:ETAG_FIELD], etag, *result[ETAG_FIELD + 1:]))

    def abort(self) -> None:
        from urllib.parse import quote

        self._client.native.perform(_native.ABORT_MULTIPART, self._bucket, self._key,
                                    query=f"uploadId={quote(self._upload, safe='')}")
