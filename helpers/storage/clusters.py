"""Dask clusters: local, Gateway, or one that runs already, behind one handle."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import dask
import distributed

from helpers.errors import UserError
from helpers.storage.gateways import scale_gateway_cluster, send_helpers, start_gateway_cluster
from helpers.storage.workloads import forget_clients

KINDS = ("local", "gateway", "address")

_DEADLINE_S = 120.0
_ANSWER_S = 5.0  # a scheduler that has not answered by then is taken as not there
# without a dashboard, ports for the web are still opened; these are the pages on them
_NO_PAGES: dict[str, list[str]] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}


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
    ask : callable, optional
        Asks for a number of workers; None for a cluster that is not ours to scale.
    deadline_s : float
        How long to wait for workers, in seconds.
    n_workers : int
        Workers that it was scaled to last; 0 before it was.
    """

    kind: str
    client: distributed.Client
    threads_per_worker: int
    ask: Callable[[int], None] | None = None
    deadline_s: float = field(default=_DEADLINE_S)
    n_workers: int = 0
    _held: dict[str, int] = field(default_factory=dict)

    def scale(self, n_workers: int) -> int:
        """Scale to `n_workers` and wait for them.

        Returns
        -------
        int
            Threads of the workers that are there: what was got, not what was asked.

        Raises
        ------
        UserError
            If there are not as many workers when the deadline has passed, or
            they have not the threads that were asked for.
        """
        if n_workers < 1:
            raise UserError(f"n_workers: {n_workers}; allowed: at least 1")
        if self.ask is not None:
            self.ask(max(n_workers, self._keep()))
        self._wait(lambda: len(self._all_workers()) >= n_workers, n_workers)
        if self.kind != "gateway":
            addresses = list(self._all_workers())
            self.client.run(_set_paused, addresses[n_workers:])
        self._wait(lambda: len(self.workers()) == n_workers, n_workers)
        self._check_threads()
        self.n_workers = n_workers
        return self.n_threads()

    def hold(self) -> None:
        """Note which processes take tasks before a read; refuse another number than was asked."""
        self._held = self._find_processes()
        if self.n_workers and len(self._held) != self.n_workers:
            raise self._lost(self.n_workers, len(self._held))

    def check_held(self) -> None:
        """Refuse a read during which a worker ended, also if another took its place."""
        found = self._find_processes()
        if found != self._held:
            raise self._lost(len(self._held), len(found.items() & self._held.items()))

    def _find_processes(self) -> dict[str, int]:
        """Find the processes of the workers that take tasks, by address: a port may be taken again."""
        return dict(self.client.run(os.getpid, workers=list(self.workers())))

    def _lost(self, n_workers: int, n_found: int) -> UserError:
        return UserError(
            f"n_workers: {n_workers}; the {self.kind} cluster has {n_found}"
            " of these, so the read is not kept; allowed: the same workers from its beginning to"
            " its end (run it again, it goes on from the last row)"
        )

    def resume(self) -> None:
        """Let every worker take tasks again."""
        self.client.run(_set_paused, [])

    def release(self) -> None:
        """Let every worker take tasks again, and close the clients that it kept."""
        self.resume()
        self.client.run(forget_clients, {})

    def workers(self) -> dict[str, Any]:
        """Describe the workers that take tasks, by address."""
        return {k: v for k, v in self._all_workers().items() if v["status"] == "running"}

    def n_threads(self) -> int:
        """Count the threads of the workers that are there."""
        return sum(int(worker["nthreads"]) for worker in self.workers().values())

    def describe(self) -> dict[str, str | int | None]:
        """Describe what was got, for the record; no host and no address.

        Returns
        -------
        dict
            `cluster_kind`; `n_workers` and `n_threads` that take tasks;
            `scheduler_dask` and `worker_dask` (versions, several joined by
            spaces); `worker_memory_nbytes` (limit of the smallest worker, None
            where there is none).
        """
        workers = self.workers()
        versions: Any = self.client.get_versions()
        limits = [int(worker["memory_limit"] or 0) for worker in workers.values()]
        dasks = {_dask_version(found) for at, found in versions["workers"].items() if at in workers}
        return {
            "cluster_kind": self.kind,
            "n_workers": len(workers),
            "n_threads": self.n_threads(),
            "scheduler_dask": _dask_version(versions["scheduler"]),
            "worker_dask": " ".join(sorted(dasks)),
            "worker_memory_nbytes": min((n for n in limits if n), default=None),
        }

    def _all_workers(self) -> dict[str, Any]:
        return dict(self.client.scheduler_info(n_workers=-1)["workers"])

    def _keep(self) -> int:
        """Count the workers that scaling must not stop."""
        return 0 if self.kind == "gateway" else len(self._all_workers())

    def _wait(self, is_done: Callable[[], bool], n_workers: int) -> None:
        until = time.monotonic() + self.deadline_s
        while not is_done():
            if time.monotonic() > until:
                found = len(self._all_workers())
                raise UserError(
                    f"n_workers: {n_workers}; the {self.kind} cluster has {found}"
                    f" after {self.deadline_s:g} s; allowed: as many as it can start by then"
                )
            time.sleep(0.02)

    def _check_threads(self) -> None:
        """Refuse workers of another width: contenders and ceiling would not be given the same."""
        found = sorted({int(worker["nthreads"]) for worker in self.workers().values()})
        if found != [self.threads_per_worker]:
            raise UserError(
                f"threads_per_worker: {self.threads_per_worker};"
                f" allowed: {' or '.join(map(str, found))}, as the workers of this"
                f" {self.kind} cluster have"
            )


