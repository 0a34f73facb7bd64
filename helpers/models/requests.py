"""Time of a set of requests: latency, stream, aggregate, rate, decoding, tasks; and what a client costs, fitted.

Bytes are simulated as a fluid. Nothing is tuned to the points that it
predicts: how a contender reads is fitted on a network that emulates nothing.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from helpers.errors import UserError
from helpers.models.transfer import Client, Network, check_count, simulate

LIMITS = ("latency", "stream", "aggregate", "request rate", "processors", "tasks")
"""What can be the bottleneck of a read."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What to expect of a read."""

    seconds: float  # median over simulated reads
    limit: str  # the one of `LIMITS` without which the read would be shortest


def predict(
    network: Network,
    client: Client,
    *,
    n_chunks: int,
    n_workers: int,
    n_cores: float,
    n_draws: int = 9,
) -> Prediction:
    """Predict the time of a read and name its bottleneck.

    Parameters
    ----------
    network, client : Network, Client
        What is emulated, and how the contender reads.
    n_chunks, n_workers : int
        Chunks to read and workers that read them, at least 1.
    n_cores : float
        Processors that client and server share.
    n_draws : int
        Simulated reads, each with its own times to first byte.

    Examples
    --------
    One connection, ten chunks of 1 MB, 10 ms and 100 MB/s: ten times 20 ms.

    >>> network = Network(0.01, 0.01, stream_nbytes_per_s=100e6)
    >>> prediction = predict(network, Client(1e6), n_chunks=10, n_workers=1, n_cores=2)
    >>> round(prediction.seconds, 6), prediction.limit
    (0.2, 'latency')
    """
    check_count("n_draws", n_draws)

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


def fit_client(
    client: Client, measured_s: Sequence[tuple[int, float]], *, n_chunks: int, n_cores: float
) -> Client:
    """Fit processor and waiting time to reads over a network that emulates nothing.

    At the largest number of workers the processors are the bottleneck, which gives the
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
    """
    if not measured_s or not all(seconds > 0 for _, seconds in measured_s):
        raise UserError(f"measured_s: {list(measured_s)}; allowed: one or more times above 0")
    (few, few_s), (many, many_s) = min(measured_s), max(measured_s)

    def excess_s(client: Client, n_workers: int, target_s: float) -> float:
        took_s = simulate(Network(), client, n_chunks, n_workers=n_workers, n_cores=n_cores, seed=0)
        return took_s - target_s

    def fit(client: Client, name: _Fitted, n_workers: int, target_s: float) -> Client:
        if excess_s(_with(client, name, 0.0), n_workers, target_s) >= 0:
            return _with(client, name, 0.0)
        high = target_s * (n_workers * client.connections_per_worker + 1)
        from scipy.optimize import brentq  # a second, which those pay who fit

        fitted = brentq(
            lambda value: excess_s(_with(client, name, value), n_workers, target_s),
            0.0,
            high,
            rtol=1e-6,
        )
        return _with(client, name, float(fitted))

    client = replace(client, cpu_s_per_chunk=0.0, wait_s_per_chunk=0.0)
    client = fit(client, "cpu", many, many_s)
    return fit(client, "wait", few, few_s)


_Fitted = Literal["cpu", "wait"]


def _with(client: Client, name: _Fitted, value: float) -> Client:
    if name == "cpu":
        return replace(client, cpu_s_per_chunk=value)
    return replace(client, wait_s_per_chunk=value)


def read_client(
    rows: Sequence[Mapping[str, float]],
    *,
    n_chunks: int,
    n_cores: float,
    connections_per_worker: int,
    is_overlapped: bool = False,
) -> Client:
    """Learn how a contender reads from its calibration.

    Requests and bytes come from the trace; what they do not explain of the
    time is fitted.

    Parameters
    ----------
    rows : sequence of mapping
        One for each read: `n_workers`, `read_s`, `n_requests`, `wire_nbytes`.
    n_chunks : int
        Chunks of those reads.
    n_cores : float
        Processors that client and server share.
    connections_per_worker : int
        Requests that a worker keeps in flight: its threads, or 1 where a lock
        lets one thread read at a time. Without a network in between, requests
        are too short for the trace to show it.
    is_overlapped : bool
        Whether a connection goes on while the chunk it brought is decoded.
    """
    times_s: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        times_s[int(row["n_workers"])].append(row["read_s"])
    client = Client(
        chunk_nbytes=statistics.median(row["wire_nbytes"] for row in rows) / n_chunks,
        requests_per_chunk=statistics.median(row["n_requests"] for row in rows) / n_chunks,
        connections_per_worker=connections_per_worker,
        is_overlapped=is_overlapped,
    )
    measured_s = [(n, statistics.median(values)) for n, values in times_s.items()]
    return fit_client(client, measured_s, n_chunks=n_chunks, n_cores=n_cores)


@dataclass(frozen=True, slots=True)
class ClientCosts:
    """What the client and the server take beside the network."""

    request_s: float = 0.0  # seconds for a request
    start_s: float = 0.0  # seconds for a new client, its connection and the library's own work
    is_assumed: bool = field(default=False, repr=False)  # whether nothing was measured


TYPICAL_COSTS = ClientCosts(request_s=0.004, start_s=0.05, is_assumed=True)
"""Costs where none were fitted: an assumption, not a measurement; `fit_costs` finds those of a machine.

Without them a file object that makes thousands of requests looks too fast, and a repack that
leaves a handful looks better than it is.
"""


def fit_costs(measured: Sequence[tuple[int, float]]) -> ClientCosts:
    """Fit the client's costs to reads over a network that emulates nothing.

    Examples
    --------
    >>> fit_costs([(2, 0.25), (102, 0.75)])
    ClientCosts(request_s=0.005, start_s=0.24)
    """
    (few, few_s), (many, many_s) = min(measured), max(measured)
    if few == many:
        raise UserError(f"measured: {list(measured)}; allowed: reads of few and of many requests")
    request_s = max(0.0, (many_s - few_s) / (many - few))
    return ClientCosts(request_s, max(0.0, few_s - few * request_s))
