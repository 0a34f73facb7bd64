"""The arithmetic of a calibration: caps are kept by the plan, and figures follow from what was seen."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisors.calibrate.plan import (
    Caps,
    Seen,
    Spent,
    Step,
    accepted_per_s,
    lane_nbytes,
    make_figures,
    plan_steps,
    quantile,
    rate_together,
    summarise,
)
from helpers.errors import UserError
from helpers.netem.profiles import make_profile

FREE = dict.fromkeys(("store_gets_1e3", "store_lists_1e3", "data_out_gb"), 0.0)
PAID = {"store_gets_1e3": 0.0004, "store_lists_1e3": 0.005, "data_out_gb": 0.09}


@given(st.integers(60, 10**6), st.floats(0, 100), st.integers(30_000_000, 10**12))
def test_the_plan_keeps_the_caps(n: int, usd: float, nbytes: int) -> None:
    """Whatever the caps, all steps together are within them, or the caps are refused."""
    try:
        caps = Caps(n, usd, nbytes, PAID)
    except UserError as error:
        if "allowed: at least" in str(error):
            return
        raise
    steps = plan_steps(caps)
    n_lists = 2 * sum(step.kind == "find" for step in steps)
    n_gets = sum(step.n_requests for step in steps) - n_lists
    assert caps.allow(Spent(n_gets, n_lists, sum(step.nbytes for step in steps)))
    assert all(step.n_requests > 0 and step.nbytes >= 0 for step in steps)
    assert {step.kind for step in steps} == {"find", "delays", "stream", "together", "requests"}


@pytest.mark.parametrize(
    ("n", "usd", "nbytes", "prices", "says"),
    [
        (0, 0.1, 10**9, FREE, "max-requests: 0; allowed: at least 60"),
        (500, 0.0, 10**9, PAID, "max-usd: 0; allowed: at least 0.002"),
        (500, -1.0, 10**9, FREE, "max-usd: -1; allowed: at least 0 "),
        (500, math.nan, 10**9, FREE, "max-usd: nan; allowed"),
        (500, 0.1, 0, FREE, "max-mb: 0; allowed: at least 22"),
        (500, 0.1, 10**9, {**FREE, "data_out_gb": -1.0}, "price data_out_gb: -1; allowed"),
    ],
)
def test_caps_are_refused(
    n: int, usd: float, nbytes: int, prices: dict[str, float], says: str
) -> None:
    """A cap of zero, or one that measures nothing, is refused in a line with the least that is allowed."""
    with pytest.raises(UserError, match=says):
        Caps(n, usd, nbytes, prices)


def test_quantile_intervals_cover() -> None:
    """Of 200 log-normal delays the interval of the 95th percentile holds the true one in about 95 %."""
    rng = random.Random(1)
    true = math.exp(0.5 * 1.6448536)
    n_held = 0
    for _ in range(300):
        _, low, high = quantile([rng.lognormvariate(0, 0.5) for _ in range(200)], 0.95)
        n_held += low is not None and high is not None and low <= true <= high
    assert n_held / 300 > 0.9


@given(st.integers(1, 40), st.floats(1, 1000), st.floats(0, 0.1))
def test_connections_that_share_a_link(n: int, rate: float, spread_s: float) -> None:
    """Lanes at a steady rate give it back, however late each of them starts."""
    rng = random.Random(n)
    starts = [rng.uniform(0, spread_s) for _ in range(n)]
    lanes = [[(start + i / 10, round(1e6 * rate * i / 10)) for i in range(11)] for start in starts]
    assert rate_together(lanes) == pytest.approx(1e6 * n * rate, rel=1e-3)


@pytest.mark.parametrize(
    ("starts", "tenths", "rate"),
    [
        # they never all read at once: the busiest while counts, and no wait is taken for slowness
        ([0.0, 0.1, 0.2, 3.0], 21, 300),
        ([0.0, 5.0], 11, 100),
    ],
)
def test_connections_that_begin_far_apart(starts: list[float], tenths: int, rate: float) -> None:
    """Each brings 100 bytes a second once it has begun."""
    lanes = [[(start + i / 10, 10 * i) for i in range(tenths)] for start in starts]
    assert rate_together(lanes) == pytest.approx(rate, rel=0.2)


@pytest.mark.parametrize("offered", [1.3, 2.0, 5.0])
@pytest.mark.parametrize("limit", [50.0, 300.0])
def test_a_limit_is_found(limit: float, offered: float) -> None:
    """A bucket of tokens that lets a burst through does not hide its rate."""
    tokens, asked = 0.1 * limit, list[tuple[float, bool]]()
    for i in range(int(3 * limit)):
        tokens = min(0.1 * limit, tokens + 1 / offered)
        is_refused = tokens < 1
        tokens -= not is_refused
        asked.append((i / (offered * limit), is_refused))
    assert accepted_per_s(asked) == pytest.approx(limit, rel=0.05)


def make_seen() -> Seen:
    """Return what a store of 30 ms, 10 MB/s a stream and 30 MB/s in all shows."""
    return Seen(
        delays_s=[0.03] * 90 + [0.1] * 10,
        streams_mb_per_s=[9.9, 10.0, 10.1],
        together_mb_per_s={2: 20.0, 4: 30.0, 8: 30.2},
        answered_per_s=500.0,
        decode_mb_per_s=800.0,
    )


def test_figures_are_a_profile() -> None:
    """What was seen is a profile as it is, with a source for each figure."""
    figures = make_figures(make_seen(), "s3://mine, 2026-01-01")
    profile = make_profile("mine", figures)
    assert profile.first_byte_s is not None and profile.first_byte_s.median_s == 0.03
    assert (profile.stream_mb_per_s, profile.aggregate_mb_per_s) == (10.0, 30.2)
    assert profile.requests_per_s is None, "no request was refused, so no limit is known"
    assert "none was refused at 500 a second" in profile.sources["requests_per_s"]
    assert all(text.endswith("; s3://mine, 2026-01-01") for text in profile.sources.values())
    assert "8 connections, where growth ended" in profile.sources["aggregate_mb_per_s"]


def test_what_is_not_known_is_not_told() -> None:
    """Growth that did not end, a tail that no value bounds, and a calibration that saw nothing."""
    seen = make_seen()
    told = summarise(seen)
    assert told["first_byte_p99_s"][0] == 0.1 and told["first_byte_p99_s"][2] is None
    assert told["mb_per_s_by_connections"] == {1: 10.0, 2: 20.0, 4: 30.0, 8: 30.2}
    del seen.together_mb_per_s[8]
    figures = make_figures(seen, "x")
    assert figures["aggregate_mb_per_s"] == 30.0 and not seen.has_growth_ended
    assert "where it still grew" in figures["sources"]["aggregate_mb_per_s"]
    assert make_figures(Seen(), "x") == {"sources": {}} and summarise(Seen()) == {}


def test_steps_that_lack_are_named() -> None:
    """What too many failures left out is told by name; levels after the end of growth are not missed."""
    steps = plan_steps(Caps(500, 0.0, 10**9, FREE))
    assert make_seen().lacks(steps) == ["first byte of 4 KiB"]  # 100 of 200 delays
    seen = make_seen()
    seen.delays_s *= 2
    assert seen.lacks(steps) == []
    seen.streams_mb_per_s = []
    seen.answered_per_s = None
    assert {"one connection", "request rate"} <= {*seen.lacks(steps)}


def test_connections_read_no_more_than_they_can_need() -> None:
    """Each is given the bytes of its share: a stream alone, a part of the link when it is full."""
    seen = make_seen()
    del seen.together_mb_per_s[8]
    step = Step("together", 16, 10**9, 8)
    assert lane_nbytes(seen, step, window_s=1.0) == 7_500_000  # 60 MB/s at most, from 30 of 4
    assert lane_nbytes(seen, Step("together", 16, 8 * 1000, 8), window_s=1.0) == 1000
