"""What reaches a tile service hour by hour, what its cache answers, and how many tiles are in the making."""

from __future__ import annotations

import math
from dataclasses import dataclass

from helpers.models.assumptions import Assumptions, Option
from helpers.models.hits import Cache, Popularity, hit_ratio, zipf
from helpers.models.loads import concurrency, diurnal_curve

__all__ = ["Day", "Flow", "follow_day", "mean_duration_s"]

N_ROUNDS = 200
"""Bound on the rounds in which hit ratio and number of instances settle; some 20 are usual."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One hour of the day.

    Parameters
    ----------
    requests_per_s : float
        Tiles asked for per second.
    made_per_s : float
        Tiles that the service makes per second: those that no CDN holds.
    edge_hit_ratio : float
        Share of the tiles that the CDN holds.
    hit_ratio : float
        Share of the tiles made whose dataset is in the cache.
    duration_s : float
        Mean seconds in the service for a tile made.
    busy : float
        Mean number of tiles in the making.
    """

    requests_per_s: float
    made_per_s: float
    edge_hit_ratio: float
    hit_ratio: float
    duration_s: float
    busy: float


@dataclass(frozen=True, slots=True)
class Day:
    """A day of one option, the busiest hour first, and the instances that it takes.

    Parameters
    ----------
    flows : tuple of Flow
        One for each of 24 hours.
    n_instances : int
        Instances that are always on, sized for the busiest hour; 0 where
        computing is billed by invocation.
    """

    flows: tuple[Flow, ...]
    n_instances: int


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How requests are spread over datasets and, for a CDN, over tiles."""

    datasets: Popularity
    tiles: Popularity | None


def mean_duration_s(assumptions: Assumptions, option: Option, *, hit: float) -> float:
    """Compute the mean time for a tile from the hit ratio of the cache of opened datasets.

    A miss looks in the cache first, in vain, and opens then.

    Parameters
    ----------
    assumptions : Assumptions
        Of which the mean times are used.
    option : Option
        Where the cache is.
    hit : float
        Share of the tiles whose dataset is in it, 0 to 1.

    Returns
    -------
    float
        Seconds.

    Examples
    --------
    >>> given = Assumptions(make_s=0.3, open_s=0.2, redis_fetch_s=0.01)
    >>> mean_duration_s(given, "none", hit=0), round(mean_duration_s(given, "redis", hit=0.5), 3)
    (0.5, 0.41)
    """
    if option in ("none", "cdn"):
        return assumptions.make_s + assumptions.open_s
    fetch_s = {
        "disk": assumptions.disk_fetch_s,
        "shared": assumptions.shared_fetch_s,
        "redis": assumptions.redis_fetch_s,
    }[option]
    return assumptions.make_s + fetch_s + (1 - hit) * assumptions.open_s


def follow_day(assumptions: Assumptions, option: Option) -> Day:
    """Follow one option through a day.

    Parameters
    ----------
    assumptions : Assumptions
        Load, service and caches.
    option : Option
        Where the cache is.

    Returns
    -------
    Day
        Its hours and instances.

    Examples
    --------
    Without a cache each of 185 tiles a second takes half a second:

    >>> day = follow_day(Assumptions(make_s=0.3, open_s=0.2, peak_ratio=1.0), "none")
    >>> day.flows[0].busy
    92.5
    """
    wanted = _spread(assumptions, option)
    rates = [assumptions.requests_per_s * r for r in diurnal_curve(assumptions.peak_ratio)]
    n_instances = 0
    if assumptions.billing == "instance":
        peak = _flow(assumptions, option, requests_per_s=rates[0], wanted=wanted)
        n_instances = _n_instances(assumptions, peak.busy)
    # The curve is symmetric, so an hour before the peak is like an hour after it.
    half = [
        _flow(assumptions, option, requests_per_s=rate, wanted=wanted, n_replicas=n_instances)
        for rate in rates[:13]
    ]
    return Day(tuple(half[min(hour, 24 - hour)] for hour in range(24)), n_instances)


def _spread(assumptions: Assumptions, option: Option) -> _Wanted:
    """Spread requests over datasets, and over tiles where a CDN holds them."""
    n_datasets = round(assumptions.n_datasets)
    n_tiles = n_datasets * round(assumptions.tiles_per_dataset)
    return _Wanted(
        zipf(n_datasets, assumptions.dataset_zipf),
        zipf(n_tiles, assumptions.tile_zipf) if option == "cdn" else None,
    )


def _n_instances(assumptions: Assumptions, busy: float) -> int:
    """Size a fleet for a number of tiles in the making, a hair below a whole number being one."""
    slots = assumptions.instance_slots * assumptions.target_utilisation
    return max(1, math.ceil(busy / slots - 1e-9))


def _flow(
    assumptions: Assumptions,
    option: Option,
    *,
    requests_per_s: float,
    wanted: _Wanted,
    n_replicas: int = 0,
) -> Flow:
    """Follow one hour; without `n_replicas` there are as many disks as instances at work."""
    edge = _edge_hit_ratio(assumptions, requests_per_s, tiles=wanted.tiles)
    made = requests_per_s * (1 - edge)
    if option == "disk":
        hit = _settle_disks(assumptions, made, datasets=wanted.datasets, n_replicas=n_replicas)
    elif option in ("shared", "redis"):
        hit = hit_ratio(wanted.datasets, made, cache=_common_cache(assumptions, option))
    else:
        hit = 0.0
    duration_s = mean_duration_s(assumptions, option, hit=hit)
    return Flow(requests_per_s, made, edge, hit, duration_s, concurrency(made, duration_s))


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
    capacity = assumptions.redis_nodes * assumptions.redis_gb * 1e9 if is_redis else math.inf
    return Cache(capacity, assumptions.metadata_nbytes, ttl_s=assumptions.ttl_s)


def _settle_disks(
    assumptions: Assumptions, made_per_s: float, *, datasets: Popularity, n_replicas: int
) -> float:
    """Find hit ratio and number of disks that agree.

    Each instance has its own disk and sees a share of the requests, so more
    instances hit less, and fewer hits take more instances. From no hit upwards
    the rounds climb to the first point where both agree.
    """
    is_always_on = assumptions.billing == "instance"
    slots = assumptions.instance_slots * assumptions.target_utilisation if is_always_on else 1.0
    hit = 0.0
    for _ in range(N_ROUNDS):
        busy = concurrency(made_per_s, mean_duration_s(assumptions, "disk", hit=hit))
        cache = Cache(
            assumptions.disk_gb * 1e9,
            assumptions.metadata_nbytes,
            ttl_s=assumptions.ttl_s,
            lifetime_s=assumptions.lifetime_s,
            n_replicas=n_replicas or max(1.0, busy / slots),
        )
        before, hit = hit, hit_ratio(datasets, made_per_s, cache=cache)
        if n_replicas or abs(hit - before) < 1e-12:
            break
    return hit
