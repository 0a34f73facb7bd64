"""Where the chunks of a dataset lie, and in which pieces the library reads them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import h5py

CHUNK_CACHE_NBYTES = 8 * 2**20
"""Chunk cache for each dataset; an uncompressed chunk that is larger is read row by row."""


def iterate_chunks(dataset: h5py.Dataset) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Give the corner, the offset and the bytes of each stored chunk.

    Parameters
    ----------
    dataset : h5py.Dataset
        Any; one that is not chunked is one chunk, an empty or virtual one none.

    Yields
    ------
    tuple
        Index of the first element, offset in the file, stored bytes; sorted by the index.
    """
    if dataset.chunks is None:
        offset = dataset.id.get_offset()
        nbytes = dataset.id.get_storage_size()
        if offset is not None and nbytes:
            yield (0,) * dataset.ndim, offset, nbytes
        return
    found: list[tuple[tuple[int, ...], int, int]] = []
    dataset.id.chunk_iter(
        lambda info: found.append((info.chunk_offset, info.byte_offset, info.size))
    )
    yield from sorted(found)


def iterate_raw_reads(dataset: h5py.Dataset) -> Iterator[tuple[int, int]]:
    """Give the bytes that the library asks for to read a whole dataset.

    Chunks that are compressed, or that fit the chunk cache, are read whole;
    of others, each run of bytes that is contiguous in memory as well.

    Parameters
    ----------
    dataset : h5py.Dataset
        Any.

    Yields
    ------
    tuple of int
        Offset in the file, and bytes.
    """
    for corner, offset, nbytes in iterate_chunks(dataset):
        if dataset.chunks is None or _is_filtered(dataset) or nbytes <= CHUNK_CACHE_NBYTES:
            yield offset, nbytes
        else:
            yield from _iterate_rows(dataset, corner, offset)


def _is_filtered(dataset: h5py.Dataset) -> bool:
    return bool(dataset.id.get_create_plist().get_nfilters())


def _iterate_rows(
    dataset: h5py.Dataset, corner: tuple[int, ...], offset: int
) -> Iterator[tuple[int, int]]:
    chunk_shape, shape = dataset.chunks, dataset.shape
    extents = [min(c, n - at) for c, n, at in zip(chunk_shape, shape, corner, strict=True)]
    outer = dataset.ndim - 1
    while outer and extents[outer] == chunk_shape[outer] == shape[outer]:
        outer -= 1
    run_nbytes = math.prod(extents[outer:]) * dataset.dtype.itemsize
    for index in itertools.product(*map(range, extents[:outer])):
        start = sum(i * math.prod(chunk_shape[dim + 1 :]) for dim, i in enumerate(index))
        yield offset + start * dataset.dtype.itemsize, run_nbytes
