"""The exceptions of failed requests. Each is an OSError with its errno, so that code that expects FileNotFoundError,
PermissionError, ConnectionError or TimeoutError catches it too."""

from __future__ import annotations

import errno as _errno
import logging
import os
from typing import Any

_logger = logging.getLogger("nebulaio")


class NebulaError(OSError):
    """code: S3's, such as "NoSuchKey", or empty. message: the server's, or the library's. status: S3's, 0 when no
    answer came. transport: "rdma", "http" or "none". fallback: why it used HTTP although RDMA was wanted, or None."""

    code: str
    message: str
    status: int
    request_id: str
    transport: str
    fallback: str | None
    bucket: str | None
    key: str | None

    def __init__(self, errno: int, text: str, *, code: str = "", message: str = "", status: int = 0,
                 request_id: str = "", transport: str = "none", fallback: str | None = None,
                 bucket: str | None = None, key: str | None = None) -> None:
        super().__init__(errno, text)
        self.code = code
        self.message = message
        self.status = status
        self.request_id = request_id
        self.transport = transport
        self.fallback = fallback
        self.bucket = bucket
        self.key = key


class NotFoundError(NebulaError, FileNotFoundError):
    """No such key, bucket, version or upload."""


class AccessDeniedError(NebulaError, PermissionError):
    """The keys are wrong, or a policy forbids it."""


class ConflictError(NebulaError, FileExistsError):
    """It exists already, or is not empty."""


class PreconditionError(NebulaError):
    """The object is not the one that the request was for."""


class BufferTooSmallError(NebulaError):
    """The object is longer than the buffer."""


class NebulaConnectionError(NebulaError, ConnectionError):
    """The server cannot be reached."""


class NebulaTimeoutError(NebulaError, TimeoutError):
    """No answer within the request's time."""


class ForkError(NebulaError):
    """The client was opened by the parent process."""


_CLASSES: dict[int, type[NebulaError]] = {
    _errno.ENOENT: NotFoundError,
    _errno.EACCES: AccessDeniedError,
    _errno.EEXIST: ConflictError,
    _errno.ESTALE: PreconditionError,
    _errno.EMSGSIZE: BufferTooSmallError,
    _errno.ECONNREFUSED: NebulaConnectionError,
    _errno.ECONNRESET: NebulaConnectionError,
    _errno.EHOSTUNREACH: NebulaConnectionError,
    _errno.ENETDOWN: NebulaConnectionError,
    _errno.ETIMEDOUT: NebulaTimeoutError,
    _errno.EPERM: ForkError,
}


def from_result(errno: int, status: int, code: str, message: str, request_id: str, transport: str, fallback: str,
                verb: str, bucket: str | None, key: str | None) -> NebulaError:
    """Called by the extension."""
    where = "/".join(part for part in (bucket, key) if part)
    what = " ".join(part for part in (verb, where) if part)
    said = ": ".join(part for part in (code, message) if part) or os.strerror(errno)
    text = f"{what}: {said}" if what else said
    if status:
        text += f" (status {status}, request {request_id}, by {transport})"
    return _CLASSES.get(errno, NebulaError)(
        errno, text, code=code, message=message, status=status, request_id=request_id, transport=transport,
        fallback=fallback or None, bucket=bucket, key=key)


def log(lines: list[tuple[int, str]]) -> None:
    """Called by the extension: passes the library's log to the logger "nebulaio"."""
    for level, text in lines:
        _logger.log(level, "%s", text)


def invalid(text: str, **attributes: Any) -> NebulaError:
    return NebulaError(_errno.EINVAL, text, **attributes)
