"""Arrays read into a sink that checks every chunk and keeps none."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import dask.array as da
import fsspec.asyn
import numpy as np
import zarr
from numpy.typing import NDArray
from s3fs import S3FileSystem
from xarray.backends.file_manager import FILE_CACHE
from zarr.core.sync import sync

from helpers.arrays import readers, writers
from helpers.arrays.stores import StoredArray, checksum


class WrongValuesError(RuntimeError):
    """A read returned other values than were written."""


def open_array(
    stored: StoredArray, reader: readers.Reader, *, n_connections: int = 8, chunks_per_task: int = 1
) -> da.Array:
    """Open a stored array as a Dask array in blocks that suit the reader."""
    n_chunks = chunks_per_task if reader.is_batched else 1
    block_shape = task_block_shape(stored.shape, stored.chunk_shape, n_chunks)
    chunks = dict(zip(stored.dimensions, block_shape, strict=True))
    dataset = reader.open(stored.at(reader.layout), chunks, n_connections)
    corner = tuple(slice(n) for n in stored.shape)
    array: da.Array = dataset[stored.variable].data[corner]
    return array


def task_block_shape(
    shape: tuple[int, ...], chunk_shape: tuple[int, ...], chunks_per_task: int
) -> tuple[int, ...]:
    """Grow a chunk into a block of whole chunks, along the last dimensions first.

    Examples
    --------
    >>> task_block_shape((12, 50, 90, 180), (1, 5, 90, 180), 4)
    (1, 20, 90, 180)
    """
    block, room = list(chunk_shape), chunks_per_task
    for dimension in reversed(range(len(shape))):
        n_chunks = -(-shape[dimension] // chunk_shape[dimension])
        taken = min(room, n_chunks)
        block[dimension] = min(taken * chunk_shape[dimension], shape[dimension])
        room //= taken
    return tuple(block)


def read_into_sink(array: da.Array, chunk_shape: tuple[int, ...]) -> da.Array:
    """Describe a read of the whole array that keeps nothing but checksums.

    Each task reads its block, computes the XXH3 of each stored chunk in it
    and throws the block away, so that memory holds the blocks in flight only,
    and every measured read can be checked against what was written.
    """
    n_per_block = [
        tuple(-(-n // c) for n in extents)
        for extents, c in zip(array.chunks, chunk_shape, strict=True)
    ]
    sums: da.Array = array.map_blocks(
        checksum_chunks,  # type: ignore[arg-type]  # dask means the blocks of what it calls Array
        chunk_shape,
        dtype=np.uint64,
        chunks=n_per_block,
        meta=np.empty((0,) * array.ndim, np.uint64),
    )
    return sums


def checksum_chunks(block: NDArray[np.float32], chunk_shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """Compute the XXH3 of each chunk in a block of whole chunks."""
    grid = tuple(-(-n // c) for n, c in zip(block.shape, chunk_shape, strict=True))
    sums = [checksum(block[part]) for part in writers.iterate_blocks(block.shape, chunk_shape)]
    return np.asarray(sums, np.uint64).reshape(grid)


def check_values(checksums: NDArray[np.uint64], stored: StoredArray) -> str:
    """Compare the checksums of a read with those of what was written."""
    wrong = np.argwhere(checksums != stored.checksums)
    if len(wrong):
        raise WrongValuesError(
            f"{len(wrong)} of {stored.n_chunks} chunks differ from what was written,"
            f" first at {tuple(int(i) for i in wrong[0])}"
        )
    return f"xxh3 of {stored.n_chunks} chunks"


def forget_clients(zarr_config: Mapping[str, Any]) -> None:
    """Make a process cold: no client, nothing cached, and these settings of zarr alone."""
    forget_data(zarr_config)
    for client in S3FileSystem._cache.values():
        _close_connections(client)
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


def _close_connections(client: S3FileSystem) -> None:
    """Close what s3fs would leave to the garbage collector, on the loop that opened it."""
    if client._s3 is None:
        return
    if client.asynchronous:
        sync(client._s3creator.__aexit__(None, None, None))
    else:
        fsspec.asyn.sync(client.loop, client._s3creator.__aexit__, None, None, None)
    client._s3 = None
