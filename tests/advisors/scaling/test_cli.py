"""``wire fit``: a reader's own curve from a file, in words and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from advisors.scaling.cli import fit
from helpers.errors import UserError

GROWING = "n_workers,seconds,n_chunks\n1,201,100\n2,101,100\n4,51,100\n8,26,100\n"
CAPPED = "n_workers,seconds,n_chunks,nbytes\n" + "".join(
    f"{n},{max(200 / n, 50)},100,1e9\n" for n in (1, 2, 4, 8, 16)
)


def run(folder: Path, text: str, *options: str) -> str:
    """Write a file and ask the command about it."""
    path = folder / "runs.csv"
    path.write_text(text, encoding="utf-8")
    found = CliRunner().invoke(fit, [str(path), *options], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def run_json(folder: Path, text: str, *options: str) -> dict[str, Any]:
    """Ask for JSON, in which nothing is infinite."""
    out = run(folder, text, "--json", *options)
    found: dict[str, Any] = json.loads(out, parse_constant=pytest.fail)
    return found


def test_a_curve_that_grows(tmp_path: Path) -> None:
    """Nothing ends the growth, which is said, and so is that the knee was not seen."""
    out = run(tmp_path, GROWING, "--workers", "16", "--workers", "32")
    assert "what ends the growth: nothing up to 8 workers" in out
    assert out.count("knee not seen: at least") == 2
    assert "one more doubling, 8 to 16 workers" in out
    found = run_json(tmp_path, GROWING, "--workers", "16", "--workers", "32")
    assert [row["n_workers"] for row in found["predictions"]] == [16, 32]
    assert found["ceiling_per_s"]["high"] is None and not found["is_knee_seen"]
    for row in found["predictions"]:
        assert row["seconds"]["low"] <= 200 / row["n_workers"] + 1 <= row["seconds"]["high"]


def test_a_curve_with_a_ceiling(tmp_path: Path) -> None:
    """The ceiling is named in chunks and in bytes, and a doubling costs twice as much."""
    out = run(tmp_path, CAPPED)
    assert "what ends the growth: a ceiling of" in out and "MB/s" in out
    found = run_json(tmp_path, CAPPED)
    assert found["is_knee_seen"]
    ceiling = found["ceiling_mb_per_s"]  # somewhat high, for this corner is sharper than the law's
    assert 0.8 * ceiling["low"] <= 20 <= ceiling["high"]
    assert found["doubling"]["cost"] == pytest.approx(2, rel=0.1)


def test_a_start_and_idle_slots(tmp_path: Path) -> None:
    """A start that dominates ends the growth, and so do chunks that have run out."""
    rows = "".join(f"{n},{50 + 50 / n},1000\n" * 3 for n in (1, 2, 4, 8, 16, 32))
    found = run_json(tmp_path, "n_workers,seconds,n_chunks\n" + rows)
    assert found["ends_growth"].startswith("a start of")
    few = run_json(tmp_path, "n_workers,seconds,n_chunks\n1,40,20\n10,5,20\n30,2.5,20\n")
    assert few["ends_growth"].startswith("the chunks: 20 of them")


@pytest.mark.parametrize(
    ("column", "factor"), [("throughput_mb_per_s", 1.0), ("throughput_gb_per_s", 1e-3)]
)
def test_a_throughput_is_seconds(tmp_path: Path, column: str, factor: float) -> None:
    """Throughput with bytes says the same as seconds, in any order of rows."""
    rows = [f"{n},{1000 / seconds * factor},100,1e9" for n, seconds in ((8, 26), (1, 201), (4, 51), (2, 101))]  # fmt: skip
    text = "\n".join([f"n_workers,{column},n_chunks,nbytes", *rows])
    found, of_seconds = run_json(tmp_path, text), run_json(tmp_path, GROWING)
    assert found["cycle_s"]["value"] == pytest.approx(of_seconds["cycle_s"]["value"])


def test_another_link_and_more_chunks(tmp_path: Path) -> None:
    """A ceiling that is the link rises with the link; ten times the chunks take ten times as long."""
    here = run_json(tmp_path, CAPPED, "--workers", "16", "--link", "20")
    there = run_json(tmp_path, CAPPED, "--workers", "16", "--link", "20", "--other-link", "80")
    more = run_json(tmp_path, CAPPED, "--workers", "16", "--chunks", "1000")
    seconds = [each["predictions"][0]["seconds"]["value"] for each in (here, there, more)]
    assert seconds[1] < 0.6 * seconds[0] and 8 < seconds[2] / seconds[0] < 12


HEAD = "n_workers,seconds\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "columns"),  # empty
        ("workers,seconds\n1,2\n2,1\n", "columns"),  # another name
        ("n_workers,throughput\n1,2\n2,1\n", "columns"),  # a throughput of no unit
        ("n_workers,seconds,throughput_mb_per_s\n1,2,3\n", "columns"),  # two times
        (HEAD, r"n_workers: \[.*\]"),  # no row
        (HEAD + "1,2\n", r"n_workers: \[.*\]"),  # one point
        (HEAD + "1,2\n1,3\n", r"n_workers: \[.*\]"),  # one size
        (HEAD + "1,2\n2,0\n", "line 3: seconds"),
        (HEAD + "1,2\n0,1\n", "line 3: n_workers"),
        (HEAD + "1,2\n0.5,1\n", "n_workers: 0.5"),
        (HEAD + "1,2\n2,nan\n", "line 3: seconds"),
        (HEAD + "1,2\n2,inf\n", "line 3: seconds"),
        (HEAD + "1,2\n2,-1\n", "line 3: seconds"),
        (HEAD + "1,2\n2,fast\n", "line 3: seconds: 'fast'"),
        (HEAD + "1,2\n2\n", "line 3: seconds: None"),  # a row too short
        (HEAD + "1,2\n2,\n", "line 3: seconds: ''"),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    """A file that holds no curve says where, and what is allowed."""
    with pytest.raises(UserError, match=f"{message}.*; allowed:") as caught:
        run(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """No file, a folder and bytes that are no text are refused in one line."""
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00n_workers")
    for name in ("none.csv", ".", "bytes.csv"):
        with pytest.raises(UserError, match="not read: .*; allowed: a CSV file"):
            CliRunner().invoke(fit, [str(tmp_path / name)], catch_exceptions=False)


@pytest.mark.parametrize(
    "options", [("--link", "20"), ("--other-link", "20"), ("--cores", "0"), ("--workers", "0"), ("--chunks", "0")]
)  # fmt: skip
def test_bad_options_are_one_line(tmp_path: Path, options: tuple[str, ...]) -> None:
    """An option that does not fit the file names itself and what is allowed."""
    with pytest.raises(UserError, match="; allowed: "):
        run(tmp_path, GROWING, *options)
