"""Profiles: those that ship hold what was published, files of one's own are checked."""

from __future__ import annotations

from dataclasses import fields
from datetime import date
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
import yaml

from runner.cases import find_parameters, list_studies
from tests.refusals import refused
from wire.bed import networks
from wire.bed.networks import (
    Faults,
    FirstByte,
    Profile,
    check_dilation,
    get_profile,
    make_profile,
    profile_names,
)
from wire.errors import UserError
from wire.host import machine

FIGURES = {
    "first_byte_s": {"median_s": 0.02, "p95_s": 0.05},
    "stream_mb_per_s": 50,
    "aggregate_mb_per_s": 400,
}
LATE = {"first_byte_s": {"median_s": 0.05, "p95_s": 0.1}}


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        # a bandwidth of zero would never end
        ({"stream_mb_per_s": 0}, "stream_mb_per_s: 0; allowed: at least"),
        ({"requests_per_s": "many"}, "requests_per_s: 'many'; allowed: a number"),
        ({"requests_per_s": True}, "requests_per_s: True"),
        ({"region": "mars"}, "region: 'mars'; allowed: 'same', 'other', 'outside' or 'unknown'"),
        ({"speed": 3}, "unknown field 'speed'; allowed: first_byte_s"),
        ({"first_byte_s": {"median_s": 0.1}}, "first_byte_s.p95_s: is missing; allowed"),
        ({"first_byte_s": {"median_s": float("nan"), "p95_s": 1}}, "first_byte_s.median_s: nan"),
        # the 95th percentile lies above the median
        ({"first_byte_s": {"median_s": 2, "p95_s": 1}}, "first_byte_s: quantiles fall"),
        ({"first_byte_s": {"median_s": 1, "p95_s": 2, "p99_s": 1.5}}, "quantiles fall"),
        # exclusive probabilities
        ({"faults": {"reset": 0.6, "stall": 0.6}}, "faults: their sum is above 1"),
        # no answer comes before a signal has gone there and back
        ({**LATE, "round_trip_s": 0.06}, "round_trip_s: longer than the median"),
        ({"setup_round_trips": 2}, "round_trip_s: is missing"),
        ({1: 2}, "unknown field 1"),
        ({"first_byte_s": {date(2026, 1, 1): 2}}, "first_byte_s."),
    ],
)
def test_what_is_no_network_is_refused(figures: dict[Any, Any], message: str) -> None:
    """It is refused in one line with name, value and what is allowed."""
    with pytest.raises(UserError) as caught:
        make_profile("example", figures)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("dilation", [0.5, 0, float("inf"), float("nan")])
def test_time_is_slowed_down_only(dilation: float) -> None:
    """Time is slowed down by a finite factor, never sped up."""
    with refused("dilation", f"^{dilation}$", "at least 1$"):
        check_dilation(dilation)


def test_each_figure_that_ships_has_its_source() -> None:
    """And none is divided by a factor: what is slow here would be slow there."""
    assert profile_names()[0] == "loopback"
    figures = {each.name for each in fields(Profile)} - {"name", "sources", "faults", "measurement"}
    names = figures - {"tls", "provider", "region"}
    for profile in map(get_profile, profile_names()):
        stated = {name for name in names if getattr(profile, name) is not None}
        assert set(profile.sources) == stated
        assert profile.faults == Faults()
        assert profile.provider and profile.region, "bills follow from these"
    assert get_profile("other-region").setup_s == pytest.approx(0.12)


