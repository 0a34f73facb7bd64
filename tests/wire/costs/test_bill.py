"""Prices have a source, bills add up as worked out by hand, and the page says what they say."""

from __future__ import annotations

import csv
import json
import math
from collections import OrderedDict
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from helpers.benchmark.record import read_records
from helpers.cost_tables import REFERENCE, count_run
from helpers.findings import read_findings
from runner.cases import find_parameters, find_studies, find_study
from studies.caching_costs import findings
from studies.caching_costs.cost_pages import render_runs
from wire.cli import main
from wire.costs.bill import (
    LEAST_RATE,
    Assumptions,
    CacheModel,
    Option,
    change_assumptions,
    compare_options,
    describe,
    find_break_even,
    hit_ratio,
    list_levers,
    price_option,
    zipf,
)
from wire.costs.cli import write_usd
from wire.costs.prices import PRICE_UNITS, find_price, get_prices, read_prices
from wire.costs.published import TABLE, compare_published
from wire.errors import UserError

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
    """Each set prices every item once, says where from and how sure, and the first has the study's."""
    assert {"published-2023", "current"} <= {*read_prices()}
    for name, one in read_prices().items():
        assert {*get_prices(name)} == {*PRICE_UNITS} and len(one.prices) == len(PRICE_UNITS)
        for price in one.prices:
            assert price.source and price.date and price.unit == PRICE_UNITS[price.item], name
    current = read_prices()["current"]
    for price in current.prices:  # found only where its page is of the year of the set
        assert (price.status == "found") == (price.date[:4] == current.date[:4]), price.item
        assert find_price(price.item) == price
    with TABLE.open() as table:
        rows = {row["item"]: float(row["value"]) for row in csv.DictReader(table) if row["kind"] == "price"}  # fmt: skip
    published = [one for one in read_prices()["published-2023"].prices if one.status == "published"]
    assert {SAME[item]: value for item, value in rows.items()} == {one.item: one.value for one in published}  # fmt: skip


ONES = dict.fromkeys(PRICE_UNITS, 1.0)
MONTH_S = 2_592_000
# One tile a second in a function of 10 GB that opens in 0.2 s and makes the tile in 0.3 s.
PLAIN = {"billing": "function", "memory_gb": 10, "requests_per_s": 1, "make_s": 0.3, "open_s": 0.2}
PLAIN |= {"open_gets": 6, "tile_gets": 2, "tile_nbytes": 1400, "peak_ratio": 1}


def test_published_figures_to_the_cent() -> None:
    """Each published figure comes out of the published rules and prices."""
    found = compare_published()
    assert len(found) == 9
    assert found["by_its_rules"].to_numpy() == pytest.approx(found["published"], abs=0.005)


def test_defaults_are_what_the_published_case_took() -> None:
    """To two digits, as the calculator shows them below a page that quotes the case."""
    record = REFERENCE / "caching-costs" / "in-region.csv"
    alone = findings.select_loads(read_records([record])).query("n_users == 1")
    entry_nbytes = 1e6 * read_findings(record)["entry-mb"].value
    found = findings.learn_assumptions(alone, entry_nbytes).model_dump(exclude={"billing"})
    rounded = {name: float(f"{value:.2g}") for name, value in found.items()}
    defaults = Assumptions().model_dump(exclude={"billing"})
    assert rounded == pytest.approx(
        {name: float(f"{value:.2g}") for name, value in defaults.items()}
    )


@pytest.mark.parametrize(
    ("option", "line", "changes", "expected"),
    [
        ("none", "computing", {}, 5 * MONTH_S),  # half a second in 10 GB: 5 GB-s a second
        ("none", "calls of functions", {}, 2.592),  # a million are one unit
        ("none", "store requests", {}, 8 * 2592),  # 2 for the tile and 6 to open
        ("redis", "store requests", {"ttl_s": 1e9}, 2 * 2592),  # all datasets are in Redis
        ("redis", "computing", {"ttl_s": 1e9, "fetch_s": 0.1}, 4 * MONTH_S),  # 0.4 s
        ("redis", "Redis", {}, 720),  # one node for 720 hours
        # 18 MB/s of opened datasets in the busiest hour, of which a node carries 16
        ("redis", "Redis", {"requests_per_s": 185, "peak_ratio": 2}, 1440),
        ("redis", "Redis", {"n_datasets": 1e5}, 3600),  # 4.9 GB, of which a node holds 1.1
        ("redis", "NAT gateway", {}, 720),  # of the private network
        ("process", "NAT gateway", {}, 0),
        ("none", "data out", {}, 1e9 / 2**30 * 1400e-9 * MONTH_S),
        ("cdn", "CDN requests", {}, 259.2),  # each request, held or not
        # by Little's law the published load at half a second is 92.5 functions of 432 USD
        ("none", "computing", {"requests_per_s": 185}, 92.5 * 10 * MONTH_S),
        # one instance of 2 CPUs and 8 GB carries a fifteenth of one at work
        ("none", "computing", {"billing": "instance"}, 7200),
        # 370 tiles a second at the peak, 0.28 s of a processor each, over 1.4 in use: 74
        ("none", "computing", {"billing": "instance", "requests_per_s": 185, "peak_ratio": 2, "make_cpu_s": 0.2, "open_cpu_s": 0.08}, 74 * 7200),
    ],
)  # fmt: skip
def test_line(option: Option, line: str, changes: dict[str, Any], expected: float) -> None:
    """Each line of the bill is what its rule says, at one tile a second and unit prices."""
    cost = price_option(
        change_assumptions(Assumptions(), {**PLAIN, **changes}), ONES, option=option
    )
    assert cost.lines[line] == pytest.approx(expected, rel=1e-3)
    assert cost.usd == pytest.approx(sum(cost.lines.values()))


