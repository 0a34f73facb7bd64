"""What a page on one of the two studies finds, and their figures with ours in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from helpers.benchmark import statistics
from helpers.benchmark.record import read_published
from helpers.benchmark.statistics import Comparison, Interval
from helpers.findings import Claim, FindingLike, as_finding
from helpers.plotting.figures import number_axis
from helpers.plotting.palette import find_style, labels
from helpers.plotting.tables import trace_of
from studies.cluster_scaling.findings import measure_busy as measure_busy
from studies.cluster_studies.sources import ENTRIES, SOURCES, find_series

_NEAR = 0.3  # by which the threads of a published point may differ from ours
Side = tuple[str, int]
"""A source and a number of workers."""


def find_noise(rows: pd.DataFrame) -> float:
    """Compute the A/A ratio of the source that is read twice, at the most workers."""
    last = rows[rows["n_workers"] == rows["n_workers"].max()]
    is_there = (last["control_of"] != "").any()
    return statistics.noise_ratio(last, "control", value="s_per_gb") if is_there else math.nan


def compare_sides(
    rows: pd.DataFrame, pairs: Mapping[str, tuple[Side, Side]], *, value: str = "s_per_gb"
) -> dict[str, Comparison]:
    """Compare seconds for a gigabyte of one side with those of another, where both were measured.

    Each is paired within blocks, and judged by the noise of the source that is read twice.
    """
    noise, rows = find_noise(rows), rows[rows["control_of"] == ""]
    names = rows["contender"] + " at " + rows["n_workers"].astype(str)
    comparisons = {}
    for key, pair in pairs.items():
        numerator, denominator = (f"{name} at {n}" for name, n in pair)
        if numerator != denominator and {numerator, denominator} <= {*names}:
            ratio = statistics.paired_ratio(
                rows.assign(contender=names), numerator, denominator, value=value
            )
            comparisons[key] = statistics.judge(replace(ratio, noise=noise), noise)
    return comparisons


def tabulate_answers(comparisons: Mapping[str, Comparison]) -> pd.DataFrame:
    """Tabulate ratios of seconds a gigabyte next to the published ones, with the threads of both of their sides."""
    lines = []
    for comparison in comparisons.values():
        sides = [
            side.split(" at ") for side in comparison.quantity.rpartition(",")[0].split(" over ")
        ]
        quantity = " over ".join(f"{SOURCES[name].label} at {n}" for name, n in sides)
        ends = (comparison.ratio.centre, comparison.ratio.low, comparison.ratio.high)
        published, threads = _find_published(sides)
        lines.append((quantity, published, threads, *ends, comparison.verdict))
    columns = ["quantity", "published", "at threads", "here", "95 % from", "to", "the first is"]
    return pd.DataFrame(lines, columns=columns).set_index("quantity")


def _find_published(sides: Sequence[Sequence[str]]) -> tuple[float, str]:
    """Find the published ratio of two sides and their threads, in the same proportion as ours; NaN if there is none."""
    (numerator, _), (denominator, _) = sides
    n_over, n_under = (2 * int(n) for _, n in sides)
    if SOURCES[numerator].is_of_today or SOURCES[denominator].is_of_today:
        return math.nan, ""
    first, second = (_read_rates(name) for name in (numerator, denominator))
    near = {
        (a, b): abs(math.log(a / n_over))
        for a in first.index
        for b in second.index
        if math.isclose(a / b, n_over / n_under, rel_tol=0.01) and abs(a / n_over - 1) < _NEAR
    }
    if not near:
        return math.nan, ""
    a, b = min(near, key=near.__getitem__)
    return float(second[b] / first[a]), f"{a:g}" if a == b else f"{a:g} and {b:g}"


def _read_rates(name: str) -> pd.Series[float]:
    """Read the published MB/s of a source by threads: medians of 2020, means of 2022."""
    source, published = SOURCES[name], read_2022()
    if len(part := published[published["format"].isin(source.published)]):
        return part.set_index(2 * part["nworkers"])["mean_throughput_mb_per_s"]
    points = read_published("abernathey2020_figure_digitised")
    points = points[points["panel"].isin(source.published)]
    rates: pd.Series[float] = points.groupby("ncores")["throughput_mb_per_s"].median()
    return rates


def measure_link(rows: pd.DataFrame, name: str) -> Interval:
    """Compute the share of its link that a source used, in bytes over the wire, at the most workers."""
    part = rows[(rows["contender"] == name) & (rows["n_workers"] == rows["n_workers"].max())]
    share = part["stored_nbytes"] / part["array_nbytes"]
    used = part["wire_nbytes"] / part["read_s"] / 1e6 / (SOURCES[name].link_mb_per_s * share)
    quantity = f"{name}, bytes over the wire over those of its link"
    return replace(statistics.median_interval(used), quantity=quantity)


def judge_claims(
    findings: Mapping[str, FindingLike], bounds: Mapping[str, tuple[str, float, float]]
) -> dict[str, Claim]:
    """Say of each claim whether the whole interval of its finding lies within bounds."""
    known_findings = {key: as_finding(result) for key, result in findings.items()}
    return {
        name: Claim(low <= known_findings[key].low and known_findings[key].high <= high, of=key)
        for name, (key, low, high) in bounds.items()
        if key in known_findings
    }


def find_size(sizes: Sequence[int], wanted: int) -> int:
    """Find the size of cluster that was asked for, or the largest."""
    return wanted if wanted in sizes else max(sizes)


def list_panels(rows: pd.DataFrame) -> list[str]:
    """List the stores of 2020, where anything stands for one of them."""
    series = {panel for name in rows["contender"].unique() for panel in find_series(name)}
    return [*labels("store")] if series & {*labels("store")} else []


def find_formats(rows: pd.DataFrame) -> list[str]:
    """List the sources that stand for a format of 2022."""
    names = rows["contender"].unique()
    return [name for name in names if {*find_series(name)} & {*labels("format")}]


def read_2022() -> pd.DataFrame:
    """Read the newest published figure of formats: means and standard errors by workers."""
    return read_published("green2022_figures_digitised").query("figure == 'speedTest3.png'")


_CONNECTED = {"tiledb": "TileDB Embedded", "csv": "csv", "csv-parts": "part_csv", "parquet-parts": "part_parquet", "zarr-array": "Zarr Array", "zarr-group": "Zarr Group"}  # fmt: skip


def tabulate_connect(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the seconds to open each format by the fewest workers, with those of the tables of 2022."""
    published_s = (
        read_published("green2022_throughput_tables").groupby("format")["connect_time_s"].max()
    )
    rows = rows[rows["contender"].isin(find_formats(rows))]
    rows = rows[rows["n_workers"] == rows["n_workers"].min()]
    measured_s = rows.groupby("contender", sort=False)["open_s"].median()
    published = [
        published_s.get(_CONNECTED.get(str(name), ""), math.nan) for name in measured_s.index
    ]
    table = pd.DataFrame({"published (s)": published, "here (s)": measured_s}, measured_s.index)
    return table.rename(index={name: source.label for name, source in SOURCES.items()})


