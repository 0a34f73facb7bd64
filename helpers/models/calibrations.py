"""From reads over a network that imposes nothing to how a contender reads."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from helpers.models.requests import Client, fit_client


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

    Returns
    -------
    Client
        What `requests.predict` takes.
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
