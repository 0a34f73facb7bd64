"""What the record says of chunk shapes, as numbers and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats  # it ships no types

from helpers.benchmark import statistics
from helpers.benchmark.statistics import Interval
from helpers.findings import Finding
from helpers.plotting import tables
from studies.chunk_shape.layouts import FOR_ONE_ACCESS, OURS, RULES
from studies.chunk_shape.workload import leave_first
from wire.models.access import Shape

MIX = "equal mix"
"""What is judged, a column of `time_blocks`: the mean of a series and a slice, equally frequent."""

TWO_COPIES = "two copies"
"""The array stored twice, each access read from its best copy."""

_TRIMMED = 0.2  # of the reads of a block, at either end


def mean_later_reads(times_s: Sequence[float]) -> float:
    """Compute the mean time of the reads of a block.

    It is without the first after opening, and without the fastest and the slowest fifth.
    """
    return float(stats.trim_mean(leave_first(times_s), _TRIMMED))


def time_blocks(rows: pd.DataFrame) -> pd.DataFrame:
    """Compute the times of each layout in each block: what ratios are paired by.

    A block is what two layouts have in common. Positions are not: they are drawn
    so that they share no chunk, so those of two chunk shapes are other boxes. The
    reads of a block, at several positions, are one number: their mean, without the first
    after opening and without the fastest and the slowest fifth.

    Returns
    -------
    DataFrame
        A row a medium, layout and block; in seconds a column an access and ``"equal mix"``;
        ``"bias"`` without dimension. Which of series and slice is slower is said of the layout, by
        its medians: the slower one of each block would be chosen after its noise.
    """
    part = rows[rows["phase"] == "measured"]
    box_s = tables.trace_of(part).reindex(columns=["box_s"])["box_s"].dropna()
    mean_s = box_s.map(mean_later_reads)
    keys = ["medium", "contender", "control_of", "block"]
    table = part.loc[mean_s.index, [*keys, "access"]].assign(mean_s=mean_s)
    wide = table.pivot(index=keys, columns="access", values="mean_s")
    wide = wide.dropna(subset=["series", "slice"]).reset_index()
    medians = wide.groupby(["medium", "contender"])[["series", "slice"]].transform("median")
    bias = wide["series"] / wide["slice"]
    bias = bias.where(medians["series"] >= medians["slice"], 1 / bias)
    return wide.assign(**{MIX: wide[["series", "slice"]].mean(axis=1)}, bias=bias)


def add_two_copies(blocks: pd.DataFrame) -> pd.DataFrame:
    """Add the blocks of one medium stored twice: series from their best layout, slices from theirs.

    Both are chosen by their medians, after looking.
    """
    medians = blocks[blocks["control_of"] == ""].groupby("contender")[["series", "slice"]].median()
    best = {
        access: blocks[blocks["contender"] == medians[access].idxmin()].set_index("block")[access]
        for access in medians
    }
    both = pd.DataFrame(best).dropna().reset_index().assign(contender=TWO_COPIES, control_of="")
    mixed = both.assign(**{MIX: (both["series"] + both["slice"]) / 2})
    return pd.concat([blocks, mixed], ignore_index=True)


def find_smallest(intervals: Iterable[Interval]) -> Interval:
    """Take the least of several gains, and the least of the ends of their intervals.

    Of a gain over the best of several that is the gain: the least low end lies below it
    wherever that of the best does. Over simulated ties of two the interval misses it in
    5 %, of four in 9 %.

    Examples
    --------
    >>> find_smallest([Interval(1.5, 1.2, 1.9, n=5), Interval(1.4, 1.3, 1.6, n=5)])
    Interval(centre=1.4, low=1.2, high=1.6, n=5)
    """
    ratios = [*intervals]
    smallest = min(ratios, key=lambda ratio: ratio.centre)
    return replace(smallest, low=min(x.low for x in ratios), high=min(x.high for x in ratios))


def compare_layouts(blocks: pd.DataFrame) -> dict[tuple[str, str], Interval]:
    """Compute the time of an equal mix in each layout, and in two copies, over that in ours."""
    return {
        (medium, name): statistics.paired_ratio(both, name, OURS, value=MIX)
        for medium in blocks["medium"].unique()
        for both in [add_two_copies(blocks[blocks["medium"] == medium])]
        for name in both.loc[both["control_of"] == "", "contender"].unique()
    }


def rank_rules(over: Mapping[str, Interval]) -> list[str]:
    """List the sizes of the balance rule that one medium has, the fastest first."""
    return sorted((rule for rule in RULES if rule in over), key=lambda rule: over[rule].centre)


def find_chunk_bytes(
    described: pd.DataFrame, over: Mapping[tuple[str, str], Interval], medium: str
) -> dict[str, Finding]:
    """Find the bytes of a chunk on one medium, of ours and of the rule at its best size."""
    chunk_mb = described.xs(medium)["kB"] / 1e3
    rule = rank_rules({name: ratio for (key, name), ratio in over.items() if key == medium})[0]
    chosen = {"ours-mb": OURS, "rule-mb": rule}
    return {key: Finding(float(chunk_mb[layout]), unit="MB") for key, layout in chosen.items()}


def contrast(part: pd.DataFrame, over: Mapping[str, Interval]) -> dict[str, Interval]:
    """Compute what bytes and proportions gain on one medium.

    `part` are the blocks of the medium, `over` its layouts over ours. *Bytes* is the rule at its
    worst size over its best, *bad proportions* the best chunks for one access over the rule at
    about the same bytes. *Proportions* is the rule at its best size over ours, whose bytes differ
    too, so it is what the search gains by both.
    """
    rules = rank_rules(over)
    gains = {"proportions": find_smallest(over[key] for key in rules)}
    if len(rules) > 1:
        gains["bytes"] = statistics.paired_ratio(part, rules[-1], rules[0], value=MIX)
    pairs = [pair for pair in FOR_ONE_ACCESS.items() if {*pair} <= {*over}]
    if pairs:
        gains["bad proportions"] = find_smallest(
            statistics.paired_ratio(part, *pair, value=MIX) for pair in pairs
        )
    return gains


def gain_two_copies(part: pd.DataFrame, best: str) -> Interval:
    """Compute the time of an equal mix in the best single layout over that in two copies."""
    return statistics.paired_ratio(add_two_copies(part), best, TWO_COPIES, value=MIX)


def tabulate(intervals: Mapping[Any, Interval]) -> pd.DataFrame:
    """Tabulate intervals, a row each."""
    columns = ["median", "low", "high"]
    ends = {
        key: (interval.centre, interval.low, interval.high) for key, interval in intervals.items()
    }
    return pd.DataFrame(ends, index=columns).T


def tabulate_bias(blocks: pd.DataFrame, pooled: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the slower of series and slice over the faster, by layout, with its interval.

    Next to it stand the medians of each access over all reads, in ms.
    """
    intervals = {
        key: statistics.ratio_interval(np.log(part["bias"].to_numpy(dtype=np.float64)))
        for key, part in blocks[blocks["control_of"] == ""].groupby(["medium", "contender"])
    }
    table = tabulate(intervals).rename(columns={"median": "bias"})
    table = table.rename_axis(["medium", "contender"])
    medians_ms = 1e3 * pooled.pivot(index=["medium", "contender"], columns="access", values="p50_s")
    names = {name: f"{name} (ms)" for name in ("series", "slice", "box")}
    return medians_ms.filter([*names]).rename(columns=names).join(table).sort_values("bias")


