"""Clients: who reads which format, in the lines that a user would write."""

from __future__ import annotations

import importlib.util
import inspect
import warnings
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

from helpers.arrays.readers import READERS
from helpers.arrays.stores import StoredArray
from helpers.benchmark.provenance import n_cores
from helpers.errors import UserError
from helpers.objectstore.locations import Location
from studies.formats import columns, rasters, tiles, virtual
from studies.formats.source import Box, Read, Values

Open = Callable[[Location, StoredArray, int], Read]
"""From a format's folder, the array, and the requests in flight that it may have."""

_AS_STORED: dict[str, Any] = {"mask_and_scale": False, "decode_times": False}
_SIGNED_FOR = timedelta(hours=1)
_PART_NBYTES = 4 * 2**20  # of a file that is fetched whole, in ranges
_ZARR_DEFAULT = 10  # `async.concurrency` of zarr, and the connections of botocore


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
    """Let xarray make the file object, as happens where an address is passed."""
    url, options = f"{folder.url}/array.nc", folder.fsspec_options()
    dataset = xr.open_dataset(url, engine="h5netcdf", storage_options=options, **_AS_STORED)
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


def _open_shared(folder: Location, stored: StoredArray, n_requests: int, *, reader: str) -> Read:
    """Read as a reader of cluster scaling does, but with no Dask: one call of xarray."""
    variable = READERS[reader].open(folder, None, n_requests)[stored.variable]
    return lambda box: variable[box].to_numpy()


def choose_block(shape: Sequence[int], chunk_shape: Sequence[int], times: float) -> tuple[int, ...]:
    """Choose a block of Dask: so many chunks along each dimension, as far as there are.

    A part of a chunk is added along one dimension alone, so that blocks cut chunks there.

    Examples
    --------
    >>> choose_block((8, 20, 320), (1, 5, 320), 2), choose_block((8, 20, 320), (1, 5, 320), 1.5)
    ((2, 10, 320), (1, 7, 320))
    """
    if times == int(times):
        return tuple(min(int(times * c), n) for n, c in zip(shape, chunk_shape, strict=True))
    for i, (n, c) in enumerate(zip(shape, chunk_shape, strict=True)):
        if 1 < c < n:
            return (*chunk_shape[:i], min(int(times * c), n), *chunk_shape[i + 1 :])
    raise UserError(
        f"chunk_shape: {list(chunk_shape)} with blocks of {times:g} chunks; allowed: with an extent"
        f" above 1 and below that of array_shape {list(shape)}"
    )


def _open_in_blocks(
    folder: Location, stored: StoredArray, n_requests: int, *, reader: str, times: float
) -> Read:
    """Read in Dask's blocks of so many chunks, on as many threads as there are processors."""
    block = choose_block(stored.shape, stored.chunk_shape, times)
    blocks = dict(zip(stored.dimensions, block, strict=True))
    with warnings.catch_warnings():
        # xarray says of blocks that cut chunks what is measured here
        warnings.filterwarnings("ignore", "The specified chunks separate", UserWarning)
        variable = READERS[reader].open(folder, blocks, n_requests)[stored.variable]
    return lambda box: variable[box].to_numpy()


def _open_zarr2(
    folder: Location, stored: StoredArray, n_requests: int, *, is_consolidated: bool = True
) -> Read:
    how: dict[str, Any] = {"consolidated": is_consolidated, "chunks": None, **_AS_STORED}
    dataset = xr.open_zarr(folder.url, storage_options=folder.fsspec_options(), **how)
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


