"""What a read asks of a file or of an object store: chunks, their bytes, seeks and requests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from helpers.arrays.chunks import Hyperslab, Shape, chunks_touched
from helpers.benchmark.provenance import measured_with
from helpers.models.access import IoCounts, reads_abreast


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


READS_IN_TURN = not reads_abreast(measured_with("zarr"))
"""Whether zarr reads the chunks of a shard one after the other; from 3.3 on, near ones together."""

_MOST_APART_NBYTES, _MOST_TOGETHER_NBYTES = 2**20, 2**24
"""Chunks of a shard come in one request up to so far apart, and up to so many bytes, by zarr's defaults."""


def count_object_io(
    box: Hyperslab,
    chunk: Shape,
    shard_shape: Shape | None,
    shape: Shape,
    *,
    in_turn: bool = READS_IN_TURN,
) -> IoCounts:
    """Count what a box asks of an object store, as zarr reads chunks and shards.

    A shard of which every chunk is touched comes whole; of any other comes its
    index, and then its chunks: one at a time before zarr 3.3; since then in runs, with
    what lies between them, all at once. At the edge of the array, of extents `shape`, a
    shard holds fewer chunks, which lie side by side.

    Examples
    --------
    >>> count_object_io((slice(0, 6),), (2,), (4,), (12,), in_turn=True)
    IoCounts(n_chunks=3, chunk_nbytes=8, n_shards=2, n_requests=3, stored_nbytes=0.0, n_longest=1)
    >>> count_object_io((slice(2, 12),), (2,), (8,), (16,), in_turn=False)
    IoCounts(n_chunks=5, chunk_nbytes=8, n_shards=2, n_requests=4, stored_nbytes=8.0, n_longest=0.0)
    """
    n_chunks, nbytes = chunks_touched(box, chunk), 4 * math.prod(chunk)
    if shard_shape is None:
        return IoCounts(n_chunks, nbytes, 0, n_chunks)
    by = tuple(s // c for s, c in zip(shard_shape, chunk, strict=True))
    pairs = [*itertools.product(*map(_chunks_by_shard, box, chunk, by, shape))]
    shards = [[touched for touched, _ in each] for each in pairs]
    counts = [math.prod(map(len, touched)) for touched in shards]
    in_parts = [n for n in counts if n < math.prod(by)]
    if in_turn:
        n_requests = len(shards) + sum(in_parts)
        return IoCounts(
            n_chunks, nbytes, len(shards), n_requests, n_longest=max(in_parts, default=0)
        )
    fetched = [
        each
        for pair, touched, n in zip(pairs, shards, counts, strict=True)
        for each in (
            [n * nbytes]
            if n == math.prod(by)
            else _fetches(touched, _number(by, tuple(held for _, held in pair)), nbytes)
        )
    ]
    n_requests = len(fetched) + len(in_parts)
    return IoCounts(n_chunks, nbytes, len(fetched), n_requests, sum(fetched) / n_chunks)


def _chunks_by_shard(part: slice, chunk: int, by: int, extent: int) -> list[tuple[range, int]]:
    """List the chunks, in one dimension, that a range touches in each shard, by place, and how many it holds."""
    first, last, n = part.start // chunk, (part.stop - 1) // chunk, -(-extent // chunk)
    return [
        (
            range(max(first - shard * by, 0), min(last - shard * by, by - 1) + 1),
            min(by, n - shard * by),
        )
        for shard in range(first // by, last // by + 1)
    ]


def _fetches(touched: Sequence[range], places: NDArray[np.int64], nbytes: int) -> list[int]:
    """List the bytes of each request for some chunks of a shard, of so many bytes each."""
    starts = nbytes * np.sort(places[np.ix_(*touched)].ravel())
    spans = [[int(starts[0])] * 2]  # start and end
    for start in map(int, starts):
        is_near = start - spans[-1][1] <= _MOST_APART_NBYTES
        if is_near and start + nbytes - spans[-1][0] <= _MOST_TOGETHER_NBYTES:
            spans[-1][1] = start + nbytes
        else:
            spans.append([start, start + nbytes])
    return [end - start for start, end in spans if end > start]


@cache
def _number(by: Shape, held: Shape) -> NDArray[np.int64]:
    """Give the place of each chunk that a shard holds: Morton order, the first dimension fastest."""
    at, n = np.indices(held), len(by)
    bits = range(max(by).bit_length())
    keys = sum(((at[d] >> b) & 1) << (b * n + d) for b in bits for d in range(n))
    return np.argsort(np.argsort(np.ravel(keys))).reshape(held)
