"""Figures of the study: times, byte ranges, requests against time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from helpers.benchmark import statistics
from helpers.netem.proxy import Request
from helpers.plotting.figures import figure_of, number_axis
from helpers.plotting.palette import CHUNK, PAGE, REQUEST_STEPS, RULE, find_look
from studies.hdf5_drivers.files import LAYOUTS
from studies.hdf5_drivers.findings import head_of, measured
from studies.hdf5_drivers.prediction import Recorded

_STEPS = ((1e3, "under 1 kB"), (1e4, "to 10 kB"), (1e5, "to 100 kB"), (np.inf, "above"))


_BESIDE: dict[str, Any] = {
    "loc": "upper left",
    "bbox_to_anchor": (1, 1),
    "frameon": False,
    "fontsize": 8,
}


def _mark(name: str) -> dict[str, Any]:
    """Give the marks of a driver: of one colour in the whole book, filled where it is tuned."""
    look = find_look(name, "driver")
    return {"marker": look.marker, "color": look.color, "markerfacecolor": look.face, "label": name}


def draw_times(ax: Axes, rows: pd.DataFrame, *, task: str) -> None:
    """Draw the time to open and read, a row a contender below its layout's name, with intervals.

    The line is the slowest contender on the original layout. The figure becomes as high as its
    rows need.
    """
    part = measured(rows, task)
    found = statistics.summarise(part, ["contender", "layout"], value="total_s")
    places = place_rows(list(dict.fromkeys(zip(part["contender"], part["layout"], strict=True))))
    for (name, layout), place in places.items():
        line = found[(found["contender"] == name) & (found["layout"] == layout)]
        _draw_marks(ax, line, [place], name)
    heads: dict[str, int] = {}
    for (_, layout), place in places.items():
        heads.setdefault(head_of(layout), place - 1)
    worst = found.loc[found["layout"] == "original", "median"].max()
    ax.axvline(worst, color=RULE, linewidth=0.8)
    ax.set_yticks([*heads.values(), *places.values()], [*heads, *(name for name, _ in places)])
    ax.tick_params(axis="y", length=0, labelsize=9)
    for label in ax.get_yticklabels()[: len(heads)]:
        label.set_fontweight("bold")
    n_lines = len(places) + len(heads)
    ax.set(xscale="log", xlabel="time to open and read (s)", ylim=(n_lines - 0.4, -0.6))
    number_axis(ax.xaxis)
    figure_of(ax).set_figheight(1 + 0.2 * n_lines)


def place_rows(pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Give each contender and layout a line of its own, and each layout one for its name above.

    Examples
    --------
    >>> place_rows([("zarr", "zarr"), ("ros3", "original"), ("ros3-none", "original")])
    {('ros3', 'original'): 1, ('ros3-none', 'original'): 2, ('zarr', 'zarr'): 4}
    """
    ordered = sorted(pairs, key=lambda pair: LAYOUTS.index(pair[1]))
    heads = [*dict.fromkeys(head_of(layout) for _, layout in ordered)]
    return {pair: line + 1 + heads.index(head_of(pair[1])) for line, pair in enumerate(ordered)}


def _draw_marks(ax: Axes, line: pd.DataFrame, places: Sequence[float], name: str) -> None:
    spread = [line["median"] - line["low"].fillna(line["median"])]
    spread += [line["high"].fillna(line["median"]) - line["median"]]
    ax.errorbar(
        line["median"],
        places,
        xerr=np.clip(np.array(spread, float), 0, None),
        linestyle="",
        markersize=5,
        **_mark(name),
    )


def draw_ranges(ax: Axes, traces: Mapping[str, Sequence[Request]], recorded: Recorded) -> None:
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
    starts = [offset / 1e6 for offset in recorded.chunk_offsets]
    ax.plot(starts, [len(traces)] * len(starts), "|", color=CHUNK, markersize=8)
    ax.set_yticks(range(len(traces) + 1), [*traces, "chunks begin"])
    ax.invert_yaxis()
    ax.set(xlim=(0, file_nbytes / 1e6), xlabel="place in the file (MB)", ylabel="")


def label_steps(ax: Axes) -> None:
    """Write what the colours of `draw_ranges` mean."""
    handles = [
        Line2D([], [], color=color, linewidth=5, alpha=0.6, label=label)
        for color, (_, label) in zip(REQUEST_STEPS, _STEPS, strict=True)
    ]
    ax.legend(handles=handles, ncols=4, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)


def draw_requests(ax: Axes, traces: Mapping[str, Sequence[Request]]) -> None:
    """Draw each request as a line from its start to its end, in the order of starts."""
    for place, (name, trace) in enumerate(traces.items()):
        ordered = sorted(trace, key=lambda each: each.start_s)
        first_s = ordered[0].start_s
        ends = [request.end_s - first_s for request in ordered]
        starts = [request.start_s - first_s for request in ordered]
        # a little aside, or drivers that make as many requests would hide one another
        numbers = np.arange(1, len(ordered) + 1) * 1.06**place
        style = "solid" if name.endswith("-tuned") else (0, (1, 1))
        color = find_look(name, "driver").color
        ax.hlines(numbers, starts, ends, color=color, linestyle=style, label=name)
    ax.set(xlabel="time since the first request (s)", ylabel="requests so far", yscale="log")
    number_axis(ax.yaxis)
    ax.legend(loc="lower right", frameon=False, fontsize=8)


def draw_predicted(ax: Axes, table: pd.DataFrame) -> None:
    """Draw predicted against measured times; the line is where they are equal."""
    for name, part in table.groupby(level="driver", sort=False):
        ax.plot(part["s measured"], part["s predicted"], linestyle="", **_mark(str(name)))
    ends = [table[["s measured", "s predicted"]].min().min() / 1.3]
    ends += [table[["s measured", "s predicted"]].max().max() * 1.3]
    ax.plot(ends, ends, color=RULE, linewidth=0.8)
    ax.set(xscale="log", yscale="log", xlabel="measured (s)", ylabel="predicted (s)")
    number_axis(ax.xaxis)
    number_axis(ax.yaxis)
    ax.legend(**_BESIDE)
