"""The problem: an array, an access pattern, and bounds of its chunks; and what is recommended for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from helpers.arrays.chunks import Shape, check_shape, check_within
from helpers.errors import UserError
from helpers.models.access import Store
from helpers.models.transfer import check_amounts

Floats = NDArray[np.float64]
Shapes = NDArray[np.int64]
"""Candidates: one shape a row."""

Criterion = Literal["mean", "worst"]

_LONGEST = 2**53  # elements of a dimension up to which floats count without error
_MOST_LONG = 8  # dimensions of more than one element: candidates multiply with each
_LARGEST = 2**31 - 1  # bytes of a chunk that codecs take


def check_size(shape: Sequence[int]) -> Shape:
    """Refuse a shape that nobody searches, beside one that is none."""
    checked = check_shape("shape", shape)
    n_long = sum(n > 1 for n in checked)
    if n_long > _MOST_LONG:
        raise UserError(
            f"shape: {n_long} dimensions of more than one element; allowed: at most {_MOST_LONG}"
        )
    if max(checked) > _LONGEST:
        raise UserError(f"shape: {list(checked)}; allowed: at most {_LONGEST} in a dimension")
    return checked


@dataclass(frozen=True, slots=True)
class Access:
    """A box of elements, read anywhere in the array with equal chance."""

    name: str  # name on the page
    extent: Shape  # elements for each dimension
    # whether it starts at multiples of its extent, as tiles of a viewer and blocks of Dask do
    is_aligned: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a chunk shape must respect."""

    min_chunk_nbytes: int = 1  # bytes of a chunk in the array; a small array's own bytes are enough
    max_chunk_nbytes: int = 100_000_000
    max_objects: int = 1_000_000  # objects in the store; what has more chunks is sharded
    # memory of a reader for the chunks that it decodes at once, and of a writer for one shard
    memory_nbytes: int = 1_000_000_000
    # objects above which chunks come in shards; None where `max_objects` alone asks for them
    shard_from: int | None = None
    # bytes of a shard in the array, as far as the array and the memory go; None for the memory
    min_shard_nbytes: int = 1
    max_shard_nbytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse bounds between which there is nothing."""
        for name in self.__dataclass_fields__:
            if (value := getattr(self, name)) is not None and value < 1:
                raise UserError(f"{name}: {value}; allowed: at least 1")
        for what in ("chunk", "shard"):
            least, most = (getattr(self, f"{end}_{what}_nbytes") for end in ("min", "max"))
            if most is not None and least > most:
                raise UserError(
                    f"min_{what}_nbytes: {least}; allowed: at most max_{what}_nbytes, {most}"
                )

    @property
    def max_plain(self) -> int:
        """Chunks that are objects of their own, at most."""
        return min(self.max_objects, self.shard_from or self.max_objects)


@dataclass(frozen=True, slots=True)
class Prices:
    """What storing and reading costs, in one currency."""

    storage_per_gb_month: float  # price of keeping 1 GB, 1e9 bytes, for a month
    get_per_1000: float = 0.0  # price of a thousand requests
    egress_per_gb: float = 0.0  # price of reading 1 GB out of the store
    # price of an hour in which a reader waits: the machine's, or a person's
    waiting_per_hour: float = 0.0

    def __post_init__(self) -> None:
        """Refuse negative prices."""
        check_amounts(self, *self.__dataclass_fields__)

    def of_read(self, seconds: Any, n_requests: Any, nbytes: Any) -> Floats:
        """Price reads.

        Examples
        --------
        >>> prices = Prices(0.023, get_per_1000=0.4, waiting_per_hour=36)
        >>> round(float(prices.of_read(10, 1000, 0)), 2)
        0.5
        """
        return np.asarray(
            np.asarray(seconds) * (self.waiting_per_hour / 3600)
            + np.asarray(n_requests) * (self.get_per_1000 / 1000)
            + np.asarray(nbytes) * (self.egress_per_gb / 1e9),
            np.float64,
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """A chunk shape and what it is expected to cost."""

    chunk_shape: Shape  # elements for each dimension
    # predicted time of each access; its price where the pattern has prices
    seconds: dict[str, float]
    score: float  # their weighted mean, or the slowest, in the same unit


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to store, and what else there is."""

    best: Choice  # the least predicted time, or the squarest of those that take about as long
    fastest: Choice  # the least predicted time
    second: Choice  # the best of the shapes that are clearly others, and no faster
    # no access of these is faster without another being slower, thinned to steps of 2 percent
    front: tuple[Choice, ...]
    # elements for each dimension of an object that holds several chunks; None where chunks are
    # objects
    shard_shape: Shape | None
    n_chunks: int  # of the whole array
    n_objects: int

    @property
    def second_costs(self) -> float:
        """Time of the second-best over that of the best."""
        return self.second.score / self.best.score


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """An array, the accesses to it, how often each happens, and what it is read from."""

    shape: Shape  # elements of the array for each dimension
    itemsize: int  # bytes of an element, at least 1
    accesses: Sequence[Access]  # one or more, none larger than the array
    weights: Sequence[float]  # how often each happens, in any unit; their sum is above 0
    store: Store  # what an access meets
    bounds: Bounds = field(default_factory=Bounds)  # what a chunk shape must respect
    # whether the weighted mean is to be least, or the slowest access that happens
    criterion: Criterion = "mean"
    # whether a reader asks for the chunks of a shard side by side, as zarr does from 3.3 on, or
    # one after the other, as it did before
    reads_shards_abreast: bool = False
    prices: Prices | None = None  # where the price of reading is to be least instead of its time

    def __post_init__(self) -> None:
        """Refuse arrays, accesses and weights that make no sense."""
        shape = check_size(self.shape)
        if self.itemsize < 1:
            raise UserError(f"itemsize: {self.itemsize}; allowed: bytes of an element, at least 1")
        if not self.accesses:
            raise UserError("accesses: none; allowed: at least one")
        for access in self.accesses:
            check_within(f"access {access.name}", access.extent, shape)
        weights = list(self.weights)
        if len(weights) != len(self.accesses):
            raise UserError(f"weights: {weights}; allowed: {len(self.accesses)}, one an access")
        if not all(0 <= w < math.inf for w in weights) or not sum(weights) > 0:
            raise UserError(f"weights: {weights}; allowed: at least 0 each, above 0 together")
        if self.max_nbytes < self.itemsize:
            raise UserError(
                f"memory_nbytes: {self.bounds.memory_nbytes}; allowed: at least an element for"
                f" each of {self.store.n_connections} connections"
            )

    @property
    def shares(self) -> Floats:
        """Weights, scaled so that their sum is 1."""
        weights = np.asarray(self.weights, np.float64)
        return np.asarray(weights / weights.sum())

    def score(self, seconds: Floats) -> Floats:
        """Weigh times by how often each access happens, or take the slowest that does."""
        if self.criterion == "worst":
            return np.asarray(seconds[..., self.shares > 0].max(axis=-1))
        return np.asarray(seconds @ self.shares)

    @property
    def max_nbytes(self) -> int:
        """Bytes of a chunk at most: as bound, and as many at once as fit in memory."""
        at_once = self.bounds.memory_nbytes // self.store.n_connections
        return min(self.bounds.max_chunk_nbytes, at_once, _LARGEST)

    @property
    def min_nbytes(self) -> int:
        """Bytes of a chunk at least: as bound, but no more than the array or the most allowed."""
        return min(self.bounds.min_chunk_nbytes, self.max_nbytes // 2, self.nbytes // 2)

    @property
    def max_shard_nbytes(self) -> int:
        """Bytes of a shard at most: as bound, and as fit in the memory of its writer."""
        memory_nbytes = self.bounds.memory_nbytes
        return min(self.bounds.max_shard_nbytes or memory_nbytes, memory_nbytes)

    @property
    def min_shard_nbytes(self) -> int:
        """Bytes of a shard at least: as bound, but no more than the array or half the most allowed."""
        return min(self.bounds.min_shard_nbytes, self.max_shard_nbytes // 2, self.nbytes)

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.itemsize


def make_choice(
    pattern: AccessPattern, shape: Sequence[int], seconds: Floats, group: Sequence[int] = ()
) -> Choice:
    """Put a shape and the predicted times of some accesses together: of all, unless a group is named."""
    names = [access.name for access in pattern.accesses]
    told = {names[i]: float(seconds[i]) for i in group or range(len(names))}
    return Choice(tuple(int(c) for c in shape), told, float(pattern.score(seconds)))
