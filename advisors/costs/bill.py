"""What a month of a tile service costs with each choice of cache, and what follows from it.

Pure rules on assumptions and prices; nothing here knows where prices come from.
Volume discounts, free allowances, savings plans and the way in (a load
balancer, a gateway) are left out: they are the same for every option, or the
reader's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from scipy.optimize import brentq

from advisors.costs.assumptions import CHOICES, OPTIONS, Assumptions, Option, change
from advisors.costs.demand import (
    READS_PER_METERED,
    Day,
    count_redis_nodes,
    follow_day,
    least_stored_gb,
    wait_probability,
)
from advisors.costs.prices import check_prices
from helpers.errors import UserError

GB = 1e9
HOURS_PER_MONTH = 720.0
SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600
FREE_DISK_GB = 0.5  # of each invocation's disk


@dataclass(frozen=True, slots=True)
class Cost:
    """What a month of one option costs, and what stands behind it."""

    option: Option  # where the cache is
    lines: Mapping[str, float]  # USD a month, line by line; lines that are not needed are 0
    # share of opened datasets found in the cache, and of tiles found in the CDN, over the month
    hit_ratio: float
    edge_hit_ratio: float
    duration_s: float  # mean time in the service of a tile that is made
    busy: float  # tiles in the making in the busiest hour
    busy_cpus: float  # processors at work in the busiest hour
    made_per_s: float  # tiles made in the busiest hour
    n_instances: int  # instances always on; 0 where computing is billed by invocation
    store_gets: float  # requests to the store in a month

    @property
    def usd(self) -> float:
        """USD a month in all."""
        return math.fsum(self.lines.values())


@dataclass(frozen=True, slots=True)
class _Month:
    """Sums over a month."""

    requests: float
    made: float
    hits: float
    busy_s: float


def compare_options(assumptions: Assumptions, prices: Mapping[str, float]) -> dict[Option, Cost]:
    """Price a month of every option, in the order of `OPTIONS`."""
    return {option: price_option(assumptions, prices, option=option) for option in OPTIONS}


def price_option(assumptions: Assumptions, prices: Mapping[str, float], *, option: Option) -> Cost:
    """Price a month of 30 days of one option.

    Prices are USD by item, in the units of `PRICE_UNITS`; a missing or negative one is refused.

    Examples
    --------
    One tile a second that takes half a second in 10 GB is 5 GB-s a second:

    >>> from advisors.costs.prices import PRICE_UNITS
    >>> even = Assumptions(requests_per_s=1, peak_ratio=1, make_s=0.3, open_s=0.2)
    >>> cost = price_option(even, dict.fromkeys(PRICE_UNITS, 1.0), option="none")
    >>> cost.lines["computing"] == 5 * 2_592_000
    True
    """
    check_prices(prices)
    day = follow_day(assumptions, option)
    month = _sum_up(day)
    is_shared = option == "shared"
    store_gets = month.made * assumptions.tile_gets + (month.made - month.hits) * assumptions.open_gets  # fmt: skip
    store_gets += is_shared * month.hits * assumptions.shared_gets
    store_lists = is_shared * month.made * assumptions.shared_lists
    lines = {
        **_computing(assumptions, prices, option=option, day=day, month=month),
        **_caching(assumptions, prices, option=option, day=day, month=month),
        **_network(assumptions, prices, option=option, month=month),
        "store requests": store_gets / 1e3 * prices["store_gets_1e3"],
        "store listings": store_lists / 1e3 * prices["store_lists_1e3"],
    }
    return Cost(
        option,
        lines,
        hit_ratio=month.hits / month.made if month.made else 0.0,
        edge_hit_ratio=1 - month.made / month.requests,
        duration_s=month.busy_s / month.made if month.made else 0.0,
        busy=day.hours[0].busy,
        busy_cpus=day.hours[0].busy_cpus,
        made_per_s=day.hours[0].made_per_s,
        n_instances=day.n_instances,
        store_gets=store_gets,
    )


def _sum_up(day: Day) -> _Month:
    """Sum the hours of 30 such days."""
    seconds = SECONDS_PER_MONTH / len(day.hours)
    return _Month(
        requests=seconds * math.fsum(hour.requests_per_s for hour in day.hours),
        made=seconds * math.fsum(hour.made_per_s for hour in day.hours),
        hits=seconds * math.fsum(hour.made_per_s * hour.hit_ratio for hour in day.hours),
        busy_s=seconds * math.fsum(hour.busy for hour in day.hours),
    )


def _computing(
    assumptions: Assumptions,
    prices: Mapping[str, float],
    *,
    option: Option,
    day: Day,
    month: _Month,
) -> dict[str, float]:
    """Price invocations by their duration, or instances by the hour."""
    if assumptions.billing == "instance":
        usd = day.n_instances * _instance_usd(assumptions, prices)
        return {"computing": usd, "invocations": 0.0, "disk": 0.0}
    paid_gb = max(0.0, assumptions.disk_gb - FREE_DISK_GB) if option == "disk" else 0.0
    return {
        "computing": month.busy_s * assumptions.memory_gb * prices["invocation_gb_s"],
        "invocations": month.made / 1e6 * prices["invocations_1e6"],
        "disk": month.busy_s * paid_gb * prices["invocation_disk_gb_s"],
    }


def _instance_usd(assumptions: Assumptions, prices: Mapping[str, float]) -> float:
    """Price a month of an instance that is always on."""
    return HOURS_PER_MONTH * (
        assumptions.instance_vcpus * prices["instance_vcpu_hour"]
        + assumptions.instance_gb * prices["instance_gb_hour"]
    )


def _caching(
    assumptions: Assumptions,
    prices: Mapping[str, float],
    *,
    option: Option,
    day: Day,
    month: _Month,
) -> dict[str, float]:
    """Price Redis nodes, and what a shared file system holds, gives and takes."""
    lines = {"Redis": 0.0, "shared storage": 0.0, "shared throughput": 0.0}
    if option == "redis":
        n_nodes = count_redis_nodes(assumptions)
        lines["Redis"] = n_nodes * HOURS_PER_MONTH * prices["redis_node_hour"]
    if option == "shared":
        stored_gb = assumptions.n_datasets * assumptions.metadata_nbytes / GB
        if assumptions.shared_mode == "bursting":
            stored_gb = least_stored_gb(metered_mb_per_s(assumptions, day), data_gb=stored_gb)
        else:
            read_gb = month.hits * assumptions.shared_read_nbytes / GB
            written_gb = (month.made - month.hits) * assumptions.metadata_nbytes / GB
            lines["shared throughput"] = (
                read_gb * prices["shared_read_gb"] + written_gb * prices["shared_write_gb"]
            )
        lines["shared storage"] = stored_gb * prices["shared_gb_month"]
    return lines


def metered_mb_per_s(assumptions: Assumptions, day: Day) -> list[float]:
    """Meter a shared file system's throughput: reads of hits by a third, writes of misses whole."""
    read = assumptions.shared_read_nbytes / READS_PER_METERED / 1e6
    written = assumptions.metadata_nbytes / 1e6
    return [
        hour.made_per_s * (hour.hit_ratio * read + (1 - hour.hit_ratio) * written)
        for hour in day.hours
    ]


