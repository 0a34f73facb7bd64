"""Predicted reads of each contender at each number of workers, and how far off they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import pandas as pd

from advisors.scaling.curve import CurveFit
from helpers.arrays.readers import Reader
from helpers.arrays.stores import StoredArray
from helpers.benchmark import statistics
from helpers.benchmark.provenance import n_cores
from helpers.models import transfer
from helpers.netem.profiles import Profile, network_of


def read_clients(
    calibrated: pd.DataFrame, readers: Mapping[str, Reader], *, n_chunks: int
) -> dict[str, transfer.Client]:
    """Learn from a calibration how each contender reads, the ceiling included.

    Where nothing traces, a chunk is taken for one request of its stored bytes.
    """
    rows = calibrated[calibrated["phase"] == "calibration"]
    rows = rows.assign(
        n_requests=rows["n_requests"].fillna(n_chunks),
        wire_nbytes=rows["wire_nbytes"].fillna(rows["stored_nbytes"]),
    )
    threads = int((rows["concurrency"] / rows["n_workers"]).iloc[0])

    def read_one(name: str, part: pd.DataFrame) -> transfer.Client:
        reader = readers.get(name)
        return transfer.read_client(
            part.to_dict("records"),  # type: ignore[arg-type]
            n_chunks=n_chunks,
            n_cores=n_cores(),
            connections_per_worker=1 if reader and reader.is_serial else threads,
            is_overlapped=reader is None or reader.is_batched,
        )

    return {
        str(name): read_one(str(name), part) for name, part in rows.groupby("contender", sort=False)
    }


def predict(
    clients: Mapping[str, transfer.Client],
    profile: Profile,
    n_workers: Sequence[int],
    stored: StoredArray,
) -> pd.DataFrame:
    """Predict the read of each contender at each number of workers, and the bottleneck."""
    lines = []
    for name, client in clients.items():
        for n in n_workers:
            network = network_of(profile, streams_per_worker=client.connections_per_worker)
            counts = {"n_chunks": stored.n_chunks, "n_workers": n}
            found = transfer.predict(network, client, **counts, n_cores=n_cores())
            lines.append((name, n, found.seconds, stored.nbytes / found.seconds / 1e6, found.limit))
    names = ["contender", "n_workers", "read_s", "throughput_mb_per_s", "limit"]
    return pd.DataFrame(lines, columns=names)


def compare_predictions(rows: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """Put predicted beside measured times: `relative_error` is predicted over measured, less 1."""
    found = statistics.summarise(rows, ["contender", "n_workers"])
    table = expected.merge(found, on=["contender", "n_workers"])
    return table.assign(relative_error=table["read_s"] / table["median"] - 1)


def tabulate_fit(fit: CurveFit | None) -> pd.DataFrame:
    """Tabulate what was fitted to a curve, with intervals; empty without a fit.

    The upper end of a ceiling that was not seen is infinite.
    """
    if fit is None:
        return pd.DataFrame(columns=["value", "low", "high"])
    found = {
        "chunk cycle (s)": fit.cycle_s,
        "start (s)": fit.start_s,
        "ceiling (chunks/s)": fit.ceiling,
        "knee (workers)": fit.knee_workers,
        f"gain of {fit.largest:g} to {2 * fit.largest:g} workers": fit.double(fit.largest),
    }
    table = pd.DataFrame({name: asdict(one) for name, one in found.items()}).T
    if not fit.is_knee_seen:  # what is above the lower end is anybody's guess
        table.loc[["ceiling (chunks/s)", "knee (workers)"], "value"] = math.nan
    return table.map(lambda value: float(f"{value:.3g}"))
