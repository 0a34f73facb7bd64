"""The tile service over a real store, and the load on it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import xxhash

from studies.caching_costs.caches import CACHES
from studies.caching_costs.datasets import Datasets
from studies.caching_costs.load import Generator, open_generator, summarise, tile_path
from studies.caching_costs.service import Service, open_service
from wire.bed.networks import get_profile
from wire.bed.proxy import Proxy, open_proxy
from wire.bed.testbed import Server

TILE = ("single-4mib", 1, 1, 0)
# requests to the store of a tile that is warm; None for as many as of a cold one
WARM = {"none": None, "as-shipped": 1, "lru": 1, "redis": 1, "lru-etag": 2, "redis-etag": 2}
WARM |= {"lru-chunks": 0, "lru-etag-chunks": 1, "diskcache": 1}
WARM |= dict.fromkeys(("filecache", "filecache-in-turn"), 6)
# as counted with fsspec 2026.9 and zarr 3.4, not derived: what is absent is asked for each time


@pytest.fixture(scope="module")
def proxy(server: Server) -> Iterator[Proxy]:
    """Stand between service and store, to count requests."""
    with open_proxy(server.endpoint_url, profile=get_profile("loopback")) as running:
        yield running


@pytest.fixture(scope="module")
def proxied(datasets: Datasets, proxy: Proxy) -> Datasets:
    """Datasets seen through the proxy."""
    return replace(datasets, location=datasets.location.through(proxy.endpoint_url))


@pytest.fixture(scope="module")
def uncached(proxied: Datasets) -> Iterator[Service]:
    """Run the service without a cache."""
    with open_service("none", proxied) as running:
        yield running


@pytest.fixture(scope="module")
def generator() -> Iterator[Generator]:
    """Run Locust for these tests."""
    with open_generator() as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("name", CACHES)
def test_tiles_with_each_cache(
    name: str, proxied: Datasets, redis_url: str, proxy: Proxy, uncached: Service
) -> None:
    """Cold and warm, each tile is byte for byte the uncached one, and a warm one costs fewer requests."""
    with open_service(name, proxied, redis_url=redis_url) as service:
        for spec in proxied.specs:
            path = tile_path((spec.name, 1, 1, 0))
            truth = uncached.ask(path)
            for _ in range(2):
                assert service.ask(path).data == truth.data or not spec.is_whole
                assert service.ask(path).status == (200 if spec.is_whole else 500)
        proxy.take_trace()
        service.ask(tile_path(TILE))
        warm = len(proxy.take_trace())
        assert warm == WARM[name] if WARM[name] is not None else warm > 3
        assert os.environ.get("ARRAYS_TILES") is None


def test_service_tells_what_it_did(uncached: Service, generator: Generator) -> None:
    """Parts of a request's time are told; processes name their versions."""
    answer = uncached.ask(tile_path(TILE))
    assert answer.data.startswith(b"\x89PNG")
    parts = dict(one.strip().split(";dur=") for one in answer.headers["server-timing"].split(","))
    spent = {name: float(value) for name, value in parts.items()}
    assert spent["open"] > 0 and spent["cpu"] > 0
    assert "titiler-xarray" in uncached.versions() and "locust" in generator.versions()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{tile_path(TILE)}&tilesize=512", 200),
        (tile_path(("/etc/passwd", 1, 1, 0)), 404),
        (tile_path(("broken", 1, 1, 0)), 500),
        (tile_path(TILE).replace("/tiles/", "/info/"), 404),
        ("/docs", 404),
    ],
)
def test_only_tiles_are_served(uncached: Service, path: str, status: int) -> None:
    """What no measurement requests is not there."""
    assert uncached.ask(path).status == status


def test_load_finds_what_the_service_did(
    generator: Generator, uncached: Service, datasets: Datasets
) -> None:
    """Every planned request is there once, with the failure that had to be, and the same bytes each time."""
    names = [spec.name for spec in datasets.specs]
    found = generator.run(uncached, [[(name, 1, 1, 0)] for name in names])
    requests = found.set_index("dataset")
    assert sorted(requests.index) == sorted(names)
    assert requests["status"].drop("broken").eq(200).all() and requests["status"]["broken"] == 500
    for path, checksum in zip(requests["path"], requests["checksum"], strict=True):
        assert "broken" in path or checksum == xxhash.xxh3_64_hexdigest(uncached.ask(path).data)


@pytest.mark.parametrize(("name", "is_shared"), [("lru", False), ("redis", True)])
def test_each_user_has_a_process(
    name: str,
    is_shared: bool,
    generator: Generator,
    proxied: Datasets,
    redis_url: str,
    proxy: Proxy,
) -> None:
    """Users go to processes of their own, which share what lies outside of them alone."""
    with open_service(name, proxied, redis_url=redis_url, n_processes=2) as service:
        assert len(set(service.addresses)) == 2
        n_requests = []
        for child in service.children:  # the second one finds what the first has left
            proxy.take_trace()
            generator.run(Service([child]), [[TILE]])
            n_requests.append(len(proxy.take_trace()))
        first, second = n_requests
        assert second < first if is_shared else second == first > WARM[name]
        both = generator.run(service, [[TILE], [TILE]])
        assert both["status"].eq(200).all() and both["checksum"].nunique() == 1
        assert len(proxy.take_trace()) == 2 * WARM[name]  # each process is warm, and was asked once


def test_numbers_of_a_load() -> None:
    """A typical tile is the geometric mean of what each dataset takes in the mean."""
    lines = [("a", 0.0, 1.0), ("a", 1.0, 3.0), ("b", 4.0, 8.0)]
    requests = pd.DataFrame(lines, columns=["dataset", "start_s", "latency_s"])
    requests = requests.assign(nbytes=10, open_s=0.1, cpu_s=0.2, status=200)
    found = summarise(requests, is_alone=True)
    assert found["typical_s"] == pytest.approx(4.0) and found["tiles_per_s"] == 3 / 12
    assert found["a|latency_s|1"] == 3.0 and found["b|open_s|2"] == 0.1


def test_arrivals(generator: Generator, uncached: Service) -> None:
    """Arrivals wait for no answer, so their times count from when they are due."""
    requests = generator.run(uncached, [[TILE]] * 6, due_s=[0.0] * 6)
    assert len(requests) == 6 and set(requests["status"]) == {200}
    assert requests["start_s"].nunique() == 1 and requests["latency_s"].nunique() == 6


_OWNER = """
import time
from contextlib import ExitStack
from studies.caching_costs.datasets import Datasets
from studies.caching_costs.load import open_generator
from studies.caching_costs.service import open_service
from studies.caching_costs.caches import open_valkey
from wire.bed.locations import Location
with ExitStack() as stack:
    stack.enter_context(open_valkey())
    stack.enter_context(open_generator())
    stack.enter_context(open_service("lru", Datasets(Location("s3", "none"), (), 0), n_processes=2)).addresses
    print("ready", flush=True)
    time.sleep(60)
"""


def test_a_killed_run_leaves_nothing(tmp_path: Path) -> None:
    """Neither a folder nor a log of any child is left once the owner is killed."""
    environment: dict[str, Any] = {**os.environ, "TMPDIR": str(tmp_path)}
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], env=environment, stdout=subprocess.PIPE)  # fmt: skip
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        owner.send_signal(signal.SIGKILL)
    until = time.monotonic() + 30
    while (left := [path.name for path in tmp_path.iterdir()]) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == []
