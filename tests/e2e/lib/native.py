"""tests/e2e/lib/native.py: libnebulaio by ctypes: its structs, and a client with the common calls. Standard library only."""

import ctypes
import os
import pathlib

import nebula

AUTO, RDMA, HTTP, STRICT, NONE, TOKEN = range(6)
LOG_FN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)

GET_OBJECT, PUT_OBJECT = 1, 2  # enum neb_op


class Options(ctypes.Structure):
    _fields_ = [("endpoints", ctypes.c_char_p), ("access_key", ctypes.c_char_p), ("secret_key", ctypes.c_char_p),
                ("region", ctypes.c_char_p), ("transport", ctypes.c_int), ("device_name", ctypes.c_char_p),
                ("pool_bytes", ctypes.c_uint64), ("requests_max", ctypes.c_uint32),
                ("inline_bytes_max", ctypes.c_uint32), ("connect_timeout_ns", ctypes.c_uint64),
                ("request_timeout_ns", ctypes.c_uint64), ("retries_max", ctypes.c_uint32),
                ("spin_ns", ctypes.c_uint64), ("require_encryption", ctypes.c_bool),
                ("registration_cache_bytes", ctypes.c_uint64), ("one_sided_reads", ctypes.c_bool),
                ("keepalive_ns", ctypes.c_uint64), ("log", ctypes.c_void_p), ("log_arg", ctypes.c_void_p),
                ("token_bucket", ctypes.c_char_p), ("session_token", ctypes.c_char_p)]


class Header(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class Iov(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


class Request(ctypes.Structure):
    _fields_ = [("op", ctypes.c_int), ("bucket", ctypes.c_char_p), ("key", ctypes.c_char_p),
                ("version_id", ctypes.c_char_p), ("query", ctypes.c_char_p), ("method", ctypes.c_char_p),
                ("path", ctypes.c_char_p), ("headers", ctypes.POINTER(Header)), ("header_count", ctypes.c_uint32),
                ("body", ctypes.POINTER(Iov)), ("body_count", ctypes.c_uint32), ("into", ctypes.POINTER(Iov)),
                ("into_count", ctypes.c_uint32), ("range_offset", ctypes.c_uint64), ("range_bytes", ctypes.c_uint64),
                ("checksum_kind", ctypes.c_int), ("checksum", ctypes.c_void_p), ("timeout_ns", ctypes.c_uint64),
                ("want_headers", ctypes.c_bool), ("user_data", ctypes.c_void_p), ("done", ctypes.c_void_p)]


class Result(ctypes.Structure):
    _fields_ = [("error", ctypes.c_int), ("status", ctypes.c_uint32), ("transport", ctypes.c_int),
                ("bytes", ctypes.c_uint64), ("object_bytes", ctypes.c_uint64), ("id", ctypes.c_uint64),
                ("user_data", ctypes.c_void_p), ("etag", ctypes.c_char * 84), ("code", ctypes.c_char * 64),
                ("message", ctypes.c_char * 256), ("request_id", ctypes.c_char * 33), ("fallback", ctypes.c_char * 128),
                ("one_sided", ctypes.c_bool), ("headers", ctypes.c_char * 2048)]


class Entry(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("is_prefix", ctypes.c_bool), ("bytes", ctypes.c_uint64),
                ("etag", ctypes.c_char_p), ("last_modified", ctypes.c_char_p)]


VISIT_FN = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.POINTER(Entry))


class List(ctypes.Structure):
    _fields_ = [("bucket", ctypes.c_char_p), ("prefix", ctypes.c_char_p), ("delimiter", ctypes.c_char_p),
                ("after", ctypes.c_char_p), ("visit", VISIT_FN), ("arg", ctypes.c_void_p), ("page_keys", ctypes.c_uint32)]


class Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "requests_rdma", "requests_http", "fallbacks", "sessions_opened", "sessions_lost", "bytes_copied", "registrations",
        "bytes_staged", "retries", "sleeps", "registration_hits", "registration_misses", "registration_evictions", "leases",
        "one_sided_reads", "one_sided_misses", "keepalives", "paths", "paths_up",
        "requests_moved")]


