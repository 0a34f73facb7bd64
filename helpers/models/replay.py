"""A sequence of reads under another network.

What a client does between its requests is kept: its think times, and which
request waited for which.
"""

from __future__ import annotations

import heapq
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.models.transfer import Network, Shared, check_count


@dataclass(frozen=True, slots=True)
class Step:
    """A request that waits for others."""

    after: tuple[int, ...]  # indices of the steps that must have ended; none for the call itself
    think_s: float  # seconds from the last of them to the request
    nbytes: int  # bytes of the answer
    is_waited: bool = True  # whether the call does not end before it


@dataclass(frozen=True, slots=True)
class Replay:
    """What to expect of a sequence of requests."""

    seconds: float  # median over simulated draws of the times to first byte
    n_requests: int  # requests, and the bytes that they bring
    nbytes: int


def replay(
    steps: Sequence[Step],
    network: Network,
    *,
    request_s: float = 0.0,
    rest_s: float = 0.0,
    n_draws: int = 9,
) -> Replay:
    """Predict how long requests take over a network.

    Client and server need `request_s` for a request beside it; `rest_s` lies between
    the last answer and the end. Each of `n_draws` simulations has its own times to
    first byte.

    Examples
    --------
    Ten requests of 1 MB, one after the other, 10 ms and 100 MB/s: ten times 20 ms.

    >>> steps = [Step((n - 1,) if n else (), 0.0, 1_000_000) for n in range(10)]
    >>> network = Network(0.01, 0.01, stream_nbytes_per_s=100e6)
    >>> round(replay(steps, network).seconds, 6)
    0.2
    """
    check_count("n_draws", n_draws)
    times_s = [
        _Run(steps, network, request_s, random.Random(seed)).run() for seed in range(n_draws)
    ]
    nbytes = sum(step.nbytes for step in steps)
    return Replay(statistics.median(times_s) + rest_s, len(steps), nbytes)


class _Run:
    """One simulated replay."""

    def __init__(
        self, steps: Sequence[Step], network: Network, request_s: float, rng: random.Random
    ) -> None:
        self.steps, self.network, self.request_s, self.rng = steps, network, request_s, rng
        self.link = Shared(network.stream_nbytes_per_s, network.aggregate_nbytes_per_s)
        self.waiting: list[tuple[float, int]] = []
        self.received: list[tuple[float, int]] = []
        self.n_missing = [len(step.after) for step in steps]
        self.following: list[list[int]] = [[] for _ in steps]
        for number, step in enumerate(steps):
            for before in step.after:
                self.following[before].append(number)
        self.now, self.next_request_s, self.end_s = 0.0, 0.0, 0.0

    def run(self) -> float:
        for number, n_missing in enumerate(self.n_missing):
            if not n_missing:
                self.ask(number)
        while self.waiting or self.link.ends:
            self.step()
        return self.end_s

    def ask(self, number: int) -> None:
        asked_s = self.now + self.steps[number].think_s
        if math.isfinite(self.network.requests_per_s):
            asked_s = max(asked_s, self.next_request_s)
            self.next_request_s = asked_s + 1 / self.network.requests_per_s
        first_byte_s = asked_s + self.request_s + self.network.draw_first_byte_s(self.rng)
        heapq.heappush(self.waiting, (first_byte_s, number))

    def step(self) -> None:
        """Go to the next event and let what waits for it go on."""
        until_first_byte = self.waiting[0][0] - self.now if self.waiting else math.inf
        seconds = min(until_first_byte, self.link.next_s())
        self.link.advance(seconds)
        self.now += seconds
        while self.waiting and self.waiting[0][0] <= self.now + 1e-12:
            number = heapq.heappop(self.waiting)[1]
            self.link.add(self.steps[number].nbytes)
            heapq.heappush(self.received, (self.link.total + self.steps[number].nbytes, number))
        for _ in range(self.link.take_finished()):
            self.end(heapq.heappop(self.received)[1])

    def end(self, number: int) -> None:
        if self.steps[number].is_waited:
            self.end_s = self.now
        for following in self.following[number]:
            self.n_missing[following] -= 1
            if not self.n_missing[following]:
                self.ask(following)
