"""tests/e2e/rados/ceph.py: a Ceph cluster of this host's own: a monitor, a manager and osds on files, all below one folder and
on loopback, or on an address of a network name space, from the distribution's packages. It ends with the test, also when the
test is killed."""

import ctypes
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from nebula import PATIENCE_S, becomes, kept_port  # noqa: E402

PROGRAMS = ("ceph", "ceph-mon", "ceph-mgr", "ceph-osd", "ceph-authtool", "monmaptool")
OSD_BYTES = 3 << 30
CONF = """[global]
fsid = {fsid}
mon_host = v2:{address}:{port}/0
mon_initial_members = a
public_network = {address}/8
public_addr = {address}
cluster_addr = {address}
ms_bind_ipv6 = false
ms_async_op_threads = 1
keyring = {folder}/keyring
run_dir = {folder}/run
admin_socket =
log_file = {folder}/log/$name.log
mon_cluster_log_file = {folder}/log/cluster.log
crash_dir = {folder}/crash
osd_crush_chooseleaf_type = 0
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
osd_pool_default_pg_autoscale_mode = off
mon_max_pg_per_osd = 1000
auth_allow_insecure_global_id_reclaim = false
mon_warn_on_pool_no_redundancy = false
osd_heartbeat_interval = 1
osd_heartbeat_grace = 20
mon_osd_down_out_interval = 3600
mon_osd_min_down_reporters = 1
mon_osd_report_timeout = 3600
osd_mon_report_interval = 1
[mon.a]
mon_data = {folder}/mon
mon_data_avail_crit = 1
mon_data_avail_warn = 2
paxos_propose_interval = 0.1
[mgr.x]
mgr_data = {folder}/mgr
keyring = {folder}/mgr/keyring
mgr_initial_modules =
[osd]
osd_data = {folder}/osd.$id
keyring = {folder}/osd.$id/keyring
osd_objectstore = bluestore
bluestore_block_size = {osd_bytes}
bluestore_block_create = true
bluestore_fsck_on_mount = false
bluestore_cache_autotune = false
bluestore_cache_size = 67108864
osd_memory_target = 939524096
osd_op_num_shards = 2
osd_class_update_on_start = false
"""


def lacking():
    """The first program that this host does not have, or None."""
    return next((name for name in PROGRAMS if not shutil.which(name)), None)


def dies_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Cluster:
    def __init__(self, folder, osds=3, address="127.0.0.1", within=()):
        """within: words before the command of each daemon."""
        self.folder, self.osds, self.processes = pathlib.Path(folder), osds, {}
        self.address, self.within = address, within
        self.conf = self.folder / "ceph.conf"

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def _run(self, *words, text=None):
        done = subprocess.run([str(word) for word in words], input=text, capture_output=True, text=True, timeout=PATIENCE_S)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr}\n{self.logs()}")
        return done.stdout

    def logs(self):
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in (self.folder / "log").glob("*.out"))

    def ceph(self, *words, text=None):
        return self._run("ceph", "-c", self.conf, "--connect-timeout", PATIENCE_S, *words, text=text)

    def rados(self, *words):
        return self._run("rados", "-c", self.conf, *words)

    def begin(self, name):
        kind, number = name.split(".")
        with open(self.folder / "log" / f"{name}.out", "ab") as log:
            self.processes[name] = subprocess.Popen([*self.within, f"ceph-{kind}", "-c", self.conf, "-i", number, "-f"], stdin=subprocess.DEVNULL,
                                                    stdout=log, stderr=log, preexec_fn=dies_with_parent, start_new_session=True)

    def kill(self, name):
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self):
        for name in list(self.processes):
            self.kill(name)

    def osds_up(self):
        return json.loads(self.ceph("osd", "stat", "-f", "json"))["num_up_osds"]

    def _start(self):
        for name in ("log", "run", "mon", "mgr", "crash"):
            (self.folder / name).mkdir(parents=True)
        port, fsid = kept_port(), uuid.uuid4()
        self.conf.write_text(CONF.format(fsid=fsid, port=port, folder=self.folder, osd_bytes=OSD_BYTES,
                                          address=self.address))
        keyring, monmap = self.folder / "keyring", self.folder / "monmap"
        self._run("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        self._run("ceph-authtool", keyring, "--gen-key", "-n", "client.admin", "--cap", "mon", "allow *", "--cap", "osd", "allow *",
                  "--cap", "mgr", "allow *")
        self._run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:{self.address}:{port}]", monmap)
        self._run("ceph-mon", "-c", self.conf, "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring)
        self.begin("mon.a")
        # Each osd makes its files while the monitor learns of the next.
        making = []
        for number in range(self.osds):
            identity, secret = uuid.uuid4(), self._run("ceph-authtool", "--gen-print-key").strip()
            home = self.folder / f"osd.{number}"
            home.mkdir()
            self.ceph("osd", "new", identity, number, "-i", "-", text=json.dumps({"cephx_secret": secret}))
            self._run("ceph-authtool", "--create-keyring", home / "keyring", "-n", f"osd.{number}", "--add-key", secret)
            making.append(subprocess.Popen(["ceph-osd", "-c", self.conf, "-i", str(number), "--mkfs", "--osd-uuid", str(identity)],
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.ceph("auth", "get-or-create", "mgr.x", "mon", "allow profile mgr", "osd", "allow *", "-o", self.folder / "mgr" / "keyring")
        self.begin("mgr.x")
        for number, process in enumerate(making):
            if process.wait(PATIENCE_S):
                raise RuntimeError(f"osd.{number} could not make its files")
            self.begin(f"osd.{number}")
        if not becomes(lambda: self.osds_up() == self.osds):
            raise RuntimeError(f"the osds do not come up\n{self.logs()}")
