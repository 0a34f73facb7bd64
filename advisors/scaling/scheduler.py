"""What a Dask scheduler takes for a task, measured, and how the record of that is read.

Trivial tasks are given to one worker, in graphs of several lengths and with tasks of two sizes:
what grows with the number of tasks is the scheduler's, and what grows with their bytes is the
link's. The scheduler is one thread, so its processor time is the least time that a cluster of any
size waits for it; on a machine that has other work, wall time says less. Client and scheduler
share a process here, so what the client does for a task is in these costs too.

A graph of more than `MOST_RUN` tasks is submitted whole, and once; its clock stops after so many of
its tasks, while all the others wait in the scheduler: a million run for an hour and tell no more.
"""

from __future__ import annotations

import csv
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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

MOST_RUN = 20_000
"""Tasks of a graph that are waited for, at most."""

# of client and scheduler, which keep a task and its bytes in several forms; seen in long graphs
_HELD_NBYTES, _COPIES = 5_000, 4

_NUMBERS = ("n_tasks", "n_run", "task_nbytes", "graph_cpu_s", "run_cpu_s", "graph_s", "run_s")


@dataclass(frozen=True, slots=True)
class SchedulerCosts:
    """Seconds of the scheduler's process for a task, before the first one runs and from then on."""

    graph_s: float
    task_s: float
    # what a megabyte of tasks takes besides, which is the link's and the serialiser's
    graph_s_per_mb: float
    run_s_per_mb: float


def measure_scheduler(
    numbers: Sequence[int], *, n_repetitions: int = 3, most_run: int = MOST_RUN
) -> Iterator[dict[str, float]]:
    """Run trivial tasks through a scheduler; yield a row for each graph and repetition.

    The columns are `n_tasks`, `n_run` (of them waited for), `task_nbytes`, `repetition`; seconds of
    wall and of the processors of this process, from the call until the first result (`graph_s`,
    `graph_cpu_s`) and from there until the last one waited for (`run_s`, `run_cpu_s`).
    """
    if not numbers or min(numbers) < 2 or n_repetitions < 1:
        raise UserError(
            f"tasks, repetitions: {[*numbers]}, {n_repetitions}; allowed: at least 2, at least 1"
        )
    _check_memory(max(numbers))

    def place(n_tasks: int, nbytes: int, repetition: int) -> dict[str, float]:
        n_run = min(n_tasks, most_run)
        return {"n_tasks": n_tasks, "n_run": n_run, "task_nbytes": nbytes, "repetition": repetition}

    with _open_client() as client:
        short = [n for n in numbers if n <= most_run]
        for repetition, n_tasks, nbytes in itertools.product(
            range(n_repetitions), short, TASK_NBYTES
        ):
            at = place(n_tasks, nbytes, repetition)
            yield at | _run(client, at)
            while client.run_on_scheduler(
                lambda dask_scheduler: len(dask_scheduler.tasks)
            ):  # to forget them is no part of the next graph
                time.sleep(0.05)
    for n_tasks, nbytes in itertools.product(sorted({*numbers} - {*short}), TASK_NBYTES):
        at = place(n_tasks, nbytes, 0)
        with _open_client() as client:  # ends with its tasks, which takes less than forgetting them
            yield at | _run(client, at)


def _check_memory(n_tasks: int) -> None:
    """Refuse a graph that this machine cannot hold."""
    import psutil

    free, each = psutil.virtual_memory().available, _HELD_NBYTES + _COPIES * max(TASK_NBYTES)
    if n_tasks * each > free:
        raise UserError(f"tasks: {n_tasks}; allowed: at most {free // each}, in {free / 1e9:.3g} GB of free memory")  # fmt: skip


@contextmanager
def _open_client() -> Iterator[Any]:
    """Open a scheduler with one worker, both awake, and yield its client."""
    import dask

    from helpers.arrays.clusters import open_cluster

    with (
        dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}),
        open_cluster("local", threads_per_worker=_N_THREADS) as cluster,
    ):
        cluster.scale(1)
        warm = {"n_tasks": 100, "n_run": 100, "task_nbytes": TASK_NBYTES[0]}
        _run(cluster.client, warm)  # imports, connections
        yield cluster.client


