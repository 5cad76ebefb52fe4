"""runai-model-streamer reads models from NebulaIO: vLLM's and SGLang's load format runai_streamer, unmodified.

The streamer opens its S3 library by the bare name libstreamers3.so. NebulaIO's library of that name
(client/compat/runai.c) reads over RDMA, and over HTTP where RDMA fails. A library of that name that the process has
already loaded is the one that the streamer gets:

    NEBULAIO_ENDPOINT=rdma://127.0.0.1:9100,http://127.0.0.1:9000 python -m nebulaio.compat.runai PROGRAM.py ARGUMENTS
    NEBULAIO_ENDPOINT=... python -m nebulaio.compat.runai -m MODULE ARGUMENTS

or install() in the program before it uses the streamer. Processes that are started anew (not forked) load it by

    export LD_PRELOAD=$(python -m nebulaio.compat.runai --path)

Keys come from the environment as for the streamer: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""

from __future__ import annotations

import ctypes
import os
import pathlib
import runpy
import sys

from .. import _native  # noqa: F401  brings libnebulaio into the process

NAME = "libstreamers3.so"
_loaded: ctypes.CDLL | None = None


def library() -> pathlib.Path:
    """The library's path: beside this file, where a wheel has it; beside libnebulaio, which this package is linked with;
    or in nebulaio/compat there. FileNotFoundError."""
    folders = [pathlib.Path(os.environ["NEBULAIO_COMPAT_DIR"])] if os.environ.get("NEBULAIO_COMPAT_DIR") else []
    folders.append(pathlib.Path(__file__).resolve().parent)
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if "/libnebulaio" in "/" + path:
                beside = pathlib.Path("/" + path).parent
                folders += [beside, beside / "nebulaio/compat"]
                break
    for folder in folders:
        if (folder / NAME).exists():
            return folder / NAME
    raise FileNotFoundError(f"no {NAME} in {', '.join(map(str, folders))}: NEBULAIO_COMPAT_DIR names its folder")


def install() -> pathlib.Path:
    """Loads the library, so that the streamer gets it. RuntimeError: the streamer has loaded its own already."""
    global _loaded
    path = library()
    with open("/proc/self/maps") as maps:
        others = {line.split()[-1] for line in maps if line.rstrip().endswith("/" + NAME)}
    if others - {str(path.resolve())}:
        raise RuntimeError(f"{others.pop()} is loaded already: call install() before the streamer is used")
    _loaded = ctypes.CDLL(str(path))
    return path


def main(arguments: list[str]) -> int:
    if arguments == ["--path"]:
        print(library())
        return 0
    if not arguments or arguments == ["-m"]:
        print("usage: python -m nebulaio.compat.runai PROGRAM.py|-m MODULE [ARGUMENTS] | --path", file=sys.stderr)
        return 2
    install()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
