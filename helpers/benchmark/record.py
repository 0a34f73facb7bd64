"""Records: rows and their schema, atomic append, and reading back."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
from collections import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import pandas as pd

from helpers.benchmark.provenance import (
    RENDERED,
    Provenance,
    as_json,
    clashes,
    differences,
    fingerprint,
    installed,
)
from helpers.errors import UserError
from helpers.paths import ROOT, replace_file
from helpers.redaction import redact, redact_tree

PHASES = ("warm-up", "measured", "calibration")


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
        str, "", "'warm-up', never used; 'calibration', for predictions; or 'measured'"
    ]
    block: Annotated[int, "1", "repetition, from 0 in each phase"]
    order: Annotated[int, "1", "place in the block, from 0"]
    started_utc: Annotated[str, "ISO 8601", "when the opening began"]
    open_s: Annotated[float, "s", "time to open, in the time of the network"]
    read_s: Annotated[float, "s", "time to read, in the time of the network"]
    dilation: Annotated[float, "1", "real seconds in one of the network, 1 where time is real"] = 1
    real_open_s: Annotated[float, "s", "time to open, real"] = math.nan
    real_read_s: Annotated[float, "s", "time to read, real"] = math.nan
    array_nbytes: Annotated[int, "B", "bytes in the array, decoded"]
    stored_nbytes: Annotated[int, "B", "bytes in the store, encoded"]
    wire_nbytes: Annotated[float, "B", "bytes of response bodies, empty when not traced"]
    n_requests: Annotated[float, "1", "requests, empty when not traced"]
    trace: Annotated[Mapping[str, Any], "", "further numbers from the trace"]
    check: Annotated[str, "", "how what was read was verified"]
    fingerprint: Annotated[str, "", "hash of machine and parameters, in older rows of versions too"]
    machine: Annotated[Mapping[str, Any], "", "processor, cores, memory, system"]
    versions: Annotated[
        Mapping[str, Any], "", "versions of all that the measuring processes have imported"
    ]
    parameters: Annotated[Mapping[str, Any], "", "what the study was asked for"]
    commit: Annotated[str, "", "commit of the project"]
    is_dirty: Annotated[bool, "", "whether the sources differ from the commit"]

    def __post_init__(self) -> None:
        """Refuse a row that no clock and no counter can have made."""
        if self.phase not in PHASES:
            raise RecordError(f"phase: {self.phase!r}; allowed: {', '.join(PHASES)}")
        for name, value in ((name, getattr(self, name)) for name in _NOT_NEGATIVE):
            is_unknown = name in _UNKNOWN_IF_NOT_TRACED and math.isnan(value)
            if not (is_unknown or 0 <= value < math.inf):
                raise RecordError(f"{name}: {value!r}; allowed: a finite number, at least 0")
        if not 1 <= self.dilation < math.inf:
            raise RecordError(f"dilation: {self.dilation!r}; allowed: a finite number at least 1")
        if not self.check.split():
            raise RecordError("check: nothing; allowed: how what was read was verified")
        for name in ("open_s", "read_s"):
            self._check_real(f"real_{name}", getattr(self, name) * self.dilation)

    def _check_real(self, name: str, seconds: float) -> None:
        """Refuse real seconds that are not those of the network, dilated."""
        told = getattr(self, name)
        if math.isnan(told):  # of rows made before time could be dilated too
            object.__setattr__(self, name, seconds)
        elif not math.isclose(told, seconds, rel_tol=1e-9):
            raise RecordError(f"{name}: {told!r}; allowed: {seconds!r}, by the dilation")

    @property
    def key(self) -> tuple[str, int, str, str]:
        """Phase, block, contender and point: no two rows share these."""
        return self.phase, self.block, self.contender, as_json(self.point)


_UNKNOWN_IF_NOT_TRACED = ("wire_nbytes", "n_requests")
_NOT_NEGATIVE = (
    *("open_s", "read_s", "array_nbytes", "stored_nbytes", "seed", "block", "order"),
    *_UNKNOWN_IF_NOT_TRACED,
)


_HINTS = get_type_hints(Row, include_extras=True)
KINDS = {name: get_origin(hint.__origin__) or hint.__origin__ for name, hint in _HINTS.items()}

COLUMNS = tuple(KINDS)
# not in records made before time could be dilated, which are read and continued all the same
_LATER = ("dilation", "real_open_s", "real_read_s")
JSON_COLUMNS = tuple(name for name, kind in KINDS.items() if kind is abc.Mapping)


def schema() -> pd.DataFrame:
    """List the columns of a record, for the page on method."""
    names = {abc.Mapping: "JSON", str: "text"}
    lines = [
        (names.get(KINDS[name], KINDS[name].__name__), *hint.__metadata__)
        for name, hint in _HINTS.items()
    ]
    index = pd.Index(COLUMNS, name="column")
    return pd.DataFrame(lines, index=index, columns=["type", "unit", "description"])


def read_text(path: Path) -> str:
    """Read a record, or say in one line why not."""
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(
            f"{path.name}: cannot be read as a record: {type(error).__name__}"
        ) from error


def write_line(cells: Sequence[str]) -> str:
    """Write one line of CSV."""
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue()


def write_cells(row: Row) -> list[str]:
    """Turn a row into text, each cell on one line."""
    return [_cell(getattr(row, name)) for name in COLUMNS]


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


def parse_rows(text: str, path: Path) -> list[Row]:
    """Read rows back, refusing what is torn or of another schema."""
    lines = [*csv.reader(io.StringIO(text, newline=""))]
    header = tuple(lines[0]) if lines else ()
    if header not in (COLUMNS, tuple(name for name in COLUMNS if name not in _LATER)):
        names = set(header) ^ set(COLUMNS)
        told = ", ".join(sorted(names)) or "the order of columns"
        raise RecordError(f"{path.name}: not a record of this schema: differs in {told}")
    if not text.endswith("\n"):
        raise RecordError(
            f"{path.name}: torn, its last line is not whole; restore it or move it away"
        )
    rows = [
        _parse_line(header, cells, f"{path.name}: line {i}")
        for i, cells in enumerate(lines[1:], start=2)
    ]
    there: dict[tuple[object, ...], int] = {}
    for i, row in enumerate(rows, start=2):
        if (first := there.setdefault((row.study, row.case, *row.key), i)) != i:
            raise RecordError(f"{path.name}: line {i}: the measurement of line {first} once more")
    return rows


def _parse_line(names: Sequence[str], cells: Sequence[str], where: str) -> Row:
    """Read one row back."""
    if len(cells) != len(names):
        raise RecordError(
            f"{where}: torn, {len(cells)} of {len(names)} cells; restore it or move it away"
        )
    try:
        values: dict[str, Any] = {n: _value(n, cell) for n, cell in zip(names, cells, strict=True)}
        return Row(**values)
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{where}: not a row of this schema: {error}") from error


_ORIGIN = ("machine", "parameters")


class Record:
    """The file of one case, open for appending.

    Parameters
    ----------
    path : Path
        CSV file; it and its folder are made by the first append.
    study, case : str
        Names that go into each row; the case is that of the file unless given.
    provenance : Provenance
        Facts of this run; rows already in the file must share its fingerprint,
        and name no other version of what is installed here.
    secrets : sequence of str
        Values that must never reach the file, as in access keys.

    Raises
    ------
    RecordError
        If the file is not a whole record, or if it was made on another machine,
        with other versions or with other parameters; the file stays as it is.
    """

    def __init__(
        self,
        path: Path,
        *,
        study: str,
        provenance: Provenance,
        case: str = "",
        secrets: Sequence[str] = (),
    ) -> None:
        self.path, self.study = Path(path), study
        self.case = case or self.path.stem
        self.provenance = provenance
        self.secrets = tuple(secret for secret in secrets if secret)
        self.stopped_by = ""
        asked = self.provenance.parameters.get("dilation", 1.0)
        # real seconds in one of the emulated network's; a text where it is chosen while measuring
        self.dilation = 1.0 if isinstance(asked, str) else float(asked)  # type: ignore[arg-type]
        self._text = read_text(self.path) if self.path.exists() else ""
        self.rows = parse_rows(self._text, self.path) if self._text else []
        self._refuse_others()
        self._versions = {name: v for row in self.rows for name, v in row.versions.items()}

    def _refuse_others(self) -> None:
        """Refuse to go on with rows of another origin, naming what differs."""
        mine = _origin(self.provenance, self)
        here = self._versions_here()
        for row in self.rows:
            # part by part, for a parameter may be named like a package
            parts = map(differences, mine, _origin(row, row))
            told = [*itertools.chain(*parts), *clashes(here, row.versions)]
            if RENDERED in os.environ:  # nothing is measured, so only what was asked has to agree
                told = [*differences(mine[-1], _origin(row, row)[-1])]
            if told or row.fingerprint not in _fingerprints(row):
                raise RecordError(
                    f"{self.path.name}: cannot continue a record of another origin: "
                    f"{self.redact('; '.join(told)) or 'fingerprint altered'}; "
                    "move it away to measure anew"
                )

    def _versions_here(self) -> dict[str, str]:
        """Find here whatever the rows name, imported already or not."""
        known = self.provenance.versions
        # a name with a space in it is no distribution: `append` compares those
        named = {name for row in self.rows for name in row.versions if " " not in name}
        unknown = named - known.keys()
        return {**dict.fromkeys(unknown, "absent"), **installed(unknown), **known}

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows, all of them or, when interrupted, none."""
        taken = {row.key for row in self.rows}
        versions = dict(self._versions)
        for row in rows:
            if told := [*clashes(row.versions, versions)]:
                raise RecordError(
                    f"{self.path.name}: versions: {'; '.join(told)}; allowed: the same"
                )
            versions |= row.versions
            self._refuse_secrets(row)
            if row.key in taken:
                raise RecordError(f"{self.path.name}: {row.key} is there already")
            taken.add(row.key)
        if (read_text(self.path) if self.path.exists() else "") != self._text:
            raise RecordError(
                f"{self.path.name}: changed by another process; run a case once at a time"
            )
        # a record that lacks later columns gets them with its next row
        head, is_whole = write_line(COLUMNS), self._text.startswith(write_line(COLUMNS))
        added = rows if is_whole else [*self.rows, *rows]
        text = (self._text if is_whole else head) + "".join(
            write_line(write_cells(row)) for row in added
        )
        replace_file(self.path, text)
        self._text, self.rows, self._versions = text, [*self.rows, *rows], versions

    def _refuse_secrets(self, row: Row) -> None:
        """Raise if a cell shows a credential, naming the column, not the value."""
        cells = write_cells(row)
        clean = redact_tree(cells, self.secrets)
        for name, cell, shown in zip(COLUMNS, cells, clean, strict=True):
            if shown != cell:
                raise RecordError(
                    f"{name}: shows a credential, which no record may; allowed: names of settings only"
                )

    def redact(self, text: str) -> str:
        """Black out credentials."""
        return redact(text, self.secrets)

    def to_frame(self) -> pd.DataFrame:
        """Return all rows as a table, warm-ups included.

        Returns
        -------
        DataFrame
            Columns of the schema, then one column for each key of `point` and
            `settings`; `attrs["stopped_by"]` says what ended the measuring.
        """
        frame = _frame(self.rows)
        frame.attrs["stopped_by"] = self.stopped_by
        return frame


