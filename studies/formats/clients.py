"""Clients: who reads which format, in the lines that a user would write."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from io import BytesIO
from typing import Any, Literal

import fsspec
import numpy as np
import obstore
import xarray as xr
from zarr.core.sync import sync

from helpers.arrays.direct import open_direct
from helpers.arrays.readers import READERS
from helpers.arrays.stores import StoredArray
from helpers.benchmark.provenance import n_cores
from helpers.objectstore.locations import Location
from studies.formats import blocks, columns, opendap, rasters, tiles, virtual
from studies.formats.formats import Box, Read, Values

Open = Callable[[Location, StoredArray, int], Read]
"""From a format's folder, the array, and the requests in flight that it may have."""

_AS_STORED: dict[str, Any] = {"mask_and_scale": False, "decode_times": False}
_SIGNED_FOR = timedelta(hours=1)
_PART_NBYTES = 4 * 2**20  # of a file that is fetched whole, in ranges


def _open_netcdf(folder: Location, stored: StoredArray, n_requests: int, *, engine: str) -> Read:
    """Read over a file object of s3fs at its defaults."""

    def read(box: Box) -> Values:
        with folder.fsspec().open(f"{folder.path}/array.nc") as file:
            dataset = xr.open_dataset(file, engine=engine, **_AS_STORED)
            return np.asarray(dataset[stored.variable][box].to_numpy(), np.float32)

    return read


