"""Which chunk shape: the one that reads a given mix of accesses in the least time.

Here the arithmetic of chunks and the model of accesses meet. Every candidate
shape within bounds has its predicted time; the least weighted mean wins, and
the Pareto front shows what the weights decide.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from helpers.climbs import climb_all, differ_clearly, make_choice
from helpers.errors import UserError
from helpers.mixes import Access, Bounds, Choice, Criterion, Floats, Mix, Recommendation, Shapes
from helpers.models.accesses import Store
from helpers.sharding import shard_best
from helpers.storage.layout import count_chunks
from helpers.sweeps import allowed_shapes, pareto, sweep

__all__ = ["Access", "Bounds", "Choice", "Criterion", "Mix", "Recommendation", "best_chunk_shape"]


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

    Of a small array every shape is tried. Of a larger one there is a sweep over
    extents in equal steps of their logarithm, and then a climb from each of the
    best that differ clearly. Where chunks outnumber the objects allowed, larger
    chunks compete with shards.

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
    sharded = [] if allowed.all() else shard_best(mix, shapes, seconds)
    if not allowed.any() and not sharded:
        raise UserError(
            f"max_objects: {mix.bounds.max_objects}; allowed: more, or larger chunks or shards"
        )
    shapes, seconds = shapes[allowed], seconds[allowed]
    plain = [climb_all(mix, shapes, seconds)] if allowed.any() else []
    best = min([*plain, *(choice for choice, _ in sharded)], key=_by_score)
    shard_shape = (
        None if best in plain else dict((c.chunk_shape, s) for c, s in sharded)[best.chunk_shape]
    )
    others = [
        *plain,
        *(choice for choice, _ in sharded),
        *_clearly_others(mix, best, shapes, seconds),
    ]
    others = [c for c in others if differ_clearly(best.chunk_shape, np.asarray([c.chunk_shape]))[0]]
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


def _clearly_others(mix: Mix, best: Choice, shapes: Shapes, seconds: Floats) -> list[Choice]:
    """Find the best of the shapes that differ clearly from the best, if there is one."""
    others = differ_clearly(best.chunk_shape, shapes)
    if not others.any():
        return []
    at = int(np.argmin(mix.score(seconds[others])))
    return [make_choice(mix, shapes[others][at], seconds[others][at])]
