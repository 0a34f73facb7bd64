"""Dask clusters: local, Gateway, Slurm, or one that runs already, behind one handle."""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import shutil
import ssl
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dask
import distributed

from wire.deadline import deadline
from wire.errors import UserError, show

KINDS = ("local", "gateway", "slurm", "address")

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
            n_before = 0 if self.kind == "gateway" else len(self._all_workers())
            steps = range(n_before + _AT_ONCE, n_workers, _AT_ONCE) if self.kind == "local" else ()
            for n_asked in (*steps, max(n_workers, n_before)):
                self.ask(n_asked)
                self._wait(n_asked, lambda n: len(self._all_workers()) >= n)
        self._wait(n_workers, lambda n: len(self._all_workers()) >= n)
        if self.kind != "gateway":
            self.client.run(_set_paused, [*self._all_workers()][n_workers:])
        self._wait(n_workers, lambda n: len(self.workers()) == n)
        threads = {int(worker["nthreads"]) for worker in self.workers().values()}
        if threads != {self.threads_per_worker}:  # a ceiling would not be given the same
            raise UserError(
                "threads_per_worker",
                self.threads_per_worker,
                (
                    f"{' or '.join(map(str, sorted(threads)))}, as the workers of this {self.kind} "
                    "cluster have"
                ),
            )
        if self.kind == "local":
            # imports are not timed with the first read
            self.client.run(importlib.import_module, "helpers.arrays.readers")
        check_versions(self.client)
        self.n_workers = n_workers
        return self.n_threads()

    def pin_workers(self) -> None:
        """Note before a read which processes take tasks, for `check_workers`."""
        self._pinned = self._find_processes()
        self.check_workers()

    def check_workers(self) -> None:
        """Refuse a read with more or fewer workers than were asked for, or of which one was replaced."""
        processes, n_workers = self._find_processes(), self.n_workers or len(self._pinned)
        if processes != self._pinned or len(processes) != n_workers:
            raise UserError(
                "n_workers",
                (
                    f"{n_workers}; the {self.kind} cluster has "
                    f"{len(processes.items() & self._pinned.items())} of these, so the read is not "
                    "kept"
                ),
                (
                    "the same workers from its beginning to its end (run it again, it goes on "
                    "from the last row)"
                ),
            )

    def find_here(self) -> list[int]:
        """Find the processes of this machine that take tasks, as noted before a read."""
        return [*self._pinned.values()] if self.kind == "local" else []

    def _find_processes(self) -> dict[str, int]:
        """Find the processes of the workers that take tasks, by address: a port may be taken again."""
        return dict(self.client.run(os.getpid, workers=list(self.workers())))

    def release(self) -> None:
        """Let every worker take tasks again, and close the clients that it kept."""
        if self.client.status == "running":  # else its scheduler is gone, and the workers with it
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

    def _wait(self, n_workers: int, are_there: Callable[[int], bool]) -> None:
        """Wait for so many workers."""
        # a process takes seconds to start, and on a loaded machine they take turns
        deadline_s = self.deadline_s * max(1.0, n_workers / 8)
        until = time.monotonic() + deadline_s
        while not are_there(n_workers):
            if time.monotonic() > until:
                raise UserError(
                    "n_workers",
                    (
                        f"{n_workers}; the {self.kind} cluster has {len(self._all_workers())} after "
                        f"{deadline_s:g} s of waiting for its workers"
                    ),
                    "fewer, or once more when its machines have less to do",
                )
            time.sleep(0.1)


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


