"""tests/e2e/torch/torchfile_test.py: nebulaio.torchfile: files of torch.save() read in part. run-torch starts it with a server."""

import io
import pathlib
import pickle
import random
import sys
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from package import MIB, needs, opened, run, tap  # noqa: E402

import torch  # noqa: E402

import nebulaio  # noqa: E402
from nebulaio.torchfile import TorchFile  # noqa: E402

BUCKET = "torchfiles"
MUTATIONS = 300


def saved(value, **options):
    stream = io.BytesIO()
    torch.save(value, stream, **options)
    return stream.getvalue()


def put(value, key="file.pt", **options):
    body = value if isinstance(value, bytes) else saved(value, **options)
    with opened() as client:
        client.put_object(BUCKET, key, body)
    return body


def state():
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.Linear(400, 10))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(8, 300)).sum().backward()
    optimizer.step()
    large = torch.randn(3 * MIB)
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7, "name": "run", "large": large, "tied": large,
            "rows": large.view(-1, 1024)[5:9], "turned": torch.randn(30, 50).t(), "scalar": torch.tensor(3.5), "empty": torch.empty(0, 4),
            "half": torch.randn(64, 64).bfloat16(), "flags": torch.rand(1000) > 0.5, "parameter": torch.nn.Parameter(torch.randn(5)),
            "list": [1, (2, large[:10], None)]}


def same(a, b):
    if isinstance(a, torch.Tensor):
        return type(a) is type(b) and a.dtype == b.dtype and a.device == b.device and a.requires_grad == b.requires_grad and torch.equal(a, b)
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


@needs()
def test_whole_and_parts():
    with opened() as client:
        client.create_bucket(BUCKET)
        body = put(state())
        before = client.stats()
        file = TorchFile(client, BUCKET, "file.pt")
        opened_by = client.stats().requests_rdma - before.requests_rdma
        whole = torch.load(io.BytesIO(body), weights_only=True)
        tap.check(same(file.load(file.content), whole) and opened_by < 12, "a whole file is as torch.load() returns it", opened_by)
        tap.check(file.content["large"].shape == (3 * MIB,) and file.content["large"].device.type == "meta" and file.content["step"] == 7,
                  "the content has shapes, and values that are no tensors")
        copied = client.stats().bytes_copied
        before = client.stats().requests_rdma
        tap.check(same(file.load(file.content["large"]), whole["large"]) and client.stats().requests_rdma - before <= 2 and
                  client.stats().bytes_copied - copied < 64 << 10, "one tensor: a header and its bytes, received in its own memory")
        rows = file.load(file.content["large"].view(-1, 1024)[100:200])
        tap.check(torch.equal(rows, whole["large"].view(-1, 1024)[100:200]) and rows.untyped_storage().nbytes() < 101 * 4096, "some rows: no more than their bytes")
        column = file.load(file.content["model"]["0.weight"][:, 7])
        tap.check(torch.equal(column, whole["model"]["0.weight"][:, 7]), "a column")
        pair = file.load({"a": file.content["large"], "b": file.content["tied"], "rows": file.content["rows"], "far": file.content["half"][60:]})
        tap.check(pair["a"].data_ptr() == pair["b"].data_ptr() and pair["rows"].data_ptr() == pair["a"].data_ptr() + 5 * 4096 and
                  torch.equal(pair["far"], whole["half"][60:]), "tensors that share memory in the file share it")
        model = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.Linear(400, 10))
        model.load_state_dict(file.load(file.content["model"]))
        tap.check(same(model.state_dict(), whole["model"]), "a module takes its part")
        put(torch.arange(10.0), "bare.pt")
        file = TorchFile(client, BUCKET, "bare.pt")
        tap.check(torch.equal(file.load(file.content[2:5]), torch.arange(2.0, 5.0)), "a file that is one tensor")


@needs()
def test_kinds():
    from torch.utils.serialization import config

    with opened() as client:
        config.save.storage_alignment = 4096
        try:
            put(state(), "aligned.pt")
        finally:
            config.save.storage_alignment = 64
        file = TorchFile(client, BUCKET, "aligned.pt")
        tap.check(same(file.load(file.content), state_of("aligned.pt", client)), "storages at multiples of 4 KiB")
        many = {f"layer.{number}": torch.full((7,), float(number)) for number in range(3000)}
        put(many, "many.pt")
        file = TorchFile(client, BUCKET, "many.pt")
        tap.check(same(file.load(file.content), many) and file.load(file.content["layer.2999"])[0] == 2999, "3,000 small tensors")
        torch.serialization.register_package(0, lambda storage: "cuda:0", lambda storage, location: None)
        try:
            put({"weight": torch.arange(5.0)}, "gpu.pt")
        finally:
            torch.serialization._package_registry.pop(0)
        file = TorchFile(client, BUCKET, "gpu.pt")
        tap.check(same(file.load(file.content), {"weight": torch.arange(5.0)}), "a tensor that was on a GPU comes to the host")
        put({"sparse": torch.eye(3).to_sparse()}, "sparse.pt")
        refused("a file with a sparse tensor", lambda: TorchFile(client, BUCKET, "sparse.pt"), "sparse")
        put({"conjugate": torch.tensor([1 + 2j]).conj(), "dense": torch.ones(3)}, "others.pt")
        file = TorchFile(client, BUCKET, "others.pt")
        refused("a conjugate view", lambda: file.load(file.content["conjugate"]), "load all of the file")
        tap.check(torch.equal(file.load(file.content["dense"]), torch.ones(3)), "and the dense one beside them is read")
        refused("a tensor of no file", lambda: file.load(torch.ones(3, device="meta")), "not a part of")
        refused("a copy of a tensor of the device meta", lambda: file.load(file.content["dense"] * 2), "not a part of")


