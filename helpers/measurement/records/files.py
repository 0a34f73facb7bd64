"""The record of one case, open for appending, and records of several cases in one table."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path

import pandas as pd

from helpers.measurement.provenance import (
    Provenance,
    as_json,
    clashes,
    differences,
    fingerprint,
    installed,
)
from helpers.measurement.records.rows import COLUMNS, JSON_COLUMNS, RecordError, Row
from helpers.measurement.records.texts import (
    parse_rows,
    read_text,
    replace_file,
    write_cells,
    write_line,
)
from helpers.redaction import redact

MAY_DIFFER = ("machine", "versions")


_ORIGIN = ("machine", "parameters")


class Record:
    """The file of one case, open for appending.

    Parameters
    ----------
    path : Path
        CSV file; it and its folder are made by the first append.
    study, case : str
        Names that go into each row.
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
        case: str,
        provenance: Provenance,
        secrets: Sequence[str] = (),
    ) -> None:
        self.path, self.study, self.case = Path(path), study, case
        self.provenance = provenance
        self.secrets = tuple(secret for secret in secrets if secret)
        self.stopped_by = ""
        self._text = read_text(self.path) if self.path.exists() else ""
        self.rows = parse_rows(self._text, self.path) if self._text else []
        self._refuse_others()
        self._versions = {name: v for row in self.rows for name, v in row.versions.items()}

    def _refuse_others(self) -> None:
        """Refuse to go on with rows of another origin, naming what differs."""
        mine = _origin(self.provenance, self)
        here = self._versions_here()
        for row in self.rows:
            told = [*_contrast(mine, _origin(row, row)), *clashes(here, row.versions)]
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
        """Add rows, all of them or, when interrupted, none.

        Parameters
        ----------
        rows : sequence of Row
            New rows; one with the key of a row already there is refused.

        Raises
        ------
        RecordError
            If a row repeats one, shows a secret, names another version than a
            row before it, or if the file was changed by somebody else since it
            was opened.
        """
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
        text = (self._text or write_line(COLUMNS)) + "".join(
            write_line(write_cells(row)) for row in rows
        )
        replace_file(self.path, text)
        self._text, self.rows, self._versions = text, [*self.rows, *rows], versions

    def _refuse_secrets(self, row: Row) -> None:
        """Raise if a cell shows a credential, naming the column, not the value."""
        for name, cell in zip(COLUMNS, write_cells(row), strict=True):
            if self.redact(cell) != cell:
                raise RecordError(
                    f"{name}: shows a credential, which no record may; allowed: names of settings only"
                )

    def redact(self, text: str) -> str:
        """Black out credentials.

        Parameters
        ----------
        text : str
            Text about to be shown or stored.

        Returns
        -------
        str
            The same, with every secret as three asterisks.
        """
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


def read_records(paths: Sequence[Path], *, allow: Collection[str] = ()) -> pd.DataFrame:
    """Read records of several cases into one table.

    Parameters
    ----------
    paths : sequence of Path
        CSV files, at least one.
    allow : collection of str
        In what the records may differ: "machine", "versions". Parameters may
        always differ, for that is what cases are.

    Returns
    -------
    DataFrame
        As from `Record.to_frame`; `attrs["note"]` states allowed differences.

    Raises
    ------
    RecordError
        If a file is missing or torn, or if the records differ in what is not allowed.
    """
    if not paths:
        raise RecordError("paths: no record given; allowed: at least one CSV file")
    if unknown := {*allow} - {*MAY_DIFFER}:
        raise RecordError(f"allow: {sorted(unknown)}; allowed: {', '.join(MAY_DIFFER)}")
    parts = [parse_rows(read_text(Path(path)), Path(path)) for path in paths]
    rows = [row for part in parts for row in part]
    notes = _merge_notes(rows, allow)
    frame = _frame(rows)
    frame.attrs["note"] = "; ".join(notes)
    return frame


def _merge_notes(rows: Sequence[Row], allow: Collection[str]) -> list[str]:
    """Say in what rows differ from the first, or refuse."""
    notes: dict[str, None] = {}
    versions: dict[str, object] = {}
    for row in rows:
        found = {
            "machine": [*differences(rows[0].machine, row.machine)],
            "versions": [*clashes(versions, row.versions)],
        }
        versions = {**row.versions, **versions}
        for kind, told in found.items():
            if told and kind not in allow:
                raise RecordError(
                    f"{kind}: {'; '.join(told)} ({rows[0].case} here, {row.case} there); "
                    f"allowed only if declared with allow=({kind!r},)"
                )
            notes |= dict.fromkeys(f"{row.case}: {text}" for text in told)
    return list(notes)


def _origin(source: Provenance | Row, named: Record | Row) -> list[dict[str, object]]:
    """List what makes the fingerprint, as it looks after a trip through JSON."""
    parts = [json.loads(as_json(getattr(source, name))) for name in _ORIGIN]
    return [{"study": named.study, "case": named.case}, *parts]


def _fingerprints(row: Row) -> tuple[str, str]:
    """Compute what a row's fingerprint may be: of now, and of rows that hashed versions too."""
    return (
        fingerprint(row.parameters, machine=row.machine),
        fingerprint(row.parameters, machine=row.machine, versions=row.versions),
    )


def _contrast(here: list[dict[str, object]], there: list[dict[str, object]]) -> list[str]:
    """Name what differs, part by part, for a parameter may be named like a package."""
    return [
        text for mine, other in zip(here, there, strict=True) for text in differences(mine, other)
    ]


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
