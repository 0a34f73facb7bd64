"""One copy of an array in the best single shape, against two replicas that share the accesses; prices of reading."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisors.chunks.candidates import allowed_shapes, predict_candidates, touched_chunks
from advisors.chunks.problem import AccessPattern, Choice, Shapes
from advisors.chunks.search import make_choice
from helpers.errors import UserError
from helpers.models.access import Floats


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

    def of_month(self, stored_nbytes: float, n_replicas: int) -> float:
        """Price keeping copies for a month.

        Examples
        --------
        >>> round(Prices(0.02).of_month(1e12, 2), 6)
        40.0
        """
        return self.storage_per_gb_month * stored_nbytes / 1e9 * n_replicas


def payback_reads(
    cost_s: float, before_s: Mapping[str, float], after_s: Mapping[str, float]
) -> float:
    """Compute after how many reads of each kind, equally mixed, a rewriting has paid.

    Examples
    --------
    >>> payback_reads(100, {"series": 11, "slice": 1}, {"series": 1, "slice": 1})
    20.0
    """
    if set(before_s) != set(after_s) or not before_s:
        raise UserError(f"after_s: {', '.join(after_s)}; allowed: {', '.join(before_s)}")
    gain_s = sum(before_s[name] - after_s[name] for name in before_s) / len(before_s)
    return cost_s / gain_s if gain_s > 0 else math.inf


MOST_ACCESSES = 8
"""That are shared out between two copies: every split is tried, and each more doubles them."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """One copy of an array against two, each read by the accesses that it suits."""

    one: Choice  # the single shape that costs least
    # the pair of shapes that costs least; `seconds` holds the accesses that go to each
    two: tuple[Choice, Choice]
    one_per_month: float  # storage and reads, in the currency of the prices
    two_per_month: float
    # reads a month from which on two copies cost less; infinite if never
    breakeven_reads_per_month: float


def compare_replicas(
    pattern: AccessPattern, prices: Prices, *, n_reads_per_month: float
) -> Replicas:
    """Compare storing an array once, in the best single shape, with storing it twice.

    Parameters
    ----------
    pattern : Mix
        What is read; chunks are objects.
    prices : Prices
        Of storage, requests, bytes read and waiting.
    n_reads_per_month : float
        Accesses of the mix in a month, at least 0.

    Returns
    -------
    Copies
        Both, with what they cost a month, and the break-even.

    Raises
    ------
    UserError
        If accesses are fewer than two, too many or there twice, or no shape is within bounds.
    """
    _check(pattern, n_reads_per_month)
    shapes, seconds = predict_candidates(pattern)
    allowed = allowed_shapes(pattern, shapes)
    shapes, seconds = shapes[allowed], seconds[allowed]
    if not len(shapes):
        raise UserError(f"max_objects: {pattern.bounds.max_objects}; allowed: more")
    costs = _read_costs(pattern, prices, shapes, seconds) * pattern.shares
    one = int(np.argmin(costs.sum(axis=1)))
    (first, second), groups = _best_pair(costs)
    pair = (
        _part(pattern, shapes[first], seconds[first], groups[0]),
        _part(pattern, shapes[second], seconds[second], groups[1]),
    )
    one_read = float(costs[one].sum())
    two_read = float(costs[first][groups[0]].sum() + costs[second][groups[1]].sum())
    storage = prices.of_month(pattern.nbytes / pattern.store.compression_ratio, 1)
    gain = one_read - two_read
    return Replicas(
        make_choice(pattern, shapes[one], seconds[one]),
        pair,
        storage + n_reads_per_month * one_read,
        2 * storage + n_reads_per_month * two_read,
        storage / gain if gain > 0 else math.inf,
    )


def _check(pattern: AccessPattern, n_reads_per_month: float) -> None:
    """Refuse accesses that cannot be split, and reads that nobody makes."""
    names = [access.name for access in pattern.accesses]
    if not 2 <= len(names) <= MOST_ACCESSES or len(set(names)) < len(names):
        raise UserError(
            f"accesses: {', '.join(names)}; allowed for two copies: 2 to {MOST_ACCESSES}, each once"
        )
    if not 0 <= n_reads_per_month < math.inf:
        raise UserError(f"reads_per_month: {n_reads_per_month}; allowed: at least 0, and finite")


def _read_costs(pattern: AccessPattern, prices: Prices, shapes: Shapes, seconds: Floats) -> Floats:
    """Price each access for each shape."""
    nbytes = (
        np.prod(shapes.astype(np.float64), axis=1)
        * pattern.itemsize
        / pattern.store.compression_ratio
    )
    counts = np.stack(
        [touched_chunks(pattern, access, shapes) for access in pattern.accesses], axis=1
    )
    return prices.of_read(seconds, counts, counts * nbytes[:, None])


def _best_pair(costs: Floats) -> tuple[tuple[int, int], tuple[list[int], list[int]]]:
    """Split the accesses into two groups, each with its shape, at the least cost."""
    n = costs.shape[1]
    found = []
    for bits in range(1, 2 ** (n - 1)):
        groups = (
            [i for i in range(n) if not bits >> i & 1],
            [i for i in range(n) if bits >> i & 1],
        )
        at = tuple(int(np.argmin(costs[:, group].sum(axis=1))) for group in groups)
        total = sum(costs[i, group].sum() for i, group in zip(at, groups, strict=True))
        found.append((total, (at[0], at[1]), groups))
    _, pair, groups = min(found, key=lambda each: each[0])
    return pair, groups


def _part(pattern: AccessPattern, shape: Shapes, seconds: Floats, group: Sequence[int]) -> Choice:
    """Describe a copy by the accesses that go to it."""
    told = {pattern.accesses[i].name: float(seconds[i]) for i in group}
    weights = pattern.shares[list(group)]
    score = float(seconds[list(group)] @ weights / weights.sum()) if weights.sum() else 0.0
    return Choice(tuple(int(c) for c in shape), told, score)
