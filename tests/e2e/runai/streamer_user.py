"""tests/e2e/runai/streamer_user.py: a process that uses runai-model-streamer's own library, libstreamer.so, by its C
functions as its Python package does, which needs torch. The standard input has one request as JSON, the standard output
the outcome: {"library", "read": [[path, [[offset, size], ...]], ...]} or {"library", "list": [prefix, recursive]}.
The process that starts this one selects the libstreamers3.so of the streamer."""

import ctypes
import hashlib
import json
import mmap
import sys
import time

U32, U64 = ctypes.c_uint32, ctypes.c_uint64
VISIT = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p)


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


def array(kind, values):
    return (kind * len(values))(*values)


def read(library, streamer, files, end_early):
    """Code of the request, codes by range, the bytes' digest, seconds to the first range and to all."""
    ranges = [one for _, ranges in files for one in ranges]
    total = sum(size for _, size in ranges)
    memory = mmap.mmap(-1, total or 1)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    places, at = [], base
    for _, size in ranges:
        places.append(at)
        at += size
    number, file_index, index, done = U64(), U32(), U32(), ctypes.c_int()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    code = library.runai_file_streamer_request(
        streamer, ctypes.byref(number), len(files), array(ctypes.c_char_p, [path.encode() for path, _ in files]),
        array(U32, [len(ranges) for _, ranges in files]), array(ctypes.c_size_t, [offset for offset, _ in ranges]),
        array(ctypes.c_size_t, [size for _, size in ranges]), array(ctypes.c_void_p, places), Device(0, 0))
    codes, first = {}, 0.0
    while code == 0 and not done.value and not end_early:
        one = library.runai_file_streamer_response(streamer, ctypes.byref(number), ctypes.byref(file_index),
                                                   ctypes.byref(index), ctypes.byref(done), 0)
        codes[f"{file_index.value}/{index.value}"] = one
        first = first or time.perf_counter() - begin
        if one == 1:
            break
    seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    if end_early:
        library.runai_file_streamer_end(streamer)
    return {"code": code, "codes": codes, "digest": hashlib.sha256(memory).hexdigest(),
            "seconds": seconds, "first": first, "cpu": cpu, "bytes": total}


def listing(library, streamer, prefix, recursive):
    found = []
    visit = VISIT(lambda path, size, _: found.append([path.decode(), size]))
    library.runai_file_streamer_list_files.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_uint,
        VISIT, ctypes.c_void_p]
    code = library.runai_file_streamer_list_files(streamer, prefix.encode(), int(recursive), None, 0, None, 0, visit, None)
    return {"code": code, "files": sorted(found)}


def main():
    asked = json.load(sys.stdin)
    library = ctypes.CDLL(asked["library"])
    library.runai_file_streamer_request.argtypes = [ctypes.c_void_p, ctypes.c_void_p, U32] + [ctypes.c_void_p] * 5 + [Device]
    library.runai_file_streamer_end.argtypes = [ctypes.c_void_p]
    library.runai_file_streamer_response.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_uint]
    streamer = ctypes.c_void_p()
    code = library.runai_file_streamer_start(ctypes.byref(streamer))
    if code:
        print(json.dumps({"code": code}))
        return
    if "list" in asked:
        outcome = listing(library, streamer, *asked["list"])
    else:
        outcome = read(library, streamer, asked["read"], asked.get("end_early", False))
    if not asked.get("end_early"):
        library.runai_file_streamer_end(streamer)
    outcome["maps"] = sorted({line.split()[-1] for line in open("/proc/self/maps") if "libstreamers3" in line})
    print(json.dumps(outcome))


main()
