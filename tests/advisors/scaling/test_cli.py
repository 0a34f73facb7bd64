"""``wire fit`` and ``wire simulate``: a reader's own curve from a file, and a cluster from a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from advisors.scaling.cli import fit, simulate
from helpers.errors import UserError

GROWING = "n_workers,seconds,n_chunks\n1,201,100\n2,101,100\n4,51,100\n8,26,100\n"
CAPPED = "n_workers,seconds,n_chunks,nbytes\n" + "".join(
    f"{n},{max(200 / n, 50 - n / 100)},100,1e9\n" for n in (1, 2, 4, 8, 16)
)
HEAD = "n_workers,seconds\n"


def call(command: click.Command, *options: str) -> str:
    """Call a command that is expected to answer."""
    found = CliRunner().invoke(command, [*options], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def run(folder: Path, text: str, *options: str) -> str:
    """Write a file and ask `fit` about it."""
    path = folder / "runs.csv"
    path.write_text(text, encoding="utf-8")
    return call(fit, str(path), *options)


def load(text: str) -> dict[str, Any]:
    """Read JSON in which nothing is infinite."""
    found: dict[str, Any] = json.loads(text, parse_constant=pytest.fail)
    return found


def test_the_interval_is_first_and_two_laws_stand_next_to_it(tmp_path: Path) -> None:
    """A curve that grows: predictions with Amdahl and USL, and of the ceiling only what was measured."""
    out = run(tmp_path, GROWING, "--workers", "16", "--workers", "32").splitlines()
    assert "90 %" in out[0] and "Amdahl" in out[0] and "USL" in out[0]
    found = load(run(tmp_path, GROWING, "--workers", "16", "--workers", "32", "--json"))
    assert [row["n_workers"] for row in found["predictions"]] == [16, 32]
    assert found["ceiling_per_s"] is None and found["knee_workers"] is None
    assert found["largest_measured_per_s"] == pytest.approx(100 / 26)
    for row in found["predictions"]:
        assert row["seconds"]["low"] <= 200 / row["n_workers"] + 1 <= row["seconds"]["high"]


def test_a_ceiling_a_link_and_more_chunks(tmp_path: Path) -> None:
    """A ceiling is named in bytes too; a link below a measured rate is refused."""
    found = load(run(tmp_path, CAPPED, "--json"))
    assert found["is_knee_seen"]
    ceiling = found["ceiling_per_s"]
    assert ceiling["low"] <= 2 <= ceiling["high"] and found["mb_per_chunk"] == 10
    more = load(run(tmp_path, CAPPED, "--json", "--chunks", "1000"))
    seconds = [each["predictions"][0]["seconds"]["value"] for each in (found, more)]
    assert 8 < seconds[1] / seconds[0] < 12
    run(tmp_path, CAPPED, "--link", "21")
    with pytest.raises(UserError, match="link: 15 MB/s"):
        run(tmp_path, CAPPED, "--link", "15")


def test_a_slower_cluster_gains_nothing(tmp_path: Path) -> None:
    """100, 140 and 190 s with 1, 2 and 4 workers are no curve that gains."""
    out = run(tmp_path, HEAD + "1,100\n2,140\n4,190\n")
    assert "not faster any more at 4 workers" in out and "times as fast" not in out
    assert load(run(tmp_path, HEAD + "1,100\n2,140\n4,190\n", "--json"))["is_slower"]


@pytest.mark.parametrize(
    ("column", "factor"), [("throughput_mb_per_s", 1.0), ("throughput_gb_per_s", 1e-3)]
)
def test_a_throughput_is_seconds(tmp_path: Path, column: str, factor: float) -> None:
    """Throughput with bytes says the same as seconds, in any order of rows."""
    rows = [f"{n},{1000 / seconds * factor},100,1e9" for n, seconds in ((8, 26), (1, 201), (4, 51), (2, 101))]  # fmt: skip
    text = "\n".join([f"n_workers,{column},n_chunks,nbytes", *rows])
    found, of_seconds = (load(run(tmp_path, one, "--json")) for one in (text, GROWING))
    assert found["cycle_s"] == pytest.approx(of_seconds["cycle_s"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "columns"),  # empty
        ("workers,seconds\n1,2\n2,1\n", "columns"),  # another name
        ("n_workers,throughput\n1,2\n2,1\n", "columns"),  # a throughput of no unit
        ("n_workers,seconds,throughput_mb_per_s\n1,2,3\n", "columns"),  # two times
        (HEAD, r"n_workers: \[.*\]"),  # no row
        (HEAD + "1,2\n1,3\n", r"n_workers: \[.*\]"),  # one size
        (HEAD + "1,2\n2,0\n", "line 3: seconds"),
        (HEAD + "1,2\n0.5,1\n", "n_workers: 0.5"),
        (HEAD + "1,2\n2,nan\n", "line 3: seconds"),
        (HEAD + "1,2\n2,fast\n", "line 3: seconds: 'fast'"),
        (HEAD + "1,2\n2\n", "line 3: seconds: None"),  # a row too short
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


def test_a_petabyte_in_closed_form() -> None:
    """The formula is printed, and each part of it decides where it is the smallest.

    The times are those of an event-driven simulation of the same clusters, which the formula
    replaced: they agree within 4 %.
    """
    petabyte = ("--chunks", "10000000", "--json", "--workers", "1,30,3000,10000")
    found = load(call(simulate, *petabyte, "--link", "0"))
    simulated = [7951036, 265417, 3023, 2095]
    assert [row["seconds"] for row in found["sizes"]] == pytest.approx(simulated, rel=0.04)
    assert [row["limit"] for row in found["sizes"]][::3] == ["slots", "requests"]
    shared = load(call(simulate, *petabyte))["sizes"][-1]
    assert shared["limit"] == "link" and shared["seconds"] == pytest.approx(50255, rel=0.01)
    slow = load(call(simulate, *petabyte, "--task-ms", "1", "--link", "0"))["sizes"][-1]
    assert slow["limit"] == "scheduler"
    busy = load(call(simulate, *petabyte, "--slots", "64", "--link", "0", "--decode-ms", "900"))[
        "sizes"
    ][0]
    assert busy["limit"] == "processors"
    assert "min(slots / cycle" in call(simulate)


def test_data_that_leave_the_region_are_paid_for() -> None:
    """A terabyte out costs 90 USD at the list, next to what the same read costs inside."""
    asked = ("--chunks", "10000", "--workers", "10", "--json")
    inside, outside = (load(call(simulate, *asked, *more))["sizes"][0]["usd"] for more in ((), ("--leaves-region",)))  # fmt: skip
    assert outside - inside == pytest.approx(90, rel=0.01)


@pytest.mark.parametrize("workers", ["", "0", "1,x", "1000000"])
def test_bad_sizes_are_one_line(workers: str) -> None:
    """Cluster sizes that are none are refused with what is allowed."""
    with pytest.raises(UserError, match="--workers .*; allowed: whole numbers from 1"):
        call(simulate, "--workers", workers)
