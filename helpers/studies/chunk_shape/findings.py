"""What the record says: bias, noise, positions, traffic, costs of rewriting, codecs, caches, advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from helpers import study
from helpers.models.reading_prices import payback_reads
from helpers.storage.chunkings import Chunking
from helpers.studies.chunk_shape.layouts import BOUND_NBYTES
from helpers.studies.chunk_shape.predicting import pool
from helpers.studies.chunk_shape.reading import BoxRead

RULE = f"balanced {BOUND_NBYTES // 1024} KiB"
"""The balance rule at the bound that ours has too."""


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
    columns = ["series", "slice", "box", "region mean", "whole"]
    return named.pivot(index=["medium", "contender"], columns="access", values=value)[columns]


def bias(named: pd.DataFrame) -> pd.DataFrame:
    """Compute the slower of series and slice over the faster, for each layout."""
    times = pivot(named)
    pair = times[["series", "slice"]]
    return times.assign(bias=pair.max(axis=1) / pair.min(axis=1)).sort_values("bias")


def noise(rows: pd.DataFrame) -> float:
    """Compute how far the control lies from its original: the median ratio of an access, less 1."""
    measured = rows[rows["phase"] == "measured"]
    control = measured[measured["control_of"] != ""]
    if control.empty:
        return float("nan")
    original = measured[measured["contender"].isin(control["control_of"].unique())]
    keys = ["medium", "access"]
    a, b = (pool(part).set_index(keys)["p50_s"] for part in (control, original))
    return float(np.exp(np.nanmedian(np.abs(np.log(a / b)))) - 1)


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


def rewrite_costs(rows: pd.DataFrame, named: pd.DataFrame) -> pd.DataFrame:
    """Compute what rewriting costs and after how many reads it has paid, by tool.

    Returns
    -------
    DataFrame
        Minutes per GB of array, most memory in MB, and reads, half series half
        slices, after which rewriting the whole array from time steps has paid.
    """
    part = rows[(rows["phase"] == "measured") & (rows["access"] == "rewrite")]
    if part.empty:
        return pd.DataFrame(columns=["minutes per GB", "memory (MB)", "reads to pay back"])
    part = part.join(study.trace_of(part)[["work_s", "most_nbytes"]])
    found = part.groupby("contender")[["work_s", "most_nbytes"]].median()
    s_per_nbyte = found["work_s"] / part["array_nbytes"].iloc[0]
    times = pivot(named).loc["hdf5"][["series", "slice"]]
    whole_nbytes = float(rows.loc[rows["access"] == "whole", "array_nbytes"].iloc[0])
    before, after = (
        {str(k): float(cast(Any, v)) for k, v in times.loc[name].items()}
        for name in ("a time step", "balanced 1024 KiB")
    )
    return pd.DataFrame(
        {
            "minutes per GB": s_per_nbyte * 1e9 / 60,
            "memory (MB)": found["most_nbytes"] / 1e6,
            "reads to pay back": [
                payback_reads(c, before, after) for c in s_per_nbyte * whole_nbytes
            ],
        }
    ).sort_values("minutes per GB")


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


def cache_gains(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate adjacent slices by the size of HDF5's cache: ms a slice, and times faster than none."""
    part = rows[(rows["phase"] == "measured") & (rows["access"] == "adjacent slices")]
    if part.empty:
        return pd.DataFrame(columns=["ms for all", "times faster than without"])
    part = part.assign(work_s=study.trace_of(part)["work_s"])
    found = part.groupby(["rdcc_nbytes"])["work_s"].median()
    return pd.DataFrame(
        {"ms for all": 1000 * found, "times faster than without": found.iloc[0] / found}
    )


def judge_advice(named: pd.DataFrame) -> pd.DataFrame:
    """Judge chunks as large as the box that is read: against the layout fastest for it."""
    lines = {}
    for medium, part in named.groupby("medium"):
        times = part.pivot(index="contender", columns="access", values="p50_s")
        if "as the box" not in times.index:
            continue
        others, own, rule = (
            times.drop(index="as the box"),
            times.loc["as the box"].astype(float),
            times.loc[RULE].astype(float),
        )
        lines[str(medium)] = {
            "fastest for the box": str(others["box"].idxmin()),
            "box": own["box"] / others["box"].min(),
            "series": own["series"] / rule["series"],
            "slice": own["slice"] / rule["slice"],
        }
    return pd.DataFrame(lines).T
