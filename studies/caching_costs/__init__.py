"""What a cache of opened datasets gains a tile service, and what it costs."""

from collections.abc import Mapping
from typing import Any

from helpers.parameters import Study, lazy_import


def count_work(values: Mapping[str, Any]) -> tuple[float, float]:
    """Count tiles: requests grow with them, bytes also with the area of a map.

    Examples
    --------
    >>> load = {"maps": ["netcdf", "broken"], "n_tiles": 5, "users": [16], "rates": [6.0]}
    >>> count_work({**load, "caches": ["none"], "n_blocks": 4, "map_scale": 0.5})
    (260.0, 65.0)
    """
    whole = values["n_tiles"] * len([name for name in values["maps"] if name != "broken"])
    least = [3, *(3 * n for n in values["users"]), *(2 * rate for rate in values["rates"])]
    n_tiles = sum(max(whole, n) for n in least)
    n_tiles *= len(values["caches"]) * values["n_blocks"]
    return n_tiles, n_tiles * values["map_scale"] ** 2


STUDY = Study(
    name="caching-costs",
    headline="gain-as-shipped",
    headlines={
        "four-caches": "disk-over-redis",
        "keyed-by-etag": "gain-lru-etag",
        "published-size": "gain-filecache",
    },
    by_name=("four-caches", "keyed-by-etag", "published-size"),
    # what the published case asks for, scaled
    expect=lazy_import("helpers.cost_tables", "expect_like", "caching-costs/in-region", count_work),
    fragments={
        "cost-calculator.md": lazy_import("studies.caching_costs.cost_pages", "render_calculator"),
        "runs.md": lazy_import("studies.caching_costs.cost_pages", "render_runs"),
    },
)
