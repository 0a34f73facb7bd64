"""Requests of each task of a Dask cluster, whose workers may run on other machines.

::

    from distributed import Client
    import wire

    client = Client(...)
    client.register_plugin(wire.trace.DaskPlugin())
    result.compute()
    for task in wire.trace.DaskPlugin.gather(client):
        print(task.name, task.n_requests, task.nbytes)
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distributed import WorkerPlugin
from distributed.utils import key_split  # type: ignore[attr-defined]

from wire.trace import lines, recording

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, slots=True)
class TaskRequests:
    """Hold what one task of a worker asked a store for."""

    worker: str  # address
    key: str  # of the task; "" for requests outside of all tasks
    name: str  # the key's prefix, as Dask's dashboard has it
    n_requests: int
    nbytes: int  # of the answers' bodies
    waited_s: float  # with requests under way, summed over the task's requests
    line: str  # FILE:LINE of the user's code, where the task runs any


class DaskPlugin(WorkerPlugin):
    """Trace what a worker's tasks ask stores for; clients that tasks make from then on are seen."""

    name = "wire-trace"
    idempotent = True

    def setup(self, worker: Any) -> None:
        """Begin tracing in a worker's process."""
        session = recording.open_session()
        session.enter()
        sampler = getattr(sys.modules.get("_wire_shim"), "_SAMPLER", None)
        if sampler is not None:
            sampler.labels = worker.active_threads

    def teardown(self, worker: Any) -> None:
        """Give the worker's environment back."""
        recording.open_session().leave()

    @staticmethod
    def gather(client: Client) -> list[TaskRequests]:
        """Gather what the tasks of all workers have asked for so far.

        Parameters
        ----------
        client : distributed.Client
            Client of the cluster on which the plugin is registered.

        Returns
        -------
        list of TaskRequests
            One entry for each task that made requests, the one with most requests first.
        """
        entries_by_worker = client.run(_count_requests)
        tasks = [
            TaskRequests(worker, *values)
            for worker, entries in entries_by_worker.items()
            for values in entries
        ]
        return sorted(tasks, key=lambda task: -task.n_requests)


def _count_requests() -> list[tuple[str, str, int, int, float, str]]:
    """Count the requests of each task of this worker."""
    session = recording.open_session()
    time.sleep(recording.SETTLE_S)
    rows, _ = session.take_rows()
    rows = [*rows]
    sites = lines.find_sites(rows, lines.read_samples(session.folder / "samples"))
    tasks = defaultdict[str, list[int]](list)
    for number, site in enumerate(sites):
        tasks[site.task if site else ""].append(number)
    counts = []
    for key, numbers in tasks.items():
        places = [site.place for number in numbers if (site := sites[number]) and site.place]
        counts.append(
            (
                key,
                key_split(key) if key else "",
                len(numbers),
                sum(rows[number].nbytes for number in numbers),
                sum(max(0.0, rows[number].end_s - rows[number].start_s) for number in numbers),
                f"{places[0].file}:{places[0].line}" if places else "",
            )
        )
    return counts
