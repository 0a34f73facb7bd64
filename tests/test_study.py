"""What all studies show of a record."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from helpers.paths import ROOT
from helpers.study import count_rows

OLD, NEW = "a" * 40, "b" * 40


def make_rows(commits: list[str], days: list[str]) -> pd.DataFrame:
    """Make a row of calibration, and measured blocks of these commits and days."""
    rows = pd.DataFrame({"commit": commits, "started_utc": [f"{day}T10:00:00Z" for day in days]})
    return rows.assign(
        block=[0, *range(len(rows) - 1)], phase=["calibration"] + ["measured"] * (len(rows) - 1)
    )


def test_rows_of_one_origin_are_counted() -> None:
    """Blocks and rows of each phase; nothing is said of commits where there is one."""
    table = count_rows(make_rows([OLD] * 4, ["2026-01-02"] * 4), stopped_by="n_blocks")
    assert table.loc["measured"].to_dict() == {"blocks": 3, "rows": 3, "ended_by": "n_blocks"}
    assert table.loc["calibration", "ended_by"] == ""


def test_rows_of_several_origins_are_told_apart() -> None:
    """A record that was gone on with says how many rows each commit and each day gave."""
    days = ["2026-01-02", "2026-01-02", "2026-01-03", "2026-01-03"]
    table = count_rows(make_rows([OLD, OLD, OLD, NEW], days), stopped_by="n_blocks")
    assert table.loc["measured", "rows of each commit"] == "aaaaaaaa: 2, bbbbbbbb: 1"
    assert table.loc["measured", "rows of each day"] == "2026-01-02: 1, 2026-01-03: 2"
    assert table.loc["calibration", "rows of each commit"] == "aaaaaaaa: 1"


RECORDS = sorted((ROOT / "results" / "reference").glob("[!b]*/*.csv"))  # bench has no phases


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_reference_records_of_several_commits_say_so(path: Path) -> None:
    """Whichever records of the book were gone on with."""
    rows = pd.read_csv(path, low_memory=False)
    told = "rows of each commit" in count_rows(rows, stopped_by="")
    assert told == (rows["commit"].nunique() > 1)
