"""What the record of loads says, and what it costs in a month: tables, and sentences to quote."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from advisors.costs.assumptions import Assumptions
from advisors.costs.bill import (
    SECONDS_PER_MONTH,
    break_even_rates,
    compare_options,
    price_option,
)
from advisors.costs.calculator import tell_levers, tell_rates, tell_verdict, write_usd
from helpers.benchmark import ranking as rankings
from helpers.benchmark import statistics
from helpers.benchmark.record import read_published
from helpers.netem.profiles import Profile
from helpers.plotting import tables
from helpers.plotting.tables import describe_profile, digits
from studies.caching_costs.datasets import published_specs
from studies.caching_costs.load import MAX_GENERATOR_SHARE
from studies.caching_costs.prediction import (
    BASELINE,
    KEEPS_CHUNKS,
    MEASURED_BY,
    SHIPPED,
    is_of_sweep,
    list_requests,
    read_numbers,
)

Judged = Mapping[str, statistics.Comparison]
"""Each cache against none."""

TOLERANCE = 0.15
"""Target of the relative error of a predicted median."""

_PUBLISHED = {
    "consolidated": "power_901_monthly_meteorology_utc.zarr",
    "netcdf": "pr_day_ACCESS-CM2_historical_r1i1p1f1_gn_1950.nc",
    "references": "aws-noaa-oisst-feedstock_reference",
    "broken": "GLDAS_NOAH025_3H.A20230731.2100.021.nc4",
}
_PUBLISHED_CACHES = {"feature2": "filecache", "feature3": "redis"}


def measure_opening(rows: pd.DataFrame) -> pd.DataFrame:
    """Split the time of one request alone, without a cache, into opening and making.

    Returns
    -------
    DataFrame
        By dataset: ``open_s``, ``make_s``, of that ``warp_s``, the reprojection, which no cache
        saves, and ``bound``, the most that any cache of opened datasets can speed the request up
        (Amdahl).
    """
    each = list_requests(rows, "calibration")
    opened = each[each["contender"] == BASELINE].groupby("dataset")["open_s"].median()
    made = each[~each["contender"].isin(KEEPS_CHUNKS)].groupby("dataset")["make_s"].median()
    table = pd.DataFrame({"open_s": opened, "make_s": made, "bound": (opened + made) / made})
    if "warp_s" in each:  # not in older records
        table["warp_s"] = each.groupby("dataset")["warp_s"].median()
    return table.sort_values("bound")


def measure_savings(rows: pd.DataFrame) -> pd.DataFrame:
    """Compute how much faster each dataset is with each cache, under load.

    Returns
    -------
    DataFrame
        A line a dataset, a column a contender: latency without over with it.
    """
    numbers = read_numbers(rows, "measured")
    columns = [n for n in map(str, numbers) if n.endswith("|latency_s")]
    medians = numbers.groupby("contender")[columns].median()
    wide = medians.rename(columns=lambda name: name.split("|")[0]).T.sort_index()
    return wide.rdiv(wide[BASELINE], axis=0).drop(columns=[BASELINE, "control"], errors="ignore")


def tabulate(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the warm phase: percentiles of all requests, and medians over blocks of the rest."""
    latency_s = list_requests(rows, "measured").groupby("contender")["latency_s"]
    percentiles = {f"p{q} (s)": latency_s.quantile(q / 100) for q in (50, 90, 95, 99)}
    numbers = read_numbers(rows, "measured")
    numbers["hit ratio"] = numbers["hits"] / (numbers["hits"] + numbers["misses"])
    numbers["store requests a tile"] = numbers["n_requests"] / numbers["n_tiles"]
    columns = {
        "tiles_per_s": "tiles/s",
        "hit ratio": "hit ratio",
        "store requests a tile": "store requests a tile",
        "cold p50_s": "cold p50 (s)",
        "generator_share": "generator (cores)",
    }
    medians = numbers.groupby("contender")[list(columns)].median().rename(columns=columns)
    table = pd.DataFrame(percentiles).join(medians)
    return table.sort_values("p50 (s)").map(lambda value: float(f"{value:.3g}"))


