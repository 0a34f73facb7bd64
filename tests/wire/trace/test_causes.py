"""The registry of causes is complete, and what it says to paste is code that runs."""

from __future__ import annotations

import ast
import asyncio
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pytest

from tests.stores import client_environment, make_location
from wire.bed.locations import Location
from wire.bed.testbed import Server
from wire.trace.causes import REGISTRY, Cause, Remedy
from wire.trace.causes.registry import advise, make_registry

PAGES = Path(__file__).parents[3] / "pages"
CAUSE = Cause("x", "an x", "doing x", lambda _trace: None, "symptoms.html", advise("do not"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"title": ""}, "no title"),
        ({"sentence": ""}, "no sentence"),
        ({"see": "symptoms"}, "a page of the book"),
        ({"clients": {"netscape": advise("do")}}, "netscape"),
        ({"remedy": advise("")}, "without text"),
        ({"remedy": Remedy("for x in")}, "is not Python"),
        ({"remedy": Remedy("read(...)")}, "leaves out something"),
        ({"absorbs": ("y",)}, "absorbs y"),
    ],
)
def test_an_incomplete_cause_is_refused(change: dict[str, Any], told: str) -> None:
    """At load, with what is missing."""
    with pytest.raises(ValueError, match=told):
        make_registry([replace(CAUSE, **change)])


def test_two_causes_of_one_name_are_refused() -> None:
    """Which of them is meant nobody could tell."""
    with pytest.raises(ValueError, match="stands twice"):
        make_registry([CAUSE, CAUSE])


def test_each_cause_leads_to_a_place_of_the_book() -> None:
    """Its page is there, and so is the heading."""
    for cause in REGISTRY.values():
        name, _, anchor = cause.see.partition("#")
        page = PAGES / f"{name.removesuffix('.html')}.md"
        assert page.is_file(), cause.name
        headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}
        assert not anchor or anchor in anchors, (cause.name, anchor)


PACKAGES = {
    "zarr": "zarr", "s3fs": "s3fs", "boto3": "boto3", "obstore": "obstore", "requests": "requests",
    "httpx": "httpx", "aiohttp": "aiohttp", "tensorstore": "tensorstore", "gdal": "rasterio",
    "arrow": "pyarrow", "duckdb": "duckdb", "hdf5": "h5py",
}  # fmt: skip
NOT_HERE = {
    # what a test cannot have: a region of its own, a bucket that is open, a disk to download to
    ("credentials", "zarr"), ("credentials", "xarray"), ("credentials", "s3fs"), ("credentials", "obstore"), ("credentials", "arrow"),
    ("redirects", "arrow"), ("in-turn", "gdal"),
}  # fmt: skip


def list_remedies() -> Iterator[Any]:
    """List what is Python, by cause and client, or call."""
    for cause in REGISTRY.values():
        for client, remedy in {"zarr": cause.remedy, **cause.clients}.items():
            if remedy.language == "python" and (cause.name, client) not in NOT_HERE:
                yield pytest.param(client, remedy.text, id=f"{cause.name}-{client}")
        for call, remedy in cause.calls.items():
            if remedy.language == "python":
                yield pytest.param(call, remedy.text, id=f"{cause.name}-{call}")


@pytest.fixture(scope="module")
def store(server: Server) -> Location:
    """Store what remedies read: objects, a dataset, a tree, a table."""
    import obstore
    import pyarrow
    import pyarrow.parquet
    import xarray as xr
    from zarr.storage import ObjectStore

    location = make_location(server, "arrays")
    target = location.obstore()
    for i in range(4):
        obstore.put(target, f"remedies/files/{i}", np.random.default_rng(i).bytes(200_000))
    cube = xr.Dataset({"a": (("t", "x"), np.arange(200.0).reshape(20, 10))}, {"t": np.arange(20)})
    opened = ObjectStore((location / "remedies/cube.zarr").obstore())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # consolidated metadata are no part of Zarr 3
        cube.chunk({"t": 1}).to_zarr(opened, zarr_format=3, consolidated=True)
        for i in range(3):
            part = ObjectStore((location / f"remedies/part{i}.zarr").obstore())
            days = cube.isel(t=slice(5 * i, 5 * i + 5))
            days.to_zarr(part, zarr_format=3, consolidated=True)
    table = pyarrow.table({"a": [1, 2, 3]})
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink)
    for i in range(2):
        obstore.put(target, f"remedies/table/{i}.parquet", sink.getvalue().to_pybytes())
    location.botocore().put_bucket_policy(
        Bucket=location.bucket,
        Policy='{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*",'
        f' "Action": ["s3:GetObject", "s3:PutObject"], "Resource": "arn:aws:s3:::{location.bucket}/remedies/*"}},'
        ' {"Effect": "Allow", "Principal": "*", "Action": "s3:ListBucket",'
        f' "Resource": "arn:aws:s3:::{location.bucket}"}}]}}',
    )
    return location


