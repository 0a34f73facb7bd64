"""An array, how it is read, what a layout asks of a store, and the layouts that suit best: one copy, or two."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from wire.errors import UserError
from wire.models import WORTH
from wire.models.access import (
    IoCounts,
    Shape,
    Store,
    access_seconds,
    count_chunks,
    expected_touched,
)

if TYPE_CHECKING:
    from wire.hdf5.inspection import FileLayout

Floats = NDArray[np.float64]
Shapes = NDArray[np.int64]
"""Candidates: one shape a row."""

APPEND_NBYTES = 1_000_000_000
"""Stored bytes of an array that one append may rewrite at most."""

MODEL_ERROR = 0.03
"""How far predicted times of near shapes err next to one another, relative."""

MOST_EXTENT = 2**53
"""Elements of a dimension at most; up to here floats count without error."""
MOST_ARRAY_NBYTES = 2**62
"""Bytes of an array at most; up to here whole numbers of 64 bits count."""
_LARGEST = 2**31 - 1  # bytes of a chunk that codecs take
_INDEX_NBYTES = 16  # of a shard's index, for each of its chunks
_N_CANDIDATES = 150_000  # at most; some 0.2 s
_PARTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)  # into which an axis is cut evenly
_SHARD_NBYTES = 1e8, 1e9  # of a shard in the array, about
_SHARD_WORTH = 1.2  # times as fast, below which shards are not worth it
_MOST_SPLIT = 6  # accesses: each way to split them between two copies is tried


@dataclass(frozen=True, slots=True)
class Access:
    """A box of elements, read anywhere in the array with equal chance."""

    name: str  # name on the page
    extent: Shape  # elements for each dimension
    # whether it starts at multiples of its extent, as tiles of a viewer and blocks of Dask do
    is_aligned: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """How an array lies in a store."""

    chunk_shape: Shape  # elements for each dimension
    shard_shape: Shape | None = None  # of an object that holds several chunks

    @property
    def object_shape(self) -> Shape:
        """Elements of an object for each dimension."""
        return self.shard_shape or self.chunk_shape

    def count_objects(self, shape: Shape) -> int:
        """Count the objects of an array."""
        return count_chunks(shape, self.object_shape)


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """What is known of an array."""

    variable: str  # name in the store, after the groups that it lies in
    shape: Shape  # elements for each dimension
    dtype: np.dtype[Any]  # type of an element
    layout: Layout | None = None  # None where it is stored without chunks, or not yet
    format: Literal["none", "zarr", "hdf5"] = "none"
    dimensions: tuple[str, ...] = ()  # their names, where they have some
    codec: str = ""
    compression: float | None = None  # array bytes over stored bytes; None where nothing tells
    names: tuple[str, ...] = ()  # all arrays of the dataset, the largest first
    n_alike: int = 1  # arrays of this shape and type
    is_scattered: bool | None = None  # whether its chunks in a file lie far apart; None if unknown
    lies: FileLayout | None = None  # where it lies in its file, and others that are read with it

    @property
    def nbytes(self) -> int:
        """Bytes in the array."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """An array, the accesses to it, how often each happens, what it is read from, and its bounds."""

    shape: Shape  # elements of the array for each dimension
    itemsize: int  # bytes of an element, at least 1
    accesses: Sequence[Access]  # one or more, none larger than the array
    weights: Sequence[float]  # how often each happens, in any unit; their sum is above 0
    store: Store  # what an access meets
    together: int = 1  # boxes that a program asks for at once: a batch, or variables of a file
    min_chunk_nbytes: int = 1  # of a chunk in the array; a small array's own bytes are enough
    max_chunk_nbytes: int = 100_000_000
    max_objects: int = 1_000_000  # of the array; with more chunks than that it is sharded
    memory_nbytes: int = 8_000_000_000  # for the chunks that are decoded at once
    # axis along which the array grows, and by how many elements at once
    append: tuple[int, int] | None = None
    max_rewritten_nbytes: float = APPEND_NBYTES  # stored, by an append

    @property
    def shares(self) -> Floats:
        """Weights, scaled so that their sum is 1."""
        weights = np.asarray(self.weights, np.float64)
        return np.asarray(weights / weights.sum())

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.itemsize

    @property
    def max_nbytes(self) -> int:
        """Bytes of a chunk at most: as bound, and as many at once as fit in memory."""
        at_once = self.memory_nbytes // self.store.n_connections
        return max(self.itemsize, min(self.max_chunk_nbytes, at_once, _LARGEST))

    @property
    def min_nbytes(self) -> int:
        """Bytes of a chunk at least: as bound, but no more than the array or the most allowed."""
        return min(self.min_chunk_nbytes, self.max_nbytes // 2, self.nbytes)

    def grows(self, column: int) -> bool:
        """Whether appends make the array longer along an axis."""
        return self.append is not None and self.append[0] == column

    def allows(self, column: int, extents: Any) -> Any:
        """Whether an append rewrites no more than it may of objects so long along an axis."""
        is_little = rewritten_nbytes(self, extents) <= self.max_rewritten_nbytes
        return is_little | (not self.grows(column))


@dataclass(frozen=True, slots=True)
class Forecast:
    """What to expect of one access: of an array that is open, or of a file that is not."""

    access: str
    # nine measured reads in ten lie between the first and the last
    p05_s: float
    p50_s: float
    p95_s: float
    n_requests: float
    nbytes: float  # over the wire
    over_read: float  # bytes that are decoded for each byte that is asked
    cpu_s: float  # of one processor
    share: float = 1.0  # of all accesses


def expect(
    pattern: AccessPattern,
    access: Access,
    layout: Layout,
    *,
    in_turn: float = 1.0,
    n_cores: int = 1,
) -> Forecast:
    """Expect what an access asks of chunks, or of shards, whose indices come first, and how long it takes.

    zarr joins chunks that are near one another in a shard, so it makes no more requests than this.
    `in_turn` requests bring a chunk, one after the other; `n_cores` share what the store decodes.
    """
    store, wanted = pattern.store, pattern.together * math.prod(access.extent) * pattern.itemsize

    def touch(shape: Shape) -> float:
        return pattern.together * float(touched_chunks(pattern, access, np.asarray([shape]))[0])

    n, nbytes = touch(layout.chunk_shape), float(math.prod(layout.chunk_shape) * pattern.itemsize)
    stored_nbytes = nbytes / store.compression_ratio
    counts = IoCounts(n, nbytes, 0.0, n * in_turn, max(stored_nbytes, 1e-9))
    n_indices, index_nbytes, index_s = 0.0, 0.0, 0.0
    if layout.shard_shape:
        n_indices = touch(layout.shard_shape)
        n_held = math.prod(layout.shard_shape) // math.prod(layout.chunk_shape)
        index_nbytes = float(_INDEX_NBYTES * n_held)
        bare = replace(store, start_s=0.0, chunk_s=0.0, decode_s_per_nbyte=0.0, is_cold=False)
        index_s = float(access_seconds(bare, IoCounts(n_indices, 0.0, stored_nbytes=index_nbytes)))
    # of the indices the tail of one wave is enough
    p50_s, p95_s = (float(access_seconds(store, counts, quantile=q)) + index_s for q in (0.5, 0.95))
    moved_nbytes = n * stored_nbytes + n_indices * index_nbytes
    return Forecast(
        access.name,
        *bound_seconds(p50_s, p95_s),
        n * in_turn + n_indices,
        moved_nbytes,
        max(n * nbytes, moved_nbytes) / wanted,
        n * (store.chunk_s + nbytes * store.decode_s_per_nbyte * n_cores),
    )


def bound_seconds(p50_s: float, later_s: float) -> tuple[float, float, float]:
    """Bound a predicted time from the times to first byte, and by how far the model errs beside them.

    Returns the 5th, 50th and 95th percentile. The time is as far above the first as it is below
    the last, as a factor; tests hold the share of measured reads between them.
    """
    spread = WORTH * max(later_s, p50_s) / p50_s if p50_s else 1.0
    return p50_s / spread, p50_s, p50_s * spread


def chunk_nbytes(pattern: AccessPattern, shapes: Shapes) -> Floats:
    """Compute the bytes of a chunk in the array, of each shape."""
    return np.asarray(np.prod(shapes.astype(np.float64), axis=-1) * pattern.itemsize)


def rewritten_nbytes(pattern: AccessPattern, extents: Any) -> Any:
    """Compute the stored bytes that an append rewrites at most, of objects so long along its axis.

    What was there stops within an object, short of its end by a multiple of what an append and an
    object have in common.
    """
    if pattern.append is None:
        return np.zeros(np.shape(extents))
    axis, steps = pattern.append
    slab_nbytes = pattern.nbytes / pattern.shape[axis] / pattern.store.compression_ratio
    return slab_nbytes * (extents - np.gcd(extents, steps))


def touched_chunks(pattern: AccessPattern, access: Access, shapes: Shapes) -> Floats:
    """Expect the chunks that an access touches: a product of one look-up a dimension."""
    return np.asarray(np.prod([*_touched_each(pattern, access, shapes)], axis=0), np.float64)


def touched_runs(pattern: AccessPattern, access: Access, shapes: Shapes) -> Floats:
    """Expect the runs of neighbouring chunks that an access touches in a file in C order."""
    runs, is_whole = np.ones(len(shapes)), np.ones(len(shapes), bool)
    factors = [*_touched_each(pattern, access, shapes)]
    for touched, n, chunk in zip(factors[::-1], pattern.shape[::-1], shapes.T[::-1], strict=True):
        runs = np.where(is_whole, 1.0, runs * touched)
        is_whole &= touched >= np.ceil(n / chunk) - 1e-9
    return runs


def _touched_each(pattern: AccessPattern, access: Access, shapes: Shapes) -> Iterator[Floats]:
    """Expect the chunks touched in each dimension; whole numbers of Python, whose squares have no end."""
    count = aligned_touched if access.is_aligned else expected_touched
    for extent, n, column in zip(access.extent, pattern.shape, shapes.T, strict=True):
        chunks, positions = np.unique(column, return_inverse=True)
        yield np.asarray([count(extent, int(c), n) for c in chunks], np.float64)[positions]


def aligned_touched(extent: int, chunk_extent: int, n: int) -> float:
    """Compute how many chunks a range touches on average that starts at a multiple of its length.

    A range has a border of chunks inside it for each multiple of the chunk that is none of its
    own starts. A rest at the end that is no whole range is left out.

    Examples
    --------
    Tiles of 4 in chunks of 6: of three, the second lies across a border.

    >>> round(aligned_touched(4, 6, 12), 3)
    1.333
    """
    n_ranges = n // extent
    last = n_ranges * extent - 1
    return 1 + (last // chunk_extent - last // math.lcm(extent, chunk_extent)) / n_ranges


@dataclass(frozen=True, slots=True)
class Grid:
    """Chunks of round extents within the bounds of a pattern, each an object, and what they ask."""

    pattern: AccessPattern
    shapes: Shapes
    touched: Floats  # chunks that each access touches, one a column
    seconds: Floats  # median time of each access, one a column

    def restrict(self, group: Sequence[int]) -> Grid:
        """Leave some accesses of the pattern."""
        chosen, pattern = list(group), self.pattern
        accesses = [pattern.accesses[i] for i in chosen]
        weights = [pattern.weights[i] for i in chosen]
        pattern = replace(pattern, accesses=accesses, weights=weights)
        return Grid(pattern, self.shapes, self.touched[:, chosen], self.seconds[:, chosen])

    def take(self, rows: Any) -> Grid:
        """Leave some shapes."""
        return Grid(self.pattern, self.shapes[rows], self.touched[rows], self.seconds[rows])

    @property
    def plain(self) -> Grid:
        """Shapes that have no more objects than allowed."""
        return self.take(_count_objects(self.pattern, self.shapes) <= self.pattern.max_objects)


def make_grid(pattern: AccessPattern) -> Grid:
    """List the candidates for a pattern, and predict each."""
    shapes, touched, seconds = _list_candidates(pattern), list[Floats](), list[Floats]()
    nbytes, n_together = chunk_nbytes(pattern, shapes), pattern.together
    for access in pattern.accesses:
        touched.append(touched_chunks(pattern, access, shapes))
        n_jobs = (
            n_together * touched_runs(pattern, access, shapes) if pattern.store.is_file else 0.0
        )
        seconds.append(
            access_seconds(pattern.store, IoCounts(n_together * touched[-1], nbytes, n_jobs))
        )
    return Grid(pattern, shapes, np.stack(touched, axis=1), np.stack(seconds, axis=1))


def best_layout(pattern: AccessPattern) -> Layout:
    """Choose the layout with the least predicted time, of round extents.

    Of those that take at most `MODEL_ERROR` longer in each access, it is the roundest and
    squarest. Chunks that outnumber the objects allowed come in shards, where these are faster
    than larger chunks.

    Examples
    --------
    Lines alone, at a cost a chunk: a chunk is a line, or as long as it may be.

    >>> store = Store(chunk_s=0.01, decode_s_per_nbyte=1e-6)
    >>> lines = [Access("line", (1000, 1))]
    >>> best_layout(AccessPattern((1000, 50), 1, lines, [1], store, max_chunk_nbytes=500))
    Layout(chunk_shape=(500, 1), shard_shape=None)
    """
    return best_of(make_grid(pattern))


def best_of(grid: Grid) -> Layout:
    """Choose the layout of a grid as `best_layout` does."""
    pattern, plain, layouts = grid.pattern, grid.plain, list[Layout]()
    if len(plain.shapes):
        layouts.append(Layout(_choose(plain)))
    if len(plain.shapes) < len(grid.shapes):
        layouts += _shard(pattern, _choose(grid))
    if not layouts:
        more = ", or appends of more steps at once" if pattern.append else ""
        raise UserError("max-objects", f"{pattern.max_objects} an array", f"more{more}")
    scores = [score(pattern, layout) for layout in layouts]
    return next(
        layout for layout, s in zip(layouts, scores, strict=True) if s <= _SHARD_WORTH * min(scores)
    )


def score(pattern: AccessPattern, layout: Layout) -> float:
    """Predict the seconds of a read of a layout, as the pattern weighs them."""
    seconds = [expect(pattern, access, layout).p50_s for access in pattern.accesses]
    return float(np.asarray(seconds) @ pattern.shares)


def cheapest_of(grid: Grid, *, get_usd: float, out_usd: float) -> Layout:
    """Choose the layout whose reads cost least in requests and bytes that leave; of equals the fastest."""
    plain, pattern = grid.plain, grid.pattern
    if not len(plain.shapes):
        return best_of(grid)
    stored = chunk_nbytes(pattern, plain.shapes) / pattern.store.compression_ratio
    usd = (plain.touched @ pattern.shares) * (get_usd + out_usd * stored)
    return Layout(_choose(plain.take(usd <= usd.min() * (1 + MODEL_ERROR))))


def best_copies(grid: Grid) -> tuple[tuple[Layout, Layout], tuple[Shape, Shape]] | None:
    """Choose two layouts, and the places of the accesses that read each; None where these cannot be split.

    Each may rewrite half of what an append may.
    """
    n, pattern = len(grid.pattern.accesses), grid.pattern
    if not 2 <= n <= _MOST_SPLIT:
        return None
    if pattern.append:
        axis, half = pattern.append[0], pattern.max_rewritten_nbytes / 2
        grid = replace(grid, pattern=replace(pattern, max_rewritten_nbytes=half))
        grid = grid.take(grid.pattern.allows(axis, grid.shapes[:, axis]))
    seconds = grid.seconds * grid.pattern.shares

    def total(group: Sequence[int]) -> float:
        return float(seconds[:, group].sum(axis=1).min())

    splits = [
        tuple(tuple(i for i in range(n) if bits >> i & 1 == side) for side in (0, 1))
        for bits in range(1, 2 ** (n - 1))
    ]
    first, second = min(splits, key=lambda split: sum(map(total, split)))
    try:
        left_best, right_best = (best_of(grid.restrict(group)) for group in (first, second))
    except UserError:
        return None  # a copy has too many objects
    return (left_best, right_best), (first, second)


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
    within = np.nonzero((nbytes >= least) & (nbytes <= pattern.max_nbytes))
    if not len(within[0]):
        raise UserError(
            "bounds", f"no chunk of {least:g} to {pattern.max_nbytes} bytes", "more memory"
        )
    columns = [np.asarray(grid, np.int64)[i] for grid, i in zip(grids, within, strict=True)]
    return np.stack(columns, axis=1)


def _list_extents(pattern: AccessPattern, column: int, step: int) -> list[int]:
    """List round extents of an axis: powers of two and thrice these, even cuts, those of accesses.

    With a `step` above 1 there are only powers of it, the whole axis and the accesses. Where the
    array grows there are those of an append and the most whole ones that it may rewrite, and none
    of which it would rewrite too much.
    """
    n, own = pattern.shape[column], {access.extent[column] for access in pattern.accesses}
    if pattern.append and pattern.grows(column):
        steps = pattern.append[1]
        each_nbytes = max(1.0, float(rewritten_nbytes(pattern, 2 * steps)))
        most = 1 + int(pattern.max_rewritten_nbytes // each_nbytes)
        own |= {min(steps, n), min(steps * most, n)}
    base, factors = max(2, step), (1, 3) if step == 1 else (1,)
    extents = {n} | own | {f * base**k for k in range(n.bit_length()) for f in factors}
    if step == 1:
        extents |= {-(-n // k) for k in _PARTS} | {-(-e // k) for e in own for k in (2, 4)}
    return sorted(e for e in extents if e <= n and pattern.allows(column, e))


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
    best = int(np.lexsort((scores, -nbytes, np.round(spread + 0.3 * rough, 6)))[0])
    return tuple(int(extent) for extent in shapes[best])


def _count_objects(pattern: AccessPattern, shapes: Shapes) -> Floats:
    """Count the chunks, or shards, of the whole array."""
    return np.asarray(np.prod(np.ceil(np.asarray(pattern.shape) / shapes), axis=1))


def _shard(pattern: AccessPattern, chunk: Shape) -> list[Layout]:
    """Put chunks that are too many into the shards touched least often that are large and few enough.

    None reaches beyond the array, nor beyond what an append may rewrite; along an axis that grows,
    none holds all that is there.
    """
    grids = []
    for column, (c, n) in enumerate(zip(chunk, pattern.shape, strict=True)):
        times = {2**k for k in range((n // c).bit_length() + 1)} | {n // c if n % c == 0 else 1}
        longest = n - 1 if pattern.grows(column) else n
        extents = [c * k for k in sorted(times) if k == 1 or c * k <= longest]
        grids.append([e for e in extents if e == c or pattern.allows(column, e)])
    shards = np.asarray([*itertools.product(*grids)], np.int64)
    nbytes = chunk_nbytes(pattern, shards)
    is_allowed = _count_objects(pattern, shards) <= pattern.max_objects
    fits = is_allowed & (nbytes >= _SHARD_NBYTES[0]) & (nbytes <= _SHARD_NBYTES[1])
    shards = shards[fits if fits.any() else is_allowed & (nbytes <= 10 * _SHARD_NBYTES[1])]
    touched = [touched_chunks(pattern, access, shards) for access in pattern.accesses]
    mean = np.round(np.log(pattern.shares @ np.stack(touched)), 9)  # so that equals are equal
    order = np.lexsort((-chunk_nbytes(pattern, shards), mean))
    return [Layout(chunk, tuple(int(extent) for extent in shards[i])) for i in order[:1]]
