"""Finds libnebulaio for the extension; all else is in pyproject.toml."""

import json
import os
import pathlib
import shlex
import subprocess

from setuptools import Extension, setup

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = "libnebulaio.so"
SYSTEM_FOLDERS = ("/lib", "/usr/lib")
HELP = """libnebulaio was not found. Any of these helps:
  - build it in the source tree (make build), and install from bindings/python there
  - NEBULAIO_BUILD_DIR=/path/to/its/build/folder
  - install it so that `pkg-config nebulaio` knows it (PKG_CONFIG_PATH)"""


def from_build(folder):
    """Uses a build folder of the source tree: the headers are beside it, and the library stays there."""
    folder = pathlib.Path(folder).resolve()
    info = folder / "meson-info/meson-info.json"
    if not (folder / "client" / LIBRARY).exists() or not info.exists():
        return None
    source = pathlib.Path(json.loads(info.read_text())["directories"]["source"])
    library = str(folder / "client")
    return {"include_dirs": [str(source / "include")], "library_dirs": [library], "runtime_library_dirs": [library],
            "libraries": ["nebulaio"]}


def from_pkg_config():
    tool = os.environ.get("PKG_CONFIG", "pkg-config")

    def ask(*options):
        return subprocess.run([tool, *options, "nebulaio"], check=True, capture_output=True, text=True).stdout

    try:
        compile_flags, link_flags = shlex.split(ask("--cflags")), shlex.split(ask("--libs"))
        folder = ask("--variable=libdir").strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    rpath = [] if folder.startswith(SYSTEM_FOLDERS) else [folder]
    return {"extra_compile_args": compile_flags, "extra_link_args": link_flags, "runtime_library_dirs": rpath}


def find():
    named = os.environ.get("NEBULAIO_BUILD_DIR")
    if named:
        found = from_build(named)
        if not found:
            raise SystemExit(f"NEBULAIO_BUILD_DIR={named}: no client/{LIBRARY} is built there")
        return found
    found = from_pkg_config() or from_build(HERE.parents[1] / "build")
    if not found:
        raise SystemExit(HELP)
    return found


def extension():
    found = find()
    flags = ["-std=gnu17", "-Wall", "-Wextra", "-fvisibility=hidden", *found.pop("extra_compile_args", [])]
    sources = [f"native/{name}.c" for name in ("module", "client", "batch", "fan_out", "list", "results", "buffers", "map", "memory", "minter")]
    return Extension("nebulaio._native", sources, depends=["native/native.h", "native/abi.h"], extra_compile_args=flags, py_limited_api=True, **found)


setup(ext_modules=[extension()], options={"bdist_wheel": {"py_limited_api": "cp39"}})
