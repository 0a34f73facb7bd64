"""What the record says: times by block, bias, positions, traffic, rewriting, codecs and caches."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

from helpers import study
from helpers.measurement import statistics
from helpers.measurement.statistics import Interval
from helpers.models.reading_prices import payback_reads
from helpers.storage.chunkings import Chunking
from helpers.studies.chunk_shape.layouts import BOUND_NBYTES, MIXES
from helpers.studies.chunk_shape.reading import BoxRead, leave_first

RULE = f"balanced {BOUND_NBYTES // 1024} KiB"
"""The balance rule at the bound that ours has too."""

MIX_NAMES: Mapping[tuple[float, float], str] = {
    (1, 1): "equal mix",
    (8, 2): "four series to a slice",
}
"""Mixes of series and slice, by their weights."""

ACCESSES = ("series", "slice", "box", "region mean", "whole")
QUANTITIES = (*ACCESSES, *MIX_NAMES.values(), "slower access", "bias")
"""What is judged: a time, or the ratio of two."""

AS_BOX = "as the box"
"""Chunks as large as the box that is read."""

NO_CACHE = "cache of 0 MiB"
"""Adjacent slices without HDF5's cache of chunks."""


class Pair(NamedTuple):
    """A layout that is compared with the balance rule.

    Parameters
    ----------
    medium, layout, rule : str
        Where, what, and the rule at which chunk size.
    quantity : str
        Column of `time_blocks`.
    held : str
        Name under which the layout was measured.
    """

    medium: str
    layout: str
    rule: str
    quantity: str
    held: str

    def select(self, blocks: pd.DataFrame) -> pd.DataFrame:
        """Select the medium."""
        return blocks[blocks["medium"] == self.medium]


class Contest(NamedTuple):
    """Layouts of a medium of which the first is looked for.

    Parameters
    ----------
    medium, name : str
        Where, and in what.
    quantity : str
        Column of `time_blocks` of which the least is first.
    rows : DataFrame
        Blocks of the layouts.
    """

    medium: str
    name: str
    quantity: str
    rows: pd.DataFrame


