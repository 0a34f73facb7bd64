"""What is requested, how loads are dealt, and what a record says as numbers."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from helpers.benchmark.contender import CheckError
from studies.caching_costs import findings, four_caches
from studies.caching_costs.datasets import (
    Datasets,
    dataset_names,
    make_specs,
    published_specs,
)
from studies.caching_costs.workload import Point, Workload, in_turn, plan_workload
from wire.bed.locations import Location
from wire.costs.bill import Assumptions


def test_datasets_have_the_published_geometry() -> None:
    """Single chunks are single, and bytes are those of the names."""
    made = published_specs()
    assert len(made) == 18  # the seventeen, and one of our own
    for published, spec in [*made.items()][:12]:
        kind, size = spec.name.split("-")
        assert spec.nbytes / 2**20 == pytest.approx(float(size[:-3]), rel=0.02)
        assert f"lat{spec.shape[0]}_lon{spec.shape[1]}" in published
        is_single = kind == "single" or spec.name == "chunked-32mib"
        assert (spec.shape == spec.chunk_shape) == is_single
    for spec, whole in zip(*(make_specs(dataset_names(), scale=s) for s in (0.25, 1)), strict=True):
        assert spec.nbytes == pytest.approx(whole.nbytes / 16, rel=0.05)


def test_arrivals_are_due_at_their_rate() -> None:
    """In order, the same for a seed, and within the time that they take; users are never due."""
    due_s = Point(0, 5.0).due_s(1, 10)
    assert due_s == sorted(due_s) == Point(0, 5.0).due_s(1, 10)
    assert 0 <= min(due_s) < max(due_s) <= 2 and Point(1, 0.0).due_s(1, 10) == []


@pytest.mark.parametrize(
    ("path", "checksum", "status", "is_good"),
    [
        ("a", "1", 200, True),
        ("a", "2", 200, False),  # another picture
        ("a", "1", 500, False),
        ("broken", "9", 500, True),  # what cannot be read has to fail
        ("broken", "9", 200, False),
    ],
)
def test_each_tile_is_checked(path: str, checksum: str, status: int, is_good: bool) -> None:
    """A tile that differs from the uncached one, or fails, ends the measurement."""
    workload = Workload(Datasets(Location("s3", "none"), (), 0), [], {"a": "1"}, 1)
    columns = ["dataset", "path", "checksum", "status"]
    requests = pd.DataFrame([("d", path, checksum, status)], columns=columns)
    if is_good:
        assert workload.check(requests) == 1
    else:
        with pytest.raises(CheckError, match="tiles of d differ"):
            workload.check(requests)


def make_row(name: str, n_users: int, open_s: float, make_s: float, **numbers: Any) -> Any:
    """Make a row of two requests to one dataset."""
    latency_s = open_s + make_s
    parts = {"latency_s": latency_s, "open_s": open_s, "cpu_s": numbers.pop("cpu_s", 0.1)}
    trace = {f"a|{part}|{k}": value for part, value in parts.items() for k in range(2)}
    trace |= {"a|latency_s": latency_s, "typical_s": latency_s, "p50_s": latency_s}
    trace |= {"p95_s": latency_s, "tiles_per_s": 1.0, "n_tiles": 2, "tile_nbytes": 5200.0}
    point = json.dumps({"n_users": n_users, "rate_per_s": 0.0})
    row = {"phase": "measured", "contender": name, "point": point, "case": "c", "block": 0}
    row |= {"control_of": "", "n_requests": numbers.pop("n_requests", 0)}
    return {**row, "trace": json.dumps({"peak_nbytes": 6e8, **trace})}


LOADS = findings.select_loads(
    pd.DataFrame(
        [
            make_row("none", 1, 0.3, 0.1, cpu_s=0.15, n_requests=16),
            make_row("as-shipped", 1, 0.1, 0.1, n_requests=4),
            make_row("lru", 1, 0.0, 0.1, n_requests=4),
            make_row("redis", 1, 0.01, 0.1, n_requests=4),
            make_row("redis-etag", 1, 0.03, 0.1, n_requests=6),
            make_row("none", 40, 0.3, 4.0),
            make_row("as-shipped", 40, 0.0, 4.0),
        ]
    )
)


def test_assumptions_are_those_measured() -> None:
    """The model gets what was measured, with all digits, and the rest stays as it is."""
    alone = LOADS[LOADS["n_users"] == 1]
    measured = {"make_s": 0.1, "open_s": 0.3, "fetch_s": 0.01, "metadata_nbytes": 5001.0}
    measured |= {"open_gets": 6.0, "tile_gets": 2.0}
    measured |= {"tile_nbytes": alone["tile_nbytes"].iloc[0], "service_gb": alone["peak_nbytes"].iloc[0] / 1e9}  # fmt: skip
    measured |= {"make_cpu_s": 0.1, "open_cpu_s": 0.05}
    found = findings.learn_assumptions(alone, 5001.0)
    assert found.model_dump() == pytest.approx({**Assumptions().model_dump(), **measured})


def test_bills_of_near_loads_differ() -> None:
    """A tile that takes a little longer costs a little more, so that an interval has two ends."""
    alone = LOADS[LOADS["n_users"] == 1]
    slower = alone.assign(**{name: 1.004 * alone[name] for name in map(str, alone) if "latency_s" in name})  # fmt: skip
    bills = [findings.price_month(part, 5001.0).iloc[1]["none"] for part in (alone, slower)]
    assert bills[0] < bills[1] < 1.01 * bills[0]


def test_what_a_tile_takes_and_gains() -> None:
    """Of one user, by dataset and by contender."""
    alone = LOADS[LOADS["n_users"] == 1]
    requests = findings.list_requests(alone)
    opening = findings.measure_opening(requests).loc["a"]
    assert opening.to_dict() == pytest.approx({"open_s": 0.3, "make_s": 0.1, "bound": 4})
    savings = findings.measure_savings(alone).set_index("contender")["times"]
    expected = {"as-shipped": 2, "lru": 4, "redis": 0.4 / 0.11, "redis-etag": 0.4 / 0.13}
    assert savings.to_dict() == pytest.approx(expected)
    processors = findings.count_processors(requests).loc["none"]
    assert processors.to_dict() == pytest.approx({"cpu_ms": 150, "share": 0.375})
    # 0.1 s with datasets in the process, and 0.02 s for a version as in Redis
    assert findings.predict_versions(alone).centre == pytest.approx(0.4 / 0.12)
    timed = alone[alone["contender"] == "lru"].assign(contender="lru-etag", typical_s=0.2)
    both = pd.concat([alone, timed])  # what was measured is no part of a prediction
    assert findings.predict_versions(both).centre == pytest.approx(0.4 / 0.12)


def test_contenders_are_compared_at_each_load() -> None:
    """One user gains the opening; forty wait for the processor, with a cache or without."""
    table = findings.tabulate(LOADS).set_index(["load", "contender"])
    assert table["over_none"]["1 user", "as-shipped"] == pytest.approx(2)
    assert table["over_none"]["40 users", "as-shipped"] == pytest.approx(1.075)
    assert table["over_shipped"]["1 user", "lru"] == pytest.approx(2)
    assert table["requests_a_tile"]["1 user", "none"] == 8


def test_the_study_has_seventeen_datasets_and_one_that_failed() -> None:
    """By hand, from its tables: 3 s with no cache and 0.42 s with files for chunks of 256 MiB."""
    found = four_caches.read_study()
    table = found.pivot_table(index="dataset", columns="cache", values="latency_s")
    assert len(table) == 17
    assert table.loc["single-256mib", ["none", "filecache-in-turn"]].tolist() == pytest.approx(
        [3.0, 0.42]
    )
    assert found.query("failed > 0")[["dataset", "cache"]].to_numpy().tolist() == [
        ["netcdf-protected", "none"]
    ]


def test_tiles_are_dealt_dataset_by_dataset(datasets: Datasets) -> None:
    """The one that must fail is asked for as often as the others, and last."""
    asked = [tile[0] for tile in in_turn(plan_workload(datasets, n_tiles=2, seed=1)).tiles]
    assert asked == [spec.name for spec in datasets.specs for _ in range(2)]


def test_gains_stand_next_to_published_ones() -> None:
    """By hand: the file cache makes large chunks faster in both, and small ones slower in ours alone."""
    lines = [("single-256mib", 3.0, 1.0), ("single-4mib", 0.1, 0.2)]
    measured = pd.DataFrame(
        [
            {"dataset": name, "cache": cache, "latency_s": latency_s, "failed": 0.0}
            for name, *both in lines
            for cache, latency_s in zip(("none", "filecache-in-turn"), both, strict=True)
        ]
    )
    published = four_caches.read_study()
    table = four_caches.tabulate_gains(measured, published)["filecache-in-turn"]
    assert table["here"].to_dict() == pytest.approx({"single-256mib": 3.0, "single-4mib": 0.5})
    assert table["published"]["single-256mib"] == pytest.approx(3.0 / 0.42)
    counted = four_caches.count_orders(measured, published)
    assert {key: finding.value for key, finding in counted.items()} == {
        "n-in-order": 1,
        "n-datasets": 2,
    }
