"""tests/e2e/packages/image.py: the container image that scripts/image makes of the packages; run-packages calls this. umoci, which
checks every digest, unpacks it; runc runs it with its own configuration, except that it has the host's network. Where
runc cannot run, that part is skipped."""

import json
import os
import re
import shutil
import time

import bareroot
from nebula import ACCESS_KEY, ROOT, SECRET_KEY, Client, Server, kept_port

BYTES_MAX = 40 << 20
NAME = f"nebulaio-test-{os.getpid()}"


class Contained(Server):
    """The image's server in a container."""

    def __init__(self, bundle, log):
        super().__init__(bundle / "rootfs/var/lib/nebulaio", log)
        self.bundle = bundle

    def command(self):
        return ["runc", "run", "--bundle", self.bundle, NAME]


def image_config(oci):
    """The image's configuration, found as a runtime does."""
    def blob(descriptor):
        return json.loads((oci / "blobs" / descriptor["digest"].replace(":", "/")).read_text())
    return blob(blob(json.loads((oci / "index.json").read_text())["manifests"][0])["config"])


def check(tap, packages, test):
    """packages: the folder with the .deb files and the bill of materials."""
    missing = [tool for tool in ("mmdebstrap", "umoci", "runc") if not shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin")]
    if missing or os.geteuid() != 0:
        tap.skip("the container image", f"{', '.join(missing)} not installed" if missing else "only root can make it")
        return
    code, said = bareroot.run(ROOT / "scripts/image", "--packages", packages, "--folder", test / "image")
    if not tap.check(code == 0, "a container image is made of the packages", said):
        return
    print(f"# {said.strip()}")
    oci, bundle = test / "image/oci", test / "bundle"
    config = image_config(oci)["config"]
    [archive] = (test / "image").glob("*-oci.tar")
    tap.check(archive.stat().st_size < BYTES_MAX, "it is small", archive.stat().st_size)
    tap.check(config["User"] not in ("", "0", "root") and config["Labels"]["org.opencontainers.image.version"] in archive.name and config["Healthcheck"],
              "it names a user other than root, its version and a health check", config)
    names = json.loads((oci / "index.json").read_text())["manifests"][0]["annotations"]
    tag = names["org.opencontainers.image.ref.name"]
    used = re.search(r"image: (\S+)", (ROOT / "deploy/kubernetes/nebulaio.yaml").read_text())[1]
    tap.check(names["io.containerd.image.name"] == f"docker.io/library/{used}", "containerd names it as the Kubernetes manifest does", names)
    code, said = bareroot.run("umoci", "unpack", "--image", f"{oci}:{tag}", bundle)
    if not tap.check(code == 0, "umoci accepts and unpacks it", said):
        return
    root = bundle / "rootfs"
    bill = json.loads((root / "usr/share/doc/nebulaio/nebulaio.spdx.json").read_text())
    records = {path.name for path in (root / "var/lib/dpkg/status.d").iterdir()}
    tap.check(bill["spdxVersion"] == "SPDX-2.3" and {"nebulaio", "libc6", "libssl3", "libibverbs1", "ibverbs-providers"} <= records,
              "it has the bill of materials, and a record of each package", records)
    tap.check(not any((root / name).exists() for name in ("usr/bin/apt-get", "usr/bin/dpkg", "usr/bin/gcc")), "but no package manager")
    tap.check((root / "bin/tar").exists() and "tar" in records, "and tar, without which `kubectl cp` copies nothing")
    runs(tap, config, bundle, test)


def runs(tap, config, bundle, test):
    spec = json.loads((bundle / "config.json").read_text())
    process = spec["process"]
    tap.check(process["user"]["uid"] == 10001 and process["args"] == ["/usr/bin/nebulaio", "serve"], "it starts the server as its own user", process)
    process["terminal"] = False
    admin = f"127.0.0.1:{kept_port()}"
    given = {"NEBULAIO_ROOT_USER": ACCESS_KEY, "NEBULAIO_ROOT_PASSWORD": SECRET_KEY, "NEBULAIO_HTTP_ADDRESS": "127.0.0.1:0",
             "NEBULAIO_RDMA_ADDRESS": "127.0.0.1:0", "NEBULAIO_ADMIN_ADDRESS": admin, "NEBULAIO_ADMIN_ENDPOINT": f"http://{admin}",
             "NEBULAIO_CONSOLE_ADDRESS": "127.0.0.1:0", "NEBULAIO_MEMORY_BYTES": "64MiB", "NEBULAIO_MEMORY_CACHE_BYTES": "32MiB"}
    process["env"] = [each for each in process["env"] if each.split("=")[0] not in given] + [f"{name}={value}" for name, value in given.items()]
    # umoci mounts an empty folder of root's for each volume; here the image's own folder stands for it.
    spec["mounts"] = [each for each in spec["mounts"] if each["destination"] != "/var/lib/nebulaio"]
    spec["linux"]["namespaces"] = [each for each in spec["linux"]["namespaces"] if each["type"] != "network"]
    command, process["args"] = process["args"], ["/usr/bin/nebulaio", "--version"]
    (bundle / "config.json").write_text(json.dumps(spec))
    code, said = bareroot.run("runc", "run", "--bundle", bundle, NAME)
    if code:
        tap.skip("the container runs", f"runc: {bareroot.last(said)}")
        return
    process["args"] = command
    (bundle / "config.json").write_text(json.dumps(spec))
    began = time.monotonic()
    with Contained(bundle, test / "container.log") as server:
        print(f"# the container's server was ready after {time.monotonic() - began:.2f} s")
        client = Client(server.http)
        client.request("PUT", "/bucket")
        tap.check(client.request("PUT", "/bucket/key", b"kept")[0] == 200 and client.request("GET", "/bucket/key")[2] == b"kept",
                  "the container's server serves", server.log_tail())
        client.close()
        kind, command = config["Healthcheck"]["Test"]
        code, said = bareroot.run("runc", "exec", NAME, "/bin/sh", "-c", command)
        tap.check(kind == "CMD-SHELL" and code == 0 and re.search("good", said), "its health check finds it well", said)
        code, said = bareroot.run("runc", "exec", "--env", "NEBULAIO_ADMIN_ENDPOINT=http://127.0.0.1:1", NAME, "/bin/sh", "-c", command)
        tap.check(code != 0, "and fails without a server", said)
        tap.check(server.stop() == 0, "it ends in order by SIGTERM", server.log_tail())
