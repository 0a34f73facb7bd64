"""Cases that count CPU time are refused where a client's time depends on the dilation."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from helpers.benchmark.record import Record
from runner import cli, ladder
from runner.cases import Case, find_case, find_cases
from tests.refusals import refused
from tests.rows import ORIGIN, make_row
from wire.host import machine

COUNTED = [find_case("requests-in-flight/real-s3", "laptop")]


def make_rows(**seconds_at_ten: float) -> pd.DataFrame:
    """Make five blocks of readers that take a second at one, and at ten as long as said."""
    parameters = json.dumps({"ladder": [1.0, 10.0], "processors": 2})
    lines = [
        (name, part, block, read_s, parameters)
        for name, at_ten_s in seconds_at_ten.items()
        for block in range(5)
        for part, read_s in (("1 charged", 1.0), ("10 charged", at_ten_s), ("1", 1.0), ("10", 0.5))
    ]
    columns = ["contender", "part", "block", "read_s", "parameters"]
    return pd.DataFrame(lines, columns=columns).assign(client_s=1.0, phase="measured")


@pytest.mark.parametrize("at_ten_s", [0.92, 1.0, 1.09])
def test_a_flat_machine_counts(at_ten_s: float) -> None:
    """Within a tenth either way nothing is refused; rungs that do not count CPU time say nothing."""
    ladder.check_flat(make_rows(a=at_ten_s), COUNTED)


@pytest.mark.parametrize("at_ten_s", [0.8, 1.2])
def test_a_steep_machine_does_not(at_ten_s: float) -> None:
    """One reader is enough; the line names the cases, the reader and how to go on."""
    rows = make_rows(a=1.0, b=at_ten_s)
    with refused(
        "requests-in-flight/real-s3", rf".*\(b {at_ten_s:.2f}x\)", ".*--uncounted runs all other"
    ):
        ladder.check_flat(rows, COUNTED)
    ladder.check_flat(rows, [])


def test_counted_cases_are_those_that_have_cpus() -> None:
    """What a case says in its parameter file decides, and the ladder is not of them."""
    counted = ladder.find_counted(find_cases("laptop"))
    assert COUNTED[0] in counted
    assert ladder.LADDER not in {case.title for case in counted}
    assert all("processors" in case.parameter_file.read_text() for case in counted)


@pytest.mark.parametrize(
    ("changed", "day", "expected"),
    [
        ({}, datetime(2026, 1, 2, tzinfo=UTC), True),
        ({}, datetime(2026, 6, 1, tzinfo=UTC), False),
        ({"cpu": "another"}, datetime(2026, 1, 2, tzinfo=UTC), False),
    ],
)
def test_a_record_of_another_machine_or_old_is_measured_again(
    tmp_path: Path, changed: dict[str, str], day: datetime, expected: bool
) -> None:
    """Each fact of the machine counts, and rows of the first of January are old in June."""
    origin = replace(ORIGIN, machine={**machine(), **changed})
    row = make_row(machine=origin.machine, fingerprint=origin.fingerprint)
    path = tmp_path / "ladder.csv"
    assert not ladder.is_current(path, now=day)
    Record(path, study=row.study, provenance=origin).append([row])
    assert ladder.is_current(path, now=day) is expected


@pytest.mark.parametrize("is_uncounted", [False, True])
def test_the_ladder_is_looked_at_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, is_uncounted: bool
) -> None:
    """On a steep machine nothing is measured, and without the counted cases all others are."""
    ran: list[Case] = []

    def run(cases: list[Case], **_options: object) -> list[str]:
        ran.extend(cases)
        return ["stopped here"]

    monkeypatch.setattr(cli, "_run", run)
    monkeypatch.setattr("runner.build.build", lambda *_, **__: Path())
    monkeypatch.setattr(ladder, "is_current", lambda _: True)
    monkeypatch.setattr(ladder, "measure_steepness", lambda _: {"a": 1.8})
    options = ["--all", "--ladder-first", *["--uncounted"] * is_uncounted]
    result = CliRunner().invoke(cli.run_all, options)
    assert result.exit_code != 0
    assert bool(ran) is is_uncounted
    assert COUNTED[0] not in ran
