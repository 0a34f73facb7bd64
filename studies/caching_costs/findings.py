"""What a record of tiles says, as numbers and frames."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from helpers.benchmark import statistics
from helpers.benchmark.record import read_published
from helpers.benchmark.statistics import Interval
from helpers.plotting.tables import trace_of
from studies.caching_costs.datasets import published_specs
from wire.costs.bill import Assumptions, change_assumptions, compare_options, list_levers
from wire.costs.prices import get_prices

SHIPPED, BARE = "as-shipped", "none"
"""The contender that every other is compared with, and the one without a cache."""

_AXES = ["n_users", "rate_per_s"]


def select_loads(rows: pd.DataFrame) -> pd.DataFrame:
    """Spread the measured rows, the control among them, with load and trace in columns."""
    part = rows[rows["phase"] == "measured"]
    trace = trace_of(part).drop(columns=[*part], errors="ignore")
    points = pd.DataFrame([json.loads(text) for text in part["point"]], index=part.index)
    return pd.concat([part.drop(columns=_AXES, errors="ignore"), points[_AXES], trace], axis=1)


def list_requests(alone: pd.DataFrame) -> pd.DataFrame:
    """List the requests of the loads of one user, with ``make_s``, all of the latency but the opening."""
    numbers = alone.set_index(["contender", "block"])
    values = numbers[[name for name in map(str, numbers) if name.count("|") == 2]]
    values.columns = pd.MultiIndex.from_tuples(
        [tuple(name.split("|")) for name in values.columns], names=["dataset", None, "number"]
    )
    table = pd.DataFrame(
        values.stack(level=["dataset", "number"], future_stack=True).dropna(how="all").reset_index()
    )
    table["make_s"] = table["latency_s"] - table["open_s"]
    return table


def measure_opening(requests: pd.DataFrame) -> pd.DataFrame:
    """Split the time of a tile without a cache into opening and making, by dataset.

    Returns
    -------
    DataFrame
        Medians ``open_s`` and ``make_s``, and ``bound``, how many times as fast a cache of opened
        datasets can be at most (Amdahl).
    """
    bare = requests[requests["contender"] == BARE].groupby("dataset")[["open_s", "make_s"]]
    table = bare.median()
    table["bound"] = (table["open_s"] + table["make_s"]) / table["make_s"]
    return table.sort_values("bound")


def tabulate(loads: pd.DataFrame) -> pd.DataFrame:
    """Tabulate each contender at each load: medians over blocks, and what it gains, paired in blocks.

    Returns
    -------
    DataFrame
        ``load`` in words, ``contender``, ``over_none``, ``over_shipped``, ``typical_s``, ``p95_s``,
        ``p50_s``, ``requests_a_tile`` and ``tiles_per_s``.
    """
    part = loads.assign(requests_a_tile=loads["n_requests"] / loads["n_tiles"])
    part = part[part["contender"] != "control"]
    names = ["typical_s", "p95_s", "p50_s", "requests_a_tile", "tiles_per_s"]
    table = part.groupby([*_AXES, "contender"])[names].median()
    for name, base in (("over_shipped", SHIPPED), ("over_none", BARE)):
        gains = [
            measure_gain(part[(part[_AXES] == [*place]).all(axis=1)], str(contender), base).centre
            for *place, contender in table.index
        ]
        table.insert(0, name, gains)
    table = table.reset_index().sort_values([*_AXES, "typical_s"], ignore_index=True)
    places = zip(table.pop("n_users"), table.pop("rate_per_s"), strict=True)
    words = [f"{n} user{'s' * (n > 1)}" if n else f"{rate:g} arrivals/s" for n, rate in places]
    table.insert(0, "load", words)
    return table


def measure_gain(part: pd.DataFrame, name: str, base: str, *, value: str = "typical_s") -> Interval:
    """Compute how many times as fast one contender is as another, at one load, paired in blocks."""
    if name == base:
        return Interval(1.0, 1.0, 1.0, part["block"].nunique())
    return statistics.paired_ratio(part, base, name, value=value)


def measure_savings(alone: pd.DataFrame) -> pd.DataFrame:
    """Compute how many ``times`` as fast as without a cache each dataset is with each, for one user."""
    columns = [name for name in map(str, alone) if name.endswith("|latency_s")]
    lines = [
        (column.split("|")[0], name, measure_gain(alone, name, BARE, value=column).centre)
        for column in columns
        for name in alone["contender"].unique()
        if name not in (BARE, "control")
    ]
    return pd.DataFrame(lines, columns=["dataset", "contender", "times"])


def predict_versions(alone: pd.DataFrame) -> Interval:
    """Predict how many times as fast as no cache datasets by version in the process are.

    What a version costs is taken from Redis, with it and without, for each dataset in each block.
    Rows of that cache itself, where it was measured, have no part in it.
    """
    alone = alone[alone["contender"] != "lru-etag"]
    columns = [name for name in map(str, alone) if name.endswith("|latency_s")]
    sides = alone.set_index(["contender", "block"])[columns].dropna(axis=1)
    sums = sides.loc["lru"] + sides.loc["redis-etag"] - sides.loc["redis"]
    predicted = pd.DataFrame({"typical_s": np.exp(np.log(sums).mean(axis=1))}).reset_index()
    predicted = predicted.assign(contender="lru-etag", phase="measured", control_of="")
    return measure_gain(pd.concat([alone, predicted]), "lru-etag", BARE)


def count_processors(requests: pd.DataFrame) -> pd.DataFrame:
    """Count ``cpu_ms`` of a tile and their ``share`` of its time, by contender, as means over datasets."""
    means = requests.groupby("contender", sort=False)[["cpu_s", "latency_s"]].mean()
    share = means["cpu_s"] / means["latency_s"]
    return pd.DataFrame({"cpu_ms": 1000 * means["cpu_s"], "share": share})


def published_savings() -> pd.Series[float]:
    """Read what Redis gained in the published study over no cache, by our name of the dataset."""
    wide = read_published("tile_caching_locust").pivot(
        index="dataset", columns="environment", values="p50_ms"
    )
    names = {published: spec.name for published, spec in published_specs().items()}
    gains = (wide["dev"] / wide["feature3"]).rename(index=names)
    return gains.rename("published")


def learn_assumptions(alone: pd.DataFrame, entry_nbytes: float, *, but: str = "") -> Assumptions:
    """Put what tiles of one user took in the place of defaults: means over datasets, not rounded.

    A bill follows from whole digits: of rounded ones single blocks have the same, and an interval
    ends at its own centre. `entry_nbytes` are the bytes of an opened dataset, and `but` is a dataset whose time does not
    count. What a cache of datasets in the process leaves stands for a tile where nothing is opened.
    """
    requests = list_requests(alone).query("dataset != @but")
    means = requests.groupby("contender")[["make_s", "open_s", "cpu_s"]].mean()
    numbers = alone.groupby("contender")[["n_requests", "n_tiles", "tile_nbytes", "peak_nbytes"]]
    medians = numbers.median()
    gets = medians["n_requests"] / medians["n_tiles"]
    cache = "lru" if "lru" in gets else SHIPPED
    learned: dict[str, float] = {
        "service_gb": float(medians["peak_nbytes"][BARE]) / 1e9,
        "tile_nbytes": float(medians["tile_nbytes"][BARE]),
        "metadata_nbytes": entry_nbytes,
        "make_s": means["make_s"][BARE],
        "open_s": means["open_s"][BARE],
        "make_cpu_s": means["cpu_s"][cache],
        "open_cpu_s": max(0.0, means["cpu_s"][BARE] - means["cpu_s"][cache]),
        "tile_gets": gets[cache],
        "open_gets": max(0.0, gets[BARE] - gets[cache]),
    }
    if "redis" in means.index:
        learned["fetch_s"] = means["open_s"]["redis"]
    return change_assumptions(Assumptions(), learned)


def price_month(alone: pd.DataFrame, entry_nbytes: float, *, but: str = "") -> pd.DataFrame:
    """Price a month (USD) by what `learn_assumptions` takes: ways of billing by places of a cache."""
    levers = list_levers(learn_assumptions(alone, entry_nbytes, but=but))
    bills = {
        name: compare_options(assumptions, get_prices()) for name, assumptions in levers.items()
    }
    return pd.DataFrame(bills).map(lambda bill: bill.usd).T
