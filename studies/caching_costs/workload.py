"""What is asked for, what has to come back, and each cache under load as a contender."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
import xxhash

from helpers.arrays.reads import count_requests
from helpers.benchmark.contender import CheckError, Contender
from helpers.benchmark.provenance import name_beside
from helpers.errors import UserError
from helpers.objectstore.locations import Location
from helpers.objectstore.testbed import Testbed
from helpers.plotting.palette import check_looks
from studies.caching_costs.backends import difference
from studies.caching_costs.caches import LruCache
from studies.caching_costs.datasets import Datasets
from studies.caching_costs.load import Generator, Load, list_requests, open_generator, summarise
from studies.caching_costs.origins import Origin
from studies.caching_costs.service import Service, Tile, open_service, open_valkey, tile_path


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
    """Plan one tile of each map, so that each is opened once.

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
    """Plan requests by popularity, of maps and of their tiles.

    Tiles are the twenty of zooms 1 and 2. Which map and tile is how popular is
    drawn too, so that popularity does not follow size.
    """
    if n_requests < 1 or n_users < 1:
        raise UserError(
            f"n_requests: {n_requests}, n_users: {n_users}; allowed: at least 1 of each"
        )
    rng = np.random.default_rng(seed)
    places = [(z, x, y) for z in (1, 2) for x in range(2**z) for y in range(2**z)]
    maps = rng.permutation(len(names))
    order = rng.permutation(len(places))
    which = rng.choice(maps, n_requests, p=zipf_weights(len(maps), exponent=exponent))
    where = rng.choice(order, n_requests, p=zipf_weights(len(order), exponent=exponent))
    tiles = [(names[i], *places[k]) for i, k in zip(which, where, strict=True)]
    return _deal(tiles, n_users)


def _deal(tiles: Sequence[Tile], n_users: int) -> list[list[Tile]]:
    parts = [list(tiles[i::n_users]) for i in range(n_users)]
    return [part for part in parts if part]


