"""The race of the first page says what its record has."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from studies.own_program import race

ROWS = [
    ("s3fs_default", "GET", 0.0, 1.0, 3.0, 4_000_000),
    ("s3fs_default", "GET", 3.0, 4.0, 6.0, 4_000_000),
    ("s3fs_default", "", 0.0, 0.0, 8.0, 0),
    ("whole_file", "GET", 0.0, 1.0, 2.0, 1_000_000),
    ("whole_file", "GET", 0.5, 1.0, 2.0, 1_000_000),
    ("whole_file", "GET", 2.0, 3.0, 4.0, 1_000_000),
    ("whole_file", "", 0.0, 0.0, 4.0, 0),
]
COLUMNS = ["way", "method", "start_s", "first_byte_s", "end_s", "nbytes"]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what the page gets of each way."""
    pd.DataFrame(ROWS, columns=COLUMNS).to_csv(tmp_path / "race.csv", index=False)
    monkeypatch.setattr(race, "RECORD", tmp_path / "race.csv")
    monkeypatch.setattr(race, "WAYS", {way: race.WAYS[way] for way, *_ in ROWS})
    return race.write_race().split('<div class="race-way"')[1:]


def test_each_way_has_its_time_requests_and_bytes(written: list[str]) -> None:
    slow, fast = written
    assert "<b>8 s</b>, 2 requests, 8 MB moved" in slow
    assert "<b>4 s</b>, 3 requests, 3 MB moved" in fast


def test_bars_begin_where_requests_do_on_one_clock(written: list[str]) -> None:
    slow, fast = ([float(at) for at in re.findall(r"M(\d+) \d+h", way)] for way in written)
    # of 8 s in 2000 units: the beginnings of bodies, then those of waits
    assert slow == [250, 1000, 0, 750]
    assert fast == [250, 250, 750, 0, 125, 500]


def test_concurrent_requests_lie_below_one_another(written: list[str]) -> None:
    slow, fast = ({int(row) for row in re.findall(r"M\d+ (\d+)h", way)} for way in written)
    assert len(slow) == 1
    assert len(fast) == 2


def test_the_caption_holds_of_the_record() -> None:
    requests = pd.read_csv(race.RECORD, keep_default_na=False).query("method != ''")
    moved = requests.groupby("way")["nbytes"].sum()
    for way in ("s3fs_default", "s3fs_blocks"):
        times = requests[requests["way"] == way].sort_values("start_s")
        assert (times["start_s"].to_numpy()[1:] >= times["end_s"].to_numpy()[:-1]).all()
        assert moved[way] > moved["whole_file"]