def _open_netcdf_by_http(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read over plain HTTP, in ranges: the address is signed, and no client of a store takes part."""
    client: Any = folder.obstore()
    signed = obstore.sign(client, "GET", "array.nc", _SIGNED_FOR)

    def read(box: Box) -> Values:
        with fsspec.filesystem("http").open(signed) as file:
            dataset = xr.open_dataset(file, engine="h5netcdf", **_AS_STORED)
            return np.asarray(dataset[stored.variable][box].to_numpy(), np.float32)

    return read


def _open_netcdf_by_address(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Let xarray make the file object, as whoever passes an address does."""
    dataset = xr.open_dataset(
        f"{folder.url}/array.nc",
        engine="h5netcdf",
        storage_options=folder.fsspec_options(),
        **_AS_STORED,
    )
    return lambda box: dataset[stored.variable][box].to_numpy()


def _open_netcdf_whole(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Fetch the file in ranges, several at once, and read it from memory."""
    client = folder.obstore()

    def fetch(start: int, end: int) -> bytes:
        return bytes(obstore.get_range(client, "array.nc", start=start, end=end))

    def read(box: Box) -> Values:
        size = obstore.head(client, "array.nc")["size"]
        starts = range(0, size, _PART_NBYTES)
        ends = [min(start + _PART_NBYTES, size) for start in starts]
        with ThreadPoolExecutor(n_requests) as pool:
            content = BytesIO(b"".join(pool.map(fetch, starts, ends)))
        dataset = xr.open_dataset(content, engine="h5netcdf", **_AS_STORED)
        return dataset[stored.variable][box].to_numpy()

    return read


def _open_by_xarray(reader: str) -> Open:
    """Read as a reader of cluster scaling does, but with no Dask: one call of xarray."""
    return partial(_read_by_xarray, open=READERS[reader].open)


def _read_by_xarray(folder: Location, stored: StoredArray, n_requests: int, *, open: Any) -> Read:
    variable = open(folder, None, n_requests)[stored.variable]
    return lambda box: variable[box].to_numpy()


def _open_zarr2(
    folder: Location, stored: StoredArray, n_requests: int, *, is_consolidated: bool = True
) -> Read:
    options = folder.fsspec_options()
    dataset = xr.open_zarr(
        folder.url, storage_options=options, consolidated=is_consolidated, chunks=None, **_AS_STORED
    )
    return lambda box: dataset[stored.variable][box].to_numpy()


def _open_tensorstore(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read by TensorStore, which takes credentials from the environment."""
    import tensorstore  # an extra that not everyone has

    place = {"bucket": folder.bucket, "path": f"{folder.prefix}/{stored.variable}/"}
    place |= {"aws_region": folder.region}
    place |= {"endpoint": folder.endpoint_url} if folder.endpoint_url else {}
    # by itself it looks for profiles first, and logs that there are none
    who = {"type": "environment" if folder.access_key else "default"}
    context = {"s3_request_concurrency": {"limit": n_requests}, "aws_credentials": who}
    spec = {"driver": "zarr3", "kvstore": {"driver": "s3", **place}, "context": context}
    array = tensorstore.open(spec, open=True, read=True).result()
    return lambda box: array[box].read().result()


def _open_zarrista(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read by zarrs with a store of its own, which is that of obstore without Python in between."""
    import zarrista  # an extra that not everyone has

    async def open_array() -> Any:
        return await zarrista.AsyncArray.open(folder.obstore(), f"/{stored.variable}")

    array = sync(open_array())

    async def read_box(box: Box) -> Any:
        return await array.retrieve_array_subset(box, concurrent_target=n_requests)

    return lambda box: sync(read_box(box)).to_numpy()


def _open_references_parquet(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    dataset = virtual.open_parquet(folder)
    return lambda box: virtual.values_of(dataset, stored.variable, box)


def _open_icechunk_virtual(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    dataset = virtual.open_icechunk(folder)
    return lambda box: virtual.values_of(dataset, stored.variable, box)


def _open_icechunk(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    import icechunk  # an extra that not everyone has

    storage = folder.icechunk_storage()
    session = icechunk.Repository.open(storage).readonly_session("main")
    dataset = xr.open_zarr(
        session.store, consolidated=False, zarr_format=3, chunks=None, **_AS_STORED
    )
    return lambda box: dataset[stored.variable][box].to_numpy()


def _open_ours(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    array = open_direct(folder.obstore(), stored.variable, n_requests=n_requests)
    return lambda box: array[box]


@dataclass(frozen=True, slots=True)
class Client:
    """Who reads a format."""

    name: str  # on the page: its format, then who reads
    format: str
    description: str
    open: Open
    # requests in flight: one, one for each processor, zarr's default, or as many as it is told
    in_flight: Literal["one", "cores", "default", "told"] = "one"
    packages: tuple[str, ...] = ()  # that have to be installed
    zarr_config: Mapping[str, Any] = field(default_factory=dict)
    told: tuple[str, ...] = ("async.concurrency",)  # settings of zarr that take that number
    # whether a connection goes on while the chunk it brought is decoded
    is_overlapped: bool = False
    is_ours: bool = False  # whether its decoding is this project's and not to be installed

    def n_in_flight(self, n_requests: int) -> int:
        """Count the requests that it may have in flight."""
        known = {"one": 1, "cores": n_cores(), "default": _ZARR_DEFAULT, "told": n_requests}
        return known[self.in_flight]

    def config(self, n_requests: int) -> dict[str, Any]:
        """Return the settings of zarr with which it reads."""
        told = self.told if self.in_flight == "told" else ()
        return {**dict.fromkeys(told, n_requests), **self.zarr_config}

    def missing(self) -> list[str]:
        """List the packages that it needs and that are not there."""
        return [name for name in self.packages if importlib.util.find_spec(name) is None]


_ZARR_DEFAULT = 10  # `async.concurrency` of zarr, and the connections of botocore

CLIENTS: Mapping[str, Client] = {
    one.name: one
    for one in (
        Client(
            "csv-pandas", "csv", "pandas over s3fs, all of it whatever is asked", columns.open_csv
        ),
        Client(
            "csv-parts-pandas",
            "csv-parts",
            "pandas over s3fs, a file after the other",
            columns.open_csv_parts,
        ),
        Client(
            "parquet-groups",
            "parquet",
            "Arrow's own S3 client, the row groups that are asked for",
            columns.open_groups,
            in_flight="default",
        ),
        Client(
            "parquet-pandas",
            "parquet",
            "pandas over s3fs, all of it whatever is asked",
            columns.open_parquet,
        ),
        Client(
            "parquet-arrow",
            "parquet-parts",
            "Arrow's own S3 client, file by file",
            columns.open_parts,
            in_flight="default",
        ),
        Client(
            "netcdf3-scipy",
            "netcdf3",
            "xarray over a file object of s3fs",
            partial(_open_netcdf, engine="scipy"),
        ),
        Client(
            "netcdf-s3fs",
            "netcdf",
            "xarray over a file object of s3fs",
            partial(_open_netcdf, engine="h5netcdf"),
        ),
        Client(
            "netcdf-dask-equal",
            "netcdf",
            "xarray over a file object that reads 64 KiB ahead, Dask's blocks as the file's chunks",
            blocks.read_in(blocks.as_stored, "netcdf-fsspec"),
        ),
        Client(
            "netcdf-dask-multiple",
            "netcdf",
            "xarray over a file object that reads 64 KiB ahead, in Dask's blocks of whole chunks, two along each dimension",
            blocks.read_in(blocks.multiply, "netcdf-fsspec"),
        ),
        Client(
            "netcdf-dask-unaligned",
            "netcdf",
            "xarray over a file object that reads 64 KiB ahead, in Dask's blocks that cut chunks in two",
            blocks.read_in(blocks.misalign, "netcdf-fsspec"),
        ),
        Client(
            "netcdf-xarray", "netcdf", "xarray given the address alone", _open_netcdf_by_address
        ),
        Client(
            "netcdf-whole",
            "netcdf",
            "the whole file by obstore in ranges, then xarray in memory",
            _open_netcdf_whole,
            in_flight="told",
        ),
        Client(
            "netcdf-http",
            "netcdf",
            "xarray over a file object of fsspec, by HTTP ranges of a signed address",
            _open_netcdf_by_http,
        ),
        Client(
            "cog-rasterio",
            "cog",
            "rasterio, a file after the other",
            rasters.open_rasters,
            packages=("rasterio",),
        ),
        Client(
            "cog-rasterio-threads",
            "cog",
            "rasterio, a thread a file",
            rasters.open_rasters_at_once,
            in_flight="told",
            packages=("rasterio",),
            is_overlapped=True,
        ),
        Client(
            "cog-async",
            "cog",
            "async-geotiff over obstore, all tiles of a file at once",
            rasters.open_rasters_async,
            in_flight="told",
            packages=("async_geotiff",),
        ),
        Client(
            "tiledb",
            "tiledb",
            "TileDB's own client, with as many operations in parallel as it is told",
            tiles.open_tiles,
            in_flight="told",
            packages=("tiledb",),
            is_overlapped=True,
        ),
        Client(
            "opendap-netcdf4",
            "opendap",
            "xarray through the netCDF library, which speaks DAP",
            opendap.open_by_netcdf4,
            packages=("pydap",),
        ),
        Client(
            "opendap-pydap",
            "opendap",
            "xarray through pydap",
            opendap.open_by_pydap,
            packages=("pydap",),
        ),
        Client(
            "references-parquet-obstore",
            "references-parquet",
            "xarray through VirtualiZarr and obstore",
            _open_references_parquet,
            in_flight="told",
            packages=("fastparquet",),
        ),
        Client(
            "icechunk-virtual",
            "icechunk-virtual",
            "xarray over an Icechunk session, its chunks those of the netCDF file",
            _open_icechunk_virtual,
            in_flight="told",
            packages=("icechunk",),
        ),
        Client(
            "references-obstore",
            "references",
            "xarray through VirtualiZarr and obstore",
            _open_by_xarray("references"),
            in_flight="told",
        ),
        Client(
            "zarr2-s3fs",
            "zarr2",
            "xarray through s3fs at its defaults",
            _open_zarr2,
            in_flight="default",
        ),
        Client(
            "zarr2-plain-s3fs",
            "zarr2-plain",
            "xarray through s3fs at its defaults",
            partial(_open_zarr2, is_consolidated=False),
            in_flight="default",
        ),
        Client(
            "zarr-s3fs",
            "zarr",
            "xarray through s3fs at its defaults of today",
            _open_by_xarray("zarr-s3fs"),
            in_flight="default",
        ),
        Client(
            "zarr-s3fs-one-get",
            "zarr",
            "xarray through s3fs with max_concurrency=1",
            _open_by_xarray("zarr-s3fs-one-get"),
            in_flight="default",
        ),
        Client(
            "zarr-obstore",
            "zarr",
            "xarray through obstore at zarr's defaults",
            _open_by_xarray("zarr-obstore"),
            in_flight="default",
        ),
        Client(
            "zarr-obstore-told",
            "zarr",
            "xarray through obstore, with async.concurrency as many as may be in flight",
            _open_by_xarray("zarr-obstore"),
            in_flight="told",
        ),
        Client(
            "zarr-obstore-fused",
            "zarr",
            "xarray through obstore, async.concurrency as told, and the codec pipeline of zarr-python that has to be asked for, FusedCodecPipeline",
            _open_by_xarray("zarr-obstore"),
            in_flight="told",
            zarr_config={"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"},
        ),
        Client(
            "zarr-dask",
            "zarr",
            "xarray with chunks={} through obstore: Dask, a task a chunk, a thread a processor",
            blocks.read_in(blocks.as_stored, "zarr-obstore"),
            in_flight="cores",
        ),
        Client(
            "zarr-dask-batches",
            "zarr",
            "xarray through obstore, in Dask's blocks of whole chunks, two along each dimension: several chunks a task",
            blocks.read_in(blocks.multiply, "zarr-obstore"),
            in_flight="default",
        ),
        Client(
            "zarr-zarrs",
            "zarr",
            "xarray through obstore and the zarrs codec pipeline, a thread a processor as it has by itself",
            _open_by_xarray("zarr-zarrs"),
            in_flight="cores",
            zarr_config=READERS["zarr-zarrs"].zarr_config,
        ),
        Client(
            "zarr-zarrs-told",
            "zarr",
            "xarray through obstore and the zarrs codec pipeline, with threading.max_workers as many as may be in flight",
            _open_by_xarray("zarr-zarrs"),
            in_flight="told",
            zarr_config=READERS["zarr-zarrs"].zarr_config,
            told=("async.concurrency", "threading.max_workers"),
        ),
        Client(
            "zarr-zarrista",
            "zarr",
            "zarrs with its own store through zarrista, which takes an obstore client",
            _open_zarrista,
            in_flight="told",
            packages=("zarrista",),
        ),
        Client(
            "zarr-tensorstore",
            "zarr",
            "TensorStore",
            _open_tensorstore,
            in_flight="told",
            is_overlapped=True,
            packages=("tensorstore",),
        ),
        Client(
            "zarr-in-place",
            "zarr",
            "xarray through obstore and our codec pipeline, each chunk decoded into its place",
            _open_by_xarray("zarr-obstore-in-place"),
            in_flight="told",
            is_overlapped=True,
            zarr_config=READERS["zarr-obstore-in-place"].zarr_config,
            is_ours=True,
        ),
        Client(
            "zarr-direct",
            "zarr",
            "our threads that fetch beside our threads that decode, helpers.arrays.direct",
            _open_ours,
            in_flight="told",
            is_overlapped=True,
            is_ours=True,
        ),
        Client(
            "shards-obstore",
            "shards",
            "xarray through obstore, async.concurrency as told",
            _open_by_xarray("zarr-obstore"),
            in_flight="told",
        ),
        Client(
            "shards-tensorstore",
            "shards",
            "TensorStore",
            _open_tensorstore,
            in_flight="told",
            is_overlapped=True,
            packages=("tensorstore",),
        ),
        Client(
            "icechunk",
            "icechunk",
            "xarray over an Icechunk session",
            _open_icechunk,
            in_flight="told",
            packages=("icechunk",),
        ),
    )
}
"""Every contender of the study, by name."""


def list_formats(names: Sequence[str]) -> list[str]:
    """List the formats that clients read, each once."""
    return list(dict.fromkeys(CLIENTS[name].format for name in names))
