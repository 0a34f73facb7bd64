"""Throughput against workers, as the page on cluster scaling draws it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from helpers.benchmark import statistics
from helpers.plotting import palette
from studies.cluster_scaling.findings import BUSY_ABOVE


def draw_reader(ax: Axes, rows: pd.DataFrame, busy: pd.Series) -> None:
    """Draw medians of one contender with their intervals, hollow where CPUs were busy.

    `busy` are percent of the machine's CPUs by number of workers. A ceiling has no marks.
    """
    style = palette.find_style(str(rows["contender"].iloc[0]), "reader")
    by_size = rows.groupby("n_workers")["throughput_mb_per_s"]
    intervals = {int(str(n)): statistics.median_interval(part) for n, part in by_size}
    sizes, centres = [*intervals], [interval.centre for interval in intervals.values()]
    if rows["is_ceiling"].all():
        ax.plot(sizes, centres, linewidth=4, alpha=0.4, color=style.color, label=style.label)
        return
    ends = [
        (interval.centre - interval.low, interval.high - interval.centre)
        for interval in intervals.values()
    ]
    ax.errorbar(sizes, centres, yerr=[*zip(*ends, strict=True)], color=style.color)
    ax.plot(sizes, centres, style.marker, markersize=8, color=style.color, label=style.label)
    hollow = {n: interval.centre for n, interval in intervals.items() if busy[n] > BUSY_ABOVE}
    inside: dict[str, Any] = {"markerfacecolor": palette.PAPER, "color": style.color}
    ax.plot([*hollow], [*hollow.values()], style.marker, markersize=8, zorder=5, **inside)


def draw_rate_per_worker(
    ax: Axes, rows: pd.DataFrame, busy: pd.Series, walls: Mapping[str, float]
) -> None:
    """Draw the throughput of each worker against their number: a flat line is linear growth.

    `rows` have `contender`, `n_workers` and `throughput_mb_per_s`; `busy` are percent of the machine's
    CPUs by contender and number of workers, and a mark is hollow where they decide too. `walls` are
    MB/s that all workers share, which each one's part comes down along.
    """
    for name, part in rows.groupby("contender", sort=False):
        style = palette.find_style(str(name), "reader")
        medians = part.groupby("n_workers")["throughput_mb_per_s"].median()
        each = medians / medians.index.to_numpy(float)
        if part["is_ceiling"].all():
            ax.plot(each.index, each, linewidth=4, alpha=0.4, color=style.color, label=style.label)
            continue
        ax.plot(each.index, each, "-", color=style.color)
        ax.plot(each.index, each, style.marker, markersize=8, color=style.color, label=style.label)
        hollow = each[[busy[name, n] > BUSY_ABOVE for n in each.index]]
        inside: dict[str, Any] = {"markerfacecolor": palette.PAPER, "color": style.color}
        ax.plot(hollow.index, hollow, style.marker, markersize=8, zorder=5, **inside)
    top = 1.15 * ax.get_ylim()[1]
    most = int(rows["n_workers"].max())
    sizes = np.geomspace(1, most, 50)
    for (name, rate), line in zip(walls.items(), ("--", ":"), strict=False):
        is_seen = rate / most < top
        label = name if is_seen else f"{name}: {rate:,.0f} MB/s, above this figure"
        ax.plot(sizes, rate / sizes, line, color="0.4", linewidth=1.5, label=label)
    ax.set_xscale("log", base=2)
    ticks = sorted({int(n) for n in rows["n_workers"]})
    ax.set_xticks(ticks, [str(n) for n in ticks])
    ax.set(ylim=(0, top), xlabel="workers", ylabel="throughput of each worker (MB/s)")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2, frameon=False)
