"""Time of a set of requests: latency, stream, aggregate, rate, decoding, tasks.

A read is simulated as a fluid: each connection waits for the first byte,
receives at the rate of its stream or its share of the link, and hands the
chunk to the processors, which decode it at the rate of their share. Nothing
is tuned to the points that it predicts: how a contender reads is fitted on a
network that imposes nothing.
"""

from __future__ import annotations

import heapq
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scipy.optimize import brentq

LIMITS = ("latency", "stream", "aggregate", "request rate", "processors", "tasks")


@dataclass(frozen=True, slots=True)
class Network:
    """What a network imposes; infinite where it imposes nothing.

    Parameters
    ----------
    first_byte_median_s, first_byte_p95_s : float
        Median and 95th percentile of the log-normal time to first byte, in s.
    stream_nbytes_per_s, aggregate_nbytes_per_s : float
        Ceilings for one connection and for all together, in bytes per second.
    requests_per_s : float
        Ceiling on requests per second.
    """

    first_byte_median_s: float = 0.0
    first_byte_p95_s: float = 0.0
    stream_nbytes_per_s: float = math.inf
    aggregate_nbytes_per_s: float = math.inf
    requests_per_s: float = math.inf

    def draw_first_byte_s(self, rng: random.Random) -> float:
        """Draw one time to first byte, in seconds."""
        if self.first_byte_median_s == 0:
            return 0.0
        sigma = math.log(self.first_byte_p95_s / self.first_byte_median_s) / 1.6448536269514722
        return self.first_byte_median_s * math.exp(rng.gauss(0, sigma))


@dataclass(frozen=True, slots=True)
class Client:
    """How a contender reads.

    Parameters
    ----------
    chunk_nbytes : float
        Bytes over the wire for each chunk.
    requests_per_chunk : float
        Requests for each chunk, one after the other; may be a fraction.
    connections_per_worker : int
        Requests that one worker keeps in flight, at least 1.
    cpu_s_per_chunk : float
        Processor seconds for each chunk, of client and server together.
    wait_s_per_chunk : float
        Seconds for each chunk in which its connection does nothing.
    task_s : float
        Seconds between two tasks that leave the scheduler.
    chunks_per_task : int
        Chunks that one task reads.
    start_s : float
        Seconds from the call to the first request, and from the last to the return.
    is_overlapped : bool
        Whether a connection goes on while the chunk it brought is decoded.
    """

    chunk_nbytes: float
    requests_per_chunk: float = 1.0
    connections_per_worker: int = 1
    cpu_s_per_chunk: float = 0.0
    wait_s_per_chunk: float = 0.0
    task_s: float = 0.0
    chunks_per_task: int = 1
    start_s: float = 0.0
    is_overlapped: bool = False


@dataclass(frozen=True, slots=True)
class Prediction:
    """What to expect of a read.

    Parameters
    ----------
    seconds : float
        Median over simulated reads.
    limit : str
        The one of `LIMITS` without which the read would be shortest.
    """

    seconds: float
    limit: str


def predict(
    network: Network, client: Client, *, n_chunks: int, n_workers: int, n_cores: float, n_draws: int = 9
) -> Prediction:
    """Predict the time of a read and name what binds it.

    Parameters
    ----------
    network, client : Network, Client
        What is imposed, and how the contender reads.
    n_chunks, n_workers : int
        Chunks to read and workers that read them, at least 1.
    n_cores : float
        Processors that client and server share.
    n_draws : int
        Simulated reads, each with its own times to first byte.

    Returns
    -------
    Prediction
        Median time, and the limit whose removal shortens it most.

    Examples
    --------
    One connection, ten chunks of 1 MB, 10 ms and 100 MB/s: ten times 20 ms.

    >>> network = Network(0.01, 0.01, stream_nbytes_per_s=100e6)
    >>> prediction = predict(network, Client(1e6), n_chunks=10, n_workers=1, n_cores=2)
    >>> round(prediction.seconds, 6), prediction.limit
    (0.2, 'latency')
    """

    def median_s(network: Network, client: Client) -> float:
        return statistics.median(
            simulate(network, client, n_chunks, n_workers=n_workers, n_cores=n_cores, seed=seed)
            for seed in range(n_draws)
        )

    free = {
        "latency": (replace(network, first_byte_median_s=0.0), client),
        "stream": (replace(network, stream_nbytes_per_s=math.inf), client),
        "aggregate": (replace(network, aggregate_nbytes_per_s=math.inf), client),
        "request rate": (replace(network, requests_per_s=math.inf), client),
        "processors": (network, replace(client, cpu_s_per_chunk=0.0, wait_s_per_chunk=0.0)),
        "tasks": (network, replace(client, task_s=0.0, start_s=0.0)),
    }
    times_s = {limit: median_s(*without) for limit, without in free.items()}
    return Prediction(median_s(network, client), min(LIMITS, key=times_s.__getitem__))


