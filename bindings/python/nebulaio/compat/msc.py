"""The RDMA functions that the published wheel of multi-storage-client leaves out, for its provider s3_cuobject.

The provider mints RDMA tokens by five functions of its extension module, cuobj_available and others, which only a wheel
built with NVIDIA's cuObject has. install() puts functions of this module there, which mint tokens by libnebulaio: over
any RDMA card with reliable connections, and over the simulated device. multi-storage-client itself stays as it is.

    from nebulaio.compat import msc
    msc.install("http://127.0.0.1:9000")     # before the first client of multi-storage-client

or, for a program that knows nothing of it:

    NEBULAIO_ENDPOINT=http://127.0.0.1:9000 python -m nebulaio.compat.msc PROGRAM.py ARGUMENTS
    NEBULAIO_ENDPOINT=http://127.0.0.1:9000 python -m nebulaio.compat.msc -m MODULE ARGUMENTS

The endpoint is the one that the profile's endpoint_url names: the first HTTP endpoint of NEBULAIO_ENDPOINT, else
AWS_ENDPOINT_URL_S3, else AWS_ENDPOINT_URL. The functions know nothing of profiles, so a process has one endpoint. Keys
come from the environment as for RDMAClient; the queue pair belongs to the access key, so it is the profile's key.
"""

from __future__ import annotations

import importlib
import logging
import os
import runpy
import sys
import threading
from typing import Any

from .. import _native, settings
from ..errors import NotFoundError
from ..tokens import TokenMinter

EXTENSION = "multistorageclient_rust.multistorageclient_rust"
PROVIDER = "multistorageclient.providers._cuobj"
NAMES = ("cuobj_available", "cuobj_register_buffer", "cuobj_deregister_buffer", "cuobj_get_rdma_token",
         "cuobj_put_rdma_token")

_logger = logging.getLogger("nebulaio")
_lock = threading.Lock()
_options: dict[str, Any] = {}
_minter: TokenMinter | None = None
_minter_pid = 0


def endpoint_default() -> str:
    for text in [*settings.endpoints_default(), os.environ.get("AWS_ENDPOINT_URL_S3", ""),
                 os.environ.get("AWS_ENDPOINT_URL", "")]:
        if text.startswith(("http://", "https://")):
            return text
    raise ValueError("no endpoint: call install() with it, or set NEBULAIO_ENDPOINT or AWS_ENDPOINT_URL")


def _native_minter() -> _native.Minter:
    """The process's minter, opened when it is first needed; a forked process has its own."""
    global _minter, _minter_pid
    with _lock:
        if _minter is None or _minter_pid != os.getpid():
            options = dict(_options)
            _minter = TokenMinter(options.pop("endpoint", None) or endpoint_default(), **options)
            _minter_pid = os.getpid()
        return _minter.native


def cuobj_available() -> bool:
    try:
        why = _native_minter().why_not()
    except (OSError, ValueError) as error:
        why = str(error)
    if why:
        _logger.warning("no RDMA for multi-storage-client: %s", why)
    return why is None


def cuobj_register_buffer(addr: int, size: int) -> None:
    _native_minter().register(addr, size)


def cuobj_deregister_buffer(addr: int) -> None:
    """Its end is also what keeps the server off a buffer whose request was not answered."""
    _native_minter().unregister(addr)


def cuobj_get_rdma_token(addr: int, size: int, offset: int, is_put: bool) -> str:
    return _native_minter().mint(_native.PUT_OBJECT if is_put else _native.GET_OBJECT, addr + offset, size)


def cuobj_put_rdma_token(token: str) -> None:
    """A token that is unknown, or released already, is no error: so the provider has it."""
    try:
        _native_minter().release(token)
    except NotFoundError:
        pass


def install(endpoint: str | None = None, access_key: str | None = None, secret_key: str | None = None,
            **options: Any) -> None:
    """Gives multi-storage-client the five functions. Options are TokenMinter's. ImportError: it is not installed;
    RuntimeError: its wheel has functions of its own, or it is a version without the provider.
    Called again, it leads later tokens to another endpoint."""
    global _minter
    extension = importlib.import_module(EXTENSION)
    if any(hasattr(extension, name) and getattr(extension, name) is not globals()[name] for name in NAMES):
        raise RuntimeError("this wheel of multi-storage-client was built with RDMA functions of its own")
    with _lock:
        _options.clear()
        _options.update(options, endpoint=endpoint, access_key=access_key, secret_key=secret_key)
        _minter = None  # it ends with the last thread inside
    for name in NAMES:
        setattr(extension, name, globals()[name])
    provider = importlib.import_module(PROVIDER)
    if not hasattr(provider, "_HAS_CUOBJ"):
        raise RuntimeError("this version of multi-storage-client has another provider s3_cuobject than 1.3.1")
    # It looked for the functions when it was imported, which may have been before.
    provider._HAS_CUOBJ = True


def main(arguments: list[str]) -> int:
    if not arguments or arguments == ["-m"]:
        print("usage: python -m nebulaio.compat.msc (PROGRAM.py | -m MODULE) [ARGUMENTS]", file=sys.stderr)
        return 2
    # Under its own name, not as __main__: the functions are to be one module's.
    importlib.import_module("nebulaio.compat.msc").install()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
