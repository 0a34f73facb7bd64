"""Ratios and claims over several records, and what the first page quotes of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from helpers import again
from helpers.findings import Claim, Finding, write_findings
from helpers.paths import ROOT

FRONT = (ROOT / "pages" / "index.md").read_text(encoding="utf-8")


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three records of a case: a ratio that moved, one that was copied, and a claim that fails in one."""
    monkeypatch.setattr(again, "REFERENCE", tmp_path / "reference")
    monkeypatch.setattr(again, "SUBMITTED", tmp_path / "submitted")
    own = {"by": again.read_author()}
    for name, by, value, holds in (
        ("reference", own, 2.0, True),
        ("submitted/again", own, 2.4, False),
        ("submitted/later", own, 2.2, True),
        ("submitted/other", {"by": "somebody else"}, 9.0, True),
    ):
        path = tmp_path / name / "study" / "case.csv"
        path.parent.mkdir(parents=True)
        (tmp_path / name / "submitter.json").write_text(json.dumps(by), encoding="utf-8")
        results = {
            "gain": Finding(value, value - 0.1, value + 0.1, n=5, quantity="a over b, read_s"),
            "copied": Finding(3.0, 2.9, 3.1, n=5, quantity="a over b, read_s"),
            "mb": Finding(value, value - 0.1, value + 0.1),
        }
        write_findings(path, results, {"is-so": Claim(holds, "gain")}, noise=0.01, n_blocks=5)
    return tmp_path


def test_a_ratio_has_an_interval_over_its_records(folders: Path) -> None:
    """It holds all three that are ours; what was copied, and what is no ratio, has none."""
    assert again.list_measured_again() == ["study/case"]
    over = again.compare_over_records("study/case", "gain")
    assert over is not None and over.n == 3 and over.low < 2.0 and over.high > 2.4
    for key in ("copied", "mb", "is-so", "absent"):
        assert again.compare_over_records("study/case", key) is None


def test_a_claim_that_fails_in_a_record_is_found(folders: Path) -> None:
    """The reference alone would let it pass."""
    assert again.fails_in_a_record("study/case", "is-so")
    assert not again.fails_in_a_record("study/case", "absent")


def test_claims_of_the_first_page_hold_in_every_record() -> None:
    """Where a case has a second record, no sentence of the first page rests on one of them."""
    cases = again.list_measured_again()
    quoted = [match for match in re.findall(r"\{claim\}`([^:`]+)::([^`|]+)`", FRONT)]
    twice = [(case, key) for case, key in quoted if case in cases]
    assert twice, "the records are of what it quotes"
    for case, key in twice:
        assert len(again.read_all_records(case, key)) > 1, key
        assert not again.fails_in_a_record(case, key), key


def test_ratios_of_the_first_page_are_on_one_side_in_all_records() -> None:
    """Each that was measured again has an interval over records, and that excludes no effect."""
    for case, key in re.findall(r"\{num\}`([^:`]+)::([^`|]+)\|x`", FRONT):
        if case in again.list_measured_again():
            over = again.compare_over_records(case, key)
            assert over is not None and over.low > 1, key
