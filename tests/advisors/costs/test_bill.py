"""Tests of the cost model: published figures, rules, a day, credits, decisions and the command."""

from __future__ import annotations

import csv
import json
import math
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from advisors.costs.assumptions import OPTIONS, Assumptions, Option, change, describe
from advisors.costs.bill import (
    break_even_rates,
    compare_options,
    cost_curves,
    equal_tail,
    late_share,
    metered_mb_per_s,
    price_option,
    tornado,
)
from advisors.costs.calculator import PublishedLoad, published_costs, tell_levers, tell_verdict
from advisors.costs.demand import (
    BASELINE_MB_PER_S_PER_GB,
    READS_PER_METERED,
    Day,
    HourlyDemand,
    credit_balances,
    diurnal_curve,
    follow_day,
    least_stored_gb,
    wait_probability,
)
from advisors.costs.prices import PRICE_UNITS, get_prices
from helpers.cli import main
from helpers.errors import UserError
from helpers.paths import ROOT

PUBLISHED = ROOT / "results" / "published" / "tile_caching_costs.csv"
EVEN = Assumptions(peak_ratio=1.0)
ONES = dict.fromkeys(PRICE_UNITS, 1.0)
CENT = 0.005


def published(kind: str) -> dict[str, float]:
    """Read the published table."""
    with PUBLISHED.open() as table:
        return {row["item"]: float(row["value"]) for row in csv.DictReader(table) if row["kind"] == kind}  # fmt: skip


# The published figures.


@pytest.mark.parametrize("item", sorted(published("result")))
def test_published_figure_to_the_cent(item: str) -> None:
    """Each published figure comes out of the published rules and prices."""
    ours = published_costs(get_prices("published-2023"))
    assert ours[item] == pytest.approx(published("result")[item], abs=CENT)


def test_published_assumptions_are_those_of_the_study() -> None:
    """What the published rules assume is what the study states."""
    stated, load = published("assumption"), PublishedLoad()
    assert load.requests_per_day == stated["max_daily_requests"]
    assert math.floor(load.requests_per_day / 86400) == stated["max_requests_per_s"]
    assert load.memory_gb == stated["lambda_memory"]
    assert load.disk_gb == stated["lambda_ephemeral_storage"]
    assert load.tile_gb == stated["max_content_size_response"]
    assert load.shared_read_gb == stated["efs_max_read_size"]
    assert load.shared_mb_per_s_per_gb * 1e3 == stated["efs_burst_base_rate_read"]


def test_published_load_needs_more_than_one_function() -> None:
    """By Little's law the published load at half a second is 92.5 functions, near 40,000 USD and not 432."""
    assert follow_day(change(Assumptions(), {"peak_ratio": 1.0}), "none").hours[0].busy == 92.5
    cost = price_option(
        change(EVEN, {"make_s": 0.4, "open_s": 0.1}), get_prices("published-2023"), option="none"
    )
    assert cost.busy == pytest.approx(92.5)
    assert cost.lines["computing"] == pytest.approx(92.5 * 432.000864, abs=CENT)


# Rules.


