"""Tables for pages: which cache to choose, and what cases ask of a store, published ones and others."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from advisors.costs.assumptions import Assumptions, Option, change
from advisors.costs.bill import Cost, compare_options
from advisors.costs.calculator import DEFAULT_SET, ONE_PROCESSOR_GB, REGION, write_usd
from advisors.costs.prices import get_prices, read_prices
from helpers.benchmark.record import read_records
from helpers.book.studies import Expected, write_table
from helpers.paths import ROOT

RATES_PER_S = (1.0, 20.0, 185.0)
N_DATASETS = (10, 1_000, 100_000)
CHANGES: Mapping[str, float] = {
    "data never change": 30 * 86400.0,
    "they change daily": 86400.0,
    "they change each minute": 60.0,
}
"""Seconds for which an opened dataset may be kept, at most, by how often data change."""

_WORTH = 0.05  # of the cost without a cache: a smaller saving pays for no cache
_NAMES: Mapping[Option, str] = {
    "none": "no cache",
    "disk": "disk of each instance",
    "shared": "shared file system",
    "redis": "Redis",
    "cdn": "CDN",
    "process": "memory of each process",
    "cdn-process": "CDN, then memory of each process",
}


def choose(costs: Mapping[Option, Cost]) -> Cost:
    """Choose the cheapest option; no cache, where the best saves less than a twentieth."""
    best = min(costs.values(), key=lambda cost: cost.usd)
    none = costs["none"]
    return best if best.usd <= (1 - _WORTH) * none.usd else none


def tabulate_choices(
    assumptions: Assumptions,
    prices: Mapping[str, float],
    *,
    rates_per_s: Sequence[float] = RATES_PER_S,
    n_datasets: Sequence[int] = N_DATASETS,
) -> list[tuple[str, ...]]:
    """Tell the choice at each rate and number of datasets, a cell for each of `CHANGES`.

    Nothing is kept for longer than data stay the same, so that no tile is of data that are
    no more by longer than that.
    """
    lines = []
    for rate, n in itertools.product(rates_per_s, n_datasets):
        cells = []
        for kept_s in CHANGES.values():
            changed = {
                "requests_per_s": rate,
                "n_datasets": n,
                "ttl_s": kept_s,
                "cdn_ttl_s": min(assumptions.cdn_ttl_s, kept_s),
            }
            cells.append(_tell(compare_options(change(assumptions, changed), prices)))
        lines.append((f"{rate:g} tile{'s' * (rate != 1)}/s, {n:,} datasets", *cells))
    return lines


def _tell(costs: Mapping[Option, Cost]) -> str:
    """Name the choice, what it costs, and the cost without."""
    best, without = choose(costs), costs["none"].usd
    if best.option == "none":
        return f"no cache, {write_usd(without)}"
    return f"{_NAMES[best.option]}, {write_usd(best.usd)} (without: {write_usd(without)})"


def render_choices(measured: Mapping[str, float] | None = None) -> str:
    """Write the table for the page: the service as measured, the load of the published study but for what varies.

    An invocation has the memory of one processor, since its memory changes the bill more than a
    cache does, and is to be turned first.
    """
    given = change(Assumptions(), {**(measured or {}), "memory_gb": ONE_PROCESSOR_GB})
    prices = get_prices(DEFAULT_SET, REGION)
    before, after = (
        compare_options(one, prices)["none"].usd
        for one in (change(given, {"memory_gb": Assumptions().memory_gb}), given)
    )
    sized = (
        f"Computing is billed by invocation here, with {ONE_PROCESSOR_GB:g} GB each, which is one processor. Without a cache that alone"
        f" turns {write_usd(before)} a month into {write_usd(after)},"
        f" at {given.requests_per_s:g} tiles a second, where the published study took {Assumptions().memory_gb:g} GB.\n\n"
    )
    names = ["load", *CHANGES]
    return sized + write_table(names, tabulate_choices(given, prices))


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
    found, prices = count_run(rows), get_prices(DEFAULT_SET, REGION)
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
        f"prices of {REGION}, {read_prices()[DEFAULT_SET].date}",
    )


def find_runs() -> list[Path]:
    """Find the published records of cases: those that have an executed notebook beside them."""
    return [path.with_suffix(".csv") for path in REFERENCE.glob("*/*.ipynb")]


def render_runs(paths: Iterable[Path] | None = None) -> str:
    """Write a line for each published case that asks a store for anything."""
    prices = get_prices(DEFAULT_SET, REGION)
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
