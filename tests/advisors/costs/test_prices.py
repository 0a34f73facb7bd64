"""Tests of `advisors.costs.prices`: the sets that ship, and what is refused."""

from __future__ import annotations

import csv
import math
from copy import deepcopy
from typing import Any

import pytest
import yaml

from advisors.costs.page_tables import TABLE
from advisors.costs.prices import (
    PATH,
    PRICE_UNITS,
    find_price,
    get_prices,
    parse_prices,
    read_prices,
)
from helpers.errors import UserError

# Names of the published table, and of ours.
SAME = {
    "lambda_runtime_price": "invocation_gb_s",
    "lambda_request_price": "invocations_1e6",
    "lambda_ephemeral_storage_price": "invocation_disk_gb_s",
    "nat_gateway_price": "nat_hour",
    "ec2_data_transfer_out_price": "data_out_gb",
    "efs_storage_price": "shared_gb_month",
    "efs_read_price": "shared_read_gb",
    "elasticache_t3_small_price": "redis_node_hour",
}


def test_every_set_has_every_item_with_its_source() -> None:
    """Each set prices every item once, and each price says where from and how sure."""
    assert list(read_prices()) == ["published-2023", "current"]
    for name, given in read_prices().items():
        assert set(get_prices(name)) == set(PRICE_UNITS)
        assert len(given.prices) == len(PRICE_UNITS)
        assert all(find_price(item, name).unit == unit for item, unit in PRICE_UNITS.items())
        assert all(price.source and price.date for price in given.prices), name
    current = read_prices()["current"]
    for price in current.prices:  # found only where its page is of the year of the set
        assert (price.status == "found") == (price.date[:4] == current.date[:4]), price.item


def test_published_prices_are_those_of_the_study() -> None:
    """The prices marked as published are the study's, each and no other."""
    with TABLE.open() as table:
        rows = {row["item"]: float(row["value"]) for row in csv.DictReader(table) if row["kind"] == "price"}  # fmt: skip
    ours = {
        price.item: price.value
        for price in read_prices()["published-2023"].prices
        if price.status == "published"
    }
    assert {SAME[item]: value for item, value in rows.items()} == ours


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda price: price.update(value=-1), "prices.0.value: .*greater than or equal to 0"),
        (lambda price: price.update(value=math.inf), "prices.0.value: .*finite"),
        (lambda price: price.pop("source"), "prices.0.source: Field required"),
        (lambda price: price.update(vat=0.2), "prices.0.vat: Extra inputs"),
        (lambda price: price.update(currency="EUR"), "prices.0.currency: "),
        (lambda price: price.update(unit="USD/MB-s"), "invocation_gb_s in 'USD/MB-s'; allowed: USD/GB-s"),
        (lambda price: price.update(item="gold"), "gold in 'USD/GB-s'; allowed: an item"),
    ],
)  # fmt: skip
def test_spoilt_prices_are_refused(spoil: Any, message: str) -> None:
    """A wrong price is refused in one line that names its set."""
    sets = deepcopy(yaml.safe_load(PATH.read_text()))
    spoil(sets["current"]["prices"][0])
    with pytest.raises(UserError, match=rf"^prices.yaml: current: {message}"):
        parse_prices(sets)
