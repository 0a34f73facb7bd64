"""What pages quote of a case: the findings of chunk shape in words, by their keys."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pandas as pd

from helpers.arrays.chunks import balanced_chunk_shape
from helpers.benchmark.ranking import Ranking
from helpers.benchmark.record import read_published, read_records
from helpers.benchmark.statistics import Comparison, Interval, Verdict
from helpers.book.studies import write_table
from helpers.models.access import reads_abreast
from helpers.paths import ROOT
from helpers.plotting.tables import digits
from studies.chunk_shape.findings import (
    ACCESSES,
    AS_BOX,
    MIX_NAMES,
    RULE,
    Pair,
    ends_of,
    invert,
    list_held,
    names_of,
    tell_first,
)
from studies.chunk_shape.layouts import BOUND_NBYTES, FULL_SHAPE
from studies.chunk_shape.prediction import pool

_SPREAD = ("series", "slice", "box", "region mean")  # of the whole there is one
_MANY = 100  # positions without a common chunk that are wanted
_OURS = {
    "equal-mix": ("ours 50:50", MIX_NAMES[1, 1]),
    "skewed-mix": ("ours 80:20", MIX_NAMES[8, 2]),
    "worst-access": ("ours, worst access", "worst access"),
}
# Targets: the ranges that meet them.
_WITHIN = [(0.0, 0.2)]  # of the prediction's median error
_RANKED = [(0.95, 1.0)]  # of its rank correlation
_BOXES = [(0.9, 1.0)]  # of that within boxes
_LOSS = [(0.0, 1.05)]  # of our time over the rule's, at an equal mix
# Of the gain in the worst access: ours is clearly faster, or the rule's shape is as good as any.
_GAIN = [(1.3, math.inf), (1 / 1.05, 1.05)]


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What the page judged."""

    noise: Mapping[tuple[str, str], float]  # A/A ratio of a medium and a quantity
    gains: Mapping[Pair, Comparison]  # time of a layout over the rule's
    ranks: Mapping[tuple[str, str], Ranking]  # of a medium and a contest
    tools: Mapping[tuple[str, str], Comparison]  # one tool that rewrites over another


def tell_interval(found: Interval) -> str:
    """Write a ratio with its interval, so that it can be told from one, and from its target.

    Examples
    --------
    >>> tell_interval(Interval(1.2661, 1.1172, 1.4129, n=8))
    '1.27 [1.12, 1.41]'
    """
    if math.isnan(found.low):
        return digits(found.centre, n=3)
    return f"{digits(found.centre, n=3)} [{digits(found.low, n=3)}, {digits(found.high, n=3)}]"


def _times(found: Interval) -> str:
    return f"{tell_interval(found)} times"


def _percent(value: float) -> str:
    return f"{digits(100 * value)} %"


def judge_target(found: Interval, ranges: Sequence[tuple[float, float]]) -> str:
    """Say whether a target is met, missed or undecided: by the whole interval, never by its middle.

    Examples
    --------
    >>> judge_target(Interval(1.27, 1.12, 1.41, n=8), [(1.3, 9)])
    'undecided'
    >>> judge_target(Interval(1.19, 1.15, 1.23, n=5), [(1.3, 9)])
    'missed'
    """
    if math.isnan(found.low):
        return "undecided"
    if any(low <= found.low and found.high <= high for low, high in ranges):
        return "met"
    if all(found.high < low or found.low > high for low, high in ranges):
        return "missed"
    return "undecided"


def judge_targets(medium: str, gains: Mapping[Pair, Comparison], judged: pd.DataFrame) -> str:
    """Say of each target whether it is met, and what was found."""
    error, rank = _read_targets(judged, medium)
    told = [
        f"median error of the prediction {_tell_error(error)}, {judge_target(error, _WITHIN)}",
        f"its rank correlation {tell_interval(rank)}, {judge_target(rank, _RANKED)}",
    ]
    return "; ".join([*told, _judge_ours(medium, {RULE}, gains)])


def _read_targets(judged: pd.DataFrame, medium: str) -> tuple[Interval, Interval]:
    """Read median error and rank correlation of the prediction."""
    names = ("median error", "rank correlation")
    error, rank = (_read(judged, medium, (name, f"{name}, low", f"{name}, high")) for name in names)
    return error, rank


def _tell_error(error: Interval) -> str:
    ends = f"[{digits(100 * error.low)}, {digits(100 * error.high)}]"
    return f"{digits(100 * error.centre)} {ends} %"