def _run(client: Any, at: Mapping[str, float]) -> dict[str, float]:
    """Run one graph; tasks run in their order, so with the last one all but a few have ended."""
    from helpers.benchmark.loop import timed

    n_tasks, n_run, nbytes = (int(at[name]) for name in ("n_tasks", "n_run", "task_nbytes"))
    payloads = [i.to_bytes(8, "little") * (nbytes // 8) for i in range(n_tasks)]
    start_s = time.process_time()
    futures, submit_s = timed(lambda: client.map(len, payloads, pure=False))
    _, first_s = timed(futures[0].result)
    middle_s = time.process_time()
    _, run_s = timed(futures[n_run - 1].result)
    return {
        "graph_s": submit_s + first_s,
        "run_s": run_s,
        "graph_cpu_s": middle_s - start_s,
        "run_cpu_s": time.process_time() - middle_s,
    }


def fit_scheduler(rows: Sequence[Mapping[str, Any]]) -> SchedulerCosts:
    """Fit costs to the least processor time of each graph: a start, tasks, and their bytes.

    Examples
    --------
    >>> def row(n: int, nbytes: int) -> dict[str, float]:
    ...     mb = n * nbytes / 1e6
    ...     times = {"graph_cpu_s": 0.1 + 2e-4 * n + 0.01 * mb, "run_cpu_s": 5e-4 * n + 0.02 * mb}
    ...     return {"n_tasks": n, "n_run": n, "task_nbytes": nbytes, **times}
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

    def fit(name: str, counted: str) -> tuple[float, float]:
        of = [[row for row in rows if (int(row["n_tasks"]), int(row["task_nbytes"])) == at] for at in places]  # fmt: skip
        least = [min(float(row[name]) for row in same) for same in of]
        numbers = [float(same[0][counted]) for same in of]
        columns = np.array([(1.0, n, n * each / 1e6) for n, (_, each) in zip(numbers, places, strict=True)])  # fmt: skip
        # each graph counts alike, whatever its length: divided by what it took
        found, _ = nnls(columns / np.array(least)[:, None], np.ones(len(least)))
        return float(found[1]), float(found[2])

    graph, run = fit("graph_cpu_s", "n_tasks"), fit("run_cpu_s", "n_run")
    return SchedulerCosts(graph[0], run[0], graph[1], run[1])


def read_rows(path: Path = RECORD) -> list[dict[str, Any]]:
    """Read a record of `measure_scheduler`, with its numbers as numbers."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows: list[dict[str, Any]] = [*csv.DictReader(file)]
        for row in rows:
            row.setdefault("n_run", row["n_tasks"])  # of a record that waited for all
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
        "| tasks | bytes of a task | to the first result (s) | waited for | until the last of these (s) | processors, a task (ms) |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    counts = []
    for n, nbytes in sorted({(row["n_tasks"], row["task_nbytes"]) for row in rows}):
        same = [row for row in rows if (row["n_tasks"], row["task_nbytes"]) == (n, nbytes)]
        counts.append(len(same))
        least = {name: min(row[name] for row in same) for name in _NUMBERS}
        cpu_s = least["graph_cpu_s"] / n + least["run_cpu_s"] / least["n_run"]
        cells = f"{least['graph_s']:.2f} | {least['n_run']:,.0f} | {least['graph_s'] + least['run_s']:.2f} | {1e3 * cpu_s:.2f}"
        lines.append(f"| {n:,.0f} | {nbytes:,.0f} | {cells} |")
    machine = rows[0]["machine"]
    told = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"{max(counts)}"
    return "\n".join([
        *lines,
        "",
        f"Least of {told} repetitions, on {machine['n_cores']} cores ({machine['cpu']}),"
        f" with distributed {rows[0]['versions']['distributed']}.",
        f"Fitted: {1e3 * costs.graph_s:.2f} ms a task of submission and {1e3 * costs.task_s:.2f} ms a task while they run;"
        f" a megabyte of tasks takes {1e3 * costs.graph_s_per_mb:.0f} and {1e3 * costs.run_s_per_mb:.0f} ms more.",
        f"So one scheduler gives out at most {1 / costs.task_s:,.0f} tasks a second.\n",
    ])  # fmt: skip
