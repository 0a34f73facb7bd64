"""Records are whole at every instant, of one named origin, and free of secrets."""

from __future__ import annotations

import dataclasses
import getpass
import json
import math
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.benchmark import provenance, record
from helpers.benchmark.provenance import RENDERED, Provenance, as_json
from helpers.benchmark.record import (
    COLUMNS,
    WRITTEN,
    Record,
    RecordError,
    read_records,
    read_rows,
    runs_path,
)
from helpers.paths import ROOT
from tests.refusals import refused
from tests.rows import ORIGIN, make_row, write_record
from wire import host


def make_record(path: str | Path, origin: Provenance = ORIGIN, **changed: Any) -> Record:
    """Open a record of the usual origin."""
    return Record(path, study="cluster-scaling", provenance=origin, **changed)


def other_origin(**changed: Any) -> Provenance:
    """Return the usual origin with some facts changed."""
    names = ("machine", "versions", "parameters")
    return Provenance(**({name: getattr(ORIGIN, name) for name in names} | changed))


@settings(max_examples=50, deadline=None)
@given(
    check=st.text(max_size=50).filter(lambda text: bool(text.split())), seconds=st.floats(0, 1e6)
)
def test_any_text_and_time_come_back(
    tmp_path_factory: pytest.TempPathFactory, check: str, seconds: float
) -> None:
    """Text is kept but for white space, which becomes single blanks."""
    path = tmp_path_factory.mktemp("record") / "in-region.csv"
    row = make_row(check=check, read_s=seconds, wire_nbytes=math.nan, dilation=10.0)
    make_record(path).append([row])
    (found,) = read_rows(path)
    assert len(path.read_text().splitlines()) == 2
    assert (found.check, found.read_s) == (" ".join(check.split()), seconds)
    assert math.isnan(found.wire_nbytes)
    assert (found.real_read_s, found.real_open_s) == (10 * seconds, 1.0)
    assert found.parameters == {"seed": 1, "shape": [2, 3]}


def test_what_a_run_has_in_common_is_written_once(tmp_path: Path) -> None:
    """Lines are appended; an origin is added to the file beside when there is a new one."""
    path = tmp_path / "new folder" / "in-region.csv"
    record = make_record(path)
    record.append([make_row()])
    first, beside = path.read_bytes(), runs_path(path).read_bytes()
    record.append([make_row(block=1)])
    assert path.read_bytes().startswith(first) and runs_path(path).read_bytes() == beside
    assert b"3.1.6" not in path.read_bytes()
    later = make_record(path, dataclasses.replace(ORIGIN, commit="b" * 40))  # a better sentence
    later.append([make_row(block=2, commit="b" * 40)])
    frame = read_records([path])
    assert frame["commit"].str[0].tolist() == ["a", "a", "b"]
    assert frame["fingerprint"].unique().tolist() == [ORIGIN.fingerprint]
    assert len(json.loads(runs_path(path).read_text())) == 2


def test_frame_has_points_and_settings_as_columns(tmp_path: Path) -> None:
    """A figure finds n_workers and codec without parsing JSON; nothing measured is no row."""
    record = make_record(tmp_path / "in-region.csv")
    assert list(record.to_frame().columns) == list(COLUMNS) and record.to_frame().empty
    record.append([make_row(), make_row(phase="warm-up")])
    record.stopped_by = "n_blocks"
    frame = record.to_frame()
    assert list(frame.columns[: len(COLUMNS)]) == list(COLUMNS)
    assert frame["n_workers"].tolist() == [2, 2] and frame["codec"].tolist() == ["zstd", "zstd"]
    assert frame["point"].tolist() == ['{"n_workers": 2}'] * 2
    assert frame.attrs["stopped_by"] == "n_blocks"
    record.append([make_row(block=1, settings={"cache_state": "cold", "read_s": 1})])
    with refused("settings", "read_s", kind=RecordError):  # which would hide what was measured
        record.to_frame()


