"""Predicted reads of each contender, from what it does when no network is emulated."""

from __future__ import annotations

import json

import pandas as pd

from helpers.benchmark import statistics
from studies.formats.readers import FORMAT_READERS
from studies.formats.source import ACCESSES
from wire.bed.networks import Profile
from wire.host import n_cores
from wire.models import transfer
from wire.models.transfer import network_of


def predict_formats(calibrated: pd.DataFrame, profile: Profile) -> pd.DataFrame:
    """Predict opening and reading over a network from rows measured over none.

    Requests, bytes and the time that they do not explain are those of the calibration. What
    a contender asks for while it opens is asked in turn; what it asks for while it reads, by
    as many connections as it may have in flight. The columns are `contender`, `access`,
    `total_s` and `limit`.
    """
    lines = []
    rows = calibrated[calibrated["phase"].eq("calibration") & calibrated["access"].isin(ACCESSES)]
    for _, row in rows.iterrows():
        n_open = json.loads(row["trace"]).get("n_open_requests", 0)
        n_requests, n_connections = max(1, int(row["n_requests"])), int(row["concurrency"])
        reader = FORMAT_READERS.get(str(row["contender"]))  # the raw reads are none of them
        client = transfer.read_client(
            [{**row[["read_s", "wire_nbytes"]], "n_workers": 1, "n_requests": n_requests}],
            n_chunks=n_requests,
            n_cores=n_cores(),
            connections_per_worker=n_connections,
            is_overlapped=reader is None or reader.is_overlapped,
        )
        network = network_of(profile, streams_per_worker=n_connections)
        sizes = {"n_chunks": n_requests, "n_workers": 1, "n_cores": n_cores()}
        predicted = transfer.predict_transfer(network, client, **sizes)
        total_s = row["open_s"] + n_open * network.first_byte_median_s + predicted.seconds
        lines.append((row["contender"], row["access"], total_s, predicted.limit))
    return pd.DataFrame(lines, columns=["contender", "access", "total_s", "limit"])


def compare_predicted(rows: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """Put predicted next to measured times: `relative_error` is predicted over measured, less 1."""
    summary = statistics.summarise(rows, ["contender", "access"], value="total_s")
    table = expected.merge(summary, on=["contender", "access"])
    return table.assign(relative_error=table["total_s"] / table["median"] - 1)