@pytest.mark.parametrize(
    ("option", "line", "changes", "expected"),
    [
        # 1 tile a second for half a second in 10 GB: 5 GB-s a second.
        ("none", "computing", {}, 5 * 2_592_000),
        # A million requests are one unit.
        ("none", "invocations", {}, 2.592),
        # 2 GETs for the tile and 6 to open, of which a thousand are one unit.
        ("none", "store requests", {}, 8 * 2592),
        # All opened datasets are in Redis: 2 GETs are left.
        ("redis", "store requests", {"ttl_s": 1e9}, 2 * 2592),
        # Two nodes for 720 hours.
        ("redis", "Redis", {"redis_nodes": 2}, 1440),
        # A private network needs its NAT gateway; no cache needs none.
        ("redis", "NAT gateways", {}, 720),
        ("shared", "NAT gateways", {}, 720),
        ("none", "NAT gateways", {}, 0),
        # Unless the store itself is behind NAT: 8 MB of chunks and 0.5 MB of metadata a tile.
        ("none", "NAT gateways", {"nat_share": 0.5}, 720),
        ("none", "NAT data", {"nat_share": 0.5}, 0.5 * 8.5e-3 * 2_592_000),
        # 1400 bytes a tile to readers.
        ("none", "data out", {}, 1400e-9 * 2_592_000),
        # The CDN bills each request, held or not.
        ("cdn", "CDN requests", {}, 259.2),
        # 9.5 GB of a function's disk are paid for while it runs: 0.37 s a tile when all hit.
        ("disk", "disk", {"n_datasets": 1, "ttl_s": 1e9, "lifetime_s": 1e8}, 9.5 * 0.37 * 2_592_000),
        # 1 MB/s of reads is a third metered, which the least baseline carries: 0.05 GB is stored, no more.
        ("shared", "shared storage", {}, 0.05),
        # In elastic mode each hit is a read of 1 MB.
        ("shared", "shared throughput", {"shared_mode": "elastic", "ttl_s": 1e9}, 2592),
        # One instance of 2 processors and 8 GB carries a fifteenth of one at work.
        ("none", "computing", {"billing": "instance"}, 7200),
        ("none", "invocations", {"billing": "instance"}, 0),
    ],
)  # fmt: skip
def test_line(option: Option, line: str, changes: dict[str, Any], expected: float) -> None:
    """Each line of the bill is what its rule says, at one tile a second and unit prices."""
    assumptions = change(EVEN, {"requests_per_s": 1, **changes})
    cost = price_option(assumptions, ONES, option=option)
    assert cost.lines[line] == pytest.approx(expected, rel=1e-3)


def test_bill_is_the_sum_of_its_lines() -> None:
    """A cost is the sum of its lines, and every option has the same lines."""
    costs = compare_options(Assumptions(), get_prices())
    assert list(costs) == list(OPTIONS)
    for cost in costs.values():
        assert cost.usd == pytest.approx(sum(cost.lines.values()))
        assert set(cost.lines) == set(costs["none"].lines)


def test_memory_and_billing_come_before_a_cache() -> None:
    """Computing that is billed by memory costs as much less as there is less of it."""
    prices = {**dict.fromkeys(PRICE_UNITS, 0.0), "invocation_gb_s": 1e-5}
    told = tell_levers(change(EVEN, {"requests_per_s": 100, "memory_gb": 10}), prices)
    assert "13,000 USD with 10 GB an invocation, 2,290 USD with 1.769 GB" in told
    assert "and 0 USD on instances that are always on." in told
    sized = change(EVEN, {"requests_per_s": 100, "memory_gb": 1.769})
    best = min(cost.usd for cost in compare_options(sized, prices).values())
    assert told.endswith(f"in each process, {float(f'{best:.3g}'):,.0f} USD.")


def test_what_a_file_cache_still_asks_for_is_billed() -> None:
    """A hit that asks twice, and a tile that lists once, cost just that, and other options nothing."""
    asks = change(EVEN, {"requests_per_s": 1, "shared_gets": 2, "shared_lists": 1})
    prices = {**dict.fromkeys(PRICE_UNITS, 0.0), "store_gets_1e3": 1.0, "store_lists_1e3": 10.0}
    for option in OPTIONS:
        cost = price_option(asks, prices, option=option)
        plain = price_option(change(EVEN, {"requests_per_s": 1}), prices, option=option)
        is_shared = option == "shared"
        hits = cost.hit_ratio * 2_592_000
        assert cost.store_gets - plain.store_gets == pytest.approx(2 * hits * is_shared)
        assert cost.lines["store listings"] == pytest.approx(25_920 * is_shared)


def test_every_price_is_used() -> None:
    """No price is asked for in vain: each one changes some option's bill."""
    used = set()
    for changes in ({}, {"billing": "instance", "shared_mode": "elastic"}):
        assumptions = change(Assumptions(), {"nat_share": 0.1, "shared_lists": 1.0, **changes})
        base = compare_options(assumptions, ONES)
        for item in PRICE_UNITS:
            dearer = compare_options(assumptions, {**ONES, item: 2.0})
            if any(dearer[option].usd > base[option].usd for option in OPTIONS):
                used.add(item)
    assert used == set(PRICE_UNITS)


