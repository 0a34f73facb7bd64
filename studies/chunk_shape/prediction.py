"""Predictions: costs fitted to the layouts that calibrate, times of all others from counting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats  # it ships no types
from scipy.optimize import least_squares, nnls

from helpers.benchmark.statistics import Interval
from helpers.models.access import Floats, IoCounts, Store, access_seconds
from helpers.netem.profiles import Profile, network_of
from helpers.objectstore.testbed import Testbed
from helpers.plotting import tables
from studies.chunk_shape import layouts
from studies.chunk_shape.layouts import OURS, ChunkLayout, Medium, make_calibrations
from studies.chunk_shape.workload import N_CONNECTIONS, HyperslabRead, Plan, leave_first, make_reads

COSTS = ("start_s", "chunk_s", "decode_s_per_nbyte", "request_s", "stored_s_per_nbyte")
"""What a reader's own work costs, beside the network."""

_LEAST_S = 1e-12  # below any clock, and the least decoding of a byte

PAIR = ["medium", "contender", "access"]
"""What has a time of its own: a layout on a medium, and an access."""

_N_CALIBRATING = 10  # positions: all predictions rest on them
_SEED, _N_RESAMPLED = 2014, 1000  # of the intervals over layouts
_LEAST_BOXES = 3  # in a block: the first read after opening, and two more


def pool(rows: pd.DataFrame) -> pd.DataFrame:
    """Pool the reads of all blocks: a row for each layout and access.

    The first read after opening stands apart, and is left out of the quantiles.
    """
    trace = tables.trace_of(rows).reindex(columns=["boxes", "box_s", "n_apart"])
    part = rows[PAIR].join(trace)[trace["box_s"].notna()]
    pooled = {}
    for key, each in part.groupby(PAIR):
        later = np.concatenate([leave_first(seconds) for seconds in each["box_s"]])
        positions = np.unique(np.concatenate(list(each["boxes"])))
        pooled[key] = {
            "first_s": np.median([seconds[0] for seconds in each["box_s"]]),
            "p50_s": np.median(later),
            "p95_s": np.quantile(later, 0.95),
            "n_positions": len(positions),
            "n_apart": np.sum(positions < each["n_apart"].iloc[0]),
        }
    return pd.DataFrame(pooled).T.rename_axis(PAIR).reset_index()


def make_calibrating_reads(
    media: Sequence[Medium], testbed: Testbed, plan: Plan
) -> list[HyperslabRead]:
    """Write the layouts that calibrate to each medium; positions are drawn with another seed."""
    apart = replace(plan, n_boxes=_N_CALIBRATING, n_blocks=1, seed=plan.seed + 1)
    chosen = make_calibrations(plan.values.shape)
    return [read for medium in media for read in make_reads(medium, testbed, apart, chosen)]


def calibrate(
    rows: pd.DataFrame, reads: Sequence[HyperslabRead], profile: Profile
) -> dict[Medium, Store]:
    """Fit the costs of chunks on each medium.

    What calibrated was measured with no network emulated, so the fit does not see the
    network of the profile; the costs that are returned have it.
    """
    seconds = pool(rows[rows["phase"] == "calibration"]).set_index(PAIR)["p50_s"]
    fitted = {}
    for medium in dict.fromkeys(read.medium for read in reads):
        seen = [
            Observation(float(seconds[medium, read.layout.name, read.access.name]), count_io(read))
            for read in reads
            if read.medium == medium
        ]
        known = Store(is_file=True) if medium == "hdf5" else Store(n_connections=N_CONNECTIONS)
        store = fit_store(replace(known, compression_ratio=_compute_ratio(seen)), seen)
        fitted[medium] = store if medium == "hdf5" else replace(store, network=network_of(profile))
    return fitted


def _compute_ratio(seen: Sequence[Observation]) -> float:
    """Compute bytes in the array over bytes in the store, where these are known: the median."""
    ratios = [
        each.counts.chunk_nbytes / each.counts.stored_nbytes
        for each in seen
        if np.all(each.counts.stored_nbytes)
    ]
    return float(np.median(np.concatenate(ratios))) if ratios else 1.0


