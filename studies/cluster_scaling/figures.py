"""Figures and tables of cluster scaling: the network, throughput over workers, traces, ratios."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.transforms import ScaledTranslation, Transform

from helpers.arrays.stores import StoredArray
from helpers.benchmark import statistics
from helpers.errors import UserError
from helpers.plotting.figures import draw_band, figure_of, label_ends, tick_places, write_key
from helpers.plotting.palette import (
    AXIS,
    CEILING_GREY,
    OURS,
    PAPER,
    RULE,
    THEIRS_GREY,
    Look,
    check_looks,
    find_look,
    get_looks,
)
from helpers.plotting.tables import trace_of
from studies.cluster_scaling.findings import NETCDF, select_rows, tell_cores


def describe_array(stored: StoredArray) -> pd.DataFrame:
    """Tabulate the layouts of an array: bytes in the store and ratio of compression."""
    layouts = {
        layout: {"stored (MB)": nbytes / 1e6, "array / stored": stored.nbytes / nbytes}
        for layout, nbytes in stored.stored_nbytes.items()
        if layout != "references"  # they hold no values
    }
    table = pd.DataFrame(layouts).T.rename_axis("layout")
    table.insert(0, "array (MB)", stored.nbytes / 1e6)
    return table.assign(chunks=stored.n_chunks).round(2)


def draw_network(axes: Sequence[Axes], checked: pd.DataFrame) -> None:
    """Draw the target against what was measured, a panel a quantity."""
    names = {
        "first_byte_s": "time to first byte",
        "stream_mb_per_s": "one stream",
        "aggregate_mb_per_s": "all together",
    }
    for ax, (quantity, label) in zip(axes, names.items(), strict=True):
        part = checked[checked["quantity"] == quantity]
        if part.empty:
            ax.set_axis_off()
            continue
        target, measured, x = (list(part[n]) for n in ("target", "measured", "n_connections"))
        draw_calibration(ax, target, measured, x=x, xlabel="connections")
        ax.texts[0].set_text(label)  # the caption says what is grey
        if ax is not axes[0]:
            ax.set_ylabel("")


def draw_throughput(ax: Axes, rows: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Draw throughput of array bytes against workers, with predictions and the ceiling."""
    by = ["contender", "n_workers"]
    shown = rows[(rows["phase"] == "measured") & (rows["control_of"] == "")]
    readers, raw = shown[~shown["is_ceiling"]], shown[shown["is_ceiling"]]
    draw_scaling(
        ax,
        statistics.summarise(readers, by, value="throughput_mb_per_s"),
        points=readers,
        predictions=expected[expected["contender"] != "raw"],
        ceiling=statistics.summarise(raw, by, value="throughput_mb_per_s"),
        note=tell_cores(shown),
    )


def tabulate(rows: pd.DataFrame, *, n_workers: int) -> pd.DataFrame:
    """Tabulate medians at one number of workers, the fastest first."""
    part = select_rows(rows, n_workers=n_workers)
    columns = {
        "array MB/s": "throughput_mb_per_s",
        "stored MB/s": "stored_throughput_mb_per_s",
        "wire MB/s": "wire_throughput_mb_per_s",
        "share of ceiling": "share_of_ceiling",
        "opening (s)": "open_s",
        "reading (s)": "read_s",
    }
    medians = part.groupby("contender")[list(columns.values())].median()
    table = medians.set_axis(list(columns), axis=1).sort_values("reading (s)")
    n_threads = part.groupby("contender")["concurrency"].first()
    table.insert(1, "array MB/s a thread", table["array MB/s"] / n_threads)
    return table.map(lambda value: float(f"{value:.3g}"))