def check_versions(client: distributed.Client) -> None:
    """Refuse other software on scheduler or workers than here, before a task fails midway.

    Dask compares the packages whose objects cross from one process to another. What else differs
    stands in each row, which names the versions of the workers.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Mismatched versions")
        try:
            client.get_versions(check=True)
        except UserWarning as table:
            mismatch = " ".join(re.sub(r"\+[-+]+|\|", " ", str(table)).split())
            raise UserError(
                "cluster",
                mismatch,
                "the same on client, scheduler and workers, as environment.yml has it",
            ) from table


def read_options(kind: str, pairs: Sequence[str]) -> dict[str, str]:
    """Read what to ask of Slurm or a gateway, which know their names, written as NAME=VALUE."""
    if pairs and kind not in ("slurm", "gateway"):
        raise UserError("cluster_options", show([*pairs]), "none but with slurm and gateway")
    options = {}
    for pair in pairs:
        name, _, options[name] = pair.partition("=")
        if not (name and options[name]):
            raise UserError("cluster_options", show(pair), "NAME=VALUE")
    return options


@contextmanager
def open_cluster(
    kind: str,
    *,
    threads_per_worker: int,
    address: str | None = None,
    options: Sequence[str] = (),
) -> Iterator[Cluster]:
    """Open a Dask cluster, one of `KINDS`, and close it afterwards.

    One that is started has no workers before it is scaled; one that ran before goes on
    afterwards, with all its workers at work. The `address` is that of the scheduler, or of the
    Gateway, where Dask's configuration does not say it. What `dask_jobqueue.SLURMCluster` takes,
    or a Gateway offers, stands in `options` as ``NAME=VALUE``.
    """
    openers = {
        "local": lambda: _open_local(threads_per_worker),
        "gateway": lambda: _open_gateway(threads_per_worker, address, options),
        "slurm": lambda: _open_slurm(threads_per_worker, options),
        "address": lambda: _open_running(threads_per_worker, address),
    }
    with ExitStack() as stack:
        cluster = stack.enter_context(openers[kind]())
        try:
            yield cluster
        finally:
            try:
                if kind != "gateway":  # there they end; else paused ones do not end when asked
                    with deadline(_ANSWER_S):
                        cluster.release()
            except TimeoutError:
                # a scheduler that waits for a store that is gone answers no more, nor does it close
                with suppress(TimeoutError), deadline(_ANSWER_S):
                    stack.close()


def _with_no_error_left(name: str) -> Any:
    def call(connection: ssl.SSLSocket, *arguments: Any) -> Any:
        try:
            return getattr(ssl.SSLSocket, name)(connection, *arguments)
        except ssl.SSLError:  # also that nothing is there yet; after these Python empties it
            raise
        except OSError:
            empty = ssl.MemoryBIO(), ssl.MemoryBIO()
            connection.context.wrap_bio(*empty, server_side=bool(connection.server_side))
            raise

    return call


class _Connection(ssl.SSLSocket):
    """A connection under TLS whose end is not taken for that of the others of its thread.

    After an error of the system, such as a peer that is gone, Python leaves OpenSSL's queue of
    errors as it is, and the next read of a healthy connection takes what it finds there for its
    own error (CPython gh-148594). With OpenSSL 3.5 a scheduler so drops its workers as they come.
    Python empties the queue whenever it makes a TLS object.
    """

    read, send, do_handshake = map(_with_no_error_left, ("read", "send", "do_handshake"))


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
def _open_local(n_threads: int) -> Iterator[Cluster]:
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
        yield Cluster("local", client, n_threads, backend.scale)


@contextmanager
def _service_errors(where: str, value: str, allowed: str) -> Iterator[None]:
    """Turn whatever a service or its client answers, or does not, into one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        answer = (str(error).strip().splitlines() or [f"nothing in {_ANSWER_S:g} s"])[0][:200]
        raise UserError(where, f"{value} ({type(error).__name__}: {answer})", allowed) from error


