"""tests/e2e/bindings/ecosystem_test.py: common libraries that read and write through nebulaio:// and the package's own
helpers. run-bindings-ecosystem installs it all and starts this; those that could not be installed are skipped with a
message."""

import importlib.util
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from package import KEYS, MIB, RDMA, needs, opened, run, tap  # noqa: E402

OPTIONS = {"endpoint": RDMA, "access_key": KEYS[0], "secret_key": KEYS[1]}
BUCKET = "ecosystem"
ROOT = f"nebulaio://{BUCKET}"


@needs("fsspec", "pandas")
def test_pandas():
    import pandas as pd

    table = pd.DataFrame({"name": ["a", "b", "ü"], "value": [1.5, 2.25, -3.0]})
    table.to_csv(f"{ROOT}/table.csv", index=False, storage_options=OPTIONS)
    back = pd.read_csv(f"{ROOT}/table.csv", storage_options=OPTIONS)
    tap.check(back.equals(table), "pandas: a table there and back", back)


@needs("fsspec", "pandas", "pyarrow")
def test_pyarrow():
    import fsspec
    import pandas as pd
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    fs = fsspec.filesystem("nebulaio", **OPTIONS)
    table = pa.table({"number": list(range(200_000)), "text": [f"row {i % 97}" for i in range(200_000)]})
    pq.write_table(table, f"{BUCKET}/table.parquet", filesystem=fs, row_group_size=50_000)
    column = pq.read_table(f"{BUCKET}/table.parquet", columns=["number"], filesystem=fs)
    tap.check(column.num_columns == 1 and column["number"].to_pylist()[-1] == 199_999, "pyarrow: a column of a Parquet file")
    ds.write_dataset(table, f"{BUCKET}/dataset", format="parquet", filesystem=fs, max_rows_per_file=60_000,
                     max_rows_per_group=60_000)
    dataset = ds.dataset(f"{BUCKET}/dataset", format="parquet", filesystem=fs)
    few = dataset.to_table(filter=ds.field("number") >= 199_990)
    tap.check(len(dataset.files) == 4 and few.num_rows == 10, "pyarrow: a dataset of several files, filtered", dataset.files)
    frame = pd.DataFrame({"x": [1, 2, 3]})
    frame.to_parquet(f"{ROOT}/frame.parquet", storage_options=OPTIONS)
    tap.check(pd.read_parquet(f"{ROOT}/frame.parquet", storage_options=OPTIONS).equals(frame), "pandas: Parquet")


@needs("fsspec", "numpy", "zarr")
def test_zarr():
    import numpy as np
    import zarr

    array = zarr.open(f"{ROOT}/array.zarr", mode="w", shape=(400, 600), chunks=(100, 150), dtype="f8",
                      storage_options=OPTIONS)
    values = np.random.default_rng(5).random((400, 600))
    array[:] = values
    back = zarr.open(f"{ROOT}/array.zarr", mode="r", storage_options=OPTIONS)
    tap.check((back[:] == values).all() and (back[150:260, 10:20] == values[150:260, 10:20]).all(),
              "zarr: an array in chunks, and a part of it")


@needs("fsspec", "pandas", "pyarrow", "dask")
def test_dask():
    import dask
    import dask.dataframe as dd
    import pandas as pd

    frame = pd.DataFrame({"key": [i % 10 for i in range(30_000)], "value": range(30_000)})
    with dask.config.set(scheduler="threads", num_workers=4):
        dd.from_pandas(frame, npartitions=6).to_parquet(f"{ROOT}/dask", storage_options=OPTIONS)
        back = dd.read_parquet(f"{ROOT}/dask", storage_options=OPTIONS)
        sums = back.groupby("key").value.sum().compute()
    tap.check(back.npartitions == 6 and sums.sum() == frame.value.sum() and len(sums) == 10, "dask: partitions by threads", sums)


