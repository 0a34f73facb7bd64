"""What a record of tiles says, as numbers and frames, and what of it answers the published claims."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pandas as pd

from advisors.costs.assumptions import Assumptions, change
from advisors.costs.bill import count_redis_nodes, price_option
from advisors.costs.page_tables import compare_published as compare_costs
from advisors.costs.prices import get_prices
from helpers.benchmark import statistics
from helpers.benchmark.record import read_published
from helpers.benchmark.statistics import Interval
from helpers.book import findings, published
from helpers.paths import ROOT
from helpers.plotting.tables import trace_of
from studies.caching_costs.datasets import published_specs

BASELINE = "none"
"""The contender that every other is compared with."""

KEEPS_CHUNKS = ("lru-chunks",)
_PUBLISHED = {
    "netcdf": "pr_day_ACCESS-CM2_historical_r1i1p1f1_gn_1950.nc",
    "references": "aws-noaa-oisst-feedstock_reference",
}
_AXES = ["n_users", "rate_per_s", "n_workers"]


def _spread(rows: pd.DataFrame, phase: str, *, is_swept: bool) -> pd.DataFrame:
    """Choose the rows of a phase, of blocks or of a sweep, with the trace in columns."""
    chosen = (rows["phase"] == phase) & (rows["point"].str.contains("n_workers") == is_swept)
    part = rows[chosen]
    trace = trace_of(part).drop(columns=[*part], errors="ignore")
    return pd.concat([part, trace], axis=1)


def select_loads(rows: pd.DataFrame) -> pd.DataFrame:
    """Choose the measured loads, the control among them; `p50_s` and `p95_s` are what is judged."""
    return _spread(rows, "measured", is_swept=False)


def list_requests(rows: pd.DataFrame, phase: str) -> pd.DataFrame:
    """List the requests of a phase, those of a sweep left out, one by one.

    Returns
    -------
    DataFrame
        ``contender``, ``block``, ``dataset``, ``number``, ``latency_s``, and of requests that were
        alone ``open_s``, ``warp_s``, ``cpu_s`` and ``make_s``, all but the opening.
    """
    numbers = _spread(rows, phase, is_swept=False).set_index(["contender", "block"])
    each = numbers[[name for name in map(str, numbers) if name.count("|") == 2]]
    each.columns = pd.MultiIndex.from_tuples(
        [tuple(name.split("|")) for name in each.columns], names=["dataset", None, "number"]
    )
    table = pd.DataFrame(
        each.stack(level=["dataset", "number"], future_stack=True).dropna(how="all").reset_index()
    )
    if "open_s" in table:
        table["make_s"] = table["latency_s"] - table["open_s"]
    return table


def measure_opening(alone: pd.DataFrame) -> pd.DataFrame:
    """Split the time of one request alone, without a cache, into opening and making.

    Parameters
    ----------
    alone : DataFrame
        Of `list_requests`.

    Returns
    -------
    DataFrame
        By dataset: ``open_s``, ``make_s``, of that ``warp_s``, the reprojection, and ``bound``, how
        many times as fast a cache of opened datasets can be at most (Amdahl).
    """
    opened = alone[alone["contender"] == BASELINE].groupby("dataset")["open_s"].median()
    made = alone[~alone["contender"].isin(KEEPS_CHUNKS)].groupby("dataset")[["make_s", "warp_s"]]
    table = made.median().assign(open_s=opened)
    table["bound"] = (table["open_s"] + table["make_s"]) / table["make_s"]
    return table[["open_s", "make_s", "warp_s", "bound"]].sort_values("bound")


def tabulate(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the warm phase of the blocks: percentiles of all requests, and medians of the rest."""
    latency_s = list_requests(rows, "measured").groupby("contender")["latency_s"]
    table = pd.DataFrame({f"p{q}_s": latency_s.quantile(q / 100) for q in (50, 95, 99)})
    loads = select_loads(rows)
    loads["hit_ratio"] = loads["hits"] / (loads["hits"] + loads["misses"])
    loads["requests_a_tile"] = loads["n_requests"] / loads["n_tiles"]
    loads["failed"] = loads["n_failures"] + loads["cold n_failures"]
    medians = loads.groupby("contender")[["tiles_per_s", "hit_ratio", "requests_a_tile"]].median()
    failed = loads.groupby("contender")["failed"].sum()
    return table.join(medians).join(failed.astype(int)).sort_values("p50_s")


def measure_savings(rows: pd.DataFrame) -> pd.DataFrame:
    """Compute how many times as fast each dataset is with each cache, under load.

    Returns
    -------
    DataFrame
        ``dataset``, ``contender`` and ``times``: median latency without a cache over that with it.
    """
    loads = select_loads(rows)
    columns = [name for name in map(str, loads) if name.endswith("|latency_s")]
    medians = loads.groupby("contender")[columns].median()
    times = medians.rdiv(medians.loc[BASELINE], axis=1).drop(index=[BASELINE, "control"])
    times.columns = [name.split("|")[0] for name in times.columns]
    return times.reset_index().melt("contender", var_name="dataset", value_name="times").dropna()


def compare_published(savings: pd.DataFrame) -> pd.DataFrame:
    """Put the published saving of Redis next to ours, as ratios to no cache, by dataset."""
    wide = read_published("tile_caching_locust").pivot(
        index="dataset", columns="environment", values="p50_ms"
    )
    published = wide["dev"] / wide["feature3"]
    names = {name: found[0] for name, found in published_specs().items()} | _PUBLISHED
    ours = savings[savings["contender"] == "redis"].assign(
        published=lambda one: one["dataset"].map(names).map(published)
    )
    return ours.dropna().set_index("dataset")[["published", "times"]]


