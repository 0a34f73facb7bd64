"""What is requested, what has to come back, and each cache under load as a contender."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import xxhash
from starlette.testclient import TestClient

from helpers.arrays.reads import count_requests
from helpers.benchmark.contender import CheckError, Steps
from helpers.benchmark.provenance import name_beside
from helpers.objectstore.processes import peak_nbytes
from helpers.objectstore.testbed import Testbed
from studies.caching_costs.caches import Cache, dump
from studies.caching_costs.datasets import Datasets, Origin, open_dataset
from studies.caching_costs.load import Generator, Load, list_requests, open_generator, summarise
from studies.caching_costs.service import Library, Service, Tile, make_app, open_service, tile_path
from studies.caching_costs.valkey import open_valkey


def zipf_weights(n: int, *, exponent: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Compute the popularity of n things by rank.

    Examples
    --------
    >>> (11 * zipf_weights(3, exponent=1)).round(6).tolist()
    [6.0, 3.0, 2.0]
    """
    weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum())


def warm_plan(
    names: Sequence[str], *, n_requests: int, n_users: int, exponent: float, seed: int
) -> list[list[Tile]]:
    """Plan requests by popularity, of datasets and of their tiles, dealt to users.

    Tiles are the twenty of zooms 1 and 2. Which dataset and tile is how popular is
    drawn too, so that popularity does not follow size.
    """
    rng = np.random.default_rng(seed)
    places = [(z, x, y) for z in (1, 2) for x in range(2**z) for y in range(2**z)]
    ranks = rng.permutation(len(names))
    order = rng.permutation(len(places))
    which = rng.choice(ranks, n_requests, p=zipf_weights(len(ranks), exponent=exponent))
    where = rng.choice(order, n_requests, p=zipf_weights(len(order), exponent=exponent))
    tiles = [(names[i], *places[k]) for i, k in zip(which, where, strict=True)]
    return [tiles[i::n_users] for i in range(min(n_users, n_requests))]


_N_PLACES = 3  # of each dataset that one user requests alone


@dataclass(frozen=True, slots=True)
class Workload:
    """What is requested, and what has to come back."""

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

    def names(self) -> list[str]:
        """List the dataset of each request of the warm phase."""
        return [tile[0] for user in self.warm for tile in user]

    def check(self, load: Load) -> int:
        """Compare each tile of a load with the one made without a cache, and count them."""
        good = load.requests[~load.requests["dataset"].isin(self.must_fail)]
        expected = good["path"].map(self.checksums)
        if wrong := sorted(set(good.loc[good["checksum"] != expected, "dataset"])):
            raise CheckError(f"tiles of {', '.join(wrong)} differ from uncached ones")
        return len(good)


def plan_workload(
    datasets: Datasets, *, zipf_exponent: float, spawn_rate: float, think_s: float, **shape: int
) -> Workload:
    """Plan all requests, and make each tile once without a cache and without the network.

    `spawn_rate` is users that begin in a second, `think_s` the seconds between an answer and the
    next request; `n_requests`, `n_users` and `seed` are those of `warm_plan`.
    """
    names = [spec.name for spec in datasets.specs]
    whole = [spec.name for spec in datasets.specs if spec.is_whole]
    warm = warm_plan(names, exponent=zipf_exponent, **shape)
    places = list(dict.fromkeys(tile[1:] for part in warm for tile in part))[:_N_PLACES]
    alone: list[list[Tile]] = [[(name, *place) for place in places for name in whole]]
    cold: list[list[Tile]] = [[(name, 1, 1, 0)] for name in names]
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


def measure_entries(datasets: Datasets) -> pd.Series[int]:
    """Count the bytes of each opened dataset as a cache outside the process keeps it.

    Those that cannot be opened are left out. The store is read without the network.
    """
    origin = Origin(datasets.location)
    whole = [spec for spec in datasets.specs if spec.is_whole]
    return pd.Series({spec.name: len(dump(open_dataset(spec, origin))) for spec in whole})


