"""What is expected before the measurement: the network checked, clients calibrated, reads predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from helpers.measurement import calibration, statistics
from helpers.models import calibrations, requests
from helpers.networks import network_of
from helpers.storage.formats import Reader
from helpers.storage.network import Profile
from helpers.storage.stores import StoredArray
from helpers.storage.wires import Wire
from helpers.study.describing import n_cores


def calibrate_network(wire: Wire, profile: Profile) -> pd.DataFrame:
    """Measure what a profile imposes, beside what it asks; empty where nothing is imposed."""
    asked = calibration.Asked(
        profile.first_byte_s.median_s if profile.first_byte_s else None,
        profile.stream_mb_per_s,
        profile.aggregate_mb_per_s,
        None,  # readers here stay far below the ceiling on requests
    )
    columns = ["quantity", "n_connections", "asked", "measured", "error"]
    if asked == calibration.Asked(None, None, None, None):
        return pd.DataFrame(columns=columns)
    found = calibration.calibrate(wire.probe_url(), asked)
    lines = [(c.quantity, c.n_connections, c.asked, c.measured, c.error) for c in found]
    return pd.DataFrame(lines, columns=columns)


def read_clients(
    calibrated: pd.DataFrame, readers: Mapping[str, Reader], *, n_chunks: int
) -> dict[str, requests.Client]:
    """Learn from a calibration how each contender reads, the ceiling included."""
    rows = calibrated[calibrated["phase"] == "calibration"]
    threads = int((rows["concurrency"] / rows["n_workers"]).iloc[0])

    def read_one(name: str, part: pd.DataFrame) -> requests.Client:
        reader = readers.get(name)
        return calibrations.read_client(
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
    clients: Mapping[str, requests.Client],
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
