"""tests/e2e/token/minter_test.py: a program whose S3 library is not ours mints RDMA tokens by libnebulaio. Its requests are
boto3's, which adds one header, or a plain HTTP client's; run-minter starts this."""
import base64
import importlib.util
import os
import pathlib
import sys
import threading
import time
import traceback
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import nebula  # noqa: E402
from nebula import ACCESS_KEY, SECRET_KEY, Client, Server, Tap, becomes, kept_port  # noqa: E402
from nebulaio import ForkError, NebulaConnectionError, TokenMinter  # noqa: E402

FOLDER = pathlib.Path(os.environ["TEST_DIR"])
TOKEN, REPLY, MOVED = "x-amz-rdma-token", "x-amz-rdma-reply", "x-amz-rdma-bytes-transferred"
MIB = 1 << 20
tap = Tap()


def server_of(name, *extra):
    return Server(FOLDER / name, FOLDER / f"{name}.log", *extra)


def minter_of(address, **options):
    return TokenMinter(f"http://{address}", ACCESS_KEY, SECRET_KEY, device_name="simulated", **options)


def get(client, path, token, **headers):
    return client.request("GET", path, headers={TOKEN: token.text, **headers})


def put(client, path, token, **headers):
    return client.request("PUT", path, headers={TOKEN: token.text, "content-length": "0", **headers})


def filled(memory, byte):
    memory[:] = bytes([byte]) * len(memory)


# ---- Stock boto3. ----

class Boto:
    """A boto3 client that carries the token of the request in hand."""

    def __init__(self, server, validates="when_required", calculates="when_required"):
        import boto3
        from botocore.config import Config
        self.s3 = boto3.client("s3", endpoint_url=f"http://{server.http}", aws_access_key_id=ACCESS_KEY,
                               aws_secret_access_key=SECRET_KEY, region_name="us-east-1",
                               config=Config(request_checksum_calculation=calculates,
                                             response_checksum_validation=validates,
                                             s3={"payload_signing_enabled": False, "addressing_style": "path"}))
        self.token = None
        for name in ("PutObject", "GetObject", "UploadPart"):
            self.s3.meta.events.register(f"before-sign.s3.{name}", self.carry)

    def carry(self, request, **_):
        request.headers[TOKEN] = self.token.text

    def call(self, token, name, **arguments):
        with token:
            self.token = token
            return getattr(self.s3, name)(**arguments)


def reply(answer):
    return answer["ResponseMetadata"]["HTTPHeaders"].get(REPLY)


def boto(server):
    if importlib.util.find_spec("boto3") is None:
        tap.skip("boto3", "it could not be installed")
        return
    client = Boto(server)
    client.s3.create_bucket(Bucket="boto")
    data, memory = os.urandom(9 * MIB + 5), bytearray(9 * MIB + 5)
    with minter_of(server.http) as minter:
        answer = client.call(minter.token("PUT", data), "put_object", Bucket="boto", Key="whole", Body=b"")
        tap.check(reply(answer) == "200" and answer["ETag"], "boto3: PutObject of bytes that it never saw", answer)
        answer = client.call(minter.token("GET", memory), "get_object", Bucket="boto", Key="whole")
        tap.check(reply(answer) == "200" and not answer["Body"].read(), "boto3: GetObject has an empty body", answer)
        tap.check(memory == data, "boto3: and the bytes lie in the program's memory")
        window = memoryview(memory)[100:100 + 70000]
        filled(window, 0)
        answer = client.call(minter.token("GET", window), "get_object", Bucket="boto", Key="whole", Range="bytes=500-70499")
        tap.check(reply(answer) == "206" and window == data[500:70500], "boto3: a range into a part of it", answer)
        upload = client.s3.create_multipart_upload(Bucket="boto", Key="parts")["UploadId"]
        parts = []
        with minter.register(data, writable=False):
            for number, piece in enumerate((memoryview(data)[:5 * MIB], memoryview(data)[5 * MIB:]), 1):
                answer = client.call(minter.token("PUT", piece), "upload_part", Bucket="boto", Key="parts", UploadId=upload,
                                     PartNumber=number, Body=b"")
                parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        client.s3.complete_multipart_upload(Bucket="boto", Key="parts", UploadId=upload, MultipartUpload={"Parts": parts})
        filled(memory, 0)
        client.call(minter.token("GET", memory), "get_object", Bucket="boto", Key="parts")
        tap.check(memory == data, "boto3: two parts of registered memory, and back")
        try:
            client.call(minter.token("GET", memory), "get_object", Bucket="boto", Key="none")
            tap.check(False, "boto3: an absent key is an error")
        except client.s3.exceptions.NoSuchKey:
            answer = client.call(minter.token("GET", memory), "get_object", Bucket="boto", Key="whole")
            tap.check(memory == data, "boto3: the next request after an error moves its bytes")


