"""RDMA tokens for S3 requests that another library sends: boto3, or any other that can sign a header.

    with TokenMinter("http://127.0.0.1:9000") as minter:
        with minter.token("GET", buffer) as token:
            ...send the request with the signed header x-amz-rdma-token: token.text, and wait for its answer...

docs/spec/token.md, says what the request and its answer look like.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from . import _native, settings

OPS = {"GET": _native.GET_OBJECT, "PUT": _native.PUT_OBJECT}


class Token:
    """A valid token: text is the header's value. Leave its block once the request was answered, or call release().
    Leaving by an exception reports that there may have been no answer: the server can then no longer access the
    memory."""

    def __init__(self, minter: _native.Minter, memory: _native.Memory, op: int) -> None:
        self._minter, self._memory = minter, memory
        self.text = minter.mint(op, memory.address, memory.size)
        self._out = True

    def failed(self) -> None:
        """Reports that the request was not answered."""
        if self._out:
            self._minter.failed(self.text)

    def release(self) -> None:
        """Ends the token. The program may then free or change its memory."""
        if self._out:
            self._out = False
            try:
                self._minter.release(self.text)
            except ValueError:
                pass  # the minter is closed, and its tokens with it
            finally:
                self._memory.release()

    def __enter__(self) -> Token:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            if kind is not None:
                self.failed()
        finally:
            self.release()


class Registered:
    """Memory that is registered for many tokens, until release() or the end of its block."""

    def __init__(self, minter: _native.Minter, memory: _native.Memory) -> None:
        self._minter, self._memory = minter, memory
        minter.register(memory.address, memory.size)

    def release(self) -> None:
        """Ends the registration: the server can no longer access the memory."""
        if self._memory.address:
            try:
                self._minter.unregister(self._memory.address)
            except ValueError:
                pass  # the minter is closed, and its registrations with it
            finally:
                self._memory.release()

    def __enter__(self) -> Registered:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.release()


class TokenMinter:
    """Mints RDMA tokens that the server behind one HTTP or HTTPS endpoint can use.

    Keys and device as for RDMAClient. The first token connects a queue pair. Any thread may use a minter; a forked
    process opens its own. Memory is anything with the buffer protocol or DLPack, contiguous. bucket: of the requests, when
    the endpoint is a gateway of a cluster: a token is valid for one store. session_token: as for RDMAClient.
    """

    def __init__(self, endpoint: str, access_key: str | None = None, secret_key: str | None = None, *,
                 region: str | None = None, device_name: str | None = None, connect_timeout: float = 0.0,
                 session_token: str | None = None, bucket: str | None = None) -> None:
        access_key, secret_key = settings.keys(access_key, secret_key)
        self.native = _native.Minter(endpoint, access_key, secret_key, region=region,
                                     device_name=settings.device_name(device_name), connect_timeout=connect_timeout,
                                     session_token=session_token, bucket=bucket)

    def why_not(self) -> str | None:
        """None when tokens can be minted now, else the reason."""
        return self.native.why_not()

    def available(self) -> bool:
        """Whether tokens can be minted now: connects if there is no connection."""
        return self.why_not() is None

    def register(self, memory: Any, *, writable: bool = True) -> Registered:
        """Registers memory for many tokens of it and of its parts. writable=False: for memory that is only sent."""
        return Registered(self.native, _native.Memory(memory, writable))

    def token(self, method: str, memory: Any) -> Token:
        """A token for one GET, whose bytes go to the memory, or one PUT, whose bytes come from there."""
        if method not in OPS:
            raise ValueError(f"a token is for a GET or a PUT, not for {method!r}")
        return Token(self.native, _native.Memory(memory, method == "GET"), OPS[method])

    def close(self) -> None:
        """Ends the minter with its tokens and registrations."""
        self.native.close()

    def __enter__(self) -> TokenMinter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()
