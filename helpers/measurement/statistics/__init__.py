"""Medians, intervals, paired ratios and the comparison of a thing with itself.

Warm-ups never count: every function that takes a record drops them first.
"""

from helpers.measurement.statistics.comparisons import (
    WORTH,
    Comparison,
    Gain,
    compare,
    compare_points,
    judge,
    judge_gain,
    log_noise,
    noise_ratio,
    paired_between,
    paired_gain,
    paired_ratio,
)
from helpers.measurement.statistics.intervals import Interval, median_interval, ratio_interval
from helpers.measurement.statistics.ranking import Ranking, rank, tabulate_comparisons
from helpers.measurement.statistics.summaries import (
    add_throughputs,
    instability,
    measured,
    relative_widths,
    summarise,
)

__all__ = [
    "WORTH",
    "Comparison",
    "Gain",
    "Interval",
    "Ranking",
    "add_throughputs",
    "compare",
    "compare_points",
    "instability",
    "judge",
    "judge_gain",
    "log_noise",
    "measured",
    "median_interval",
    "noise_ratio",
    "paired_between",
    "paired_gain",
    "paired_ratio",
    "rank",
    "ratio_interval",
    "relative_widths",
    "summarise",
    "tabulate_comparisons",
]
