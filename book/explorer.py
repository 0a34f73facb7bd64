"""Every row of all records as one tidy table, and its medians for the explorer."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.benchmark.record import list_records, read_records, schema
from helpers.benchmark.statistics import Floats, Interval, median_intervals
from helpers.plotting.tables import trace_of

COLUMNS: Mapping[str, str] = {
    "source": "case of the record",
    "row": "row of that file, from 1",
    "phase": "'measured', 'warm-up' or 'calibration'",
    "block": "repetition, from 0 in each phase",
    "contender": "what is compared: a reader, a cache, a tool, a service",
    "layout": "format or layout of what is read, if it is told",
    "network": "emulated network",
    "workers": "workers of the cluster, if it is told",
    "chunk_nbytes": "bytes of a chunk, decoded, if they are told or follow from the row",
    "conditions": "all else that tells the row from others: place on the x-axis, settings",
    "quantity": "what was measured, see the table of quantities",
    "unit": "unit of the value",
    "value": "the number; times are in seconds of the network",
    "date": "day (UTC) on which the row was measured",
    "machine": "processor, cores and memory",
    "commit": "commit of this project",
}
"""Columns of the tidy table, with what each holds."""

_GROUP = [
    name for name in COLUMNS
    if name not in ("row", "block", "quantity", "unit", "value", "date")
]  # fmt: skip

# What a record's numbers are called beyond its columns.
_COMPUTED = {
    "total_s": "time to open and to read",
    "throughput_mb_per_s": "bytes of the array, decoded, over the time to open and to read",
}
_OWN = ("open_s", "read_s", "array_nbytes", "stored_nbytes", "wire_nbytes", "n_requests")

_LABELS = {
    "open_s": "time to open", "read_s": "time to read", "total_s": "time to open and read",
}  # fmt: skip
# Bounds of the classes by which chunks are chosen, in bytes.
_EDGES = [0, 1e5, 1e6, 1e7, 1e8, math.inf]
_SIZES = ["to 0.1 MB", "0.1 to 1 MB", "1 to 10 MB", "10 to 100 MB", "over 100 MB"]


def tidy_record(path: Path) -> pd.DataFrame:
    """Turn a record into the tidy table: a line for each number of each row."""
    rows = read_records([path]).reset_index(drop=True)
    numbers = rows[[*_OWN]].assign(
        total_s=rows["open_s"] + rows["read_s"],
        throughput_mb_per_s=rows["array_nbytes"] / (rows["open_s"] + rows["read_s"]) / 1e6,
    )
    trace = trace_of(rows).rename(columns=str)
    plain = [name for name in map(str, trace) if "|" not in name and name not in numbers]
    numbers = numbers.join(trace[plain].apply(pd.to_numeric, errors="coerce"))
    whole = rows["array_nbytes"].max()  # where a part is read, the column is of that part
    told = pd.DataFrame([_tell_row(row, whole) for _, row in rows.iterrows()])
    facts = told.assign(
        **rows[["phase", "block", "contender"]],
        source=f"{path.parent.name}/{path.stem}", row=rows.index + 1, date=rows["started_utc"].str[:10], commit=rows["commit"],
    )  # fmt: skip
    numbers = numbers.dropna(axis="columns", how="all")
    long = facts.join(numbers).melt([*facts], [*numbers], "quantity", "value").dropna(subset="value")  # fmt: skip
    return long.assign(unit=long["quantity"].map(_unit_of))


def _tell_row(row: pd.Series[Any], array_nbytes: int) -> dict[str, Any]:
    """Read the facts of one row of a record out of its mappings."""
    names = ("point", "settings", "parameters", "machine", "trace")
    point, settings, asked, machine, trace = (json.loads(row[name] or "{}") for name in names)
    conditions = {**point, **settings}
    own = conditions.pop("profile", asked.get("profile", ""))
    layout, workers = conditions.pop("layout", ""), conditions.pop("n_workers", None)
    for name in ("cache_state", "read_deadline_s"):  # neither is a condition of the read
        conditions.pop(name, None)
    memory = f"{machine['memory_gb']} GB"
    return {
        "layout": layout,
        "network": own,
        "workers": asked.get("n_workers") if workers is None else workers,
        "chunk_nbytes": _chunk_nbytes(array_nbytes, settings, asked, trace),
        "conditions": _write(conditions),
        "machine": ", ".join([machine["cpu"], f"{machine['n_cores']} cores", memory]),
    }


def _chunk_nbytes(
    array_nbytes: int, settings: Mapping[str, Any], asked: Mapping[str, Any], trace: Mapping[str, Any]
) -> float:  # fmt: skip
    """Compute the bytes of a chunk from what a row says of chunks, NaN if it says nothing."""
    if "chunks" in settings and trace.get("n_chunks"):  # of one box
        return float(trace["decoded_nbytes"] / trace["n_chunks"] / trace["n_boxes"])
    if settings.get("n_chunks"):
        return float(array_nbytes / settings["n_chunks"])
    if "chunk_shape" in asked and settings.get("layout") != "parquet":
        return float(
            array_nbytes * math.prod(asked["chunk_shape"]) / math.prod(asked["array_shape"])
        )
    return math.nan


def _write(conditions: Mapping[str, Any]) -> str:
    """Write names and values in one line."""
    return ", ".join(f"{name}={value}" for name, value in conditions.items() if value not in ("", 0))  # fmt: skip


def _say(conditions: str) -> str:
    """Put the names of conditions into words, for readers."""
    return re.sub(r"\b([a-z]\w*)=", lambda m: f"{_label(m[1], _unit_of(m[1]))} ", conditions)


def _unit_of(name: str) -> str:
    """Tell the unit from the end of a column's name."""
    ends = {"_mb_per_s": "MB/s", "_per_s": "1/s", "_nbytes": "B", "_s": "s"}
    return next((unit for end, unit in ends.items() if name.endswith(end)), "1")