def tabulate_failures(rows: pd.DataFrame) -> pd.DataFrame:
    """Count requests and failures of all measured blocks, cold and warm, and recoveries."""
    numbers = read_numbers(rows, "measured")
    table = numbers.groupby("contender")[
        ["n_tiles", "n_failures", "cold n_failures", "n_expected_failures", "errors", "corrupt"]
    ].sum()
    return table.astype(int).rename(
        columns={
            "n_tiles": "requests",
            "n_failures": "failed",
            "cold n_failures": "failed cold",
            "n_expected_failures": "failed as they must",
            "errors": "recovered errors",
            "corrupt": "refused entries",
        }
    )


def select_loads(rows: pd.DataFrame) -> pd.DataFrame:
    """Choose the measured loads, the control among them; `p50_s` and `p95_s` are what is judged."""
    part = rows[(rows["phase"] == "measured") & ~is_of_sweep(rows)]
    trace = tables.trace_of(part)
    return part.assign(p50_s=trace["p50_s"], p95_s=trace["p95_s"])


def read_peak(rows: pd.DataFrame) -> float:
    """Read the most memory (bytes) that a service held in any measured load; NaN if no row tells it."""
    numbers = read_numbers(rows, "measured")
    return float(numbers.get("peak_nbytes", pd.Series(dtype=float)).max())


def compare_published(rows: pd.DataFrame) -> pd.DataFrame:
    """Put the published saving of each dataset beside ours, as ratios to no cache.

    Returns
    -------
    DataFrame
        ``dataset``, ``contender``, ``published`` and ``ours``: median latency
        without a cache over that with it; datasets that the study read and we did.
    """
    table = read_published("tile_caching_locust")
    wide: Any = table.pivot(index="dataset", columns="environment", values="p50_ms")
    names = {name: found[0] for name, found in published_specs().items()} | _PUBLISHED
    ours: Any = measure_savings(rows)
    lines = [
        (name, cache, wide.loc[names[name], "dev"] / wide.loc[names[name], column], line[cache])
        for name, line in ours.iterrows()
        for column, cache in _PUBLISHED_CACHES.items()
        if name in names and cache in ours
    ]
    return pd.DataFrame(lines, columns=["dataset", "contender", "published", "ours"])


_NAMES = {
    "none": "no cache",
    "lru": "a cache in the process (lru)",
    "diskcache": "a cache on disk (diskcache)",
    "filecache": "fsspec's file cache",
    "redis": "Redis",
    "as-shipped": "titiler.xarray as it ships",
    "none-v3": "no cache, told the Zarr format",
    "filecache-v3": "fsspec's file cache, told the Zarr format",
    "cachestore-v3": "zarr's CacheStore, told the Zarr format",
    "lru-etag": "a cache in the process by ETag (lru-etag)",
    "redis-etag": "Redis by ETag (redis-etag)",
    "lru-chunks": "a cache in the process that keeps chunks too (lru-chunks)",
}


def find_all(
    rows: pd.DataFrame,
    opening: pd.DataFrame,
    errors: pd.DataFrame,
    *,
    judged: Judged,
    shipped: Judged,
    ranking: rankings.Ranking,
    tails: rankings.Ranking,
    growth_nbytes: float,
    profile: Profile,
) -> dict[str, str]:
    """Put the findings of a case into words, by the key under which pages quote them.

    Each cache is judged against none, and in `shipped` against titiler as it ships; which is the
    fastest, or among them, is the word of `ranking` for medians and of `tails` for 95th percentiles.
    `growth_nbytes` is what titiler keeps of each dataset.
    What is said of the best is said of the cache with the shortest median.
    """
    table: Any = tabulate(rows)
    failures = tabulate_failures(rows)
    shortest = min(judged, key=lambda name: judged[name].ratio.centre)
    best = ranking.best if ranking.best in judged else shortest
    of_none = errors[errors["contender"] == BASELINE]
    measured = rows[rows["phase"] == "measured"]
    share = opening["open_s"] / (opening["open_s"] + opening["make_s"])
    warp_s = opening["warp_s"] if "warp_s" in opening else share * np.nan
    return {
        "profile": describe_profile(profile),
        "verdict-cache": tell_choice(table, judged),
        "verdict-shipped": tell_shipped(table, shipped),
        "shipped-growth": f"{digits(growth_nbytes / 1e6)} MB"
        if growth_nbytes > 0
        else "less than is seen",
        "best-cache-p95": tails.tell(_NAMES),
        "verdict-prediction": tell_errors(errors),
        "verdict-generator": tell_generator(table["generator (cores)"].max()),
        "best-cache": ranking.tell(_NAMES),
        "best-throughput": f"{digits(table.loc[best, 'tiles/s'])} tiles/s",
        "best-saving": digits(1 / judged[best].ratio.centre),
        "best-p50": f"{digits(1000 * table.loc[best, 'p50 (s)'])} ms",
        "none-p50": f"{digits(1000 * table.loc[BASELINE, 'p50 (s)'])} ms",
        "opening-share": f"{digits(100 * share.median())} %",
        "amdahl-bound": digits(opening["bound"].median()),
        "warp-share": percent(float((warp_s / (opening["open_s"] + opening["make_s"])).median())),
        "failed-requests": str(int(failures[["failed", "failed cold"]].to_numpy().sum())),
        "worst-prediction-error": percent(_of_caches(errors)["relative_error"].abs().max()),
        "worst-p95-error": percent(float(_of_caches(errors)["p95_error"].abs().max())),
        "none-prediction-error": percent(of_none["relative_error"].abs().max()),
        "generator-share": digits(table["generator (cores)"].max()),
        **tables.tell_measuring(measured, judged[best].noise),
    }