def tabulate_requests(rows: pd.DataFrame, *, n_chunks: int, n_workers: int) -> pd.DataFrame:
    """Tabulate what the trace says of each contender at one number of workers."""
    part = select_rows(rows, n_workers=n_workers)
    trace = trace_of(part)
    if "mean_in_flight" not in trace:
        return pd.DataFrame(columns=["not traced"])
    table = pd.DataFrame(
        {
            "contender": part["contender"],
            "requests a chunk": part["n_requests"] / n_chunks,
            "wire / stored": part["wire_nbytes"] / part["stored_nbytes"],
            "requests to open": trace["n_open_requests"],
            "in flight, mean": trace["mean_in_flight"],
            "in flight, most": trace["max_in_flight"],
            "threads": part["concurrency"],
            "failed": trace["n_failed_requests"],
        }
    )
    if "n_new_connections" in trace:  # in no record made before they were counted
        table["new connections a thread"] = trace["n_new_connections"] / part["concurrency"]
    return table.groupby("contender").median().round(2)


_TOLERANCE = 0.05  # of the emulated network


def draw_calibration(
    ax: Axes,
    target: Sequence[float],
    measured: Sequence[float],
    *,
    x: Sequence[float],
    xlabel: str,
) -> None:
    """Draw by how many percent what was emulated is off its target.

    Deviations, not the two against each other: five percent of two decades is
    thinner than a line. A measured 0 is one: of streams over which nothing came on a busy machine.
    """
    is_drawable = min(target, default=1) > 0 and min(measured, default=0) >= 0
    if not len(target) == len(measured) == len(x) or not is_drawable:
        raise UserError(
            f"target, measured: {[*target]} and {[*measured]} at {[*x]}; "
            "allowed: equally many, above 0 and at least 0"
        )
    deviations = 100 * (np.asarray(measured) / np.asarray(target) - 1)
    draw_band(ax, 100 * _TOLERANCE, is_horizontal=True)
    ax.plot(x, deviations, "o", color=OURS, alpha=0.8)
    ax.set_xscale("log", base=2)
    tick_places(ax, x)
    room = max(200 * _TOLERANCE, 1.15 * float(np.abs(deviations).max()))
    ax.set(xlabel=xlabel, ylabel="measured less target (%)", ylim=(-room, room))


# every single measurement, faintly; what was expected beforehand, dashed
_POINTS: dict[str, Any] = {
    "linestyle": "none", "marker": "_", "alpha": 0.45, "zorder": 1.5, "markersize": 8,
    "markeredgewidth": 0.9,
}  # fmt: skip
_PREDICTED: dict[str, Any] = {"linestyle": "--", "linewidth": 1, "alpha": 0.7}


def draw_scaling(
    ax: Axes,
    summary: pd.DataFrame,
    *,
    points: pd.DataFrame | None = None,
    predictions: pd.DataFrame | None = None,
    ceiling: pd.DataFrame | None = None,
    note: str = "",
) -> None:
    """Draw medians of throughput with intervals over workers, one line a contender.

    The figure has its final size. `summary` is from `statistics.summarise`, in MB/s; what it
    calls unstable gets a hollow marker. `points` and `predictions` have `contender`, `n_workers`
    and `throughput_mb_per_s`: single measurements, drawn faint, and dashed lines. `ceiling` is as
    `summary`, of one contender: the grey line; `note` stands beside the name of the workers' axis.
    """
    x, y, looks = "n_workers", "throughput_mb_per_s", get_looks("reader")
    names = list(dict.fromkeys(summary["contender"]))
    check_looks(names, "reader")
    ends: list[tuple[str, float, str]] = []
    for place, name in enumerate(names):
        # Marks at equal x would hide one another: each contender stands aside on the paper.
        inches = (place - (len(names) - 1) / 2) * min(6, 40 / len(names)) / 72
        aside = ax.transData + ScaledTranslation(inches, 0, figure_of(ax).dpi_scale_trans)
        line = summary[summary["contender"] == name].sort_values(x)
        for table, how in ((points, _POINTS), (predictions, _PREDICTED)):
            if table is not None:
                part = table[table["contender"] == name].sort_values(x)
                ax.plot(part[x], part[y], color=looks[name].color, transform=aside, **how)
        _draw_medians(ax, line, looks[name], aside)
        ends.append((name, float(line["median"].iloc[-1]), looks[name].color))
    if ceiling is not None:
        line = ceiling.sort_values(x)
        ax.plot(line[x], line["median"], color=CEILING_GREY, linewidth=3, alpha=0.5, zorder=1)
        ends.append(("ceiling", float(line["median"].iloc[-1]), CEILING_GREY))
    drawn = [table[y].max() for table in (points, predictions) if table is not None]
    spans = [table for table in (summary, ceiling) if table is not None]
    drawn += [table[["median", "low", "high"]].max(axis=None) for table in spans]
    limits = {
        "xlim": (summary[x].min() / 1.3, summary[x].max() * 1.3),
        "ylim": (0, max(drawn) * 1.05),
    }
    ax.set_xscale("log", base=2)  # doublings of workers stand equally far apart
    places = f"workers ({note})" if note else "workers"
    ax.set(xlabel=places, ylabel="throughput (MB/s)", **limits)  # nothing drawn is clipped
    tick_places(ax, summary[x])
    key = {"has_points": points is not None, "has_predictions": predictions is not None}
    _write_key(ax, summary, **key)
    label_ends(ax, ends, at=float(summary[x].max()))


