"""An array, how it is read, what a layout asks of a store, and the layouts that suit best: one copy, or two."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from helpers.arrays.chunks import Shape, count_chunks, expected_touched
from helpers.errors import UserError
from helpers.models.access import IoCounts, Store, access_seconds
from helpers.prices import BILLED_GB_NBYTES

if TYPE_CHECKING:
    from advisors.hdf5.inspection import FileLayout

Floats = NDArray[np.float64]
Shapes = NDArray[np.int64]
"""Candidates: one shape a row."""

APPEND_NBYTES = 1_000_000_000
"""Stored bytes of an array that one append may rewrite at most."""

MODEL_ERROR = 0.03
"""How far predicted times of near shapes err next to one another, relative."""

_LARGEST = 2**31 - 1  # bytes of a chunk that codecs take
_LONG = 2**31  # elements of a dimension whose square is beyond 64 bits
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
class Bounds:
    """What a layout must respect."""

    min_chunk_nbytes: int = 1  # of a chunk in the array; a small array's own bytes are enough
    max_chunk_nbytes: int = 100_000_000
    max_objects: int = 1_000_000  # of the array; with more chunks than that it is sharded
    memory_nbytes: int = 8_000_000_000  # for the chunks that are decoded at once
    # axis along which the array grows, and by how many elements at once
    append: tuple[int, int] | None = None
    max_rewritten_nbytes: float = APPEND_NBYTES  # stored, by an append


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """An array, the accesses to it, how often each happens, and what it is read from."""

    shape: Shape  # elements of the array for each dimension
    itemsize: int  # bytes of an element, at least 1
    accesses: Sequence[Access]  # one or more, none larger than the array
    weights: Sequence[float]  # how often each happens, in any unit; their sum is above 0
    store: Store  # what an access meets
    bounds: Bounds = field(default_factory=Bounds)
    together: int = 1  # boxes that a program asks for at once: a batch, or variables of a file

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
        at_once = self.bounds.memory_nbytes // self.store.n_connections
        return max(self.itemsize, min(self.bounds.max_chunk_nbytes, at_once, _LARGEST))

    @property
    def min_nbytes(self) -> int:
        """Bytes of a chunk at least: as bound, but no more than the array or the most allowed."""
        return min(self.bounds.min_chunk_nbytes, self.max_nbytes // 2, self.nbytes)

    def grows(self, column: int) -> bool:
        """Whether appends make the array longer along an axis."""
        return self.bounds.append is not None and self.bounds.append[0] == column

    def allows(self, column: int, extents: Any) -> Any:
        """Whether an append rewrites no more than it may of objects so long along an axis."""
        is_little = rewritten_nbytes(self, extents) <= self.bounds.max_rewritten_nbytes
        return is_little | (not self.grows(column))


@dataclass(frozen=True, slots=True)
class Prices:
    """What storing and reading costs, in USD; a GB is billed as 2^30 bytes."""

    storage_per_gb_month: float  # of keeping a GB for a month
    get_per_1000: float = 0.0  # of a thousand requests
    egress_per_gb: float = 0.0  # of reading a GB out of the region

    def of_read(self, n_requests: Any, nbytes: Any) -> Any:
        """Price reads: the one price of a read.

        Examples
        --------
        >>> round(Prices(0.023, get_per_1000=0.4, egress_per_gb=0.09).of_read(1000, 2**30), 2)
        0.49
        """
        per_nbyte = self.egress_per_gb / BILLED_GB_NBYTES
        return n_requests * (self.get_per_1000 / 1000) + nbytes * per_nbyte


@dataclass(frozen=True, slots=True)
class Asked:
    """What one access asks of a store: expected chunks, after the indices of their shards."""

    n_chunks: float
    chunk_nbytes: float  # of each in the array
    stored_nbytes: float  # of all of them, in the store
    n_indices: float = 0.0  # of shards
    index_nbytes: float = 0.0  # of each
    in_turn: float = 1.0  # requests for each chunk, one after the other

    @property
    def n_requests(self) -> float:
        """Requests in all."""
        return self.n_chunks * self.in_turn + self.n_indices

    @property
    def nbytes(self) -> float:
        """Bytes over the wire."""
        return self.stored_nbytes + self.n_indices * self.index_nbytes

    def seconds(self, store: Store, quantile: float = 0.5) -> float:
        """Predict a quantile of the time: that of the indices, and then that of the chunks."""
        n, stored_nbytes = self.n_chunks, max(self.stored_nbytes / self.n_chunks, 1e-9)
        counts = IoCounts(n, self.chunk_nbytes, 0.0, n * self.in_turn, stored_nbytes)
        found = float(access_seconds(store, counts, quantile=quantile))
        if self.n_indices:
            bare = replace(store, start_s=0.0, chunk_s=0.0, decode_s_per_nbyte=0.0)
            index = IoCounts(self.n_indices, 0.0, stored_nbytes=max(self.index_nbytes, 1e-9))
            found += float(access_seconds(bare, index))  # the tail of one wave is enough
        return found


def ask_layout(
    pattern: AccessPattern, access: Access, layout: Layout, *, in_turn: float = 1.0
) -> Asked:
    """Expect what an access asks of chunks, or of shards: an index each, then a request a chunk.

    zarr joins chunks that are near one another in a shard, so it makes no more requests than this.
    """

    def expect(shape: Shape) -> float:
        shapes = np.asarray([shape], np.int64)
        return pattern.together * float(touched_chunks(pattern, access, shapes)[0])

    nbytes, n = float(math.prod(layout.chunk_shape) * pattern.itemsize), expect(layout.chunk_shape)
    plain = Asked(n, nbytes, n * (nbytes / pattern.store.compression_ratio), in_turn=in_turn)
    if layout.shard_shape is None:
        return plain
    n_held = math.prod(layout.shard_shape) // math.prod(layout.chunk_shape)
    n_indices = expect(layout.shard_shape)
    return replace(plain, n_indices=n_indices, index_nbytes=_INDEX_NBYTES * n_held)


def chunk_nbytes(pattern: AccessPattern, shapes: Shapes) -> Floats:
    """Compute the bytes of a chunk in the array, of each shape."""
    return np.asarray(np.prod(shapes.astype(np.float64), axis=-1) * pattern.itemsize)


def rewritten_nbytes(pattern: AccessPattern, extents: Any) -> Any:
    """Compute the stored bytes that an append rewrites at most, of objects so long along its axis.

    What was there stops within an object, short of its end by a multiple of what an append and an
    object have in common.

    Examples
    --------
    >>> bounds = Bounds(append=(0, 24))
    >>> pattern = AccessPattern((100, 5), 1, [], [], Store(), bounds)
    >>> [int(rewritten_nbytes(pattern, extent)) for extent in (1, 24, 48, 30)]
    [0, 0, 120, 120]
    """
    if pattern.bounds.append is None:
        return np.zeros(np.shape(extents))
    axis, steps = pattern.bounds.append
    slab_nbytes = pattern.nbytes / pattern.shape[axis] / pattern.store.compression_ratio
    return slab_nbytes * (extents - np.gcd(extents, steps))


def touched_chunks(pattern: AccessPattern, access: Access, shapes: Shapes) -> Floats:
    """Expect the chunks that an access touches: a product of one look-up a dimension."""
    return np.asarray(np.prod([*_touched_each(pattern, access, shapes)], axis=0), np.float64)


def touched_runs(pattern: AccessPattern, access: Access, shapes: Shapes) -> Floats:
    """Expect the runs of neighbouring chunks that an access touches in a file in C order."""
    runs, is_whole = np.ones(len(shapes)), np.ones(len(shapes), bool)
    each = [*_touched_each(pattern, access, shapes)]
    for touched, n, chunk in zip(each[::-1], pattern.shape[::-1], shapes.T[::-1], strict=True):
        runs = np.where(is_whole, 1.0, runs * touched)
        is_whole &= touched >= np.ceil(n / chunk) - 1e-9
    return runs


def _touched_each(pattern: AccessPattern, access: Access, shapes: Shapes) -> Iterator[Floats]:
    """Expect the chunks touched in each dimension."""
    count = aligned_touched if access.is_aligned else expected_touched
    for extent, n, column in zip(access.extent, pattern.shape, shapes.T, strict=True):
        chunks, at = np.unique(column, return_inverse=True)
        if n >= _LONG:  # squares would not fit in 64 bits: whole numbers of Python do
            yield np.asarray([count(extent, int(c), n) for c in chunks], np.float64)[at]
        else:
            yield np.asarray(count(extent, chunks, n), np.float64)[at]


def aligned_touched(extent: int, chunk_extent: Any, n: int) -> Any:
    """Compute how many chunks a range touches on average that starts at a multiple of its length.

    A range has a border of chunks inside it for each multiple of the chunk that is none of its
    own starts. A rest at the end that is no whole range is left out.

    Examples
    --------
    Tiles of 4 in chunks of 6: of three, the second lies across a border.

    >>> round(float(aligned_touched(4, 6, 12)), 3)
    1.333
    """
    n_ranges = n // extent
    last = n_ranges * extent - 1
    is_one = isinstance(chunk_extent, int)
    common = math.lcm(extent, chunk_extent) if is_one else np.lcm(extent, chunk_extent)
    return 1 + (last // chunk_extent - last // common) / n_ranges


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
        return _count_objects(self.pattern, self.shapes) <= self.pattern.bounds.max_objects


def make_grid(pattern: AccessPattern) -> Grid:
    """List the candidates for a pattern, and predict each."""
    shapes, touched, seconds = _list_candidates(pattern), list[Floats](), list[Floats]()
    nbytes, many = chunk_nbytes(pattern, shapes), pattern.together
    for access in pattern.accesses:
        touched.append(touched_chunks(pattern, access, shapes))
        n_jobs = many * touched_runs(pattern, access, shapes) if pattern.store.is_file else 0.0
        seconds.append(access_seconds(pattern.store, IoCounts(many * touched[-1], nbytes, n_jobs)))
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
    asked = [ask_layout(pattern, each, layout) for each in pattern.accesses]
    return float(np.asarray([one.seconds(pattern.store) for one in asked]) @ pattern.shares)


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
        axis, half = bounds.append[0], bounds.max_rewritten_nbytes / 2
        bounds = replace(bounds, max_rewritten_nbytes=half)
        grid = replace(grid, pattern=replace(grid.pattern, bounds=bounds))
        grid = grid.take(grid.pattern.allows(axis, grid.shapes[:, axis]))
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
    array grows there are those of an append and the most whole ones that it may rewrite, and none
    of which it would rewrite too much.
    """
    n, own = pattern.shape[column], {access.extent[column] for access in pattern.accesses}
    if pattern.bounds.append and pattern.grows(column):
        steps = pattern.bounds.append[1]
        each_nbytes = max(1.0, float(rewritten_nbytes(pattern, 2 * steps)))
        most = 1 + int(pattern.bounds.max_rewritten_nbytes // each_nbytes)
        own |= {min(steps, n), min(steps * most, n)}
    base, factors = max(2, step), (1, 3) if step == 1 else (1,)
    found = {n} | own | {f * base**k for k in range(n.bit_length()) for f in factors}
    if step == 1:
        found |= {-(-n // k) for k in _PARTS} | {-(-e // k) for e in own for k in (2, 4)}
    return sorted(e for e in found if e <= n and pattern.allows(column, e))


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
    few = _count_objects(pattern, shards) <= pattern.bounds.max_objects
    fits = few & (nbytes >= _SHARD_NBYTES[0]) & (nbytes <= _SHARD_NBYTES[1])
    shards = shards[fits if fits.any() else few & (nbytes <= 10 * _SHARD_NBYTES[1])]
    touched = [touched_chunks(pattern, each, shards) for each in pattern.accesses]
    mean = np.round(np.log(pattern.shares @ np.stack(touched)), 9)  # so that equals are equal
    order = np.lexsort((-chunk_nbytes(pattern, shards), mean))
    return [Layout(chunk, tuple(int(extent) for extent in shards[i])) for i in order[:1]]
