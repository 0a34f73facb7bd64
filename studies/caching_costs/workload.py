"""What is requested, what has to come back, and each cache under each load as a contender."""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import xxhash
from starlette.testclient import TestClient

from helpers.arrays.reads import count_requests
from helpers.benchmark.contender import CheckError, Steps
from helpers.benchmark.provenance import name_worker_versions
from studies.caching_costs.caches import CacheSettings, DatasetCache, dump, open_valkey
from studies.caching_costs.datasets import Datasets, DatasetSpec, Origin
from studies.caching_costs.load import Generator, Tile, open_generator, summarise, tile_path
from studies.caching_costs.service import Service, make_app, open_service
from wire.bed.networks import Profile
from wire.bed.testbed import Testbed

_LEAST_TILES, _LEAST_S = 3, 2.0  # of a user, and of arrivals


@dataclass(frozen=True, slots=True)
class Point:
    """One load."""

    n_users: int  # users at once, each waiting for an answer; 0 for arrivals
    rate_per_s: float  # arrivals, whether answered or not; 0 for users

    def plan(self, tiles: Sequence[Tile]) -> list[list[Tile]]:
        """Deal all tiles to users, or one to each arrival, again from the first if there are too few.

        Examples
        --------
        >>> [len(plan) for plan in Point(4, 0.0).plan([("a", 1, 0, 0)] * 8)]
        [3, 3, 3, 3]
        >>> len(Point(0, 6.0).plan([("a", 1, 0, 0)] * 8))
        12
        """
        least = max(_LEAST_TILES * self.n_users, _LEAST_S * self.rate_per_s)
        n_tiles = max(len(tiles), math.ceil(least))
        chosen = [*itertools.islice(itertools.cycle(tiles), n_tiles)]
        n_plans = self.n_users or n_tiles
        return [chosen[k::n_plans] for k in range(n_plans)]

    def due_s(self, seed: int, n: int) -> list[float]:
        """Draw when arrivals are due: n at random, in the time that they take at the rate."""
        if not self.rate_per_s:
            return []
        drawn = np.random.default_rng([seed, n]).uniform(0, n / self.rate_per_s, n)
        return sorted(drawn.tolist())


@dataclass(frozen=True, slots=True)
class Workload:
    """What is requested, and what has to come back."""

    datasets: Datasets  # seen over the emulated network
    tiles: list[Tile]  # of a load, as many of each dataset that can be read
    checksums: Mapping[str, str]  # XXH3 of each tile made without a cache, by its path
    seed: int  # of arrivals
    may_fail: bool = False  # whether a tile may fail, which is counted

    def check(self, requests: pd.DataFrame) -> int:
        """Compare each tile with the one made without a cache, and count them; one that fails is none."""
        expected = requests["path"].map(self.checksums)
        is_good = (requests["checksum"] == expected) & (requests["status"] == 200)
        is_good |= (expected.isna() | self.may_fail) & (requests["status"] == 500)
        if wrong := sorted(set(requests.loc[~is_good, "dataset"])):
            raise CheckError(f"tiles of {', '.join(wrong)} differ from uncached ones")
        return len(requests)


def in_turn(workload: Workload) -> Workload:
    """Deal tiles dataset by dataset, and ask for what must fail as often as for others."""
    names = [spec.name for spec in workload.datasets.specs]
    tiles = sorted(workload.tiles, key=lambda tile: names.index(tile[0]))
    broken = [spec.name for spec in workload.datasets.specs if not spec.is_whole]
    first = [tile for tile in tiles if tile[0] == tiles[0][0]]
    return replace(workload, tiles=tiles + [(name, *tile[1:]) for name in broken for tile in first])