def _tell_boxes(judged: pd.DataFrame, medium: str) -> str:
    """Say how well boxes alone are ranked, beside how well one half of their reads ranks the other."""
    name, key = f"{medium}, boxes alone", "rank correlation"
    found = _read(judged, name, (key, f"{key}, low", f"{key}, high"))
    halves = digits(_at(judged, name, "of two halves"), n=3)
    return (
        f"{tell_interval(found)}, {judge_target(found, _BOXES)}; two halves of the reads {halves}"
    )


def _judge_ours(medium: str, rules: Collection[str], gains: Mapping[Pair, Comparison]) -> str:
    """Say whether the two targets of ours hold against the rule at the best of some sizes."""
    worst, _ = find_gain(medium, "worst-access", rules, gains)
    gain, _ = find_gain(medium, "equal-mix", rules, gains)
    loss = invert(gain)
    return (
        f"gain of the worst access {_times(worst)}, {judge_target(worst, _GAIN)};"
        f" time at an equal mix over the rule's {tell_interval(loss)}, {judge_target(loss, _LOSS)}"
    )


def _read(table: pd.DataFrame, row: Hashable, columns: tuple[str, str, str]) -> Interval:
    """Read an interval from a table that was computed from several blocks or layouts."""
    centre, low, high = (_at(table, row, column) for column in columns)
    return Interval(centre, low, high, n=0)


def _at(table: pd.DataFrame, row: Hashable, column: str) -> float:
    return float(cast(Any, table).loc[row, column])


def find_gain(
    medium: str, kind: str, rules: Collection[str], gains: Mapping[Pair, Comparison]
) -> tuple[Interval, Verdict]:
    """Find the gain of ours over the rule at whichever of some sizes is best, with the verdict.

    The gain over the best is the least, and so are the ends of its interval: the
    least low end lies below it wherever that of the best size does. Over
    simulated ties of two sizes the interval misses it in 5 %, of four in 9 %.
    Ours is faster than the best where it is faster than each.
    """
    chosen = [
        found
        for pair, found in gains.items()
        if (pair.medium, pair.layout, pair.quantity) == (medium, *_OURS[kind])
        and pair.rule in rules
    ]
    each = [invert(found.ratio) for found in chosen]
    centre, low, high = (min(ends) for ends in zip(*map(ends_of, each), strict=True))
    verdicts = {found.verdict for found in chosen}
    worst: Sequence[Verdict] = ("slower", "indistinguishable", "faster")
    verdict = next(one for one in worst if one in verdicts)
    return Interval(centre, low, high, n=each[0].n), verdict


def tell_gain(found: tuple[Interval, Verdict], what: str = "") -> str:
    """Write a gain with its interval, and the verdict where ours is not faster."""
    ratio, verdict = found
    return f"{_times(ratio)}{what}{'' if verdict == 'faster' else f' ({verdict})'}"


def count_positions(part: pd.DataFrame) -> tuple[int, int, int, int]:
    """Count pairs of layout and access, those with enough positions apart, and the fewest of all.

    The fewest positions of a pair, and the fewest that share no chunk, may be of different pairs.
    """
    table = part[part["access"].isin(_SPREAD)]
    fewest, apart = int(table["n_positions"].min()), int(table["n_apart"].min())
    return len(table), int((table["n_apart"] >= _MANY).sum()), fewest, apart


def tell_advice(medium: str, verdicts: Verdicts, named: pd.DataFrame) -> str:
    """Judge chunks as large as the subset in one sentence; empty where a medium has none."""
    over = {
        (pair.rule, pair.quantity): found
        for pair, found in verdicts.gains.items()
        if (pair.medium, pair.layout) == (medium, AS_BOX)
    }
    if not over:
        return ""
    series, slice_ = (_times(over[RULE, name].ratio) for name in ("series", "slice"))
    slower = [
        f"{rule} ({_times(found.ratio)})"
        for (rule, quantity), found in over.items()
        if quantity == "slice" and found.verdict == "slower"
    ]
    small = f"; for a slice they are slower than {', '.join(slower)}" if slower else ""
    return (
        f"chunks as large as the box take {_tell_box(medium, verdicts, named)};"
        f" {series} the rule's time for a series and {slice_} for a slice{small}"
    )


def _tell_box(medium: str, verdicts: Verdicts, named: pd.DataFrame) -> str:
    """Say how long chunks as large as the box take for it, beside the fastest layouts."""
    names, held = names_of(named, medium), list_held(named)[medium, AS_BOX]
    boxes, chunked = (verdicts.ranks[medium, name] for name in ("box", "box, in chunks"))
    ratio = boxes.others[held].ratio if held != boxes.best else Interval(1, 1, 1, n=0)
    first = f"the fastest layout, {names[boxes.best]}"
    if len(boxes.fastest) > 1:
        first = f"{names[boxes.best]}, {tell_first('fastest', boxes.fastest, names)}"
    listed = "; ".join(names[name] for name in chunked.fastest)
    place = "among the fastest" if held in chunked.fastest else "slower than the fastest"
    return f"{_times(ratio)} as long for it as {first}; of layouts with chunks they are {place} ({listed})"


