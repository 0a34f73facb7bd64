"""Clusters: what is got is what was asked for, or one line says why not; nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import pickle
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import dask
import distributed
import psutil
import pytest

import helpers
from helpers.arrays import clusters
from helpers.arrays.clusters import Cluster, Security, open_cluster, read_options
from tests.conftest import Gateway
from tests.refusals import refused
from tests.stores import becomes


@pytest.fixture(scope="module")
def local() -> Iterator[Cluster]:
    """Open one local cluster for all tests that only scale it: workers take seconds to start."""
    with open_cluster("local", threads_per_worker=2) as cluster:
        yield cluster


def workers_used(cluster: Cluster) -> set[str]:
    """Run more tasks than there are threads and tell which workers ran them."""

    def where(_: int) -> str:  # inside, so that workers need not import the tests
        time.sleep(0.01)
        return str(distributed.get_worker().address)

    tasks = cluster.client.map(where, range(40), pure=False)
    return set(cluster.client.gather(tasks))


# local


def test_local_cluster_has_as_many_workers_as_asked(local: Cluster) -> None:
    """After scaling, exactly so many workers take tasks, and their threads are returned."""
    processes = []
    for n_workers in (2, 1, 2):  # up, down by pausing, up by resuming
        assert local.scale(n_workers) == 2 * n_workers
        assert len(local.workers()) == n_workers
        assert workers_used(local) == set(local.workers())
        processes.append(set(local.client.run(os.getpid).values()))
    assert processes[0] == processes[1] == processes[2]  # none is started anew


def test_workers_that_do_not_come_are_one_line() -> None:
    """When the deadline has passed, one line says what there is; all processes end, paused ones too."""
    before = set(psutil.Process().children(recursive=True))
    with (
        refused("n_workers", r"^3; .* has 2 after 0\.05 s ", "fewer"),
        open_cluster("local", threads_per_worker=1) as cluster,
    ):
        for n_workers in (2, 1):
            cluster.scale(n_workers)
        cluster.deadline_s = 0.05
        cluster.scale(3)
    assert becomes(lambda: not _workers_since(before))


def _workers_since(before: set[psutil.Process]) -> list[psutil.Process]:
    """List child processes that came since, without the helper that Python keeps for semaphores."""
    found = set(psutil.Process().children(recursive=True)) - before
    return [p for p in found if "resource_tracker" not in " ".join(_command(p))]


def _command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []


def _try_client(address: str) -> str:
    """Connect as any program of this machine can, and tell what comes of it."""
    with (
        contextlib.suppress(OSError, TypeError, RuntimeError),
        distributed.Client(address, timeout=3, set_as_default=False) as client,
    ):
        return str(client.submit(os.getpid).result(timeout=10))
    return "refused"


@pytest.mark.parametrize("scheme", ["tcp", "tls"])
def test_a_client_without_the_certificate_is_refused(local: Cluster, scheme: str) -> None:
    """Who may run code on the workers has the owner's files and keys: nobody else may."""
    local.scale(1)
    address = str(local.client.scheduler.address).partition("://")[2]
    logging.disable(logging.CRITICAL)  # refusals are what is wanted
    try:
        assert _try_client(f"{scheme}://{address}") == "refused"
        stranger = distributed.Security.temporary()  # a certificate, but not that of the cluster
        with pytest.raises(OSError):
            distributed.Client(
                f"tls://{address}", security=stranger, timeout=3, set_as_default=False
            )
    finally:
        logging.disable(logging.NOTSET)
    assert local.client.submit(os.getpid).result(timeout=30)


# a scheduler that runs already


