"""``wire costs``: what a month of a tile service costs with each choice of cache."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from helpers.cli import read_numbers, read_pairs
from helpers.errors import UserError

if TYPE_CHECKING:
    from advisors.costs.assumptions import Assumptions, Option
    from advisors.costs.bill import Cost


@click.command()
@click.option(
    "--price-set", help="Set of prices.yaml; current, or published-2023 with --published."
)
@click.option("--region", default="us-east-1", show_default=True, help="Region of the prices.")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="An assumption.")
@click.option("--price", "own", multiple=True, metavar="ITEM=USD", help="A price of your own.")
@click.option("--p95", "tails", multiple=True, metavar="OPTION=SECONDS", help="A measured p95.")
@click.option("--target-p95", type=float, help="The p95 to keep, seconds; for --p95.")
@click.option("--published", is_flag=True, help="The published figures beside ours.")
@click.option("--list", "is_list", is_flag=True, help="List assumptions and prices, and stop.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def costs(
    price_set: str | None, region: str, published: bool, is_list: bool, is_json: bool, **given: Any
) -> None:
    """Price a month of a tile service with each choice of cache."""
    from advisors.costs.assumptions import Assumptions, change
    from advisors.costs.calculator import compare_published
    from advisors.costs.prices import get_prices

    price_set = price_set or ("published-2023" if published else "current")
    prices = get_prices(price_set, region, overrides=read_numbers("price", given["own"]))
    assumptions = change(Assumptions(), read_pairs("set", given["changes"]))
    if is_list:
        found: dict[str, Any] = {"assumptions": asdict(assumptions), "prices": prices}
    elif published:
        found = {"published": compare_published(prices)}
    else:
        tails = read_numbers("p95", given["tails"])
        rows = _meet_tail(assumptions, prices, tails, given["target_p95"])
        found = {**_price(assumptions, prices), "equal_p95": rows}
    found["price_set"] = price_set
    found["region"] = region
    click.echo(json.dumps(found, indent=2) if is_json else "\n".join(_render(found)))


def _price(assumptions: Assumptions, prices: Mapping[str, float]) -> dict[str, Any]:
    """Price all options, and draw the conclusions."""
    from advisors.costs.bill import (
        SECONDS_PER_MONTH,
        break_even_rates,
        compare_options,
        tornado,
    )
    from advisors.costs.calculator import tell_levers, tell_verdict

    priced = compare_options(assumptions, prices)
    millions = assumptions.requests_per_s * SECONDS_PER_MONTH / 1e6
    best = min((one for one in priced if one != "none"), key=lambda one: priced[one].usd)
    without = priced["none"].store_gets
    return {
        "assumptions": asdict(assumptions),
        "options": [_to_mapping(cost, millions, without) for cost in priced.values()],
        "break_even": {
            one: break_even_rates(assumptions, prices, pair=("none", one))
            for one in priced
            if one != "none"
        },
        "tornado": {"option": best, "bars": [asdict(bar) for bar in tornado(assumptions, prices, option=best)]},
        "verdict": f"{tell_levers(assumptions, prices)} {tell_verdict(assumptions, prices)}",
    }  # fmt: skip


def _to_mapping(cost: Cost, millions: float, gets_without: float) -> dict[str, Any]:
    """Put a cost into what JSON can hold."""
    return {
        **asdict(cost),
        "usd": cost.usd,
        "usd_per_million": cost.usd / millions,
        "gets_saved": gets_without - cost.store_gets,
    }


def _meet_tail(
    assumptions: Assumptions,
    prices: Mapping[str, float],
    tails: Mapping[str, float],
    target_s: float | None,
) -> list[dict[str, Any]]:
    """Price a million tiles at equal p95, if percentiles were given."""
    from advisors.costs.assumptions import OPTIONS
    from advisors.costs.bill import equal_tail

    if not tails and target_s is None:
        return []
    if not tails or target_s is None:
        raise UserError("--p95 and --target-p95 go together: give both, or neither")
    for name in tails:
        if name not in OPTIONS:
            raise UserError(f"--p95 {name}=…; allowed are {', '.join(OPTIONS)}")
    p95_s: dict[Option, float] = {one: tails[one] for one in OPTIONS if one in tails}
    rows = [asdict(row) for row in equal_tail(assumptions, prices, p95_s=p95_s, target_s=target_s)]
    # JSON has no infinity: what cannot be met has no price.
    return [{**row, "usd_per_million": row["usd_per_million"] if row["n_instances"] else None} for row in rows]  # fmt: skip


def _render(found: Mapping[str, Any]) -> list[str]:
    """Write what was found as lines of text."""
    head = f"prices: {found['price_set']}, {found['region']}; a month is 30 days; amounts in USD"
    if "published" in found:
        return [head, "", f"{'item':30} {'published':>12} {'ours':>12}", *_render_published(found["published"])]  # fmt: skip
    if "options" not in found:
        return [head, "", *_render_known(found)]
    return [head, "", *_render_options(found), "", *_render_conclusions(found)]


def _render_published(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write one line a published figure."""
    return [
        f"{row['item']:30} {row['published_usd']:12,.2f} {row['ours_usd']:12,.2f}" for row in rows
    ]


def _render_known(found: Mapping[str, Any]) -> list[str]:
    """Write every assumption with what it is, and every price with its unit."""
    from advisors.costs.assumptions import describe
    from advisors.costs.prices import PRICE_UNITS

    labels = {entry["name"]: entry["label"] for entry in describe()}
    lines = [f"{name:20} {value!s:>12}  {labels[name]}" for name, value in found["assumptions"].items()]  # fmt: skip
    prices = [f"{item:22} {usd:>14.10g}  {PRICE_UNITS[item]}" for item, usd in found["prices"].items()]  # fmt: skip
    return [*lines, "", *prices]


def _render_options(found: Mapping[str, Any]) -> list[str]:
    """Write the options as a table."""
    from advisors.costs.calculator import tell_rates

    lines = [
        f"{'option':8} {'a month':>12} {'a million':>10} {'hits':>7} {'CDN hits':>9}"
        f" {'mean s':>7} {'busy':>7} {'GETs saved':>14}  cheaper than none at (tiles/s)"
    ]
    without = found["options"][0]["usd"]
    for row in found["options"]:
        lines.append(
            f"{row['option']:8} {row['usd']:12,.2f} {row['usd_per_million']:10,.2f} {row['hit_ratio']:7.3f}"
            f" {row['edge_hit_ratio']:9.3f} {row['duration_s']:7.3f} {row['busy']:7.1f} {row['gets_saved']:14,.0f}"
            f"  {tell_rates(row['option'], found['break_even'].get(row['option'], ()), is_cheaper=row['usd'] < without, n_digits=3)}"
        )
    return lines


def _render_conclusions(found: Mapping[str, Any]) -> list[str]:
    """Write what matters most, the costs at equal p95, and the verdict."""
    bars = found["tornado"]["bars"][:8]
    lines = [f"saved by {found['tornado']['option']} a month, each assumption halved and doubled:"]
    lines += [
        f"  {bar['name']:28} {bar['low_usd']:12,.2f} {bar['high_usd']:12,.2f}" for bar in bars
    ]
    for row in found["equal_p95"]:
        price = row["usd_per_million"]
        text = f"{price:,.2f} a million tiles, {row['n_instances']} instances" if price is not None else "no number of instances keeps the target"  # fmt: skip
        lines.append(f"at equal p95: {row['option']:8} {text}")
    return [*lines, "", found["verdict"]]