@pytest.mark.parametrize(
    ("changed", "value"),
    [
        ({"phase": "warmup"}, "'warmup'"),
        ({"read_s": -1.0}, "-1.0"),
        ({"open_s": math.nan}, "nan"),  # a clock never says NaN
        ({"block": -1}, "-1"),
        ({"read_s": math.inf}, "inf"),
        ({"n_requests": math.inf}, "inf"),
        ({"check": " "}, "nothing"),
        ({"dilation": 0.5}, "0.5"),
        ({"dilation": math.nan}, "nan"),
    ],
)
def test_impossible_rows_are_refused(changed: dict[str, Any], value: str) -> None:
    """A row that cannot have been measured is no row."""
    with refused(*changed, f"^{value}$", ".", kind=RecordError):
        make_row(**changed)


def test_a_row_is_recorded_once(tmp_path: Path) -> None:
    """The same contender, point, phase and block twice is a mistake, on disk or in one append."""
    record = make_record(tmp_path / "in-region.csv")
    with refused(r"in-region\.csv", "there already", kind=RecordError):
        record.append([make_row(), make_row()])
    assert not record.path.exists()
    record.append([make_row()])
    with refused(r"in-region\.csv", "there already", kind=RecordError):
        make_record(record.path).append([make_row(read_s=9.0)])
    record.append([make_row(point={"n_workers": 4})])
    assert len(make_record(str(record.path)).rows) == 2  # as notebooks name it


KILLED_CHILD = """
import os, signal, sys
from pathlib import Path
from helpers.benchmark.record import Record
from tests.rows import ORIGIN, make_row

record = Record(Path(sys.argv[1]), study="cluster-scaling", provenance=ORIGIN)
record.append([make_row(block=1)])
os.fsync = lambda _file: os.kill(os.getpid(), signal.SIGKILL)
record.append([make_row(block=2)])
"""


def test_a_record_goes_on_after_a_kill(tmp_path: Path) -> None:
    """A child killed (-9) before the disk has answered leaves whole rows, and we can go on."""
    record = make_record(tmp_path / "in-region.csv")
    record.append([make_row(block=0)])
    command = [sys.executable, "-c", KILLED_CHILD, str(record.path)]
    child = subprocess.run(command, check=False, cwd=ROOT)
    assert child.returncode == -9
    again = make_record(record.path)
    assert [row.block for row in again.rows] == [0, 1, 2]
    again.append([make_row(block=3)])
    assert [row.block for row in read_rows(record.path)] == [0, 1, 2, 3]
    assert {path.name for path in tmp_path.iterdir()} == {"in-region.csv", "in-region.runs.json"}


def test_a_record_without_the_columns_of_today_is_read_and_continued(tmp_path: Path) -> None:
    """What was not counted then is unknown, and the next row brings the columns."""
    path = write_record(tmp_path / "in-region.csv", [make_row()])
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    later = ["client_s", "thread_s", "cpus", "n_machines"]
    table.drop(columns=later).to_csv(path, index=False, lineterminator="\n")
    assert math.isnan(read_rows(path)[0].client_s)
    record = make_record(path)
    for block in (1, 2):
        record.append([make_row(block=block, client_s=0.5, thread_s=0.25)])
    assert [row.thread_s for row in read_rows(path)[1:]] == [0.25] * 2
    assert make_record(path).to_frame()["client_s"].tolist()[1:] == [0.5] * 2


def test_cpus_of_older_records_are_in_their_settings(tmp_path: Path) -> None:
    """Those that counted stand there; how many machines read was not written."""
    settings = {"cache_state": "cold", "processors": 4}
    rows = [make_row(), make_row(block=1, settings=settings, cpus=4, n_machines=2)]
    path = write_record(tmp_path / "case.csv", rows)
    assert [(row.cpus, row.n_machines) for row in read_rows(path)][1] == (4, 2)
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    table.drop(columns=["cpus", "n_machines"]).to_csv(path, index=False, lineterminator="\n")
    assert [row.cpus for row in read_rows(path)] == [0, 4]
    assert all(math.isnan(row.n_machines) for row in read_rows(path))


