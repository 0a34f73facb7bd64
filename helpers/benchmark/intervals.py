"""Intervals and verdicts: arithmetic on timings and on logarithms of their paired ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats  # it ships no types

from helpers.errors import UserError

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]

_SEED = 20200611

Verdict = Literal["faster", "slower", "indistinguishable"]
GainVerdict = Literal["grows", "falls", "ended", "undecided"]
WORTH = 1.1
"""Gain below which growth is said to have ended: a step that costs more and brings less than this."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A median or a median ratio with its 95 % interval."""

    centre: float
    low: float  # NaN, as is `high`, where one value gives no interval
    high: float
    n: int  # values or pairs behind it
    note: str = ""  # empty, or why the interval is less than it seems


def median_interval(values: Iterable[float]) -> Interval:
    """Compute the median and its bootstrapped 95 % interval.

    A percentile bootstrap with a fixed seed. With five values it spans them
    all and covers the true median in 94 % of cases (1 - 2 / 2**5); with fewer
    it covers less, and the note says so.

    Parameters
    ----------
    values : iterable of float
        At least one; finite.

    Raises
    ------
    UserError
        If there is no value or one is not finite.

    Examples
    --------
    >>> found = median_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> found.centre, float(found.low), float(found.high), found.n
    (3.0, 1.0, 5.0, 5)
    """
    sample = finite(values, "values")
    centre, n = float(np.median(sample)), len(sample)
    if n == 1:
        return Interval(centre, np.nan, np.nan, n, "one value, no interval")
    low, high = stats.bootstrap(
        (sample,), np.median, method="percentile", rng=np.random.default_rng(_SEED)
    ).confidence_interval
    note = "" if n >= 5 else f"{n} values: the interval covers {1 - 2 / 2**n:.0%}, not 95 %"
    return Interval(centre, float(low), float(high), n, note)


def finite(values: Iterable[float], name: str) -> Floats:
    """Turn values into an array, refusing none and not-a-number."""
    sample = np.asarray([*values], dtype=np.float64)
    if not len(sample) or not np.isfinite(sample).all():
        raise UserError(f"{name}: {sample.tolist()}; allowed: at least one, all finite")
    return sample


def ratio_interval(logs: Floats, *, n_compared: int = 1) -> Interval:
    """Turn logarithms of paired ratios into a median ratio with its t interval.

    Of `n_compared` ratios all intervals are to hold at once, in 95 %: each is
    widened (Bonferroni).
    """
    n, centre = len(logs), float(np.exp(np.median(logs)))
    if n == 1:
        return Interval(centre, np.nan, np.nan, n, "one pair, no interval")
    half = stats.t.ppf(1 - 0.025 / n_compared, n - 1) * stats.sem(logs)
    low, high = np.exp([logs.mean() - half, logs.mean() + half])
    return Interval(centre, float(low), float(high), n)


def instability(values: Iterable[float]) -> str:
    """Say why repeated timings are not to be trusted, if so.

    The limits are those of pyperf: a standard deviation above 10 % of the mean,
    a value more than 50 % off the mean, or fewer than five values.

    Examples
    --------
    >>> instability([1.0, 1.01, 0.99, 1.0, 1.02])
    ''
    >>> instability([1.0, 1.0, 1.0, 1.0, 2.0])
    'standard deviation is 37 % of the mean; largest is 67 % above the mean'
    """
    sample = finite(values, "values")
    mean, told = sample.mean(), []
    if len(sample) < 5:
        told.append(f"only {len(sample)} of at least 5 blocks")
    if len(sample) > 1 and sample.std(ddof=1) > 0.1 * mean:
        told.append(f"standard deviation is {100 * sample.std(ddof=1) / mean:.0f} % of the mean")
    if sample.max() > 1.5 * mean:
        told.append(f"largest is {100 * (sample.max() / mean - 1):.0f} % above the mean")
    if sample.min() < 0.5 * mean:
        told.append(f"smallest is {100 * (1 - sample.min() / mean):.0f} % below the mean")
    return "; ".join(told)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a record says of two contenders."""

    verdict: Verdict  # said of the first
    ratio: Interval  # time of the first over time of the second, paired within blocks
    noise: float  # ratio, at least 1, up to which a thing differs from itself here
    reason: str  # why, in a few words


@dataclass(frozen=True, slots=True)
class Gain:
    """What a record says of one contender at two points of the x-axis."""

    # "grows" or "falls" where the difference is judged one, "ended" where it is none and the
    # whole interval lies below the gain that is worth a step, else "undecided"
    verdict: GainVerdict
    # time at the first point over time at the second, paired within blocks: above 1 is a gain
    ratio: Interval
    noise: float  # ratio, at least 1, up to which a thing differs from itself here
    reason: str  # why, in a few words


def log_noise(logs: Floats) -> float:
    """Turn logarithms of A/A ratios into the noise, see `noise_ratio`."""
    return float(np.exp(abs(logs.mean()) + stats.sem(logs))) if len(logs) > 1 else math.nan


def judge(ratio: Interval, noise: float) -> Comparison:
    """Give the verdict on a paired ratio, given the A/A noise, which is NaN where it is unknown.

    Examples
    --------
    >>> judge(Interval(0.8, 0.75, 0.85, n=5), noise=1.05).verdict
    'faster'
    >>> judge(Interval(0.97, 0.95, 0.99, n=5), noise=1.05).verdict
    'indistinguishable'
    """
    if ratio.n == 1 or math.isnan(noise):
        return Comparison("indistinguishable", ratio, noise, "one block shows no noise")
    if ratio.low <= 1 <= ratio.high:
        return Comparison("indistinguishable", ratio, noise, "the interval includes 1")
    if 1 / noise <= ratio.centre <= noise:
        return Comparison("indistinguishable", ratio, noise, "inside the A/A noise")
    verdict: Verdict = "faster" if ratio.centre < 1 else "slower"
    return Comparison(verdict, ratio, noise, "outside the A/A noise, and the interval excludes 1")


def judge_gain(ratio: Interval, noise: float, *, worth: float = WORTH) -> Gain:
    """Give the verdict on a gain: that growth ended has to be shown, and is no lack of proof.

    Examples
    --------
    >>> judge_gain(Interval(1.17, 1.13, 1.19, n=5), noise=1.05).verdict
    'grows'
    >>> judge_gain(Interval(1.01, 0.97, 1.05, n=5), noise=1.05).verdict
    'ended'
    >>> judge_gain(Interval(1.08, 0.95, 1.23, n=5), noise=1.05).verdict
    'undecided'
    """
    found = judge(ratio, noise)
    if found.verdict != "indistinguishable":
        verdict: GainVerdict = "falls" if ratio.centre < 1 else "grows"
        return Gain(verdict, ratio, noise, found.reason)
    if ratio.high < worth and not math.isnan(noise):
        return Gain("ended", ratio, noise, f"below {worth:g} times in the whole interval")
    return Gain("undecided", ratio, noise, found.reason)