def tell_rewriting(
    costs: pd.DataFrame, tools: Mapping[tuple[str, str], Comparison]
) -> dict[str, str]:
    """Name the tools that rewrite fastest and slowest, as judged, and when the first has paid."""
    if costs.empty:
        return {}
    best, worst = str(costs.index[0]), str(costs.index[-1])
    fastest = [a for a in costs.index if a == best or tools[a, best].verdict != "slower"]
    slowest = [a for a in costs.index[::-1] if a == worst or tools[a, worst].verdict != "faster"]
    minutes = _read(costs, best, ("minutes per GB", "low", "high"))
    reads = _read(costs, best, ("reads to pay back", "least", "most"))
    longest = tell_interval(_read(costs, worst, ("minutes per GB", "low", "high")))
    programs = tools.get(("h5repack", "nccopy"))  # of one thread each
    told = f"{_times(programs.ratio)} ({programs.verdict})" if programs else "not both installed"
    return {
        "rewrite-tool": tell_first("fastest", fastest),
        "rewrite-minutes-per-gb": tell_interval(minutes),
        "rewrite-payback": f"{tell_interval(reads)} reads",
        "rewrite-slowest": f"{tell_first('slowest', slowest)}, {longest} minutes per GB",
        "rewrite-h5repack-over-nccopy": told,
    }


def tell_bias(biases: pd.Series[float]) -> str:
    """Put our bias beside the published one, without chunks and with balanced ones."""
    theirs = read_published("rew2013_access_times")
    times = theirs[theirs["medium"].str.startswith("disk")]
    keys = ["layout", "chunk_shape"]
    wide = times.fillna({"chunk_shape": ""}).pivot_table("time_s", keys, "access")
    published = wide.max(axis=1) / wide.min(axis=1)
    is_flat = published.index.get_level_values("layout").str.startswith("contiguous")
    is_ours_flat = biases.index.str.startswith("contiguous")
    balanced = biases[biases.index.str.startswith("balanced")]
    told = [
        f"without chunks {_range(biases[is_ours_flat])} (published {_range(published[is_flat])})"
    ]
    beside = f"in balanced chunks {_range(balanced)} (published {_range(published[~is_flat])})"
    return ", ".join([*(told if is_ours_flat.any() else []), beside])


def _range(values: pd.Series[float]) -> str:
    return f"{digits(values.min())} to {digits(values.max())}"


def tell_noise(medium: str, noise: Mapping[tuple[str, str], float]) -> str:
    """Say how far a layout differs from itself: in what gains are judged by, and in an access."""
    patterns = [f"{name} {_percent(noise[medium, name] - 1)}" for _, name in _OURS.values()]
    single = [noise[medium, name] - 1 for name in ACCESSES]
    return (
        f"{', '.join(patterns)}; a single access {_percent(min(single))} to {_percent(max(single))}"
    )


