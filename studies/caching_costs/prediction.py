"""What users will see, from requests that were alone; how often a cache hits; what the cost model learns."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from advisors.costs.assumptions import Assumptions, Option, change
from advisors.costs.bill import late_share, price_option
from helpers.models import hits
from helpers.plotting import tables
from studies.caching_costs.queueing import Demand, simulate_users
from studies.caching_costs.service import Tile
from studies.caching_costs.workload import FIRST, Workload, measure_hit_ratio

BASELINE = "none"
"""The contender that every other is compared with."""

SHIPPED = "as-shipped"
"""The contender that people run who change nothing."""


def is_of_sweep(rows: pd.DataFrame) -> pd.Series[bool]:
    """Tell which rows are of a sweep, and not of blocks that all contenders meet."""
    return rows["point"].str.contains("n_workers")


def read_numbers(rows: pd.DataFrame, phase: str) -> pd.DataFrame:
    """Spread the trace of a phase into columns, beside contender and block, but for loads of a sweep."""
    part = rows[(rows["phase"] == phase) & ~is_of_sweep(rows)]
    trace = tables.trace_of(part).drop(columns=["n_requests"], errors="ignore")
    return trace.assign(
        contender=part["contender"], n_requests=part["n_requests"], block=part["block"]
    )


def list_requests(rows: pd.DataFrame, phase: str) -> pd.DataFrame:
    """List the requests of a phase one by one."""
    numbers = read_numbers(rows, phase).set_index(["contender", "block"])
    each = numbers[[name for name in map(str, numbers) if name.count("|") == 2]]
    each.columns = pd.MultiIndex.from_tuples(
        [tuple(name.split("|")) for name in each.columns], names=["dataset", None, "number"]
    )
    table = (
        each.stack(level=["dataset", "number"], future_stack=True).dropna(how="all").reset_index()
    )
    if "open_s" in table:
        table = table.assign(make_s=table["latency_s"] - table["open_s"])
    return pd.DataFrame(table)


def count_processors(rows: pd.DataFrame) -> int:
    """Count the processors of the machine that measured; one if no row says."""
    told = rows["machine"].iloc[0] if "machine" in rows and len(rows) else "{}"
    return int(json.loads(told).get("n_cores", 1))


def describe_machine(rows: pd.DataFrame) -> dict[str, Any]:
    """Describe the processors that measured, as `simulate_users` asks for them.

    Older records do not tell how fast a processor is while all are busy, nor what tiles that are
    made in one interpreter cost one another.
    """
    names = ["speed_of_all", "crowd_cost", "crowd_cost_on_one"]
    told = read_numbers(rows, "calibration").reindex(columns=names)
    medians: dict[str, Any] = {str(k): v for k, v in told.median().fillna(1.0).items()}
    return {"n_processors": count_processors(rows), **medians}


KEEPS_CHUNKS = ("filecache", "filecache-v3", "cachestore-v3", "lru-chunks")
"""Contenders that make their tiles from chunks that they keep."""

_KEPT = ("lru", "redis", "diskcache")
"""Contenders that open nothing for a tile that is warm, the first that was measured."""

_N_DRAWS = 100  # loads that a median is predicted from
_N_TAIL_DRAWS = 40  # and a 95th percentile of requests alone

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Isolated:
    """What requests for one tile cost while they were alone, with one cache."""

    open_s: Floats  # seconds that opening and the rest took, request by request
    make_s: Floats
    cpu_s: float  # mean of their processor seconds, which add up where requests queue
    n_waits: int = 1  # for the store, one for each request to it
    beside_s: float = 0.0  # of these, outside the interpreter
    elsewhere_s: float = 0.0  # processor seconds of users, store and network, as part of waiting

    def draw(self, rng: np.random.Generator) -> Demand:
        """Draw an opening and a making, each from what was measured."""
        seconds = float(rng.choice(self.open_s) + rng.choice(self.make_s))
        wait_s = max(0.0, seconds - self.cpu_s - self.elsewhere_s)
        beside_s = self.beside_s + self.elsewhere_s
        return Demand(self.cpu_s - self.beside_s, wait_s, self.n_waits, beside_s)


def list_alone(rows: pd.DataFrame, workload: Workload) -> pd.DataFrame:
    """List the requests that were alone one by one, with their tile and the bytes of its chunks.

    Of who keeps chunks, tiles that needed one for the first time are marked (`FIRST`). Of their
    processor time ``outside_s`` is that of threads that Python did not start, such as a client of
    the store in Rust has them; older records do not tell it.
    """
    each = list_requests(rows, "calibration")
    tiles = list(itertools.chain(*workload.mark_first(workload.alone)))
    asked = pd.DataFrame([tiles[int(number)] for number in each["number"]], index=each.index)
    nbytes = {spec.name: spec.chunk_nbytes for spec in workload.datasets.specs}
    told = {name: each.get(name, 0.0) for name in ("warp_s", "outside_s")}
    told["chunk_nbytes"] = each["dataset"].map(nbytes)
    marked = each["dataset"].mask(each["contender"].isin(KEEPS_CHUNKS), asked[0])
    return each.assign(
        dataset=marked, **told, **dict(zip(_PLACE, (asked[k] for k in (1, 2, 3)), strict=True))
    )


_PLACE = ("zoom", "column", "row")


Costs = dict[str, dict[Tile, Isolated]]
"""What tiles cost alone, by contender."""


def isolate(rows: pd.DataFrame, workload: Workload) -> Costs:
    """Say of each tile of the plan what it cost alone, by contender.

    Opening is each contender's own, for a dataset. Making is the same work for all but those that
    keep chunks, so theirs is put together: many times the sample. So is the processor time of those
    that open nothing, for their requests are the same work. A tile that was not alone is taken for
    those of its dataset at its zoom, for its values are as many, or else for those of its dataset.
    Who keeps chunks makes a tile in another time where it needs one for the first time.

    Reprojection and clients of the store compute without the interpreter. So do users, store and
    network, which take what the machine's processors did beside the service. So does what comes with
    the bytes of a chunk: to receive, decode and copy them. Of that, as much is counted as requests
    for chunks of several sizes show for sure.
    """
    return _isolate(list_alone(rows, workload), _average(rows), _list_tiles(workload))


def isolate_anew(
    rows: pd.DataFrame, workload: Workload, rng: np.random.Generator, n_draws: int
) -> list[Costs]:
    """Say the same from as many requests that are drawn anew from those that were alone, often."""
    each, means, tiles = list_alone(rows, workload), _average(rows), _list_tiles(workload)
    of_each = each.groupby(["contender", "dataset"])
    drawn = (of_each.sample(frac=1, replace=True, random_state=rng) for _ in range(n_draws))
    return [_isolate(one, means, tiles) for one in drawn]


def _average(rows: pd.DataFrame) -> pd.DataFrame:
    """Average over the tiles of a contender: requests to the store, at least 1, and ``elsewhere_s``.

    Older records do not tell what users, store and network took of the processors.
    """
    numbers = read_numbers(rows, "calibration")
    sums = numbers.groupby("contender")[["n_requests", "n_tiles"]].sum()
    told = numbers.get("elsewhere_s", pd.Series(0.0, numbers.index)).fillna(0.0)
    return pd.DataFrame(
        {
            "n_waits": (sums["n_requests"] / sums["n_tiles"]).round().clip(lower=1).astype(int),
            "elsewhere_s": told.groupby(numbers["contender"]).mean(),
        }
    )


def _list_tiles(workload: Workload) -> set[Tile]:
    plan = itertools.chain(*workload.warm, *workload.mark_first(workload.warm))
    return {tile for tile in plan if tile[0] not in workload.must_fail}


def _isolate(each: pd.DataFrame, means: pd.DataFrame, tiles: Collection[Tile]) -> Costs:
    alike = _Alike.of(each)
    made = _Alike.of(each[~each["contender"].isin(KEEPS_CHUNKS)])
    kept = _Alike.of(each[each["contender"].isin(_KEPT)])
    found: Costs = {}
    for name, part in each.groupby("contender"):
        contender, own = str(name), _Alike.of(part)
        computed = kept if contender in _KEPT else own
        grown_by = own if contender in KEEPS_CHUNKS or not kept.groups else kept
        for tile in tiles:
            if tile[0].endswith(FIRST) and contender not in KEEPS_CHUNKS:
                continue
            cost = computed.find(tile)
            beside_s = float(alike.find(tile)["warp_s"].mean() + cost["outside_s"].mean())
            beside_s += grown_by.s_per_byte * float(cost["chunk_nbytes"].mean())
            cpu_s = float(cost["cpu_s"].mean())
            found.setdefault(contender, {})[tile] = Isolated(
                own.find(tile[:1])["open_s"].to_numpy(),
                (own if contender in KEEPS_CHUNKS else made).find(tile)["make_s"].to_numpy(),
                cpu_s,
                int(means["n_waits"][contender]),
                min(cpu_s, beside_s),
                float(means["elsewhere_s"][contender]),
            )
    return found


@dataclass(frozen=True, slots=True)
class _Alike:
    """Requests that were alone, grouped by tile, by dataset and zoom, and by dataset."""

    groups: dict[tuple[Any, ...], pd.DataFrame]
    s_per_byte: (
        float  # processor seconds outside the interpreter for each byte of a chunk, at least
    )

    @classmethod
    def of(cls, each: pd.DataFrame) -> _Alike:
        """Group requests, and fit what grows with the bytes of their chunks."""
        by = (["dataset"], ["dataset", "zoom"], ["dataset", *_PLACE])
        groups = {key: part for names in by for key, part in each.groupby(names)}
        return cls(groups, _fit_bytes(each))

    def find(self, tile: tuple[Any, ...]) -> pd.DataFrame:
        """Find the requests that are most like one for a tile; first ones and others stand in for one another."""
        plain = tile[0].removesuffix(FIRST)
        names = (tile[0], plain, plain + FIRST)
        keys = [(name, *tile[1:n]) for name in names for n in (4, 2, 1)]
        return next(self.groups[key] for key in keys if key in self.groups)


def _fit_bytes(each: pd.DataFrame) -> float:
    """Fit processor seconds against bytes of chunks: the lower end of the slope's 95 % interval."""
    if each["chunk_nbytes"].nunique() < 2 or len(each) < 3:
        return 0.0
    seconds = each["cpu_s"] - each["warp_s"] - each["outside_s"]
    line = stats.linregress(each["chunk_nbytes"], seconds)
    return max(0.0, float(line.slope - stats.t.ppf(0.975, len(each) - 2) * line.stderr))


