"""A contender under every load: users that wait for answers, arrivals that do not, and services side by side."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from helpers.benchmark.contender import CheckError, Steps
from helpers.plotting import tables
from helpers.plotting.tables import digits
from studies.caching_costs.findings import TOLERANCE, percent, tell_contender
from studies.caching_costs.load import Load, summarise
from studies.caching_costs.prediction import (
    BASELINE,
    Demand,
    Isolated,
    count_processors,
    is_of_sweep,
    isolate,
    simulate_users,
)
from studies.caching_costs.service import Service, Tile, open_service
from studies.caching_costs.workload import CacheLoad

_N_DRAWS = 20  # simulated loads that a percentile is predicted from
_ON_DISK = ("diskcache",)  # caches that several services may write to at once
NO_GAIN = 1.1
"""Ratio to no cache below which a cache gains nothing that users notice."""


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
class SweepLoad(Steps):
    """A service with one contender, or several, at one load; the cache stays warm from load to load."""

    load: CacheLoad
    others: Sequence[Service]  # further services with the same contender
    place: Point
    seconds: float  # that the load lasts
    seed: int
    warm: set[int]  # processes of services whose caches are warm
    last: Load | None = None

    palette: ClassVar = "cache"

    @property
    def point(self) -> dict[str, float]:
        """Place on the x-axes."""
        place = self.place
        return {
            "n_users": place.n_users,
            "rate_per_s": place.rate_per_s,
            "n_workers": place.n_workers,
        }

    @property
    def tiles(self) -> list[Tile]:
        """Tiles by popularity, without those that must fail."""
        must_fail = self.load.workload.must_fail
        return [
            tile for user in self.load.workload.warm for tile in user if tile[0] not in must_fail
        ]

    def settings(self) -> dict[str, Any]:
        """Tell what a comparison has to hold equal, or declare."""
        return {
            **self.load.settings(),
            "concurrency": self.place.n_users or math.ceil(self.place.rate_per_s),
            "cache_state": "one request of each dataset before, warm from load to load",
        }

    def nbytes(self) -> tuple[int, int]:
        """Count the values behind one tile of each user or arrival, and the bytes of the datasets."""
        per_tile, stored = self.load.nbytes()
        n_tiles = len(self.place.plan(self.tiles, self.seconds))
        return per_tile // sum(map(len, self.load.plan)) * n_tiles, stored

    def prepare(self) -> None:
        """Empty the trace, not the cache."""
        self.load.testbed.take_trace()
        self.load.testbed.set_tag("open")

    def open(self) -> SweepLoad:
        """Ask each service that nobody asked yet for a tile of each dataset, so that its cache is warm."""
        must_fail = self.load.workload.must_fail
        cold = [
            [tile for user in self.load.workload.cold for tile in user if tile[0] not in must_fail]
        ]
        for service in (self.load.service, *self.others):
            if service.child.pid not in self.warm:
                self.load.generator.run(service, cold)
                self.warm.add(service.child.pid)
        self.load.testbed.set_tag("read")
        return self

    def ask(self) -> Load:
        """Let users ask for as long as the load lasts, or everybody who is due arrive."""
        is_open = self.place.rate_per_s > 0
        self.last = self.load.generator.run(
            self.load.service,
            self.place.plan(self.tiles, self.seconds),
            spawn_rate=100.0,
            think_s=0.0 if is_open else self.load.workload.think_s,
            others=self.others,
            seconds=0.0 if is_open else self.seconds,
            due_s=self.place.due_s(self.seconds, self.seed) if is_open else (),
        )
        return self.last

    def check(self, load: Load, /) -> str:
        """Compare each tile with the one made without a cache."""
        expected = load.requests["path"].map(self.load.workload.checksums)
        if wrong := sorted(
            set(load.requests.loc[load.requests["checksum"] != expected, "dataset"])
        ):
            raise CheckError(f"tiles of {', '.join(wrong)} differ from uncached ones")
        return f"xxh3 of {len(load.requests)} tiles"

    def collect(self) -> dict[str, float]:
        """Count what users saw."""
        if self.last is None:
            raise CheckError("nothing was asked")
        self.load.testbed.take_trace()
        requests = self.last.requests
        ends_s = requests["start_s"] + requests["latency_s"]
        numbers = summarise(self.last)
        numbers["tiles_per_s"] = len(requests) / float(ends_s.max() - requests["start_s"].min())
        return {name: value for name, value in numbers.items() if "|" not in name}

    def versions(self) -> dict[str, str]:
        """Ask the service and the load generator what they have imported."""
        return self.load.versions()


@contextlib.contextmanager
def open_sweep(
    loads: Mapping[str, CacheLoad],
    points: Sequence[Point],
    *,
    seconds: float,
    seed: int,
) -> Iterator[list[tuple[str, SweepLoad]]]:
    """Make a contender of each cache at each load; further services share the first's Redis or disk, and its key.

    Yields
    ------
    list of tuple of str and SweepLoad
        Cache and load.
    """
    n_others = max((one.n_workers for one in points), default=1) - 1
    with contextlib.ExitStack() as stack:
        others: dict[str, list[Service]] = {}
        for name, load in loads.items():
            disk = {"shared_folder": load.service.folder} if name in _ON_DISK else {}
            told = {**load.service.told, **disk}
            others[name] = [
                stack.enter_context(
                    open_service(name, load.workload.datasets, is_awaited=False, **told)
                )
                for _ in range(n_others)
            ]
        for service in itertools.chain(*others.values()):
            service.wait()
        warm = set[int]()
        yield [
            (name, SweepLoad(load, others[name][: point.n_workers - 1], point, seconds, seed, warm))
            for name, load in loads.items()
            for point in points
        ]


def split(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tell the rows of the blocks from those of the sweep."""
    chosen = is_of_sweep(rows)
    return rows[~chosen], rows[chosen]


