"""What the measured service costs in a month: measured assumptions, and what the model says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
import pandas as pd

from advisors.costs.assumptions import Assumptions, Option, change
from advisors.costs.bill import (
    SECONDS_PER_MONTH,
    break_even_rates,
    compare_options,
    equal_tail,
)
from advisors.costs.calculator import compare_published, tell_verdict
from advisors.costs.prices import get_prices
from helpers.plotting.tables import digits
from studies.caching_costs import origins
from studies.caching_costs.datasets import Datasets, open_map_dataset
from studies.caching_costs.origins import Origin
from studies.caching_costs.prediction import (
    BASELINE,
    draw_demands,
    isolate,
    list_requests,
    read_numbers,
)
from studies.caching_costs.workload import Workload

MEASURED_BY: Mapping[Option, str] = {
    "none": "none",
    "disk": "diskcache",
    "shared": "filecache",
    "redis": "redis",
    "cdn": "none",
}
"""The contender that stands for each option of the model; a CDN stands before no cache."""

_N_DRAWS = 40


def measure_entries(maps: Datasets) -> dict[str, int]:
    """Count the bytes of each opened map as a cache outside the process keeps it.

    Parameters
    ----------
    maps : Maps
        Maps, seen without the network.

    Returns
    -------
    dict of str to int
        By map; those that cannot be opened are left out.
    """
    origin = Origin(maps.location)
    whole = [spec for spec in maps.specs if spec.is_whole]
    return {spec.name: len(origins.dump(open_map_dataset(spec, origin))) for spec in whole}


def learn_assumptions(
    rows: pd.DataFrame, workload: Workload, *, entry_nbytes: Mapping[str, int]
) -> Assumptions:
    """Put what was measured in isolation in the place of the model's defaults.

    Means over maps, weighted as users ask for them: an invocation is billed
    for what it takes, and serves one request at a time. What no contender
    of the case measured stays as it is.

    Parameters
    ----------
    rows : DataFrame
        A record with a calibration.
    workload : Workload
        Whose warm phase gives the weights.
    entry_nbytes : mapping of str to int
        Bytes of each opened map.

    Returns
    -------
    Assumptions
        Load and popularity are the published study's, and the rest of the service measured.
    """
    names = [tile[0] for user in workload.warm for tile in user if tile[0] in entry_nbytes]
    each = list_requests(rows, "calibration").groupby(["contender", "map"])
    means = each[["open_s", "make_s"]].mean()
    measured = set(means.index.get_level_values("contender"))

    def mean(contender: str, column: str) -> float:
        return float(means.loc[contender].loc[names, column].mean())

    changes = {
        "make_s": mean(BASELINE, "make_s"),
        "open_s": mean(BASELINE, "open_s"),
        "metadata_nbytes": float(np.mean([entry_nbytes[name] for name in names])),
        **{
            f"{option}_fetch_s": mean(name, "open_s")
            for option, name in MEASURED_BY.items()
            if name in measured - {BASELINE}
        },
        **_learn_requests(rows, measured),
    }
    return change(Assumptions(), changes)


def _learn_requests(rows: pd.DataFrame, measured: set[str]) -> dict[str, float]:
    """Split the requests to the store of a tile into those to open and those for its chunks."""
    kept = next((name for name in ("lru", "redis", "diskcache") if name in measured), None)
    if kept is None:
        return {}
    numbers = read_numbers(rows, "calibration").groupby("contender").median(numeric_only=True)
    gets = numbers["n_requests"] / numbers["n_tiles"]
    read = rows[rows["phase"] == "calibration"].groupby("contender")["wire_nbytes"].median()
    return {
        "open_gets": max(0.0, float(gets[BASELINE] - gets[kept])),
        "tile_gets": float(gets[kept]),
        "tile_read_nbytes": float(read[kept] / numbers["n_tiles"][kept]),
    }


def tabulate_assumptions(assumptions: Assumptions) -> pd.DataFrame:
    """Tabulate what was measured beside the default that it replaces."""
    before, after = asdict(Assumptions()), asdict(assumptions)
    changed = {name: (before[name], after[name]) for name in after if before[name] != after[name]}
    table = pd.DataFrame.from_dict(changed, orient="index", columns=["default", "measured"])
    return table.map(lambda value: float(f"{value:.3g}")).rename_axis("assumption")


def tabulate_costs(assumptions: Assumptions, prices: Mapping[str, float]) -> pd.DataFrame:
    """Tabulate a month of each option, and at which rates it costs less than no cache."""
    priced = compare_options(assumptions, prices)
    millions = assumptions.requests_per_s * SECONDS_PER_MONTH / 1e6
    lines = {
        option: {
            "USD a month": float(f"{cost.usd:.3g}"),
            "USD a million tiles": round(cost.usd / millions, 3),
            "hit ratio": round(max(cost.hit_ratio, cost.edge_hit_ratio), 3),
            "mean time (s)": round(cost.duration_s, 3),
            "busy at the peak": round(cost.busy, 1),
            "store requests saved": f"{priced['none'].store_gets - cost.store_gets:.3g}",
            "cheaper than none (tiles/s)": _tell_rates(assumptions, prices, option=option),
        }
        for option, cost in priced.items()
    }
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis("option")


def _tell_rates(assumptions: Assumptions, prices: Mapping[str, float], *, option: Option) -> str:
    """Say at which rates an option costs less than no cache."""
    if option == "none":
        return ""
    found = break_even_rates(assumptions, prices, pair=("none", option))
    if not found:
        costs = compare_options(assumptions, prices)
        return "every rate" if costs[option].usd < costs["none"].usd else "no rate"
    return ", ".join(
        f"{'above' if winner == option else 'below'} {rate:.2g}" for rate, winner in found
    )


def tabulate_equal_tail(
    rows: pd.DataFrame,
    workload: Workload,
    assumptions: Assumptions,
    *,
    prices: Mapping[str, float],
    seed: int,
) -> pd.DataFrame:
    """Price a million tiles where every option keeps the 95th percentile of no cache.

    The percentile without waiting comes from requests that were alone, mixed
    as users ask for them; the target leaves a tenth above that of the slowest
    option for waiting.

    Returns
    -------
    DataFrame
        By option: the percentiles, the instances and USD a million tiles.
    """
    rng = np.random.default_rng(seed)
    p95_s: dict[str, float] = {}
    for name, isolated in isolate(rows).items():
        drawn = [draw_demands(isolated, workload.warm, rng) for _ in range(_N_DRAWS)]
        alone = [one.cpu_s + one.wait_s for demands in drawn for user in demands for one in user]
        p95_s[name] = float(np.percentile(alone, 95))
    tails = {one: p95_s[name] for one, name in MEASURED_BY.items() if name in p95_s}
    target_s = 1.1 * max(tails.values())
    found = equal_tail(assumptions, prices, p95_s=tails, target_s=target_s)
    lines = {
        one.option: {
            "p95 alone (s)": tails[one.option],
            "p95 kept (s)": target_s,
            "p95 reached (s)": one.p95_s,
            "instances": one.n_instances,
            "USD a million tiles": one.usd_per_million,
        }
        for one in found
    }
    return pd.DataFrame.from_dict(lines, orient="index").round(3).rename_axis("option")


def tabulate_published() -> pd.DataFrame:
    """Put the published figures beside those of their own rules and prices."""
    table = pd.DataFrame(compare_published(get_prices("published-2023")))
    return table.set_index("item").assign(
        difference_usd=lambda one: (one["ours_usd"] - one["published_usd"]).round(2)
    )


def find_costs(
    assumptions: Assumptions, prices: Mapping[str, float], hit_ratios: pd.DataFrame
) -> dict[str, str]:
    """Put what the model says into words, by the key under which pages quote them."""
    worst = hit_ratios["error"].abs().groupby(hit_ratios["datasets"]).max()
    priced = compare_options(assumptions, prices)
    verdict = tell_verdict(assumptions, prices)
    none_usd = float(f"{priced['none'].usd:.3g}")
    return {
        "verdict-cost": verdict,
        "none-cost": f"{none_usd:,.0f} USD a month",
        "cost-rate": f"{assumptions.requests_per_s:g} tiles a second",
        "hit-ratio-error": f"{digits(100 * worst[worst.index.max()])} percentage points",
        "hit-ratio-error-few": f"{digits(100 * worst[worst.index.min()])} percentage points",
    }
