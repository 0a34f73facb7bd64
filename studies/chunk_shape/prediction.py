"""Predictions: what a disk costs is fitted, a network is known; times come from counting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

import numpy as np
import pandas as pd
from scipy import stats  # it ships no types
from scipy.optimize import nnls

from helpers.benchmark import statistics
from helpers.benchmark.statistics import Interval
from helpers.plotting import tables
from studies.chunk_shape import layouts
from studies.chunk_shape.layouts import Medium
from studies.chunk_shape.workload import (
    N_CONNECTIONS,
    HyperslabRead,
    ReadPlan,  # fmt: skip
    count_object_io,
    draw_hyperslabs,
    leave_first,
    make_reads,
)
from wire.bed.networks import Profile
from wire.bed.testbed import Testbed
from wire.models.access import IoCounts, Shape, Store, access_seconds
from wire.models.transfer import network_of

PAIR = ["medium", "contender", "access"]
"""What has a time of its own: a layout on a medium, and an access."""

_N_CALIBRATING = 5  # positions: all predictions rest on them
_SEED, _N_DRAWN = 2014, 200  # of the boxes of an access whose mean time is predicted
_BOX_SHARE = 0.3  # of the time of a series: no pattern that is judged has boxes


def pool(rows: pd.DataFrame) -> pd.DataFrame:
    """Pool the reads of all blocks: a row for each layout and access.

    The first read after opening stands apart, and is left out of the median.
    """
    trace = tables.trace_of(rows).reindex(columns=["boxes", "box_s"])
    part = rows[PAIR].join(trace)[trace["box_s"].notna()]
    pooled = {}
    for key, pair_rows in part.groupby(PAIR):
        later = np.concatenate([leave_first(seconds) for seconds in pair_rows["box_s"]])
        positions = np.unique(np.concatenate(list(pair_rows["boxes"])))
        pooled[key] = {"p50_s": np.median(later), "n_positions": len(positions)}
    return pd.DataFrame(pooled).T.rename_axis(PAIR).reset_index()


def make_calibrating_reads(
    media: Sequence[Medium], testbed: Testbed, plan: ReadPlan
) -> list[HyperslabRead]:
    """Write the layouts that calibrate a disk; positions are drawn with another seed."""
    if "hdf5" not in media:
        return []
    apart = replace(plan, n_boxes=_N_CALIBRATING, n_blocks=1, seed=plan.seed + 1)
    return make_reads("hdf5", testbed, apart, layouts.make_calibrations(plan.values.shape))


def describe_stores(
    media: Sequence[Medium], rows: pd.DataFrame, reads: Sequence[HyperslabRead], profile: Profile
) -> dict[Medium, Store]:
    """Describe what each medium costs: a disk as fitted to what calibrates, else the network."""
    wire = Store(network_of(profile), N_CONNECTIONS)
    return {
        medium: fit_disk(rows, reads) if medium == "hdf5" else replace(wire, chunk_s=_CHUNK_S)
        for medium in media
    }


_CHUNK_S = 1e-4  # of a processor for a chunk over the wire; it decides where no network is emulated


def fit_disk(rows: pd.DataFrame, reads: Sequence[HyperslabRead]) -> Store:
    """Fit what an access, a chunk, a byte and a seek cost: least squares of relative errors."""
    seconds = pool(rows[rows["phase"] == "calibration"]).set_index(PAIR)["p50_s"]
    measured_s = [float(seconds[read.medium, read.layout.name, read.access.name]) for read in reads]
    columns = [
        np.median([[1, n, n * size, seeks] for n, size, seeks, _, _ in _list_io(read)], axis=0)
        for read in reads
    ]
    table = np.asarray(columns, np.float64) / np.asarray(measured_s)[:, None]
    scale = table.max(axis=0)
    start_s, chunk_s, byte_s, seek_s = nnls(table / scale, np.ones(len(measured_s)))[0] / scale
    store = Store(is_file=True, start_s=float(start_s), chunk_s=float(chunk_s))
    return replace(store, decode_s_per_nbyte=float(byte_s), request_s=float(seek_s))


def _list_io(read: HyperslabRead) -> list[tuple[float, ...]]:
    """List what the boxes ask, but for the first of each block, as their median time is."""
    n_blocks = max(1, len(read.boxes.places) // read.boxes.n_each)
    later = [i for block in range(n_blocks) for i in leave_first(read.boxes.share(block))]
    return [astuple(read.loads[i]) for i in later]


def predict_median(store: Store, read: HyperslabRead) -> float:
    """Predict the median time of a read over its boxes; NaN without chunks."""
    if read.layout.chunk_shape is None:
        return np.nan
    counts = IoCounts(*np.asarray(_list_io(read), np.float64).T)
    return float(np.median(access_seconds(store, counts)))


def share_out(
    stores: Mapping[Medium, Store],
    reads: Sequence[HyperslabRead],
    *,
    n_blocks: int,
    access_time_s: float,
) -> list[HyperslabRead]:
    """Give each access of each layout the positions that its predicted time allows.

    A short read that waits for a few requests varies most, so it is read more often. A block
    gets `access_time_s` predicted seconds of a series or slice and fewer of a box, after the
    first read. A series or slice that takes longer is read once, a box not at all; what nothing
    predicts is read at all positions drawn.
    """
    shared = []
    for read in reads:
        seconds = predict_median(stores[read.medium], read)
        allowed_s = access_time_s * (_BOX_SHARE if read.access.name == "box" else 1)
        later = np.inf if np.isnan(seconds) else round(allowed_s / seconds)
        if read.access.name == "box" and not later:
            continue
        n_each = int(min(read.boxes.n_each, later + 1 if later else 1))
        n_kept = n_each * n_blocks
        alone = replace(
            read.boxes,
            places=read.boxes.places[:n_kept],
            sums=read.boxes.sums[:n_kept],
            n_apart=min(read.boxes.n_apart, n_kept),
            n_each=n_each,
        )
        shared.append(replace(read, boxes=alone, loads=read.loads[:n_kept]))
    return shared


def compare_predicted(
    rows: pd.DataFrame, stores: Mapping[Medium, Store], reads: Sequence[HyperslabRead]
) -> pd.DataFrame:
    """Put predicted next to measured medians, each of the boxes that are read.

    `relative_error` is predicted over measured, less 1; NaN without chunks, which nothing predicts.
    """
    pooled = pool(rows[(rows["phase"] == "measured") & (rows["control_of"] == "")])
    seconds = {
        (read.medium, read.layout.name, read.access.name): predict_median(stores[read.medium], read)
        for read in reads
    }
    predicted = pd.Series(seconds, name="predicted_s").rename_axis(PAIR).reset_index()
    table = predicted.merge(pooled, on=PAIR)
    return table.assign(relative_error=table["predicted_s"] / table["p50_s"] - 1)


def predict_defaults(stores: Mapping[Medium, Store], factors: Sequence[float]) -> pd.DataFrame:
    """Predict how many times as long an equal mix takes in Dask's default chunks as in ours.

    Returns
    -------
    DataFrame
        Indexed by `array_gb`, a row a factor by which the reanalysis is divided: `ratio`,
        `default_s` and `ours_s`, means over boxes drawn at random. None without Zarr.
    """
    lines = {}
    for shape in map(layouts.scale_shape, factors if "zarr" in stores else ()):
        store = stores["zarr"]
        chosen = {layout.name: layout for layout in layouts.make_layouts("zarr", shape, store)}
        default_s, ours_s = (
            _predict_mix(store, shape, chosen[name].chunk_shape or shape)
            for name in (layouts.DEFAULTS["zarr"], layouts.OURS)
        )
        array_gb = 4 * math.prod(shape) / 1e9
        lines[array_gb] = {"ratio": default_s / ours_s, "default_s": default_s, "ours_s": ours_s}
    columns = ["ratio", "default_s", "ours_s"]
    return pd.DataFrame(lines, index=columns).T.rename_axis("array_gb")


def _predict_mix(store: Store, shape: Shape, chunk: Shape) -> float:
    """Predict the mean time of a series and a slice in an object store."""
    means = _predict_accesses(store, shape, chunk)
    return sum(means.values()) / len(means)


def _predict_accesses(store: Store, shape: Shape, chunk: Shape) -> dict[str, float]:
    """Predict the mean time of a series and of a slice in an object store, by the name of the access."""
    means = {}
    for access in layouts.make_accesses(shape)[:2]:
        boxes, _ = draw_hyperslabs(shape, access.extent, chunk, n_boxes=_N_DRAWN, seed=_SEED)
        counts = [astuple(count_object_io(box, chunk, None, shape)) for box in boxes]
        means[access.name] = float(np.mean(access_seconds(store, IoCounts(*np.asarray(counts).T))))
    return means


def predict_proportions(store: Store, shape: Shape, chunk: Shape) -> pd.DataFrame:
    """Predict each access in chunks of about as many elements as one, from flat ones to long ones.

    Returns
    -------
    DataFrame
        A row for each number of steps that a chunk may hold, as `n_steps`: `series` and `slice`,
        mean seconds over boxes drawn at random. Planes of a chunk keep the proportions of the array's.
    """
    n_elements = math.prod(chunk)
    lines = []
    for n_steps in np.unique(np.geomspace(1, shape[0], 16).round().astype(int)):
        share = min(math.sqrt(n_elements / n_steps / (shape[1] * shape[2])), 1.0)
        plane = [min(max(1, round(share * n)), n) for n in shape[1:]]
        if n_steps * math.prod(plane) > 2 * n_elements:
            break  # a plane cannot be smaller than one element
        candidate = (int(n_steps), *plane)
        lines.append({"n_steps": int(n_steps), **_predict_accesses(store, shape, candidate)})
    return pd.DataFrame(lines)


def judge(table: pd.DataFrame) -> tuple[Interval, float]:
    """Compute the error of the predictions of a medium, and their rank correlation.

    The error is the median over layouts of a layout's own, whose accesses share an error.
    """
    part = table.dropna(subset="predicted_s")
    errors = part["relative_error"].abs().groupby(part["contender"]).median()
    rank = stats.spearmanr(part["predicted_s"], part["p50_s"]).statistic
    return statistics.median_interval(errors), float(rank)
