"""Users of services, simulated: who waits for others, who shares an interpreter, who shares processors."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from helpers.errors import UserError


@dataclass(frozen=True, slots=True)
class Demand:
    """What one request costs when it is alone."""

    cpu_s: float  # processor seconds in the interpreter, which requests share
    wait_s: float  # seconds that it waits for others, beside which other requests go on
    n_waits: int = 1  # as many parts as it waits in; it computes after each
    beside_s: float = 0.0  # processor seconds at last, outside the interpreter's lock

    def __post_init__(self) -> None:
        for name in ("cpu_s", "wait_s", "beside_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"{name}: {getattr(self, name)!r}; allowed: at least 0, finite")


def simulate_users(
    plans: Sequence[Iterable[Demand]],
    *,
    think_s: float,
    starts_s: Sequence[float] = (),
    until_s: float = math.inf,
    n_services: int = 1,
    n_processors: int = 1,
    speed_of_all: float = 1.0,
    crowd_cost: float = 1.0,
    crowd_cost_on_one: float = 1.0,
) -> list[float]:
    """Simulate users that ask, wait for the answer, think and ask again.

    A request waits and computes in turns. Those that compute in one service share equally the one
    processor that its interpreter has; services, and what runs outside their interpreters, share
    the machine's. While all of these are busy each computes at `speed_of_all` of its speed alone,
    and requests that compute in one service take `crowd_cost` times their processor seconds alone
    where a second processor is free for them, `crowd_cost_on_one` where services have one or less.
    Users, dealt among the services, begin together, or where `starts_s` says; after `until_s`
    nobody asks any more.

    Examples
    --------
    Two requests at once that only compute take twice as long, but for a service and a processor
    for each:

    >>> plans = [[Demand(1.0, 0.0)], [Demand(1.0, 0.0)]]
    >>> simulate_users(plans, think_s=0)
    [2.0, 2.0]
    >>> simulate_users(plans, think_s=0, n_services=2, n_processors=2)
    [1.0, 1.0]
    >>> simulate_users(plans, think_s=0, n_services=2, n_processors=2, speed_of_all=0.5)
    [2.0, 2.0]
    """
    given = {"speed_of_all": speed_of_all, "crowd_cost": crowd_cost}
    given |= {"crowd_cost_on_one": crowd_cost_on_one}
    for name, value in given.items():
        if not 0 < value < math.inf:
            raise UserError(f"{name}: {value}; allowed: above 0, finite")
    if not think_s >= 0:
        raise UserError(f"think_s: {think_s}; allowed: at least 0")
    crowd_costs = crowd_cost_on_one, crowd_cost
    users = _Users(plans, think_s, until_s, n_services, n_processors, speed_of_all, crowd_costs)
    return users.run(starts_s or [0.0] * len(plans))


@dataclass(slots=True)
class _Line:
    """Those who share equally: each is done when all have been given as much as it lacked."""

    given_s: float = 0.0  # processor seconds that each who never left would have had
    ends: list[tuple[float, int]] = field(default_factory=list)  # of `given_s`, and whose

    def join(self, user: int, left_s: float) -> None:
        heapq.heappush(self.ends, (self.given_s + left_s, user))


class _Users:
    """What changes from event to event."""

    def __init__(
        self,
        plans: Sequence[Iterable[Demand]],
        think_s: float,
        until_s: float,
        n_services: int,
        n_processors: int,
        speed_of_all: float,
        crowd_costs: tuple[float, float],
    ) -> None:
        self.plans, self.think_s, self.until_s = [iter(one) for one in plans], think_s, until_s
        self.n_processors, self.now_s = n_processors, 0.0
        self.crowd_costs = crowd_costs  # where who shares an interpreter has one processor, or two
        self.lost = (1 - speed_of_all) / max(
            1, n_processors - 1
        )  # of speed, to each other one busy
        self.asked_s = [0.0] * len(plans)
        self.asking: dict[int, Demand] = {}
        self.n_left: dict[int, int] = {}  # waits of each user's request that have not ended
        self.services = [_Line() for _ in range(n_services)]
        self.beside = _Line()  # those who need no interpreter, each with a processor for itself
        self.waiting: list[tuple[float, int]] = []
        self.latencies: list[float] = []

    def run(self, starts_s: Sequence[float]) -> list[float]:
        for user, start_s in enumerate(starts_s):
            self.ask(user, start_s)
        while self.waiting or self.beside.ends or any(line.ends for line in self.services):
            self.step()
        return self.latencies

    def ask(self, user: int, at_s: float) -> None:
        demand = next(self.plans[user], None) if at_s < self.until_s else None
        if demand is not None:
            self.asked_s[user], self.asking[user] = at_s, demand
            self.n_left[user] = demand.n_waits
            self.wait(user, at_s)

    def wait(self, user: int, from_s: float) -> None:
        demand = self.asking[user]
        self.n_left[user] -= 1
        heapq.heappush(self.waiting, (from_s + demand.wait_s / demand.n_waits, user))

    def step(self) -> None:
        """Go to the next arrival at a processor, or the next end of computing."""
        busy = [line for line in self.services if line.ends]
        n_busy = len(busy) + len(self.beside.ends)
        whole = min(1.0, self.n_processors / max(1, n_busy))
        whole *= 1 - self.lost * (min(max(1, n_busy), self.n_processors) - 1)
        cost = self._cost_crowd(len(busy))
        rates = [
            (line, whole / len(line.ends) / (cost if len(line.ends) > 1 else 1)) for line in busy
        ]
        if self.beside.ends:
            rates.append((self.beside, whole))
        until_done, first = math.inf, self.beside
        for line, rate in rates:
            seconds = (line.ends[0][0] - line.given_s) / rate
            if seconds < until_done:
                until_done, first = seconds, line
        until_arrival = self.waiting[0][0] - self.now_s if self.waiting else math.inf
        seconds = max(0.0, min(until_done, until_arrival))
        self.now_s += seconds
        for line, rate in rates:
            line.given_s += seconds * rate
        if until_done <= until_arrival:
            _, user = heapq.heappop(first.ends)
            self.end(user, is_beside=first is self.beside)
        else:
            _, user = heapq.heappop(self.waiting)
            demand = self.asking[user]
            line = self.services[user % len(self.services)]
            line.join(user, demand.cpu_s / demand.n_waits)

    def _cost_crowd(self, n_busy: int) -> float:
        """Say what those who share an interpreter cost one another, by the processors for each that is busy."""
        on_one, on_two = self.crowd_costs
        n_more = self.n_processors / max(1, n_busy) - 1
        return on_one + (on_two - on_one) * min(1.0, max(0.0, n_more))

    def end(self, user: int, *, is_beside: bool) -> None:
        """Wait again, go on outside the interpreter, or answer and let the user think and ask again."""
        if self.n_left[user]:
            self.wait(user, self.now_s)
        elif self.asking[user].beside_s and not is_beside:
            self.beside.join(user, self.asking[user].beside_s)
        else:
            self.latencies.append(self.now_s - self.asked_s[user])
            self.ask(user, self.now_s + self.think_s)
