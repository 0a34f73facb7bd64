"""Prices: dated sets, each price with its unit, region and source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from helpers.errors import UserError, show

# Every price that an estimate asks for: its unit, and what it is in words.
_ITEMS: Mapping[str, tuple[str, str]] = {
    "instance_vcpu_hour": ("USD/h", "processor of an instance"),
    "instance_gb_hour": ("USD/GB-h", "memory of an instance"),
    "invocation_gb_s": ("USD/GB-s", "time of a function"),
    "invocations_1e6": ("USD/million requests", "calls of a function"),
    "invocation_disk_gb_s": ("USD/GB-s", "disk of a function"),
    "nat_hour": ("USD/h", "NAT gateway"),
    "data_out_gb": ("USD/GB", "data out to readers"),
    "store_gets_1e3": ("USD/thousand requests", "GET and HEAD requests to the store"),
    "store_lists_1e3": ("USD/thousand requests", "LIST requests to the store"),
    "store_gb_month": ("USD/GB-month", "storage in the object store"),
    "shared_gb_month": ("USD/GB-month", "storage of a shared file system"),
    "shared_read_gb": ("USD/GB", "reads from a shared file system"),
    "redis_node_hour": ("USD/h", "Redis node"),
    "cdn_gb": ("USD/GB", "data out of the CDN"),
    "cdn_requests_1e4": ("USD/ten thousand requests", "requests to the CDN"),
}
PRICE_UNITS: Mapping[str, str] = {item: unit for item, (unit, _) in _ITEMS.items()}
PRICE_LABELS: Mapping[str, str] = {item: label for item, (_, label) in _ITEMS.items()}

PATH = Path(__file__).with_name("prices.yaml")
DEFAULT_SET, DEFAULT_REGION = "current", "us-east-1"
MOST = 1e6
"""The highest price that is taken for one."""

BILLED_GB_NBYTES = 2**30
"""Bytes of a GB on a bill: S3 counts storage in 1,073,741,824 bytes, as the examples of its questions and answers do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One price, of the items of `PRICE_UNITS`."""

    item: str
    unit: str
    value: float | None  # None where it is unknown
    currency: str
    region: str  # where it holds
    date: str  # when it stood in its source
    source: str
    status: str  # how far it can be trusted, as the head of prices.yaml says


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSet:
    """Prices of one date."""

    date: str  # when they were gathered
    note: str
    prices: tuple[Price, ...]  # at most one for each item


@cache
def read_prices() -> Mapping[str, PriceSet]:
    """Read the sets that ship with the project."""
    sets = yaml.safe_load(PATH.read_text(encoding="utf-8"))
    return {
        name: PriceSet(**one | {"prices": tuple(Price(**each) for each in one["prices"])})
        for name, one in sets.items()
    }


def get_prices(
    name: str = DEFAULT_SET, *, overrides: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Choose prices (USD, by item, in the units of `PRICE_UNITS`); `overrides` are the user's own.

    Unknown sets and items are refused, and unknown, missing and negative prices.
    """
    if name not in (sets := read_prices()):
        raise UserError(f"price set is {show(name)}; allowed are {', '.join(sets)}")
    chosen = {**{one.item: one.value for one in sets[name].prices}, **(overrides or {})}
    for item, value in chosen.items():
        if item not in PRICE_UNITS:
            raise UserError(f"price {show(item)}: no such item; allowed: {', '.join(PRICE_UNITS)}")
        if value is None or not 0 <= value <= MOST:
            told = "unknown" if value is None else f"{value:g}"
            unit = PRICE_UNITS[item]
            raise UserError(
                f"price {item} is {told}; allowed is a number from 0 to {MOST:g}, in {unit}"
            )
    return {item: float(value or 0) for item, value in chosen.items()}


def find_price(item: str) -> Price:
    """Look up one price that ships with the project, with its date and source."""
    prices = {one.item: one for one in read_prices()[DEFAULT_SET].prices}
    if item not in prices:
        raise UserError(f"price {show(item)}; allowed: {', '.join(prices)}")
    return prices[item]
