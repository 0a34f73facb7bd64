"""What the calculator's page is made of: its data, the prices with their sources, the published figures."""

from __future__ import annotations

import json
from typing import Any

from advisors.costs.assumptions import NAMES, ONE_PROCESSOR_GB, describe
from advisors.costs.prices import (
    DEFAULT_REGION,
    DEFAULT_SET,
    PRICE_LABELS,
    PRICE_UNITS,
    get_prices,
    read_prices,
)
from advisors.costs.published import compare_published
from helpers.book.studies import write_table


def list_calculator_data() -> dict[str, Any]:
    """Gather what the calculator's script needs."""
    sets = {
        name: {"date": one.date, "region": DEFAULT_REGION, "values": get_prices(name)}
        for name, one in read_prices().items()
    }
    items = [
        {"item": item, "label": PRICE_LABELS[item], "unit": unit}
        for item, unit in PRICE_UNITS.items()
    ]
    return {
        "assumptions": describe(),
        "names": dict(NAMES),
        "one_processor_gb": ONE_PROCESSOR_GB,
        "items": items,
        "sets": sets,
        "set": DEFAULT_SET,
    }


def render_calculator() -> str:
    """Write the calculator's place in its page, with its data."""
    # A closing tag inside the data would end the script.
    data = json.dumps(list_calculator_data(), indent=1).replace("</", "<\\/")
    return (
        "```{raw} html\n"
        '<div id="cost-calculator"><p>The calculator runs in your browser and needs JavaScript; '
        "<code>wire costs</code> computes the same.</p></div>\n"
        f'<script type="application/json" id="cost-calculator-data">\n{data}\n</script>\n'
        "```\n"
    )


def render_prices() -> str:
    """Write all price sets as tables, with where each price comes from."""
    names = ["price", "value", "date", "status", "source"]
    parts = []
    for name, given in read_prices().items():
        lines = [
            (
                PRICE_LABELS[one.item],
                "unknown" if one.value is None else f"{one.value:.10f}".rstrip("0") + f" {one.unit}",
                one.date,
                one.status.replace("-", " "),
                one.source,
            )
            for one in given.prices
        ]  # fmt: skip
        parts.append(f"**{name}** ({given.date}). {given.note}\n\n{write_table(names, lines)}")
    return "\n".join(parts)


def render_published() -> str:
    """Write the published figures next to what their own rules give."""
    lines = (
        (str(item).replace("_", " "), f"{one.published:,.2f}", f"{one.by_its_rules:,.2f}")
        for item, one in compare_published().iterrows()
    )
    return write_table(["item", "published (USD a month)", "by its rules (USD a month)"], lines)
