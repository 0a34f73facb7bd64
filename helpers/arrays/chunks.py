"""Chunk arithmetic on tuples of ints: shapes, chunks touched, read amplification, the balance rule, boxes.

A *selection* asks for a box of elements; a store returns whole chunks. What a
selection costs is decided by how many chunks its box touches, which is a
product over dimensions, and so is its expected value when the box lies
anywhere with equal chance.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, ...]


def balanced_extents(shape: Sequence[int], itemsize: int, chunk_nbytes: int) -> tuple[float, ...]:
    """Compute the balanced chunk extents before they are rounded, by Rew's rule of 2013.

    With N chunks in all, a line along the first dimension and the hyperplane across it
    touch equally many, the square root of N; the other dimensions share the
    hyperplane's equally. Where that would cut a dimension finer than its
    elements, the dimension is cut into elements and the others share the rest.
    """
    n_chunks = max(1.0, math.prod(shape) * itemsize / chunk_nbytes)
    n, *others = shape
    if not others:
        return (n / n_chunks,)
    along = min(max(math.sqrt(n_chunks), n_chunks / math.prod(others)), float(n))
    counts = [along, *_share(others, n_chunks / along)]
    return tuple(max(1.0, extent / count) for extent, count in zip(shape, counts, strict=True))


def _share(extents: Sequence[int], n_chunks: float) -> list[float]:
    """Cut dimensions into `n_chunks` together, equally but none finer than its elements."""
    counts = [1.0] * len(extents)
    for n_before, i in enumerate(sorted(range(len(extents)), key=extents.__getitem__)):
        counts[i] = min(float(extents[i]), n_chunks ** (1 / (len(extents) - n_before)))
        n_chunks /= counts[i]
    return counts


def balanced_chunk_shape(shape: Sequence[int], itemsize: int, chunk_nbytes: int) -> Shape:
    """Choose the chunk shape that a line and the hyperplane across it touch equally often.

    Of the shapes that round `balanced_extents` down or up in each dimension, it is the largest that
    is not above `chunk_nbytes`, which are at least `itemsize` and at most the array's.

    Examples
    --------
    >>> balanced_chunk_shape((98128, 277, 349), 4, 2**22)
    (1032, 29, 35)
    >>> balanced_chunk_shape((98128, 277, 349), 4, 4096)
    (33, 5, 6)
    """
    extents = balanced_extents(shape, itemsize, chunk_nbytes)
    # Rounding may have moved a whole extent to either side: its floor must be safe.
    low = [max(1, math.floor(extent * (1 - 1e-9))) for extent in extents]
    choices = [(c, c + 1) if c < n else (c,) for c, n in zip(low, shape, strict=True)]
    fitting = [
        candidate
        for candidate in itertools.product(*choices)
        if math.prod(candidate) * itemsize <= chunk_nbytes
    ]
    return max(fitting, key=math.prod)


def count_chunks(shape: Sequence[int], chunk_shape: Sequence[int]) -> int:
    """Count the chunks of an array, clipped ones included."""
    return math.prod(-(-n // c) for n, c in zip(shape, chunk_shape, strict=True))


def chunks_touched(selection: Sequence[slice], chunk_shape: Sequence[int]) -> int:
    """Count the chunks that a selection touches.

    Examples
    --------
    Elements 3 to 8 lie in the second, third and first chunk of four each:

    >>> chunks_touched((slice(3, 9),), (4,))
    3
    """
    return math.prod(
        (s.stop - 1) // c - s.start // c + 1 for s, c in zip(selection, chunk_shape, strict=True)
    )


def expected_touched(extent: int, chunk_extent: Any, n: int) -> Any:
    """Compute how many chunks a range touches on average, in one dimension.

    The range starts anywhere with equal chance: at 0, 1, … or ``n - extent``.
    In closed form, from the sum of ``floor(i / c)`` over the first i.

    Examples
    --------
    Two elements of four in chunks of two: starts 0, 1 and 2 touch 1, 2 and 1.

    >>> round(expected_touched(2, 2, 4), 3)
    1.333
    """

    def floors(stop: int) -> Any:
        """Sum ``i // chunk_extent`` for i below `stop`."""
        whole, rest = divmod(stop, chunk_extent)
        return chunk_extent * whole * (whole - 1) // 2 + rest * whole

    n_starts = n - extent + 1
    first, last = floors(n_starts), floors(n) - floors(extent - 1)
    return 1 + (last - first) / n_starts


