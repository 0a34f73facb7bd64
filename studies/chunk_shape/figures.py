"""The figures of the study of chunk shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from helpers.benchmark.record import read_published
from helpers.plotting.figures import number_axis, spread, tick_places
from helpers.plotting.palette import BAND, CEILING_GREY, OURS, THEIRS, find_look
from studies.chunk_shape.findings import pivot

_NAMED_BIAS = 10  # layouts above it have a label


def _published() -> pd.DataFrame:
    """Read the published times: a row a layout on a disk, a column an access."""
    table = read_published("rew2013_access_times")
    table = table.assign(chunk_kb=table["chunk_kb_nominal"].fillna(0))
    keys = ["medium", "layout", "chunk_kb"]
    return table.pivot_table(index=keys, columns="access", values="time_s").reset_index()


def draw_fronts(axes: Sequence[Axes], named: pd.DataFrame) -> None:
    """Draw the time of a series against that of a slice, a panel a medium, a point a layout."""
    for ax, (medium, part) in zip(axes, named.groupby("medium", sort=False), strict=True):
        measured = pivot(part).droplevel("medium")
        shown = [(pivot(part, "predicted_s"), "x", CEILING_GREY, "predicted")]
        shown += [(measured, "o", OURS, "measured")]
        if medium == "hdf5":  # the published times are a file's
            names = {"spatial_slice": "slice", "time_series": "series"}
            shown.insert(0, (_published().rename(columns=names), "s", THEIRS, "Rew (2013)"))
        for table, mark, color, label in shown:
            size = {"markersize": 3.5, "alpha": 0.6} if color == THEIRS else {"markersize": 5}
            ax.plot(table["slice"], table["series"], mark, color=color, label=label, **size)
        front = _front(measured)
        ax.step(front["slice"], front["series"], where="post", color=OURS, linewidth=0.8)
        ax.grid(visible=False)
        _set_logarithmic(ax, "time of a slice (s)", "time of a series (s)")
        _label(ax, measured)
        ax.legend(frameon=False, fontsize=8, loc="best", title=str(medium))


def _set_logarithmic(ax: Axes, x: str, y: str) -> None:
    ax.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    number_axis(ax.xaxis)
    number_axis(ax.yaxis)


def _front(times: pd.DataFrame) -> pd.DataFrame:
    """Keep the layouts that no other beats in both accesses."""
    ordered = times[["slice", "series"]].sort_values(["slice", "series"])
    return ordered[ordered["series"] < ordered["series"].cummin().shift(fill_value=np.inf)]


def _label(ax: Axes, times: pd.DataFrame) -> None:
    """Name points in a column beside the axes, in the order of their heights.

    The line from a point to its name is level up to the end of the axes, so that no two cross.
    """
    ordered = times.sort_values(["series", "slice"])
    ax.set_xlim(ax.get_xlim())
    end, to_axes = ax.get_xlim()[1], ax.transData + ax.transAxes.inverted()
    line: dict[str, Any] = {"color": CEILING_GREY, "linewidth": 0.5}
    ax.hlines(ordered["series"], ordered["slice"], end, zorder=0, **line)
    heights = [float(to_axes.transform((end, y))[1]) for y in ordered["series"]]
    spaced = spread(heights, gap=0.055, low=0, high=1)
    for name, y, height in zip(ordered.index, ordered["series"], spaced, strict=True):
        ax.annotate(
            str(name), (end, y), xytext=(1.08, height), textcoords="axes fraction", fontsize=9,
            va="center", arrowprops={"arrowstyle": "-", "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 0} | line,
        )  # fmt: skip


def draw_prediction(ax: Axes, table: pd.DataFrame) -> None:
    """Draw predicted against measured times of all layouts held out, by access."""
    low, high = table["p50_s"].min() / 2, table["p50_s"].max() * 2
    line = np.asarray([low, high])
    ax.fill_between(line, 0.8 * line, 1.2 * line, color=BAND, linewidth=0)
    ax.plot(line, line, color=CEILING_GREY, linewidth=1)
    for access, part in table.groupby("access", sort=False):
        look = find_look(str(access), "access")
        ax.plot(
            part["p50_s"], part["predicted_s"], look.marker, color=look.color, markersize=4,
            label=access,
        )  # fmt: skip
    _set_logarithmic(ax, "measured (s)", "predicted (s)")
    ax.legend(frameon=False, fontsize=8)
    ax.annotate(
        "grey: within a fifth", (0.97, 0.03), xycoords="axes fraction", ha="right", fontsize=8
    )


def _spread(centre: pd.Series[float], low: pd.Series[float], high: pd.Series[float]) -> list[Any]:
    """Give the lengths of the bars of an interval; a median may lie beyond its end."""
    return [(centre - low).clip(lower=0), (high - centre).clip(lower=0)]


def draw_bias(ax: Axes, table: pd.DataFrame, chunk_kb: pd.Series[float]) -> None:
    """Draw bias against chunk size, the published beside ours; 0 kB stands for no chunks."""
    x = chunk_kb.rename_axis(table.index.names).reindex(table.index).fillna(1.0)
    for medium, part in table.groupby(level="medium"):
        look = find_look(str(medium), "medium")
        ax.errorbar(
            x[part.index], part["bias"], _spread(part["bias"], part["low"], part["high"]),
            fmt=look.marker, color=look.color, markersize=4, label=f"ours, {medium}",
        )  # fmt: skip
    worst = table.loc[table["bias"] > _NAMED_BIAS, "bias"]
    for name, at in zip(worst.index, zip(x[worst.index], worst, strict=True), strict=True):
        ax.annotate(name[1], at, xytext=(6, 0), textcoords="offset points", fontsize=7, va="center")
    theirs = _published()
    pair = theirs[["spatial_slice", "time_series"]]
    ax.plot(
        theirs["chunk_kb"].replace(0, 1), pair.max(axis=1) / pair.min(axis=1), "s",
        color=THEIRS, markersize=4, alpha=0.6, label="Rew (2013)",
    )  # fmt: skip
    _set_logarithmic(ax, "chunk (kB); none at the left end", "slower over faster")
    ax.legend(frameon=False, fontsize=8)


def draw_traffic(axes: Sequence[Axes], traffic: pd.DataFrame) -> None:
    """Draw requests and over-read of each access, a line a layout."""
    names = list(dict.fromkeys(traffic["contender"] + ", " + traffic["medium"]))
    rows = {name: i for i, name in enumerate(names)}
    y = (traffic["contender"] + ", " + traffic["medium"]).map(rows)
    shown = {"requests": "requests", "over_read": "bytes brought / asked"}
    for ax, (column, label) in zip(axes, shown.items(), strict=True):
        for access, part in traffic.groupby("access", sort=False):
            look = find_look(str(access), "access")
            ax.plot(
                part[column], y[part.index], look.marker, color=look.color, markersize=4,
                label=access,
            )  # fmt: skip
        ax.set(xscale="log", xlabel=label, yticks=[])
        number_axis(ax.xaxis)
    axes[0].set_yticks(list(rows.values()), list(rows), fontsize=8)
    axes[0].figure.legend(  # above the panels: inside, it would hide points
        *axes[1].get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize=8
    )


def draw_rewriting(axes: Sequence[Axes], costs: pd.DataFrame) -> None:
    """Draw minutes per GB and the reads after which rewriting has paid, the published beside."""
    ours, reads = costs["minutes per GB"], costs["reads to pay back"]
    theirs = read_published("rew2013_rechunking_minutes")
    theirs = theirs[theirs["time_min"].notna()]
    per_gb = theirs["time_min"].astype(float) / (theirs["nbytes_input"] / 1e9)
    axes[0].plot(per_gb, theirs["tool"], "s", color=THEIRS, markersize=4, alpha=0.6)
    bars = _spread(ours, costs["low"], costs["high"])
    axes[0].errorbar(ours, ours.index, xerr=bars, fmt="o", color=OURS)
    axes[0].set(xlim=(0, None), xlabel="minutes per GB")
    reads = reads.replace(np.inf, np.nan)
    bars = _spread(reads, costs["least"], costs["most"])
    axes[1].errorbar(reads, reads.index, xerr=bars, fmt="o", color=OURS)
    most = float(costs[["reads to pay back", "most"]].replace(np.inf, 1).fillna(1).to_numpy().max())
    axes[1].set(xlim=(0, 1.1 * most), xlabel="reads to pay back")


def draw_codecs(axes: Sequence[Axes], costs: pd.DataFrame) -> None:
    """Draw compression ratio and decoding speed against chunk size, a line a codec."""
    for codec, part in costs.groupby("codec", sort=False):
        look = find_look(str(codec), "codec")
        for ax, column in zip(axes, ("ratio", "decode_mb_per_s"), strict=True):
            ax.plot(
                part["chunk_kib"], part[column], f"{look.marker}-", color=look.color, linewidth=1,
                markersize=4, label=codec,
            )  # fmt: skip
    for ax, label in zip(axes, ("array / stored", "decoded (MB/s)"), strict=True):
        ax.set(xscale="log", xlabel="chunk (KiB)", ylabel=label)
        tick_places(ax, costs["chunk_kib"])
    axes[0].set_ylim(0, None)
    axes[1].set_yscale("log")
    number_axis(axes[1].yaxis)
    axes[0].figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize=8
    )
