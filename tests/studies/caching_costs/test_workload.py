"""What is requested, the loads of a sweep, and what a record says as numbers."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisors.costs.assumptions import Assumptions
from advisors.costs.bill import Cache, hit_ratio, zipf
from helpers.benchmark.record import read_records
from helpers.objectstore.locations import Location
from helpers.paths import ROOT
from studies.caching_costs import findings
from studies.caching_costs.caches import LruCache
from studies.caching_costs.datasets import Origin, dataset_names, make_specs, published_specs
from studies.caching_costs.findings import answer_claims
from studies.caching_costs.sweep import Point, list_points
from studies.caching_costs.workload import warm_plan, zipf_weights

TILES = [("a", 1, 0, 0), ("a", 1, 1, 0)]


def test_datasets_have_the_published_geometry() -> None:
    """Single chunks are single, and bytes are those of the names."""
    made = published_specs()
    assert len(made) == 12
    for name, (published, shape, chunks) in made.items():
        kind, size = name.split("-")
        assert 8 * shape[0] * shape[1] / 2**20 == pytest.approx(float(size[:-3]), rel=0.02)
        assert f"lat{shape[0]}_lon{shape[1]}" in published
        assert (shape == chunks) == (kind == "single" or name == "chunked-32mib")
    for spec, whole in zip(*(make_specs(dataset_names(), scale=s) for s in (0.25, 1)), strict=True):
        assert spec.nbytes == pytest.approx(whole.nbytes / 16, rel=0.05)


@given(n_requests=st.integers(1, 200), n_users=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
def test_plans_hold_every_request_once(n_requests: int, n_users: int, seed: int) -> None:
    """Requests are dealt evenly, are tiles that exist, and depend on the seed alone."""
    shape: dict[str, Any] = {"n_requests": n_requests, "n_users": n_users, "seed": seed}
    plan = warm_plan(["a", "b", "c"], exponent=1.0, **shape)
    assert sum(map(len, plan)) == n_requests
    assert max(map(len, plan)) - min(map(len, plan)) <= 1
    assert all(0 <= x < 2**z and 0 <= y < 2**z for part in plan for _, z, x, y in part)
    assert plan == warm_plan(["a", "b", "c"], exponent=1.0, **shape)


def test_real_cache_hits_as_often_as_predicted() -> None:
    """Che's approximation is within two percentage points of the cache of the service."""
    cache = LruCache(Origin(Location("s3", "nothing-is-read")), n_entries=25)
    asked = np.random.default_rng(1).choice(100, 22_000, p=zipf_weights(100, exponent=1.0))
    empty: Any = object()
    for name in map(str, asked):
        cache.get(name, lambda _: empty)
    measured = cache.counts().hits / 22_000
    assert hit_ratio(zipf(100, 1.0), 1.0, Cache(25)) == pytest.approx(measured, abs=0.02)


def test_loads_are_planned() -> None:
    """Users begin at different tiles; arrivals are as many as the rate has, in order, the same each time."""
    assert Point(2, 0.0, 1).plan(TILES, 1.0) == [TILES, TILES[::-1]]
    place = Point(0, 5.0, 1)
    assert [len(plan) for plan in place.plan(TILES, 2.0)] == [1] * 10
    due_s = place.due_s(2.0, seed=1)
    assert due_s == sorted(due_s) == place.due_s(2.0, seed=1)
    assert 0 <= min(due_s) < max(due_s) <= 2
    assert list_points([], [1.0], [1, 2]) == [Point(0, 1.0, 1)]


def make_row(phase: str, contender: str, point: dict[str, float], **numbers: Any) -> dict[str, Any]:
    """Make a row of a record."""
    shared = {"case": "c", "block": 0, "control_of": "", "n_requests": numbers.pop("n_requests", 0)}
    row = {"phase": phase, "contender": contender, "point": json.dumps(point), **shared}
    return {**row, "trace": json.dumps({"peak_nbytes": 6e8, **numbers})}


