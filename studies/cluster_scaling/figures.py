"""Throughput against workers, as the page on cluster scaling draws it."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from helpers.benchmark import statistics
from helpers.plotting import palette
from studies.cluster_scaling.findings import BUSY_ABOVE


def draw_reader(ax: Axes, rows: pd.DataFrame, busy: pd.Series) -> None:
    """Draw medians of one contender with their intervals, hollow where processors were busy.

    `busy` are percent of the machine's processors by number of workers. A ceiling has no marks.
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
