"""Readers: the ways to open a layout as a Dask array, one line of a registry each."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import fsspec.asyn
import hdf5plugin  # noqa: F401  # teaches h5py to read Blosc, here and in every worker
import xarray as xr
import zarr
from s3fs import S3FileSystem
from virtualizarr.parsers import KerchunkJSONParser
from xarray.backends.file_manager import FILE_CACHE
from zarr.core.sync import sync
from zarr.storage import ObjectStore

from helpers.arrays.writers import Layout, expected_warning, make_registry
from helpers.objectstore.locations import REQUEST_S, SILENCE_S, Location

Chunks = Mapping[str, int] | None
"""Extent of a Dask block in elements, by dimension; empty for the stored chunks, None for no Dask."""


def _open_zarr(store: Any, **options: Any) -> xr.Dataset:
    dataset: xr.Dataset = xr.open_zarr(store, mask_and_scale=False, decode_times=False, **options)
    return dataset


def _open_with_fsspec(location: Location, chunks: Chunks, **options: Any) -> xr.Dataset:
    told = {**location.fsspec_options(), **options}
    return _open_zarr(location.url, storage_options=told, chunks=chunks)


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


@dataclass(frozen=True, slots=True)
class Reader:
    """A way to open a layout."""

    name: str  # name in parameter files, records and figures
    layout: Layout  # what it reads
    open: Callable[[Location, Chunks], xr.Dataset]
    description: str  # one line for readers of the book
    # whether one thread of a process reads at a time, as the HDF5 library's lock has it
    is_serial: bool = False
    needs_s3: bool = False  # whether its client reads no folder of a file system
    # settings of zarr in every process that reads
    zarr_config: Mapping[str, Any] = field(default_factory=dict)
    # seconds after which its client repeats a request: whole ones, or of silence in s3fs
    request_timeout_s: float = REQUEST_S


_ZARRS = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}

READERS: Mapping[str, Reader] = {
    reader.name: reader
    for reader in (
        Reader(
            "zarr-s3fs",
            "zarr",
            _open_with_fsspec,
            "Zarr v3 through s3fs at its defaults of today, a task a chunk: since 2026 it asks twice for a chunk",
            request_timeout_s=SILENCE_S,
            needs_s3=True,
        ),
        Reader(
            "zarr-s3fs-one-get",
            "zarr",
            partial(_open_with_fsspec, max_concurrency=1),
            "Zarr v3 through s3fs with max_concurrency=1, a task a chunk: one request for a chunk, as in 2020",
            request_timeout_s=SILENCE_S,
            needs_s3=True,
        ),
        Reader(
            "zarr-obstore", "zarr", _open_with_obstore, "Zarr v3 through obstore, a task a chunk"
        ),
        Reader(
            "zarr-zarrs",
            "zarr",
            _open_with_obstore,
            "Zarr v3 through obstore and the zarrs codec pipeline",
            zarr_config=_ZARRS,
            needs_s3=True,
        ),
        Reader(
            "netcdf-fsspec",
            "netcdf",
            _open_file_object,
            "netCDF-4 through an s3fs file object, its read-ahead to scale: the 2020 configuration",
            is_serial=True,
            request_timeout_s=SILENCE_S,
        ),
        Reader(
            "references",
            "references",
            _open_references,
            "kerchunk references to the netCDF-4 file, read by VirtualiZarr through obstore",
            needs_s3=True,
        ),
    )
}
"""Every contender of the book, by name."""


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