_TILE_NBYTES = 256 * 256 * 8  # of values that are made into one tile


@dataclass(slots=True)
class CacheLoad(Steps):
    """A service with one contender, and the load on it."""

    service: Service
    testbed: Testbed  # the network between service and store
    generator: Generator
    workload: Workload
    is_alone: bool = False  # whether one user sends one request after the other
    cold: Load | None = None
    last: Load | None = None
    counts: Mapping[str, int] = field(default_factory=dict)  # of the cache, after the cold phase

    palette: ClassVar = "cache"

    def alone(self) -> CacheLoad:
        """Return the same service with one user, who sends one request after the other."""
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
        """Empty the cache and the trace."""
        self.service.clear()
        self.testbed.take_trace()
        self.testbed.set_tag("open")

    def open(self) -> CacheLoad:
        """Request one tile of each dataset while the cache is empty."""
        self.cold = self.ask(self.workload.cold)
        self.counts = asdict(self.service.counts())
        self.testbed.set_tag("read")
        return self

    def ask(self, plan: Sequence[Sequence[Tile]]) -> Load:
        """Let a user for each part of a plan request its tiles."""
        think_s = 0.0 if self.is_alone else self.workload.think_s
        self.last = self.generator.run(
            self.service, plan, spawn_rate=self.workload.spawn_rate, think_s=think_s
        )
        return self.last

    def check(self, load: Load, /) -> str:
        """Compare each tile, cold and warm, with the one made without a cache."""
        assert self.cold is not None
        n_tiles = self.workload.check(self.cold) + self.workload.check(load)
        return f"xxh3 of {n_tiles} tiles"

    def collect(self) -> dict[str, float]:
        """Count what users, cache and store saw."""
        assert self.cold is not None
        assert self.last is not None
        must_fail = self.workload.must_fail
        after = asdict(self.service.counts())
        cold = summarise(self.cold, must_fail=must_fail)
        spent = ("open_s", "warp_s", "cpu_s") if self.is_alone else ()
        return {
            **list_requests(self.last, ("latency_s", *spent), must_fail=must_fail),
            **count_requests(self.testbed.take_trace(), len(self.plan)),
            "peak_nbytes": peak_nbytes(self.service.child.pid),
            **summarise(self.last, must_fail=must_fail),
            **{name: after[name] - self.counts[name] for name in after},
            **{f"cold {name}": float(value) for name, value in self.counts.items()},
            **{f"cold {name}": cold[name] for name in ("n_failures", "p50_s", "p95_s")},
        }

    def versions(self) -> dict[str, str]:
        """Look up what the service and the load generator have imported."""
        return {
            **name_beside("load generator", [self.generator.versions()]),
            **name_beside("tile service", [self.service.versions()]),
        }


@contextlib.contextmanager
def open_loads(
    caches: Sequence[str], workload: Workload, testbed: Testbed, *, redis_url: str, ttl_s: float
) -> Iterator[dict[str, CacheLoad]]:
    """Run a service for each contender and, as control, a second one without a cache; and the load.

    With an empty `redis_url` a Redis of our own runs next to them.
    """
    location = workload.datasets.location.through(testbed.far.endpoint_url)
    planned = replace(workload, datasets=replace(workload.datasets, location=location))
    with contextlib.ExitStack() as stack:
        if {"redis", "redis-etag"} & {*caches} and not redis_url:
            redis_url = stack.enter_context(open_valkey()).url
        told: dict[str, Any] = {"redis_url": redis_url, "ttl_s": ttl_s}
        generator = stack.enter_context(open_generator())
        started = {
            name: open_service(cache, planned.datasets, is_awaited=False, **told)
            for name, cache in zip((*caches, "control"), (*caches, "none"), strict=True)
        }
        services = {name: stack.enter_context(one) for name, one in started.items()}
        for service in services.values():  # they start side by side
            service.wait()
        yield {
            name: CacheLoad(service, testbed, generator, planned)
            for name, service in services.items()
        }
