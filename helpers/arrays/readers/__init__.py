"""Layouts: what lies in the store, how an array is written in each, and the ways to open one as a Dask array.

A *layout* is a Zarr group, a netCDF file, or references to that file. Blocks
arrive one after the other, so an array of any size costs the memory of a few.
A reader registers itself here, or in a module of its own in this folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import fsspec.asyn

# before netCDF4, whose own HDF5 would keep filters out of h5py; it teaches that to read Blosc, in every worker
import hdf5plugin  # noqa: F401
import netCDF4
import numpy as np
import obstore
import virtualizarr
import xarray as xr
import zarr
from numpy.typing import NDArray
from obspec_utils.registry import ObjectStoreRegistry
from s3fs import S3FileSystem
from virtualizarr.parsers import HDFParser, KerchunkJSONParser
from xarray.backends.file_manager import FILE_CACHE
from zarr.core.sync import sync
from zarr.storage import ObjectStore

from helpers.arrays.fields import FILL
from helpers.plotting import palette
from helpers.registry import Registry
from wire.bed.locations import REQUEST_S, SILENCE_S, Location
from wire.clients import CLIENTS

DIMENSIONS = ("time", "depth", "y", "x")

Codec = Literal["none", "blosc-lz4", "blosc-zstd"]
CODECS: tuple[Codec, ...] = ("none", "blosc-lz4", "blosc-zstd")
"""Codecs that Zarr and HDF5 both read, so that contenders share them."""

Layout = Literal["zarr", "netcdf", "references", "opendap"]
"""What lies in a store, and what a server makes of it for those who ask by OPeNDAP."""
LAYOUTS: tuple[Layout, ...] = ("zarr", "netcdf", "references")
"""Layouts in the order in which they are written: references need their file."""

Block = tuple[slice, ...]
"""Half-open bounds in elements, one slice for each dimension."""

Blocks = Callable[[], Iterator[tuple[Block, NDArray[np.float32]]]]
"""Where the values come from: each chunk once, when it is asked for."""

_PART_NBYTES = 16 * 2**20  # of an upload
_N_PARTS = 2  # in memory at a time; obstore's default of 12 would grow with the file to 200 MB
BLOSC_LEVEL = 5


def iterate_blocks(shape: tuple[int, ...], chunk_shape: tuple[int, ...]) -> Iterator[Block]:
    """Yield the slices of each chunk, the last dimension fastest."""
    starts = [range(0, n, c) for n, c in zip(shape, chunk_shape, strict=True)]
    for corner in itertools.product(*starts):
        yield tuple(
            slice(i, min(i + c, n)) for i, c, n in zip(corner, chunk_shape, shape, strict=True)
        )


def create_zarr(
    store: Any,
    *,
    variable: str,
    shape: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    codec: Codec,
    shard_shape: tuple[int, ...] | None = None,
) -> Any:
    """Create an array in a Zarr v3 group; what an interrupted write has left there is deleted."""
    compressor, name = None, codec.removeprefix("blosc-")
    if codec != "none":
        settings: Any = {"cname": name, "clevel": BLOSC_LEVEL, "shuffle": "shuffle", "typesize": 4}
        compressor = zarr.codecs.BloscCodec(**settings)
    return zarr.create_group(store, overwrite=True, zarr_format=3).create_array(
        variable,
        shape=shape,
        chunks=chunk_shape,
        shards=shard_shape,
        dtype="float32",
        compressors=compressor,
        fill_value=float(FILL),
        dimension_names=DIMENSIONS,
        config={"write_empty_chunks": True},
    )


def write_zarr(location: Location, blocks: Blocks, **array: Any) -> None:
    """Write blocks to an array of `create_zarr`, a chunk an object, with consolidated metadata."""
    store = ObjectStore(location.obstore())
    created = create_zarr(store, **array)
    for block, values in blocks():
        created[block] = values
    with expected_warning("Consolidated metadata is currently not part"):
        zarr.consolidate_metadata(store)


def write_netcdf(
    location: Location,
    blocks: Blocks,
    *,
    variable: str,
    shape: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    codec: Codec,
) -> None:
    """Write blocks as one netCDF-4 file, ``array.nc``, and upload it in parts.

    The file is made on local disk first, because HDF5 writes in no order, and
    by the netCDF library: with h5py, Blosc fails to write in a process that
    has imported netCDF4 before, which brings an HDF5 of its own.
    """
    filters: dict[str, Any] = {"complevel": BLOSC_LEVEL, "blosc_shuffle": 1}  # of bytes
    filters["compression"] = None if codec == "none" else codec.replace("-", "_")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "array.nc"
        with netCDF4.Dataset(path, "w") as file:
            for name, extent in zip(DIMENSIONS, shape, strict=True):
                file.createDimension(name, extent)
            target = file.createVariable(
                variable,
                "f4",
                DIMENSIONS,
                chunksizes=chunk_shape,
                fill_value=FILL,
                **filters,
            )
            for block, values in blocks():
                target[block] = values
        obstore.put(
            location.obstore(), "array.nc", path, chunk_size=_PART_NBYTES, max_concurrency=_N_PARTS
        )


WRITERS: Mapping[str, Callable[..., None]] = {"zarr": write_zarr, "netcdf": write_netcdf}
"""Layouts that are written block by block."""


def put_folder(source: Path, into: Location) -> None:
    """Put all files of a folder of this machine below a location, under the same names."""
    client = into.obstore()
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        obstore.put(client, path.relative_to(source).as_posix(), path)


def open_virtual(netcdf: Location, variable: str) -> xr.Dataset:
    """Open the netCDF file at `netcdf` as the places of its chunks."""
    with expected_warning("Numcodecs codecs are not in the Zarr version 3"):
        dataset = virtualizarr.open_virtual_dataset(
            f"{netcdf.url}/array.nc",
            registry=make_registry(netcdf),
            parser=HDFParser(),
            loadable_variables=[],
        )
    return dataset[[variable]]


def write_references(location: Location, netcdf: Location, *, variable: str) -> None:
    """Write kerchunk references, ``references.json``, to the netCDF file at `netcdf`."""
    references = open_virtual(netcdf, variable).vz.to_kerchunk(format="dict")
    text = json.dumps(references, default=bytes.decode)
    obstore.put(location.obstore(), "references.json", text.encode())


@contextlib.contextmanager
def expected_warning(message: str) -> Iterator[None]:
    """Keep out of the notebooks what a library says of a choice that the book makes and explains."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message, UserWarning)
        yield


