"""Predictions: costs fitted to the layouts that calibrate, times of all others from counting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy import stats  # it ships no types

from helpers.book.studies import write_table
from helpers.models.access import IoCounts, Observation, Store, fit_store, predict_median
from helpers.netem.profiles import Profile, get_profile, network_of
from helpers.objectstore.testbed import Testbed
from helpers.plotting import tables
from studies.chunk_shape import layouts
from studies.chunk_shape.layouts import ChunkLayout, Medium, make_calibrations
from studies.chunk_shape.workload import (
    N_CONNECTIONS,
    HyperslabRead,
    Plan,
    count_object_io,
    leave_first,
    make_ways,
    stack,
)

Fitted = Mapping[Medium, tuple[Store, Store | None]]
"""Costs of a medium: of its chunks, and of reads without chunks."""

PAIR = ["medium", "contender", "access"]
"""What has a time of its own: a layout on a medium, and an access."""

_N_CALIBRATING = 10  # positions: all predictions rest on them
_SEED, _N_RESAMPLED = 2014, 1000  # of the intervals over layouts
_LEAST_BOXES = 3  # in a block: the first read after opening, and two more


def pool(rows: pd.DataFrame) -> pd.DataFrame:
    """Pool the reads of all blocks: a row for each layout and access."""
    trace = tables.trace_of(rows).reindex(columns=["boxes", "box_s", "n_apart", "n_chunks"])
    part = rows[PAIR].join(trace)[trace["box_s"].notna()]
    pooled = {key: _pool_pair(each) for key, each in part.groupby(PAIR)}
    return pd.DataFrame(pooled).T.rename_axis(PAIR).reset_index()


def _pool_pair(part: pd.DataFrame) -> pd.Series[float]:
    later = np.concatenate([leave_first(each) for each in part["box_s"]])
    read = np.unique(np.concatenate(list(part["boxes"])))
    return pd.Series(
        {
            "first_s": np.median([each[0] for each in part["box_s"]]),
            "p50_s": np.median(later),
            "p95_s": np.quantile(later, 0.95),
            "odd_s": np.median(later[::2]),
            "even_s": np.median(later[1::2]) if len(later) > 1 else np.nan,
            "n_positions": len(read),
            "n_apart": np.sum(read < part["n_apart"].iloc[0]),
            "n_chunks": part["n_chunks"].mean(),
        }
    )


def write_calibrations(
    media: Sequence[Medium], testbed: Testbed, plan: Plan
) -> list[HyperslabRead]:
    """Write the layouts that calibrate to each medium; positions are drawn with another seed."""
    apart = replace(plan, n_boxes=_N_CALIBRATING, n_blocks=1, draw_seed=plan.seed + 1)
    chosen = make_calibrations(plan.values.shape)
    return [way for medium in media for way in make_ways(medium, testbed, apart, chosen)]


def choose_layouts(plan: Plan, fitted: Fitted) -> dict[Medium, list[ChunkLayout]]:
    """Choose what is compared on each medium: the layouts that it holds, ours by its costs."""
    shape = plan.values.shape
    named = {
        medium: layouts.make_chunk_layouts(shape) + layouts.choose_ours(shape, store)
        for medium, (store, _) in fitted.items()
    }
    return {
        medium: [one for one in chosen if plan.holds(medium, one)]
        for medium, chosen in named.items()
    }


def write_layouts(
    testbed: Testbed, plan: Plan, chosen: Mapping[Medium, Sequence[ChunkLayout]]
) -> list[HyperslabRead]:
    """Write the layouts that are compared to each medium."""
    return [way for medium in chosen for way in make_ways(medium, testbed, plan, chosen[medium])]


def calibrate(rows: pd.DataFrame, ways: Sequence[HyperslabRead], profile: Profile) -> Fitted:
    """Fit the costs of each medium: those of chunks, and those of reads without chunks.

    What calibrated was measured with no network emulated, so the fit does not see the
    network of the profile; the costs that are returned have it.
    """
    seconds = pool(rows[rows["phase"] == "calibration"]).set_index(PAIR)["p50_s"]

    def fit(medium: Medium, *, has_chunks: bool, start_s: float | None = None) -> Store | None:
        seen = [
            Observation(float(seconds[medium, way.chunks.name, way.access.name]), count_io(way))
            for way in ways
            if way.medium == medium and (way.chunks.chunk_shape is not None) == has_chunks
        ]
        known = Store(is_file=True) if medium == "hdf5" else Store(n_connections=N_CONNECTIONS)
        known = replace(known, compression_ratio=_ratio(seen))
        return fit_store(known, seen, start_s=start_s) if seen else None

    fitted: dict[Medium, tuple[Store, Store | None]] = {}
    for medium in dict.fromkeys(way.medium for way in ways):
        chunked = fit(medium, has_chunks=True)
        assert chunked is not None
        flat = fit(medium, has_chunks=False, start_s=chunked.start_s)
        if medium != "hdf5":
            chunked = replace(chunked, network=network_of(profile))
        fitted[medium] = (chunked, flat)
    return fitted


def count_io(way: HyperslabRead) -> IoCounts:
    """Put together what the boxes ask, but for the first of each block, as their median time is."""
    n_blocks = max(1, len(way.boxes.places) // way.boxes.n_each)
    later = [i for block in range(n_blocks) for i in leave_first(way.boxes.share(block))]
    return stack([way.loads[i] for i in later])


def share_out(
    fitted: Fitted, ways: Sequence[HyperslabRead], *, n_blocks: int, access_time_s: float
) -> list[HyperslabRead]:
    """Give each access of each layout the positions that its predicted time allows.

    What is read in less time is read more often: a short read that waits for a
    few requests varies most. A block gets `access_time_s` predicted seconds of each,
    and three positions in any case, where there are as many.
    """
    shared = []
    for way in ways:
        wanted = max(_LEAST_BOXES, int(access_time_s / _predict_one(fitted, way)))
        n_each = min(way.boxes.n_each, wanted)
        n_kept = n_each * n_blocks
        kept = replace(
            way.boxes,
            places=way.boxes.places[:n_kept],
            sums=way.boxes.sums[:n_kept],
            n_apart=min(way.boxes.n_apart, n_kept),
            n_each=n_each,
        )
        shared.append(replace(way, boxes=kept, loads=way.loads[:n_kept]))
    return shared


def _ratio(seen: Sequence[Observation]) -> float:
    """Compute bytes in the array over bytes in the store, where the latter are told: the median."""
    ratios = [
        each.counts.chunk_nbytes / each.counts.stored_nbytes
        for each in seen
        if np.all(each.counts.stored_nbytes)
    ]
    return float(np.median(np.concatenate(ratios))) if ratios else 1.0


def tabulate_costs(fitted: Fitted) -> pd.DataFrame:
    """Tabulate the fitted costs, in microseconds, and nanoseconds a byte."""
    lines = {}
    for medium, pair in fitted.items():
        for store, kind in zip(pair, ("", ", no chunks"), strict=True):
            if store is not None:
                lines[f"{medium}{kind}"] = {
                    "an access (µs)": 1e6 * store.start_s,
                    "a chunk (µs)": 1e6 * store.chunk_s,
                    "a byte (ns)": 1e9 * store.decode_s_per_nbyte,
                    "a stored byte (ns)": 1e9 * store.stored_s_per_nbyte,
                    "a shard or a seek (µs)": 1e6 * store.request_s,
                }
    return pd.DataFrame(lines).T


def predict(fitted: Fitted, ways: Sequence[HyperslabRead]) -> pd.DataFrame:
    """Predict the median time of each access to each layout: that of the boxes that are read."""
    lines = [
        (way.medium, way.chunks.name, way.access.name, _predict_one(fitted, way)) for way in ways
    ]
    return pd.DataFrame(lines, columns=[*PAIR, "predicted_s"])


def _predict_one(fitted: Fitted, way: HyperslabRead) -> float:
    store = fitted[way.medium][way.chunks.chunk_shape is None]
    assert store is not None
    return predict_median(store, count_io(way))


def compare(rows: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    """Put predicted beside measured medians; `relative_error` is predicted over measured, less 1."""
    found = pool(rows[(rows["phase"] == "measured") & (rows["control_of"] == "")])
    table = predicted.merge(found, on=PAIR)
    return table.assign(relative_error=table["predicted_s"] / table["p50_s"] - 1)


def judge(table: pd.DataFrame) -> pd.DataFrame:
    """Compute the two targets of the prediction, for each medium, for its boxes, and for all together.

    Their 95 % intervals are those of resampled layouts: what is predicted is a layout
    that no fit has seen, and its accesses share its error. Beside the rank
    correlation with the prediction stands that of the medians of every second
    read with those of the others: how well the measurement, with half its
    reads, predicts itself.
    """
    parts = {str(medium): part for medium, part in table.groupby("medium")}
    boxes = table[table["access"] == "box"]  # the access whose times are the most alike
    parts |= {f"{medium}, boxes alone": part for medium, part in boxes.groupby("medium")}
    parts |= {"all": table} if table["medium"].nunique() > 1 else {}
    lines = {
        name: {
            **_judge_targets(part),
            "within a fifth": (part["relative_error"].abs() <= 0.2).mean(),
            "of two halves": part["odd_s"].corr(part["even_s"], method="spearman"),
            "pairs of layout and access": len(part),
        }
        for name, part in parts.items()
    }
    return pd.DataFrame(lines).T


def _judge_targets(part: pd.DataFrame) -> dict[str, float]:
    """Compute median error and rank correlation, with intervals over layouts."""
    values = part[["relative_error", "predicted_s", "p50_s"]].to_numpy(float).T
    lines = [*part.groupby(["medium", "contender"]).indices.values()]
    rng = np.random.default_rng(_SEED)
    drawn = rng.integers(0, len(lines), (_N_RESAMPLED, len(lines)))
    resampled = [_targets(values[:, np.concatenate([lines[i] for i in each])]) for each in drawn]
    low, high = np.nanquantile(resampled, [0.025, 0.975], axis=0)
    found: dict[str, float] = {}
    for i, name in enumerate(("median error", "rank correlation")):
        found |= {name: _targets(values)[i], f"{name}, low": low[i], f"{name}, high": high[i]}
    return found


def _targets(values: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> tuple[float, float]:
    """Compute both from relative errors, predicted and measured seconds."""
    ranks = stats.rankdata(values[1:], axis=1)
    is_one = np.ptp(ranks, axis=1).min() == 0  # one layout drawn again and again has no order
    rank = np.nan if is_one else float(np.corrcoef(ranks)[0, 1])
    return float(np.median(abs(values[0]))), rank


def worst_errors(table: pd.DataFrame) -> pd.DataFrame:
    """List the six predictions that are furthest off, in ms, and by how much in percent."""
    ratio = table["predicted_s"] / table["p50_s"]
    chosen: pd.DataFrame = table.loc[ratio.map(np.log).abs().sort_values(ascending=False).index[:6]]
    told = {"predicted (ms)": 1e3 * chosen["predicted_s"], "measured (ms)": 1e3 * chosen["p50_s"]}
    told["predicted less measured (%)"] = 100 * chosen["relative_error"]
    return chosen[PAIR].assign(**told).set_index(PAIR)


_READ_IN_PART = ChunkLayout("a part of a shard", (16, 40, 40)), (128, 960, 960)  # chunk, shard
_HOW = {
    True: ("before 3.3", "one after the other"),
    False: ("from 3.3 on", "near ones together, all at once"),
}


def render_readers() -> str:
    """Tabulate what a slice of one shard asks of an object store, by the version of zarr."""
    one, shard = _READ_IN_PART
    box = (slice(0, 1), slice(0, shard[1]), slice(0, shard[2]))
    store = Store(network_of(get_profile("in-region")), n_connections=N_CONNECTIONS)
    lines = []
    for in_turn, how in _HOW.items():
        asked = count_object_io(box, one, shard, shard, in_turn=in_turn)
        nbytes = asked.n_chunks * (asked.stored_nbytes or asked.chunk_nbytes)
        seconds = predict_median(store, asked)
        lines.append(
            (*how, asked.n_chunks, asked.n_requests, f"{nbytes / 1e6:.0f}", f"{seconds:.1f}")
        )
    names = ("zarr", "chunks of a shard", "chunks", "requests", "MB", "network alone (s)")
    return write_table(names, lines)
