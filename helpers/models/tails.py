"""What each option costs where all keep the same 95th percentile of the latency."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from helpers.errors import UserError
from helpers.models.assumptions import Assumptions, Option, change
from helpers.models.costs import HOURS_PER_MONTH, SECONDS_PER_MONTH, Cost, price_option
from helpers.models.loads import wait_probability

__all__ = ["EqualTail", "equal_tail"]


@dataclass(frozen=True, slots=True)
class EqualTail:
    """What it takes to keep the 95th percentile of an option below a target.

    Parameters
    ----------
    option : Option
        Where the cache is.
    p95_s : float
        95th percentile reached, seconds; that of an idle service where the target cannot be met.
    n_instances : int
        Instances needed; 0 where no number is enough.
    usd_per_million : float
        USD for a million tiles; infinite where no number is enough.
    """

    option: Option
    p95_s: float
    n_instances: int
    usd_per_million: float


def equal_tail(
    assumptions: Assumptions,
    prices: Mapping[str, float],
    *,
    p95_s: Mapping[Option, float],
    target_s: float,
) -> list[EqualTail]:
    """Price a million tiles where every option keeps the same 95th percentile.

    Instances are always on. Waiting for a free slot is taken as that of
    exponential service times (Erlang's C formula) and its 95th percentile is
    added to that of the service, which errs on the side of more instances.

    Parameters
    ----------
    assumptions : Assumptions
        Load, service and caches; computing is taken as billed by instance.
    prices : mapping of str to float
        USD by item.
    p95_s : mapping of Option to float
        Measured 95th percentile of each option's service without waiting, seconds.
    target_s : float
        What each is to keep, seconds.

    Returns
    -------
    list of EqualTail
        One for each option of `p95_s`.

    Raises
    ------
    UserError
        If a percentile or the target is not above 0.
    """
    for name, value in [*p95_s.items(), ("the target", target_s)]:
        if not 0 < value < math.inf:
            raise UserError(f"95th percentile of {name} is {value!r}; allowed is a number above 0")
    always_on = change(assumptions, {"billing": "instance"})
    return [
        _meet(
            always_on,
            prices,
            cost=price_option(always_on, prices, option=option),
            p95_s=p95_s[option],
            target_s=target_s,
        )
        for option in p95_s
    ]


def _meet(
    assumptions: Assumptions,
    prices: Mapping[str, float],
    *,
    cost: Cost,
    p95_s: float,
    target_s: float,
) -> EqualTail:
    """Find the fewest instances that keep the target in the busiest hour, and price them."""
    if p95_s >= target_s:
        return EqualTail(cost.option, p95_s, 0, math.inf)
    slots = round(assumptions.instance_slots)
    n_instances = max(1, math.floor(cost.busy / slots) + 1)
    while p95_s + _wait_p95_s(n_instances * slots, cost) > target_s:
        n_instances += 1
    an_instance = HOURS_PER_MONTH * (
        assumptions.instance_vcpus * prices["instance_vcpu_hour"]
        + assumptions.instance_gb * prices["instance_gb_hour"]
    )
    usd = cost.usd - cost.lines["computing"] + n_instances * an_instance
    millions = assumptions.requests_per_s * SECONDS_PER_MONTH / 1e6
    reached = p95_s + _wait_p95_s(n_instances * slots, cost)
    return EqualTail(cost.option, reached, n_instances, usd / millions)


def _wait_p95_s(n_servers: int, cost: Cost) -> float:
    """Compute the 95th percentile of the wait for a free slot."""
    waiting = wait_probability(n_servers, cost.busy)
    if waiting <= 0.05:
        return 0.0
    return math.log(waiting / 0.05) * cost.duration_s / (n_servers - cost.busy)
