"""Dask clusters: local, Gateway, Slurm, or one that runs already, behind one handle."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import active_children
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import dask
import distributed
from distributed.utils import LoopRunner

from helpers.arrays.connections import check_versions, make_certificates, name_versions
from helpers.arrays.slurm import OPTIONS, parse_options, start_slurm_cluster
from helpers.errors import UserError, show

_ANSWER_S = 5.0  # a gateway that has not answered by then is taken as not there
_PACKAGE = Path(__file__).resolve().parents[1]


@contextmanager
def start_gateway_cluster(
    address: str | None,
    *,
    threads_per_worker: int,
    deadline_s: float,
    options: Sequence[str] = (),
) -> Iterator[Any]:
    """Start a cluster without workers on a Dask Gateway and stop it afterwards.

    The gateway also stops it when this process exits without coming here;
    after ``kill -9`` the idle timeout of the gateway has to.
    """
    dask_gateway = _import_dask_gateway()
    runner: Any = LoopRunner()  # in a thread of its own: a notebook's loop runs already
    name = runner.run_sync(_start, address, threads_per_worker, deadline_s, options)
    cluster = dask_gateway.GatewayCluster.from_name(name, shutdown_on_close=True, address=address)
    try:
        yield cluster
    finally:
        try:
            cluster.gateway.stop_cluster(name)
        except Exception as error:  # whatever its client makes of a server that is gone
            reason = f"it went away ({_first_line(error)}), and what it runs ends when it is idle"
            raise _refuse(address, reason) from error
        finally:
            cluster.close(shutdown=False)
            # Its gateway closes itself again when collected, and then misses its event loop.
            cluster.gateway.close = lambda: None


def _import_dask_gateway() -> Any:
    try:
        import dask_gateway  # only hubs need it
    except ImportError as error:
        raise UserError(
            "cluster_kind: gateway; the package dask-gateway is not installed;"
            " allowed: after `pip install '.[hub]'`"
        ) from error
    return dask_gateway


async def _start(
    address: str | None, n_threads: int, deadline_s: float, wanted: Sequence[str]
) -> str:
    """Start a cluster and return its name once its scheduler runs."""
    gateway, options = await _connect_gateway(address)
    async with gateway:
        _ask_for(options, wanted)
        if "worker_cores" in options:
            _ask_for_threads(options, n_threads)
        try:
            name = str(await gateway.submit(options))
        except (OSError, ValueError, RuntimeError) as error:  # for its own reasons, such as a quota
            reason = f"it starts no cluster ({_first_line(error)})"
            raise _refuse(gateway.address, reason) from error
        try:
            await asyncio.wait_for(_wait_until_running(gateway, name), deadline_s)
        except BaseException as error:
            await gateway.stop_cluster(name)
            if isinstance(error, TimeoutError):
                raise _refuse(address, f"it started no scheduler in {deadline_s:g} s") from error
            raise
    return name


async def _connect_gateway(address: str | None) -> tuple[Any, Any]:
    """Return a gateway that has answered, and the options it offers."""
    gateway = None
    try:
        gateway = _import_dask_gateway().Gateway(address, asynchronous=True)
        return gateway, await asyncio.wait_for(gateway.cluster_options(), _ANSWER_S)
    except Exception as error:  # whatever else may listen there answers in its own way
        if gateway is not None:
            await gateway.__aexit__(None, None, None)
        raise _refuse(address, f"no Dask Gateway answers ({_first_line(error)})") from error


def _refuse(address: str | None, reason: str) -> UserError:
    where = repr(address) if address else "the configured one"
    return UserError(
        f"cluster_kind: gateway, cluster_address: {where}; {reason};"
        " allowed: the address of a running Dask Gateway, such as https://HUB/services/dask-gateway"
    )


def _first_line(error: BaseException) -> str:
    said = str(error).strip().splitlines() or [f"nothing in {_ANSWER_S:g} s"]
    return f"{type(error).__name__}: {said[0][:200]}"


def _ask_for(options: Any, wanted: Sequence[str]) -> None:
    """Set options of a gateway, each to the type that it has there."""
    for name, text in parse_options(
        wanted, [name for name in options if name != "worker_cores"]
    ).items():
        try:
            is_text = isinstance(options[name], str)
            options[name] = text if is_text else json.loads(text)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"cluster_options: {show(f'{name}={text}')}; allowed: what the gateway offers ({error})"
            ) from error


def _ask_for_threads(options: Any, n_threads: int) -> None:
    try:
        options["worker_cores"] = n_threads
    except (TypeError, ValueError) as error:
        raise UserError(
            f"threads_per_worker: {n_threads}; allowed: what the gateway offers ({error})"
        ) from error


async def _wait_until_running(gateway: Any, name: str) -> None:
    while (status := (await gateway.get_cluster(name)).status.name) != "RUNNING":
        if status != "PENDING":
            raise _refuse(gateway.address, f"its cluster is {status.lower()} before it ran")
        await asyncio.sleep(0.2)


def scale_gateway_cluster(cluster: Any, n_workers: int) -> None:
    """Ask a gateway for workers."""
    from dask_gateway.client import GatewayWarning  # only hubs need it

    with warnings.catch_warnings():
        warnings.simplefilter("error", GatewayWarning)
        try:
            cluster.scale(n_workers)
        except GatewayWarning as error:
            raise UserError(
                f"n_workers: {n_workers}; allowed: what the gateway grants ({error})"
            ) from error


def send_helpers(client: distributed.Client) -> None:
    """Send this package to the scheduler and to every worker, those to come included.

    Workers of a gateway run in an image that has the packages of the
    environment, but not the checkout that the notebook runs from.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "helpers.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for source in sorted(_PACKAGE.rglob("*.py")):
                archive.write(source, source.relative_to(_PACKAGE.parent))
        client.upload_file(str(path))