def plan_workload(datasets: Datasets, *, n_tiles: int, seed: int) -> Workload:
    """Choose `n_tiles` of each dataset, the same for all, and make each without cache and network.

    They are drawn from the twenty of zooms 1 and 2.
    """
    places = [(z, x, y) for z in (1, 2) for x in range(2**z) for y in range(2**z)]
    chosen = np.random.default_rng(seed).permutation(len(places))[:n_tiles]
    whole = [spec.name for spec in datasets.specs if spec.is_whole]
    tiles: list[Tile] = [(name, *places[k]) for k in chosen for name in whole]
    paths = [*map(tile_path, tiles)]
    digests = map(
        xxhash.xxh3_64_hexdigest, make_tiles(datasets.specs, Origin(datasets.location), paths)
    )
    return Workload(datasets, tiles, dict(zip(paths, digests, strict=True)), seed)


def make_tiles(specs: Sequence[DatasetSpec], origin: Origin, paths: Sequence[str]) -> list[bytes]:
    """Make tiles without a cache, by the application of the services in this process."""
    client = TestClient(make_app(specs, DatasetCache(origin, CacheSettings(b""))))
    with warnings.catch_warnings(action="ignore"):  # of libraries, which would show on the page
        return [client.get(path).content for path in paths]


def measure_entries(datasets: Datasets) -> pd.Series[int]:
    """Count the bytes of each opened dataset as a cache outside the process keeps it.

    Those that cannot be opened are left out. The store is read without the network.
    """
    origin = Origin(datasets.location)
    whole = [spec for spec in datasets.specs if spec.is_whole]
    return pd.Series({spec.name: len(dump(origin.open(spec))) for spec in whole})


_TILE_NBYTES = 256 * 256 * 8  # of values that are made into one tile


@dataclass(slots=True)
class CacheLoad(Steps):
    """A service with one contender at one load; its cache is warm, and stays so from load to load."""

    service: Service
    testbed: Testbed  # the network between service and store
    generator: Generator
    workload: Workload
    place: Point

    @property
    def plan(self) -> list[list[Tile]]:
        """Tiles of each user, or of each arrival."""
        return self.place.plan(self.workload.tiles)

    @property
    def due_s(self) -> list[float]:
        """When each arrival is due; none where users wait for answers."""
        return self.place.due_s(self.workload.seed, len(self.plan))

    @property
    def point(self) -> dict[str, Any]:
        """Place on the x-axes."""
        return asdict(self.place)

    def settings(self) -> dict[str, Any]:
        """Tell what a comparison has to hold equal, or declare."""
        return {
            "codec": "blosc-lz4",
            "concurrency": self.place.n_users or math.ceil(self.place.rate_per_s),
            "cache_state": "every tile requested once before the first clock, warm store",
        }

    def nbytes(self) -> tuple[int, int]:
        """Count the values behind the tiles, and the bytes of the datasets in the store."""
        n_tiles = sum(map(len, self.plan))
        return n_tiles * _TILE_NBYTES, self.workload.datasets.stored_nbytes

    def prepare(self) -> None:
        """Warm the cache by every tile, and a dataset that must fail, once; empty the trace."""
        if not self.service.is_warm:
            specs = self.workload.datasets.specs
            broken: list[Tile] = [(spec.name, 1, 1, 0) for spec in specs if not spec.is_whole]
            first = [*broken, *self.workload.tiles]
            for (
                child
            ) in self.service.children:  # in turn, as a cache that they share is filled once
                process = Service([child])
                self.workload.check(self.generator.run(process, [first]))
            self.service.is_warm = True
        self.testbed.take_trace()
        self.testbed.set_tag("read")

    def open(self) -> CacheLoad:
        """Open nothing: requests of users do."""
        return self

    def check(self, requests: pd.DataFrame, /) -> str:
        """Compare each tile with the one made without a cache."""
        return f"xxh3 of {self.workload.check(requests)} tiles"

    def collect(self) -> dict[str, float]:
        """Count what users and store saw."""
        last = self.generator.last
        assert last is not None
        is_whole = last["path"].isin(self.workload.checksums)
        return {
            "n_requests": 0,  # of a cache that keeps everything
            **count_requests(self.testbed.take_trace(), self.place.n_users),
            "peak_nbytes": self.service.peak_nbytes,
            "n_failed": float((is_whole & (last["status"] != 200)).sum()),
            **summarise(last, is_alone=self.place.n_users == 1),
        }

    def versions(self) -> dict[str, str]:
        """Look up what the service and the load generator have imported."""
        return {
            **name_worker_versions("load generator", [self.generator.versions()]),
            **name_worker_versions("tile service", [self.service.versions()]),
        }