def test_peak_costs_only_who_is_always_on() -> None:
    """Invocations are billed by the average, instances by the busiest hour."""
    peaked = change(EVEN, {"peak_ratio": 3.0})
    for billing, ratio in (("invocation", 1.0), ("instance", 3.0)):
        even, high = (
            price_option(change(one, {"billing": billing}), ONES, option="none").lines["computing"]
            for one in (EVEN, peaked)
        )
        assert high / even == pytest.approx(ratio, rel=0.05), billing  # of whole instances


def test_disks_hit_less_than_one_shared_cache() -> None:
    """A cache that each instance has for itself hits less than one that all share, and more instances less."""
    rare = change(EVEN, {"n_datasets": 5000, "ttl_s": 600})
    few, many = (follow_day(change(rare, {"make_s": make_s}), "disk") for make_s in (0.1, 2.0))
    shared = follow_day(rare, "shared")
    assert many.hours[0].hit_ratio < few.hours[0].hit_ratio < shared.hours[0].hit_ratio


def test_settled_disks_agree() -> None:
    """Hit ratio, mean time and tiles in the making of the disks are consistent with one another."""
    given = change(EVEN, {"n_datasets": 3000, "ttl_s": 900})
    flow = follow_day(given, "disk").hours[0]
    expected_s = given.make_s + given.disk_fetch_s + (1 - flow.hit_ratio) * given.open_s
    assert flow.duration_s == pytest.approx(expected_s)
    assert flow.busy == pytest.approx(flow.made_per_s * flow.duration_s)
    assert 0.1 < flow.hit_ratio < 0.9


def test_quiet_hours_hit_less() -> None:
    """With a time to live, the quietest hour finds less in the cache than the busiest."""
    flows = follow_day(change(Assumptions(), {"ttl_s": 10, "n_datasets": 1000}), "redis").hours
    assert flows[12].hit_ratio < flows[0].hit_ratio
    assert [flow.hit_ratio for flow in flows[1:12]] == [flow.hit_ratio for flow in flows[:12:-1]]


@settings(max_examples=30, deadline=None)
@given(
    requests_per_s=st.floats(0.01, 5000),
    open_s=st.floats(0, 5),
    n_datasets=st.integers(1, 5000),
    option=st.sampled_from(OPTIONS),
)
def test_bills_grow_with_load(
    requests_per_s: float, open_s: float, n_datasets: int, option: Option
) -> None:
    """Nothing is negative, shares are shares, and twice the load never costs less."""
    once = change(
        Assumptions(),
        {"requests_per_s": requests_per_s, "open_s": open_s, "n_datasets": n_datasets},
    )
    cost = price_option(once, get_prices(), option=option)
    twice = price_option(
        change(once, {"requests_per_s": 2 * requests_per_s}), get_prices(), option=option
    )
    assert min(cost.lines.values()) >= 0
    assert 0 <= cost.hit_ratio <= 1
    assert 0 <= cost.edge_hit_ratio <= 1
    # A CDN and a disk hit more when busier, so only the parts that no cache touches must grow.
    assert twice.lines["data out"] == pytest.approx(2 * cost.lines["data out"])
    if option in ("none", "redis"):
        assert twice.usd >= cost.usd


# The day, its credits and its queues.


@given(st.floats(1, 12))
@settings(max_examples=30, deadline=None)
def test_curve_has_its_peak(peak_ratio: float) -> None:
    """The curve averages to 1, and its busiest hour is what was asked for."""
    curve = diurnal_curve(peak_ratio)
    assert len(curve) == 24
    assert sum(curve) == pytest.approx(24)
    assert max(curve) == curve[0] == pytest.approx(peak_ratio, rel=1e-9)