def name_all(
    table: pd.DataFrame, ways: Sequence[BoxRead], layouts: Mapping[str, Sequence[Chunking]]
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

    Parameters
    ----------
    rows : DataFrame
        A record.

    Returns
    -------
    DataFrame
        A row a medium, layout (`contender`, and `control_of`) and block; in
        seconds a column an access and one each of `MIX_NAMES` and
        ``"slower access"``; ``"bias"``, and its inverse, without dimension.
    """
    part = rows[rows["phase"] == "measured"]
    box_s = study.trace_of(part).reindex(columns=["box_s"])["box_s"].dropna()
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
    mixes: dict[str, pd.Series[float]] = {
        name: (a * pair["series"] + b * pair["slice"]) / (a + b)
        for (a, b), name in MIX_NAMES.items()
    }
    bias = pair[slower] / pair[faster]
    mixes |= {"slower access": pair[slower], "bias": bias, "inverse bias": 1 / bias}
    return table.assign(**mixes)


def bias(named: pd.DataFrame, blocks: pd.DataFrame) -> pd.DataFrame:
    """Compute the slower of series and slice over the faster, for each layout, with its interval.

    Beside it stand the medians of each access over all reads.
    """
    found = {
        key: statistics.ratio_interval(np.log(part["bias"].to_numpy(dtype=np.float64)))
        for key, part in blocks.groupby(["medium", "contender"])
    }
    lines = {
        (medium, name): (
            found[medium, held].centre,
            found[medium, held].low,
            found[medium, held].high,
        )
        for (medium, name), held in list_held(named).items()
    }
    table = pd.DataFrame.from_dict(lines, orient="index", columns=["bias", "low", "high"])
    table.index = pd.MultiIndex.from_tuples(table.index, names=["medium", "contender"])
    return pivot(named).join(table).sort_values("bias")


def list_held(named: pd.DataFrame) -> dict[tuple[str, str], str]:
    """List under which name each layout of a medium was measured."""
    held = named["measured_as"] if "measured_as" in named else named["contender"]
    lines = zip(named["medium"], named["contender"], held, strict=True)
    return {(str(medium), str(name)): str(one) for medium, name, one in lines}


def pair_gains(named: pd.DataFrame) -> list[Pair]:
    """Pair ours with the rule at each size: in the mix that it was chosen for, and in the slower access."""
    held = list_held(named)
    return [
        Pair(medium, ours, rule, quantity, held[medium, ours])
        for medium, ours in held
        if ours in MIXES
        for rule in _rules(held, medium)
        for quantity in (MIX_NAMES[MIXES[ours]], "slower access")
    ]


def pair_advice(named: pd.DataFrame) -> list[Pair]:
    """Pair chunks as large as the box with the rule at each size, in what is no box."""
    held = list_held(named)
    return [
        Pair(medium, name, rule, quantity, held[medium, name])
        for medium, name in held
        if name == AS_BOX
        for rule in _rules(held, medium)
        for quantity in ("series", "slice")
    ]


def _rules(held: Mapping[tuple[str, str], str], medium: str) -> list[str]:
    return [name for at, name in held if at == medium and name.startswith("balanced")]


def contests(blocks: pd.DataFrame) -> list[Contest]:
    """List in what layouts are ranked: each access and mix, bias at both ends, boxes in chunks."""
    found = []
    for medium, part in blocks.groupby("medium", sort=False):
        found += [Contest(str(medium), name, name, part) for name in (*QUANTITIES, "inverse bias")]
        is_flat = part["contender"].str.startswith("contiguous")
        if AS_BOX in set(part["contender"]):
            found.append(Contest(str(medium), "box, in chunks", "box", part[~is_flat]))
    return found


def pair_tools(tools: Mapping[str, pd.DataFrame]) -> list[tuple[str, str]]:
    """Pair each tool that rewrites with each other one."""
    return list(itertools.permutations(tools, 2))


def tabulate_positions(named: pd.DataFrame) -> pd.DataFrame:
    """Tabulate positions and quantiles: how many share no chunk, first read, p50 and p95 in ms."""
    table = named.set_index(["medium", "contender", "access"])
    times = 1000 * table[["first_s", "p50_s", "p95_s"]]
    times.columns = ["first read (ms)", "p50 (ms)", "p95 (ms)"]
    counts = table[["n_positions", "n_apart"]].astype(int)
    counts.columns = ["positions", "without a common chunk"]
    return counts.join(times)


def first_reads(named: pd.DataFrame) -> pd.DataFrame:
    """Compare the first read after opening with those that follow: series and slice."""
    part = named[named["access"].isin(["series", "slice"])]
    ratio = part.assign(ratio=part["first_s"] / part["p50_s"])
    return ratio.pivot(index=["medium", "contender"], columns="access", values="ratio")


def count_traffic(rows: pd.DataFrame) -> pd.DataFrame:
    """Count, for each access to each layout, requests and bytes brought over bytes asked for.

    On local disk a chunk is a request, and bytes are those of the chunks;
    over the wire both are those that the trace saw.
    """
    part = rows[(rows["phase"] == "measured") & (rows["control_of"] == "")]
    trace = study.trace_of(part).reindex(columns=["n_boxes", "n_chunks", "decoded_nbytes"])
    part = part.join(trace)[trace["n_boxes"].notna() & ~part["is_ceiling"]]
    per_box = (part["n_requests"] / part["n_boxes"]).fillna(part["n_chunks"])
    brought = part["wire_nbytes"].fillna(part["decoded_nbytes"])
    table = part.assign(requests=per_box, over_read=brought / part["array_nbytes"])
    by = ["medium", "contender", "access"]
    return table.groupby(by)[["n_chunks", "requests", "over_read"]].median().reset_index()


def time_tools(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Give what each tool that rewrites took: a row a block, seconds and bytes of memory."""
    part = rows[(rows["phase"] == "measured") & (rows["access"] == "rewrite")]
    if part.empty:
        return {}
    part = part.join(study.trace_of(part)[["work_s", "most_nbytes"]])
    columns = ["contender", "block", "work_s", "most_nbytes", "array_nbytes"]
    return {str(tool): each[columns] for tool, each in part.groupby("contender")}


def rewrite_costs(tools: Mapping[str, pd.DataFrame], blocks: pd.DataFrame) -> pd.DataFrame:
    """Compute what rewriting costs and after how many reads it has paid, by tool.

    Returns
    -------
    DataFrame
        Minutes per GB of array, most memory in MB, and reads, half series half
        slices, after which rewriting the whole array from time steps has paid;
        `low`, `high`, `least` and `most` are the ends of their intervals.
    """
    names = ["minutes per GB", "low", "high", "memory (MB)", "reads to pay back", "least", "most"]
    lines = {}
    for tool, part in tools.items():
        minutes = part["work_s"] / part["array_nbytes"] * 1e9 / 60
        found = statistics.median_interval(minutes)
        paid = _tell_payback(part, blocks[blocks["medium"] == "hdf5"])
        memory = part["most_nbytes"].median() / 1e6
        lines[tool] = (found.centre, found.low, found.high, memory, *paid)
    table = pd.DataFrame.from_dict(lines, orient="index", columns=names)
    return table.sort_values("minutes per GB")


def _tell_payback(part: pd.DataFrame, blocks: pd.DataFrame) -> tuple[float, float, float]:
    """Compute after how many reads a tool has paid, block by block: median and interval."""
    times = blocks.set_index(["contender", "block"])[["series", "slice"]]
    reads = []
    for block, work_s in zip(part["block"], part["work_s"], strict=True):
        before, after = (
            {str(k): float(v) for k, v in times.loc[(name, block)].items()}
            for name in ("a time step", "balanced 1024 KiB")
        )
        reads.append(payback_reads(float(work_s), before, after))
    if not np.isfinite(reads).all():
        return float(np.median(reads)), float("nan"), float("nan")
    found = statistics.median_interval(reads)
    return found.centre, found.low, found.high


def codec_costs(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate compression ratio and decoding in MB/s, by codec and chunk size."""
    part = rows[(rows["phase"] == "measured") & (rows["access"] == "decode")]
    if part.empty:
        return pd.DataFrame(columns=["codec", "chunk_kib", "ratio", "decode_mb_per_s"])
    work_s = study.trace_of(part)["work_s"]
    table = part.assign(
        ratio=part["array_nbytes"] / part["stored_nbytes"],
        decode_mb_per_s=part["array_nbytes"] / work_s / 1e6,
    )
    columns = ["ratio", "decode_mb_per_s"]
    return table.groupby(["codec", "chunk_kib"])[columns].median().reset_index()


def time_caches(rows: pd.DataFrame) -> pd.DataFrame:
    """Give the seconds of all adjacent slices: a row a block and size of HDF5's cache."""
    part = rows[(rows["phase"] == "measured") & (rows["access"] == "adjacent slices")]
    columns = ["contender", "block", "rdcc_nbytes", "work_s"]
    if part.empty:
        return pd.DataFrame(columns=columns)
    return part.assign(work_s=study.trace_of(part)["work_s"])[columns].sort_values("rdcc_nbytes")


def cache_gains(kept: pd.DataFrame, gains: Mapping[str, Interval]) -> pd.DataFrame:
    """Tabulate adjacent slices by the size of the cache: ms, and times faster than without."""
    medians = kept.groupby("contender", sort=False)["work_s"].median()
    lines = {
        name: (1000 * float(medians[name]), found.centre, found.low, found.high)
        for name, found in gains.items()
    }
    columns = ["ms for all", "times faster than without", "low", "high"]
    return pd.DataFrame.from_dict(lines, orient="index", columns=columns)
