"""What is made once is whole, the same, and made anew where it does not hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import obstore
import pytest

from helpers.arrays.prepared import Entry, prepare
from helpers.objectstore.locations import Location
from helpers.objectstore.testbed import Server
from helpers.paths import ROOT
from tests.stores import make_location

CONTENT = b"twelve bytes"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep locks in a folder of the test."""
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture(params=["folder", "prefix"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | Location:
    """Name a place on local disk, or in the store of the tests."""
    if request.param == "folder":
        return tmp_path / "made" / "abc"
    server: Server = request.getfixturevalue("server")
    return make_location(server, "prepared") / tmp_path.name


def make(place: Any, made_by: object = "codec 1", content: bytes = CONTENT) -> tuple[Entry, int]:
    """Prepare two files; return the entry, and how often they were written."""
    written = []

    def write(target: Any) -> dict[str, Any]:
        written.append(target)
        for name in ("data/a", "data/b"):
            put(target, name, content)
        return {"told": 1}

    return prepare(place, made_by, write, under=["data/"]), len(written)


def put(place: Any, name: str, content: bytes) -> None:
    """Write a file or an object."""
    if isinstance(place, Location):
        obstore.put(place.obstore(), name, content)
        return
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    (place / name).write_bytes(content)


def read(place: Any, name: str) -> bytes:
    """Read a file or an object."""
    if isinstance(place, Location):
        return bytes(obstore.get(place.obstore(), name).bytes())
    return (place / name).read_bytes()


def test_a_second_call_writes_nothing(place: Any) -> None:
    """The entry is found, with what was told of it."""
    first, n_written = make(place)
    again, n_again = make(place)
    assert (n_written, n_again) == (1, 0) and again == first
    assert (first.nbytes, first.facts) == (2 * len(CONTENT), {"told": 1})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data/a", CONTENT[:5]),  # cut off
        ("data/a", CONTENT[::-1]),  # as long, but other bytes
        ("data/c", CONTENT),  # nobody made it
        ("entry.json", b'{"made_by": "codec 1", "fi'),  # half an entry
        ("entry.json", b"{}"),  # an entry of another form
    ],
)
def test_what_does_not_hold_is_made_anew(place: Any, name: str, content: bytes) -> None:
    """Whatever was altered, what lies there afterwards is what was asked for."""
    first, _ = make(place)
    put(place, name, content)
    again, n_written = make(place)
    assert n_written == 1 and again == first
    assert read(place, "data/a") == CONTENT
    assert make(place)[1] == 0


def test_other_makings_do_not_pass_for_this_one(place: Any) -> None:
    """A place that holds what another codec made is written over."""
    make(place, "codec 1")
    again, n_written = make(place, "codec 2", CONTENT[::-1])
    assert n_written == 1 and read(place, "data/b") == CONTENT[::-1]
    assert again.made_by == json.loads(read(place, "entry.json"))["made_by"] == "codec 2"


def test_a_failed_writing_leaves_no_entry(place: Any) -> None:
    """A failing disk is an error, and the next call writes all of it."""

    def fail(target: Any) -> dict[str, Any]:
        put(target, "data/a", CONTENT[:3])
        raise OSError("Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        prepare(place, "codec 1", fail, under=["data/"])
    if isinstance(place, Path):
        assert list(place.parent.iterdir()) == []
    assert make(place)[1] == 1


def test_drafts_of_the_killed_are_removed(tmp_path: Path) -> None:
    """Halves that nobody writes any more go with the next writing, those of other places too."""
    made = tmp_path / "made"
    for name in ("abc.part/data/a", "gone.part/data/a"):
        put(made, name, CONTENT[:3])
    make(made / "abc")
    assert [path.name for path in made.iterdir()] == ["abc"]


_PREPARE = """
import sys, time
from pathlib import Path
from helpers.arrays.prepared import prepare

def write(draft):
    with Path(sys.argv[2]).open("a") as log:
        log.write("written\\n")
    time.sleep(0.5)
    (draft / "a").write_text("whole")
    return {}

place = Path(sys.argv[1])
prepare(place, "codec 1", write)
print((place / "a").read_text())
"""


@pytest.mark.slow
def test_two_processes_write_once(tmp_path: Path, cache: Path) -> None:
    """One writes, the other waits for it, and both find the whole."""
    place, log = tmp_path / "made" / "abc", tmp_path / "log"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _PREPARE, str(place), str(log)]
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    told = [each.communicate(timeout=60)[0].strip() for each in running]
    assert told == ["whole"] * 3
    assert log.read_text() == "written\n"