def alone(name: str, open_s: float, make_s: float, cpu_s: float, n_requests: int) -> dict[str, Any]:
    """Make a row of two requests to one dataset that were alone."""
    parts = {"latency_s": open_s + make_s, "open_s": open_s, "warp_s": 0.01, "cpu_s": cpu_s}
    each = {f"a|{part}|{k}": value for part, value in parts.items() for k in range(2)}
    more = {"n_tiles": 2, "tile_nbytes": 5200.0, "n_requests": n_requests}
    return make_row("calibration", name, {"n_users": 1}, **each, **more)


ROWS = pd.DataFrame(
    [
        alone("none", 0.3, 0.1, 0.15, 16),
        alone("lru", 0.0, 0.1, 0.1, 4),
        alone("redis", 0.01, 0.1, 0.1, 4),
        make_row("measured", "none", {"n_users": 3}, **{"a|latency_s|0": 0.5, "a|latency_s": 0.5}),
    ]
)


def test_assumptions_are_those_measured() -> None:
    """The model gets what was measured, and the rest stays as it is."""
    found = findings.learn_assumptions(ROWS, pd.Series({"a": 5000}))
    measured = {"make_s": 0.1, "open_s": 0.3, "fetch_s": 0.01, "metadata_nbytes": 5000}
    measured |= {"open_gets": 6.0, "tile_gets": 2.0, "tile_nbytes": 5200.0, "service_gb": 0.6}
    measured |= {"make_cpu_s": 0.1, "open_cpu_s": 0.05}
    assert asdict(found) == pytest.approx({**asdict(Assumptions()), **measured})
    opening = findings.measure_opening(findings.list_requests(ROWS, "calibration")).loc["a"]
    assert opening.to_dict() == pytest.approx({"open_s": 0.3, "make_s": 0.1, "warp_s": 0.01, "bound": 4})  # fmt: skip


def test_loads_of_a_sweep_are_compared_at_each() -> None:
    """One user gains the opening; forty wait for the processor, with a cache or without."""
    places = {(1, 0.0, 1): (0.4, 0.1), (40, 0.0, 1): (4.3, 4.0), (40, 0.0, 2): (2.3, 2.0), (0, 1.0, 1): (0.4, 0.1)}  # fmt: skip
    rows = [
        make_row(
            "measured",
            name,
            dict(zip(("n_users", "rate_per_s", "n_workers"), place, strict=True)),
            **{"p50_s": p50_s, "p95_s": p50_s, "n_tiles": 9, "n_failures": 0, "tiles_per_s": 1.0},
        )
        for place, both in places.items()
        for name, p50_s in zip(("none", "lru"), both, strict=True)
    ]
    table = findings.tabulate_sweep(pd.concat([ROWS, pd.DataFrame(rows)], ignore_index=True))
    lru = table[table["contender"] == "lru"].set_index(["n_users", "n_workers"])["gain"]
    assert lru.to_dict() == pytest.approx({(1, 1): 4, (40, 1): 1.075, (40, 2): 1.15, (0, 1): 4})
    drawn = findings.arrange_sweep(table).groupby("axis")["at"].unique().map(sorted)
    assert drawn.to_dict() == {"users": [1, 40], "tiles/s": [1], "services": [1, 2]}
    assert findings.tabulate_sweep(ROWS).empty
    assert findings.arrange_sweep(findings.tabulate_sweep(ROWS)).empty


def test_the_calculator_begins_with_what_the_reference_measured() -> None:
    """One baseline for the command, the page and the book: defaults are those of the published size."""
    path = ROOT / "results" / "reference" / "caching-costs" / "published-size.csv"
    names = ("single-4mib", "single-256mib", "chunked-64mib")
    found = findings.learn_assumptions(
        read_records([path]), pd.Series(dict.fromkeys(names, 65_000))
    )
    measured = ["make_s", "open_s", "fetch_s", "make_cpu_s", "open_cpu_s", "tile_gets", "open_gets"]
    measured += ["tile_nbytes", "service_gb"]
    for name in measured:
        assert getattr(Assumptions(), name) == pytest.approx(getattr(found, name), rel=0.1), name


def test_claims_have_their_answers() -> None:
    """Those that a case here can decide, with intervals of several blocks."""
    found = answer_claims()
    assert found["computing-cost"]["by Little's law"].centre == pytest.approx(92.5 * 432.000864)  # type: ignore[union-attr]
    assert found["opening-counts"]["in-region"].n > 1  # type: ignore[union-attr]
