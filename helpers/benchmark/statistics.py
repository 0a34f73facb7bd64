"""What a record says: medians, paired ratios, comparisons, and that of a thing with itself.

Everything is paired within blocks. A contender and its second copy are one reader here: where a
verdict is given, their times are pooled, so that it cannot differ between the two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from helpers.benchmark.intervals import (
    WORTH,
    Comparison,
    Floats,
    Gain,
    Interval,
    Verdict,
    instability,
    judge,
    judge_gain,
    log_noise,
    median_interval,
    ratio_interval,
)
from helpers.errors import UserError

__all__ = [
    "WORTH",
    "Comparison",
    "Gain",
    "Interval",
    "Verdict",
    "add_throughputs",
    "compare",
    "compare_points",
    "judge",
    "judge_gain",
    "measured",
    "median_interval",
    "noise_ratio",
    "paired_between",
    "paired_ratio",
    "ratio_interval",
    "summarise",
]


def measured(df: pd.DataFrame) -> pd.DataFrame:
    """Drop the warm-ups."""
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
    """Compute how wide the interval of each median is, over that median."""
    found = summarise(df, value=value)
    return (found["high"] - found["low"]) / found["median"]


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


def paired_ratio(df: pd.DataFrame, a: str, b: str, *, value: str = "read_s") -> Interval:
    """Compute the ratio of two contenders, paired within blocks.

    Pairs cancel what a block has in common, such as a slow spell of the
    machine. The interval is Student's t on the logarithms. A bootstrap of five
    pairs would be too narrow: resampling five values divides by n where n - 1
    is due and knows no heavier tail than theirs; over simulated comparisons of
    a thing with itself its 95 % interval misses 1 in 16 %, t's in 5 %.

    Parameters
    ----------
    df : DataFrame
        A record at one point of the x-axis.
    a, b : str
        Contenders.
    value : str
        Column, above 0.

    Raises
    ------
    UserError
        If a contender is unknown, or a block holds one of them twice, or no
        block holds both, or a value is not above 0.

    Examples
    --------
    >>> table = pd.DataFrame({"block": [0, 1, 0, 1], "contender": ["a", "a", "b", "b"],
    ...                       "read_s": [1.0, 2.0, 2.0, 4.0]})
    >>> paired_ratio(table, "a", "b").centre
    0.5
    """
    return ratio_interval(_log_ratios(df, a, b, value))


def _log_ratios(df: pd.DataFrame, a: str, b: str, value: str) -> Floats:
    """Pair two contenders within blocks."""
    rows = measured(df)
    for name in (a, b):
        if name not in set(rows["contender"]):
            allowed = ", ".join(sorted(set(rows["contender"])))
            raise UserError(f"contender: {name!r} was not measured; allowed: {allowed}")
    rows = rows[rows["contender"].isin([a, b])]
    _refuse_repeats(rows)
    table = rows.pivot(index="block", columns="contender", values=value).dropna()
    if not len(table) or not (table > 0).all(axis=None):
        raise UserError(f"{a}, {b}: no block holds both with {value} above 0")
    logs: Floats
    logs = np.log((table[a] / table[b]).to_numpy(dtype=np.float64))
    return logs


def _refuse_repeats(rows: pd.DataFrame) -> None:
    """Refuse rows of several points, whose pairs would be made by chance."""
    if rows.duplicated(["block", "contender"]).any():
        names = ", ".join(dict.fromkeys(map(str, rows["contender"])))
        raise UserError(f"{names}: measured more than once a block; select one point first")


def paired_between(
    over: pd.DataFrame, under: pd.DataFrame, *, value: str = "read_s", n_compared: int = 1
) -> Interval:
    """Compute the ratio of two selections of a record, paired within blocks.

    Parameters
    ----------
    over, under : DataFrame
        Rows of one record, each at most once a block: of one contender at one point.
    value : str
        Column, above 0.
    n_compared : int
        Ratios of which this one was, or may have been, chosen after looking: the interval is
        widened so that all of them hold at once in 95 % (Bonferroni).
    """
    sides = [side.assign(contender=name) for side, name in ((over, "over"), (under, "under"))]
    logs = _log_ratios(pd.concat(sides), "over", "under", value)
    return ratio_interval(logs, n_compared=n_compared)


def paired_gain(
    df: pd.DataFrame,
    contender: str,
    from_point: float,
    to_point: float,
    *,
    x: str = "n_workers",
    value: str = "read_s",
    n_compared: int = 1,
) -> Interval:
    """Compute how much faster a contender is at another point, paired within blocks.

    Examples
    --------
    >>> table = pd.DataFrame({"block": [0, 1, 0, 1], "contender": "a", "n_workers": [4, 4, 8, 8],
    ...                       "read_s": [3.0, 6.0, 2.0, 4.0]})
    >>> paired_gain(table, "a", 4, 8).centre
    1.5
    """
    rows = df[df["contender"] == contender]
    if absent := {from_point, to_point} - {*rows[x]}:
        known = ", ".join(map(str, sorted({*rows[x]}))) or "none"
        raise UserError(f"{x}: {contender} was not measured at {absent.pop()}; allowed: {known}")
    sides = (rows[rows[x] == from_point], rows[rows[x] == to_point])
    return paired_between(*sides, value=value, n_compared=n_compared)


def noise_ratio(df: pd.DataFrame, control: str, *, value: str = "read_s") -> float:
    """Compute up to which ratio a thing differs from itself here.

    The mean log ratio of the A/A pair, which catches a bias that repetition
    does not remove, plus its standard error, which catches that this mean is
    itself uncertain. Unlike the spread of single pairs, it shrinks with blocks,
    so that small differences can be found by measuring longer.

    Parameters
    ----------
    df : DataFrame
        A record at one point of the x-axis.
    control : str
        A second copy of a contender, which the column `control_of` names.
    value : str
        Column, above 0.

    Raises
    ------
    UserError
        If `control` is no copy; else as `paired_ratio`.
    """
    copies = df[(df["contender"] == control) & (df["control_of"] != "")]
    if copies.empty:
        known = sorted(set(df.loc[df["control_of"] != "", "contender"]))
        raise UserError(
            f"control: {control!r}; allowed: {', '.join(known) or 'none in this record'}"
        )
    return log_noise(_log_ratios(df, str(copies["control_of"].iloc[0]), control, value))


def compare(
    df: pd.DataFrame,
    a: str,
    b: str,
    *,
    control: str,
    value: str = "read_s",
    n_compared: int = 1,
) -> Comparison:
    """Judge whether one contender is faster than another, both named beforehand.

    Of the best of several, chosen after looking, `rank` judges. Different means
    both: the interval of the paired ratio excludes 1, and the median ratio lies
    outside the A/A noise. In 20 000 simulated comparisons with 5 blocks and 5 %
    noise the rule calls equals different in 2.5 % and finds a true 20 % difference
    in 98 %; the interval alone would be wrong in 5 %.
    A contender counts together with its copy, so both get the same verdict.

    Parameters
    ----------
    df : DataFrame
        A record at one point of the x-axis.
    a, b : str
        Contenders.
    control : str
        A second copy of a contender of the same record.
    value : str
        Column of durations, above 0: less is faster.
    n_compared : int
        Pairs among which this one was, or may have been, chosen after looking, as in
        `paired_between`.

    Returns
    -------
    Comparison
        Verdict on `a`, with ratio, noise and reason.

    Raises
    ------
    UserError
        As `paired_ratio` and `noise_ratio`.
    """
    noise = noise_ratio(df, control, value=value)
    one, other = _reader_of(df, a), _reader_of(df, b)
    if one == other:
        ratio = paired_ratio(df, a, b, value=value)
        return Comparison("indistinguishable", ratio, noise, "a reader and its copy")
    logs = _log_ratios(pool_copies(df, value), one, other, value)
    return judge(ratio_interval(logs, n_compared=n_compared), noise)


def _reader_of(df: pd.DataFrame, name: str) -> str:
    """Name the contender of which `name` is a copy, or itself."""
    copied = df.loc[(df["contender"] == name) & (df["control_of"] != ""), "control_of"]
    return name if copied.empty else str(copied.iloc[0])


def pool_copies(df: pd.DataFrame, value: str) -> pd.DataFrame:
    """Make one reader of each contender and its copies: their geometric mean in each block."""
    rows = measured(df)
    _refuse_repeats(rows)
    if not (rows[value] > 0).all():
        raise UserError(f"{value}: not above 0 in some rows; allowed: durations above 0")
    readers = rows["contender"].where(rows["control_of"] == "", rows["control_of"])
    logs = np.log(rows[value]).groupby([rows["block"], readers.rename("contender")], sort=False)
    return pd.DataFrame(np.exp(logs.mean()).rename(value).reset_index())


def compare_points(
    df: pd.DataFrame,
    contender: str,
    from_point: float,
    to_point: float,
    *,
    control: str,
    x: str = "n_workers",
    value: str = "read_s",
    n_compared: int = 1,
) -> Gain:
    """Judge what a contender gains from one point to another, against the A/A noise.

    Parameters
    ----------
    df : DataFrame
        A record.
    contender : str
        Who is measured at both points.
    from_point, to_point : float
        Places on the x-axis, as in 4 and 8 workers.
    x, value : str
        Columns of the place and of the time.
    n_compared : int
        As in `paired_between`.
    control : str
        A second copy of a contender, measured at one point at least.
    """
    places = {"x": x, "value": value, "n_compared": n_compared}
    ratio = paired_gain(df, contender, from_point, to_point, **places)  # type: ignore[arg-type]
    last = df.loc[df["contender"] == control, x].max()
    return judge_gain(ratio, noise_ratio(df[df[x] == last], control, value=value))
