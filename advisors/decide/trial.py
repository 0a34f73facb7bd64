"""How often an answer is right: each measured case is asked of what all other cases say."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisors.chunks.answers import store_from
from advisors.decide.evidence import Evidence, Measured, list_groups, load, nearest, rank_clients
from advisors.decide.question import Question
from helpers.models.access import IoCounts, Store, predict_median
from helpers.netem.profiles import get_profile, network_of

WITHIN, TARGET = 1.1, 0.9
"""How far a choice may be from the measured best, and in what share of trials it has to be so."""

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
    ratio: float  # measured time of the chosen over that of the best


def try_all(evidence: Evidence | None = None) -> list[Trial]:
    """Make every decision that the records can judge, each without the case that judges it."""
    evidence = evidence or load()
    return [*try_layouts(evidence.rows), *try_clients(evidence)]


def try_clients(evidence: Evidence) -> Iterator[Trial]:
    """Choose a client by what other cases say of it, among all that were measured in this one."""
    groups = list_groups(evidence.rows)
    for group in groups:
        others = [one for one in groups if one.case != group.case]
        names = list(group.seconds)
        ranked = rank_clients(nearest(others, group.profile, names), names)
        if len(ranked) < 2:  # nothing else tells these apart
            continue
        where = ", ".join(f"{name} {value}" for name, value in json.loads(group.point).items())
        yield _judge(group.case, f"client, {where}", ranked[0].client, group.seconds)


def try_layouts(rows: Iterable[Measured]) -> Iterator[Trial]:
    """Choose a chunk shape by the model at its defaults, among those that were measured."""
    found: dict[tuple[str, str], dict[str, dict[str, Measured]]] = defaultdict(dict)
    for row in rows:
        if row.asked:  # of objects
            access = found[row.case, row.profile].setdefault(str(row.point["access"]), {})
            access[row.contender] = row
    for (case, profile), accesses in found.items():
        alone = {name: {name: 1.0} for name in accesses}
        for about, mix in {**alone, **_MIXES}.items():
            if mix.keys() <= accesses.keys():
                yield _try_mix(case, f"chunk shape, {about}", profile, accesses, mix)


def _try_mix(
    case: str,
    about: str,
    profile: str,
    accesses: Mapping[str, Mapping[str, Measured]],
    mix: Mapping[str, float],
) -> Trial:
    """Predict every layout that was measured with all accesses of a mix."""
    layouts = set.intersection(*(set(accesses[name]) for name in mix))

    def add_up(time: Callable[[Measured], float]) -> dict[str, float]:
        return {
            layout: sum(share * time(accesses[name][layout]) for name, share in mix.items())
            for layout in sorted(layouts)
        }

    predicted = add_up(lambda row: predict_box(profile, row))
    measured = add_up(lambda row: row.p50_s)
    return _judge(case, about, min(predicted, key=predicted.__getitem__), measured)


def predict_box(profile: str, row: Measured) -> float:
    """Predict the median box from what each asked, on the network as it was emulated; no fit to any record."""
    times, *counts = np.asarray(row.asked, np.float64).T
    loads = IoCounts(*(np.repeat(each, times.astype(int)) for each in counts))
    return predict_median(_store(profile, int(row.settings["concurrency"])), loads)


def _store(profile: str, n_connections: int) -> Store:
    """Describe the network of a record, and the reader that every answer assumes."""
    options = {
        "profile": profile,
        "connections": n_connections,
        "decode_mb_per_s": Question.model_fields["decode_mb_per_s"].default,
        "compression_ratio": None,
    }
    return replace(store_from(options), network=network_of(get_profile(profile)))


def _judge(case: str, about: str, chosen: str, seconds: Mapping[str, float]) -> Trial:
    best = min(seconds, key=seconds.__getitem__)
    return Trial(case, about, chosen, best, seconds[chosen] / seconds[best])


@dataclass(frozen=True, slots=True)
class Score:
    """How the trials of one case, or of all, went."""

    n: int
    within: float  # share of them within `WITHIN` of the measured best
    median: float  # of the ratios
    worst: float


def score(trials: Sequence[Trial]) -> Score:
    """Count how often the chosen was the measured best, or nearly.

    Examples
    --------
    >>> one = Trial("a/b", "client", "x", "x", 1.0)
    >>> score([one, replace(one, ratio=2.0)]).within
    0.5
    """
    ratios = [one.ratio for one in trials]
    within = statistics.mean(ratio <= WITHIN for ratio in ratios)
    return Score(len(ratios), within, statistics.median(ratios), max(ratios))