def _import(package: str, extra: str, kind: str) -> Any:
    """Import what only hubs and high-performance centres need."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise UserError(
            "cluster_kind",
            f"{kind}; the package {package.partition('.')[0].replace('_', '-')} is not installed",
            f"after `pip install '.[{extra}]'`",
        ) from error


@contextmanager
def _open_slurm(n_threads: int, pairs: Sequence[str]) -> Iterator[Cluster]:
    """Start a scheduler here, whose workers will be jobs of Slurm; all end with the context.

    dask-jobqueue writes the certificate to a folder below the working folder, which only its owner
    reads and which all nodes have to see.
    """
    slurm = _import("dask_jobqueue.slurm", "hpc", "slurm")
    if not shutil.which("sbatch"):
        raise UserError(
            "cluster_kind",
            "slurm; there is no sbatch here",
            "on a node from which jobs can be submitted",
        )
    with (
        dask.config.set(_NO_PAGES),
        TemporaryDirectory(prefix=".slurm-", dir=Path.cwd()) as shared,
    ):
        with _service_errors("cluster_options", ", ".join(pairs), "what this cluster offers"):
            backend = slurm.SLURMCluster(
                cores=n_threads,
                processes=1,
                n_workers=0,
                protocol="tls://",
                security=Security.temporary(),  # type: ignore[no-untyped-call]
                shared_temp_directory=shared,
                log_directory=shared,
                scheduler_options={"dashboard": False, "dashboard_address": ":0"},  # else port 8787
                **(_SLURM_DEFAULTS | read_options("slurm", pairs)),
            )
        with backend, distributed.Client(backend) as client:  # type: ignore[no-untyped-call]
            yield Cluster("slurm", client, n_threads, backend.scale, _QUEUE_S)
        for name in ("ca_file", "cert", "key"):
            getattr(backend, f"_job_{name}").close()  # before the folder of the certificate goes


@contextmanager
def _open_running(n_threads: int, address: str | None) -> Iterator[Cluster]:
    problem = f"address, cluster_address: {address or ''!r}; no scheduler answers"
    with _service_errors("cluster_kind", problem, "that of a running one, such as tcp://HOST:8786"):
        if not address:  # Dask would start a cluster of its own
            raise ValueError("no address")
        # a client that does not start would make itself Dask's default, and again once it is collected
        options: dict[str, Any] = {"timeout": _ANSWER_S, "set_as_default": False}
        distributed.Client(address, **options).close()  # type: ignore[no-untyped-call]
    with distributed.Client(address, timeout=_ANSWER_S) as client:  # type: ignore[no-untyped-call]
        has_helpers = client.run(eval, _HAS_HELPERS)
        if not (
            has_helpers and all(has_helpers.values())
        ):  # an image with the packages, without the checkout
            _send_helpers(client)
        yield Cluster("address", client, n_threads)


@contextmanager
def _open_gateway(n_threads: int, address: str | None, pairs: Sequence[str]) -> Iterator[Cluster]:
    """Start a cluster without workers on a Dask Gateway and stop it afterwards.

    After ``kill -9`` the idle timeout of the gateway has to.
    """
    dask_gateway = _import("dask_gateway", "hub", "gateway")
    shown = f"gateway, cluster_address: {repr(address) if address else 'the configured one'};"
    allowed = "the address of a running Dask Gateway, such as https://HUB/services/dask-gateway"
    with ExitStack() as closing:
        with (
            _service_errors("cluster_kind", f"{shown} no Dask Gateway answers", allowed),
            deadline(_ANSWER_S),
        ):
            gateway = dask_gateway.Gateway(address)
            closing.callback(_close_gateway, gateway)
            options = gateway.cluster_options()
        for name, value in (
            {"worker_cores": str(n_threads)} | read_options("gateway", pairs)
        ).items():
            with _service_errors(
                "cluster_options", f"{name}={value}", f"what it offers: {', '.join(options)}"
            ):
                options[name] = value if isinstance(options[name], str) else json.loads(value)
        with (
            _service_errors("cluster_kind", f"{shown} it starts no cluster", allowed),
            deadline(_DEADLINE_S),
        ):
            backend = gateway.new_cluster(options)
            closing.callback(_close_gateway, backend.gateway)
            closing.enter_context(backend)
        client = closing.enter_context(backend.get_client())
        _send_helpers(client)

        def scale(n_workers: int) -> None:
            with (
                warnings.catch_warnings(),
                _service_errors("n_workers", f"{n_workers}", "what the gateway grants"),
            ):
                warnings.simplefilter("error", dask_gateway.client.GatewayWarning)
                backend.scale(n_workers)

        yield Cluster("gateway", client, n_threads, scale)


def _close_gateway(gateway: Any) -> None:
    """Close it once: it would close itself again when collected, and then miss its event loop."""
    gateway.close()
    gateway.close = lambda: None


def _send_helpers(client: distributed.Client) -> None:
    """Send this package to the scheduler and to every worker, those to come included.

    Their image has the packages of the environment, but not the checkout that the notebook runs
    from. `distributed.UploadDirectory` would need a nanny on each worker and forgets the scheduler.
    """
    with TemporaryDirectory() as folder:
        package = str(Path(folder) / _PACKAGE.name)
        client.upload_file(shutil.make_archive(package, "zip", _PACKAGE.parent, _PACKAGE.name))
