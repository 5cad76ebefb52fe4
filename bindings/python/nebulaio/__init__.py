"""S3 over RDMA: the Python client of the NebulaIO object store.

    from nebulaio import RDMAClient

    with RDMAClient(endpoint="127.0.0.1:9100") as client:
        client.put_object("photos", "hello", b"hi there")
        data = client.get_object("photos", "hello")

One thread at a time uses a client; others wait. Open one per thread (client.clone()), and one per process after a fork.
"""

from ._native import Buffer, Map, MapStats, Registration, Result, Stats
from .aio import AsyncRDMAClient
from .errors import (AccessDeniedError, BufferTooSmallError, ConflictError, ForkError, NebulaConnectionError,
                     NebulaError, NebulaTimeoutError, NotFoundError, PreconditionError)
from .rdma import ObjectData, ObjectInfo, RDMAClient
from .tokens import TokenMinter

__version__ = "0.1.0"

__all__ = [
    "AccessDeniedError", "AsyncRDMAClient", "Buffer", "BufferTooSmallError", "ConflictError", "ForkError",
    "Map", "MapStats", "NebulaConnectionError", "NebulaError", "NebulaTimeoutError", "NotFoundError", "ObjectData", "ObjectInfo",
    "PreconditionError", "RDMAClient", "Registration", "Result", "Stats",
    "TokenMinter", "__version__",
]
