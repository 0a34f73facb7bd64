"""What the record says of chunk shapes: tables, verdicts, and all that pages quote, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

from helpers.benchmark import statistics
from helpers.benchmark.ranking import Ranking
from helpers.benchmark.statistics import Comparison, Interval
from helpers.plotting import tables
from studies.chunk_shape.layouts import BOUND_NBYTES, PATTERNS, ChunkLayout
from studies.chunk_shape.workload import HyperslabRead, leave_first

RULE = f"balanced {BOUND_NBYTES // 1024} KiB"
"""The balance rule at the bound that ours has too."""

MIX_NAMES: Mapping[tuple[float, float], str] = {
    (1, 1): "equal mix (50:50)",
    (8, 2): "four series to a slice (80:20)",
}
"""Access patterns of series and slice, by their weights."""

ACCESSES = ("series", "slice", "box", "region mean", "whole")
QUANTITIES = (*ACCESSES, *MIX_NAMES.values(), "worst access", "bias")
"""What is judged: a time, or the ratio of two."""

AS_BOX = "as the box"
"""Chunks as large as the box that is read."""

NO_CACHE = "cache of 0 MiB"
"""Adjacent slices without HDF5's cache of chunks."""


class Pair(NamedTuple):
    """A layout that is compared with the balance rule."""

    medium: str  # where, what, and the rule at which chunk size
    layout: str
    rule: str
    quantity: str  # column of `time_blocks`
    held: str  # name under which the layout was measured


class Contest(NamedTuple):
    """Layouts of a medium of which the first is looked for."""

    medium: str  # where, and in what
    name: str
    quantity: str  # column of `time_blocks` of which the least is first
    rows: pd.DataFrame  # blocks of the layouts


def name_all(
    table: pd.DataFrame, ways: Sequence[HyperslabRead], layouts: Mapping[str, Sequence[ChunkLayout]]
) -> pd.DataFrame:
    """Repeat the rows of a shape for each name that it has: ours may be another's."""
    held = {(way.medium, way.chunks.chunk_shape, way.chunks.axes): way.chunks.name for way in ways}
    parts = []
    for medium, chosen in layouts.items():
        for one in chosen:
            name = held.get((cast(Any, medium), one.chunk_shape, one.axes))
            part = table[(table["medium"] == medium) & (table["contender"] == name)]
            parts.append(part.assign(contender=one.name, measured_as=name))
    return pd.concat(parts, ignore_index=True)


def pivot(named: pd.DataFrame, value: str = "p50_s") -> pd.DataFrame:
    """Give medians: a row a medium and layout, a column an access."""
    table = named.pivot(index=["medium", "contender"], columns="access", values=value)
    return table[[*ACCESSES]]


def time_blocks(rows: pd.DataFrame) -> pd.DataFrame:
    """Give the times of each layout in each block: what gains and verdicts are paired by.

    A block is what two layouts have in common. Positions are not: they are drawn
    so that they share no chunk, so those of two chunk shapes are other boxes. The
    reads of a block, at several positions, are one number, their median, without
    the first after opening; blocks have positions and delays of their own.

    Returns
    -------
    DataFrame
        A row a medium, layout and block; in seconds a column an access, one each of
        `MIX_NAMES` and ``"worst access"``; ``"bias"``, and its inverse, without dimension.
    """
    part = rows[rows["phase"] == "measured"]
    box_s = tables.trace_of(part).reindex(columns=["box_s"])["box_s"].dropna()
    p50_s = box_s.map(lambda each: float(np.median(leave_first(each))))
    keys = ["medium", "contender", "control_of", "block"]
    table = part.loc[p50_s.index, [*keys, "access"]].assign(p50_s=p50_s)
    wide = table.pivot(index=keys, columns="access", values="p50_s").dropna().reset_index()
    layouts = wide.groupby(["medium", "contender"], sort=False)
    return pd.concat([_add_mixes(each) for _, each in layouts], ignore_index=True)


