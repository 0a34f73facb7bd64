"""What is asked for, what has to come back, and each cache under load as a contender."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import morecantile
import numpy as np
import xarray as xr
import xxhash
from starlette.testclient import TestClient

from helpers.arrays.reads import count_requests
from helpers.benchmark import memory
from helpers.benchmark.contender import CheckError, Steps
from helpers.benchmark.provenance import name_beside
from helpers.errors import UserError
from helpers.objectstore.locations import Location
from helpers.objectstore.testbed import Testbed
from studies.caching_costs import backends
from studies.caching_costs.backends import open_valkey
from studies.caching_costs.caches import Cache, LruCache
from studies.caching_costs.datasets import Datasets, DatasetSpec, Origin, open_dataset
from studies.caching_costs.load import Generator, Load, list_requests, open_generator, summarise
from studies.caching_costs.service import (
    Library,
    Service,
    Tile,
    make_app,
    open_service,
    tile_path,
)


def zipf_weights(n: int, *, exponent: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Compute the popularity of n things by rank.

    Examples
    --------
    >>> (11 * zipf_weights(3, exponent=1)).round(6).tolist()
    [6.0, 3.0, 2.0]
    """
    if n < 1 or not 0 <= exponent < np.inf:
        raise UserError(
            f"zipf_exponent: {exponent!r} of {n} things; allowed: at least 0, of at least one"
        )
    weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum())


def cold_plan(names: Sequence[str], *, n_users: int) -> list[list[Tile]]:
    """Plan one tile of each dataset, so that each is opened once.

    Examples
    --------
    >>> [len(part) for part in cold_plan(["a", "b", "c"], n_users=2)]
    [2, 1]
    """
    tiles: list[Tile] = [(name, 1, 1, 0) for name in names]
    return _deal(tiles, n_users)


def warm_plan(
    names: Sequence[str], *, n_requests: int, n_users: int, exponent: float, seed: int
) -> list[list[Tile]]:
    """Plan requests by popularity, of datasets and of their tiles.

    Tiles are the twenty of zooms 1 and 2. Which dataset and tile is how popular is
    drawn too, so that popularity does not follow size.
    """
    if n_requests < 1 or n_users < 1:
        raise UserError(
            f"n_requests: {n_requests}, n_users: {n_users}; allowed: at least 1 of each"
        )
    rng = np.random.default_rng(seed)
    places = [(z, x, y) for z in (1, 2) for x in range(2**z) for y in range(2**z)]
    ranks = rng.permutation(len(names))
    order = rng.permutation(len(places))
    which = rng.choice(ranks, n_requests, p=zipf_weights(len(ranks), exponent=exponent))
    where = rng.choice(order, n_requests, p=zipf_weights(len(order), exponent=exponent))
    tiles = [(names[i], *places[k]) for i, k in zip(which, where, strict=True)]
    return _deal(tiles, n_users)


def _deal(tiles: Sequence[Tile], n_users: int) -> list[list[Tile]]:
    parts = [list(tiles[i::n_users]) for i in range(n_users)]
    return [part for part in parts if part]


FIRST = " (first)"
"""What marks the dataset of a tile that needs a chunk which no tile needed before."""


@cache
def find_chunks(spec: DatasetSpec, tile: Tile) -> frozenset[tuple[int, int]]:
    """Find the chunks below a tile, by row and column of the chunk grid.

    Examples
    --------
    The tile of the north-east, of four chunks:

    >>> sorted(find_chunks(DatasetSpec("a", "zarr", (8, 16), (4, 8)), ("a", 1, 1, 0)))
    [(1, 1)]
    """
    box = morecantile.tms.get("WebMercatorQuad").bounds(morecantile.Tile(*tile[2:], tile[1]))
    (n_lat, n_lon), (lat, lon) = spec.shape, spec.chunk_shape
    rows = ((box.bottom + 90) / 180 * n_lat / lat, (box.top + 90) / 180 * n_lat / lat)
    columns = ((box.left + 180) / 360 * n_lon / lon, (box.right + 180) / 360 * n_lon / lon)
    # a tile that ends where a chunk begins does not need it
    down, along = (range(int(a + 1e-6), math.ceil(b - 1e-6)) for a, b in (rows, columns))
    return frozenset(itertools.product(down, along))


