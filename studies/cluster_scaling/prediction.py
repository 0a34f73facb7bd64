"""Predicted reads of each contender at each number of workers, and the dilation that suits them."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from helpers.arrays.readers import ArrayReader
from helpers.arrays.stores import StoredArray
from helpers.benchmark import statistics
from helpers.parameters import AUTO
from helpers.plotting.tables import trace_of
from wire.bed.networks import Profile
from wire.errors import UserError
from wire.host import n_cores
from wire.models import transfer
from wire.models.transfer import network_of

Clients = Mapping[str, transfer.ClientModel]

TASK_S, GRAPH_S = 0.165e-3, 0.0266e-3
"""Seconds of a Dask scheduler for a task, while it runs and before the first one does.

Fitted to processor time of graphs of 10^3 to 10^6 trivial tasks on a machine of two cores.
"""


def read_clients(
    calibrated: pd.DataFrame, readers: Mapping[str, ArrayReader], *, n_chunks: int
) -> Clients:
    """Learn from a calibration how each contender reads, the ceiling included.

    Where nothing traces, a chunk is taken for one request of its stored bytes.
    """
    rows = calibrated[calibrated["phase"] == "calibration"]
    rows = rows.assign(
        n_requests=rows["n_requests"].fillna(n_chunks),
        wire_nbytes=rows["wire_nbytes"].fillna(rows["stored_nbytes"]),
        n_new_connections=trace_of(rows).get("n_new_connections", 0.0),
    ).fillna({"n_new_connections": 0.0})
    threads = int((rows["concurrency"] / rows["n_workers"]).iloc[0])
    machine = json.loads(rows["machine"].iloc[0]) if "machine" in rows else {}  # that measured
    clients = {}
    for name, part in rows.groupby("contender", sort=False):
        reader = readers.get(str(name))
        clients[str(name)] = transfer.read_client(
            part.to_dict("records"),  # type: ignore[arg-type]
            n_chunks=n_chunks,
            n_cores=int(machine.get("n_cores") or n_cores()),
            connections_per_worker=1 if reader and reader.is_serial else threads,
            is_overlapped=reader is None,
        )
    return clients


def predict_curve(
    clients: Clients, profile: Profile, arrays: Mapping[int, StoredArray]
) -> pd.DataFrame:
    """Predict the read of each contender at each number of workers, and the bottleneck.

    `arrays` are what a cluster reads, by its number of workers.
    """
    lines = []
    for name, client in clients.items():
        network = network_of(profile, streams_per_worker=client.connections_per_worker)
        for n, stored in arrays.items():
            counts = {"n_chunks": stored.n_chunks, "n_workers": n, "n_cores": n_cores()}
            prediction = transfer.predict_transfer(network, client, **counts)
            lines.append(
                (
                    name,
                    n,
                    prediction.seconds,
                    stored.nbytes / prediction.seconds / 1e6,
                    prediction.limit,
                )
            )
    names = ["contender", "n_workers", "read_s", "throughput_mb_per_s", "limit"]
    return pd.DataFrame(lines, columns=names)


def list_walls(profile: Profile, *, chunk_mb: float, wire_over_array: float) -> dict[str, float]:
    """List what all workers share, as MB/s of the array: the network's bandwidth and the rate of requests.

    `chunk_mb` is of the array, in one request; `wire_over_array` is the bytes that pass the network
    for one of the array. What a network does not limit is left out.

    Examples
    --------
    >>> from wire.bed.networks import Profile
    >>> shared = Profile("example", aggregate_mb_per_s=1000, requests_per_s=500)
    >>> list_walls(shared, chunk_mb=4, wire_over_array=0.5)
    {'bandwidth that all share': 2000.0, 'requests a second that all share': 2000}
    """
    walls = {}
    if profile.aggregate_mb_per_s is not None:
        walls["bandwidth that all share"] = profile.aggregate_mb_per_s / wire_over_array
    if profile.requests_per_s is not None:
        walls["requests a second that all share"] = profile.requests_per_s * chunk_mb
    return walls


def compare_predictions(rows: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """Put predicted next to measured times: `relative_error` is predicted over measured, less 1."""
    measured = statistics.summarise(rows, ["contender", "n_workers"])
    table = expected.merge(measured, on=["contender", "n_workers"])
    return table.assign(relative_error=table["read_s"] / table["median"] - 1)


def find_end(
    client: transfer.ClientModel, profile: Profile, *, n_chunks: int, most: int = 1024
) -> tuple[int, str] | None:
    """Find the workers, doubled from one on, at which what all share ends growth, and what it is.

    Each worker reads `n_chunks`, and processors cost nothing. None where all grow to `most`.
    """
    network = network_of(profile, streams_per_worker=client.connections_per_worker)
    bare, n = slow_down(client, 0), 1
    while n <= most:
        counts = {"n_chunks": n * n_chunks, "n_workers": n, "n_cores": n_cores(), "n_draws": 1}
        limit = transfer.predict_transfer(network, bare, **counts).limit
        if limit in ("shared link", "request rate"):
            return n, limit
        n *= 2
    return None


MOST_SHARE = 0.2
"""Share of the slowest reader's time that processors may have where a network is to decide."""

