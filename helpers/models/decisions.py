"""What follows from the costs: where one option overtakes another, what matters most."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from helpers.errors import UserError
from helpers.models.assumptions import CHOICES, OPTIONS, Assumptions, Option, change
from helpers.models.costs import compare_options, price_option

__all__ = ["Bar", "break_even_rates", "cost_curves", "tornado"]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a tornado.

    Parameters
    ----------
    name : str
        Assumption or price.
    low, high : float
        Its two values.
    low_usd, high_usd : float
        USD a month saved against no cache at each.
    """

    name: str
    low: float
    high: float
    low_usd: float
    high_usd: float

    @property
    def swing_usd(self) -> float:
        """Length of the bar, USD a month."""
        return abs(self.high_usd - self.low_usd)


def cost_curves(
    assumptions: Assumptions, prices: Mapping[str, float], *, rates_per_s: Sequence[float]
) -> dict[Option, list[float]]:
    """Price every option at several rates.

    Parameters
    ----------
    assumptions : Assumptions
        All but the rate.
    prices : mapping of str to float
        USD by item.
    rates_per_s : sequence of float
        Average tiles per second.

    Returns
    -------
    dict of Option to list of float
        USD a month at each rate.
    """
    at = [compare_options(change(assumptions, {"requests_per_s": r}), prices) for r in rates_per_s]
    return {option: [costs[option].usd for costs in at] for option in OPTIONS}


def break_even_rates(
    assumptions: Assumptions,
    prices: Mapping[str, float],
    *,
    pair: tuple[Option, Option],
    bounds_per_s: tuple[float, float] = (0.01, 10_000.0),
) -> list[tuple[float, Option]]:
    """Find the rates at which two options change places.

    Parameters
    ----------
    assumptions : Assumptions
        All but the rate.
    prices : mapping of str to float
        USD by item.
    pair : tuple of two Option
        What to compare.
    bounds_per_s : tuple of two float
        Least and largest average rate looked at, tiles per second.

    Returns
    -------
    list of tuple of float and Option
        Each rate, and which is the cheaper one above it; crossings closer than
        a quarter of a decade can escape.
    """
    low, high = (math.log(bound) for bound in bounds_per_s)
    n_steps = math.ceil((high - low) / math.log(10) * 4)
    grid = [low + (high - low) * step / n_steps for step in range(n_steps + 1)]

    def excess(log_rate: float) -> float:
        at = change(assumptions, {"requests_per_s": math.exp(log_rate)})
        first, second = (price_option(at, prices, option=option).usd for option in pair)
        return first - second

    values = [excess(log_rate) for log_rate in grid]
    found: list[tuple[float, Option]] = []
    for left, right, before, after in zip(grid, grid[1:], values, values[1:], strict=False):
        if (before > 0) == (after > 0):
            continue
        for _ in range(40):
            middle = (left + right) / 2
            left, right = (
                (middle, right) if (excess(middle) > 0) == (before > 0) else (left, middle)
            )
        found.append((math.exp(right), pair[1] if after > 0 else pair[0]))
    return found


def tornado(
    assumptions: Assumptions,
    prices: Mapping[str, float],
    *,
    option: Option,
    factor: float = 2.0,
) -> list[Bar]:
    """Vary each assumption and price alone, and say what a cache then saves.

    Parameters
    ----------
    assumptions : Assumptions
        The middle.
    prices : mapping of str to float
        The middle of the prices, USD by item.
    option : Option
        Cache whose saving against no cache is looked at.
    factor : float
        Each is divided and multiplied by it, within its bounds.

    Returns
    -------
    list of Bar
        Longest first; what changes nothing is left out.

    Raises
    ------
    UserError
        If `factor` is not above 1, or the option is no cache.
    """
    if option == "none" or not 1 < factor < math.inf:
        raise UserError(
            f"tornado of {option!r} by {factor!r}; allowed is a cache and a factor above 1"
        )
    bars = []
    for one in fields(Assumptions):
        if one.name in CHOICES:
            continue
        middle, (least, most) = getattr(assumptions, one.name), one.metadata["bounds"]
        low, high = max(least, middle / factor), min(most, middle * factor)
        ends = [
            _saved(change(assumptions, {one.name: end}), prices, option=option)
            for end in (low, high)
        ]
        bars.append(Bar(one.name, low, high, *ends))
    for item, price in prices.items():
        low, high = price / factor, price * factor
        ends = [_saved(assumptions, {**prices, item: end}, option=option) for end in (low, high)]
        bars.append(Bar(f"price {item}", low, high, *ends))
    return sorted((bar for bar in bars if bar.swing_usd > 0), key=lambda bar: -bar.swing_usd)


def _saved(assumptions: Assumptions, prices: Mapping[str, float], *, option: Option) -> float:
    """Compute USD a month saved against no cache."""
    without, with_it = (
        price_option(assumptions, prices, option=one).usd for one in ("none", option)
    )
    return without - with_it
