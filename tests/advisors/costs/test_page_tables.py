"""The table of choices names the cheapest that is worth having; what a case asks of a store is counted."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from advisors.costs.assumptions import Assumptions, change
from advisors.costs.bill import compare_options
from advisors.costs.calculator import DEFAULT_SET, ONE_PROCESSOR_GB, REGION, write_usd
from advisors.costs.page_tables import (
    CHANGES,
    REFERENCE,
    choose,
    count_run,
    find_runs,
    render_choices,
    render_runs,
    tabulate_choices,
)
from advisors.costs.prices import get_prices
from helpers.benchmark.record import read_records
from helpers.book.studies import Expected, find_studies, find_study

PRICES = get_prices(DEFAULT_SET, REGION)


def test_the_choice_is_the_cheapest_that_is_worth_it() -> None:
    """A cache that hardly saves is none; one that saves is named with both amounts."""
    costs = compare_options(Assumptions(), PRICES)
    best = choose(costs)
    assert best.usd == min(cost.usd for cost in costs.values())
    free = compare_options(change(Assumptions(), {"open_s": 0.0, "open_gets": 0.0}), PRICES)
    kept = {name: free[name] for name in ("none", "redis")}
    assert choose(kept).option == "none"


def test_data_that_change_are_kept_for_less() -> None:
    """A minute's life costs hits, so the choice at one is no cheaper than for ever."""
    lines = tabulate_choices(Assumptions(), PRICES, rates_per_s=[20.0], n_datasets=[1000])
    assert len(lines) == 1 and len(lines[0]) == 1 + len(CHANGES)
    assert lines[0][0] == "20 tiles/s, 1,000 datasets"
    short = change(Assumptions(), {"requests_per_s": 20.0, "n_datasets": 1000, "ttl_s": 60.0})
    long = change(short, {"ttl_s": 30 * 86400.0})
    for option in ("disk", "redis"):
        found = [compare_options(one, PRICES)[option].hit_ratio for one in (short, long)]
        assert found[0] < found[1]


def test_the_page_has_a_row_for_each_rate_and_number() -> None:
    """Amounts stand with their unit."""
    text = render_choices()
    assert text.count("USD") >= 9 * len(CHANGES)
    assert "100,000" in text and "185" in text
    # memory comes first: what it saves alone, and a table that has it already
    told = compare_options(change(Assumptions(), {"memory_gb": ONE_PROCESSOR_GB}), PRICES)["none"]
    amount = write_usd(told.usd)
    assert "billed by invocation" in text
    assert f"into {amount}" in text and f"without: {amount}" in text


def make_rows() -> pd.DataFrame:
    """Make three reads: two in a row, one after a long pause."""
    starts = ["2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "2026-01-01T05:00:00Z"]
    return pd.DataFrame(
        {
            "started_utc": starts,
            "open_s": 1.0,
            "read_s": 5.0,
            "n_requests": [10, 20, None],
            "wire_nbytes": [1e9, 2e9, None],
            "trace": [json.dumps({"n_open_requests": 4}), "{}", "{}"],
        }
    )


def test_requests_of_opening_count_and_pauses_do_not() -> None:
    """What was not traced counts nothing."""
    assert count_run(make_rows()) == pytest.approx(
        {"reads": 3, "requests": 34, "gb": 3.0, "minutes": 1.1}
    )


def test_every_published_case_over_a_network_is_priced() -> None:
    """Reading from outside the region costs more than from inside."""
    text = render_runs()
    titles = {f"{path.parent.name}/{path.stem}" for path in find_runs()}
    shown = {line.split(" | ")[0].removeprefix("| ") for line in text.splitlines()[2:]}
    assert shown <= titles
    assert {"cluster-scaling/in-region", "hdf5-drivers/in-region"} <= shown
    for line in text.splitlines()[2:]:
        inside, outside = (float(cell) for cell in line.strip("| ").split(" | ")[-2:])
        assert 0 <= inside < outside


def expect(title: str) -> tuple[Expected, dict[str, float]]:
    """Tell what a published case is expected to ask for, and what it did."""
    rows = read_records([REFERENCE / f"{title}.csv"])
    n_blocks = int(rows.loc[rows["phase"] == "measured", "block"].max()) + 1
    expected = find_study(title.partition("/")[0]).expect
    assert expected is not None
    return expected(json.loads(rows["parameters"].iloc[0]) | {"n_blocks": n_blocks}), count_run(
        rows
    )


@pytest.mark.parametrize(
    ("title", "most"),
    [
        ("cluster-scaling/wide-area", 1.25),
        ("chunk-shape/other-region", 1.25),
        ("chunk-shape/other-region-sharded", 1.5),
        ("hdf5-drivers/layouts", 3),
    ],
)
def test_what_is_expected_of_a_case_is_what_it_asked_for(title: str, most: float) -> None:
    """Scaled from one published case, the requests and bytes of others are near, or above."""
    found, asked = expect(title)
    assert 0.75 * asked["requests"] <= found.n_requests <= most * asked["requests"]
    assert 0.75 * asked["gb"] <= found.gb <= most * asked["gb"]
    assert 0 < found.usd_in_region < found.usd_outside


@pytest.mark.parametrize("name", list(find_studies()))
def test_every_study_says_what_it_asks_for(name: str) -> None:
    """So that no case on a store of one's own runs without its price; nearly twice that for twice the blocks."""
    study = find_study(name)
    assert study.expect is not None
    given = study.parameters().model_dump() | {"store": "s3://b/p"}
    one, two = (study.expect(given | {"n_blocks": n}) for n in (5, 10))
    if one.n_requests:  # chunk shapes are read from a disk by default
        assert 1.5 < two.n_requests / one.n_requests < 2.01
        assert 1.5 < two.gb / one.gb < 2.01 and one.usd_in_region < one.usd_outside
