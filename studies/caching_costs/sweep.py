"""A contender under every load: users that wait for answers, arrivals that do not, and services side by side."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from studies.caching_costs.load import Load, summarise
from studies.caching_costs.service import Service, Tile, open_service
from studies.caching_costs.workload import CacheLoad


@dataclass(frozen=True, slots=True)
class Point:
    """One load."""

    n_users: int  # users at once, each waiting for an answer; 0 for arrivals
    rate_per_s: float  # arrivals, whether answered or not; 0 for users
    n_workers: int  # services that share the load

    def due_s(self, seconds: float, seed: int) -> list[float]:
        """Draw when arrivals are due: as many as the rate has in that time, at random."""
        n = math.ceil(self.rate_per_s * seconds)
        return sorted(np.random.default_rng([seed, n]).uniform(0, seconds, n).tolist())

    def plan(self, tiles: Sequence[Tile], seconds: float) -> list[list[Tile]]:
        """Deal tiles to users, who begin at different ones, or one to each arrival."""
        if self.rate_per_s:
            n = math.ceil(self.rate_per_s * seconds)
            return [[tile] for tile in itertools.islice(itertools.cycle(tiles), n)]
        shifts = [len(tiles) * user // self.n_users for user in range(self.n_users)]
        return [[*tiles[shift:], *tiles[:shift]] for shift in shifts]


def list_points(
    users: Sequence[int], rates_per_s: Sequence[float], workers: Sequence[int]
) -> list[Point]:
    """List the loads of a sweep: users and rates on one service, the most users on several.

    Examples
    --------
    >>> [one.n_workers for one in list_points([1, 8], [5.0], [1, 2])]
    [1, 1, 1, 2]
    """
    alone = [Point(n, 0.0, 1) for n in users] + [Point(0, rate, 1) for rate in rates_per_s]
    several = [Point(max(users), 0.0, n) for n in workers if n > 1] if users else []
    return alone + several


@dataclass(slots=True)
class SweepLoad(CacheLoad):
    """A service with one contender, or several, at one load; the cache stays warm from load to load."""

    others: Sequence[Service] = ()  # further services with the same contender
    place: Point = Point(1, 0.0, 1)
    seconds: float = 1.0  # that the load lasts
    seed: int = 0
    warmed: set[int] = field(default_factory=set)  # processes of services whose caches are warm

    @property
    def plan(self) -> list[list[Tile]]:
        """Tiles of each user or arrival, by popularity, without those that must fail."""
        return self.place.plan(self._without_failing(self.workload.warm), self.seconds)

    def _without_failing(self, plan: Sequence[Sequence[Tile]]) -> list[Tile]:
        must_fail = self.workload.must_fail
        return [tile for user in plan for tile in user if tile[0] not in must_fail]

    @property
    def point(self) -> dict[str, Any]:
        """Place on the x-axes."""
        return asdict(self.place)

    def settings(self) -> dict[str, Any]:
        """Tell what a comparison has to hold equal, or declare."""
        state = "one request of each dataset before, warm from load to load"
        at_once = self.place.n_users or math.ceil(self.place.rate_per_s)
        return {**CacheLoad.settings(self), "concurrency": at_once, "cache_state": state}

    def prepare(self) -> None:
        """Empty the trace, not the cache."""
        self.testbed.take_trace()
        self.testbed.set_tag("open")

    def open(self) -> SweepLoad:
        """Request a tile of each dataset of each service that has had no request yet."""
        for service in (self.service, *self.others):
            if service.child.pid not in self.warmed:
                self.generator.run(service, [self._without_failing(self.workload.cold)])
                self.warmed.add(service.child.pid)
        self.testbed.set_tag("read")
        return self

    def ask(self, plan: Sequence[Sequence[Tile]]) -> Load:
        """Let users request tiles as long as the load lasts, or everybody who is due arrive."""
        is_open = self.place.rate_per_s > 0
        self.last = self.generator.run(
            self.service,
            plan,
            spawn_rate=100.0,
            think_s=0.0 if is_open else self.workload.think_s,
            others=self.others,
            seconds=0.0 if is_open else self.seconds,
            due_s=self.place.due_s(self.seconds, self.seed) if is_open else (),
        )
        return self.last

    def check(self, load: Load, /) -> str:
        """Compare each tile with the one made without a cache."""
        return f"xxh3 of {self.workload.check(load)} tiles"

    def collect(self) -> dict[str, float]:
        """Count what users saw."""
        assert self.last is not None
        self.testbed.take_trace()
        requests = self.last.requests
        ends_s = requests["start_s"] + requests["latency_s"]
        numbers = summarise(self.last)
        numbers["tiles_per_s"] = len(requests) / float(ends_s.max() - requests["start_s"].min())
        return {name: value for name, value in numbers.items() if "|" not in name}


@contextlib.contextmanager
def open_sweep(
    loads: Mapping[str, CacheLoad], points: Sequence[Point], *, seconds: float, seed: int
) -> Iterator[list[tuple[str, SweepLoad]]]:
    """Make a contender of each cache at each load; further services share the first's Redis and key."""
    n_others = max((one.n_workers for one in points), default=1) - 1
    with contextlib.ExitStack() as stack:
        others: dict[str, list[Service]] = {name: [] for name in loads}
        for name, load in [*loads.items()] * n_others:
            more = open_service(name, load.workload.datasets, is_awaited=False, **load.service.told)
            others[name].append(stack.enter_context(more))
        for service in itertools.chain(*others.values()):
            service.wait()
        how: dict[str, Any] = {"seconds": seconds, "seed": seed, "warmed": set[int]()}

        def meet(name: str, place: Point) -> SweepLoad:
            one, more = loads[name], others[name][: place.n_workers - 1]
            parts = (one.service, one.testbed, one.generator, one.workload)
            return SweepLoad(*parts, others=more, place=place, **how)

        yield [(name, meet(name, place)) for name, place in itertools.product(loads, points)]