def _add_mixes(table: pd.DataFrame) -> pd.DataFrame:
    """Add what follows from series and slice to the blocks of one layout.

    Which of the two is slower is said of the layout, by its medians over blocks.
    The slower one of each block would be chosen after its noise, and longer than
    either: its gains miss those of the medians by up to a tenth.
    """
    pair = table[["series", "slice"]]
    slower = str(pair.median().idxmax())
    faster = "slice" if slower == "series" else "series"
    patterns: dict[str, pd.Series[float]] = {
        name: (a * pair["series"] + b * pair["slice"]) / (a + b)
        for (a, b), name in MIX_NAMES.items()
    }
    bias = pair[slower] / pair[faster]
    patterns |= {"worst access": pair[slower], "bias": bias, "inverse bias": 1 / bias}
    return table.assign(**patterns)


def bias(named: pd.DataFrame, blocks: pd.DataFrame) -> pd.DataFrame:
    """Compute the slower of series and slice over the faster, for each layout, with its interval.

    Beside it stand the medians of each access over all reads, in ms.
    """
    found = {
        key: statistics.ratio_interval(np.log(part["bias"].to_numpy(dtype=np.float64)))
        for key, part in blocks.groupby(["medium", "contender"])
    }
    lines = {
        (medium, name): ends_of(found[medium, held])
        for (medium, name), held in list_held(named).items()
    }
    table = pd.DataFrame(lines, index=["bias", "low", "high"]).T.rename_axis(
        ["medium", "contender"]
    )
    medians_ms = (1000 * pivot(named)).rename(columns="{} (ms)".format)
    return medians_ms.join(table).sort_values("bias")


def list_held(named: pd.DataFrame) -> dict[tuple[str, str], str]:
    """List under which name each layout of a medium was measured."""
    held = named["measured_as"] if "measured_as" in named else named["contender"]
    lines = zip(named["medium"], named["contender"], held, strict=True)
    return {(str(medium), str(name)): str(one) for medium, name, one in lines}


def list_pairs(named: pd.DataFrame) -> list[Pair]:
    """Pair layouts with the rule at each size.

    Ours in the access pattern that it was chosen for, and in the worst access; chunks as
    large as the box in what is no box.
    """
    held = list_held(named)
    quantities = {name: (MIX_NAMES[PATTERNS[name]], "worst access") for name in PATTERNS}
    quantities[AS_BOX] = ("series", "slice")
    return [
        Pair(medium, name, rule, quantity, held[medium, name])
        for medium, name in held
        if name in quantities
        for at, rule in held
        if at == medium and rule.startswith("balanced")
        for quantity in quantities[name]
    ]


def contests(blocks: pd.DataFrame) -> list[Contest]:
    """List in what layouts are ranked: each access and mix, bias at both ends, boxes in chunks."""
    found = []
    for medium, part in blocks.groupby("medium", sort=False):
        found += [Contest(str(medium), name, name, part) for name in (*QUANTITIES, "inverse bias")]
        is_flat = part["contender"].str.startswith("contiguous")
        if AS_BOX in set(part["contender"]):
            found.append(Contest(str(medium), "box, in chunks", "box", part[~is_flat]))
    return found


def tabulate_positions(named: pd.DataFrame) -> pd.DataFrame:
    """Tabulate positions and quantiles: how many share no chunk, first read, p50 and p95 in ms."""
    table = named.set_index(["medium", "contender", "access"])
    columns = {
        "positions": table["n_positions"].astype(int),
        "without a common chunk": table["n_apart"].astype(int),
        "first read (ms)": 1000 * table["first_s"],
        "first over p50": table["first_s"] / table["p50_s"],
        "p50 (ms)": 1000 * table["p50_s"],
        "p95 (ms)": 1000 * table["p95_s"],
    }
    return pd.DataFrame(columns)