def test_an_append_that_fails_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, or an interrupt, leaves the rows of before, and the next append works."""
    record = make_record(tmp_path / "in-region.csv")
    record.append([make_row()])
    before = record.path.read_bytes()

    def fail(_file: int) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(os, "fsync", fail)
        record.append([make_row(block=1)])
    assert record.path.read_bytes() == before
    record = make_record(record.path)
    record.append([make_row(block=1)])
    assert [row.block for row in read_rows(record.path)] == [0, 1]


def test_two_writers_do_not_overwrite_each_other(tmp_path: Path) -> None:
    """The second writer is refused, and the rows of the first stay."""
    one, other = make_record(tmp_path / "in-region.csv"), make_record(tmp_path / "in-region.csv")
    one.append([make_row(block=0)])
    with refused(r"in-region\.csv", "another process", kind=RecordError):
        other.append([make_row(block=1)])
    assert [row.block for row in make_record(one.path).rows] == [0]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("\n$", "", "torn, its last line is not whole"),
        (",[^,]*,[^,]*\n$", "\n", f"torn, {len(WRITTEN) - 2} of {len(WRITTEN)} cells"),
        ("read_s", "seconds", "not a record of this schema: differs in read_s, seconds"),
        (",2.5,", ",fast,", "not a row of this schema: .*'fast'"),
        (",False,", ",perhaps,", "not a row of this schema"),
        (",2.5,", ",inf,", "not a row of this schema: read_s: inf"),
        (r"\n(.*\n)$", r"\n\1\1", "the measurement of line 2 once more"),
        (r"(?s)^.*$", "\n", "not a record of this schema"),
        (r"\n$", "x" * 200_000 + "\n", "cannot be read as a record: field larger"),
        (r"\w+\n$", "0123\n", "run '0123' is not in in-region.runs.json"),
    ],
)
def test_damaged_files_are_refused_and_left_alone(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    """One line names file and damage; the file stays for its owner to mend."""
    path = write_record(tmp_path / "in-region.csv", [make_row()])
    path.write_text(damaged := re.sub(old, new, path.read_text(), count=1))
    for read in (make_record, read_rows):
        with refused(r"in-region\.csv(: line \d)?", says, kind=RecordError) as caught:
            read(path)
        assert str(tmp_path) not in str(caught.value)
    assert path.read_text() == damaged


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read as a record: nothing is there"),
        ("[]", "not the runs of a record"),
        ("{", "not the runs of a record"),
        ("[" * 100_000, "not the runs of a record"),
        ('{"1": {}}', "run '1' was altered"),
        ("zarr 3.1.6", "run '[0-9a-f]{16}' was altered"),  # below: another version
    ],
)
def test_an_altered_origin_is_refused(tmp_path: Path, text: str | None, says: str) -> None:
    """Rows cannot be given another machine, version or parameter by hand."""
    path = write_record(tmp_path / "in-region.csv", [make_row()])
    whole = runs_path(path).read_text()
    runs_path(path).unlink()
    if text is not None:
        is_swap = text.startswith("zarr")
        runs_path(path).write_text(whole.replace("3.1.6", "3.2.0") if is_swap else text)
    for read in (make_record, read_rows):
        with refused(r"in-region\.runs\.json", f"^{says}", kind=RecordError):
            read(path)


@pytest.mark.parametrize(("name", "value"), [("machine", []), ("commit", 1), ("is_dirty", "no")])
def test_an_origin_that_is_none_is_refused(tmp_path: Path, name: str, value: object) -> None:
    """Its hash may be right: whoever forged it can compute one."""
    path = write_record(tmp_path / "a.csv", [make_row()])
    [origin] = json.loads(runs_path(path).read_text()).values()
    runs = {record._run_of(forged): forged for forged in [origin | {name: value}]}
    runs_path(path).write_text(json.dumps(runs))
    with refused(r"a\.runs\.json", f"^{name}: .*; not of a record", kind=RecordError):
        read_rows(path)


def test_no_file_and_no_text_are_refused(tmp_path: Path) -> None:
    """A missing file, a folder, and bytes that are no text: one line each."""
    (tmp_path / "image.csv").write_bytes(b"\xff\xfe\x00")
    os.mkfifo(tmp_path / "pipe.csv")
    for name in ("missing.csv", "image.csv", "pipe.csv", "."):
        with refused(
            re.escape(name) if name != "." else ".*",
            "^cannot be read as a record",
            kind=RecordError,
        ):
            read_records([tmp_path / name])
    with refused("paths", "no record given", kind=RecordError):
        read_records([])


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"machine": {"cpu": "Two", "n_cores": 2}}, "cpu Two here, One there"),
        ({"versions": {"zarr": "3.4.2"}}, "zarr 3.4.2 here, 3.1.6 there"),
        ({"parameters": {"seed": 2, "shape": (2, 3)}}, "seed 2 here, 1 there"),
        # real and virtual seconds do not stand in one record
        ({"parameters": {"seed": 1, "shape": (2, 3), "dilation": 10.0}}, "dilation 10.0 here"),
        # a parameter named like a package hides nothing
        ({"parameters": {"seed": 1, "shape": (2, 3), "zarr": 2}}, "zarr 2 here, absent there"),
    ],
)
def test_record_of_another_origin_is_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], says: str
) -> None:
    """The line names what differs, and the rows stay; a page is rendered from another machine's."""
    path = write_record(tmp_path / "in-region.csv", [make_row()])
    before = path.read_bytes()
    with refused(r"in-region\.csv", f"^cannot continue.*{says}", kind=RecordError):
        make_record(path, other_origin(**changed))
    with refused(r"wide-area\.csv", "case wide-area here, in-region there", kind=RecordError):
        for one in (path, runs_path(path)):
            one.rename(one.with_name(one.name.replace("in-region", "wide-area")))
        make_record(path.with_stem("wide-area"))
    path = path.with_stem("wide-area")
    assert path.read_bytes() == before
    monkeypatch.setenv(RENDERED, '{"zarr": "3.1.6"}')
    if "parameters" in changed:
        with refused(r"wide-area\.csv", says.replace("absent", "None"), kind=RecordError):
            make_record(path, other_origin(**changed))
    else:
        assert len(make_record(path, other_origin(**changed)).rows) == 1


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        ({"parameters": {"seed": 9}}, ()),  # cases differ in parameters, that is what they are for
        ({"machine": {"cpu": "One", "n_cores": 64}}, ("machine", "^n_cores 2 here, 64 there")),
        ({"versions": {"zarr": "3.4.2"}}, ("versions", "^zarr 3.1.6 here, 3.4.2 there")),
    ],
)
def test_records_of_one_machine_and_its_versions_merge(
    tmp_path: Path, changed: dict[str, Any], fields: tuple[str, ...]
) -> None:
    """What was measured elsewhere, or with other versions, is no row beside the others."""
    both = [write_record(tmp_path / "one.csv", [make_row()])]
    both += [write_record(tmp_path / "two.csv", [make_row(case="other", **changed)])]
    if fields:
        with refused(*fields, kind=RecordError):
            read_records(both)
    else:
        assert read_records(both)["case"].tolist() == ["in-region", "other"]


