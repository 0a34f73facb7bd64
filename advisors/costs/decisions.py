"""What follows from the bill: break-even rates, what matters most, equal tails, and the verdict in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from advisors.costs.assumptions import CHOICES, OPTIONS, Assumptions, Option, change
from advisors.costs.bill import (
    HOURS_PER_MONTH,
    SECONDS_PER_MONTH,
    Cost,
    compare_options,
    price_option,
)
from advisors.costs.demand import wait_probability
from helpers.errors import UserError


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a tornado."""

    name: str  # assumption or price
    low: float  # its two values
    high: float
    low_usd: float  # USD a month saved against no cache at each
    high_usd: float

    @property
    def swing_usd(self) -> float:
        """Length of the bar, USD a month."""
        return abs(self.high_usd - self.low_usd)


def cost_curves(
    assumptions: Assumptions, prices: Mapping[str, float], *, rates_per_s: Sequence[float]
) -> dict[Option, list[float]]:
    """Price every option at several rates."""
    at = [compare_options(change(assumptions, {"requests_per_s": r}), prices) for r in rates_per_s]
    return {option: [costs[option].usd for costs in at] for option in OPTIONS}


def break_even_rates(
    assumptions: Assumptions,
    prices: Mapping[str, float],
    *,
    pair: tuple[Option, Option],
    bounds_per_s: tuple[float, float] = (0.01, 10_000.0),
) -> list[tuple[float, Option]]:
    """Find the rates at which two options change places."""
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
    """Vary each assumption and price alone, and say what a cache then saves."""
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


@dataclass(frozen=True, slots=True)
class EqualTail:
    """What it takes to keep the 95th percentile of an option below a target."""

    option: Option  # where the cache is
    # 95th percentile reached, seconds; that of an idle service where the target cannot be met
    p95_s: float
    n_instances: int  # instances needed; 0 where no number is enough
    usd_per_million: float  # USD for a million tiles; infinite where no number is enough


def equal_tail(
    assumptions: Assumptions,
    prices: Mapping[str, float],
    *,
    p95_s: Mapping[Option, float],
    target_s: float,
) -> list[EqualTail]:
    """Price a million tiles where every option keeps the same 95th percentile.

    Instances are always on. Waiting for a free slot is taken as that of
    exponential service times (Erlang's C formula) and its 95th percentile is
    added to that of the service, which errs on the side of more instances.
    """
    for name, value in [*p95_s.items(), ("the target", target_s)]:
        if not 0 < value < math.inf:
            raise UserError(f"95th percentile of {name} is {value!r}; allowed is a number above 0")
    always_on = change(assumptions, {"billing": "instance"})
    return [
        _meet(
            always_on,
            prices,
            cost=price_option(always_on, prices, option=option),
            p95_s=p95_s[option],
            target_s=target_s,
        )
        for option in p95_s
    ]


def _meet(
    assumptions: Assumptions,
    prices: Mapping[str, float],
    *,
    cost: Cost,
    p95_s: float,
    target_s: float,
) -> EqualTail:
    """Find the fewest instances that keep the target in the busiest hour, and price them."""
    if p95_s >= target_s:
        return EqualTail(cost.option, p95_s, 0, math.inf)
    slots = round(assumptions.instance_slots)
    n_instances = max(1, math.floor(cost.busy / slots) + 1)
    while p95_s + _wait_p95_s(n_instances * slots, cost) > target_s:
        n_instances += 1
    an_instance = HOURS_PER_MONTH * (
        assumptions.instance_vcpus * prices["instance_vcpu_hour"]
        + assumptions.instance_gb * prices["instance_gb_hour"]
    )
    usd = cost.usd - cost.lines["computing"] + n_instances * an_instance
    millions = assumptions.requests_per_s * SECONDS_PER_MONTH / 1e6
    reached = p95_s + _wait_p95_s(n_instances * slots, cost)
    return EqualTail(cost.option, reached, n_instances, usd / millions)


def _wait_p95_s(n_servers: int, cost: Cost) -> float:
    """Compute the 95th percentile of the wait for a free slot."""
    waiting = wait_probability(n_servers, cost.busy)
    if waiting <= 0.05:
        return 0.0
    return math.log(waiting / 0.05) * cost.duration_s / (n_servers - cost.busy)
