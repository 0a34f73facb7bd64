"""Figures that no library draws: byte ranges along a file, and lines of drivers as they are drawn everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from helpers.plotting.palette import CHUNK, PAGE, REQUEST_STEPS, find_style
from wire.bed.requests import RequestRow
from wire.hdf5.inspection import FileLayout

_STEPS = ((1e3, "under 1 kB"), (1e4, "to 10 kB"), (1e5, "to 100 kB"), (np.inf, "above"))


def draw_ranges(ax: Axes, traces: Mapping[str, Sequence[RequestRow]], recorded: FileLayout) -> None:
    """Draw the byte ranges of each trace along the file, coloured by the bytes of a request.

    Thin lines are page boundaries, where the file has pages; the marks of the lowest line are
    where chunks of the variables begin.
    """
    file_nbytes, page_nbytes = recorded.file_nbytes, recorded.page_nbytes
    for place, trace in enumerate(traces.values()):
        for request in trace:
            start, width = (request.range_start or 0) / 1e6, request.nbytes / 1e6
            step = next(i for i, (limit, _) in enumerate(_STEPS) if request.nbytes < limit)
            shown = max(width, file_nbytes / 1e6 / 800)  # else a request of 500 B is not seen
            ax.broken_barh(
                [(start, shown)], (place - 0.4, 0.8), color=REQUEST_STEPS[step], alpha=0.6
            )
    if page_nbytes:
        for start in range(0, file_nbytes, page_nbytes):
            ax.axvline(start / 1e6, color=PAGE, linewidth=0.4, zorder=0)
    starts = [chunk.offset / 1e6 for chunks in recorded.chunks for chunk in chunks]
    ax.plot(starts, [len(traces)] * len(starts), "|", color=CHUNK, markersize=8)
    ax.set_yticks(range(len(traces) + 1), [*traces, "chunks begin"])
    ax.invert_yaxis()
    ax.set(xlim=(0, file_nbytes / 1e6), xlabel="place in the file (MB)", ylabel="")


def draw_lines(ax: Axes, table: pd.DataFrame, *, x: str, y: str, width: float = 1.5) -> None:
    """Draw `y` against `x` as a line for each driver, the medians where there are several of one `x`.

    `table` has a column `driver`. A label that is drawn already is not repeated in the legend.
    """
    drawn = set(ax.get_legend_handles_labels()[1])
    for name, part in table.groupby("driver", sort=False):
        style, medians = find_style(str(name), "driver"), part.groupby(x)[y].median()
        label = "_" * (style.label in drawn) + style.label
        looks: dict[str, Any] = {"color": style.color, "marker": style.marker, "linewidth": width}
        ax.plot(medians.index, medians, label=label, **looks)


def label_steps(ax: Axes) -> None:
    """Write what the colours of `draw_ranges` mean."""
    handles = [
        Line2D([], [], color=color, linewidth=5, alpha=0.6, label=label)
        for color, (_, label) in zip(REQUEST_STEPS, _STEPS, strict=True)
    ]
    ax.legend(handles=handles, ncols=4, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
