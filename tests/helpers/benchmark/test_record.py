"""Records are whole at every instant, of one origin, and free of secrets."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.benchmark import record as records
from helpers.benchmark.provenance import RENDERED, Provenance, installed, measured_with
from helpers.benchmark.record import (
    COLUMNS,
    Record,
    RecordError,
    Row,
    parse_rows,
    read_records,
    schema,
)
from helpers.errors import UserError
from helpers.paths import ROOT
from tests.rows import ORIGIN, make_row


def make_record(path: Path, origin: Provenance = ORIGIN, **changed: Any) -> Record:
    """Open a record of the usual origin."""
    names: dict[str, Any] = {"study": "cluster-scaling", "case": "in-region"} | changed
    return Record(path, provenance=origin, **names)


def test_rows_come_back_as_they_went(tmp_path: Path) -> None:
    """Every cell survives the trip, whatever CSV thinks of it."""
    odd = make_row(block=1, check='a "quoted", comma; ü', wire_nbytes=math.nan, read_s=0.1 + 0.2)
    record = make_record(tmp_path / "new folder" / "in-region.csv")
    record.append([make_row(), odd])
    first, second = make_record(record.path).rows
    assert first == dataclasses.replace(make_row(), parameters={"seed": 1, "shape": [2, 3]})
    assert second.check == odd.check
    assert second.read_s == 0.1 + 0.2
    assert math.isnan(second.wire_nbytes)


@settings(max_examples=50, deadline=None)
@given(
    check=st.text(max_size=50).filter(lambda text: bool(text.split())), seconds=st.floats(0, 1e6)
)
def test_any_text_and_time_come_back(check: str, seconds: float) -> None:
    """Text is kept but for white space, which becomes single blanks."""
    line = records.write_line(records.write_cells(make_row(check=check, read_s=seconds)))
    text = records.write_line(COLUMNS) + line
    assert line.count("\n") == 1
    (row,) = records.parse_rows(text, Path("case.csv"))
    assert row.check == " ".join(check.split())
    assert row.read_s == seconds


def test_rows_tell_real_seconds_beside_those_of_the_network(tmp_path: Path) -> None:
    """A second of a network ten times slower takes ten; without dilation they are the same."""
    record = make_record(tmp_path / "in-region.csv")
    record.append([make_row(dilation=10.0), make_row(block=1)])
    slow, real = make_record(record.path).rows
    assert (slow.read_s, slow.real_read_s, slow.real_open_s) == (2.5, 25.0, 1.0)
    assert (real.dilation, real.real_read_s, real.real_open_s) == (1.0, 2.5, 0.1)


@pytest.mark.parametrize("dilation", [0.5, 0.0, -1.0, math.inf, math.nan])
def test_a_time_that_no_instrument_has_is_no_row(dilation: float) -> None:
    """Time is slowed down, never sped up or stopped."""
    with pytest.raises(RecordError, match=r"^dilation: .*; allowed: a finite number at least 1$"):
        make_row(dilation=dilation)


def test_records_of_before_time_could_be_dilated_go_on(tmp_path: Path) -> None:
    """Rows that lack the later columns are read, told as real, and continued with all columns."""
    later = {"dilation", "real_open_s", "real_read_s"}
    old = [name for name in COLUMNS if name not in later]
    cells = dict(zip(COLUMNS, records.write_cells(make_row()), strict=True))
    path = tmp_path / "in-region.csv"
    path.write_text(records.write_line(old) + records.write_line([cells[name] for name in old]))
    known = {"dilation": 1.0, "dataset": "enlarged-ocean-temperature"}  # what rows of before mean
    origin = dataclasses.replace(ORIGIN, parameters=ORIGIN.parameters | known)
    record = make_record(path, origin)
    record.append([make_row(block=1)])
    assert path.read_text().startswith(records.write_line(COLUMNS))
    frame = read_records([path])
    assert frame["block"].tolist() == [0, 1] and frame["dilation"].tolist() == [1, 1]
    assert frame["real_read_s"].tolist() == frame["read_s"].tolist() == [2.5, 2.5]


def test_a_dilation_left_open_is_none_at_first(tmp_path: Path) -> None:
    """What a case leaves open is 1 until it is chosen, and what it gives is there at once."""
    for asked, first in (("auto", 1.0), (10.0, 10.0)):
        origin = dataclasses.replace(ORIGIN, parameters={"seed": 1, "dilation": asked})
        assert make_record(tmp_path / "new.csv", origin).dilation == first


def test_another_dilation_is_another_origin(tmp_path: Path) -> None:
    """Real and virtual seconds do not stand in one record."""
    path = tmp_path / "in-region.csv"
    make_record(path).append([make_row()])
    slow = dataclasses.replace(ORIGIN, parameters={**ORIGIN.parameters, "dilation": 10.0})
    with pytest.raises(RecordError, match="dilation"):
        make_record(path, slow)


def test_frame_has_points_and_settings_as_columns(tmp_path: Path) -> None:
    """A figure finds n_workers and codec without parsing JSON."""
    record = make_record(tmp_path / "case.csv")
    record.append([make_row(), make_row(phase="warm-up")])
    record.stopped_by = "n_blocks"
    frame = record.to_frame()
    assert list(frame.columns[: len(COLUMNS)]) == list(COLUMNS)
    assert frame["n_workers"].tolist() == [2, 2]
    assert frame["codec"].tolist() == ["zstd", "zstd"]
    assert frame["point"].tolist() == ['{"n_workers": 2}'] * 2
    assert frame["phase"].tolist() == ["measured", "warm-up"]
    assert frame.attrs["stopped_by"] == "n_blocks"


def test_setting_named_like_a_column_is_refused(tmp_path: Path) -> None:
    """A setting must not overwrite what was measured."""
    record = make_record(tmp_path / "case.csv")
    record.append([make_row(settings={"cache_state": "cold", "read_s": 1})])
    with pytest.raises(RecordError, match="'read_s'"):
        record.to_frame()


def test_empty_record_has_the_schema(tmp_path: Path) -> None:
    """Nothing measured yet is a table without rows, not an error."""
    frame = make_record(tmp_path / "case.csv").to_frame()
    assert list(frame.columns) == list(COLUMNS) and frame.empty


def test_schema_describes_every_column() -> None:
    """The table of the method page has a description a column and units where due."""
    table = schema()
    assert tuple(table.index) == COLUMNS
    assert (table["description"].str.len() > 5).all()
    assert table.loc["read_s", "unit"] == "s" and table.loc["point", "type"] == "JSON"
    for name in COLUMNS:
        if name.endswith("_nbytes"):
            assert table.loc[name, "unit"] == "B"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"phase": "warmup"}, "phase: 'warmup'"),
        ({"read_s": -1.0}, "read_s: -1.0"),
        ({"open_s": math.nan}, "open_s: nan"),  # a clock never says NaN
        ({"array_nbytes": -1}, "array_nbytes: -1"),
        ({"block": -1}, "block: -1"),
        ({"seed": -1}, "seed: -1"),
        ({"read_s": math.inf}, "read_s: inf; allowed: a finite number"),
        ({"wire_nbytes": -1.0}, "wire_nbytes: -1.0"),
        ({"n_requests": math.inf}, "n_requests: inf"),
        ({"check": " "}, "check: nothing; allowed: how what was read was verified"),
        ({"real_read_s": 9.0}, "real_read_s: 9.0; allowed: 2.5"),  # not that of read_s
    ],
)
def test_impossible_rows_are_refused(changed: dict[str, Any], told: str) -> None:
    """A row that cannot have been measured is no row."""
    with pytest.raises(RecordError, match=told):
        make_row(**changed)


def test_a_row_is_recorded_once(tmp_path: Path) -> None:
    """The same contender, point, phase and block twice is a mistake, on disk or in one append."""
    record = make_record(tmp_path / "case.csv")
    with pytest.raises(RecordError, match="there already"):
        record.append([make_row(), make_row()])
    assert not record.path.exists()
    record.append([make_row()])
    with pytest.raises(RecordError, match="there already"):
        make_record(record.path).append([make_row(read_s=9.0)])
    record.append([make_row(point={"n_workers": 4})])
    assert len(make_record(record.path).rows) == 2


KILLED_CHILD = """
import os, signal, sys
from pathlib import Path
from helpers.benchmark.record import Record
from tests.rows import ORIGIN, make_row

