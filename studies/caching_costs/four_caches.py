"""The study of Development Seed as it was made: four caches under ten users, 17 datasets, and its figure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from helpers.benchmark import statistics
from helpers.benchmark.record import read_published
from helpers.findings import Claim, Finding, as_finding
from helpers.plotting.figures import number_axis
from helpers.plotting.palette import CHARCOAL, find_style
from studies.caching_costs.datasets import label_datasets, published_specs
from studies.caching_costs.findings import BARE, select_loads

THEIRS: Mapping[str, str] = {"dev": "none", "feature2": "filecache-in-turn", "feature3": "redis"}
"""Deployments of the study, by our name of the cache; of diskcache only earlier means are left."""

DISK = {"commit": "18f90c0", "environment": "feature"}
"""The earlier run, in the same table as Redis, that is left of diskcache."""


def read_study() -> pd.DataFrame:
    """Read what was published: `dataset`, `cache`, `latency_s` and `failed`, a share.

    Latencies are medians, of diskcache the means of an earlier run.
    """
    rows = read_published("tile_caching_locust")
    earlier = read_published("tile_caching_locust_history")
    earlier = earlier[(earlier[[*DISK]] == [*DISK.values()]).all(axis=1)]
    earlier = earlier.assign(cache="diskcache", p50_ms=earlier["average_response_ms"])
    both = pd.concat([rows.assign(cache=rows["environment"].map(THEIRS)), earlier])
    names = {published: spec.name for published, spec in published_specs().items()}
    return pd.DataFrame(
        {
            "dataset": both["dataset"].map(names),
            "cache": both["cache"],
            "latency_s": both["p50_ms"] / 1000,
            "failed": both["failure_rate_pct"] / 100,
        }
    ).dropna(subset="dataset")


def list_latencies(rows: pd.DataFrame) -> pd.DataFrame:
    """List ours in the same columns, medians over blocks of the median of each load."""
    loads = select_loads(rows)
    parts = []
    for name in sorted(text[:-6] for text in map(str, loads) if text.endswith("|p50_s")):
        numbers = {"latency_s": loads[f"{name}|p50_s"], "failed": loads[f"{name}|failed"]}
        parts.append(pd.DataFrame({"dataset": name, "cache": loads["contender"], **numbers}))
    latencies = pd.concat(parts)
    means = latencies.groupby(["dataset", "cache"]).agg({"latency_s": "median", "failed": "mean"})
    return means.drop(index="control", level="cache").reset_index()


def tabulate_failures(measured: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Tabulate shares of requests that failed, of datasets of which any did."""
    both = {"ours": measured, "published": published}
    wide = {key: latencies.pivot_table(index="dataset", columns="cache", values="failed") for key, latencies in both.items()}  # fmt: skip
    table = pd.concat(wide, axis=1)
    return table[(table > 0).any(axis=1)]


def draw_latencies(ax: Axes, latencies: pd.DataFrame, order: list[str], *, is_theirs: bool) -> None:
    """Draw a mark for each dataset and cache on a logarithmic axis, published ones hollow."""
    caches = [*dict.fromkeys(latencies["cache"])]
    for place, cache in enumerate(caches):
        part = latencies[latencies["cache"] == cache].set_index("dataset")["latency_s"]
        style, face = find_style(cache, "cache"), "white" if is_theirs else None
        y = [order.index(name) + 0.15 * (place - (len(caches) - 1) / 2) for name in part.index]
        looks = {"color": style.color, "marker": style.marker, "label": style.label}
        ax.plot(part, y, linestyle="none", markerfacecolor=face or style.color, **looks)  # type: ignore[arg-type]
    ax.set_yticks(range(len(order)), [label_datasets()[name] for name in order])
    ax.set(xscale="log", xlabel="latency (s)")
    ax.grid(axis="y", color=CHARCOAL, alpha=0.15)
    number_axis(ax.xaxis)


