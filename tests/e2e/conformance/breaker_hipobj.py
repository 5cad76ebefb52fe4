"""tests/e2e/conformance/breaker_hipobj.py: the faults of hipobj-rc-v2 for breaker.Breaker: (name, the cases that must
find it, the change of the request, the change of the answer)."""
import nebula
from breaker import answers, drop, has_code, put_header, requests, status

SESSION, PROTOCOL, STATUS = "x-amz-rdma-session", "x-amz-rdma-protocol", "x-amz-rdma-protocol-status"
TOKEN, PSN, QPN, COOKIE, OP = "x-amz-rdma-token", "x-amz-rdma-psn", "x-amz-rdma-qpn", "x-amz-rdma-cookie", "x-amz-rdma-op"
TARGET, SIZE, OFFSET, ADDR, RKEY = (
    "x-amz-rdma-target", "x-amz-rdma-size", "x-amz-rdma-offset", "x-amz-rdma-mr-addr", "x-amz-rdma-mr-rkey")
BYTES, ETAG, CHECKSUM = "x-amz-rdma-bytes-transferred", "x-amz-rdma-etag", "x-amz-rdma-checksum"
REFUSAL = b"<Error><Code>InvalidRDMARequest</Code></Error>"


def of(step, more=lambda x: True):
    return lambda x: x.path == f"/.hipobj-rc/{step}" and more(x)


def served(step):
    return of(step, lambda x: x.status == 200)


def refused(step):
    return of(step, lambda x: x.status >= 400 and not has_code(x, "NoSuchUpload"))


def refuse(x):
    x.says(400, REFUSAL)


def change(name, value):
    """Changes a header of the request, which the breaker signs again."""
    def at(x):
        x.headers[name] = value(x.headers.get(name, ""))
        x.without()
    return at


def lose(*names):
    return lambda x: x.without(*names)


def is_put(x):
    return x.headers.get(OP) == "PUT"


def one_session():
    """Every PREPARE is answered with the first one's session."""
    first = []

    def at_answer(x):
        if served("prepare")(x):
            first.append(x.answer[SESSION])
            x.answer[SESSION] = first[0]
    return None, at_answer


def one_key():
    """Each PREPARE of a PUT is answered with the staging memory of the one before."""
    before = []

    def at_answer(x):
        if served("prepare")(x) and RKEY in x.answer:
            before.append({name: x.answer[name] for name in (ADDR, RKEY)})
            x.answer.update(before[max(len(before) - 2, 0)])
    return None, at_answer


def told_to_go_by_http():
    return requests(of("prepare", is_put), lambda x: x.says(501, **{STATUS: "unsupported"}))


BREAKS = (
    ("no session in PREPARE's answer", (701, 702), *answers(served("prepare"), drop(SESSION))),
    ("no protocol in answers", (701, 702), *answers(served("prepare"), drop(PROTOCOL))),
    ("another queue pair than the reply's", (701, 702), *answers(served("prepare"), put_header(QPN, "1"))),
    ("a first packet number of 0", (701, 702), *answers(served("prepare"), put_header(PSN, "000000"))),
    ("no staging memory", (702, 811), *answers(served("prepare"), drop(ADDR))),
    ("another protocol that is served as this one", (703,),
     *requests(of("prepare"), lambda x: x.headers.get(PROTOCOL) == "hipobj-rc-v2" or change(PROTOCOL, lambda _: "hipobj-rc-v2")(x))),
    ("another protocol that is not told so", (703,), *answers(of("prepare"), drop(STATUS))),
    ("control requests that nobody signed", (704, 705),
     *requests(of("prepare", lambda x: TOKEN not in x.headers.get("authorization", "")), lambda x: x.without())),
    ("a body that is not looked at", (706,), *requests(of("prepare", lambda x: x.body), lambda x: (setattr(x, "body", b""), x.without()))),
    ("the empty body's digest that is refused", (707,),
     *requests(of("prepare", lambda x: x.headers["x-amz-content-sha256"] != "UNSIGNED-PAYLOAD"), refuse)),
    ("hexadecimal digits in upper case that are refused", (708,),
     *requests(of("prepare", lambda x: x.headers.get(TOKEN, "") != x.headers.get(TOKEN, "").lower()), refuse)),
    ("a token with more behind it that is refused", (709,), *requests(of("prepare", lambda x: ":" in x.headers.get(TOKEN, "")), refuse)),
    ("PREPAREs that are all answered 200", (*range(710, 721),), *answers(refused("prepare"), status(200))),
    ("an offset of 0 that is refused", (721,), *requests(of("prepare", lambda x: x.headers.get(OFFSET) == "0"), refuse)),
    ("bytes that go elsewhere", (801, 802), *requests(of("ready", lambda x: ADDR in x.headers), change(ADDR, lambda addr: f"{int(addr, 16) + 1:x}"))),
    ("an offset that is not looked at", (802,), *requests(of("prepare"), lose(OFFSET))),
    ("a count of bytes that is too high", (801, 811),
     *answers(served("ready"), lambda x: x.answer.update({BYTES: str(int(x.answer[BYTES]) + 1)}))),
    ("no cookie", (801, 811), *answers(served("ready"), drop(COOKIE))),
    ("no ETag", (801, 811), *answers(served("ready"), drop(ETAG))),
    ("a checksum of other bytes", (801, 811), *answers(served("ready"), put_header(CHECKSUM, "CRC64NVME AAAAAAAAAAA="))),
    ("a body beside the bytes", (801, 811), *answers(served("ready"), lambda x: setattr(x, "document", b"body"))),
    ("a READY that does nothing", (801, 802, 811), *requests(of("ready"), lambda x: x.says(200, **{COOKIE: x.headers[COOKIE]}))),
    ("a range of the empty body", (803,), *answers(served("ready"), put_header("content-range", "bytes 0-99/100"))),
    ("READYs that are all answered 200", (804, 805, 813, 814, 815, 901, 902, 903, 904, 906, 910),
     *answers(refused("ready"), status(200))),
    ("metadata that is lost", (812,), *requests(of("prepare"), lose("x-amz-meta-colour"))),
    ("a part that is stored as an object", (816,),
     *requests(of("prepare"), change(TARGET, lambda target: target.partition("?")[0]))),
    ("a READY without a queue pair that is refused", (905,), *requests(of("ready", lambda x: QPN not in x.headers), refuse)),
    ("a second CANCEL that is an error", (906,), *answers(of("cancel"), status(404))),
    ("a CANCEL that does nothing", (906, 907), *requests(of("cancel"), lambda x: x.says(204))),
    ("one key for the memory of all", (908,), *one_key()),
    ("staging memory that is larger than announced", (909,), *requests(of("prepare", is_put), change(SIZE, lambda size: str(int(size) + 1)))),
    ("anybody's session that anybody uses", (910,), *requests(
        lambda x: nebula.ACCESS_KEY not in x.headers.get("authorization", ""), lambda x: x.without())),
    ("one session for all", (911,), *one_session()),
)
