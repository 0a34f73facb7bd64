"""Drawings of the study of caching."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from advisors.costs.assumptions import OPTIONS, Assumptions
from advisors.costs.bill import Bar, cost_curves
from helpers.plotting.figures import draw_errors, number_axis, tick_places
from helpers.plotting.palette import (
    CEILING_GREY,
    DOUBLED,
    HALVED,
    MAKING,
    OPENING,
    PAPER,
    TEXT,
    Kind,
    check_looks,
    find_look,
    get_looks,
)
from studies.caching_costs.findings import TOLERANCE
from studies.caching_costs.prediction import list_requests, read_numbers


def _order(names: Iterable[str]) -> list[str]:
    """Put contenders in the order of the palette; one without a look is refused, not left out."""
    there = [str(name) for name in names if name != "control"]
    check_looks(there, "cache")
    return [name for name in get_looks("cache") if name in there]


def _write_key(
    ax: Axes, names: Iterable[str], kind: Kind = "cache", dashes: Mapping[str, Any] | None = None
) -> None:
    """Write the contenders above the axes, each with its mark: labels at marks would collide."""
    handles = [
        Line2D(
            [],
            [],
            color=look.color,
            marker=look.marker,
            mfc=look.face,
            markersize=5,
            linestyle=(dashes or {}).get(name, "none"),
        )
        for name, look in ((name, find_look(name, kind)) for name in names)
    ]
    key = ax.legend(
        handles, list(names), loc="lower left", bbox_to_anchor=(0, 1), ncols=min(len(handles), 5),
        frameon=False, handletextpad=0.1, columnspacing=1.0, borderaxespad=0.2,
    )  # fmt: skip
    for text, name in zip(key.get_texts(), names, strict=True):
        text.set_color(find_look(name, kind).color)


def draw_latencies(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw the share of requests answered within a time, a curve a contender."""
    each = list_requests(rows, "measured")
    names = _order(each["contender"].unique())
    colors, dashes = list[str](), dict[str, str]()
    for name in names:
        look = find_look(name, "cache")
        dashes[name] = ("-", "--", ":")[colors.count(look.color)]  # relatives share a colour
        colors.append(look.color)
        latency_s = np.sort(each.loc[each["contender"] == name, "latency_s"])
        share = 100 * np.arange(1, len(latency_s) + 1) / len(latency_s)
        ax.step(latency_s, share, dashes[name], where="post", color=look.color, linewidth=1.3)
        at = np.linspace(0, len(latency_s) - 1, 9).astype(int)
        ax.plot(
            latency_s[at], share[at], look.marker, color=look.color, mfc=look.face, markersize=4
        )
    ax.set(xscale="log", xlabel="latency of a tile (s)", ylabel="requests answered (%)")
    number_axis(ax.xaxis)
    _write_key(ax, names, dashes=dashes)


def draw_savings(ax: Axes, savings: pd.DataFrame, opening: pd.DataFrame) -> None:
    """Draw how much faster each dataset is with each cache, and the bound as a line for each."""
    table = savings.loc[[name for name in opening.index if name in savings.index]]
    places = np.arange(len(table))
    names = _order(table.columns)
    for rank, name in enumerate(names):
        look = find_look(name, "cache")
        above = min(0.13, 0.7 / len(names)) * (rank - (len(names) - 1) / 2)
        ax.plot(
            table[name], places + above, look.marker, color=look.color, mfc=look.face,
            linestyle="none", markersize=5,
        )  # fmt: skip
    bounds = opening.loc[table.index, "bound"]
    ax.vlines(bounds, places - 0.35, places + 0.35, color=CEILING_GREY, linewidth=2)
    ax.axvline(1, color=CEILING_GREY, linewidth=0.8, linestyle=":")
    ax.set_yticks(places, list(table.index))
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.grid(visible=False, axis="y")
    ax.set_xlabel("latency without a cache over that with it; bar: bound of a saved opening")
    _write_key(ax, names)


def draw_amdahl(ax: Axes, opening: pd.DataFrame) -> None:
    """Draw what a request alone spends on opening and on making the tile, of that reprojection last."""
    places = np.arange(len(opening))
    ax.barh(places, opening["open_s"], color=OPENING, label="opening")
    ax.barh(places, opening["make_s"], left=opening["open_s"], color=MAKING, label="making")
    if "warp_s" in opening:
        end_s = opening["open_s"] + opening["make_s"]
        begin_s = end_s - opening["warp_s"]
        ax.barh(places, opening["warp_s"], left=begin_s, color=TEXT, label="of that, reprojection")
    ax.set_yticks(places, list(opening.index))
    ax.grid(visible=False, axis="y")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, borderaxespad=0.2)
    ax.set_xlabel("time of a tile without a cache (s)")


