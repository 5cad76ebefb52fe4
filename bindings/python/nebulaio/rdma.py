"""RDMAClient: reads and writes objects over RDMA, and over HTTP where RDMA fails."""

from __future__ import annotations

import contextlib
import errno
import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from . import _native, npy, settings
from ._native import Buffer, Map, Registration, Result, Stats
from .errors import BufferTooSmallError, NebulaError, PreconditionError, invalid
from .multipart import MultipartUpload, crc32_of

PUT_BYTES_MAX = 5 << 30  # S3's limit of one request
PART_BYTES = 256 << 20
# The assumed length of an object before the server is asked.
GUESS_BYTES = 4 << 10
GUESS_BYTES_MAX = 1 << 20
SCRATCH_BYTES = 8 << 10
# How often a read starts again because the object was replaced meanwhile.
TRIES_MAX = 8
WINDOW = 32
# Requests that one call of the library takes: bounds the memory for a long iterable.
BATCH_ITEMS = 4096
# read_many() places objects at multiples of this: a cache line.
SLOT_BYTES = 64


class ObjectInfo(NamedTuple):
    """An entry of a listing: a key, or with a delimiter a common prefix."""

    key: str
    is_prefix: bool
    size: int
    etag: str
    last_modified: str


class BucketInfo(NamedTuple):
    name: str
    created: str


class ObjectData(bytes):
    """An object's bytes, and how they were received."""

    result: Result

    @property
    def transport(self) -> str:
        return self.result.transport

    @property
    def fallback(self) -> str | None:
        return self.result.fallback

    @property
    def etag(self) -> str:
        return self.result.etag

    @property
    def request_id(self) -> str:
        return self.result.request_id


