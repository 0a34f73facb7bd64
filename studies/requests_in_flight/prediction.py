"""Predicted reads of each setting, from the same reads with no network emulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from helpers.benchmark.provenance import n_cores
from helpers.models import transfer
from helpers.netem.profiles import Profile, network_of
from studies.requests_in_flight.workload import Setting


def predict(
    calibrated: pd.DataFrame, settings: Sequence[Setting], profile: Profile, *, n_chunks: int
) -> pd.DataFrame:
    """Predict what each setting reads a second, and whether the store will refuse some of it.

    A step of time has `n_chunks`. The model asks no faster than the store allows and is never
    refused, so it says what a client would read that kept the rate. `asks_per_s` is how often
    the setting would ask without that bound, after the time of a request and the rate of the link.

    Returns
    -------
    DataFrame
        `contender`, `predicted_mb_per_s` over the wire, `limit`, `asks_per_s` and `is_refused`.
    """
    rows = calibrated[calibrated["phase"] == "calibration"]
    seen: dict[str, Any] = rows.set_index("contender").to_dict("index")  # type: ignore[assignment]
    lines = []
    for one in settings:
        row, n_all = {**seen[one.name], "n_workers": 1}, one.n_threads * n_chunks
        wire_nbytes = row["wire_nbytes"] / n_all
        network = network_of(profile, streams_per_worker=one.in_flight)
        client = transfer.read_client(
            [row],
            n_chunks=n_all,
            n_cores=n_cores(),
            connections_per_worker=one.in_flight,
        )
        sizes = {"n_chunks": n_all, "n_workers": 1, "n_cores": n_cores()}
        found = transfer.predict(network, client, **sizes)
        mb_per_s = row["wire_nbytes"] / found.seconds / 1e6
        request_s = network.first_byte_mean_s + wire_nbytes / network.stream_nbytes_per_s
        asks = min(one.in_flight / request_s, network.aggregate_nbytes_per_s / wire_nbytes)
        lines.append((one.name, mb_per_s, found.limit, asks, asks > network.requests_per_s))
    columns = ["contender", "predicted_mb_per_s", "limit", "asks_per_s", "is_refused"]
    return pd.DataFrame(lines, columns=columns)
