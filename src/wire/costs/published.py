"""The published study of tile caches: each of its figures, by its own rules and prices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from wire.costs.prices import get_prices

TABLE = Path(__file__).with_name("tile_caching_costs.csv")
"""Inputs, prices and results as they were published."""

REQUESTS_PER_DAY = 16e6  # tiles; a month is 30 days
FUNCTION_GB, DISK_GB = 10, 10  # of the one function
TILE_GB = 1.4e-6  # of a response of 1.4 kB: the study counts a GB as 1e9 bytes, bills as 2^30
SHARED_READ_GB = 0.001  # largest read from the shared file system for a request
SHARED_MB_PER_S_PER_GB = 0.15  # reads that a bursting file system sustains for each GB it holds
MONTH_S, MONTH_H = 2_592_000, 720


def compute_published(prices: Mapping[str, float]) -> dict[str, float]:
    """Compute every figure of the published table, in USD a month.

    Examples
    --------
    One function of 10 GB, always on:

    >>> round(compute_published(get_prices("published-2023"))["lambda_runtime_cost"], 2)
    432.0
    """
    requests = REQUESTS_PER_DAY * 30
    # The study cuts both to whole numbers: 185 requests a second, 1233 GB.
    per_s = math.floor(REQUESTS_PER_DAY / 86400)
    stored_gb = math.floor(per_s * SHARED_READ_GB * 1e3 / SHARED_MB_PER_S_PER_GB)
    function = {
        "lambda_runtime_cost": prices["invocation_gb_s"] * FUNCTION_GB * MONTH_S,
        "lambda_requests_cost": prices["invocations_1e6"] * requests / 1e6,
        "lambda_storage_cost": prices["invocation_disk_gb_s"] * DISK_GB * MONTH_S,
    }
    return {
        **function,
        "lambda_total_cost": math.fsum(function.values()),
        "nat_gateway_run_cost": prices["nat_hour"] * MONTH_H,
        "nat_gateway_transfer_out_cost": prices["data_out_gb"] * requests * TILE_GB,
        "efs_storage_cost_upper_bound": prices["shared_gb_month"] * stored_gb,
        "efs_read_cost": prices["shared_read_gb"] * requests * SHARED_READ_GB,
        "elasticache_t3_small_cost": prices["redis_node_hour"] * MONTH_H,
    }


def compare_published() -> pd.DataFrame:
    """Put each published figure next to what the published rules and prices give, by item."""
    table = pd.read_csv(TABLE)
    published = table[table["kind"] == "result"].set_index("item")["value"].astype(float)
    computed = pd.Series(compute_published(get_prices("published-2023")))
    return pd.DataFrame({"published": published, "by_its_rules": computed}).loc[published.index]
