"""What a cache of opened datasets gains a tile service, and what it costs."""

import importlib
import re
from collections.abc import Mapping
from typing import Any

from helpers.book.studies import Study, Threshold, later
from helpers.paths import ROOT

_TILES_PER_S = 4  # that a user asks for, who waits for answers


def _render(module: str, name: str, *given: dict[str, float]) -> str:
    """Write a part of a page by a module that is imported when it is asked for."""
    return str(getattr(importlib.import_module(module), name)(*given))


def read_measured() -> dict[str, float]:
    """Read, from its page, what the reference measured in the place of the model's defaults."""
    path = ROOT / "results" / "reference" / "caching-costs" / "in-region.ipynb"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    _, _, table = text.partition("<th>assumption</th>")
    lines = re.sub(r'",?\s*"|\\n', "", table.partition("</table>")[0])
    cells = re.findall(r"<th>(\w+)</th>\s*<td>[^<]*</td>\s*<td>([\d.e+-]+)</td>", lines)
    return {name: float(value) for name, value in cells}


def count_work(values: Mapping[str, Any]) -> tuple[float, float]:
    """Count tiles: requests grow with them, bytes also with the area of a map.

    Users of the sweep ask as fast as they are answered, some four tiles a second each.

    Examples
    --------
    >>> sweep = {"sweep_caches": ["none"], "sweep_users": [2], "sweep_rates": [4.0], "sweep_s": 1.0}
    >>> count_work({**sweep, "caches": ["none"], "n_requests": 28, "n_blocks": 5, "map_scale": 0.5})
    (200.0, 50.0)
    """
    per_s = _TILES_PER_S * sum(values.get("sweep_users", ())) + sum(values.get("sweep_rates", ()))
    n_tiles = len(values["caches"]) * values["n_requests"]
    n_tiles += len(values.get("sweep_caches", ())) * values.get("sweep_s", 0) * per_s
    n_tiles *= values["n_blocks"]
    return n_tiles, n_tiles * values["map_scale"] ** 2


STUDY = Study(
    name="caching-costs",
    headline="best-throughput",
    # what the published case asks for, scaled
    expect=later(
        "advisors.costs.page_tables", "expect_like", "caching-costs/in-region", count_work
    ),
    fragments={
        "caching-claims.md": lambda: _render("studies.caching_costs.claims", "render_claims"),
        "caching-published-size.md": lambda: _render(
            "studies.caching_costs.claims", "render_published_size"
        ),
        "cost-calculator.md": lambda: _render(
            "advisors.costs.calculator", "render_calculator", read_measured()
        ),
        "cheapest.md": lambda: _render(
            "advisors.costs.page_tables", "render_choices", read_measured()
        ),
        "runs.md": lambda: _render("advisors.costs.page_tables", "render_runs"),
        "prices.md": lambda: _render("advisors.costs.calculator", "render_prices"),
        "published-costs.md": lambda: _render("advisors.costs.calculator", "render_published"),
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
