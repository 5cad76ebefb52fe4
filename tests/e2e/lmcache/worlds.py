"""tests/e2e/lmcache/worlds.py: LMCache as its plug-ins see it, made from the package where it is installed with PyTorch, or
from standin/: an Engine has a plug-in, LMCache's memory, keys and chunks."""

import asyncio
import dataclasses
import importlib.util
import math
import pathlib
import sys
import threading
from collections import OrderedDict

REAL = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("lmcache") is not None
if not REAL:
    sys.path.insert(0, str(pathlib.Path(__file__).parent / "standin"))

import lmcache.v1.storage_backend as storage_backend  # noqa: E402
from lmcache.v1.memory_management import MemoryFormat  # noqa: E402

LAYERS, TOKENS, HEADS, HEAD = 4, 64, 2, 64
CHUNK_BYTES = 2 * LAYERS * TOKENS * HEADS * HEAD * 2  # of bfloat16


@dataclasses.dataclass(frozen=True)
class Dtype:
    """A stand-in for torch.dtype."""

    name: str
    itemsize: int

    def __str__(self):
        return f"torch.{self.name}"


@dataclasses.dataclass(frozen=True)
class Key:
    """A stand-in for CacheEngineKey."""

    model_name: str
    world_size: int
    worker_id: int
    chunk_hash: int
    dtype: object

    def to_string(self):
        return f"{self.model_name}@{self.world_size}@{self.worker_id}@{self.chunk_hash:x}@{self.dtype.name}"


@dataclasses.dataclass(frozen=True)
class LayerKey(Key):
    layer_id: int = 0

    def to_string(self):
        return f"{super().to_string()}@{self.layer_id}"


@dataclasses.dataclass
class Metadata:
    """A stand-in for LMCacheMetadata."""

    kv_shape: tuple
    kv_dtype: object
    use_mla: bool
    chunk_size: int
    role: str = "worker"

    def get_dtypes(self):
        return [self.kv_dtype]

    def get_shapes(self, num_tokens=None):
        return [(self.kv_shape[1], self.kv_shape[0], num_tokens or self.chunk_size, self.kv_shape[3] * self.kv_shape[4])]


@dataclasses.dataclass
class Config:
    """A stand-in for LMCacheEngineConfig."""

    extra_config: dict
    storage_plugins: tuple = ("nebulaio",)
    chunk_size: int = TOKENS
    use_layerwise: bool = False
    enable_blending: bool = False


def real_parts(extra, cpu_bytes, mla, layerwise, layers, tokens):
    import torch
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.metadata import LMCacheMetadata

    config = LMCacheEngineConfig.from_dict({
        "chunk_size": tokens, "local_cpu": True, "max_local_cpu_size": cpu_bytes / (1 << 30), "use_layerwise": layerwise,
        "storage_plugins": ["nebulaio"], "extra_config": extra})
    metadata = LMCacheMetadata("model/of a test", 1, 1, 0, 0, torch.bfloat16, (layers, 1 if mla else 2, tokens, HEADS, HEAD),
                               use_mla=mla, role="worker", chunk_size=tokens)
    return config, metadata, storage_backend.LocalCPUBackend(config, metadata, "cpu")


def standin_parts(extra, cpu_bytes, mla, layerwise, layers, tokens):
    from lmcache.v1.memory_management import MixedMemoryAllocator

    metadata = Metadata((layers, 1 if mla else 2, tokens, HEADS, HEAD), Dtype("bfloat16", 2), mla, tokens)
    return Config(extra, chunk_size=tokens, use_layerwise=layerwise), metadata, storage_backend.LocalCPUBackend(MixedMemoryAllocator(cpu_bytes))


class Engine:
    def __init__(self, extra, cpu_bytes=64 << 20, mla=False, layerwise=False, layers=LAYERS, tokens=TOKENS):
        extra = {"storage_plugin.nebulaio.module_path": "nebulaio.lmcache",
                 "storage_plugin.nebulaio.class_name": "NebulaBackend", **extra}
        self.config, self.metadata, self.cpu = (real_parts if REAL else standin_parts)(extra, cpu_bytes, mla, layerwise, layers, tokens)
        self.tokens, self.mla, self.loop = tokens, mla, asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        backends = OrderedDict()
        storage_backend.storage_plugin_launcher(self.config, self.metadata, self.loop, self.cpu, "cpu", backends)
        self.backend = backends.get("nebulaio")

    def key(self, number, layer=None, model="model/of a test"):
        words = (model, 1, 0, number, self.metadata.kv_dtype)
        if not REAL:
            return Key(*words) if layer is None else LayerKey(*words, layer)
        from lmcache.utils import CacheEngineKey, LayerCacheEngineKey

        return CacheEngineKey(*words) if layer is None else LayerCacheEngineKey(*words, layer_id=layer)

    def keys(self, *numbers, **more):
        return [self.key(number, **more) for number in numbers]

    def chunk(self, seed, tokens=None, layer=False):
        """A chunk of LMCache's memory, full of bytes that only this seed has."""
        tokens = tokens or self.tokens
        whole = self.metadata.get_shapes(tokens)[0]
        shape = type(whole)((tokens, 2, HEADS * HEAD)) if layer else whole
        fmt = MemoryFormat.KV_MLA_FMT if self.mla else MemoryFormat.KV_T2D if layer else MemoryFormat.KV_2LTD
        obj = self.cpu.allocate([shape], [self.metadata.kv_dtype], fmt, busy_loop=False)
        assert obj.get_size() == math.prod(shape) * 2
        obj.byte_array.cast("B")[:] = filled(seed, obj.get_size())
        return obj

    def in_use(self):
        """Bytes of LMCache's memory that have a reference."""
        allocator = self.cpu.get_memory_allocator()
        if REAL:
            return allocator.pin_allocator.address_manager.total_allocated_size
        return sum(one.size for one in allocator.taken)

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def put(self, keys, objs, **more):
        """As LMCache's storage manager puts: it gives its reference back at once."""
        futures = self.backend.batched_submit_put_task(keys, objs, **more)
        for obj in objs:
            obj.ref_count_down()
        return futures

    def stored(self, keys, objs, **more):
        """The same, when all is stored."""
        for future in self.put(keys, objs, **more) or ():
            future.result()

    def close(self):
        """As LMCache's storage manager closes: its memory comes first."""
        self.cpu.close()
        self.backend.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


def filled(seed, size):
    pattern = (b"%016x" % (seed * 2654435761 % (1 << 64))) * 16
    return (pattern * (size // len(pattern) + 1))[:size]
