"""Dask clusters: local, Gateway, Slurm, or one that runs already, behind one handle."""

from __future__ import annotations

import functools
import importlib
import json
import logging
import os
import shutil
import ssl
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import dask
import distributed

from helpers.benchmark.loop import deadline
from helpers.errors import UserError, show

KINDS = ("local", "gateway", "slurm", "address")

SLURM_OPTIONS = {
    "queue": "partition that jobs go to",
    "account": "what their time is charged to",
    "walltime": "that each may take, HH:MM:SS",
    "memory": "of each, such as 4GB",
    "interface": "network between workers and scheduler, such as ib0",
}
"""What may be asked of Slurm, and what each says."""

_SLURM_DEFAULTS = {"walltime": "00:30:00", "memory": "4GB"}
_ANSWER_S = 5.0  # a gateway or a scheduler that has not answered by then is taken as not there
_AT_ONCE = 8  # processes that start together on one machine
_DEADLINE_S = 120.0
_QUEUE_S = 3600.0  # jobs wait for others
# without a dashboard, ports for the web are still opened; these are the pages on them
_NO_PAGES: dict[str, list[str]] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
# What a worker does while it waits takes two processors whole where 64 of them share these.
_RESTING: dict[str, Any] = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.worker.memory.monitor-interval": "5s",
}
_PACKAGE = Path(__file__).resolve().parents[1]
# Asked of a worker as text: a function of ours would need what is asked for.
_HAS_HELPERS = "__import__('importlib.util').util.find_spec('helpers') is not None"


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
    _pinned: dict[str, int] = field(default_factory=dict)

    def scale(self, n_workers: int) -> int:
        """Scale to `n_workers`, wait for them, and count the threads of those that are there."""
        if self.ask is not None:
            # what is paused stays; on a Gateway, where it costs money, it does not
            kept = 0 if self.kind == "gateway" else len(self._all_workers())
            few = range(kept + _AT_ONCE, n_workers, _AT_ONCE) if self.kind == "local" else ()
            for n_asked in (*few, max(n_workers, kept)):
                self.ask(n_asked)
                self._wait_for(n_asked)
        self._wait_for(n_workers)
        if self.kind != "gateway":
            self.client.run(_set_paused, [*self._all_workers()][n_workers:])
        self._wait(lambda: len(self.workers()) == n_workers, n_workers)
        self._check_threads()
        if self.kind == "local":
            self.client.run(_import_readers)
        versions: Any = self.client.get_versions()
        check_versions(versions)
        self.n_workers = n_workers
        return self.n_threads()

    def pin_workers(self) -> None:
        """Note which processes take tasks before a read; refuse another number than was asked."""
        self._pinned = self._find_processes()
        if self.n_workers and len(self._pinned) != self.n_workers:
            raise self._lost(self.n_workers, len(self._pinned))

    def check_workers(self) -> None:
        """Refuse a read during which a worker ended, also if another took its place."""
        found = self._find_processes()
        if found != self._pinned:
            raise self._lost(len(self._pinned), len(found.items() & self._pinned.items()))

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

    def _all_workers(self) -> dict[str, Any]:
        # `Client.scheduler_info` shares its answer with a timer that asks for no workers
        client: Any = self.client
        return dict(client.sync(client.scheduler.identity, n_workers=-1)["workers"])

    def _wait_for(self, n_workers: int) -> None:
        self._wait(lambda: len(self._all_workers()) >= n_workers, n_workers)

    def _wait(self, is_done: Callable[[], bool], n_workers: int) -> None:
        # a process takes seconds to start, and on a loaded machine they take turns
        deadline_s = self.deadline_s * max(1.0, n_workers / 8)
        until = time.monotonic() + deadline_s
        cause: OSError | None = None
        try:
            while not is_done() and time.monotonic() < until:
                time.sleep(0.1)
            if is_done():
                return
            found = f"has {len(self._all_workers())}"
        except OSError as error:
            found, cause = f"is not reached ({_first_line(error)})", error
        raise UserError(
            f"n_workers: {n_workers}; the {self.kind} cluster {found} after {deadline_s:g} s of"
            f" waiting for its workers, with Python {sys.version.split()[0]} and"
            f" {ssl.OPENSSL_VERSION}; allowed: fewer, or once more when its machines have less to do"
        ) from cause

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


