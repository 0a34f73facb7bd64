"""What the page says of a cluster on a laptop: tables, a figure, verdicts, and a terabyte's price."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from itertools import pairwise
from pathlib import Path

import matplotlib.style
import pandas as pd
from matplotlib.figure import Figure

from advisors.costs.prices import find_price
from advisors.scaling.figures import write_svg
from advisors.scaling.outlook import MEMORY_GB_PER_CORE, tell_time
from helpers.benchmark import statistics
from helpers.benchmark.record import read_published, read_records
from helpers.benchmark.statistics import Interval
from helpers.book.studies import write_table
from helpers.netem.profiles import get_recorded_profile
from helpers.plotting.figures import label_ends, number_axis, write_key
from helpers.plotting.palette import STYLE, THEIRS_GREY, find_look
from helpers.plotting.tables import digits, tell_interval
from studies.cluster_scaling.findings import LIMITS, NETCDF, OF_2020
from studies.cluster_scaling.growth import LONG, OBSTORE, RECORD

DILATED = RECORD.parent / "cluster-scaling" / "in-region-dilated.csv"
_COMMAND = "`python -m studies.cluster_scaling.growth`"
_CHUNK_OF_2020_MB = 194.4
_DRAWN = {OBSTORE: "GCS Zarr", OF_2020: "GCS Zarr", NETCDF: "GCS NetCDF"}
_FOUR_TIMES, _LINK = (3.8, 4.2), 0.95  # what a longer read, and the share of a link, are held to


def _read(path: Path) -> pd.DataFrame:
    if not path.exists():
        return pd.DataFrame({"part": [], "contender": [], "n_workers": []})
    rows = pd.read_csv(path, dtype={"part": str})
    return rows.assign(s_per_mb=1e6 * rows["read_s"] / rows["array_nbytes"])


def _at(rows: pd.DataFrame, contender: str, n_workers: int) -> pd.DataFrame:
    return rows[(rows["contender"] == contender) & (rows["n_workers"] == n_workers)]


def _published(panel: str) -> pd.Series[float]:
    points = read_published("abernathey2020_figure_digitised")
    return points[points["panel"] == panel].groupby("nworkers")["throughput_mb_per_s"].median()


def _clusters(path: Path) -> pd.DataFrame:
    rows = _read(path)
    return rows[rows["part"] != LONG]


def double(rows: pd.DataFrame, contender: str, few: int, many: int) -> Interval:
    """Compute what twice the workers gain, on average over the doublings between two sizes.

    The sizes were measured one after the other and share no block, so the ratio is unpaired.
    """
    sides = (_at(rows, contender, n)["s_per_mb"] for n in (few, many))
    gain = statistics.unpaired_ratio(*sides)
    power = 1 / math.log2(many / few)
    return Interval(gain.centre**power, gain.low**power, gain.high**power, gain.n, gain.note)


def find_answers(path: Path = RECORD) -> dict[str, dict[str, Interval]]:
    """Find what this record answers to published claims, by the claim and by what was compared."""
    rows = _clusters(path)
    sizes = sorted({*rows.loc[rows["contender"] == OF_2020, "n_workers"]})
    answers: dict[str, dict[str, Interval]] = {}
    for few, many in pairwise(sizes):
        name = f"at full scale, {few} to {many} workers"
        answers.setdefault("near-linear", {})[name] = double(rows, OF_2020, few, many)
    for n in sizes:
        if len(netcdf := _at(rows, NETCDF, n)):
            name = f"at full scale, {2 * n} threads"
            ratio = statistics.paired_between(netcdf, _at(rows, OF_2020, n))
            answers.setdefault("zarr-over-netcdf", {})[name] = ratio
    return answers


def render_growth(path: Path = RECORD) -> str:
    """Write throughput over workers beside the published one, and what each size says of its limits."""
    rows = _clusters(path)
    if rows.empty:
        return f"Not measured yet; {_COMMAND} does it.\n"
    theirs, sizes = _published("GCS Zarr"), sorted({*rows["n_workers"]})
    names = [name for name in ("raw", OBSTORE, OF_2020, NETCDF) if name in {*rows["contender"]}]
    curves = []
    for n in sizes:
        found = [1 / _at(rows, name, n)["s_per_mb"] for name in names]
        cells = [
            tell_interval(statistics.median_interval(one)) if len(one) else "" for one in found
        ]
        curves.append((n, *cells, digits(theirs[n], n=3) if n in theirs else ""))
    table = write_table(["workers", *names, "Zarr, 2020"], curves)
    limits = write_table(
        [
            "workers",
            "as on",
            "twice the workers gain",
            "bottleneck by the model",
            "processors' share (%)",
            "predicted over measured",
            "scheduler alone (MB/s)",
        ],
        _list_limits(rows, sizes),
    )
    most, task_s = sizes[-1], rows.groupby("n_workers")["task_s"].first()
    told = (
        f"A task that does nothing took {digits(1000 * task_s[most])} ms with {most} workers, in real time and with all"
        " of them on this machine. A scheduler is not as many times faster on a cloud as time is slower here,"
        f" so with chunks of this size it alone would end growth at what the last column says, and with the"
        f" published ones of {_CHUNK_OF_2020_MB:g} MB at {float(digits(_CHUNK_OF_2020_MB / task_s[most])):,.0f} MB/s."
    )
    parts = {n: _at(rows, OBSTORE, n) for n in sizes}
    hidden = [
        n for n, one in parts.items() if _scheduler_mb_per_s(one) * one["s_per_mb"].median() < 1
    ]
    if hidden:
        told += (
            f" With {' and '.join(map(str, hidden))} workers `{OBSTORE}` reads more than the last"
            " column says, which only dilated time allows."
        )
    n_blocks, days = rows.groupby("n_workers")["block"].nunique(), sorted({*rows["measured"]})
    ran = (
        f"Measured on {' and '.join(days)} on {rows['machine'].iloc[0]}, in {n_blocks.min()} blocks or more at each size;"
        f" each thread reads {rows['waves'].iloc[0]:g} chunks."
    )
    if n_blocks.min() < 5:
        ran += f" Of so few blocks the interval of a median covers {100 - 200 / 2 ** n_blocks.min():.0f} %, not 95 %."
    return "\n".join(["MB of array a second, medians with intervals; `raw` is the ceiling, a median too, so a reader may lie above it:\n", table,
                      f"What limits `{OBSTORE}`:\n", limits, f"{told}\n", f"{ran}\n"])  # fmt: skip


def _scheduler_mb_per_s(part: pd.DataFrame) -> float:
    """Compute what a scheduler gives out at most, in chunks of this size."""
    return float((part["array_nbytes"] / part["n_chunks"] / part["task_s"]).iloc[0]) / 1e6


def _list_limits(rows: pd.DataFrame, sizes: list[int]) -> Iterator[tuple[object, ...]]:
    """List what limits the reader that can be installed, at each size."""
    for few, n in zip([None, *sizes], sizes, strict=False):
        part = _at(rows, OBSTORE, n)
        yield (
            n,
            f"{part['dilation'].iloc[0] * part['n_cores'].iloc[0]:g} cores",
            tell_interval(double(rows, OBSTORE, few, n)) if few else "",
            LIMITS[part["limit"].iloc[0]],
            digits(100 * part["processors"].median()),
            digits((part["predicted_s"] / part["read_s"]).median()),
            digits(_scheduler_mb_per_s(part)),
        )


def render_long(path: Path = RECORD) -> str:
    """Say how much longer four times the bytes take, and what share of the link a long read has."""
    rows = _read(path)
    rows = rows[rows["part"] == LONG]
    if rows.empty:
        return f"Not measured yet; {_COMMAND} {LONG} does it.\n"
    few, many = sorted({*rows["waves"]})
    short, long = rows[rows["waves"] == few], rows[rows["waves"] == many]
    ratio = statistics.paired_between(long, short)
    link = get_recorded_profile(rows["profile"].iloc[0]).aggregate_mb_per_s or math.nan
    share = statistics.median_interval(long["wire_nbytes"] / long["read_s"] / 1e6 / link)
    low, high = _FOUR_TIMES
    ends = [one if math.isfinite(one) else ratio.centre for one in (ratio.low, ratio.high)]
    kept = "met" if low <= ends[0] and ends[1] <= high else "not met"
    filled = "met" if share.centre >= _LINK else "not met"
    return (
        f"`{OBSTORE}`, which anybody can install, reads {few:g} waves of chunks over the wide area in"
        f" {digits(short['read_s'].median(), n=3)} s and {many:g} in {digits(long['read_s'].median(), n=3)} s, in real time."
        f" Four times the bytes take {tell_interval(ratio)} times as long (target {low:g} to {high:g}: {kept})."
        f" The long read fills {tell_interval(share)} of the link (target {_LINK:g}: {filled}).\n"
    )


def render_terabyte(growth: Path = RECORD, dilated: Path = DILATED) -> str:
    """Write time and price of a terabyte of array at full scale, for each reader and size."""
    cases = [_clusters(growth)]
    if dilated.exists():
        rows = read_records([dilated])
        cases.append(rows[(rows["phase"] == "measured") & (rows["control_of"] == "")])
    prices = {each: find_price(each) for each in
              ("instance_vcpu_hour", "instance_gb_hour", "store_gets_1e3")}  # fmt: skip
    vcpu, gb, gets = (one.value or math.nan for one in prices.values())
    lines = []
    for rows in cases:
        read = rows[rows["contender"] != "raw"]
        for n, name in sorted({*zip(map(int, read["n_workers"]), read["contender"], strict=True)}):
            part = _at(read, name, n)
            times = 1e12 / part["array_nbytes"]
            hours = statistics.median_interval(times * part["read_s"] / 3600)
            n_cores = 2 * n  # one for each thread, as here
            requests = float((times * part["n_requests"]).median())
            of_cores = hours.centre * n_cores * (vcpu + MEMORY_GB_PER_CORE * gb)
            usd = of_cores + requests / 1e3 * gets
            seconds = [3600 * one for one in astuple(hours)[:3]]
            time = " to ".join(tell_time(one) for one in seconds[1:] if math.isfinite(one))
            chunk_mb = part["array_nbytes"].iloc[0] / part["n_requests"].median() / 1e6
            lines.append(
                (n, f"`{name}`", tell_time(seconds[0]), time, f"{usd:.2f}", digits(chunk_mb))
            )
    head = ["workers", "reader", "time", "interval", "USD", "MB of array a request"]
    paid = prices["instance_vcpu_hour"]
    return (
        write_table(head, sorted(lines))
        + f"\nTwo cores a worker, each at {vcpu} USD an hour ({paid.source}, {paid.date}), with"
        f" {MEMORY_GB_PER_CORE:g} GB of memory, and a thousand requests at {gets} USD. Without the cluster's start.\n"
    )


def draw_growth(path: Path = RECORD) -> str:
    """Draw throughput over workers, ours as lines over the published points, as SVG."""
    rows = _clusters(path)
    with matplotlib.style.context(list(STYLE)):
        figure = Figure(figsize=(7.2, 4.8))
        ax = figure.subplots()
        for panel, marker in (("GCS Zarr", "o"), ("GCS NetCDF", "v")):
            theirs = _published(panel)
            ax.plot(theirs.index, theirs, marker, color=THEIRS_GREY, fillstyle="none")
        ends: Mapping[str, tuple[float, float, str]] = {}
        for name in (name for name in _DRAWN if name in {*rows["contender"]}):
            ours, look = rows[rows["contender"] == name], find_look(name, "reader")
            rate = (1 / ours["s_per_mb"]).groupby(ours["n_workers"]).median()
            ax.plot(rate.index, rate, look.marker, linestyle="-", color=look.color)
            ends = {**ends, name: (float(rate.index[-1]), float(rate.iloc[-1]), look.color)}
        ax.set(xscale="log", yscale="log", xlabel="workers", ylabel="throughput (MB/s)")
        for axis in (ax.xaxis, ax.yaxis):
            number_axis(axis)
        if ends:
            named = [(name, y, color) for name, (_, y, color) in ends.items()]
            label_ends(ax, named, at=[x for x, _, _ in ends.values()])
        write_key(ax, "hollow: published, 2020, Zarr above and netCDF below; lines: here, dilated")
        return write_svg(figure)
