"""From reads over a network that imposes nothing to how a contender reads."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from helpers.models.requests import Client, fit_client


def read_client(
    rows: Sequence[Mapping[str, float]], *, n_chunks: int, n_cores: float, is_overlapped: bool = False
) -> Client:
    """Learn how a contender reads from its calibration.

    Requests, bytes and connections come from the trace; what they do not
    explain of the time is fitted.

    Parameters
    ----------
    rows : sequence of mapping
        One for each read: `n_workers`, `read_s`, `n_requests`, `wire_nbytes`
        and `max_in_flight`.
    n_chunks : int
        Chunks of those reads.
    n_cores : float
        Processors that client and server share.
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
    per_worker = max(row["max_in_flight"] for row in rows if row["n_workers"] == min(times_s))
    client = Client(
        chunk_nbytes=statistics.median(row["wire_nbytes"] for row in rows) / n_chunks,
        requests_per_chunk=statistics.median(row["n_requests"] for row in rows) / n_chunks,
        connections_per_worker=max(1, round(per_worker / min(times_s))),
        is_overlapped=is_overlapped,
    )
    measured_s = [(n, statistics.median(values)) for n, values in times_s.items()]
    return fit_client(client, measured_s, n_chunks=n_chunks, n_cores=n_cores)
