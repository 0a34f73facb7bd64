"""Predictions: costs fitted to the layouts that calibrate, times of all others from counting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from helpers import study
from helpers.models.accesses import Store, access_seconds
from helpers.models.fitting import Observation, fit_store
from helpers.storage.chunkings import Medium
from helpers.storage.network import Profile
from helpers.studies.chunk_shape.loads import Load
from helpers.studies.chunk_shape.reading import N_CONNECTIONS, BoxRead

TIMES = ["first_s", "p50_s", "p95_s", "n_boxes", "n_positions", "n_apart", "n_chunks"]
"""Numbers of the boxes of a row."""


def times_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Put the numbers of the boxes beside their rows; of rows without boxes, none."""
    trace = study.trace_of(rows).reindex(columns=[*TIMES, "decoded_nbytes"])
    return rows.join(trace)[trace["p50_s"].notna()]


def start_store(medium: Medium, profile: Profile) -> Store:
    """Give what is known of a medium before anything is measured: its network."""
    if medium == "hdf5":
        return Store(is_file=True)
    return Store(study.network_of(profile), N_CONNECTIONS)


def calibrate(
    rows: pd.DataFrame, ways: Sequence[BoxRead], profile: Profile
) -> dict[str, tuple[Store, Store | None]]:
    """Fit the costs of each medium: those of chunks, and those of reads without chunks."""
    medians = times_of(rows[rows["phase"] == "calibration"])
    seconds = medians.groupby(["medium", "contender", "access"])["p50_s"].median()

    def fit(medium: Medium, *, has_chunks: bool, start_s: float | None = None) -> Store | None:
        mine = [w for w in ways if w.medium == medium]
        seen = [
            _observe(float(seconds[medium, way.chunks.name, way.access.name]), way)
            for way in mine
            if (way.chunks.chunk_shape is not None) == has_chunks
        ]
        return fit_store(start_store(medium, profile), seen, start_s=start_s) if seen else None

    fitted = {}
    for medium in dict.fromkeys(way.medium for way in ways):
        chunked = fit(medium, has_chunks=True)
        assert chunked is not None
        fitted[str(medium)] = (chunked, fit(medium, has_chunks=False, start_s=chunked.start_s))
    return fitted


def _observe(seconds: float, way: BoxRead) -> Observation:
    """Take the load of the box in the middle: the time is the median box's."""
    loads = sorted(way.loads, key=lambda load: (load.n_chunks, load.n_requests))
    load = loads[len(loads) // 2]
    return Observation(seconds, load.n_chunks, load.chunk_nbytes, load.n_shards, load.n_requests)


def tabulate_costs(fitted: Mapping[str, tuple[Store, Store | None]]) -> pd.DataFrame:
    """Tabulate the fitted costs, in microseconds, and nanoseconds a byte."""
    lines = {}
    for medium, pair in fitted.items():
        for store, kind in zip(pair, ("", ", no chunks"), strict=True):
            if store is not None:
                lines[medium + kind] = {
                    "an access (us)": 1e6 * store.start_s,
                    "a chunk (us)": 1e6 * store.chunk_s,
                    "a byte (ns)": 1e9 * store.decode_s_per_nbyte,
                    "a shard or a seek (us)": 1e6 * store.request_s,
                }
    return pd.DataFrame(lines).T


def predict(
    fitted: Mapping[str, tuple[Store, Store | None]], ways: Sequence[BoxRead]
) -> pd.DataFrame:
    """Predict the median time of each access to each layout: of its own boxes, one by one."""
    lines = []
    for way in ways:
        store = fitted[way.medium][way.chunks.chunk_shape is None]
        assert store is not None
        seconds = np.median(_seconds(store, way.loads))
        lines.append((way.medium, way.chunks.name, way.access.name, float(seconds)))
    return pd.DataFrame(lines, columns=["medium", "contender", "access", "predicted_s"])


def _seconds(store: Store, loads: Sequence[Load]) -> np.ndarray:
    columns = np.asarray([(o.n_chunks, o.chunk_nbytes, o.n_shards, o.n_requests) for o in loads])
    n_chunks, nbytes, n_shards, n_requests = columns.T
    return access_seconds(
        store,
        n_chunks,
        nbytes,
        n_shards=n_shards if n_shards.any() else None,
        n_requests=n_requests if n_requests.any() else None,
    )


def compare(rows: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    """Put predicted beside measured medians; `relative_error` is predicted over measured, less 1."""
    found = times_of(rows[(rows["phase"] == "measured") & (rows["control_of"] == "")])
    by = ["medium", "contender", "access"]
    medians = found.groupby(by)[TIMES].median().reset_index()
    table = predicted.merge(medians, on=by)
    return table.assign(relative_error=table["predicted_s"] / table["p50_s"] - 1)


def judge(table: pd.DataFrame) -> pd.DataFrame:
    """Compute the two bars of the prediction, for each medium and for all together."""
    parts = {str(medium): part for medium, part in table.groupby("medium")}
    parts |= {"all": table} if len(parts) > 1 else {}
    lines = {
        name: {
            "median error": part["relative_error"].abs().median(),
            "within a fifth": (part["relative_error"].abs() <= 0.2).mean(),
            "rank correlation": part["predicted_s"].corr(part["p50_s"], method="spearman"),
            "pairs of layout and access": len(part),
        }
        for name, part in parts.items()
    }
    return pd.DataFrame(lines).T


def worst_errors(table: pd.DataFrame, *, n: int = 6) -> pd.DataFrame:
    """List the predictions that are furthest off."""
    error = np.log(table["predicted_s"] / table["p50_s"])
    order = pd.Series(error, index=table.index).abs().sort_values(ascending=False).index
    columns = ["medium", "contender", "access", "predicted_s", "p50_s", "relative_error"]
    chosen: pd.DataFrame = table.loc[order[:n], columns]
    return chosen.set_index(["medium", "contender", "access"])
