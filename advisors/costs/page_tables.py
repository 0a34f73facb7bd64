"""What cases ask of a store: the published ones as a table, and others scaled from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from advisors.costs.prices import DEFAULT_REGION, DEFAULT_SET, get_prices, read_prices
from helpers.benchmark.record import read_records
from helpers.book.studies import Expected, write_table
from helpers.paths import ROOT

REFERENCE = ROOT / "results" / "reference"


def count_run(rows: pd.DataFrame) -> dict[str, float]:
    """Count the reads, requests, gigabytes and minutes of a record, all phases together.

    Minutes are from the first row's start to the last row's end, pauses of more than five
    minutes left out; what is not traced counts nothing.
    """
    opened = [json.loads(text).get("n_open_requests", 0) for text in rows["trace"]]
    starts = pd.to_datetime(rows["started_utc"], format="ISO8601", utc=True).sort_values()
    gaps_s = starts.diff().dt.total_seconds().dropna()
    last_s = float(rows["open_s"].iloc[-1] + rows["read_s"].iloc[-1])
    return {
        "reads": len(rows),
        "requests": float(rows["n_requests"].fillna(0).sum() + sum(opened)),
        "gb": float(rows["wire_nbytes"].fillna(0).sum() / 1e9),
        "minutes": (float(gaps_s[gaps_s < 300].sum()) + last_s) / 60,
    }


def expect_like(
    title: str, work: Callable[[Mapping[str, Any]], tuple[float, float]], values: Mapping[str, Any]
) -> Expected:
    """Scale what a published case asked of its store to a case with other parameters.

    Parameters
    ----------
    title : str
        Of the published case, such as ``cluster-scaling/in-region``.
    work : callable
        Tells from the parameters of a case how many requests and bytes it takes, in any unit:
        what the published case took of each such unit is taken for this one too.
    values : mapping
        Parameters of the case, defaults included.
    """
    rows = read_records([REFERENCE / f"{title}.csv"])
    found, prices = count_run(rows), get_prices()
    n_blocks = int(rows.loc[rows["phase"] == "measured", "block"].max()) + 1
    published = work(json.loads(rows["parameters"].iloc[0]) | {"n_blocks": n_blocks})
    scales = [mine / theirs for mine, theirs in zip(work(values), published, strict=True)]
    n_requests, gb = found["requests"] * scales[0], found["gb"] * scales[1]
    asked = n_requests / 1e3 * prices["store_gets_1e3"]
    return Expected(
        n_requests,
        gb,
        asked,
        asked + gb * prices["data_out_gb"],
        f"prices of {DEFAULT_REGION}, {read_prices()[DEFAULT_SET].date}",
    )


def find_runs() -> list[Path]:
    """Find the published records of cases: those that have an executed notebook beside them."""
    return [path.with_suffix(".csv") for path in REFERENCE.glob("*/*.ipynb")]


def render_runs(paths: Iterable[Path] | None = None) -> str:
    """Write a line for each published case that asks a store for anything."""
    prices = get_prices()
    lines = []
    for path in sorted(paths or find_runs()):
        found = count_run(read_records([path]))
        if not found["requests"]:
            continue
        asked = found["requests"] / 1e3 * prices["store_gets_1e3"]
        sent = found["gb"] * prices["data_out_gb"]
        lines.append(
            (
                f"{path.parent.name}/{path.stem}",
                f"{found['reads']:,.0f}",
                f"{found['requests']:,.0f}",
                f"{found['gb']:.1f}",
                f"{found['minutes']:.0f}",
                f"{asked:.2f}",
                f"{asked + sent:.2f}",
            )
        )
    names = ["case", "reads", "requests", "GB", "minutes", "USD in the region", "USD outside"]
    return write_table(names, lines)