@needs("torch", "numpy")
def test_torch():
    import torch
    from nebulaio import data

    with opened(request_timeout=60.0) as client:
        source, target = torch.randn(1000, 700), torch.zeros(1000, 700)
        before, address = client.stats().bytes_copied, target.data_ptr()
        client.put_from(BUCKET, "tensor", source)
        client.get_into(BUCKET, "tensor", target)
        tap.check(torch.equal(source, target) and target.data_ptr() == address, "torch: a tensor there and back")
        tap.check(client.stats().bytes_copied == before, "torch: in its own memory, without a copy")
        tensors = {"weight": torch.randn(512, 2048), "bias": torch.randn(512), "step": torch.tensor(7)}
        data.save_tensors(client, BUCKET, "checkpoint.safetensors", tensors)
        into = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
        data.load_tensors(client, BUCKET, "checkpoint.safetensors", into)
        tap.check(all(torch.equal(into[name], tensor) for name, tensor in tensors.items()), "torch: a checkpoint, into tensors")
        short = {name: torch.randn(64, 33).to(getattr(torch, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
        short["transposed"] = torch.randn(5, 7).bfloat16().T
        data.save_tensors(client, BUCKET, "short.safetensors", short)
        back = data.load_tensors(client, BUCKET, "short.safetensors", framework="torch")
        if importlib.util.find_spec("safetensors"):
            from safetensors.torch import load
            read = load(bytes(client.get_object(BUCKET, "short.safetensors")))
            tap.check(all(torch.equal(read[name].float(), tensor.float()) for name, tensor in short.items()),
                      "torch: safetensors reads bfloat16 and float8")
        tap.check(all(back[name].dtype == tensor.dtype and torch.equal(back[name].float(), tensor.float())
                      for name, tensor in short.items()), "torch: bfloat16 and float8, as tensors")
        samples = {f"samples/{i:03}": bytes([i]) * (2000 + i) for i in range(64)}
        client.put_many([(BUCKET, key, body) for key, body in samples.items()])
        dataset = data.ObjectDataset(client, BUCKET, prefix="samples/", decode=lambda key, array: int(array[-1]))
        tap.check(isinstance(dataset, torch.utils.data.Dataset), "torch: an ObjectDataset is a Dataset")
        loader = torch.utils.data.DataLoader(dataset, batch_size=16, num_workers=2)
        tap.check([int(x) for batch in loader for x in batch] == list(range(64)), "torch: a DataLoader with two workers")
        stream = data.StreamDataset(client, BUCKET, prefix="samples/", decode=lambda key, array: int(array[0]))
        loader = torch.utils.data.DataLoader(stream, batch_size=8, num_workers=2)
        tap.check(sorted(int(x) for batch in loader for x in batch) == list(range(64)), "torch: a stream, shared by two workers")
        epochs = data.EpochDataset(client, BUCKET, prefix="samples/", seed=1, batch=4, decode=lambda key, array: int(array[0]))
        loader = torch.utils.data.DataLoader(epochs, batch_size=8, num_workers=2)
        tap.check(isinstance(epochs, torch.utils.data.IterableDataset) and
                  sorted(int(x) for batch in loader for x in batch) == list(range(64)), "torch: an epoch, shared by two workers")


@needs("safetensors", "ml_dtypes", "numpy")
def test_safetensors():
    import ml_dtypes
    import numpy as np
    from nebulaio import data
    from safetensors.numpy import load, save

    tensors = {"a": np.arange(12, dtype="f4").reshape(3, 4), "b": np.arange(9, dtype="u2"), "c": np.array(True)}
    with opened() as client:
        data.save_tensors(client, BUCKET, "ours.safetensors", tensors, {"made": "here"})
        theirs = load(bytes(client.get_object(BUCKET, "ours.safetensors")))
        client.put_object(BUCKET, "theirs.safetensors", save(tensors, {"made": "there"}))
        ours = data.load_tensors(client, BUCKET, "theirs.safetensors")
        for read, who in ((theirs, "theirs reads ours"), (ours, "ours reads theirs")):
            tap.check(all(read[name].dtype == array.dtype and (read[name] == array).all() for name, array in tensors.items()),
                      f"safetensors: {who}", read)
        short = np.arange(9).astype(ml_dtypes.bfloat16)
        data.save_tensors(client, BUCKET, "short.safetensors", {"short": short})
        back = data.load_tensors(client, BUCKET, "short.safetensors")["short"]
        tap.check(back.dtype == short.dtype and (back == short).all(), "ml_dtypes: bfloat16 by numpy", back)
        tap.check(data.list_tensors(client, BUCKET, "theirs.safetensors")[1] == {"made": "there"}, "safetensors: the metadata")


if __name__ == "__main__":
    with opened() as client:
        client.create_bucket(BUCKET)
    sys.exit(run())