SECRET = 'p"ss\\word-9'


@pytest.mark.parametrize(
    ("column", "changed"),
    [
        ("settings", {"settings": {"cache_state": "cold", "key": SECRET}}),  # escaped by JSON
        ("check", {"check": f"signed with {SECRET} today"}),
        ("trace", {"trace": {"AKIAIOSFODNN7EXAMPLE": 1}}),
        ("settings", {"settings": {"cache_state": "cold", "AWS_SESSION_TOKEN": "FwoGZXIvYXdzEBY"}}),
        ("parameters", {"parameters": {"endpoint": "http://user:word@example.org"}}),
        ("check", {"check": "GET /a?X-Amz-Signature=0f"}),
    ],
)
def test_no_secret_reaches_the_files(tmp_path: Path, column: str, changed: dict[str, Any]) -> None:
    """Known secrets and what looks like one are refused, naming the column only."""
    path = tmp_path / "in-region.csv"
    record = make_record(path, secrets=("", SECRET))
    record.append([make_row()])
    before = [file.read_bytes() for file in (path, runs_path(path))]
    with refused(column, "^shows a credential", kind=RecordError) as caught:
        record.append([make_row(block=1, **changed)])
    assert SECRET not in str(caught.value) and "AKIA" not in str(caught.value)
    assert [file.read_bytes() for file in (path, runs_path(path))] == before
    assert len(record.rows) == 1
    assert record.redact(f"key {SECRET} at http://me:you@a") == "key *** at http://***@a"


