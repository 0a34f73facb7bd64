"""What follows from the costs: where one option overtakes another, what matters most, what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from helpers.errors import UserError
from helpers.models.assumptions import CHOICES, OPTIONS, Assumptions, Option, change
from helpers.models.costs import compare_options, price_option

__all__ = ["Bar", "break_even_rates", "cost_curves", "tell_verdict", "tornado"]  # fmt: skip

NAMES: Mapping[Option, str] = {
    "none": "no cache",
    "disk": "a cache on each instance's disk",
    "shared": "a cache on a shared file system",
    "redis": "Redis",
    "cdn": "a CDN in front",
}
"""How prose calls the options."""


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


def tell_verdict(assumptions: Assumptions, prices: Mapping[str, float]) -> str:
    """Say in words what the model says.

    Parameters
    ----------
    assumptions : Assumptions
        Load, service and caches.
    prices : mapping of str to float
        USD by item.

    Returns
    -------
    str
        A few sentences, every number in them from the model.

    Examples
    --------
    >>> from helpers.models.tariffs import PRICE_UNITS
    >>> free = tell_verdict(Assumptions(), dict.fromkeys(PRICE_UNITS, 0.0))
    >>> free.split(";")[0]
    'At 185 tiles a second no cache costs 0 USD a month'
    """
    costs = compare_options(assumptions, prices)
    without = costs["none"].usd
    best = min(OPTIONS, key=lambda option: costs[option].usd)
    rate = f"At {assumptions.requests_per_s:,.3g} tiles a second"
    if best == "none":
        return f"{rate} no cache costs {_usd(without)} a month; no other option costs less."
    share = 1 - costs[best].usd / without
    text = (
        f"{rate} no cache costs {_usd(without)} a month; the cheapest is {NAMES[best]}"
        f" at {_usd(costs[best].usd)}, {share * 100:.2g} % less."
    )
    return " ".join(
        [
            text,
            _tell_rate(assumptions, prices, best=best),
            _tell_lever(assumptions, prices, best=best),
        ]
    )


def _tell_rate(assumptions: Assumptions, prices: Mapping[str, float], *, best: Option) -> str:
    """Say from which rate on the best option pays."""
    crossings = break_even_rates(assumptions, prices, pair=("none", best))
    if not crossings:
        return "It costs less than no cache at every rate looked at."
    last, winner = crossings[-1]
    if winner == best:
        return f"It pays from {last:.2g} tiles a second on."
    return f"From {last:.2g} tiles a second on no cache costs less."


def _tell_lever(assumptions: Assumptions, prices: Mapping[str, float], *, best: Option) -> str:
    """Say which assumption the saving depends on most, and whether one can turn it."""
    bars = tornado(assumptions, prices, option=best)
    turning = [bar.name for bar in bars if min(bar.low_usd, bar.high_usd) < 0]
    # That a saving grows with the rate tells nobody anything.
    lever = next(bar.name for bar in bars if bar.name != "requests_per_s")
    most = f"Beside the rate, the saving depends most on {lever}"
    if not turning:
        return f"{most}; no single assumption, halved or doubled, turns the saving into a loss."
    return f"{most}; halved or doubled, {turning[0]} turns the saving into a loss."


def _usd(usd: float) -> str:
    """Write an amount to three digits."""
    return f"{float(f'{usd:.3g}'):,.0f} USD" if usd >= 100 else f"{usd:.3g} USD"
