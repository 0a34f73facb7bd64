"""Ratios that were measured more than once: in the reference, and again by those who make the book."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from helpers.benchmark.statistics import Interval, random_effects_interval
from helpers.findings import CLAIM, SUFFIX, Finding, read_findings
from helpers.paths import ROOT

SUBMITTED = ROOT / "results" / "submitted"
SUBMITTER = "submitter.json"
"""File of a folder of submitted records that names who measured."""
REFERENCE = ROOT / "results" / "reference"


def read_author(root: Path = ROOT) -> str:
    """Read who makes the book: records that they submit are no records of others."""
    return str(yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))["author"])


def list_own_folders() -> list[Path]:
    """List the folders of records that the makers of the book submitted, by name."""
    author = read_author()
    return sorted(
        path.parent
        for path in SUBMITTED.glob(f"*/{SUBMITTER}")
        if json.loads(path.read_text(encoding="utf-8"))["by"] == author
    )


def list_measured_again() -> list[str]:
    """List the cases that have more than one record."""
    return sorted(
        {
            path.relative_to(folder).as_posix().removesuffix(SUFFIX)
            for folder in list_own_folders()
            for path in folder.glob(f"*/*{SUFFIX}")
        }
    )


def read_records_of(case: str) -> list[dict[str, Finding]]:
    """Read the findings of each record of a case, the reference first; of an absent one they are none."""
    folders = [REFERENCE, *list_own_folders()]
    return [read_findings(folder / f"{case}.csv") for folder in folders]


def read_all_records(case: str, key: str) -> list[Finding]:
    """Read a finding of a case in each record that has it, that of the reference first."""
    return [findings[key] for findings in read_records_of(case) if key in findings]


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
    records = read_records_of(case)
    keys = dict.fromkeys(key for findings in records for key in findings)
    for key in keys:
        claims = [findings[key] for findings in records if key in findings]
        holds = tuple(bool(c.value) for c in claims if c.unit == CLAIM and math.isfinite(c.value))
        if holds:
            yield ClaimOverRecords(case, key, holds)


def fails_in_a_record(case: str, key: str) -> bool:
    """Decide whether a claim does not hold in one of the records of its case."""
    return any(not all(claim.holds) for claim in judge_over_records(case) if claim.key == key)
