"""What the harness finds, as numbers."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from helpers.benchmark import statistics
from helpers.plotting import palette


def overhead_ms(rows: pd.DataFrame) -> statistics.Interval:
    """Compute the milliseconds that each more chunk costs, from reads of the same bytes in few and many.

    Rows have `n_chunks`; what is paired is a block's read with the fewest and that with the most.

    Examples
    --------
    >>> lines = [(0, 10, 1.0), (0, 110, 1.2), (1, 10, 1.0), (1, 110, 1.2)]
    >>> round(overhead_ms(pd.DataFrame(lines, columns=["block", "n_chunks", "read_s"])).centre, 6)
    2.0
    """
    wide = rows.pivot(index="block", columns="n_chunks", values="read_s").dropna()
    few, many = (float(n) for n in (wide.columns.min(), wide.columns.max()))
    return statistics.median_interval(1000 * (wide[many] - wide[few]) / (many - few))


def draw_ratios(ax: Axes, found: Mapping[str, tuple[statistics.Interval, float]]) -> None:
    """Draw ratios over what is expected of each, with their intervals, one below the other."""
    ax.axvspan(0.95, 1.05, color=palette.GRID, linewidth=0)
    ax.axvline(1, color=palette.RULE, linewidth=1)
    for place, (one, expected) in enumerate(found.values()):
        centre, low, high = (value / expected for value in (one.centre, one.low, one.high))
        ends = [[centre - low], [high - centre]]
        ax.errorbar(centre, place, xerr=ends, fmt="o", color=palette.OURS)
    ax.set_yticks(range(len(found)), [*found])
    ax.set_ylim(len(found) - 0.5, -0.5)
