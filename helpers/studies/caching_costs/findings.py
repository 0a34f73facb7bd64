"""What the record of loads says: tables, predictions, and sentences to quote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from helpers import study
from helpers.measurement import statistics
from helpers.models import hits
from helpers.models.queueing import Demand, simulate_users
from helpers.storage.network import Profile
from helpers.studies.caching_costs.workload import measure_hit_ratio
from helpers.studies.cluster_scaling import describe_profile, digits
from helpers.tiles.matrix import published_specs
from helpers.tiles.service import Tile

BASELINE = "none"
KEEPS_CHUNKS = "filecache"
_PUBLISHED = {
    "consolidated": "power_901_monthly_meteorology_utc.zarr",
    "netcdf": "pr_day_ACCESS-CM2_historical_r1i1p1f1_gn_1950.nc",
    "references": "aws-noaa-oisst-feedstock_reference",
    "broken": "GLDAS_NOAH025_3H.A20230731.2100.021.nc4",
}
_PUBLISHED_CACHES = {"feature2": "filecache", "feature3": "redis"}


def _numbers(rows: pd.DataFrame, phase: str) -> pd.DataFrame:
    """Spread the trace of a phase, by contender and block; the control apart."""
    part = rows[rows["phase"] == phase]
    trace = study.trace_of(part).drop(columns=["n_requests"], errors="ignore")
    return trace.assign(
        contender=part["contender"], n_requests=part["n_requests"], block=part["block"]
    )


def _by_map(rows: pd.DataFrame, phase: str) -> pd.DataFrame:
    """Give the medians over blocks of what each map cost: contender, map, and times in s."""
    numbers = _numbers(rows, phase)
    columns = [name for name in map(str, numbers) if "|" in name]
    medians = numbers.groupby("contender")[columns].median()
    pairs = [tuple(name.split("|")) for name in columns]
    medians.columns = pd.MultiIndex.from_tuples(pairs, names=["map", None])
    return pd.DataFrame(medians.stack(level="map", future_stack=True).reset_index())


def measure_opening(rows: pd.DataFrame) -> pd.DataFrame:
    """Split the time of one request alone, without a cache, into opening and making.

    Returns
    -------
    DataFrame
        By map: ``open_s``, ``make_s``, and ``bound``, the most that any cache
        of opened datasets can speed the request up (Amdahl).
    """
    table = _by_map(rows, "calibration")
    table = table[table["contender"] == BASELINE].set_index("map")
    make_s = table["total_s"] - table["open_s"]
    return pd.DataFrame(
        {"open_s": table["open_s"], "make_s": make_s, "bound": table["total_s"] / make_s}
    )


def predict_latencies(
    rows: pd.DataFrame, plan: Sequence[Sequence[Tile]], *, think_s: float
) -> pd.DataFrame:
    """Predict the median latency of each contender under load from requests that were alone.

    Each request opens as its cache does and makes its tile as all do, but for
    the cache that keeps chunks, which makes it in its own time; users share the
    processor of the service.

    Returns
    -------
    DataFrame
        ``contender``, ``predicted_s`` and ``alone_s``.
    """
    table = _by_map(rows, "calibration")
    table["make_s"] = table["latency_s"] - table["open_s"]
    opened = table["contender"] != KEEPS_CHUNKS
    shared = table[opened].groupby("map")["make_s"].transform("median")
    table["make_s"] = shared.reindex(table.index).fillna(table["make_s"])
    lines = []
    part: Any
    for name, part in table.groupby("contender", sort=False):
        costs = {
            line.map: Demand(line.cpu_s, max(0.0, line.open_s + line.make_s - line.cpu_s))
            for line in part.itertuples()
        }
        demands = [[costs[tile[0]] for tile in user if tile[0] in costs] for user in plan]
        latencies = simulate_users(demands, think_s=think_s)
        alone = [demand.cpu_s + demand.wait_s for user in demands for demand in user]
        lines.append((name, float(np.median(latencies)), float(np.median(alone))))
    return pd.DataFrame(lines, columns=["contender", "predicted_s", "alone_s"])


def compare_with_alone(rows: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """Put predicted beside measured medians; `relative_error` is predicted over measured, less 1."""
    medians = _numbers(rows, "measured").groupby("contender")["p50_s"].median()
    table = expected.merge(medians.rename("measured_s"), on="contender")
    return table.assign(relative_error=table["predicted_s"] / table["measured_s"] - 1)


def measure_savings(rows: pd.DataFrame) -> pd.DataFrame:
    """Compute how much faster each map is with each cache, under load.

    Returns
    -------
    DataFrame
        A line a map, a column a contender: latency without over with it.
    """
    wide = _by_map(rows, "measured").pivot(index="map", columns="contender", values="latency_s")
    return wide.rdiv(wide[BASELINE], axis=0).drop(columns=[BASELINE, "control"], errors="ignore")


def tabulate(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate medians over blocks for each contender, in the warm phase."""
    numbers = _numbers(rows, "measured")
    numbers["hit ratio"] = numbers["hits"] / (numbers["hits"] + numbers["misses"])
    numbers["store requests a tile"] = numbers["n_requests"] / numbers["n_tiles"]
    columns = {
        "p50_s": "p50 (s)",
        "p90_s": "p90 (s)",
        "p95_s": "p95 (s)",
        "p99_s": "p99 (s)",
        "tiles_per_s": "tiles/s",
        "hit ratio": "hit ratio",
        "store requests a tile": "store requests a tile",
        "cold p50_s": "cold p50 (s)",
        "generator_share": "generator (cores)",
    }
    table = numbers.groupby("contender")[list(columns)].median().rename(columns=columns)
    return table.sort_values("p50 (s)").map(lambda value: float(f"{value:.3g}"))


