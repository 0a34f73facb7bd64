"""A read as a transfer: requests as a trace has them, and as they wait, receive and decode until none is left.

Each waits for its first byte and receives at the rate of its stream or its share of the link; then
processors decode it at the rate of their share. In `simulate` connections take chunk after chunk; in
`replay` some requests wait for others, as those of one file do.
"""

from __future__ import annotations

import heapq
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wire.bed.networks import Profile
from wire.bed.requests import RequestRow

TOLERANCE_S = 1e-4
"""How much earlier than the end of an answer a request may begin that waited for it: stamps are late by so much."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """What a request may have waited for, in the order in which requests began."""

    n_ended: int  # requests that began before it and had ended by then, whichever of them
    think_s: float  # seconds from the last of these ends, or from the first start, to its own start
    nbytes: int  # bytes of its answer
    depth: int  # requests in the longest chain, each begun after the one before had ended, to it


def find_dependencies(
    rows: Iterable[RequestRow], tolerance: float = TOLERANCE_S
) -> list[Dependency]:
    """Find what each request can have waited for, from when requests began and ended.

    Nobody sees from outside what waited for what. But a request can only have waited for one that
    began before it and had ended, within `tolerance` seconds, when it began; and no client can be
    quicker than the longest chain of such, on a network with the same delays. Which of
    those ended first does not matter: a pool gives a free place to the next request.

    Examples
    --------
    Two at once, then one half a second after both had ended:

    >>> found = find_dependencies([RequestRow(0.0, 0.5, 1.0), RequestRow(0.0, 0.5, 2.0), RequestRow(2.5, 2.7, 3.0)])
    >>> [(one.n_ended, one.think_s, one.depth) for one in found]
    [(0, 0.0, 1), (0, 0.0, 1), (2, 0.5, 2)]
    """
    under_way, dependencies = list[tuple[float, int]](), list[Dependency]()
    n_ended = depth = 0
    since_s: float | None = None
    for row in sorted(rows, key=lambda request: request.start_s):
        since_s = row.start_s if since_s is None else since_s
        while under_way and under_way[0][0] <= row.start_s + tolerance:
            end_s, its_depth = heapq.heappop(under_way)
            since_s = end_s if not n_ended else max(since_s, end_s)
            n_ended, depth = n_ended + 1, max(depth, its_depth)
        heapq.heappush(under_way, (row.end_s, depth + 1))
        think_s = round(max(row.start_s - since_s, 0.0), 4)
        dependencies.append(Dependency(n_ended, think_s, row.nbytes, depth + 1))
    return dependencies


def count_waits(rows: Iterable[RequestRow], tolerance: float = TOLERANCE_S) -> int:
    """Count the requests of the longest chain in which each began after the one before had ended.

    A read takes at least so many times the time to first byte, whatever the bandwidth.
    """
    under_way = list[tuple[float, int]]()
    depth = deepest = 0
    for row in sorted(rows, key=lambda request: request.start_s):
        while under_way and under_way[0][0] <= row.start_s + tolerance:
            depth = max(depth, heapq.heappop(under_way)[1])
        heapq.heappush(under_way, (row.end_s, depth + 1))
        deepest = max(deepest, depth + 1)
    return deepest


_NORMAL_P95, _NORMAL_P99 = 1.6448536269514722, 2.3263478740408408  # standard deviations


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
    # seconds until a new connection can carry a request, those of a round trip, and the bytes of a
    # body in the first of them, doubled in each after that
    setup_s: float = 0.0
    round_trip_s: float = 0.0
    initial_window_nbytes: float = math.inf
    # 99th percentile of the time to first byte, of a tail that is heavier than log-normal from the
    # 95th on; 0 where there is none
    first_byte_p99_s: float = 0.0

    def draw_first_byte_s(self, rng: random.Random) -> float:
        """Draw one time to first byte."""
        if self.first_byte_median_s == 0:
            return 0.0
        z = rng.gauss(0, 1)
        tail = max(0.0, z - _NORMAL_P95) * self.tail_slope
        return self.first_byte_median_s * math.exp(z * self.first_byte_sigma + tail)

    @property
    def tail_slope(self) -> float:
        """How much faster the logarithm grows beyond the 95th percentile, for a standard deviation."""
        if not self.first_byte_p99_s:
            return 0.0
        growth = math.log(self.first_byte_p99_s / self.first_byte_p95_s)
        return growth / (_NORMAL_P99 - _NORMAL_P95) - self.first_byte_sigma

    @property
    def first_byte_sigma(self) -> float:
        """Standard deviation of the logarithm of the time to first byte."""
        if self.first_byte_median_s == 0:
            return 0.0
        return math.log(self.first_byte_p95_s / self.first_byte_median_s) / _NORMAL_P95

    @property
    def first_byte_mean_s(self) -> float:
        """Mean of the time to first byte."""
        return self.first_byte_median_s * math.exp(self.first_byte_sigma**2 / 2)

    def new_connection_s(self, nbytes: float) -> float:
        """Compute by how much longer a body takes that is the first on a new connection.

        The set-up, and the round trips of slow start in which a window is sent faster than its
        round trip takes (RFC 5681, without losses).

        Examples
        --------
        Two round trips of set-up, and two of windows of 10 and 20 kB; 30 kB then take no time:

        >>> network = Network(0.1, 0.1, setup_s=0.2, round_trip_s=0.1, initial_window_nbytes=10e3)
        >>> round(network.new_connection_s(60e3), 3)
        0.4
        """
        window, waited_s = self.initial_window_nbytes, self.setup_s
        while nbytes > window and window / self.stream_nbytes_per_s < self.round_trip_s:
            waited_s += self.round_trip_s - window / self.stream_nbytes_per_s
            nbytes, window = nbytes - window, 2 * window
        return waited_s


def network_of(profile: Profile, *, streams_per_worker: int = 1) -> Network:
    """Turn a profile into what the request model takes, in bytes and seconds.

    So many streams share the link of a worker, where the profile states one. The model's first
    bytes are log-normal, so a 99th percentile has no part in it.
    """

    def rate(mb_per_s: float | None) -> float:
        return math.inf if mb_per_s is None else 1e6 * mb_per_s

    first = profile.first_byte_s
    return Network(
        first.median_s if first else 0.0,
        first.p95_s if first else 0.0,
        min(rate(profile.stream_mb_per_s), rate(profile.worker_mb_per_s) / streams_per_worker),
        rate(profile.aggregate_mb_per_s),
        profile.requests_per_s or math.inf,
        setup_s=profile.setup_s,
        round_trip_s=profile.round_trip_s or 0.0,
        initial_window_nbytes=profile.initial_window_nbytes or math.inf,
    )


def network_with_tail(profile: Profile, *, streams_per_worker: int = 1) -> Network:
    """Turn a profile into what the request model takes, with the tail of its 99th percentile."""
    network, first = (
        network_of(profile, streams_per_worker=streams_per_worker),
        profile.first_byte_s,
    )
    return replace(network, first_byte_p99_s=(first.p99_s or 0.0) if first else 0.0)


@dataclass(frozen=True, slots=True)
class ClientModel:
    """How a contender reads."""

    chunk_nbytes: float  # bytes over the wire for each chunk
    # requests for each chunk, one after the other; may be a fraction
    requests_per_chunk: float = 1.0
    connections_per_worker: int = 1  # requests that one worker keeps in flight, at least 1
    new_connections: float = 0.0  # that each of them opens at the beginning of a read
    cpu_s_per_chunk: float = 0.0  # processor seconds for each chunk, of client and server together
    wait_s_per_chunk: float = 0.0  # seconds for each chunk in which its connection does nothing
    # whether a connection goes on while the chunk it brought is decoded
    is_overlapped: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A request that waits for others, or a chunk with all that is asked for it."""

    # indices of the steps that must have ended, or how many of any: so a queue goes on, whichever
    # of its requests ends first
    after: tuple[int, ...] | int
    think_s: float  # seconds from the last of them to the request
    nbytes: float  # bytes of the answer
    is_waited: bool = True  # whether the call does not end before it
    opening_s: float = 0.0  # seconds in which its connection is set up, once it has been asked for


