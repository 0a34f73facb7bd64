"""What a Dask scheduler takes for a task, measured, and how the record of that is read.

Trivial tasks are given to one worker, in graphs of several lengths and with tasks of two sizes:
what grows with the number of tasks is the scheduler's, and what grows with their bytes is the
link's. The scheduler is one thread, so its processor time is the least time that a cluster of any
size waits for it; on a machine that has other work, wall time says less. Client and scheduler
share a process here, so what the client does for a task is in these costs too.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from helpers.errors import UserError
from helpers.paths import ROOT

RECORD = ROOT / "data" / "scale-out" / "scheduler.csv"
"""What was measured for this book."""

_N_THREADS = 8  # of the worker: with one, each task would wait for the message of the one before

TASK_NBYTES = (8, 1024)
"""Bytes that a task brings with it, small and large."""

_NUMBERS = ("n_tasks", "task_nbytes", "graph_cpu_s", "run_cpu_s", "graph_s", "run_s")


@dataclass(frozen=True, slots=True)
class SchedulerCosts:
    """Seconds of the scheduler's process for a task, before the first one runs and from then on."""

    graph_s: float
    task_s: float
    # what a megabyte of tasks takes besides, which is the link's and the serialiser's
    graph_s_per_mb: float
    run_s_per_mb: float


def measure_scheduler(
    numbers: Sequence[int], *, n_repetitions: int = 3
) -> Iterator[dict[str, float]]:
    """Run trivial tasks through a scheduler; yield a row for each graph and repetition.

    The columns are `n_tasks`, `task_nbytes`, `repetition`; seconds of wall and of the processors
    of this process, from the call until the first result (`graph_s`, `graph_cpu_s`) and from
    there until the last (`run_s`, `run_cpu_s`).
    """
    import dask

    from helpers.arrays.clusters import open_cluster

    if not numbers or min(numbers) < 2 or n_repetitions < 1:
        raise UserError(
            f"tasks, repetitions: {[*numbers]}, {n_repetitions}; allowed: at least 2, at least 1"
        )
    with (
        dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}),
        open_cluster("local", threads_per_worker=_N_THREADS) as cluster,
    ):
        cluster.scale(1)
        _run(cluster.client, 100, TASK_NBYTES[0])  # imports, connections
        for repetition in range(n_repetitions):
            for n_tasks in numbers:
                for nbytes in TASK_NBYTES:
                    place: dict[str, float] = {
                        "n_tasks": n_tasks,
                        "task_nbytes": nbytes,
                        "repetition": repetition,
                    }
                    yield place | _run(cluster.client, n_tasks, nbytes)


