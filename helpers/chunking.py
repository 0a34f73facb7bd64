"""Which chunk shape: the one that reads a given mix of accesses in the least time.

Here the arithmetic of chunks and the model of accesses meet. Every candidate
shape within bounds has its predicted time; the least weighted mean wins, and
the Pareto front shows what the weights decide.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from helpers.errors import UserError
from helpers.mixes import Access, Bounds, Choice, Criterion, Floats, Mix, Recommendation, Shapes
from helpers.models.accesses import Store
from helpers.storage.layout import Shape, count_chunks
from helpers.sweeps import allowed_shapes, pareto, predict_seconds, sweep, within_bytes

__all__ = ["Access", "Bounds", "Choice", "Criterion", "Mix", "Recommendation", "best_chunk_shape"]

_N_NEAR = 24  # extents tried around the best of the sweep, for each dimension
_ANOTHER = 1.5  # the second-best differs by this factor in some dimension; else it is the same


def best_chunk_shape(
    shape: Sequence[int],
    itemsize: int,
    accesses: Sequence[Access],
    weights: Sequence[float],
    store: Store,
    *,
    bounds: Bounds | None = None,
    criterion: Criterion = "mean",
) -> Recommendation:
    """Choose the chunk shape with the least predicted time of a mix of accesses.

    A sweep over extents in steps of a few percent, then every extent around
    the best of it. Where chunks outnumber the objects allowed, larger chunks
    compete with shards.

    Parameters
    ----------
    shape : sequence of int
        Elements of the array for each dimension.
    itemsize : int
        Bytes of an element, at least 1.
    accesses : sequence of Access
        One or more, none larger than the array.
    weights : sequence of float
        How often each happens, in any unit; their sum is above 0.
    store : Store
        What an access meets.
    bounds : Bounds, optional
        What the shape must respect.
    criterion : {"mean", "worst"}
        Whether the weighted mean is to be least, or the slowest access that happens.

    Returns
    -------
    Recommendation
        The best shape, the best of clearly other shapes, the Pareto front, and shards.

    Raises
    ------
    UserError
        If the input makes no sense, or no shape is within bounds.

    Examples
    --------
    Lines alone, at a cost a chunk: a chunk is a line, or as long as it may be.

    >>> lines = [Access("line", (1000, 1))]
    >>> bounds = Bounds(max_chunk_nbytes=500)
    >>> store = Store(chunk_s=0.01, decode_s_per_nbyte=1e-6)
    >>> best_chunk_shape((1000, 50), 1, lines, [1], store, bounds=bounds).best.chunk_shape
    (500, 1)
    """
    array = tuple(shape), itemsize, tuple(accesses), tuple(weights), store
    mix = Mix(*array, bounds or Bounds(), criterion)
    shapes, seconds = sweep(mix)
    return _recommend(mix, shapes, seconds, allowed_shapes(mix, shapes))


def _recommend(
    mix: Mix, shapes: Shapes, seconds: Floats, allowed: NDArray[np.bool_]
) -> Recommendation:
    sharded = [] if allowed.all() else _shard_best(mix, shapes, seconds)
    if not allowed.any() and not sharded:
        raise UserError(
            f"max_objects: {mix.bounds.max_objects}; allowed: more, or larger chunks or shards"
        )
    shapes, seconds = shapes[allowed], seconds[allowed]
    plain = [_refine(mix, shapes, seconds)] if allowed.any() else []
    best = min([*plain, *(choice for choice, _ in sharded)], key=_by_score)
    shard_shape = (
        None if best in plain else dict((c.chunk_shape, s) for c, s in sharded)[best.chunk_shape]
    )
    others = [
        *plain,
        *(choice for choice, _ in sharded),
        *_clearly_others(mix, best, shapes, seconds),
    ]
    others = [choice for choice in others if _differs(best, choice)]
    n_chunks = count_chunks(mix.shape, best.chunk_shape)
    return Recommendation(
        best,
        min(others, key=_by_score, default=best),
        tuple(make_choice(mix, *each) for each in pareto(mix, shapes, seconds)),
        shard_shape,
        n_chunks,
        count_chunks(mix.shape, shard_shape) if shard_shape else n_chunks,
    )


def _by_score(choice: Choice) -> float:
    return choice.score


def _differs(a: Choice, b: Choice) -> bool:
    """Tell whether two shapes differ clearly in some dimension."""
    ratios = [max(i / j, j / i) for i, j in zip(a.chunk_shape, b.chunk_shape, strict=True)]
    return max(ratios) >= _ANOTHER


def _shard_best(mix: Mix, shapes: Shapes, seconds: Floats) -> list[tuple[Choice, Shape]]:
    """Shard the shapes that may be best: the best without shards, and those of the front."""
    free = _refine(mix, shapes, seconds, is_bound=False)
    at = np.argsort(mix.score(seconds))[:: max(1, len(shapes) // 20)]
    front = [shape for shape, _ in pareto(mix, shapes, seconds)]
    candidates = {free.chunk_shape, *(tuple(map(int, s)) for s in [*shapes[at], *front])}
    return [found for each in sorted(candidates) if (found := _shard(mix, each))]


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


def _refine(mix: Mix, shapes: Shapes, seconds: Floats, *, is_bound: bool = True) -> Choice:
    """Try every extent around the best of the sweep, two dimensions at a time."""
    at = int(np.argmin(mix.score(seconds)))
    best = make_choice(mix, shapes[at], seconds[at])
    for _ in range(20):
        before = best.score
        for pair in itertools.combinations_with_replacement(range(len(mix.shape)), 2):
            grids = [
                _around(c, n) if i in pair else [c]
                for i, (c, n) in enumerate(zip(best.chunk_shape, mix.shape, strict=True))
            ]
            near = within_bytes(mix, grids)
            near = near[allowed_shapes(mix, near)] if is_bound else near
            found = predict_seconds(mix, near)
            at = int(np.argmin(mix.score(found)))
            best = min(best, make_choice(mix, near[at], found[at]), key=lambda choice: choice.score)
        if best.score >= before * (1 - 1e-9):
            break
    return best


def _around(extent: int, n: int) -> list[int]:
    """List the extents within a fifth, all of them where they are few, and that one itself."""
    low, high = max(1, math.floor(extent / 1.2) - 2), min(n, math.ceil(extent * 1.2) + 2)
    wanted = np.unique(np.linspace(low, high, min(_N_NEAR, high - low + 1)).astype(np.int64))
    tight = {int(-(-n // -(-n // c))) for c in wanted}
    return sorted({*map(int, wanted), *tight, extent})


def _shard(mix: Mix, chunk_shape: Shape) -> tuple[Choice, Shape] | None:
    """Group chunks into as few objects as allowed, where it slows the accesses least."""
    shard = chunk_shape
    chunk = np.asarray([chunk_shape], np.int64)
    while count_chunks(mix.shape, shard) > mix.bounds.max_objects:
        wider = [
            (*shard[:i], 2 * shard[i], *shard[i + 1 :])
            for i, n in enumerate(mix.shape)
            if shard[i] < n
        ]
        fitting = [s for s in wider if math.prod(s) * mix.itemsize <= mix.bounds.memory_nbytes]
        if not fitting:
            return None
        several = np.repeat(chunk, len(fitting), axis=0)
        seconds = predict_seconds(mix, several, shard_shapes=np.asarray(fitting, np.int64))
        shard = fitting[int(np.argmin(mix.score(seconds)))]
    found = predict_seconds(mix, chunk, shard_shapes=np.asarray([shard], np.int64))
    return make_choice(mix, chunk_shape, found[0]), shard


def _clearly_others(mix: Mix, best: Choice, shapes: Shapes, seconds: Floats) -> list[Choice]:
    """Find the best of the shapes that differ clearly from the best, if there is one."""
    factor = np.abs(np.log(shapes / np.asarray(best.chunk_shape))).max(axis=1, initial=0)
    others = factor >= math.log(_ANOTHER)
    if not others.any():
        return []
    at = int(np.argmin(mix.score(seconds[others])))
    return [make_choice(mix, shapes[others][at], seconds[others][at])]