def _draw_medians(ax: Axes, line: pd.DataFrame, look: Look, aside: Transform) -> None:
    """Draw one line of medians with intervals; hollow where unstable."""
    color, x = look.color, line["n_workers"]
    ax.plot(x, line["median"], color=color, linewidth=1, alpha=0.5, transform=aside)
    ax.vlines(x, line["low"], line["high"], color=color, linewidth=1.5, transform=aside)
    unstable = line["unstable"].ne("") if "unstable" in line else line["n"].lt(0)
    for part, fill, size in ((line[~unstable], color, 5.5), (line[unstable], PAPER, 8)):
        marks = ax.plot(part["n_workers"], part["median"], look.marker, transform=aside, zorder=3)
        marks[0].set(color=color, markerfacecolor=fill, markersize=size, markeredgewidth=1.3)


def _write_key(ax: Axes, summary: pd.DataFrame, *, has_points: bool, has_predictions: bool) -> None:
    """Say above the axes what marks mean, once for all contenders."""
    parts = ["marks: median, 95 % interval"]
    parts += ["ticks: single reads"] * has_points
    parts += ["dashed: predicted"] * has_predictions
    parts += ["hollow: unstable"] * bool("unstable" in summary and summary["unstable"].ne("").any())
    write_key(ax, "  ·  ".join(parts))


def draw_published(ax: Axes, published: pd.DataFrame, ours: pd.DataFrame) -> None:
    """Draw the published ratios of Zarr to netCDF and ours on logarithmic axes."""
    look = find_look(NETCDF, "reader")
    ax.plot(published["n_threads"], published["ratio"], "o", color=THEIRS_GREY, alpha=0.8)
    spread = [ours["ratio"] - ours["low"], ours["high"] - ours["ratio"]]
    ax.errorbar(ours["n_threads"], ours["ratio"], spread, fmt=look.marker, color=look.color)
    ax.axhline(10, color=RULE, linewidth=0.8)
    most = max(10.0, *published["ratio"], *ours["ratio"])
    ticks = sorted({*published["n_threads"], *ours["n_threads"]})
    ax.set(xscale="log", xlabel="threads", ylabel="Zarr over netCDF (ratio)", ylim=(0, 1.2 * most))
    tick_places(ax, ticks)
    ax.annotate("tenfold", (ticks[0], 10), xytext=(0, 3), textcoords="offset points", color=AXIS)
    for table, text, color in ((published, "published, 2020", AXIS), (ours, "here", look.color)):
        if len(table):
            first = table.iloc[0]
            at = (first["n_threads"], first["ratio"])
            ax.annotate(text, at, xytext=(6, 8), textcoords="offset points", color=color)
