"""Loads of a sweep: who asks when, what is predicted of it, and where a gain goes."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from studies.caching_costs.figures import draw_sweep, list_panels
from studies.caching_costs.sweep import (
    Point,
    SweepLoad,
    find_sweep,
    list_points,
    split,
    tabulate_sweep,
)
from tests.studies.caching_costs.test_workload import alone, make_rows

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
    workload = SimpleNamespace(warm=[TILES], must_fail=[], think_s=0.0)
    load: Any = SimpleNamespace(workload=workload)
    one = SweepLoad(load, [], place, 5.0, 1, set())
    numbers = {
        "n_tiles": 9,
        "n_failures": 0,
        "tiles_per_s": 1.0,
        "p50_s": p50_s,
        "p95_s": 2 * p50_s,
    }
    row = {"phase": "measured", "contender": cache, "block": 0, "point": json.dumps(one.point)}
    row |= {"machine": json.dumps({"n_cores": 2})}
    return one, {**row, "trace": json.dumps(numbers)}


def test_gains_vanish_where_the_processor_is_full() -> None:
    """One user gains the opening; forty wait for the processor, with a cache or without; two services halve that."""
    isolated = make_rows("calibration", {"none": alone(0.3, 0.1, 0.1), "lru": alone(0, 0.1, 0.1)})
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
    assert [len(part) for part in split(both)] == [8, 8]
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
    assert "differ by 0 % themselves" in told["verdict-sweep"]
    # two services of one processor are as slow as one of them, and a block of its own that took
    # twice as long is told as what it is
    slow = rows[rows["contender"] == "lru"].iloc[:1]
    slow = slow.assign(trace=slow["trace"].str.replace('"p50_s": 0.1', '"p50_s": 0.2'))
    single = pd.concat([rows, slow], ignore_index=True).assign(machine=json.dumps({"n_cores": 1}))
    lines = tabulate_sweep(isolated, single, loads)
    two = lines.set_index(["contender", "n_users", "n_workers"]).loc[("lru", 40, 2)]
    assert two["p50_error"] == pytest.approx(1, abs=0.1)
    told = find_sweep(lines)
    assert "and by 100 % with lru at 1 user." in told["verdict-sweep"]
    assert " at 40 users of 2 services" in told["verdict-sweep"].partition(" beyond it, ")[2]
    assert "above the target" not in told["verdict-sweep"]  # of the other loads the blocks agree
    # blocks that differ by more than the bar cannot tell whether a prediction meets it
    noisy = lines.assign(p50_spread=0.6, p95_spread=0.2)
    n_near = {
        q: int((noisy[f"{q}_error"].abs() <= 0.15 + half).sum())
        for q, half in (("p50", 0.3), ("p95", 0.1))
    }
    assert min(n_near.values()) < len(noisy)  # two services of one processor are too slow
    told = find_sweep(noisy)
    assert (
        f"{n_near['p50']} medians and {n_near['p95']} 95th percentiles are within it"
        in told["verdict-sweep"]
    )
