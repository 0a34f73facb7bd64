"""What pages show of costs: the calculator's data, and what cases ask of a store and cost there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from helpers.benchmark.record import read_records
from helpers.parameters import Expected, write_table
from helpers.paths import ROOT
from wire.costs.bill import NAMES, ONE_PROCESSOR_GB, STALE, describe
from wire.costs.prices import (
    DEFAULT_REGION,
    DEFAULT_SET,
    PRICE_LABELS,
    PRICE_UNITS,
    get_prices,
    read_prices,
)

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


def render_runs() -> str:
    """Write a line for each published case that asks a store for anything."""
    prices, lines = get_prices(), []
    for page in sorted(REFERENCE.glob("*/*.ipynb")):
        run = count_run(read_records([page.with_suffix(".csv")]))
        if run["requests"]:
            counts = [f"{run[name]:,.{n}f}" for name, n in (("reads", 0), ("requests", 0), ("gb", 1), ("minutes", 0))]  # fmt: skip
            requests_usd = run["requests"] / 1e3 * prices["store_gets_1e3"]
            sent = run["gb"] * prices["data_out_gb"]
            usd = f"{requests_usd:.2f}", f"{requests_usd + sent:.2f}"
            lines.append((f"{page.parent.name}/{page.stem}", *counts, *usd))
    names = ["case", "reads", "requests", "GB", "minutes", "USD in the region", "USD outside"]
    return write_table(names, lines)


def render_calculator() -> str:
    """Write the calculator's place in its page, with what its script needs."""
    data_of_page = {
        "assumptions": describe(),
        "names": dict(NAMES),
        "stale": dict(STALE),
        "one_processor_gb": ONE_PROCESSOR_GB,
        "items": [
            {"item": item, "label": PRICE_LABELS[item], "unit": unit}
            for item, unit in PRICE_UNITS.items()
        ],
        "sets": {
            name: {"date": price_set.date, "region": DEFAULT_REGION, "values": get_prices(name)}
            for name, price_set in read_prices().items()
        },
        "set": DEFAULT_SET,
    }
    # A closing tag inside the data would end the script.
    data = json.dumps(data_of_page, indent=1).replace("</", "<\\/")
    return (
        "```{raw} html\n"
        '<div id="cost-calculator"><p>The calculator runs in your browser and needs JavaScript; '
        "<code>wire costs</code> computes the same.</p></div>\n"
        f'<script type="application/json" id="cost-calculator-data">\n{data}\n</script>\n'
        "```\n"
    )