Hyperslab = tuple[slice, ...]

# By zarr's defaults the chunks of a shard come in one request up to so far apart, and up to so many bytes.
_MOST_APART_NBYTES, _MOST_TOGETHER_NBYTES = 2**20, 2**24
_INDEX_NBYTES = 16  # of a shard's index, for each of its chunks


@dataclass(frozen=True, slots=True)
class ObjectIo:
    """What a box asks of an object store."""

    n_chunks: int  # chunks that are decoded
    n_indices: int  # shards whose index comes first, because only some of their chunks are asked
    n_fetches: int  # requests for chunks; all that wait for an index begin after it
    fetched_nbytes: int  # stored bytes of these, with what lies between joined chunks
    index_nbytes: int  # bytes of an index

    @property
    def n_requests(self) -> int:
        """Requests in all."""
        return self.n_indices + self.n_fetches


def count_object_io(
    box: Hyperslab,
    chunk_shape: Shape,
    shard_shape: Shape | None,
    shape: Shape,
    *,
    nbytes: int,
) -> ObjectIo:
    """Count what a box asks of an object store, as zarr reads chunks and shards from 3.3 on.

    A shard of which every chunk is touched comes whole; of any other comes its index, and then
    its chunks in runs, with what lies between them. At the edge of the array, of extents `shape`,
    a shard holds fewer chunks, which lie side by side. `nbytes` are those of a chunk in the store.

    Examples
    --------
    Chunks of two elements, four in a shard: of the first shard three come in one request after
    its index, the second comes in part too.

    >>> found = count_object_io((slice(2, 12),), (2,), (8,), (16,), nbytes=8)
    >>> found.n_chunks, found.n_requests, found.fetched_nbytes
    (5, 4, 40)
    """
    n_chunks = chunks_touched(box, chunk_shape)
    if shard_shape is None:
        return ObjectIo(n_chunks, 0, n_chunks, n_chunks * nbytes, 0)
    by = tuple(s // c for s, c in zip(shard_shape, chunk_shape, strict=True))
    n_all, n_indices, n_fetches, fetched_nbytes = math.prod(by), 0, 0, 0
    alike = [
        Counter(_chunks_by_shard(*each)) for each in zip(box, chunk_shape, by, shape, strict=True)
    ]
    for combined in itertools.product(*(counted.items() for counted in alike)):
        n_shards = math.prod(n for _, n in combined)
        touched, held = zip(*(part for part, _ in combined), strict=True)
        fetches = [nbytes * n_all]
        if math.prod(map(len, touched)) < n_all:
            n_indices += n_shards
            fetches = _fetches(touched, _number(by, held), nbytes)
        n_fetches += n_shards * len(fetches)
        fetched_nbytes += n_shards * sum(fetches)
    return ObjectIo(n_chunks, n_indices, n_fetches, fetched_nbytes, _INDEX_NBYTES * n_all)


def _chunks_by_shard(part: slice, chunk: int, by: int, extent: int) -> Iterator[tuple[range, int]]:
    """List the chunks, in one dimension, that a range touches in each shard, by place, and how many it holds."""
    first, last, n = part.start // chunk, (part.stop - 1) // chunk, -(-extent // chunk)
    for shard in range(first // by, last // by + 1):
        touched = range(max(first - shard * by, 0), min(last - shard * by, by - 1) + 1)
        yield touched, min(by, n - shard * by)


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


@lru_cache(256)
def _number(by: Shape, held: Shape) -> NDArray[np.int64]:
    """Give the place of each chunk that a shard holds: Morton order, the first dimension fastest."""
    at, n = np.indices(held), len(by)
    bits = range(max(by).bit_length())
    keys = sum(((at[d] >> b) & 1) << (b * n + d) for b in bits for d in range(n))
    return np.argsort(np.argsort(np.ravel(keys))).reshape(held)
