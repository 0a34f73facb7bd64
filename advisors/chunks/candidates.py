"""Candidate chunk shapes of an access pattern, their predicted times, and the front of the best."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from advisors.chunks.problem import Access, AccessPattern, Floats, Shapes
from helpers.arrays.chunks import expected_touched
from helpers.errors import UserError
from helpers.models.access import IoCounts, access_seconds

_N_CANDIDATES = 120_000  # at most, in the first sweep: some 0.1 s; an array with fewer has all
_LONG = 2**31  # elements of a dimension whose square is beyond 64 bits
_FRONT_STEP = 0.02  # relative: times of the front that differ by less are one point
_N_FRONT = 100  # points of a front, above which the step doubles


def predict_candidates(pattern: AccessPattern) -> tuple[Shapes, Floats]:
    """Predict the time of each access for each candidate shape."""
    grids: list[Sequence[int]] = [range(1, n + 1) for n in pattern.shape]
    if math.prod(pattern.shape) > _N_CANDIDATES:
        grids = [_spread(pattern, column) for column in range(len(pattern.shape))]
    shapes = within_bytes(pattern, grids)
    if not len(shapes):
        raise UserError(
            f"bounds: no chunk of {pattern.min_nbytes} to {pattern.max_nbytes} bytes;"
            " allowed: bounds further apart"
        )
    return shapes, predict_seconds(pattern, shapes)


def _spread(pattern: AccessPattern, column: int) -> list[int]:
    """Choose extents: those of accesses, and equal steps of the logarithm, with no rest to spare."""
    n = pattern.shape[column]
    accessed = {access.extent[column] for access in pattern.accesses} - {1, n}
    n_long = sum(extent > 1 for extent in pattern.shape)
    n_each = max(3, int(_N_CANDIDATES ** (1 / n_long)) - len(accessed))
    if n <= n_each:
        return list(range(1, n + 1))
    wanted = np.unique(np.round(np.geomspace(1, n, n_each)).astype(np.int64))
    tight = -(-n // -(-n // wanted))  # as many chunks, the last one least clipped
    return sorted({int(extent) for extent in tight} | accessed | {n})


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
    nbytes = chunk_nbytes(pattern, shapes)
    columns = []
    for access in pattern.accesses:
        n_shards = _n_jobs(pattern, access, shapes, shard_shapes)
        n_chunks = touched_chunks(pattern, access, shapes)
        columns.append(access_seconds(pattern.store, IoCounts(n_chunks, nbytes, n_shards)))
    return np.stack(columns, axis=1)


def chunk_nbytes(pattern: AccessPattern, shapes: Shapes) -> Floats:
    """Compute the bytes of a chunk in the array, of each shape."""
    return np.asarray(np.prod(shapes.astype(np.float64), axis=-1) * pattern.itemsize)


def _n_jobs(
    pattern: AccessPattern, access: Access, shapes: Shapes, shard_shapes: Shapes | None
) -> Floats | float:
    """Count what chunks come in: shards, or the runs of a file; none where they are objects."""
    if shard_shapes is not None:
        return touched_chunks(pattern, access, shard_shapes)
    return touched_runs(pattern, access, shapes) if pattern.store.is_file else 0.0


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
    chunks = shapes[:, column]
    if n >= _LONG:  # squares would not fit in 64 bits: whole numbers of Python do
        return np.asarray([expected_touched(extent, int(c), n) for c in chunks])
    return np.asarray(expected_touched(extent, chunks, n), np.float64)


def allowed_shapes(pattern: AccessPattern, shapes: Shapes) -> NDArray[np.bool_]:
    """Tell which shapes have no more chunks than objects are allowed."""
    counts = np.prod(np.ceil(np.asarray(pattern.shape) / shapes), axis=1)
    return np.asarray(counts <= pattern.bounds.max_objects)


def pareto(
    pattern: AccessPattern, shapes: Shapes, seconds: Floats
) -> list[tuple[Sequence[int], Floats]]:
    """Find the shapes of which no other is faster in one access and slower in none."""
    step = _FRONT_STEP
    while len(front := _nondominated(seconds, step)) > _N_FRONT:
        step *= 2
    return [(shapes[i], seconds[i]) for i in sorted(front, key=lambda i: float(seconds[i, 0]))]


def _nondominated(seconds: Floats, step: float) -> list[int]:
    """List the rows that no other beats, times rounded to steps; stop when they are too many."""
    # An access a row, and copied only when half are beaten: numpy is several times faster so.
    logarithms = np.log(np.ascontiguousarray(seconds.T))
    steps = np.floor(logarithms / math.log1p(step)).astype(np.int32)
    order = np.argsort(steps.sum(axis=0), kind="stable")
    steps, left = np.take(steps, order, axis=1), np.ones(len(order), bool)
    front: list[int] = []
    while left.any() and len(front) <= _N_FRONT:
        at = int(left.argmax())  # the least sum of what is left: nothing can beat it
        front.append(int(order[at]))
        left &= (steps < steps[:, at, None]).any(axis=0)
        if 2 * np.count_nonzero(left) < len(left):
            steps, order = np.compress(left, steps, axis=1), order[left]
            left = np.ones(len(order), bool)
    return front