def simulate(
    network: Network, client: Client, n_chunks: int, *, n_workers: int, n_cores: float, seed: int
) -> float:
    """Simulate one read.

    Parameters
    ----------
    network, client : Network, Client
        What is imposed, and how the contender reads.
    n_chunks, n_workers : int
        Chunks to read and workers that read them.
    n_cores : float
        Processors that decoding shares.
    seed : int
        Seed of the times to first byte.

    Returns
    -------
    float
        Seconds from the call to its return.
    """
    read = _Read(network, client, n_cores, random.Random(seed))
    n_connections = min(n_workers * client.connections_per_worker, n_chunks)
    return client.start_s + read.run(n_chunks, n_connections)


class _Shared:
    """Jobs that share a capacity equally: each has what it still needs.

    All jobs progress at one rate, so one running total and a heap of the
    totals at which jobs end are enough: an event costs the logarithm of their
    number.
    """

    def __init__(self, each: float, together: float) -> None:
        self.each, self.together = each, together
        self.total, self.ends = 0.0, list[float]()

    def rate(self) -> float:
        return min(self.each, self.together / len(self.ends)) if self.ends else 0.0

    def add(self, amount: float) -> None:
        heapq.heappush(self.ends, self.total + amount)

    def next_s(self) -> float:
        if not self.ends:
            return math.inf
        rest = self.ends[0] - self.total
        return 0.0 if rest <= 0 or math.isinf(self.rate()) else rest / self.rate()

    def advance(self, seconds: float) -> None:
        if not self.ends:
            return
        rate = self.rate()
        self.total = self.ends[0] if math.isinf(rate) else self.total + seconds * rate

    def take_finished(self) -> int:
        n_before = len(self.ends)
        while self.ends and self.ends[0] - self.total <= 1e-9 * max(1.0, self.total):
            heapq.heappop(self.ends)
        return n_before - len(self.ends)


class _Read:
    """One simulated read: connections wait, receive and decode until no chunk is left."""

    def __init__(self, network: Network, client: Client, n_cores: float, rng: random.Random) -> None:
        self.network, self.client, self.rng = network, client, rng
        self.link = _Shared(network.stream_nbytes_per_s, network.aggregate_nbytes_per_s)
        self.processors = _Shared(1.0, n_cores)
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
        ready_s = max(self.now, (self.n_started // self.client.chunks_per_task + 1) * self.client.task_s)
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


def fit_client(
    client: Client, measured_s: Sequence[tuple[int, float]], *, n_chunks: int, n_cores: float
) -> Client:
    """Fit processor and waiting time to reads over a network that imposes nothing.

    At the largest number of workers the processors bind, which gives the
    processor time of a chunk; what a smaller number takes longer than that
    explains is time in which connections wait.

    Parameters
    ----------
    client : Client
        What is known already; `cpu_s_per_chunk` and `wait_s_per_chunk` are replaced.
    measured_s : sequence of (int, float)
        Numbers of workers and the seconds that a read took.
    n_chunks : int
        Chunks of those reads.
    n_cores : float
        Processors that client and server share.

    Returns
    -------
    Client
        With both times fitted, neither below 0.
    """
    (few, few_s), (many, many_s) = min(measured_s), max(measured_s)
    free = Network()

    def excess_s(client: Client, n_workers: int, target_s: float) -> float:
        return simulate(free, client, n_chunks, n_workers=n_workers, n_cores=n_cores, seed=0) - target_s

    def root(name: str, n_workers: int, target_s: float) -> float:
        if excess_s(replace(client, **{name: 0.0}), n_workers, target_s) >= 0:
            return 0.0
        high = target_s * n_workers * client.connections_per_worker + target_s
        solve = lambda value: excess_s(replace(client, **{name: value}), n_workers, target_s)  # noqa: E731
        return float(brentq(solve, 0.0, high, rtol=1e-6))

    client = replace(client, cpu_s_per_chunk=0.0, wait_s_per_chunk=0.0)
    client = replace(client, cpu_s_per_chunk=root("cpu_s_per_chunk", many, many_s))
    return replace(client, wait_s_per_chunk=root("wait_s_per_chunk", few, few_s))
