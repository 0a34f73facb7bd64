"""A cache under load as a contender: its opening is the cold phase, its read the warm one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from helpers.measurement.looks import check_looks
from helpers.measurement.measure import CheckError, Contender
from helpers.measurement.provenance import name_beside
from helpers.storage.caches import open_valkey
from helpers.storage.reads import count_requests
from helpers.storage.wires import Wire
from helpers.studies.caching_costs.workload import Workload
from helpers.tiles.load import Generator, Load, list_requests, open_generator, summarise
from helpers.tiles.service import Service, Tile, open_service

_TILE_NBYTES = 256 * 256 * 8  # of values that are made into one tile


class CacheLoad:
    """A service with one contender, and the load on it.

    Parameters
    ----------
    service : Service
        Who is asked.
    wire : Wire
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
        wire: Wire,
        generator: Generator,
        *,
        workload: Workload,
        is_alone: bool = False,
    ) -> None:
        self.service, self.wire, self.generator = service, wire, generator
        self.workload, self.is_alone = workload, is_alone
        self.cold: Load | None = None
        self.warm: Load | None = None
        self.counts: dict[str, float] = {}

    def alone(self) -> CacheLoad:
        """Return the same service, asked by one user, one request after the other."""
        return CacheLoad(
            self.service, self.wire, self.generator, workload=self.workload, is_alone=True
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
        self.wire.take_trace()
        self.wire.set_tag("open")

    def open(self) -> CacheLoad:
        """Ask for one tile of each map while the cache is empty."""
        self.cold = self._run(self.workload.cold)
        self.counts = asdict(self.service.counts())
        self.wire.set_tag("read")
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
        traced = count_requests(self.wire.take_trace(), len(self.plan))
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
    caches: Sequence[str], workload: Workload, wire: Wire, *, redis_url: str = ""
) -> Iterator[dict[str, CacheLoad]]:
    """Run a service for each contender and one for the control, and the load generator.

    Parameters
    ----------
    caches : sequence of str
        Contenders; the first is run twice.
    workload : Workload
        What is asked for; its maps are seen without the network.
    wire : Wire
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
    far = replace(workload.maps, location=workload.maps.location.through(wire.far.endpoint_url))
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
            name: CacheLoad(service, wire, generator, workload=planned)
            for name, service in services.items()
        }
        yield loads
