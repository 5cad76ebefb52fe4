"""As lmcache/v1/storage_backend: how a configuration names plug-ins, and the memory that they use."""

import importlib


def storage_plugin_launcher(config, metadata, loop, local_cpu_backend, dst_device, storage_backends):
    """As there, but a plug-in's error is raised instead of logged."""
    for storage_plugin in config.storage_plugins:
        module = importlib.import_module(config.extra_config[f"storage_plugin.{storage_plugin}.module_path"])
        backend_class = getattr(module, config.extra_config[f"storage_plugin.{storage_plugin}.class_name"])
        storage_backends[storage_plugin] = backend_class(
            config=config, dst_device=dst_device, metadata=metadata, local_cpu_backend=local_cpu_backend, loop=loop)


class LocalCPUBackend:
    def __init__(self, allocator):
        self.memory_allocator = allocator

    def get_memory_allocator(self):
        return self.memory_allocator

    def allocate(self, shapes, dtypes, fmt=None, eviction=True, busy_loop=True):
        assert not busy_loop, "it would wait for ever: nothing is evicted here"
        return self.memory_allocator.allocate(shapes, dtypes, fmt)

    def close(self):
        self.memory_allocator.close()
