"""Names beside what they name, moved apart where they would overlap; numbers along axes."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter
from scipy.optimize import isotonic_regression  # no types shipped

from helpers.errors import UserError

_FEW_DECADES = 2.5  # of an axis: 1, 2 and 5 have room


def number_axis(axis: Axis) -> None:
    """Write plain numbers along a logarithmic axis, no more than find room.

    Parameters
    ----------
    axis : Axis
        Of axes on which everything is drawn.
    """
    low, high = axis.get_view_interval()
    subs = (1, 2, 5) if np.log10(high / low) <= _FEW_DECADES else (1,)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(NullLocator())


def spread(places: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """Move labels apart, as little as possible.

    The least sum of squared moves that leaves `gap` between neighbours is an
    isotonic regression of the places less their rank times `gap`.

    Parameters
    ----------
    places : sequence of float
        Where labels belong, in any order.
    gap : float
        Least distance between two, in the same unit.
    low, high : float
        Ends of the room; too little room shrinks the gap.

    Returns
    -------
    list of float
        Where labels go, in the order given.

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
    """Write names beside the right ends of lines, moved apart where they would overlap.

    Parameters
    ----------
    ax : Axes
        Axes with final limits in a figure of final size.
    ends : sequence of tuple
        Name, y of the end in data, colour.
    at : float
        The x of the ends, in data.
    """
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