def tidy(records: Path) -> pd.DataFrame:
    """Gather every row of every record below a folder."""
    parts = [tidy_record(path) for path in list_records(records)]
    table = pd.concat(parts, ignore_index=True).reindex(columns=[*COLUMNS])
    whole = {name: pd.to_numeric(table[name]).round().astype("Int64") for name in ("workers", "chunk_nbytes")}  # fmt: skip
    return table.assign(**whole, date=table["date"].fillna(""))


def summarise_groups(table: pd.DataFrame) -> pd.DataFrame:
    """Compute the median of each quantity over the rows that differ in nothing but repetition.

    Warm-ups and calibrations are left out, and what a case counted as the same number in all rows.
    """
    rows = table[table["phase"] == "measured"]
    is_one = rows.groupby(["source", "quantity"])["value"].transform("nunique") == 1
    rows = rows[~is_one]
    keys = [*_GROUP, "quantity", "unit"]
    rows = rows.assign(**rows[keys].astype(object).where(rows[keys].notna(), ""))
    rows = rows.assign(number=rows.groupby(keys, sort=False).ngroup())
    groups = rows.groupby("number", sort=True)
    found = groups[keys].first().assign(date=groups["date"].min())
    intervals = _centre([values.to_numpy() for _, values in groups["value"]])
    return found.assign(
        n=[one.n for one in intervals],
        median=[one.centre for one in intervals],
        low=[one.low for one in intervals],
        high=[one.high for one in intervals],
    )


def _centre(samples: Sequence[Floats]) -> list[Interval]:
    """Compute medians and their intervals, which of equal values are their value."""
    differs = [len(one) == 1 or one.min() < one.max() for one in samples]
    told = iter(median_intervals([one for one, yes in zip(samples, differs, strict=True) if yes]))
    return [
        next(told) if yes else Interval(one[0], one[0], one[0], len(one))
        for one, yes in zip(samples, differs, strict=True)
    ]


def list_quantities(table: pd.DataFrame) -> pd.DataFrame:
    """List the quantities with their units and what each means, if a record says."""
    meanings = {**schema()["description"], **_COMPUTED}
    found = table.groupby("quantity", sort=False).agg(unit=("unit", "first"))
    told = [meanings.get(name) or "counted in the trace or by the study" for name in found.index]
    return found.assign(meaning=told)


def write_data(groups: pd.DataFrame) -> str:
    """Write the medians column by column, each word once, as the script that the page loads.

    Compressed they are a tenth of their size, and the page stays as light as the others.
    """
    size = pd.cut(groups["chunk_nbytes"].replace("", math.nan).astype(float), _EDGES, labels=_SIZES)
    told = groups["conditions"].astype(str).map(_say)
    groups = groups.assign(chunks=size.astype(object).fillna(""), conditions=told)
    facts = [*_GROUP, "date", "chunks"]
    group = groups.groupby(facts, sort=False).ngroup()
    keys = groups.loc[~group.duplicated(), facts].astype(str)
    data: dict[str, Any] = {"words": {}, "groups": {}}
    for name in facts:
        data["groups"][name], words = _encode(keys[name])
        data["words"][name] = words
    quantity, names = _encode(groups["quantity"])
    units = dict(zip(groups["quantity"], groups["unit"], strict=True))
    labels = [_label(name, units[name]) for name in names]
    data |= {"quantities": names, "labels": labels, "group": group.tolist(), "quantity": quantity}
    for name in ("n", "median", "low", "high"):
        data[name] = [_round(value) for value in groups[name]]
    packed = gzip.compress(json.dumps(data, separators=(",", ":")).encode(), mtime=0)
    return f'globalThis.EXPLORER = "{base64.b64encode(packed).decode()}";\n'


def _label(name: str, unit: str) -> str:
    """Name a quantity in words, with its unit."""
    words = _LABELS.get(name) or re.sub(r"_(mb_per_s|per_s|nbytes|s|usd|pct)$", "", name).replace("_", " ")  # fmt: skip
    return f"{words.removeprefix('n ')} ({unit})" if unit not in ("", "1") else words.removeprefix("n ")  # fmt: skip


def _encode(values: Any) -> tuple[list[int], list[str]]:
    codes, words = pd.factorize(pd.Series(values))
    return codes.tolist(), [*words]


def _round(value: float) -> float | int | None:
    """Keep four digits of a number; none of one that is not there."""
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.4g}")
    return int(rounded) if rounded == int(rounded) else rounded


def write_files(records: Path) -> Iterator[tuple[str, bytes]]:
    """Write what the explorer loads and offers: the medians, all rows, the dictionary.

    Yields
    ------
    tuple of str and bytes
        Name of a file, and what it holds.
    """
    table = tidy(records)
    yield "data.js", write_data(summarise_groups(table)).encode()
    yield "all-rows.csv.gz", gzip.compress(table.to_csv(index=False).encode(), mtime=0)
    columns = pd.DataFrame({"name": [*COLUMNS], "what": "column", "unit": "", "meaning": [*COLUMNS.values()]})  # fmt: skip
    quantities = list_quantities(table).reset_index().assign(what="quantity", name=lambda one: one["quantity"])  # fmt: skip
    both = pd.concat([columns, quantities[["name", "what", "unit", "meaning"]]])
    yield "data-dictionary.csv", both.to_csv(index=False).encode()
