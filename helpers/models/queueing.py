"""Latency of a service under load, from what its requests cost one at a time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.errors import UserError


@dataclass(frozen=True, slots=True)
class Demand:
    """What one request costs when it is alone.

    Parameters
    ----------
    cpu_s : float
        Processor seconds in the service, which requests share.
    wait_s : float
        Seconds that it waits for others, beside which other requests go on.
    """

    cpu_s: float
    wait_s: float

    def __post_init__(self) -> None:
        for name in ("cpu_s", "wait_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"{name}: {getattr(self, name)!r}; allowed: at least 0, finite")


def simulate_users(
    plans: Sequence[Sequence[Demand]], *, think_s: float, n_cores: float = 1.0
) -> list[float]:
    """Simulate users that ask, wait for the answer, think and ask again.

    A request waits first and computes then; those that compute share the
    processors equally. One core is what one Python process has.

    Parameters
    ----------
    plans : sequence of sequence of Demand
        Requests of each user, in order.
    think_s : float
        Seconds between an answer and the next request.
    n_cores : float
        Processors that requests share, above 0.

    Returns
    -------
    list of float
        Latency of each request in seconds, in the order of answers.

    Examples
    --------
    Two requests at once that only compute take twice as long:

    >>> simulate_users([[Demand(1.0, 0.0)], [Demand(1.0, 0.0)]], think_s=0)
    [2.0, 2.0]
    """
    if not n_cores > 0 or not think_s >= 0:
        raise UserError(f"n_cores: {n_cores}, think_s: {think_s}; allowed: above 0, at least 0")
    return _Users(plans, think_s, n_cores).run()


class _Users:
    """What changes from event to event."""

    def __init__(self, plans: Sequence[Sequence[Demand]], think_s: float, n_cores: float) -> None:
        self.plans, self.think_s, self.n_cores = plans, think_s, n_cores
        self.now_s = 0.0
        self.next_request = [0] * len(plans)
        self.asked_s = [0.0] * len(plans)
        self.left_s: dict[int, float] = {}  # processor seconds of each user that computes
        self.waiting: list[tuple[float, int]] = []
        self.latencies: list[float] = []

    def run(self) -> list[float]:
        for user in range(len(self.plans)):
            self.ask(user, 0.0)
        while self.waiting or self.left_s:
            self.step()
        return self.latencies

    def ask(self, user: int, at_s: float) -> None:
        if self.next_request[user] < len(self.plans[user]):
            self.asked_s[user] = at_s
            demand = self.plans[user][self.next_request[user]]
            heapq.heappush(self.waiting, (at_s + demand.wait_s, user))

    def step(self) -> None:
        """Go to the next arrival at the processors or the next answer."""
        share = min(1.0, self.n_cores / len(self.left_s)) if self.left_s else 1.0
        until_done = min(self.left_s.values()) / share if self.left_s else math.inf
        until_arrival = self.waiting[0][0] - self.now_s if self.waiting else math.inf
        seconds = max(0.0, min(until_done, until_arrival))
        self.now_s += seconds
        self.left_s = {user: left - seconds * share for user, left in self.left_s.items()}
        if until_done <= until_arrival:
            self.answer(min(self.left_s, key=self.left_s.__getitem__))
        else:
            _, user = heapq.heappop(self.waiting)
            self.left_s[user] = self.plans[user][self.next_request[user]].cpu_s

    def answer(self, user: int) -> None:
        del self.left_s[user]
        self.latencies.append(self.now_s - self.asked_s[user])
        self.next_request[user] += 1
        self.ask(user, self.now_s + self.think_s)