def _open_icechunk(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    import icechunk  # an extra that not everyone has

    session = icechunk.Repository.open(folder.icechunk_storage()).readonly_session("main")
    how: dict[str, Any] = {"consolidated": False, "zarr_format": 3, "chunks": None, **_AS_STORED}
    dataset = xr.open_zarr(session.store, **how)
    return lambda box: dataset[stored.variable][box].to_numpy()


@dataclass(frozen=True, slots=True)
class Client:
    """Who reads a format."""

    name: str  # its format, then who reads
    format: str
    description: str
    open: Open
    # requests in flight: one, one for each processor, zarr's default, or as many as it is told
    in_flight: Literal["one", "cores", "default", "told"] = "one"
    packages: tuple[str, ...] = ()  # that have to be installed
    zarr_config: Mapping[str, Any] = field(default_factory=dict)
    # whether a connection goes on while the chunk it brought is decoded
    is_overlapped: bool = False

    @property
    def label(self) -> str:
        """What a reader would say, as in "Zarr, s3fs one request"."""
        head, _, rest = self.name.partition("-")
        words = " ".join(_WORDS.get(word, word) for word in rest.split("-"))
        return f"{_HEADS[head]}, {words}" if words else _HEADS[head]

    def n_in_flight(self, n_requests: int) -> int:
        """Count the requests that it may have in flight."""
        known = {"one": 1, "cores": n_cores(), "default": _ZARR_DEFAULT, "told": n_requests}
        return known[self.in_flight]

    def config(self, n_requests: int) -> dict[str, Any]:
        """Return the settings of zarr with which it reads."""
        number = {"async.concurrency": n_requests} if self.in_flight == "told" else {}
        return {**number, **self.zarr_config}

    def missing(self) -> list[str]:
        """List the packages that it needs and that are not there."""
        return [name for name in self.packages if importlib.util.find_spec(name) is None]

    def show_code(self) -> str:
        """Show the function that opens its format, as it is measured, and what is passed to it."""
        given = getattr(self.open, "keywords", {})
        lines = [f"# with {name}={value!r}\n" for name, value in given.items()]
        lines += [f"# with {name} = {value!r}\n" for name, value in self.zarr_config.items()]
        shown = [self.open, *([READERS[given["reader"]].open] if "reader" in given else [])]
        return "".join(lines) + "\n".join(map(_show, shown))


def _show(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return inspect.getsource(function)


_HEADS = {
    "csv": "CSV",
    "parquet": "Parquet",
    "netcdf3": "netCDF classic",
    "netcdf": "netCDF",
    "references": "references",
    "cog": "COG",
    "tiledb": "TileDB",
    "zarr2": "Zarr v2",
    "zarr": "Zarr",
    "shards": "Zarr shards",
    "icechunk": "Icechunk",
}
_WORDS = {"get": "request", "dask": "Dask", "tensorstore": "TensorStore", "arrow": "Arrow"}


def _shared(reader: str) -> Open:
    return partial(_open_shared, reader=reader)


def _blocks(reader: str, times: float) -> Open:
    return partial(_open_in_blocks, reader=reader, times=times)


_FUSED = {"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"}
_NETCDF_BLOCKS = "xarray over a file object that reads 64 KiB ahead, in Dask's blocks"

# A table, a row each.
# fmt: off
CLIENTS: Mapping[str, Client] = {client.name: client for client in (
    Client("csv-pandas", "csv", "pandas over s3fs, all of it whatever is asked", columns.open_csv),
    Client("csv-parts-pandas", "csv-parts", "pandas over s3fs, a file after the other", columns.open_csv_parts),
    Client("parquet-pandas", "parquet", "pandas over s3fs, all of it whatever is asked", columns.open_parquet),
    Client("parquet-groups", "parquet", "Arrow's own S3 client, the row groups that are asked for", columns.open_groups, "default"),
    Client("parquet-arrow", "parquet-parts", "Arrow's own S3 client, file by file", columns.open_parts, "default"),
    Client("netcdf3-scipy", "netcdf3", "xarray over a file object of s3fs", partial(_open_netcdf, engine="scipy")),
    Client("netcdf-s3fs", "netcdf", "xarray over a file object of s3fs", partial(_open_netcdf, engine="h5netcdf")),
    Client("netcdf-xarray", "netcdf", "xarray given the address alone", _open_netcdf_by_address),
    Client("netcdf-whole", "netcdf", "the whole file by obstore in ranges, then xarray in memory", _open_netcdf_whole, "told"),
    Client("netcdf-http", "netcdf", "xarray over fsspec, by HTTP ranges of a signed address", _open_netcdf_by_http),
    Client("netcdf-dask-equal", "netcdf", f"{_NETCDF_BLOCKS} of a chunk", _blocks(reader="netcdf-fsspec", times=1)),
    Client("netcdf-dask-multiple", "netcdf", f"{_NETCDF_BLOCKS} of two chunks along each dimension", _blocks(reader="netcdf-fsspec", times=2)),
    Client("netcdf-dask-unaligned", "netcdf", f"{_NETCDF_BLOCKS} that cut chunks in two", _blocks(reader="netcdf-fsspec", times=1.5)),
    Client("references-obstore", "references", "xarray through VirtualiZarr and obstore", _shared(reader="references"), "told"),
    Client("references-parquet-obstore", "references-parquet", "xarray through VirtualiZarr and obstore", virtual.open_references, "told", ("fastparquet",)),
    Client("icechunk-virtual", "icechunk-virtual", "xarray over an Icechunk session, its chunks those of the netCDF file", virtual.open_icechunk, "told", ("icechunk",)),
    Client("cog-rasterio", "cog", "rasterio, a file after the other", partial(rasters.open_rasters, is_parallel=False), "one", ("rasterio",)),
    Client("cog-rasterio-threads", "cog", "rasterio, a thread a file", partial(rasters.open_rasters, is_parallel=True), "told", ("rasterio",), is_overlapped=True),
    Client("cog-async", "cog", "async-geotiff over obstore, all tiles of a file at once", rasters.open_rasters_async, "told", ("async_geotiff",)),
    Client("tiledb", "tiledb", "TileDB's own client, told how many operations it may have", tiles.open_tiles, "told", ("tiledb",), is_overlapped=True),
    Client("zarr2-s3fs", "zarr2", "xarray through s3fs at its defaults", _open_zarr2, "default"),
    Client("zarr2-plain-s3fs", "zarr2-plain", "xarray through s3fs at its defaults", partial(_open_zarr2, is_consolidated=False), "default"),
    Client("zarr-s3fs", "zarr", "xarray through s3fs at its defaults of today", _shared(reader="zarr-s3fs"), "default"),
    Client("zarr-s3fs-one-get", "zarr", "xarray through s3fs with max_concurrency=1", _shared(reader="zarr-s3fs-one-get"), "default"),
    Client("zarr-obstore", "zarr", "xarray through obstore at zarr's defaults", _shared(reader="zarr-obstore"), "default"),
    Client("zarr-obstore-told", "zarr", "xarray through obstore, told how many requests it may have", _shared(reader="zarr-obstore"), "told"),
    Client("zarr-obstore-fused", "zarr", "the same with FusedCodecPipeline, which has to be asked for", _shared(reader="zarr-obstore"), "told", zarr_config=_FUSED),
    Client("zarr-dask", "zarr", "xarray through obstore in Dask: a task a chunk, a thread a processor", _blocks(reader="zarr-obstore", times=1), "cores"),
    Client("zarr-dask-batches", "zarr", "xarray through obstore in Dask: two chunks along each dimension a task", _blocks(reader="zarr-obstore", times=2), "default"),
    Client("zarr-zarrs", "zarr", "xarray through obstore and the zarrs codec pipeline, a thread a processor", _shared(reader="zarr-zarrs"), "cores", zarr_config=READERS["zarr-zarrs"].zarr_config),
    Client("zarr-zarrista", "zarr", "zarrs with its own store through zarrista, which takes an obstore client", _open_zarrista, "told", ("zarrista",)),
    Client("zarr-tensorstore", "zarr", "TensorStore", _open_tensorstore, "told", ("tensorstore",), is_overlapped=True),
    Client("shards-obstore", "shards", "xarray through obstore, told how many requests it may have", _shared(reader="zarr-obstore"), "told"),
    Client("shards-tensorstore", "shards", "TensorStore", _open_tensorstore, "told", ("tensorstore",), is_overlapped=True),
    Client("icechunk", "icechunk", "xarray over an Icechunk session", _open_icechunk, "told", ("icechunk",)),
)}
# fmt: on
"""Every contender of the study, by name."""


LABELS: Mapping[str, str] = {client.name: client.label for client in CLIENTS.values()}
"""What a page calls each contender."""


def list_formats(names: Sequence[str]) -> list[str]:
    """List the formats that clients read, each once."""
    return list(dict.fromkeys(CLIENTS[name].format for name in names))