def simulate(
    network: Network,
    client: ClientModel,
    n_chunks: int,
    *,
    n_workers: int,
    n_cores: float,
    seed: int,
) -> float:
    """Simulate one read, on processors that decoding shares; times to first byte have a seed."""
    n_connections = min(n_workers * client.connections_per_worker, n_chunks)
    opening_s = client.new_connections * network.new_connection_s(client.chunk_nbytes)
    steps = [Step(0, 0.0, client.chunk_nbytes, opening_s=opening_s)] * n_connections
    # each further one once a connection is free
    n_further = n_chunks - n_connections
    steps += [Step(1 + n, 0.0, client.chunk_nbytes) for n in range(n_further)]
    return _Simulation(steps, network, client, random.Random(seed), n_cores=n_cores).run()


def replay(
    steps: Sequence[Step],
    network: Network,
    *,
    request_s: float = 0.0,
    cpu_s: float = 0.0,
    n_draws: int = 9,
    rng: random.Random | None = None,
) -> float:
    """Predict how many seconds requests take over a network, the median over draws of first bytes.

    Client and server need `request_s` for a request beside it, and one CPU `cpu_s` for what each
    brings, in turn. Each of `n_draws` simulations has
    its own times to first byte; with `rng` there is one, with draws from it.

    Examples
    --------
    Ten requests of 1 MB, one after the other, 10 ms and 100 MB/s: ten times 20 ms.

    >>> steps = [Step((n - 1,) if n else (), 0.0, 1_000_000) for n in range(10)]
    >>> network = Network(0.01, 0.01, stream_nbytes_per_s=100e6)
    >>> round(replay(steps, network), 6)
    0.2
    """
    client = ClientModel(math.nan, cpu_s_per_chunk=cpu_s)  # whose other work is in the steps
    n_cores = 1.0 if cpu_s else math.inf
    rngs = [rng] if rng is not None else [random.Random(seed) for seed in range(n_draws)]
    return statistics.median(
        _Simulation(steps, network, client, rng, n_cores=n_cores, request_s=request_s).run()
        for rng in rngs
    )


