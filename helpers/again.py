"""Ratios that were measured more than once: in the reference, and again by those who make the book."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from helpers.benchmark.statistics import Interval, random_effects_interval
from helpers.findings import CLAIM, SUFFIX, Finding, read_findings
from helpers.paths import ROOT

AGAIN = ROOT / "results" / "submitted" / "measured-again"
REFERENCE = ROOT / "results" / "reference"


def list_measured_again() -> list[str]:
    """List the cases that have a second record."""
    return sorted(
        path.relative_to(AGAIN).as_posix().removesuffix(SUFFIX)
        for path in AGAIN.glob(f"*/*{SUFFIX}")
    )


def read_all_records(case: str, key: str) -> list[Finding]:
    """Read a finding of a case in each record that has it, that of the reference first."""
    read = (read_findings(folder / f"{case}.csv") for folder in (REFERENCE, AGAIN))
    return [findings[key] for findings in read if key in findings]


def compare_over_records(case: str, key: str) -> Interval | None:
    """Compute a ratio with its interval over records; None where it has one record, or is none.

    A finding that is copied from another case has the same digits in both, and was measured once.
    """
    records = read_all_records(case, key)
    is_ratio = all(" over " in record.quantity and record.unit != CLAIM for record in records)
    is_measured = all(math.isfinite(record.low) and record.low > 0 for record in records)
    if len({record.value for record in records}) < 2 or not (is_ratio and is_measured):
        return None
    return random_effects_interval(
        [Interval(r.value, r.low, r.high, r.n, r.quantity) for r in records]
    )


@dataclass(frozen=True, slots=True)
class ClaimOverRecords:
    """A claim in all records of its case: whether it holds in each that decides it."""

    case: str
    key: str
    holds: tuple[bool, ...]


def judge_over_records(case: str) -> Iterator[ClaimOverRecords]:
    """Judge each claim of a case in every record that decides it, that of the reference first."""
    both = [read_findings(folder / f"{case}.csv") for folder in (REFERENCE, AGAIN)]
    keys = dict.fromkeys(key for findings in both for key in findings)
    for key in keys:
        claims = [findings[key] for findings in both if key in findings]
        holds = tuple(bool(c.value) for c in claims if c.unit == CLAIM and math.isfinite(c.value))
        if holds:
            yield ClaimOverRecords(case, key, holds)


def fails_in_a_record(case: str, key: str) -> bool:
    """Decide whether a claim does not hold in one of the records of its case."""
    return any(not all(claim.holds) for claim in judge_over_records(case) if claim.key == key)