@pytest.mark.slow
def test_running_cluster_is_scaled_by_pausing() -> None:
    """A worker stays paused although its memory is far from its limit, and works on afterwards."""
    theirs: dict[str, Any] = {"memory_limit": "1GB", "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=2, **theirs) as others:
        asked: dict[str, Any] = {"threads_per_worker": 2, "address": others.scheduler_address}
        with open_cluster("address", **asked) as cluster:
            assert cluster.scale(1) == 2
            time.sleep(0.5)  # Dask looks at the memory of a worker every 0.1 s
            assert len(cluster.workers()) == 1
            assert workers_used(cluster) == set(cluster.workers())
        with open_cluster("address", **asked) as cluster:
            assert becomes(lambda: len(cluster.workers()) == 2)  # before any scaling
            found = cluster.client.run(
                lambda dask_worker: dask_worker.memory_manager.memory_pause_fraction
            )
            assert set(found.values()) == {dask.config.get("distributed.worker.memory.pause")}


# a gateway


@pytest.mark.slow
def test_gateway_gives_real_workers(gateway: Gateway) -> None:
    """As many as asked for, with the sources of here; nothing is left. The study reads with them."""
    with open_cluster(
        "gateway", threads_per_worker=2, address=gateway.url, options=["worker_memory=1 G"]
    ) as cluster:
        assert cluster.scale(2) == 4
        assert [worker["nthreads"] for worker in cluster.workers().values()] == [2, 2]
        assert {"scheduler", "worker"} <= started(gateway)
        origins = [str(path) for path in cluster.client.run(lambda: helpers.__file__).values()]
        assert all("helpers.zip" in path for path in origins), origins
        assert cluster.scale(1) == 2
        assert len(workers_used(cluster)) == 1
        with refused("n_workers", "^3 ", "what the gateway grants"):
            cluster.scale(3)
    assert becomes(lambda: not started(gateway))


def started(gateway: Gateway) -> set[str]:
    """Tell which Dask programs run below a gateway."""
    below = psutil.Process(gateway.child.pid).children(recursive=True)
    commands = [_command(process) for process in below]
    return {word for command in commands for word in command if word in ("scheduler", "worker")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_threads", "options", "value"),
    [(8, [], "^worker_cores=8 .*must be <="), (1, ["image=a"], "^image=a ")],
)
def test_what_a_gateway_does_not_offer(
    gateway: Gateway, n_threads: int, options: list[str], value: str
) -> None:
    """It is refused before a cluster starts."""
    asked: dict[str, Any] = {"address": gateway.url, "options": options}
    with (
        refused("cluster_options", value, "worker_cores, worker_memory$"),
        open_cluster("gateway", threads_per_worker=n_threads, **asked),
    ):
        pass
    assert not started(gateway)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["local", "gateway"])
def test_opens_where_an_event_loop_runs(gateway: Gateway, kind: str) -> None:
    """Notebooks run in an event loop: a cluster opens and closes there too."""

    async def use() -> int:
        with open_cluster(kind, threads_per_worker=1, address=gateway.url) as cluster:
            return cluster.scale(1)

    assert asyncio.run(use()) == 1
    gc.collect()  # what fails when it is collected is an error in these tests


