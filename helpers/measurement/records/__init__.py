"""Rows, their schema, atomic append, and reading back.

A record is one CSV file a case. An append writes the whole file anew beside
the old one, syncs it and renames it over the old one. A reader therefore sees
either all rows of an append or none, however the writer ended, also on network
file systems, where a plain append is neither atomic nor ordered. Records are
small (1 kB a row), so this costs milliseconds, outside the clock.
"""

from helpers.measurement.records.files import Record, read_records
from helpers.measurement.records.rows import COLUMNS, PHASES, RecordError, Row, schema
from helpers.measurement.records.texts import replace_file

__all__ = [
    "COLUMNS",
    "PHASES",
    "Record",
    "RecordError",
    "Row",
    "read_records",
    "replace_file",
    "schema",
]