class Shared:
    """Jobs that share a capacity equally: each has what it still needs.

    All jobs progress at one rate, so one running total and a heap of the
    totals at which jobs end are enough: an event costs the logarithm of their
    number.
    """

    def __init__(self, per_connection: float, together: float) -> None:
        self.each, self.together = per_connection, together
        self.total, self.n_added = 0.0, 0
        # the total at which each job ends, and its number; of two at once the first added
        self.ends = list[tuple[float, int, int]]()

    def rate(self) -> float:
        """Return the rate at which each job progresses."""
        return min(self.each, self.together / len(self.ends)) if self.ends else 0.0

    def add(self, amount: float, number: int) -> None:
        """Add a job that needs so much."""
        self.n_added += 1
        heapq.heappush(self.ends, (self.total + amount, self.n_added, number))

    def next_s(self) -> float:
        """Return the seconds until the next job ends."""
        if not self.ends:
            return math.inf
        rest = self.ends[0][0] - self.total
        return 0.0 if rest <= 0 or math.isinf(self.rate()) else rest / self.rate()

    def advance(self, seconds: float) -> None:
        """Let all jobs progress for so long."""
        if not self.ends:
            return
        rate = self.rate()
        self.total = self.ends[0][0] if math.isinf(rate) else self.total + seconds * rate

    def take_finished(self) -> list[int]:
        """Remove the jobs that have ended, and return their numbers."""
        finished = list[int]()
        while self.ends and self.ends[0][0] - self.total <= 1e-9 * max(1.0, self.total):
            finished.append(heapq.heappop(self.ends)[2])
        return finished


