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
from studies.caching_costs.load import QUANTILES, Load, summarise
from studies.caching_costs.prediction import (
    BASELINE,
    Isolated,
    describe_machine,
    is_of_sweep,
    isolate,
    isolate_anew,
)
from studies.caching_costs.queueing import simulate_users
from studies.caching_costs.service import Service, Tile, open_service
from studies.caching_costs.workload import CacheLoad

_N_DRAWS = 20  # simulated loads that a percentile is predicted from
_N_RANGE_DRAWS = 40  # and its range, each from requests alone that are drawn anew
_N_REDRAWS = 1000
_JUMP = 2.0  # from the 45th to the 55th percentile, above which no tile is near the median
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
    """Tell the rows of the blocks from those that the sweep measured; its warm-ups are neither."""
    chosen = is_of_sweep(rows)
    return rows[~chosen], rows[chosen & (rows["phase"] == "measured")]


_AXES = ["n_users", "rate_per_s", "n_workers"]
_QUANTILES = {"p50": 50, "p95": 95}


def tabulate_sweep(
    isolated_rows: pd.DataFrame, rows: pd.DataFrame, sweep: Sequence[tuple[str, SweepLoad]]
) -> pd.DataFrame:
    """Put what was measured at each load beside what requests that were alone predict for it.

    Services share the machine's processors in the prediction with users, store and network, and
    each takes one at most beside what needs no interpreter. That an operating system shares two
    processors among four services less evenly is left out.

    Returns
    -------
    DataFrame
        ``contender``, the load, ``n_tiles``, ``n_failures``, ``tiles_per_s`` and ``gain``, the median
        without a cache over that with it. Where a median lies between tiles that are quick and tiles
        that are slow, so that one more of a kind moves it from one to the other, it is that of means,
        as ``gain_of`` says. Of the median and of the 95th percentile, as ``p50`` and
        ``p95``: ``p50_s``, the median over blocks, ``predicted_p50_s``, the relative ``p50_error``;
        ``p50_from_s`` and ``p50_to_s``, between which 95 in 100 blocks of the load lie where chance
        alone moves them, with as few requests alone as there were; ``p50_within``, the share of
        the measured blocks that do; ``p50_spread``, the largest block over the smallest, less 1;
        ``p50_halves``, of all ways to split the blocks in two, the share whose medians are
        within the target of one another; ``p50_again``, the share of blocks drawn anew whose median
        is within the target of the measured one, as an errorless prediction would be.
        ``generator_spread`` is the spread of the processor time that the load generator took for a
        tile.
    """
    predicted = _predict_loads(isolated_rows, sweep)
    trace = tables.trace_of(rows)
    points = pd.DataFrame([json.loads(text) for text in rows["point"]], index=rows.index)
    generator_s = trace["generator_share"] * rows["read_s"] / trace["n_tiles"]
    latency_s = trace[[f"p{q:02}_s" for q in QUANTILES]].to_numpy()
    trace["mean_s"] = (latency_s[:, 1:] + latency_s[:, :-1]).mean(axis=1) / 2
    trace["jump"] = trace["p55_s"] / trace["p45_s"]
    blocks = pd.concat([rows["contender"], points, trace.assign(generator_s=generator_s)], axis=1)
    loads = blocks.groupby(["contender", *_AXES])
    told = ["n_tiles", "n_failures", "tiles_per_s", "p50_s", "p95_s", "mean_s", "jump"]
    table = predicted.merge(loads[told].median().reset_index())
    table = table.merge(_tell_blocks(blocks.merge(predicted)).reset_index())
    for name in _QUANTILES:
        table[f"{name}_error"] = table[f"predicted_{name}_s"] / table[f"{name}_s"] - 1
    return _compare_baseline(table)


def _compare_baseline(table: pd.DataFrame) -> pd.DataFrame:
    """Divide the latency without a cache by that of each contender at the same load."""
    told = ["p50_s", "mean_s", "jump"]
    base = table[table["contender"] == BASELINE].set_index(_AXES)[told]
    base = base.reindex(pd.MultiIndex.from_frame(table[_AXES])).set_axis(table.index)
    is_between = np.maximum(base["jump"], table["jump"]) > _JUMP
    ratios = base / table[told]
    gain = ratios["p50_s"].mask(is_between, ratios["mean_s"])
    return table.assign(gain=gain, gain_of=np.where(is_between, "mean", "median"))


def _tell_blocks(blocks: pd.DataFrame) -> pd.DataFrame:
    """Say how the blocks of each load lie to one another, and to what is predicted for one of them."""
    loads = blocks.groupby(["contender", *_AXES])
    told: dict[str, Any] = {"generator_spread": loads["generator_s"].agg(_spread)}
    for name in _QUANTILES:
        lies = blocks[f"{name}_s"].between(blocks[f"{name}_from_s"], blocks[f"{name}_to_s"])
        told[f"{name}_within"] = lies.groupby([blocks[by] for by in loads.keys]).mean()
        told[f"{name}_spread"] = loads[f"{name}_s"].agg(_spread)
        told[f"{name}_halves"] = loads[f"{name}_s"].agg(_compare_halves)
        told[f"{name}_again"] = loads[f"{name}_s"].agg(_draw_again)
    return pd.DataFrame(told)


