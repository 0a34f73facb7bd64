"""The figure of the study: each layout over ours."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from helpers.plotting.figures import number_axis
from helpers.plotting.palette import CEILING_GREY, find_style


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