def boto_validates():
    """rdma.token_checksum, and a boto3 that compares checksums with the empty HTTP body, as it does by default."""
    if importlib.util.find_spec("boto3") is None:
        tap.skip("boto3: checksums", "it could not be installed")
        return
    from botocore.exceptions import ClientError, FlexibleChecksumError
    data = os.urandom(70001)
    for mode, refused in (("always", True), ("asked", True), ("off", False)):
        memory = bytearray(len(data))
        with server_of(f"validates-{mode}", "--set", f"rdma.token_checksum={mode}") as server, minter_of(server.http) as minter:
            quiet = Boto(server)
            quiet.s3.create_bucket(Bucket="boto")
            # A CRC32, which every botocore can compare: CRC64NVME, the server's own, needs a newer awscrt than Debian's.
            quiet.call(minter.token("PUT", data), "put_object", Bucket="boto", Key="whole", Body=b"",
                       ChecksumCRC32=base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode())
            for validates in ("when_supported", "when_required"):
                client = Boto(server, validates)
                filled(memory, 0)
                answer = client.call(minter.token("GET", memory), "get_object", Bucket="boto", Key="whole")
                try:
                    body, wrong = answer["Body"].read(), None
                except FlexibleChecksumError as error:
                    body, wrong = b"", error
                tap.check(bool(wrong) == (validates == "when_supported" and refused) and not body and memory == data,
                          f"boto3: {mode}, {validates}: the bytes are there, and its check of the body "
                          f"{'fails' if wrong else 'passes'}", (wrong, answer))
            if mode == "off":
                client = Boto(server, "when_supported", "when_supported")
                try:
                    answer = client.call(minter.token("PUT", data), "put_object", Bucket="boto", Key="default", Body=b"")
                except ClientError as error:
                    answer = error.response
                tap.check(answer.get("Error", {}).get("Code") == "BadDigest",
                          "boto3: its default checksum of the empty body is refused, and names the cause", answer)


# ---- Events that end the server's access. ----

def failures(server):
    client = Client(server.http)
    client.request("PUT", "/failed")
    memory = bytearray(MIB)
    client.request("PUT", "/failed/object", b"\x11" * MIB)
    with minter_of(server.http) as minter, minter.register(memory):
        token = minter.token("GET", memory)
        filled(memory, 0x22)
        token.failed()
        answer = get(client, "/failed/object", token)
        tap.check(answer[0] == 501 and answer[1].get(REPLY) == "501", "failed: a reported token is declined", answer)
        tap.check(memory.count(0x22) == MIB, "failed: and the registered memory is as it was")
        token.release()
        with minter.token("GET", memory) as token:
            answer = get(client, "/failed/object", token)
        tap.check(answer[0] == 200 and memory.count(0x11) == MIB, "failed: the next token moves bytes", answer)
        try:
            with minter.token("GET", memory) as lost:
                raise KeyError("no answer")
        except KeyError:
            answer = get(client, "/failed/object", lost)
            tap.check(answer[0] == 501, "failed: leaving a token's block by an exception reports it", answer)
        for other, method in (("an upper-case method", "get"), ("a HEAD", "HEAD")):
            try:
                minter.token(method, memory)
                tap.check(False, f"failed: no token for {other}")
            except ValueError:
                tap.check(True, f"failed: no token for {other}")
    client.close()


def slow_get(server, token, path):
    """A GET on a thread of its own: (thread, its answer)."""
    answers = []

    def run():
        client = Client(server.http)
        try:
            answers.append(get(client, path, token))
        except OSError as error:
            answers.append((0, {}, repr(error).encode()))
        client.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread, answers


def while_it_runs():
    """A slow device: the caller takes the memory back during the transfer."""
    ways = {"the token is released": lambda token, kept: token.release(),
            "it is reported": lambda token, kept: token.failed(),
            "its registration ends": lambda token, kept: kept.release()}
    with server_of("slow", "--set", "rdma.device_name=simulated:delay_us=60000") as server:
        client = Client(server.http)
        client.request("PUT", "/bucket")
        client.request("PUT", "/bucket/big", b"\x33" * (32 * MIB))
        for name, way in ways.items():
            with minter_of(server.http) as minter:
                memory = bytearray(32 * MIB)
                kept = minter.register(memory) if "released" not in name else None
                token = minter.token("GET", memory)
                thread, answers = slow_get(server, token, "/bucket/big")
                begun = becomes(lambda: memory[0] == 0x33)
                way(token, kept)
                then = bytes(memory)
                thread.join()
                tap.check(begun and then.count(0x33) < len(then), f"slow: bytes arrive while {name}", then.count(0x33))
                tap.check(answers[0][0] == 500, f"slow: the transfer fails when {name}", answers)
                tap.check(memory == then, f"slow: nothing is written after {name}")
                token.release()
        client.close()
        tap.check(server.stop() == 0, "slow: the server ends in order", server.log_tail())


