"""How far an answer rests on what was measured: the client, the case, and what to run where there is none."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from advisors.decide.evidence import (
    ORIGINAL,
    Evidence,
    Ranked,
    list_groups,
    load,
    nearest,
    rank_clients,
)
from advisors.decide.question import Question
from advisors.decide.snippets import CLIENTS, DEFAULT_HDF5

Confidence = Literal["measured", "near", "uncertain"]

_FACTOR = 4.0  # between bytes of a request here and where they were measured, at most
_LEVELS: tuple[Confidence, ...] = ("uncertain", "near", "measured")


@dataclass(frozen=True, slots=True)
class Support:
    """What a choice rests on."""

    client: str  # the one that did best of those that may be used
    confidence: Confidence
    case: str  # of which there is a record; empty where nothing measured supports the choice
    why: str  # in words
    case_file: str = ""  # what to run to know; empty where it was run

    @property
    def url(self) -> str:
        """Address of the case's page in the book, without its suffix."""
        return f"notebooks/{self.case}" if self.case else ""


def find_support(
    question: Question, clients: Sequence[str], request_nbytes: Sequence[float] = ()
) -> Support:
    """Choose the client that did best in the records, and say how far they carry.

    "measured" needs a record over the same network, with requests of about as many bytes;
    "near" needs one of both, and the rest is "uncertain".
    """
    evidence = load()
    # files that were arranged anew are left out: a choice says what it does to the file
    groups = [
        one
        for one in list_groups(evidence.rows)
        if '"layout"' not in one.point or f'"layout": "{ORIGINAL}"' in one.point
    ]
    beside = [*clients, DEFAULT_HDF5] if CLIENTS[clients[0]].format != "zarr" else [*clients]
    ranked = rank_clients(nearest(groups, question.store, clients), beside)
    mine = [one for one in ranked if one.client in clients]
    if not mine:
        name = CLIENTS[clients[0]].text
        return Support(clients[0], "uncertain", "", f"{name} is in no record of this book.")
    best = mine[0]
    case = _choose_case(best, evidence, question.store)
    is_same = evidence.profile_of(case) == question.store
    is_like = _has_such_requests(evidence, best.client, request_nbytes)
    confidence = _LEVELS[is_same + is_like]
    file = "" if confidence == "measured" else write_case(evidence, case, question, request_nbytes)
    why = _tell(best, ranked) + (
        "" if is_same else f" It was measured over {evidence.profile_of(case)}."
    )
    if not is_like:
        why += " Its requests there had other sizes."
    return Support(best.client, confidence, case, why, file)


def _choose_case(best: Ranked, evidence: Evidence, store: str) -> str:
    """Take the case where the client was compared most often, the same network first, and most was read."""
    counts, read = Counter(best.cases), Counter[str]()
    for row in evidence.rows:
        read[row.case] = max(read[row.case], round(row.array_nbytes))
    return max(counts, key=lambda c: (evidence.profile_of(c) == store, counts[c], read[c]))


def _has_such_requests(evidence: Evidence, client: str, request_nbytes: Sequence[float]) -> bool:
    """Tell whether requests of about as many bytes were measured with a client, or of an array's boxes."""
    known = [
        row.wire_nbytes / row.n_requests
        for row in evidence.rows
        if row.n_requests and row.wire_nbytes
        if row.contender == client or (row.is_box and CLIENTS[client].format == "zarr")
    ]
    return all(
        any(1 / _FACTOR <= nbytes / one <= _FACTOR for one in known) for nbytes in request_nbytes
    )


def _tell(best: Ranked, ranked: Sequence[Ranked]) -> str:
    """Say how a client did beside the others."""
    name = CLIENTS[best.client].text
    n_cases = len({*best.cases})
    told = f"{name}: {len(best.cases)} comparisons in {n_cases} case{'s' * (n_cases > 1)}."
    for one in ranked:
        if one.client != best.client:
            other = CLIENTS[one.client].text if one.client in CLIENTS else "what s3fs.open returns"
            ratio = one.ratio / best.ratio
            told += f" {other[0].upper()}{other[1:]} takes {ratio:.2g} times as long."
    return told


def write_case(
    evidence: Evidence, case: str, question: Question, request_nbytes: Sequence[float]
) -> str:
    """Write the case that would tell: the nearest one over this network, its chunks as large."""
    study, _, _ = case.partition("/")
    given: dict[str, Any] = {**evidence.parameters[case]}
    changes: dict[str, Any] = {}
    if given["profile"] != question.store:
        changes["profile"] = question.store
    if request_nbytes and {"array_shape", "chunk_shape"} <= given.keys():
        changes |= _enlarge(given, max(request_nbytes) * question.compression)
    if not changes:
        return ""
    head = f"# yaml-language-server: $schema=../../{study}.schema.json\n"
    own = {name: value for name, value in given.items() if name not in ("record", "store")}
    told = yaml.safe_dump({**own, **changes}, sort_keys=False, default_flow_style=None)
    return f"# parameters/laptop/{study}/decide.yaml\n{head}{told}"


def _enlarge(given: Mapping[str, Any], chunk_nbytes: float) -> dict[str, Any]:
    """Make chunks along the first dimension as large as asked, of an array with as many."""
    factor = max(1, round(chunk_nbytes / (4 * math.prod(given["chunk_shape"]))))
    if factor == 1:
        return {}
    return {
        name: [factor * given[name][0], *given[name][1:]] for name in ("array_shape", "chunk_shape")
    }
