"""Fixtures that several test modules use."""

from __future__ import annotations

import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import dask
import hdf5plugin  # noqa: F401  # before netCDF4, whose own HDF5 would keep filters out of h5py
import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

import studies
from tests import made
from wire.bed.testbed import Server, open_server
from wire.children import Child, start_child

# What passes depends on the commit alone, not on how busy the machine is;
# `--hypothesis-profile=default` looks for more.
settings.register_profile("of the commit", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("of the commit")

# Started first, so that no worker is left with one of them at the end.
LONGEST = ("test_notebooks.py", "test_site.py", "test_run.py", "test_build.py", "test_drivers.py", "test_recipes.py")  # fmt: skip
# What takes minutes to set up: a gateway, and a browser that opens every page.
SLOW = {"gateway", "tab"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option by which tests run again that were skipped for want of a tool."""
    parser.addoption(
        "--last-skipped", action="store_true", help="run the tests that the runs before skipped"
    )


SKIPPED = "arrays/skipped"


class SkippedTests:
    """The tests that were skipped when they ran last, kept in pytest's cache from run to run."""

    def __init__(self, cache: pytest.Cache) -> None:
        self.cache, self.names = cache, {*cache.get(SKIPPED, [])}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a test in that was skipped, and out if it ran."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self.names.add(report.nodeid)
        elif report.when == "call":
            self.names.discard(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the list for the next run."""
        self.cache.set(SKIPPED, sorted(self.names))


def pytest_configure(config: pytest.Config) -> None:
    """List what is skipped; of several processes that of the terminal alone does."""
    if config.pluginmanager.has_plugin("cacheprovider") and not hasattr(config, "workerinput"):
        assert config.cache is not None
        config.pluginmanager.register(SkippedTests(config.cache))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is slow by what it needs, and put what takes longest before all else.

    Files stay whole, in their own order.
    """
    for item in items:
        if SLOW & {*getattr(item, "fixturenames", ())}:
            item.add_marker("slow")
    if config.getoption("--last-skipped"):
        assert config.cache is not None
        names = {*config.cache.get(SKIPPED, [])}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in names])
        items[:] = [item for item in items if item.nodeid in names]
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(LONGEST)))


class NotebooksApart(LoadScopeScheduling):
    """Hand out files whole, as `--dist loadfile` does, but each notebook that is run by itself."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        return test.partition("[")[2] or file if file.endswith("test_notebooks.py") else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Spread the notebooks, which take longest, over all processes."""
    return NotebooksApart(config, log)


@pytest.fixture(autouse=True, scope="module")
def dask_default() -> Iterator[None]:
    """Restore Dask's scheduler: clients that overlap in time leave themselves as the default."""
    before = dask.config.get("scheduler", None)
    yield
    dask.config.set(scheduler=before)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve an empty folder over S3 for all tests: choose bucket names of your own."""
    with open_server(tmp_path_factory.mktemp("store") / "of tests") as running:
        yield running


@pytest.fixture
def made_study(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the study that is made for the tests be found among the others."""
    monkeypatch.setattr(studies, "__path__", [*studies.__path__, str(made.FOLDER)])


class Gateway(NamedTuple):
    """A Dask Gateway that runs for the tests."""

    url: str
    child: Child
    log: Path


_GATEWAY_CONFIG = """
from dask_gateway_server.options import Integer, Options, String

c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
c.DaskGateway.authenticator_class = "dask_gateway_server.auth.SimpleAuthenticator"
c.DaskGateway.address = "127.0.0.1:0"
c.Proxy.address = "127.0.0.1:{port}"
c.UnsafeLocalBackend.clusters_directory = {folder!r}
# a wish that comes while workers retire is heard at the next heartbeat
c.UnsafeLocalBackend.cluster_heartbeat_period = 1
# a busy machine is no reason to give up a cluster, which would end a read of the tests
c.UnsafeLocalBackend.cluster_heartbeat_timeout = 300
c.UnsafeLocalBackend.cluster_start_timeout = 300
c.UnsafeLocalBackend.worker_start_timeout = 300
c.UnsafeLocalBackend.worker_start_failure_limit = 100
c.ClusterConfig.scheduler_cmd = [{dask!r}, "scheduler"]
c.ClusterConfig.worker_cmd = [{dask!r}, "worker"]
c.ClusterConfig.cluster_max_workers = 2
c.Backend.cluster_options = Options(
    Integer("worker_cores", 1, min=1, max=4), String("worker_memory", "2 G")
)
"""


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Run one Dask Gateway for all tests that leave it as it is."""
    with running_gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@contextmanager
def running_gateway(folder: Path) -> Iterator[Gateway]:
    """Run a real Dask Gateway whose backend is this machine: at most 2 workers of 1 to 4 cores.

    Its server, proxy, schedulers and workers are children of the tests.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    programs = Path(sys.executable).parent
    config = folder / "config.py"
    config.write_text(
        _GATEWAY_CONFIG.format(port=port, folder=str(folder), dask=str(programs / "dask"))
    )
    url = f"http://127.0.0.1:{port}"
    argv = [programs / "dask-gateway-server", "-f", config]
    with start_child(argv, log=folder / "log") as child:
        child.wait_until(lambda: _answers(f"{url}/api/health"), timeout_s=60)
        yield Gateway(url, child, folder / "log")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False