def draw_demands(
    isolated: Mapping[Tile, Isolated], plan: Sequence[Sequence[Tile]], rng: np.random.Generator
) -> list[list[Demand]]:
    """Draw what each request of a plan costs alone; those that must fail are left out."""
    return [[isolated[tile].draw(rng) for tile in user if tile in isolated] for user in plan]


def _alone(drawn: Sequence[Sequence[Sequence[Demand]]]) -> list[float]:
    """List what each request takes without company."""
    return [
        one.cpu_s + one.beside_s + one.wait_s
        for demands in drawn
        for user in demands
        for one in user
    ]


def predict_latencies(rows: pd.DataFrame, workload: Workload, *, seed: int) -> pd.DataFrame:
    """Predict the median and the 95th percentile of each contender under load from requests that were alone.

    Users share the one processor that a Python process has. What each request
    costs is drawn anew for each of a hundred simulated loads: with one time
    for each dataset, simulated users would keep step and meet at the processor
    more often than real ones.

    Returns
    -------
    DataFrame
        ``contender``, ``predicted_s``, ``predicted_p95_s``, and ``alone_s``, the median without
        company.
    """
    rng, given = np.random.default_rng(seed), describe_machine(rows)
    given |= {"think_s": workload.think_s}
    lines, plans = [], (workload.warm, workload.mark_first(workload.warm))
    for name, isolated in isolate(rows, workload).items():
        drawn = [draw_demands(isolated, plans[name in KEEPS_CHUNKS], rng) for _ in range(_N_DRAWS)]
        loaded = [seconds for demands in drawn for seconds in simulate_users(demands, **given)]
        middle_s, late_s = np.percentile(loaded, (50, 95))
        lines.append((name, middle_s, late_s, float(np.median(_alone(drawn)))))
    return pd.DataFrame(lines, columns=["contender", "predicted_s", "predicted_p95_s", "alone_s"])


