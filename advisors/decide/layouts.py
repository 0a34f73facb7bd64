"""An array, how it is read, and what is expected of a layout: requests, bytes, time, and what an append rewrites."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.arrays.chunks import Shape, count_chunks, expected_touched
from helpers.models.access import IoCounts, Store, access_seconds
from helpers.prices import BILLED_GB_NBYTES

Floats = NDArray[np.float64]
Shapes = NDArray[np.int64]
"""Candidates: one shape a row."""

APPEND_NBYTES = 1_000_000_000
"""Stored bytes of an array that one append may rewrite at most."""

_LARGEST = 2**31 - 1  # bytes of a chunk that codecs take
_LONG = 2**31  # elements of a dimension whose square is beyond 64 bits
_INDEX_NBYTES = 16  # of a shard's index, for each of its chunks


@dataclass(frozen=True, slots=True)
class Access:
    """A box of elements, read anywhere in the array with equal chance."""

    name: str  # name on the page
    extent: Shape  # elements for each dimension
    # whether it starts at multiples of its extent, as tiles of a viewer and blocks of Dask do
    is_aligned: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """How an array lies in a store."""

    chunk_shape: Shape  # elements for each dimension
    shard_shape: Shape | None = None  # of an object that holds several chunks

    @property
    def object_shape(self) -> Shape:
        """Elements of an object for each dimension."""
        return self.shard_shape or self.chunk_shape

    def count_objects(self, shape: Shape) -> int:
        """Count the objects of an array."""
        return count_chunks(shape, self.object_shape)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a layout must respect."""

    min_chunk_nbytes: int = 1  # of a chunk in the array; a small array's own bytes are enough
    max_chunk_nbytes: int = 100_000_000
    max_objects: int = 1_000_000  # of the array; with more chunks than that it is sharded
    memory_nbytes: int = 8_000_000_000  # for the chunks that are decoded at once
    # axis along which the array grows, and by how many elements at once
    append: tuple[int, int] | None = None
    max_rewritten_nbytes: float = APPEND_NBYTES  # stored, by an append


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """An array, the accesses to it, how often each happens, and what it is read from."""

    shape: Shape  # elements of the array for each dimension
    itemsize: int  # bytes of an element, at least 1
    accesses: Sequence[Access]  # one or more, none larger than the array
    weights: Sequence[float]  # how often each happens, in any unit; their sum is above 0
    store: Store  # what an access meets
    bounds: Bounds = field(default_factory=Bounds)
    together: int = 1  # boxes that a program asks for at once: a batch, or variables of a file

    @property
    def shares(self) -> Floats:
        """Weights, scaled so that their sum is 1."""
        weights = np.asarray(self.weights, np.float64)
        return np.asarray(weights / weights.sum())

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.itemsize

    @property
    def max_nbytes(self) -> int:
        """Bytes of a chunk at most: as bound, and as many at once as fit in memory."""
        at_once = self.bounds.memory_nbytes // self.store.n_connections
        return max(self.itemsize, min(self.bounds.max_chunk_nbytes, at_once, _LARGEST))

    @property
    def min_nbytes(self) -> int:
        """Bytes of a chunk at least: as bound, but no more than the array or the most allowed."""
        return min(self.bounds.min_chunk_nbytes, self.max_nbytes // 2, self.nbytes)


@dataclass(frozen=True, slots=True)
class Prices:
    """What storing and reading costs, in USD; a GB is billed as 2^30 bytes."""

    storage_per_gb_month: float  # of keeping a GB for a month
    get_per_1000: float = 0.0  # of a thousand requests
    egress_per_gb: float = 0.0  # of reading a GB out of the region

    def of_read(self, n_requests: Any, nbytes: Any) -> Any:
        """Price reads: the one price of a read.

        Examples
        --------
        >>> round(Prices(0.023, get_per_1000=0.4, egress_per_gb=0.09).of_read(1000, 2**30), 2)
        0.49
        """
        per_nbyte = self.egress_per_gb / BILLED_GB_NBYTES
        return n_requests * (self.get_per_1000 / 1000) + nbytes * per_nbyte


@dataclass(frozen=True, slots=True)
class Asked:
    """What one access asks of a store: expected chunks and requests, all of which may begin at once."""

    n_chunks: float  # that are decoded
    chunk_nbytes: float  # of each in the array
    n_fetches: float  # requests for chunks, or for blocks of a file that hold some
    fetched_nbytes: float  # of all of them, in the store
    in_turn: float = 1.0  # requests for each of them, one after the other
    n_indices: float = 0.0  # of shards, which come before their chunks
    index_nbytes: float = 0.0  # of each

    @property
    def n_requests(self) -> float:
        """Requests in all."""
        return self.n_fetches * self.in_turn + self.n_indices

    @property
    def nbytes(self) -> float:
        """Bytes over the wire."""
        return self.fetched_nbytes + self.n_indices * self.index_nbytes

    def seconds(self, store: Store, quantile: float = 0.5) -> float:
        """Predict a quantile of the time: that of the indices, and then that of the chunks."""
        n = self.n_chunks
        counts = IoCounts(
            n,
            self.chunk_nbytes,
            self.n_fetches,
            self.n_fetches * self.in_turn,
            max(self.fetched_nbytes / n, 1e-9),
        )
        found = float(access_seconds(store, counts, quantile=quantile))
        if self.n_indices:
            bare = replace(store, start_s=0.0, chunk_s=0.0, decode_s_per_nbyte=0.0)
            index = IoCounts(self.n_indices, 0.0, stored_nbytes=max(self.index_nbytes, 1e-9))
            found += float(access_seconds(bare, index))  # the tail of one wave is enough
        return found


def ask_layout(pattern: AccessPattern, access: Access, layout: Layout) -> Asked:
    """Expect what an access asks of chunks, or of shards: an index each, then a request a chunk.

    zarr joins chunks that are near one another in a shard, so it makes no more requests than this.
    """
    shapes = np.asarray([layout.chunk_shape], np.int64)
    nbytes = float(chunk_nbytes(pattern, shapes)[0])
    n = pattern.together * float(touched_chunks(pattern, access, shapes)[0])
    plain = Asked(n, nbytes, n, n * (nbytes / pattern.store.compression_ratio))
    if layout.shard_shape is None:
        return plain
    shards = np.asarray([layout.shard_shape], np.int64)
    n_indices = pattern.together * float(touched_chunks(pattern, access, shards)[0])
    n_held = math.prod(layout.shard_shape) // math.prod(layout.chunk_shape)
    return replace(plain, n_indices=n_indices, index_nbytes=_INDEX_NBYTES * n_held)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What to expect of one access, of an array that is open."""

    access: str
    share: float  # of all accesses
    p50_s: float
    p95_s: float
    n_requests: float
    nbytes: float  # over the wire
    over_read: float  # bytes that are decoded for each byte that is asked


def forecast(pattern: AccessPattern, access: Access, share: float, asked: Asked) -> Forecast:
    """Predict one access."""
    wanted = pattern.together * math.prod(access.extent) * pattern.itemsize
    return Forecast(
        access.name,
        float(share),
        asked.seconds(pattern.store),
        asked.seconds(pattern.store, 0.95),
        asked.n_requests,
        asked.nbytes,
        max(asked.n_chunks * asked.chunk_nbytes, asked.nbytes) / wanted,
    )


def chunk_nbytes(pattern: AccessPattern, shapes: Shapes) -> Floats:
    """Compute the bytes of a chunk in the array, of each shape."""
    return np.asarray(np.prod(shapes.astype(np.float64), axis=-1) * pattern.itemsize)


def rewritten_nbytes(pattern: AccessPattern, extents: Any) -> Any:
    """Compute the stored bytes that an append rewrites at most, of objects so long along its axis.

    What was there stops within an object, short of its end by a multiple of what an append and an
    object have in common.

    Examples
    --------
    >>> bounds = Bounds(append=(0, 24))
    >>> pattern = AccessPattern((100, 5), 1, [], [], Store(), bounds)
    >>> [int(rewritten_nbytes(pattern, extent)) for extent in (1, 24, 48, 30)]
    [0, 0, 120, 120]
    """
    if pattern.bounds.append is None:
        return np.zeros(np.shape(extents))
    axis, steps = pattern.bounds.append
    slab_nbytes = pattern.nbytes / pattern.shape[axis] / pattern.store.compression_ratio
    return slab_nbytes * (extents - np.gcd(extents, steps))


def touched_chunks(pattern: AccessPattern, access: Access, shapes: Shapes) -> Floats:
    """Expect the chunks that an access touches: a product of one look-up a dimension."""
    columns = [_touched(pattern, access, shapes, column) for column in range(len(pattern.shape))]
    return np.asarray(np.prod(columns, axis=0), np.float64)


def touched_runs(pattern: AccessPattern, access: Access, shapes: Shapes) -> Floats:
    """Expect the runs of neighbouring chunks that an access touches in a file in C order."""
    runs, is_whole = np.ones(len(shapes)), np.ones(len(shapes), bool)
    for column in reversed(range(len(pattern.shape))):
        touched = _touched(pattern, access, shapes, column)
        runs = np.where(is_whole, 1.0, runs * touched)
        is_whole &= touched >= np.ceil(pattern.shape[column] / shapes[:, column]) - 1e-9
    return runs


def _touched(pattern: AccessPattern, access: Access, shapes: Shapes, column: int) -> Floats:
    """Expect the chunks touched in one dimension."""
    extent, n = access.extent[column], pattern.shape[column]
    count = aligned_touched if access.is_aligned else expected_touched
    chunks, at = np.unique(shapes[:, column], return_inverse=True)
    if n >= _LONG:  # squares would not fit in 64 bits: whole numbers of Python do
        return np.asarray([count(extent, int(c), n) for c in chunks], np.float64)[at]
    return np.asarray(count(extent, chunks, n), np.float64)[at]


def aligned_touched(extent: int, chunk_extent: Any, n: int) -> Any:
    """Compute how many chunks a range touches on average that starts at a multiple of its length.

    A range has a border of chunks inside it for each multiple of the chunk that is none of its
    own starts. A rest at the end that is no whole range is left out.

    Examples
    --------
    Tiles of 4 in chunks of 6: of three, the second lies across a border.

    >>> round(float(aligned_touched(4, 6, 12)), 3)
    1.333
    """
    n_ranges = n // extent
    last = n_ranges * extent - 1
    is_one = isinstance(chunk_extent, int)
    common = math.lcm(extent, chunk_extent) if is_one else np.lcm(extent, chunk_extent)
    return 1 + (last // chunk_extent - last // common) / n_ranges