def list_records(folder: Path, pattern: str = "*/*.csv") -> list[Path]:
    """List the records of a folder of results, without the findings that lie next to them."""
    return sorted(path for path in folder.glob(pattern) if not path.name.endswith(".findings.csv"))


def read_records(paths: Sequence[Path]) -> pd.DataFrame:
    """Read records of several cases, made on one machine with the same versions, into one table."""
    if not paths:
        raise RecordError("paths: no record given; allowed: at least one CSV file")
    rows = [row for path in map(Path, paths) for row in parse_rows(read_text(path), path)]
    versions: dict[str, object] = {}
    for row in rows:
        machine = differences(rows[0].machine, row.machine)
        for kind, told in (("machine", machine), ("versions", clashes(versions, row.versions))):
            if text := "; ".join(told):
                raise RecordError(
                    f"{kind}: {text} ({rows[0].case} here, {row.case} there); allowed: the same"
                )
        versions = {**row.versions, **versions}
    return _frame(rows)


_BEFORE = {"dilation": 1, "dataset": "enlarged-ocean-temperature", "site": "laptop"}
"""What a parameter was before a study had it, or while it had it: rows without it say the same."""


def _origin(source: Provenance | Row, named: Record | Row) -> list[dict[str, object]]:
    """List what makes the fingerprint, as it looks after a trip through JSON."""
    parts = [json.loads(as_json(getattr(source, name))) for name in _ORIGIN]
    for name, value in _BEFORE.items():
        if parts[-1].get(name) == value:
            del parts[-1][name]
    return [{"study": named.study, "case": named.case}, *parts]


def _fingerprints(row: Row) -> tuple[str, str]:
    """Compute what a row's fingerprint may be: of now, and of rows that hashed versions too."""
    return (
        fingerprint(row.parameters, machine=row.machine),
        fingerprint(row.parameters, machine=row.machine, versions=row.versions),
    )


def _frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Make a table with points and settings as columns of their own."""
    table = [{name: getattr(row, name) for name in COLUMNS} for row in rows]
    for line in table:
        extra = line["point"] | {k: v for k, v in line["settings"].items() if k != "cache_state"}
        if clash := set(extra) & set(COLUMNS):
            raise RecordError(
                f"settings: {sorted(clash)} are columns of the record; allowed: other names"
            )
        line |= extra | {name: as_json(line[name]) for name in JSON_COLUMNS}
    frame = pd.DataFrame(table)
    return frame if len(frame) else pd.DataFrame(columns=list(COLUMNS))


def read_published(name: str) -> pd.DataFrame:
    """Read a table of measurements that others published."""
    return pd.read_csv(ROOT / "results" / "published" / f"{name}.csv")
