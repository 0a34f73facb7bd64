"""The cost model as it was published in 2023, rule by rule, to be compared with ours.

What is wrong with it stays in it, and is said where its figures are shown
:cite:p:`developmentseed2023`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from helpers.models.costs import SECONDS_PER_MONTH
from helpers.models.tariffs import check_prices

__all__ = ["PublishedLoad", "published_costs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLoad:
    """Hold the assumptions that were stated with the published figures.

    Parameters
    ----------
    requests_per_day : float
        Tiles a day, of which 30 days are a month.
    memory_gb, disk_gb : float
        Of one function.
    tile_gb : float
        Bytes of a response, GB.
    shared_read_gb : float
        Largest read from the shared file system for a request, GB.
    shared_mb_per_s_per_gb : float
        Reads that a bursting file system sustains for each GB that it holds, MB/s.
    """

    requests_per_day: float = 16e6
    memory_gb: float = 10
    disk_gb: float = 10
    tile_gb: float = 1.4e-6
    shared_read_gb: float = 0.001
    shared_mb_per_s_per_gb: float = 0.15


def published_costs(
    prices: Mapping[str, float], load: PublishedLoad | None = None
) -> dict[str, float]:
    """Compute every figure of the published table.

    Parameters
    ----------
    prices : mapping of str to float
        USD by item, as `helpers.models.tariffs.PRICE_UNITS`.
    load : PublishedLoad, optional
        What was assumed.

    Returns
    -------
    dict of str to float
        USD a month by the names of the published table.

    Raises
    ------
    UserError
        If a price is missing or negative.

    Examples
    --------
    One function of 1 GB, always on, at 1 USD a GB-s:

    >>> from helpers.models.tariffs import PRICE_UNITS
    >>> ones = dict.fromkeys(PRICE_UNITS, 1.0)
    >>> published_costs(ones, PublishedLoad(memory_gb=1))["lambda_runtime_cost"]
    2592000.0
    """
    check_prices(prices)
    load = load or PublishedLoad()
    requests = load.requests_per_day * 30
    # The study cuts both to whole numbers: 185 requests a second, 1233 GB.
    requests_per_s = math.floor(load.requests_per_day / 86400)
    stored_gb = math.floor(requests_per_s * load.shared_read_gb * 1e3 / load.shared_mb_per_s_per_gb)
    function = {
        "lambda_runtime_cost": prices["invocation_gb_s"] * load.memory_gb * SECONDS_PER_MONTH,
        "lambda_requests_cost": prices["invocations_1e6"] * requests / 1e6,
        "lambda_storage_cost": prices["invocation_disk_gb_s"] * load.disk_gb * SECONDS_PER_MONTH,
    }
    return {
        **function,
        "lambda_total_cost": math.fsum(function.values()),
        "nat_gateway_run_cost": prices["nat_hour"] * 720,
        "nat_gateway_transfer_out_cost": prices["data_out_gb"] * requests * load.tile_gb,
        "efs_storage_cost_upper_bound": prices["shared_gb_month"] * stored_gb,
        "efs_read_cost": prices["shared_read_gb"] * requests * load.shared_read_gb,
        "elasticache_t3_small_cost": prices["redis_node_hour"] * 720,
    }
