"""From the best shapes of a sweep to the best of all near them: several climbs, step by step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from helpers.mixes import Choice, Floats, Mix, Shapes
from helpers.storage.layout import Shape
from helpers.sweeps import allowed_shapes, predict_seconds, within_bytes

ANOTHER = 1.5
"""Shapes differ clearly if some extent differs by this factor; else they are the same."""

_N_NEAR = 24  # extents tried around the best of a climb, for each dimension
_N_STARTS = 6  # climbs, from shapes that differ clearly
_N_FILLED = 200  # shapes, the best, whose extents are drawn out to the bound on bytes
_N_ROUNDS = 20  # of a climb, at most; two or three are common


def make_choice(mix: Mix, shape: Sequence[int], seconds: Floats) -> Choice:
    """Put a shape, its predicted times and its score together.

    Parameters
    ----------
    mix : Mix
        What is asked.
    shape : sequence of int
        Elements of a chunk.
    seconds : ndarray of float
        Predicted time of each access.

    Returns
    -------
    Choice
        In plain numbers.
    """
    names = [access.name for access in mix.accesses]
    told = dict(zip(names, map(float, seconds), strict=True))
    return Choice(tuple(int(c) for c in shape), told, float(mix.score(seconds)))


def climb_all(mix: Mix, shapes: Shapes, seconds: Floats, *, is_bound: bool = True) -> Choice:
    """Climb from the best shapes that differ clearly, and return the best summit.

    Parameters
    ----------
    mix : Mix
        What is asked.
    shapes, seconds : ndarray
        As `helpers.sweeps.sweep` returns them, at least one.
    is_bound : bool
        Whether the bound on the number of objects holds.

    Returns
    -------
    Choice
        No worse than any of the shapes.
    """
    left = np.argsort(mix.score(seconds), kind="stable")
    summits: list[Choice] = []
    while len(left) and len(summits) < _N_STARTS:
        start = shapes[left[0]]
        summits.append(_climb(mix, make_choice(mix, start, seconds[left[0]]), is_bound=is_bound))
        left = left[differ_clearly(start, shapes[left])]
    return min(summits, key=lambda choice: choice.score)


def differ_clearly(one: Sequence[int], shapes: Shapes) -> np.ndarray:
    """Tell which shapes differ clearly from one in some dimension.

    Parameters
    ----------
    one : sequence of int
        A chunk shape.
    shapes : ndarray of int
        One chunk shape a row.

    Returns
    -------
    ndarray of bool
        A claim a shape.

    Examples
    --------
    >>> differ_clearly((2, 4), np.asarray([(2, 5), (3, 4)])).tolist()
    [False, True]
    """
    factors = np.abs(np.log(shapes / np.asarray(one))).max(axis=1, initial=0)
    return np.asarray(factors >= math.log(ANOTHER) - 1e-12)


def _climb(mix: Mix, best: Choice, *, is_bound: bool) -> Choice:
    """Take the best shape near the best so far, until none is better."""
    for _ in range(_N_ROUNDS):
        near = vary(mix, best.chunk_shape)
        near = near[allowed_shapes(mix, near)] if is_bound else near
        found = predict_seconds(mix, near)
        order = np.argsort(mix.score(found), kind="stable")
        filled = _fill(mix, near[order[:_N_FILLED]])
        filled = filled[allowed_shapes(mix, filled)] if is_bound else filled
        near = np.concatenate([near[order[:1]], filled])
        found = predict_seconds(mix, near)
        at = int(np.argmin(mix.score(found)))
        before, best = best, make_choice(mix, near[at], found[at])
        if best.score >= before.score * (1 - 1e-9):
            break
    return min(before, best, key=lambda choice: choice.score)


def vary(mix: Mix, shape: Shape) -> Shapes:
    """Vary two dimensions of a shape at a time, by up to a fifth.

    Parameters
    ----------
    mix : Mix
        What is asked; its bounds on bytes hold.
    shape : tuple of int
        Elements of a chunk.

    Returns
    -------
    ndarray of int
        One chunk shape a row, the given one among them.
    """
    around = [_around(c, n) for c, n in zip(shape, mix.shape, strict=True)]
    pairs = itertools.combinations(range(len(shape)), min(2, len(shape)))
    parts = [
        within_bytes(mix, [around[i] if i in pair else [c] for i, c in enumerate(shape)])
        for pair in pairs
    ]
    return np.concatenate(parts)


def _around(extent: int, n: int) -> list[int]:
    """List the extents within a fifth, those with the least rest, and those of few chunks more."""
    low, high = max(1, math.floor(extent / 1.2) - 2), min(n, math.ceil(extent * 1.2) + 2)
    wanted = np.unique(np.linspace(low, high, min(_N_NEAR, high - low + 1)).astype(np.int64))
    n_chunks = -(-n // extent)
    counts = {-(-n // int(c)) for c in wanted} | {n_chunks + i for i in (-2, -1, 0, 1, 2)}
    tight = {-(-n // k) for k in counts if 1 <= k <= n}
    return sorted({*map(int, wanted), *tight, extent})


def _fill(mix: Mix, shapes: Shapes) -> Shapes:
    """Draw out each extent in turn as far as the bound on bytes allows, with and without a rest."""
    elements = np.prod(shapes, axis=1, keepdims=True)
    most = mix.max_nbytes // mix.itemsize * shapes // elements
    longest = np.clip(most, 1, np.asarray(mix.shape))
    tight = -(-np.asarray(mix.shape) // -(-np.asarray(mix.shape) // longest))
    parts = [shapes]
    for column in range(shapes.shape[1]):
        for extents in (longest, tight):
            drawn = shapes.copy()
            drawn[:, column] = extents[:, column]
            parts.append(drawn)
    every = np.concatenate(parts)
    nbytes = np.prod(every.astype(np.float64), axis=1) * mix.itemsize
    fits = (nbytes >= mix.min_nbytes) & (nbytes <= mix.max_nbytes)
    return np.asarray(every[fits])
