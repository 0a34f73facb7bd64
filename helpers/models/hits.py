"""How often a cache of bounded bytes and a time to live holds what is asked for.

Requests for an item are taken as Poisson and independent of one another. Each
item goes through cycles: a miss brings it in, and it stays until it is evicted,
its time to live ends, or the instance that holds it is gone. Eviction follows
Che's approximation :cite:p:`che2002,fricker2012`: under least recently used, an
item goes when nobody has asked for it for the *characteristic time*, which is
the same for all items and is such that the expected content fills the cache.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from helpers.errors import UserError

Floats = NDArray[np.float64]

N_SINGLE = 200
"""Ranks that stand alone; further ones are grouped."""

GROUP_GROWTH = 1.05
"""Ratio of the bounds of a group of ranks, small enough for hit ratios to 1e-4."""

_LARGEST_EXPONENT = 700.0  # exp of more overflows a double


@dataclass(frozen=True, slots=True)
class Popularity:
    """How requests are spread over items, most wanted first."""

    n_items: tuple[int, ...]  # items in each group, all alike
    shares: tuple[float, ...]  # probability that a request is for one given item of the group


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache, or several alike that share the requests evenly and know nothing of one another."""

    capacity_nbytes: float  # bytes that each holds, above 0; infinity if nothing is ever evicted
    item_nbytes: float  # bytes of one item, above 0
    ttl_s: float = math.inf  # seconds from being stored to being stale, above 0; infinity for never
    # mean seconds that an instance lives before its cache is lost, above 0
    lifetime_s: float = math.inf
    n_replicas: float = 1.0  # caches that share the requests, at least 1

    def __post_init__(self) -> None:
        """Refuse what is no cache."""
        for name in ("capacity_nbytes", "item_nbytes", "ttl_s", "lifetime_s"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} is {getattr(self, name)!r}; allowed is a number above 0")
        if not 1 <= self.n_replicas < math.inf:
            raise UserError(f"n_replicas is {self.n_replicas!r}; allowed is a number from 1 on")


@lru_cache(maxsize=32)
def zipf(n_items: int, exponent: float) -> Popularity:
    """Spread requests so that rank r is asked for in proportion to r to the power -exponent.

    Ranks above the first 200 are grouped geometrically, and a group's weight is
    the integral over it, so that a hundred million tiles are a few hundred groups.

    An exponent of 0 stands for all alike; about 0.6 to 1 is usual for what people ask for.

    Examples
    --------
    Two items of weights 1 and 1/2:

    >>> [round(share, 4) for share in zipf(2, 1.0).shares]
    [0.6667, 0.3333]
    """
    if n_items < 1:
        raise UserError(f"n_items is {n_items!r}; allowed is a number from 1 on")
    if not 0 <= exponent < math.inf:
        raise UserError(f"exponent is {exponent!r}; allowed is a number from 0 on")
    bounds = _group_bounds(n_items)
    counts = [high - low for low, high in itertools.pairwise(bounds)]
    weights = [
        _group_weight(low, high, exponent=exponent) for low, high in itertools.pairwise(bounds)
    ]
    whole = sum(weight * count for weight, count in zip(weights, counts, strict=True))
    return Popularity(tuple(counts), tuple(weight / whole for weight in weights))


def _group_bounds(n_items: int) -> list[int]:
    """List the first rank of each group, and one past the last rank."""
    bounds = [*range(1, min(n_items, N_SINGLE) + 2)]
    while bounds[-1] <= n_items:
        bounds.append(min(math.floor(bounds[-1] * GROUP_GROWTH), n_items + 1))
    return bounds


def _group_weight(low: int, high: int, *, exponent: float) -> float:
    """Average the weight of the ranks from `low` to below `high`."""
    if high - low == 1:
        return math.pow(low, -exponent)
    start, stop = low - 0.5, high - 0.5
    if abs(1 - exponent) < 1e-9:
        return math.log(stop / start) / (high - low)
    power = 1 - exponent
    return (math.pow(stop, power) - math.pow(start, power)) / power / (high - low)


