"""What studies share: what is measured and where, and what is expected before it is."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from helpers.arrays.readers import Reader
from helpers.arrays.stores import StoredArray
from helpers.benchmark import provenance, statistics
from helpers.book.parameters import Parameters
from helpers.models import requests, transfer
from helpers.netem import calibration
from helpers.netem.profiles import Profile, network_of
from helpers.objectstore.testbed import Testbed
from helpers.paths import ROOT


def case_of(record: str) -> str:
    """Return the case that a record's file is named after."""
    return record.removesuffix(".csv")


def describe_origin(settings: Mapping[str, Any]) -> provenance.Provenance:
    """Describe this machine, what is imported by now, and the parameters of a study."""
    measured = {
        name: value for name, value in settings.items() if name not in Parameters.not_measured
    }
    return provenance.describe(measured)


def describe_array(stored: StoredArray) -> pd.DataFrame:
    """Tabulate the layouts of an array: bytes in the store and ratio of compression."""
    layouts = {
        layout: {"stored (MB)": nbytes / 1e6, "array / stored": stored.nbytes / nbytes}
        for layout, nbytes in stored.stored_nbytes.items()
        if layout != "references"  # they hold no values
    }
    table = pd.DataFrame(layouts).T.rename_axis("layout")
    table.insert(0, "array (MB)", stored.nbytes / 1e6)
    return table.assign(chunks=stored.n_chunks).round(2)


def n_cores() -> int:
    """Count the processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_published(name: str) -> pd.DataFrame:
    """Read a table of measurements that others published."""
    return pd.read_csv(ROOT / "results" / "published" / f"{name}.csv")


def calibrate_network(testbed: Testbed, profile: Profile) -> pd.DataFrame:
    """Measure what a profile emulates, beside what it asks; empty where nothing is emulated."""
    asked = calibration.Asked(
        profile.first_byte_s.median_s if profile.first_byte_s else None,
        profile.stream_mb_per_s,
        profile.aggregate_mb_per_s,
        None,  # readers here stay far below the ceiling on requests
    )
    columns = ["quantity", "n_connections", "asked", "measured", "error"]
    if asked == calibration.Asked(None, None, None, None):
        return pd.DataFrame(columns=columns)
    found = calibration.calibrate(testbed.probe_url(), asked)
    lines = [(c.quantity, c.n_connections, c.asked, c.measured, c.error) for c in found]
    return pd.DataFrame(lines, columns=columns)


def read_clients(
    calibrated: pd.DataFrame, readers: Mapping[str, Reader], *, n_chunks: int
) -> dict[str, transfer.Client]:
    """Learn from a calibration how each contender reads, the ceiling included."""
    rows = calibrated[calibrated["phase"] == "calibration"]
    threads = int((rows["concurrency"] / rows["n_workers"]).iloc[0])

    def read_one(name: str, part: pd.DataFrame) -> transfer.Client:
        reader = readers.get(name)
        return requests.read_client(
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
    """Predict the read of each contender at each number of workers, and what binds it."""
    lines = []
    for name, client in clients.items():
        for n in n_workers:
            found = requests.predict(
                network_of(profile),
                client,
                n_chunks=stored.n_chunks,
                n_workers=n,
                n_cores=n_cores(),
            )
            lines.append((name, n, found.seconds, stored.nbytes / found.seconds / 1e6, found.limit))
    names = ["contender", "n_workers", "read_s", "throughput_mb_per_s", "limit"]
    return pd.DataFrame(lines, columns=names)


def compare_predictions(rows: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """Put predicted beside measured times: `relative_error` is predicted over measured, less 1."""
    found = statistics.summarise(rows, ["contender", "n_workers"])
    table = expected.merge(found, on=["contender", "n_workers"])
    return table.assign(relative_error=table["read_s"] / table["median"] - 1)
