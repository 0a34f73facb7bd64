"""What a box asks of a layout: chunks, their bytes, requests, shards, and seeks in a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from helpers.arrays import chunks
from helpers.arrays.chunks import Hyperslab, Shape
from helpers.models.access import IoCounts
from studies.chunk_shape.layouts import ChunkLayout


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
_SIEVE_NBYTES = 65536  # HDF5 reads contiguous data by so much (H5Pset_sieve_buf_size)


def count_file_io(
    box: Hyperslab, shape: Shape, one: ChunkLayout, index: ChunkIndex | None
) -> IoCounts:
    """Count what a box asks of a file: chunks, their bytes, and seeks, by the file's own index.

    Examples
    --------
    A series through a file of time steps is one seek and one chunk a step:

    >>> box = slice(0, 10), slice(0, 1), slice(0, 1)
    >>> index = lay_in_order((10, 1, 1), 50)
    >>> count_file_io(box, (10, 4, 4), Chunking("a time step", (1, 4, 4)), index)
    Load(n_chunks=10, chunk_nbytes=64, n_shards=1, n_requests=0.0, stored_nbytes=50.0, n_longest=0.0)
    """
    if one.chunk_shape is None or index is None:
        stored = [box[i] for i in one.axes]
        starts, reads = sieve_reads(stored, [shape[i] for i in one.axes])
        return IoCounts(len(reads), sum(reads) / len(reads), count_seeks(starts, np.asarray(reads)))
    touched = tuple(
        slice(s.start // c, (s.stop - 1) // c + 1)
        for s, c in zip(box, one.chunk_shape, strict=True)
    )
    starts, nbytes = index.starts[touched].ravel(), index.nbytes[touched].ravel()
    n_seeks = count_seeks(starts, nbytes)
    chunk_nbytes = 4 * math.prod(one.chunk_shape)
    return IoCounts(len(starts), chunk_nbytes, n_seeks, stored_nbytes=float(nbytes.mean()))


def lay_in_order(grid: Shape, stored_nbytes: int) -> ChunkIndex:
    """Make the index of chunks that all have as many bytes, one after the other in C order.

    Examples
    --------
    >>> lay_in_order((2, 2), 50).starts.tolist()
    [[0, 50], [100, 150]]
    """
    starts = stored_nbytes * np.arange(math.prod(grid), dtype=np.int64).reshape(grid)
    return ChunkIndex(starts, np.full(grid, stored_nbytes, np.int64))


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
    """Put loads together, an array an argument.

    Examples
    --------
    >>> stack([Load(1, 8), Load(3, 8)]).n_chunks.tolist()
    [1.0, 3.0]
    """
    return IoCounts(*np.asarray([astuple(load) for load in loads], np.float64).T)


def count_object_io(box: Hyperslab, one: ChunkLayout, shard_shape: Shape | None) -> IoCounts:
    """Count what a box asks of an object store, as zarr reads chunks and shards.

    A shard of which every chunk is touched comes whole; of any other comes its
    index, and then a chunk at a time.

    Examples
    --------
    >>> count_object_io((slice(0, 6),), Chunking("pairs", (2,)), (4,))
    Load(n_chunks=3, chunk_nbytes=8, n_shards=2, n_requests=3, stored_nbytes=0.0, n_longest=1)
    """
    chunk = one.chunk_shape
    if chunk is None:
        raise ValueError(f"{one.name} has no chunks")
    n_chunks, nbytes = chunks.chunks_touched(box, chunk), 4 * math.prod(chunk)
    if shard_shape is None:
        return IoCounts(n_chunks, nbytes, 0, n_chunks)
    touched = reduce(np.multiply.outer, map(_chunks_by_shard, box, chunk, shard_shape))
    n_in_whole = math.prod(s // c for s, c in zip(shard_shape, chunk, strict=True))
    in_parts = touched[touched < n_in_whole]
    n_requests = touched.size + int(in_parts.sum())
    longest = int(in_parts.max(initial=0))
    return IoCounts(n_chunks, nbytes, touched.size, n_requests, n_longest=longest)


def _chunks_by_shard(part: slice, chunk: int, shard: int) -> NDArray[np.int64]:
    """Count the chunks, in one dimension, that a range touches in each shard."""
    touched = np.arange(part.start // chunk, (part.stop - 1) // chunk + 1)
    return np.unique(touched // (shard // chunk), return_counts=True)[1]


def sieve_reads(box: Sequence[slice], shape: Sequence[int]) -> tuple[NDArray[np.int64], list[int]]:
    """List start and bytes of each read that HDF5 makes of data without chunks.

    A run of neighbouring elements longer than the sieve buffer is read as it
    is; a shorter one that the buffer does not hold yet fills the buffer anew.

    Examples
    --------
    Every second kB of 128 kB is two buffers full; far apart, each has its own.

    >>> sieve_reads((slice(0, 64), slice(0, 256)), (64, 512))[1]
    [65536, 65536]
    >>> sieve_reads((slice(0, 3), slice(0, 1)), (3, 20000))[1]
    [65536, 65536, 65536]
    """
    starts, run_nbytes = _runs(box, shape)
    if run_nbytes > _SIEVE_NBYTES:
        return starts, [run_nbytes] * len(starts)
    end, places, reads, i = 4 * math.prod(shape), [], [], 0
    while i < len(starts):
        places.append(starts[i])
        reads.append(int(min(_SIEVE_NBYTES, end - starts[i])))
        i = int(np.searchsorted(starts, starts[i] + reads[-1] - run_nbytes, side="right"))
    return np.asarray(places, np.int64), reads


def _runs(box: Sequence[slice], shape: Sequence[int]) -> tuple[NDArray[np.int64], int]:
    """Find where runs of neighbouring elements start, in bytes, and how long they are."""
    starts, inner = np.zeros(1, np.int64), 4
    is_whole, run = True, 4
    for part, n in zip(reversed(box), reversed(shape), strict=True):
        extent = part.stop - part.start
        if is_whole:
            run, starts = inner * extent, np.asarray([part.start * inner]) + starts
        else:
            places = inner * np.arange(part.start, part.stop)
            starts = np.add.outer(places, starts).ravel()
        is_whole &= extent == n
        inner *= n
    return starts, run
