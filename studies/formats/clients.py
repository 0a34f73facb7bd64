"""Clients: who reads which format, in the lines that a user would write."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from helpers.arrays.readers import READERS
from helpers.arrays.stores import StoredArray
from studies.formats import columns, tiles, virtual
from studies.formats.source import Box, Read, Values
from wire.bed.locations import Location

Open = Callable[[Location, StoredArray, int], Read]
"""From a format's folder, the array, and the requests in flight that it may have."""

_AS_STORED: dict[str, Any] = {"mask_and_scale": False, "decode_times": False}
# Requests in flight by default: `async.concurrency` of zarr and connections of botocore, threads
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


def _open_tensorstore(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read by TensorStore, which takes credentials from the environment."""
    import tensorstore  # an extra that not everyone has

    place = {"bucket": folder.bucket, "path": f"{folder.prefix}/{stored.variable}/"}
    place |= {"aws_region": folder.region}
    place |= {"endpoint": folder.endpoint_url} if folder.endpoint_url else {}
    # by itself it looks for profiles first, and logs that there are none
    who = {"type": "environment" if folder.access_key else "default"}
    kvstore = {"driver": "s3", **place}
    spec = {"driver": "zarr3", "kvstore": kvstore, "context": {"aws_credentials": who}}
    array = tensorstore.open(spec, open=True, read=True).result()
    return lambda box: array[box].read().result()


@dataclass(frozen=True, slots=True)
class Client:
    """Who reads a format."""

    name: str  # its format, then who reads
    label: str  # what a reader would say
    format: str
    open: Open
    in_flight: int = 1  # requests, most; 0: as many as the case says
    packages: tuple[str, ...] = ()  # that have to be installed
    # whether a connection goes on while the chunk it brought is decoded
    is_overlapped: bool = False

    def n_in_flight(self, n_requests: int) -> int:
        """Count the requests that it may have in flight."""
        return self.in_flight or n_requests

    def missing(self) -> list[str]:
        """List the packages that it needs and that are not there."""
        return [name for name in self.packages if importlib.util.find_spec(name) is None]

    def show_code(self) -> str:
        """Show the function that opens its format, as it is measured, and what is passed to it."""
        given = getattr(self.open, "keywords", {})
        lines = [f"# with {name}={value!r}\n" for name, value in given.items()]
        shown = [self.open, *([READERS[given["reader"]].open] if "reader" in given else [])]
        functions: list[Any] = [getattr(one, "func", one) for one in shown]
        return "".join(lines) + "\n".join(map(inspect.getsource, functions))


_CSV = partial(columns.open_table, suffix="csv", dtype="float32")
_PARQUET = partial(columns.open_table, suffix="parquet")
_VIRTUAL = partial(virtual.open_icechunk, is_virtual=True)

# A table, a row each.
# fmt: off
CLIENTS: Mapping[str, Client] = {client.name: client for client in (
    Client("csv-pandas", "CSV, pandas", "csv", _CSV),
    Client("parquet-pandas", "Parquet, pandas", "parquet", _PARQUET),
    Client("parquet-groups", "Parquet row groups, Arrow", "parquet", columns.open_groups, _ARROW),
    Client("parquet-arrow", "Parquet files, Arrow", "parquet-parts", columns.open_parts, _ARROW),
    Client("netcdf-s3fs", "netCDF, s3fs default", "netcdf", _open_netcdf),
    Client("references-obstore", "kerchunk references, obstore", "references", partial(_open_shared, reader="references"), _ZARR),
    Client("references-parquet-obstore", "references in Parquet, obstore", "references-parquet", virtual.open_references, _ZARR, ("fastparquet",)),
    Client("icechunk-virtual", "virtual Icechunk", "icechunk-virtual", _VIRTUAL, _ZARR, ("icechunk",)),
    Client("cog-rasterio", "COG, rasterio", "cog", tiles.open_rasters, 1, ("rasterio",)),
    Client("cog-rasterio-threads", "COG, rasterio in threads", "cog", tiles.open_rasters, 0, ("rasterio",), is_overlapped=True),
    Client("cog-async", "COG, async_geotiff", "cog", tiles.open_rasters_async, 0, ("async_geotiff",)),
    Client("tiledb", "TileDB", "tiledb", tiles.open_tiles, 0, ("tiledb",), is_overlapped=True),
    Client("zarr-s3fs", "Zarr, s3fs default", "zarr", partial(_open_shared, reader="zarr-s3fs"), _ZARR),
    Client("zarr-s3fs-one-get", "Zarr, s3fs one request", "zarr", partial(_open_shared, reader="zarr-s3fs-one-get"), _ZARR),
    Client("zarr-obstore", "Zarr, obstore", "zarr", partial(_open_shared, reader="zarr-obstore"), _ZARR),
    Client("zarr-obstore-told", "Zarr, obstore, more in flight", "zarr", partial(_open_shared, reader="zarr-obstore"), 0),
    Client("zarr-tensorstore", "Zarr, TensorStore", "zarr", _open_tensorstore, _TENSORSTORE, ("tensorstore",), is_overlapped=True),
    Client("shards-obstore", "Zarr shards, obstore", "shards", partial(_open_shared, reader="zarr-obstore"), _ZARR),
    Client("icechunk", "Icechunk", "icechunk", virtual.open_icechunk, _ZARR, ("icechunk",)),
)}
# fmt: on
"""Every contender of the study, by name."""


LABELS: Mapping[str, str] = {client.name: client.label for client in CLIENTS.values()}
"""What a page calls each contender."""


def list_formats(names: Sequence[str]) -> list[str]:
    """List the formats that clients read, each once."""
    return list(dict.fromkeys(CLIENTS[name].format for name in names))
