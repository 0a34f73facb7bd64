"""The study of four caches: what was published, and the order in which users ask."""

from __future__ import annotations

import pytest

from studies.caching_costs import four_caches as study
from studies.caching_costs.datasets import Datasets
from studies.caching_costs.workload import in_turn, plan_workload


def test_the_study_has_seventeen_datasets_and_one_that_failed() -> None:
    """By hand, from its tables: 3 s with no cache and 0.42 s with files for chunks of 256 MiB."""
    found = study.read_study()
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
