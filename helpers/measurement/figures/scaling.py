"""Medians with intervals over x, one line a contender."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, ScalarFormatter
from matplotlib.transforms import ScaledTranslation, Transform

from helpers.errors import UserError
from helpers.measurement.figures.labels import figure_of, label_ends
from helpers.measurement.looks import (
    CEILING_GREY,
    NOTE,
    PAPER,
    Look,
    contender_palette,
)

_SPAN = ("median", "low", "high")


_UNITS = MappingProxyType(
    {
        "n_workers": "workers",
        "n_threads": "threads",
        "concurrency": "requests in flight",
        "read_s": "time to read (s)",
        "open_s": "time to open (s)",
        "throughput_mb_per_s": "throughput of array bytes (MB/s)",
        "stored_throughput_mb_per_s": "throughput of stored bytes (MB/s)",
        "wire_throughput_mb_per_s": "throughput of wire bytes (MB/s)",
        "share_of_ceiling": "share of the ceiling",
    }
)


def draw_scaling(
    ax: Axes,
    summary: pd.DataFrame,
    *,
    points: pd.DataFrame | None = None,
    predictions: pd.DataFrame | None = None,
    ceiling: pd.DataFrame | None = None,
    looks: Mapping[str, Look] | None = None,
    x: str = "n_workers",
    y: str = "throughput_mb_per_s",
    log: bool = False,
) -> None:
    """Draw medians with intervals over x, one line a contender.

    Parameters
    ----------
    ax : Axes
        Where to draw; its figure has its final size.
    summary : DataFrame
        `contender`, `x`, `median`, `low`, `high` and, if there, `unstable`,
        which makes a marker hollow; from `statistics.summarise`.
    points : DataFrame, optional
        `contender`, `x`, `y`: single measurements, drawn faint.
    predictions : DataFrame, optional
        `contender`, `x`, `y`: dashed lines.
    ceiling : DataFrame, optional
        `x`, `median`, `low`, `high`: the grey line.
    looks : mapping, optional
        Name to look, by default those of `contender_palette`.
    x, y : str
        Columns.
    log : bool
        Logarithmic axes; else both start at zero.

    Raises
    ------
    UserError
        If a contender has no look.
    """
    looks = looks or contender_palette()
    names = list(dict.fromkeys(summary["contender"]))
    if unknown := [name for name in names if name not in looks]:
        raise UserError(f"looks: none for {', '.join(unknown)}; allowed: {', '.join(looks)}")
    if log:
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
    ends: list[tuple[str, float, str]] = []
    for place, name in enumerate(names):
        # Marks at equal x would hide one another: each contender stands aside.
        aside = _aside(ax, place - (len(names) - 1) / 2)
        line = summary[summary["contender"] == name].sort_values(x)
        for table, draw in ((points, _draw_points), (predictions, _draw_prediction)):
            if table is not None:
                part = table[table["contender"] == name].sort_values(x)
                draw(ax, part[x], part[y], looks[name], aside)
        _draw_medians(ax, line, looks[name], aside, x)
        ends.append((name, float(line["median"].iloc[-1]), looks[name].color))
    if ceiling is not None:
        line = ceiling.sort_values(x)
        ax.plot(line[x], line["median"], color=CEILING_GREY, linewidth=3, alpha=0.5, zorder=1)
        ends.append(("ceiling", float(line["median"].iloc[-1]), CEILING_GREY))
    drawn = [table[y] for table in (points, predictions) if table is not None]
    drawn += [table[name] for table in (summary, ceiling) if table is not None for name in _SPAN]
    _set_axes(ax, summary[x], pd.concat(drawn), x=x, y=y, log=log)
    _write_key(ax, summary, has_points=points is not None, has_predictions=predictions is not None)
    label_ends(ax, ends, at=float(summary[x].max()))


def _aside(ax: Axes, rank: float) -> Transform:
    """Move drawings sideways by 2 points of paper a rank, not by data."""
    return ax.transData + ScaledTranslation(rank * 2 / 72, 0, figure_of(ax).dpi_scale_trans)


def _draw_medians(ax: Axes, line: pd.DataFrame, look: Look, aside: Transform, x: str) -> None:
    """Draw one line of medians with intervals; hollow where unstable."""
    color = look.color
    ax.plot(line[x], line["median"], color=color, linewidth=1, alpha=0.5, transform=aside)
    ax.vlines(line[x], line["low"], line["high"], color=color, linewidth=1.5, transform=aside)
    unstable = line["unstable"].ne("") if "unstable" in line else line["n"].lt(0)
    for part, fill, size in ((line[~unstable], color, 5.5), (line[unstable], PAPER, 8)):
        ax.plot(
            part[x],
            part["median"],
            look.marker,
            color=color,
            markerfacecolor=fill,
            markersize=size,
            markeredgewidth=1.3,
            zorder=3,
            transform=aside,
        )


def _draw_points(
    ax: Axes, x: pd.Series[float], y: pd.Series[float], look: Look, aside: Transform
) -> None:
    """Draw every single measurement, faintly."""
    for line in ax.plot(x, y, "_", color=look.color, alpha=0.45, zorder=1.5, transform=aside):
        line.set(markersize=11, markeredgewidth=0.9)


def _draw_prediction(
    ax: Axes, x: pd.Series[float], y: pd.Series[float], look: Look, aside: Transform
) -> None:
    """Draw what was expected beforehand."""
    ax.plot(x, y, "--", color=look.color, linewidth=1.3, alpha=0.8, transform=aside)


def _write_key(ax: Axes, summary: pd.DataFrame, *, has_points: bool, has_predictions: bool) -> None:
    """Say above the axes what marks mean, once for all contenders."""
    parts = ["marks: median, 95 % interval"]
    parts += ["ticks: single reads"] * has_points
    parts += ["dashed: predicted"] * has_predictions
    parts += ["hollow: unstable"] * bool("unstable" in summary and summary["unstable"].ne("").any())
    ax.annotate(
        "  ·  ".join(parts),
        xy=(0, 1.02),
        xycoords="axes fraction",
        color=NOTE,
        fontsize=matplotlib.rcParams["xtick.labelsize"],
    )


def _set_axes(
    ax: Axes, places: pd.Series[float], drawn: pd.Series[float], *, x: str, y: str, log: bool
) -> None:
    """Tick where was measured, name the unit, and clip nothing that was drawn."""
    ax.set(xlabel=_UNITS.get(x, x), ylabel=_UNITS.get(y, y))
    if log:
        ax.set(
            xlim=(places.min() / 1.15, places.max() * 1.15),
            ylim=(drawn.min() / 1.2, drawn.max() * 1.2),
        )
        ax.yaxis.set_major_formatter(ScalarFormatter())
        ax.yaxis.set_minor_formatter(ScalarFormatter())
    else:
        ax.set(xlim=(0, places.max() * 1.04), ylim=(0, drawn.max() * 1.05))
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(sorted(set(places)))
