"""The figures of the study: each layout over ours, and both accesses against the length of a chunk."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from helpers.plotting.figures import number_axis
from helpers.plotting.palette import CEILING_GREY, find_style
from studies.chunk_shape.layouts import OURS, RULES


def draw_layouts(ax: Axes, table: pd.DataFrame) -> None:
    """Draw how many times as long as ours each layout takes, the longest at the bottom.

    `table` is indexed by medium and layout, with `median`, `low` and `high`.
    """
    longest = table.rename_axis(["medium", "layout"]).sort_values("median", ascending=False)
    for medium, part in longest.groupby("medium", sort=False):
        style = find_style(str(medium), "medium")
        ends = [
            (part["median"] - part["low"]).to_numpy(),
            (part["high"] - part["median"]).to_numpy(),
        ]
        names = part.index.get_level_values("layout")
        looks: dict[str, Any] = {"marker": style.marker, "color": style.color, "label": style.label}
        ax.errorbar(part["median"], names, xerr=ends, linestyle="none", **looks)
    ax.axvline(1, color=CEILING_GREY, linewidth=1, zorder=0)
    ax.set(xscale="log", xlabel="time of an equal mix, over that in ours")
    number_axis(ax.xaxis)
    ax.legend(title="")


def draw_crossing(ax: Axes, curves: pd.DataFrame, marks: pd.DataFrame) -> None:
    """Draw the time of a series and of a slice against the steps that a chunk holds: the curves cross.

    `curves` has `n_steps`, `series` and `slice`, predicted seconds in chunks of equal bytes; `marks`
    has `layout`, `n_steps`, `access` and `p50_s`, measured in layouts whose bytes may differ.
    """
    words = {"series": "time series", "slice": "map"}
    for access, word in words.items():
        style = find_style(access, "access")
        ax.plot(curves["n_steps"], curves[access], color=style.color, label=f"{word}, predicted")
        part = marks[marks["access"] == access]
        looks: dict[str, Any] = {"color": style.color, "label": f"{word}, measured"}
        ax.plot(part["n_steps"], part["p50_s"], style.marker, **looks)
    for (layout, n_steps), part in marks.groupby(["layout", "n_steps"]):
        if layout in RULES:
            continue  # they crowd around ours
        is_ours = layout == OURS
        height = float(part["p50_s"].min() if is_ours else part["p50_s"].max())
        is_flat = float(str(n_steps)) < curves["n_steps"].max() ** 0.5
        ax.annotate(
            str(layout),
            (float(str(n_steps)), height),
            xytext=(6, 4) if is_flat else (0, -16 if is_ours else 6),
            textcoords="offset points",
            ha="left" if is_flat else "right",  # a falling curve has room to its right
            fontsize=10,
        )
    ax.set(xscale="log", yscale="log", xlabel="time steps in a chunk", ylabel="time of a read (s)")
    for axis in (ax.xaxis, ax.yaxis):
        number_axis(axis)
    ax.legend(title="", loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