def killed():
    port = kept_port()
    server = server_of("killed", "--http", f"127.0.0.1:{port}", "--set", "rdma.device_name=simulated:delay_us=60000")
    with server, minter_of(server.http) as minter:
        client = Client(server.http)
        client.request("PUT", "/bucket")
        client.request("PUT", "/bucket/big", b"\x44" * (32 * MIB))
        memory = bytearray(32 * MIB)
        try:
            with minter.token("GET", memory) as token:
                thread, answers = slow_get(server, token, "/bucket/big")
                tap.check(becomes(lambda: memory[0] == 0x44), "killed: a GET is on its way")
                server.kill()
                thread.join()
                raise ConnectionError(answers)
        except ConnectionError:
            then = bytes(memory)
        tap.check(answers[0][0] == 0, "killed: it is not answered", answers)
        why = minter.why_not()
        tap.check(why and "no queue pair" in why, "killed: the minter says that there is no server", why)
        try:
            minter.token("GET", memory)
            tap.check(False, "killed: no token without a server")
        except NebulaConnectionError:
            tap.check(True, "killed: no token without a server")
        server.start()
        client = Client(server.http)
        tap.check(becomes(minter.available), "killed: the server is back, and tokens too", minter.why_not())
        with minter.token("GET", memoryview(memory)[:MIB]) as token:
            answer = get(client, "/bucket/big", token, range=f"bytes=0-{MIB - 1}")
        tap.check(answer[0] == 206 and memory[MIB:] == then[MIB:], "killed: bytes move again, and only into the window", answer)
        client.close()


# ---- The rest. ----

def helped():
    """A kernel that lets no process look into another: the program's own device moves the bytes, while it waits."""
    with server_of("helped", "--set", "rdma.device_name=simulated:direct=0") as server, minter_of(server.http) as minter:
        client = Client(server.http)
        client.request("PUT", "/bucket")
        data, memory = os.urandom(3 * MIB), bytearray(3 * MIB)
        with minter.token("PUT", data) as token:
            answer = put(client, "/bucket/helped", token)
        tap.check(answer[0] == 200, "helped: a PUT whose bytes the program's end moves", answer)
        with minter.token("GET", memory) as token:
            answer = get(client, "/bucket/helped", token)
        tap.check(answer[0] == 200 and memory == data, "helped: and a GET", answer)
        client.close()


def threads(server):
    """Sixteen threads and one minter."""
    wrong = []

    def work(number, minter):
        client = Client(server.http)
        memory = bytearray(256 << 10)
        for turn in range(10):
            filled(memory, (number * 10 + turn) % 251 + 1)
            said = bytes(memory)
            with minter.token("PUT", memory) as token:
                stored = put(client, f"/failed/t{number}", token)
            filled(memory, 0)
            with minter.token("GET", memory) as token:
                got = get(client, f"/failed/t{number}", token)
            if stored[0] != 200 or got[0] != 200 or memory != said:
                wrong.append((number, turn, stored, got))
        client.close()

    with minter_of(server.http) as minter:
        workers = [threading.Thread(target=work, args=(number, minter)) for number in range(16)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        pairs = server.metric("nebulaio_token_queue_pairs")
    tap.check(not wrong, "threads: 320 requests of 16 threads", wrong[:3])
    tap.check(1 <= pairs <= 4, "threads: over at most four queue pairs", pairs)
    tap.check(becomes(lambda: server.metric("nebulaio_token_queue_pairs") == 0), "threads: which end with the minter")


def forked(server):
    with minter_of(server.http) as minter:
        tap.check(minter.available(), "forked: the parent's minter")
        child = os.fork()
        if child == 0:
            try:
                minter.token("GET", bytearray(10))
            except ForkError:
                os._exit(7)
            os._exit(1)
        tap.check(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7, "forked: the child is told to open its own")
        tap.check(minter.available(), "forked: and the parent's goes on")
    try:
        minter.token("GET", bytearray(10))
        tap.check(False, "forked: a closed minter has no tokens")
    except ValueError:
        tap.check(True, "forked: a closed minter has no tokens")


def run(case, *arguments):
    start = time.monotonic()
    try:
        case(*arguments)
    except Exception:
        tap.check(False, f"{case.__name__} runs to its end", traceback.format_exc())
    print(f"# {case.__name__}: {time.monotonic() - start:.1f} s", flush=True)


def main():
    with server_of("data") as server:
        for case in (boto, failures, threads, forked):
            run(case, server)
        tap.check(server.stop() == 0, "the server ends in order", server.log_tail())
    for case in (boto_validates, while_it_runs, killed, helped):
        run(case)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