def tabulate_failures(rows: pd.DataFrame) -> pd.DataFrame:
    """Count requests and failures of all measured blocks, cold and warm, and recoveries."""
    numbers = _numbers(rows, "measured")
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


def judge_all(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare each cache with none: ratio of the time of the same load, interval, noise."""
    part = rows[rows["phase"] == "measured"]
    lines = {}
    for name in part.loc[part["control_of"] == "", "contender"].unique():
        if name != BASELINE:
            found = statistics.compare(part, name, BASELINE, control="control")
            ratio = found.ratio
            lines[name] = (ratio.centre, ratio.low, ratio.high, found.noise, found.verdict)
    columns = ["time over none", "low", "high", "A/A noise", "verdict"]
    table = pd.DataFrame.from_dict(lines, orient="index", columns=columns)
    return table.sort_values(columns[0]).round(3).rename_axis("contender")


def compare_published(rows: pd.DataFrame) -> pd.DataFrame:
    """Put the published saving of each map beside ours, as ratios to no cache.

    Returns
    -------
    DataFrame
        ``map``, ``contender``, ``published`` and ``ours``: median latency
        without a cache over that with it; maps that the study read and we did.
    """
    table = study.read_published("tile_caching_locust")
    wide: Any = table.pivot(index="dataset", columns="environment", values="p50_ms")
    names = {name: found[0] for name, found in published_specs().items()} | _PUBLISHED
    ours: Any = measure_savings(rows)
    lines = [
        (name, cache, wide.loc[names[name], "dev"] / wide.loc[names[name], column], line[cache])
        for name, line in ours.iterrows()
        for column, cache in _PUBLISHED_CACHES.items()
        if name in names and cache in ours
    ]
    return pd.DataFrame(lines, columns=["map", "contender", "published", "ours"])


def compare_hit_ratios(
    n_datasets: int, *, exponent: float, n_lookups: int, seed: int
) -> pd.DataFrame:
    """Put the hit ratio of Che's approximation beside that of the real cache in the process.

    Returns
    -------
    DataFrame
        By entries that fit: ``predicted``, ``measured`` and ``error``, all as shares.
    """
    popularity = hits.zipf(n_datasets, exponent)
    lines = {}
    for n_entries in sorted({max(1, n_datasets // part) for part in (8, 4, 2)}):
        kept = hits.Cache(capacity_nbytes=n_entries, item_nbytes=1)
        predicted = hits.hit_ratio(popularity, 1.0, cache=kept)
        measured = measure_hit_ratio(
            n_datasets, n_entries, exponent=exponent, n_lookups=n_lookups, seed=seed
        )
        lines[n_entries] = (predicted, measured, predicted - measured)
    columns = ["predicted", "measured", "error"]
    return pd.DataFrame.from_dict(lines, orient="index", columns=columns).rename_axis("entries")


def find_all(
    rows: pd.DataFrame, opening: pd.DataFrame, errors: pd.DataFrame, *, profile: Profile
) -> dict[str, str]:
    """Put the findings of a case into words, by the key under which pages quote them."""
    table: Any = tabulate(rows)
    verdicts: Any = judge_all(rows)
    failures = tabulate_failures(rows)
    best = str(verdicts.index[0])
    measured = rows[rows["phase"] == "measured"]
    machine = json.loads(measured["machine"].iloc[0])
    cached = errors[~errors["contender"].isin([BASELINE, "control"])]
    share = opening["open_s"] / (opening["open_s"] + opening["make_s"])
    return {
        "profile": describe_profile(profile),
        "best-cache": best,
        "best-throughput": f"{digits(table.loc[best, 'tiles/s'])} tiles/s",
        "best-saving": digits(1 / verdicts["time over none"].iloc[0]),
        "best-p50": f"{digits(1000 * table.loc[best, 'p50 (s)'])} ms",
        "none-p50": f"{digits(1000 * table.loc[BASELINE, 'p50 (s)'])} ms",
        "opening-share": f"{digits(100 * share.median())} %",
        "amdahl-bound": digits(opening["bound"].median()),
        "failed-requests": str(int(failures[["failed", "failed cold"]].to_numpy().sum())),
        "worst-prediction-error": f"{digits(100 * cached['relative_error'].abs().max())} %",
        "generator-share": digits(table["generator (cores)"].max()),
        "aa-noise": _percent(statistics.noise_ratio(measured, "control") - 1),
        "n-blocks": str(measured["block"].nunique()),
        "machine": f"{machine['n_cores']} cores, {machine['cpu']}",
    }


def _percent(share: float) -> str:
    return f"{digits(100 * share)} %" if np.isfinite(share) else "not measured"
