"""tests/lib/pyenv.py: an environment for Python with the package nebulaio in it, installed by pip from a copy of its
sources. Standard library only; other packages come from the registry where that answers."""

import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The extension is watched with its library; the run time comes by sanitizer_environment().
SANITIZED_BUILD = {"CC": "clang", "LDSHARED": "clang -shared",
                   "CFLAGS": "-Werror -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"}


def sanitized(build):
    return b"__asan_init" in (build / "client/libnebulaio.so").read_bytes()


def environment(build):
    return {**os.environ, "NEBULAIO_BUILD_DIR": str(build), "CFLAGS": "-Werror",
            **(SANITIZED_BUILD if sanitized(build) else {})}


def make(tap, folder, build):
    """Its python, or None. Debian's setuptools and boto3 are seen from inside. The sources are in folder/sources."""
    python = folder / "venv/bin/python"
    done = subprocess.run(["/usr/bin/python3", "-m", "venv", "--system-site-packages", folder / "venv"],
                          capture_output=True, text=True, timeout=120)
    if not tap.check(done.returncode == 0, "an environment (python3-venv)", done.stdout + done.stderr):
        return None
    sources = folder / "sources"
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(ROOT / "bindings/python", sources, ignore=shutil.ignore_patterns("build", "*.egg-info", "*.so"))
    done = subprocess.run([python, "-m", "pip", "install", "--no-build-isolation", "--no-index", "--no-deps",
                           "--force-reinstall", sources],
                          env=environment(build), capture_output=True, text=True, timeout=300)
    installed = tap.check(done.returncode == 0, "pip installs the package from its sources",
                          done.stdout[-2000:] + done.stderr[-2000:])
    return python if installed else None


def add(python, *packages, timeout=240):
    """What the registry gives; the rest is named in a comment line. Several names in one text are fetched together."""
    for package in packages:
        try:
            done = subprocess.run([python, "-m", "pip", "install", "-q", "--retries", "0", "--timeout", "20", *package.split()],
                                  capture_output=True, text=True, timeout=timeout)
            if done.returncode:
                print(f"# no {package}: {done.stderr.strip().splitlines()[-1:]}", flush=True)
        except subprocess.TimeoutExpired:
            print(f"# no {package}: the registry did not answer", flush=True)


def sanitizer_environment(build):
    """A library that clang's sanitizers watch wants their run time before all else. Python keeps much until its end, so
    leaks are not counted."""
    if not sanitized(build):
        return {}
    name = subprocess.run(["clang", "-print-file-name=libclang_rt.asan-x86_64.so"], check=True, capture_output=True,
                          text=True).stdout.strip()
    return {"LD_PRELOAD": name, "ASAN_OPTIONS": "detect_leaks=0:strict_string_checks=1", "PYTHONMALLOC": "malloc"}
