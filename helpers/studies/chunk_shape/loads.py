"""What a box asks of a layout: chunks, their bytes, requests, shards, and seeks in a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from helpers.storage import layout
from helpers.storage.boxes import Box
from helpers.storage.chunkings import Chunking
from helpers.storage.layout import Shape

_SIEVE_NBYTES = 65536  # HDF5 reads contiguous data by so much (H5Pset_sieve_buf_size)


@dataclass(frozen=True, slots=True)
class Load:
    """What an access asks of a layout.

    Parameters
    ----------
    n_chunks : float
        Chunks, or reads of an array without chunks.
    chunk_nbytes : float
        Bytes of each in the array, on average.
    n_shards : float
        Shards, or runs of chunks in a file; 0 where chunks are objects.
    n_requests : float
        Requests over the wire; 0 on a local disk.
    """

    n_chunks: float
    chunk_nbytes: float
    n_shards: float = 0.0
    n_requests: float = 0.0


def load_file(box: Box, shape: Shape, one: Chunking) -> Load:
    """Count what a box asks of a file.

    Examples
    --------
    A series through a file of time steps is one seek and one chunk a step:

    >>> box = slice(0, 10), slice(0, 1), slice(0, 1)
    >>> load_file(box, (10, 4, 4), Chunking("a time step", (1, 4, 4)))
    Load(n_chunks=10, chunk_nbytes=64, n_shards=1, n_requests=0.0)
    """
    if one.chunk_shape is None:
        stored = [box[i] for i in one.axes]
        reads = sieve_reads(stored, [shape[i] for i in one.axes])
        return Load(len(reads), sum(reads) / len(reads))
    n_chunks = layout.chunks_touched(box, one.chunk_shape)
    return Load(n_chunks, 4 * math.prod(one.chunk_shape), count_seeks(box, shape, one.chunk_shape))


def load_objects(box: Box, one: Chunking, shard_shape: Shape | None) -> Load:
    """Count what a box asks of an object store, as zarr reads chunks and shards.

    A shard of which every chunk is touched comes whole; of any other comes its
    index, and then a chunk at a time.

    Examples
    --------
    >>> load_objects((slice(0, 6),), Chunking("pairs", (2,)), (4,))
    Load(n_chunks=3, chunk_nbytes=8, n_shards=2, n_requests=3)
    """
    chunk = one.chunk_shape
    if chunk is None:
        raise ValueError(f"{one.name} has no chunks")
    n_chunks, nbytes = layout.chunks_touched(box, chunk), 4 * math.prod(chunk)
    if shard_shape is None:
        return Load(n_chunks, nbytes, 0, n_chunks)
    n_shards = layout.chunks_touched(box, shard_shape)
    n_whole = math.prod(map(_whole_shards, box, chunk, shard_shape))
    in_whole = n_whole * math.prod(s // c for s, c in zip(shard_shape, chunk, strict=True))
    return Load(n_chunks, nbytes, n_shards, n_shards + n_chunks - in_whole)


def _whole_shards(part: slice, chunk: int, shard: int) -> int:
    """Count the shards, in one dimension, of which a range touches every chunk."""
    by = shard // chunk
    first, last = part.start // chunk, (part.stop - 1) // chunk
    return int(max(0, (last + 1) // by - -(-first // by)))


def count_seeks(box: Box, shape: Shape, chunk_shape: Shape) -> int:
    """Count the runs of chunks that lie one after the other in a file, and are read so.

    Examples
    --------
    A slice of a file of time steps is one run; a series, one a step.

    >>> slice_, series = (slice(0, 1), slice(0, 4), slice(0, 4)), (slice(0, 9), slice(0, 1), slice(0, 1))
    >>> [count_seeks(box, (9, 4, 4), (1, 2, 2)) for box in (slice_, series)]
    [1, 9]
    """
    grid = [-(-n // c) for n, c in zip(shape, chunk_shape, strict=True)]
    touched = [(s.stop - 1) // c - s.start // c + 1 for s, c in zip(box, chunk_shape, strict=True)]
    while len(touched) > 1 and touched[-1] == grid[len(touched) - 1]:
        touched.pop()
    return math.prod(touched[:-1])


def sieve_reads(box: Sequence[slice], shape: Sequence[int]) -> list[int]:
    """List the bytes of each read that HDF5 makes of data without chunks.

    A run of neighbouring elements longer than the sieve buffer is read as it
    is; a shorter one that the buffer does not hold yet fills the buffer anew.

    Examples
    --------
    Every second kB of 128 kB is two buffers full; far apart, each has its own.

    >>> sieve_reads((slice(0, 64), slice(0, 256)), (64, 512))
    [65536, 65536]
    >>> sieve_reads((slice(0, 3), slice(0, 1)), (3, 20000))
    [65536, 65536, 65536]
    """
    starts, run_nbytes = _runs(box, shape)
    if run_nbytes > _SIEVE_NBYTES:
        return [run_nbytes] * len(starts)
    end, reads, i = 4 * math.prod(shape), [], 0
    while i < len(starts):
        reads.append(int(min(_SIEVE_NBYTES, end - starts[i])))
        i = int(np.searchsorted(starts, starts[i] + reads[-1] - run_nbytes, side="right"))
    return reads


def _runs(
    box: Sequence[slice], shape: Sequence[int]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], int]:
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
