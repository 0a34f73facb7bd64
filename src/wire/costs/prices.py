"""Prices: dated sets, each price with its unit, region and source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from wire.errors import UserError, show

# Every price that an estimate asks for: its unit, and what it is in words.
_ITEMS: Mapping[str, tuple[str, str]] = {
    "instance_vcpu_hour": ("USD/h", "processor of an instance"),
    "instance_gb_hour": ("USD/GB-h", "memory of an instance"),
    "invocation_gb_s": ("USD/GB-s", "time of a function"),
    "invocations_1e6": ("USD/million requests", "calls of a function"),
    "invocation_disk_gb_s": ("USD/GB-s", "disk of a function"),
    "nat_hour": ("USD/h", "NAT gateway"),
    "data_out_gb": ("USD/GB", "data out to readers"),
    "data_to_region_gb": ("USD/GB", "data to another region of the provider"),
    "store_gets_1e3": ("USD/thousand requests", "GET and HEAD requests to the store"),
    "store_puts_1e3": ("USD/thousand requests", "PUT, COPY, POST and LIST requests to the store"),
    "store_gb_month": ("USD/GB-month", "storage in the object store"),
    "shared_gb_month": ("USD/GB-month", "storage of a shared file system"),
    "shared_read_gb": ("USD/GB", "reads from a shared file system"),
    "redis_node_hour": ("USD/h", "Redis node"),
    "cdn_gb": ("USD/GB", "data out of the CDN"),
    "cdn_requests_1e4": ("USD/ten thousand requests", "requests to the CDN"),
}
PRICE_UNITS: Mapping[str, str] = {item: unit for item, (unit, _) in _ITEMS.items()}
PRICE_LABELS: Mapping[str, str] = {item: label for item, (_, label) in _ITEMS.items()}

_EGRESS: Mapping[str, str] = {"other": "data_to_region_gb", "outside": "data_out_gb"}
"""What a byte that is read costs beside its request, by the region of the reader."""

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
    """Prices of one date and one provider."""

    provider: str  # as profiles name it
    date: str  # when they were gathered
    note: str
    prices: tuple[Price, ...]  # at most one for each item


@cache
def read_prices() -> Mapping[str, PriceSet]:
    """Read the sets that ship with the project."""
    sets = yaml.safe_load(PATH.read_text(encoding="utf-8"))
    return {
        name: PriceSet(**entry | {"prices": tuple(Price(**price) for price in entry["prices"])})
        for name, entry in sets.items()
    }


def get_prices(
    name: str = DEFAULT_SET, *, overrides: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Choose prices (USD, by item, in the units of `PRICE_UNITS`); `overrides` are the user's own.

    Unknown sets and items are refused, and unknown, missing and negative prices.
    """
    if name not in (sets := read_prices()):
        raise UserError("price set", show(name), ", ".join(sets))
    chosen = {**{price.item: price.value for price in sets[name].prices}, **(overrides or {})}
    for item, value in chosen.items():
        if item not in PRICE_UNITS:
            raise UserError(f"price {show(item)}", "no such item", ", ".join(PRICE_UNITS))
        if value is None or not 0 <= value <= MOST:
            shown = "unknown" if value is None else f"{value:g}"
            unit = PRICE_UNITS[item]
            raise UserError(f"price {item}", shown, f"a number from 0 to {MOST:g}, in {unit}")
    return {item: float(value or 0) for item, value in chosen.items()}


def find_price(item: str) -> Price:
    """Look up one price that ships with the project, with its date and source."""
    prices = {price.item: price for price in read_prices()[DEFAULT_SET].prices}
    if item not in prices:
        raise UserError(f"price {show(item)}", "no such item", ", ".join(prices))
    return prices[item]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePrices:
    """What storing, reading and writing in a store costs, in USD, and whose prices these are."""

    storage: float  # of a byte that is kept for a month
    get: float  # of a request that reads
    put: float  # of a request that writes
    out: float  # of a byte that is read
    items: Mapping[str, float]  # they come from, in the units of `PRICE_UNITS`
    source: str  # in a few words

    @property
    def is_egress(self) -> bool:
        """Whether bytes that are read leave the region of the store."""
        return any(item in self.items for item in _EGRESS.values())


def list_store_items(region: str) -> tuple[str, ...]:
    """List the prices that a reader in a region of `wire.bed.networks` meets.

    Where the region is unknown, bytes may leave, so their price is asked for.
    """
    egress = "" if region == "same" else _EGRESS.get(region, "data_out_gb")
    items = ("store_gb_month", "store_gets_1e3", "store_puts_1e3", egress)
    return tuple(filter(None, items))


def find_store_prices(
    provider: str, region: str, overrides: Mapping[str, float] | None = None
) -> StorePrices | tuple[str, ...]:
    """Find the prices of a store, or the items for which there is no price.

    They follow from provider and region alone; `overrides` are the user's own, by item.
    """
    own, items = dict(overrides or {}), list_store_items(region)
    for item in own:
        if item not in items:
            raise UserError(f"price {show(item)}", "not of this store", ", ".join(items))
    get_prices(overrides=own)  # refuses what is no price
    current, by_item = read_prices()[DEFAULT_SET], dict[str, float]()
    if provider == current.provider:
        by_item = {price.item: price.value for price in current.prices if price.value is not None}
        if region == "unknown":  # nobody knows whether bytes leave
            by_item.pop(_EGRESS["outside"])
    priced = {item: {**by_item, **own}[item] for item in items if item in by_item or item in own}
    if missing := tuple(item for item in items if item not in priced):
        return missing
    source = (
        f"{current.provider.upper()} {DEFAULT_REGION}, {current.date}"
        + ", and your own" * bool(own)
    )
    if {*items} <= {*own}:
        source = "your own"
    egress = sum(priced[item] for item in _EGRESS.values() if item in priced)
    return StorePrices(
        storage=priced["store_gb_month"] / BILLED_GB_NBYTES,
        get=priced["store_gets_1e3"] / 1000,
        put=priced["store_puts_1e3"] / 1000,
        out=egress / BILLED_GB_NBYTES,
        items=priced,
        source=source,
    )