def count_io(read: HyperslabRead) -> IoCounts:
    """Stack what the boxes ask, but for the first of each block, as their median time is."""
    n_blocks = max(1, len(read.boxes.places) // read.boxes.n_each)
    later = [i for block in range(n_blocks) for i in leave_first(read.boxes.share(block))]
    return IoCounts(*np.asarray([astuple(read.loads[i]) for i in later], np.float64).T)


def tabulate_costs(fitted: Mapping[Medium, Store]) -> pd.DataFrame:
    """Tabulate the fitted costs, in microseconds, and nanoseconds a byte."""
    lines = {
        medium: {
            "an access (µs)": 1e6 * store.start_s,
            "a chunk (µs)": 1e6 * store.chunk_s,
            "a byte (ns)": 1e9 * store.decode_s_per_nbyte,
            "a stored byte (ns)": 1e9 * store.stored_s_per_nbyte,
            "a shard or a seek (µs)": 1e6 * store.request_s,
        }
        for medium, store in fitted.items()
    }
    return pd.DataFrame(lines).T


def choose_layouts(
    plan: Plan, fitted: Mapping[Medium, Store], rows: pd.DataFrame
) -> dict[Medium, list[ChunkLayout]]:
    """Choose what is compared on each medium: the layouts that it holds, ours by its costs.

    `rows` are those of the record: where they have ours already, its shapes stay.
    """
    shape, chosen = plan.values.shape, {}
    for medium, store in fitted.items():
        there = rows[rows["contender"].isin(OURS) & (rows["medium"] == medium)]
        known = {
            str(name): tuple(map(int, chunks.split("x")))
            for name, chunks in zip(there["contender"], there["chunks"], strict=True)
        }
        named = [*layouts.make_chunk_layouts(shape), *layouts.choose_ours(shape, store, known)]
        chosen[medium] = [one for one in named if plan.holds(medium, one)]
    return chosen


def share_out(
    fitted: Mapping[Medium, Store],
    reads: Sequence[HyperslabRead],
    *,
    n_blocks: int,
    access_time_s: float,
) -> list[HyperslabRead]:
    """Give each access of each layout the positions that its predicted time allows.

    What is read in less time is read more often: a short read that waits for a
    few requests varies most. A block gets `access_time_s` predicted seconds of each,
    and three positions in any case, where there are as many. What has no chunks has no
    prediction, and gets all.
    """
    shared = []
    for read in reads:
        wanted = read.boxes.n_each
        if read.layout.chunk_shape is not None:
            seconds = predict_median(fitted[read.medium], count_io(read))
            wanted = max(_LEAST_BOXES, int(access_time_s / seconds))
        n_each = min(read.boxes.n_each, wanted)
        n_kept = n_each * n_blocks
        kept = replace(
            read.boxes,
            places=read.boxes.places[:n_kept],
            sums=read.boxes.sums[:n_kept],
            n_apart=min(read.boxes.n_apart, n_kept),
            n_each=n_each,
        )
        shared.append(replace(read, boxes=kept, loads=read.loads[:n_kept]))
    return shared


def compare(
    rows: pd.DataFrame, fitted: Mapping[Medium, Store], reads: Sequence[HyperslabRead]
) -> pd.DataFrame:
    """Put predicted next to measured medians, each of the boxes that are read.

    `relative_error` is predicted over measured, less 1; NaN without chunks, which nothing predicts.
    """
    found = pool(rows[(rows["phase"] == "measured") & (rows["control_of"] == "")])
    seconds = {
        (read.medium, read.layout.name, read.access.name): predict_median(
            fitted[read.medium], count_io(read)
        )
        if read.layout.chunk_shape
        else np.nan
        for read in reads
    }
    predicted = pd.Series(seconds, name="predicted_s").rename_axis(PAIR).reset_index()
    table = predicted.merge(found, on=PAIR)
    return table.assign(relative_error=table["predicted_s"] / table["p50_s"] - 1)


def judge(table: pd.DataFrame) -> tuple[Interval, Interval]:
    """Compute the median error of the predictions of a medium, and their rank correlation.

    The 95 % intervals are those of resampled layouts: what is predicted is a layout
    that no fit has seen, and its accesses share its error.
    """
    part = table.dropna(subset="predicted_s")
    values = part[["relative_error", "predicted_s", "p50_s"]].to_numpy(float).T
    lines = [*part.groupby("contender").indices.values()]
    rng = np.random.default_rng(_SEED)
    drawn = rng.integers(0, len(lines), (_N_RESAMPLED, len(lines)))
    resampled = [_targets(values[:, np.concatenate([lines[i] for i in each])]) for each in drawn]
    low, high = np.nanquantile(resampled, [0.025, 0.975], axis=0)
    error, rank = (
        Interval(centre, float(low[i]), float(high[i]), n=len(lines))
        for i, centre in enumerate(_targets(values))
    )
    return error, rank


def _targets(values: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> tuple[float, float]:
    """Compute both from relative errors, predicted and measured seconds."""
    ranks = stats.rankdata(values[1:], axis=1)
    is_one = np.ptp(ranks, axis=1).min() == 0  # one layout drawn again and again has no order
    rank = np.nan if is_one else float(np.corrcoef(ranks)[0, 1])
    return float(np.median(abs(values[0]))), rank


@dataclass(frozen=True, slots=True)
class Observation:
    """The median time of accesses that were measured."""

    seconds: float  # median, above 0
    counts: IoCounts  # what each of them asked, an array an argument; or what the only one asked


def predict_median(store: Store, counts: IoCounts) -> float:
    """Predict the median time of accesses.

    Examples
    --------
    >>> predict_median(Store(chunk_s=0.5), IoCounts([2, 4, 5], 0))
    2.0
    """
    return float(np.median(access_seconds(store, counts)))


def fit_store(store: Store, observations: Sequence[Observation]) -> Store:
    """Fit what an access, a chunk, a byte and a shard cost in processor time.

    The least absolute error of logarithms, softened near 0, no cost below 0: twice
    as long counts as much as half as long. Network and connections stay as given.
    At least two observations have to differ. A cost of stored bytes is fitted where they tell it.

    Examples
    --------
    >>> seen = [Observation(s, IoCounts(n, 0)) for s, n in ((1.1, 10), (2.1, 20), (0.2, 1))]
    >>> round(fit_store(Store(), seen).chunk_s, 3)
    0.1
    """
    bare = _with_costs(store, np.zeros(len(COSTS)))
    seconds = np.asarray([each.seconds for each in observations])

    def errors(logs: Floats) -> Floats:
        costs = _with_costs(bare, np.exp(logs))
        found = np.asarray([predict_median(costs, each.counts) for each in observations])
        return np.asarray(np.log(found) - np.log(seconds))

    first = _guess(bare, observations, seconds)
    least = math.log(_LEAST_S)
    most = math.log(10 * seconds.max())
    start = np.clip(np.log(np.maximum(first, 1e-10)), least + 1, most - 1)
    found = least_squares(errors, start, bounds=(least, most), loss="soft_l1", f_scale=0.1)
    kept = np.exp(found.x)
    return _with_costs(bare, np.where(kept > 10 * _LEAST_S, kept, 0.0))


def _with_costs(bare: Store, costs: Floats) -> Store:
    """Put costs into a store, as many as there are."""
    named: dict[str, Any] = dict(zip(COSTS, map(float, costs), strict=False))
    return replace(bare, **named)


def _guess(bare: Store, observations: Sequence[Observation], seconds: Floats) -> Floats:
    """Start from the least squares of what the network leaves unexplained."""
    scale = 1e6  # bytes and counts alike of order 1, for the solver's sake
    asked = [each.counts for each in observations]
    costs = np.asarray([[np.median(column) for column in _columns(one)] for one in asked])
    scales = np.asarray([1.0, 1.0, scale, 1.0, scale])
    if not any(np.any(one.stored_nbytes) for one in asked):
        costs, scales = costs[:, :-1], scales[:-1]
    on_wire_s = np.asarray([predict_median(bare, one) for one in asked])
    left_s = np.maximum(seconds - on_wire_s, 0.02 * seconds)
    found = nnls(costs / scales / seconds[:, None], left_s / seconds)[0]
    return np.asarray(found / scales)


def _columns(counts: IoCounts) -> tuple[Floats, ...]:
    """List what costs are multiplied by, in the order of the costs."""
    n = np.asarray(counts.n_chunks, np.float64)
    nbytes, stored = n * np.asarray(counts.chunk_nbytes), n * np.asarray(counts.stored_nbytes)
    return np.ones(1), n, nbytes, np.asarray(counts.n_shards, np.float64), stored
