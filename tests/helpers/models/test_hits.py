"""Tests of `helpers.models.hits`: hit ratios against known limits and against a simulated cache."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.errors import UserError
from helpers.models.hits import Cache, hit_ratio, zipf

NEVER = math.inf


def simulate(n_items: int, exponent: float, requests_per_s: float, cache: Cache) -> float:
    """Run requests through a least-recently-used cache with a time to live, and count hits.

    Item bytes are 1, so the capacity is a number of items. Stale items leave
    before living ones are evicted, and an instance's life is exponential.
    """
    rng = np.random.default_rng(7)
    weights = np.arange(1.0, n_items + 1) ** -exponent
    n_requests = 160_000
    items = rng.choice(n_items, n_requests, p=weights / weights.sum()).tolist()
    times = np.cumsum(rng.exponential(1 / requests_per_s, n_requests)).tolist()
    next_loss = rng.exponential(cache.lifetime_s) if cache.lifetime_s < NEVER else NEVER
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
        if len(content) > cache.capacity_nbytes:
            for stale in [one for one, until in content.items() if until <= time]:
                del content[stale]
            if len(content) > cache.capacity_nbytes:
                content.popitem(last=False)
    return n_hits / (n_requests - n_requests // 4)


@pytest.mark.parametrize(
    ("n_items", "exponent", "requests_per_s", "cache"),
    [
        # Evicting alone, at three shapes of popularity.
        (1000, 0.8, 10, Cache(100, 1)),
        (1000, 1.2, 10, Cache(20, 1)),
        (300, 0.0, 10, Cache(100, 1)),
        # A time to live alone.
        (1000, 0.8, 10, Cache(NEVER, 1, ttl_s=100)),
        (300, 0.0, 10, Cache(NEVER, 1, ttl_s=60)),
        # Both, one or the other being the shorter.
        (1000, 0.8, 10, Cache(100, 1, ttl_s=30)),
        (1000, 0.8, 10, Cache(100, 1, ttl_s=100)),
        (1000, 1.2, 10, Cache(20, 1, ttl_s=20)),
        (50, 1.0, 1, Cache(10, 1, ttl_s=20)),
        # Instances that come and go, as disks of functions do.
        (1000, 0.8, 10, Cache(100, 1, ttl_s=100, lifetime_s=50)),
        (5000, 0.6, 50, Cache(1000, 1, lifetime_s=100)),
        (1000, 0.8, 10, Cache(NEVER, 1, lifetime_s=30)),
    ],
)
def test_agrees_with_simulation(
    n_items: int, exponent: float, requests_per_s: float, cache: Cache
) -> None:
    """The closed form is within 2 percentage points of a simulated cache."""
    predicted = hit_ratio(zipf(n_items, exponent), requests_per_s, cache=cache)
    assert predicted == pytest.approx(simulate(n_items, exponent, requests_per_s, cache), abs=0.02)


@pytest.mark.parametrize(
    ("cache", "expected"),
    [
        # Room for everything, for ever: every request hits in the long run.
        (Cache(1e9, 1e6), 1.0),
        # One item a second for 9 seconds: 9 hits for each miss.
        (Cache(1e9, 1e6, ttl_s=9), 0.9),
        # The same, halved among three that share the requests: 3 hits for each miss.
        (Cache(1e9, 1e6, ttl_s=9, n_replicas=3), 0.75),
        # An exponential life of 9 seconds is as good as 9 seconds to live.
        (Cache(1e9, 1e6, lifetime_s=9), 0.9),
        # An item that does not fit is never there.
        (Cache(1e6 - 1, 1e6), 0.0),
    ],
)
def test_one_item(cache: Cache, expected: float) -> None:
    """A cache of one item, asked for once a second, has a hit ratio that one can estimate."""
    assert hit_ratio(zipf(1, 1.0), 1.0, cache=cache) == pytest.approx(expected, abs=1e-9)


def test_even_popularity_evicts_evenly() -> None:
    """With all items alike, the share that is held is the share that hits."""
    assert hit_ratio(zipf(400, 0.0), 5.0, cache=Cache(100, 1)) == pytest.approx(0.25, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    n_items=st.integers(1, 3000),
    exponent=st.floats(0, 2),
    capacity=st.floats(1, 3000),
    ttl_s=st.floats(1, 1e5),
    lifetime_s=st.floats(60, 1e8),
)
def test_more_is_never_less(
    n_items: int, exponent: float, capacity: float, ttl_s: float, lifetime_s: float
) -> None:
    """Twice the bytes, the time to live or the life of an instance never hits less, nor do fewer replicas."""
    popularity = zipf(n_items, exponent)
    base = Cache(capacity, 1, ttl_s=ttl_s, lifetime_s=lifetime_s, n_replicas=2)
    least = hit_ratio(popularity, 1.0, cache=base)
    assert 0 <= least <= 1
    for better in (
        Cache(2 * capacity, 1, ttl_s=ttl_s, lifetime_s=lifetime_s, n_replicas=2),
        Cache(capacity, 1, ttl_s=2 * ttl_s, lifetime_s=lifetime_s, n_replicas=2),
        Cache(capacity, 1, ttl_s=ttl_s, lifetime_s=2 * lifetime_s, n_replicas=2),
        Cache(capacity, 1, ttl_s=ttl_s, lifetime_s=lifetime_s, n_replicas=1),
    ):
        assert hit_ratio(popularity, 1.0, cache=better) >= least - 2e-3


@given(st.integers(1, 10**9), st.floats(0, 2))
@settings(max_examples=50, deadline=None)
def test_shares_sum_to_one(n_items: int, exponent: float) -> None:
    """Every item is in one group, shares fall with rank, and all requests are for some item."""
    popularity = zipf(n_items, exponent)
    assert sum(popularity.n_items) == n_items
    total = sum(n * share for n, share in zip(popularity.n_items, popularity.shares, strict=True))
    assert total == pytest.approx(1, rel=1e-9)
    falls = itertools.pairwise(popularity.shares)
    assert all(after <= before * (1 + 1e-12) for before, after in falls)  # even ones, rounded


def test_grouping_ranks_costs_no_accuracy() -> None:
    """Grouped ranks give the hit ratio that ranks one by one give."""
    n_items, cache = 20_000, Cache(NEVER, 1, ttl_s=500)
    weights = np.arange(1.0, n_items + 1) ** -0.8
    rates = weights / weights.sum() * 5.0
    single = float((rates / rates.sum()) @ (rates * 500 / (1 + rates * 500)))
    assert hit_ratio(zipf(n_items, 0.8), 5.0, cache=cache) == pytest.approx(single, abs=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hit_ratio(zipf(1, 1.0), 0.0, cache=Cache(1, 1)), "requests_per_s is 0.0; allowed"),
        (lambda: zipf(0, 1.0), "n_items is 0; allowed"),
        (lambda: zipf(1, -0.5), "exponent is -0.5; allowed"),
        (lambda: Cache(0, 1), "capacity_nbytes is 0; allowed"),
        (lambda: Cache(1, 1, ttl_s=0), "ttl_s is 0; allowed"),
        (lambda: Cache(1, 1, n_replicas=0.5), "n_replicas is 0.5; allowed"),
        # Not a number is not above 0.
        (lambda: Cache(math.nan, 1), "capacity_nbytes is nan; allowed"),
    ],
)
def test_refuses(make: object, message: str) -> None:
    """What is no cache and no load is refused by name."""
    with pytest.raises(UserError, match=message):
        make()  # type: ignore[operator]
