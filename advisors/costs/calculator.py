"""What the calculator's page shows, the published cost model beside ours, and the verdict in words."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from advisors.costs.assumptions import OPTIONS, Assumptions, Option, change, describe
from advisors.costs.bill import (
    SECONDS_PER_MONTH,
    break_even_rates,
    compare_options,
    price_option,
    tornado,
)
from advisors.costs.prices import PRICE_UNITS, PriceSet, check_prices, get_prices, read_prices
from advisors.costs.script import write_worker
from helpers.errors import UserError
from helpers.paths import ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLoad:
    """Hold the assumptions that were stated with the published figures."""

    requests_per_day: float = 16e6  # tiles a day, of which 30 days are a month
    memory_gb: float = 10  # of one function
    disk_gb: float = 10
    tile_gb: float = 1.4e-6  # bytes of a response, GB
    shared_read_gb: float = 0.001  # largest read from the shared file system for a request, GB
    # reads that a bursting file system sustains for each GB that it holds, MB/s
    shared_mb_per_s_per_gb: float = 0.15


def published_costs(
    prices: Mapping[str, float], load: PublishedLoad | None = None
) -> dict[str, float]:
    """Compute every figure of the published table.

    Examples
    --------
    One function of 1 GB, always on, at 1 USD a GB-s:

    >>> from advisors.costs.prices import PRICE_UNITS
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


PUBLISHED = ROOT / "results" / "published" / "tile_caching_costs.csv"
REGION = "us-east-1"
DEFAULT_SET = "current"

LABELS: Mapping[str, str] = {
    "invocation_gb_s": "computing by invocation",
    "invocations_1e6": "invocations",
    "invocation_disk_gb_s": "disk of an invocation",
    "instance_vcpu_hour": "processor of an instance",
    "instance_gb_hour": "memory of an instance",
    "nat_hour": "NAT gateway",
    "nat_gb": "data through NAT",
    "data_out_gb": "data out to readers",
    "store_gets_1e3": "GET and HEAD requests to the store",
    "store_lists_1e3": "LIST requests to the store",
    "shared_gb_month": "storage of the shared file system",
    "shared_read_gb": "reads from it, elastic",
    "shared_write_gb": "writes to it, elastic",
    "redis_node_hour": "Redis node",
    "cdn_gb": "data out of the CDN",
    "cdn_requests_1e4": "requests to the CDN",
    "store_gb_month": "storage in the object store, for copies of an array",
}
"""What each price is, in words."""


