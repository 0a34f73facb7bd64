"""Tests of `advisors.costs.bill`: hit ratios against known limits and against a simulated cache."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisors.costs.bill import Cache, hit_ratio, zipf


def simulate(n_items: int, exponent: float, requests_per_s: float, cache: Cache) -> float:
    """Run requests through a least-recently-used cache with a time to live, and count hits.

    Stale items leave before living ones are evicted, and the life of a process is exponential.
    """
    rng = np.random.default_rng(7)
    weights = np.arange(1.0, n_items + 1) ** -exponent
    n_requests = 100_000
    items = rng.choice(n_items, n_requests, p=weights / weights.sum()).tolist()
    times = np.cumsum(rng.exponential(1 / requests_per_s, n_requests)).tolist()
    next_loss = rng.exponential(cache.lifetime_s) if cache.lifetime_s < math.inf else math.inf
    content: OrderedDict[int, float] = OrderedDict()
    n_hits = 0
    for number, (item, time) in enumerate(zip(items, times, strict=True)):
        while time >= next_loss:
            content.clear()
            next_loss += rng.exponential(cache.lifetime_s)
        is_hit = content.get(item, 0.0) > time
        n_hits += is_hit and number >= n_requests // 4
        if not is_hit:
            content[item] = time + cache.ttl_s
        content.move_to_end(item)
        if len(content) > cache.n_items:
            for stale in [one for one, until in content.items() if until <= time]:
                del content[stale]
            if len(content) > cache.n_items:
                content.popitem(last=False)
    return n_hits / (n_requests - n_requests // 4)


@pytest.mark.parametrize(
    ("n_items", "exponent", "requests_per_s", "cache", "within"),
    [
        # evicting alone, at three shapes of popularity
        (1000, 0.8, 10, Cache(100), 0.02),
        (1000, 1.2, 10, Cache(20), 0.02),
        (300, 0.0, 10, Cache(100), 0.02),
        # a time to live alone
        (1000, 0.8, 10, Cache(ttl_s=100), 0.02),
        (300, 0.0, 10, Cache(ttl_s=60), 0.02),
        # processes that come and go
        (1000, 0.8, 10, Cache(lifetime_s=30), 0.02),
        # eviction and an end at once: the shorter one counts, which is less exact
        (1000, 0.8, 10, Cache(100, ttl_s=30), 0.05),
        (1000, 1.2, 10, Cache(20, ttl_s=20), 0.07),
        (5000, 0.6, 50, Cache(1000, lifetime_s=100), 0.08),
    ],
)
def test_agrees_with_simulation(
    n_items: int, exponent: float, requests_per_s: float, cache: Cache, within: float
) -> None:
    """The closed form is near a simulated cache."""
    predicted = hit_ratio(zipf(n_items, exponent), requests_per_s, cache)
    simulated = simulate(n_items, exponent, requests_per_s, cache)
    assert predicted == pytest.approx(simulated, abs=within)


@pytest.mark.parametrize(
    ("cache", "expected"),
    [
        (Cache(), 1.0),  # room for everything, for ever
        (Cache(ttl_s=9), 0.9),  # one request a second for 9 seconds: 9 hits for each miss
        (Cache(ttl_s=9, n_replicas=3), 0.75),  # a third of them for each: 3 hits for each miss
        (Cache(lifetime_s=9), 0.9),  # an exponential life of 9 s is as good as 9 s to live
        (Cache(0), 0.0),  # no room
    ],
)
def test_one_item(cache: Cache, expected: float) -> None:
    """A cache of one item, requested once a second, has a hit ratio that one can work out."""
    assert hit_ratio(zipf(1, 1.0), 1.0, cache) == pytest.approx(expected, abs=1e-9)


def test_grouping_ranks_costs_no_accuracy() -> None:
    """Grouped ranks give the hit ratio that ranks one by one give."""
    weights = np.arange(1.0, 20_001) ** -0.8
    rates = weights / weights.sum() * 5.0
    single = float((rates / rates.sum()) @ (rates * 500 / (1 + rates * 500)))
    grouped = hit_ratio(zipf(20_000, 0.8), 5.0, Cache(ttl_s=500))
    assert grouped == pytest.approx(single, abs=1e-4)


@settings(max_examples=40, deadline=None)
@given(
    n_items=st.integers(1, 10**9),
    exponent=st.floats(0, 2),
    n_held=st.floats(1, 3000),
    ttl_s=st.floats(1, 1e5),
    lifetime_s=st.floats(60, 1e8),
)
def test_more_is_never_less(
    n_items: int, exponent: float, n_held: float, ttl_s: float, lifetime_s: float
) -> None:
    """All requests are for some item; more room, life or time, or fewer replicas, never hit less."""
    counts, shares = popularity = zipf(n_items, exponent)
    assert counts.sum() == n_items and counts @ shares == pytest.approx(1, rel=1e-9)
    assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(shares))
    least = hit_ratio(popularity, 1.0, Cache(n_held, ttl_s, lifetime_s, 2))
    assert 0 <= least <= 1
    for better in (
        Cache(2 * n_held, ttl_s, lifetime_s, 2),
        Cache(n_held, 2 * ttl_s, lifetime_s, 2),
        Cache(n_held, ttl_s, 2 * lifetime_s, 2),
        Cache(n_held, ttl_s, lifetime_s, 1),
    ):
        assert hit_ratio(popularity, 1.0, better) >= least - 1e-3