_N_PLACES = 3  # of each dataset that one user asks for alone


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked for, and what has to come back."""

    datasets: Datasets  # seen over the emulated network
    # tiles of each user: one of each dataset, all at once; by popularity; and a few of each
    # dataset for one user
    cold: list[list[Tile]]
    warm: list[list[Tile]]
    alone: list[list[Tile]]
    checksums: Mapping[str, str]  # XXH3 of each tile made without a cache, by its path
    spawn_rate: float  # users that begin in a second
    think_s: float  # between an answer and the next request of a user

    @property
    def must_fail(self) -> list[str]:
        """Datasets that cannot be read."""
        return [spec.name for spec in self.datasets.specs if not spec.is_whole]

    def mark_first(self, plan: Sequence[Sequence[Tile]]) -> list[list[Tile]]:
        """Mark tiles of Zarr that need a chunk which neither the cold phase nor a tile before needed.

        Users ask in turns. Other formats keep nothing by chunks, or keep it whole.
        """
        specs = {spec.name: spec for spec in self.datasets.specs if spec.kind == "zarr"}
        seen: dict[str, set[tuple[int, int]]] = {name: set() for name in specs}
        marked: list[list[Tile]] = [[] for _ in plan]
        turns: list[list[tuple[int, Tile]]] = [[(-1, tile) for user in self.cold for tile in user]]
        turns += [[*enumerate(turn)] for turn in itertools.zip_longest(*plan)]
        for user, tile in itertools.chain(*turns):
            if tile is None:  # this user has asked for all
                continue
            name, zoom, column, row = tile
            chunks = find_chunks(specs[name], tile) if name in specs else frozenset()
            is_first = not chunks <= seen.setdefault(name, set())
            seen[name] |= chunks
            if user >= 0:
                marked[user].append((name + FIRST * is_first, zoom, column, row))
        return marked

    def names(self) -> list[str]:
        """List the dataset of each request of the warm phase."""
        return [tile[0] for user in self.warm for tile in user]


def plan_workload(
    datasets: Datasets,
    *,
    n_requests: int,
    n_users: int,
    zipf_exponent: float,
    seed: int,
    spawn_rate: float,
    think_s: float,
) -> Workload:
    """Plan all requests, and make each tile once without a cache and without the network.

    `n_requests` and `n_users` are of the warm phase; `spawn_rate` is users that begin in a
    second, `think_s` the seconds between an answer and the next request. All that is drawn follows
    from `seed`.
    """
    names = [spec.name for spec in datasets.specs]
    whole = [spec.name for spec in datasets.specs if spec.is_whole]
    warm = warm_plan(
        names, n_requests=n_requests, n_users=n_users, exponent=zipf_exponent, seed=seed
    )
    popular = [tile for part in warm for tile in part]
    places = list(dict.fromkeys((z, x, y) for _, z, x, y in popular))[:_N_PLACES]
    alone: list[list[Tile]] = [[(name, *place) for place in places for name in whole]]
    cold = cold_plan(names, n_users=len(names))
    tiles = {tile for plan in (cold, warm, alone) for part in plan for tile in part}
    checksums = _make_tiles(datasets, sorted(tiles))
    return Workload(datasets, cold, warm, alone, checksums, spawn_rate, think_s)


def _make_tiles(datasets: Datasets, tiles: Sequence[Tile]) -> dict[str, str]:
    """Make tiles without a cache, by the application of the services in this process."""
    library = Library(datasets.specs, Cache(Origin(datasets.location)))
    client = TestClient(make_app(library, ""), raise_server_exceptions=False)
    with warnings.catch_warnings(action="ignore"):  # of libraries, which would show on the page
        made = {path: client.get(path).content for path in map(tile_path, tiles)}
    return {path: xxhash.xxh3_64_hexdigest(content) for path, content in made.items()}


def measure_entries(datasets: Datasets) -> dict[str, int]:
    """Count the bytes of each opened dataset as a cache outside the process keeps it.

    Those that cannot be opened are left out. The store is read without the network.
    """
    origin = Origin(datasets.location)
    whole = [spec for spec in datasets.specs if spec.is_whole]
    return {spec.name: len(backends.dump(open_dataset(spec, origin))) for spec in whole}


def measure_hit_ratio(
    n_datasets: int, n_entries: int, *, exponent: float, n_lookups: int, seed: int
) -> float:
    """Ask the real cache in the process for datasets by popularity, and count.

    No tile is made and nothing is read: the datasets are empty, so that enough
    look-ups are affordable to tell a percentage point.
    """
    cache = LruCache(Origin(Location("s3", "nothing-is-read")), n_entries)
    weights = zipf_weights(n_datasets, exponent=exponent)
    names = np.random.default_rng(seed).choice(n_datasets, n_lookups + n_lookups // 10, p=weights)
    empty, asked = xr.Dataset(), list(map(str, names))
    for name in asked[: n_lookups // 10]:
        cache.get(name, lambda _: empty)
    before = cache.counts().hits
    for name in asked[n_lookups // 10 :]:
        cache.get(name, lambda _: empty)
    return (cache.counts().hits - before) / n_lookups


_COUNT = """
import sys, time
until, n = float(sys.argv[1]), 0
time.sleep(until - float(sys.argv[2]) - time.time())
while time.time() < until:
    n += len(sorted(range(2000, 0, -1))) + len({str(i) for i in range(500)})