@pytest.mark.parametrize(
    ("stored_gb", "metered", "expected"),
    [
        # 1000 GB earn 50 MB/s; at rest the full balance of 2.1 TB stays.
        (1000, [0, 0], (2100, 2100)),
        # 100 MB/s take 50 MB/s more than comes in: 180 GB an hour, below 0 in the twelfth.
        (1000, [100] * 12, tuple(2100 - 180 * hour for hour in range(1, 13))),
        # 2000 GB hold 4.2 TB of credits.
        (2000, [0], (4200,)),
    ],
)
def test_credits(stored_gb: float, metered: list[float], expected: tuple[float, ...]) -> None:
    """Credits come in by what is stored and go out by what is metered."""
    assert credit_balances(stored_gb, metered) == pytest.approx(expected)


def test_a_shared_file_system_meters_reads_by_a_third() -> None:
    """A third of what hits read and all that misses write, as the published throughputs have it."""
    assumptions = change(EVEN, {"shared_read_nbytes": 3e5, "metadata_nbytes": 5e5})
    flows = (HourlyDemand(200, 100, 0, hit, 1, 1, 1) for hit in (1.0, 0.0, 0.5))
    metered = metered_mb_per_s(assumptions, Day(tuple(flows), 1))
    assert metered == pytest.approx([10, 50, 30])
    of_reads = BASELINE_MB_PER_S_PER_GB * READS_PER_METERED
    assert of_reads == pytest.approx(PublishedLoad().shared_mb_per_s_per_gb)


@pytest.mark.parametrize(
    ("metered", "expected"),
    [
        # The published load: 185 MB/s of reads.
        ([185 / 3] * 24, 1233.33),
        # Within the least baseline nothing need be added.
        ([1.0] * 24, 0.05),
        # Averages count, while credits carry the peak: 50 MB/s for 12 hours, nothing for 12.
        ([50.0] * 12 + [0.0] * 12, 500),
        # Above 100 MB/s the ceiling of bursts binds: 200 MB/s for an hour need 2 TB.
        ([200.0] + [0.0] * 23, 2000),
        # 75 MB/s on average need 1500 GB.
        ([90.0] * 20 + [0.0] * 4, 1500),
        # 1000 GB would earn it, but 12 hours of 100 MB/s take 180 GB an hour more than comes in, 2160 in
        # all, and credits are 2.1 GB for each GB: (2.1 + 12 * 0.18) stored = 4320.
        ([100.0] * 12 + [0.0] * 12, 4320 / 4.26),
    ],
)
def test_least_stored(metered: list[float], expected: float) -> None:
    """The file system holds as little as carries the day for ever."""
    assert least_stored_gb(metered, data_gb=0.05) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("n_servers", "load", "expected"),
    [
        # One server is busy as often as its load says.
        (1, 0.5, 0.5),
        # Two servers at load 1: 1/3, from any book on queues.
        (2, 1.0, 1 / 3),
        # Nobody waits where there is no load.
        (3, 0.0, 0.0),
    ],
)
def test_waiting(n_servers: int, load: float, expected: float) -> None:
    """Erlang's C formula gives its known values."""
    assert wait_probability(n_servers, load) == pytest.approx(expected)


# Decisions.


def test_break_even_is_where_costs_are_equal() -> None:
    """At the rate found both options cost the same, and above it the one that is named costs less."""
    ((rate, winner),) = break_even_rates(Assumptions(), get_prices(), pair=("none", "redis"))
    curves = cost_curves(Assumptions(), get_prices(), rates_per_s=[rate / 2, rate, rate * 2])
    below, at, above = (curves["none"][k] - curves["redis"][k] for k in range(3))
    assert winner == "redis"
    assert at == pytest.approx(0, abs=CENT)
    assert below < 0 < above


def test_break_even_rises_with_the_price_of_redis() -> None:
    """A dearer node pays from a higher rate on, in proportion where nothing else is fixed."""
    free = {**get_prices(), "nat_hour": 0.0}
    rates = [
        break_even_rates(Assumptions(), {**free, "redis_node_hour": price}, pair=("none", "redis"))[
            0
        ][0]
        for price in (0.034, 0.068)
    ]
    assert rates[1] / rates[0] == pytest.approx(2, rel=0.05)