def tabulate_sweep(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the loads of a sweep: medians over blocks, and the gain over no cache, paired in blocks.

    Returns
    -------
    DataFrame
        ``contender``, `n_users`, `rate_per_s`, `n_workers`, ``n_tiles``, ``n_failures``,
        ``tiles_per_s``, ``p50_s``, ``p95_s``, and ``gain`` with ``gain_low`` and ``gain_high``.
    """
    part = _spread(rows, "measured", is_swept=True)
    points = [json.loads(text) for text in part["point"]]
    part[_AXES] = pd.DataFrame(points, index=part.index, columns=_AXES)
    names = ["n_tiles", "n_failures", "tiles_per_s", "p50_s", "p95_s"]
    part = part.reindex(columns=[*part, *({*names} - {*part})])  # without a sweep there are none
    table = part.groupby(["contender", *_AXES])[names].median().reset_index()
    gains = []
    for line in table.itertuples():
        at = part[(part[_AXES] == [getattr(line, axis) for axis in _AXES]).all(axis=1)]
        other = str(line.contender)
        one = other != BASELINE and statistics.paired_ratio(at, BASELINE, other, value="p50_s")
        gains.append((one.centre, one.low, one.high) if one else (1.0, 1.0, 1.0))
    return table.join(pd.DataFrame(gains, columns=["gain", "gain_low", "gain_high"]))


def arrange_sweep(table: pd.DataFrame) -> pd.DataFrame:
    """Repeat each load of `tabulate_sweep` for each x-axis it stands on: ``axis``, and ``at`` on it."""
    is_alone = table["n_workers"] == 1
    most = table["n_users"] == table.loc[~is_alone, "n_users"].max()
    chosen = {
        "users": (is_alone & (table["n_users"] > 0), "n_users"),
        "tiles/s": (table["rate_per_s"] > 0, "rate_per_s"),
        "services": (most, "n_workers"),
    }
    parts = [
        table[is_here].assign(axis=axis, at=table.loc[is_here, place])
        for axis, (is_here, place) in chosen.items()
    ]
    return pd.DataFrame(pd.concat(parts))


def learn_assumptions(rows: pd.DataFrame, entry_nbytes: pd.Series[int]) -> Assumptions:
    """Put what requests alone took, to two digits, in the place of defaults.

    Means over datasets are weighted as users mix them.

    `entry_nbytes` are the bytes of each opened dataset. The cache in the process stands for what
    is left where nothing is opened; without it in the record that remains the default.
    """
    alone = list_requests(rows, "calibration")
    asked = list_requests(rows, "measured")
    weights = asked[asked["contender"] == BASELINE]["dataset"].value_counts(normalize=True)

    def mean(contender: str, column: str) -> float:
        of_each = alone[alone["contender"] == contender].groupby("dataset")[column].mean()
        return float((of_each * weights).sum() / weights[of_each.index.intersection(weights.index)].sum())  # fmt: skip

    numbers = _spread(rows, "calibration", is_swept=False).groupby("contender")
    gets = (numbers["n_requests"].median() / numbers["n_tiles"].median()).to_dict()
    held = _spread(rows, "measured", is_swept=False)["peak_nbytes"].max()
    found: dict[str, float] = {
        "service_gb": float(held) / 1e9,
        "tile_nbytes": float(numbers["tile_nbytes"].median()[BASELINE]),
        "make_s": mean(BASELINE, "make_s"),
        "open_s": mean(BASELINE, "open_s"),
        "metadata_nbytes": float((entry_nbytes * weights).sum() / weights[entry_nbytes.index].sum()),
    }  # fmt: skip
    if "lru" in gets:
        found |= {
            "make_cpu_s": mean("lru", "cpu_s"),
            "open_cpu_s": max(0.0, mean(BASELINE, "cpu_s") - mean("lru", "cpu_s")),
            "tile_gets": gets["lru"],
            "open_gets": max(0.0, gets[BASELINE] - gets["lru"]),
        }
    if "redis" in gets:
        found["fetch_s"] = mean("redis", "open_s")
    return change(Assumptions(), {name: float(f"{value:.2g}") for name, value in found.items()})


_REFERENCE = ROOT / "results" / "reference" / "caching-costs"


def answer_claims() -> dict[str, Mapping[str, published.Answer]]:
    """Answer each claim of the study that is decided here, with its interval."""

    def measured(case: str, key: str) -> Interval:
        one = findings.read_findings(_REFERENCE / f"{case}.csv")[key]
        return Interval(one.value, one.low, one.high, one.n)

    table = compare_costs()
    half_a_second = {"billing": "function", "memory_gb": 10.0, "make_s": 0.35, "open_s": 0.15}
    computing = price_option(
        change(Assumptions(), half_a_second), get_prices("published-2023"), option="none"
    ).lines["computing"]
    entry_nbytes = 1e6 * measured("published-size", "entry-mb").centre
    nodes = {"of the published size": 5e5, "of the size measured here": entry_nbytes}
    return {
        "cost-model": {
            "by its rules": published.exact((table["published"] - table["by_its_rules"]).abs().max())
        },
        "computing-cost": {"by Little's law": published.exact(computing)},
        "redis-node": {
            name: published.exact(count_redis_nodes(Assumptions(metadata_nbytes=nbytes)))
            for name, nbytes in nodes.items()
        },
        "opening-counts": {"in-region": measured("in-region", "opening-share")},
        "metadata-size": {"published-size, an entry": published.exact(entry_nbytes / 1e6)},
        "chunk-slows-tile": {"published-size": measured("published-size", "large-chunk")},
    }  # fmt: skip
