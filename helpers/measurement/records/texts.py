"""Rows to text and back, and files that are whole at every instant."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers.measurement.provenance import as_json
from helpers.measurement.records.rows import COLUMNS, JSON_COLUMNS, KINDS, RecordError, Row


def replace_file(path: Path, text: str) -> None:
    """Write a file so that at every instant it is whole, old or new.

    Parameters
    ----------
    path : Path
        File to make or replace; its folder is made.
    text : str
        The whole content.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


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
    if not lines or tuple(lines[0]) != COLUMNS:
        names = set(lines[0] if lines else ()) ^ set(COLUMNS)
        told = ", ".join(sorted(names)) or "the order of columns"
        raise RecordError(f"{path.name}: not a record of this schema: differs in {told}")
    if not text.endswith("\n"):
        raise RecordError(
            f"{path.name}: torn, its last line is not whole; restore it or move it away"
        )
    return [
        _parse_line(cells, f"{path.name}: line {i}") for i, cells in enumerate(lines[1:], start=2)
    ]


def _parse_line(cells: Sequence[str], where: str) -> Row:
    """Read one row back."""
    if len(cells) != len(COLUMNS):
        raise RecordError(
            f"{where}: torn, {len(cells)} of {len(COLUMNS)} cells; restore it or move it away"
        )
    try:
        values: dict[str, Any] = {
            n: _value(n, cell) for n, cell in zip(COLUMNS, cells, strict=True)
        }
        return Row(**values)
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{where}: not a row of this schema: {error}") from error
