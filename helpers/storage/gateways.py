"""Clusters of a Dask Gateway: asked for, waited for, stopped in every case."""

from __future__ import annotations

import asyncio
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import distributed
from distributed.utils import LoopRunner

from helpers.errors import UserError

_ANSWER_S = 5.0  # a gateway that has not answered by then is taken as not there
_PACKAGE = Path(__file__).resolve().parents[1]


@contextmanager
def start_gateway_cluster(
    address: str | None, *, threads_per_worker: int, deadline_s: float
) -> Iterator[Any]:
    """Start a cluster without workers on a Dask Gateway and stop it afterwards.

    The gateway also stops it when this process exits without coming here;
    after ``kill -9`` the idle timeout of the gateway has to.

    Parameters
    ----------
    address : str or None
        Of the gateway; None for the one that Dask's configuration names.
    threads_per_worker : int
        Asked for as ``worker_cores`` where the gateway offers that option.
    deadline_s : float
        How long to wait for the scheduler, in seconds.

    Yields
    ------
    dask_gateway.GatewayCluster
        The running cluster.

    Raises
    ------
    UserError
        If no gateway answers, or it does not start the cluster in time.
    """
    dask_gateway = _import_dask_gateway()
    runner: Any = LoopRunner()  # in a thread of its own: a notebook's loop runs already
    name = runner.run_sync(_start, address, threads_per_worker, deadline_s)
    cluster = dask_gateway.GatewayCluster.from_name(name, shutdown_on_close=True, address=address)
    try:
        yield cluster
    finally:
        cluster.close()
        # Its gateway closes itself again when collected, and then misses its event loop.
        cluster.gateway.close = _do_nothing


def _do_nothing() -> None:
    """Stand in for what has been done already."""


def _import_dask_gateway() -> Any:
    try:
        import dask_gateway  # only hubs need it
    except ImportError as error:
        raise UserError(
            "cluster_kind: gateway; the package dask-gateway is not installed;"
            " allowed: after `pip install '.[hub]'`"
        ) from error
    return dask_gateway


async def _start(address: str | None, n_threads: int, deadline_s: float) -> str:
    """Start a cluster and return its name once its scheduler runs."""
    gateway, options = await _connect(address)
    async with gateway:
        if "worker_cores" in options:
            _ask_for_threads(options, n_threads)
        name = str(await _submit(gateway, options))
        try:
            await asyncio.wait_for(_wait_until_running(gateway, name), deadline_s)
        except BaseException as error:
            await gateway.stop_cluster(name)
            if isinstance(error, TimeoutError):
                raise _refuse(address, f"it started no scheduler in {deadline_s:g} s") from error
            raise
    return name


async def _connect(address: str | None) -> tuple[Any, Any]:
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


def _ask_for_threads(options: Any, n_threads: int) -> None:
    try:
        options["worker_cores"] = n_threads
    except (TypeError, ValueError) as error:
        raise UserError(
            f"threads_per_worker: {n_threads}; allowed: what the gateway offers ({error})"
        ) from error


async def _submit(gateway: Any, options: Any) -> Any:
    """Submit a cluster; a gateway refuses for reasons of its own, such as a quota."""
    try:
        return await gateway.submit(options)
    except (OSError, ValueError, RuntimeError) as error:
        raise _refuse(gateway.address, f"it starts no cluster ({_first_line(error)})") from error


async def _wait_until_running(gateway: Any, name: str) -> None:
    while (status := (await gateway.get_cluster(name)).status.name) != "RUNNING":
        if status != "PENDING":
            raise _refuse(gateway.address, f"its cluster is {status.lower()} before it ran")
        await asyncio.sleep(0.2)


def scale_gateway_cluster(cluster: Any, n_workers: int) -> None:
    """Ask a gateway for workers.

    Raises
    ------
    UserError
        If the gateway grants fewer: it says so at once, in a warning.
    """
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
