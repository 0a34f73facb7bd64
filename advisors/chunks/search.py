"""The layouts that suit an access pattern best, from a grid of round numbers: one copy, or two."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisors.chunks.forecast import (
    AccessPattern,
    Floats,
    Layout,
    Prices,
    Shapes,
    ask_layout,
    chunk_nbytes,
    predict_requests,
    predict_seconds,
    touched_chunks,
)
from helpers.arrays.chunks import Shape
from helpers.errors import UserError

MODEL_ERROR = 0.03
"""How far predicted times of near shapes err beside one another, relative."""

WORTH = 1.1
"""Times as fast, below which another layout than the one that is there is not worth it."""

_N_CANDIDATES = 150_000  # at most; some 0.2 s
_PARTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)  # into which an axis is cut evenly
_SHARD_NBYTES = 1e8, 1e9  # of a shard in the array, about
_SHARD_WORTH = 1.2  # times as fast, below which shards are not worth it
_MOST_SPLIT = 6  # accesses: each way to split them between two copies is tried


def best_layout(pattern: AccessPattern) -> Layout:
    """Choose the layout with the least predicted time, of round extents.

    Of those that take at most `MODEL_ERROR` longer in each access, it is the roundest and
    squarest. Chunks that outnumber the objects allowed come in shards, where these are faster
    than larger chunks.

    Examples
    --------
    Lines alone, at a cost a chunk: a chunk is a line, or as long as it may be.

    >>> from advisors.chunks.forecast import Access, Bounds
    >>> from helpers.models.access import Store
    >>> store = Store(chunk_s=0.01, decode_s_per_nbyte=1e-6)
    >>> lines, bounds = [Access("line", (1000, 1))], Bounds(max_chunk_nbytes=500)
    >>> best_layout(AccessPattern((1000, 50), 1, lines, [1], store, bounds))
    Layout(chunk_shape=(500, 1), shard_shape=None)
    """
    shapes = list_candidates(pattern)
    seconds = predict_seconds(pattern, shapes)
    is_plain = count_objects(pattern, shapes) <= pattern.bounds.max_objects
    found = []
    if is_plain.any():
        found.append(Layout(_choose(pattern, shapes[is_plain], seconds[is_plain])))
    if not is_plain.all():
        found += _shard(pattern, _choose(pattern, shapes, seconds))
    if not found:
        raise UserError(f"max-objects: {pattern.bounds.max_objects}; allowed: more")
    scores = [score(pattern, layout) for layout in found]
    most = _SHARD_WORTH * min(scores)
    return next(one for one, s in zip(found, scores, strict=True) if s <= most)


def fastest_layout(pattern: AccessPattern) -> Layout:
    """Choose the shape of the grid with the least predicted time, each chunk an object of its own."""
    shapes = list_candidates(pattern)
    fastest = int(pattern.score(predict_seconds(pattern, shapes)).argmin())
    return Layout(tuple(int(extent) for extent in shapes[fastest]))


def score(pattern: AccessPattern, layout: Layout) -> float:
    """Predict the seconds of a read of a layout, as the pattern weighs them."""
    seconds = [
        ask_layout(pattern, each, layout).seconds(pattern.store) for each in pattern.accesses
    ]
    return float(pattern.score(np.asarray(seconds)))


def cheapest_layout(pattern: AccessPattern, prices: Prices) -> Layout:
    """Choose the layout whose reads cost least in requests and bytes; of equals the fastest."""
    shapes = list_candidates(pattern)
    shapes = shapes[count_objects(pattern, shapes) <= pattern.bounds.max_objects]
    if not len(shapes):
        return best_layout(pattern)
    usd = prices.of_read(*predict_requests(pattern, shapes)) @ pattern.shares
    near = shapes[usd <= usd.min() * (1 + MODEL_ERROR)]
    return Layout(_choose(pattern, near, predict_seconds(pattern, near)))


@dataclass(frozen=True, slots=True)
class Copies:
    """Two layouts, and the accesses that read each."""

    layouts: tuple[Layout, Layout]
    serves: tuple[tuple[int, ...], tuple[int, ...]]  # places of accesses in the pattern


def best_copies(pattern: AccessPattern) -> Copies | None:
    """Choose two layouts that share the accesses; None where these cannot be split."""
    n = len(pattern.accesses)
    if not 2 <= n <= _MOST_SPLIT:
        return None
    seconds = predict_seconds(pattern, list_candidates(pattern)) * pattern.shares

    def total(group: Sequence[int]) -> float:
        return float(seconds[:, group].sum(axis=1).min())

    splits = [
        tuple(tuple(i for i in range(n) if bits >> i & 1 == side) for side in (0, 1))
        for bits in range(1, 2 ** (n - 1))
    ]
    ours, theirs = min(splits, key=lambda split: sum(map(total, split)))
    one, two = (best_layout(restrict(pattern, group)) for group in (ours, theirs))
    return Copies((one, two), (ours, theirs))


def restrict(pattern: AccessPattern, group: Sequence[int]) -> AccessPattern:
    """Leave some accesses of a pattern."""
    accesses = [pattern.accesses[i] for i in group]
    return replace(pattern, accesses=accesses, weights=[pattern.weights[i] for i in group])


def list_candidates(pattern: AccessPattern) -> Shapes:
    """List the shapes of a grid that are within the bounds on bytes, and no longer than allowed."""
    longest = pattern.bounds.longest or pattern.shape
    for step in (1, 2, 4, 16, 256):
        grids = [
            _list_extents(pattern, column, min(n, most), step)
            for column, (n, most) in enumerate(zip(pattern.shape, longest, strict=True))
        ]
        if math.prod(map(len, grids)) <= _N_CANDIDATES:
            break
    nbytes: Floats = np.array(float(pattern.itemsize))
    for axis in np.ix_(*[np.asarray(grid, np.float64) for grid in grids]):
        nbytes = nbytes * axis
    least = min(pattern.min_nbytes, float(nbytes.max()))
    kept = np.nonzero((nbytes >= least) & (nbytes <= pattern.max_nbytes))
    if not len(kept[0]):
        raise UserError(
            f"bounds: no chunk of {least:g} to {pattern.max_nbytes} bytes; allowed: more memory"
        )
    columns = [np.asarray(grid, np.int64)[i] for grid, i in zip(grids, kept, strict=True)]
    return np.stack(columns, axis=1)


def _list_extents(pattern: AccessPattern, column: int, n: int, step: int) -> list[int]:
    """List round extents of an axis: powers of two and thrice these, even cuts, those of accesses.

    With a `step` above 1 there are only powers of it, the whole axis and the accesses.
    """
    own = {access.extent[column] for access in pattern.accesses}
    found = {n} | {e for e in own if e <= n}
    if step == 1:
        found |= {-(-n // k) for k in _PARTS}
        found |= {part for e in own for k in (2, 4) if (part := -(-e // k)) <= n}
    factors = (1, 3) if step == 1 else (1,)
    base = max(2, step)
    powers = range(math.ceil(math.log(n, base)) + 1)
    return sorted(found | {f * base**k for k in powers for f in factors if f * base**k <= n})


def _choose(pattern: AccessPattern, shapes: Shapes, seconds: Floats) -> Shape:
    """Take, of the shapes about as fast as the fastest in each access, the roundest and squarest.

    What the model cannot tell apart is told apart by accesses that nobody named: boxes of any
    kind suit a square chunk best.
    """
    scores = pattern.score(seconds)
    fastest = int(scores.argmin())
    near = (seconds <= seconds[fastest] * (1 + MODEL_ERROR)).all(axis=1)
    shapes, scores = shapes[near], scores[near]
    long = np.asarray(pattern.shape) > 1
    spread = np.log(shapes[:, long]).std(axis=1) if long.any() else np.zeros(len(shapes))
    rough = np.sum(~_is_round(pattern.shape, shapes), axis=1)
    at = int(np.lexsort((scores, -shapes.prod(axis=1), np.round(spread + 0.3 * rough, 6)))[0])
    return tuple(int(extent) for extent in shapes[at])


def _is_round(shape: Shape, shapes: Shapes) -> np.ndarray:
    """Tell which extents are powers of two, or cut their axis evenly."""
    return np.asarray(((shapes & (shapes - 1)) == 0) | (np.asarray(shape) % shapes == 0))


def count_objects(pattern: AccessPattern, shapes: Shapes) -> Floats:
    """Count the chunks, or shards, of the whole array."""
    return np.asarray(np.prod(np.ceil(np.asarray(pattern.shape) / shapes), axis=1))


def _shard(pattern: AccessPattern, chunk: Shape) -> list[Layout]:
    """Put chunks that are too many into the shards touched least often that are large and few enough.

    None reaches beyond the array, nor beyond what an append may rewrite.
    """
    longest = pattern.bounds.longest or pattern.shape
    grids = []
    for c, n, most in zip(chunk, pattern.shape, longest, strict=True):
        times = {2**k for k in range((n // c).bit_length() + 1)} | {n // c if n % c == 0 else 1}
        grids.append([c * k for k in sorted(times) if k == 1 or c * k <= min(n, most)])
    shards = np.asarray([*itertools.product(*grids)], np.int64)
    nbytes = chunk_nbytes(pattern, shards)
    few = count_objects(pattern, shards) <= pattern.bounds.max_objects
    fits = few & (nbytes >= _SHARD_NBYTES[0]) & (nbytes <= _SHARD_NBYTES[1])
    shards = shards[fits if fits.any() else few & (nbytes <= 10 * _SHARD_NBYTES[1])]
    touched = [touched_chunks(pattern, each, shards) for each in pattern.accesses]
    mean = np.round(np.log(pattern.shares @ np.stack(touched)), 9)  # so that equals are equal
    order = np.lexsort((-shards.prod(axis=1), mean))
    return [Layout(chunk, tuple(int(extent) for extent in shards[i])) for i in order[:1]]
