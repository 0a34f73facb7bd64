"""Tests of `advisors.costs.prices`: the sets that ship, and what is refused."""

from __future__ import annotations

import csv
import math
from copy import deepcopy
from typing import Any

import pytest
import yaml

from advisors.costs.prices import (
    PATH,
    PRICE_UNITS,
    STORAGE_UNITS,
    find_price,
    get_prices,
    parse_prices,
    read_prices,
)
from helpers.errors import UserError
from helpers.paths import ROOT

PUBLISHED = ROOT / "results" / "published" / "tile_caching_costs.csv"

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
    """Each set prices every item of the model, and each price says where from and how sure."""
    assert list(read_prices()) == ["published-2023", "current"]
    for name, given in read_prices().items():
        assert set(get_prices(name)) == set(PRICE_UNITS)
        for item, unit in {**PRICE_UNITS, **STORAGE_UNITS}.items():
            assert find_price(item, name).unit == unit
        assert given.date and given.note
        assert all(price.source and price.date for price in given.prices), name


def test_published_prices_are_those_of_the_study() -> None:
    """The prices marked as published are the study's, each and no other."""
    with PUBLISHED.open() as table:
        rows = {row["item"]: float(row["value"]) for row in csv.DictReader(table) if row["kind"] == "price"}  # fmt: skip
    ours = {
        price.item: price.value
        for price in read_prices()["published-2023"].prices
        if price.status == "published"
    }
    assert {SAME[item]: value for item, value in rows.items()} == ours


def test_current_prices_admit_their_age() -> None:
    """A price counts as found only where its page is of the year of the set."""
    current = read_prices()["current"]
    for price in current.prices:
        assert price.status in {"found", "taken-over", "unknown"}
        assert (price.status == "found") == (price.date[:4] == current.date[:4]), price.item


def given_sets() -> dict[str, Any]:
    """The file's own sets, to be spoilt."""
    found: dict[str, Any] = yaml.safe_load(PATH.read_text())
    return deepcopy(found)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        # A price below zero, in place and of the wrong kind.
        (lambda price: price.update(value=-1), r"prices.0.value: -1; .*greater than or equal to 0"),
        (lambda price: price.update(value="cheap"), "prices.0.value: 'cheap'"),
        (lambda price: price.update(value=math.inf), "prices.0.value: inf"),
        # A field that is missing, or that nobody knows.
        (lambda price: price.pop("source"), "prices.0.source: .*Field required"),
        (lambda price: price.update(vat=0.2), "prices.0.vat: 0.2"),
        # Another unit, another currency, an item that the model does not have.
        (lambda price: price.update(unit="USD/MB-s"), "invocation_gb_s in 'USD/MB-s'; allowed is USD/GB-s"),
        (lambda price: price.update(currency="EUR"), "prices.0.currency: 'EUR'"),
        (lambda price: price.update(item="gold"), "gold in 'USD/GB-s'; allowed is the items"),
        # Known and unknown at once, and there twice.
        (lambda price: price.update(value=None), "invocation_gb_s is None but taken-over"),
        (lambda price: price.update(status="unknown"), "invocation_gb_s is 1.66667e-05 but unknown"),
        (lambda price: price.update(item="nat_hour", unit="USD/h"), "nat_hour in us-east-1 is there twice"),
    ],
)  # fmt: skip
def test_spoilt_prices_are_refused(spoil: Any, message: str) -> None:
    """A wrong price is refused in one line that names its set."""
    sets = given_sets()
    spoil(sets["current"]["prices"][0])
    with pytest.raises(UserError, match=rf"^prices.yaml: current: {message}") as caught:
        parse_prices(sets)
    assert "\n" not in str(caught.value)


def test_empty_file_is_refused() -> None:
    """A file without sets is refused."""
    with pytest.raises(UserError, match="holds no price set"):
        parse_prices(None)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"name": "1999"}, "price set is '1999'; allowed are published-2023, current"),
        ({"region": "mars"}, "region is 'mars'; allowed for current are us-east-1"),
        ({"overrides": {"nat_gb": -0.1}}, "price nat_gb is -0.1; allowed is a number from 0 on, in USD/GB"),
        ({"overrides": {"nat_gb": math.nan}}, "price nat_gb is nan; allowed"),
        ({"overrides": {"gold": 1.0}}, "price gold: no such item; allowed: invocation_gb_s"),
    ],
)  # fmt: skip
def test_wrong_choice_is_refused(asked: dict[str, Any], message: str) -> None:
    """An unknown set or region and a wrong override are refused by name."""
    with pytest.raises(UserError, match=message):
        get_prices(**asked)


def test_unknown_price_must_be_given() -> None:
    """A price that is unknown is missing until the user gives it."""
    sets = given_sets()
    sets["current"]["prices"][0].update(value=None, status="unknown")
    parsed = parse_prices(sets)
    with pytest.raises(UserError, match="price invocation_gb_s is missing"):
        get_prices(sets=parsed)
    own = get_prices(sets=parsed, overrides={"invocation_gb_s": 1e-5})
    assert own["invocation_gb_s"] == 1e-5


@pytest.mark.parametrize(("item", "region"), [("gold", "us-east-1"), ("nat_gb", "mars")])
def test_a_price_that_is_not_there_is_named(item: str, region: str) -> None:
    """An item that no set has, or not in that region, is refused by name."""
    with pytest.raises(UserError, match=f"price {item}; allowed for current in {region}: "):
        find_price(item, region=region)