# Told by a worker itself: a function of ours would need what is asked for.
_HAS_HELPERS = "__import__('importlib.util').util.find_spec('helpers') is not None"

KINDS = ("local", "gateway", "slurm", "address")

_AT_ONCE = 8  # processes that start together on one machine
_DEADLINE_S = 120.0
_QUEUE_S = 3600.0  # jobs wait for others
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
    """

    kind: str  # one of `KINDS`
    client: distributed.Client
    threads_per_worker: int
    # asks for a number of workers; None for a cluster that is not ours to scale
    ask: Callable[[int], None] | None = None
    deadline_s: float = _DEADLINE_S  # how long to wait for workers
    n_workers: int = 0  # that it was scaled to last; 0 before it was
    _held: dict[str, int] = field(default_factory=dict)

    def scale(self, n_workers: int) -> int:
        """Scale to `n_workers`, wait for them, and count the threads of those that are there."""
        if n_workers < 1:
            raise UserError(f"n_workers: {n_workers}; allowed: at least 1")
        if self.ask is not None:
            # what is paused stays; on a Gateway, where it costs money, it does not
            kept = 0 if self.kind == "gateway" else len(self._all_workers())
            few = range(kept + _AT_ONCE, n_workers, _AT_ONCE) if self.kind == "local" else ()
            for n_asked in (*few, max(n_workers, kept)):
                self.ask(n_asked)
                self._wait_for(n_asked)
        self._wait_for(n_workers)
        if self.kind != "gateway":
            addresses = list(self._all_workers())
            self.client.run(_set_paused, addresses[n_workers:])
        self._wait(lambda: len(self.workers()) == n_workers, n_workers)
        self._check_threads()
        versions: Any = self.client.get_versions()
        check_versions(versions)
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

    def release(self) -> None:
        """Let every worker take tasks again, and close the clients that it kept."""
        if self.client.status != "running":  # its scheduler is gone, and the workers with it
            return
        self.client.run(_set_paused, [])
        self.client.run(_forget_clients)

    def workers(self) -> dict[str, Any]:
        """Describe the workers that take tasks, by address."""
        return {k: v for k, v in self._all_workers().items() if v["status"] == "running"}

    def n_threads(self) -> int:
        """Count the threads of the workers that are there."""
        return sum(int(worker["nthreads"]) for worker in self.workers().values())

    def describe(self) -> dict[str, str | int | None]:
        """Describe what was got, for the record; no host and no address.

        Versions of workers that differ are joined by spaces; the limit of memory
        is that of the smallest worker, None where there is none.
        """
        workers = self.workers()
        versions: Any = self.client.get_versions()
        limits = [int(worker["memory_limit"] or 0) for worker in workers.values()]
        told = [found for at, found in versions["workers"].items() if at in workers]
        dasks = {str(found["packages"]["dask"]) for found in told}
        return {
            "cluster_kind": self.kind,
            "n_workers": len(workers),
            "n_threads": self.n_threads(),
            "scheduler_dask": str(versions["scheduler"]["packages"]["dask"]),
            "worker_dask": " ".join(sorted(dasks)),
            "worker_memory_nbytes": min((n for n in limits if n), default=None),
        }

    def _all_workers(self) -> dict[str, Any]:
        # `Client.scheduler_info` shares its answer with a timer that asks for no workers
        client: Any = self.client
        found = client.sync(client.scheduler.identity, n_workers=-1)
        return dict(found["workers"])

    def _wait_for(self, n_workers: int) -> None:
        self._wait(lambda: len(self._all_workers()) >= n_workers, n_workers)

    def _wait(self, is_done: Callable[[], bool], n_workers: int) -> None:
        # a process takes seconds to start, and on a loaded machine they take turns
        deadline_s = self.deadline_s * max(1.0, n_workers / 8)
        until = time.monotonic() + deadline_s
        try:
            while not is_done():
                if time.monotonic() > until:
                    raise self._missing(n_workers, f"has {len(self._all_workers())}", deadline_s)
                time.sleep(0.1)
        except OSError as error:
            said = f"is not reached ({_first_line(error)})"
            raise self._missing(n_workers, said, deadline_s) from error

    def _missing(self, n_workers: int, said: str, deadline_s: float) -> UserError:
        """Say what is known of workers that did not come, and what to do about it."""
        known, remedy = "", "or once more when its machines have less to do"
        if self.kind == "local":
            # as `distributed.nanny` names them
            n = sum(one.name.startswith("Dask Worker") for one in active_children())
            known = f"; processes of workers that run: {n}, with {name_versions()}"
            remedy += (
                "; where they run and are not there after all, with another Python or OpenSSL;"
                " where they do not run, with more memory"
            )
        return UserError(
            f"n_workers: {n_workers}; the {self.kind} cluster {said} after {deadline_s:g} s of"
            f" waiting for its workers{known}; allowed: fewer, {remedy}"
        )

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


def _forget_clients() -> None:
    """Close what readers kept, where there were any: a worker that never read imports none for it."""
    if readers := sys.modules.get("helpers.arrays.readers"):
        readers.forget_clients({})


def check_reach(store: str, *, kind: str, address: str) -> None:
    """Refuse workers of other machines for a store that only this one can reach."""
    if store != "embedded" or kind == "local":
        return
    where = address or (dask.config.get("gateway.address", None) if kind == "gateway" else None)
    host = urlsplit(where or "").hostname
    if host and host not in ("localhost", "127.0.0.1", "::1"):
        raise UserError(
            f"store: 'embedded' with cluster_kind: {kind} at {where}; allowed: the address of a bucket,"
            " s3://BUCKET/PREFIX, because the embedded store listens on this machine alone"
        )


def check_options(kind: str, options: Sequence[str]) -> None:
    """Refuse options that a kind of cluster has not; those of a gateway are known to it alone."""
    if options and kind not in ("slurm", "gateway"):
        raise UserError(
            f"cluster_options: {show([*options])}; allowed: none but with slurm and gateway"
        )
    parse_options(options, None if kind == "gateway" else tuple(OPTIONS))


@contextmanager
def open_cluster(
    kind: str,
    *,
    threads_per_worker: int,
    address: str | None = None,
    deadline_s: float = _DEADLINE_S,
    options: Sequence[str] = (),
) -> Iterator[Cluster]:
    """Open a Dask cluster and close it afterwards.

    One that is started has no workers before it is scaled; one that
    ran before goes on afterwards, with all its workers at work.

    Parameters
    ----------
    kind : {"local", "gateway", "slurm", "address"}
        Processes on this machine; a Dask Gateway; jobs of Slurm; or a scheduler that runs.
    threads_per_worker : int
        Threads of each worker, at least 1.
    address : str, optional
        Of the Gateway (else Dask's own configuration says it) or the scheduler.
    deadline_s : float
        How long to wait for a scheduler and for workers, in seconds.
    options : sequence of str
        What to ask of Slurm, see `slurm.OPTIONS`, or of a Gateway, as ``NAME=VALUE``.
    """
    openers: dict[str, Any] = {
        "local": _open_local,
        "gateway": functools.partial(_open_gateway, options=options),
        "slurm": functools.partial(_open_slurm, options=options),
        "address": _open_running,
    }
    check_options(kind, options)
    if kind not in openers:
        raise UserError(f"cluster_kind: {kind!r}; allowed: {', '.join(KINDS)}")
    if threads_per_worker < 1:
        raise UserError(f"threads_per_worker: {threads_per_worker}; allowed: at least 1")
    with openers[kind](threads_per_worker, address, deadline_s) as cluster:
        try:
            yield cluster
        finally:
            if kind != "gateway":  # there they end; else paused ones do not end when asked
                cluster.release()


@contextmanager
def _open_local(n_threads: int, address: str | None, deadline_s: float) -> Iterator[Cluster]:
    with (
        dask.config.set(_NO_PAGES),
        distributed.LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=0,
            threads_per_worker=n_threads,
            # who reaches a scheduler runs code as its owner: only who has this certificate does
            security=make_certificates(),
            dashboard_address="127.0.0.1:0",  # None means port 8787 of every interface
            scheduler_kwargs={"dashboard": False},
            memory_limit=0,  # a share of this machine's memory would pause workers that share it
            silence_logs=logging.CRITICAL,  # what fails is raised here; at the end workers lose heartbeats
        ) as backend,
        distributed.Client(backend) as client,  # type: ignore[no-untyped-call]
    ):
        yield Cluster("local", client, n_threads, backend.scale, deadline_s)


@contextmanager
def _open_gateway(
    n_threads: int, address: str | None, deadline_s: float, *, options: Sequence[str]
) -> Iterator[Cluster]:
    with (
        start_gateway_cluster(
            address, threads_per_worker=n_threads, deadline_s=deadline_s, options=options
        ) as backend,
        backend.get_client() as client,
    ):
        send_helpers(client)
        ask = functools.partial(scale_gateway_cluster, backend)
        yield Cluster("gateway", client, n_threads, ask, deadline_s)


@contextmanager
def _open_slurm(
    n_threads: int, address: str | None, deadline_s: float, *, options: Sequence[str]
) -> Iterator[Cluster]:
    with (
        dask.config.set(_NO_PAGES),
        start_slurm_cluster(options, threads_per_worker=n_threads) as backend,
        distributed.Client(backend) as client,  # type: ignore[no-untyped-call]
    ):
        waits_s = _QUEUE_S if deadline_s == _DEADLINE_S else deadline_s
        yield Cluster("slurm", client, n_threads, backend.scale, waits_s)


@contextmanager
def _open_running(n_threads: int, address: str | None, deadline_s: float) -> Iterator[Cluster]:
    with _connect(address) as client:
        found = client.run(eval, _HAS_HELPERS)
        if not (found and all(found.values())):  # an image with the packages, without the checkout
            send_helpers(client)
        yield Cluster("address", client, n_threads, None, deadline_s)


def _connect(address: str | None) -> distributed.Client:
    refused = UserError(
        f"cluster_kind: address, cluster_address: {address or ''!r}; no scheduler answers;"
        " allowed: that of a running one, such as tcp://HOST:8786"
    )
    if not address:  # without an address, Dask would start a cluster of its own
        raise refused
    # a client that does not start would make itself Dask's default, and again once it is collected
    asked: dict[str, Any] = {"timeout": _ANSWER_S, "set_as_default": False}
    try:
        distributed.Client(address, **asked).close()  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise refused from error
    return distributed.Client(address, timeout=_ANSWER_S)  # type: ignore[no-untyped-call]