def test_no_break_even_where_one_always_wins() -> None:
    """Where opening takes no time and no request, a cache never pays and nothing crosses."""
    useless = change(Assumptions(), {"open_s": 0, "open_gets": 0})
    assert break_even_rates(useless, get_prices(), pair=("none", "redis")) == []
    assert tell_verdict(useless, {**get_prices(), "cdn_requests_1e4": 99.0}).endswith(
        "no other option costs less."
    )


def test_tornado_is_sorted_and_true() -> None:
    """Bars are those of the model itself, longest first, one an assumption or price that matters."""
    prices = get_prices()
    bars = tornado(Assumptions(), prices, option="redis")
    assert [bar.swing_usd for bar in bars] == sorted((bar.swing_usd for bar in bars), reverse=True)
    bar = next(one for one in bars if one.name == "open_s")
    at = compare_options(change(Assumptions(), {"open_s": bar.high}), prices)
    assert bar.high_usd == pytest.approx(at["none"].usd - at["redis"].usd)
    names = {one.name for one in bars}
    assert {"requests_per_s", "open_s", "redis_fetch_s", "price redis_node_hour"} <= names
    # Neither the CDN nor the bytes of a tile make a difference between Redis and no cache.
    assert not {"n_edges", "tile_nbytes", "price cdn_gb"} & names


def test_tornado_stays_in_bounds() -> None:
    """No assumption is varied beyond what it may be."""
    bounds = {entry["name"]: entry["bounds"] for entry in describe() if "bounds" in entry}
    for bar in tornado(Assumptions(), get_prices(), option="disk"):
        if bar.name in bounds:
            assert bounds[bar.name][0] <= bar.low <= bar.high <= bounds[bar.name][1]


def test_equal_tail() -> None:
    """At a 95th percentile that all can keep, more instances make up for longer times, up to a limit."""
    tails: dict[Option, float] = {"none": 1.0, "redis": 0.7}
    none, redis = equal_tail(Assumptions(), get_prices(), p95_s=tails, target_s=1.05)
    assert none.n_instances > redis.n_instances > 0
    assert none.usd_per_million > redis.usd_per_million > 0
    assert max(none.p95_s, redis.p95_s) <= 1.05
    # Where all but instances is free: 720 hours of 2 processors and 8 GB each.
    hours = {**dict.fromkeys(PRICE_UNITS, 0.0), "instance_vcpu_hour": 1.0, "instance_gb_hour": 1.0}
    (alone,) = equal_tail(Assumptions(), hours, p95_s={"redis": 0.7}, target_s=1.05)
    millions = 185 * 2.592
    assert alone.usd_per_million == pytest.approx(alone.n_instances * 720 * (2 + 8) / millions)
    none, redis = equal_tail(Assumptions(), get_prices(), p95_s=tails, target_s=0.9)
    # No number of instances makes a service faster than it is.
    assert (none.n_instances, none.usd_per_million) == (0, math.inf)
    assert redis.n_instances > 0


def test_instances_are_bounded_by_their_processors() -> None:
    """Waiting for the store takes no processor: 26 that are always on at 70 % carry 370 tiles a second."""
    always_on = change(Assumptions(), {"billing": "instance", "instance_vcpus": 1})
    cost = price_option(always_on, ONES, option="none")
    assert cost.busy_cpus == pytest.approx(370 * 0.065)
    assert cost.n_instances == math.ceil(370 * 0.065 / 0.7)
    slow = price_option(change(always_on, {"open_s": 10}), ONES, option="none")
    assert slow.n_instances == cost.n_instances


def test_redis_has_as_many_nodes_as_carry_the_peak() -> None:
    """Opened datasets of half a megabyte are more than a node sends, those of 10 kB are not."""
    for nbytes, n_nodes in ((5e5, 12), (1e4, 1)):
        cost = price_option(
            change(Assumptions(), {"metadata_nbytes": nbytes}), ONES, option="redis"
        )
        assert cost.lines["Redis"] == 720 * n_nodes


