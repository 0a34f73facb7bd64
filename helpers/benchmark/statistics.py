"""What a record says: medians, paired ratios, comparisons, and that of a thing with itself.

Everything is paired within blocks. A contender and its second copy are one reader here: where a
verdict is given, their times are pooled, so that it cannot differ between the two.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import optimize, stats  # it ships no types

from wire.errors import UserError
from wire.intervals import Floats
from wire.intervals import Interval as Interval
from wire.intervals import ratio_interval as ratio_interval

_SEED = 20200611

MOST_COMPUTED = 0.5
"""Of the network's time that a reader may compute: above it CPUs may make its time, too."""

Verdict = Literal["faster", "slower", "indistinguishable", "grows", "falls", "ended", "undecided"]


def median_interval(values: Iterable[float]) -> Interval:
    """Compute the median and its bootstrapped 95 % interval.

    A percentile bootstrap with a fixed seed. With five values it spans them
    all and covers the true median in 94 % of cases (1 - 2 / 2**5); with fewer
    it covers less, three in 75 %. No value, or one that is not finite, is refused.

    Examples
    --------
    >>> found = median_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> found.centre, float(found.low), float(found.high), found.n
    (3.0, 1.0, 5.0, 5)
    """
    sample = check_finite(values, "values")
    centre, n = float(np.median(sample)), len(sample)
    if n == 1:
        return Interval(centre, np.nan, np.nan, n)
    rng = np.random.default_rng(_SEED)
    ends = stats.bootstrap((sample,), np.median, method="percentile", rng=rng).confidence_interval
    return Interval(centre, float(ends.low), float(ends.high), n)


def random_effects_interval(ratios: Sequence[Interval]) -> Interval:
    """Compute the ratio over two or more records, with the 95 % interval of a random effect between them.

    Each record has a ratio and the interval that its own repeats give; what days and machines add
    is estimated by restricted maximum likelihood (Viechtbauer 2005, J. Educ. Behav. Stat. 30:261).
    The interval is that of Hartung and Knapp (2001, Stat. Med. 20:3875), never narrower than
    Wald's with the same t (Roever et al. 2015, BMC Med. Res. Methodol. 15:99). Of two records it
    has one degree of freedom, so it is wide. Fewer records, and ratios without an interval, are refused.

    Examples
    --------
    >>> records = [Interval(2.0, 1.9, 2.1, 5), Interval(2.2, 2.1, 2.3, 5), Interval(2.1, 2.0, 2.2, 5)]
    >>> found = random_effects_interval(records)
    >>> round(found.centre, 2), round(found.low, 2), round(found.high, 2), found.n
    (2.1, 1.86, 2.36, 3)
    """
    if len(ratios) < 2:
        raise UserError("records", str(len(ratios)), "at least two")
    centres = np.log(check_finite([ratio.centre for ratio in ratios], "ratios"))
    widths = np.log(check_finite([ratio.high / ratio.low for ratio in ratios], "intervals"))
    quantiles = [stats.t.ppf(0.975, ratio.n - 1) if ratio.n > 1 else 1.96 for ratio in ratios]
    variances = np.maximum(widths / (2 * np.asarray(quantiles)), 1e-9) ** 2
    mean, error = combine_effects(centres, variances)
    half = stats.t.ppf(0.975, len(ratios) - 1) * error
    low, high = np.exp([mean - half, mean + half])
    return Interval(float(np.exp(mean)), float(low), float(high), len(ratios), ratios[0].quantity)


def combine_effects(effects: Floats, variances: Floats) -> tuple[float, float]:
    """Combine effects by restricted maximum likelihood; return their mean and its standard error.

    The error is that of Hartung and Knapp, and no smaller than Wald's; see `random_effects_interval`.
    """

    def weigh(between: float) -> tuple[Floats, float]:
        weights = 1 / (variances + between)
        return weights, float((weights * effects).sum() / weights.sum())

    def deviance(between: float) -> float:
        weights, mean = weigh(between)
        residuals = float((weights * (effects - mean) ** 2).sum())
        return float(-np.log(weights).sum() + np.log(weights.sum()) + residuals)

    most = 10 * float(effects.var() + variances.max())
    options = {"xatol": 1e-9 * most}
    fitted = optimize.minimize_scalar(
        deviance, (0, most), (0, most), method="bounded", options=options
    )
    between = float(fitted.x) if fitted.fun < deviance(0.0) else 0.0
    weights, mean = weigh(between)
    scatter = float((weights * (effects - mean) ** 2).sum()) / (len(effects) - 1)
    return mean, math.sqrt(max(scatter, 1.0) / float(weights.sum()))


