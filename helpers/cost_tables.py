"""What a case asks of a store, and what that costs, from the record of a published case."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from helpers.benchmark.record import read_records
from helpers.parameters import Expected
from helpers.paths import ROOT
from wire.costs.prices import DEFAULT_REGION, DEFAULT_SET, get_prices, read_prices

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
    """Scale what a published case asked of its store to a case with other parameters, defaults included.

    `work` tells from the parameters of a case how many requests and bytes it takes, in any unit: what the
    published case took of each such unit is taken for this one too.
    """
    rows = read_records([REFERENCE / f"{title}.csv"])
    run, prices = count_run(rows), get_prices()
    n_blocks = int(rows.loc[rows["phase"] == "measured", "block"].max()) + 1
    published = work(json.loads(rows["parameters"].iloc[0]) | {"n_blocks": n_blocks})
    scales = [mine / reference for mine, reference in zip(work(values), published, strict=True)]
    n_requests, gb = run["requests"] * scales[0], run["gb"] * scales[1]
    requests_usd = n_requests / 1e3 * prices["store_gets_1e3"]
    return Expected(
        n_requests,
        gb,
        requests_usd,
        requests_usd + gb * prices["data_out_gb"],
        f"prices of {DEFAULT_REGION}, {read_prices()[DEFAULT_SET].date}",
    )
