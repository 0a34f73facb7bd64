"""What a cache of opened datasets gains a tile service, and what it costs."""

import importlib
import re

from helpers.book.studies import Study, Threshold
from helpers.paths import ROOT


def _render(module: str, name: str, *given: dict[str, float]) -> str:
    """Write a part of a page by a module of the cost advisor, which is imported when it is asked for."""
    return str(getattr(importlib.import_module(f"advisors.costs.{module}"), name)(*given))


def read_measured() -> dict[str, float]:
    """Read, from its page, what the reference measured in the place of the model's defaults."""
    path = ROOT / "results" / "reference" / "caching-costs" / "in-region.ipynb"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    _, _, table = text.partition("<th>assumption</th>")
    lines = re.sub(r'",?\s*"|\\n', "", table.partition("</table>")[0])
    cells = re.findall(r"<th>(\w+)</th>\s*<td>[^<]*</td>\s*<td>([\d.e+-]+)</td>", lines)
    return {name: float(value) for name, value in cells}


STUDY = Study(
    name="caching-costs",
    headline="best-throughput",
    fragments={
        "cost-calculator.md": lambda: _render("calculator", "render_calculator", read_measured()),
        "cheapest.md": lambda: _render("page_tables", "render_choices"),
        "runs.md": lambda: _render("page_tables", "render_runs"),
        "prices.md": lambda: _render("calculator", "render_prices"),
        "published-costs.md": lambda: _render("calculator", "render_published"),
    },
    thresholds=(
        Threshold(
            key="worst-prediction-error",
            name="caching: prediction error (%)",
            bound=15,
            is_least=False,
            how="median latency with a cache, predicted from requests that were alone, largest over caches",
        ),
        Threshold(
            key="hit-ratio-error",
            name="caching: error of the hit ratio (percentage points)",
            bound=1,
            is_least=False,
            how="predicted by Che's approximation against a real cache, 100 datasets",
        ),
        Threshold(
            key="failed-requests",
            name="caching: failed requests, but those that must fail",
            bound=0,
            is_least=False,
            how="of all contenders and blocks",
        ),
    ),
)