def check_finite(values: Iterable[float], name: str) -> Floats:
    """Turn values into an array, refusing none and not-a-number."""
    sample = np.asarray([*values], dtype=np.float64)
    if not len(sample) or not np.isfinite(sample).all():
        raise UserError(name, sample.tolist(), "at least one, all finite")
    return sample


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a record says of two contenders, or of one contender at two points of the x-axis.

    Between two points it "grows" or "falls" where the difference is judged one, has "ended" where
    it is none and the whole interval lies below the gain that is worth a step, else "undecided".
    """

    verdict: Verdict  # said of the first
    ratio: Interval  # time of the first over time of the second, paired within blocks
    noise: float  # ratio, at least 1, up to which a thing differs from itself here

    @property
    def quantity(self) -> str:
        """What over what, in which column."""
        return self.ratio.quantity


def log_noise(logs: Floats) -> float:
    """Turn logarithms of A/A ratios into the noise, see `noise_ratio`."""
    if len(logs) < 2:
        return math.nan
    return float(np.exp(abs(logs.mean()) + logs.std(ddof=1) / math.sqrt(len(logs))))


def judge(ratio: Interval, noise: float) -> Comparison:
    """Give the verdict on a paired ratio, given the A/A noise, which is NaN where it is unknown."""
    # one block shows no noise, and NaN lies on no side
    is_shown = not ratio.low <= 1 <= ratio.high and not 1 / noise <= ratio.centre <= noise
    if ratio.n == 1 or math.isnan(noise) or not is_shown:
        return Comparison("indistinguishable", ratio, noise)
    return Comparison("faster" if ratio.centre < 1 else "slower", ratio, noise)


def measured(df: pd.DataFrame) -> pd.DataFrame:
    """Drop the warm-ups."""
    return df[df["phase"] == "measured"] if "phase" in df else df


def summarise(
    df: pd.DataFrame, keys: Sequence[str] = ("contender", "point"), *, value: str = "read_s"
) -> pd.DataFrame:
    """Summarise a column of a record by `keys`: `median`, its interval `low` to `high`, and `n`."""
    lines = []
    for key, part in measured(df).groupby([*keys], sort=False)[value]:
        median = median_interval(part)
        lines.append((*key, median.centre, median.low, median.high, median.n))
    return pd.DataFrame(lines, columns=[*keys, "median", "low", "high", "n"])


def add_throughputs(df: pd.DataFrame) -> pd.DataFrame:
    """Add throughputs of array, stored and wire bytes to a copy, and the share of the ceiling.

    They are `throughput_mb_per_s` (array bytes), `stored_throughput_mb_per_s` and
    `wire_throughput_mb_per_s` (NaN when not traced), all in decimal MB, and
    `share_of_ceiling`: stored throughput over that of the ceiling in the same
    block at the same point, NaN where there is none. Two ceilings there are refused.
    """
    out = df.copy()
    for kind, prefix in (("array", ""), ("stored", "stored_"), ("wire", "wire_")):
        out[f"{prefix}throughput_mb_per_s"] = out[f"{kind}_nbytes"] / out["read_s"] / 1e6
    place = ["phase", "case", "block", "point"]
    ceilings = out[out["is_ceiling"]].set_index(place)["stored_throughput_mb_per_s"]
    if ceilings.index.duplicated().any():
        raise UserError("is_ceiling", "two ceilings in one block at one point", "one")
    most = ceilings.reindex(pd.MultiIndex.from_frame(out[place])).to_numpy()
    out["share_of_ceiling"] = out["stored_throughput_mb_per_s"] / most
    return out


def paired_ratio(
    df: pd.DataFrame,
    a: Any,
    b: Any,
    *,
    column: str = "contender",
    value: str = "read_s",
    n_compared: int = 1,
) -> Interval:
    """Compute the ratio of two contenders, or of two points, paired within blocks.

    Pairs cancel what a block has in common, such as a slow spell of the machine. The interval is
    Student's t on the logarithms: over simulated comparisons of a thing with itself it misses 1 in
    5 %, where a bootstrap of five pairs, which divides by n and knows no heavier tail, does in 16 %.

    `a` and `b` are values of the column `column`, each measured at most once a block: at one point of
    the x-axis where contenders are compared, of one contender where points are. Of `n_compared`
    ratios that may have been looked at all intervals hold at once in 95 % (Bonferroni). One that
    was not measured, or twice in a block, or in no block with the other, and a `value` not above 0
    are refused.
    """
    ratio = ratio_interval(_log_ratios(df, a, b, value, column=column), n_compared=n_compared)
    over = str(a)
    if column != "contender":
        contenders: list[str] = [*df["contender"].unique()] if "contender" in df else []
        over = ", ".join(
            [*contenders, f"{column} {a}"] if len(contenders) == 1 else [f"{column} {a}"]
        )
    return replace(ratio, quantity=name_ratio(over, str(b), value), noise=_noise_of(df, value))


def name_ratio(numerator: str, denominator: str, value: str) -> str:
    """Name a quantity: what over what, in which column."""
    return f"{numerator} over {denominator}, {value}"


def _noise_of(df: pd.DataFrame, value: str) -> float:
    """Compute the largest A/A ratio of a column over the copies among these rows; NaN without one."""
    if "control_of" not in df:
        return math.nan
    rows, noises = measured(df), [math.nan]
    copies = rows[rows["control_of"].fillna("") != ""]
    for (_, name), part in copies.groupby(["contender", "control_of"]):
        original = rows.loc[rows["contender"] == name].set_index("block")[value]
        copy = part.set_index("block")[value]
        if original.index.is_unique and copy.index.is_unique and (copy > 0).all():
            pairs = (original / copy).dropna()
            noises.append(log_noise(np.log(pairs.to_numpy(dtype=np.float64))))
    return float(pd.Series(noises).max())  # NaN where one block shows no noise


def _log_ratios(
    df: pd.DataFrame, a: Any, b: Any, value: str, *, column: str = "contender"
) -> Floats:
    """Pair two contenders or points within blocks."""
    rows = measured(df)
    for name in (a, b):
        if name not in (measured_names := {*rows[column]}):
            allowed = ", ".join(sorted(map(str, measured_names))) or "none"
            raise UserError(column, f"{name!r} was not measured", allowed)
    sides = [rows.loc[rows[column] == name, ["block", value]] for name in (a, b)]
    for side, name in zip(sides, (a, b), strict=True):
        if side["block"].duplicated().any():
            raise UserError(name, "measured more than once a block; select one point first")
    numerator, denominator = (side.set_index("block")[value].dropna() for side in sides)
    blocks = numerator.index.intersection(denominator.index)
    if not len(blocks) or not (numerator[blocks] > 0).all() or not (denominator[blocks] > 0).all():
        raise UserError(f"{a}, {b}", f"no block holds both with {value} above 0")
    logs: Floats = np.log((numerator[blocks] / denominator[blocks]).to_numpy(dtype=np.float64))
    return logs


def noise_ratio(df: pd.DataFrame, control: str, *, value: str = "read_s") -> float:
    """Compute up to which ratio a thing differs from itself here.

    The mean log ratio of the A/A pair, a bias that repetition does not remove, plus its standard
    error: it shrinks with blocks, so that small differences can be found by measuring longer. The
    record is that of one point; a `control` that is no copy is refused, the rest as by `paired_ratio`.
    """
    copies = df[(df["contender"] == control) & (df["control_of"] != "")]
    if copies.empty:
        controls = sorted(set(df.loc[df["control_of"] != "", "contender"]))
        raise UserError("control", f"{control!r}", ", ".join(controls) or "none in this record")
    return log_noise(_log_ratios(df, str(copies["control_of"].iloc[0]), control, value))


def processor_share(df: pd.DataFrame) -> float:
    """Compute what processors have at most of the slowest reader's time.

    The seconds that all processors of the machine were busy, over the real seconds of opening and
    reading: their part of the time if no two were busy at once, and above 1 where they were. NaN
    where the trace holds no `busy_s`.
    """
    rows = measured(df)
    real_s = rows["real_open_s"] + rows["real_read_s"]
    table = pd.DataFrame({"share": busy_share(rows), "real_s": real_s})
    medians = table.groupby([rows["contender"], rows["point"]]).median().sort_values("real_s")
    return float(medians["share"].iloc[-1])


def busy_share(rows: pd.DataFrame) -> pd.Series[float]:
    """Compute the seconds that all processors were busy over the real ones of each row; NaN if nobody counted."""
    busy = [json.loads(trace).get("busy_s", math.nan) for trace in rows["trace"]]
    return pd.Series(busy, rows.index) / (rows["real_open_s"] + rows["real_read_s"])


def thread_share(df: pd.DataFrame, *readers: str) -> float:
    """Compute which share of the network's time the busiest thread computes, of the busiest reader.

    The CPU seconds of the busiest thread over the seconds of opening and reading as the network's
    clock counts them, each reader in the median over its reads and those of its second copy. In a
    slow-motion network CPUs are as many times faster, so a thread may compute for longer than the
    whole read is reported to take: a share above 1. It is a lower bound, because a thread that
    has ended is not seen. NaN where nobody counted, and for a reader that was not measured.
    Without `readers` all of `df` count.

    Examples
    --------
    Half a second is computed in a read that took three real seconds, and one on the network's clock:

    >>> row = {"contender": "a", "control_of": "", "open_s": 0.2, "read_s": 0.8, "thread_s": 0.5}
    >>> thread_share(pd.DataFrame([row | {"dilation": 3.0}]), "a")
    0.5
    """
    shares = _computed_shares(df, "thread_s").median()
    return float(shares.reindex([*readers] or shares.index).max(skipna=False))


def client_share(df: pd.DataFrame, *readers: str) -> float:
    """Compute which share of the network's time a reader computes at most, in any of its reads.

    All CPU seconds of the client over the seconds of opening and reading: no thread computes for
    longer, seen or not. Of several readers, and of each with its second copy, the read counts in
    which the share is largest: a median hides that half of them may be bound by a CPU. NaN where
    a read was not counted, and for a reader that was not measured.
    """
    shares = _computed_shares(df, "client_s").agg(lambda part: part.max(skipna=False))
    return float(shares.reindex([*readers] or shares.index).max(skipna=False))


def _computed_shares(df: pd.DataFrame, column: str) -> Any:
    """Divide CPU seconds by the network's of opening and reading, grouped by reader."""
    rows = measured(df)
    copied = rows["control_of"].fillna("")
    names = rows["contender"].where(copied == "", copied)
    spent_s = rows[column] if column in rows else pd.Series(math.nan, rows.index)
    return (spent_s / (rows["open_s"] + rows["read_s"])).groupby(names)


