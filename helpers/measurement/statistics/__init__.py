"""Medians, intervals, paired ratios and the comparison of a thing with itself.

Warm-ups never count: every function that takes a record drops them first.
"""

from helpers.measurement.statistics.comparisons import (
    Comparison,
    compare,
    judge,
    log_noise,
    noise_ratio,
    paired_ratio,
)
from helpers.measurement.statistics.intervals import Interval, median_interval, ratio_interval
from helpers.measurement.statistics.summaries import (
    add_throughputs,
    instability,
    measured,
    relative_widths,
    summarise,
)

__all__ = [
    "Comparison",
    "Interval",
    "add_throughputs",
    "compare",
    "instability",
    "judge",
    "log_noise",
    "measured",
    "median_interval",
    "noise_ratio",
    "paired_ratio",
    "ratio_interval",
    "relative_widths",
    "summarise",
]
