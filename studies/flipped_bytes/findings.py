"""How reads of damaged copies ended, as counts and shares."""

from __future__ import annotations

import pandas as pd
from scipy import stats  # it ships no types

from helpers.benchmark.statistics import Interval
from helpers.plotting.tables import trace_of
from studies.flipped_bytes.workload import ENDED


def count_ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Add up how reads of damaged copies ended, a line a format."""
    counts = trace_of(rows).reindex(columns=[f"n_{how}" for how in ENDED]).dropna()
    return counts.groupby(rows["contender"], sort=False).sum().astype(int)


def silent_percent(counts: pd.Series[int]) -> Interval:
    """Compute how many in a hundred reads return wrong values silently.

    The interval is that of Wilson (1927), which holds at none and at all.
    """
    n, n_silent = int(counts.sum()), int(counts["n_silent"])
    low, high = stats.binomtest(n_silent, n).proportion_ci(method="wilson")
    return Interval(100 * n_silent / n, 100 * float(low), 100 * float(high), n)
