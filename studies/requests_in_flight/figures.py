"""Figures of requests in flight: a map of the link's share over threads and concurrency, for each pool."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from helpers.benchmark import statistics
from helpers.plotting.figures import write_key
from helpers.plotting.palette import CEILING_GREY, OURS
from helpers.plotting.tables import digits
from studies.requests_in_flight.findings import count_refusals
from studies.requests_in_flight.workload import Setting


def draw_map(
    axes: Sequence[Axes],
    rows: pd.DataFrame,
    settings: Sequence[Setting],
    safe: Collection[Setting],
    chosen: Setting | None,
) -> None:
    """Draw a map for each pool: the quickest is darkest, hatched is what was refused.

    `rows` have the `share` of the link and the `refused` part. Outlined is what is safe, and the setting to
    copy has a thick outline.
    """
    shares = statistics.measured(rows).groupby("contender")["share"].median()
    refused = count_refusals(rows)
    pools = list(dict.fromkeys(one.pool for one in settings))
    threads = sorted({one.n_threads for one in settings})
    concurrency = sorted({one.concurrency for one in settings})
    for ax, pool in zip(axes, pools, strict=True):
        for one in (each for each in settings if each.pool == pool):
            at = concurrency.index(one.concurrency), threads.index(one.n_threads)
            share = float(shares[one.name])
            told = f"{digits(100 * share)} %"
            if refused[one.name]:
                told += f"\n503:\n{digits(100 * refused[one.name])} %"  # a cell is narrow
            _draw_cell(ax, at, told, shade=share / shares.max(), is_safe=one in safe)
            if one == chosen:
                _outline(ax, at, width=4.0)
        ax.set_xticks(range(len(concurrency)), [str(n) for n in concurrency])
        ax.set_yticks(range(len(threads)), [str(n) for n in threads])
        ax.set(xlim=(-0.5, len(concurrency) - 0.5), ylim=(-0.5, len(threads) - 0.5))
        ax.set(xlabel="async.concurrency of each thread")
        ax.grid(visible=False)
        write_key(ax, f"a pool of {pool}" if pool else "no pool")
    axes[0].set(ylabel="threads")


def _draw_cell(ax: Axes, at: tuple[int, int], told: str, *, shade: float, is_safe: bool) -> None:
    """Shade a cell and write into it; hatch it where requests were refused."""
    corner = at[0] - 0.5, at[1] - 0.5
    edge: Any = {"fill": False, "linewidth": 0}
    alpha = 0.05 + 0.6 * shade
    ax.add_patch(Rectangle(corner, 1, 1, color=OURS, alpha=alpha, linewidth=0, zorder=0))
    if is_safe:
        _outline(ax, at, width=1.2)
    else:
        ax.add_patch(Rectangle(corner, 1, 1, hatch="///", edgecolor=CEILING_GREY, **edge))
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
    how: Any = {"ha": "center", "va": "center", "fontsize": "small", "zorder": 3, "bbox": box}
    lines = told.split("\n")
    for i, line in enumerate(lines):  # each by itself, so that all stay centred on a phone
        ax.text(at[0], at[1] + 0.26 * ((len(lines) - 1) / 2 - i), line, **how)


def _outline(ax: Axes, at: tuple[int, int], *, width: float) -> None:
    """Draw the edge of a cell, a little inside it so that neighbours do not share one."""
    inside = 0.04
    corner = at[0] - 0.5 + inside, at[1] - 0.5 + inside
    side = 1 - 2 * inside
    ax.add_patch(Rectangle(corner, side, side, fill=False, edgecolor=OURS, linewidth=width))
