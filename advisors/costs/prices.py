"""Prices: dated sets, each price with its unit, region and source, and the items of a bill."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from helpers.errors import UserError

PRICE_UNITS: Mapping[str, str] = {
    "invocation_gb_s": "USD/GB-s",
    "invocations_1e6": "USD/million requests",
    "invocation_disk_gb_s": "USD/GB-s",
    "instance_vcpu_hour": "USD/h",
    "instance_gb_hour": "USD/GB-h",
    "nat_hour": "USD/h",
    "nat_gb": "USD/GB",
    "data_out_gb": "USD/GB",
    "store_gets_1e3": "USD/thousand requests",
    "store_lists_1e3": "USD/thousand requests",
    "shared_gb_month": "USD/GB-month",
    "shared_read_gb": "USD/GB",
    "shared_write_gb": "USD/GB",
    "redis_node_hour": "USD/h",
    "cdn_gb": "USD/GB",
    "cdn_requests_1e4": "USD/ten thousand requests",
}
"""Every price that the bill of a tile service asks for, with its unit."""

STORAGE_UNITS: Mapping[str, str] = {"store_gb_month": "USD/GB-month"}
"""What keeping arrays costs: no bill of a tile service has it, a second copy of an array does."""


def check_prices(prices: Mapping[str, float]) -> None:
    """Refuse prices that no bill has."""
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


Status = Literal["published", "found", "taken-over", "unknown"]

PATH = Path(__file__).with_name("prices.yaml")


class Price(BaseModel):
    """One price, in the words of `PRICE_UNITS` and `STORAGE_UNITS`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    item: str
    unit: str
    value: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None  # None where it is unknown
    currency: Literal["USD"]
    region: str  # where it holds
    date: str  # when it stood in its source
    source: str
    status: Status  # how far it can be trusted


class PriceSet(BaseModel):
    """Prices of one date."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    date: str  # when they were gathered
    note: str
    prices: tuple[Price, ...]  # at most one for each item and region


def parse_prices(given: Any, where: str = PATH.name) -> dict[str, PriceSet]:
    """Check price sets that come from YAML."""
    if not isinstance(given, Mapping) or not given:
        raise UserError(f"{where}: holds no price set; allowed are named sets of prices")
    return {str(name): _parse_set(one, f"{where}: {name}") for name, one in given.items()}


def _parse_set(given: Any, where: str) -> PriceSet:
    """Check one set."""
    try:
        found = PriceSet.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{where}: {place}: {first['input']!r}; {first['msg']}") from error
    seen, units = set(), {**PRICE_UNITS, **STORAGE_UNITS}
    for price in found.prices:
        allowed = units.get(price.item, "the items of the model")
        if allowed != price.unit:
            raise UserError(f"{where}: {price.item} in {price.unit!r}; allowed is {allowed}")
        if (price.item, price.region) in seen:
            raise UserError(f"{where}: {price.item} in {price.region} is there twice")
        if (price.value is None) != (price.status == "unknown"):
            raise UserError(f"{where}: {price.item} is {price.value!r} but {price.status}")
        seen.add((price.item, price.region))
    return found


@cache
def read_prices() -> Mapping[str, PriceSet]:
    """Read the sets that ship with the project.

    Examples
    --------
    >>> list(read_prices())
    ['published-2023', 'current']
    """
    return parse_prices(yaml.safe_load(PATH.read_text(encoding="utf-8")))


def get_prices(
    name: str = "current",
    region: str = "us-east-1",
    *,
    overrides: Mapping[str, float] | None = None,
    sets: Mapping[str, PriceSet] | None = None,
) -> dict[str, float]:
    """Choose the prices to estimate the bill of a tile service with.

    `overrides` are the user's own, by item, in the units of `PRICE_UNITS`. Unknown sets and
    regions are refused, and unknown, missing and negative prices.

    Examples
    --------
    >>> get_prices("published-2023")["redis_node_hour"]
    0.034
    >>> get_prices(overrides={"redis_node_hour": 0.05})["redis_node_hour"]
    0.05
    """
    sets = read_prices() if sets is None else sets
    if name not in sets:
        raise UserError(f"price set is {name!r}; allowed are {', '.join(sets)}")
    regions = sorted({price.region for price in sets[name].prices})
    if region not in regions:
        raise UserError(f"region is {region!r}; allowed for {name} are {', '.join(regions)}")
    known = {
        price.item: price.value
        for price in sets[name].prices
        if price.region == region and price.item in PRICE_UNITS and price.value is not None
    }
    chosen = {**known, **(overrides or {})}
    check_prices(chosen)
    return chosen


def find_price(item: str, name: str = "current", *, region: str = "us-east-1") -> Price:
    """Find one price that ships with the project, with its date and source.

    Examples
    --------
    >>> find_price("store_gb_month").unit
    'USD/GB-month'
    """
    prices = [price for price in read_prices()[name].prices if price.region == region]
    for price in prices:
        if price.item == item:
            return price
    raise UserError(
        f"price {item}; allowed for {name} in {region}: {', '.join(p.item for p in prices)}"
    )
