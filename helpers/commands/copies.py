"""What ``python -m helpers chunks --copies`` adds: whether a second copy, in another shape, pays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from helpers.commands.pairs import read_numbers
from helpers.copies import compare_copies
from helpers.errors import UserError
from helpers.mixes import Choice, Mix
from helpers.models.assumptions import Assumptions
from helpers.models.reading_prices import Prices
from helpers.prices import Price, find_price

_ONE_REGION = ("loopback", "in-region", "express")  # profiles under which no byte leaves the region

_UNITS = {
    "storage_per_gb_month": "a GB and month",
    "get_per_1000": "a thousand requests",
    "egress_per_gb": "a GB read",
    "waiting_per_hour": "an hour of waiting",
}

_ITEMS = {
    "storage_per_gb_month": "store_gb_month",
    "get_per_1000": "store_gets_1e3",
    "egress_per_gb": "data_out_gb",
}
"""Where the project keeps each; waiting is a machine's."""


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that contradict --copies, or that mean nothing without it."""
    if not options["copies"]:
        for name, option in (("reads_per_month", "reads-per-month"), ("own", "price")):
            if options[name] not in (None, ()):
                raise UserError(f"{option}: {options[name]!r}; allowed: with --copies")
    elif options["rule"] != "best":
        raise UserError(f"rule: {options['rule']!r}; allowed with --copies: best, for accesses")
    elif options["criterion"] != "mean":
        raise UserError(
            f"criterion: {options['criterion']!r}; allowed with --copies: mean, as costs add up"
        )
    elif options["reads_per_month"] is None:
        raise UserError("reads-per-month: none; allowed with --copies: a number, at least 0")


def answer_copies(mix: Mix, options: Mapping[str, Any]) -> dict[str, Any]:
    """Compare one copy with two at the prices chosen; a break-even of None is never."""
    priced = _choose_prices(options)
    found = compare_copies(
        mix,
        Prices(**{name: usd for name, (usd, _) in priced.items()}),
        n_reads_per_month=options["reads_per_month"],
    )
    even = found.breakeven_reads_per_month
    return {
        "reads_per_month": options["reads_per_month"],
        "one": {"copies": [_tell(found.one)], "usd_per_month": found.one_per_month},
        "two": {"copies": [_tell(c) for c in found.two], "usd_per_month": found.two_per_month},
        "breakeven_reads_per_month": even if even < math.inf else None,  # JSON has no infinity
        "prices": {name: {"usd": usd, "source": why} for name, (usd, why) in priced.items()},
    }


def explain_copies(answer: Mapping[str, Any]) -> list[str]:
    """Say in words which copies there are, what they cost, and from when on two cost less."""
    one, two = answer["one"], answer["two"]
    even, reads = answer["breakeven_reads_per_month"], answer["reads_per_month"]
    prices = (
        f"{each['usd']:.4g} USD {_UNITS[name]} ({each['source']})"
        for name, each in answer["prices"].items()
    )
    return [
        f"One copy, {_name(one)}: {one['usd_per_month']:.4g} USD a month at {reads:,.15g} reads.",
        f"Two copies, {_name(two)}: {two['usd_per_month']:.4g} USD a month.",
        f"Two copies cost less from {float(f'{even:.3g}'):,.15g} reads a month on."
        if even is not None
        else "Two copies never cost less: at these prices reads gain nothing by the second.",
        f"Priced at {'; '.join(prices)}.",
        "These shapes cost least, and need not be the fastest; they have no shards, and writing"
        " them is not counted.",
    ]


def _tell(choice: Choice) -> dict[str, Any]:
    """Put a copy and the times of the accesses that go to it into what JSON can hold."""
    return {"chunk_shape": choice.chunk_shape, "seconds": choice.seconds}


def _name(several: Mapping[str, Any]) -> str:
    """Name each copy's chunks, and the accesses that go there."""
    return " and ".join(
        f"{','.join(map(str, copy['chunk_shape']))} for {', '.join(copy['seconds'])}"
        for copy in several["copies"]
    )


def _choose_prices(options: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    """Take the user's own prices, and the project's for the others, with where they are from."""
    own = read_numbers("price", options["own"])
    for name in own:
        if name not in _UNITS:
            raise UserError(f"price {name}: no such price; allowed: {', '.join(_UNITS)}")
    return {
        name: (own[name], "given") if name in own else _find(name, options["profile"])
        for name in _UNITS
    }


def _find(name: str, profile: str) -> tuple[float, str]:
    """Take a price that the project keeps."""
    if name == "waiting_per_hour":
        return _price_waiting()
    if name == "egress_per_gb" and profile in _ONE_REGION:
        return 0.0, "nothing leaves the region"
    return _quote(find_price(_ITEMS[name]))


def _price_waiting() -> tuple[float, str]:
    """Price an hour of the machine that the cost model takes for an instance."""
    machine = Assumptions()
    (vcpu, found), (gb, _) = (
        _quote(find_price(item)) for item in ("instance_vcpu_hour", "instance_gb_hour")
    )
    usd = machine.instance_vcpus * vcpu + machine.instance_gb * gb
    what = f"a machine of {machine.instance_vcpus:g} processors and {machine.instance_gb:g} GB"
    return usd, f"{what}, {found}"


def _quote(price: Price) -> tuple[float, str]:
    """Take a price with its date and source; one that is unknown has to be given."""
    if price.value is None:
        raise UserError(f"price {price.item}: unknown; allowed: your own, by --price NAME=USD")
    return price.value, f"{price.region}, {price.date}, {price.source}"
