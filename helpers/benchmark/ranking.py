"""Which contenders are fastest: simultaneous intervals that allow for the choice of the best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats  # it ships no types

from helpers.benchmark.statistics import (
    Comparison,
    Interval,
    judge,
    name_ratio,
    noise_ratio,
    pool_copies,
    ratio_interval,
)
from wire.errors import UserError
from wire.models import WORTH


@dataclass(frozen=True, slots=True)
class Ranking:
    """Which contender is fastest, which may be, and which are slower."""

    # the one with the shortest median; a choice made after looking, which the intervals allow for
    best: str
    fastest: tuple[str, ...]  # `best` and what cannot be distinguished from it, by their ratio
    # each other contender over `best`, with simultaneous intervals, by their ratio
    comparisons: Mapping[str, Comparison]

    def to_frame(self, quantity: str = "time") -> pd.DataFrame:
        """Tabulate the others: `quantity` was compared over that of the best, interval, noise and verdict."""
        return tabulate_comparisons(self.comparisons, ratio=f"{quantity} over {self.best}")


def rank(df: pd.DataFrame, *, control: str, value: str = "read_s") -> Ranking:
    """Find the fastest contender, and which others cannot be distinguished from it.

    The best is chosen after looking, so it is lucky as well as fast: to judge it as if it had been
    named beforehand calls equals slower on 18 % of pages of six. These intervals hold for all
    pairs at once (Tukey's studentised range over blocks). The standard error of a pair is its own
    or that of all residuals together, whichever is larger: a contender that scatters more than the
    others is not taken for slower. In 1500 simulated pages of six equals and a copy, with 5 blocks
    and 5 % noise, 2 % call one slower, and a true 20 % is found in 97 %; where noise is unequal,
    5 to 9 % do.

    The record is that of one point; ceilings are left out, and copies, of which `control` is one,
    pooled. Refused is what `noise_ratio` refuses, a contender twice in a block, and a record of
    which no block holds all contenders.
    """
    rows = df[~df["is_ceiling"].astype(bool)] if "is_ceiling" in df else df
    noise = noise_ratio(rows, control, value=value)
    pooled = pool_copies(rows, value)
    seconds = pooled.pivot(index="block", columns="contender", values=value).dropna()
    if seconds.empty:
        raise UserError("contender", f"no block holds all of {', '.join(map(str, seconds))}")
    best = str(seconds.median().idxmin())
    ratios = _over_best(seconds, best)
    comparisons = {
        name: judge(replace(ratio, quantity=name_ratio(name, best, value), noise=noise), noise)
        for name, ratio in ratios.items()
    }
    slower = dict(sorted(comparisons.items(), key=lambda item: item[1].ratio.centre))
    equals = [name for name, comparison in slower.items() if comparison.verdict != "slower"]
    return Ranking(best, (best, *equals), slower)


def _over_best(seconds: pd.DataFrame, best: str) -> dict[str, Interval]:
    """Compute the ratio of each other contender over the best, with simultaneous intervals."""
    values, names = np.log(seconds.to_numpy()), [*map(str, seconds)]
    (n, k), i_best = values.shape, names.index(best)
    differences = np.delete(values - values[:, [i_best]], i_best, axis=1)
    rivals = [*names[:i_best], *names[i_best + 1 :]]
    if n == 1:
        return {
            name: ratio_interval(logs) for name, logs in zip(rivals, differences.T, strict=True)
        }
    residuals = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + values.mean()
    n_free = (n - 1) * (k - 1)
    shared = math.sqrt(2 * float((residuals**2).sum()) / max(n_free, 1) / n)
    errors = differences.std(axis=0, ddof=1) / math.sqrt(n)
    half, means = _critical(k, n_free) * np.maximum(errors, shared), differences.mean(axis=0)
    medians = np.median(differences, axis=0)
    lows, highs = np.minimum(means - half, medians), np.maximum(means + half, medians)
    ends = np.exp([medians, lows, highs]).T
    return {
        name: Interval(float(centre), float(low), float(high), n)
        for name, (centre, low, high) in zip(rivals, ends, strict=True)
    }


@cache
def _critical(k: int, n_free: int) -> float:
    """Return by how many standard errors any two of `k` equals differ at most, in 95 %."""
    return float(stats.studentized_range.ppf(0.95, k, n_free)) / math.sqrt(2) if k > 1 else 0.0


def tabulate_comparisons(
    comparisons: Mapping[Any, Comparison],
    *,
    ratio: str = "time ratio",
    names: tuple[str, ...] = ("contender",),
) -> pd.DataFrame:
    """Tabulate comparisons by what was compared: ratio, interval, noise and verdict.

    Alike are two of which the whole interval lies below what is worth a choice; otherwise a
    difference that was not found is not decided.
    """
    lines = [
        (
            *(key if isinstance(key, tuple) else (key,)),
            comparison.ratio.centre,
            comparison.ratio.low,
            comparison.ratio.high,
            comparison.noise,
            _describe_comparison(comparison),
        )
        for key, comparison in comparisons.items()
    ]
    heads = [*names, ratio, "low", "high", "A/A noise", "verdict"]
    return pd.DataFrame(lines, columns=heads).set_index([*names])


def _describe_comparison(comparison: Comparison) -> str:
    if comparison.verdict not in ("indistinguishable", "undecided"):
        return comparison.verdict
    is_alike = comparison.ratio.low > 1 / WORTH and comparison.ratio.high < WORTH
    return "alike" if is_alike else "not decided"