def _import_readers() -> None:
    """Import what a worker needs, so that its first read is not timed with its imports."""
    importlib.import_module("helpers.arrays.readers")


def _forget_clients() -> None:
    """Close what readers kept, where there were any: a worker that never read imports none for it."""
    if readers := sys.modules.get("helpers.arrays.readers"):
        readers.forget_clients({})


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [f"nothing in {_ANSWER_S:g} s"]
    return f"{type(error).__name__}: {lines[0][:200]}"


# Packages whose tasks cross from one process to another, and how many numbers of a version count.
_SAME = {"python": 2, "dask": 3, "distributed": 3, "numpy": 1, "cloudpickle": 1}


def check_versions(found: Mapping[str, Any]) -> None:
    """Refuse a scheduler or worker that runs other software than the client, before it fails midway.

    `found` is what `distributed.Client.get_versions` returns. What else differs stands in each
    row, which names the versions of the workers.
    """
    own = found["client"]["packages"]
    for where, other in {"the scheduler": found["scheduler"], **found["workers"]}.items():
        theirs = (other or {}).get("packages", {})
        for name, n in _SAME.items():
            versions = [str(packages.get(name)) for packages in (own, theirs)]
            if versions[0].split(".")[:n] != versions[1].split(".")[:n]:
                place = where if where == "the scheduler" else "a worker"
                raise UserError(
                    f"cluster: {name} {versions[0]} here, {versions[1]} on {place};"
                    " allowed: the same on client, scheduler and workers, as environment.yml has it"
                )


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
    parse_options(options, None if kind == "gateway" else tuple(SLURM_OPTIONS))