async def _run(code: CodeType, names: dict[str, Any]) -> None:
    """Run code that may await."""
    result = eval(code, names)  # ours
    if asyncio.iscoroutine(result):
        await result


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize(("client", "text"), list_remedies())
def test_a_remedy_runs_as_it_is_printed(
    client: str, text: str, store: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the names that a user has, such as `url`, `paths` and `session`, and nothing more."""
    package = PACKAGES.get(client, "xarray")
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    for name, value in client_environment(store).items():
        monkeypatch.setenv(name, value)
    code = compile(
        text.replace("{block}", "2**20"), "remedy", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    asyncio.run(_run_remedy(code, client, text, store, tmp_path))


async def _run_remedy(
    code: CodeType, client: str, text: str, store: Location, folder: Path
) -> None:
    """Run a remedy among the names that its program has."""
    import httpx
    import obstore
    import requests
    import xarray as xr
    import zarr
    from zarr.storage import ObjectStore

    web = f"{store.endpoint_url}/{store.bucket}/remedies"
    is_zarr = "xr." in text or "ds." in text or client in ("zarr", "xarray", "tensorstore")
    target = ObjectStore((store / "remedies/cube.zarr").obstore())
    group = zarr.open_group(target, mode="a")
    names: dict[str, Any] = {
        "xr": xr, "zarr": zarr, "obstore": obstore, "requests": requests, "httpx": httpx,
        "url": f"s3://{store.bucket}/remedies/cube.zarr" if is_zarr else f"{web}/files/0",
        "urls": [f"{web}/files/{i}" for i in range(4)],
        "bucket": store.bucket, "region": "us-east-1", "folder": f"{store.bucket}/remedies/files",
        "folder_url": f"s3://{store.bucket}/remedies", "key": "remedies/files/0",
        "keys": [f"remedies/files/{i}" for i in range(4)], "target": str(folder / "file"),
        "storage_options": {}, "first": 0, "last": 4, "n": 4, "nbytes": 100,
        "starts": [0, 1000, 2000], "ends": [100, 1100, 2100], "parts": [b"a", b"b", b"c", b"d"],
        "array": group["a"], "values": np.zeros((20, 10)),
        "store": target if "zarr." in text else (store / "remedies").obstore(),
    }  # fmt: skip
    prefix = f"{store.bucket}/remedies/" if client not in ("obstore",) else ""
    names["path"] = f"{prefix}files/0"
    names["paths"] = [f"{prefix}files/{i}" for i in range(4)]
    names["ds"] = xr.open_zarr(names["url"], consolidated=True) if is_zarr else None
    if client == "xarray":
        names["array"] = xr.open_zarr(names["url"], consolidated=True)["a"]
    if "open_mfdataset" in text:
        names["urls"] = [f"s3://{store.bucket}/remedies/part{i}.zarr" for i in range(3)]
    names["lazy"] = [names["ds"]["a"][i] for i in range(3)] if is_zarr else []
    await _add_clients(names, client, text, store)
    await _run(code, names)


async def _add_clients(names: dict[str, Any], client: str, text: str, store: Location) -> None:
    """Add the client that a program has, under the name that it has there."""
    if client in ("requests", "httpx"):
        names["session"] = names["requests"].Session()
        names["client"] = names["httpx"].Client()
    if client == "aiohttp" or "aiohttp" in text:
        import aiohttp

        names["aiohttp"] = aiohttp
        names["session"] = aiohttp.ClientSession()
    if "s3fs" in text or "fs." in text:
        import s3fs

        names["s3fs"], names["fs"] = s3fs, s3fs.S3FileSystem()
    if client == "boto3":
        names["boto3"] = boto3 = import_module("boto3")
        names["client"] = boto3.client("s3")
    if client == "tensorstore":
        import tensorstore

        names["tensorstore"] = tensorstore
        names["array"] = tensorstore.array(np.zeros((20, 10)))
    if "pyarrow" in text or "parquet" in text:
        import pandas as pd
        import pyarrow.dataset
        import pyarrow.fs
        import pyarrow.parquet

        bucket = f"{store.bucket}/remedies/table"
        names |= {"pyarrow": pyarrow, "pd": pd, "path": f"s3://{bucket}/0.parquet"}
        names["paths"] = [f"{bucket}/{i}.parquet" for i in range(2)]
        if "filesystem=filesystem" in text:
            names["path"] = f"{bucket}/0.parquet"
            names["filesystem"] = pyarrow.fs.S3FileSystem(
                endpoint_override=store.endpoint_url, access_key=store.access_key, secret_key=store.secret_key,
                region=store.region,
            )  # fmt: skip