def tabulate_absent(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the stores of others that could not be read, each with its reason."""
    reasons = rows[["contender"]].assign(reason=trace_of(rows).get("absent", ""))
    absent = reasons[reasons["reason"].fillna("").ne("")]
    return absent.drop_duplicates().set_index("contender")


def draw_store(ax: Axes, panel: str, rows: pd.DataFrame, *, most: int = 9) -> None:
    """Draw a store on logarithmic axes: published points hollow, ours as filled lines."""
    style = find_style(panel, "store")
    published = read_published("abernathey2020_figure_digitised").query("panel == @panel")
    hollow: dict[str, Any] = {"markerfacecolor": "none", "color": style.color, "alpha": 0.6}
    x, y = published["ncores"], published["throughput_mb_per_s"]
    ax.plot(x, y, style.marker, markersize=4, label=panel, **hollow)
    measured_names = {*rows["contender"]}
    names = [
        source_name
        for source_name in {**SOURCES, **ENTRIES}
        if source_name in measured_names and panel in find_series(source_name)
    ]
    for name, dashes in zip(names[:most], ("-", "--", ":", "-."), strict=False):
        means = (
            rows[rows["contender"] == name].groupby("concurrency")["throughput_mb_per_s"].median()
        )
        line: dict[str, Any] = {"color": style.color, "linestyle": dashes, "markersize": 5}
        line["label"] = SOURCES[name].label if name in SOURCES else name
        ax.plot(means.index, means, marker=style.marker, **line)
    ax.set(xscale="log", yscale="log")
    ax.tick_params(labelsize=11)  # nine panels are wider than other figures, and shown smaller
    for axis in (ax.xaxis, ax.yaxis):
        number_axis(axis)


def add_key(fig: Figure, axes: Iterable[Axes]) -> None:
    """Write one key above a figure of all panels: a published point, and each way of ours by its dashes.

    Below, it would lie on the label that all panels share.
    """
    keys: dict[str, Any] = {"published": Line2D([], [], linestyle="", marker="o", color="0.3", markerfacecolor="none")}  # fmt: skip
    for ax in axes:
        for line in ax.get_lines():
            label = str(line.get_label())
            if line.get_linestyle() != "None" and label not in keys:
                keys[label] = Line2D([], [], color="0.3", linestyle=line.get_linestyle())
    fig.legend([*keys.values()], [*keys], loc="outside upper center", ncols=3, frameon=False)


def draw_per_thread(axes: Sequence[Axes], rows: pd.DataFrame) -> None:
    """Draw throughput of a thread, and time to read, against threads: published points hollow, ours lines.

    `axes` are two. Times are over those of the fewest threads of each series, so arrays of any size
    compare; dotted is linear scaling.
    """
    per_thread, runtime = axes
    measured_names = {*rows["contender"]}
    for panel, name in (("GCS Zarr", "zarr-2020"), ("GCS NetCDF", "netcdf-2020")):
        style = find_style(panel, "store")
        published = read_published("abernathey2020_figure_digitised").query("panel == @panel")
        points = published.groupby("ncores")["throughput_mb_per_s"].median()
        hollow: dict[str, Any] = {"markerfacecolor": "none", "color": style.color, "label": f"{panel}, published"}  # fmt: skip
        per_thread.plot(points.index, points / points.index, style.marker, **hollow)
        runtime.plot(points.index, points.iloc[0] / points, style.marker, **hollow)
        if name in measured_names:
            own = rows[rows["contender"] == name].groupby("concurrency")
            rates = own["throughput_mb_per_s"].median()
            line: dict[str, Any] = {"color": style.color, "marker": style.marker, "label": f"{SOURCES[name].label}, ours"}  # fmt: skip
            per_thread.plot(rates.index, rates / rates.index, **line)
            runtime.plot(rates.index, rates.iloc[0] / rates, **line)
    threads = np.array([1.0, 512.0])
    runtime.plot(threads, 2 / threads, ":", color="0.5", label="linear, from two threads")
    per_thread.set(ylabel="throughput of a thread (MB/s)")
    runtime.set(ylabel="time to read, over that of the fewest")
    for ax in axes:
        ax.set(xscale="log", yscale="log", xlabel="threads")
        for axis in (ax.xaxis, ax.yaxis):
            number_axis(axis)


def draw_formats(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw means with standard errors against workers: published hollow and thin, ours filled."""
    published = read_2022()
    for name in labels("format"):
        style, part = find_style(name, "format"), published[published["format"] == name]
        looks: dict[str, Any] = {"color": style.color, "marker": style.marker, "capsize": 2}
        errors = part["throughput_sem_mb_per_s"]
        thin: dict[str, Any] = {"markerfacecolor": "none", "linewidth": 0.6, "alpha": 0.6}
        ax.errorbar(part["nworkers"], part["mean_throughput_mb_per_s"], yerr=errors, **looks | thin)
        measured_names = {*rows["contender"]}
        drawn = [
            source_name
            for source_name in SOURCES
            if source_name in measured_names and SOURCES[source_name].published == (name,)
        ]
        for source_name, dashes in zip(drawn, ("-", "--"), strict=False):
            held = rows[rows["contender"] == source_name]
            by_size = (held["held_nbytes"] / held["read_s"] / 1e6).groupby(held["n_workers"])
            mean = by_size.mean()
            line: dict[str, Any] = {"linestyle": dashes, "label": SOURCES[source_name].label}
            ax.errorbar(mean.index, mean, yerr=by_size.sem().fillna(0), **looks, **line)
