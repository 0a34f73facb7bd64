"""Candidate chunk shapes of a mix of accesses, their predicted times, and the front of the best."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from helpers.errors import UserError
from helpers.mixes import Access, Floats, Mix, Shapes
from helpers.models.accesses import Load, access_seconds
from helpers.storage.layout import expected_touched

_N_CANDIDATES = 120_000  # at most, in the first sweep: some 0.1 s; an array with fewer has all
_LONG = 2**31  # elements of a dimension whose square is beyond 64 bits
_FRONT_STEP = 0.02  # relative: times of the front that differ by less are one point
_N_FRONT = 100  # points of a front, above which the step doubles


def sweep(mix: Mix) -> tuple[Shapes, Floats]:
    """Predict the time of each access for each candidate shape.

    Parameters
    ----------
    mix : Mix
        What is asked.

    Returns
    -------
    tuple of ndarray
        Shapes, one a row, and seconds, a column an access.

    Raises
    ------
    UserError
        If no shape is within the bounds on bytes.
    """
    grids: list[Sequence[int]] = [range(1, n + 1) for n in mix.shape]
    if math.prod(mix.shape) > _N_CANDIDATES:
        grids = [_spread(mix, column) for column in range(len(mix.shape))]
    shapes = within_bytes(mix, grids)
    if not len(shapes):
        raise UserError(
            f"bounds: no chunk of {mix.min_nbytes} to {mix.max_nbytes} bytes;"
            " allowed: bounds further apart"
        )
    return shapes, predict_seconds(mix, shapes)


def _spread(mix: Mix, column: int) -> list[int]:
    """Choose extents: those of accesses, and equal steps of the logarithm, with no rest to spare."""
    n = mix.shape[column]
    accessed = {access.extent[column] for access in mix.accesses} - {1, n}
    n_each = max(2, int(_N_CANDIDATES ** (1 / len(mix.shape))) - len(accessed))
    if n <= n_each:
        return list(range(1, n + 1))
    wanted = np.unique(np.round(np.geomspace(1, n, n_each)).astype(np.int64))
    tight = -(-n // -(-n // wanted))  # as many chunks, the last one least clipped
    return sorted({int(extent) for extent in tight} | accessed | {n})


def within_bytes(mix: Mix, grids: Sequence[Sequence[int]]) -> Shapes:
    """Combine extents, and keep the shapes whose bytes are within bounds.

    Parameters
    ----------
    mix : Mix
        Whose bounds count.
    grids : sequence of sequence of int
        Extents to try, for each dimension.

    Returns
    -------
    ndarray of int
        One chunk shape a row.
    """
    nbytes: Floats = np.array(float(mix.itemsize))
    for axis in np.ix_(*[np.asarray(grid, np.float64) for grid in grids]):
        nbytes = nbytes * axis
    kept = np.nonzero((nbytes >= mix.min_nbytes) & (nbytes <= mix.max_nbytes))
    columns = [np.asarray(grid, np.int64)[i] for grid, i in zip(grids, kept, strict=True)]
    return np.stack(columns, axis=1)


def predict_seconds(mix: Mix, shapes: Shapes, *, shard_shapes: Shapes | None = None) -> Floats:
    """Predict the time of each access for given shapes.

    Parameters
    ----------
    mix : Mix
        What is asked; weights and bounds do not matter here.
    shapes : ndarray of int
        One chunk shape a row.
    shard_shapes : ndarray of int, optional
        One shard shape a row, where chunks are not objects.

    Returns
    -------
    ndarray of float
        Seconds, a row a shape, a column an access.
    """
    nbytes = np.prod(shapes.astype(np.float64), axis=1) * mix.itemsize
    columns = []
    for access in mix.accesses:
        n_shards = _n_jobs(mix, access, shapes, shard_shapes)
        n_chunks = touched_chunks(mix, access, shapes)
        columns.append(access_seconds(mix.store, Load(n_chunks, nbytes, n_shards)))
    return np.stack(columns, axis=1)


def _n_jobs(
    mix: Mix, access: Access, shapes: Shapes, shard_shapes: Shapes | None
) -> Floats | float:
    """Count what chunks come in: shards, or the runs of a file; none where they are objects."""
    if shard_shapes is not None:
        return touched_chunks(mix, access, shard_shapes)
    return touched_runs(mix, access, shapes) if mix.store.is_file else 0.0


def touched_runs(mix: Mix, access: Access, shapes: Shapes) -> Floats:
    """Expect the runs of neighbouring chunks that an access touches in a file in C order.

    Parameters
    ----------
    mix : Mix
        Whose array is read.
    access : Access
        What is read.
    shapes : ndarray of int
        One chunk shape a row.

    Returns
    -------
    ndarray of float
        A number a shape, at least 1.
    """
    runs, is_whole = np.ones(len(shapes)), np.ones(len(shapes), bool)
    for column in reversed(range(len(mix.shape))):
        touched = _touched(mix, access, shapes, column)
        runs = np.where(is_whole, 1.0, runs * touched)
        is_whole &= touched >= np.ceil(mix.shape[column] / shapes[:, column]) - 1e-9
    return runs


def touched_chunks(mix: Mix, access: Access, shapes: Shapes) -> Floats:
    """Expect the chunks that an access touches: a product of one look-up a dimension.

    Parameters
    ----------
    mix : Mix
        Whose array is read.
    access : Access
        What is read.
    shapes : ndarray of int
        One chunk shape a row.

    Returns
    -------
    ndarray of float
        A number a shape, at least 1.
    """
    columns = [_touched(mix, access, shapes, column) for column in range(len(mix.shape))]
    return np.asarray(np.prod(columns, axis=0), np.float64)


def _touched(mix: Mix, access: Access, shapes: Shapes, column: int) -> Floats:
    """Expect the chunks touched in one dimension."""
    extent, n = access.extent[column], mix.shape[column]
    chunks = shapes[:, column]
    if n >= _LONG:  # squares would not fit in 64 bits: whole numbers of Python do
        return np.asarray([expected_touched(extent, int(c), n) for c in chunks])
    return np.asarray(expected_touched(extent, chunks, n), np.float64)


def allowed_shapes(mix: Mix, shapes: Shapes) -> NDArray[np.bool_]:
    """Tell which shapes have no more chunks than objects are allowed.

    Parameters
    ----------
    mix : Mix
        Whose array and bounds.
    shapes : ndarray of int
        One chunk shape a row.

    Returns
    -------
    ndarray of bool
        A claim a shape.
    """
    counts = np.prod(np.ceil(np.asarray(mix.shape) / shapes), axis=1)
    return np.asarray(counts <= mix.bounds.max_objects)


def pareto(mix: Mix, shapes: Shapes, seconds: Floats) -> list[tuple[Sequence[int], Floats]]:
    """Find the shapes of which no other is faster in one access and slower in none.

    Parameters
    ----------
    mix : Mix
        What is asked; its weights do not matter.
    shapes, seconds : ndarray
        As `sweep` returns them.

    Returns
    -------
    list of tuple
        Shapes and their seconds, by the time of the first access; times
        within 2 percent, or more where the front would be long, count as equal.
    """
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