# what is not there


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """Accept connections and say nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("kind", "address", "message"),
    [
        # without an address, Dask would start a cluster of its own
        ("address", None, "cluster_address: ''; no scheduler answers"),
        ("address", "tcp://127.0.0.1:9", "cluster_address: 'tcp://127.0.0.1:9'; no scheduler"),
        # nothing listens there
        ("gateway", "http://127.0.0.1:9", "no Dask Gateway answers"),
        # neither given nor configured
        ("gateway", None, "the configured one; no Dask Gateway answers .ValueError"),
        ("gateway", "silent", r"no Dask Gateway answers \(TimeoutError: not done in 0\.5 s"),
        ("slurm", None, "there is no sbatch here"),
    ],
)
def test_what_is_not_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, silent: str, kind: str, address: str | None, message: str
) -> None:
    """What cannot be opened is refused at once in one line that names parameter, value and allowed."""
    pytest.importorskip("dask_jobqueue" if kind == "slurm" else "dask")
    monkeypatch.setattr(clusters, "_ANSWER_S", 0.5)
    monkeypatch.setenv("PATH", "/nowhere")
    where, started_s = silent if address == "silent" else address, time.monotonic()
    with (
        refused("cluster_kind", f"^{kind}.*{message}", "."),
        open_cluster(kind, threads_per_worker=1, address=where),
    ):
        pass
    assert time.monotonic() - started_s < 10  # a person is waiting


def test_other_software_on_a_worker_is_refused(local: Cluster, tmp_path: Path) -> None:
    """One line names the package and both versions; the worker really finds another one."""
    local.scale(1)
    metadata = tmp_path / "cloudpickle-0.0.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: cloudpickle\nVersion: 0.0.1\n")

    def look(folder: str, *, is_there: bool) -> None:
        sys.path[:] = [folder] * is_there + [path for path in sys.path if path != folder]
        distributed.versions._version_cached.cache_clear()

    local.client.run(look, str(tmp_path), is_there=True)
    try:
        with refused("cluster", r"^.* cloudpickle .*0\.0\.1", ".") as told:
            local.scale(1)
        assert "\n" not in str(told.value)
    finally:
        local.client.run(look, str(tmp_path), is_there=False)
    assert local.scale(1) == 2


def test_workers_of_another_width_are_refused(local: Cluster) -> None:
    """Workers with other threads than asked for are not compared with a ceiling."""
    narrow = Cluster("local", local.client, 1, local.ask)
    with refused("threads_per_worker", "^1", "2, as the workers of"):
        narrow.scale(1)


# jobs of Slurm


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("sinfo"), reason="no Slurm here")
def test_workers_are_jobs_and_end_with_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of one thread computes in a job, and no job and no file is left."""
    monkeypatch.chdir(tmp_path)
    options = ["memory=1GB", "walltime=00:05:00"]
    with open_cluster("slurm", threads_per_worker=1, options=options) as cluster:
        assert cluster.scale(1) == 1
        assert cluster.client.submit(sum, [1, 2, 3]).result() == 6
        assert count_jobs() >= 1
    assert becomes(lambda: count_jobs() == 0)
    assert not [*tmp_path.iterdir()]


def count_jobs() -> int:
    """Count the jobs of Slurm that are queued or run."""
    listed = subprocess.run(["squeue", "--noheader"], capture_output=True, text=True, check=True)
    return len(listed.stdout.splitlines())


def test_jobs_get_a_certificate_that_their_owner_alone_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler under TLS starts without a Slurm that would run its jobs; nothing is left of it."""
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    monkeypatch.chdir(tmp_path)
    (program := tmp_path / "sbatch").touch(mode=0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with open_cluster("slurm", threads_per_worker=1) as cluster:
        assert cluster.client.scheduler_info()["address"].startswith("tls://")
        [shared] = tmp_path.glob(".slurm-*")
        files = [*shared.iterdir()]
        assert shared.stat().st_mode & 0o77 == 0 and len(files) >= 3
        assert not [path for path in files if path.stat().st_mode & 0o77]
    assert [*tmp_path.iterdir()] == [program]


@pytest.mark.parametrize(
    ("kind", "option", "allowed"),
    [
        ("slurm", "queue", "^NAME=VALUE$"),
        ("gateway", "queue=", "^NAME=VALUE$"),
        ("local", "queue=a", "^none but with slurm and gateway$"),
    ],
)
def test_other_options_are_refused(kind: str, option: str, allowed: str) -> None:
    """One line names what may be asked."""
    with refused("cluster_options", option, allowed):
        read_options(kind, [option])


# connections under TLS


def test_an_error_of_the_system_empties_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new TLS object is made where Python leaves OpenSSL's errors, whichever OpenSSL is there."""
    security = pickle.loads(pickle.dumps(Security.temporary()))  # as a worker's process gets them
    context = security.get_connection_args("worker")["ssl_context"]
    made: list[bool] = []
    monkeypatch.setattr(
        ssl.SSLContext, "wrap_bio", lambda *_, server_side: made.append(server_side)
    )
    one, other = socket.socketpair()
    with other, context.wrap_socket(one, do_handshake_on_connect=False) as connection:
        for name, call in {"read": connection.recv, "send": connection.send}.items():
            for error, n_made in ((ssl.SSLWantReadError, 0), (BrokenPipeError, 1)):
                made.clear()
                monkeypatch.setattr(ssl.SSLSocket, name, Mock(side_effect=error))
                with pytest.raises(error):
                    call(1)
                assert len(made) == n_made
