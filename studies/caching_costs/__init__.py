"""What a cache of opened datasets gains a tile service, and what it costs."""

from collections.abc import Mapping
from typing import Any

from helpers.book.studies import Study, later

_TILES_PER_S = 4  # that a user asks for, who waits for answers


def count_work(values: Mapping[str, Any]) -> tuple[float, float]:
    """Count tiles: requests grow with them, bytes also with the area of a map.

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
    by_name=("published-size",),
    # what the published case asks for, scaled
    expect=later(
        "advisors.costs.page_tables", "expect_like", "caching-costs/in-region", count_work
    ),
    fragments={
        "cost-calculator.md": later("advisors.costs.page_tables", "render_calculator"),
        "prices.md": later("advisors.costs.page_tables", "render_prices"),
        "published-costs.md": later("advisors.costs.page_tables", "render_published"),
        "runs.md": later("advisors.costs.page_tables", "render_runs"),
    },
)
