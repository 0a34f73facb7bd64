"""Dask clusters: local, Gateway, or one that runs already, behind one handle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import distributed

from helpers.errors import UserError

KINDS = ("local", "gateway", "address")

_DEADLINE_S = 120.0


@dataclass(slots=True)
class Cluster:
    """A cluster that is scaled to a number of workers, and says what it got.

    Starting a Python process costs seconds of CPU, more than many a read. So
    workers that are not wanted now are paused where they cost nothing (on this
    machine, or on a cluster that is not ours) and stopped where they cost
    money (Gateway). A paused worker is given no task.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    client : distributed.Client
        Client of its scheduler.
    threads_per_worker : int
        Threads asked for each worker.
    backend : object, optional
        What can be scaled; None for a cluster that is not ours to scale.
    """

    kind: str
    client: distributed.Client
    threads_per_worker: int
    backend: Any = None
    deadline_s: float = field(default=_DEADLINE_S)

    def scale(self, n_workers: int) -> int:
        """Scale to `n_workers` and wait for them.

        Returns
        -------
        int
            Threads of the workers that are there: what was got, not what was asked.

        Raises
        ------
        UserError
            If there are not as many workers when the deadline has passed.
        """
        if self.backend is not None:
            self.backend.scale(max(n_workers, self._keep()))
        self._wait(lambda: len(self._all_workers()) >= n_workers, n_workers)
        if self.kind != "gateway":
            addresses = list(self._all_workers())
            self.client.run(_set_paused, addresses[n_workers:])
        self._wait(lambda: len(self.workers()) == n_workers, n_workers)
        return self.n_threads()

    def workers(self) -> dict[str, Any]:
        """Describe the workers that take tasks, by address."""
        return {k: v for k, v in self._all_workers().items() if v["status"] == "running"}

    def _all_workers(self) -> dict[str, Any]:
        return dict(self.client.scheduler_info(n_workers=-1)["workers"])

    def _keep(self) -> int:
        """Count the workers that scaling must not stop."""
        return 0 if self.kind == "gateway" else len(self._all_workers())

    def _wait(self, is_done: Callable[[], bool], n_workers: int) -> None:
        until = time.monotonic() + self.deadline_s
        while not is_done():
            if time.monotonic() > until:
                raise UserError(
                    f"n_workers: {n_workers}; the {self.kind} cluster has {len(self.workers())}"
                    f" after {self.deadline_s:.0f} s; allowed: as many as it can start"
                )
            time.sleep(0.02)

    def n_threads(self) -> int:
        """Count the threads of the workers that are there."""
        return sum(int(worker["nthreads"]) for worker in self.workers().values())


def _set_paused(addresses: list[str], dask_worker: distributed.Worker) -> None:
    is_paused = dask_worker.address in addresses
    dask_worker.status = distributed.Status.paused if is_paused else distributed.Status.running


@contextmanager
def open_cluster(
    kind: str, *, threads_per_worker: int, address: str | None = None, deadline_s: float = _DEADLINE_S
) -> Iterator[Cluster]:
    """Open a Dask cluster without workers and close it afterwards.

    Parameters
    ----------
    kind : {"local", "gateway", "address"}
        Processes on this machine; a Dask Gateway; or a scheduler that runs.
    threads_per_worker : int
        Threads of each worker, at least 1.
    address : str, optional
        Of the Gateway (else Dask's own configuration says it) or the scheduler.
    deadline_s : float
        How long to wait for workers, in seconds.

    Raises
    ------
    UserError
        If the kind is unknown, or nothing answers at `address`.
    """
    openers = {"local": _open_local, "gateway": _open_gateway, "address": _open_running}
    if kind not in openers:
        raise UserError(f"cluster_kind: {kind!r}; allowed: {', '.join(KINDS)}")
    with openers[kind](threads_per_worker, address) as cluster:
        cluster.deadline_s = deadline_s
        yield cluster


@contextmanager
def _open_local(threads_per_worker: int, address: str | None) -> Iterator[Cluster]:
    with (
        distributed.LocalCluster(
            n_workers=0,
            threads_per_worker=threads_per_worker,
            dashboard_address=None,
            memory_limit=0,  # a share of this machine's memory would pause workers that share it
        ) as backend,
        distributed.Client(backend) as client,
    ):
        yield Cluster("local", client, threads_per_worker, backend)


@contextmanager
def _open_gateway(threads_per_worker: int, address: str | None) -> Iterator[Cluster]:
    import dask_gateway

    try:
        gateway = dask_gateway.Gateway(address)
        options = gateway.cluster_options()
    except Exception as error:
        raise UserError(
            f"cluster_kind: gateway: none answers at {address or 'the configured address'}"
            f" ({type(error).__name__}: {error}); allowed: the address of a running Dask Gateway"
        ) from error
    if "worker_cores" in options:
        options.worker_cores = threads_per_worker
    with gateway, gateway.new_cluster(options, shutdown_on_close=True) as backend:
        with backend.get_client() as client:
            yield Cluster("gateway", client, threads_per_worker, backend)


@contextmanager
def _open_running(threads_per_worker: int, address: str | None) -> Iterator[Cluster]:
    try:
        client = distributed.Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise UserError(
            f"cluster_address: {address!r}: no scheduler answers; allowed: tcp://HOST:PORT of a running one"
        ) from error
    with client:
        yield Cluster("address", client, threads_per_worker)
