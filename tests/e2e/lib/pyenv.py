#!/usr/bin/python3
"""tests/e2e/lib/pyenv.py: environments for Python with the package nebulaio in them, installed by pip from a copy of its
sources. Standard library only; other packages come from the registry if it answers, once per build folder, all into one
environment: BUILD/python. `pyenv.py BUILD` fetches them beforehand, while other work runs."""

import contextlib
import fcntl
import fnmatch
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
SOURCES = ROOT / "bindings/python"
BUILT = ("build", "*.egg-info", "*.so", "__pycache__")
# Packages that tests use if they are available; each line is fetched in one step. boto3 from the version that sends
# CRC64NVME by default.
PACKAGES = (("numpy", "fsspec", "boto3>=1.36"), ("pandas", "pyarrow", "zarr", "dask[dataframe]"),
            ("safetensors", "ml_dtypes"))
# Only a hang takes longer, even on a busy machine: what is killed while it unpacks leaves half a package.
STEP_S = 1800
# The extension is watched with its library; the run time comes by sanitizer_environment().
SANITIZED_BUILD = {"CC": "clang", "LDSHARED": "clang -shared",
                   "CFLAGS": "-Werror -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"}


def sanitized(build):
    return b"__asan_init" in (build / "client/libnebulaio.so").read_bytes()


def environment(build):
    return {**os.environ, "NEBULAIO_BUILD_DIR": str(build), "CFLAGS": "-Werror",
            **(SANITIZED_BUILD if sanitized(build) else {})}


@contextlib.contextmanager
def locked(build):
    """One process at a time changes BUILD/python."""
    with open(build / "python.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield build / "python"


def run(*command, **options):
    """Whether it succeeded, None if it was killed; and its output."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=STEP_S, **options)
        return done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    except subprocess.TimeoutExpired:
        return None, f"no end after {STEP_S} s"


def create(folder):
    """An empty environment; Debian's setuptools is seen from inside."""
    return run("/usr/bin/python3", "-m", "venv", "--clear", "--system-site-packages", folder)


def install(folder, sources, build):
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns(*BUILT))
    return run(folder / "bin/python", "-m", "pip", "install", "--no-build-isolation", "--no-index", "--no-deps",
               "--force-reinstall", sources, env=environment(build))


def fetch(folder, *packages):
    """Installs those that the registry has; otherwise prints a comment line with the reason. Whether the environment is whole,
    and why not."""
    well, said = run(folder / "bin/python", "-m", "pip", "install", "-q", "--retries", "0", "--timeout", "20", *packages)
    if not well:
        print(f"# no {' '.join(packages)}: {said.strip().splitlines()[-1:]}", flush=True)
    if well is None:
        shutil.rmtree(folder)
    return well is not None, said


def filled(folder):
    """The environment with the available packages, which the first call fetches. The lock is held."""
    if (folder / "filled").exists():
        return True, ""
    well, said = create(folder)
    for packages in PACKAGES:
        if well:
            well, said = fetch(folder, *packages)
    if well:
        (folder / "filled").touch()
    return well, said


def packages(build):
    """A python with the registry's packages, or None."""
    with locked(build) as folder:
        return folder / "bin/python" if filled(folder)[0] else None


def digest():
    """A digest of everything in an installed package, except the library, which it finds in the build folder."""
    wanted = hashlib.sha256()
    for path in sorted([*SOURCES.rglob("*"), *(ROOT / "include/nebulaio").iterdir()]):
        parts = path.relative_to(ROOT).parts
        if path.is_file() and not any(fnmatch.fnmatch(part, pattern) for part in parts for pattern in BUILT):
            wanted.update(path.read_bytes())
    return wanted.hexdigest()


def shared(tap, build, *more):
    """A python with the package nebulaio and the registry's packages, or None. more: further packages."""
    with locked(build) as folder:
        well, said = filled(folder)
        stamp = folder / "nebulaio.sha256"
        if well and not (stamp.exists() and stamp.read_text() == digest()):
            well, said = install(folder, folder / "sources", build)
            if well:
                stamp.write_text(digest())
        if well and more:
            well, said = fetch(folder, *more)
    return folder / "bin/python" if tap.check(well, "an environment with the package nebulaio", said) else None


def fresh(tap, folder, build):
    """The same in an environment of its own, or None: a test of the package's installation by pip. The sources are in
    folder/sources."""
    others = packages(build)
    well, said = create(folder / "venv")
    if not tap.check(well, "an environment (python3-venv)", said):
        return None
    if others:
        place = next(others.parents[1].glob("lib/python3*/site-packages"))
        next((folder / "venv").glob("lib/python3*/site-packages")).joinpath("others.pth").write_text(f"{place}\n")
    well, said = install(folder / "venv", folder / "sources", build)
    return folder / "venv/bin/python" if tap.check(well, "pip installs the package from its sources", said) else None


def with_torch(folder, build):
    """A python with the package nebulaio and with torch, and why there is none. Torch's own package brings gigabytes, so
    it is not fetched: $NEBULAIO_TEST_TORCH names a python that has it, whose packages the environment sees."""
    named = os.environ.get("NEBULAIO_TEST_TORCH")
    if not named:
        return None, "$NEBULAIO_TEST_TORCH names no python with torch, which is too large to fetch"
    well, said = run(named, "-c", "import numpy, sysconfig, torch; print(sysconfig.get_path('purelib'))")
    if not well:
        return None, f"{named} has no torch or no numpy: {said.strip()[-100:]!r}"
    venv = folder / "torch-venv"
    well, why = run(named, "-m", "venv", "--clear", venv)
    if not well:
        return None, why
    next(venv.glob("lib/python3*/site-packages")).joinpath("torch.pth").write_text(said.strip().splitlines()[-1] + "\n")
    well, why = install(venv, folder / "torch-sources", build)
    return (venv / "bin/python", "") if well else (None, why)


def sanitizer_environment(build):
    """A library with clang's sanitizers needs their run time loaded first. Python keeps much memory until its end, so
    leaks are not reported."""
    if not sanitized(build):
        return {}
    name = subprocess.run(["clang", "-print-file-name=libclang_rt.asan-x86_64.so"], check=True, capture_output=True,
                          text=True).stdout.strip()
    return {"LD_PRELOAD": name, "ASAN_OPTIONS": "detect_leaks=0:strict_string_checks=1", "PYTHONMALLOC": "malloc"}


if __name__ == "__main__":
    start = time.monotonic()
    print(f"# {packages(pathlib.Path(sys.argv[1]).resolve())}: {time.monotonic() - start:.0f} s")
