"""Tests of the calculator's page: its script and what is translated, in a real browser, and the page's data."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any
from urllib.parse import unquote

import nbformat
import pytest

from advisors.costs import calculator
from advisors.costs.assumptions import CHOICES, OPTIONS, Assumptions, change, describe
from advisors.costs.bill import break_even_rates, compare_options
from advisors.costs.prices import PRICE_UNITS, STORAGE_UNITS, get_prices, read_prices
from advisors.costs.script import write_worker
from helpers.book.cases import list_glued
from helpers.paths import ROOT
from studies.caching_costs import read_measured
from tests.browser import Tab, open_browser

SCRIPT = ROOT / "_static" / "cost-calculator.js"
STYLE = ROOT / "_static" / "cost-calculator.css"
N_SETS = 16


def draw_set(seed: int) -> tuple[Assumptions, dict[str, float]]:
    """Draw assumptions and prices, over wide bounds in their logarithm."""
    draw = random.Random(seed)
    values: dict[str, Any] = {name: draw.choice(choices) for name, choices in CHOICES.items()}
    for entry in describe():
        if "bounds" in entry:
            low, high = entry["bounds"]
            if low > 0 and high / low > 50:
                middle = entry["default"]
                low, high = max(low, middle / 30), min(high, middle * 30)
                values[entry["name"]] = math.exp(draw.uniform(math.log(low), math.log(high)))
            else:
                values[entry["name"]] = draw.uniform(low, high)
            if entry["whole"]:
                values[entry["name"]] = round(values[entry["name"]])
    # A cache small enough to evict, in every other set.
    if seed % 2:
        values.update(redis_gb=0.1, redis_nodes=1, n_datasets=2000, metadata_nbytes=5e5)
        values.update(disk_gb=0.512)
    prices = {item: value * draw.uniform(0, 3) for item, value in get_prices().items()}
    return change(Assumptions(), values), prices


def write_page(body: str) -> str:
    """Write a page with the calculator's script and style."""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<style>{STYLE.read_text()}</style><script>{SCRIPT.read_text()}</script>{body}</html>"
    )


MEASURED = {"make_s": 0.107, "open_s": 0.333, "disk_fetch_s": 0.0108}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page whose calculator starts from what was measured."""
    block = calculator.render_calculator(MEASURED)
    body = block.removeprefix("```{raw} html\n").removesuffix("```\n")
    page = tmp_path_factory.mktemp("calculator") / "page.html"
    page.write_text(write_page(f"<body>{body}</body>"))
    return page.as_uri()


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A browser."""
    with open_browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def compute(tab: Tab, expression: str) -> Any:
    """Compute what the page's worker would, of its own script."""
    source = "document.getElementById('cost-calculator-worker').textContent"
    return tab.evaluate(f"new Function('self', `${{{source}}}; return ${{{json.dumps(expression)}}};`)({{}})")  # fmt: skip


def test_browser_computes_what_python_does(tab: Tab, address: str) -> None:
    """Random sets of assumptions and prices cost the same in both languages, and change places at the same rates."""
    tab.open(address, width=1280)
    drawn = [draw_set(seed) for seed in range(N_SETS)]
    given = json.dumps([[asdict(assumptions), prices] for assumptions, prices in drawn])
    found = compute(tab, f"{given}.map(([a, p]) => OPTIONS.map((option) => price_option(a, p, option)))")  # fmt: skip
    hits = set()
    for (assumptions, prices), theirs in zip(drawn, found, strict=True):
        ours = compare_options(assumptions, prices)
        for option, cost in zip(OPTIONS, theirs, strict=True):
            mine = {**asdict(ours[option]), "usd": ours[option].usd}
            assert cost.pop("lines") == pytest.approx(mine.pop("lines"), rel=1e-9, abs=1e-9)
            assert cost.pop("option") == mine.pop("option") == option
            assert cost == pytest.approx(mine, rel=1e-9, abs=1e-9)
            hits.add(round(cost["hit_ratio"], 2))
    # The sets reach caches that hit always, sometimes and hardly.
    assert len(hits) > 15
    a, p = Assumptions(), get_prices()
    pair = json.dumps([asdict(a), p, ["none", "redis"]])
    ((rate, winner),) = compute(tab, f"break_even_rates(...{pair})")
    ((expected, expected_winner),) = break_even_rates(a, p, pair=("none", "redis"))
    assert (rate, winner) == (pytest.approx(expected, rel=1e-9), expected_winner)


