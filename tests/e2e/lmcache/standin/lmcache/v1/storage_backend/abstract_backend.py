"""As lmcache/v1/storage_backend/abstract_backend.py: what a plug-in has to offer."""

import abc


class StorageBackendInterface(metaclass=abc.ABCMeta):
    def __init__(self, dst_device="cuda"):
        self.dst_device = dst_device

    @abc.abstractmethod
    def contains(self, key, pin=False):
        raise NotImplementedError

    @abc.abstractmethod
    def exists_in_put_tasks(self, key):
        raise NotImplementedError

    @abc.abstractmethod
    def batched_submit_put_task(self, keys, objs, transfer_spec=None, on_complete_callback=None):
        raise NotImplementedError

    async def async_batched_submit_put_task(self, keys, objs, transfer_spec=None, on_complete_callback=None):
        raise NotImplementedError

    @abc.abstractmethod
    def get_blocking(self, key):
        raise NotImplementedError

    def get_non_blocking(self, key, location=None):
        raise NotImplementedError

    async def batched_async_contains(self, lookup_id, keys, pin=False):
        raise NotImplementedError

    async def batched_get_non_blocking(self, lookup_id, keys, transfer_spec=None):
        raise NotImplementedError

    def batched_get_blocking(self, keys):
        raise NotImplementedError

    @abc.abstractmethod
    def pin(self, key):
        raise NotImplementedError

    @abc.abstractmethod
    def unpin(self, key):
        raise NotImplementedError

    @abc.abstractmethod
    def remove(self, key, force=True):
        raise NotImplementedError

    def batched_remove(self, keys, force=True):
        raise NotImplementedError

    @abc.abstractmethod
    def get_allocator_backend(self):
        raise NotImplementedError

    @abc.abstractmethod
    def close(self):
        raise NotImplementedError

    def batched_contains(self, keys, pin=False):
        raise NotImplementedError

    def touch_cache(self):
        raise NotImplementedError

    def cancel_request(self, req_id):
        return


class StoragePluginInterface(StorageBackendInterface):
    def __init__(self, dst_device="cuda", config=None, metadata=None, local_cpu_backend=None, loop=None):
        super().__init__(dst_device=dst_device)
        self.config, self.metadata, self.local_cpu_backend, self.loop = config, metadata, local_cpu_backend, loop
