"""tests/e2e/msc/msc_test.py: multi-storage-client as its wheel is, its provider s3_cuobject over the simulated device;
run-msc installs it and starts this."""
import importlib.metadata
import io
import os
import pathlib
import subprocess
import sys
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from nebula import ACCESS_KEY, SECRET_KEY, Client, Server, Tap, kept_port  # noqa: E402

os.environ.update(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY, AWS_REGION="us-east-1",
                  NEBULAIO_RDMA_DEVICE_NAME="simulated", AWS_EC2_METADATA_DISABLED="true")
import multistorageclient  # noqa: E402
from multistorageclient.providers import _cuobj  # noqa: E402
from multistorageclient.types import Range  # noqa: E402
import multistorageclient_rust.multistorageclient_rust as extension  # noqa: E402

from nebulaio.compat import msc  # noqa: E402

FOLDER = pathlib.Path(os.environ["TEST_DIR"])
MIB = 1 << 20
CHUNK = 5 * MIB  # S3's smallest part
tap = Tap()


def server_of(name, *extra):
    return Server(FOLDER / name, FOLDER / f"{name}.log", *extra)


def profile(server, provider="s3_cuobject", **options):
    rdma = {"rdma": {"multipart_chunksize": CHUNK}} if provider == "s3_cuobject" else {}
    config = {"profiles": {"here": {
        "storage_provider": {"type": provider, "options": {
            "base_path": "bucket", "endpoint_url": f"http://{server.http}", "region_name": "us-east-1", **rdma, **options}},
        "credentials_provider": {"type": "S3Credentials", "options": {
            "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}}}}}
    return multistorageclient.StorageClient(multistorageclient.StorageClientConfig.from_dict(config, "here"))


def use(server):
    """The functions' endpoint is the server from now on."""
    msc.install(f"http://{server.http}")
    Client(server.http).request("PUT", "/bucket")


def moved(server, way):
    return server.metric(f'nebulaio_token_bytes_total{{direction="{way}"}}')


def raised(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except Exception as error:
        return error
    return None


# ---- The provider's own work. ----

def whole(server, client):
    plain = Client(server.http)
    for size in (1, 4096, 65537, MIB, CHUNK, CHUNK + 1, 12 * MIB + 3):
        data = os.urandom(size)
        before = moved(server, "in"), moved(server, "out")
        client.write(f"whole-{size}", data)
        got = client.read(f"whole-{size}")
        tap.check(got == data, f"whole: {size} bytes there and back")
        tap.check(moved(server, "in") - before[0] == size and moved(server, "out") - before[1] == size,
                  f"whole: and all {size} by RDMA, both ways", (before, moved(server, "in"), moved(server, "out")))
        answer = plain.request("GET", f"/bucket/whole-{size}")
        tap.check(answer[2] == data, f"whole: plain HTTP reads the same {size} bytes", answer[0])
    client.write("empty", b"")
    tap.check(client.read("empty") == b"", "whole: an empty object needs no RDMA")
    info = client.info("whole-65537")
    tap.check(info.content_length == 65537, "whole: info() knows the length", info)
    plain.close()


def ranges(server, client):
    data = os.urandom(6 * MIB + 17)
    client.write("ranged", data)
    for offset, size in ((0, 1), (100, 4096), (MIB - 5, 5 * MIB + 9), (6 * MIB, 17)):
        got = client.read("ranged", byte_range=Range(offset=offset, size=size))
        tap.check(got == data[offset:offset + size], f"ranges: {size} bytes at {offset}")
    got = client.read("ranged", byte_range=Range(offset=6 * MIB, size=MIB))
    tap.check(got == data[6 * MIB:], "ranges: one past the end is cut", len(got))
    error = raised(client.read, "ranged", byte_range=Range(offset=7 * MIB, size=10))
    tap.check(error is not None and "416" in str(error), "ranges: one behind the end is refused", error)
    with client.open("ranged", "rb") as file:
        file.seek(1000)
        tap.check(file.read(5000) == data[1000:6000], "ranges: a file of it is sought in and read")


def files(server, client):
    data = os.urandom(6 * MIB + 1)
    source, target = FOLDER / "source", FOLDER / "target"
    source.write_bytes(data)
    before = moved(server, "in")
    client.upload_file("file", str(source))
    tap.check(moved(server, "in") - before == len(data), "files: upload_file goes by RDMA, in parts")
    client.download_file("file", str(target))
    tap.check(target.read_bytes() == data, "files: download_file brings them back")
    client.upload_file("stream", io.BytesIO(data))
    tap.check(client.read("stream") == data, "files: a stream's bytes too")
    names = sorted(entry.key.rsplit("/", 1)[-1] for entry in client.list() if "file" in entry.key or "stream" in entry.key)
    tap.check(names == ["file", "stream"], "files: list() has both", names)
    client.delete("stream")
    tap.check(isinstance(raised(client.read, "stream"), FileNotFoundError), "files: delete() and then FileNotFoundError")


def threads(server, client):
    wrong = []

    def work(number):
        for turn in range(8):
            data = os.urandom(300_000 + number)
            client.write(f"thread-{number}", data)
            if client.read(f"thread-{number}") != data:
                wrong.append((number, turn))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    tap.check(not wrong, "threads: 128 transfers of eight threads", wrong)


def checksums(server, client):
    """The provider sends CRC64NVME of the bytes: a transfer of other bytes is refused, and nothing is stored."""
    provider = client._delegate._storage_provider
    honest = provider._rdma_checksum
    provider._rdma_checksum = lambda buffer: honest(bytes(len(buffer)))
    try:
        error = raised(client.write, "wrong", b"x" * 5000)
        tap.check(error is not None and "400" in str(error), "checksums: a PUT of other bytes fails", error)
    finally:
        del provider._rdma_checksum
    tap.check(isinstance(raised(client.read, "wrong"), FileNotFoundError), "checksums: and stores nothing")
    client.write("wrong", b"right")
    tap.check(client.read("wrong") == b"right", "checksums: with the right one it is stored")


# ---- Failures. ----

def retries(server, client):
    """botocore tries again: each try signs a token of its own."""
    tokens, answers = [], []
    events = client._delegate._storage_provider._s3_client.meta.events

    def count(request, **_):
        tokens.append(request.headers["x-amz-rdma-token"])

    def first_fails(request, **_):
        if len(answers) < 2:
            answers.append(request.url)
            raise_connection()
    from botocore.exceptions import ConnectionClosedError

    def raise_connection():
        raise ConnectionClosedError(endpoint_url="http://lost")
    events.register_last("before-sign.s3.GetObject", count)
    events.register("before-send.s3.GetObject", first_fails)
    data = os.urandom(100_000)
    client.write("retried", data)
    tap.check(client.read("retried") == data and len(tokens) == 3, "retries: a GET whose first two tries got no answer",
              (len(tokens), raised(client.read, "retried")))
    events.unregister("before-sign.s3.GetObject", count)
    events.unregister("before-send.s3.GetObject", first_fails)
    tap.check(client.read("retried") == data, "retries: and one without")


class Bent:
    """A context in which one field of each token has another number."""

    def __init__(self, field, width, bit):
        self.field, self.width, self.bit = field, width, bit

    def token(self, *arguments):
        fields = msc.cuobj_get_rdma_token(*arguments).split(":")
        fields[self.field] = f"{int(fields[self.field], 16) ^ self.bit:0{self.width}x}"
        return ":".join(fields)

    def __enter__(self):
        extension.cuobj_get_rdma_token = self.token

    def __exit__(self, *_):
        extension.cuobj_get_rdma_token = msc.cuobj_get_rdma_token


def failed(server, client):
    """A transfer that fails: the server closes the queue pair, and the next transfer uses another one."""
    client.write("sound", b"s" * 10_000)
    with Bent(2, 8, 0x40000000):  # the key
        error = raised(client.read, "sound")
    tap.check(error is not None and "500" in str(error), "failed: a transfer with a wrong key is an error", error)
    tap.check(client.read("sound") == b"s" * 10_000, "failed: the next one moves its bytes")


def declined():
    """A server that does not know the queue pair: the provider reports the reason, and nothing is stored."""
    for decline in ("s3-error", "aws-draft"):
        with server_of(f"declined-{decline}", "--set", f"rdma.decline={decline}") as server:
            use(server)
            client = profile(server)
            plain = Client(server.http)
            plain.request("PUT", "/bucket/there", b"there")
            with Bent(4, 6, 0x800000):  # the queue pair
                error = raised(client.read, "there")
                tap.check(error is not None and "endpoint declined RDMA" in str(error),
                          f"declined ({decline}): a GET fails, and not silently", error)
                error = raised(client.write, "new", b"new")
                tap.check(error is not None, f"declined ({decline}): a PUT fails", error)
            tap.check(plain.request("HEAD", "/bucket/new")[0] == 404, f"declined ({decline}): and stores nothing")
            tap.check(client.read("there") == b"there", f"declined ({decline}): a token as it should be moves the bytes")
            plain.close()
    with server_of("without", "--set", "rdma.enabled=false") as server:
        use(server)
        why = raised(profile, server)
        tap.check(isinstance(why, _cuobj.CuObjError), "declined: a server without RDMA is refused when a client is made", why)


def killed():
    """The server is killed between the parts of one read, which mints a token for each part."""
    port = kept_port()
    with server_of("killed", "--http", f"127.0.0.1:{port}") as server:
        use(server)
        client = profile(server, retries={"max_attempts": 1})
        data = os.urandom(2 * CHUNK)
        client.write("kept", data)
        tokens = []

        def second_kills(*arguments):
            tokens.append(msc.cuobj_get_rdma_token(*arguments))
            if len(tokens) == 2:
                server.kill()
            return tokens[-1]
        extension.cuobj_get_rdma_token = second_kills
        error = raised(client.read, "kept")
        extension.cuobj_get_rdma_token = msc.cuobj_get_rdma_token
        tap.check(error is not None and len(tokens) >= 2, "killed: a read whose server is gone is an error", (tokens, error))
        tap.check(raised(client.read, "kept") is not None, "killed: and so is the next")
        server.start()
        tap.check(client.read("kept") == data, "killed: with the server back it reads again")


def runner(server):
    """A program that does not use our package itself."""
    program = FOLDER / "program.py"
    program.write_text("import sys\nfrom multistorageclient.providers import _cuobj\n"
                       "print(_cuobj.is_available(), __name__, sys.argv[1:])\n")
    for name, first in (("a program", [program]), ("a module", ["-m", "program"])):
        done = subprocess.run([sys.executable, "-m", "nebulaio.compat.msc", *first, "one", "two"], cwd=FOLDER,
                              env=dict(os.environ, NEBULAIO_ENDPOINT=f"rdma://127.0.0.1:1,http://{server.http}"),
                              capture_output=True, text=True)
        tap.check(done.stdout == "True __main__ ['one', 'two']\n", f"runner: {name} finds the functions", done)
    done = subprocess.run([sys.executable, "-m", "nebulaio.compat.msc"], capture_output=True, text=True)
    tap.check(done.returncode == 2 and "usage:" in done.stderr, "runner: without one it tells its usage", done)
    extension.cuobj_available = bool
    tap.check(isinstance(raised(msc.install), RuntimeError), "runner: functions of the wheel's own are left alone")
    extension.cuobj_available = msc.cuobj_available


def run(case, *arguments):
    start = time.monotonic()
    try:
        case(*arguments)
    except Exception:
        tap.check(False, f"{case.__name__} runs to its end", traceback.format_exc())
    print(f"# {case.__name__}: {time.monotonic() - start:.1f} s", flush=True)


def main():
    print(f"# multi-storage-client {importlib.metadata.version('multi-storage-client')}", flush=True)
    tap.check(not _cuobj.is_available(), "the wheel has no RDMA of its own")
    with server_of("data") as server:
        use(server)
        tap.check(_cuobj.is_available(), "install() gives it ours")
        client = profile(server)
        for case in (whole, ranges, files, threads, checksums, retries, failed):
            run(case, server, client)
        run(runner, server)
        tap.check(server.stop() == 0, "the server ends in order", server.log_tail())
    for case in (declined, killed):
        run(case)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
