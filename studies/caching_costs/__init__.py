"""What a cache of opened datasets gains a tile service, and what it costs."""

import re

from helpers.book.studies import Study, Threshold
from helpers.paths import ROOT


def _render(name: str, *given: dict[str, float]) -> str:
    """Write a part of the calculator's page, which is imported when it is asked for."""
    from advisors.costs import calculator

    return str(getattr(calculator, name)(*given))


def read_measured() -> dict[str, float]:
    """Read, from its page, what the reference measured in the place of the model's defaults."""
    path = ROOT / "results" / "reference" / "caching-costs" / "in-region.ipynb"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    _, _, table = text.partition("<th>assumption</th>")
    lines = re.sub(r'",?\s*"|\\n', "", table.partition("</table>")[0])
    cells = re.findall(r"<th>(\w+)</th>\s*<td>[^<]*</td>\s*<td>([\d.e+-]+)</td>", lines)
    return {name: float(value) for name, value in cells}


def _render_choices() -> str:
    """Write the cheapest option by load; imported when it is asked for."""
    from advisors.costs.cheapest import render_choices

    return render_choices()


def _render_runs() -> str:
    """Write what each published case asks of a store; imported when it is asked for."""
    from advisors.costs.runs import render_runs

    return render_runs()


STUDY = Study(
    name="caching-costs",
    headline="best-throughput",
    fragments={
        "cost-calculator.md": lambda: _render("render_calculator", read_measured()),
        "cheapest.md": _render_choices,
        "runs.md": _render_runs,
        "prices.md": lambda: _render("render_prices"),
        "published-costs.md": lambda: _render("render_published"),
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
            bound=3,
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
