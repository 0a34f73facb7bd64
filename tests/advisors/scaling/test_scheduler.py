"""Costs of a scheduler: measured, fitted, read from the record."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from distributed import Client

from advisors.scaling import scheduler
from advisors.scaling.scheduler import (
    TASK_NBYTES,
    fit_scheduler,
    measure_scheduler,
    read_costs,
    read_rows,
    render_scheduler,
)
from helpers.errors import UserError


def make_rows(noise: float = 0.0) -> list[dict[str, float]]:
    """Make a record of a scheduler that takes 0.2 and 0.5 ms a task, and 10 and 30 ms a MB."""
    rng, rows = random.Random(1), []
    for n in (1000, 10_000, 100_000):
        for nbytes in TASK_NBYTES:
            for _ in range(5):
                slower, mb = 1 + rng.expovariate(1) * noise, n * nbytes / 1e6
                graph_s, run_s = 0.05 + 2e-4 * n + 0.01 * mb, 5e-4 * n + 0.03 * mb
                rows.append({"n_tasks": n, "n_run": n, "task_nbytes": nbytes, "graph_cpu_s": graph_s * slower, "run_cpu_s": run_s * slower})  # fmt: skip
    return rows


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_costs_come_back(noise: float) -> None:
    """The least of several runs gives the costs, and bytes are told from tasks."""
    costs = fit_scheduler(make_rows(noise))
    assert costs.graph_s == pytest.approx(2e-4, rel=0.1)
    assert costs.task_s == pytest.approx(5e-4, rel=0.1)
    assert costs.graph_s_per_mb == pytest.approx(0.01, rel=0.3)
    assert costs.run_s_per_mb == pytest.approx(0.03, rel=0.3)


@pytest.mark.parametrize("keep", [lambda row: row["n_tasks"] == 1000, lambda row: row["task_nbytes"] == 8, lambda row: False])  # fmt: skip
def test_too_few_graphs_are_refused(keep: object) -> None:
    """One length, or one size of task, tells nothing apart."""
    with pytest.raises(UserError, match="record: graphs .*; allowed"):
        fit_scheduler([row for row in make_rows() if keep(row)])  # type: ignore[operator]


def test_a_scheduler_is_measured() -> None:
    """A real scheduler runs the tasks, and every row has its times."""
    rows = [*measure_scheduler([50, 100], n_repetitions=1)]
    assert [(row["n_tasks"], row["task_nbytes"]) for row in rows] == [
        (n, b) for n in (50, 100) for b in TASK_NBYTES
    ]
    for row in rows:
        assert row["graph_s"] > 0 and row["run_s"] > 0 and row["graph_cpu_s"] + row["run_cpu_s"] > 0


def test_a_long_graph_is_submitted_whole_and_run_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock stops after some of its tasks, it is measured once, and costs are of those that ran."""

    @contextmanager
    def open_client() -> Iterator[Client]:
        options = {"n_workers": 1, "processes": False, "dashboard_address": None}
        with Client(**options) as client:
            yield client

    monkeypatch.setattr(scheduler, "_open_client", open_client)
    rows = [*measure_scheduler([20, 2000], n_repetitions=2, most_run=20)]
    assert [(row["n_tasks"], row["n_run"], row["repetition"]) for row in rows] == [
        *[(20, 20, repetition) for repetition in (0, 0, 1, 1)], (2000, 20, 0), (2000, 20, 0)
    ]  # fmt: skip
    parts = [row | {"n_run": 1000, "run_cpu_s": 0.5 + 0.03 * 1000 * row["task_nbytes"] / 1e6} if row["n_tasks"] > 1000 else row for row in make_rows()]  # fmt: skip
    assert fit_scheduler(parts).task_s == pytest.approx(5e-4, rel=0.01)


@pytest.mark.parametrize(("tasks", "n"), [([], 1), ([1], 1), ([10], 0), ([10**10], 1)])
def test_nothing_to_measure_is_refused(tasks: list[int], n: int) -> None:
    """No graph, one of one task or beyond the memory, and no repetition are refused at once."""
    with pytest.raises(UserError, match="allowed"):
        next(measure_scheduler(tasks, n_repetitions=n))


def test_the_record_is_what_the_page_says() -> None:
    """The committed record has both sizes of tasks, and its costs are those of a scheduler."""
    rows, costs = read_rows(), read_costs()
    assert {row["task_nbytes"] for row in rows} == {*TASK_NBYTES}
    assert 1e-5 < costs.graph_s < 5e-3 and 1e-5 < costs.task_s < 5e-3
    assert f"{1e3 * costs.task_s:.2f} ms a task while they run" in render_scheduler()


def test_a_record_that_is_none(tmp_path: Path) -> None:
    """A file that is absent or holds something else says what to do instead."""
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    for name in ("none.csv", "other.csv"):
        with pytest.raises(UserError, match=f"{name}: not read .*; allowed.*--task-ms"):
            read_rows(tmp_path / name)
