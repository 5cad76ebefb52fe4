"""As lmcache/v1/memory_management.py: the formats of chunks, and chunks in memory with their references."""

import enum
import mmap
import threading


class MemoryFormat(enum.Enum):
    UNDEFINED = 0
    KV_2LTD = 1
    KV_T2D = 2
    KV_2TD = 3
    BINARY = 4
    BINARY_BUFFER = 5
    KV_MLA_FMT = 6
    EC_TD = 7
    HS_TD = 8


class MemoryObjMetadata:
    def __init__(self, shapes, dtypes, fmt):
        self.shape, self.dtype, self.shapes, self.dtypes, self.fmt = shapes[0], dtypes[0], shapes, dtypes, fmt


class TensorMemoryObj:
    """A chunk; without a reference its memory is free again."""

    def __init__(self, allocator, address, size, metadata):
        self.allocator, self.address, self.size, self.meta, self.references = allocator, address, size, metadata, 1

    def get_size(self):
        return self.size

    @property
    def byte_array(self):
        return memoryview(self.allocator.buffer)[self.address:self.address + self.size]

    def ref_count_up(self):
        with self.allocator.lock:
            self.references += 1

    def ref_count_down(self):
        with self.allocator.lock:
            self.references -= 1
            assert self.references >= 0, "a reference too many was given back"
            if not self.references:
                self.allocator.taken.remove(self)


class MixedMemoryAllocator:
    """First fit, in pages."""

    PAGE = 4096

    def __init__(self, size):
        self.buffer, self.size, self.taken, self.lock, self.closed = mmap.mmap(-1, size), size, [], threading.RLock(), False

    def allocate(self, shapes, dtypes, fmt):
        size = 0
        for shape, dtype in zip(shapes, dtypes):
            elements = 1
            for length in shape:
                elements *= length
            size += elements * dtype.itemsize
        with self.lock:
            at = 0
            for one in sorted(self.taken, key=lambda one: one.address):
                if one.address - at >= size:
                    break
                at = -(-(one.address + one.size) // self.PAGE) * self.PAGE
            if at + size > self.size:
                return None
            obj = TensorMemoryObj(self, at, size, MemoryObjMetadata(list(shapes), list(dtypes), fmt))
            self.taken.append(obj)
            return obj

    def close(self):
        self.closed = True
