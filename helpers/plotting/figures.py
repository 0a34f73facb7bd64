"""What figures of several studies share: axes, labels, and predictions against measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, ScalarFormatter
from scipy.optimize import isotonic_regression  # no types shipped

from helpers.errors import UserError
from helpers.plotting.palette import BAND, CEILING_GREY, NOTE, Style, get_styles

_FEW_DECADES = 2.5  # of an axis: 1, 2 and 5 have room
# from a name to the end of its line
_LEADER = {"arrowstyle": "-", "linewidth": 0.6, "alpha": 0.6, "shrinkA": 1, "shrinkB": 8}


class _Ticks(LogLocator):
    """At 1, 2 and 5 of each decade where there is room, else at 1 and 3, else at powers of ten."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Choose by the decades in view and the letters along the axis."""
        decades = abs(np.log10(vmax / vmin)) if min(vmin, vmax) > 0 else np.inf
        room = float(self.axis.get_tick_space()) if isinstance(self.axis, Axis) else 9.0
        if isinstance(self.axis, XAxis):  # that counts on four letters a number
            room *= 4 / max(4, *(len(_tell_tick(float(f"{end:.0e}"))) for end in (vmin, vmax)))
        few = decades <= _FEW_DECADES
        fitting = (subs for subs in ((1, 2, 5), (1, 3)) if few and len(subs) * decades <= room)
        self.set_params(subs=next(fitting, (1,)), numticks=max(2, int(room)))
        return super().tick_values(vmin, vmax)


def _tell_tick(value: float, _place: int | None = None) -> str:
    """Write a number along an axis as tables have it."""
    return f"{value:,.0f}" if value >= 10_000 else f"{value:g}"


def number_axis(axis: Axis) -> None:
    """Write plain numbers along a logarithmic axis, no more than find room."""
    axis.set_major_locator(_Ticks())
    axis.set_major_formatter(FuncFormatter(_tell_tick))
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


def label_ends(
    ax: Axes, ends: Sequence[tuple[str, float, str]], *, at: float | Sequence[float]
) -> None:
    """Write names beside the right ends of lines, moved apart where they would overlap.

    Lines end at one x or, with a sequence, each at its own.
    """
    places = at if isinstance(at, Sequence) else [at] * len(ends)
    figure = figure_of(ax)
    figure.draw_without_rendering()
    height = ax.get_window_extent().height
    size = float(matplotlib.rcParams["ytick.labelsize"])
    gap = 1.25 * size * figure.dpi / 72 / height
    to_axes = ax.transData + ax.transAxes.inverted()
    wanted = [float(to_axes.transform((x, end[1]))[1]) for x, end in zip(places, ends, strict=True)]
    spaced = spread(wanted, gap=gap, low=0, high=1 - gap / 2)
    for (name, y, color), x, place in zip(ends, places, spaced, strict=True):
        ax.annotate(
            name,
            xy=(x, y),
            xytext=(1.04, place),
            textcoords="axes fraction",
            va="center",
            color=color,
            fontsize=size,
            arrowprops={"color": color, **_LEADER},
        )


def draw_errors(
    ax: Axes,
    errors: pd.DataFrame,
    *,
    looks: Mapping[str, Style] | None = None,
    tolerance: float = 0.2,
) -> None:
    """Draw how far predictions were off, a row a contender, a mark a point.

    The columns of `errors` are `contender` and `relative_error`: predicted over
    measured, less 1. Colours and markers are by default those of readers; the
    largest error that is the target is drawn as a band.
    """
    looks = looks or get_styles("reader")
    names = list(dict.fromkeys(errors["contender"]))
    if unknown := [name for name in names if name not in looks]:
        raise UserError(f"looks: none for {', '.join(unknown)}; allowed: {', '.join(looks)}")
    draw_band(ax, 100 * tolerance, is_horizontal=False)
    for row, name in enumerate(names):
        found = 100 * errors.loc[errors["contender"] == name, "relative_error"]
        look, rows = looks[name], np.full(len(found), row)
        ax.plot(found, rows, look.marker, color=look.color, alpha=0.75)
    room = max(200 * tolerance, 115 * float(errors["relative_error"].abs().max()))
    ax.set(xlabel="predicted less measured (%)", xlim=(-room, room), ylim=(len(names) - 0.5, -0.5))
    ax.set_yticks(range(len(names)), names)
    ax.grid(visible=False)
    for label, name in zip(ax.get_yticklabels(), names, strict=True):
        label.set_color(looks[name].color)


def tick_places(ax: Axes, places: Iterable[float]) -> None:
    """Tick the x-axis where something was measured, with plain numbers."""
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(sorted(set(places)))


def write_key(ax: Axes, text: str) -> None:
    """Say above the axes what marks mean, once for all contenders."""
    size = matplotlib.rcParams["xtick.labelsize"]
    ax.annotate(text, xy=(0, 1.02), xycoords="axes fraction", color=NOTE, fontsize=size)


def draw_band(ax: Axes, percent: float, *, is_horizontal: bool) -> None:
    """Shade what is tolerated around zero and name it."""
    band, line = (ax.axhspan, ax.axhline) if is_horizontal else (ax.axvspan, ax.axvline)
    band(-percent, percent, color=BAND, linewidth=0, zorder=0)
    line(0, color=CEILING_GREY, linewidth=1, zorder=0.5)
    write_key(ax, f"grey: within {percent:g} %")