def _draw(
    isolated: Mapping[str, Isolated], tiles: Sequence[Tile], rng: np.random.Generator
) -> Iterator[Demand]:
    """Draw what each request costs alone, for as long as somebody asks."""
    return (isolated[tile[0]].draw(rng) for tile in tiles)


def tabulate_sweep(
    isolated_rows: pd.DataFrame, rows: pd.DataFrame, sweep: Sequence[tuple[str, SweepLoad]]
) -> pd.DataFrame:
    """Put what was measured at each load beside what requests that were alone predict for it.

    Services share the machine's processors in the prediction, and each takes one at most beside
    its reprojections; what users, store and network take of them is left out, and so is that an
    operating system shares two processors among four services less evenly.

    Returns
    -------
    DataFrame
        ``contender``, the load, ``n_tiles``, ``tiles_per_s``, ``p50_s``, ``p95_s``, both predicted,
        their relative errors, by how much blocks of that load differ in each (``p50_spread``:
        largest over smallest, less 1), and ``gain``: the median without a cache over that with it.
    """
    costs = isolate(isolated_rows)
    n_processors = count_processors(rows)
    lines = [
        {"contender": name, **one.point, **_predict(costs[name], one, n_processors)}
        for name, one in sweep
    ]
    trace = tables.trace_of(rows)[["n_tiles", "n_failures", "tiles_per_s", "p50_s", "p95_s"]]
    points = pd.DataFrame([json.loads(text) for text in rows["point"]], index=rows.index)
    measured = pd.concat([rows["contender"], points, trace], axis=1)
    axes = ["n_users", "rate_per_s", "n_workers"]
    loads = measured.groupby(["contender", *axes])
    middle = loads.median().reset_index()
    spread = (loads[["p50_s", "p95_s"]].max() / loads[["p50_s", "p95_s"]].min() - 1).reset_index()
    spread = spread.rename(columns={"p50_s": "p50_spread", "p95_s": "p95_spread"})
    table = pd.DataFrame(lines).merge(middle).merge(spread)
    for name in ("p50", "p95"):
        table[f"{name}_error"] = table[f"predicted_{name}_s"] / table[f"{name}_s"] - 1
    without = table[table["contender"] == BASELINE].set_index(axes)["p50_s"]
    base_s = without.reindex(pd.MultiIndex.from_frame(table[axes])).to_numpy()
    return table.assign(gain=base_s / table["p50_s"].to_numpy())


