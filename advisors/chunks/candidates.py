"""Candidate chunk shapes, and what is predicted of reads from each: seconds, prices, chunks touched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisors.chunks.problem import Access, AccessPattern, Floats, Prices, Shapes
from helpers.arrays.chunks import expected_touched
from helpers.errors import UserError
from helpers.models.access import IoCounts, access_seconds

_N_CANDIDATES = 120_000  # at most, in the first sweep: some 0.1 s; an array with fewer has all
_LONG = 2**31  # elements of a dimension whose square is beyond 64 bits
_INDEX_NBYTES = 16  # of a shard's index, for each of its chunks
_LEAST_COST = 1e-30  # of an access whose prices are all zero, for its logarithm is taken


def predict_candidates(pattern: AccessPattern) -> tuple[Shapes, Floats]:
    """Predict the time of each access for each candidate shape; its price where there are prices."""
    grids: list[Sequence[int]] = [range(1, n + 1) for n in pattern.shape]
    if math.prod(pattern.shape) > _N_CANDIDATES:
        grids = [_spread(pattern, column) for column in range(len(pattern.shape))]
    shapes = within_bytes(pattern, grids)
    if not len(shapes):
        raise UserError(
            f"bounds: no chunk of {pattern.min_nbytes} to {pattern.max_nbytes} bytes;"
            " allowed: bounds further apart"
        )
    return shapes, predict_aims(pattern, shapes)


def _spread(pattern: AccessPattern, column: int) -> list[int]:
    """Choose extents: those of accesses, and equal steps of the logarithm, with no rest to spare."""
    n = pattern.shape[column]
    accessed = {e for access in pattern.accesses for e in _list_extents(access, column, n)} - {1, n}
    n_long = sum(extent > 1 for extent in pattern.shape)
    n_each = max(3, int(_N_CANDIDATES ** (1 / n_long)) - len(accessed))
    if n <= n_each:
        return list(range(1, n + 1))
    wanted = np.unique(np.round(np.geomspace(1, n, n_each)).astype(np.int64))
    tight = -(-n // -(-n // wanted))  # as many chunks, the last one least clipped
    return sorted({int(extent) for extent in tight} | accessed | {n})


def _list_extents(access: Access, column: int, n: int) -> list[int]:
    """List the extents that suit an access: its own, and for one that is aligned what divides evenly."""
    extent = access.extent[column]
    if not access.is_aligned:
        return [extent]
    parts = [extent // k for k in (2, 4) if extent % k == 0]
    return [extent, *parts, *(extent * k for k in (2, 4) if extent * k <= n)]


def within_bytes(pattern: AccessPattern, grids: Sequence[Sequence[int]]) -> Shapes:
    """Combine extents, and keep the shapes whose bytes are within bounds."""
    nbytes: Floats = np.array(float(pattern.itemsize))
    for axis in np.ix_(*[np.asarray(grid, np.float64) for grid in grids]):
        nbytes = nbytes * axis
    kept = np.nonzero((nbytes >= pattern.min_nbytes) & (nbytes <= pattern.max_nbytes))
    columns = [np.asarray(grid, np.int64)[i] for grid, i in zip(grids, kept, strict=True)]
    return np.stack(columns, axis=1)


def predict_seconds(
    pattern: AccessPattern, shapes: Shapes, *, shard_shapes: Shapes | None = None
) -> Floats:
    """Predict the time of each access for given shapes."""
    if not len(shapes):
        return np.empty((0, len(pattern.accesses)))
    columns = [_predict_one(pattern, each, shapes, shard_shapes) for each in pattern.accesses]
    return np.stack(columns, axis=1)


def _predict_one(
    pattern: AccessPattern, access: Access, shapes: Shapes, shard_shapes: Shapes | None
) -> Floats:
    nbytes, n_chunks = chunk_nbytes(pattern, shapes), touched_chunks(pattern, access, shapes)
    n_jobs: Floats | float = 0.0  # what chunks come in: shards, or the runs of a file
    if shard_shapes is not None:
        n_jobs = touched_chunks(pattern, access, shard_shapes)
        if pattern.reads_shards_abreast:
            n_each = np.asarray(np.prod(shard_shapes / shapes, axis=1), np.float64)
            chunks_s = access_seconds(pattern.store, IoCounts(n_chunks, nbytes))
            return chunks_s + _index_seconds(pattern, n_jobs, n_each)
    elif pattern.store.is_file:
        n_jobs = touched_runs(pattern, access, shapes)
    return access_seconds(pattern.store, IoCounts(n_chunks, nbytes, n_jobs))


def _index_seconds(pattern: AccessPattern, n_shards: Floats, n_each: Floats) -> Floats:
    """Predict the time of the indices of shards, which come before any of their chunks."""
    store = replace(
        pattern.store,
        start_s=0.0,
        chunk_s=pattern.store.request_s,
        decode_s_per_nbyte=0.0,
        stored_s_per_nbyte=0.0,
        compression_ratio=1.0,
    )
    return access_seconds(store, IoCounts(n_shards, _INDEX_NBYTES * n_each))


def predict_costs(
    pattern: AccessPattern, prices: Prices, shapes: Shapes, *, shard_shapes: Shapes | None = None
) -> Floats:
    """Predict the price of each access for given shapes."""
    counts = [touched_chunks(pattern, access, shapes) for access in pattern.accesses]
    n_chunks = n_requests = np.stack(counts, axis=1)
    if shard_shapes is not None:
        indices = [touched_chunks(pattern, access, shard_shapes) for access in pattern.accesses]
        n_requests = n_chunks + np.stack(indices, axis=1)
    nbytes = chunk_nbytes(pattern, shapes) / pattern.store.compression_ratio
    seconds = predict_seconds(pattern, shapes, shard_shapes=shard_shapes)
    return prices.of_read(seconds, n_requests, n_chunks * nbytes[:, None])


def predict_aims(
    pattern: AccessPattern, shapes: Shapes, *, shard_shapes: Shapes | None = None
) -> Floats:
    """Predict what is to be least of each access: its time, or where there are prices its price."""
    if pattern.prices is None or not len(shapes):
        return predict_seconds(pattern, shapes, shard_shapes=shard_shapes)
    costs = predict_costs(pattern, pattern.prices, shapes, shard_shapes=shard_shapes)
    return np.asarray(np.maximum(costs, _LEAST_COST))


def chunk_nbytes(pattern: AccessPattern, shapes: Shapes) -> Floats:
    """Compute the bytes of a chunk in the array, of each shape."""
    return np.asarray(np.prod(shapes.astype(np.float64), axis=-1) * pattern.itemsize)


def touched_runs(pattern: AccessPattern, access: Access, shapes: Shapes) -> Floats:
    """Expect the runs of neighbouring chunks that an access touches in a file in C order."""
    runs, is_whole = np.ones(len(shapes)), np.ones(len(shapes), bool)
    for column in reversed(range(len(pattern.shape))):
        touched = _touched(pattern, access, shapes, column)
        runs = np.where(is_whole, 1.0, runs * touched)
        is_whole &= touched >= np.ceil(pattern.shape[column] / shapes[:, column]) - 1e-9
    return runs


def touched_chunks(pattern: AccessPattern, access: Access, shapes: Shapes) -> Floats:
    """Expect the chunks that an access touches: a product of one look-up a dimension."""
    columns = [_touched(pattern, access, shapes, column) for column in range(len(pattern.shape))]
    return np.asarray(np.prod(columns, axis=0), np.float64)


def _touched(pattern: AccessPattern, access: Access, shapes: Shapes, column: int) -> Floats:
    """Expect the chunks touched in one dimension."""
    extent, n = access.extent[column], pattern.shape[column]
    count = aligned_touched if access.is_aligned else expected_touched
    chunks = shapes[:, column]
    if n >= _LONG:  # squares would not fit in 64 bits: whole numbers of Python do
        return np.asarray([count(extent, int(c), n) for c in chunks], np.float64)
    return np.asarray(count(extent, chunks, n), np.float64)


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


def allowed_shapes(pattern: AccessPattern, shapes: Shapes) -> NDArray[np.bool_]:
    """Tell which shapes have no more chunks than may be objects of their own."""
    return np.asarray(count_all(pattern, shapes) <= pattern.bounds.max_plain)


def count_all(pattern: AccessPattern, shapes: Shapes) -> Floats:
    """Count the chunks, or shards, of the whole array."""
    return np.asarray(np.prod(np.ceil(np.asarray(pattern.shape) / shapes), axis=1))