def test_page_has_no_formula_of_its_own() -> None:
    """No assumption and no price is named in what is written by hand, but the rate that the chart marks."""
    by_hand = SCRIPT.read_text() + (ROOT / "advisors" / "costs" / "worker.js").read_text()
    named = {name for name in (*asdict(Assumptions()), *PRICE_UNITS) if re.search(rf"\b{name}\b", by_hand)}  # fmt: skip
    assert named == {"requests_per_s"}


def type_in(tab: Tab, name: str, text: str) -> None:
    """Type a number into a field."""
    given = json.dumps(text)
    tab.evaluate(f"(() => {{ const f = document.getElementById('cc-{name}'); f.value = {given}; f.dispatchEvent(new Event('input')); }})()")  # fmt: skip


def shows(tab: Tab, assumptions: Assumptions) -> None:
    """Wait until the page shows what Python computes."""
    for cost in compare_options(assumptions, get_prices()).values():
        told = json.dumps(calculator.write_usd(cost.usd).removesuffix(" USD"))
        tab.wait_until(f"document.querySelector('.cc-table')?.innerText.includes({told})")


def test_page_can_be_used_on_a_phone(tab: Tab, address: str) -> None:
    """Every control has a label and takes the keyboard; a rate of zero leaves results that are called old."""
    tab.open(address, width=390)
    shows(tab, change(Assumptions(), MEASURED))
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    controls = "[...document.querySelectorAll('#cost-calculator :is(input, select)')]"
    named = "(e.getAttribute('aria-label') || (e.labels[0] && e.labels[0].textContent))"
    assert tab.evaluate(f"{controls}.filter((e) => !{named} || e.tabIndex < 0).map((e) => e.id)") == []  # fmt: skip
    assert tab.evaluate(f"{controls}.length") > 2 * len(PRICE_UNITS) + len(describe())
    assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert tab.evaluate("document.querySelectorAll('#cost-calculator rect').length") == len(OPTIONS)
    # a CDN finds tiles, and the cache behind it datasets
    found = tab.evaluate(
        "[...document.querySelectorAll('.cc-table tbody tr')].at(-1).cells[3].innerText"
    )
    behind = compare_options(change(Assumptions(), MEASURED), get_prices())["cdn-process"]
    shares = (behind.edge_hit_ratio, behind.hit_ratio)
    assert [float(share) for share in re.findall(r"[\d.]+", found)] == [
        round(100 * one, 1) for one in shares
    ]
    dated = tab.evaluate("document.querySelector('.cc-dated').textContent")
    assert f"set current of {read_prices()['current'].date}" in dated
    type_in(tab, "requests_per_s", "0")
    tab.wait_until(
        "document.querySelector('.cc-status').textContent.includes('the last good ones')"
    )


def test_page_starts_from_what_was_measured(tab: Tab, address: str) -> None:
    """It begins with the measured latencies, and can start from the published study's instead."""
    tab.open(address, width=1280)
    shows(tab, change(Assumptions(), MEASURED))
    tab.evaluate("(() => { const s = document.getElementById('cc-start'); s.value = 'published'; s.dispatchEvent(new Event('change')); })()")  # fmt: skip
    shows(tab, Assumptions())
    assert tab.faults() == []


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("requests_per_s", "185,5", "write a point for decimals, as in 185.5, and no commas"),
        ("requests_per_s", "many", "write a number, as in 185.5"),
        ("requests_per_s", "0", "allowed: 0.001 to 100000"),
        ("redis_nodes", "1.5", "allowed: whole numbers from 1 to 100"),
    ],
)
def test_page_refuses_what_is_no_such_number(
    tab: Tab, address: str, name: str, text: str, told: str
) -> None:
    """What cannot be meant is refused beside its field, never read as another number."""
    tab.open(address, width=1280)
    type_in(tab, name, text)
    tab.wait_until(f"document.getElementById('cc-{name}-error').textContent === {json.dumps(told)}")
    assert "out of its bounds" in tab.evaluate("document.querySelector('.cc-status').textContent")
    assert tab.evaluate("location.hash") == ""