def test_first_bytes_in_region_are_those_published() -> None:
    """Percentiles 50, 90 and 99 of GETs are 26, 40 and 73 ms, and 82 MiB/s come over a connection."""
    profile = get_profile("in-region")
    assert profile.first_byte_s is not None
    drawn = [profile.first_byte_s.delay_s(NormalDist().inv_cdf(q)) for q in (0.5, 0.9, 0.99)]
    assert drawn == pytest.approx([0.026, 0.040, 0.073], rel=0.001)
    assert profile.stream_mb_per_s == pytest.approx(82 * 2**20 / 1e6, rel=0.001)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the checkout be a folder of the test, and the current folder another."""
    monkeypatch.setattr(networks, "find_checkout", lambda: tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


def write(path: Path, **figures: Any) -> str:
    """Write a profile, with some figures in place of others."""
    path.write_text(yaml.safe_dump({**FIGURES, **figures}), encoding="utf-8")
    return str(path)


def test_a_file_is_a_profile(checkout: Path) -> None:
    """A file is found from the current folder and from the checkout, and its name is the profile's."""
    path = write(checkout / "mine.yml", scale=1)
    for name in ("mine.yml", "../mine.yml", path):
        found = get_profile(name)
        assert found.name == "mine.yml" and found.first_byte_s == FirstByte(0.02, 0.05)
    write(checkout / "elsewhere" / "mine.yml", stream_mb_per_s=7)
    assert get_profile("mine.yml").stream_mb_per_s == 7, "the current folder comes first"
    write(checkout / "elsewhere" / "in-region", stream_mb_per_s=7)
    assert get_profile("in-region").stream_mb_per_s == 86, "what ships is not hidden"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stream_mb_per_s: -1", "profile 'bad.yml': stream_mb_per_s: -1; allowed: at least"),
        ("- 1", "allowed: NAME: VALUE on each line"),
        ("{", "is no YAML"),
        ("measurement: 3", "allowed: a mapping"),
    ],
)
def test_files_are_refused(checkout: Path, text: str, says: str) -> None:
    """One line says what is wrong with the file."""
    (checkout / "bad.yml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        get_profile("bad.yml")
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_name_shows_no_password(checkout: Path) -> None:
    """A path loses its scheme in its name, by which a password would be known."""
    (checkout / "s3:").mkdir()
    (checkout / "s3:" / "u:hunter22pw@x.yml").write_text("{")
    with refused(r"profile '\*\*\*@x\.yml'", "^is no YAML: line") as caught:
        get_profile(str(checkout / "s3:" / "u:hunter22pw@x.yml"))
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize("name", ["moon", "absent.yml", "mine.txt", "", "a\nb.yml"])
def test_names_are_refused(name: str) -> None:
    """What is neither a profile nor a file is refused with the names there are."""
    with refused("profile", allowed="loopback, .*in-region.* or the path") as caught:
        get_profile(name)
    assert "\n" not in str(caught.value)


def test_calibrations_say_whose_they_are(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of another machine is taken with a line, said once."""
    write(checkout / "here.yml", measurement={"machine": machine()})
    get_profile("here.yml")
    assert capsys.readouterr().err == ""
    write(checkout / "there.yml", measurement={"machine": {**machine(), "n_cores": 999}})
    for _ in range(2):
        get_profile("there.yml")
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: there.yml was measured on another machine: n_cores")
    write(checkout / "odd.yml", measurement={"machine": {1: "a", "b": "\x1b[31m\nc"}})
    get_profile("odd.yml")
    assert "1 absent here, a there" in (told := capsys.readouterr().err)
    assert told.count("\n") == 1 and "\x1b" not in told


def test_a_case_takes_a_file(checkout: Path) -> None:
    """It is named from the checkout; nothing is emulated before a store of one's own."""
    write(checkout / "mine.yml")
    model = find_parameters(list_studies()[0])
    found = model.check({"profile": "mine.yml"}, "case.yaml")["profile"]
    assert found == "mine.yml"
    with refused(r"case\.yaml: profile", allowed="a path that begins at the checkout"):
        model.check({"profile": str(checkout / "mine.yml")}, "case.yaml")
    with refused(r"case\.yaml: profile", allowed="loopback, because nothing is emulated"):
        model.check({"store": "s3://mine/x", "profile": "mine.yml"}, "case.yaml")
