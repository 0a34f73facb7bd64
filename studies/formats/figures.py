"""Figures of formats: a row a contender, on one axis of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from helpers.benchmark import statistics
from helpers.plotting.figures import number_axis, write_key
from helpers.plotting.palette import BAND, CEILING_GREY, OURS, THEIRS_GREY
from studies.formats.clients import CLIENTS
from studies.formats.findings import select

_TITLES = {"whole": "the whole array", "step": "one time step", "series": "one time series"}
_MARKERS = {"whole": "o", "step": "s", "series": "D"}


def draw_times(
    axes: Sequence[Axes], rows: pd.DataFrame, expected: pd.DataFrame, accesses: Sequence[str]
) -> None:
    """Draw the time of opening and reading, an axis an access, a row a contender.

    `rows` have `total_s`, and `expected` what was predicted of it. Rows are in the order of
    the first access; what is this project's own has its name in grey.
    """
    first = statistics.summarise(select(rows, accesses[0]), ["contender"], value="total_s")
    names = [str(name) for name in first.sort_values("median")["contender"] if name in CLIENTS]
    for ax, access in zip(axes, accesses, strict=True):
        _draw_access(ax, select(rows, access), expected[expected["access"] == access], names)
        ax.set_title(_TITLES[access], loc="left", fontsize="medium")
    axes[0].set_yticks(range(len(names)), names)
    for label, name in zip(axes[0].get_yticklabels(), names, strict=True):
        label.set_color(THEIRS_GREY if CLIENTS[name].is_ours else OURS)
    axes[0].set_ylim(len(names) - 0.5, -0.5)


def _draw_access(ax: Axes, rows: pd.DataFrame, expected: pd.DataFrame, names: list[str]) -> None:
    found = statistics.summarise(rows, ["contender"], value="total_s").set_index("contender")
    predicted = expected.set_index("contender")["total_s"]
    for place, name in enumerate(names):
        if name not in found.index:
            continue
        times = rows.loc[rows["contender"] == name, "total_s"]
        ax.plot(times, np.full(len(times), place), "|", color=OURS, alpha=0.5, markersize=6)
        at: Any = found.loc[name]
        median, low, high = at["median"], at["low"], at["high"]
        ax.plot([low, high], [place, place], color=OURS, linewidth=1.2)
        ax.plot(median, place, "o", color=OURS, markersize=5)
        if name in predicted.index:
            ax.plot(predicted[name], place, "x", color=CEILING_GREY, markersize=6)
    if "raw" in found.index:
        raw: Any = found.loc["raw", "median"]
        ax.axvline(raw, color=CEILING_GREY, linewidth=1, linestyle="--")
    for place in range(0, len(names), 2):
        ax.axhspan(place - 0.5, place + 0.5, color=BAND, alpha=0.35, linewidth=0, zorder=0)
    ax.set(xscale="log", xlabel="seconds")
    number_axis(ax.xaxis)
    ax.grid(visible=False, axis="y")


def draw_errors(ax: Axes, errors: pd.DataFrame, *, tolerance: float = 0.2) -> None:
    """Draw how far predictions were off, a row a contender, a mark for each access that there is."""
    names = [name for name in dict.fromkeys(errors["contender"]) if name in CLIENTS]
    ax.axvspan(-100 * tolerance, 100 * tolerance, color=BAND, linewidth=0, zorder=0)
    ax.axvline(0, color=CEILING_GREY, linewidth=1)
    shown = [one for one in _MARKERS if one in {*errors["access"]}]
    for access in shown:
        part = errors[errors["access"] == access].set_index("contender")["relative_error"]
        rows = [place for place, name in enumerate(names) if name in part.index]
        found = [100 * part[names[place]] for place in rows]
        ax.plot(found, rows, _MARKERS[access], color=OURS, alpha=0.8, label=_TITLES[access])
    ax.set_yticks(range(len(names)), names)
    ax.set(xlabel="predicted less measured (%)", ylim=(len(names) - 0.5, -0.5))
    if len(shown) > 1:  # above the axes, where no mark is
        above: Any = {"loc": "lower right", "bbox_to_anchor": (1, 1), "borderaxespad": 0.1}
        ax.legend(ncols=len(shown), frameon=False, **above)
    ax.grid(visible=False, axis="y")
    write_key(ax, f"grey: within {100 * tolerance:g} %")
