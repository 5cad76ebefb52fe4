"""tests/e2e/packages/wheel_inside.py: the installed wheel against a server; run-wheel starts this in a bare root, where
nothing else of the project is. Each line is one check."""

import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import subprocess
import sys

import nebulaio
from nebulaio import RDMAClient

KEYS = ("minioadmin", "minioadmin")
RDMA, HTTP, HTTPS = (os.environ[name] for name in ("TEST_RDMA", "TEST_HTTP", "TEST_HTTPS"))
MIB = 1 << 20


def check(well, what, why=""):
    print(f"{'ok' if well else 'not ok'} - {what}{'' if well else f': {why!r}'}", flush=True)


def objects():
    with RDMAClient(RDMA, *KEYS, transport="strict") as client:
        client.create_bucket("wheel")
        client.put_object("wheel", "small", b"from a wheel")
        data = client.get_object("wheel", "small")
        check(data == b"from a wheel" and data.transport == "rdma" and hash(data) == hash(b"from a wheel"), "put and get over RDMA", data)
        check(client.device == "simulated", "the device is the simulated one", client.device)
        buffer = client.allocate_buffer(MIB)
        view = memoryview(buffer)
        view[:] = bytes(range(256)) * (MIB // 256)
        client.put_from("wheel", "large", view)
        view[:] = bytes(MIB)
        result = client.get_into("wheel", "large", view)
        check(result.bytes == MIB and bytes(view) == bytes(range(256)) * (MIB // 256), "1 MiB from and into registered memory", result)
        check([entry.key for entry in client.list_objects("wheel")] == ["large", "small"], "a list")
        try:
            client.get_object("wheel", "none")
            check(False, "an absent key raises")
        except nebulaio.NotFoundError as error:
            check("none" in str(error), "an absent key raises", error)
        try:
            type(buffer)()
            check(False, "only a client makes a buffer")
        except TypeError as error:
            check("a client makes it" in str(error), "only a client makes a buffer", error)


def by_http():
    with RDMAClient(HTTP, *KEYS) as client:
        data = client.get_object("wheel", "small")
        check(data == b"from a wheel" and data.transport == "http", "get over HTTP", data)
    os.environ["SSL_CERT_FILE"] = "/certificate.pem"
    with RDMAClient(HTTPS, *KEYS) as client:
        data = client.get_object("wheel", "small")
        check(data == b"from a wheel" and data.transport == "http", "get over HTTPS, with a certificate of one's own", data)
    os.environ["SSL_CERT_FILE"] = "/nowhere.pem"
    try:
        with RDMAClient(HTTPS, *KEYS, request_timeout=20) as client:
            client.get_object("wheel", "small")
        check(False, "without it HTTPS is refused")
    except nebulaio.NebulaError as error:
        check("certificate" in str(error) or "CA" in str(error), "without it HTTPS is refused, for that reason", str(error))


def no_library():
    """run-wheel has made a card in this root's /sys."""
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger().addHandler(handler)
    try:
        RDMAClient("192.0.2.1:9100", *KEYS)
        check(False, "a host with a card, but without libibverbs, says so")
    except nebulaio.NebulaError:
        check(any("libibverbs.so.1" in line for line in said), "a host with a card, but without libibverbs, says so", said)


def arrays():
    try:
        import numpy
    except ImportError:
        check(True, "arrays # SKIP numpy could not be fetched")
        return
    from nebulaio import data
    with RDMAClient(RDMA, *KEYS) as client:
        client.put_object_numpy("wheel", "array.npy", numpy.arange(1000.0))
        check(client.get_object_numpy("wheel", "array.npy").sum() == 499500, "an array")
        got = list(data.prefetch(client, "wheel", ["large", "small"]))
        check(len(got) == 2, "the loader", got)


def streamer():
    """runai-model-streamer's own library reads the object "large" by the wheel's libstreamers3.so."""
    asked = [one for one in importlib.metadata.requires("nebulaio") if "runai" in one]
    check(len(asked) == 1 and asked[0].startswith("runai-model-streamer[s3]") and "==0.17.0" in asked[0], "the extra runai brings the streamer", asked)
    path = subprocess.run([sys.executable, "-m", "nebulaio.compat.runai", "--path"], capture_output=True, text=True).stdout.strip()
    check(path.startswith(sys.argv[1]) and os.path.exists(path), "libstreamers3.so is in the wheel", path)
    found = importlib.util.find_spec("runai_model_streamer")
    if not found:
        check(True, "the streamer reads by it # SKIP runai-model-streamer could not be fetched")
        return
    request = {"library": os.path.join(os.path.dirname(found.origin), "libstreamer/lib/libstreamer.so"),
               "read": [["s3://wheel/large", [[0, 1000], [1000, MIB - 1000]]]]}
    env = dict(os.environ, LD_PRELOAD=path, NEBULAIO_ENDPOINT=f"rdma://{RDMA}", AWS_ENDPOINT_URL=HTTP, AWS_ACCESS_KEY_ID=KEYS[0],
               AWS_SECRET_ACCESS_KEY=KEYS[1], AWS_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true", RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING="0")
    done = subprocess.run([sys.executable, "/streamer_user.py"], input=json.dumps(request), env=env, capture_output=True, text=True)
    outcome = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
    digest = hashlib.sha256(bytes(range(256)) * (MIB // 256)).hexdigest()
    check(outcome.get("digest") == digest and outcome.get("maps") == [path], "the streamer reads by it, over RDMA", (outcome, done.stderr))


check(sys.argv[1] in nebulaio.__file__, "the package is the wheel's", nebulaio.__file__)
objects()
by_http()
streamer()
no_library()
arrays()
