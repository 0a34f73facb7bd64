"""The layouts that suit an access pattern best, from one grid of round numbers: one copy, or two."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisors.decide.layouts import (
    AccessPattern,
    Floats,
    Layout,
    Prices,
    Shapes,
    ask_layout,
    chunk_nbytes,
    rewritten_nbytes,
    touched_chunks,
    touched_runs,
)
from helpers.arrays.chunks import Shape
from helpers.errors import UserError
from helpers.models.access import IoCounts, access_seconds

MODEL_ERROR = 0.03
"""How far predicted times of near shapes err beside one another, relative."""

_N_CANDIDATES = 150_000  # at most; some 0.2 s
_PARTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)  # into which an axis is cut evenly
_SHARD_NBYTES = 1e8, 1e9  # of a shard in the array, about
_SHARD_WORTH = 1.2  # times as fast, below which shards are not worth it
_MOST_SPLIT = 6  # accesses: each way to split them between two copies is tried


@dataclass(frozen=True, slots=True)
class Grid:
    """Chunks of round extents within the bounds of a pattern, each an object, and what they ask."""

    pattern: AccessPattern
    shapes: Shapes
    touched: Floats  # chunks that each access touches, one a column
    seconds: Floats  # median time of each access, one a column

    def restrict(self, group: Sequence[int]) -> Grid:
        """Leave some accesses of the pattern."""
        taken, pattern = list(group), self.pattern
        accesses = [pattern.accesses[i] for i in taken]
        weights = [pattern.weights[i] for i in taken]
        pattern = replace(pattern, accesses=accesses, weights=weights)
        return Grid(pattern, self.shapes, self.touched[:, taken], self.seconds[:, taken])

    def take(self, rows: Any) -> Grid:
        """Leave some shapes."""
        return Grid(self.pattern, self.shapes[rows], self.touched[rows], self.seconds[rows])

    @property
    def is_plain(self) -> NDArray[np.bool_]:
        """Tell which shapes have no more objects than allowed."""
        return count_objects(self.pattern, self.shapes) <= self.pattern.bounds.max_objects


def make_grid(pattern: AccessPattern) -> Grid:
    """List the candidates for a pattern, and predict each."""
    shapes = _list_candidates(pattern)
    nbytes, many, touched, seconds = chunk_nbytes(pattern, shapes), pattern.together, [], []
    for access in pattern.accesses:
        touched.append(touched_chunks(pattern, access, shapes))
        n_jobs = many * touched_runs(pattern, access, shapes) if pattern.store.is_file else 0.0
        counts = IoCounts(many * touched[-1], nbytes, n_jobs)
        seconds.append(access_seconds(pattern.store, counts))
    return Grid(pattern, shapes, np.stack(touched, axis=1), np.stack(seconds, axis=1))


def best_layout(pattern: AccessPattern) -> Layout:
    """Choose the layout with the least predicted time, of round extents.

    Of those that take at most `MODEL_ERROR` longer in each access, it is the roundest and
    squarest. Chunks that outnumber the objects allowed come in shards, where these are faster
    than larger chunks.

    Examples
    --------
    Lines alone, at a cost a chunk: a chunk is a line, or as long as it may be.

    >>> from advisors.decide.layouts import Access, Bounds
    >>> from helpers.models.access import Store
    >>> store = Store(chunk_s=0.01, decode_s_per_nbyte=1e-6)
    >>> lines, bounds = [Access("line", (1000, 1))], Bounds(max_chunk_nbytes=500)
    >>> best_layout(AccessPattern((1000, 50), 1, lines, [1], store, bounds))
    Layout(chunk_shape=(500, 1), shard_shape=None)
    """
    return best_of(make_grid(pattern))


def best_of(grid: Grid) -> Layout:
    """Choose the layout of a grid as `best_layout` does."""
    if (found := _find_best(grid)) is None:
        more = ", or appends of more steps at once" if grid.pattern.bounds.append else ""
        most = grid.pattern.bounds.max_objects
        raise UserError(f"max-objects: {most} an array; allowed: more{more}")
    return found


def _find_best(grid: Grid) -> Layout | None:
    """Choose a layout; None where all have too many objects."""
    pattern, is_plain, found = grid.pattern, grid.is_plain, list[Layout]()
    if is_plain.any():
        found.append(Layout(_choose(grid.take(is_plain))))
    if not is_plain.all():
        found += _shard(pattern, _choose(grid))
    scores = [score(pattern, layout) for layout in found]
    most = _SHARD_WORTH * min(scores, default=0.0)
    return next((one for one, s in zip(found, scores, strict=True) if s <= most), None)


def score(pattern: AccessPattern, layout: Layout) -> float:
    """Predict the seconds of a read of a layout, as the pattern weighs them."""
    seconds = [
        ask_layout(pattern, each, layout).seconds(pattern.store) for each in pattern.accesses
    ]
    return float(np.asarray(seconds) @ pattern.shares)


def cheapest_of(grid: Grid, prices: Prices) -> Layout:
    """Choose the layout whose reads cost least in requests and bytes; of equals the fastest."""
    plain = grid.take(grid.is_plain)
    if not len(plain.shapes):
        return best_of(grid)
    n = grid.pattern.together * plain.touched
    stored = chunk_nbytes(grid.pattern, plain.shapes) / grid.pattern.store.compression_ratio
    usd = prices.of_read(n, n * stored[:, None]) @ grid.pattern.shares
    return Layout(_choose(plain.take(usd <= usd.min() * (1 + MODEL_ERROR))))


def best_copies(grid: Grid) -> tuple[tuple[Layout, Layout], tuple[Shape, Shape]] | None:
    """Choose two layouts, and the places of the accesses that read each; None where these cannot be split.

    Each may rewrite half of what an append may.
    """
    n, bounds = len(grid.pattern.accesses), grid.pattern.bounds
    if not 2 <= n <= _MOST_SPLIT:
        return None
    if bounds.append:
        most = bounds.max_rewritten_nbytes / 2
        extents = grid.shapes[:, bounds.append[0]]
        grid = grid.take(rewritten_nbytes(grid.pattern, extents) <= most)
        pattern = replace(grid.pattern, bounds=replace(bounds, max_rewritten_nbytes=most))
        grid = replace(grid, pattern=pattern)
    seconds = grid.seconds * grid.pattern.shares

    def total(group: Sequence[int]) -> float:
        return float(seconds[:, group].sum(axis=1).min())

    splits = [
        tuple(tuple(i for i in range(n) if bits >> i & 1 == side) for side in (0, 1))
        for bits in range(1, 2 ** (n - 1))
    ]
    ours, theirs = min(splits, key=lambda split: sum(map(total, split)))
    one, two = (_find_best(grid.restrict(group)) for group in (ours, theirs))
    return ((one, two), (ours, theirs)) if one and two else None


def _list_candidates(pattern: AccessPattern) -> Shapes:
    """List the shapes of a grid within the bounds on bytes, those read and those rewritten."""
    for step in (1, 2, 4, 16, 256):
        grids = [_list_extents(pattern, column, step) for column in range(len(pattern.shape))]
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


def _list_extents(pattern: AccessPattern, column: int, step: int) -> list[int]:
    """List round extents of an axis: powers of two and thrice these, even cuts, those of accesses.

    With a `step` above 1 there are only powers of it, the whole axis and the accesses. Where the
    array grows there are those of an append, and none of which it would rewrite too much.
    """
    n, append = pattern.shape[column], pattern.bounds.append
    own = {access.extent[column] for access in pattern.accesses}
    if (
        append and append[0] == column
    ):  # an append's own, and the most whole ones that it may rewrite
        steps = append[1]
        most = pattern.bounds.max_rewritten_nbytes
        most = 1 + int(most // max(1.0, float(rewritten_nbytes(pattern, 2 * steps))))
        own |= {min(steps, n), min(steps * most, n)}
    found = {n} | own
    if step == 1:
        found |= {-(-n // k) for k in _PARTS}
        found |= {-(-e // k) for e in own for k in (2, 4)}
    factors = (1, 3) if step == 1 else (1,)
    base = max(2, step)
    powers = range(math.ceil(math.log(n, base)) + 1)
    found |= {f * base**k for k in powers for f in factors if f * base**k <= n}
    if append and append[0] == column:
        found = {
            e
            for e in found
            if float(rewritten_nbytes(pattern, e)) <= pattern.bounds.max_rewritten_nbytes
        }
    return sorted(found)


def _choose(grid: Grid) -> Shape:
    """Take, of the shapes about as fast as the fastest in each access, the roundest and squarest.

    What the model cannot tell apart is told apart by accesses that nobody named: boxes of any
    kind suit a square chunk best.
    """
    seconds, shape = grid.seconds, np.asarray(grid.pattern.shape)
    scores = seconds @ grid.pattern.shares
    near = (seconds <= seconds[int(scores.argmin())] * (1 + MODEL_ERROR)).all(axis=1)
    shapes, scores = grid.shapes[near], scores[near]
    long = shape > 1
    spread = np.log(shapes[:, long]).std(axis=1) if long.any() else np.zeros(len(shapes))
    is_round = ((shapes & (shapes - 1)) == 0) | (shape % shapes == 0)
    rough = np.sum(~is_round, axis=1)
    nbytes = chunk_nbytes(grid.pattern, shapes)
    at = int(np.lexsort((scores, -nbytes, np.round(spread + 0.3 * rough, 6)))[0])
    return tuple(int(extent) for extent in shapes[at])


def count_objects(pattern: AccessPattern, shapes: Shapes) -> Floats:
    """Count the chunks, or shards, of the whole array."""
    return np.asarray(np.prod(np.ceil(np.asarray(pattern.shape) / shapes), axis=1))


def _shard(pattern: AccessPattern, chunk: Shape) -> list[Layout]:
    """Put chunks that are too many into the shards touched least often that are large and few enough.

    None reaches beyond the array, nor beyond what an append may rewrite; along an axis that grows,
    none holds all that is there.
    """
    append, grids = pattern.bounds.append, []
    for column, (c, n) in enumerate(zip(chunk, pattern.shape, strict=True)):
        times = {2**k for k in range((n // c).bit_length() + 1)} | {n // c if n % c == 0 else 1}
        extents = [c * k for k in sorted(times) if k == 1 or c * k <= n]
        if append and append[0] == column:
            extents = [
                e
                for e in extents
                if e == c
                or (
                    e < n
                    and float(rewritten_nbytes(pattern, e)) <= pattern.bounds.max_rewritten_nbytes
                )
            ]
        grids.append(extents)
    shards = np.asarray([*itertools.product(*grids)], np.int64)
    nbytes = chunk_nbytes(pattern, shards)
    few = count_objects(pattern, shards) <= pattern.bounds.max_objects
    fits = few & (nbytes >= _SHARD_NBYTES[0]) & (nbytes <= _SHARD_NBYTES[1])
    shards = shards[fits if fits.any() else few & (nbytes <= 10 * _SHARD_NBYTES[1])]
    touched = [touched_chunks(pattern, each, shards) for each in pattern.accesses]
    mean = np.round(np.log(pattern.shares @ np.stack(touched)), 9)  # so that equals are equal
    order = np.lexsort((-chunk_nbytes(pattern, shards), mean))
    return [Layout(chunk, tuple(int(extent) for extent in shards[i])) for i in order[:1]]