def test_bad_address_is_told(tab: Tab, address: str) -> None:
    """A link with a value that cannot be shows no results, and does not call any the last good ones."""
    tab.open(f"{address}#requests_per_s=banana&redis_nodes=1.5&unknown=1&start=nothing", width=390)
    told = "document.querySelector('.cc-status').textContent"
    tab.wait_until(f"{told}.includes('results come once it is mended')")
    unknown = "document.querySelector('.cc-unknown').textContent"
    assert tab.evaluate(unknown).endswith("left out: unknown=1, start=nothing.")
    type_in(tab, "requests_per_s", "185")
    type_in(tab, "redis_nodes", "1")
    shows(tab, change(Assumptions(), MEASURED))
    assert tab.faults() == []


def test_address_holds_what_was_changed(tab: Tab, address: str) -> None:
    """What a reader changes stands in the address, comes back with it, and goes with a reset."""
    tab.open(address, width=1280)
    type_in(tab, "requests_per_s", "185.5")
    type_in(tab, "redis_nodes", "3")
    tab.wait_until("location.hash === '#requests_per_s=185.5&redis_nodes=3'")
    link = tab.evaluate("location.href")
    tab.open(link, width=1280)
    shows(tab, change(Assumptions(), {**MEASURED, "requests_per_s": 185.5, "redis_nodes": 3}))
    tab.evaluate("document.querySelector('.cc-reset').click()")
    tab.wait_until("location.hash === ''")
    shows(tab, change(Assumptions(), MEASURED))
    assert tab.faults() == []


@pytest.mark.parametrize("width", [390, 1280])
def test_chart_can_be_read(tab: Tab, address: str, width: int) -> None:
    """On a phone as on a screen nothing is wider than the page, and the letters of charts are large enough."""
    tab.open(address, width=width)
    tab.wait_until("document.querySelector('.cc-chart')")
    assert tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0  # fmt: skip
    inside = "[...document.querySelectorAll('#cost-calculator svg[role=img] text')].map((t) => [t.getBoundingClientRect(), t.ownerSVGElement.getBoundingClientRect()])"
    places = tab.evaluate(f"{inside}.map(([t, s]) => [t.height, t.left - s.left, s.right - t.right])")  # fmt: skip
    assert len(places) > len(OPTIONS)
    assert all(height > 10 and min(before, after) > -1 for height, before, after in places)


def test_chart_and_file_are_those_of_python(tab: Tab, address: str) -> None:
    """Seven lines, a mark where the cheapest changes, and a file with each assumption, price and line."""
    tab.open(address, width=1280)
    tab.wait_until(
        "document.querySelectorAll('.cc-chart polyline').length === " + str(len(OPTIONS))
    )
    told = tab.evaluate("document.querySelector('.cc-curves figcaption').textContent")
    given, prices = change(Assumptions(), MEASURED), get_prices()
    names = {"process": "memory of each process", "redis": "Redis", "none": "no cache"}

    def find_cheapest(rate: float) -> str:
        costs = compare_options(change(given, {"requests_per_s": rate}), prices)
        return min(costs.values(), key=lambda cost: cost.usd).option

    assert told.startswith(f"Cheapest: {names[find_cheapest(0.01)]}")
    rates = [float(text.replace(",", "")) for text in re.findall(r"from ([\d.,]+) tiles", told)]
    assert len(rates) == tab.evaluate("document.querySelectorAll('.cc-change').length") > 0
    for rate in rates:  # told to two digits
        assert find_cheapest(0.9 * rate) != find_cheapest(1.1 * rate)
    link = tab.evaluate("document.querySelector('.cc-export').href")
    rows = [*csv.DictReader(io.StringIO(unquote(link.partition(",")[2])))]
    costs = compare_options(given, prices)
    for option, cost in costs.items():
        lines = {row["item"]: float(row["value"]) for row in rows if row["option"] == option}
        assert lines.pop("in all") == pytest.approx(cost.usd, abs=0.005)
        assert lines == pytest.approx(dict(cost.lines), abs=0.005)
    assert {row["item"] for row in rows if not row["option"]} == {*asdict(given), *prices}
    assert tab.faults() == []


