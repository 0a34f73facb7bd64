"""Chunks grouped into shards, where chunks outnumber the objects allowed."""

from __future__ import annotations

import numpy as np

from helpers.climbs import climb_all, differ_clearly, make_choice, vary
from helpers.mixes import Choice, Floats, Mix, Shapes
from helpers.storage.layout import Shape
from helpers.sweeps import allowed_shapes, pareto, predict_seconds

_N_BEST = 500  # shapes of the sweep that are sharded: the best without shards
_N_SPREAD = 1000  # and as many more, from the best to the worst
_N_ROUNDS = 3  # of varying the chunks of the best shard


def shard_best(mix: Mix, shapes: Shapes, seconds: Floats) -> list[tuple[Choice, Shape]]:
    """Shard shapes that may be best, vary the best of them, and return it and the next.

    Parameters
    ----------
    mix : Mix
        What is asked.
    shapes, seconds : ndarray
        As `helpers.sweeps.sweep` returns them, at least one.

    Returns
    -------
    list of tuple
        Chunks with their predicted times, and the shard for each: the best, and
        the best that differs clearly. Empty if no shard fits in memory.
    """
    free = climb_all(mix, shapes, seconds, is_bound=False)
    order = np.argsort(mix.score(seconds), kind="stable")
    spread = order[:: max(1, len(order) // _N_SPREAD)]
    front = [shape for shape, _ in pareto(mix, shapes, seconds)]
    chunks = np.concatenate([[free.chunk_shape], shapes[order[:_N_BEST]], shapes[spread], front])
    pools = [_shard_all(mix, np.unique(chunks, axis=0))]
    for _ in range(_N_ROUNDS):
        if not len(pools[-1][0]):
            break
        near = [vary(mix, choice.chunk_shape) for choice, _ in _choose(mix, *pools[-1])]
        pools.append(_shard_all(mix, np.concatenate(near)))
    return _choose(mix, *(np.concatenate(parts) for parts in zip(*pools, strict=True)))


def _choose(
    mix: Mix, chunks: Shapes, shards: Shapes, seconds: Floats
) -> list[tuple[Choice, Shape]]:
    order = np.argsort(mix.score(seconds), kind="stable")
    if not len(order):
        return []
    others = order[differ_clearly(chunks[order[0]], chunks[order])]
    return [
        (make_choice(mix, chunks[i], seconds[i]), tuple(int(s) for s in shards[i]))
        for i in (order[0], *others[:1])
    ]


def _shard_all(mix: Mix, chunks: Shapes) -> tuple[Shapes, Shapes, Floats]:
    """Double shards until objects are as few as allowed, each where it slows the accesses least."""
    shards, fits = chunks.copy(), np.ones(len(chunks), bool)
    while (grows := fits & ~allowed_shapes(mix, shards)).any():
        wider, scores = _widen(mix, chunks[grows], shards[grows])
        chosen = scores.argmin(axis=0)
        places = np.arange(len(chosen))
        fits[grows] = np.isfinite(scores[chosen, places])
        shards[grows] = wider[chosen, places]
    chunks, shards = chunks[fits], shards[fits]
    return chunks, shards, predict_seconds(mix, chunks, shard_shapes=shards)


def _widen(mix: Mix, chunks: Shapes, shards: Shapes) -> tuple[Shapes, Floats]:
    """Double each dimension in turn; a shard beyond the array or the memory scores infinity."""
    doubling = 1 + np.eye(len(mix.shape), dtype=np.int64)
    wider = doubling[:, None, :] * shards
    scores = np.stack(
        [mix.score(predict_seconds(mix, chunks, shard_shapes=each)) for each in wider]
    )
    nbytes = np.prod(wider.astype(np.float64), axis=2) * mix.itemsize
    fits = (shards < np.asarray(mix.shape)).T & (nbytes <= mix.bounds.memory_nbytes)
    return wider, np.where(fits, scores, np.inf)
