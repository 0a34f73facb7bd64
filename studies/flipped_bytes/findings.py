"""How reads of damaged copies ended, as counts and shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

import pandas as pd
from scipy import stats  # it ships no types

from helpers.benchmark.statistics import Comparison, Interval
from helpers.findings import Finding, as_finding
from helpers.plotting.tables import trace_of
from studies.flipped_bytes.protection import PAIRS
from studies.flipped_bytes.workload import ENDED


def count_ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Add up how reads of damaged copies ended, a line a format."""
    counts = trace_of(rows).reindex(columns=[f"n_{ending}" for ending in ENDED]).dropna()
    return counts.groupby(rows["contender"], sort=False).sum().astype(int)


def silent_percent(counts: pd.Series[int]) -> Interval:
    """Compute how many in a hundred reads return wrong values silently.

    The interval is that of Wilson (1927), which holds at none and at all.
    """
    n, n_silent = int(counts.sum()), int(counts["n_silent"])
    low, high = stats.binomtest(n_silent, n).proportion_ci(method="wilson")
    centre, low, high = (100 * float(share) for share in (n_silent / n, low, high))
    # a count has no noise
    return Interval(centre, low, high, n, quantity="silent of flipped bytes, %", noise=1.0)


def find_percent_longer(cost: Comparison) -> Finding:
    """Turn the ratio of two times into per cent, in which a small cost does not round to none.

    Examples
    --------
    >>> cost = Comparison("slower", Interval(1.25, 1.125, 1.5, 20), 1.02)
    >>> found = find_percent_longer(cost)
    >>> found.value, found.low, found.high, found.unit, found.verdict
    (25.0, 12.5, 50.0, '%', 'slower')
    """
    finding = as_finding(cost)
    value, low, high = (100 * (ratio - 1) for ratio in (finding.value, finding.low, finding.high))
    return replace(finding, value=value, low=low, high=high, unit="%")


def tabulate_costs(costs: Mapping[str, Comparison], labels: Mapping[str, str]) -> pd.DataFrame:
    """Tabulate what a checksum costs in time, by format: over what, how many times, and the verdict."""
    lines = {
        labels[name]: {"over": labels[PAIRS[name]], **asdict(cost.ratio), "verdict": cost.verdict}
        for name, cost in costs.items()
    }
    table = pd.DataFrame.from_dict(lines, orient="index").rename(columns={"centre": "times"})
    table = table.reindex(columns=["over", "times", "low", "high", "verdict"])
    return table.rename_axis("with its checksum")
