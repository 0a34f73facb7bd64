"""What the page of costs includes: the data of the calculator, and what published cases cost."""

from __future__ import annotations

import json

from helpers.benchmark.record import read_records
from helpers.cost_tables import REFERENCE, count_run
from helpers.parameters import write_table
from wire.costs.bill import NAMES, ONE_PROCESSOR_GB, STALE, describe
from wire.costs.prices import (
    DEFAULT_REGION,
    DEFAULT_SET,
    PRICE_LABELS,
    PRICE_UNITS,
    get_prices,
    read_prices,
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
