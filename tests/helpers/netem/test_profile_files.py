"""Profiles from files: taken wherever a name is, pinned to their figures, and refused in a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from helpers.benchmark.provenance import machine
from helpers.book import pages, studies
from helpers.book.studies import find_studies
from helpers.errors import UserError
from helpers.netem import profiles
from helpers.netem.profiles import (
    FirstByte,
    get_measurement,
    get_profile,
    pin_profile,
    profile_names,
)
from helpers.plotting.tables import describe_profile

FIGURES = {
    "first_byte_s": {"median_s": 0.02, "p95_s": 0.05},
    "stream_mb_per_s": 50,
    "aggregate_mb_per_s": 400,
}


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the checkout be a folder of the test, and the current folder another."""
    monkeypatch.setattr(profiles, "ROOT", tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


def write(path: Path, **given: Any) -> str:
    """Write a profile, with what is given over its figures."""
    path.write_text(yaml.safe_dump({**FIGURES, **given}), encoding="utf-8")
    return str(path)


def test_a_file_is_a_profile(checkout: Path) -> None:
    """A file is found from the current folder and from the checkout, and its name is the profile's."""
    path = write(checkout / "mine.yml")
    for name in ("mine.yml", "../mine.yml", path):
        found = get_profile(name)
        assert found.name == "mine.yml" and found.first_byte_s == FirstByte(0.02, 0.05)
        assert (found.stream_mb_per_s, found.requests_per_s, found.scale) == (50, None, 1)
    assert get_measurement("mine.yml") == {} == get_measurement("in-region")
    write(checkout / "elsewhere" / "mine.yml", stream_mb_per_s=7)
    assert get_profile("mine.yml").stream_mb_per_s == 7, "the current folder comes first"


def test_what_ships_is_not_hidden(checkout: Path) -> None:
    """A file cannot take the name of a profile that ships."""
    write(checkout / "in-region")
    assert get_profile("in-region").stream_mb_per_s == 36
    assert pin_profile("in-region") == "in-region"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "not read: it is no YAML"),
        ("- 1", "is [1]; allowed is"),
        ("", "is None; allowed is"),
        ("speed: 3", "has the unknown field 'speed'"),
        ("stream_mb_per_s: 0", "stream_mb_per_s is 0; allowed is a number above 0"),
        ("measurement: 3", "measurement is 3; allowed is"),
        ("tail: {share: 0.9, late_s: 1}", "tail.share is 0.9; allowed is a number above 0, at"),
    ],
)
def test_files_are_refused(checkout: Path, text: str, says: str) -> None:
    """What is no profile is one line."""
    (checkout / "mine.yml").write_text(text)
    with pytest.raises(UserError) as caught:
        get_profile("mine.yml")
    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["moon", "absent.yml", "in_region", "mine.txt", "", "a\nb.yml"])
def test_names_are_refused(name: str) -> None:
    """What is neither a name nor a file is refused with the names that there are."""
    for call in (get_profile, get_measurement, pin_profile):
        with pytest.raises(UserError, match="^profile is .*allowed are loopback, in-region"):
            call(name)


def test_a_pinned_file_cannot_change_unnoticed(checkout: Path) -> None:
    """A digest holds the figures, and lets sources and notes change."""
    write(checkout / "mine.yml")
    pinned = pin_profile("mine.yml")
    assert pinned == "mine.yml@3868696e", "records made before round trips were told hold this"
    assert pinned == pin_profile(pinned) and get_profile(pinned) == get_profile("mine.yml")
    write(checkout / "mine.yml", sources={"stream_mb_per_s": "a better word"})
    assert pin_profile("mine.yml") == pinned
    rare = {"tail": {"share": 0.01, "late_s": 1.0}}
    slow = {"round_trip_s": 0.01, "setup_round_trips": 2, "initial_window_nbytes": 14600}
    for later in (rare, slow, {"requests_per_s": 40}):
        write(checkout / "mine.yml", **later)
        again = pin_profile("mine.yml")
        assert again != pinned and get_profile(again).to_mapping().items() >= later.items()
    write(checkout / "mine.yml", stream_mb_per_s=51)
    with pytest.raises(UserError, match="allowed is the file as it was"):
        get_profile(pinned)
    with pytest.raises(UserError, match="allowed is a path that begins at the checkout"):
        pin_profile(str(checkout / "mine.yml"))


def test_a_calibration_of_another_machine_is_told(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is taken, with a line that says what differs; one of this machine without."""
    write(checkout / "here.yml", measurement={"state": "complete", "machine": machine()})
    get_profile("here.yml")
    assert capsys.readouterr().err == ""
    write(checkout / "there.yml", measurement={"machine": {**machine(), "n_cores": 999}})
    for _ in range(2):
        get_profile("there.yml")
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: there.yml was measured on another machine: n_cores")


def test_a_partial_calibration(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is taken with a line where latency and bandwidth are there, else refused."""
    measurement = {"state": "partial", "why": "it was cut"}
    write(checkout / "part.yml", measurement=measurement)
    assert get_profile("part.yml").aggregate_mb_per_s == 400
    assert "warning: part.yml is partial: it was cut" in capsys.readouterr().err
    write(checkout / "less.yml", measurement=measurement, aggregate_mb_per_s=None)
    with pytest.raises(UserError, match="lacks aggregate_mb_per_s .it was cut.; allowed: after"):
        get_profile("less.yml")


@pytest.mark.parametrize("study", find_studies())
def test_a_case_takes_a_file(study: str, checkout: Path) -> None:
    """Every study runs on a file, named with its digest in the record; editors accept it too."""
    write(checkout / "mine.yml")
    model = find_studies()[study].parameters
    found = model.check({"profile": "mine.yml"}, "case.yaml")["profile"]
    assert (
        found.startswith("mine.yml@") and model.check({"profile": found}, "x")["profile"] == found
    )
    schema = studies.case_schema(model, study)
    for name in ("mine.yml", found, *profile_names()):
        jsonschema.validate({"profile": name}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"profile": "moon"}, schema)
    with pytest.raises(UserError, match="profile: 'absent.yml'; allowed: .*no such file"):
        model.check({"profile": "absent.yml"}, "case.yaml")


def test_a_store_of_ones_own_emulates_no_file(checkout: Path) -> None:
    """Nothing is emulated there, whatever the file is called."""
    write(checkout / "loopback.yml")
    model = find_studies()["cluster-scaling"].parameters
    with pytest.raises(UserError, match="allowed: loopback, because nothing is emulated"):
        model.check({"store": "s3://mine/x", "profile": "loopback.yml"}, "case.yaml")


def test_the_table_of_parameters_names_files() -> None:
    """The page says that a file is taken, beside the names."""
    table = pages.render_parameters(find_studies()["cluster-scaling"].parameters)
    [line] = [line for line in table.splitlines() if line.startswith("| `profile` |")]
    assert "`in-region`" in line and "file" in line


def test_a_profile_is_described_without_all_figures(checkout: Path) -> None:
    """A figure that is absent is left out of the line."""
    write(checkout / "mine.yml", aggregate_mb_per_s=None)
    told = describe_profile(get_profile("mine.yml"))
    assert told == "20 ms to the first byte, 50 MB/s a stream (at full scale)"
