"""Verdicts: gains over the rule, whether bars are met, and all that pages quote, in words."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, cast

import numpy as np
import pandas as pd

from helpers import study
from helpers.storage.layout import balanced_chunk_shape
from helpers.studies.chunk_shape.findings import RULE, bias, judge_advice, noise, pivot
from helpers.studies.chunk_shape.layouts import BOUND_NBYTES, FULL_SHAPE, MIXES
from helpers.study import digits

_BAR_GAIN, _BAR_LOSS, _BAR_ERROR, _BAR_RANK = 1.3, 1.05, 0.2, 0.95
_SPREAD = ("series", "slice", "box", "region mean")  # of the whole there is one
_MANY = 100  # positions without a common chunk that are wanted


def compare_gains(named: pd.DataFrame) -> pd.DataFrame:
    """Compare ours with the balance rule at each published size: time of the rule over ours.

    Returns
    -------
    DataFrame
        A row a medium, a shape of ours and a comparator; `mean` for the mix
        that ours was chosen for, `worst` for the slower of the two accesses.
    """
    lines = []
    for medium, times in pivot(named).groupby(level="medium"):
        pair = times.droplevel("medium")[["series", "slice"]]
        rules = [str(name) for name in pair.index if str(name).startswith("balanced")]
        for ours, weights in MIXES.items():
            shares = np.asarray(weights) / sum(weights)
            for rule in rules:
                theirs, own = (pair.loc[name].to_numpy(dtype=float) for name in (rule, ours))
                mean, worst = (theirs @ shares) / (own @ shares), theirs.max() / own.max()
                lines.append((str(medium), ours, rule, float(mean), float(worst)))
    names = ["medium", "ours", "rule", "mean", "worst"]
    return pd.DataFrame(lines, columns=names).set_index(names[:3])


def _times(value: float) -> str:
    return f"{_near_one(value)} times"


def _near_one(value: float) -> str:
    """Format a ratio so that it can be told from one, and from its bar."""
    return digits(value, n=3)


def _percent(value: float) -> str:
    return f"{digits(100 * value)} %"


def judge_bars(medium: str, gains: pd.DataFrame, judged: pd.DataFrame) -> str:
    """Say of each bar whether it is met, what was found, and what was asked."""
    error, rank = (_at(judged, medium, name) for name in ("median error", "rank correlation"))
    worst = _at(gains, (medium, "ours, worst access", RULE), "worst")
    loss = 1 / _at(gains, (medium, "ours 50:50", RULE), "mean")
    told = [
        ("median error of the prediction", error <= _BAR_ERROR, _percent(error)),
        ("its rank correlation", rank >= _BAR_RANK, _near_one(rank)),
        ("gain of the worst access", _is_worst_met(worst), _times(worst)),
        ("time at an equal mix over the rule's", loss <= _BAR_LOSS, _near_one(loss)),
    ]
    return _tell(told)


def _at(table: pd.DataFrame, row: Hashable, column: str) -> float:
    return float(cast(Any, table).loc[row, column])


def _tell(told: list[tuple[str, bool, str]]) -> str:
    return "; ".join(f"{name} {found}, {'met' if ok else 'missed'}" for name, ok, found in told)


def _is_worst_met(worst: float) -> bool:
    """Ours is clearly faster, or the rule's shape is as good as any."""
    return worst >= _BAR_GAIN or 1 / _BAR_LOSS <= worst <= _BAR_LOSS


def _least(gains: pd.DataFrame, ours: str, value: str) -> float:
    """Find the least gain over the rule at any published chunk size: over its best."""
    return float(gains.xs(ours, level="ours")[value].min())


def _judge_any_size(gains: pd.DataFrame) -> str:
    """Say whether the two bars of ours hold against the rule at whichever size is best."""
    worst = _least(gains, "ours, worst access", "worst")
    loss = 1 / _least(gains, "ours 50:50", "mean")
    told = [
        ("gain of the worst access", _is_worst_met(worst), _times(worst)),
        ("time at an equal mix over the rule's", loss <= _BAR_LOSS, _near_one(loss)),
    ]
    return _tell(told)


def tell_positions(part: pd.DataFrame) -> str:
    """Say how many pairs have enough positions without a common chunk, and what the others have."""
    table = part[part["access"].isin(_SPREAD)]
    n_enough = int((table["n_apart"] >= _MANY).sum())
    fewest = table.sort_values(["n_apart", "n_positions"]).iloc[0]
    return (
        f"{n_enough} of {len(table)} pairs of layout and access are read at {_MANY} positions"
        f" without a common chunk; the others at {int(table['n_positions'].min())} or more, of"
        f" which {int(fewest['n_apart'])} or more share none ({fewest['contender']},"
        f" {fewest['access']})"
    )