def draw_requests(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw requests to the store for each tile, warm."""
    numbers = read_numbers(rows, "measured")
    each = (numbers["n_requests"] / numbers["n_tiles"]).groupby(numbers["contender"]).median()
    each = each.drop("control", errors="ignore").sort_values()
    colors = [find_look(str(name), "cache").color for name in each.index]
    bars = ax.barh(list(each.index), each, color=colors)
    ax.bar_label(bars, fmt="%.2g", padding=3)
    ax.grid(visible=False, axis="y")
    ax.set_xlabel("requests to the store for each tile")


def draw_predictions(ax: Axes, errors: pd.DataFrame) -> None:
    """Draw by how much each predicted median is off."""
    draw_errors(ax, errors, looks=get_looks("cache"), tolerance=TOLERANCE)


def draw_published(ax: Axes, compared: pd.DataFrame) -> None:
    """Draw the published saving against ours, a mark a dataset and cache."""
    names = list(dict.fromkeys(map(str, compared["contender"])))
    size = float(matplotlib.rcParams["xtick.labelsize"])
    for name, part in compared.groupby("contender"):
        look = find_look(str(name), "cache")
        ax.plot(part["published"], part["ours"], look.marker, color=look.color, linestyle="none")
        part = part.sort_values("published")
        for rank, (label, x, y) in enumerate(
            zip(part["dataset"], part["published"], part["ours"], strict=True)
        ):
            is_left = y > x  # away from the line of equals
            place = (-6 if is_left else 6, 9 if rank % 2 else -9)  # neighbours collide else
            ax.annotate(
                label, (x, y), xytext=place, textcoords="offset points", color=look.color,
                fontsize=size, va="center", ha="right" if is_left else "left",
            )  # fmt: skip
    ax.set(xscale="log", yscale="log", ylabel="ours")
    at = float(compared["ours"].min())  # a point among the marks, so that the line widens no axis
    ax.axline((at, at), (2 * at, 2 * at), color=CEILING_GREY, linewidth=0.8)
    ax.margins(x=0.35, y=0.1)
    number_axis(ax.xaxis)
    number_axis(ax.yaxis)
    ax.set_xlabel("published: latency without a cache over that with it")
    _write_key(ax, names)


_LOADS = {"n_users": "users at once", "rate_per_s": "arrivals (1/s)", "n_workers": "services"}


def list_panels(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Split loads by what grows in them: users, arrivals, services that share the most users.

    Returns
    -------
    dict of str to DataFrame
        By what the x-axis is called, where anything was measured; the column ``at`` is the place on it.
    """
    several = table["n_workers"] > 1
    most = table["n_users"].isin(table.loc[several, "n_users"])
    chosen = {axis: ~several & (table[axis] > 0) for axis in ("n_users", "rate_per_s")}
    chosen |= {"n_workers": most}
    return {
        _LOADS[axis]: table[rows].assign(at=table[axis]).sort_values("at")
        for axis, rows in chosen.items()
        if rows.any()
    }


def draw_sweep(axes: Sequence[Axes], panels: Mapping[str, pd.DataFrame]) -> None:
    """Draw the latency of each panel's loads.

    Filled marks are medians, hollow ones 95th percentiles, thin lines and dashes the predicted medians.
    """
    names = _order(pd.concat(panels.values())["contender"].unique())
    for ax, (label, panel) in zip(axes, panels.items(), strict=True):
        for name in names:
            look, part = find_look(name, "cache"), panel[panel["contender"] == name]
            ax.plot(part["at"], part["p50_s"], look.marker, color=look.color, markersize=5)
            ax.plot(part["at"], part["p95_s"], look.marker, color=look.color, mfc=PAPER)
            # one load makes no line, so each has its dash
            ax.plot(
                part["at"], part["predicted_p50_s"], "-_", color=look.color, linewidth=0.8,
                markersize=12,
            )  # fmt: skip
        ax.set(xscale="log", yscale="log", xlabel=label)
        number_axis(ax.yaxis)
        tick_places(ax, panel["at"])
    axes[0].set_ylabel("latency of a tile (s)")
    _write_key(axes[0], names)


_RATES_PER_S = tuple(float(rate) for rate in np.geomspace(0.01, 1000, 21))


def draw_costs(axes: Sequence[Axes], assumptions: Assumptions, prices: Mapping[str, float]) -> None:
    """Draw a month of each option against the rate: in USD, and as a ratio to no cache."""
    curves = cost_curves(assumptions, prices, rates_per_s=_RATES_PER_S)
    for ax, is_ratio in zip(axes, (False, True), strict=True):
        for rank, option in enumerate(OPTIONS):
            look, usd = find_look(option, "option"), np.asarray(curves[option])
            values = usd / np.asarray(curves["none"]) if is_ratio else usd
            ax.plot(
                _RATES_PER_S, values, color=look.color, linewidth=1.2, marker=look.marker,
                mfc=look.face, markersize=5, markevery=(rank % 3, 3),
            )  # fmt: skip
        ax.set(xscale="log", yscale="log")
        number_axis(ax.xaxis)
        number_axis(ax.yaxis)
        ax.set_ylabel("cost over that of no cache" if is_ratio else "cost (USD a month)")
        ax.axvline(assumptions.requests_per_s, color=CEILING_GREY, linewidth=0.8, linestyle=":")
    axes[-1].set_xlabel("tiles asked for (1/s)")
    _write_key(axes[0], OPTIONS, "option")


def draw_levers(ax: Axes, bars: Sequence[Bar], *, middle_usd: float) -> None:
    """Draw what an option saves in a month, each assumption and price halved and doubled.

    The values taken of an assumption stand at the right: a bound may be nearer than half or double.
    """
    size = float(matplotlib.rcParams["xtick.labelsize"])
    for row, bar in enumerate(bars):
        for usd, color in ((bar.low_usd, HALVED), (bar.high_usd, DOUBLED)):
            ax.barh(row, usd - middle_usd, left=middle_usd, color=color, height=0.6)
        if not bar.name.startswith("price "):
            low, high = (f"{float(f'{value:.3g}'):,.10g}" for value in (bar.low, bar.high))
            ax.annotate(
                f"{low} to {high}", (1.02, row), xycoords=ax.get_yaxis_transform(), va="center",
                fontsize=size, annotation_clip=False,
            )  # fmt: skip
    ax.axvline(middle_usd, color=TEXT, linewidth=1)
    ax.axvline(0, color=TEXT, linewidth=1.2, linestyle=":")
    ax.set_yticks(range(len(bars)), [bar.name for bar in bars])
    ax.invert_yaxis()
    ax.grid(visible=False)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlabel("saved against no cache (USD a month); blue: halved, orange: doubled")