def make_registry(location: Location) -> ObjectStoreRegistry[Any]:
    """Tell VirtualiZarr by which client the bucket of a location is reached."""
    bucket = dataclasses.replace(location, prefix="")
    return ObjectStoreRegistry({bucket.url: bucket.obstore()})


Chunks = Mapping[str, int] | None
"""Extent of a Dask block in elements, by dimension; empty for the stored chunks, None for no Dask."""


def _open_zarr(store: Any, **options: Any) -> xr.Dataset:
    dataset: xr.Dataset = xr.open_zarr(store, mask_and_scale=False, decode_times=False, **options)
    return dataset


def _open_with_fsspec(location: Location, chunks: Chunks, **options: Any) -> xr.Dataset:
    storage_options = {**location.fsspec_options(), **options}
    return _open_zarr(location.url, storage_options=storage_options, chunks=chunks)


def _open_with_obstore(location: Location, chunks: Chunks) -> xr.Dataset:
    return _open_zarr(ObjectStore(location.obstore(), read_only=True), chunks=chunks)


# Bytes that a file object reads beyond what is asked, to scale: the study of 2020 read chunks of
# 194 MB with fsspec's default of then, 5 MiB, and the chunks here are of some 1.6 MB.
_SCALED_READ_AHEAD_NBYTES = 64 * 2**10


def _open_file_object(location: Location, chunks: Chunks) -> xr.Dataset:
    path = f"{location.path}/array.nc"
    file = location.fsspec().open(path, block_size=_SCALED_READ_AHEAD_NBYTES)
    return xr.open_dataset(
        file, engine="h5netcdf", mask_and_scale=False, decode_times=False, chunks=chunks
    )