print(n)
"""
_START_S, _COUNT_S = 0.3, 0.3  # that an interpreter has to start in, and that it counts


def measure_speed_of_all() -> float:
    """Measure how fast a processor computes while all do, over one that computes alone.

    Processors share a core, caches, power and a host with one another. As many interpreters as
    there are processors count, then one that does alone. One ratio scatters by a tenth and more: each
    row of requests alone has its own, and their median counts.
    """

    def count(n_busy: int) -> float:
        until = str(time.time() + _START_S + _COUNT_S)
        command = [sys.executable, "-S", "-c", _COUNT, until, str(_COUNT_S)]
        started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(n_busy)]
        return float(np.mean([float(one.communicate()[0]) for one in started]))

    n_all = os.cpu_count() or 1
    return min(1.0, count(n_all) / count(1)) if n_all > 1 else 1.0


_CROWD, _N_CROWDED = 8, 12  # threads that make tiles, and how many tiles at a time
_N_CROWDS = 5  # repetitions, of which the median counts


def measure_crowd_costs(datasets: Datasets, tiles: Sequence[Tile]) -> tuple[float, float]:
    """Measure what making tiles at once in one interpreter costs of processors, over one by one.

    Threads take the interpreter's lock from one another in mid-work, and wait for it on processors
    of their own. The store is read without the network. Both are medians, and at least 1.

    Returns
    -------
    tuple of float
        On one processor, and on all; alike where a process cannot be kept to one.
    """
    library = Library(datasets.specs, Cache(Origin(datasets.location)))
    app, mine = make_app(library, ""), threading.local()

    def make(path: str) -> None:
        if not hasattr(mine, "client"):
            mine.client = TestClient(app, raise_server_exceptions=False)
        mine.client.get(path)

    def spend(n_threads: int, paths: Sequence[str]) -> float:
        with ThreadPoolExecutor(n_threads) as pool:
            before = time.process_time()
            list(pool.map(make, paths))
            return time.process_time() - before

    places = itertools.cycle(map(tile_path, tiles))
    paths = [*itertools.islice(places, _N_CROWDED)]
    on_one, on_all = [], []
    with warnings.catch_warnings(action="ignore"):
        spend(1, paths[: len(datasets.specs)])  # what the first of each has to import
        for _ in range(_N_CROWDS):
            alone_s = spend(1, paths)
            on_all.append(spend(_CROWD, paths) / alone_s)
            with _keep_to_one_processor() as is_kept:
                on_one.append(spend(_CROWD, paths) / alone_s if is_kept else on_all[-1])
    return max(1.0, float(np.median(on_one))), max(1.0, float(np.median(on_all)))


@contextlib.contextmanager
def _keep_to_one_processor() -> Iterator[bool]:
    """Keep all threads of this process to one processor; say whether the system can."""
    if sys.platform != "linux":
        yield False
        return
    allowed = os.sched_getaffinity(0)
    _keep_to({min(allowed)})
    try:
        yield True
    finally:
        _keep_to(allowed)


def _keep_to(processors: set[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread), processors)


_TILE_NBYTES = 256 * 256 * 8  # of values that are made into one tile


@dataclass(slots=True)
class CacheLoad(Steps):
    """A service with one contender, and the load on it."""

    service: Service
    testbed: Testbed  # the network between service and store
    generator: Generator
    workload: Workload
    is_alone: bool = False  # whether one user asks, one request after the other
    cold: Load | None = None
    last: Load | None = None
    counts: Mapping[str, int] = field(default_factory=dict)  # of the cache, after the cold phase
    # what `simulate_users` asks for beside the requests that are alone
    machine: Mapping[str, float] = field(default_factory=dict)

    palette: ClassVar = "cache"

    def alone(self) -> CacheLoad:
        """Return the same service, asked by one user, one request after the other."""
        return replace(self, is_alone=True, cold=None, last=None, counts={})

    @property
    def plan(self) -> list[list[Tile]]:
        """Tiles of each user in the warm phase."""
        return self.workload.alone if self.is_alone else self.workload.warm

    @property
    def point(self) -> dict[str, int]:
        """Place on the x-axis."""
        return {"n_users": len(self.plan)}

    def settings(self) -> dict[str, Any]:
        """Tell what a comparison has to hold equal, or declare."""
        return {
            "codec": "blosc-lz4",
            "concurrency": len(self.plan),
            "cache_state": "one request of each map before the clock of reading, warm store",
        }

    def nbytes(self) -> tuple[int, int]:
        """Count the values behind the tiles, and the bytes of the datasets in the store."""
        n_tiles = sum(map(len, self.plan))
        return n_tiles * _TILE_NBYTES, sum(self.workload.datasets.stored_nbytes.values())

    def prepare(self) -> None:
        """Empty the cache and the trace; before requests alone, look how fast the processors are."""
        if self.is_alone:
            self.machine = {**self.machine, "speed_of_all": measure_speed_of_all()}
        self.service.clear()
        self.testbed.take_trace()
        self.testbed.set_tag("open")

    def open(self) -> CacheLoad:
        """Ask for one tile of each dataset while the cache is empty."""
        self.cold = self.ask(self.workload.cold)
        self.counts = asdict(self.service.counts())
        self.testbed.set_tag("read")
        return self

    def ask(self, plan: Sequence[Sequence[Tile]]) -> Load:
        """Let a user for each part of a plan ask for its tiles."""
        think_s = 0.0 if self.is_alone else self.workload.think_s
        self.last = self.generator.run(
            self.service, plan, spawn_rate=self.workload.spawn_rate, think_s=think_s
        )
        return self.last

    def check(self, load: Load, /) -> str:
        """Compare each tile, cold and warm, with the one made without a cache."""
        n_tiles = 0
        for part in (self.cold, load):
            if part is None:
                raise CheckError("no cold phase")
            good = part.requests[~part.requests["dataset"].isin(self.workload.must_fail)]
            expected = good["path"].map(self.workload.checksums)
            if wrong := sorted(set(good.loc[good["checksum"] != expected, "dataset"])):
                raise CheckError(f"tiles of {', '.join(wrong)} differ from uncached ones")
            n_tiles += len(good)
        return f"xxh3 of {n_tiles} tiles"

    def collect(self) -> dict[str, float]:
        """Count what users, cache and store saw."""
        if self.last is None or self.cold is None or self.last is self.cold:
            raise CheckError("nothing was asked")
        must_fail = self.workload.must_fail
        after = asdict(self.service.counts())
        trace = self.testbed.take_trace()
        lists = [one for one in trace if one.tag == "read" and "/" not in one.key.strip("/")]
        cold = summarise(self.cold, must_fail=must_fail)
        spent = ("open_s", "warp_s", "cpu_s", "outside_s") if self.is_alone else ()
        return {
            **list_requests(self.last, ("latency_s", *spent), must_fail=must_fail),
            **count_requests(trace, len(self.plan)),
            "peak_nbytes": memory.peak_nbytes(self.service.child.pid),
            "n_lists": len(lists),  # requests for no object are for a list of them
            **self._collect_machine(),
            **summarise(self.last, must_fail=must_fail),
            **{name: after[name] - self.counts[name] for name in after},
            **{f"cold {name}": float(value) for name, value in self.counts.items()},
            **{f"cold {name}": cold[name] for name in ("n_failures", "p50_s", "p95_s")},
        }

    def _collect_machine(self) -> dict[str, float]:
        """Tell what requests that are alone took of the machine's processors beside the service's."""
        if not self.is_alone or self.last is None:
            return {}
        requests = self.last.requests
        elsewhere_s = max(0.0, self.last.busy_s - requests["cpu_s"].sum()) / len(requests)
        return {"elsewhere_s": elsewhere_s, **self.machine}

    def versions(self) -> dict[str, str]:
        """Ask the service and the load generator what they have imported."""
        return {
            **name_beside("load generator", [self.generator.versions()]),
            **name_beside("tile service", [self.service.versions()]),
        }


@contextlib.contextmanager
def open_loads(
    caches: Sequence[str],
    workload: Workload,
    testbed: Testbed,
    *,
    redis_url: str = "",
    ttl_s: float = 86400,
) -> Iterator[dict[str, CacheLoad]]:
    """Run a service for each contender and one for the control, and the load generator.

    The first cache is run twice. Without `redis_url` a Redis of our own runs beside them.

    Yields
    ------
    dict of str to CacheLoad
        By contender, and ``"control"``.
    """
    location = workload.datasets.location.through(testbed.far.endpoint_url)
    planned = replace(workload, datasets=replace(workload.datasets, location=location))
    # before anything else runs
    on_one, on_all = measure_crowd_costs(workload.datasets, workload.alone[0])
    machine = {"crowd_cost_on_one": on_one, "crowd_cost": on_all}
    with contextlib.ExitStack() as stack:
        if {"redis", "redis-etag"} & {*caches} and not redis_url:
            redis_url = stack.enter_context(open_valkey()).url
        told: dict[str, Any] = {"redis_url": redis_url, "ttl_s": ttl_s}
        generator = stack.enter_context(open_generator())
        started = {
            name: open_service(cache, planned.datasets, is_awaited=False, **told)
            for name, cache in zip((*caches, "control"), (*caches, caches[0]), strict=True)
        }
        services = {name: stack.enter_context(one) for name, one in started.items()}
        for service in services.values():  # they start side by side
            service.wait()
        yield {
            name: CacheLoad(service, testbed, generator, planned, machine=machine)
            for name, service in services.items()
        }
