"""Who reads which format, in the lines that a user would write.

A reader registers itself here, or in a module of its own in this folder.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from helpers.arrays.readers import READERS
from helpers.arrays.stores import StoredArray
from helpers.registry import Registry, list_missing
from studies.formats import columns, tiles, virtual
from studies.formats.source import Box, Read, Values
from wire.bed.locations import Location

Open = Callable[[Location, StoredArray, int], Read]
"""From a format's folder, the array, and the concurrent requests that it may have."""

_AS_STORED: dict[str, Any] = {"mask_and_scale": False, "decode_times": False}
# Concurrent requests by default: `async.concurrency` of zarr and connections of botocore, threads
# of Arrow, `s3_request_concurrency` of TensorStore.
_ZARR, _ARROW, _TENSORSTORE = 10, 8, 32


def _open_netcdf(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read over a file object of s3fs at its defaults."""

    def read(box: Box) -> Values:
        with folder.fsspec().open(f"{folder.path}/array.nc") as file:
            dataset = xr.open_dataset(file, engine="h5netcdf", **_AS_STORED)
            return np.asarray(dataset[stored.variable][box].to_numpy(), np.float32)

    return read


def _open_shared(folder: Location, stored: StoredArray, n_requests: int, *, reader: str) -> Read:
    """Read as a reader of cluster scaling does, but with no Dask: one call of xarray."""
    variable = READERS[reader].open(folder, None)[stored.variable]
    return lambda box: variable[box].to_numpy()


def open_shared(name: str) -> Open:
    """Make the function that opens a layout as a reader of arrays does."""
    return partial(_open_shared, reader=name)


def _open_tensorstore(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read by TensorStore, which takes credentials from the environment."""
    import tensorstore  # an extra that not everyone has

    place = {"bucket": folder.bucket, "path": f"{folder.prefix}/{stored.variable}/"}
    place |= {"aws_region": folder.region}
    place |= {"endpoint": folder.endpoint_url} if folder.endpoint_url else {}
    # by itself it looks for profiles first, and logs that there are none
    credentials = {"type": "environment" if folder.access_key else "default"}
    kvstore = {"driver": "s3", **place}
    spec = {"driver": "zarr3", "kvstore": kvstore, "context": {"aws_credentials": credentials}}
    array = tensorstore.open(spec, open=True, read=True).result()
    return lambda box: array[box].read().result()


@dataclass(frozen=True, slots=True)
class FormatReader:
    """Who reads a format, in one process."""

    name: str  # its format, then who reads
    label: str  # on pages
    format: str
    open: Open
    concurrency: int = 1  # concurrent requests, at most; 0: as many as the case says
    packages: tuple[str, ...] = ()  # that have to be installed
    # whether a connection goes on while the chunk it brought is decoded
    is_overlapped: bool = False
    service: str = "s3"  # who serves the format: s3, or one of `helpers.arrays.services`
    explain_absence: Callable[[], str] = str  # why its service cannot run here, or nothing

    color = marker = ""  # figures of formats draw accesses

    @property
    def shared(self) -> str:
        """Name of the reader of arrays that it uses; empty where it is one of its own."""
        return str(getattr(self.open, "keywords", {}).get("reader", ""))

    @property
    def zarr_config(self) -> Mapping[str, Any]:
        """Settings of zarr while it reads."""
        return READERS[self.shared].zarr_config if self.shared else {}

    def read(self, opened: Read, box: Box) -> Values:
        """Read the values within bounds of what is open."""
        return opened(box)

    def count_requests(self, n_requests: int) -> int:
        """Count the concurrent requests that it may have in a case that allows so many."""
        return self.concurrency or n_requests

    def missing(self) -> list[str]:
        """List the packages that it needs and that are not there."""
        return list_missing(self.packages)

    def show_code(self) -> str:
        """Show the function that opens its format, as it is measured, and what is passed to it."""
        keywords = getattr(self.open, "keywords", {})
        lines = [f"# with {name}={value!r}\n" for name, value in keywords.items()]
        openers = [self.open, *([READERS[self.shared].open] if self.shared else [])]
        functions: list[Any] = [getattr(opener, "func", opener) for opener in openers]
        return "".join(lines) + "\n".join(map(inspect.getsource, functions))


FORMAT_READERS: Registry[FormatReader] = Registry("format reader", __name__)
"""Every contender of the study, by name; a module in this folder adds another."""

_CSV = partial(columns.open_table, suffix="csv", dtype="float32")
_PARQUET = partial(columns.open_table, suffix="parquet")
_VIRTUAL = partial(virtual.open_icechunk, is_virtual=True)

# A table, a row each.
# fmt: off
FORMAT_READERS.register(
    FormatReader("csv-pandas", "CSV, pandas", "csv", _CSV),
    FormatReader("parquet-pandas", "Parquet, pandas", "parquet", _PARQUET),
    FormatReader("parquet-groups", "Parquet row groups, Arrow", "parquet", columns.open_groups, _ARROW),
    FormatReader("parquet-arrow", "Parquet files, Arrow", "parquet-parts", columns.open_parts, _ARROW),
    FormatReader("netcdf-s3fs", "netCDF, s3fs default", "netcdf", _open_netcdf),
    FormatReader("references-obstore", "kerchunk references, obstore", "references", open_shared("references"), _ZARR),
    FormatReader("references-parquet-obstore", "references in Parquet, obstore", "references-parquet", virtual.open_references, _ZARR, ("fastparquet",)),
    FormatReader("icechunk-virtual", "virtual Icechunk", "icechunk-virtual", _VIRTUAL, _ZARR, ("icechunk",)),
    FormatReader("cog-rasterio", "COG, rasterio", "cog", tiles.open_rasters, 1, ("rasterio",)),
    FormatReader("cog-rasterio-threads", "COG, rasterio in threads", "cog", tiles.open_rasters, 0, ("rasterio",), is_overlapped=True),
    FormatReader("cog-async", "COG, async_geotiff", "cog", tiles.open_rasters_async, 0, ("async_geotiff",)),
    FormatReader("tiledb", "TileDB", "tiledb", tiles.open_tiles, 0, ("tiledb",), is_overlapped=True),
    FormatReader("zarr-s3fs", "Zarr, s3fs default", "zarr", open_shared("zarr-s3fs"), _ZARR),
    FormatReader("zarr-s3fs-one-get", "Zarr, s3fs one request", "zarr", open_shared("zarr-s3fs-one-get"), _ZARR),
    FormatReader("zarr-obstore", "Zarr, obstore", "zarr", open_shared("zarr-obstore"), _ZARR),
    FormatReader("zarr-obstore-told", "Zarr, obstore, more in flight", "zarr", open_shared("zarr-obstore"), 0),
    FormatReader("zarr-tensorstore", "Zarr, TensorStore", "zarr", _open_tensorstore, _TENSORSTORE, ("tensorstore",), is_overlapped=True),
    FormatReader("shards-obstore", "Zarr shards, obstore", "shards", open_shared("zarr-obstore"), _ZARR),
    FormatReader("icechunk", "Icechunk", "icechunk", virtual.open_icechunk, _ZARR, ("icechunk",)),
)
# fmt: on


def list_formats(names: Sequence[str]) -> list[str]:
    """List the formats that readers read, each once."""
    return list(dict.fromkeys(FORMAT_READERS[name].format for name in names))
