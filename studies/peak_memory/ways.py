"""Ways to read whose memory is compared: each returns the values that it was asked for."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import dask
import dask.array
import fsspec
import h5py
import numpy as np
import obstore
import zarr
from numpy.typing import NDArray
from zarr.storage import ObjectStore

from wire.bed.locations import Location

Asked = Literal["the whole array", "its maximum", "one chunk", "one chunk of a file"]
Values = NDArray[np.float32]

ZARR, SHARDS, FILE = "array.zarr", "shards.zarr", "array.h5"
"""Names of the layouts in the store: the same values in chunks, in shards of eight chunks, and in HDF5."""
VARIABLE = "temperature"
_RANGE_NBYTES = 8 * 2**20
_N_RANGES = 10


@dataclass(frozen=True, slots=True)
class Way:
    """One way to read."""

    label: str  # what readers call it
    code: str  # the call, as a program has it
    layout: str  # which of the layouts it reads
    asked: Asked
    read: Callable[[Location], Values]


def open_array(place: Location, layout: str) -> zarr.Array[Any]:
    """Open a layout of Zarr through obstore, at its defaults."""
    store = ObjectStore((place / layout).obstore(), read_only=True)
    return zarr.open_array(store, mode="r")


def read_whole(place: Location, concurrency: int) -> Values:
    """Read the whole array with so many concurrent requests."""
    with zarr.config.set({"async.concurrency": concurrency}):
        return np.asarray(open_array(place, ZARR)[:])


def read_maximum(place: Location, n_threads: int) -> Values:
    """Compute the maximum of the array over its first axis by Dask, with so many threads."""
    blocks = dask.array.from_zarr(open_array(place, ZARR))  # type: ignore[no-untyped-call]
    with dask.config.set(scheduler="threads", num_workers=n_threads):
        return np.asarray(blocks.max(axis=0).compute())


def read_shard(place: Location) -> Values:
    """Read one chunk of a shard by ranges."""
    return np.asarray(open_array(place, SHARDS)[0])


def read_mapper(place: Location) -> Values:
    """Read one chunk of a shard through the mapping of fsspec."""
    filesystem = fsspec.filesystem("s3", **place.fsspec_options())
    mapper = filesystem.get_mapper(f"{place.path}/{SHARDS}")
    return np.asarray(zarr.open_array(mapper, mode="r")[0])


def read_buffer(place: Location) -> Values:
    """Fetch a file in parallel ranges into one buffer, and read a chunk of it."""
    store = place.obstore()
    n_bytes = obstore.head(store, FILE)["size"]
    content = io.BytesIO()
    content.seek(n_bytes - 1)
    content.write(b"\0")

    def fetch(start: int) -> None:
        end = min(start + _RANGE_NBYTES, n_bytes)
        buffer[start:end] = obstore.get_range(store, FILE, start=start, end=end)

    with content.getbuffer() as buffer, ThreadPoolExecutor(_N_RANGES) as pool:
        list(pool.map(fetch, range(0, n_bytes, _RANGE_NBYTES)))
    return _read_step(content)


def read_joined(place: Location) -> Values:
    """Fetch a file in parallel ranges, join them, and read a chunk of it."""
    store = place.obstore()
    n_bytes = obstore.head(store, FILE)["size"]

    def fetch(start: int) -> bytes:
        end = min(start + _RANGE_NBYTES, n_bytes)
        return bytes(obstore.get_range(store, FILE, start=start, end=end))

    with ThreadPoolExecutor(_N_RANGES) as pool:
        parts = list(pool.map(fetch, range(0, n_bytes, _RANGE_NBYTES)))
    return _read_step(io.BytesIO(b"".join(parts)))


def read_file_object(place: Location) -> Values:
    """Read a chunk of a file through `s3fs.open` at its defaults."""
    filesystem = fsspec.filesystem("s3", **place.fsspec_options())
    with filesystem.open(f"{place.path}/{FILE}") as file:
        return _read_step(file)


def _read_step(file: Any) -> Values:
    with h5py.File(file) as opened:
        return np.asarray(opened[VARIABLE][0])


WAYS: Mapping[str, Way] = {
    "whole-10": Way(
        "Zarr, 10 concurrent requests",
        "zarr.open_array(store)[:]",
        ZARR,
        "the whole array",
        lambda place: read_whole(place, 10),
    ),
    "whole-128": Way(
        "Zarr, 128 concurrent requests",
        'zarr.config.set({"async.concurrency": 128})',
        ZARR,
        "the whole array",
        lambda place: read_whole(place, 128),
    ),
    "maximum-2": Way(
        "Dask, 2 threads",
        'dask.config.set(scheduler="threads", num_workers=2)',
        ZARR,
        "its maximum",
        lambda place: read_maximum(place, 2),
    ),
    "maximum-16": Way(
        "Dask, 16 threads",
        'dask.config.set(scheduler="threads", num_workers=16)',
        ZARR,
        "its maximum",
        lambda place: read_maximum(place, 16),
    ),
    "shard-ranges": Way(
        "shard through obstore",
        "zarr.open_array(ObjectStore(store))[0]",
        SHARDS,
        "one chunk",
        read_shard,
    ),
    "shard-mapper": Way(
        "shard through fsspec.get_mapper",
        "zarr.open_array(s3fs.S3FileSystem().get_mapper(path))[0]",
        SHARDS,
        "one chunk",
        read_mapper,
    ),
    "file-buffer": Way(
        "download, ranges in one buffer",
        "the recipe",
        FILE,
        "one chunk of a file",
        read_buffer,
    ),
    "file-joined": Way(
        "download, ranges joined",
        'io.BytesIO(b"".join(parts))',
        FILE,
        "one chunk of a file",
        read_joined,
    ),
    "file-object": Way(
        "s3fs.open",
        "h5py.File(s3fs.S3FileSystem().open(path))",
        FILE,
        "one chunk of a file",
        read_file_object,
    ),
}
"""Ways to read by name, in the order of the page."""
