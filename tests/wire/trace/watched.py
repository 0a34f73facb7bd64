"""Programs of tests, run before the store of the tests, and what was seen of them."""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import obstore
import xarray as xr
from zarr.errors import ZarrUserWarning
from zarr.storage import ObjectStore

from tests.stores import client_environment
from wire.bed.locations import Location
from wire.bed.networks import Profile
from wire.trace import launch
from wire.trace.rows import Run


def write_store(near: Location) -> None:
    """Write what the programs read: small files, a large one, an array, a group, a netCDF file."""
    store, rng = near.obstore(), np.random.default_rng(0)
    for i in range(40):
        obstore.put(store, f"trace/files/{i}", rng.bytes(30_000))
    for i in range(8):
        obstore.put(store, f"trace/open/a/c/{i}", rng.bytes(3_000))
    obstore.put(store, "trace/large", rng.bytes(36_000_000))
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        folder = Path(name)
        cube = xr.Dataset({"a": (("t", "y", "x"), rng.random((12, 60, 40)).astype("f4"))})
        encoding = {"a": {"chunks": (1, 60, 10)}}
        warnings.simplefilter(
            "ignore", ZarrUserWarning
        )  # consolidated metadata are no part of Zarr 3
        cube.to_zarr(
            ObjectStore((near / "trace/cube").obstore()),
            zarr_format=3,
            consolidated=True,
            encoding=encoding,
        )
        many = xr.Dataset({f"v{i}": (("x",), np.arange(4.0)) for i in range(25)})
        many.to_zarr(ObjectStore((near / "trace/many").obstore()), zarr_format=3, consolidated=True)
        large = xr.Dataset({f"v{i}": (("t", "x"), rng.random((4, 300_000))) for i in range(6)})
        large.to_netcdf(folder / "many.nc", engine="h5netcdf")
        obstore.put(store, "trace/many.nc", (folder / "many.nc").read_bytes())
    refused = [f"arn:aws:s3:::{near.bucket}/trace/open/a/c/{i}" for i in (2, 5)]
    allowed = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": "s3:GetObject",
        "Resource": f"arn:aws:s3:::{near.bucket}/trace/*",
    }
    denied = {**allowed, "Effect": "Deny", "Resource": refused}
    listed = {**allowed, "Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{near.bucket}"}
    policy = {"Version": "2012-10-17", "Statement": [allowed, denied, listed]}
    near.botocore().put_bucket_policy(Bucket=near.bucket, Policy=json.dumps(policy))


def watch(text: str, near: Location, network: Profile) -> Run:
    """Run a program through the gateway, which emulates a network before the store."""
    words = [sys.executable, "-W", "ignore", "-c", text]
    return launch.run(words, environment=client_environment(near), profile=network, is_silent=True)
