"""How often an answer is right: each measured case is asked of what all other cases say."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from advisors.decide.choices import tell_number
from advisors.decide.clients import (
    Group,
    describe_store,
    find_overheads,
    list_groups,
    rank_clients,
)
from advisors.decide.evidence import Measured, load
from helpers.benchmark.statistics import Interval, ratio_interval
from helpers.models.access import IoCounts, Store, access_seconds
from helpers.models.transfer import Client, simulate

WITHIN, TARGET = 1.1, 0.9
"""How far a choice may be from the measured best, and in what share of trials it has to be so."""

SHAPE, CLIENT = "chunk shape", "client"
"""What is decided."""

_N_DRAWN = 200  # times of an access
_N_BLOCKS = 5  # that every record has at least

_MIXES: Mapping[str, Mapping[str, float]] = {
    "series and slice, 50:50": {"series": 0.5, "slice": 0.5},
    "series and slice, 80:20": {"series": 0.8, "slice": 0.2},
}


@dataclass(frozen=True, slots=True)
class Trial:
    """One decision that a case could have informed, made without it."""

    case: str
    about: str  # what was decided, and for what
    chosen: str
    best: str  # as it was measured
    ratio: float  # measured median of the chosen over that of the best
    pairs: Interval  # the same in pairs within blocks, not widened for the choice of the best
    by_chance: float  # share of all that could be chosen that are within `WITHIN` of the best
    without: tuple[float, ...]  # the ratio, judged without the first block, the second and so on
    unseen: tuple[str, ...] = ()  # that no other case holds

    @property
    def is_within(self) -> bool:
        """Whether the chosen is the best, or nearly, by medians."""
        return self.ratio <= WITHIN

    @property
    def is_tied(self) -> bool:
        """Whether the record cannot tell the chosen from the best: its interval includes 1."""
        return self.chosen == self.best or self.pairs.low <= 1 <= self.pairs.high


@cache
def try_all() -> tuple[Trial, ...]:
    """Make every decision that the records can judge, each without the case that judges it."""
    rows = load().rows
    return *try_layouts(rows), *try_clients(rows)


def try_clients(rows: Iterable[Measured], *, with_overheads: bool = True) -> Iterator[Trial]:
    """Choose a client by what it asks and its overhead in other cases, among all that were measured in this one.

    Without overheads the model decides alone. Of clients that are expected to take as long, the
    one that was slower is judged: a choice that leaves two open earns nothing by luck.
    """
    groups = list_groups(rows)
    for case in sorted({group.case for group in groups}):
        others = [group for group in groups if group.case != case]
        overheads = find_overheads(others) if with_overheads else {}
        for group in groups:
            if group.case == case and len(group.rows) > 1:
                found = _judge(case, _name(group), rank_clients(overheads, group.asked), group.rows)
                yield replace(found, unseen=tuple(group.rows.keys() - overheads.keys()))


def _name(group: Group) -> str:
    """Say for what a client was chosen: where on the x-axis, or how much is read."""
    point = [f"{name} {value}" for name, value in json.loads(group.point).items()]
    return f"{CLIENT}, {', '.join(point) or f'{tell_number(group.nbytes / 1e6)} MB'}"


def try_layouts(rows: Iterable[Measured]) -> Iterator[Trial]:
    """Choose a chunk shape by the model at its defaults, among those that were measured."""
    found: dict[str, dict[str, dict[str, Measured]]] = defaultdict(dict)
    for row in rows:
        if row.asked:  # of objects
            found[row.case].setdefault(str(row.point["access"]), {})[row.contender] = row
    for case, accesses in found.items():
        alone = {name: {name: 1.0} for name in accesses}
        for about, mix in {**alone, **_MIXES}.items():
            if mix.keys() <= accesses.keys():
                yield _try_mix(case, f"{SHAPE}, {about}", accesses, mix)


def _try_mix(
    case: str,
    about: str,
    accesses: Mapping[str, Mapping[str, Measured]],
    mix: Mapping[str, float],
) -> Trial:
    """Predict every layout that was measured with all accesses of a mix."""
    layouts = sorted(set.intersection(*(set(accesses[name]) for name in mix)))
    predicted = {
        layout: sum(share * predict_box(accesses[name][layout]) for name, share in mix.items())
        for layout in layouts
    }
    rows = {
        layout: _add_up([(share, accesses[name][layout]) for name, share in mix.items()])
        for layout in layouts
    }
    return _judge(case, about, predicted, rows)


def _add_up(parts: Sequence[tuple[float, Measured]]) -> Measured:
    """Add up the times of a mix, block by block too."""
    blocks = zip(*(row.blocks for _, row in parts), strict=True)
    shares = [share for share, _ in parts]
    return replace(
        parts[0][1],
        p50_s=sum(share * row.p50_s for share, row in parts),
        blocks=[math.sumprod(shares, block) for block in blocks],
    )


def predict_box(row: Measured) -> float:
    """Predict the median box from what each asked, on the network as it was emulated; no fit to any record.

    Boxes that ask for other things take other times, and each of these is scattered by its first
    bytes. Half of all boxes are faster than the median of that mixture. The median of the
    medians is another thing: it leaps where half of the boxes change sides.
    """
    store, drawn, weights = describe_store(row), list[float](), list[float]()
    for times, *each in row.asked:
        counts = IoCounts(*each)
        median_s = float(access_seconds(store, counts))
        if len(row.asked) == 1:
            return median_s
        ratios = draw_ratios(store, counts)
        drawn += [median_s * ratio for ratio in ratios]
        weights += [times / len(ratios)] * len(ratios)
    return float(np.quantile(drawn, 0.5, weights=weights, method="inverted_cdf"))


def draw_ratios(store: Store, counts: IoCounts) -> list[float]:
    """Draw times of one access over their median: objects or shards side by side, requests of each in turn."""
    n_jobs = int(counts.n_shards or counts.n_chunks)
    n_each = counts.n_chunks / n_jobs
    client = Client(
        n_each * (counts.stored_nbytes or counts.chunk_nbytes / store.compression_ratio),
        requests_per_chunk=counts.n_requests / n_jobs,
        connections_per_worker=min(store.n_connections, n_jobs),
        cpu_s_per_chunk=n_each * (store.chunk_s + store.decode_s_per_nbyte * counts.chunk_nbytes),
    )
    seconds = [
        simulate(store.network, client, n_jobs, n_workers=1, n_cores=1, seed=seed)
        for seed in range(_N_DRAWN)
    ]
    middle_s = statistics.median(seconds)
    return [one / middle_s for one in seconds]


def _judge(
    case: str, about: str, expected: Mapping[str, float], rows: Mapping[str, Measured]
) -> Trial:
    """Compare what is expected to be fastest with what was, by medians and in pairs within blocks."""
    least = min(expected.values())
    equals = [name for name, seconds in expected.items() if seconds <= least * (1 + 1e-9)]
    chosen = max(equals, key=lambda name: rows[name].seconds)
    best = min(rows, key=lambda name: rows[name].seconds)
    least_s = rows[best].seconds
    logs = np.log(np.divide(rows[chosen].blocks, rows[best].blocks))
    return Trial(
        case,
        about,
        chosen,
        best,
        rows[chosen].seconds / least_s,
        ratio_interval(logs),
        statistics.mean(row.seconds <= WITHIN * least_s for row in rows.values()),
        tuple(_judge_without(block, chosen, rows) for block in range(_N_BLOCKS)),
    )


def _judge_without(block: int, chosen: str, rows: Mapping[str, Measured]) -> float:
    """Compare the chosen with the best as if a block had not been measured."""
    seconds = {
        name: statistics.median([*row.blocks[:block], *row.blocks[block + 1 :]])
        for name, row in rows.items()
    }
    return seconds[chosen] / min(seconds.values())


@dataclass(frozen=True, slots=True)
class Score:
    """How the trials of one case, or of all, went."""

    n: int
    n_best: int  # that chose what was the best by medians
    n_within: int  # and those within `WITHIN` of it
    n_tied: int  # of the rest, those that the record cannot tell from the best
    by_chance: float  # share that would be within, were one chosen blindly
    without: tuple[float, float]  # least and most share within, where one block of each is left out
    median: float  # of the ratios
    worst: float

    @property
    def within(self) -> float:
        """Share within `WITHIN` of the measured best, by medians: what is held to the target."""
        return self.n_within / self.n


def score(trials: Sequence[Trial]) -> Score:
    """Count how often the chosen was the measured best, or nearly.

    Examples
    --------
    >>> one = Trial("a/b", "client", "x", "x", 1.0, Interval(1.0, 1.0, 1.0, 5), 0.5, (1.0, 1.0))
    >>> other = replace(one, best="y", ratio=2.0, pairs=Interval(2.0, 0.9, 3.0, 5))
    >>> found = score([one, other])
    >>> found.within, found.n_tied
    (0.5, 1)
    """
    ratios = [one.ratio for one in trials]
    without = [
        statistics.mean(ratio <= WITHIN for ratio in each)
        for each in zip(*(one.without for one in trials), strict=True)
    ]
    return Score(
        len(trials),
        sum(one.chosen == one.best for one in trials),
        sum(one.is_within for one in trials),
        sum(one.is_tied and not one.is_within for one in trials),
        statistics.mean(one.by_chance for one in trials),
        (min(without), max(without)),
        statistics.median(ratios),
        max(ratios),
    )
