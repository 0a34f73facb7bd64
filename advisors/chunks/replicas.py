"""One replica of an array in the best single shape, against two that share the accesses; prices of reading."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisors.chunks.problem import AccessPattern, Choice, Floats, Shapes, make_choice
from advisors.chunks.search import (
    allowed_shapes,
    chunk_nbytes,
    predict_candidates,
    touched_chunks,
)
from helpers.errors import UserError


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
        for name in self.__dataclass_fields__:
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"{name}: {getattr(self, name)!r}; allowed: at least 0, and finite")

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


_MOST_ACCESSES = 8  # every split between two replicas is tried, and each access more doubles them


@dataclass(frozen=True, slots=True)
class Replicas:
    """One replica of an array against two, each read by the accesses that it suits."""

    one: Choice  # the single shape that costs least
    # the pair of shapes that costs least; `seconds` holds the accesses that go to each
    two: tuple[Choice, Choice]
    one_per_month: float  # storage and reads, in the currency of the prices
    two_per_month: float
    # reads a month from which on two replicas cost less; infinite if never
    breakeven_reads_per_month: float


def compare_replicas(
    pattern: AccessPattern, prices: Prices, *, n_reads_per_month: float
) -> Replicas:
    """Compare storing an array once, in the best single shape, with storing it twice.

    Chunks are objects. What is read in a month are `n_reads_per_month` accesses of the
    pattern, at least 0. Accesses that cannot be split between two, and bounds that no
    shape respects, are refused.
    """
    _check(pattern, n_reads_per_month)
    shapes, seconds = predict_candidates(pattern)
    allowed = allowed_shapes(pattern, shapes)
    shapes, seconds = shapes[allowed], seconds[allowed]
    if not len(shapes):
        raise UserError(f"max_objects: {pattern.bounds.max_objects}; allowed: more")
    costs = _read_costs(pattern, prices, shapes, seconds) * pattern.shares
    one = int(np.argmin(costs.sum(axis=1)))
    two_read, pair = _best_pair(costs)
    storage = prices.storage_per_gb_month * pattern.nbytes / pattern.store.compression_ratio / 1e9
    one_read = float(costs[one].sum())
    gain = one_read - two_read
    chosen = [make_choice(pattern, shapes[i], seconds[i], group) for i, group in pair]
    return Replicas(
        make_choice(pattern, shapes[one], seconds[one]),
        (chosen[0], chosen[1]),
        storage + n_reads_per_month * one_read,
        2 * storage + n_reads_per_month * two_read,
        storage / gain if gain > 0 else math.inf,
    )


def _check(pattern: AccessPattern, n_reads_per_month: float) -> None:
    """Refuse accesses that cannot be split, and reads that nobody makes."""
    names = [access.name for access in pattern.accesses]
    if not 2 <= len(names) <= _MOST_ACCESSES or len(set(names)) < len(names):
        raise UserError(
            f"accesses: {', '.join(names)};"
            f" allowed for two replicas: 2 to {_MOST_ACCESSES}, each once"
        )
    if not 0 <= n_reads_per_month < math.inf:
        raise UserError(f"reads_per_month: {n_reads_per_month}; allowed: at least 0, and finite")


def _read_costs(pattern: AccessPattern, prices: Prices, shapes: Shapes, seconds: Floats) -> Floats:
    """Price each access for each shape."""
    nbytes = chunk_nbytes(pattern, shapes) / pattern.store.compression_ratio
    counts = np.stack([touched_chunks(pattern, each, shapes) for each in pattern.accesses], axis=1)
    return prices.of_read(seconds, counts, counts * nbytes[:, None])


_Pair = tuple[tuple[int, list[int]], tuple[int, list[int]]]


def _best_pair(costs: Floats) -> tuple[float, _Pair]:
    """Split the accesses into two groups, each with its shape, at the least cost."""
    n = costs.shape[1]
    found: list[tuple[float, _Pair]] = []
    for bits in range(1, 2 ** (n - 1)):
        ours, theirs = ([i for i in range(n) if bits >> i & 1 == side] for side in (0, 1))
        one, two = (costs[:, group].sum(axis=1) for group in (ours, theirs))
        pair = (int(one.argmin()), ours), (int(two.argmin()), theirs)
        found.append((float(one.min() + two.min()), pair))
    return min(found, key=lambda each: each[0])