class _Simulation:
    """One simulated read: its steps wait, receive and are decoded until none is left."""

    def __init__(
        self,
        steps: Sequence[Step],
        network: Network,
        client: ClientModel,
        rng: random.Random,
        *,
        n_cores: float = math.inf,
        request_s: float = 0.0,
    ) -> None:
        self.steps, self.network, self.client, self.rng = steps, network, client, rng
        self.request_s = request_s
        self.link = Shared(network.stream_nbytes_per_s, network.aggregate_nbytes_per_s)
        self.processors = Shared(1.0, n_cores)
        self.waiting, self.queued = list[tuple[float, int]](), list[tuple[int, int]]()
        self.n_ended = 0
        self.n_missing = [0] * len(steps)
        self.following: list[list[int]] = [[] for _ in steps]
        self.now, self.next_request_s, self.end_s = 0.0, 0.0, 0.0

    def run(self) -> float:
        for number, step in enumerate(self.steps):
            if isinstance(step.after, int):
                heapq.heappush(self.queued, (step.after, number))
                continue
            self.n_missing[number] = len(step.after)
            for before in step.after:
                self.following[before].append(number)
            if not step.after:
                self.ask(number)
        self.ask_queued()
        while self.waiting or self.link.ends or self.processors.ends:
            self.go_on()
        return self.end_s

    def ask(self, number: int) -> None:
        """Ask for what may be asked for now, as the ceiling on requests allows."""
        step, asked_s = self.steps[number], self.now + self.steps[number].think_s
        if math.isfinite(self.network.requests_per_s):
            asked_s = max(asked_s, self.next_request_s)
            gap_s = self.client.requests_per_chunk / self.network.requests_per_s
            self.next_request_s = asked_s + gap_s
        whole, part = divmod(self.client.requests_per_chunk, 1)
        shares = [1.0] * int(whole) + [part] * bool(part)
        draws_s = (share * self.network.draw_first_byte_s(self.rng) for share in shares)
        wait_s = sum(draws_s) + self.client.wait_s_per_chunk
        first_byte_s = asked_s + (self.request_s + step.opening_s) + wait_s
        heapq.heappush(self.waiting, (first_byte_s, number))

    def ask_queued(self) -> None:
        while self.queued and self.queued[0][0] <= self.n_ended:
            self.ask(heapq.heappop(self.queued)[1])

    def go_on(self) -> None:
        """Go to the next event and let what waits for it go on."""
        until_first_byte = self.waiting[0][0] - self.now if self.waiting else math.inf
        seconds = min(until_first_byte, self.link.next_s(), self.processors.next_s())
        for shared in (self.link, self.processors):
            shared.advance(seconds)
        self.now += seconds
        while self.waiting and self.waiting[0][0] <= self.now + 1e-12:
            number = heapq.heappop(self.waiting)[1]
            self.link.add(self.steps[number].nbytes, number)
        for number in self.link.take_finished():
            self.processors.add(self.client.cpu_s_per_chunk, number)
            if self.client.is_overlapped:
                self.end(number)
        for number in self.processors.take_finished():
            if self.steps[number].is_waited:
                self.end_s = self.now
            if not self.client.is_overlapped:
                self.end(number)

    def end(self, number: int) -> None:
        """Let what waited for a step be asked for."""
        self.n_ended += 1
        self.ask_queued()
        for following in self.following[number]:
            self.n_missing[following] -= 1
            if not self.n_missing[following]:
                self.ask(following)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What to expect of a read."""

    seconds: float  # median over simulated reads
    # without which the read would be shortest: "latency", "stream", "shared link", "request rate"
    # or "processors"
    limit: str


def predict_s(
    network: Network,
    client: ClientModel,
    n_chunks: int,
    *,
    n_workers: int,
    n_cores: float,
    n_draws: int = 9,
) -> float:
    """Predict the seconds of a read: the median over simulations, each with its own first bytes."""
    return statistics.median(
        simulate(network, client, n_chunks, n_workers=n_workers, n_cores=n_cores, seed=seed)
        for seed in range(n_draws)
    )


def predict_transfer(
    network: Network,
    client: ClientModel,
    *,
    n_chunks: int,
    n_workers: int,
    n_cores: float,
    n_draws: int = 9,
) -> Prediction:
    """Predict the time of a read and name its bottleneck.

    The processors are those that client and server share.

    Examples
    --------
    One connection, ten chunks of 1 MB, 10 ms and 100 MB/s: ten times 20 ms.

    >>> network = Network(0.01, 0.01, stream_nbytes_per_s=100e6)
    >>> one_chunk = ClientModel(1e6)
    >>> prediction = predict_transfer(network, one_chunk, n_chunks=10, n_workers=1, n_cores=2)
    >>> round(prediction.seconds, 6), prediction.limit
    (0.2, 'latency')
    """
    counts: dict[str, Any] = {"n_workers": n_workers, "n_cores": n_cores, "n_draws": n_draws}
    free = {
        "latency": (
            replace(network, first_byte_median_s=0.0, setup_s=0.0, round_trip_s=0.0),
            client,
        ),
        "stream": (replace(network, stream_nbytes_per_s=math.inf), client),
        "shared link": (replace(network, aggregate_nbytes_per_s=math.inf), client),
        "request rate": (replace(network, requests_per_s=math.inf), client),
        "processors": (network, replace(client, cpu_s_per_chunk=0.0, wait_s_per_chunk=0.0)),
    }
    times_s = {limit: predict_s(*network, n_chunks, **counts) for limit, network in free.items()}
    seconds = predict_s(network, client, n_chunks, **counts)
    return Prediction(seconds, min(times_s, key=times_s.__getitem__))


def fit_client(
    client: ClientModel, measured_s: Sequence[tuple[int, float]], *, n_chunks: int, n_cores: float
) -> ClientModel:
    """Fit processor and waiting time of a client to reads over a network that emulates nothing.

    At the largest number of workers the processors, which client and server share, are the
    bottleneck, which gives the processor time of a chunk; what a smaller number takes longer than
    that explains is time in which connections wait. `measured_s` are numbers of workers, and
    seconds of a read.
    """
    from scipy.optimize import brentq  # a second, which those pay who fit

    def fit(client: ClientModel, name: str, n_workers: int, target_s: float) -> ClientModel:
        def excess_s(value: float) -> float:
            slower = replace(client, **{name: value})  # type: ignore[arg-type]
            counts: dict[str, Any] = {"n_workers": n_workers, "n_cores": n_cores}
            return simulate(Network(), slower, n_chunks, **counts, seed=0) - target_s

        if excess_s(0.0) >= 0:
            return client
        high = target_s * (n_workers * client.connections_per_worker + 1)
        cost_s = float(brentq(excess_s, 0.0, high, rtol=1e-6))
        return replace(client, **{name: cost_s})  # type: ignore[arg-type]

    client = replace(client, cpu_s_per_chunk=0.0, wait_s_per_chunk=0.0)
    client = fit(client, "cpu_s_per_chunk", *max(measured_s))
    return fit(client, "wait_s_per_chunk", *min(measured_s))


def read_client(
    rows: Sequence[Mapping[str, float]],
    *,
    n_chunks: int,
    n_cores: float,
    connections_per_worker: int,
    is_overlapped: bool = False,
) -> ClientModel:
    """Learn how a contender reads from its calibration.

    Requests and bytes come from the trace; what they do not explain of the
    time is fitted. Each row is a read: `n_workers`, `read_s`, `n_requests`, `wire_nbytes`, and
    `n_new_connections` where it was counted.
    A worker keeps as many requests in flight as it has threads, or 1 where a lock
    lets one thread read at a time: without a network in between, requests are too
    short for the trace to show it.
    """
    times_s: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        times_s[int(row["n_workers"])].append(row["read_s"])
    opened = [row.get("n_new_connections", 0) / row["n_workers"] for row in rows]
    client = ClientModel(
        chunk_nbytes=statistics.median(row["wire_nbytes"] for row in rows) / n_chunks,
        requests_per_chunk=statistics.median(row["n_requests"] for row in rows) / n_chunks,
        connections_per_worker=connections_per_worker,
        new_connections=statistics.median(opened) / connections_per_worker,
        is_overlapped=is_overlapped,
    )
    measured_s = [(n, statistics.median(values)) for n, values in times_s.items()]
    return fit_client(client, measured_s, n_chunks=n_chunks, n_cores=n_cores)
