"""The items of a bill: what prices there are, in which units, and what is no price."""

from __future__ import annotations

import math
from collections.abc import Mapping

from helpers.errors import UserError

__all__ = ["PRICE_UNITS", "STORAGE_UNITS", "check_prices"]

PRICE_UNITS: Mapping[str, str] = {
    "invocation_gb_s": "USD/GB-s",
    "invocations_1e6": "USD/1e6 requests",
    "invocation_disk_gb_s": "USD/GB-s",
    "instance_vcpu_hour": "USD/h",
    "instance_gb_hour": "USD/GB-h",
    "nat_hour": "USD/h",
    "nat_gb": "USD/GB",
    "data_out_gb": "USD/GB",
    "store_gets_1e3": "USD/1e3 requests",
    "shared_gb_month": "USD/GB-month",
    "shared_read_gb": "USD/GB",
    "shared_write_gb": "USD/GB",
    "redis_node_hour": "USD/h",
    "cdn_gb": "USD/GB",
    "cdn_requests_1e4": "USD/1e4 requests",
}
"""Every price that the bill of a tile service asks for, with its unit."""

STORAGE_UNITS: Mapping[str, str] = {"store_gb_month": "USD/GB-month"}
"""What keeping arrays costs: no bill of a tile service has it, a second copy of an array does."""


def check_prices(prices: Mapping[str, float]) -> None:
    """Refuse prices that no bill has.

    Parameters
    ----------
    prices : mapping of str to float
        USD by item, in the units of `PRICE_UNITS`.

    Raises
    ------
    UserError
        Naming the first item that is missing, unknown, negative or no number.
    """
    for item in prices:
        if item not in PRICE_UNITS:
            raise UserError(f"price {item}: no such item; allowed: {', '.join(PRICE_UNITS)}")
    for item, unit in PRICE_UNITS.items():
        if item not in prices:
            raise UserError(f"price {item} is missing; allowed is a number from 0 on, in {unit}")
        if not 0 <= prices[item] < math.inf:
            raise UserError(
                f"price {item} is {prices[item]:g}; allowed is a number from 0 on, in {unit}"
            )