def test_billing_and_memory_come_before_a_cache() -> None:
    """They change the bill more than any cache does; right-sized functions hold what a process needs."""
    prices, levers = get_prices(), list_levers(Assumptions())
    assert [*levers] == ["instances of 2 CPUs and 8 GB", "functions of 1.769 GB", "functions of 10 GB"]  # fmt: skip
    usd = [[cost.usd for cost in compare_options(one, prices).values()] for one in levers.values()]
    within = max(max(row) / min(row) for row in usd)
    assert usd[2][0] / usd[0][0] > usd[2][0] / usd[1][0] > within > 1
    assert "functions of 3.1 GB" in list_levers(
        change_assumptions(Assumptions(), {"service_gb": 3})
    )


def test_processes_hit_less_than_one_shared_cache() -> None:
    """Each process has a cache for itself; where it has no room left, nothing is found."""
    many = change_assumptions(Assumptions(), {"n_datasets": 10_000})
    costs = compare_options(many, get_prices())
    assert 0 < costs["process"].hit_ratio < costs["redis"].hit_ratio < 1
    full = change_assumptions(many, {"service_gb": 4})
    assert compare_options(full, get_prices())["process"].hit_ratio < 1e-9
    assert 0 < costs["cdn"].edge_hit_ratio < 1 and costs["cdn"].n_instances > 0


def simulate(n_items: int, exponent: float, requests_per_s: float, cache: CacheModel) -> float:
    """Run requests through a least-recently-used cache with a time to live, and count hits.

    Stale items leave before living ones are evicted, and the life of a process is exponential.
    """
    rng = np.random.default_rng(7)
    weights = np.arange(1.0, n_items + 1) ** -exponent
    n_requests = 100_000
    items = rng.choice(n_items, n_requests, p=weights / weights.sum()).tolist()
    times = np.cumsum(rng.exponential(1 / requests_per_s, n_requests)).tolist()
    next_loss = rng.exponential(cache.lifetime_s) if cache.lifetime_s < math.inf else math.inf
    content: OrderedDict[int, float] = OrderedDict()
    n_hits = 0
    for number, (item, time) in enumerate(zip(items, times, strict=True)):
        while time >= next_loss:
            content.clear()
            next_loss += rng.exponential(cache.lifetime_s)
        is_hit = content.get(item, 0.0) > time
        n_hits += is_hit and number >= n_requests // 4
        if not is_hit:
            content[item] = time + cache.ttl_s
        content.move_to_end(item)
        if len(content) > cache.n_items:
            for stale in [one for one, until in content.items() if until <= time]:
                del content[stale]
            if len(content) > cache.n_items:
                content.popitem(last=False)
    return n_hits / (n_requests - n_requests // 4)


@pytest.mark.parametrize(
    ("n_items", "exponent", "requests_per_s", "cache", "within"),
    [
        (1000, 1.2, 10, CacheModel(20), 0.02),  # evicting alone, at two shapes of popularity
        (300, 0.0, 10, CacheModel(100), 0.02),
        (1000, 0.8, 10, CacheModel(ttl_s=100), 0.02),  # a time to live alone
        (1000, 0.8, 10, CacheModel(lifetime_s=30), 0.02),  # processes that come and go
        # eviction and an end at once: the shorter one counts, which is less exact
        (1000, 1.2, 10, CacheModel(20, ttl_s=20), 0.07),
        (5000, 0.6, 50, CacheModel(1000, lifetime_s=100), 0.08),
    ],
)
def test_agrees_with_simulation(
    n_items: int, exponent: float, requests_per_s: float, cache: CacheModel, within: float
) -> None:
    """The closed form is near a simulated cache."""
    predicted = hit_ratio(zipf(n_items, exponent), requests_per_s, cache)
    simulated = simulate(n_items, exponent, requests_per_s, cache)
    assert predicted == pytest.approx(simulated, abs=within)


@pytest.mark.parametrize(("n_replicas", "expected"), [(1, 0.9), (3, 0.75)])
def test_one_item(n_replicas: int, expected: float) -> None:
    """Requested once a second and kept for nine: 9 hits for each miss; with a third of the requests, 3."""
    found = hit_ratio(zipf(1, 1.0), 1.0, CacheModel(ttl_s=9, n_replicas=n_replicas))
    assert found == pytest.approx(expected, abs=1e-9)


def test_break_even() -> None:
    """From there on an option saves a twentieth; free, it always does, and never if it is too dear."""
    given, prices = Assumptions(), get_prices()
    rate = find_break_even(given, prices, "cdn")
    assert rate is not None and LEAST_RATE < rate < 185

    def saving(at: float) -> float:
        costs = compare_options(change_assumptions(given, {"requests_per_s": at}), prices)
        return 1 - costs["cdn"].usd / costs["process"].usd

    assert saving(1.01 * rate) >= 0.05 > saving(rate / 1.01)
    assert find_break_even(given, {**prices, "cdn_requests_1e4": 1.0}, "cdn") is None
    free = {**dict.fromkeys(PRICE_UNITS, 0.0), "data_out_gb": 1.0}
    assert find_break_even(given, free, "cdn") == LEAST_RATE


def run(*arguments: str) -> Any:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["costs", *arguments])


