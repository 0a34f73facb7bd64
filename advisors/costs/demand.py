"""What reaches a tile service hour by hour, and how many requests are at work at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from scipy.optimize import brentq

from advisors.costs.assumptions import Assumptions, Option
from helpers.errors import UserError
from helpers.models.hits import Cache, Popularity, hit_ratio, zipf

HOURS = 24

# Bursting throughput of Amazon EFS, in its user guide and in the published study.
BASELINE_MB_PER_S_PER_GB = 0.05
LEAST_BASELINE_MB_PER_S = 1.0
READS_PER_METERED = 3.0
BURST_MB_PER_S_PER_GB = 0.1
LEAST_BURST_MB_PER_S = 100.0
CREDIT_GB_PER_GB = 2.1
LEAST_CREDIT_GB = 2100.0


@lru_cache(maxsize=32)
def diurnal_curve(peak_ratio: float) -> tuple[float, ...]:
    """Spread a day's requests over its hours around one busiest hour.

    The curve is exp(k cos t), the smooth one with a single hump; k is what
    gives the peak that is asked for.

    Examples
    --------
    >>> diurnal_curve(1.0)[:2]
    (1.0, 1.0)
    >>> round(diurnal_curve(2.0)[0], 9), round(sum(diurnal_curve(2.0)), 9)
    (2.0, 24.0)
    """
    if not 1 <= peak_ratio < HOURS:
        raise UserError(f"peak_ratio is {peak_ratio!r}; allowed is a number from 1 to below 24")
    if peak_ratio == 1:
        return tuple(1.0 for _ in range(HOURS))
    return _hump(brentq(lambda k: _hump(k)[0] - peak_ratio, 0.0, 1e4))


def _hump(k: float) -> tuple[float, ...]:
    """Make the curve for one k, with mean 1."""
    weights = [math.exp(k * (math.cos(2 * math.pi * hour / HOURS) - 1)) for hour in range(HOURS)]
    return tuple(weight * HOURS / sum(weights) for weight in weights)


def credit_balances(stored_gb: float, metered_mb_per_s: Sequence[float]) -> tuple[float, ...]:
    """Follow the burst credits of a shared file system hour by hour, from a full balance.

    Credits come in at the baseline rate of what is stored and go out with what
    is metered: writes whole, reads by a third.

    Examples
    --------
    10 GB earn the least baseline of 1 MB/s; at 11 MB/s an hour costs 36 GB.

    >>> credit_balances(10, [11.0, 1.0])
    (2064.0, 2064.0)
    """
    earned = max(LEAST_BASELINE_MB_PER_S, BASELINE_MB_PER_S_PER_GB * stored_gb)
    full = max(LEAST_CREDIT_GB, CREDIT_GB_PER_GB * stored_gb)
    balances = []
    balance = full
    for metered in metered_mb_per_s:
        balance = min(full, balance + (earned - metered) * 3.6)
        balances.append(balance)
    return tuple(balances)


def least_stored_gb(metered_mb_per_s: Sequence[float], *, data_gb: float) -> float:
    """Find how much a bursting file system must hold so that it never throttles.

    Examples
    --------
    185 MB/s of reads all day are 61.7 MB/s metered:

    >>> round(least_stored_gb([185 / 3] * 24, data_gb=0.05))
    1233
    """
    if _headroom(data_gb, metered_mb_per_s) >= 0:
        return data_gb
    most = 1.0 + data_gb
    while _headroom(most, metered_mb_per_s) < 0:
        most *= 2
    return float(brentq(lambda stored_gb: _headroom(stored_gb, metered_mb_per_s), data_gb, most))


def _headroom(stored_gb: float, metered_mb_per_s: Sequence[float]) -> float:
    """Return what is left where it is scarcest, below 0 where a file system throttles.

    That is throughput below the ceiling, credits (GB) at their lowest, or
    credits gained by the second of two days, which end as they began.
    """
    ceiling = max(LEAST_BURST_MB_PER_S, BURST_MB_PER_S_PER_GB * stored_gb)
    balances = credit_balances(stored_gb, [*metered_mb_per_s, *metered_mb_per_s])
    gained = balances[-1] - balances[HOURS - 1] * (1 - 1e-12)  # equal but for rounding
    return min(ceiling - max(metered_mb_per_s), *balances, gained)


def wait_probability(n_servers: int, load: float) -> float:
    """Compute the probability that all servers are busy, by Erlang's C formula.

    Examples
    --------
    One server busy half of the time makes half of the arrivals wait:

    >>> wait_probability(1, 0.5)
    0.5
    """
    blocked = 1.0
    for n in range(1, n_servers + 1):
        blocked = load * blocked / (n + load * blocked)
    return blocked / (1 - load / n_servers * (1 - blocked))


N_ROUNDS = 200
"""Bound on the rounds in which hit ratio and number of instances settle; some 20 are usual."""


@dataclass(frozen=True, slots=True)
class HourlyDemand:
    """One hour of the day."""

    requests_per_s: float  # tiles asked for per second
    made_per_s: float  # tiles that the service makes per second: those that no CDN holds
    edge_hit_ratio: float  # share of the tiles that the CDN holds
    hit_ratio: float  # share of the tiles made whose dataset is in the cache
    duration_s: float  # mean seconds in the service for a tile made
    busy: float  # mean number of tiles in the making
    busy_cpus: float  # mean number of processors at work


@dataclass(frozen=True, slots=True)
class Day:
    """A day of one option, the busiest hour first, and the instances that it takes."""

    hours: tuple[HourlyDemand, ...]  # one for each of 24 hours
    n_instances: int  # always on, sized for the busiest hour; 0 where invocations are billed


def mean_duration_s(assumptions: Assumptions, option: Option, *, hit: float) -> float:
    """Compute the mean time for a tile from the hit ratio of the cache of opened datasets.

    A miss looks in the cache first, and opens then.

    Examples
    --------
    >>> given = Assumptions(make_s=0.3, open_s=0.2, redis_fetch_s=0.01)
    >>> mean_duration_s(given, "none", hit=0), round(mean_duration_s(given, "redis", hit=0.5), 3)
    (0.5, 0.41)
    """
    if option in ("none", "cdn"):
        return assumptions.make_s + assumptions.open_s
    fetch_s = {
        "process": 0.0,
        "cdn-process": 0.0,
        "disk": assumptions.disk_fetch_s,
        "shared": assumptions.shared_fetch_s,
        "redis": assumptions.redis_fetch_s,
    }[option]
    return assumptions.make_s + fetch_s + (1 - hit) * assumptions.open_s


def mean_cpu_s(assumptions: Assumptions, *, hit: float) -> float:
    """Compute the mean processor time of a tile, which is what bounds an instance: waiting costs none.

    Examples
    --------
    >>> mean_cpu_s(Assumptions(make_cpu_s=0.04, open_cpu_s=0.02), hit=0.5)
    0.05
    """
    return assumptions.make_cpu_s + (1 - hit) * assumptions.open_cpu_s


def count_redis_nodes(assumptions: Assumptions) -> int:
    """Count the nodes that carry the busiest hour: each tile reads or writes an opened dataset.

    Examples
    --------
    370 tiles a second of half a megabyte are 185 MB/s, for which 12 nodes of 16 MB/s are needed:

    >>> count_redis_nodes(Assumptions())
    12
    """
    peak_mb_per_s = (
        assumptions.requests_per_s * assumptions.peak_ratio * assumptions.metadata_nbytes / 1e6
    )
    needed = math.ceil(peak_mb_per_s / assumptions.redis_mb_per_s - 1e-9)
    return max(round(assumptions.redis_nodes), needed)


def follow_day(assumptions: Assumptions, option: Option) -> Day:
    """Follow one option through a day.

    Examples
    --------
    Without a cache each of 185 tiles a second takes half a second:

    >>> day = follow_day(Assumptions(make_s=0.3, open_s=0.2, peak_ratio=1.0), "none")
    >>> day.hours[0].busy
    92.5
    """
    n_datasets = round(assumptions.n_datasets)
    n_tiles = n_datasets * round(assumptions.tiles_per_dataset)
    datasets = zipf(n_datasets, assumptions.dataset_zipf)
    tiles = zipf(n_tiles, assumptions.tile_zipf) if option.startswith("cdn") else None
    rates = [assumptions.requests_per_s * r for r in diurnal_curve(assumptions.peak_ratio)]

    def hourly(rate: float, n_replicas: int) -> HourlyDemand:
        return _follow_hour(
            assumptions, option, rate, datasets=datasets, tiles=tiles, n_replicas=n_replicas
        )

    n_instances = 0
    if assumptions.billing == "instance":
        usable = assumptions.instance_vcpus * assumptions.target_utilisation
        # a hair below a whole number is one
        n_instances = max(1, math.ceil(hourly(rates[0], 0).busy_cpus / usable - 1e-9))
    # The curve is symmetric, so an hour before the peak is like an hour after it.
    half = [hourly(rate, n_instances) for rate in rates[:13]]
    return Day(tuple(half[min(hour, 24 - hour)] for hour in range(24)), n_instances)


def _follow_hour(
    assumptions: Assumptions,
    option: Option,
    requests_per_s: float,
    *,
    datasets: Popularity,
    tiles: Popularity | None,
    n_replicas: int,
) -> HourlyDemand:
    """Follow one hour; with `n_replicas` of 0 there are as many disks as instances at work."""
    edge = _edge_hit_ratio(assumptions, requests_per_s, tiles=tiles)
    made = requests_per_s * (1 - edge)
    if option in ("disk", "process", "cdn-process"):
        hit = _settle(assumptions, option, made, datasets=datasets, n_replicas=n_replicas)
    elif option in ("shared", "redis"):
        hit = hit_ratio(datasets, made, cache=_common_cache(assumptions, option))
    else:
        hit = 0.0
    duration_s = mean_duration_s(assumptions, option, hit=hit)
    busy = made * duration_s  # by Little's law :cite:p:`little1961`
    busy_cpus = made * mean_cpu_s(assumptions, hit=hit)
    return HourlyDemand(requests_per_s, made, edge, hit, duration_s, busy, busy_cpus)


def _edge_hit_ratio(
    assumptions: Assumptions, requests_per_s: float, *, tiles: Popularity | None
) -> float:
    """Predict the share of the tiles that the CDN holds; its bytes are never short."""
    if tiles is None:
        return 0.0
    cache = Cache(
        math.inf,
        assumptions.tile_nbytes,
        ttl_s=assumptions.cdn_ttl_s,
        n_replicas=assumptions.n_edges,
    )
    return hit_ratio(tiles, requests_per_s, cache=cache)


def _common_cache(assumptions: Assumptions, option: Option) -> Cache:
    """Describe the cache that all instances share."""
    is_redis = option == "redis"
    capacity = math.inf
    if is_redis:
        capacity = count_redis_nodes(assumptions) * assumptions.redis_gb * 1e9
    return Cache(capacity, assumptions.metadata_nbytes, ttl_s=assumptions.ttl_s)


def _settle(
    assumptions: Assumptions,
    option: Option,
    made_per_s: float,
    *,
    datasets: Popularity,
    n_replicas: int,
) -> float:
    """Find hit ratio and number of instances that agree, where each has a cache for itself.

    Each sees a share of the requests, so more instances hit less, and fewer hits take more
    instances. From no hit upwards the rounds climb to the first point where both agree.
    """
    is_always_on = assumptions.billing == "instance"
    usable = assumptions.instance_vcpus * assumptions.target_utilisation
    held_gb = assumptions.disk_gb if option == "disk" else assumptions.process_gb
    hit = 0.0
    for _ in range(N_ROUNDS):
        busy = made_per_s * (
            mean_cpu_s(assumptions, hit=hit) / usable
            if is_always_on
            else mean_duration_s(assumptions, option, hit=hit)
        )
        cache = Cache(
            held_gb * 1e9,
            assumptions.metadata_nbytes,
            ttl_s=assumptions.ttl_s,
            lifetime_s=assumptions.lifetime_s,
            n_replicas=n_replicas or max(1.0, busy),
        )
        before, hit = hit, hit_ratio(datasets, made_per_s, cache=cache)
        if n_replicas or abs(hit - before) < 1e-12:
            break
    return hit