_N_PLACES = 3  # of each map that one user asks for alone


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked for, and what has to come back."""

    maps: Datasets  # maps, seen over the emulated network
    # tiles of each user: one of each map, all at once; by popularity; and a few of each map for
    # one user
    cold: list[list[Tile]]
    warm: list[list[Tile]]
    alone: list[list[Tile]]
    checksums: Mapping[str, str]  # XXH3 of each tile made without a cache, by its path
    spawn_rate: float  # users that begin in a second; seconds between the requests of a user
    think_s: float

    @property
    def must_fail(self) -> list[str]:
        """Maps that cannot be read."""
        return [spec.name for spec in self.maps.specs if not spec.is_whole]


def plan_workload(
    maps: Datasets,
    *,
    n_requests: int,
    n_users: int,
    zipf_exponent: float,
    seed: int,
    spawn_rate: float,
    think_s: float,
) -> Workload:
    """Plan all requests, and make each tile once without a cache and without the network.

    Parameters
    ----------
    maps : Maps
        Maps, seen without the network.
    n_requests, n_users : int
        Of the warm phase.
    zipf_exponent : float
        Of popularity.
    seed : int
        Of all that is drawn.
    spawn_rate, think_s : float
        See `Workload`.

    Returns
    -------
    Workload
        With the checksums that every cache has to give.
    """
    names = [spec.name for spec in maps.specs]
    whole = [spec.name for spec in maps.specs if spec.is_whole]
    warm = warm_plan(
        names, n_requests=n_requests, n_users=n_users, exponent=zipf_exponent, seed=seed
    )
    popular = [tile for part in warm for tile in part]
    places = list(dict.fromkeys((z, x, y) for _, z, x, y in popular))[:_N_PLACES]
    alone: list[list[Tile]] = [[(name, *place) for place in places for name in whole]]
    cold = cold_plan(names, n_users=len(names))
    tiles = {tile for plan in (cold, warm, alone) for part in plan for tile in part}
    return Workload(maps, cold, warm, alone, _make_tiles(maps, sorted(tiles)), spawn_rate, think_s)


def _make_tiles(maps: Datasets, tiles: Sequence[Tile]) -> dict[str, str]:
    with open_service("none", maps) as service:
        answers = {tile_path(tile): service.ask(tile_path(tile)) for tile in tiles}
    return {path: xxhash.xxh3_64_hexdigest(a.content) for path, a in answers.items()}


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
    for name in names[: n_lookups // 10]:
        cache.get(str(name), lambda _: xr.Dataset())
    before = cache.counts()
    for name in names[n_lookups // 10 :]:
        cache.get(str(name), lambda _: xr.Dataset())
    return difference(cache.counts(), before).hit_ratio


_TILE_NBYTES = 256 * 256 * 8  # of values that are made into one tile


class CacheLoad:
    """A service with one contender, and the load on it.

    Parameters
    ----------
    service : Service
        Who is asked.
    testbed : Wire
        The network between service and store.
    generator : Generator
        Who asks.
    workload : Workload
        What is asked for.
    is_alone : bool
        Whether one user asks, one request after the other.
    """

    def __init__(
        self,
        service: Service,
        testbed: Testbed,
        generator: Generator,
        *,
        workload: Workload,
        is_alone: bool = False,
    ) -> None:
        self.service, self.testbed, self.generator = service, testbed, generator
        self.workload, self.is_alone = workload, is_alone
        self.cold: Load | None = None
        self.warm: Load | None = None
        self.counts: dict[str, float] = {}

    def alone(self) -> CacheLoad:
        """Return the same service, asked by one user, one request after the other."""
        return CacheLoad(
            self.service, self.testbed, self.generator, workload=self.workload, is_alone=True
        )

    @property
    def plan(self) -> list[list[Tile]]:
        """Tiles of each user in the warm phase."""
        return self.workload.alone if self.is_alone else self.workload.warm

    def settings(self) -> dict[str, Any]:
        """Tell what a comparison has to hold equal, or declare."""
        return {
            "codec": "blosc-lz4",
            "concurrency": len(self.plan),
            "cache_state": "one request of each map before the clock of reading, warm store",
        }

    def prepare(self) -> None:
        """Empty the cache and the trace."""
        self.service.clear()
        self.testbed.take_trace()
        self.testbed.set_tag("open")

    def open(self) -> CacheLoad:
        """Ask for one tile of each map while the cache is empty."""
        self.cold = self._run(self.workload.cold)
        self.counts = asdict(self.service.counts())
        self.testbed.set_tag("read")
        return self

    def read(self) -> Load:
        """Ask for tiles by popularity."""
        self.warm = self._run(self.plan)
        return self.warm

    def _run(self, plan: list[list[Tile]]) -> Load:
        think_s = 0.0 if self.is_alone else self.workload.think_s
        return self.generator.run(
            self.service, plan, spawn_rate=self.workload.spawn_rate, think_s=think_s
        )

    def check(self, load: Load) -> str:
        """Compare each tile, cold and warm, with the one made without a cache."""
        n_tiles = 0
        for part in (self.cold, load):
            if part is None:
                raise CheckError("no cold phase")
            good = part.requests[~part.requests["map"].isin(self.workload.must_fail)]
            expected = good["path"].map(self.workload.checksums)
            if wrong := sorted(set(good.loc[good["checksum"] != expected, "map"])):
                raise CheckError(f"tiles of {', '.join(wrong)} differ from uncached ones")
            n_tiles += len(good)
        return f"xxh3 of {n_tiles} tiles"

    def collect(self) -> dict[str, float]:
        """Count what users, cache and store saw."""
        if self.warm is None or self.cold is None:
            raise CheckError("nothing was asked")
        must_fail = self.workload.must_fail
        after = asdict(self.service.counts())
        traced = count_requests(self.testbed.take_trace(), len(self.plan))
        cold = summarise(self.cold, must_fail=must_fail)
        columns = ("latency_s", "open_s", "cpu_s") if self.is_alone else ("latency_s",)
        return {
            **list_requests(self.warm, columns, must_fail=must_fail),
            **traced,
            **summarise(self.warm, must_fail=must_fail),
            **{name: after[name] - self.counts[name] for name in after},
            **{f"cold {name}": float(value) for name, value in self.counts.items()},
            **{f"cold {name}": cold[name] for name in ("n_failures", "p50_s", "p95_s")},
        }

    def versions(self) -> dict[str, str]:
        """Ask the service and the load generator what they have imported."""
        return {
            **name_beside("load generator", [self.generator.versions()]),
            **name_beside("tile service", [self.service.versions()]),
        }

    def contender(self, name: str, **more: Any) -> Contender:
        """Make a contender of this load."""
        stored = self.workload.maps.stored_nbytes
        n_tiles = sum(map(len, self.plan))
        return Contender(
            name=name,
            point={"n_users": len(self.plan)},
            settings=self.settings(),
            open=self.open,
            read=lambda load: load.read(),
            check=self.check,
            prepare=self.prepare,
            collect=self.collect,
            versions=self.versions,
            array_nbytes=n_tiles * _TILE_NBYTES,
            stored_nbytes=sum(stored.values()),
            **more,
        )


@contextlib.contextmanager
def open_loads(
    caches: Sequence[str], workload: Workload, testbed: Testbed, *, redis_url: str = ""
) -> Iterator[dict[str, CacheLoad]]:
    """Run a service for each contender and one for the control, and the load generator.

    Parameters
    ----------
    caches : sequence of str
        Contenders; the first is run twice.
    workload : Workload
        What is asked for; its maps are seen without the network.
    testbed : Wire
        The network.
    redis_url : str
        Address of a Redis; empty for one of our own.

    Yields
    ------
    dict of str to CacheLoad
        By contender, and ``"control"``.

    Raises
    ------
    UserError
        If a contender has no colour.
    """
    check_looks(caches, "cache")
    far = replace(workload.maps, location=workload.maps.location.through(testbed.far.endpoint_url))
    planned = replace(workload, maps=far)
    with contextlib.ExitStack() as stack:
        if "redis" in caches and not redis_url:
            redis_url = stack.enter_context(open_valkey()).url
        generator = stack.enter_context(open_generator())
        services = {
            name: stack.enter_context(
                open_service(cache, far, redis_url=redis_url, is_awaited=False)
            )
            for name, cache in {**{cache: cache for cache in caches}, "control": caches[0]}.items()
        }
        for service in services.values():  # they start side by side
            service.wait()
        loads = {
            name: CacheLoad(service, testbed, generator, workload=planned)
            for name, service in services.items()
        }
        yield loads