def _run(client: Any, n_tasks: int, nbytes: int) -> dict[str, float]:
    """Run one graph; tasks run in their order, so with the last one all but a few have ended."""
    from helpers.benchmark.loop import timed

    payloads = [i.to_bytes(8, "little") * (nbytes // 8) for i in range(n_tasks)]
    start_s = time.process_time()
    futures, submit_s = timed(lambda: client.map(len, payloads, pure=False))
    _, first_s = timed(futures[0].result)
    middle_s = time.process_time()
    _, run_s = timed(futures[-1].result)
    end_s = time.process_time()
    del futures
    while client.run_on_scheduler(
        lambda dask_scheduler: len(dask_scheduler.tasks)
    ):  # to forget them is no part of the next graph
        time.sleep(0.05)
    return {
        "graph_s": submit_s + first_s,
        "run_s": run_s,
        "graph_cpu_s": middle_s - start_s,
        "run_cpu_s": end_s - middle_s,
    }


def fit_scheduler(rows: Sequence[Mapping[str, Any]]) -> SchedulerCosts:
    """Fit costs to the least processor time of each graph: a start, tasks, and their bytes.

    Examples
    --------
    >>> def row(n: int, nbytes: int) -> dict[str, float]:
    ...     mb = n * nbytes / 1e6
    ...     times = {"graph_cpu_s": 0.1 + 2e-4 * n + 0.01 * mb, "run_cpu_s": 5e-4 * n + 0.02 * mb}
    ...     return {"n_tasks": n, "task_nbytes": nbytes, **times}
    >>> costs = fit_scheduler([row(n, nbytes) for n in (100, 1000) for nbytes in (8, 1024)])
    >>> round(costs.graph_s, 6), round(costs.task_s, 6), round(costs.graph_s_per_mb, 3)
    (0.0002, 0.0005, 0.01)
    """
    from scipy.optimize import nnls

    places = sorted({(int(row["n_tasks"]), int(row["task_nbytes"])) for row in rows})
    if len({n for n, _ in places}) < 2 or len({nbytes for _, nbytes in places}) < 2:
        raise UserError(
            f"record: graphs {places}; allowed: two numbers of tasks, of two sizes each"
        )

    def fit(name: str) -> tuple[float, float]:
        least = [
            min(float(row[name]) for row in rows if (int(row["n_tasks"]), int(row["task_nbytes"])) == at)
            for at in places
        ]  # fmt: skip
        columns = np.array([(1.0, n, n * nbytes / 1e6) for n, nbytes in places])
        # each graph counts alike, whatever its length: divided by what it took
        found, _ = nnls(columns / np.array(least)[:, None], np.ones(len(least)))
        return float(found[1]), float(found[2])

    graph, run = fit("graph_cpu_s"), fit("run_cpu_s")
    return SchedulerCosts(graph[0], run[0], graph[1], run[1])


def read_rows(path: Path = RECORD) -> list[dict[str, Any]]:
    """Read a record of `measure_scheduler`, with its numbers as numbers."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows: list[dict[str, Any]] = [*csv.DictReader(file)]
        for row in rows:
            row.update({name: float(row[name]) for name in _NUMBERS})
            row["machine"], row["versions"] = (
                json.loads(row["machine"]),
                json.loads(row["versions"]),
            )
    except (OSError, KeyError, ValueError) as error:
        raise UserError(
            f"{path.name}: not read ({type(error).__name__}); allowed: what `wire scheduler --out`"
            " writes, or give --task-ms and --graph-ms"
        ) from error
    return rows


@cache
def read_costs() -> SchedulerCosts:
    """Read the costs that were measured for this book."""
    return fit_scheduler(read_rows())


def render_scheduler() -> str:
    """Write what was measured as a table and a sentence, for the page."""
    rows, costs = read_rows(), read_costs()
    lines = [
        "| tasks | bytes of a task | to the first result (s) | to the last (s) | processors, a task (ms) |"
    ]
    lines += ["| ---: | ---: | ---: | ---: | ---: |"]
    for n, nbytes in sorted({(row["n_tasks"], row["task_nbytes"]) for row in rows}):
        same = [row for row in rows if (row["n_tasks"], row["task_nbytes"]) == (n, nbytes)]
        least = {name: min(row[name] for row in same) for name in _NUMBERS}
        cpu_s = least["graph_cpu_s"] + least["run_cpu_s"]
        cells = f"{least['graph_s']:.2f} | {least['graph_s'] + least['run_s']:.2f} | {1e3 * cpu_s / n:.2f}"
        lines.append(f"| {n:,.0f} | {nbytes:,.0f} | {cells} |")
    machine = rows[0]["machine"]
    return "\n".join([
        *lines,
        "",
        f"Least of {sum(1 for row in rows if (row['n_tasks'], row['task_nbytes']) == (n, nbytes))} repetitions or more,"
        f" on {machine['n_cores']} cores ({machine['cpu']}) that had other work at the time,"
        f" with distributed {rows[0]['versions']['distributed']}.",
        f"Fitted: {1e3 * costs.graph_s:.2f} ms a task of submission and {1e3 * costs.task_s:.2f} ms a task while they run;"
        f" a megabyte of tasks takes {1e3 * costs.graph_s_per_mb:.0f} and {1e3 * costs.run_s_per_mb:.0f} ms more.",
        f"So one scheduler gives out at most {1 / costs.task_s:,.0f} tasks a second.\n",
    ])  # fmt: skip
