"""What the cost model says, in words: the cheapest cache, from which rate it pays, and what that hangs on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from helpers.models.assumptions import OPTIONS, Assumptions, Option
from helpers.models.costs import compare_options
from helpers.models.decisions import break_even_rates, tornado

__all__ = ["NAMES", "tell_verdict"]

NAMES: Mapping[Option, str] = {
    "none": "no cache",
    "disk": "a cache on each instance's disk",
    "shared": "a cache on a shared file system",
    "redis": "Redis",
    "cdn": "a CDN in front",
}
"""How prose calls the options."""


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
    most = f"Beside the rate, the saving depends most on {_spell(lever)}"
    if not turning:
        return f"{most}; no single assumption, halved or doubled, turns the saving into a loss."
    return f"{most}; halved or doubled, {_spell(turning[0])} turns the saving into a loss."


def _spell(name: str) -> str:
    """Spell out the name of a bar: what the assumption is, or which price."""
    if name.startswith("price "):
        return f"the price of {name.removeprefix('price ')}"
    label = next(one.metadata["label"] for one in fields(Assumptions) if one.name == name)
    return "the " + str(label).partition(" (")[0]


def _usd(usd: float) -> str:
    """Write an amount to three digits."""
    return f"{float(f'{usd:.3g}'):,.0f} USD" if usd >= 100 else f"{usd:.3g} USD"