def tabulate_gains(measured: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Tabulate how many times as fast each cache is as none by dataset, as published and here."""
    both = {"published": published, "here": measured}
    gains: dict[tuple[str, str], pd.Series[float]] = {}
    for origin, latencies in both.items():
        wide = latencies.pivot_table(index="dataset", columns="cache", values="latency_s")
        ratios = wide.rdiv(wide[BARE], axis=0).drop(columns=BARE)
        gains |= {(str(cache), origin): ratios[cache] for cache in ratios}
    table = pd.DataFrame(gains).reindex(index=[*dict.fromkeys(measured["dataset"])])
    return table.sort_index(axis="columns", ascending=[True, False])


def count_orders(measured: pd.DataFrame, published: pd.DataFrame) -> dict[str, Finding]:
    """Count the datasets on which the file cache is faster or slower than none, as was published."""
    gains = tabulate_gains(measured, published)["filecache-in-turn"].dropna()
    n_in_order = sum((gains["published"] > 1) == (gains["here"] > 1))
    return {
        "n-in-order": Finding(n_in_order, quantity="datasets with the file cache in order"),
        "n-datasets": Finding(len(gains), quantity="datasets that both have"),
    }


LARGE_MIB = 32
"""The least bytes of a dataset in one chunk that `find_large` is about."""


def find_large(rows: pd.DataFrame) -> dict[str, Finding]:
    """Find what the file cache gains over none on datasets in one large chunk, if there are any."""
    loads = select_loads(rows)
    names = [str(name) for name in loads if re.fullmatch(r"single-\d+mib\|p50_s", str(name))]
    large = [name for name in names if int(name.split("-")[1].split("mib")[0]) >= LARGE_MIB]
    large = large or names  # a small case has none that large
    loads = loads.assign(large_s=np.exp(np.log(loads[large]).mean(axis=1)))
    ratio = statistics.compare_contenders(
        loads, BARE, "filecache-in-turn", value="large_s", control="control"
    )
    quantity = "none over filecache-in-turn on large single chunks, latency_s"
    return {"gain-large": replace(as_finding(ratio), quantity=quantity)}


PAIRS: Mapping[str, tuple[str, str]] = {
    "filecache-over-redis": ("redis", "filecache-in-turn"),
    "disk-over-redis": ("diskcache", "redis"),
    "gain-diskcache": ("none", "diskcache"),
    "gain-filecache": ("none", "filecache-in-turn"),
    "gain-redis": ("none", "redis"),
    "gain-shipped": ("none", "as-shipped"),
    "shipped-over-redis": ("redis", "as-shipped"),
}
"""Caches whose ratio of a typical tile is told, the slower first where they differ as published."""


def find_all(rows: pd.DataFrame) -> dict[str, Finding]:
    """Find the ratios of caches over all whole datasets, on some kinds, and failures, as far as measured."""
    loads = select_loads(rows)
    whole = [c for c in loads if str(c).endswith("|p50_s") and not str(c).startswith("broken")]
    loads = loads.assign(whole_s=np.exp(np.log(loads[whole]).mean(axis=1)))
    names, findings = {*loads["contender"]}, {}
    for key, (a, b) in PAIRS.items():
        if {a, b} <= names:
            ratio = statistics.compare_contenders(loads, a, b, value="whole_s", control="control")
            findings[key] = replace(as_finding(ratio), quantity=f"{a} over {b}, latency_s")
    for kind in ("netcdf", "unconsolidated", "references"):
        if f"{kind}|p50_s" in loads and {"none", "filecache-in-turn"} <= names:
            ratio = statistics.compare_contenders(
                loads, "none", "filecache-in-turn", value=f"{kind}|p50_s", control="control"
            )
            quantity = f"none over filecache-in-turn on {kind}, latency_s"
            findings[f"filecache-on-{kind}"] = replace(as_finding(ratio), quantity=quantity)
    failed = loads.groupby("contender")["n_failed"].sum()
    for name in {"filecache", "filecache-in-turn"} & names:
        findings[f"{name}-failed"] = Finding(failed[name], quantity=f"failed requests of {name}")
    return findings


def judge_claims(findings: Mapping[str, Finding]) -> dict[str, Claim]:
    """Judge what the page says, as far as the caches that it is about are there."""
    claims = {}
    if "disk-over-redis" in findings:
        holds = 0.5 < findings["disk-over-redis"].value < 2
        claims["disk-as-redis"] = Claim(holds, of="disk-over-redis")
    if "gain-shipped" in findings:
        claims["shipped-gains"] = Claim(findings["gain-shipped"].low > 1, of="gain-shipped")
    if "gain-filecache" in findings:
        gains = findings["gain-filecache"].verdict == "slower"  # without it a tile takes longer
        claims["filecache-gains-nothing"] = Claim(not gains, of="gain-filecache")
    return claims
