"""One copy of an array in the best single shape, against two copies that share the accesses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from helpers.climbs import make_choice
from helpers.errors import UserError
from helpers.mixes import Choice, Floats, Mix, Shapes
from helpers.models.reading_prices import Prices
from helpers.sweeps import allowed_shapes, sweep, touched_chunks

MOST_ACCESSES = 8
"""That are shared out between two copies: every split is tried, and each more doubles them."""


@dataclass(frozen=True, slots=True)
class Copies:
    """One copy of an array against two, each read by the accesses that it suits.

    Parameters
    ----------
    one : Choice
        The single shape that costs least.
    two : tuple of Choice
        The pair of shapes that costs least; `seconds` holds the accesses that go to each.
    one_per_month, two_per_month : float
        Storage and reads, in the currency of the prices.
    breakeven_reads_per_month : float
        Reads a month from which on two copies cost less; infinite if never.
    """

    one: Choice
    two: tuple[Choice, Choice]
    one_per_month: float
    two_per_month: float
    breakeven_reads_per_month: float


def compare_copies(mix: Mix, prices: Prices, *, n_reads_per_month: float) -> Copies:
    """Compare storing an array once, in the best single shape, with storing it twice.

    Parameters
    ----------
    mix : Mix
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
    _check(mix, n_reads_per_month)
    shapes, seconds = sweep(mix)
    allowed = allowed_shapes(mix, shapes)
    shapes, seconds = shapes[allowed], seconds[allowed]
    if not len(shapes):
        raise UserError(f"max_objects: {mix.bounds.max_objects}; allowed: more")
    costs = _read_costs(mix, prices, shapes, seconds) * mix.shares
    one = int(np.argmin(costs.sum(axis=1)))
    (first, second), groups = _best_pair(costs)
    pair = (
        _part(mix, shapes[first], seconds[first], groups[0]),
        _part(mix, shapes[second], seconds[second], groups[1]),
    )
    one_read = float(costs[one].sum())
    two_read = float(costs[first][groups[0]].sum() + costs[second][groups[1]].sum())
    storage = prices.of_month(mix.nbytes / mix.store.compression_ratio, 1)
    gain = one_read - two_read
    return Copies(
        make_choice(mix, shapes[one], seconds[one]),
        pair,
        storage + n_reads_per_month * one_read,
        2 * storage + n_reads_per_month * two_read,
        storage / gain if gain > 0 else math.inf,
    )


def _check(mix: Mix, n_reads_per_month: float) -> None:
    """Refuse accesses that cannot be split, and reads that nobody makes."""
    names = [access.name for access in mix.accesses]
    if not 2 <= len(names) <= MOST_ACCESSES or len(set(names)) < len(names):
        raise UserError(
            f"accesses: {', '.join(names)}; allowed for two copies: 2 to {MOST_ACCESSES}, each once"
        )
    if not 0 <= n_reads_per_month < math.inf:
        raise UserError(f"reads_per_month: {n_reads_per_month}; allowed: at least 0, and finite")


def _read_costs(mix: Mix, prices: Prices, shapes: Shapes, seconds: Floats) -> Floats:
    """Price each access for each shape."""
    nbytes = np.prod(shapes.astype(np.float64), axis=1) * mix.itemsize / mix.store.compression_ratio
    counts = np.stack([touched_chunks(mix, access, shapes) for access in mix.accesses], axis=1)
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


def _part(mix: Mix, shape: Shapes, seconds: Floats, group: Sequence[int]) -> Choice:
    """Describe a copy by the accesses that go to it."""
    told = {mix.accesses[i].name: float(seconds[i]) for i in group}
    weights = mix.shares[list(group)]
    score = float(seconds[list(group)] @ weights / weights.sum()) if weights.sum() else 0.0
    return Choice(tuple(int(c) for c in shape), told, score)
