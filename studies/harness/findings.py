"""What the harness finds, as numbers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

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
    fewest, most = (float(n) for n in (wide.columns.min(), wide.columns.max()))
    return statistics.median_interval(1000 * (wide[most] - wide[fewest]) / (most - fewest))


def draw_ratios(ax: Axes, ratios: Mapping[str, tuple[statistics.Interval, float]]) -> None:
    """Draw ratios over what is expected of each, with their intervals, one below the other."""
    ax.axvspan(0.95, 1.05, color=palette.GRID, linewidth=0)
    ax.axvline(1, color=palette.RULE, linewidth=1)
    for place, (ratio, expected) in enumerate(ratios.values()):
        centre, low, high = (value / expected for value in (ratio.centre, ratio.low, ratio.high))
        ends = [[centre - low], [high - centre]]
        ax.errorbar(centre, place, xerr=ends, fmt="o", color=palette.OURS)
    ax.set_yticks(range(len(ratios)), [*ratios])
    ax.set_ylim(len(ratios) - 0.5, -0.5)


def name_rungs(ladder: Sequence[float], n_processors: int) -> dict[str, tuple[float, int]]:
    """Name the rungs of a ladder, each a dilation and the processors that are charged at it.

    Examples
    --------
    >>> name_rungs([1.0, 5.0], 2)
    {'1': (1.0, 0), '1 charged': (1.0, 2), '5': (5.0, 0), '5 charged': (5.0, 2)}
    """
    charges = ((0, ""), (n_processors, " charged"))
    return {f"{k:g}{name}": (k, n) for k in ladder for n, name in charges}


def compare_rungs(rows: pd.DataFrame, rungs: Mapping[str, tuple[float, int]]) -> pd.DataFrame:
    """Compare the time of each reader on each rung with that on the lowest of its kind, paired in blocks.

    Returns
    -------
    DataFrame
        `contender`, `dilation`, `is_charged`, in the median `read_s` and `client_s`, the seconds
        that its processes computed, and the ratio `over_lowest` with the 95 % interval `low` to `high`.
    """
    lines = []
    for name, (rung, (k, n)) in itertools.product(rows["contender"].unique(), rungs.items()):
        lowest = next(name_of_rung for name_of_rung, (_, m) in rungs.items() if m == n)
        part = rows[rows["contender"] == name]
        read_s, client_s = part.loc[part["part"] == rung, ["read_s", "client_s"]].median()
        over = statistics.paired_ratio(part, rung, lowest, column="part")
        lines.append((name, k, bool(n), read_s, client_s, over.centre, over.low, over.high))
    columns = "contender dilation is_charged read_s client_s over_lowest low high"
    return pd.DataFrame(lines, columns=columns.split())
