"""Latency of users who share interpreters and processors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.errors import UserError
from studies.caching_costs.queueing import Demand, simulate_users


@pytest.mark.parametrize(
    ("plans", "think_s", "expected"),
    [
        ([[(1, 0)]], 0, [1]),  # alone
        ([[(1, 0)], [(1, 0)]], 0, [2, 2]),  # both share the processor
        ([[(0, 1)], [(0, 1)]], 0, [1, 1]),  # waiting is not shared
        ([[(1, 0)], [(1, 2)]], 0, [1, 3]),  # one computes while the other waits
        ([[(1, 0), (1, 0)]], 5, [1, 1]),  # thinking is not latency
        ([[(1, 0)], [(3, 0)]], 0, [2, 4]),  # equal shares until the shorter is done
    ],
)
def test_users_share_a_processor(
    plans: list[list[tuple[float, float]]], think_s: float, expected: list[float]
) -> None:
    """Latencies of small cases that one can do by hand."""
    demands = [[Demand(*pair) for pair in user] for user in plans]
    assert simulate_users(demands, think_s=think_s) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("demands", "n_services", "n_processors", "expected"),
    [
        ([(2, 2, 1), (2, 0, 1)], 1, 1, [2, 4]),  # who waits first finds the processor free
        ([(2, 2, 2), (2, 0, 1)], 1, 1, [3, 5]),  # who waits in two parts computes between them
        ([(1, 0, 1)] * 3, 2, 2, [1, 2, 2]),  # two users at one service, one at the other
        ([(1, 0, 1)] * 3, 2, 1, [2, 3, 3]),  # two services have half of a processor each
        ([(1, 0, 1)] * 2, 1, 2, [2, 2]),  # a service has no use for a second one
        ([(1, 0, 1, 1)] * 2, 1, 2, [3, 3]),  # but what runs outside its interpreter has
        ([(1, 0, 1, 1)] * 2, 1, 1, [4, 4]),
        ([(1, 0, 1, 2), (3, 0, 1)], 1, 2, [4, 4]),  # the other has the interpreter for itself then
    ],
)
def test_services_share_processors(
    demands: list[tuple[float, float, int] | tuple[float, float, int, float]],
    n_services: int,
    n_processors: int,
    expected: list[float],
) -> None:
    """Latencies of one request of each user, who are dealt among the services."""
    plans = [[Demand(*one)] for one in demands]
    given: dict[str, int] = {"n_services": n_services, "n_processors": n_processors}
    assert simulate_users(plans, think_s=0.0, **given) == pytest.approx(expected)


def test_busy_processors_slow_one_another() -> None:
    """One of two computes at full speed; while both do, each at three quarters."""
    alone, both = [[Demand(3, 0)]], [[Demand(3, 0)], [Demand(6, 0)]]
    given = {"think_s": 0.0, "n_services": 2, "n_processors": 2, "speed_of_all": 0.75}
    assert simulate_users(alone, **given) == pytest.approx([3])
    assert simulate_users(both, **given) == pytest.approx([4, 7])
    with pytest.raises(UserError, match=r"speed_of_all: 0; allowed: above 0, finite"):
        simulate_users(both, **given | {"speed_of_all": 0})


def test_who_shares_an_interpreter_costs_one_another() -> None:
    """Twice the time where a second processor is free, a half more where not, and nothing alone."""
    given = {"think_s": 0.0, "n_processors": 2, "crowd_cost": 2.0, "crowd_cost_on_one": 1.5}
    assert simulate_users([[Demand(3, 0)]], **given) == pytest.approx([3])
    assert simulate_users([[Demand(3, 0)]] * 2, **given) == pytest.approx([12, 12])
    alone = given | {"n_processors": 1}
    assert simulate_users([[Demand(3, 0)]] * 2, **alone) == pytest.approx([9, 9])
    two = given | {"n_services": 2}
    assert simulate_users([[Demand(3, 0)]] * 4, **two) == pytest.approx([9] * 4)
    with pytest.raises(UserError, match=r"crowd_cost: nan; allowed: above 0, finite"):
        simulate_users([], **given | {"crowd_cost": float("nan")})


@given(
    plans=st.lists(
        st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 1)), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    )
)
def test_no_request_is_faster_than_alone(plans: list[list[tuple[float, float]]]) -> None:
    """With others, a request takes its own time or longer, and at most that of all together."""
    demands = [[Demand(*pair) for pair in user] for user in plans]
    latencies = sorted(simulate_users(demands, think_s=0.0))
    alone = sorted(d.cpu_s + d.wait_s for user in demands for d in user)
    assert len(latencies) == len(alone)
    assert all(a >= b - 1e-9 for a, b in zip(latencies, alone, strict=True))
    total = sum(d.cpu_s for user in demands for d in user)
    assert max(latencies) <= total + max(d.wait_s for user in demands for d in user) + 1e-9


def test_users_of_one_line_may_leave_and_come_back() -> None:
    """Who asks again joins those who are in the midst of theirs: equal shares from then on."""
    plans = [[Demand(1, 0), Demand(1, 0)], [Demand(4, 0)]]
    # the first is done at 2, thinks until 3, then both share: 3 to 5, and the other is alone to 6
    assert simulate_users(plans, think_s=1.0) == pytest.approx([2, 2, 6])
