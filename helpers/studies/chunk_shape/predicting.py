"""Predictions: costs fitted to the layouts that calibrate, times of all others from counting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from helpers import study
from helpers.models.accesses import Load, Store
from helpers.models.fitting import Observation, fit_store, predict_median
from helpers.storage.chunkings import Medium
from helpers.storage.network import Profile
from helpers.studies.chunk_shape.loads import stack
from helpers.studies.chunk_shape.reading import N_CONNECTIONS, BoxRead, leave_first

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
        seen = [
            Observation(float(seconds[medium, way.chunks.name, way.access.name]), load_of(way, 0))
            for way in ways
            if way.medium == medium and (way.chunks.chunk_shape is not None) == has_chunks
        ]
        known = replace(start_store(medium, profile), compression_ratio=_ratio(seen))
        return fit_store(known, seen, start_s=start_s) if seen else None

    fitted = {}
    for medium in dict.fromkeys(way.medium for way in ways):
        chunked = fit(medium, has_chunks=True)
        assert chunked is not None
        fitted[str(medium)] = (chunked, fit(medium, has_chunks=False, start_s=chunked.start_s))
    return fitted


def load_of(way: BoxRead, block: int) -> Load:
    """Put together what the boxes of a block ask, but for the first, as their median time is."""
    return stack(leave_first([way.loads[i] for i in way.boxes.share(block)]))


def _ratio(seen: Sequence[Observation]) -> float:
    """Compute bytes in the array over bytes in the store, where the latter are told: the median."""
    ratios = [
        each.load.chunk_nbytes / each.load.stored_nbytes
        for each in seen
        if np.all(each.load.stored_nbytes)
    ]
    return float(np.median(np.concatenate(ratios))) if ratios else 1.0


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
                    "a stored byte (ns)": 1e9 * store.stored_s_per_nbyte,
                    "a shard or a seek (us)": 1e6 * store.request_s,
                }
    return pd.DataFrame(lines).T


def predict(
    fitted: Mapping[str, tuple[Store, Store | None]], ways: Sequence[BoxRead]
) -> pd.DataFrame:
    """Predict the median time of each access to each layout: that of the boxes that are read."""
    lines = []
    for way in ways:
        store = fitted[way.medium][way.chunks.chunk_shape is None]
        assert store is not None
        medians = [
            predict_median(store, load_of(way, block)) for block in range(way.boxes.n_blocks)
        ]
        seconds = float(np.median(medians))
        lines.append((way.medium, way.chunks.name, way.access.name, seconds))
    return pd.DataFrame(lines, columns=["medium", "contender", "access", "predicted_s"])


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