_MOST_DILATION = 10_000  # as a case may have at most


def slow_down(client: transfer.ClientModel, factor: float) -> transfer.ClientModel:
    """Make a client's own work take so many times as long."""
    cpu_s, wait_s = factor * client.cpu_s_per_chunk, factor * client.wait_s_per_chunk
    return replace(client, cpu_s_per_chunk=cpu_s, wait_s_per_chunk=wait_s)


def find_share(
    clients: Clients, profile: Profile, n_chunks: Mapping[int, int], *, dilation: float
) -> tuple[float, str]:
    """Find the processors' share of the slowest reader's time, and who that is, for costs in real seconds.

    It is the part of the predicted time that would be saved if processing and its waiting took
    none, at the size of a cluster where that is most. `n_chunks` are what a cluster reads, by its
    number of workers.
    """

    def time_s(client: transfer.ClientModel, n: int, faster: float) -> float:
        network = network_of(profile, streams_per_worker=client.connections_per_worker)
        arguments = network, slow_down(client, 1 / faster), n_chunks[n]
        return transfer.predict_s(*arguments, n_workers=n, n_cores=n_cores())

    shares = []
    for n in n_chunks:
        times_s = {name: time_s(client, n, dilation) for name, client in clients.items()}
        slowest = max(times_s, key=times_s.__getitem__)
        shares.append((1 - time_s(clients[slowest], n, math.inf) / times_s[slowest], slowest))
    return max(shares)


def choose_dilation(clients: Clients, profile: Profile, n_chunks: Mapping[int, int]) -> int:
    """Choose the smallest whole dilation at which processors have at most their share of the time."""

    def is_enough(k: int) -> bool:
        return find_share(clients, profile, n_chunks, dilation=k)[0] <= MOST_SHARE

    high = 1
    while not is_enough(high):
        if 2 * high > _MOST_DILATION:
            share, slowest = find_share(clients, profile, n_chunks, dilation=high)
            raise UserError(
                "dilation",
                f"auto; processors have {share:.0%} of the time of {slowest} even at {high}",
                "a network that is slower",
            )
        high *= 2
    return bisect_left(range(high), True, lo=high // 2 + 1, key=is_enough)


def settle_dilation(
    wanted: float | str, clients: Clients, profile: Profile, n_chunks: Mapping[int, int]
) -> tuple[float, Clients]:
    """Choose the dilation where it was left open; return it, and clients in the network's seconds.

    What was left open was calibrated in real time, and what was given in the time of its network.
    """
    if wanted != AUTO:
        return float(wanted), clients
    k = choose_dilation(clients, profile, n_chunks)
    return k, {name: slow_down(client, 1 / k) for name, client in clients.items()}