def _predict(
    isolated: Mapping[str, Isolated], one: SweepLoad, n_processors: int
) -> dict[str, float]:
    """Simulate a load many times, and take of its percentiles what is taken of blocks: the median."""
    rng = np.random.default_rng(one.seed)
    plans, is_open = one.place.plan(one.tiles, one.seconds), one.place.rate_per_s > 0
    found = []
    for _ in range(_N_DRAWS):
        asked = [plan if is_open else itertools.cycle(plan) for plan in plans]
        latencies = simulate_users(
            [_draw(isolated, plan, rng) for plan in asked],  # type: ignore[arg-type]
            think_s=0.0 if is_open else one.load.workload.think_s,
            starts_s=one.place.due_s(one.seconds, one.seed) if is_open else (),
            until_s=math.inf if is_open else one.seconds,
            n_services=one.place.n_workers,
            n_processors=n_processors,
        )
        found.append(np.percentile(latencies, (50, 95)))
    p50_s, p95_s = np.median(found, axis=0)
    return {"predicted_p50_s": float(p50_s), "predicted_p95_s": float(p95_s)}


def find_sweep(table: pd.DataFrame) -> dict[str, str]:
    """Say where each cache's gain vanishes and how far predictions were off, by the key for pages."""
    cached = table[(table["contender"] != BASELINE) & (table["n_workers"] == 1)]
    parts = []
    for axis, unit in (("n_users", "users"), ("rate_per_s", "tiles a second")):
        for name, part in cached[cached[axis] > 0].sort_values(axis).groupby("contender"):
            gone = part[part["gain"] < NO_GAIN]
            last = f" and {digits(part['gain'].iloc[-1])} at {part[axis].iloc[-1]:g}"
            text = f"{name} {digits(part['gain'].iloc[0])} times at {part[axis].iloc[0]:g}"
            vanishes = f" (gone from {gone[axis].iloc[0]:g} on)" if len(gone) else ""
            parts.append(f"{text}{last if len(part) > 1 else ''} {unit}{vanishes}")
    if not parts:
        missing = ("sweep-p50-error", "sweep-p95-error", "sweep-failures")
        told = dict.fromkeys(("verdict-load", "verdict-sweep"), "No load was swept.")
        return told | dict.fromkeys(missing, "not measured")
    is_kept = (cached["gain"] >= NO_GAIN).all()
    kept = f" It stays above {NO_GAIN:g} times at every load of one service." if is_kept else ""
    return {
        "verdict-load": f"The gain in the median: {'; '.join(parts)}.{kept}",
        "verdict-sweep": _tell_errors(table),
        **{f"sweep-{q}-error": percent(table[f"{q}_error"].abs().max()) for q in ("p50", "p95")},
        "sweep-failures": str(int(table["n_failures"].sum())),
    }


def _tell_errors(table: pd.DataFrame) -> str:
    """Say at how many loads predictions are near, and how much blocks of one load differ themselves."""
    near, apart = {}, {}
    for q in ("p50", "p95"):
        error, noise = table[f"{q}_error"].abs(), table[f"{q}_spread"] / 2
        near[q] = int((error <= TOLERANCE).sum())
        apart[q] = int((error <= TOLERANCE + noise).sum())
    spread = table["p50_spread"]
    widest, places = int(spread.argmax()), table.apply(_tell_place, axis=1)
    missed = pd.concat([places[table[f"{q}_error"].abs() > TOLERANCE] for q in near])
    worst = " and ".join(f"{n} at {place}" for place, n in missed.value_counts()[:2].items())
    bar = f"{100 * TOLERANCE:g} %"
    told = (
        f"Of {len(table)} loads, the predicted median is within {bar} of the measured one"
        f" at {near['p50']}, and the 95th percentile at {near['p95']}; nothing that was measured"
        f" under load goes into them.{f' Of the {len(missed)} beyond it, {worst}.' if worst else ''}"
        f" Medians of blocks of one load differ by {percent(spread.median())} themselves, and by"
        f" {percent(spread.max())} with {tell_contender(table['contender'].iloc[widest])} at {places.iloc[widest]}."
    )
    if spread.median() <= TOLERANCE:
        return told
    return (
        f"{told} That noise is above the target: widened by half of what its own blocks differ by,"
        f" {apart['p50']} medians and {apart['p95']} 95th percentiles are within it."
    )


def _tell_place(load: pd.Series[Any]) -> str:
    """Name a load, by how much is asked for and how many services share it."""
    if load["rate_per_s"]:
        return f"{load['rate_per_s']:g} tiles a second"
    several = f" of {load['n_workers']:g} services" if load["n_workers"] > 1 else ""
    return f"{load['n_users']:g} user{'s' * (load['n_users'] != 1)}{several}"
