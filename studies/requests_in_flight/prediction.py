"""Predicted reads of each setting, from the same reads with no network emulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from studies.requests_in_flight.workload import Setting
from wire.bed.link import BURST_S
from wire.bed.networks import Profile
from wire.host import n_cores
from wire.models import transfer
from wire.models.transfer import network_of


def predict_settings(
    calibrated: pd.DataFrame,
    settings: Sequence[Setting],
    profile: Profile,
    *,
    n_chunks: int,
    n_steps: int = 0,
    n_processors: int = 0,
) -> pd.DataFrame:
    """Predict what each setting reads a second, and whether the store will refuse some of it.

    A step of time has `n_chunks`, and a setting reads `n_steps`, or where that is 0 as many as it
    has threads. The model asks no faster than the store allows and is never refused, so it says
    what a client would read that kept the rate. `asks_per_s` is how often the setting would ask
    without that bound, after the time of a request and the rate of the link. Where `n_processors`
    count, the reader has so many; else it has those of this machine.

    The store allows a burst of `BURST_S` at its rate. Refused is a setting that sends more than
    that at once, or whose requests exceed the rate by more than that before its read is over.

    Returns
    -------
    DataFrame
        `contender`, `predicted_mb_per_s` over the wire, `limit`, `asks_per_s`; `is_refused` in this
        read, `is_over_rate`, as a longer one would be, and `fits_burst`, where nothing can be.
    """
    rows = calibrated[calibrated["phase"] == "calibration"]
    calibrated_rows: dict[str, Any] = rows.set_index("contender").to_dict("index")  # type: ignore[assignment]
    lines, cores = [], n_processors or n_cores()
    for setting in settings:
        row, n_all = (
            {**calibrated_rows[setting.name], "n_workers": 1},
            setting.count_steps(n_steps) * n_chunks,
        )
        wire_nbytes = row["wire_nbytes"] / n_all
        network = network_of(profile, streams_per_worker=setting.in_flight)
        client = transfer.read_client(
            [row],
            n_chunks=n_all,
            n_cores=cores,
            connections_per_worker=setting.in_flight,
        )
        prediction = transfer.predict_transfer(
            network, client, n_chunks=n_all, n_workers=1, n_cores=cores
        )
        request_s = network.first_byte_mean_s + wire_nbytes / network.stream_nbytes_per_s
        asks = min(setting.in_flight / request_s, network.aggregate_nbytes_per_s / wire_nbytes)
        rate, burst = network.requests_per_s, BURST_S * network.requests_per_s
        excess = max(min(setting.in_flight, n_all), n_all * (1 - rate / asks))
        lines.append(
            {
                "contender": setting.name,
                "predicted_mb_per_s": row["wire_nbytes"] / prediction.seconds / 1e6,
                "limit": prediction.limit,
                "asks_per_s": asks,
                "is_refused": excess > burst,
                "is_over_rate": asks > rate,
                "fits_burst": n_all <= burst,
            }
        )
    return pd.DataFrame(lines)
