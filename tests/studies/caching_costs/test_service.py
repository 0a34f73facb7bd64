"""The tile service over a real store, and the load on it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import xxhash

from helpers.errors import UserError
from helpers.netem.profiles import get_profile
from helpers.netem.proxy import Proxy, open_proxy
from helpers.objectstore.testbed import Server
from studies.caching_costs.backends import Valkey, open_valkey
from studies.caching_costs.caches import CACHES, open_cache
from studies.caching_costs.datasets import VARIABLE, Datasets, Origin, version_keys
from studies.caching_costs.load import Generator, Load, list_requests, open_generator, summarise
from studies.caching_costs.origins import Counts
from studies.caching_costs.service import (
    Library,
    Service,
    listen,
    open_service,
    read_thread_clocks,
    tile_path,
)
from studies.caching_costs.workload import cold_plan, measure_crowd_costs, warm_plan
from tests.studies.caching_costs.tiles import NAMES, make_datasets

TILE = ("single-4mib", 1, 1, 0)
# requests of a tile that is warm; None for as many as of a cold one
FINER = {"none-v3": None, "cachestore-v3": 0, "lru-etag": 2, "redis-etag": 2, "lru-chunks": 0}
SERVED = tuple(name for name in CACHES if name not in FINER)  # a service takes seconds to start
WHOLE = tuple(name for name in NAMES if name != "broken")


@pytest.fixture(scope="module")
def proxy(server: Server) -> Iterator[Proxy]:
    """Stand between service and store, to count requests."""
    with open_proxy(server.endpoint_url, profile=get_profile("loopback")) as running:
        yield running


@pytest.fixture(scope="module")
def datasets(server: Server, proxy: Proxy) -> Datasets:
    """Datasets seen through the proxy."""
    made = make_datasets(server)
    return Datasets(made.location.through(proxy.endpoint_url), made.specs, made.stored_nbytes)


@pytest.fixture(scope="module")
def stack() -> Iterator[contextlib.ExitStack]:
    """Hold what runs until these tests end."""
    with contextlib.ExitStack() as held:
        yield held


@pytest.fixture(scope="module")
def valkey(stack: contextlib.ExitStack) -> Valkey:
    """Serve a Redis for these tests."""
    return stack.enter_context(open_valkey())


@pytest.fixture(scope="module")
def services(datasets: Datasets, valkey: Valkey, stack: contextlib.ExitStack) -> dict[str, Service]:
    """Run a service with each contender, started side by side."""
    told: dict[str, Any] = {"redis_url": valkey.url, "is_awaited": False}
    found = {name: stack.enter_context(open_service(name, datasets, **told)) for name in SERVED}
    for one in found.values():
        one.wait()
    return found


@pytest.fixture(params=SERVED)
def service(request: pytest.FixtureRequest, services: dict[str, Service]) -> Service:
    """Give the service with each contender."""
    return services[request.param]


@pytest.fixture(scope="module")
def uncached(services: dict[str, Service]) -> Service:
    """Give the service without a cache."""
    return services["none"]


@pytest.fixture(scope="module")
def truth(uncached: Service) -> Callable[[str], bytes]:
    """Make a tile without a cache, each once for all tests."""

    @functools.cache
    def make(path: str) -> bytes:
        answer = uncached.ask(path)
        assert answer.status == 200
        return answer.content

    return make


@pytest.fixture(scope="module")
def generator() -> Iterator[Generator]:
    """Run Locust for these tests."""
    with open_generator() as running:
        yield running


def test_processes_tell_what_they_imported(generator: Generator, uncached: Service) -> None:
    """What measures in a process of its own is named by it."""
    assert {"titiler-core", "titiler-xarray", "diskcache", "redis"} <= {*uncached.versions()}
    assert {"locust", "gevent"} <= {*generator.versions()}


def test_tiles_are_those_without_a_cache(service: Service, truth: Callable[[str], bytes]) -> None:
    """Cold and warm, each tile is byte for byte the uncached one, a real image."""
    service.clear()
    for tile in [*(t for part in cold_plan(WHOLE, n_users=1) for t in part)] * 2:
        answer = service.ask(tile_path(tile))
        assert answer.status == 200
        assert answer.content == truth(tile_path(tile))
        assert answer.content.startswith(b"\x89PNG")
    assert service.counts().errors == service.counts().corrupt == 0


def test_broken_dataset_fails_and_nothing_else_does(service: Service) -> None:
    """A truncated file is an error of the server, every time, and the service goes on."""
    for _ in range(2):
        assert service.ask(tile_path(("broken", 1, 1, 0))).status == 500
    assert service.ask(tile_path(TILE)).status == 200


def test_unknown_dataset_is_not_found(uncached: Service) -> None:
    """No name leads out of the datasets, such as to a file of this machine."""
    for name in ("nothing", "/etc/passwd", "s3://maps/other"):
        assert uncached.ask(tile_path((name, 0, 0, 0))).status == 404


def test_baseline_opens_each_time(uncached: Service, proxy: Proxy) -> None:
    """Without a cache the second tile costs as many requests as the first; titiler keeps none."""
    counted = []
    for _ in range(3):
        proxy.take_trace()
        uncached.ask(tile_path(TILE))
        counted.append(len(proxy.take_trace()))
    assert counted[1] == counted[2] > 2


def test_cache_saves_requests_to_the_store(service: Service, proxy: Proxy) -> None:
    """Warm, a dataset that is kept costs its chunk alone, and a file that is kept nothing."""
    kept, is_told = service.cache.removesuffix("-v3"), service.cache.endswith("-v3")
    allowed = {
        "none": range(2 if is_told else 4, 99),
        "filecache": range(1),
    }
    service.ask(tile_path(TILE))
    proxy.take_trace()
    service.ask(tile_path(TILE))
    trace = proxy.take_trace()
    found = [request for request in trace if request.status == 200 and TILE[0] in request.key]
    assert len(found) in allowed.get(kept, range(1, 2))
    absent = [request for request in trace if request.status == 404]
    # metadata of the older format, for which xarray asks when it opens and is not told the format
    assert bool(absent) == (kept in ("none", "filecache") and not is_told)
    if is_told and kept == "filecache":
        assert trace == []


def test_finer_caches_save_requests(
    datasets: Datasets, proxy: Proxy, valkey: Valkey, tmp_path: Path
) -> None:
    """Kept objects cost no request, and a version costs one."""
    origin = Origin(datasets.location, version_keys=version_keys(datasets.specs))
    for name, expected in FINER.items():
        told: dict[str, Any] = {"key": b"k" * 16, "folder": tmp_path / name}
        told["redis_url"] = valkey.url
        library = Library(datasets.specs, open_cache(name, origin, **told))
        counted = []
        for _ in range(2):
            proxy.take_trace()
            library.open(TILE[0])[VARIABLE].isel(time=0).load()
            trace = proxy.take_trace()
            counted.append(len(trace))
            if name.endswith("-v3"):  # it asks for nothing of the older format
                assert {request.status for request in trace} <= {200, 206}, name
        cold, warm = counted
        assert warm == (cold if expected is None else expected) and cold > 2, name


def test_time_of_opening_is_told(uncached: Service) -> None:
    """What a request spent on opening and on reprojection is part of its time, and processor time is told."""
    spent = dict(part.split(";dur=") for part in uncached.ask(tile_path(TILE)).timing.split(", "))
    assert 0 < float(spent["open"]) < float(spent["total"])
    assert 0 < float(spent["warp"]) < float(spent["total"]) - float(spent["open"])
    assert float(spent["cpu"]) > 0
    # the client of the store has threads of its own, as far as the system tells them apart
    outside = float(spent["outside"])
    assert 0 <= outside < float(spent["cpu"]) and (outside > 0) == (sys.platform == "linux")


@pytest.mark.skipif(sys.platform != "linux", reason="a thread's clock is made as Linux does")
def test_threads_have_clocks() -> None:
    """The clock of a thread is at least what the thread itself has counted, and one that ended has none."""
    counted, told, done = list[float](), threading.Event(), threading.Event()

    def count() -> None:
        while time.thread_time() < 0.01:
            pass
        counted.append(time.thread_time())
        told.set()
        done.wait()

    thread = threading.Thread(target=count)
    thread.start()
    told.wait()
    assert read_thread_clocks()[thread.native_id or 0] >= counted[0]
    done.set()
    thread.join()
    assert thread.native_id not in read_thread_clocks()


def assert_right(load: Load, truth: Callable[[str], bytes]) -> None:
    """Compare the checksum of each tile with that of the uncached one."""
    assert (load.requests["status"] == 200).all()
    for path, found in checksums(load).items():
        assert found == xxhash.xxh3_64_hexdigest(truth(path))


def run_load(generator: Generator, service: Service, n_requests: int) -> Load:
    plans = warm_plan(WHOLE, n_requests=n_requests, n_users=3, exponent=1.0, seed=5)
    return generator.run(service, plans)


def checksums(load: Load) -> dict[str, str]:
    """Return the checksum of each tile, which never changes."""
    table = load.requests.groupby("path")["checksum"].agg(set)
    assert all(len(found) == 1 for found in table)
    return {str(path): next(iter(found)) for path, found in table.items()}


def whole_in_order(load: Load) -> list[str]:
    return [name for name in load.requests["dataset"] if name != "broken"]


def test_load_finds_what_the_service_did(generator: Generator, uncached: Service) -> None:
    """Every planned request is there once, with the failures that had to be."""
    uncached.clear()
    plans = cold_plan(NAMES, n_users=2)
    load = generator.run(uncached, plans)
    assert sorted(load.requests["dataset"]) == sorted(NAMES)
    assert load.n_failures == 1
    found = summarise(load, must_fail=["broken"])
    assert (found["n_failures"], found["n_expected_failures"]) == (0, 1)
    assert summarise(load)["n_failures"] == 1
    assert uncached.counts().misses == len(NAMES)
    assert found["p00_s"] <= found["p50_s"] <= found["p95_s"] <= found["p99_s"] <= found["p100_s"]
    each = list_requests(load, ["latency_s"], must_fail=["broken"])
    assert len(each) == len(NAMES) - 1
    assert each.keys() == {f"{name}|latency_s|{i}" for i, name in enumerate(whole_in_order(load))}
    told = load.requests.dropna()
    assert len(told) == len(NAMES) - 1
    assert (told["open_s"] <= told["latency_s"]).all()


def test_loads_are_the_same_from_the_same_seed(generator: Generator, uncached: Service) -> None:
    """Two loads ask for the same tiles and get the same bytes."""
    first, second = (run_load(generator, uncached, 8) for _ in range(2))
    assert sorted(first.requests["path"]) == sorted(second.requests["path"])
    assert checksums(first) == checksums(second)


def test_arrivals_wait_for_nobody(generator: Generator, uncached: Service) -> None:
    """All are due at once, so all times count from then, and the last answer took longest."""
    load = generator.run(uncached, [[TILE]] * 6, due_s=[0.0] * 6)
    assert len(load.requests) == 6 and load.n_failures == 0
    assert load.requests["start_s"].nunique() == 1
    assert load.requests["latency_s"].nunique() == 6


def test_users_go_on_until_the_load_ends(generator: Generator, uncached: Service) -> None:
    """Who has asked for all tiles begins again, at the next of several services too."""
    load = generator.run(uncached, [[TILE]] * 2, seconds=2.0, others=[uncached])
    assert len(load.requests) > 2
    assert set(load.requests["status"]) == {200}


def test_service_shares_a_redis_outlives_it_and_leaves_nothing(
    generator: Generator,
    services: dict[str, Service],
    datasets: Datasets,
    valkey: Valkey,
    stack: contextlib.ExitStack,
    truth: Callable[[str], bytes],
) -> None:
    """One finds what another kept; a Redis that dies and comes back empty costs no tile; arguments name no key."""
    services["redis"].clear()
    services["redis"].ask(tile_path(TILE))
    with open_service("redis", datasets, **services["redis"].told) as service:
        assert service.ask(tile_path(TILE)).status == 200
        assert service.counts() == Counts(hits=1)
        process = psutil.Process(service.child.pid)
        shown = " ".join(process.cmdline())
        secrets = (*datasets.location.secrets, valkey.password, service.token)
        assert not any(secret in shown for secret in secrets)
        run_load(generator, service, 10)
        killer = threading.Timer(0.3, os.kill, (valkey.child.pid, signal.SIGKILL))
        killer.start()
        during = run_load(generator, service, 60)
        killer.join()
        valkey.child.wait(timeout_s=60)
        service.ask(tile_path(TILE))  # however quick the load was
        lost = service.counts()
        stack.enter_context(open_valkey(port=valkey.port, password=valkey.password))
        while service.counts().hits == lost.hits:  # it is not asked again at once
            time.sleep(0.2)
            service.ask(tile_path(TILE))
        run_load(generator, service, 10)
        before = service.counts()
        after = run_load(generator, service, 10)
        found = service.counts()
    assert_right(during, truth)
    assert_right(after, truth)
    assert lost.errors > 0
    assert found.errors == before.errors
    assert found.hits - before.hits == 10
    deadline = time.monotonic() + 60
    while process.is_running() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not process.is_running()
    assert not service.folder.exists()


def test_services_share_a_disk(services: dict[str, Service], datasets: Datasets) -> None:
    """One finds what another kept on the disk of both, under the same key, and leaves it there."""
    first = services["diskcache"]
    first.clear()
    first.ask(tile_path(TILE))
    told = {**first.told, "shared_folder": first.folder}
    with open_service("diskcache", datasets, **told) as other:
        assert other.ask(tile_path(TILE)).content == first.ask(tile_path(TILE)).content
        assert other.counts() == Counts(hits=1)
    assert first.ask(tile_path(TILE)).status == 200  # the folder is not the other's to remove


@pytest.mark.parametrize("name", ["lru", "redis", "diskcache", "filecache", "filecache-v3"])
def test_full_disk_costs_no_tile(
    name: str,
    services: dict[str, Service],
    generator: Generator,
    truth: Callable[[str], bytes],
) -> None:
    """No file of the service can grow any more: tiles are right, and failures are counted."""
    service = services[name]
    service.clear()
    process = psutil.Process(service.child.pid)
    limits = process.rlimit(resource.RLIMIT_FSIZE)
    process.rlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        load = run_load(generator, service, 12)
    finally:
        process.rlimit(resource.RLIMIT_FSIZE, limits)
    assert_right(load, truth)
    assert (service.counts().errors > 0) == (name not in ("lru", "redis"))


@pytest.mark.parametrize(
    ("plans", "settings"),
    [
        ([], {}),  # nobody
        ([[TILE]], {"spawn_rate": 0}),  # never begins
        ([[TILE]], {"think_s": -1}),
    ],
)
def test_load_without_sense_is_refused(
    plans: list[list[tuple[str, int, int, int]]],
    settings: dict[str, float],
    generator: Generator,
    uncached: Service,
) -> None:
    """One line says so, and the generator goes on."""
    with pytest.raises(UserError, match="allowed"):
        generator.run(uncached, plans, **settings)
    assert len(generator.run(uncached, [[TILE]]).requests) == 1


def test_each_service_is_asked_where_it_listens(services: dict[str, Service]) -> None:
    """No port is guessed, so that nobody who takes one first is measured instead."""
    for service in services.values():
        connections = psutil.Process(service.child.pid).net_connections()
        ports = [one.laddr.port for one in connections if one.status == "LISTEN"]
        assert [service.address] == [f"127.0.0.1:{port}" for port in ports]


def test_only_who_started_it_empties_the_cache(service: Service) -> None:
    """Any program of the machine can send requests; none of them throws a measurement away."""
    service.clear()
    service.ask(tile_path(TILE))
    before = service.counts()
    connection = http.client.HTTPConnection(service.address, timeout=30)
    with contextlib.closing(connection):
        for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer \u00e9"}):
            connection.request("DELETE", "/cache", headers=headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 403
    assert service.counts() == before != Counts()
    service.clear()
    assert service.counts() == Counts()


@pytest.mark.parametrize(
    "more",
    [
        "tilesize=100000",  # of which one tile would take 74 GiB
        "tilesize=256&tilesize=100000",  # the last one counts, whatever is before it
        "tilesize=100_000",  # as Python writes it
    ],
)
def test_large_tiles_are_refused(uncached: Service, more: str) -> None:
    """A request cannot take the memory of the machine; it is refused before a dataset is opened."""
    before = uncached.counts()
    answer = uncached.ask(f"{tile_path(TILE)}&{more}")
    assert answer.status == 422
    assert b"less than or equal to" in answer.content
    assert uncached.counts() == before


@pytest.mark.parametrize(
    "path", ["/bbox/-180,-90,180,90/90000x90000.png", "/info", "/openapi.json", "/docs", "/tiles"]
)
def test_nothing_but_tiles_is_served(uncached: Service, path: str) -> None:
    """What no measurement asks for is not there."""
    query = tile_path(TILE).partition("?")[2]
    assert uncached.ask(f"{path}?{query}").status == 404


def test_usual_sizes_are_served(uncached: Service) -> None:
    """Tiles of twice the side, as screens of high resolution ask for."""
    assert uncached.ask(f"{tile_path(TILE)}&tilesize=512").content.startswith(b"\x89PNG")


def test_small_packets_are_sent_at_once() -> None:
    """Head and body of an answer do not wait for one another: 40 ms of each tile were that."""

    async def accept() -> int:
        seen: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted = writer.get_extra_info("socket")
            seen.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with listen() as listening:
            async with await asyncio.start_server(greet, sock=listening):
                _, writer = await asyncio.open_connection(*listening.getsockname())
                found = await seen
                writer.close()
                return found

    assert asyncio.run(accept()) != 0


def test_tiles_of_one_interpreter_cost_one_another(datasets: Datasets) -> None:
    """Made by threads at once they cost no less; the process may use all its processors again after."""
    allowed = os.sched_getaffinity(0) if sys.platform == "linux" else None
    on_one, on_all = measure_crowd_costs(datasets, [TILE, ("netcdf", 1, 0, 0)])
    assert 1 <= on_one < 10 and 1 <= on_all < 10
    assert allowed is None or os.sched_getaffinity(0) == allowed
    assert allowed is None or os.sched_getaffinity(threading.get_native_id()) == allowed
