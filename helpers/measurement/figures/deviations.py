"""How far what was imposed is from what was asked, and what was measured from what was predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, ScalarFormatter

from helpers.errors import UserError
from helpers.measurement.looks import (
    BAND,
    CEILING_GREY,
    NOTE,
    OURS,
    Look,
    contender_palette,
)


def draw_calibration(
    ax: Axes,
    asked: Sequence[float],
    measured: Sequence[float],
    *,
    x: Sequence[float] | None = None,
    xlabel: str = "asked",
    tolerance: float = 0.05,
) -> None:
    """Draw by how many percent what was imposed is off from what was asked.

    Deviations, not the two against each other: five percent of two decades is
    thinner than a line.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    asked, measured : sequence of float
        Same quantity and unit, one pair a point, above 0.
    x : sequence of float, optional
        Place of each point, as in connections; by default the value asked.
    xlabel : str
        Quantity and unit of the places.
    tolerance : float
        Relative deviation allowed, drawn as a band.

    Raises
    ------
    UserError
        If the lengths differ, or a value is not above 0.
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