def add_steps(pooled: pd.DataFrame, chunks: Mapping[str, Shape | None]) -> pd.DataFrame:
    """Add to series and slices of Zarr how many time steps their chunks hold, for a figure.

    `pooled` is the table of `prediction.compare_predicted`; `chunks` are the shapes by layout.
    """
    part = pooled[(pooled["medium"] == "zarr") & pooled["access"].isin(["series", "slice"])]
    n_steps = {name: chunk[0] for name, chunk in chunks.items() if chunk is not None}
    return part.assign(layout=part["contender"], n_steps=part["contender"].map(n_steps))


def count_traffic(rows: pd.DataFrame) -> pd.DataFrame:
    """Count, for each access to each layout, requests and bytes received over bytes asked for.

    On local disk a chunk is a request, and bytes are those of the chunks;
    over the wire both are those that the trace saw.
    """
    part = rows[(rows["phase"] == "measured") & (rows["control_of"] == "")]
    trace = tables.trace_of(part).reindex(columns=["n_boxes", "n_chunks", "decoded_nbytes"])
    part = part.join(trace)[trace["n_boxes"].notna() & ~part["is_ceiling"]]
    per_box = (part["n_requests"] / part["n_boxes"]).fillna(part["n_chunks"])
    received = part["wire_nbytes"].fillna(part["decoded_nbytes"])
    table = part.assign(requests=per_box, over_read=received / part["array_nbytes"])
    keys = ["medium", "contender", "access"]
    medians: Any = table.groupby(keys, sort=False)[["requests", "over_read"]].median()
    wide: pd.DataFrame = medians.unstack()
    return wide


def name_key(quantity: str, medium: str, media: Sequence[str]) -> str:
    """Name a finding: with its medium, unless that is the first of the page.

    Examples
    --------
    >>> name_key("bytes", "zarr", ["zarr"]), name_key("bytes", "sharded", ["zarr", "sharded"])
    ('bytes', 'bytes-sharded')
    """
    key = quantity if medium == media[0] else f"{quantity}-{medium}"
    return key.replace(" ", "-")


def list_biases(
    biases: pd.DataFrame, media: Sequence[str], more: Mapping[str, str] | None = None
) -> dict[str, Finding]:
    """Find the largest bias of each medium, with its layout; of the first those published, and ``more`` layouts by key."""
    of_media = {medium: biases.xs(medium) for medium in media}
    wanted: dict[str, tuple[str, Any]] = {
        name_key("largest-bias", medium, media): (medium, part["bias"].idxmax())
        for medium, part in of_media.items()
    }
    wanted["bias-contiguous"] = media[0], "contiguous, time fastest"
    wanted["bias-balanced"] = media[0], RULES[0]
    wanted |= {key: (media[0], layout) for key, layout in (more or {}).items()}
    results = {}
    for key, place in wanted.items():
        if place in biases.index:
            bias, low, high = (float(biases.loc[place, name]) for name in ("bias", "low", "high"))
            quantity = f"slower over faster of series and slice, {place[1].split(',')[0]}"
            results[key] = Finding(bias, low, high, verdict=str(place[1]), quantity=quantity)
    return results