def _spread(values: pd.Series[float]) -> float:
    """Divide the largest by the smallest, less 1."""
    return float(values.max() / values.min() - 1)


def _compare_halves(seconds: pd.Series[float]) -> float:
    """Split blocks in two in all ways; tell the share of them whose medians are within the target."""
    n, values = len(seconds), seconds.to_numpy()
    halves = [[*half] for half in itertools.combinations(range(n), n // 2) if half]
    ratios = [np.median(values[it]) / np.median(np.delete(values, it)) for it in halves]
    return float(np.mean(np.abs(np.array(ratios) - 1) <= TOLERANCE)) if ratios else math.nan


def _draw_again(seconds: pd.Series[float]) -> float:
    """Draw as many blocks anew, often; tell the share whose median is within the target of theirs."""
    drawn = np.random.default_rng(0).choice(seconds.to_numpy(), (_N_REDRAWS, len(seconds)))
    near = np.abs(np.median(drawn, axis=1) / seconds.median() - 1) <= TOLERANCE
    return float(near.mean()) if len(seconds) > 1 else math.nan


def _predict_loads(
    isolated_rows: pd.DataFrame, sweep: Sequence[tuple[str, SweepLoad]]
) -> pd.DataFrame:
    """Predict each load from requests that were alone, and its range from as many drawn anew."""
    workload, seed = sweep[0][1].load.workload, sweep[0][1].seed
    rng, costs = np.random.default_rng(seed), isolate(isolated_rows, workload)
    machine = describe_machine(isolated_rows)
    redrawn = isolate_anew(isolated_rows, workload, rng, _N_RANGE_DRAWS)
    lines = []
    for contender, one in sweep:
        rng = np.random.default_rng(seed)
        given = [costs[contender]] * _N_DRAWS + [cost[contender] for cost in redrawn]
        found = np.array([_simulate(cost, one, machine, rng) for cost in given])
        # what is taken of blocks, their median
        middle_s = np.median(found[:_N_DRAWS], axis=0)
        low_s, high_s = np.percentile(found[_N_DRAWS:], (2.5, 97.5), axis=0)
        line: dict[str, Any] = {"contender": contender, **one.point}
        for k, name in enumerate(_QUANTILES):
            line |= {f"predicted_{name}_s": middle_s[k]}
            line |= {f"{name}_from_s": low_s[k], f"{name}_to_s": high_s[k]}
        lines.append(line)
    return pd.DataFrame(lines)


def _simulate(
    isolated: Mapping[Tile, Isolated],
    one: SweepLoad,
    machine: Mapping[str, Any],
    rng: np.random.Generator,
) -> Any:
    """Simulate a load once, and take the percentiles of its latencies (s)."""
    place, is_open = one.place, one.place.rate_per_s > 0
    plans = place.plan(one.tiles, one.seconds)
    latencies = simulate_users(
        [
            (isolated[tile].draw(rng) for tile in (plan if is_open else itertools.cycle(plan)))
            for plan in plans
        ],
        think_s=0.0 if is_open else one.load.workload.think_s,
        starts_s=place.due_s(one.seconds, one.seed) if is_open else (),
        until_s=math.inf if is_open else one.seconds,
        n_services=place.n_workers,
        **machine,
    )
    return np.percentile(latencies, [*_QUANTILES.values()])


def find_sweep(table: pd.DataFrame) -> dict[str, str]:
    """Say where each cache's gain vanishes and how far predictions were off, by the key for pages."""
    cached = table[(table["contender"] != BASELINE) & (table["n_workers"] == 1)]
    parts = []
    for axis, unit in (("n_users", "users"), ("rate_per_s", "tiles a second")):
        for name, part in cached[cached[axis] > 0].sort_values(axis).groupby("contender"):
            gone = part[part["gain"] < NO_GAIN]
            first, last = (
                _tell_gain(part.iloc[k]) + f" at {part[axis].iloc[k]:g}" for k in (0, -1)
            )
            vanishes = f" (gone from {gone[axis].iloc[0]:g} on)" if len(gone) else ""
            more = f" and {last.replace(' times', '', 1)}" if len(part) > 1 else ""
            parts.append(f"{name} {first}{more} {unit}{vanishes}")
    if not parts:
        missing = ("sweep-p50-error", "sweep-p95-error", "sweep-failures")
        told = dict.fromkeys(("verdict-load", "verdict-sweep"), "No load was swept.")
        return told | dict.fromkeys(missing, "not measured")
    is_kept = (cached["gain"] >= NO_GAIN).all()
    kept = f" It stays above {NO_GAIN:g} times at every load of one service." if is_kept else ""
    means = " It is that of means where a median lies between quick tiles and slow ones."
    means = means if (cached["gain_of"] == "mean").any() else ""
    return {
        "verdict-load": f"The gain in the median: {'; '.join(parts)}.{means}{kept}",
        "verdict-sweep": _tell_errors(table),
        **{f"sweep-{q}-error": percent(table[f"{q}_error"].abs().max()) for q in ("p50", "p95")},
        "sweep-failures": str(int(table["n_failures"].sum())),
    }


def _tell_gain(load: pd.Series[Any]) -> str:
    """Say how many times as fast a load is; of what, where it is not the median."""
    return f"{digits(load['gain'])} times{' in the mean' if load['gain_of'] == 'mean' else ''}"


def _tell_errors(table: pd.DataFrame) -> str:
    """Say at how many loads predictions are near, and how sure blocks of one load are themselves."""
    near = {q: int((table[f"{q}_error"].abs() <= TOLERANCE).sum()) for q in _QUANTILES}
    places = table.apply(_tell_place, axis=1)
    missed = pd.concat([places[table[f"{q}_error"].abs() > TOLERANCE] for q in _QUANTILES])
    worst = " and ".join(f"{n} at {place}" for place, n in missed.value_counts()[:2].items())
    bar = f"{100 * TOLERANCE:g} %"
    return (
        f"Of {len(table)} loads, the predicted median is within {bar} of the measured one"
        f" at {near['p50']}, and the 95th percentile at {near['p95']}; nothing that was measured"
        f" under load goes into them.{f' Of the {len(missed)} beyond it, {worst}.' if worst else ''}"
        f" {_tell_noise(table, places)} {_tell_ranges(table)}"
    )


def _tell_noise(table: pd.DataFrame, places: pd.Series[str]) -> str:
    """Say how far blocks of one load agree, which bounds what any prediction can be held to."""
    if table["p50_halves"].isna().all():
        return "One block says nothing of how far blocks agree."
    spread, bar = table["p50_spread"], f"{100 * TOLERANCE:g} %"
    widest = int(spread.argmax())
    halves = [percent(float(table[f"{q}_halves"].mean())) for q in _QUANTILES]
    again = [digits(float(table[f"{q}_again"].sum())) for q in _QUANTILES]
    return (
        f"Of all ways to split the blocks of a load in two, {halves[0]} give medians within {bar} of"
        f" one another, and {halves[1]} 95th percentiles; blocks drawn anew are within {bar} of"
        f" those measured at {again[0]} and {again[1]} loads on average, and a prediction without"
        f" error would be no nearer. Medians of blocks of one load differ by"
        f" {percent(spread.median())}, and by {percent(spread.max())} with"
        f" {tell_contender(table['contender'].iloc[widest])} at {places.iloc[widest]}; the load"
        " generator's own processor time for a tile, which no cache changes, differs by"
        f" {percent(table['generator_spread'].median())}."
    )


def _tell_ranges(table: pd.DataFrame) -> str:
    """Say how many measured percentiles lie where chance would put them."""
    lie = {
        q: int(table[f"{q}_s"].between(table[f"{q}_from_s"], table[f"{q}_to_s"]).sum())
        for q in _QUANTILES
    }
    blocks = [percent(float(table[f"{q}_within"].mean())) for q in _QUANTILES]
    return (
        "In the range that chance and the few requests alone leave one block lie the measured"
        f" medians of {lie['p50']} loads and the 95th percentiles of {lie['p95']}; of single blocks"
        f" {blocks[0]} and {blocks[1]} do, where 95 % would if nothing else moved them."
    )


def lay_out(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Write the loads as two tables of a page: what was measured, and what was predicted for it."""
    axes = {"n_users": "users", "rate_per_s": "arrivals (1/s)", "n_workers": "services"}
    shown = table.replace({axis: {0: "-"} for axis in axes}).rename(columns=axes)
    shown = shown.set_index(["contender", *axes.values()])
    measured = {"n_tiles": "tiles", "n_failures": "failed", "tiles_per_s": "tiles/s"}
    predicted = dict[str, str]()
    for q in _QUANTILES:
        measured |= {f"{q}_s": f"{q} (s)", f"{q}_spread": f"{q} spread"}
        measured |= {f"{q}_halves": f"{q} halves"}
        predicted |= {f"predicted_{q}_s": f"{q} (s)", f"{q}_error": f"{q} error"}
        predicted |= {f"{q}_{end}_s": f"{q} {end} (s)" for end in ("from", "to")}
        predicted |= {f"{q}_within": f"{q} within"}
    measured |= {"generator_spread": "generator spread", "gain": "gain"}
    parts = (shown[[*names]].rename(columns=names) for names in (measured, predicted))
    one, other = (part.round(3).reset_index() for part in parts)
    return one, other


def _tell_place(load: pd.Series[Any]) -> str:
    """Name a load, by how much is asked for and how many services share it."""
    if load["rate_per_s"]:
        return f"{load['rate_per_s']:g} tiles a second"
    several = f" of {load['n_workers']:g} services" if load["n_workers"] > 1 else ""
    return f"{load['n_users']:g} user{'s' * (load['n_users'] != 1)}{several}"