def find_all(
    rows: pd.DataFrame,
    named: pd.DataFrame,
    *,
    judged: pd.DataFrame,
    biases: pd.DataFrame,
    costs: pd.DataFrame,
    verdicts: Verdicts,
) -> dict[str, str]:
    """Put the findings of a case into words, by the key under which pages quote them."""
    media = [str(medium) for medium in dict.fromkeys(named["medium"])]
    found: dict[str, str] = {}
    for medium in media:
        at, (error, rank) = cast(pd.DataFrame, biases.xs(medium)), _read_targets(judged, medium)
        found |= {
            f"{medium}-bars": judge_targets(medium, verdicts.gains, judged),
            f"{medium}-bars-any-size": _judge_ours(
                medium, _sizes(medium, verdicts), verdicts.gains
            ),
            f"{medium}-median-error": _tell_error(error),
            f"{medium}-rank-correlation": tell_interval(rank),
            f"{medium}-rank-of-boxes": _tell_boxes(judged, medium),
            f"{medium}-rank-of-halves": digits(_at(judged, medium, "of two halves"), n=3),
            f"{medium}-advice": tell_advice(medium, verdicts, named),
            f"{medium}-biases": tell_bias(at["bias"]),
            **_tell_ends(medium, verdicts, at, named),
            **_tell_gains(medium, verdicts),
        }
    return {
        "best-throughput": tell_gain(
            find_gain(media[0], "skewed-mix", _sizes(media[0], verdicts), verdicts.gains),
            f" the balance rule's speed at its best chunk size, for {_OURS['skewed-mix'][1]}",
        ),
        "comparator": RULE,
        "aa-noise": "; ".join(
            f"{medium}: {told}" if len(media) > 1 else told
            for medium, told in ((one, tell_noise(one, verdicts.noise)) for one in media)
        ),
        # slices of the whole reanalysis that share no chunk of the rule's at our bound
        "full-slices": str(
            -(-FULL_SHAPE[0] // balanced_chunk_shape(FULL_SHAPE, 4, BOUND_NBYTES)[0])
        ),
        "n-blocks": str(int(rows.loc[rows["phase"] == "measured", "block"].nunique())),
        "answer": " ".join(_tell_answer(one, verdicts, found) for one in media),
        **{key: told for key, told in found.items() if told},
        **tell_rewriting(costs, verdicts.tools),
    }


def _tell_answer(medium: str, verdicts: Verdicts, found: Mapping[str, str]) -> str:
    """Answer the question of the page in short."""
    _, pattern = _OURS["skewed-mix"]
    gain = find_gain(medium, "skewed-mix", _sizes(medium, verdicts), verdicts.gains)
    return (
        f"From {_MEDIA[medium]}, chunks that were searched for {pattern} are read"
        f" {tell_gain(gain, ' as fast as those of the balance rule at its best size')}."
        f" The largest bias, of the slower over the faster access of a layout: {found[f'{medium}-most-biased']}."
    )


_MEDIA = {"hdf5": "an HDF5 file", "zarr": "Zarr", "sharded": "sharded Zarr"}


def _sizes(medium: str, verdicts: Verdicts) -> set[str]:
    """List the chunk sizes of the rule that a medium has."""
    return {pair.rule for pair in verdicts.gains if pair.medium == medium}


def _tell_ends(
    medium: str, verdicts: Verdicts, biases: pd.DataFrame, named: pd.DataFrame
) -> dict[str, str]:
    """Tell the least and the largest bias, and what is fastest in each mix."""
    names, found = names_of(named, medium), {}
    for key, end, name in (("least", "least", "bias"), ("most", "largest", "inverse bias")):
        ranking = verdicts.ranks[medium, name]
        first = "" if len(ranking.fastest) == 1 else "the first "
        bias = tell_interval(_read(biases, ranking.best, ("bias", "low", "high")))
        told = tell_first(end, ranking.fastest, names)
        found[f"{medium}-{key}-biased"] = f"{told}, {first}{bias}"
    for kind, (_, quantity) in _OURS.items():
        fastest = verdicts.ranks[medium, quantity].fastest
        found[f"{medium}-fastest-{kind}"] = tell_first("fastest", fastest, names)
    return found


def _tell_gains(medium: str, verdicts: Verdicts) -> dict[str, str]:
    """Tell the gain for each mix, over the rule at our bound and over the rule at its best size."""
    sizes = (("", {RULE}), ("-any-size", _sizes(medium, verdicts)))
    return {
        f"{medium}-gain-{kind}{end}": tell_gain(find_gain(medium, kind, rules, verdicts.gains))
        for kind in _OURS
        for end, rules in sizes
    }


_RECORDS = ROOT / "results" / "reference" / "chunk-shape"


def render_versions(folder: Path = _RECORDS) -> str:
    """Tabulate with which zarr shards were read in each record, and how that reads a part of one."""
    lines = []
    for path in sorted(folder.glob("*.csv")):
        rows = read_records([path])
        told_in = rows.loc[rows["medium"] == "sharded", "versions"].map(json.loads)
        for version in dict.fromkeys(each["zarr"] for each in told_in):
            told = "joined and side by side" if reads_abreast(version) else "one after the other"
            lines.append((path.stem.replace("-", " "), version, told))
    return write_table(["case", "zarr", "chunks of a shard"], lines)


def render_positions(folder: Path = _RECORDS) -> str:
    """Tabulate at how many positions each record reads, and how many of them share no chunk."""
    lines = []
    for path in sorted(folder.glob("*.csv")):
        rows = read_records([path])
        part = rows[(rows["phase"] == "measured") & (rows["control_of"] == "")]
        lines.append((path.stem.replace("-", " "), *count_positions(pool(part))))
    titles = ["layouts times accesses", f"at {_MANY} or more positions without a common chunk"]
    titles += ["fewest positions", "fewest without a common chunk"]
    return write_table(["case", *titles], lines)
