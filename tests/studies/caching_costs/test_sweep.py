"""Loads of a sweep: who asks when, what is predicted of it, and where a gain goes."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from studies.caching_costs.figures import draw_sweep, list_panels
from studies.caching_costs.load import QUANTILES
from studies.caching_costs.sweep import (
    Point,
    SweepLoad,
    _compare_halves,
    _draw_again,
    find_sweep,
    lay_out,
    list_points,
    split,
    tabulate_sweep,
)
from tests.studies.caching_costs.test_workload import alone, make_rows, make_workload

TILES = [("a", 1, 0, 0), ("a", 1, 1, 0)]


def test_loads_are_planned() -> None:
    """Users begin at different tiles; arrivals are as many as the rate has, in order, the same each time."""
    assert Point(2, 0.0, 1).plan(TILES, 1.0) == [TILES, TILES[::-1]]
    place = Point(0, 5.0, 1)
    assert [len(plan) for plan in place.plan(TILES, 2.0)] == [1] * 10
    due_s = place.due_s(2.0, seed=1)
    assert due_s == sorted(due_s) == place.due_s(2.0, seed=1)
    assert 0 <= min(due_s) < max(due_s) <= 2
    assert list_points([], [1.0], [1, 2]) == [Point(0, 1.0, 1)]


def make_sweep(cache: str, place: Point, p50_s: float) -> tuple[SweepLoad, dict[str, Any]]:
    """Make a load of a sweep, and the row that a record has of it."""
    load: Any = SimpleNamespace(workload=make_workload([TILES]))
    one = SweepLoad(load, [], place, 5.0, 1, set())
    numbers: dict[str, float] = {
        **{f"p{q:02}_s": p50_s for q in QUANTILES},
        "n_tiles": 9,
        "n_failures": 0,
        "tiles_per_s": 1.0,
        "generator_share": 0.02,
        "p50_s": p50_s,
        "p95_s": 2 * p50_s,
    }
    row = {"phase": "measured", "contender": cache, "block": 0, "point": json.dumps(one.point)}
    row |= {"read_s": 5.0, "machine": json.dumps({"n_cores": 2})}
    return one, {**row, "trace": json.dumps(numbers)}


def test_gains_vanish_where_the_processor_is_full() -> None:
    """One user gains the opening; forty wait for the processor, with a cache or without; two services halve that."""
    isolated = make_rows("calibration", {"none": alone(0.3, 0.1, 0.1), "lru": alone(0, 0.1, 0.1)})
    isolated["machine"] = json.dumps({"n_cores": 2})
    places = {
        Point(1, 0.0, 1): (0.4, 0.1),
        Point(40, 0.0, 1): (4.3, 4.0),
        Point(40, 0.0, 2): (2.3, 2.0),
        Point(0, 1.0, 1): (0.4, 0.1),
    }
    made = [
        (cache, *make_sweep(cache, place, p50_s[k]))
        for place, p50_s in places.items()
        for k, cache in enumerate(("none", "lru"))
    ]
    rows = pd.DataFrame([row for _, _, row in made])
    blocks = rows.assign(point=json.dumps({"n_users": 3}))
    both = pd.concat([blocks, rows], ignore_index=True)
    # a record that was continued was warmed up anew, which is no block
    warmed = rows.assign(phase="warm-up")
    assert [len(part) for part in split(pd.concat([both, warmed]))] == [8, 8]
    loads = [(cache, one) for cache, one, _ in made]
    table = tabulate_sweep(isolated, rows, loads)
    assert len(table) == 8
    assert table["p50_error"].abs().max() < 0.15
    lru = table[table["contender"] == "lru"].set_index(["n_users", "n_workers"])["gain"]
    assert lru[1, 1] == pytest.approx(4)
    assert (lru[40, 1], lru[40, 2]) == pytest.approx((4.3 / 4, 2.3 / 2))
    told = find_sweep(table)
    assert "lru 4 times at 1 and 1.1 at 40 users (gone from 40 on)" in told["verdict-load"]
    assert told["verdict-load"].endswith("; lru 4 times at 1 tiles a second.")
    few = find_sweep(table[table["n_users"] < 40])["verdict-load"]
    assert few.endswith(" It stays above 1.1 times at every load of one service.")
    panels = list_panels(table)
    assert {axis: sorted({*one["at"]}) for axis, one in panels.items()} == {
        "users at once": [1, 40],
        "arrivals (1/s)": [1],
        "services": [1, 2],
    }
    axes = Figure().subplots(1, 3)
    draw_sweep(axes, panels)
    for ax in axes:  # one load alone shows its prediction too
        assert sum(line.get_marker() == "_" for line in ax.lines) == 2
    assert told["sweep-failures"] == "0"
    assert (
        "Of 8 loads, the predicted median is within 15 % of the measured one at 8"
        in told["verdict-sweep"]
    )
    # each load has one block, so that nothing is known of how far blocks agree
    assert "One block says nothing of how far blocks agree." in told["verdict-sweep"]
    # two services of one processor are as slow as one of them, and a block of its own that took
    # twice as long is told as what it is
    slow = rows[rows["contender"] == "lru"].iloc[:1]
    slow = slow.assign(trace=slow["trace"].str.replace('"p50_s": 0.1', '"p50_s": 0.2'))
    slow = slow.assign(trace=slow["trace"].str.replace('_share": 0.02', '_share": 0.03'))
    single = pd.concat([rows, slow], ignore_index=True)
    lines = tabulate_sweep(isolated.assign(machine=json.dumps({"n_cores": 1})), single, loads)
    found = lines.set_index(["contender", "n_users", "n_workers"])
    assert found.loc[("lru", 40, 2), "p50_error"] == pytest.approx(1, abs=0.1)
    one = lines[(lines["contender"] == "lru") & (lines["n_users"] == 1)].iloc[0]
    assert (one["p50_spread"], one["p50_halves"]) == (1.0, 0.0)
    assert one["generator_spread"] == pytest.approx(0.5)
    told = find_sweep(lines)
    assert "and by 100 % with lru at 1 user;" in told["verdict-sweep"]
    assert "in two, 0 % give medians within 15 %" in told["verdict-sweep"]
    assert " at 40 users of 2 services" in told["verdict-sweep"].partition(" beyond it, ")[2]


def test_gains_are_those_of_means_where_no_tile_is_near_the_median() -> None:
    """Half of the tiles take ten times the others: one more slow one in a load that is faster is no loss."""
    slow_s = {"none": (60, 0.5, 2.6), "lru": (45, 0.1, 2.4)}  # from which percentile on, and both
    isolated = make_rows("calibration", {name: alone(0, 0.1, 0.1) for name in slow_s})
    loads, rows = [], []
    for name, (first, quick, slow) in slow_s.items():
        one, row = make_sweep(name, Point(4, 0.0, 1), 0)
        latency_s = {f"p{q:02}_s": slow if q > first else quick for q in QUANTILES}
        row["trace"] = json.dumps(json.loads(row["trace"]) | latency_s)
        loads.append((name, one))
        rows.append(row)
    table = tabulate_sweep(isolated, pd.DataFrame(rows), loads).set_index("contender")
    assert table.loc["none", "p50_s"] < table.loc["lru", "p50_s"]  # the median says the contrary
    mean_s = {"none": 0.625 * 0.5 + 0.375 * 2.6, "lru": 0.475 * 0.1 + 0.525 * 2.4}
    assert table.loc["lru", "gain_of"] == "mean"
    assert table.loc["lru", "gain"] == pytest.approx(mean_s["none"] / mean_s["lru"])
    told = find_sweep(table.reset_index())["verdict-load"]
    assert "lru 0.98 times in the mean at 4 users" in told
    assert "means where a median lies between quick tiles and slow ones." in told


@pytest.mark.parametrize(
    ("blocks_s", "agreed"),
    [
        ([1.0, 1.1], 1.0),
        ([1.0, 1.2], 0.0),
        ([1.0, 1.0, 1.0, 1.0, 9.0], 0.6),  # one of five moves no median of three, but a mean of two
        ([1.0, 1.0, 2.0, 2.0], 4 / 6),  # but for two equal ones in one half, medians are 1.5
    ],
)
def test_halves_of_blocks_are_held_against_the_target(blocks_s: list[float], agreed: float) -> None:
    """All ways to split blocks in two count alike."""
    assert _compare_halves(pd.Series(blocks_s)) == pytest.approx(agreed)


def test_blocks_drawn_anew_tell_what_an_errorless_prediction_would_reach() -> None:
    """Two blocks that differ are drawn both in half of the draws; one tells nothing."""
    assert _draw_again(pd.Series([1.0, 1.1])) == 1
    assert _draw_again(pd.Series([1.0, 2.0])) == pytest.approx(0.5, abs=0.05)
    assert math.isnan(_draw_again(pd.Series([1.0])))


def test_ranges_hold_what_chance_leaves() -> None:
    """A range holds the prediction, and is wider the less requests agree; the page has both tables."""
    even, uneven = alone(0.3, 0.1, 0.1), alone(0.3, 0.1, 0.1) | {"a|latency_s|1": 0.6}
    found = []
    for costs in (even, uneven):
        made = [make_sweep("none", Point(4, 0.0, 1), p50_s) for p50_s in (0.68, 5.0)]
        rows = pd.DataFrame([row for _, row in made])
        isolated = make_rows("calibration", {"none": costs})
        found.append(tabulate_sweep(isolated, rows, [("none", made[0][0])]).iloc[0])
    widths = [one["p50_to_s"] - one["p50_from_s"] for one in found]
    assert widths[0] == pytest.approx(0, abs=1e-9) and widths[1] > 0.05
    last = found[1]
    assert last["p50_from_s"] <= last["predicted_p50_s"] <= last["p50_to_s"]
    assert last["p50_from_s"] < 0.68 < last["p50_to_s"] < 5
    assert last["p50_within"] == 0.5  # of two blocks
    measured, predicted = lay_out(pd.DataFrame(found))
    assert measured["arrivals (1/s)"].tolist() == ["-", "-"]
    assert {"p95 halves", "generator spread", "gain"} <= {*measured}
    assert {"p50 from (s)", "p50 error", "p95 within"} <= {*predicted}
