"""How far an answer rests on what was measured: the client, the case, and what to run where there is none."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import yaml

from advisors.decide.clients import (
    Group,
    Overhead,
    compare_clients,
    find_overheads,
    list_groups,
    rank_clients,
)
from advisors.decide.evidence import Evidence, load
from advisors.decide.forecasts import Asked, ask_in_turn
from advisors.decide.question import IN_FLIGHT, Question
from advisors.decide.snippets import CLIENTS, DEFAULT_HDF5
from helpers.netem.profiles import get_profile, network_of

Confidence = Literal["measured", "near", "uncertain"]

_FACTOR = 4.0  # between bytes of a request here and where they were measured, at most
_LEVELS: tuple[Confidence, ...] = ("uncertain", "near", "measured")


@dataclass(frozen=True, slots=True)
class Support:
    """What a choice rests on."""

    client: str  # name of its contender in the records
    confidence: Confidence
    case: str  # of which there is a record; empty where nothing measured supports the choice
    why: str  # in words
    case_file: str = ""  # what to run to know; empty where it was run

    @property
    def url(self) -> str:
        """Address of the case's page in the book, without its suffix."""
        return f"notebooks/{self.case}" if self.case else ""


@cache
def recall() -> tuple[list[Group], dict[str, Overhead]]:
    """List what was measured side by side, and the overhead of each client there."""
    groups = list_groups(load().rows)
    return groups, find_overheads(groups)


def choose_client(question: Question, clients: Sequence[str], reads: Sequence[Asked]) -> str:
    """Choose the client of which the accesses are expected to be fastest, each with its own requests."""
    store, shares = question.machine(IN_FLIGHT), question.pattern().shares
    asked = {
        name: math.fsum(
            share * one.predict(ask_in_turn(store, CLIENTS[name].requests_per_chunk))
            for share, one in zip(shares, reads, strict=True)
        )
        for name in clients
    }
    return next(iter(rank_clients(recall()[1], asked)))


def find_support(
    question: Question,
    client: str,
    *,
    beside: Sequence[str] = (),
    request_nbytes: Sequence[float] = (),
) -> Support:
    """Say how far the records of a client carry, and how it did there beside others.

    "measured" needs a record over the same network, with requests of about as many bytes;
    "near" needs one of both, and the rest is "uncertain".
    """
    evidence, (groups, overheads) = load(), recall()
    if client not in overheads:
        name = CLIENTS[client].text
        return Support(client, "uncertain", "", f"{name} is in no record of this book.")
    case = _choose_case(overheads[client], evidence, question.store)
    is_same = evidence.profile_of(case) == question.store
    is_like = _has_such_requests(evidence, client, request_nbytes)
    confidence = _LEVELS[is_same + is_like]
    file = "" if confidence == "measured" else write_case(evidence, case, question, request_nbytes)
    default = () if CLIENTS[client].format == "zarr" else (DEFAULT_HDF5,)
    why = _tell(client, overheads[client], groups, [*beside, *default]) + (
        "" if is_same else f" It was measured over {evidence.profile_of(case)}."
    )
    if not is_like:
        why += " Its requests there had other sizes."
    return Support(client, confidence, case, why, file)


def _choose_case(overhead: Overhead, evidence: Evidence, store: str) -> str:
    """Take a case over the same network, or else the nearest, by how many times as long first bytes take.

    Of several, the one where the client was compared most often, and then where most was read.
    """
    counts, read = Counter(overhead.cases), Counter[str]()
    for row in evidence.rows:
        read[row.case] = max(read[row.case], round(row.array_nbytes))

    def key(case: str) -> tuple[bool, float, int, int]:
        profile = evidence.profile_of(case)
        away = abs(_tell_wait(profile) - _tell_wait(store))
        return profile == store, -away, counts[case], read[case]

    return max(counts, key=key)


def _tell_wait(profile: str) -> float:
    """Return the logarithm of the median time to first byte, of 0.1 ms at least."""
    return math.log(max(1e-4, network_of(get_profile(profile)).first_byte_median_s))


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


def _tell(client: str, overhead: Overhead, groups: Sequence[Group], beside: Sequence[str]) -> str:
    """Say how often a client was measured beside others, and how these did where both were."""
    n_cases = len({*overhead.cases})
    told = f"{CLIENTS[client].text}: {len(overhead.cases)} comparisons in {n_cases} case{'s' * (n_cases > 1)}."
    for name in beside:
        ratio = None if name == client else compare_clients(groups, name, client)
        if ratio is not None:
            other = CLIENTS[name].text if name in CLIENTS else "what s3fs.open returns"
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