class RDMAClient:
    """A client of one server, or of several endpoints of one.

    endpoint: "HOST:PORT" of the server's RDMA listener, or a URL (rdma://, http://, https://); endpoints: several, in
    order of preference. "http://HOST:PORT?rdma=owner" of a cluster's gateways: requests go to the owners of the buckets
    by RDMA, once a gateway has told them. With neither, NEBULAIO_ENDPOINT or connect() names the endpoint.
    fallback_http: when RDMA fails, requests use HTTP on port 9000 of the same hosts; results show it.
    transport: "rdma", "auto" (RDMA if possible, else HTTP), "http" or "strict" (RDMA at once or not at all). The
    default is "auto" when there is an HTTP endpoint, else "rdma".
    device_name: "mlx5_0", "mlx5_0:1", "mlx5_0:1:3", "simulated" (servers of this host); by default the device that
    reaches the server: the properties device and device_why tell which, and why.
    require_encryption: allow only encrypted sessions over RDMA.
    one_sided_reads: read small objects that are requested often from the server's memory.
    registration_cache_bytes: keep registrations of memory that the program gives to requests, up to this many bytes. Then
    it must call forget() before it frees such memory. Good for arrays that live as long as the client. Memory that this
    package makes, such as get_object()'s bytes, needs no forget() before the program gives it to a request itself.
    pool_bytes: registered memory for allocate_buffer() and for small objects.
    session_token: of temporary credentials (STS); without it the environment's NEBULAIO_SESSION_TOKEN or AWS_SESSION_TOKEN,
    if the access key is the one beside it. Such credentials are for HTTP, and for ?rdma and ?rdma=hipobj.

    map_bytes_max: the most bytes of objects of map() that are in memory [no limit], 32 MiB at least.

    The first request connects. One thread at a time is inside a client, others wait; the interpreter's lock is not held
    meanwhile. A forked process opens its own clients: see clone().
    """

    def __init__(self, endpoint: str | None = None, access_key: str | None = None, secret_key: str | None = None, *,
                 endpoints: Sequence[str] | None = None, fallback_http: bool = False, transport: str | None = None,
                 region: str | None = None, device_name: str | None = None, pool_bytes: int = 0,
                 requests_max: int = 0, connect_timeout: float = 0.0, request_timeout: float = 0.0,
                 spin: float = 0.0, require_encryption: bool = False, one_sided_reads: bool = False,
                 registration_cache_bytes: int = 0, session_token: str | None = None, map_bytes_max: int = 0) -> None:
        if endpoint and endpoints:
            raise ValueError("either endpoint or endpoints")
        access_key, secret_key = settings.keys(access_key, secret_key)
        self._endpoints = [endpoint] if endpoint else list(endpoints or settings.endpoints_default())
        self._fallback_http = fallback_http
        self._transport = transport
        self._options: dict[str, Any] = {
            "access_key": access_key, "secret_key": secret_key, "region": region, "device_name": device_name,
            "pool_bytes": pool_bytes, "requests_max": requests_max, "connect_timeout": connect_timeout,
            "request_timeout": request_timeout, "spin": spin, "require_encryption": require_encryption,
            "one_sided_reads": one_sided_reads, "registration_cache_bytes": registration_cache_bytes,
            "session_token": session_token, "map_bytes_max": map_bytes_max}
        self._mapper: _native.Mapper | None = None
        self._native: _native.Client | None = None
        self._lock = threading.RLock()  # guards the state of calls with several requests
        self._scratch: Buffer | None = None
        self._guess_bytes = GUESS_BYTES
        self._npy_last: tuple[bytes, int] | None = None
        self._last_result: Result | None = None
        if self._endpoints:
            self._open()

    # ---- Opening and closing. ----

    def _open(self) -> None:
        text = settings.endpoints_text(self._endpoints, self._fallback_http)
        transport = self._transport or ("auto" if "http" in text else "rdma")
        options = dict(self._options, device_name=settings.device_name(self._options["device_name"]))
        del options["map_bytes_max"]
        self._native = _native.Client(text, transport=transport, **options)

    def connect(self, host: str | None = None, port: int = 9100) -> RDMAClient:
        """Connects now, or raises an exception. host and port, if given, replace the endpoints."""
        if host is not None:
            bare_v6 = ":" in host and not host.startswith("[")
            self.close()
            self._endpoints = [f"rdma://[{host}]:{port}" if bare_v6 else f"rdma://{host}:{port}"]
            self._open()
        self.ping(timeout=self._options["connect_timeout"])
        return self

    def close(self) -> None:
        """Ends the session. Buffers, and arrays over them, stay usable as memory: the session ends with the last of
        them. While there are any it waits for the requests in flight, such as one that Ctrl-C has left behind."""
        with self._lock:
            native, self._native = self._native, None
            self._scratch = self._mapper = None
        if native:
            native.close()

    def __enter__(self) -> RDMAClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RDMAClient {', '.join(self._endpoints) or 'without an endpoint'}>"

    def clone(self) -> RDMAClient:
        """Another client with the same options: for another thread, or for a forked process."""
        options = dict(self._options)
        return RDMAClient(None, options.pop("access_key"), options.pop("secret_key"), endpoints=self._endpoints,
                          fallback_http=self._fallback_http, transport=self._transport, **options)

    def __reduce__(self) -> Any:
        return _restore, (self._endpoints, self._fallback_http, self._transport, self._options)

    @property
    def native(self) -> _native.Client:
        """The native client that performs the requests."""
        if self._native is None:
            raise ValueError("the client is closed" if self._endpoints else "no endpoint: call connect(host, port)")
        return self._native

    @property
    def closed(self) -> bool:
        return self._native is None

    @property
    def last_result(self) -> Result | None:
        """The result of the last request that succeeded: for calls that return something else, such as an array."""
        return self._last_result

    @property
    def device(self) -> str:
        """The RDMA device that the client uses; empty without one."""
        return self.native.device

    @property
    def device_why(self) -> str:
        return self.native.device_why

    def forget(self, memory: Any) -> None:
        """Drops the registrations of memory that is about to be freed: see registration_cache_bytes."""
        self.native.forget(memory)

    @contextlib.contextmanager
    def _passing(self, memories: Sequence[Any]) -> Iterator[None]:
        """For requests with memory that the program cannot forget, because this package made it or handed it on: it is
        forgotten when they have ended."""
        try:
            yield
        finally:
            self._forget_all(memories)

    def _forget_all(self, memories: Sequence[Any]) -> None:
        native = self._native
        if native is None or not self._options["registration_cache_bytes"]:
            return
        for memory in memories:
            # A request that a signal left behind ends its registration itself; a client that is closed meanwhile makes no
            # more requests; what is no memory was refused by the request.
            with contextlib.suppress(BufferError, NebulaError, TypeError, ValueError):
                native.forget(memory)

    def stats(self) -> Stats:
        return self.native.stats()

    def ping(self, *, timeout: float = 0.0) -> Result:
        return self._keep(self.native.perform(_native.PING, timeout=timeout))

    def _keep(self, result: Result) -> Result:
        self._last_result = result
        return result

    # ---- Registered memory. ----

    def allocate_buffer(self, size: int) -> Buffer:
        """Page-aligned registered memory: memoryview(buffer), numpy.frombuffer(buffer). Returns to the pool when
        nothing refers to it any more, or by release()."""
        return self.native.alloc(size)

    def register(self, memory: Any) -> Registration:
        """Registers the caller's memory, which must be writable, with the device: requests then neither copy nor
        register it. It pins pages: for memory that is used often."""
        return self.native.register(memory)

    def empty(self, shape: Any, dtype: Any = float) -> Any:
        """numpy.empty() in registered memory."""
        import numpy

        dtype = numpy.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        count = 1
        for length in shape:
            count *= length
        if not count * dtype.itemsize:
            return numpy.empty(shape, dtype)
        return numpy.frombuffer(memoryview(self.native.alloc(count * dtype.itemsize)), dtype, count).reshape(shape)

    # ---- Objects as memory. ----

    def map(self, bucket: str, key: str, *, version_id: str | None = None) -> Map:
        """The object as read-only memory, without a copy: memoryview(map), numpy.frombuffer(map, dtype). Its bytes come
        from the server when they are first touched; an object may be larger than this host's memory. One version: when
        the object was replaced or deleted, or the server does not answer for a minute, touching the map raises the signal
        SIGBUS, and standard error has the reason. AccessDeniedError: this host refuses userfaultfd; the message says
        what to change. Map stays valid after close(); it is not for forked processes."""
        native = self.native  # raises when the client is closed
        with self._lock:
            if self._mapper is None:
                text = settings.endpoints_text(self._endpoints, self._fallback_http)
                self._mapper = _native.Mapper(
                    text, transport=self._transport or ("auto" if "http" in text else "rdma"),
                    device_name=native.device or settings.device_name(self._options["device_name"]),
                    bytes_max=self._options["map_bytes_max"],
                    **{name: self._options[name] for name in (
                        "access_key", "secret_key", "region", "connect_timeout", "request_timeout", "require_encryption",
                        "session_token")})
        return self._mapper.map(bucket, key, version_id)

    # ---- Objects. ----

    def get_object(self, bucket: str, key: str, *, offset: int = 0, length: int | None = None,
                   version_id: str | None = None, if_match: str | None = None, timeout: float = 0.0) -> ObjectData:
        """The object, or length bytes of it from offset on, received directly into the returned bytes object. if_match:
        an ETag; PreconditionError when the object has another one. Parts read with one if_match are of one object."""
        if length is not None and length <= 0 or offset < 0:
            raise ValueError("offset or length is out of bounds")
        heads: dict[str, Any] = {"version_id": version_id, "timeout": timeout}
        options = dict(heads, headers=_match(if_match) if if_match else None)
        if length is not None:
            return self._get_exact(bucket, key, length, dict(options, offset=offset, length=length))
        if offset:
            return self._get_rest(bucket, key, offset, if_match, heads)
        # Objects of one kind often have one length: then the first request fits. Else a HEAD finds the length.
        size: int | None = self._guess_bytes
        for _ in range(TRIES_MAX):
            if size is None:
                size = self.head_object(bucket, key, **heads).object_bytes
            try:
                data = self._get_exact(bucket, key, size, options)
            except BufferTooSmallError:
                size = None
                continue
            self._guess_bytes = len(data) if len(data) <= GUESS_BYTES_MAX else GUESS_BYTES
            return data
        raise invalid("the object changes all the time", bucket=bucket, key=key)

    def _get_rest(self, bucket: str, key: str, offset: int, if_match: str | None, options: dict[str, Any]) -> ObjectData:
        for _ in range(TRIES_MAX):
            head = self.head_object(bucket, key, **options)
            left = head.object_bytes - offset
            try:
                return self._get_exact(bucket, key, left, dict(
                    options, offset=offset, length=max(left, 1), headers=_match(if_match or head.etag)))
            except PreconditionError:  # replaced after the HEAD
                if if_match:
                    raise
        raise invalid("the object changes all the time", bucket=bucket, key=key)

    def _get_exact(self, bucket: str, key: str, size: int, options: dict[str, Any]) -> ObjectData:
        data, result = self.native.perform_bytes(ObjectData, max(size, 0), _native.GET_OBJECT, bucket, key, **options)
        if result.bytes != len(data):
            data = ObjectData(memoryview(data)[:result.bytes])
        data.result = self._keep(result)
        return data

    def get_into(self, bucket: str, key: str, buffer: Any, *, offset: int = 0, length: int | None = None,
                 version_id: str | None = None, timeout: float = 0.0) -> Result:
        """Reads the object, or a part of it, into the caller's memory: anything writable with the buffer protocol, a
        numpy array, a torch tensor or any other object with DLPack, contiguous, in host memory or CUDA's; or a list of
        up to 16 of those. An offset without a length: at most as many bytes as the memory holds. result.bytes is the
        number of bytes; BufferTooSmallError when the object, or the range, is longer than the memory."""
        return self._keep(self.native.perform(_native.GET_OBJECT, bucket, key, into=buffer, offset=offset, length=length,
                                              version_id=version_id, timeout=timeout))

    def get_fan_out(self, bucket: str, key: str, buffer: Any, *, name: str, members: int, wait: float = 0.0,
                    member: int = 0, multicast: bool = False) -> Result:
        """Reads a whole object into the caller's memory as one of several clients that need it at the same time, such as
        the nodes of a job that load a model's weights: the server reads each part of it once for all of them. name: the
        same for all, 1 to 64 letters, digits, '.', '_' and '-'. members: how many they are. wait: seconds for which the
        first one waits for the others (10). member: a number of this client's own (drawn at random). The result's header
        x-nebulaio-fan-out is "member; members=COUNT", or why it was served alone: late, slow, full, small.
        multicast: where the network has it and the server is configured for it, the server sends each part once; the
        result's multicast is (bytes that came by it, bytes read over the session, why it was not used or ended early).
        PreconditionError: the object was replaced meanwhile."""
        return self._keep(self.native.get_fan_out(bucket, key, buffer, name, members, wait, member, multicast))

    def put_object(self, bucket: str, key: str, body: Any, *, content_type: str | None = None,
                   metadata: dict[str, str] | None = None, headers: dict[str, str] | None = None,
                   checksum: bool = False, timeout: float = 0.0) -> Result:
        """body: memory, as get_into() takes it, or a list of up to 16 pieces of it. checksum: the server verifies the
        body's CRC-32. Over 5 GiB it goes in parts."""
        if isinstance(body, str):
            raise TypeError("body is a str: encode it")
        headers = dict(headers or {})
        if content_type:
            headers["content-type"] = content_type
        for name, value in (metadata or {}).items():
            headers[f"x-amz-meta-{name}"] = value
        pieces = list(body) if isinstance(body, (list, tuple)) else [body]
        if sum(map(_length, pieces)) > PUT_BYTES_MAX:
            upload = MultipartUpload(self, bucket, key, headers, checksum=checksum, timeout=timeout)
            return self._keep(upload.put(map(_bytes_of, pieces), PART_BYTES))
        options: dict[str, Any] = {"timeout": timeout, "headers": headers or None}
        if checksum:
            options.update(checksum_kind=_native.CHECKSUM_CRC32, checksum=crc32_of(map(_bytes_of, pieces)))
        return self._keep(self.native.perform(_native.PUT_OBJECT, bucket, key, body=pieces, **options))

    def put_from(self, bucket: str, key: str, buffer: Any, **options: Any) -> Result:
        """put_object() under the name that matches get_into()."""
        return self.put_object(bucket, key, buffer, **options)

    def delete_object(self, bucket: str, key: str, *, version_id: str | None = None) -> Result:
        return self._keep(self.native.perform(_native.DELETE_OBJECT, bucket, key, version_id=version_id))

    def head_object(self, bucket: str, key: str, *, version_id: str | None = None, timeout: float = 0.0) -> Result:
        """result.object_bytes is the object's length; result.headers has all of its headers."""
        return self._keep(self.native.perform(_native.HEAD_OBJECT, bucket, key, version_id=version_id,
                                              timeout=timeout))

    def copy_object(self, source_bucket: str, source_key: str, bucket: str, key: str) -> Result:
        from urllib.parse import quote

        source = quote(f"/{source_bucket}/{source_key}", safe="/-_.~")
        answer = bytearray(64 << 10)
        with self._passing([answer]):
            return self._keep(self.native.perform(_native.COPY_OBJECT, bucket, key,
                                                  headers={"x-amz-copy-source": source}, into=answer))

    def get_many(self, requests: Iterable[tuple[Any, ...]], *, window: int = WINDOW,
                 timeout: float = 0.0) -> list[Result]:
        """Reads many objects at once: (bucket, key, buffer), with an offset and a length where a part is wanted, as
        for get_into(), with up to window requests in flight. Returns results in the order of the requests; raises the
        first failure when all have ended. timeout: of each BATCH_ITEMS requests. The interpreter's lock is free
        meanwhile."""
        outcomes: list[Any] = []
        for part in _parts(requests):
            if any(isinstance(request[2], (list, tuple)) for request in part):
                outcomes += self._many(_native.GET_OBJECT, (
                    (bucket, key, {"into": memory, **dict(zip(("offset", "length"), span))})
                    for bucket, key, memory, *span in part), window)
            else:
                outcomes += self.native.get_batch(part, max(window, 1), timeout)
        return self._all_of(outcomes)

    def read_many(self, requests: Iterable[tuple[Any, ...]], *, window: int = WINDOW, timeout: float = 0.0,
                  errors: bool = False) -> list[Any]:
        """The bytes of many small objects, or ranges: (bucket, key, size) or (bucket, key, size, offset) each, where
        size is the most bytes that are expected. Returns a memoryview for each, in the order of the requests: all lie in
        one piece of registered memory while the pool has room (pool_bytes), received there without a copy; it returns
        to the pool when no view of it is left. Raises the first failure when all have ended; with errors=True each
        failure stands in its place. BufferTooSmallError: an object is longer than its size."""
        part = list(requests)
        sizes = [request[2] for request in part]
        if any(size <= 0 for size in sizes):
            raise ValueError("a size of 0 or less")
        places = [0]
        for size in sizes:
            places.append(places[-1] + (size + SLOT_BYTES - 1) // SLOT_BYTES * SLOT_BYTES)
        room = self._room(places[-1])
        views = [room[at:at + size] for at, size in zip(places, sizes)]
        with self._passing([room]):
            outcomes = self.native.get_batch([
                (bucket, key, view, *((at[0], size) if at else ())) for (bucket, key, size, *at), view in zip(part, views)],
                max(window, 1), timeout)
        if not errors:
            self._all_of(outcomes)
        return [outcome if isinstance(outcome, Exception) else view[:outcome.bytes]
                for outcome, view in zip(outcomes, views)]

    def _room(self, size: int) -> memoryview:
        try:
            return memoryview(self.native.alloc(max(size, 1)))
        except NebulaError as error:
            if error.errno != errno.ENOMEM:
                raise
            return memoryview(bytearray(size))

    def _all_of(self, outcomes: list[Any]) -> list[Result]:
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        if outcomes:
            self._keep(outcomes[-1])
        return outcomes

    def put_many(self, requests: Iterable[tuple[Any, ...]], *, window: int = WINDOW, errors: bool = False) -> list[Any]:
        """As get_many(): (bucket, key, body) or (bucket, key, body, headers) each. errors: each failure stands in its
        place."""
        outcomes = self._many(_native.PUT_OBJECT, (
            (bucket, key, {"body": body, **({"headers": more[0]} if more else {})})
            for bucket, key, body, *more in requests), window)
        return outcomes if errors else self._all_of(outcomes)

    def head_many(self, requests: Iterable[tuple[str, str]], *, window: int = WINDOW, errors: bool = False) -> list[Any]:
        """head_object() of many: (bucket, key) each. errors: each failure, as NotFoundError of a missing object, stands
        in its place."""
        outcomes = self._many(_native.HEAD_OBJECT, ((bucket, key, {}) for bucket, key in requests), window)
        return outcomes if errors else self._all_of(outcomes)

    def delete_many(self, requests: Iterable[tuple[str, str]], *, window: int = WINDOW,
                    errors: bool = False) -> list[Any]:
        """delete_object() of many: (bucket, key) each. errors: each failure stands in its place."""
        outcomes = self._many(_native.DELETE_OBJECT, ((bucket, key, {}) for bucket, key in requests), window)
        return outcomes if errors else self._all_of(outcomes)

    def _many(self, op: int, requests: Iterable[tuple[str, str, dict[str, Any]]], window: int) -> list[Any]:
        """Outcomes in the order of the requests. After as many failures without an answer as the window has, one after
        the other, the rest is not sent, and gets the same error."""
        places: dict[int, int] = {}
        outcomes: list[Any] = []
        native = self.native
        window = max(window, 1)
        silent = 0
        last: Any = None

        def collect() -> None:
            nonlocal silent, last
            pairs = native.wait()
            if not pairs or any(number not in places for number, _ in pairs):
                raise RuntimeError("an iterator's requests are in flight: give it a client of its own (clone())")
            for number, outcome in pairs:
                outcomes[places.pop(number)] = outcome
                silent = silent + 1 if isinstance(outcome, NebulaError) and not outcome.status else 0
                last = outcome

        with self._lock:
            try:
                for bucket, key, options in requests:
                    while len(places) >= window:
                        collect()
                    outcomes.append(last)
                    if silent < window:
                        places[native.submit(op, bucket, key, **options)] = len(outcomes) - 1
            finally:
                while places:
                    collect()
        return outcomes

    # ---- Arrays. ----

    def get_object_numpy(self, bucket: str, key: str, *, out: Any = None, pooled: bool = False) -> Any:
        """The array of a .npy object, received into the array's own memory, with the stored dtype, shape and order.
        out: an array of the same kind to receive into. pooled: a new array lies in registered memory, so that arrays
        below 64 KiB, which otherwise pass through the pool by a copy, are not copied either.

        A series of arrays of one kind takes one request each; the first one takes two."""
        with self._lock:
            for _ in range(TRIES_MAX):
                try:
                    array = self._npy_again(bucket, key, out, pooled)
                    if array is None:
                        array = self._npy_first(bucket, key, out, pooled)
                except PreconditionError:  # replaced between header and data
                    continue
                return array
        raise invalid("the object changes all the time", bucket=bucket, key=key)

    @contextlib.contextmanager
    def _npy_scratch(self) -> Iterator[memoryview]:
        """Memory for a header. An exception may leave a request behind that still uses it: only a block that ends well
        keeps it for the next one."""
        scratch, self._scratch = self._scratch or self.native.alloc(SCRATCH_BYTES), None
        yield memoryview(scratch)
        self._scratch = scratch

    def _npy_room(self, header: bytes, out: Any, pooled: bool) -> Any:
        import numpy

        dtype, shape, fortran = npy.parse(header)
        if out is not None:
            # One dimension is in both orders.
            if out.dtype != dtype or out.shape != shape or \
                    not (out.flags.f_contiguous if fortran else out.flags.c_contiguous):
                raise ValueError(f"out is not an array of {dtype}, shape {shape}, in the stored order")
            return out
        if pooled and 0 not in shape and dtype.itemsize:
            return self.empty(shape[::-1], dtype).T if fortran else self.empty(shape, dtype)
        return numpy.empty(shape, dtype, order="F" if fortran else "C")

    def _npy_again(self, bucket: str, key: str, out: Any, pooled: bool) -> Any:
        """Reads in one request if the header equals that of the last array; else None."""
        if self._npy_last is None:
            return None
        header, size = self._npy_last
        if out is not None and out.nbytes != size:
            return None
        with self._npy_scratch() as scratch:
            try:
                array = self._npy_room(header, out, pooled)
                memory = npy.memory(array)
                with self._passing([memory] if out is None else []):
                    result = self.native.perform(_native.GET_OBJECT, bucket, key, into=[scratch[:len(header)], memory])
            except (BufferTooSmallError, ValueError):
                self._npy_last = None
                return None
            if result.bytes != len(header) + size or scratch[:len(header)] != header:
                self._npy_last = None
                return None
        self._keep(result)
        return array

    def _npy_first(self, bucket: str, key: str, out: Any, pooled: bool) -> Any:
        with self._npy_scratch() as scratch:
            result = self.native.perform(_native.GET_OBJECT, bucket, key, into=scratch, length=len(scratch))
            start = bytes(scratch[:result.bytes])
        size = npy.header_bytes(start[:12])
        match = _match(result.etag)
        if size <= len(start):
            header = start[:size]
        else:
            header = self._get_exact(bucket, key, size, {"length": size, "headers": match})
            if len(header) != size:
                raise ValueError("the .npy object ends within its header")
        array = self._npy_room(header, out, pooled)
        if array.nbytes:
            memory = npy.memory(array)
            with self._passing([memory] if out is None else []):
                result = self.native.perform(_native.GET_OBJECT, bucket, key, into=memory, offset=size,
                                             length=array.nbytes, headers=match)
            if result.bytes != array.nbytes:
                raise ValueError(f"the .npy object ends early: {result.bytes} of {array.nbytes} bytes of data")
        self._npy_last = (header, array.nbytes) if size <= SCRATCH_BYTES and array.nbytes else None
        self._keep(result)
        return array

    def put_object_numpy(self, bucket: str, key: str, array: Any, **options: Any) -> Result:
        """The array as a .npy object, sent from the array's own memory; an array that is not contiguous is copied
        first."""
        import numpy

        given = array
        array = numpy.asanyarray(array)
        if not array.flags.c_contiguous and not array.flags.f_contiguous:
            array = numpy.ascontiguousarray(array)
        header, memory = npy.make(array), npy.memory(array)
        with self._lock, self._passing([header] if array is given else [header, memory]):
            if len(header) > SCRATCH_BYTES:
                return self.put_object(bucket, key, [header, memory], **options)
            with self._npy_scratch() as scratch:
                scratch[:len(header)] = header
                return self.put_object(bucket, key, [scratch[:len(header)], memory], **options)

    # ---- Buckets and listings. ----

    def list_objects(self, bucket: str, prefix: str = "", *, delimiter: str | None = None, after: str | None = None,
                     limit: int | None = None) -> list[ObjectInfo]:
        """Every key that starts with prefix, in order, at most limit; with a delimiter common prefixes replace the keys
        below them. after: only keys after this one."""
        options = {} if limit is None else {"limit": limit}
        return [ObjectInfo(*entry)
                for entry in self.native.list(bucket, prefix or None, delimiter or None, after, **options)]

    def create_bucket(self, bucket: str) -> Result:
        return self._keep(self.native.perform(_native.CREATE_BUCKET, bucket))

    def delete_bucket(self, bucket: str) -> Result:
        return self._keep(self.native.perform(_native.DELETE_BUCKET, bucket))

    def head_bucket(self, bucket: str) -> Result:
        return self._keep(self.native.perform(_native.HEAD_BUCKET, bucket))

    def list_buckets(self) -> list[BucketInfo]:
        return [BucketInfo(*entry) for entry in self.native.list_buckets()]


def _restore(endpoints: list[str], fallback_http: bool, transport: str | None,
             options: dict[str, Any]) -> RDMAClient:
    options = dict(options)
    return RDMAClient(None, options.pop("access_key"), options.pop("secret_key"), endpoints=endpoints,
                      fallback_http=fallback_http, transport=transport, **options)


def _match(etag: str) -> dict[str, str]:
    return {"if-match": f'"{etag}"'}


def _bytes_of(memory: Any) -> memoryview:
    """The bytes of memory, in memory order."""
    if hasattr(memory, "__dlpack__") and not hasattr(memory, "__array_interface__"):
        import numpy

        memory = numpy.from_dlpack(memory)
    if hasattr(memory, "__array_interface__"):
        memory = npy.memory(memory)
    return memoryview(memory).cast("B")


def _parts(requests: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    rest = iter(requests)
    while part := list(itertools.islice(rest, BATCH_ITEMS)):
        yield part


def _length(memory: Any) -> int:
    length = getattr(memory, "nbytes", None)
    if isinstance(length, int):
        return length
    try:
        return memoryview(memory).nbytes
    except TypeError:  # only DLPack, or no memory at all
        return 0
