"""Numbers of pages: written next to a record, read back, printed in prose, and claims that may not hold."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from helpers.benchmark.statistics import Comparison, Interval
from helpers.errors import UserError
from helpers.findings import Finding, format_finding, read_findings, write_findings


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """Whatever statistics return, and names, with the noise and the blocks of the page."""
    ratio = Interval(1.5, 1.25, 1.75, n=7)
    findings = {
        "gain": Comparison("faster", ratio, noise=1.02, reason=""),
        "speed": Finding(81.5, unit="MB/s"),
        "best": Finding(verdict="zarr-obstore"),
        "ratio": ratio,
        "plain": 3,
    }
    write_findings(
        tmp_path / "c.csv", findings, {"holds": True, "not": False}, noise=0.02, n_blocks=7
    )
    found = read_findings(tmp_path / "c.csv")
    assert found["gain"] == Finding(1.5, 1.25, 1.75, n=7, verdict="faster")
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
    with pytest.raises(UserError, match=r"^c\.findings\.csv: not the findings of a page"):
        read_findings(tmp_path / "c.csv")


def test_a_key_stands_once(tmp_path: Path) -> None:
    """A claim is no finding, and none of them is the noise."""
    with pytest.raises(UserError, match="gain twice"):
        write_findings(tmp_path / "c.csv", {"gain": 1.0}, {"gain": True}, noise=0, n_blocks=1)
