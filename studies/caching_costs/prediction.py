"""What users will see, from requests that were alone; how often a cache hits; what the cost model learns."""

from __future__ import annotations

import heapq
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from advisors.costs.assumptions import Assumptions, Option, change
from advisors.costs.bill import late_share, price_option
from helpers.errors import UserError
from helpers.models import hits
from helpers.plotting import tables
from studies.caching_costs.service import Tile
from studies.caching_costs.workload import Workload, measure_hit_ratio


@dataclass(frozen=True, slots=True)
class Demand:
    """What one request costs when it is alone."""

    cpu_s: float  # processor seconds in the interpreter, which requests share
    wait_s: float  # seconds that it waits for others, beside which other requests go on
    n_waits: int = 1  # as many parts as it waits in; it computes after each
    beside_s: float = 0.0  # processor seconds at last, outside the interpreter's lock

    def __post_init__(self) -> None:
        for name in ("cpu_s", "wait_s", "beside_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"{name}: {getattr(self, name)!r}; allowed: at least 0, finite")


def simulate_users(
    plans: Sequence[Iterable[Demand]],
    *,
    think_s: float,
    starts_s: Sequence[float] = (),
    until_s: float = math.inf,
    n_services: int = 1,
    n_processors: int = 1,
) -> list[float]:
    """Simulate users that ask, wait for the answer, think and ask again.

    A request waits and computes in turns. Those that compute in one service share equally the one
    processor that its interpreter has; services, and what runs outside their interpreters, share
    the machine's. Users, dealt among the services, begin together, or where `starts_s` says; after
    `until_s` nobody asks any more.

    Examples
    --------
    Two requests at once that only compute take twice as long, but for a service and a processor
    for each:

    >>> plans = [[Demand(1.0, 0.0)], [Demand(1.0, 0.0)]]
    >>> simulate_users(plans, think_s=0)
    [2.0, 2.0]
    >>> simulate_users(plans, think_s=0, n_services=2, n_processors=2)
    [1.0, 1.0]
    """
    if not think_s >= 0:
        raise UserError(f"think_s: {think_s}; allowed: at least 0")
    users = _Users(plans, think_s, until_s, n_services, n_processors)
    return users.run(starts_s or [0.0] * len(plans))


class _Users:
    """What changes from event to event."""

    def __init__(
        self,
        plans: Sequence[Iterable[Demand]],
        think_s: float,
        until_s: float,
        n_services: int,
        n_processors: int,
    ) -> None:
        self.plans, self.think_s, self.until_s = [iter(one) for one in plans], think_s, until_s
        self.n_services, self.n_processors = n_services, n_processors
        self.now_s = 0.0
        self.asked_s = [0.0] * len(plans)
        self.asking: dict[int, Demand] = {}
        self.n_left: dict[int, int] = {}  # waits of each user's request that have not ended
        self.left_s: dict[int, float] = {}  # processor seconds of each user that computes
        self.beside = set[int]()  # of these, users who need no interpreter
        self.waiting: list[tuple[float, int]] = []
        self.latencies: list[float] = []

    def run(self, starts_s: Sequence[float]) -> list[float]:
        for user, start_s in enumerate(starts_s):
            self.ask(user, start_s)
        while self.waiting or self.left_s:
            self.step()
        return self.latencies

    def ask(self, user: int, at_s: float) -> None:
        demand = next(self.plans[user], None) if at_s < self.until_s else None
        if demand is not None:
            self.asked_s[user], self.asking[user] = at_s, demand
            self.n_left[user] = demand.n_waits
            self.wait(user, at_s)

    def wait(self, user: int, from_s: float) -> None:
        demand = self.asking[user]
        self.n_left[user] -= 1
        heapq.heappush(self.waiting, (from_s + demand.wait_s / demand.n_waits, user))

    def step(self) -> None:
        """Go to the next arrival at a processor, or the next end of computing."""
        lines = {
            user: -1 - user if user in self.beside else user % self.n_services
            for user in self.left_s
        }
        at_work = Counter(lines.values())
        whole = min(1.0, self.n_processors / max(1, len(at_work)))
        shares = {user: whole / at_work[line] for user, line in lines.items()}
        until_done, first = min(
            ((left / shares[user], user) for user, left in self.left_s.items()),
            default=(math.inf, -1),
        )
        until_arrival = self.waiting[0][0] - self.now_s if self.waiting else math.inf
        seconds = max(0.0, min(until_done, until_arrival))
        self.now_s += seconds
        self.left_s = {user: left - seconds * shares[user] for user, left in self.left_s.items()}
        if until_done <= until_arrival:
            self.end(first)
        else:
            _, user = heapq.heappop(self.waiting)
            self.left_s[user] = self.asking[user].cpu_s / self.asking[user].n_waits

    def end(self, user: int) -> None:
        """Wait again, go on outside the interpreter, or answer and let the user think and ask again."""
        del self.left_s[user]
        if self.n_left[user]:
            self.wait(user, self.now_s)
            return
        if user not in self.beside and self.asking[user].beside_s:
            self.beside.add(user)
            self.left_s[user] = self.asking[user].beside_s
            return
        self.beside.discard(user)
        self.latencies.append(self.now_s - self.asked_s[user])
        self.ask(user, self.now_s + self.think_s)


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


KEEPS_CHUNKS = ("filecache", "filecache-v3", "cachestore-v3", "lru-chunks")
"""Contenders that make their tiles from chunks that they keep."""

_KEPT = ("lru", "redis", "diskcache")
"""Contenders that open nothing for a tile that is warm, the first that was measured."""

_N_DRAWS = 100  # loads that a median is predicted from
_N_TAIL_DRAWS = 40  # and a 95th percentile of requests alone

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Isolated:
    """What requests to one dataset cost while they were alone, with one cache."""

    open_s: Floats  # seconds that opening and the rest took, request by request
    make_s: Floats
    cpu_s: float  # mean of their processor seconds, which add up where requests queue
    n_waits: int = 1  # for the store, one for each request to it
    beside_s: float = 0.0  # of these, reprojection: it holds no interpreter

    def draw(self, rng: np.random.Generator) -> Demand:
        """Draw an opening and a making, each from what was measured."""
        seconds = float(rng.choice(self.open_s) + rng.choice(self.make_s))
        wait_s = max(0.0, seconds - self.cpu_s)
        return Demand(self.cpu_s - self.beside_s, wait_s, self.n_waits, self.beside_s)


def isolate(rows: pd.DataFrame) -> dict[str, dict[str, Isolated]]:
    """Split requests that were alone into opening and making, by contender and dataset.

    Opening is each contender's own. Making is the same work for all but
    those that keep chunks, so theirs is put together: many times the sample. So is the processor
    time of those that open nothing, for their requests are the same work.
    """
    each = list_requests(rows, "calibration")
    made = each[~each["contender"].isin(KEEPS_CHUNKS)].groupby("dataset")["make_s"]
    shared = {str(name): part for name, part in made}
    means = each.assign(warp_s=each.get("warp_s", 0.0)).groupby("dataset")["warp_s"].mean()
    warp_s = {str(name): float(seconds) for name, seconds in means.items()}
    means = each[each["contender"].isin(_KEPT)].groupby("dataset")["cpu_s"].mean()
    kept_s = {str(name): float(seconds) for name, seconds in means.items()}
    sums = read_numbers(rows, "calibration").groupby("contender")[["n_requests", "n_tiles"]].sum()
    n_waits = (sums["n_requests"] / sums["n_tiles"]).round().clip(lower=1).to_dict()
    found: dict[str, dict[str, Isolated]] = {}
    for (contender, name), part in each.groupby(["contender", "dataset"]):
        is_own = contender in KEEPS_CHUNKS
        cpu_s = kept_s[str(name)] if contender in _KEPT else float(part["cpu_s"].mean())
        found.setdefault(str(contender), {})[str(name)] = Isolated(
            part["open_s"].to_numpy(),
            (part["make_s"] if is_own else shared[str(name)]).to_numpy(),
            cpu_s,
            int(n_waits[contender]),
            min(cpu_s, warp_s[str(name)]),
        )
    return found


def draw_demands(
    isolated: Mapping[str, Isolated], plan: Sequence[Sequence[Tile]], rng: np.random.Generator
) -> list[list[Demand]]:
    """Draw what each request of a plan costs alone; those that must fail are left out."""
    return [[isolated[tile[0]].draw(rng) for tile in user if tile[0] in isolated] for user in plan]


def _alone(drawn: Sequence[Sequence[Sequence[Demand]]]) -> list[float]:
    """List what each request takes without company."""
    return [
        one.cpu_s + one.beside_s + one.wait_s
        for demands in drawn
        for user in demands
        for one in user
    ]


def predict_latencies(
    rows: pd.DataFrame, plan: Sequence[Sequence[Tile]], *, think_s: float, seed: int
) -> pd.DataFrame:
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
    rng, n_processors = np.random.default_rng(seed), count_processors(rows)
    lines = []
    for name, isolated in isolate(rows).items():
        drawn = [draw_demands(isolated, plan, rng) for _ in range(_N_DRAWS)]
        loaded = [
            seconds
            for demands in drawn
            for seconds in simulate_users(demands, think_s=think_s, n_processors=n_processors)
        ]
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
    for name, isolated in isolate(rows).items():
        drawn = [draw_demands(isolated, workload.warm, rng) for _ in range(_N_TAIL_DRAWS)]
        alone_s[name] = _alone(drawn)
    kept: dict[Option, float] = {}
    for option, name in MEASURED_BY.items():
        if name in alone_s:
            late = late_share(price_option(assumptions, prices, option=option))
            kept[option] = float(np.percentile(alone_s[name], 100 * (1 - late)))
    return kept
