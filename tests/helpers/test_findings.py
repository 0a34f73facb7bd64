"""Numbers of pages: written next to a record, read back, printed in prose, and claims that may not hold."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from helpers.benchmark.statistics import Comparison, Interval
from helpers.findings import (
    UNSTABLE_MARK,
    Claim,
    Finding,
    FindingLike,
    describe_noise,
    format_finding,
    read_findings,
    write_findings,
)
from tests.refusals import refused


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """Whatever statistics return, and names, with the noise and the blocks of the page."""
    ratio = Interval(1.5, 1.25, 1.75, n=7, quantity="a over b, read_s", noise=1.5)
    findings = {
        "gain": Comparison("faster", ratio, noise=1.02),
        "speed": Finding(81.5, unit="MB/s"),
        "best": Finding(verdict="zarr-obstore"),
        "ratio": ratio,
        "plain": 3,
    }
    write_findings(
        tmp_path / "c.csv", findings, {"holds": True, "not": False}, noise=0.02, n_blocks=7
    )
    found = read_findings(tmp_path / "c.csv")
    assert found["gain"].verdict == "faster" and found["gain"].noise == pytest.approx(0.02)
    assert found["gain"].quantity == found["ratio"].quantity == "a over b, read_s"
    assert found["ratio"].noise == 0.5 and found["ratio"].high == 1.75
    assert found["speed"].unit == "MB/s" and found["best"].verdict == "zarr-obstore"
    assert math.isnan(found["best"].value) and found["plain"].value == 3
    assert [found[key].value for key in ("holds", "not", "noise", "n-blocks")] == [1, 0, 0.02, 7]


def test_there_may_be_none(tmp_path: Path) -> None:
    """A record of someone who has not run the last cell has no findings; prose says so."""
    assert read_findings(tmp_path / "c.csv") == {}
    assert format_finding(None) == "not measured here"


@pytest.mark.parametrize(
    "text", ["", "key,value\na,1\n", "key,value,low,high,unit,n,verdict\na,x,,,,1,\n"]
)
def test_what_is_no_findings_is_refused(tmp_path: Path, text: str) -> None:
    """In one line, whatever a stranger's file holds."""
    (tmp_path / "c.findings.csv").write_text(text)
    with refused(r"c\.findings\.csv", "^not the findings of a page"):
        read_findings(tmp_path / "c.csv")


def test_a_key_stands_once(tmp_path: Path) -> None:
    """A claim is no finding, and none of them is the noise."""
    with refused("claims", "^gain, which a finding has$"):
        write_findings(tmp_path / "c.csv", {"gain": 1.0}, {"gain": True}, noise=0, n_blocks=1)


def test_the_table_says_what_other_pages_quote(tmp_path: Path) -> None:
    """Claims as words, and to what findings each belongs is in the file."""
    findings = {"gain": Finding(1.523, 1.31, 1.7, noise=0.02)}
    claims = {"helps": Claim(True, of="gain"), "old": False}
    shown = write_findings(tmp_path / "c.csv", findings, claims, noise=math.nan, n_blocks=7)
    assert [*shown.loc["gain"]] == ["1.5", "1.3 to 1.7", "", "2 %"]
    assert [*shown.loc[["helps", "old"], "value"]] == ["holds", "does not hold"]
    assert read_findings(tmp_path / "c.csv")["helps"].quantity == "gain"


def test_a_claim_is_of_findings_that_are_there(tmp_path: Path) -> None:
    """Its sentence has something to print."""
    with refused("claims: helps", "^of lost$"):
        write_findings(tmp_path / "c.csv", {}, {"helps": Claim(True, of="lost")}, noise=0, n_blocks=1)  # fmt: skip


@pytest.mark.parametrize(
    ("own", "page", "expected"),
    [
        (0.2, 0.01, UNSTABLE_MARK),  # a quiet page has a noisy quantity
        (0.01, 0.2, ""),  # and a noisy page a quiet one
        (math.nan, 0.2, UNSTABLE_MARK),
        (math.nan, math.nan, ""),
    ],
)
def test_unstable_is_said_of_a_quantity_by_its_own_noise(
    own: float, page: float, expected: str
) -> None:
    """That of the page counts where there is none; the mark has its reason."""
    assert format_finding(Finding(1.5, noise=own), "unstable", noise=page) == expected
    assert bool(describe_noise(Finding(1.5, noise=own), page)) == bool(expected)


UNKNOWN = math.nan
CLAIMS: list[tuple[FindingLike, bool, str]] = [
    (Interval(1.5, 1.25, 1.75, n=5), True, "holds"),
    (Interval(1.5, 0.9, 1.75, n=5), False, "does not hold"),
    (Interval(1.5, UNKNOWN, UNKNOWN, n=1), False, "not decided"),  # NaN > 1 is no answer
    (Interval(1.5, UNKNOWN, UNKNOWN, n=1), True, "not decided"),  # as of `verdict != "slower"`
    (Comparison("undecided", Interval(2.0, UNKNOWN, UNKNOWN, n=1), noise=UNKNOWN), False, "not decided"),
    (Finding(2.0, n=5), True, "holds"),  # the median of five, whose interval nobody computed
    (Finding(2.0), False, "does not hold"),  # a count needs no blocks
    (Finding(verdict="old picture"), False, "does not hold"),  # nor does what was seen
    (Finding(UNKNOWN), False, "not decided"),  # what was not measured
]  # fmt: skip


@pytest.mark.parametrize(("found", "holds", "expected"), CLAIMS)
def test_a_claim_holds_or_not_or_is_not_decided(
    tmp_path: Path, found: FindingLike, holds: bool, expected: str
) -> None:
    """What one block, or nothing, cannot judge is neither true nor false, in the file too."""
    claims = {"claim": Claim(holds, of=("plain", "gain"))}
    shown = write_findings(
        tmp_path / "c.csv", {"gain": found, "plain": 1.0}, claims, noise=math.nan, n_blocks=1
    )
    assert shown.loc["claim", "value"] == expected
    value = read_findings(tmp_path / "c.csv")["claim"].value
    assert math.isnan(value) if expected == "not decided" else value == (expected == "holds")
