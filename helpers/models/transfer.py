"""A read as a transfer: connections wait, receive and decode until no chunk is left.

Each connection waits for the first byte, receives at the rate of its stream
or its share of the link, and hands the chunk to the processors, which decode
it at the rate of their share.
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass

from helpers.errors import UserError

_NORMAL_P95 = 1.6448536269514722  # standard deviations


@dataclass(frozen=True, slots=True)
class Network:
    """What a network emulates; infinite where it emulates nothing."""

    # median and 95th percentile of the log-normal time to first byte, in s
    first_byte_median_s: float = 0.0
    first_byte_p95_s: float = 0.0
    # ceilings for one connection and for all together, in bytes per second
    stream_nbytes_per_s: float = math.inf
    aggregate_nbytes_per_s: float = math.inf
    requests_per_s: float = math.inf  # ceiling on requests per second

    def __post_init__(self) -> None:
        _check_amounts(self, "first_byte_median_s", "first_byte_p95_s")
        for name in ("stream_nbytes_per_s", "aggregate_nbytes_per_s", "requests_per_s"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name}: {getattr(self, name)!r}; allowed: above 0")
        if self.first_byte_p95_s < self.first_byte_median_s:
            raise UserError(
                f"first_byte_p95_s: {self.first_byte_p95_s!r}; allowed: at least"
                f" first_byte_median_s, {self.first_byte_median_s!r}"
            )

    def draw_first_byte_s(self, rng: random.Random) -> float:
        """Draw one time to first byte."""
        if self.first_byte_median_s == 0:
            return 0.0
        return self.first_byte_median_s * math.exp(rng.gauss(0, self.first_byte_sigma))

    @property
    def first_byte_sigma(self) -> float:
        """Standard deviation of the logarithm of the time to first byte."""
        if self.first_byte_median_s == 0:
            return 0.0
        return math.log(self.first_byte_p95_s / self.first_byte_median_s) / _NORMAL_P95


@dataclass(frozen=True, slots=True)
class Client:
    """How a contender reads."""

    chunk_nbytes: float  # bytes over the wire for each chunk
    # requests for each chunk, one after the other; may be a fraction
    requests_per_chunk: float = 1.0
    connections_per_worker: int = 1  # requests that one worker keeps in flight, at least 1
    cpu_s_per_chunk: float = 0.0  # processor seconds for each chunk, of client and server together
    wait_s_per_chunk: float = 0.0  # seconds for each chunk in which its connection does nothing
    task_s: float = 0.0  # seconds between two tasks that leave the scheduler
    chunks_per_task: int = 1  # chunks that one task reads
    # seconds from the call to the first request, and from the last to the return
    start_s: float = 0.0
    # whether a connection goes on while the chunk it brought is decoded
    is_overlapped: bool = False

    def __post_init__(self) -> None:
        _check_amounts(self, "chunk_nbytes", "requests_per_chunk", "cpu_s_per_chunk")
        _check_amounts(self, "wait_s_per_chunk", "task_s", "start_s")
        for name in ("connections_per_worker", "chunks_per_task"):
            check_count(name, getattr(self, name))


def _check_amounts(record: Network | Client, *names: str) -> None:
    """Refuse what is negative or without end."""
    for name in names:
        if not 0 <= getattr(record, name) < math.inf:
            raise UserError(f"{name}: {getattr(record, name)!r}; allowed: at least 0, and finite")


def check_count(name: str, value: int, *, low: int = 1) -> None:
    """Refuse a count that is no whole number of at least `low`."""
    if isinstance(value, bool) or value != int(value) or value < low:
        raise UserError(f"{name}: {value!r}; allowed: a whole number of at least {low}")


def simulate(
    network: Network, client: Client, n_chunks: int, *, n_workers: int, n_cores: float, seed: int
) -> float:
    """Simulate one read.

    Parameters
    ----------
    network, client : Network, Client
        What is emulated, and how the contender reads.
    n_chunks, n_workers : int
        Chunks to read and workers that read them.
    n_cores : float
        Processors that decoding shares.
    seed : int
        Seed of the times to first byte.
    """
    check_count("n_chunks", n_chunks)
    check_count("n_workers", n_workers)
    if not 0 < n_cores < math.inf:
        raise UserError(f"n_cores: {n_cores!r}; allowed: above 0, and finite")
    read = _Read(network, client, n_cores, random.Random(seed))
    n_connections = min(n_workers * client.connections_per_worker, n_chunks)
    return client.start_s + read.run(n_chunks, n_connections)


class Shared:
    """Jobs that share a capacity equally: each has what it still needs.

    All jobs progress at one rate, so one running total and a heap of the
    totals at which jobs end are enough: an event costs the logarithm of their
    number.
    """

    def __init__(self, each: float, together: float) -> None:
        self.each, self.together = each, together
        self.total, self.ends = 0.0, list[float]()

    def rate(self) -> float:
        """Return the rate at which each job progresses."""
        return min(self.each, self.together / len(self.ends)) if self.ends else 0.0

    def add(self, amount: float) -> None:
        """Add a job that needs so much."""
        heapq.heappush(self.ends, self.total + amount)

    def next_s(self) -> float:
        """Return the seconds until the next job ends."""
        if not self.ends:
            return math.inf
        rest = self.ends[0] - self.total
        return 0.0 if rest <= 0 or math.isinf(self.rate()) else rest / self.rate()

    def advance(self, seconds: float) -> None:
        """Let all jobs progress for so long."""
        if not self.ends:
            return
        rate = self.rate()
        self.total = self.ends[0] if math.isinf(rate) else self.total + seconds * rate

    def take_finished(self) -> int:
        """Remove the jobs that have ended, and count them."""
        n_before = len(self.ends)
        while self.ends and self.ends[0] - self.total <= 1e-9 * max(1.0, self.total):
            heapq.heappop(self.ends)
        return n_before - len(self.ends)


class _Read:
    """One simulated read: connections wait, receive and decode until no chunk is left."""

    def __init__(
        self, network: Network, client: Client, n_cores: float, rng: random.Random
    ) -> None:
        self.network, self.client, self.rng = network, client, rng
        self.link = Shared(network.stream_nbytes_per_s, network.aggregate_nbytes_per_s)
        self.processors = Shared(1.0, n_cores)
        self.waiting: list[float] = []
        self.now, self.n_started, self.next_request_s = 0.0, 0, 0.0

    def run(self, n_chunks: int, n_connections: int) -> float:
        self.n_chunks = n_chunks
        for _ in range(n_connections):
            self.start_chunk()
        while self.waiting or self.link.ends or self.processors.ends:
            self.step()
        return self.now

    def start_chunk(self) -> None:
        """Let a free connection ask for the next chunk."""
        if self.n_started == self.n_chunks:
            return
        ready_s = max(
            self.now, (self.n_started // self.client.chunks_per_task + 1) * self.client.task_s
        )
        asked_s = max(ready_s, self.next_request_s)
        self.next_request_s = asked_s + self.client.requests_per_chunk / self.network.requests_per_s
        self.n_started += 1
        heapq.heappush(self.waiting, asked_s + self.draw_wait_s())

    def draw_wait_s(self) -> float:
        whole, part = divmod(self.client.requests_per_chunk, 1)
        draws = [self.network.draw_first_byte_s(self.rng) for _ in range(int(whole))]
        if part:
            draws.append(part * self.network.draw_first_byte_s(self.rng))
        return sum(draws) + self.client.wait_s_per_chunk

    def step(self) -> None:
        """Go to the next event and let what ends there go on."""
        until_first_byte = self.waiting[0] - self.now if self.waiting else math.inf
        seconds = min(until_first_byte, self.link.next_s(), self.processors.next_s())
        for shared in (self.link, self.processors):
            shared.advance(seconds)
        self.now += seconds
        while self.waiting and self.waiting[0] <= self.now + 1e-12:
            heapq.heappop(self.waiting)
            self.link.add(self.client.chunk_nbytes)
        for _ in range(self.link.take_finished()):
            self.processors.add(self.client.cpu_s_per_chunk)
            if self.client.is_overlapped:
                self.start_chunk()
        for _ in range(self.processors.take_finished()):
            if not self.client.is_overlapped:
                self.start_chunk()
