"""The search for the chunk shape that reads a given access pattern in the least time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from advisors.chunks.candidates import (
    allowed_shapes,
    chunk_nbytes,
    count_all,
    predict_aims,
    predict_candidates,
    within_bytes,
)
from advisors.chunks.problem import (
    AccessPattern,
    Choice,
    Floats,
    Recommendation,
    Shapes,
    make_choice,
)
from helpers.arrays.chunks import Shape, count_chunks
from helpers.errors import UserError

MODEL_ERROR = 0.03
"""How far predicted times of near shapes err beside one another, relative, as the ready checks find it."""

_FRONT_STEP = 0.02  # relative: times of the front that differ by less are one point
_N_FRONT = 100  # points of a front, above which the step doubles


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


_ANOTHER = 1.5  # factor in some extent by which shapes differ clearly
_N_NEAR = 24  # extents tried around the best of a climb, for each dimension
_N_STARTS = 6  # climbs, from shapes that differ clearly
_N_FILLED = 200  # shapes, the best, whose extents are drawn out to the bound on bytes
_N_ROUNDS = 20  # of a climb, at most; two or three are common


def refine_all(
    pattern: AccessPattern, shapes: Shapes, seconds: Floats, *, is_bound: bool = True
) -> Choice:
    """Climb from the best shapes that differ clearly, and return the best summit."""
    left = np.argsort(pattern.score(seconds), kind="stable")
    summits: list[Choice] = []
    while len(left) and len(summits) < _N_STARTS:
        start = shapes[left[0]]
        summits.append(
            _refine(pattern, make_choice(pattern, start, seconds[left[0]]), is_bound=is_bound)
        )
        left = left[differ_clearly(start, shapes[left])]
    return min(summits, key=lambda choice: choice.score)


def differ_clearly(one: Sequence[int], shapes: Shapes) -> np.ndarray:
    """Tell which shapes differ clearly from one in some dimension.

    Examples
    --------
    >>> differ_clearly((2, 4), np.asarray([(2, 5), (3, 4)])).tolist()
    [False, True]
    """
    factors = np.abs(np.log(shapes / np.asarray(one))).max(axis=1, initial=0)
    return np.asarray(factors >= math.log(_ANOTHER) - 1e-12)


def _refine(pattern: AccessPattern, best: Choice, *, is_bound: bool) -> Choice:
    """Take the best shape near the best so far, until none is better."""
    for _ in range(_N_ROUNDS):
        near = vary(pattern, best.chunk_shape)
        near = near[allowed_shapes(pattern, near)] if is_bound else near
        found = predict_aims(pattern, near)
        order = np.argsort(pattern.score(found), kind="stable")
        filled = _fill(pattern, near[order[:_N_FILLED]])
        filled = filled[allowed_shapes(pattern, filled)] if is_bound else filled
        near = np.concatenate([near[order[:1]], filled])
        found = predict_aims(pattern, near)
        at = int(np.argmin(pattern.score(found)))
        before, best = best, make_choice(pattern, near[at], found[at])
        if best.score >= before.score * (1 - 1e-9):
            break
    return min(before, best, key=lambda choice: choice.score)


def vary(pattern: AccessPattern, shape: Shape) -> Shapes:
    """Vary two dimensions of a shape at a time, by up to a fifth."""
    around = [_around(c, n) for c, n in zip(shape, pattern.shape, strict=True)]
    long = [i for i, n in enumerate(pattern.shape) if n > 1]
    pairs = itertools.combinations(long, min(2, len(long)))
    parts = [
        within_bytes(pattern, [around[i] if i in pair else [c] for i, c in enumerate(shape)])
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


def _fill(pattern: AccessPattern, shapes: Shapes) -> Shapes:
    """Draw out each extent in turn as far as the bound on bytes allows, with and without a rest."""
    elements = np.prod(shapes, axis=1, keepdims=True)
    most = pattern.max_nbytes // pattern.itemsize * shapes // elements
    longest = np.clip(most, 1, np.asarray(pattern.shape))
    tight = -(-np.asarray(pattern.shape) // -(-np.asarray(pattern.shape) // longest))
    parts = [shapes]
    for column in range(shapes.shape[1]):
        for extents in (longest, tight):
            drawn = shapes.copy()
            drawn[:, column] = extents[:, column]
            parts.append(drawn)
    every = np.concatenate(parts)
    nbytes = chunk_nbytes(pattern, every)
    return np.asarray(every[(nbytes >= pattern.min_nbytes) & (nbytes <= pattern.max_nbytes)])


_N_BEST = 500  # shapes of the sweep that are sharded: the best without shards
_N_SPREAD = 1000  # and as many more, from the best to the worst
_N_SHARD_ROUNDS = 3  # of varying the chunks of the best shard

_Pool = tuple[Shapes, Shapes | None, Floats]
"""Chunk shapes, the shards that each comes in if it does, and what is predicted of each access."""


def _pool_shards(pattern: AccessPattern, shapes: Shapes, seconds: Floats) -> _Pool:
    """Shard shapes that may be best, and vary the best of them."""
    free = refine_all(pattern, shapes, seconds, is_bound=False)
    order = np.argsort(pattern.score(seconds), kind="stable")
    spread = order[:: max(1, len(order) // _N_SPREAD)]
    front = [shape for shape, _ in pareto(pattern, shapes, seconds)]
    chunks = np.concatenate([[free.chunk_shape], shapes[order[:_N_BEST]], shapes[spread], front])
    pools = [_shard_all(pattern, np.unique(chunks, axis=0))]
    for _ in range(_N_SHARD_ROUNDS):
        if not len(pools[-1][0]):
            break
        near = [vary(pattern, choice.chunk_shape) for choice, _ in _choose(pattern, *pools[-1])]
        pools.append(_shard_all(pattern, np.concatenate(near)))
    chunks, shards, found = (np.concatenate(parts) for parts in zip(*pools, strict=True))
    return chunks, shards, found


def _choose(
    pattern: AccessPattern, chunks: Shapes, shards: Shapes, seconds: Floats
) -> list[tuple[Choice, Shape]]:
    """Choose the best, and the best of those that differ clearly from it."""
    order = np.argsort(pattern.score(seconds), kind="stable")
    others = order[differ_clearly(chunks[order[0]], chunks[order])] if len(order) else order
    return [
        (make_choice(pattern, chunks[i], seconds[i]), tuple(int(s) for s in shards[i]))
        for i in (*order[:1], *others[:1])
    ]


def _shard_all(pattern: AccessPattern, chunks: Shapes) -> tuple[Shapes, Shapes, Floats]:
    """Double shards until they are large and few enough, each where it slows the accesses least."""
    shards, can_grow = chunks.copy(), np.ones(len(chunks), bool)
    least, most = pattern.min_shard_nbytes, pattern.max_shard_nbytes
    while True:
        is_small = chunk_nbytes(pattern, shards) < least
        grows = np.flatnonzero(can_grow & (is_small | ~allowed_shapes(pattern, shards)))
        if not len(grows):
            break
        wider, scores = _widen(pattern, chunks[grows], shards[grows])
        chosen, places = scores.argmin(axis=0), np.arange(len(grows))
        found = np.isfinite(scores[chosen, places])
        shards[grows[found]] = wider[chosen, places][found]
        can_grow[grows[~found]] = False
    nbytes = chunk_nbytes(pattern, shards)
    fits = (nbytes >= least) & (nbytes <= most)
    fits &= count_all(pattern, shards) <= pattern.bounds.max_objects
    chunks, shards = chunks[fits], shards[fits]
    return chunks, shards, predict_aims(pattern, chunks, shard_shapes=shards)


def _widen(pattern: AccessPattern, chunks: Shapes, shards: Shapes) -> tuple[Shapes, Floats]:
    """Double each dimension in turn; a shard beyond the array or its bound scores infinity."""
    doubling = 1 + np.eye(len(pattern.shape), dtype=np.int64)
    wider = doubling[:, None, :] * shards
    scores = np.stack(
        [pattern.score(predict_aims(pattern, chunks, shard_shapes=each)) for each in wider]
    )
    is_small = chunk_nbytes(pattern, wider) <= pattern.max_shard_nbytes
    fits = (shards < np.asarray(pattern.shape)).T & is_small
    return wider, np.where(fits, scores, np.inf)


def best_chunk_shape(pattern: AccessPattern, *, tolerance: float = 0.0) -> Recommendation:
    """Choose the chunk shape with the least predicted time of an access pattern.

    Of a small array every shape is tried. Of a larger one there is a sweep over
    extents in equal steps of their logarithm, and then a climb from each of the
    best that differ clearly. Where chunks outnumber the objects allowed, larger
    chunks compete with shards. With a `tolerance` the squarest shape is
    chosen of those in which each access takes at most so much longer, relatively.
    The best of clearly other shapes and the Pareto front stand beside; bounds that no
    shape respects are refused. Of a pattern with prices, the price of reading is least, and
    all times are prices.

    Examples
    --------
    Lines alone, at a cost a chunk: a chunk is a line, or as long as it may be.

    >>> from advisors.chunks.problem import Access, Bounds
    >>> from helpers.models.access import Store
    >>> store = Store(chunk_s=0.01, decode_s_per_nbyte=1e-6)
    >>> lines, bounds = [Access("line", (1000, 1))], Bounds(max_chunk_nbytes=500)
    >>> pattern = AccessPattern((1000, 50), 1, lines, [1], store, bounds)
    >>> best_chunk_shape(pattern).best.chunk_shape
    (500, 1)
    """
    shapes, seconds = predict_candidates(pattern)
    allowed = allowed_shapes(pattern, shapes)
    pool: _Pool | None = None if allowed.all() else _pool_shards(pattern, shapes, seconds)
    sharded = [] if pool is None or pool[1] is None else _choose(pattern, pool[0], pool[1], pool[2])
    if not allowed.any() and not sharded:
        raise UserError(
            f"max_objects: {pattern.bounds.max_objects}; allowed: more, or larger chunks or shards"
        )
    shapes, seconds = shapes[allowed], seconds[allowed]
    plain = [(refine_all(pattern, shapes, seconds), None)] if allowed.any() else []
    found: list[tuple[Choice, Shape | None]] = [*plain, *sharded]
    fastest = min(found, key=lambda each: each[0].score)
    near: _Pool = pool if pool is not None and fastest[1] else (shapes, None, seconds)
    best, shard_shape = _squarest(pattern, fastest, near, tolerance)
    others = [choice for choice, _ in found] + _clearly_others(pattern, best, shapes, seconds)
    second = [
        choice
        for choice in others
        if choice.score >= best.score
        and differ_clearly(best.chunk_shape, np.asarray([choice.chunk_shape]))[0]
    ]
    front = (shapes, seconds) if pool is None or allowed.any() else (pool[0], pool[2])
    n_chunks = count_chunks(pattern.shape, best.chunk_shape)
    return Recommendation(
        best,
        fastest[0],
        min(second, key=lambda choice: choice.score, default=best),
        tuple(make_choice(pattern, *each) for each in pareto(pattern, *front)),
        shard_shape,
        n_chunks,
        count_chunks(pattern.shape, shard_shape) if shard_shape else n_chunks,
    )


def _clearly_others(
    pattern: AccessPattern, best: Choice, shapes: Shapes, seconds: Floats
) -> list[Choice]:
    """Find the best of the shapes that differ clearly from the best and are no faster, if any."""
    scores = pattern.score(seconds)
    others = differ_clearly(best.chunk_shape, shapes) & (scores >= best.score)
    at = int(np.where(others, scores, np.inf).argmin()) if others.any() else -1
    return [make_choice(pattern, shapes[at], seconds[at])] if at >= 0 else []


def _squarest(
    pattern: AccessPattern, fastest: tuple[Choice, Shape | None], pool: _Pool, tolerance: float
) -> tuple[Choice, Shape | None]:
    """Find the shape of least spread among those about as large and, in each access, as fast.

    What the model cannot tell apart is told apart by accesses that nobody named:
    boxes of any kind suit a square chunk best.
    """
    if tolerance <= 0:
        return fastest
    now = np.asarray([fastest[0].chunk_shape])
    shards_now = np.asarray([fastest[1]]) if fastest[1] else None
    most = predict_aims(pattern, now, shard_shapes=shards_now) * (1 + tolerance)
    squared = _equalise(pattern, fastest[0].chunk_shape)
    if pool[1] is None:
        squared = squared[allowed_shapes(pattern, squared)]
        more: _Pool = squared, None, predict_aims(pattern, squared)
    else:
        more = _shard_all(pattern, squared)
    shapes, seconds = np.concatenate([pool[0], more[0]]), np.concatenate([pool[2], more[2]])
    sizes = chunk_nbytes(pattern, shapes) / chunk_nbytes(pattern, now)
    near = np.flatnonzero((seconds <= most).all(axis=1) & (sizes >= 1 / 2) & (sizes <= 2))
    long = np.asarray(pattern.shape) > 1
    spreads = np.log(np.concatenate([shapes[near], now])[:, long]).var(axis=1)
    at = int(spreads.argmin())
    if at == len(near):
        return fastest
    i = near[at]
    shards = None if pool[1] is None or more[1] is None else np.concatenate([pool[1], more[1]])
    shard_shape = None if shards is None else tuple(int(s) for s in shards[i])
    return make_choice(pattern, shapes[i], seconds[i]), shard_shape


def _equalise(pattern: AccessPattern, shape: Shape) -> Shapes:
    """Make the extents of any dimensions of a shape alike, at about as many elements."""
    long = [i for i, n in enumerate(pattern.shape) if n > 1]
    groups = (g for size in range(2, len(long) + 1) for g in itertools.combinations(long, size))
    found = [shape]
    for group in groups:
        extents, elements = list(shape), float(math.prod(shape[i] for i in group))
        for place, i in enumerate(sorted(group, key=lambda i: pattern.shape[i])):
            side = round(elements ** (1 / (len(group) - place)))
            extents[i] = min(pattern.shape[i], max(1, side))
            elements /= extents[i]
        found.append(tuple(extents))
    shapes = np.asarray(found, np.int64)
    nbytes = chunk_nbytes(pattern, shapes)
    return np.asarray(shapes[(nbytes >= pattern.min_nbytes) & (nbytes <= pattern.max_nbytes)])