def test_page_answers_while_it_computes(tab: Tab, address: str) -> None:
    """A million datasets: costs come first, from a worker, and the page has many turns until the rates are there."""
    tab.open(address, width=1280)
    told = "document.querySelector('.cc-status').textContent"
    # a worker that never answers: no older verdict stands for the numbers that were given
    tab.evaluate("window.Worker = class extends Worker { set onmessage(_) {} }")
    type_in(tab, "n_datasets", "9")
    tab.wait_until(f"{told}.startsWith('Computing: ')")
    tab.open(address, width=1280)
    type_in(tab, "n_datasets", "1000000")
    shows(tab, change(Assumptions(), {**MEASURED, "n_datasets": 1_000_000}))
    waiting = "document.querySelector('.cc-table').innerText.includes('…')"
    n_turns = tab.evaluate(f"new Promise((done) => {{ let n = 0; const turn = () => {{ if ({waiting} && n < 9) {{ n += 1; setTimeout(turn, 0); }} else done(n); }}; turn(); }})")  # fmt: skip
    assert n_turns > 5


def test_page_and_study_agree() -> None:
    """What the calculator starts from gives the verdict that the study glues from its own rows."""
    measured = read_measured()
    assert {"make_s", "open_s", "disk_fetch_s", "redis_fetch_s"} <= set(measured)
    path = ROOT / "results" / "reference" / "caching-costs" / "in-region.ipynb"
    told = list_glued(nbformat.read(path, as_version=4))["verdict-cost"]
    costs = compare_options(change(Assumptions(), measured), get_prices())
    found = re.search(r"costs ([\d,]+) USD a month; the cheapest is (.*?) at ([\d,]+) USD", told)
    assert found is not None
    without, best = (float(found[k].replace(",", "")) for k in (1, 3))
    option = next(option for option, name in calculator.NAMES.items() if name == found[2])
    assert costs["none"].usd == pytest.approx(without, rel=0.01)
    assert costs[option].usd == pytest.approx(best, rel=0.01)


def test_data_are_those_of_python() -> None:
    """The page's data have each assumption and each price of each set, and nothing of their own."""
    data = calculator.calculator_data()
    assert [entry["name"] for entry in data["assumptions"]] == list(asdict(Assumptions()))
    assert {entry["name"]: entry["default"] for entry in data["assumptions"]} == asdict(Assumptions())  # fmt: skip
    for name in read_prices():
        assert data["sets"][name]["values"] == get_prices(name)
    assert {item["item"] for item in data["items"]} == set(PRICE_UNITS)
    assert set(calculator.LABELS) == {*PRICE_UNITS, *STORAGE_UNITS}


def test_data_cannot_end_their_script() -> None:
    """What stands in the page's data closes no tag."""
    block = calculator.render_calculator()
    assert block.count("</script>") == 2
    inner = re.search(r'data">\n(.*?)\n</script>', block, re.DOTALL)
    assert inner and json.loads(inner[1])["set"] == calculator.DEFAULT_SET


def test_prices_are_listed_with_their_sources() -> None:
    """The page lists each price of each set with date, status and source."""
    text = calculator.render_prices()
    for name, given in read_prices().items():
        assert f"**{name}** ({given.date})" in text
        for price in given.prices:
            status = price.status.replace("-", " ")
            assert f"| {price.date} | {status} | {price.source} |" in text


def test_published_figures_stand_beside_ours() -> None:
    """The page's table has each published figure twice, and computing by Little's law."""
    text = calculator.render_published()
    assert "| Lambda runtime | 432.00 | 432.00 |" in text
    assert "| EFS read | 14,400.00 | 14,400.00 |" in text
    assert "92.5 functions are at work at once" in text
    assert f"{92.5 * 432.000864:,.2f} USD" in text


def test_script_loads_nothing() -> None:
    """The script and its style load nothing and send nothing."""
    text = SCRIPT.read_text() + STYLE.read_text() + write_worker()
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|WebSocket|sendBeacon|url\(", text)
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