def test_command_prints_the_model_and_what_is_known() -> None:
    """Levers come first; amounts have three digits and are those of the model, also as JSON."""
    given = ("--set", "requests_per_s=20", "--price", "redis_node_hour=0.05")
    lines = run(*given).output.splitlines()
    found = json.loads(run(*given, "--json").output)
    assumptions = change_assumptions(Assumptions(), {"requests_per_s": 20.0})
    costs = compare_options(assumptions, get_prices(overrides={"redis_node_hour": 0.05}))
    assert lines[3].split()[-4:] == [write_usd(cost.usd) for cost in costs.values()]
    assert {name: one["usd"] for name, one in found["options"].items()} == {
        option: cost.usd for option, cost in costs.items()
    }
    assert [*found["levers"]] == [*list_levers(assumptions)]
    published = run("--published").output.splitlines()[1:]
    assert all(line.split()[-1] == line.split()[-2] for line in published) and len(published) == 9
    text = run("--list").output
    assert all(entry["name"] in text and entry["label"] in text for entry in describe())
    assert all(item in text for item in PRICE_UNITS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "requests_per_s=0"), "requests_per_s: 0.0; allowed: at least 0.001"),
        (("--set", "make_s=1e300"), "make_s: 1e+300; allowed: at most 60"),
        (("--set", "open_s=nan"), "open_s: nan; allowed: "),
        (("--set", "requests_per_s=many"), "requests_per_s: 'many'; allowed: "),
        (("--set", "billing=barter"), "billing: 'barter'; allowed: 'instance' or 'function'"),
        (
            ("--set", "non\x1b[31msense=1"),
            r"'non\x1b[31msense': no such assumption; allowed: billing",
        ),
        (("--price", "cdn_gb=-1"), "price cdn_gb: -1; allowed: a number from 0 to 1e+06"),
        (("--price", "cdn_gb=1e300"), "price cdn_gb: 1e+300; allowed: a number from 0"),
        (("--price", "g\x1b[31mold=1"), r"price 'g\x1b[31mold': no such item; allowed: instance_"),
        (("--price-set", "1999"), "price set: '1999'; allowed: published-2023"),
    ],
)
def test_command_refuses(arguments: tuple[str, ...], message: str) -> None:
    """Bad input is refused in one line that names it, and that a terminal takes for text."""
    done = run(*arguments)
    assert isinstance(done.exception, UserError)
    assert message in str(done.exception) and str(done.exception).isprintable()


def test_requests_of_opening_count_and_pauses_do_not() -> None:
    """Of three reads, two in a row, one after a long pause; what was not traced counts nothing."""
    starts = ["2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "2026-01-01T05:00:00Z"]
    rows = pd.DataFrame(
        {
            "started_utc": starts,
            "open_s": 1.0,
            "read_s": 5.0,
            "n_requests": [10, 20, None],
            "wire_nbytes": [1e9, 2e9, None],
            "trace": [json.dumps({"n_open_requests": 4}), "{}", "{}"],
        }
    )
    found = {"reads": 3, "requests": 34, "gb": 3.0, "minutes": 1.1}
    assert count_run(rows) == pytest.approx(found)


def test_every_published_case_over_a_network_is_priced() -> None:
    """Reading from outside the region costs more than from inside."""
    lines = [line.strip("| ").split(" | ") for line in render_runs().splitlines()[2:]]
    assert "cluster-scaling/in-region" in {title for title, *_ in lines}
    assert all(0 <= float(inside) < float(outside) for *_, inside, outside in lines)


PRICED = [name for name, study in find_studies().items() if study.expect is not None]


@pytest.mark.parametrize("name", PRICED)
def test_every_study_says_what_it_requests(name: str) -> None:
    """A case on a store of one's own has its price first; nearly twice that for twice the blocks."""
    study = find_study(name)
    assert study.expect is not None
    given = find_parameters(name)().model_dump() | {"store": "s3://b/p"}
    one, two = (study.expect(given | {"n_blocks": n}) for n in (5, 10))
    if one.n_requests:  # chunk shapes are read from a disk by default
        assert 1.5 < two.n_requests / one.n_requests < 2.01
        assert 1.5 < two.gb / one.gb < 2.01 and one.usd_in_region < one.usd_outside