def _set_paused(addresses: list[str], dask_worker: distributed.Worker) -> None:
    is_paused = dask_worker.address in addresses
    # The watch over a worker's memory would resume it at once, for it is far from its limit.
    dask_worker.memory_manager.memory_pause_fraction = (
        False if is_paused else dask.config.get("distributed.worker.memory.pause")
    )
    dask_worker.status = distributed.Status.paused if is_paused else distributed.Status.running


def _dask_version(found: dict[str, Any]) -> str:
    return str(found["packages"]["dask"])


def check_reach(store: str, *, kind: str, address: str) -> None:
    """Refuse workers of other machines for a store that only this one can reach.

    Parameters
    ----------
    store : str
        ``"embedded"``, or the address of a bucket.
    kind : str
        One of `KINDS`.
    address : str
        Of the Gateway or the scheduler; empty for what Dask's configuration says.

    Raises
    ------
    UserError
        If the store is embedded and the cluster is on another machine.
    """
    if store != "embedded" or kind == "local":
        return
    where = address or (dask.config.get("gateway.address", None) if kind == "gateway" else None)
    host = urlsplit(where or "").hostname
    if host and host not in ("localhost", "127.0.0.1", "::1"):
        raise UserError(
            f"store: 'embedded' with cluster_kind: {kind} at {where}; allowed: the address of a bucket,"
            " s3://BUCKET/PREFIX, because the embedded store listens on this machine alone"
        )


@contextmanager
def open_cluster(
    kind: str,
    *,
    threads_per_worker: int,
    address: str | None = None,
    deadline_s: float = _DEADLINE_S,
) -> Iterator[Cluster]:
    """Open a Dask cluster and close it afterwards.

    A local or Gateway cluster has no workers before it is scaled; one that
    ran before goes on afterwards, with all its workers at work.

    Parameters
    ----------
    kind : {"local", "gateway", "address"}
        Processes on this machine; a Dask Gateway; or a scheduler that runs.
    threads_per_worker : int
        Threads of each worker, at least 1.
    address : str, optional
        Of the Gateway (else Dask's own configuration says it) or the scheduler.
    deadline_s : float
        How long to wait for a scheduler and for workers, in seconds.

    Yields
    ------
    Cluster
        The cluster, to be scaled.

    Raises
    ------
    UserError
        If an argument is not allowed, or nothing answers at `address`.
    """
    openers = {"local": _open_local, "gateway": _open_gateway, "address": _open_running}
    if kind not in openers:
        raise UserError(f"cluster_kind: {kind!r}; allowed: {', '.join(KINDS)}")
    if threads_per_worker < 1:
        raise UserError(f"threads_per_worker: {threads_per_worker}; allowed: at least 1")
    with openers[kind](threads_per_worker, address, deadline_s) as cluster:
        yield cluster


@contextmanager
def _open_local(n_threads: int, address: str | None, deadline_s: float) -> Iterator[Cluster]:
    with (
        dask.config.set(_NO_PAGES),
        distributed.LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=0,
            threads_per_worker=n_threads,
            # who reaches a scheduler runs code as its owner: only who has this certificate does
            security=distributed.Security.temporary(),  # type: ignore[no-untyped-call]
            dashboard_address="127.0.0.1:0",  # None means port 8787 of every interface
            scheduler_kwargs={"dashboard": False},
            memory_limit=0,  # a share of this machine's memory would pause workers that share it
            silence_logs=logging.CRITICAL,  # what fails is raised here; at the end workers lose heartbeats
        ) as backend,
        distributed.Client(backend) as client,  # type: ignore[no-untyped-call]
    ):
        cluster = Cluster("local", client, n_threads, backend.scale, deadline_s)
        try:
            yield cluster
        finally:
            cluster.release()  # paused workers have been seen not to end when asked


@contextmanager
def _open_gateway(n_threads: int, address: str | None, deadline_s: float) -> Iterator[Cluster]:
    with (
        start_gateway_cluster(
            address, threads_per_worker=n_threads, deadline_s=deadline_s
        ) as backend,
        backend.get_client() as client,
    ):
        send_helpers(client)
        ask = functools.partial(scale_gateway_cluster, backend)
        yield Cluster("gateway", client, n_threads, ask, deadline_s)


@contextmanager
def _open_running(n_threads: int, address: str | None, deadline_s: float) -> Iterator[Cluster]:
    with _connect(address) as client:
        cluster = Cluster("address", client, n_threads, None, deadline_s)
        try:
            yield cluster
        finally:
            cluster.release()


def _connect(address: str | None) -> distributed.Client:
    refused = UserError(
        f"cluster_kind: address, cluster_address: {address or ''!r}; no scheduler answers;"
        " allowed: that of a running one, such as tcp://HOST:8786"
    )
    if not address:  # without an address, Dask would start a cluster of its own
        raise refused
    try:
        return distributed.Client(address, timeout=_ANSWER_S)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise refused from error