def state_of(key, client):
    return torch.load(io.BytesIO(client.get_object(BUCKET, key)), weights_only=True)


def refused(what, call, said, kind=ValueError):
    try:
        call()
        tap.check(False, f"{what} is refused")
    except Exception as error:
        tap.check(isinstance(error, kind) and said in str(error), f"{what} is refused", repr(error))


class Strange:
    def __reduce__(self):
        return (print, ("this must not run",))


def rezipped(body, change):
    """The same records, each as change(name, data) gives it: data and compression."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(body)) as old, zipfile.ZipFile(stream, "w") as new:
        for info in old.infolist():
            data, compression = change(info.filename.partition("/")[2], old.read(info))
            new.writestr(info.filename, data, compression)
    return stream.getvalue()


@needs()
def test_bad():
    with opened() as client:
        good = put({"weight": torch.arange(1000.0), "step": 1}, "good.pt")
        stored = zipfile.ZIP_STORED
        bodies = {
            "no zip": (b"x" * 5000, "not a zip file"), "nothing": (b"", "not a zip file"), "a file cut short": (good[:-100], "not a zip file"),
            "torch's format before 1.6": (saved({"a": torch.ones(3)}, _use_new_zipfile_serialization=False), "not a zip file"),
            "code in the pickle": (saved({"a": Strange()}), "weights_only: Unsupported global"),
            "a zip of something else": (rezipped(good, lambda name, data: (data, stored)).replace(b"data.pkl", b"data.txt"), ""),
            "compressed records": (rezipped(good, lambda name, data: (data, zipfile.ZIP_DEFLATED)), "compressed"),
            "a big-endian file": (rezipped(good, lambda name, data: (b"big" if name == "byteorder" else data, stored)), "little-endian"),
            "no pickle": (rezipped(good, lambda name, data: (b"" if name == "data.pkl" else data, stored)), "")}
        for what, (body, said) in bodies.items():
            put(body, "bad.pt")
            refused(what, lambda: TorchFile(client, BUCKET, "bad.pt"), said)
        put(good.replace(b"M\xe8\x03", b"M\xe9\x03"), "bad.pt")  # 1,001 elements in place of 1,000
        refused("a record that is too short for its tensor", lambda: read_all(client, "bad.pt"), "within its record")
        refused("a key that is not there", lambda: TorchFile(client, BUCKET, "none.pt"), "none.pt", nebulaio.NotFoundError)
        file = TorchFile(client, BUCKET, "good.pt")
        put({"weight": torch.zeros(1000), "step": 1}, "good.pt")
        refused("a file that was replaced", lambda: file.load(file.content), "replaced")
        put(rezipped(good, lambda name, data: (nested(20000) if name == "data.pkl" else data, stored)), "deep.pt")
        refused("a deep structure", lambda: read_all(client, "deep.pt"), "nested too deeply")
        put(rezipped(good, lambda name, data: (laughing() if name == "data.pkl" else data, stored)), "laughs.pt")
        one = TorchFile(client, BUCKET, "laughs.pt")
        tap.check(one.load(one.content) is not None, "lists that have each other many times are copied once")


def read_all(client, key):
    file = TorchFile(client, BUCKET, key)
    return file.load(file.content)


def nested(depth):
    """A pickle of lists in lists."""
    return b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b"."


def laughing():
    """40 lists, each with the one before it ten times."""
    value = [1]
    for _ in range(40):
        value = [value] * 10
    return pickle.dumps(value, 2)


@needs()
def test_damaged():
    """Files with changed bytes: each is read, or refused by ValueError."""
    good = saved({"weight": torch.arange(64.0).reshape(8, 8), "bias": torch.ones(3).half(), "step": 1, "list": [torch.zeros(2, 2)]})
    chance = random.Random(11)
    with opened() as client:
        ends = {"read": 0, "refused": 0}
        other = None
        for number in range(MUTATIONS):
            body = bytearray(good)
            for _ in range(chance.randrange(1, 6)):
                at = chance.randrange(len(body)) if number % 2 else chance.randrange(max(0, len(body) - 700), len(body))
                body[at] = chance.choice((0, 1, 0x7f, 0xff, chance.randrange(256)))
            client.put_object(BUCKET, "damaged.pt", bytes(body))
            try:
                file = TorchFile(client, BUCKET, "damaged.pt")
                file.load(file.content)
                ends["read"] += 1
            except ValueError:
                ends["refused"] += 1
            except Exception as error:
                other = other or (number, repr(error))
        tap.check(other is None and min(ends.values()) > MUTATIONS // 20, f"{MUTATIONS} damaged files: each is read or refused", (ends, other))


if __name__ == "__main__":
    sys.exit(run())
