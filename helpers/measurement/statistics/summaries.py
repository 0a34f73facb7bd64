"""Records to tables: medians, whether to trust them, and throughputs.

Warm-ups never count: they are dropped first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from helpers.errors import UserError
from helpers.measurement.statistics.intervals import finite, median_interval


def measured(df: pd.DataFrame) -> pd.DataFrame:
    """Drop the warm-ups.

    Parameters
    ----------
    df : DataFrame
        A record; without a column `phase` it is returned as it is.

    Returns
    -------
    DataFrame
        Rows of measured blocks.
    """
    return df[df["phase"] == "measured"] if "phase" in df else df


def summarise(
    df: pd.DataFrame, by: Sequence[str] = ("contender", "point"), *, value: str = "read_s"
) -> pd.DataFrame:
    """Summarise a record: median, interval, number, and whether to trust it.

    Parameters
    ----------
    df : DataFrame
        A record.
    by : sequence of str
        Columns that tell results apart.
    value : str
        Column to summarise.

    Returns
    -------
    DataFrame
        Columns `by`, then `median`, `low`, `high`, `n`, `note` and
        `unstable`, which is empty or says why the result is not to be trusted.
    """
    lines = []
    for key, part in measured(df).groupby([*by], sort=False):
        found = median_interval(part[value])
        facts = (found.centre, found.low, found.high, found.n, found.note)
        lines.append((*key, *facts, instability(part[value])))
    names = ["median", "low", "high", "n", "note", "unstable"]
    return pd.DataFrame(lines, columns=[*by, *names])


def relative_widths(df: pd.DataFrame, *, value: str = "read_s") -> pd.Series[float]:
    """Compute how wide the interval of each median is, over that median.

    Parameters
    ----------
    df : DataFrame
        A record.
    value : str
        Column to summarise.

    Returns
    -------
    Series
        One width for each contender at each point; NaN where there is none.
    """
    found = summarise(df, value=value)
    return (found["high"] - found["low"]) / found["median"]


def instability(values: Iterable[float]) -> str:
    """Say why repeated timings are not to be trusted, if so.

    The limits are those of pyperf: a standard deviation above 10 % of the mean,
    a value more than 50 % off the mean, or fewer than five values.

    Parameters
    ----------
    values : iterable of float
        Timings in any unit, at least one.

    Returns
    -------
    str
        Empty when stable.

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


def add_throughputs(df: pd.DataFrame) -> pd.DataFrame:
    """Add throughputs of array, stored and wire bytes, and the share of the ceiling.

    Parameters
    ----------
    df : DataFrame
        A record.

    Returns
    -------
    DataFrame
        A copy with `throughput_mb_per_s` (array bytes),
        `stored_throughput_mb_per_s`, `wire_throughput_mb_per_s` (NaN when not
        traced), all in decimal MB, and `share_of_ceiling`: stored throughput
        over that of the ceiling in the same block at the same point, NaN where
        there is none.

    Raises
    ------
    UserError
        If a block holds two ceilings at one point.
    """
    out = df.copy()
    for kind, prefix in (("array", ""), ("stored", "stored_"), ("wire", "wire_")):
        out[f"{prefix}throughput_mb_per_s"] = out[f"{kind}_nbytes"] / out["read_s"] / 1e6
    place = ["phase", "case", "block", "point"]
    ceilings = out[out["is_ceiling"]].set_index(place)["stored_throughput_mb_per_s"]
    if ceilings.index.duplicated().any():
        raise UserError("is_ceiling: two ceilings in one block at one point; allowed: one")
    most = ceilings.reindex(pd.MultiIndex.from_frame(out[place])).to_numpy()
    out["share_of_ceiling"] = out["stored_throughput_mb_per_s"] / most
    return out
