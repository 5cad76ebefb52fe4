"""tests/e2e/cluster/rdma.py: bodies by RDMA tokens and by hipobj-rc-v2, through gateways that do not own the bucket's store, with root's
keys, another account's, and temporary ones. run-cluster calls it."""

import http.client
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "token"))
import native  # noqa: E402
from contract import MTU, PSN, REPLY, TOKEN, Peer, TokenClient, parse_end  # noqa: E402
from hipobj import COOKIE, PROTOCOL, SESSION, VALUE, HipobjClient, Transfer  # noqa: E402
from nebula import PATIENCE_S, PROGRAM, clean_env  # noqa: E402
from stores import Client, taken  # noqa: E402

TOKEN_WAY = 5  # NEB_TOKEN in a result
BUCKET = "x-nebulaio-rdma-bucket"
GUEST = ("guestkey", "guest-secret-0123456789")


class ClusterClient(TokenClient):
    """Connects a queue pair for a bucket; asks again what is answered 503, see taken()."""

    def request(self, *words, **more):
        return taken(lambda: TokenClient.request(self, *words, **more))

    def connect(self, bucket=None):
        pair = self.peer.queue_pair()
        answer = self.request("POST", "/", query={"rdma-connect": ""}, headers={
            TOKEN: pair.token(), PSN: str(pair.psn), MTU: str(pair.mtu), **({BUCKET: bucket} if bucket else {})})
        if answer[0] == 200:
            self.peer.join(pair, parse_end(answer[1]))
            self.pair = pair
        return answer[0], answer[1].get(BUCKET)


def tokens(bench, buckets):
    """An independent client: a queue pair is for the store of the bucket that it was connected for."""
    tap, body = bench.tap, os.urandom(70000)
    with Peer(size=1 << 20) as peer:
        for at, bucket in enumerate(buckets):
            client = ClusterClient(bench.gateways[at].http, peer)
            joined = client.connect(bucket)
            put = client.put(f"/{bucket}/token", body)
            peer.memory[:len(body)] = bytes(len(body))
            got = client.get(f"/{bucket}/token")
            tap.check(joined == (200, bucket) and put[0] == 200 and put[1].get(REPLY) == "200" and got[0] == 200
                      and got[1].get(REPLY) == "200" and peer.memory[:len(body)] == body,
                      f"a queue pair for {bucket} moves its objects, through {bench.gateways[at].name}", (joined, put, got, bench.logs()))
            bench.objects[bucket, "token"] = body
            other = buckets[(at + 1) % len(buckets)]
            put = client.put(f"/{other}/declined", body)
            tap.check(put[0] == 501 and put[1].get(REPLY) == "501" and Client(client.address).request("HEAD", f"/{other}/declined")[0] == 404,
                      f"and those of {other} are declined: nothing is stored", put)
        guest = ClusterClient(client.address, peer, access_key=GUEST[0], secret_key=GUEST[1])
        guest.pair = client.pair
        stolen, own = guest.get(f"/{bucket}/token"), guest.connect(bucket)
        denied = guest.get(f"/{bucket}/token")
        tap.check(stolen[0] == 403 and own == (200, bucket) and denied[0] == 403 and REPLY not in denied[1],
                  "the owner checks the caller's own rights", (stolen, own, denied))
        tap.check(ClusterClient(client.address, peer, secret_key="wrong-secret-key").connect(bucket) == (403, None),
                  "a queue pair needs a good signature")
        nobody = ClusterClient(client.address, peer)
        tap.check(nobody.connect("no-such-bucket")[0] == 200 and nobody.get("/no-such-bucket/a")[0] == 404, "a bucket that there is not")


class ClusterHipobj(HipobjClient):
    """Asks again what is answered 503, see taken()."""

    def request(self, *words, **more):
        return taken(lambda: HipobjClient.request(self, *words, **more))


def through_two(first, second, bucket, size):
    """A GET whose PREPARE goes through one client and whose READY through another: both answers, READY's first."""
    transfer = Transfer(first, "GET", f"/{bucket}/hipobj", size)
    prepared = transfer.prepare()
    if prepared[0] != 200:
        return prepared[0], None, prepared
    first.peer.order(f"recv {transfer.pair.number}")
    transfer.client = second
    transfer.ready_send()
    ready = transfer.ready_take()
    transfer.close()
    return ready[0], ready, prepared