def counts_cpu(rows: pd.DataFrame) -> bool:
    """Judge whether CPU time counts in full in each row: time was real, or CPUs were slowed down too."""
    return bool((rows["cpus"].gt(0) | rows["dilation"].eq(1)).all())


def can_rank(df: pd.DataFrame, *readers: str) -> bool:
    """Judge whether rows rank readers: CPU time counts in them, or decides none of their times.

    It counts where the network is not slowed down, and where the CPUs of a reader are slowed down
    as its network is, which each row says. Elsewhere a ratio between readers is one of their waits and bytes, which
    is that of their times only while no thread computes for more than `MOST_COMPUTED` of them: that
    is sure where all that the client computes is no more, in each read.
    """
    return counts_cpu(measured(df)) or client_share(df, *readers) <= MOST_COMPUTED


def compare_contenders(
    df: pd.DataFrame,
    a: str,
    b: str,
    *,
    control: str,
    value: str = "read_s",
    n_compared: int = 1,
) -> Comparison:
    """Judge whether one contender is faster than another, both named beforehand.

    Different means both: the interval of the paired ratio excludes 1, and the median ratio lies
    outside the A/A noise. In 20 000 simulated comparisons with 5 blocks and 5 % noise the rule
    calls equals different in 2.5 % and finds a true 20 % difference in 98 %. A contender counts
    together with its copy, so both get the same verdict. The record is that of one point; of
    `value` less is faster; what is refused is as in `paired_ratio` and `noise_ratio`.
    """
    noise = noise_ratio(df, control, value=value)
    first, second = _reader_of(df, a), _reader_of(df, b)
    if first == second:
        ratio = paired_ratio(df, a, b, value=value)
        return Comparison("indistinguishable", ratio, noise)
    logs = _log_ratios(pool_copies(df, value), first, second, value)
    ratio = ratio_interval(logs, n_compared=n_compared)
    return judge(replace(ratio, quantity=name_ratio(first, second, value), noise=noise), noise)


def _reader_of(df: pd.DataFrame, name: str) -> str:
    """Name the contender of which `name` is a copy, or itself."""
    copied = df.loc[(df["contender"] == name) & (df["control_of"] != ""), "control_of"]
    return name if copied.empty else str(copied.iloc[0])


def pool_copies(df: pd.DataFrame, value: str) -> pd.DataFrame:
    """Make one reader of each contender and its copies: their geometric mean in each block."""
    rows = measured(df)
    if rows.duplicated(["block", "contender"]).any():
        raise UserError("contender", "measured more than once a block; select one point first")
    if not (rows[value] > 0).all():
        raise UserError(value, "not above 0 in some rows", "durations above 0")
    readers = rows["contender"].where(rows["control_of"] == "", rows["control_of"])
    logs = np.log(rows[value]).groupby([rows["block"], readers.rename("contender")], sort=False)
    return pd.DataFrame(np.exp(logs.mean()).rename(value).reset_index())