def tell_choice(table: pd.DataFrame, judged: Judged) -> str:
    """Say which caches make tiles come faster, and by how much."""
    p50_s: Any = table["p50 (s)"]
    text = f"Without a cache the median tile takes {digits(1000 * p50_s[BASELINE])} ms"
    words = {"faster": "faster", "slower": "slower", "indistinguishable": "within the noise"}
    parts = [
        f"{tell_contender(name)} {digits(1000 * p50_s[name])} ms ({words[one.verdict]})"
        for name, one in sorted(judged.items(), key=lambda item: item[1].ratio.centre)
    ]
    return f"{text}; with {', '.join(parts)}."


def tell_contender(name: str) -> str:
    """Call a contender in a sentence, where "none" would read as nobody."""
    told = {BASELINE: "no cache", "none-v3": "no cache told the format (none-v3)"}
    return told.get(name, name)


def tell_shipped(table: pd.DataFrame, shipped: Judged) -> str:
    """Say how what people run does, and which contenders are told apart from it, either way."""
    if not shipped:
        return "The service as it ships was not measured."
    p50_s: Any = table["p50 (s)"]
    text = f"As it ships, the service makes the median tile in {digits(1000 * p50_s[SHIPPED])} ms"
    parts = []
    for verdict in ("faster", "slower", "indistinguishable"):
        if names := [name for name, one in shipped.items() if one.verdict == verdict]:
            parts.append(f"{verdict}: {', '.join(map(tell_contender, names))}")
    return f"{text}; against it, {'; '.join(parts)}."


def tell_errors(errors: pd.DataFrame) -> str:
    """Say whether predicted medians of the caches are within the tolerance, and which are not."""
    cached = _of_caches(errors)
    missed = cached[cached["relative_error"].abs() > TOLERANCE]
    worst = percent(float(cached["relative_error"].abs().max()))
    if missed.empty:
        return f"Every predicted median with a cache is within {100 * TOLERANCE:g} % of the measured one; the worst is {worst} off."
    names = ", ".join(missed["contender"])
    return f"Predicted medians with a cache are up to {worst} off; beyond {100 * TOLERANCE:g} % are those of {names}."


def tell_generator(share: float) -> str:
    """Say what the load generator took of a core, and whether that was too much."""
    if share <= MAX_GENERATOR_SHARE:
        return f"The load generator took at most {digits(share)} of a core."
    return (
        f"The load generator took {digits(share)} of a core, more than half: it was measured too."
    )


def _of_caches(errors: pd.DataFrame) -> pd.DataFrame:
    return errors[~errors["contender"].isin([BASELINE, "none-v3", "control"])]


def percent(share: float) -> str:
    """Write a share, or that there is none."""
    return f"{digits(100 * share)} %" if np.isfinite(share) else "not measured"


