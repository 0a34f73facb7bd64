"""Records: rows and their schema, one line appended a measurement, and reading back.

A record is two files. The CSV has a line for each measurement. What is the same in all rows of a
run lies once in the file next to it, `CASE.runs.json`: machine, versions, parameters and commit,
under a hash of them that the rows name in their column `run`.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
from collections import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import pandas as pd

from helpers.benchmark.provenance import RENDERED, Provenance, as_json, fingerprint, list_clashes
from helpers.paths import ROOT
from wire.errors import UserError, describe_system_error, name_file, redact, redact_tree, show
from wire.files import replace_file
from wire.host import differences, installed

PHASES = ("warm-up", "measured", "calibration", "trial")
_MOST_NBYTES = 200_000_000  # of a record, which has some hundred bytes a row


class RecordError(UserError):
    """A record cannot be read, continued or merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement of one contender; its fields are the schema.

    Mappings are JSON text in the file.
    """

    study: Annotated[str, "", "notebook that asks the question"]
    case: Annotated[str, "", "parameter file that fixes the answer's setting"]
    contender: Annotated[str, "", "what is compared"]
    point: Annotated[Mapping[str, Any], "", "place on the x-axis, as in n_workers"]
    settings: Annotated[Mapping[str, Any], "", "settings of the contender and its client"]
    cache_state: Annotated[str, "", "which caches were empty"]
    is_ceiling: Annotated[bool, "", "raw reads without decoding, a reference"]
    control_of: Annotated[str, "", "contender of which this is a second copy, for A/A"]
    seed: Annotated[int, "1", "seed of the order"]
    phase: Annotated[
        str,
        "",
        "'warm-up', never used; 'calibration', for predictions; 'trial', untimed; or 'measured'",
    ]
    block: Annotated[int, "1", "repetition, from 0 in each phase"]
    order: Annotated[int, "1", "place in the block, from 0"]
    started_utc: Annotated[str, "ISO 8601", "when the opening began"]
    open_s: Annotated[float, "s", "time to open, in the time of the network"]
    read_s: Annotated[float, "s", "time to read, in the time of the network"]
    dilation: Annotated[float, "1", "real seconds in one of the network, 1 where time is real"] = 1
    cpus: Annotated[
        int, "1", "CPUs of each machine that count, slowed down; 0 where they do not"
    ] = 0
    n_machines: Annotated[float, "1", "machines that read, empty where a record is older"] = (
        math.nan
    )
    real_open_s: Annotated[float, "s", "time to open, real"] = math.nan
    real_read_s: Annotated[float, "s", "time to read, real"] = math.nan
    array_nbytes: Annotated[int, "B", "bytes in the array, decoded"]
    stored_nbytes: Annotated[int, "B", "bytes in the store, encoded"]
    wire_nbytes: Annotated[float, "B", "bytes of response bodies, empty when not traced"]
    n_requests: Annotated[float, "1", "requests, empty when not traced"]
    waves: Annotated[float, "1", "requests over those in flight at most"] = math.nan
    client_s: Annotated[float, "s", "processor seconds of the client's processes"] = math.nan
    thread_s: Annotated[float, "s", "processor seconds of their busiest thread"] = math.nan
    trace: Annotated[Mapping[str, Any], "", "further numbers from the trace"]
    check: Annotated[str, "", "how what was read was verified"]
    fingerprint: Annotated[str, "", "hash of machine and parameters"]
    machine: Annotated[Mapping[str, Any], "", "processor, cores, memory, system"]
    versions: Annotated[
        Mapping[str, Any], "", "versions of all that the measuring processes have imported"
    ]
    parameters: Annotated[Mapping[str, Any], "", "what the study was asked for"]
    commit: Annotated[str, "", "commit of the project"]
    is_dirty: Annotated[bool, "", "whether the sources differ from the commit"]

    def __post_init__(self) -> None:
        """Refuse a row that no clock and no counter can have made, and derive real seconds."""
        if self.phase not in PHASES:
            raise RecordError("phase", f"{self.phase!r}", ", ".join(PHASES))
        for name, value in ((name, getattr(self, name)) for name in _NOT_NEGATIVE):
            is_unknown = name in (*_UNKNOWN_IF_NOT_TRACED, "n_machines") and math.isnan(value)
            if not (is_unknown or 0 <= value < math.inf):
                raise RecordError(name, f"{value!r}", "a finite number, at least 0")
        if not 1 <= self.dilation < math.inf:
            raise RecordError("dilation", f"{self.dilation!r}", "a finite number at least 1")
        if not self.check.split():
            raise RecordError("check", "nothing", "how what was read was verified")
        for name in ("open_s", "read_s"):
            object.__setattr__(self, f"real_{name}", getattr(self, name) * self.dilation)
        at_once = float(self.trace.get("max_in_flight") or math.nan)
        object.__setattr__(self, "waves", self.n_requests / at_once)

    @property
    def key(self) -> tuple[str, int, str, str]:
        """Phase, block, contender and point: no two rows share these."""
        return self.phase, self.block, self.contender, as_json(self.point)

    @property
    def origin(self) -> dict[str, Any]:
        """What all rows of a run have in common."""
        return {name: getattr(self, name) for name in _ORIGIN}


_LATER = ("client_s", "thread_s")  # that records of before November 2026 lack
_UNKNOWN_IF_NOT_TRACED = ("wire_nbytes", "n_requests", *_LATER)
_NOT_NEGATIVE = (
    *("open_s", "read_s", "array_nbytes", "stored_nbytes", "seed", "block", "order"),
    *("cpus", "n_machines"),
    *_UNKNOWN_IF_NOT_TRACED,
)

_HINTS = get_type_hints(Row, include_extras=True)
KINDS = {name: get_origin(hint.__origin__) or hint.__origin__ for name, hint in _HINTS.items()}

COLUMNS = tuple(KINDS)
JSON_COLUMNS = tuple(name for name, kind in KINDS.items() if kind is abc.Mapping)
_ORIGIN = ("machine", "versions", "parameters", "commit", "is_dirty")
_DERIVED = ("real_open_s", "real_read_s", "waves", "fingerprint")
WRITTEN = (*(name for name in COLUMNS if name not in {*_ORIGIN, *_DERIVED}), "run")
"""Columns of the CSV: those of a row that differ within a run, and the run."""
_OF_MACHINES = ("cpus", "n_machines")  # that records of before December 2026 lack
_BEFORE = (
    tuple(name for name in WRITTEN if name not in _OF_MACHINES),
    tuple(name for name in WRITTEN if name not in {*_OF_MACHINES, *_LATER}),
)


def schema() -> list[tuple[str, ...]]:
    """List the columns of a record, for the page on method: name, type, unit and meaning."""
    names = {abc.Mapping: "JSON", str: "text"}
    return [
        (f"`{name}`", names.get(KINDS[name], KINDS[name].__name__), *hint.__metadata__)
        for name, hint in _HINTS.items()
    ]


def runs_path(record: Path) -> Path:
    """Return the path of the file with the origin of a record's rows."""
    return record.with_suffix(".runs.json")