def count_traffic(rows: pd.DataFrame) -> pd.DataFrame:
    """Count, for each access to each layout, requests and bytes brought over bytes asked for.

    On local disk a chunk is a request, and bytes are those of the chunks;
    over the wire both are those that the trace saw.
    """
    part = rows[(rows["phase"] == "measured") & (rows["control_of"] == "")]
    trace = tables.trace_of(part).reindex(columns=["n_boxes", "n_chunks", "decoded_nbytes"])
    part = part.join(trace)[trace["n_boxes"].notna() & ~part["is_ceiling"]]
    per_box = (part["n_requests"] / part["n_boxes"]).fillna(part["n_chunks"])
    brought = part["wire_nbytes"].fillna(part["decoded_nbytes"])
    table = part.assign(requests=per_box, over_read=brought / part["array_nbytes"])
    by = ["medium", "contender", "access"]
    return table.groupby(by)[["n_chunks", "requests", "over_read"]].median().reset_index()


def _extras(rows: pd.DataFrame, what: str) -> pd.DataFrame:
    """Select what was measured beside reading, with the numbers of its trace."""
    part = rows[(rows["phase"] == "measured") & (rows["access"] == what)]
    return part if part.empty else part.join(tables.trace_of(part))


def time_tools(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Give what each tool that rewrites took: a row a block, seconds, bytes of memory, threads."""
    columns = ["contender", "block", "work_s", "most_nbytes", "array_nbytes", "concurrency"]
    return {
        str(tool): each[columns] for tool, each in _extras(rows, "rewrite").groupby("contender")
    }


def rewrite_costs(
    tools: Mapping[str, pd.DataFrame],
    blocks: pd.DataFrame,
    between: Mapping[tuple[str, str], Comparison],
) -> pd.DataFrame:
    """Compute what rewriting costs and after how many reads it has paid, by tool.

    Minutes are per GB of array, the most memory in MB. Reads are half series and half
    slices; `least` and `most` are the ends of their interval. The last column is the
    verdict on a tool over that of the fewest minutes.
    """
    names = ["minutes per GB", "low", "high", "threads", "memory (MB)", "reads to pay back"]
    names += ["least", "most"]
    lines = {}
    for tool, part in tools.items():
        minutes = statistics.median_interval(part["work_s"] / part["array_nbytes"] * 1e9 / 60)
        paid = _find_payback(part, blocks[blocks["medium"] == "hdf5"])
        held = int(part["concurrency"].max()), part["most_nbytes"].median() / 1e6
        lines[tool] = (*ends_of(minutes), *held, *paid)
    table = pd.DataFrame.from_dict(lines, orient="index", columns=names)
    table = table.sort_values("minutes per GB")
    best = str(table.index[0]) if lines else ""
    told = {tool: between[tool, best].verdict if tool != best else "" for tool in lines}
    return table.assign(verdict=pd.Series(told, dtype=str))


def payback_reads(
    cost_s: float, before_s: Mapping[str, float], after_s: Mapping[str, float]
) -> float:
    """Compute after how many reads of each kind, equally mixed, a rewriting has paid.

    Examples
    --------
    >>> payback_reads(100, {"series": 11, "slice": 1}, {"series": 1, "slice": 1})
    20.0
    """
    gain_s = sum(before_s[name] - after_s[name] for name in before_s) / len(before_s)
    return cost_s / gain_s if gain_s > 0 else math.inf


def _find_payback(part: pd.DataFrame, blocks: pd.DataFrame) -> tuple[float, float, float]:
    """Compute after how many reads a tool has paid, block by block: median and interval."""
    times = blocks.set_index(["contender", "block"])[["series", "slice"]]
    reads = []
    for block, work_s in zip(part["block"], part["work_s"], strict=True):
        names = ("a time step", "balanced 1024 KiB")
        before, after = (times.loc[(name, block)].to_dict() for name in names)
        reads.append(payback_reads(float(work_s), before, after))
    if not np.isfinite(reads).all():
        return float(np.median(reads)), float("nan"), float("nan")
    return ends_of(statistics.median_interval(reads))


def codec_costs(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate compression ratio and decoding in MB/s, by codec and chunk size."""
    part = _extras(rows, "decode")
    if part.empty:
        return pd.DataFrame(columns=["codec", "chunk_kib", "ratio", "decode_mb_per_s"])
    ratio = part["array_nbytes"] / part["stored_nbytes"]
    table = part.assign(ratio=ratio, decode_mb_per_s=part["array_nbytes"] / part["work_s"] / 1e6)
    columns = ["ratio", "decode_mb_per_s"]
    return table.groupby(["codec", "chunk_kib"])[columns].median().reset_index()


def time_caches(rows: pd.DataFrame) -> pd.DataFrame:
    """Give the seconds of all adjacent slices: a row a block and size of HDF5's cache."""
    columns = ["contender", "block", "rdcc_nbytes", "work_s"]
    part = _extras(rows, "adjacent slices").reindex(columns=columns)
    return part.sort_values("rdcc_nbytes")


def cache_gains(kept: pd.DataFrame, gains: Mapping[str, Interval]) -> pd.DataFrame:
    """Tabulate adjacent slices by the size of the cache: ms, and times as fast as without."""
    medians = kept.groupby("contender", sort=False)["work_s"].median()
    lines = {name: (1000 * float(medians[name]), *ends_of(found)) for name, found in gains.items()}
    columns = ["all slices (ms)", "times as fast as without", "low", "high"]
    return pd.DataFrame.from_dict(lines, orient="index", columns=columns)


def tabulate_noise(noise: Mapping[tuple[str, str], float]) -> pd.DataFrame:
    """Tabulate how far the copy lies from its original, in percent, by medium and quantity."""
    return 100 * (pd.Series(noise).unstack()[[*QUANTITIES]] - 1)


def tabulate_gains(gains: Mapping[Pair, Comparison]) -> pd.DataFrame:
    """Tabulate the time of the rule over that of ours; the verdict is on ours."""
    lines = [
        (pair.medium, pair.layout, pair.rule, pair.quantity, *ends_of(invert(found.ratio)),
         found.noise, found.verdict)
        for pair, found in gains.items()
    ]  # fmt: skip
    names = ["medium", "ours", "rule", "in", "gain", "low", "high", "A/A noise", "verdict"]
    return pd.DataFrame(lines, columns=names).set_index(names[:4])


def tabulate_first(ranks: Mapping[tuple[str, str], Ranking], named: pd.DataFrame) -> pd.DataFrame:
    """Tabulate which layout is first in what, or which cannot be told apart from it."""
    lines = {
        (medium, name): tell_first("first", ranking.fastest, names_of(named, medium))
        for (medium, name), ranking in ranks.items()
    }
    table = pd.Series(lines, name="least time, or bias").to_frame()
    return table.rename(index={"inverse bias": "largest bias"})


def tell_first(what: str, first: Sequence[str], names: Mapping[str, str] | None = None) -> str:
    """Name the first, or say which are among the first; names have commas of their own.

    Examples
    --------
    >>> tell_first("fastest", ["a, by time"]), tell_first("fastest", ["a, by time", "b"])
    ('a, by time', 'among the fastest (a, by time; b)')
    """
    told = [(names or {}).get(name, name) for name in first]
    return told[0] if len(told) == 1 else f"among the {what} ({'; '.join(told)})"


def names_of(named: pd.DataFrame, medium: str) -> dict[str, str]:
    """Give all names of each layout that was measured."""
    found: dict[str, str] = {}
    for (at, name), held in list_held(named).items():
        if at == medium:
            found[held] = f"{found[held]} = {name}" if held in found else name
    return found


def ends_of(found: Interval) -> tuple[float, float, float]:
    """Give the centre of an interval, and its ends."""
    return found.centre, found.low, found.high


def invert(found: Interval) -> Interval:
    """Turn the interval of a ratio into that of its inverse."""
    return replace(found, centre=1 / found.centre, low=1 / found.high, high=1 / found.low)