def test_a_cache_in_each_process_needs_no_disk_and_no_network() -> None:
    """It hits as a disk of its size does, costs nothing of its own, and helps behind a CDN too."""
    given = change(Assumptions(), {"disk_gb": 0.512, "process_gb": 0.512, "disk_fetch_s": 0.0})
    costs = compare_options(given, get_prices())
    assert costs["process"].hit_ratio == pytest.approx(costs["disk"].hit_ratio)
    assert costs["process"].lines["disk"] == costs["process"].lines["NAT gateways"] == 0
    assert costs["cdn-process"].edge_hit_ratio == costs["cdn"].edge_hit_ratio > 0
    assert costs["cdn-process"].usd < costs["cdn"].usd


def test_equal_tails_count_what_a_cdn_holds() -> None:
    """Where the CDN holds most tiles, more of those that are made may be late; large loads answer at once."""
    prices = get_prices()
    held = change(Assumptions(), {"tiles_per_dataset": 100, "cdn_ttl_s": 1e6})
    assert late_share(price_option(held, prices, option="cdn")) == 1  # 95 in 100 are never made
    some = late_share(price_option(Assumptions(), prices, option="cdn"))
    assert 0.05 < some < 1
    huge = change(Assumptions(), {"requests_per_s": 1e5})
    (row,) = equal_tail(huge, prices, p95_s={"none": 1.0}, target_s=1.01)
    fewer = change(huge, {"billing": "instance"})
    assert row.n_instances >= 2e5 * 0.065 / fewer.instance_vcpus
    assert row.p95_s <= 1.01


def test_verdict_is_made_from_the_model() -> None:
    """The verdict names the cheapest option of the model, and another where prices turn it."""
    prices = get_prices()
    costs = compare_options(Assumptions(), prices)
    text = tell_verdict(Assumptions(), prices)
    assert min(OPTIONS, key=lambda option: costs[option].usd) == "cdn-process"
    # Amounts to three digits.
    told = f"a CDN in front of a cache in each process at {round(costs['cdn-process'].usd, -2):,.0f} USD"
    assert told in text
    # No amount without how computing is billed, and no key of the code among the words.
    assert text.startswith(
        "At 185 tiles a second, billed by invocation with 10 GB, no cache costs "
    )
    quick = tell_verdict(change(Assumptions(), {"make_s": 0.0862, "open_s": 0.346}), prices)
    assert "_" not in quick and "most on the price of computing by invocation;" in quick
    always_on = change(Assumptions(), {"billing": "instance"})
    assert "on instances of 2 processors and 8 GB that are always on" in tell_verdict(
        always_on, prices
    )
    dear = tell_verdict(Assumptions(), {**prices, "cdn_requests_1e4": 1.0})
    assert "CDN" not in dear


# What is refused.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"requests_per_s": 0}, "requests_per_s is 0; allowed is a number from 0.001 to 100000"),
        ({"requests_per_s": -1}, "requests_per_s is -1; allowed"),
        ({"requests_per_s": math.nan}, "requests_per_s is nan; allowed"),
        ({"requests_per_s": "many"}, "requests_per_s is 'many'; allowed is a number"),
        ({"peak_ratio": 0.5}, "peak_ratio is 0.5; allowed is a number from 1 to 12"),
        ({"billing": "barter"}, "billing is 'barter'; allowed are invocation, instance"),
        ({"nonsense": 1}, "nonsense: 1; no such assumption; allowed: requests_per_s, "),
    ],
)
def test_wrong_assumption_is_refused(changes: dict[str, Any], message: str) -> None:
    """An assumption that is unknown or out of bounds is refused by name."""
    with pytest.raises(UserError, match=message):
        change(Assumptions(), changes)


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ({**ONES, "nat_gb": -1.0}, "price nat_gb is -1; allowed is a number from 0 on, in USD/GB"),
        ({**ONES, "nat_gb": math.inf}, "price nat_gb is inf; allowed"),
        ({item: 1.0 for item in PRICE_UNITS if item != "cdn_gb"}, "price cdn_gb is missing; allowed"),
        ({**ONES, "gold": 1.0}, "price gold: no such item; allowed: invocation_gb_s"),
    ],
)  # fmt: skip
def test_wrong_price_is_refused(prices: dict[str, float], message: str) -> None:
    """A price that is negative, missing or unknown is refused before anything is estimated."""
    with pytest.raises(UserError, match=message):
        compare_options(Assumptions(), prices)
    with pytest.raises(UserError, match=message):
        published_costs(prices)


