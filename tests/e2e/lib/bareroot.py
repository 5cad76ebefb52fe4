"""tests/e2e/lib/bareroot.py: minimal roots of Debian and Ubuntu, and commands in them. A root is fetched from its archive
once, and kept in the build folder; every call unpacks a new copy."""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess

DEBIAN, UBUNTU = "http://deb.debian.org/debian", "http://archive.ubuntu.com/ubuntu"
# Python with pip, and nothing to compile with.
PYTHON = "python3-venv"
UBUNTUS = ("jammy", "noble")
SECONDS_MAX = 1800
# Mounts end with the command, even if it is killed.
APART = ["unshare", "--mount", "--propagation", "private"]
# Commands in the root see its own devices and processes.
INSIDE = [*APART, "sh", "-ec",
          'mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; exec chroot "$0" "$@"']


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=SECONDS_MAX, **options)
    return done.returncode, done.stdout + done.stderr


def environment(**more):
    """The environment of root's shell, without the keys of a test's server."""
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", **more}


def inside(root, *command, **more):
    """Exit status and output of a command in the root."""
    return run(*INSIDE, root, *command, env=environment(**more))


def last(said):
    return (said.strip().splitlines() or ["no reason given"])[-1]


def fetch(suite, root):
    """None, or why there is no root."""
    options, script = ["--variant=minbase", f"--include={PYTHON}"], []
    if suite in UBUNTUS:
        # Debian's debootstrap knows neither Ubuntu's key nor its later suites.
        options += ["--no-check-gpg", "--components=main,universe"]
        script = ["/usr/share/debootstrap/scripts/gutsy"]
    code, said = run(*APART, "debootstrap", *options, suite, root, UBUNTU if suite in UBUNTUS else DEBIAN, *script)
    return f"debootstrap: {last(said)}" if code else None


def lay(build, suite, root, packages=()):
    """Lays a root of the suite with these packages besides Python; None, or why there is none."""
    if os.geteuid() != 0:
        return "only root may chroot"
    if run("unshare", "--mount", "true")[0]:
        return "this machine forbids mounts of one's own"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    tools = build / "test-tools"
    tools.mkdir(parents=True, exist_ok=True)
    with open(tools / f"root-{suite}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return laid(tools, suite, root, sorted(packages))


def laid(tools, suite, root, packages):
    digest = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:16] if packages else "bare"
    kept = tools / f"{suite}-{digest}.tar"
    if kept.exists():
        code, said = run("tar", "--extract", "--numeric-owner", "--file", kept, "--directory", root)
        return said if code else None
    why = laid(tools, suite, root, ()) if packages else fetch(suite, root)
    if why:
        return why
    if packages:
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        code, said = inside(root, "apt-get", "install", "--yes", "--no-install-recommends", *packages)
        if code:
            return "apt-get: " + last(said)
        inside(root, "apt-get", "clean")
    making = kept.with_suffix(".making")
    code, said = run("tar", "--create", "--numeric-owner", "--one-file-system", "--file", making, "--directory", root, ".")
    if code:
        return said
    making.rename(kept)
    return None
