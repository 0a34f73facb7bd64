"""The table of choices: what it names is the cheapest, and worth having."""

from __future__ import annotations

from advisors.costs.assumptions import Assumptions, change
from advisors.costs.bill import compare_options
from advisors.costs.calculator import DEFAULT_SET, REGION
from advisors.costs.cheapest import CHANGES, choose, render_choices, tabulate_choices
from advisors.costs.prices import get_prices

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
    assert len(lines) == 1 and len(lines[0]) == 2 + len(CHANGES)
    short = change(Assumptions(), {"requests_per_s": 20.0, "n_datasets": 1000, "ttl_s": 60.0})
    long = change(short, {"ttl_s": 30 * 86400.0})
    for option in ("disk", "redis"):
        found = [compare_options(one, PRICES)[option].hit_ratio for one in (short, long)]
        assert found[0] < found[1]


def test_the_page_has_a_row_for_each_rate_and_number() -> None:
    """Amounts stand with their unit."""
    text = render_choices()
    assert text.count("USD") >= 9 * len(CHANGES)
    assert "100 000" in text and "185" in text
