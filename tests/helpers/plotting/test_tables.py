"""What all studies show of a record."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from helpers.benchmark.record import list_records, read_records
from helpers.paths import ROOT
from helpers.plotting.tables import count_rows, tell_runs

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


RECORDS = list_records(ROOT / "results" / "reference")


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_reference_records_of_several_commits_say_so(path: Path) -> None:
    """Whichever records of the book were gone on with."""
    rows = read_records([path])
    told = "rows of each commit" in count_rows(rows, stopped_by="")
    assert told == (rows["commit"].nunique() > 1)


def make_run(phases: str, starts_s: list[float]) -> pd.DataFrame:
    """Make rows of 2 s each: w for warm-up, c for calibration, digits for measured blocks."""
    words = {"w": "warm-up", "c": "calibration"}
    return pd.DataFrame(
        {
            "phase": [words.get(letter, "measured") for letter in phases],
            "block": [int(letter) if letter.isdigit() else 0 for letter in phases],
            "started_utc": [
                pd.Timestamp(1.7e9 + s, unit="s", tz="UTC").isoformat() for s in starts_s
            ],
            "open_s": 0.5,
            "read_s": 1.5,
        }
    )


@pytest.mark.parametrize(
    ("phases", "starts_s", "told"),
    [
        ("wc012", [0, 2, 4, 6, 8], ""),  # one run
        ("wc012", [0, 2, 300, 302, 304], ""),  # that opened for five minutes, less 4 s
        ("c001", [0, 2, 4, 726], "2 runs: block 0, then block 1 after a pause of 12 minutes"),
        # begun again at once, by a warm-up of its own
        ("w01w2", [0, 2, 4, 16, 18], "2 runs: blocks 0 to 1, then block 2 after a pause of 10 s"),
        # two warm-ups are one beginning; a run that only calibrated; days
        ("cww0", [0, 500, 502, 504], "2 runs: no block, then block 0 after a pause of 8 minutes"),
        (
            "01w2",
            [0, 1e4, 2e5 + 1e4 + 2, 2e5 + 1e4 + 4],
            "3 runs: block 0, then block 1 after a pause of 3 hours,"
            " then block 2 after a pause of 2 days",
        ),
        # what was left of a block when the time was up
        (
            "0101",
            [0, 2, 400, 402],
            "2 runs: blocks 0 to 1, then the rest of blocks 0 to 1 after a pause of 7 minutes",
        ),
    ],
)
def test_runs_of_a_record_are_told(phases: str, starts_s: list[float], told: str) -> None:
    """A pause, or a warm-up after measured rows, begins another run; the order of rows is free."""
    rows = make_run(phases, starts_s)
    assert tell_runs(rows) == tell_runs(rows[::-1]) == told


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_reference_records_of_one_commit_are_runs_without_a_gap(path: Path) -> None:
    """Every commit change within a record is a run that was gone on with."""
    rows = read_records([path])
    assert bool(tell_runs(rows)) or rows["commit"].nunique() == 1
