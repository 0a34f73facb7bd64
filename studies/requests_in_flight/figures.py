"""The map of settings: how much of the network each reads, which are throttled, and which to copy."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from matplotlib.text import Text

from helpers.plotting.tables import format_digits

DARK = 55.0
"""Share of the network (%) from which on a cell is so dark that its text is white."""


def draw_map(ax: Axes, table: pd.DataFrame, chosen: str | None) -> None:
    """Draw threads against concurrency: the darker the more of the network, hatched where throttled.

    `table` has a row a setting, by its name, with `threads`, `concurrency`, `share` and `refused`
    in percent, `is_refused` and `is_over_rate`. A ring is around the setting to copy. Hatched is
    what the store refused, or would in a long read by the model.
    """
    cells = table.pivot(index="threads", columns="concurrency", values="share")
    ax.imshow(cells.to_numpy(float), cmap="Blues", vmin=0, vmax=100, aspect="auto")
    for name, line in table.iterrows():
        row = [*cells.index].index(line["threads"])
        column = [*cells.columns].index(line["concurrency"])
        corner = (column - 0.5, row - 0.5)
        if line["refused"] > 0 or line["is_over_rate"]:
            ax.add_patch(
                Rectangle(corner, 1, 1, fill=False, hatch="///", edgecolor="0.55", linewidth=0)
            )
        if name == chosen:
            ax.add_patch(
                Rectangle(
                    (corner[0] + 0.04, corner[1] + 0.04),
                    0.92,
                    0.92,
                    fill=False,
                    edgecolor="#d55e00",
                    linewidth=3,
                )
            )
        text = f"{format_digits(line['share'])} %"
        if line["refused"] > 0:
            text += f"\nrefused {format_digits(line['refused'])} %"
        label = ax.text(column, row, text, ha="center", va="center", fontsize=9)
        _set_readable(label, is_dark=line["share"] > DARK)
    ax.set_xticks(range(len(cells.columns)), [str(n) for n in cells.columns])
    ax.set_yticks(range(len(cells.index)), [str(n) for n in cells.index])
    ax.set(xlabel="concurrency of zarr in each thread", ylabel="threads")
    ax.grid(visible=False)
    keys = [
        Patch(fill=False, edgecolor="#d55e00", linewidth=3, label="copy this one"),
        Patch(
            facecolor="white",
            edgecolor="0.55",
            hatch="///",
            label="throttled, or would be in a long read",
        ),
    ]
    ax.legend(handles=keys, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)


def _set_readable(label: Text, *, is_dark: bool) -> None:
    """Give a label a colour that is read on its cell, and a plate where the cell is hatched."""
    colour, plate = ("white", "#08519c") if is_dark else ("black", "white")
    label.set_color(colour)
    label.set_bbox({"facecolor": plate, "alpha": 0.6, "edgecolor": "none", "pad": 1.5})