def calculator_data(measured: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Gather what the calculator's script needs; it starts from what was measured, if anything was.

    Examples
    --------
    >>> calculator_data()["sets"]["published-2023"]["values"]["redis_node_hour"]
    0.034
    """
    sets = {
        name: {"date": one.date, "region": REGION, "values": get_prices(name, REGION)}
        for name, one in read_prices().items()
    }
    chosen = get_prices(DEFAULT_SET, REGION)
    items = [
        {
            "item": item,
            "label": LABELS[item],
            "unit": unit,
            "value": chosen[item],
            "bounds": [0, float(f"{chosen[item] * 20:.6g}")],
        }
        for item, unit in PRICE_UNITS.items()
    ]
    change(Assumptions(), measured or {})  # refuses what it does not know
    return {
        "assumptions": describe(),
        "measured": dict(measured or {}),
        "items": items,
        "sets": sets,
        "set": DEFAULT_SET,
    }


def render_calculator(measured: Mapping[str, float] | None = None) -> str:
    """Write the calculator's place in its page, with its data."""
    # A closing tag inside the data would end the script.
    data = json.dumps(calculator_data(measured), indent=1).replace("</", "<\\/")
    worker = write_worker()
    if "</" in worker or "<!--" in worker:
        raise UserError("advisors/costs: its script closes a tag; allowed: one that closes none")
    return (
        "```{raw} html\n"
        '<div id="cost-calculator"><p>The calculator runs in your browser and needs JavaScript; '
        "<code>wire costs</code> computes the same.</p></div>\n"
        f'<script type="application/json" id="cost-calculator-data">\n{data}\n</script>\n'
        f'<script type="text/plain" id="cost-calculator-worker">\n{worker}</script>\n'
        "```\n"
    )


def render_prices() -> str:
    """Write all price sets as tables, with where each price comes from."""
    return "\n".join(_render_set(name, one) for name, one in read_prices().items())


def _render_set(name: str, given: PriceSet) -> str:
    """Write one set as a table."""
    lines = [f"**{name}** ({given.date}). {given.note}", ""]
    lines += ["| price | value | date | status | source |", "| --- " * 5 + "|"]
    for price in given.prices:
        value = "unknown" if price.value is None else f"{price.value:.10f}".rstrip("0")
        lines.append(
            f"| {LABELS[price.item]} | {value} {price.unit} | {price.date} | {price.status.replace('-', ' ')} | {price.source} |"
        )
    return "\n".join([*lines, ""])


def compare_published(prices: Mapping[str, float]) -> list[dict[str, Any]]:
    """Lay the published USD a month beside what their own rules give, in the published order."""
    if not PUBLISHED.is_file():
        raise UserError(
            f"published figures: {PUBLISHED.name} is not there; allowed: in a checkout of the project"
        )
    ours = published_costs(prices)
    with PUBLISHED.open(encoding="utf-8") as table:
        rows = [row for row in csv.DictReader(table) if row["kind"] == "result"]
    return [
        {"item": row["item"], "published_usd": float(row["value"]), "ours_usd": ours[row["item"]]}
        for row in rows
    ]


_PRODUCTS = {"lambda": "Lambda", "nat": "NAT", "efs": "EFS", "elasticache": "ElastiCache"}


def _tell_item(item: str) -> str:
    return " ".join(_PRODUCTS.get(word, word) for word in item.split("_") if word != "cost")


def render_published() -> str:
    """Write the published figures beside ours, and what computing costs by Little's law."""
    prices = get_prices("published-2023", REGION)
    lines = ["| item | published (USD a month) | by its rules (USD a month) |", "| --- " * 3 + "|"]
    lines += [
        f"| {_tell_item(row['item'])} | {row['published_usd']:,.2f} | {row['ours_usd']:,.2f} |"
        for row in compare_published(prices)
    ]
    given = Assumptions(peak_ratio=1.0)
    cost = price_option(given, prices, option="none")
    found = (
        f"At {given.requests_per_s:g} tiles a second and {cost.duration_s:g} s for each, {cost.busy:.3g} functions "
        f"are at work at once, and computing costs {cost.lines['computing']:,.2f} USD a month."
    )
    return "\n".join([*lines, "", found, ""])


NAMES: Mapping[Option, str] = {
    "none": "no cache",
    "disk": "a cache on each instance's disk",
    "shared": "a cache on a shared file system",
    "redis": "Redis",
    "cdn": "a CDN in front",
    "process": "a cache in each process",
    "cdn-process": "a CDN in front of a cache in each process",
}
"""How prose calls the options."""


def tell_billing(assumptions: Assumptions) -> str:
    """Say how computing is billed, without which no amount can be set beside another."""
    if assumptions.billing == "invocation":
        return f"billed by invocation with {assumptions.memory_gb:g} GB"
    return f"on instances of {assumptions.instance_vcpus:g} processors and {assumptions.instance_gb:g} GB that are always on"


def tell_verdict(assumptions: Assumptions, prices: Mapping[str, float]) -> str:
    """Say in words what the model says.

    Examples
    --------
    >>> from advisors.costs.prices import PRICE_UNITS
    >>> free = tell_verdict(Assumptions(), dict.fromkeys(PRICE_UNITS, 0.0))
    >>> free.split(";")[0]
    'At 185 tiles a second, billed by invocation with 10 GB, no cache costs 0 USD a month'
    """
    costs = compare_options(assumptions, prices)
    without = costs["none"].usd
    best = min(OPTIONS, key=lambda option: costs[option].usd)
    rate = f"At {assumptions.requests_per_s:,.3g} tiles a second, {tell_billing(assumptions)},"
    if best == "none":
        return f"{rate} no cache costs {write_usd(without)} a month; no other option costs less."
    share = 1 - costs[best].usd / without
    text = (
        f"{rate} no cache costs {write_usd(without)} a month; the cheapest is {NAMES[best]}"
        f" at {write_usd(costs[best].usd)}, {share * 100:.2g} % less."
    )
    return " ".join(
        [
            text,
            _tell_rate(assumptions, prices, best=best),
            _tell_lever(assumptions, prices, best=best),
        ]
    )


ONE_PROCESSOR_GB = 1.769
"""Memory at which an invocation has one whole processor, all that a Python process can use; from AWS Lambda's guide."""


def tell_levers(assumptions: Assumptions, prices: Mapping[str, float]) -> str:
    """Say what memory and kind of billing do to the bill without any cache, which come first."""

    def without(changes: Mapping[str, Any]) -> str:
        at = change(assumptions, changes)
        return write_usd(price_option(at, prices, option="none").usd)

    invoked = {"billing": "invocation"}
    sized = change(assumptions, {**invoked, "memory_gb": ONE_PROCESSOR_GB})
    best = min(compare_options(sized, prices).values(), key=lambda cost: cost.usd)
    return (
        f"Without any cache a month costs {without(invoked)} with {assumptions.memory_gb:g} GB"
        f" an invocation, {without({**invoked, 'memory_gb': ONE_PROCESSOR_GB})} with {ONE_PROCESSOR_GB:g} GB,"
        f" and {without({'billing': 'instance'})} on instances that are always on."
        f" With {ONE_PROCESSOR_GB:g} GB the cheapest is {NAMES[best.option]}, {write_usd(best.usd)}."
    )


def _tell_rate(assumptions: Assumptions, prices: Mapping[str, float], *, best: Option) -> str:
    """Say from which rate on the best option pays."""
    crossings = break_even_rates(assumptions, prices, pair=("none", best))
    if not crossings:
        return "It costs less than no cache at every rate looked at."
    last, winner = crossings[-1]
    if winner == best:
        return f"It pays from {last:.2g} tiles a second on."
    return f"From {last:.2g} tiles a second on no cache costs less."


def _tell_lever(assumptions: Assumptions, prices: Mapping[str, float], *, best: Option) -> str:
    """Say which assumption the saving depends on most, and whether one can turn it."""
    bars = tornado(assumptions, prices, option=best)
    turning = [bar.name for bar in bars if min(bar.low_usd, bar.high_usd) < 0]
    # That a saving grows with the rate tells nobody anything.
    lever = next(bar.name for bar in bars if bar.name != "requests_per_s")
    most = f"Beside the rate, the saving depends most on {_spell(lever)}"
    if not turning:
        return f"{most}; no single assumption, halved or doubled, turns the saving into a loss."
    return f"{most}; halved or doubled, {_spell(turning[0])} turns the saving into a loss."


def _spell(name: str) -> str:
    """Spell out the name of a bar: what the assumption is, or which price."""
    if name.startswith("price "):
        return f"the price of {LABELS[name.removeprefix('price ')]}"
    label = next(one.metadata["label"] for one in fields(Assumptions) if one.name == name)
    return "the " + str(label).partition(" (")[0]


def write_usd(usd: float) -> str:
    """Write an amount to three digits."""
    return f"{float(f'{usd:.3g}'):,.0f} USD" if usd >= 100 else f"{usd:.3g} USD"


def tell_rates(
    option: Option, crossings: Sequence[tuple[float, Option]], *, is_cheaper: bool, n_digits: int
) -> str:
    """Say at which rates an option costs less than no cache, from where they change places."""
    if option == "none":
        return ""
    if not crossings:
        return "every rate" if is_cheaper else "no rate"
    return ", ".join(
        f"{'above' if winner == option else 'below'} {rate:.{n_digits}g}"
        for rate, winner in crossings
    )
