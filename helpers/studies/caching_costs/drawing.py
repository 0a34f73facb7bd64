"""Drawings of the study of caching."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from helpers.measurement.figures import Look, contender_palette
from helpers.studies.caching_costs.findings import _numbers
from helpers.tiles.load import QUANTILES

_LOOKS = {
    "none": Look("#333333", "o"),
    "lru": Look("#5b3fa0", "s"),
    "diskcache": Look("#a3123f", "D"),
    "filecache": Look("#00636b", "^"),
    "redis": Look("#b34700", "v"),
}


def _look(name: str) -> Look:
    return contender_palette(_LOOKS)[name]


def draw_latencies(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw the share of requests answered within a time, a curve a contender."""
    numbers = _numbers(rows, "measured")
    for rank, (name, part) in enumerate(numbers.groupby("contender")):
        if name == "control":
            continue
        latency_s = [part[f"p{q:02}_s"].median() for q in QUANTILES]
        look = _look(str(name))
        ax.plot(latency_s, QUANTILES, color=look.color, marker=look.marker, markersize=3)
        at = 4 + 3 * rank  # labels at different heights
        ax.annotate(
            str(name), (latency_s[at], QUANTILES[at]), color=look.color,
            xytext=(4, -8), textcoords="offset points",
        )  # fmt: skip
    ax.set(xscale="log", xlabel="latency of a tile (s)", ylabel="requests answered (%)")


def _draw_by_map(ax: Axes, table: pd.DataFrame) -> None:
    """Draw a mark for each contender (column) at each map (line)."""
    places = np.arange(len(table))
    for name in table:
        look = _look(str(name))
        ax.plot(table[name], places, look.marker, color=look.color, linestyle="none")
        ax.annotate(
            str(name), (table[name].iloc[-1], places[-1]), color=look.color,
            xytext=(0, 8), textcoords="offset points", rotation=45,
        )  # fmt: skip
    ax.set_yticks(places, list(table.index))
    ax.axvline(1, color="#767676", linewidth=0.8)
    ax.set_xscale("log")


def draw_savings(ax: Axes, savings: pd.DataFrame, opening: pd.DataFrame) -> None:
    """Draw how much faster each map is with each cache, and the bound as a line for each."""
    table = savings.loc[[name for name in opening.index if name in savings.index]]
    _draw_by_map(ax, table)
    bounds = opening.loc[table.index, "bound"]
    ax.vlines(bounds, np.arange(len(table)) - 0.3, np.arange(len(table)) + 0.3, color="#767676")
    ax.set_xlabel("latency without over with a cache; bar: bound of saved opening")


def draw_amdahl(ax: Axes, opening: pd.DataFrame) -> None:
    """Draw what a request alone spends on opening and on making the tile."""
    places = np.arange(len(opening))
    ax.barh(places, opening["open_s"], color="#0073b1")
    ax.barh(places, opening["make_s"], left=opening["open_s"], color="#b0b0b0")
    ax.set_yticks(places, list(opening.index))
    ax.set_xlabel("seconds a tile, no cache: opening (blue), making (grey)")


def draw_requests(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw requests to the store for each tile, warm."""
    numbers = _numbers(rows, "measured")
    each = (numbers["n_requests"] / numbers["n_tiles"]).groupby(numbers["contender"]).median()
    each = each.drop("control", errors="ignore").sort_values()
    colors = [_look(str(name)).color for name in each.index]
    ax.barh(list(each.index), each, color=colors)
    ax.set_xlabel("requests to the store for each tile")


def draw_published(ax: Axes, compared: pd.DataFrame) -> None:
    """Draw the published saving against ours, a mark a map and cache."""
    for name, part in compared.groupby("contender"):
        look = _look(str(name))
        ax.plot(part["published"], part["ours"], look.marker, color=look.color)
        last = part.iloc[-1]
        ax.annotate(str(name), (last["published"], last["ours"]), color=look.color)
    ends = [min(ax.get_xlim()[0], ax.get_ylim()[0]), max(ax.get_xlim()[1], ax.get_ylim()[1])]
    ends[0] = max(ends[0], 0.2)
    ax.plot(ends, ends, color="#767676", linewidth=0.8)
    ax.set(xscale="log", yscale="log", xlabel="published: without over with", ylabel="ours")
