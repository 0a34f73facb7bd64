"""What a read asks of a file or of an object store: chunks, their bytes, seeks and requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from helpers.arrays import chunks
from helpers.arrays.chunks import Hyperslab, Shape
from helpers.models.access import IoCounts


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """Where the chunks of a file lie, and how many bytes each has there."""

    starts: NDArray[np.int64]  # address and stored bytes, of the shape of the grid of chunks
    nbytes: NDArray[np.int64]


def read_index(path: Path) -> ChunkIndex | None:
    """Read the index of the chunks of a file."""
    with h5py.File(path, "r") as file:
        array = file["t"]
        if array.chunks is None:
            return None
        grid = tuple(-(-n // c) for n, c in zip(array.shape, array.chunks, strict=True))
        index = ChunkIndex(np.zeros(grid, np.int64), np.zeros(grid, np.int64))

        def note(chunk: Any) -> None:
            at = tuple(i // c for i, c in zip(chunk.chunk_offset, array.chunks, strict=True))
            index.starts[at], index.nbytes[at] = chunk.byte_offset, chunk.size

        array.id.chunk_iter(note)
    return index


_PAGE_NBYTES = 4096  # the unit of the kernel's cache


def count_file_io(box: Hyperslab, chunk_shape: Shape | None, index: ChunkIndex | None) -> IoCounts:
    """Count what a box asks of a file: chunks, their bytes, and seeks, by the file's own index.

    A file without chunks counts as one read of the bytes of the box.

    Examples
    --------
    A series through a file of time steps is one seek and one chunk a step:

    >>> box, starts = (slice(0, 10), slice(0, 1), slice(0, 1)), 50 * np.arange(10).reshape(10, 1, 1)
    >>> index = ChunkIndex(starts, np.full_like(starts, 50))
    >>> found = count_file_io(box, (1, 4, 4), index)
    >>> found.n_chunks, found.chunk_nbytes, found.n_shards, found.stored_nbytes
    (10, 64, 1, 50.0)
    """
    if chunk_shape is None or index is None:
        return IoCounts(1, 4 * math.prod(s.stop - s.start for s in box))
    touched = tuple(
        slice(s.start // c, (s.stop - 1) // c + 1) for s, c in zip(box, chunk_shape, strict=True)
    )
    starts, nbytes = index.starts[touched].ravel(), index.nbytes[touched].ravel()
    return IoCounts(
        len(starts),
        4 * math.prod(chunk_shape),
        count_seeks(starts, nbytes),
        stored_nbytes=float(nbytes.mean()),
    )


def count_seeks(starts: NDArray[np.int64], nbytes: NDArray[np.int64]) -> int:
    """Count the runs of pages that follow one another, of pieces of a file.

    The kernel reads ahead where a read goes on in the same page or in the next.

    Examples
    --------
    >>> count_seeks(np.asarray([0, 100, 9000]), np.asarray([100, 100, 100]))
    2
    """
    order = np.argsort(starts)
    first = starts[order] // _PAGE_NBYTES
    last = (starts + nbytes - 1)[order] // _PAGE_NBYTES
    return 1 + int((first[1:] - last[:-1] > 1).sum())


def stack(loads: Sequence[IoCounts]) -> IoCounts:
    """Put counts together, an array an argument.

    Examples
    --------
    >>> stack([IoCounts(1, 8), IoCounts(3, 8)]).n_chunks.tolist()
    [1.0, 3.0]
    """
    return IoCounts(*np.asarray([astuple(load) for load in loads], np.float64).T)


def count_object_io(
    box: Hyperslab, chunk: Shape, shard_shape: Shape | None, shape: Shape
) -> IoCounts:
    """Count what a box of float32 asks of an object store, as zarr reads chunks and shards."""
    nbytes = 4 * math.prod(chunk)
    found = chunks.count_object_io(box, chunk, shard_shape, shape, nbytes=nbytes)
    if shard_shape is None:
        return IoCounts(found.n_chunks, nbytes, 0, found.n_requests)
    stored_nbytes = found.fetched_nbytes / found.n_chunks
    return IoCounts(found.n_chunks, nbytes, found.n_fetches, found.n_requests, stored_nbytes)