def _run_of(origin: Mapping[str, Any]) -> str:
    """Hash an origin, so that no row can be given another one."""
    return hashlib.sha256(as_json(origin).encode()).hexdigest()[:16]


def _read_text(path: Path) -> str:
    """Read a file that may come from a stranger: of a pipe or a device nobody would see the end."""
    try:
        if path.exists() and not (path.is_file() and path.stat().st_size <= _MOST_NBYTES):
            raise RecordError(
                name_file(path),
                "cannot be read as a record",
                f"a regular file of at most {_MOST_NBYTES / 1e6:.0f} MB",
            )
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        reason = f"cannot be read as a record: {describe_system_error(error)}"
        raise RecordError(name_file(path), reason, "a record, NAME.csv") from error
    except UnicodeDecodeError as error:
        reason = "cannot be read as a record: it is not UTF-8"
        raise RecordError(name_file(path), reason, "a record, NAME.csv") from error


def _read_runs(record: Path) -> dict[str, dict[str, Any]]:
    """Read the origins of a record's rows, refusing those that were changed."""
    path = runs_path(record)
    text = _read_text(path)
    try:
        runs = {str(run): dict(origin) for run, origin in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise RecordError(name_file(path), f"not the runs of a record: {error}") from error
    for run, origin in runs.items():
        if {*origin} != {*_ORIGIN} or _run_of(origin) != run:
            raise RecordError(
                name_file(path), f"run {run!r} was altered; restore it or move it away"
            )
        if wrong := [name for name in _ORIGIN if not isinstance(origin[name], KINDS[name])]:
            raise RecordError(
                name_file(path), f"{wrong[0]}: {show(origin[wrong[0]])}; not of a record"
            )
    return runs


def _write_line(cells: Sequence[str]) -> str:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue()


def _cell(value: object) -> str:
    """Turn one value into text that `_value` turns back; NaN becomes empty."""
    if isinstance(value, Mapping):
        return as_json(value)
    if isinstance(value, float) and math.isnan(value):
        return ""
    return " ".join(str(value).split())


def _value(name: str, cell: str) -> object:
    """Turn text back into the value of a column; an error if it is not one."""
    kind = KINDS[name]
    if name in JSON_COLUMNS:
        return dict(json.loads(cell))
    if kind is bool:
        return {"True": True, "False": False}[cell]
    if kind is float:
        return float(cell or "nan")
    return kind(cell)


def read_rows(path: Path) -> list[Row]:
    """Read rows back, refusing what is torn or of another schema."""
    text = _read_text(path)
    try:
        lines = [*csv.reader(io.StringIO(text, newline=""))]
    except csv.Error as error:  # of a cell that is longer than any
        raise RecordError(name_file(path), f"cannot be read as a record: {error}") from error
    header = tuple(lines[0]) if lines else ()
    if header not in (WRITTEN, *_BEFORE):
        names = ", ".join(sorted({*header} ^ {*WRITTEN})) or "the order of columns"
        raise RecordError(name_file(path), f"not a record of this schema: differs in {names}")
    if not text.endswith("\n"):
        raise RecordError(
            name_file(path), "torn, its last line is not whole; restore it or move it away"
        )
    runs = _read_runs(path) if len(lines) > 1 else {}
    hashes = {
        run: fingerprint(origin["parameters"], machine=origin["machine"])
        for run, origin in runs.items()
    }
    rows: list[Row] = []
    first_lines: dict[tuple[object, ...], int] = {}
    for i, cells in enumerate(lines[1:], start=2):
        where = f"{name_file(path)}: line {i}"
        if len(cells) != len(header):
            raise RecordError(
                where, f"torn, {len(cells)} of {len(header)} cells; restore it or move it away"
            )
        *values, run = cells
        if run not in runs:
            raise RecordError(where, f"run {run!r} is not in {runs_path(path).name}")
        try:
            own: dict[str, Any] = {
                name: _value(name, cell) for name, cell in zip(header[:-1], values, strict=True)
            }
            if "cpus" not in own:
                own["cpus"] = int(own["settings"].get("processors", 0))
            row = Row(**own, **runs[run], fingerprint=hashes[run])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RecordError(where, f"not a row of this schema: {error}") from error
        if (first := first_lines.setdefault((row.study, row.case, *row.key), i)) != i:
            raise RecordError(where, f"the measurement of line {first} once more")
        rows.append(row)
    return rows


class Record:
    """The files of one case, open for appending; the first append makes them.

    Refused is a file that is not a whole record, or was made on another machine, with other
    versions or with other parameters than `provenance` says; it stays as it is. The case is that
    of the file, and `secrets`, as access keys, must never reach the file.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        study: str,
        provenance: Provenance,
        secrets: Sequence[str] = (),
    ) -> None:
        self.path, self.study = Path(path), study
        self.case = self.path.stem
        self.provenance = provenance
        self.secrets = tuple(secret for secret in secrets if secret)
        self.stopped_by = ""
        self._state = self._look()
        self.rows = read_rows(self.path) if self.path.exists() else []
        # it gets the columns that it lacks with the first row that is added
        self._is_of_before = bool(self.rows) and not _read_text(self.path).startswith(
            _write_line(WRITTEN)
        )
        self._runs = {_run_of(row.origin): row.origin for row in self.rows}
        self._refuse_others()
        self._versions = {name: v for row in self.rows for name, v in row.versions.items()}

    def _look(self) -> tuple[int, int]:
        """Return length and time of the last change of the file, which tell of other writers."""
        if not self.path.exists():
            return 0, 0
        status = self.path.stat()
        return status.st_size, status.st_mtime_ns

    def _refuse_others(self) -> None:
        """Refuse to go on with rows of another origin, naming what differs."""
        origin, case = self.provenance, {"study": self.study, "case": self.case}
        machine, parameters = json.loads(as_json([origin.machine, origin.parameters]))
        # a name with a space in it is no distribution: `append` compares those
        named = {name for row in self.rows for name in row.versions if " " not in name}
        unknown = named - origin.versions.keys()
        versions = dict.fromkeys(unknown, "absent") | installed(unknown) | {**origin.versions}
        for row in self.rows:
            if RENDERED in os.environ:  # nothing is measured: only what is asked for counts,
                # and of the contenders that were measured a page may show fewer
                wanted = {**parameters, "contenders": row.parameters.get("contenders")}
                # what came later asks for nothing where it is empty
                wanted = {
                    name: value for name, value in wanted.items() if value or name in row.parameters
                }
                reasons = [
                    *differences(wanted, {name: row.parameters.get(name) for name in wanted})
                ]
            else:
                reasons = [*differences(case, {"study": row.study, "case": row.case})]
                reasons += differences(machine, row.machine)
                reasons += differences(parameters, row.parameters)
                reasons += list_clashes(versions, row.versions)
            if reasons:
                raise RecordError(
                    name_file(self.path),
                    (
                        f"cannot continue a record of another origin: {self.redact('; '.join(reasons))}; "
                        "move it away to measure anew"
                    ),
                )

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows, all of them or, when it fails, none; they are on disk when this returns."""
        keys = {row.key for row in self.rows}
        versions = dict(self._versions)
        for row in rows:
            if reasons := [*list_clashes(row.versions, versions)]:
                raise RecordError(
                    name_file(self.path), f"versions: {'; '.join(reasons)}", "the same"
                )
            versions |= row.versions
            cells = [_cell(getattr(row, name)) for name in COLUMNS]
            clean = redact_tree(cells, self.secrets)
            for name, cell, shown in zip(COLUMNS, cells, clean, strict=True):
                if shown != cell:  # the column is named, not the value
                    raise RecordError(
                        name, "shows a credential, which no record may", "names of settings only"
                    )
            if row.key in keys:
                raise RecordError(name_file(self.path), f"{row.key} is there already")
            keys.add(row.key)
        if self._look() != self._state:
            raise RecordError(
                name_file(self.path), "changed by another process; run a case once at a time"
            )
        runs = self._runs | {_run_of(row.origin): row.origin for row in rows}
        if runs.keys() != self._runs.keys():
            lines = [f'"{run}": {as_json(origin)}' for run, origin in runs.items()]
            replace_file(runs_path(self.path), "{\n" + ",\n".join(lines) + "\n}\n")
        is_whole = bool(self.rows) and not self._is_of_before
        lines_of = (
            [*(_cell(getattr(row, name)) for name in WRITTEN[:-1]), _run_of(row.origin)]
            for row in (rows if is_whole else [*self.rows, *rows])
        )
        text = "".join(map(_write_line, lines_of))
        if is_whole:
            _append(self.path, text)
        else:
            replace_file(self.path, _write_line(WRITTEN) + text)
            self._is_of_before = False
        self._state = self._look()
        self._runs, self.rows, self._versions = runs, [*self.rows, *rows], versions

    def redact(self, text: str) -> str:
        """Black out credentials."""
        return redact(text, self.secrets)

    def to_frame(self) -> pd.DataFrame:
        """Return all rows as a table, warm-ups included, with points and settings as columns.

        Its `attrs["stopped_by"]` says what ended the measuring.
        """
        frame = _frame(self.rows)
        frame.attrs["stopped_by"] = self.stopped_by
        return frame


def _append(path: Path, text: str) -> None:
    """Add whole lines and wait for the disk; what fails half-way is taken back."""
    with path.open("ab", buffering=0) as file:
        n_before = os.fstat(file.fileno()).st_size
        try:
            if file.write(data := text.encode()) < len(data):
                raise OSError(f"{name_file(path)}: no room left to append")
            os.fsync(file.fileno())
        except BaseException:
            file.truncate(n_before)
            raise


def read_records(paths: Sequence[Path]) -> pd.DataFrame:
    """Read records of several cases, made on one machine with the same versions, into one table."""
    if not paths:
        raise RecordError("paths", "no record given", "at least one CSV file")
    rows = [row for path in map(Path, paths) for row in read_rows(path)]
    versions: dict[str, object] = {}
    for row in rows:
        machine = differences(rows[0].machine, row.machine)
        for kind, reasons in (
            ("machine", machine),
            ("versions", list_clashes(versions, row.versions)),
        ):
            if text := "; ".join(reasons):
                raise RecordError(
                    kind, f"{text} ({rows[0].case} here, {row.case} there)", "the same"
                )
        versions = {**row.versions, **versions}
    return _frame(rows)


def _frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Make a table with points and settings as columns of their own."""
    table = [{name: getattr(row, name) for name in COLUMNS} for row in rows]
    for line in table:
        extra = line["point"] | {k: v for k, v in line["settings"].items() if k != "cache_state"}
        if clash := set(extra) & set(COLUMNS):
            raise RecordError(
                "settings", f"{sorted(clash)} are columns of the record", "other names"
            )
        line |= extra | {name: as_json(line[name]) for name in JSON_COLUMNS}
    frame = pd.DataFrame(table)
    return frame if len(frame) else pd.DataFrame(columns=list(COLUMNS))


def read_published(name: str) -> pd.DataFrame:
    """Read a table of measurements that others published."""
    return pd.read_csv(ROOT / "results" / "published" / f"{name}.csv")