def compare_predictions(rows: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """Put predicted beside measured percentiles; errors are predicted over measured, less 1."""
    each = list_requests(rows, "measured").groupby("contender")["latency_s"]
    measured = pd.DataFrame({"measured_s": each.median(), "measured_p95_s": each.quantile(0.95)})
    table = expected.merge(measured, on="contender")
    return table.assign(
        relative_error=table["predicted_s"] / table["measured_s"] - 1,
        p95_error=table["predicted_p95_s"] / table["measured_p95_s"] - 1,
    )


def compare_hit_ratios(
    n_datasets: Sequence[int], *, exponent: float, n_lookups: int, seed: int
) -> pd.DataFrame:
    """Put the hit ratio of Che's approximation beside that of the real cache in the process.

    Returns
    -------
    DataFrame
        By datasets and entries that fit: ``predicted``, ``measured`` and ``error``, all as shares.
    """
    lines = []
    for n in n_datasets:
        for n_entries in sorted({max(1, n // part) for part in (8, 4, 2)}):
            kept = hits.Cache(capacity_nbytes=n_entries, item_nbytes=1)
            predicted = hits.hit_ratio(hits.zipf(n, exponent), 1.0, cache=kept)
            measured = measure_hit_ratio(
                n, n_entries, exponent=exponent, n_lookups=n_lookups, seed=seed
            )
            lines.append((n, n_entries, predicted, measured, predicted - measured))
    return pd.DataFrame(lines, columns=["datasets", "entries", "predicted", "measured", "error"])


MEASURED_BY: Mapping[Option, str] = {
    "none": "none",
    "process": "lru",
    "disk": "diskcache",
    "shared": "filecache",
    "redis": "redis",
    "cdn": "none",
    "cdn-process": "lru",
}
"""The contender that stands for each option of the model; a CDN stands before no cache."""


def learn_assumptions(
    rows: pd.DataFrame,
    workload: Workload,
    *,
    entry_nbytes: Mapping[str, int],
    measured_by: Mapping[Option, str] = MEASURED_BY,
) -> Assumptions:
    """Put what was measured in isolation in the place of the model's defaults.

    Means over datasets, weighted as users ask for them: an invocation is billed
    for what it takes, and serves one request at a time. What no contender
    of the case measured stays as it is; so do load and popularity.
    `entry_nbytes` are the bytes of each opened dataset, `measured_by` the contender that stands
    for each option.
    """
    names = [name for name in workload.names() if name in entry_nbytes]
    each = list_requests(rows, "calibration").groupby(["contender", "dataset"])
    means = each[["open_s", "make_s"]].mean()
    measured = set(means.index.get_level_values("contender"))

    def mean(contender: str, column: str) -> float:
        return float(means.loc[contender].loc[names, column].mean())

    changes = {
        **_learn_cpu(each["cpu_s"].mean(), names, measured),
        "make_s": mean(BASELINE, "make_s"),
        "open_s": mean(BASELINE, "open_s"),
        "metadata_nbytes": float(np.mean([entry_nbytes[name] for name in names])),
        **{
            f"{option}_fetch_s": mean(name, "open_s")
            for option, name in measured_by.items()
            if name in measured - {BASELINE} and option in ("disk", "shared", "redis")
        },
        **_learn_requests(rows, measured, measured_by["shared"]),
    }
    return change(Assumptions(), changes)


def _learn_cpu(cpu_s: Any, names: Sequence[str], measured: set[str]) -> dict[str, float]:
    """Split processor time of a tile: what is left where nothing is opened is the making."""
    kept = next((name for name in _KEPT if name in measured), None)
    if kept is None:
        return {}
    making, whole = (float(cpu_s.loc[name].loc[names].mean()) for name in (kept, BASELINE))
    return {"make_cpu_s": making, "open_cpu_s": max(0.0, whole - making)}


def _learn_requests(rows: pd.DataFrame, measured: set[str], shared: str) -> dict[str, float]:
    """Split the requests to the store of a tile into those to open and those for its chunks.

    A file cache keeps both; what it asks for nevertheless, it asks for on every tile.
    """
    kept = next((name for name in _KEPT if name in measured), None)
    if kept is None:
        return {}
    numbers = read_numbers(rows, "calibration").groupby("contender").median(numeric_only=True)
    gets = numbers["n_requests"] / numbers["n_tiles"]
    read = rows[rows["phase"] == "calibration"].groupby("contender")["wire_nbytes"].median()
    still: dict[str, float] = {}
    if shared in measured:
        listed = float(numbers["n_lists"][shared] / numbers["n_tiles"][shared])
        still = {"shared_gets": max(0.0, float(gets[shared]) - listed), "shared_lists": listed}
    sent = (
        {"tile_nbytes": float(numbers["tile_nbytes"][BASELINE])} if "tile_nbytes" in numbers else {}
    )
    return {
        **still,
        **sent,
        "open_gets": max(0.0, float(gets[BASELINE] - gets[kept])),
        "tile_gets": float(gets[kept]),
        "tile_read_nbytes": float(read[kept] / numbers["n_tiles"][kept]),
    }


def isolate_tails(
    rows: pd.DataFrame,
    workload: Workload,
    assumptions: Assumptions,
    prices: Mapping[str, float],
    *,
    seed: int,
) -> dict[Option, float]:
    """Estimate the time (s) that 95 in 100 tiles of each option keep when they are alone, as users mix them.

    What a CDN holds is among the 95, so that of what is made behind it a larger share may be late.
    """
    rng = np.random.default_rng(seed)
    alone_s: dict[str, list[float]] = {}
    for name, isolated in isolate(rows, workload).items():
        drawn = [draw_demands(isolated, workload.warm, rng) for _ in range(_N_TAIL_DRAWS)]
        alone_s[name] = _alone(drawn)
    kept: dict[Option, float] = {}
    for option, name in MEASURED_BY.items():
        if name in alone_s:
            late = late_share(price_option(assumptions, prices, option=option))
            kept[option] = float(np.percentile(alone_s[name], 100 * (1 - late)))
    return kept