def find_staleness(watched: pd.DataFrame) -> dict[str, str]:
    """Say which contenders serve what of rewritten datasets, by the key under which pages quote it."""
    kinds = watched.drop(columns="new data")
    wrong = watched.index[(kinds == "wrong picture").any(axis=1)]
    last = ", ".join(watched.index[watched["new data"] == "after a restart"])
    end = f"only a restart ends it for {last}" if last else "it ends when entries expire"
    return {
        "verdict-staleness": (
            f"Of datasets that are rewritten while they are kept, {', '.join(wrong) or 'no contender'}"
            f" served wrong pictures with status 200; {end}."
        )
    }


def tabulate_assumptions(assumptions: Assumptions) -> pd.DataFrame:
    """Tabulate what was measured beside the default that it replaces."""
    before, after = asdict(Assumptions()), asdict(assumptions)
    changed = {name: (before[name], after[name]) for name in after if before[name] != after[name]}
    table = pd.DataFrame.from_dict(changed, orient="index", columns=["default", "measured"])
    return table.map(lambda value: float(f"{value:.3g}")).rename_axis("assumption")


def tabulate_costs(
    assumptions: Assumptions, prices: Mapping[str, float], *, measured: Collection[str]
) -> pd.DataFrame:
    """Tabulate a month of each option, and at which rates it costs less than no cache.

    An option for which none of the `measured` contenders stands rests on defaults.
    """
    priced = compare_options(assumptions, prices)
    millions = assumptions.requests_per_s * SECONDS_PER_MONTH / 1e6
    lines = {
        option: {
            "USD a month": float(f"{cost.usd:.3g}"),
            "USD a million tiles": round(cost.usd / millions, 3),
            "datasets found": round(cost.hit_ratio, 3),
            "tiles found in the CDN": round(cost.edge_hit_ratio, 3),
            "mean time (s)": round(cost.duration_s, 3),
            "million store requests saved": round(
                (priced["none"].store_gets - cost.store_gets) / 1e6
            ),
            "cheaper than no cache (tiles/s)": tell_rates(
                option,
                break_even_rates(assumptions, prices, pair=("none", option)),
                is_cheaper=cost.usd < priced["none"].usd,
                n_digits=2,
            ),
            "rests on": MEASURED_BY[option] if MEASURED_BY[option] in measured else "defaults",
        }
        for option, cost in priced.items()
    }
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis("option")


def find_costs(
    assumptions: Assumptions,
    prices: Mapping[str, float],
    hit_ratios: pd.DataFrame,
    *,
    told: Assumptions,
    peak_nbytes: float,
    measured: Collection[str],
) -> dict[str, str]:
    """Put what the model says into words, by the key under which pages quote them.

    `told` are the assumptions with a file cache that is told the Zarr format, `peak_nbytes` the
    most memory that a service held: what an invocation needs, or NaN. A file cache that is not
    among the `measured` contenders has no bill.
    """
    is_told = np.isfinite(peak_nbytes)
    peak = f"{digits(peak_nbytes / 1e9)} GB" if is_told else "not measured"
    held = f"A service held at most {peak}. " if is_told else ""
    worst = hit_ratios["error"].abs().groupby(hit_ratios["datasets"]).max()
    levers, verdict = (tell(assumptions, prices) for tell in (tell_levers, tell_verdict))
    shared, other = (price_option(one, prices, option="shared") for one in (assumptions, told))
    bills = {
        "shared-cost": ("filecache", shared.usd),
        "shared-listings-cost": ("filecache", shared.lines["store listings"]),
        "shared-told-cost": ("filecache-v3", other.usd),
    }
    return {
        **{
            key: f"{write_usd(usd)} a month" if name in measured else "not measured"
            for key, (name, usd) in bills.items()
        },
        "verdict-cheapest": f"{verdict.partition('. ')[0].rstrip('.')}.",
        "verdict-cost": f"{held}{levers} {verdict}",
        "peak-memory": peak,
        "none-cost": f"{write_usd(price_option(assumptions, prices, option='none').usd)} a month",
        "cost-rate": f"{assumptions.requests_per_s:g} tiles a second",
        "hit-ratio-error": f"{digits(100 * worst[worst.index.max()])} percentage points",
        "hit-ratio-error-few": f"{digits(100 * worst[worst.index.min()])} percentage points",
    }