def _open_references(location: Location, chunks: Chunks) -> xr.Dataset:
    with expected_warning("Numcodecs codecs are not in the Zarr version 3"):
        store = KerchunkJSONParser()(f"{location.url}/references.json", make_registry(location))
        return _open_zarr(store, consolidated=False, zarr_format=3, chunks=chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayReader:
    """A way to open a layout as a dataset, whose chunks Dask or one thread reads."""

    name: str  # name in parameter files, records and figures
    label: str  # on pages
    color: str  # in figures, with its marker
    marker: str
    layout: Layout  # what it reads
    open: Callable[[Location, Chunks], xr.Dataset]
    description: str  # one line for readers of the book
    packages: tuple[str, ...]  # that it imports, whose versions decide what it does
    concurrency: int = 10  # concurrent requests of one process without Dask; that of zarr
    # whether one thread of a process reads at a time, as the HDF5 library's lock has it
    is_serial: bool = False
    needs_s3: bool = False  # whether its client reads no folder of a file system
    # settings of zarr in every process that reads
    zarr_config: Mapping[str, Any] = field(default_factory=dict)
    # seconds after which its client repeats a request: whole ones, or of silence in s3fs
    request_timeout_s: float = REQUEST_S

    def read(self, array: xr.DataArray, block: Block) -> NDArray[np.float32]:
        """Read a part of a variable that is open into memory."""
        values: NDArray[np.float32] = array[block].to_numpy()
        return values


READERS: Registry[ArrayReader] = Registry("reader", __name__)
"""Every reader of arrays, by name; a module in this folder adds another."""


def _describe(name: str) -> dict[str, Any]:
    """Return what is known of a client that ``wire decide`` recommends or compares too."""
    facts = CLIENTS[name]
    return {
        "name": name,
        "label": facts.label,
        "packages": facts.packages,
        "concurrency": facts.concurrency,
    }


READERS.register(
    ArrayReader(
        **_describe("zarr-s3fs"),
        color=palette.BLUE,
        marker="o",
        layout="zarr",
        open=_open_with_fsspec,
        description="Zarr v3 through s3fs at its defaults of today, a task a chunk: since 2026 it asks twice for a chunk",
        request_timeout_s=SILENCE_S,
        needs_s3=True,
    ),
    ArrayReader(
        **_describe("zarr-s3fs-one-get"),
        color=palette.RED,
        marker="p",
        layout="zarr",
        open=partial(_open_with_fsspec, max_concurrency=1),
        description="Zarr v3 through s3fs with max_concurrency=1, a task a chunk: one request for a chunk, as in 2020",
        request_timeout_s=SILENCE_S,
        needs_s3=True,
    ),
    ArrayReader(
        **_describe("zarr-obstore"),
        color=palette.GREEN,
        marker="s",
        layout="zarr",
        open=_open_with_obstore,
        description="Zarr v3 through obstore, a task a chunk",
    ),
    ArrayReader(
        **_describe("zarr-zarrs"),
        color=palette.PLUM,
        marker="^",
        layout="zarr",
        open=_open_with_obstore,
        description="Zarr v3 through obstore and the zarrs codec pipeline",
        zarr_config={"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"},
        needs_s3=True,
    ),
    ArrayReader(
        name="netcdf-fsspec",
        label="netCDF, s3fs",
        color=palette.BROWN,
        marker="v",
        layout="netcdf",
        open=_open_file_object,
        description="netCDF-4 through an s3fs file object, its read-ahead to scale: the 2020 configuration",
        packages=("h5netcdf", "s3fs"),
        concurrency=1,
        is_serial=True,
        request_timeout_s=SILENCE_S,
    ),
    ArrayReader(
        **(_describe("references") | {"label": "references to netCDF"}),
        color=palette.INDIGO,
        marker="h",
        layout="references",
        open=_open_references,
        description="kerchunk references to the netCDF-4 file, read by VirtualiZarr through obstore",
        needs_s3=True,
    ),
)


def forget_clients(zarr_config: Mapping[str, Any]) -> None:
    """Make a process cold: no client, nothing cached, and these settings of zarr alone."""
    forget_data(zarr_config)
    for client in S3FileSystem._cache.values():
        if client._s3 is not None:  # what s3fs would leave to the garbage collector
            leave = client._s3creator.__aexit__  # on the loop that opened it
            if client.asynchronous:
                sync(leave(None, None, None))
            else:
                fsspec.asyn.sync(client.loop, leave, None, None, None)
            client._s3 = None
    S3FileSystem.clear_instance_cache()


def forget_data(zarr_config: Mapping[str, Any]) -> None:
    """Forget files, listings and settings, but leave clients connected.

    A worker makes its clients once in its life, which costs s3fs a tenth of a
    second of processor time: nothing in a read of minutes, much in one of
    seconds. So workers that have read before keep them.
    """
    FILE_CACHE.clear()
    for client in S3FileSystem._cache.values():
        client.invalidate_cache()
    # zarrs says at each unpickling that a process has its own connections, as it should
    warnings.filterwarnings("ignore", "Successfully reconstructed a store", RuntimeWarning)
    zarr.config.reset()
    zarr.config.set(zarr_config)


def forget_pages(folder: str) -> None:
    """Ask the kernel of this node to forget the pages of each file below a folder.

    It reaches no cache of another node, of the file system's servers, or of disks.
    """
    for path in Path(folder).rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