def library():
    path = pathlib.Path(os.environ.get("BUILD_DIR", nebula.ROOT / "build")) / "client" / "libnebulaio.so"
    # A library that the sanitizers watch does not load into this Python: the plain build's then speaks to the server.
    if b"__asan_init" in path.read_bytes():
        path = nebula.ROOT / "build" / "client" / "libnebulaio.so"
    found = ctypes.CDLL(str(path))
    text, memory, result = ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(Result)
    for name, *arguments in (
            ("neb_client_open", ctypes.POINTER(Options), ctypes.POINTER(memory)), ("neb_client_close", memory),
            ("neb_client_stats", memory, ctypes.POINTER(Stats)), ("neb_perform", memory, ctypes.POINTER(Request), result),
            ("neb_get", memory, text, text, memory, ctypes.c_size_t, result),
            ("neb_put", memory, text, text, memory, ctypes.c_size_t, result), ("neb_delete", memory, text, text, result),
            ("neb_bucket_create", memory, text, result), ("neb_list", memory, ctypes.POINTER(List), result)):
        getattr(found, name).argtypes = arguments
    return found


class Native:
    """A client for one thread at a time. Options are those of neb_options; log takes (level, text)."""

    def __init__(self, endpoints, keys=(nebula.ACCESS_KEY, nebula.SECRET_KEY), room=1 << 20, log=None, **options):
        self.library = library()
        self.client = ctypes.c_void_p()
        self.log = LOG_FN(lambda _, level, text: log(level, text.decode())) if log else None
        fields = {"transport": STRICT, "pool_bytes": 8 << 20, "request_timeout_ns": 120 * 10**9, **options,
                  "access_key": keys[0], "secret_key": keys[1],
                  "endpoints": endpoints, "log": ctypes.cast(self.log, ctypes.c_void_p) if log else None}
        options = Options(**{name: value.encode() if isinstance(value, str) else value for name, value in fields.items()})
        error = self.library.neb_client_open(ctypes.byref(options), ctypes.byref(self.client))
        if error:
            raise OSError(-error, f"no client of {endpoints}: {os.strerror(-error)}")
        self.into = ctypes.create_string_buffer(room)
        self.result = Result()

    def get(self, key, bucket=b"bucket"):
        """(status, etag, body or the error's code, one-sidedly); the rest is in .result."""
        r = self.result
        self.library.neb_get(self.client, bucket, key, self.into, len(self.into), ctypes.byref(r))
        return r.status, r.etag, ctypes.string_at(self.into, r.bytes) if r.status == 200 else r.code, r.one_sided

    def put(self, key, body, bucket=b"bucket"):
        self.library.neb_put(self.client, bucket, key, body, len(body), ctypes.byref(self.result))
        return self.result.status, self.result.etag

    def put_new(self, key, body, bucket=b"bucket"):
        """If there is no such object."""
        iov = Iov(ctypes.cast(ctypes.c_char_p(body), ctypes.c_void_p), len(body))
        condition = Header(b"If-None-Match", b"*")
        request = Request(op=PUT_OBJECT, bucket=bucket, key=key, headers=ctypes.pointer(condition), header_count=1,
                          body=ctypes.pointer(iov), body_count=1)
        self.library.neb_perform(self.client, ctypes.byref(request), ctypes.byref(self.result))
        return self.result.status

    def delete(self, key, bucket=b"bucket"):
        self.library.neb_delete(self.client, bucket, key, ctypes.byref(self.result))
        return self.result.status

    def make_bucket(self, bucket):
        self.library.neb_bucket_create(self.client, bucket, ctypes.byref(self.result))
        return self.result.status

    def leased(self, key, bucket=b"bucket"):
        """Reads until it is read one-sidedly, and again what is answered 503: the owner's lease is late. The last answer."""
        for _ in range(4):
            answer = nebula.taken(lambda: self.get(key, bucket))
            if answer[3]:
                break
        return answer

    def list(self, bucket=b"bucket", visit=None, stop=None, **fields):
        """(error, entries): all, or the first so many; visit(count) is called for each as it arrives."""
        entries = []

        def each(_, entry):
            entries.append((entry.contents.key, entry.contents.is_prefix, entry.contents.bytes))
            if visit:
                visit(len(entries))
            return stop is None or len(entries) < stop

        what = List(bucket=bucket, visit=VISIT_FN(each), **fields)
        return self.library.neb_list(self.client, ctypes.byref(what), None), entries

    def stats(self):
        found = Stats()
        self.library.neb_client_stats(self.client, ctypes.byref(found))
        return found

    def close(self):
        self.library.neb_client_close(self.client)
