"""Replays of requests that wait for one another take the time that they must."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.models.transfer import Network, Step, replay

NETWORK = Network(0.01, 0.01, stream_nbytes_per_s=100e6, aggregate_nbytes_per_s=150e6)


@pytest.mark.parametrize(
    ("steps", "seconds"),
    [
        # one request: latency, then 1 MB at 100 MB/s
        ([Step((), 0.0, 10**6)], 0.02),
        # two in a row, with 5 ms of thinking between
        ([Step((), 0.0, 10**6), Step((0,), 0.005, 10**6)], 0.045),
        # two at once share 150 MB/s
        ([Step((), 0.0, 10**6), Step((), 0.0, 10**6)], 0.01 + 2e6 / 150e6),
        # the third waits for the slower of two
        ([Step((), 0.0, 0), Step((), 0.03, 0), Step((0, 1), 0.0, 0)], 0.05),
        # nothing asked
        ([], 0.0),
    ],
)
def test_replay_takes_what_arithmetic_says(steps: list[Step], seconds: float) -> None:
    """Latency, ceilings and waiting add up."""
    found = replay(steps, NETWORK)
    assert found.seconds == pytest.approx(seconds)
    assert found.n_requests == len(steps)
    assert replay(steps, NETWORK, rest_s=1.0).seconds == pytest.approx(seconds + 1.0)


@given(st.lists(st.tuples(st.floats(0, 0.1), st.integers(0, 10**6)), min_size=1, max_size=12))
def test_serial_requests_add_up(sent: list[tuple[float, int]]) -> None:
    """One request after the other takes its thinking, its latency and its bytes."""
    steps = [Step((n - 1,) if n else (), *one) for n, one in enumerate(sent)]
    now = sum(think_s + 0.01 + nbytes / 100e6 for think_s, nbytes in sent)
    assert replay(steps, NETWORK).seconds == pytest.approx(now)
    # with ten times the latency, each request adds 90 ms
    slow = Network(0.1, 0.1, stream_nbytes_per_s=100e6)
    assert replay(steps, slow).seconds == pytest.approx(now + 0.09 * len(sent))


def in_flight(n: int, n_connections: int, nbytes: int = 1) -> list[Step]:
    """Make requests of which so many are under way at once."""
    return [
        Step((at - n_connections,) if at >= n_connections else (), 0.0, nbytes) for at in range(n)
    ]


def test_more_connections_are_faster_up_to_the_link() -> None:
    """Eight reads at once take an eighth of the latencies, and no less than the link allows."""
    latency, link = Network(0.01, 0.01), Network(0.01, 0.01, aggregate_nbytes_per_s=1e6)
    assert replay(in_flight(64, 1), latency).seconds == pytest.approx(0.64)
    assert replay(in_flight(64, 8), latency).seconds == pytest.approx(0.08)
    assert replay(in_flight(64, 64, 10_000), link).seconds == pytest.approx(0.65)


def test_what_nobody_waits_for_costs_no_time() -> None:
    """A block fetched in the background, say."""
    steps = [Step((), 0.0, 10), Step((0,), 0.0, 10, is_waited=False)]
    assert replay(steps, Network(0.01, 0.01)).seconds == pytest.approx(0.01)


def test_latencies_are_drawn() -> None:
    """Many requests in a row take the mean of the distribution each."""
    sigma = math.log(100 / 30) / 1.6448536269514722
    mean_s = 0.030 * math.exp(sigma**2 / 2)
    found = replay(in_flight(2000, 1), Network(0.030, 0.100))
    assert found.seconds == pytest.approx(2000 * mean_s, rel=0.05)