def test_a_version_that_is_found_late_is_refused(tmp_path: Path) -> None:
    """What another process imports is known only when it has measured."""
    record = make_record(tmp_path / "in-region.csv")
    record.append([make_row(versions={**ORIGIN.versions, "HDF5 of h5py in drivers": "2.2"})])
    other = {**ORIGIN.versions, "HDF5 of h5py in drivers": "2.3"}
    before = record.path.read_bytes()
    with refused(
        r"in-region\.csv", "versions: HDF5 of h5py in drivers 2.3 here, 2.2 there", kind=RecordError
    ):
        record.append([make_row(block=1, versions=other)])
    assert record.path.read_bytes() == before
    record.append([make_row(block=1, versions={**ORIGIN.versions, "no-such-package": "1"})])
    with refused(r"in-region\.csv", "no-such-package absent here, 1 there", kind=RecordError):
        make_record(record.path)  # as it is not installed


def test_nothing_names_host_user_or_path() -> None:
    """No fact contains the host name, the home folder or the project folder."""
    found = provenance.describe({"seed": 1})
    text = as_json([found.machine, found.versions, found.parameters, found.commit])
    for private in (socket.gethostname(), str(Path.home()), str(Path.cwd()), getpass.getuser()):
        assert private not in text


def test_what_was_imported_has_its_version() -> None:
    """And nothing else: neither what is merely installed, nor this project, whose commit says more."""
    script = "import yaml; from helpers.benchmark import provenance; print(*provenance.imported())"
    told = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)  # fmt: skip
    assert {"python", "PyYAML", "psutil"} <= {*told.stdout.split()}
    assert not {"dask", "sphinxcontrib-bibtex", "arrays-over-the-wire"} & {*told.stdout.split()}


def test_processes_beside_are_named_where_they_differ() -> None:
    """What is as here has its plain name; another version, or a library, tells whose it is."""
    here = host.installed(["zarr", "no-such-package", "python"])
    assert {*here} == {"zarr", "python"}
    library = {"HDF5 of h5py": "2.2.0"}
    found = provenance.name_worker_versions(
        "workers", [here | library, {"zarr": "0.1", "redis-fork": "1"}]
    )
    assert found == here | {
        "HDF5 of h5py in workers": "2.2.0",
        "zarr in workers": "0.1",
        "redis-fork in workers": "1",
    }


def _git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_commit_and_what_makes_it_dirty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changed and new sources make it dirty, results do not; without commits or git it is unknown."""
    (project := tmp_path / "a project").mkdir()
    monkeypatch.setattr(provenance, "_PROJECT", project.resolve())
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.commit() == ("unknown", True)
    _git(project, "init")
    assert provenance.commit() == ("unknown", True)
    (project / "source.py").write_text("1\n")
    _git(project, "add", ".")
    _git(project, "commit", "-m", "one")
    name, is_dirty = provenance.commit()
    assert len(name) == 40 and not is_dirty
    (project / "results").mkdir()
    (project / "results" / "case.csv").write_text("a\n")
    assert provenance.commit() == (name, False)
    (project / "new.py").write_text("2\n")
    assert provenance.commit() == (name, True)
    monkeypatch.setenv("PATH", "")
    assert provenance.commit() == ("unknown", True)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()], ids=type)
def test_json_refuses_what_it_cannot_hold(value: object) -> None:
    """NaN, sets and objects are refused in one line that does not show the value."""
    with refused("record", "does not fit", "finite numbers") as caught:
        as_json({"key": value, "other": "hidden-value"})
    assert "hidden-value" not in str(caught.value)