def half_then_die(file):
    os.ftruncate(file, os.fstat(file).st_size // 2)
    os.kill(os.getpid(), signal.SIGKILL)

record = Record(Path(sys.argv[1]), study="cluster-scaling", case="in-region", provenance=ORIGIN)
record.append([make_row(block=1)])
os.fsync = half_then_die
record.append([make_row(block=block) for block in range(2, 50)])
"""


def test_death_in_the_middle_of_a_write_loses_no_old_row(tmp_path: Path) -> None:
    """A child killed (-9) with half its bytes written leaves the old rows, and we can go on."""
    record = make_record(tmp_path / "case.csv")
    record.append([make_row(block=0)])
    child = subprocess.run(
        [sys.executable, "-c", KILLED_CHILD, str(record.path)],
        check=False,
        cwd=ROOT,
    )
    assert child.returncode == -9
    again = make_record(record.path)
    assert [row.block for row in again.rows] == [0, 1]
    again.append([make_row(block=2)])
    assert [row.block for row in make_record(record.path).rows] == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["case.csv"]


def test_two_writers_do_not_overwrite_each_other(tmp_path: Path) -> None:
    """The second writer is told, and the rows of the first stay."""
    one, other = make_record(tmp_path / "case.csv"), make_record(tmp_path / "case.csv")
    one.append([make_row(block=0)])
    with pytest.raises(RecordError, match="another process"):
        other.append([make_row(block=1)])
    assert [row.block for row in make_record(one.path).rows] == [0]


def _cut_last_line(text: str) -> str:
    return text[:-20]


def _cut_cells(text: str) -> str:
    return text.rstrip("\n").rsplit(",", 2)[0] + "\n"


def _other_header(text: str) -> str:
    return text.replace("read_s", "seconds", 1)


def _no_number(text: str) -> str:
    return text.replace(",2.5,", ",fast,")


def _other_digit(text: str) -> str:
    return text.replace(",2.5,", ",2.4,", 1)


def _endless(text: str) -> str:
    return text.replace(",2.5,", ",inf,")


def _doubled(text: str) -> str:
    return text + text.splitlines(keepends=True)[-1]


def _no_truth(text: str) -> str:
    return text.replace(",False,", ",perhaps,", 1)


def _empty(text: str) -> str:
    return text[:0] + "\n"


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_cut_last_line, "torn, its last line is not whole"),
        (_cut_cells, f"line 2: torn, {len(COLUMNS) - 2} of {len(COLUMNS)} cells"),
        (_other_header, "not a record of this schema: differs in read_s, seconds"),
        (_no_number, "line 2: not a row of this schema: .*'fast'"),
        (_no_truth, "line 2: not a row of this schema"),
        (_other_digit, "line 2: not a row of this schema: real_read_s: 2.5; allowed: 2.4"),
        (_endless, "line 2: not a row of this schema: read_s: inf"),
        (_doubled, "line 3: the measurement of line 2 once more"),
        (_empty, "not a record of this schema"),
    ],
)
def test_damaged_files_are_refused_and_left_alone(
    tmp_path: Path, damage: Callable[[str], str], told: str
) -> None:
    """One line names file and damage; the file stays for its owner to mend."""
    path = tmp_path / "case.csv"
    make_record(path).append([make_row()])
    path.write_text(damage(path.read_text()))
    before = path.read_text()
    for reader in (lambda: make_record(path), lambda: read_records([path])):
        with pytest.raises(RecordError, match=f"case.csv: {told}") as caught:
            reader()
        assert "\n" not in str(caught.value)
        assert str(tmp_path) not in str(caught.value)
    assert path.read_text() == before


def test_no_file_and_no_text_are_refused(tmp_path: Path) -> None:
    """A missing file, a folder, and bytes that are no text: one line each."""
    (tmp_path / "image.csv").write_bytes(b"\xff\xfe\x00")
    for name in ("missing.csv", "image.csv", "."):
        with pytest.raises(RecordError, match="cannot be read as a record"):
            read_records([tmp_path / name])
    with pytest.raises(RecordError, match="no record given"):
        read_records([])


def other_origin(**changed: Any) -> Provenance:
    """Return the usual origin with some facts changed."""
    facts: dict[str, Any] = {
        "machine": ORIGIN.machine,
        "versions": ORIGIN.versions,
        "parameters": ORIGIN.parameters,
    }
    return Provenance(**(facts | changed))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"machine": {"cpu": "Two", "n_cores": 2}}, "cpu Two here, One there"),
        ({"versions": {"zarr": "3.4.2"}}, "zarr 3.4.2 here, 3.1.6 there"),
        ({"parameters": {"seed": 2, "shape": (2, 3)}}, "seed 2 here, 1 there"),
        # A parameter named like a package hides nothing.
        ({"parameters": {"seed": 1, "shape": (2, 3), "zarr": 2}}, "zarr 2 here, absent there"),
    ],
)
def test_record_of_another_origin_is_not_continued(
    tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    """The line names what differs, and the rows stay."""
    path = tmp_path / "case.csv"
    make_record(path).append([make_row()])
    before = path.read_bytes()
    with pytest.raises(RecordError, match=f"case.csv: cannot continue.*{told}"):
        make_record(path, other_origin(**changed))
    assert path.read_bytes() == before


def test_a_page_is_rendered_from_rows_of_another_machine_and_other_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not from those of other parameters."""
    path = tmp_path / "case.csv"
    make_record(path).append([make_row()])
    monkeypatch.setenv(RENDERED, '{"zarr": "3.1.6"}')
    assert (measured_with("zarr"), measured_with("dask")) == ("3.1.6", installed(["dask"])["dask"])
    elsewhere = {"machine": {"cpu": "Two", "n_cores": 2}, "versions": {"zarr": "3.4.2"}}
    assert len(make_record(path, other_origin(**elsewhere)).rows) == 1
    with pytest.raises(RecordError, match="seed 2 here, 1 there"):
        make_record(path, other_origin(parameters={"seed": 2, "shape": (2, 3)}))


def test_record_of_another_case_or_an_altered_hash_is_not_continued(tmp_path: Path) -> None:
    """Neither is a file renamed by hand, nor one whose fingerprint was edited."""
    path = tmp_path / "case.csv"
    make_record(path).append([make_row()])
    with pytest.raises(RecordError, match="case wide-area here, in-region there"):
        make_record(path, case="wide-area")
    path.write_text(path.read_text().replace(ORIGIN.fingerprint, "0" * 16))
    with pytest.raises(RecordError, match="fingerprint altered"):
        make_record(path)


def test_another_commit_is_continued(tmp_path: Path) -> None:
    """A corrected sentence does not cost the record."""
    path = tmp_path / "case.csv"
    make_record(path).append([make_row()])
    make_record(path, dataclasses.replace(ORIGIN, commit="b" * 40)).append([make_row(block=1)])
    assert len(read_records([path])) == 2


def write_two(folder: Path, **changed: Any) -> list[Path]:
    """Write two records, the second of another origin."""
    origin = other_origin(**changed)
    make_record(folder / "one.csv").append([make_row()])
    row = make_row(
        case="other",
        fingerprint=origin.fingerprint,
        machine=origin.machine,
        versions=origin.versions,
        parameters=origin.parameters,
    )
    make_record(folder / "two.csv", origin, case="other").append([row])
    return [folder / "one.csv", folder / "two.csv"]


def test_records_with_other_parameters_merge(tmp_path: Path) -> None:
    """Cases differ in parameters, that is what they are for."""
    frame = read_records(write_two(tmp_path, parameters={"seed": 9}))
    assert frame["case"].tolist() == ["in-region", "other"]


@pytest.mark.parametrize(
    ("kind", "facts", "told"),
    [
        ("machine", {"cpu": "One", "n_cores": 64}, "n_cores 2 here, 64 there"),
        ("versions", {"zarr": "3.4.2"}, "zarr 3.1.6 here, 3.4.2 there"),
    ],
)
def test_records_of_other_machines_do_not_merge(
    tmp_path: Path, kind: str, facts: dict[str, Any], told: str
) -> None:
    """What was measured elsewhere, or with other versions, is no row beside the others."""
    with pytest.raises(RecordError, match=f"{kind}: {told}"):
        read_records(write_two(tmp_path, **{kind: facts}))


SECRET = 'p"ss\\word-9'


@pytest.mark.parametrize(
    ("column", "changed"),
    [
        ("settings", {"settings": {"cache_state": "cold", "key": SECRET}}),  # escaped by JSON
        ("check", {"check": f"signed with {SECRET} today"}),
        ("trace", {"trace": {"AKIAIOSFODNN7EXAMPLE": 1}}),
        ("settings", {"settings": {"cache_state": "cold", "aws_secret_access_key": "x"}}),
        ("settings", {"settings": {"cache_state": "cold", "AWS_SESSION_TOKEN": "x"}}),
        ("parameters", {"parameters": {"endpoint": "http://user:word@example.org"}}),
        ("check", {"check": "GET /a?X-Amz-Signature=0f"}),
    ],
)
def test_no_secret_reaches_the_file(tmp_path: Path, column: str, changed: dict[str, Any]) -> None:
    """Known secrets and what looks like one are refused, naming the column only."""
    path = tmp_path / "case.csv"
    record = make_record(path, secrets=("", SECRET))
    record.append([make_row()])
    before = path.read_bytes()
    with pytest.raises(RecordError, match=f"{column}: shows a credential") as caught:
        record.append([make_row(block=1, **changed)])
    assert SECRET not in str(caught.value) and "AKIA" not in str(caught.value)
    assert path.read_bytes() == before
    assert len(record.rows) == 1


def test_redact_blacks_out_and_keeps_the_rest(tmp_path: Path) -> None:
    """Text without secrets is untouched, an empty secret is none."""
    record = make_record(tmp_path / "case.csv", secrets=("", "hunter2"))
    assert (
        record.redact("key hunter2 at http://127.0.0.1:80/a") == "key *** at http://127.0.0.1:80/a"
    )
    assert record.redact("http://me:you@example.org") == "http://***@example.org"


def test_errors_are_user_errors() -> None:
    """The command line prints them without a traceback."""
    assert issubclass(RecordError, UserError)


REFERENCES = records.list_records(ROOT / "results" / "reference")
REFERENCES = [path for path in REFERENCES if path.parent.name != "bench"]


def origin_of(row: Row, **changed: Any) -> Provenance:
    """Return what a run on the machine of a row, at its parameters, would say of itself."""
    known = {"machine": row.machine, "versions": row.versions, "parameters": row.parameters}
    return Provenance(**{**known, **changed})


@pytest.fixture(params=REFERENCES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def reference(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Row]:
    """Copy a committed record, and return one of its rows."""
    path = tmp_path / request.param.name
    path.write_bytes(request.param.read_bytes())
    return path, parse_rows(path.read_text(), path)[0]


def test_committed_records_can_be_continued(reference: tuple[Path, Row]) -> None:
    """On their machine, with the versions that they name and others imported beside."""
    path, row = reference
    # a later row may name what the first does not
    told = map(json.loads, read_records([path])["versions"])
    known = {name: version for versions in told for name, version in versions.items()}
    origin = origin_of(row, versions={**known, "new-one": "1.0", "HDF5 of h5py": "2.0.0"})
    record = make_record(path, origin=origin, study=row.study, case=row.case)
    added = dataclasses.replace(
        row, block=999, versions=origin.versions, fingerprint=origin.fingerprint
    )
    record.append([added])
    make_record(path, origin=origin, study=row.study, case=row.case)
    assert len(read_records([path])) == len(record.rows)


def test_committed_records_name_what_differs(reference: tuple[Path, Row]) -> None:
    """Another version is refused, also where that package is not imported yet."""
    path, row = reference
    names = {"study": row.study, "case": row.case}
    changed = {**row.versions, "zarr": "9.9"}
    with pytest.raises(RecordError, match=f"zarr 9.9 here, {row.versions['zarr']} there"):
        make_record(path, origin=origin_of(row, versions=changed), **names)
    written = '""zarr"": ""{}""'
    text = path.read_text().replace(written.format(row.versions["zarr"]), written.format("0.0.1"))
    path.write_text(text)
    here = {name: v for name, v in row.versions.items() if name != "zarr"}
    with pytest.raises(RecordError, match=r"zarr \d[^ ]* here, 0.0.1 there"):
        make_record(path, origin=origin_of(row, versions=here), **names)


def test_a_version_that_is_found_late_is_refused(tmp_path: Path) -> None:
    """What another process imports is known only when it has measured."""
    record = make_record(tmp_path / "case.csv")
    record.append([make_row(versions={**ORIGIN.versions, "HDF5 of h5py in drivers": "2.2"})])
    other = {**ORIGIN.versions, "HDF5 of h5py in drivers": "2.3"}
    before = record.path.read_bytes()
    with pytest.raises(RecordError, match=r"versions: HDF5 of h5py in drivers 2.3 here, 2.2 there"):
        record.append([make_row(block=1, versions=other)])
    assert record.path.read_bytes() == before
    record.append([make_row(block=1, versions={**ORIGIN.versions, "another": "1"})])


def test_a_package_that_is_gone_is_another_origin(tmp_path: Path) -> None:
    """A record that names what is not installed here cannot be continued."""
    record = make_record(tmp_path / "case.csv")
    record.append([make_row(versions={**ORIGIN.versions, "no-such-package": "1.0"})])
    with pytest.raises(RecordError, match=r"no-such-package absent here, 1.0 there"):
        make_record(tmp_path / "case.csv")
