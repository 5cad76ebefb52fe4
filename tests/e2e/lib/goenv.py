"""tests/e2e/lib/goenv.py: programs in Go against the modules of the tree and the library of a build folder."""

import hashlib
import os
import pathlib
import shutil
import subprocess

import nebula

MODULES = pathlib.Path(__file__).resolve().parents[3] / "bindings/go"
GO = shutil.which("go", path=os.environ.get("PATH", "") + ":/usr/local/go/bin:/usr/lib/go/bin")
# Our module, and the paths that the mission's documents import.
OWN = "github.com/piwi3910/nebulaio/bindings/go"
IMPORTS = {OWN: ".", "github.com/piwi3910/nebulaio/client/rdma": "paths/rdma",
           "github.com/nebulaio/client-rdma": "paths/client-rdma"}
# The race detector cannot run position-independent programs. Go detects only for some compilers ($CC) that they build
# those by default.
NO_PIE = "-ldflags=-extldflags=-no-pie"


def environment(build, **more):
    """Like a user's environment, with the build folder's library. No module is fetched: there is none to fetch. Go's
    cache does not check headers outside a module, but separates code compiled with other flags: a flag here identifies
    the header, otherwise an updated tree would run old code."""
    header = hashlib.sha256((MODULES.parents[1] / "include/nebulaio/nebulaio.h").read_bytes()).hexdigest()
    env = nebula.clean_env("GO", "CGO_", "PKG_CONFIG")
    return dict(env, PKG_CONFIG="/usr/bin/pkg-config", PKG_CONFIG_PATH=str(build / "meson-uninstalled"),
                LD_LIBRARY_PATH=str(build / "client"), GOPROXY="off", GOFLAGS="-mod=mod -buildvcs=false",
                GOTOOLCHAIN="local", CGO_ENABLED="1", CGO_CFLAGS=f"-O2 -g -DNEBULAIO_HEADER_{header[:16]}", **more)


def module(folder, source, more=""):
    """A program of its own, as for the documents' reader; a second file has the parts that the document omits."""
    folder.mkdir(parents=True, exist_ok=True)
    requires = "".join(f"require {name} v0.0.0\n" for name in IMPORTS)
    replaces = "".join(f"replace {name} => {MODULES / path}\n" for name, path in IMPORTS.items())
    (folder / "go.mod").write_text(f"module document\n\ngo 1.19\n\n{requires}\n{replaces}")
    (folder / "document.go").write_text(source)
    (folder / "omitted.go").write_text('package main\n\nimport "context"\n\nvar ctx = context.Background()\n' + more)


def build(env, folder):
    """The program, or None and the compiler's messages."""
    done = subprocess.run([GO, "build", "-race", NO_PIE, "-o", "document", "."], cwd=folder, env=env, capture_output=True,
                          text=True, timeout=1200)
    return (folder / "document" if done.returncode == 0 else None), done.stdout + done.stderr


def fetched(source, folder):
    """A program that needs modules of Go's proxy (its go.sum holds them), or None and why it cannot be had."""
    if not GO:
        return None, "Go is not installed"
    shutil.copytree(source, folder)
    env = {name: value for name, value in os.environ.items() if not name.startswith("GO") or name in ("GOPROXY", "GOPATH", "GOMODCACHE")}
    env.update(GOTOOLCHAIN="local", GOFLAGS="-mod=mod -buildvcs=false")
    done = subprocess.run([GO, "build", "-o", "program", "."], cwd=folder, env=env, capture_output=True, text=True, timeout=1200)
    return (folder / "program" if done.returncode == 0 else None), done.stdout + done.stderr
