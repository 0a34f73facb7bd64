"""How often a cache of bounded bytes and a time to live holds what is requested.

Requests for an item are Poisson and independent. A miss brings an item in; it stays until it is
evicted, its time to live ends, or the process that holds it is gone. Eviction follows Che's
approximation :cite:p:`che2002,fricker2012`: the least recently used item goes when nobody has
requested it for the *characteristic time*, which is the same for all items and such that the
expected content fills the cache. The page's calculator has the same formulas in JavaScript.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

N_SINGLE = 200  # ranks that stand alone; further ones are grouped
GROUP_GROWTH = 1.05  # ratio of the bounds of a group of ranks
N_BISECTIONS = 60


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache, or several alike that share the requests evenly and know nothing of one another."""

    n_items: float = math.inf  # that each has room for
    ttl_s: float = math.inf  # seconds from being stored to being stale
    lifetime_s: float = math.inf  # mean seconds that a process lives
    n_replicas: float = 1.0  # caches that share the requests


@lru_cache(maxsize=32)
def zipf(n_items: int, exponent: float) -> tuple[Floats, Floats]:
    """Spread requests so that rank r is requested in proportion to r to the power -exponent.

    Ranks above the first 200 are grouped, and a group's weight is the integral over it, so that
    ten billion tiles are a few hundred groups.

    Returns
    -------
    tuple of array
        Items in each group, and the share of the requests of one item of the group.

    Examples
    --------
    Two items of weights 1 and 1/2:

    >>> zipf(2, 1.0)[1].round(4).tolist()
    [0.6667, 0.3333]
    """
    bounds = [*range(1, min(n_items, N_SINGLE) + 2)]
    while bounds[-1] <= n_items:
        bounds.append(min(math.floor(bounds[-1] * GROUP_GROWTH), n_items + 1))
    edges = np.array(bounds, float)
    counts = np.diff(edges)
    if abs(1 - exponent) < 1e-9:
        integrals = np.diff(np.log(edges - 0.5))
    else:
        integrals = np.diff((edges - 0.5) ** (1 - exponent)) / (1 - exponent)
    weights = np.where(counts == 1, edges[:-1] ** -exponent, integrals / counts)
    return counts, weights / (counts @ weights)


def hit_ratio(popularity: tuple[Floats, Floats], requests_per_s: float, cache: Cache) -> float:
    """Predict the share of the requests, those to all replicas together, that find their item.

    Examples
    --------
    One item, requested once a second and kept for 9 seconds: 9 hits for each miss.

    >>> round(hit_ratio(zipf(1, 0.0), 1.0, Cache(ttl_s=9.0)), 6)
    0.9
    """
    counts, shares = popularity
    rates = shares * requests_per_s / cache.n_replicas
    kept_s = cache.ttl_s
    if cache.lifetime_s < math.inf:  # mean of the shorter of both
        kept_s = cache.lifetime_s * -math.expm1(-cache.ttl_s / cache.lifetime_s)
    kept = np.ones_like(rates) if kept_s == math.inf else rates * kept_s / (1 + rates * kept_s)
    if counts @ kept > cache.n_items:
        kept = _evict(counts, rates, kept, cache.n_items)
    return float(counts @ (shares * kept))


def _evict(counts: Floats, rates: Floats, kept: Floats, n_items: float) -> Floats:
    """Bound what is kept by the characteristic time at which it fills the cache."""

    def hold(log_s: float) -> Floats:
        return np.minimum(kept, -np.expm1(-rates * math.exp(log_s)))

    low, high = -math.log(rates.max()) - 60, -math.log(rates.min()) + 60
    for _ in range(N_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if counts @ hold(middle) > n_items else (middle, high)
    return hold(low)