@contextlib.contextmanager
def open_loads(
    caches: Sequence[str],
    workload: Workload,
    testbed: Testbed,
    settings: Mapping[str, Any],
) -> Iterator[list[tuple[str, CacheLoad]]]:
    """Run a service for each contender, and make it a contender at each load.

    The first load is one user. The control, a second service of the first cache, meets that and
    the load of most users. Of the `settings` of a case, `users` and `rates` are the other loads,
    with an empty `redis_url` a Redis of our own runs next to them, and with `process_per_user` a
    service has as many processes as there are users at most.
    """
    users, rates = settings["users"], settings["rates"]
    redis_url, ttl_s = settings["redis_url"], settings["ttl_s"]
    n_processes = max(users, default=1) if settings["process_per_user"] else 1
    location = workload.datasets.location.through(testbed.far.endpoint_url)
    planned = replace(workload, datasets=replace(workload.datasets, location=location))
    with contextlib.ExitStack() as stack:
        if any(name.startswith("redis") for name in caches) and not redis_url:
            redis_url = stack.enter_context(open_valkey())
        generator = stack.enter_context(open_generator())
        services = {
            name: stack.enter_context(
                open_service(
                    cache,
                    planned.datasets,
                    redis_url=redis_url,
                    ttl_s=ttl_s,
                    n_processes=n_processes,
                )
            )
            for name, cache in zip((*caches, "control"), (*caches, caches[0]), strict=True)
        }
        for service in services.values():  # which start side by side
            service.versions()
        points = [Point(n, 0.0) for n in (1, *users)] + [Point(0, rate) for rate in rates]
        controlled = {Point(n, 0.0) for n in (1, max(users, default=1))}

        def may_fail(name: str) -> Workload:
            return replace(planned, may_fail=name.startswith("filecache"))

        yield [
            (name, CacheLoad(service, testbed, generator, may_fail(name), place))
            for place in points
            for name, service in services.items()
            if name != "control" or place in controlled
        ]


def predict_tiles(workload: Workload, testbed: Testbed, network: Profile) -> pd.DataFrame:
    """Predict what a tile without a cache takes on a network, from the requests that it makes.

    Requests of an opening wait for one another; those for the chunks of a tile are made at once.
    Processors take no time here.

    Returns
    -------
    DataFrame
        By dataset: ``open_gets``, ``predicted_open_s``, ``predicted_make_s`` and
        ``predicted_bound``, how many times as fast a cache of datasets is at most.
    """
    location = workload.datasets.location.through(testbed.far.endpoint_url)
    origin = Origin(location)
    first_s = network.first_byte_s.median_s if network.first_byte_s else 0.0
    stream = 1e6 * (network.stream_mb_per_s or math.inf)
    all_streams = 1e6 * (network.worker_mb_per_s or math.inf)
    specs, lines = workload.datasets.specs, {}
    for spec in (spec for spec in specs if spec.is_whole):
        testbed.take_trace()
        origin.open(spec)
        opening = [response.nbytes for response in testbed.take_trace()]
        tile = next(tile for tile in workload.tiles if tile[0] == spec.name)
        make_tiles(specs, origin, [tile_path(tile)])
        chunks = [response.nbytes for response in testbed.take_trace()][len(opening) :] or [0]
        open_s = len(opening) * first_s + sum(opening) / stream
        make_s = first_s + max(max(chunks) / stream, sum(chunks) / all_streams)
        lines[spec.name] = (len(opening), open_s, make_s, (open_s + make_s) / (make_s or math.inf))
    names = ["open_gets", "predicted_open_s", "predicted_make_s", "predicted_bound"]
    return pd.DataFrame.from_dict(lines, orient="index", columns=names)
