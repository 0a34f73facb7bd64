"""One replica of an array in the best single shape, against two that share the accesses."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from advisors.chunks.candidates import allowed_shapes, predict_candidates, predict_costs
from advisors.chunks.problem import AccessPattern, Choice, Floats, Prices, make_choice
from helpers.errors import UserError

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
    costs = predict_costs(pattern, prices, shapes) * pattern.shares
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
