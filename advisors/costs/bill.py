"""What a month of a tile service costs with each choice of cache.

Pure rules on assumptions and prices; nothing here knows where prices come from.
Volume discounts, free allowances, savings plans and the way in (a load
balancer, a gateway) are left out: they are the same for every option, or the
reader's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from advisors.costs.assumptions import OPTIONS, Assumptions, Option
from advisors.costs.demand import READS_PER_METERED, Day, follow_day, least_stored_gb
from advisors.costs.prices import check_prices

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
    """Price a month of every option.

    Parameters
    ----------
    assumptions : Assumptions
        Load, service, caches and network.
    prices : mapping of str to float
        USD by item, in the units of `helpers.models.tariffs.PRICE_UNITS`.

    Returns
    -------
    dict of Option to Cost
        In the order of `OPTIONS`.

    Raises
    ------
    UserError
        If a price is missing or negative.
    """
    return {option: price_option(assumptions, prices, option=option) for option in OPTIONS}


def price_option(assumptions: Assumptions, prices: Mapping[str, float], *, option: Option) -> Cost:
    """Price a month of 30 days of one option.

    Parameters
    ----------
    assumptions : Assumptions
        Load, service, caches and network.
    prices : mapping of str to float
        USD by item, in the units of `helpers.models.tariffs.PRICE_UNITS`.
    option : Option
        Where the cache is.

    Returns
    -------
    Cost
        USD by line, hit ratios, duration and instances.

    Raises
    ------
    UserError
        If a price is missing or negative.

    Examples
    --------
    One tile a second that takes half a second in 10 GB is 5 GB-s a second:

    >>> from helpers.models.tariffs import PRICE_UNITS
    >>> even = Assumptions(requests_per_s=1, peak_ratio=1, make_s=0.3, open_s=0.2)
    >>> cost = price_option(even, dict.fromkeys(PRICE_UNITS, 1.0), option="none")
    >>> cost.lines["computing"] == 5 * 2_592_000
    True
    """
    check_prices(prices)
    day = follow_day(assumptions, option)
    month = _sum_up(day)
    store_gets = month.made * assumptions.tile_gets + (month.made - month.hits) * assumptions.open_gets  # fmt: skip
    lines = {
        **_computing(assumptions, prices, option=option, day=day, month=month),
        **_caching(assumptions, prices, option=option, day=day, month=month),
        **_network(assumptions, prices, option=option, month=month),
        "store requests": store_gets / 1e3 * prices["store_gets_1e3"],
    }
    return Cost(
        option,
        lines,
        hit_ratio=month.hits / month.made if month.made else 0.0,
        edge_hit_ratio=1 - month.made / month.requests,
        duration_s=month.busy_s / month.made if month.made else 0.0,
        busy=day.flows[0].busy,
        n_instances=day.n_instances,
        store_gets=store_gets,
    )


def _sum_up(day: Day) -> _Month:
    """Sum the hours of 30 such days."""
    seconds = SECONDS_PER_MONTH / len(day.flows)
    return _Month(
        requests=seconds * math.fsum(flow.requests_per_s for flow in day.flows),
        made=seconds * math.fsum(flow.made_per_s for flow in day.flows),
        hits=seconds * math.fsum(flow.made_per_s * flow.hit_ratio for flow in day.flows),
        busy_s=seconds * math.fsum(flow.busy for flow in day.flows),
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
        an_hour = (
            assumptions.instance_vcpus * prices["instance_vcpu_hour"]
            + assumptions.instance_gb * prices["instance_gb_hour"]
        )
        return {"computing": day.n_instances * HOURS_PER_MONTH * an_hour, "invocations": 0.0, "disk": 0.0}  # fmt: skip
    paid_gb = max(0.0, assumptions.disk_gb - FREE_DISK_GB) if option == "disk" else 0.0
    return {
        "computing": month.busy_s * assumptions.memory_gb * prices["invocation_gb_s"],
        "invocations": month.made / 1e6 * prices["invocations_1e6"],
        "disk": month.busy_s * paid_gb * prices["invocation_disk_gb_s"],
    }


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
        lines["Redis"] = assumptions.redis_nodes * HOURS_PER_MONTH * prices["redis_node_hour"]
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
        flow.made_per_s * (flow.hit_ratio * read + (1 - flow.hit_ratio) * written)
        for flow in day.flows
    ]


def _network(
    assumptions: Assumptions, prices: Mapping[str, float], *, option: Option, month: _Month
) -> dict[str, float]:
    """Price NAT gateways, what goes through them, and what is sent to readers."""
    opened = (month.made - month.hits) * assumptions.metadata_nbytes
    read_gb = (month.made * assumptions.tile_read_nbytes + opened) / GB
    is_private = option in ("shared", "redis") or assumptions.nat_share > 0
    sent_gb = month.requests * assumptions.tile_nbytes / GB
    lines = {
        "NAT gateways": is_private * assumptions.n_nat_gateways * HOURS_PER_MONTH * prices["nat_hour"],
        "NAT data": assumptions.nat_share * read_gb * prices["nat_gb"],
        "data out": sent_gb * prices["cdn_gb" if option == "cdn" else "data_out_gb"],
    }  # fmt: skip
    lines["CDN requests"] = (
        month.requests / 1e4 * prices["cdn_requests_1e4"] if option == "cdn" else 0.0
    )
    return lines
