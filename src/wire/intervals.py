"""Intervals of ratios that were measured in pairs."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import numpy as np
from scipy import stats  # it ships no types

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]

_quantile_of_t = functools.cache(stats.t.ppf)  # most ratios of a record ask for the same one


@dataclass(frozen=True, slots=True)
class Interval:
    """A median or a median ratio with its 95 % interval."""

    centre: float
    low: float  # NaN, as is `high`, where one value gives no interval
    high: float
    n: int  # values or pairs behind it
    quantity: str = field(default="", repr=False, compare=False)  # what over what, in which column
    noise: float = field(default=math.nan, repr=False, compare=False)  # A/A ratio of that quantity


def ratio_interval(logs: Floats, *, n_compared: int = 1) -> Interval:
    """Turn logarithms of paired ratios into a median ratio with its t interval.

    The interval is that of the mean, widened to the median where that lies outside, as it does
    now and then where pairs fall into two groups. Of `n_compared` ratios all intervals are to hold
    at once, in 95 %: each is widened (Bonferroni).
    """
    n, centre = len(logs), float(np.exp(np.median(logs)))
    if n == 1:
        return Interval(centre, np.nan, np.nan, n)
    half = _quantile_of_t(1 - 0.025 / n_compared, n - 1) * logs.std(ddof=1) / math.sqrt(n)
    low, high = np.exp([logs.mean() - half, logs.mean() + half])
    return Interval(centre, min(float(low), centre), max(float(high), centre), n)
