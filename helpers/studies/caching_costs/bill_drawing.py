"""Drawings of what a month costs, and of what that depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from helpers.measurement.figures import find_look, label_ends
from helpers.measurement.looks import CEILING_GREY, DOUBLED, HALVED, TEXT
from helpers.models.assumptions import OPTIONS, Assumptions, Option
from helpers.models.costs import compare_options
from helpers.models.decisions import Bar, cost_curves, tornado

_RATES_PER_S = tuple(float(rate) for rate in np.geomspace(0.01, 1000, 21))


def draw_costs(axes: Sequence[Axes], assumptions: Assumptions, prices: Mapping[str, float]) -> None:
    """Draw a month of each option against the rate: in USD, and as a ratio to no cache."""
    curves = cost_curves(assumptions, prices, rates_per_s=_RATES_PER_S)
    for ax, is_ratio in zip(axes, (False, True), strict=True):
        ends = []
        for option in OPTIONS:
            usd, color = np.asarray(curves[option]), find_look(option, "option").color
            values = usd / np.asarray(curves["none"]) if is_ratio else usd
            ax.plot(_RATES_PER_S, values, color=color, linewidth=1.5)
            ends.append((str(option), float(values[-1]), color))
        ax.set(xscale="log", yscale="log")
        ax.set_ylabel("cost over that of no cache" if is_ratio else "cost (USD a month)")
        ax.axvline(assumptions.requests_per_s, color=CEILING_GREY, linewidth=0.8, linestyle=":")
        label_ends(ax, ends, at=_RATES_PER_S[-1])
    axes[-1].set_xlabel("tiles asked for (1/s)")


def find_levers(
    assumptions: Assumptions, prices: Mapping[str, float], *, option: Option, n_most: int = 10
) -> list[Bar]:
    """Vary each assumption and price alone by a factor of two; return what changes most."""
    return tornado(assumptions, prices, option=option)[:n_most]


def cheapest(
    assumptions: Assumptions, prices: Mapping[str, float], *, among: Sequence[Option]
) -> Option:
    """Name the option that costs least among some."""
    priced = compare_options(assumptions, prices)
    return min(among, key=lambda option: priced[option].usd)


def saved_usd(assumptions: Assumptions, prices: Mapping[str, float], *, option: Option) -> float:
    """Compute USD a month that an option saves against no cache."""
    priced = compare_options(assumptions, prices)
    return priced["none"].usd - priced[option].usd


def draw_levers(ax: Axes, bars: Sequence[Bar], *, middle_usd: float) -> None:
    """Draw what a cache saves in a month, each assumption and price halved and doubled."""
    size = float(matplotlib.rcParams["xtick.labelsize"])
    for row, bar in enumerate(bars):
        ends: list[tuple[float, float]] = [(bar.low_usd, bar.low), (bar.high_usd, bar.high)]
        for (usd, value), color in zip(ends, (HALVED, DOUBLED), strict=True):
            ax.barh(row, usd - middle_usd, left=middle_usd, color=color, height=0.6)
            is_left = usd < middle_usd or (usd == middle_usd and bar.high_usd > bar.low_usd)
            place: dict[str, Any] = {"ha": "right" if is_left else "left", "va": "center"}
            shift = (-3 if is_left else 3, 0)
            ax.annotate(
                f"{value:.3g}", (usd, row), xytext=shift, textcoords="offset points",
                fontsize=size, color=color, **place,
            )  # fmt: skip
    ax.axvline(middle_usd, color=TEXT, linewidth=1)
    ax.axvline(0, color=CEILING_GREY, linewidth=0.8, linestyle=":")
    ax.set_yticks(range(len(bars)), [bar.name for bar in bars])
    ax.invert_yaxis()
    ax.margins(x=0.15)
    ax.grid(visible=False)
    ax.set_xlabel("saved against no cache (USD a month); blue: halved, orange: doubled")