@pytest.mark.parametrize("option", ["none"])
def test_tornado_of_nothing_is_refused(option: Option) -> None:
    """No cache saves nothing against itself."""
    with pytest.raises(UserError, match="tornado of 'none'"):
        tornado(Assumptions(), get_prices(), option=option)


# The command.


def run(*arguments: str) -> Any:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["costs", *arguments])


def test_command_prints_the_model() -> None:
    """The command prints each option with the amounts of the model, and the verdict."""
    text = run("--set", "requests_per_s=20", "--price", "redis_node_hour=0.05").output
    assumptions = change(Assumptions(), {"requests_per_s": 20.0})
    prices = get_prices(overrides={"redis_node_hour": 0.05})
    for cost in compare_options(assumptions, prices).values():
        assert f"{cost.usd:,.2f}" in text
    assert tell_verdict(assumptions, prices) in text
    assert "current, us-east-1" in text


def test_command_prints_published_figures_beside_ours() -> None:
    """With --published each figure stands twice in its line, and the prices are those of the study."""
    lines = run("--published").output.splitlines()
    assert "published-2023" in lines[0]
    for item, usd in published("result").items():
        (line,) = [line for line in lines if line.startswith(item + " ")]
        assert line.split()[1:] == [f"{usd:,.2f}"] * 2


def test_command_prints_json() -> None:
    """With --json everything is there for a program to read."""
    tails = ("--p95", "none=1", "--p95", "redis=0.7", "--target-p95", "0.9")
    found = json.loads(run("--json", *tails).output)
    costs = compare_options(Assumptions(), get_prices())
    assert [row["option"] for row in found["options"]] == list(OPTIONS)
    assert {row["option"]: row["usd"] for row in found["options"]} == {
        option: cost.usd for option, cost in costs.items()
    }
    saved = {row["option"]: row["gets_saved"] for row in found["options"]}
    assert saved["none"] == 0 < saved["cdn"] < saved["redis"]
    assert found["equal_p95"][0]["usd_per_million"] is None
    assert json.loads(run("--json", "--published").output)["published"][0]["ours_usd"] > 0


def test_command_lists_what_can_be_set() -> None:
    """With --list every assumption and price is named, with what it is."""
    text = run("--list").output
    for entry in describe():
        assert entry["name"] in text and entry["label"] in text
    assert all(item in text for item in PRICE_UNITS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "requests_per_s=0"), "requests_per_s is 0; allowed"),
        (("--set", "requests_per_s"), "--set 'requests_per_s'; allowed is NAME=VALUE"),
        (("--price", "nat_gb=-1"), "price nat_gb is -1; allowed"),
        (("--price", "nat_gb=cheap"), "--price nat_gb=cheap; allowed is a number"),
        (("--region", "mars"), "region is 'mars'; allowed for current are us-east-1"),
        (("--price-set", "1999"), "price set is '1999'; allowed are published-2023, current"),
        (("--p95", "none=1"), "--p95 and --target-p95 go together"),
        (("--p95", "tape=1", "--target-p95", "2"), "--p95 tape=…; allowed are none, process, disk"),
        (("--p95", "none=0", "--target-p95", "2"), "95th percentile of none is 0.0; allowed"),
    ],
)
def test_command_refuses(arguments: tuple[str, ...], message: str) -> None:
    """Bad input is refused in one line that names it."""
    done = run(*arguments)
    assert isinstance(done.exception, UserError)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)