def tell_advice(medium: str, advice: pd.DataFrame) -> str:
    """Judge chunks as large as the subset in one sentence."""
    if medium not in advice.index:
        return "no such layout on this medium"
    box, series, slice_ = (_at(advice, medium, name) for name in ("box", "series", "slice"))
    fastest = advice["fastest for the box"][medium]
    return (
        f"chunks as large as the box take {_times(box)} as long for it as the fastest layout,"
        f" {fastest}; {_times(series)} the rule's time for a series and {_times(slice_)} for a slice"
    )


def tell_rewriting(costs: pd.DataFrame) -> dict[str, str]:
    """Name the tool that rewrites fastest, and after how many reads it has paid."""
    if costs.empty:
        return {}
    fastest, slowest = costs.index[0], costs.index[-1]
    return {
        "rewrite-tool": str(fastest),
        "rewrite-minutes-per-gb": digits(_at(costs, fastest, "minutes per GB")),
        "rewrite-payback": f"{digits(_at(costs, fastest, 'reads to pay back'))} reads",
        "rewrite-slowest": f"{slowest}, {digits(_at(costs, slowest, 'minutes per GB'))} minutes per GB",
    }


def tell_bias(biases: pd.Series[float]) -> str:
    """Put our bias beside the published one, without chunks and with balanced ones."""
    theirs = study.read_published("rew2013_access_times")
    times = theirs[theirs["medium"].str.startswith("disk")]
    keys = ["layout", "chunk_shape"]
    wide = times.fillna({"chunk_shape": ""}).pivot_table("time_s", keys, "access")
    published = wide.max(axis=1) / wide.min(axis=1)
    is_flat = published.index.get_level_values("layout").str.startswith("contiguous")
    is_ours_flat = biases.index.str.startswith("contiguous")
    balanced = biases[biases.index.str.startswith("balanced")]
    flat = _range(biases[is_ours_flat]) if is_ours_flat.any() else "not stored"
    return (
        f"without chunks {flat} (published {_range(published[is_flat])}),"
        f" in balanced chunks {_range(balanced)} (published {_range(published[~is_flat])})"
    )


def _range(values: pd.Series[float]) -> str:
    return f"{digits(values.min())} to {digits(values.max())}"


def find_all(
    rows: pd.DataFrame, named: pd.DataFrame, judged: pd.DataFrame, costs: pd.DataFrame
) -> dict[str, str]:
    """Put the findings of a case into words, by the key under which pages quote them."""
    gains, told, advice = compare_gains(named), bias(named)["bias"], judge_advice(named)
    media = [str(medium) for medium in dict.fromkeys(named["medium"])]
    found: dict[str, str] = {}
    for medium in media:
        biases, at = told.xs(medium), cast(pd.DataFrame, gains.xs(medium))
        found |= {
            f"{medium}-bars": judge_bars(medium, gains, judged),
            f"{medium}-bars-any-size": _judge_any_size(at),
            f"{medium}-median-error": _percent(_at(judged, medium, "median error")),
            f"{medium}-rank-correlation": _near_one(_at(judged, medium, "rank correlation")),
            f"{medium}-rank-of-halves": _near_one(_at(judged, medium, "of two halves")),
            f"{medium}-positions": tell_positions(named[named["medium"] == medium]),
            f"{medium}-advice": tell_advice(medium, advice),
            f"{medium}-biases": tell_bias(biases),
            f"{medium}-least-biased": f"{biases.idxmin()}, {_near_one(biases.min())}",
            f"{medium}-most-biased": f"{biases.idxmax()}, {digits(biases.max())}",
            **_tell_gains(medium, at),
        }
    return {
        "best-throughput": f"{found[f'{media[0]}-gain-skewed-mix-any-size']} the balance rule's speed",
        "comparator": RULE,
        "aa-noise": _percent(noise(rows)),
        "full-slices": str(_count_full_slices()),
        "n-blocks": str(int(rows.loc[rows["phase"] == "measured", "block"].nunique())),
        **found,
        **tell_rewriting(costs),
    }


def _count_full_slices() -> int:
    """Count the slices of the whole reanalysis that share no chunk of the rule's at our bound."""
    chunk = balanced_chunk_shape(FULL_SHAPE, 4, BOUND_NBYTES)
    return -(-FULL_SHAPE[0] // chunk[0])


def _tell_gains(medium: str, gains: pd.DataFrame) -> Mapping[str, str]:
    """Tell the gain for each mix, over the rule at our bound and over the rule at its best size."""
    kinds = {
        "equal-mix": ("ours 50:50", "mean"),
        "skewed-mix": ("ours 80:20", "mean"),
        "worst-access": ("ours, worst access", "worst"),
    }
    found = {}
    for kind, (ours, value) in kinds.items():
        at_bound = _at(gains, (ours, RULE), value)
        found[f"{medium}-gain-{kind}"] = _times(at_bound)
        found[f"{medium}-gain-{kind}-any-size"] = _times(_least(gains, ours, value))
    return found