def _network(
    assumptions: Assumptions, prices: Mapping[str, float], *, option: Option, month: _Month
) -> dict[str, float]:
    """Price NAT gateways, what goes through them, and what is sent to readers."""
    opened = (month.made - month.hits) * assumptions.metadata_nbytes
    read_gb = (month.made * assumptions.tile_read_nbytes + opened) / GB
    is_private = option in ("shared", "redis") or assumptions.nat_share > 0
    sent_gb, is_cdn = month.requests * assumptions.tile_nbytes / GB, option.startswith("cdn")
    lines = {
        "NAT gateways": is_private * assumptions.n_nat_gateways * HOURS_PER_MONTH * prices["nat_hour"],
        "NAT data": assumptions.nat_share * read_gb * prices["nat_gb"],
        "data out": sent_gb * prices["cdn_gb" if is_cdn else "data_out_gb"],
    }  # fmt: skip
    cdn_requests = month.requests if is_cdn else 0.0
    return {**lines, "CDN requests": cdn_requests / 1e4 * prices["cdn_requests_1e4"]}


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
        crossing = brentq(excess, left, right, xtol=1e-12)
        found.append((math.exp(crossing), pair[1] if after > 0 else pair[0]))
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
        if one.metadata["whole"]:  # no half of a node
            low, high = math.floor(low), math.ceil(high)
        at = [change(assumptions, {one.name: end}) for end in (low, high)]
        ends = [saved_usd(one_end, prices, option=option) for one_end in at]
        bars.append(Bar(one.name, low, high, *ends))
    for item, price in prices.items():
        low, high = price / factor, price * factor
        ends = [saved_usd(assumptions, {**prices, item: end}, option=option) for end in (low, high)]
        bars.append(Bar(f"price {item}", low, high, *ends))
    turning = (bar for bar in bars if bar.swing_usd > 1e-6)  # less is rounding
    return sorted(turning, key=lambda bar: -bar.swing_usd)


def saved_usd(assumptions: Assumptions, prices: Mapping[str, float], *, option: Option) -> float:
    """Compute USD a month that an option saves against no cache."""
    without, with_it = (
        price_option(assumptions, prices, option=one).usd for one in ("none", option)
    )
    return without - with_it


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

    Instances are always on. Waiting for a free processor is taken as that of
    exponential service times (Erlang's C formula) and its percentile is
    added to that of the service, which errs on the side of more instances.
    What a CDN holds waits for nobody, so of the tiles that are made a larger share may be late:
    `p95_s` of such an option is the percentile of its made tiles that leaves that share, see
    `late_share`.
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

    def reached_s(n: int) -> float:
        return p95_s + _wait_s(max(1, math.floor(n * assumptions.instance_vcpus)), cost)

    low = high = max(1, math.floor(cost.busy_cpus / assumptions.instance_vcpus))
    while reached_s(high) > target_s:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reached_s(middle) > target_s else (low, middle)
    n_instances = low if reached_s(low) <= target_s else high
    usd = cost.usd - cost.lines["computing"] + n_instances * _instance_usd(assumptions, prices)
    millions = assumptions.requests_per_s * SECONDS_PER_MONTH / 1e6
    return EqualTail(cost.option, reached_s(n_instances), n_instances, usd / millions)


def late_share(cost: Cost) -> float:
    """Share of the tiles that are made which may be late, so that 95 in 100 of all are not.

    Examples
    --------
    >>> from advisors.costs.prices import PRICE_UNITS
    >>> free = dict.fromkeys(PRICE_UNITS, 0.0)
    >>> late_share(price_option(Assumptions(), free, option="none"))
    0.05
    """
    return min(1.0, 0.05 / (1 - cost.edge_hit_ratio))


def _wait_s(n_servers: int, cost: Cost) -> float:
    """Compute the wait for a processor that is longer for no more tiles than may be late."""
    if n_servers <= cost.busy_cpus:
        return math.inf
    waiting, allowed = wait_probability(n_servers, cost.busy_cpus), late_share(cost)
    if waiting <= allowed:
        return 0.0
    cpu_s = cost.busy_cpus / cost.made_per_s
    return math.log(waiting / allowed) * cpu_s / (n_servers - cost.busy_cpus)
