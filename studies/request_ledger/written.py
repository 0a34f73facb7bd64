"""What the clients of the ledger read: one array, and groups of small variables, in every layout."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import xarray as xr

from studies.request_ledger.clients import ARRAY, selections
from wire.bed.locations import Location
from wire.models.access import chunks_touched

GROUPS = (1, 10, 100)
"""Numbers of variables of the groups whose metadata are read."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The layouts in a bucket, and what is in them."""

    prefix: str
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    values: np.ndarray[Any, np.dtype[np.float32]]
    nbytes: Mapping[str, int]  # stored bytes, by layout

    def selection(self, operation: str) -> tuple[slice, ...]:
        """Return what an operation on the array selects."""
        return tuple(selections(self.shape, self.chunk_shape)[operation])

    def n_chunks(self, operation: str) -> int:
        """Count the chunks that an operation touches."""
        parts = zip(self.selection(operation), self.shape, strict=True)
        return chunks_touched([slice(*part.indices(n)) for part, n in parts], self.chunk_shape)


def make_values(shape: tuple[int, ...], seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Make a smooth field with small-scale noise, so that its chunks compress about twofold."""
    rng = np.random.default_rng(seed)
    t, y, x = np.ogrid[tuple(slice(0, 1, 1j * n) for n in shape)]
    smooth = 15 + 10 * np.sin(7 * x + t) * np.cos(5 * y) + 2 * t
    values = smooth + rng.normal(0, 0.01, shape).round(2)
    return np.asarray(values, dtype=np.float32)


def write_layouts(
    near: Location, shape: tuple[int, ...], chunk_shape: tuple[int, ...], *, seed: int
) -> Stored:
    """Write every layout to a store, without a network between."""
    values = make_values(shape, seed)
    prefix = "ledger"
    store = near.obstore()
    nbytes = Counter[str]()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # that consolidated metadata are no part of Zarr v3, and that the GeoTIFF has no place
        warnings.filterwarnings("ignore", "Consolidated metadata|Dataset has no geotransform")
        _write_files(Path(folder), values, chunk_shape, url=f"s3://{near.bucket}/{prefix}")
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                name = path.relative_to(folder)
                obstore.put(store, f"{prefix}/{name.as_posix()}", path.read_bytes())
                nbytes[name.parts[0]] += path.stat().st_size
    _publish(near, f"{prefix}/*netcdf*")
    return Stored(prefix, shape, chunk_shape, values, nbytes)


def small_variables(values: Any, n: int) -> dict[str, Any]:
    """Name the variables of a group whose metadata are read, each a corner of the array."""
    return {f"v{i:03d}": values[i % len(values), :32, :32] for i in range(n)}


def _publish(near: Location, keys: str) -> None:
    """Let everyone read some objects: the netCDF library signs no byte ranges."""
    where = f"arn:aws:s3:::{near.bucket}/{near.prefix}/{keys}".replace("//", "/")
    allowed = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": where}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    near.botocore().put_bucket_policy(Bucket=near.bucket, Policy=policy)


def _write_files(folder: Path, values: Any, chunk_shape: tuple[int, ...], *, url: str) -> None:
    """Write each layout below a folder, under its name; `url` is where references find the files."""
    dims = ("time", "y", "x")
    coords: dict[str, Any] = {
        name: (name, np.arange(n, dtype="f8")) for name, n in zip(dims, values.shape, strict=True)
    }
    array = xr.Dataset({ARRAY: (dims, values)}, {**coords, "depth": ((), 5.0)})
    _write_zarr(folder, array, chunk_shape)
    _write_netcdf(folder, array, chunk_shape)
    for n in GROUPS:
        group = xr.Dataset({k: (("y", "x"), v) for k, v in small_variables(values, n).items()})
        group.to_zarr(folder / f"group-{n}-zarr-v2", zarr_format=2, consolidated=True)
        group.to_zarr(folder / f"group-{n}-zarr-v3", zarr_format=3, consolidated=True)
        group.to_netcdf(folder / f"group-{n}-netcdf", engine="h5netcdf")
    for name in ("netcdf", *(f"group-{n}-netcdf" for n in GROUPS)):
        target = f"{name.removesuffix('netcdf')}references"
        _write_references(folder / name, folder / target, f"{url}/{name}")
    _write_geotiff(folder / "geotiff", values, chunk_shape)


def _write_zarr(folder: Path, array: xr.Dataset, chunk_shape: tuple[int, ...]) -> None:
    import zarr.codecs
    from numcodecs import Zlib

    old = {ARRAY: {"chunks": chunk_shape, "compressors": [Zlib(1)]}}
    for name, is_consolidated in (("zarr-v2", True), ("zarr-v2-unconsolidated", False)):
        array.to_zarr(folder / name, zarr_format=2, encoding=old, consolidated=is_consolidated)
    new: dict[str, Any] = {"chunks": chunk_shape, "compressors": [zarr.codecs.GzipCodec(level=1)]}
    shards = {"shards": (2 * chunk_shape[0], array.sizes["y"], array.sizes["x"])}
    for name, encoding in (("zarr-v3", new), ("zarr-v3-sharded", new | shards)):
        array.to_zarr(folder / name, zarr_format=3, encoding={ARRAY: encoding}, consolidated=True)


def _write_netcdf(folder: Path, array: xr.Dataset, chunk_shape: tuple[int, ...]) -> None:
    chunking = {"chunksizes": tuple(chunk_shape), "compression": "gzip", "compression_opts": 1}
    array.to_netcdf(folder / "netcdf", engine="h5netcdf", encoding={ARRAY: chunking})
    # larger than any read-ahead: the array is the fourth of seven
    other_variables = {f"other{i}": array[ARRAY] + i for i in range(6)}
    names = [*other_variables]
    dataset = array.assign(other_variables)[[*names[:3], ARRAY, *names[3:]]]
    encoding = dict.fromkeys(dataset.data_vars, chunking)
    dataset.to_netcdf(folder / "netcdf-large", engine="h5netcdf", encoding=encoding)


def _write_references(source: Path, target: Path, url: str) -> None:
    from kerchunk.hdf import SingleHdf5ToZarr

    with source.open("rb") as file:
        references = SingleHdf5ToZarr(file, url, inline_threshold=300).translate()
    target.write_text(json.dumps(references))


def _write_geotiff(path: Path, values: Any, chunk_shape: tuple[int, ...]) -> None:
    import rasterio

    n, height, width = values.shape
    shape = {"count": n, "height": height, "width": width, "dtype": "float32"}
    blocks = {"tiled": True, "blockysize": chunk_shape[1], "blockxsize": chunk_shape[2]}
    options = {"driver": "GTiff", "compress": "deflate", "interleave": "band"}
    with rasterio.open(path, "w", **shape, **blocks, **options) as file:
        file.write(values)
