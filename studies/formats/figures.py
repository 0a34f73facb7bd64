"""The figure of a page of formats."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from helpers.plotting.figures import number_axis
from helpers.plotting.palette import CEILING_GREY
from studies.formats.readers import FORMAT_READERS


def draw_times(ax: Axes, rows: pd.DataFrame, accesses: Sequence[str]) -> None:
    """Draw the time to open and read by format and access: medians, and the range over blocks.

    Formats stand in the order of their medians for the whole array; a dashed line is that of raw
    reads of it.
    """
    shown = rows[~rows["is_ceiling"] & (rows["control_of"] == "")]
    shown = shown.assign(contender=shown["contender"].map(FORMAT_READERS.labels()))
    whole = rows[rows["access"] == "whole"]
    medians = shown[shown["access"] == "whole"].groupby("contender")["total_s"].median()
    sns.pointplot(
        shown,
        x="total_s",
        y="contender",
        hue="access",
        order=medians.sort_values().index,
        hue_order=accesses,
        estimator="median",
        errorbar=("pi", 100),
        linestyle="none",
        dodge=len(accesses) > 1 and 0.4,
        markersize=4,
        ax=ax,
    )
    raw_s = whole.loc[whole["is_ceiling"], "total_s"].median()
    ax.axvline(raw_s, color=CEILING_GREY, ls="--")
    ax.set(xscale="log", ylabel="")
    ax.set(xlabel="time to open and read (s); dashed: the whole array read raw")
    number_axis(ax.xaxis)
    ax.legend(title="", loc="upper right")
