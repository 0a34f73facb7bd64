"""``wire costs``: what a month of a tile service costs with each way of billing and each cache."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from wire.errors import say
from wire.options import read_numbers, read_pairs

if TYPE_CHECKING:
    from wire.costs.bill import Assumptions


@click.command(
    epilog="\b\n"
    """Examples:
  wire costs
  wire costs --list
  wire costs --set requests_per_s=50 --price data_out_gb=0.05"""
)
@click.option("--price-set", default="current", show_default=True, help="Set of prices.")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Value of an assumption.")  # fmt: skip
@click.option("--price", "own", multiple=True, metavar="ITEM=USD", help="Price of your own.")
@click.option("--published", is_flag=True, help="Published figures next to ours.")
@click.option("--list", "is_list", is_flag=True, help="Assumptions and prices only.")
@click.option("--json", "is_json", is_flag=True, help="Output as JSON.")
def costs(price_set: str, published: bool, is_list: bool, is_json: bool, **pairs: Any) -> None:  # fmt: skip
    """Price a month of a tile service: computing and memory first, then each place of a cache."""
    from wire.costs.bill import Assumptions, change_assumptions, describe
    from wire.costs.prices import DEFAULT_REGION, PRICE_UNITS, get_prices

    prices = get_prices(price_set, overrides=read_numbers("price", pairs["own"]))
    assumptions = change_assumptions(Assumptions(), read_pairs("set", pairs["changes"]))
    if published:
        from wire.costs.published import compare_published

        table = compare_published().rename_axis(None)
        result: dict[str, Any] = {"published": table.to_dict("index")}
        lines = [table.to_string(float_format="{:,.2f}".format)]
    elif is_list:
        result = {"assumptions": assumptions.model_dump(), "prices": prices}
        lines = [f"{assumption['name']:20} {getattr(assumptions, assumption['name'])!s:>12}  {assumption['label']}" for assumption in describe()]  # fmt: skip
        lines += ["", *(f"{item:22} {prices[item]:>14.10g}  {unit}" for item, unit in PRICE_UNITS.items())]  # fmt: skip
    else:
        result = price(assumptions, prices)
        head = f"prices: {price_set}, {DEFAULT_REGION}; a month is 30 days; USD, three digits"
        lines = [head, "", *_render(result)]
    say(json.dumps(result, indent=2) if is_json else "\n".join(lines))


def price(assumptions: Assumptions, prices: Mapping[str, float]) -> dict[str, Any]:
    """Price every option under every way of billing, and the chosen one in detail."""
    from wire.costs.bill import compare_options, find_break_even, list_levers

    options = {}
    for option, cost in compare_options(assumptions, prices).items():
        pays_from = None if option == "process" else find_break_even(assumptions, prices, option)
        options[option] = {**asdict(cost), "usd": cost.usd, "pays_from_tiles_per_s": pays_from}
    levers = {
        name: {option: cost.usd for option, cost in compare_options(lever, prices).items()}
        for name, lever in list_levers(assumptions).items()
    }
    return {"assumptions": assumptions.model_dump(), "levers": levers, "options": options}


def _render(result: Mapping[str, Any]) -> list[str]:
    """Write what was found as two tables: billing by cache, and what each cache is made of."""
    import pandas as pd

    from wire.costs.bill import NAMES

    columns = {"hit_ratio": "datasets found", "edge_hit_ratio": "tiles found in the CDN"}
    columns |= {"duration_s": "s a tile", "n_instances": "instances"}
    columns |= {"pays_from_tiles_per_s": "pays from (tiles/s)", "usd": "USD in all"}
    parts = {
        option: {**values["lines"], **{label: values[name] for name, label in columns.items()}}
        for option, values in result["options"].items()
    }
    levers, options = pd.DataFrame(result["levers"]).T, pd.DataFrame(parts).astype(float)
    tables = [table.map(write_usd).to_string() for table in (levers, options)]
    meant = "; ".join(f"{option}: {label}" for option, label in NAMES.items())
    return [tables[0], "", meant, f"billed by {result['assumptions']['billing']}:", tables[1]]


def write_usd(usd: float) -> str:
    """Write an amount to three digits, and none as a dash.

    Examples
    --------
    >>> write_usd(35432.1), write_usd(3.456), write_usd(0)
    ('35,400', '3.46', '-')
    """
    return f"{float(f'{usd:.3g}'):,.10g}" if usd > 0 else "-"  # NaN is not