def hipobj(bench, buckets):
    """Each request of a session may go through another gateway."""
    tap, body = bench.tap, os.urandom(70001)
    through = [at.http for at in bench.gateways]
    with Peer(size=1 << 20) as peer:
        for at, bucket in enumerate(buckets):
            client = ClusterHipobj(through[at], peer)
            put = taken(lambda: client.put(f"/{bucket}/hip%6Fbj", body))
            bench.objects[bucket, "hipobj"] = body
            peer.memory[:len(body)] = bytes(len(body))
            second = ClusterHipobj(through[(at + 1) % len(through)], peer)
            status, ready, prepared = taken(lambda: through_two(client, second, bucket, len(body)))
            tap.check((put[0], prepared[0], status) == (200, 200, 200) and peer.memory[:len(body)] == body,
                      f"hipobj-rc-v2 with {bucket}: PREPARE and READY through two gateways", (put, prepared, ready, bench.logs()))
            transfer = Transfer(client, "GET", f"/{bucket}/hipobj", len(body))
            transfer.prepare()
            ids = {PROTOCOL: VALUE, SESSION: transfer.session, COOKIE: f"{transfer.cookie:08x}"}
            stranger = ClusterHipobj(through[at], peer, *GUEST).control("ready", transfer.ready_headers())
            ended = ClusterHipobj(through[(at + 2) % len(through)], peer).control("cancel", ids)
            late = client.control("ready", transfer.ready_headers())
            transfer.close()
            tap.check((stranger[0], ended[0], late[0]) == (403, 204, 404), "a session is its key's; CANCEL through a third gateway ends it",
                      (stranger, ended, late))
        missing = ClusterHipobj(through[0], peer).put("/no-such-bucket/a", b"x")
        denied = ClusterHipobj(through[0], peer, *GUEST).get(f"/{buckets[0]}/hipobj", 10)
        unknown = client.control("ready", {PROTOCOL: VALUE, SESSION: "00ff" * 8, COOKIE: "1"})
        tap.check((missing[0], denied[0], unknown[0]) == (404, 403, 404), "a missing bucket, another's bucket, a session of no store",
                  (missing, denied, unknown))


class Way(native.Native):
    """A client of libnebulaio, and how its last body went."""

    def __init__(self, gateway, way, *keys, **more):
        super().__init__(f"http://{gateway.http}{way}", *([keys] if keys else []), transport=native.AUTO, **more)

    def moves(self, bench, bucket, key):
        body = os.urandom(50000)
        if taken(lambda: self.put(key.encode(), body, bucket.encode()))[0] != 200:
            return self.result.status, self.result.code, self.result.message
        bench.objects[bucket, key] = body
        sent, got = self.result.transport, taken(lambda: self.get(key.encode(), bucket.encode()))
        return (sent, self.result.transport) if got[2] == body else got[:1]


def library(bench, buckets):
    """libnebulaio finds the queue pair of each bucket by itself, and hipobj-rc-v2's sessions."""
    tap, gateway = bench.tap, bench.gateways[0]
    more = [f"more-{number}" for number in range(9)]
    made = [Client(gateway.http).request("PUT", f"/{name}")[0] for name in more]
    for way in ("?rdma", "?rdma=hipobj"):
        client = Way(gateway, way)
        ways = [client.moves(bench, bucket, "library" + way) for bucket in (*buckets, *more, *buckets)]
        tap.check(made == [200] * 9 and ways == [(TOKEN_WAY, TOKEN_WAY)] * len(ways),
                  f"libnebulaio with {way}: {len(ways) - 3} buckets of all stores by one client", (made, ways, client.result.fallback, bench.logs()))
        client.close()


def temporary(bench, buckets, keys, session):
    """Temporary keys of a role or user who may do all: `session` is their token."""
    tap, gateway, bucket = bench.tap, bench.gateways[0], buckets[1]
    for way, wanted in (("", native.HTTP), ("?rdma", TOKEN_WAY), ("?rdma=hipobj", TOKEN_WAY), ("?rdma=owner", native.HTTP)):
        said = []
        client = Way(gateway, way, *keys, session_token=session, log=lambda _, text: said.append(text))
        moved = client.moves(bench, bucket, "temporary" + way)
        moved = client.moves(bench, bucket, "temporary" + way) if way == "?rdma=owner" else moved
        told = way != "?rdma=owner" or any("temporary credentials" in text for text in said)
        tap.check(moved == (wanted, wanted) and told, f"temporary keys with {way or 'HTTP'}", (moved, client.result.fallback, said))
        client.close()
    store = bench.view(gateway)["stores"][1]
    try:
        native.Native(f"rdma://{store['rdma']}", keys, transport=native.RDMA, session_token=session, log=lambda _, text: said.append(text)).close()
        error = None
    except OSError as failure:
        error = failure.strerror
    tap.check("Operation not supported" in (error or "") and "RDMA sessions do not take temporary credentials" in said[-1],
              "a session over RDMA does not take them, and the client says so", (error, said))
    env = clean_env(AWS_ACCESS_KEY_ID=keys[0], AWS_SECRET_ACCESS_KEY=keys[1], AWS_SESSION_TOKEN=session)

    def cli(*words, **other):
        return subprocess.run([PROGRAM, *words], env={**env, **other}, capture_output=True, timeout=PATIENCE_S)

    url = f"s3://{bucket}/temporary"
    listed, wrong = cli("ls", f"s3://{bucket}/", "--endpoint", f"http://{gateway.http}"), cli(
        "ls", f"s3://{bucket}/", "--endpoint", f"http://{gateway.http}", AWS_SESSION_TOKEN=session[:-8] + "AAAAAAAA")
    signed = cli("presign", url, "--endpoint", f"http://{gateway.http}").stdout.decode().strip()
    connection = http.client.HTTPConnection(gateway.http, timeout=PATIENCE_S)
    connection.request("GET", signed.partition(gateway.http)[2])
    status = connection.getresponse().status
    connection.close()
    tap.check(listed.returncode == 0 and b"temporary" in listed.stdout and wrong.returncode != 0 and status == 200,
              "the command line takes them from AWS_SESSION_TOKEN, and signs URLs by them", (listed, wrong, signed, status))


def test_rdma(bench, buckets):
    tokens(bench, buckets)
    hipobj(bench, buckets)
    library(bench, buckets)