def parse_options(given: Sequence[str], allowed: Collection[str] | None) -> dict[str, str]:
    """Read options that are written as NAME=VALUE; any name where `allowed` is None.

    Examples
    --------
    >>> parse_options(["queue=compute", "walltime=01:00:00"], SLURM_OPTIONS)
    {'queue': 'compute', 'walltime': '01:00:00'}
    """
    found = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not (name and sign and value) or (allowed is not None and name not in allowed):
            words = ", ".join(f"{name}=…" for name in allowed or ("NAME",))
            raise UserError(f"cluster_options: {show(one)}; allowed: {words}")
        found[name] = value
    return found


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

    Its `kind`, of `KINDS`, is processes on this machine, a Dask Gateway, jobs of Slurm, or a
    scheduler that runs. One that is started has no workers before it is scaled; one that ran
    before goes on afterwards, with all its workers at work. The `address` is that of the Gateway,
    else Dask's own configuration says it, or of the scheduler. What to ask of Slurm, see
    `SLURM_OPTIONS`, or of a Gateway stands in `options` as ``NAME=VALUE``.
    """
    openers = {
        "local": lambda: _open_local(threads_per_worker, deadline_s),
        "gateway": lambda: _open_gateway(threads_per_worker, address, deadline_s, options),
        "slurm": lambda: _open_slurm(threads_per_worker, deadline_s, options),
        "address": lambda: _open_running(threads_per_worker, address, deadline_s),
    }
    with openers[kind]() as cluster:
        try:
            yield cluster
        finally:
            if kind != "gateway":  # there they end; else paused ones do not end when asked
                cluster.release()


class _Connection(ssl.SSLSocket):
    """A connection under TLS whose end is not taken for that of the others of its thread.

    After an error of the system, such as a peer that is gone, Python leaves OpenSSL's queue of
    errors as it is, and the next read of a healthy connection takes what it finds there for its
    own error (CPython gh-148594). With OpenSSL 3.5 a scheduler so drops its workers as they come.
    Python empties the queue whenever it makes a TLS object.
    """

    def read(self, *arguments: Any) -> Any:
        return self._leave_no_error(super().read, *arguments)

    def send(self, *arguments: Any) -> Any:
        return self._leave_no_error(super().send, *arguments)

    def do_handshake(self, *arguments: Any) -> Any:
        return self._leave_no_error(super().do_handshake, *arguments)

    def _leave_no_error(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except ssl.SSLError:  # also that nothing is there yet; after these Python empties it
            raise
        except OSError:
            empty = ssl.MemoryBIO(), ssl.MemoryBIO()
            self.context.wrap_bio(*empty, server_side=bool(self.server_side))
            raise


class Security(distributed.Security):
    """Certificates of one cluster, whose connections are `_Connection`.

    Who reaches a scheduler runs code as its owner: only who has the certificate does.
    """

    def _get_tls_context(self, tls: dict[str, Any], purpose: ssl.Purpose) -> Any:
        context = super()._get_tls_context(tls, purpose)  # type: ignore[no-untyped-call]
        if context is not None:
            context.sslsocket_class = _Connection
        return context


@contextmanager
def _open_local(n_threads: int, deadline_s: float) -> Iterator[Cluster]:
    with (
        dask.config.set(_NO_PAGES | _RESTING),
        distributed.LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=0,
            threads_per_worker=n_threads,
            security=Security.temporary(),  # type: ignore[no-untyped-call]
            dashboard_address="127.0.0.1:0",  # None means port 8787 of every interface
            scheduler_kwargs={"dashboard": False},
            memory_limit=0,  # a share of this machine's memory would pause workers that share it
            silence_logs=logging.CRITICAL,  # what fails is raised here; at the end workers lose heartbeats
        ) as backend,
        distributed.Client(backend) as client,  # type: ignore[no-untyped-call]
    ):
        yield Cluster("local", client, n_threads, backend.scale, deadline_s)


@contextmanager
def _open_slurm(n_threads: int, deadline_s: float, given: Sequence[str]) -> Iterator[Cluster]:
    """Start a scheduler here, whose workers will be jobs of Slurm; all end with the context.

    dask-jobqueue writes the certificate to a folder below the working folder, which only its owner
    reads and which all nodes have to see.
    """
    try:
        from dask_jobqueue import slurm  # only high-performance centres need it
    except ImportError as error:
        raise UserError(
            "cluster_kind: slurm; the package dask-jobqueue is not installed;"
            " allowed: after `pip install '.[hpc]'`"
        ) from error
    if not shutil.which("sbatch"):
        raise UserError(
            "cluster_kind: slurm; there is no sbatch here; allowed: on a node from which jobs"
            " can be submitted"
        )
    options: dict[str, Any] = _SLURM_DEFAULTS | parse_options(given, SLURM_OPTIONS)
    with (
        dask.config.set(_NO_PAGES),
        TemporaryDirectory(prefix=".slurm-", dir=Path.cwd()) as shared,
    ):
        try:
            backend = slurm.SLURMCluster(
                cores=n_threads,
                processes=1,
                n_workers=0,
                protocol="tls://",
                security=Security.temporary(),  # type: ignore[no-untyped-call]
                shared_temp_directory=shared,
                log_directory=shared,
                scheduler_options={"dashboard": False, "dashboard_address": ":0"},  # else port 8787
                **options,
            )
        except (ValueError, RuntimeError, OSError) as error:
            raise UserError(
                f"cluster_options: {', '.join(given) or 'none'}; {_first_line(error)};"
                " allowed: what this cluster offers"
            ) from error
        with backend, distributed.Client(backend) as client:  # type: ignore[no-untyped-call]
            waits_s = _QUEUE_S if deadline_s == _DEADLINE_S else deadline_s
            yield Cluster("slurm", client, n_threads, backend.scale, waits_s)
        for name in ("ca_file", "cert", "key"):
            getattr(backend, f"_job_{name}").close()  # before the folder of the certificate goes


@contextmanager
def _open_running(n_threads: int, address: str | None, deadline_s: float) -> Iterator[Cluster]:
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
    with distributed.Client(address, timeout=_ANSWER_S) as client:  # type: ignore[no-untyped-call]
        found = client.run(eval, _HAS_HELPERS)
        if not (found and all(found.values())):  # an image with the packages, without the checkout
            send_helpers(client)
        yield Cluster("address", client, n_threads, None, deadline_s)


@contextmanager
def _open_gateway(
    n_threads: int, address: str | None, deadline_s: float, given: Sequence[str]
) -> Iterator[Cluster]:
    """Start a cluster without workers on a Dask Gateway and stop it afterwards.

    The gateway also stops it when this process exits without coming here; after ``kill -9`` the
    idle timeout of the gateway has to.
    """
    gateway, options = _connect_gateway(address)
    name, backend = "", None
    try:
        _set_options(options, given, n_threads)
        try:
            with deadline(deadline_s):
                name = str(gateway.submit(options))
                backend = gateway.connect(name, shutdown_on_close=True)
        except Exception as error:  # for its own reasons, such as a quota
            reason = f"it starts no cluster ({_first_line(error)})"
            raise _refuse_gateway(address, reason) from error
        with backend.get_client() as client:
            send_helpers(client)
            scale = functools.partial(_scale_gateway, backend)
            yield Cluster("gateway", client, n_threads, scale, deadline_s)
    finally:
        try:
            if name:
                gateway.stop_cluster(name)
        except Exception as error:  # whatever its client makes of a server that is gone
            reason = f"it went away ({_first_line(error)}), and what it runs ends when it is idle"
            raise _refuse_gateway(address, reason) from error
        finally:
            if backend is not None:
                backend.close(shutdown=False)
                _close_gateway(backend.gateway)
            _close_gateway(gateway)


def _close_gateway(gateway: Any) -> None:
    """Close it once: it would close itself again when collected, and then miss its event loop."""
    gateway.close()
    gateway.close = lambda: None


def _connect_gateway(address: str | None) -> tuple[Any, Any]:
    """Return a gateway that has answered, and the options it offers."""
    try:
        import dask_gateway  # only hubs need it
    except ImportError as error:
        raise UserError(
            "cluster_kind: gateway; the package dask-gateway is not installed;"
            " allowed: after `pip install '.[hub]'`"
        ) from error
    gateway = None
    try:
        with deadline(_ANSWER_S):
            gateway = dask_gateway.Gateway(address)
            return gateway, gateway.cluster_options()
    except Exception as error:  # whatever else may listen there answers in its own way
        if gateway is not None:
            _close_gateway(gateway)
        reason = f"no Dask Gateway answers ({_first_line(error)})"
        raise _refuse_gateway(address, reason) from error


def _refuse_gateway(address: str | None, reason: str) -> UserError:
    where = repr(address) if address else "the configured one"
    return UserError(
        f"cluster_kind: gateway, cluster_address: {where}; {reason};"
        " allowed: the address of a running Dask Gateway, such as https://HUB/services/dask-gateway"
    )


def _set_options(options: Any, given: Sequence[str], n_threads: int) -> None:
    """Set options of a gateway, each to the type that it has there."""
    wanted: dict[str, Any] = {}
    offered = [name for name in options if name != "worker_cores"]
    for name, text in parse_options(given, offered).items():
        try:
            wanted[name] = text if isinstance(options[name], str) else json.loads(text)
        except ValueError as error:
            raise UserError(
                f"cluster_options: {show(f'{name}={text}')}; allowed: what the gateway offers ({error})"
            ) from error
    wanted |= {"worker_cores": n_threads} if "worker_cores" in options else {}
    for name, value in wanted.items():
        try:
            options[name] = value
        except (TypeError, ValueError) as error:
            parameter = (
                "threads_per_worker" if name == "worker_cores" else f"cluster_options: {name}"
            )
            raise UserError(
                f"{parameter}: {show(value)}; allowed: what the gateway offers ({error})"
            ) from error


def _scale_gateway(cluster: Any, n_workers: int) -> None:
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
