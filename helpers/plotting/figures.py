"""Figures that studies share: throughput over workers, predictions against measurements, labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter, StrMethodFormatter
from matplotlib.transforms import ScaledTranslation, Transform
from scipy.optimize import isotonic_regression  # no types shipped

from helpers.errors import UserError
from helpers.plotting.palette import BAND, CEILING_GREY, NOTE, OURS, PAPER, Look, contender_palette

_FEW_DECADES = 2.5  # of an axis: 1, 2 and 5 have room


def number_axis(axis: Axis) -> None:
    """Write plain numbers along a logarithmic axis, no more than find room."""
    low, high = axis.get_view_interval()
    subs = (1, 2, 5) if np.log10(high / low) <= _FEW_DECADES else (1,)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(NullLocator())


def spread(places: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """Move labels apart, as little as possible.

    The least sum of squared moves that leaves `gap` between neighbours is an
    isotonic regression of the places less their rank times `gap`.

    Examples
    --------
    >>> spread([0.50, 0.52, 0.9], gap=0.1, low=0, high=1)
    [0.46, 0.56, 0.9]
    """
    if not len(places):
        return []
    order = np.argsort(places, kind="stable")
    n = len(places)
    gap = min(gap, (high - low) / max(n - 1, 1))
    steps = gap * np.arange(n)
    fitted = isotonic_regression(np.asarray(places, dtype=float)[order] - steps).x
    moved = np.clip(fitted, low, high - steps[-1]) + steps
    out = np.empty(n)
    out[order] = np.round(moved, 9)
    return [float(place) for place in out]


def figure_of(ax: Axes) -> Figure:
    """Return the figure of axes that have one."""
    figure = ax.get_figure(root=True)
    if figure is None:
        raise UserError("ax: belongs to no figure; allowed: axes of a figure")
    return figure


def label_ends(ax: Axes, ends: Sequence[tuple[str, float, str]], *, at: float) -> None:
    """Write names beside the right ends of lines, moved apart where they would overlap."""
    figure = figure_of(ax)
    figure.draw_without_rendering()
    height = ax.get_window_extent().height
    size = float(matplotlib.rcParams["ytick.labelsize"])
    gap = 1.25 * size * figure.dpi / 72 / height
    to_axes = ax.transData + ax.transAxes.inverted()
    wanted = [float(to_axes.transform((at, y))[1]) for _, y, _ in ends]
    for (name, y, color), place in zip(
        ends, spread(wanted, gap=gap, low=0, high=1 - gap / 2), strict=True
    ):
        ax.annotate(
            name,
            xy=(at, y),
            xytext=(1.04, place),
            textcoords="axes fraction",
            va="center",
            color=color,
            fontsize=size,
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "linewidth": 0.6,
                "alpha": 0.6,
                "shrinkA": 1,
                "shrinkB": 8,
            },
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


def draw_calibration(
    ax: Axes,
    asked: Sequence[float],
    measured: Sequence[float],
    *,
    x: Sequence[float] | None = None,
    xlabel: str = "asked",
    tolerance: float = 0.05,
) -> None:
    """Draw by how many percent what was emulated is off from what was asked.

    Deviations, not the two against each other: five percent of two decades is
    thinner than a line.
    """
    places = asked if x is None else x
    if not len(asked) == len(measured) == len(places) or not all(
        v > 0 for v in (*asked, *measured)
    ):
        raise UserError(
            f"asked, measured: {len(asked)} and {len(measured)} values at {len(places)} places; "
            "allowed: equally many, above 0"
        )
    deviations = 100 * (np.asarray(measured) / np.asarray(asked) - 1)
    _draw_band(ax, 100 * tolerance, is_horizontal=True)
    ax.plot(places, deviations, "o", color=OURS, alpha=0.8)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(sorted(set(places)))
    room = max(200 * tolerance, 1.15 * float(np.abs(deviations).max()))
    ax.set(xlabel=xlabel, ylabel="measured less asked (%)", ylim=(-room, room))


def draw_errors(
    ax: Axes,
    errors: pd.DataFrame,
    *,
    looks: Mapping[str, Look] | None = None,
    error: str = "relative_error",
    tolerance: float = 0.2,
) -> None:
    """Draw how far predictions were off, a row a contender, a mark a point.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    errors : DataFrame
        `contender` and the column `error`: predicted over measured, less 1.
    looks : mapping, optional
        Name to look, by default those of `contender_palette`.
    error : str
        Column.
    tolerance : float
        Largest error hoped for, drawn as a band.

    Raises
    ------
    UserError
        If a contender has no look.
    """
    looks = looks or contender_palette()
    names = list(dict.fromkeys(errors["contender"]))
    if unknown := [name for name in names if name not in looks]:
        raise UserError(f"looks: none for {', '.join(unknown)}; allowed: {', '.join(looks)}")
    _draw_band(ax, 100 * tolerance, is_horizontal=False)
    for row, name in enumerate(names):
        found = 100 * errors.loc[errors["contender"] == name, error]
        look, rows = looks[name], np.full(len(found), row)
        ax.plot(found, rows, look.marker, color=look.color, alpha=0.75)
    room = max(200 * tolerance, 115 * float(errors[error].abs().max()))
    ax.set(xlabel="predicted less measured (%)", xlim=(-room, room), ylim=(len(names) - 0.5, -0.5))
    ax.set_yticks(range(len(names)), names)
    ax.grid(visible=False)
    for label, name in zip(ax.get_yticklabels(), names, strict=True):
        label.set_color(looks[name].color)


def _draw_band(ax: Axes, percent: float, *, is_horizontal: bool) -> None:
    """Shade what is tolerated around zero and name it."""
    band, line = (ax.axhspan, ax.axhline) if is_horizontal else (ax.axvspan, ax.axvline)
    band(-percent, percent, color=BAND, linewidth=0, zorder=0)
    line(0, color=CEILING_GREY, linewidth=1, zorder=0.5)
    ax.annotate(
        f"grey: within {percent:g} %",
        xy=(0, 1.02),
        xycoords="axes fraction",
        color=NOTE,
        fontsize=matplotlib.rcParams["xtick.labelsize"],
    )