def hit_ratio(popularity: Popularity, requests_per_s: float, *, cache: Cache) -> float:
    """Predict the share of requests that find their item in the cache.

    Requests are those to all replicas together.

    Examples
    --------
    One item, asked for once a second and kept for 9 seconds: 9 hits for each miss.

    >>> round(hit_ratio(zipf(1, 0.0), 1.0, cache=Cache(1e9, 1e6, ttl_s=9.0)), 6)
    0.9
    """
    if not 0 < requests_per_s < math.inf:
        raise UserError(f"requests_per_s is {requests_per_s!r}; allowed is a number above 0")
    if cache.capacity_nbytes < cache.item_nbytes:
        return 0.0
    counts, shares = np.array(popularity.n_items, float), np.array(popularity.shares)
    each_per_s = requests_per_s / cache.n_replicas
    time_s = _characteristic_time_s(counts, shares, each_per_s, cache=cache)
    return _total(
        counts, shares, lambda share: share * _held(share * each_per_s, time_s, cache=cache)
    )


def _total(counts: Floats, values: Floats, of: Callable[[Floats], Floats]) -> float:
    """Sum what is computed of a value over all items."""
    return float(counts @ of(values))


def _characteristic_time_s(
    counts: Floats, shares: Floats, each_per_s: float, *, cache: Cache
) -> float:
    """Find how long an item stays that nobody asks for, so that the content fills the cache.

    A lost instance loses all its items at once and evicts none while it fills,
    so a full one is what counts: the loss of instances plays no part here.
    """
    n_held = cache.capacity_nbytes / cache.item_nbytes
    lasting = Cache(cache.capacity_nbytes, cache.item_nbytes, ttl_s=cache.ttl_s)

    def content(time_s: float) -> float:
        return _total(
            counts, shares, lambda share: _held(share * each_per_s, time_s, cache=lasting)
        )

    def excess(log_time: float) -> float:
        return content(math.exp(log_time)) - n_held

    if n_held >= content(math.inf):
        return math.inf
    low = high = -math.log(each_per_s)
    while excess(low) > 0:
        low -= 2.0
    while excess(high) < 0:
        low = high
        high += 2.0
        if high > _LARGEST_EXPONENT:  # the cache holds all that is ever asked for again
            return math.inf
    return math.exp(float(brentq(excess, low, high, xtol=1e-13, rtol=1e-13)))


def _held(rate: Floats, time_s: float, *, cache: Cache) -> Floats:
    """Compute the probability that an item is there, which is its hit ratio."""
    return np.asarray(1 - 1 / (1 + _hits_per_cycle(rate, time_s, cache=cache)))


def _hits_per_cycle(rate: Floats, time_s: float, *, cache: Cache) -> Floats:
    """Count the hits that follow a miss until the item is gone.

    Up to the characteristic time T nothing can be evicted, so hits come at the
    full rate. From then on they die out at the rate that makes the number
    without a time to live the exact one, exp(rate T) - 1.
    """
    loss = 1 / cache.lifetime_s
    hits = rate * _decayed(loss, min(cache.ttl_s, time_s))
    if cache.ttl_s <= time_s:
        return hits
    x = np.minimum(rate * time_s, _LARGEST_EXPONENT)
    going_on = rate * -np.expm1(-x)
    ending = going_on / np.where(x < 1e-3, x**2 / 2 + x**3 / 6 + x**4 / 24, np.expm1(x) - x)
    late = _decayed(ending + loss, cache.ttl_s - time_s)
    return np.asarray(hits + going_on * math.exp(-loss * time_s) * late)


def _decayed(decay: Floats | float, time_s: float) -> Floats:
    """Integrate exp(-decay t) from 0 to `time_s`."""
    some = np.where(decay > 0, decay, 1.0)
    if math.isinf(time_s):
        return np.where(decay > 0, 1 / some, math.inf)
    exponent = decay * time_s
    return np.where(exponent > 1e-9, -np.expm1(-exponent) / some, time_s * (1 - exponent / 2))
