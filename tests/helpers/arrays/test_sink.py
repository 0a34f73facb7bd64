"""Reads are cut into blocks of whole chunks, checked, and leave nothing open."""

from __future__ import annotations

import dataclasses
import gc
import warnings

import dask.array as da
import numpy as np
import pytest
from s3fs import S3FileSystem
from xarray.backends.file_manager import FILE_CACHE

from helpers.arrays.readers import READERS, forget_clients
from helpers.arrays.reads import (
    check_values,
    checksum_chunks,
    open_array,
    read_into_sink,
    task_block_shape,
)
from helpers.arrays.stores import StoredArray
from helpers.benchmark.contender import CheckError
from helpers.objectstore.testbed import Server
from tests.stores import make_location, make_stored


@pytest.fixture(scope="module")
def stored(server: Server) -> StoredArray:
    """Store the small array in every layout."""
    return make_stored(make_location(server, "workloads"))


@pytest.mark.parametrize(
    ("shape", "chunk_shape", "chunks_per_task", "block_shape"),
    [
        ((12, 50, 90), (1, 5, 90), 1, (1, 5, 90)),
        # the last dimension that has room is filled first
        ((12, 50, 90), (1, 5, 30), 3, (1, 5, 90)),
        ((12, 50, 90), (1, 5, 90), 4, (1, 20, 90)),
        # what is left over goes to the dimension before
        ((12, 50, 90), (1, 5, 90), 20, (2, 50, 90)),
        ((12, 50, 90), (1, 5, 90), 10_000, (12, 50, 90)),
        # a block is clipped to the array, as its last chunk is
        ((7, 10), (1, 4), 3, (1, 10)),
        ((7, 10), (1, 4), 6, (2, 10)),
        ((7, 10), (1, 4), 2, (1, 8)),
    ],
)
def test_block_shape(
    shape: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    chunks_per_task: int,
    block_shape: tuple[int, ...],
) -> None:
    """A block grows by whole chunks along the last dimensions first."""
    assert task_block_shape(shape, chunk_shape, chunks_per_task) == block_shape


def test_sink_has_one_checksum_a_chunk() -> None:
    """Blocks of several chunks give the checksums of the array cut into chunks."""
    values = np.random.default_rng(0).random((6, 10), np.float32)
    array = da.from_array(values, chunks=(2, 8))  # blocks of 2 by 2 chunks, the last clipped
    sums = read_into_sink(array, (1, 4))
    assert sums.shape == (6, 3)
    assert np.array_equal(sums.compute(scheduler="synchronous"), checksum_chunks(values, (1, 4)))


def test_a_wrong_chunk_is_named(stored: StoredArray) -> None:
    """The check passes what is right and says which chunk differs first."""
    assert check_values(stored.checksums, stored) == "xxh3 of 12 chunks"
    wrong = stored.checksums.copy()
    wrong[1, 1, 0, 0] += 1
    wrong[2, 0, 0, 1] += 1
    with pytest.raises(CheckError, match=r"^2 of 12 chunks differ .* at \(1, 1, 0, 0\)$"):
        check_values(wrong, stored)


def test_a_corner_is_read(stored: StoredArray) -> None:
    """An array described as smaller than it lies in the store is its corner."""
    corner = dataclasses.replace(
        stored, shape=(2, 4, 40, 50), checksums=stored.checksums[:2, :1, :, :1]
    )
    array = open_array(corner, READERS["zarr-obstore"])
    sums = read_into_sink(array, corner.chunk_shape).compute(scheduler="synchronous")
    assert check_values(sums, corner) == "xxh3 of 2 chunks"


@pytest.mark.parametrize("name", READERS)
def test_forgetting_leaves_nothing_open(stored: StoredArray, name: str) -> None:
    """After a read, forgetting closes clients, sessions and files without a warning."""
    reader = READERS[name]
    forget_clients(reader.zarr_config)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        array = open_array(stored, reader)
        read_into_sink(array, stored.chunk_shape).compute(scheduler="threads", num_workers=2)
        clients = list(S3FileSystem._cache.values())
        assert bool(clients) == (name.startswith("zarr-s3fs") or reader.layout == "netcdf")
        forget_clients({})
        assert all(client._s3 is None for client in clients)
        del array, clients
        gc.collect()
    assert [str(each.message) for each in caught if "nclosed" in str(each.message)] == []
    assert not S3FileSystem._cache
    assert not len(FILE_CACHE)
