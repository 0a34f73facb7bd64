"""Rows of a record made by hand; kernels and processes of the tests import them, so they need little."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helpers.benchmark.provenance import Provenance
from helpers.benchmark.record import Record, Row

ORIGIN = Provenance(
    machine={"cpu": "One", "n_cores": 2},
    versions={"zarr": "3.1.6"},
    parameters={"seed": 1, "shape": (2, 3)},
    commit="a" * 40,
    is_dirty=False,
)


def make_row(**changed: Any) -> Row:
    """Return a valid row with some cells changed."""
    cells: dict[str, Any] = {
        "study": "cluster-scaling",
        "case": "in-region",
        "contender": "zarr-s3fs",
        "point": {"n_workers": 2},
        "settings": {"codec": "zstd", "cache_state": "cold"},
        "cache_state": "cold",
        "is_ceiling": False,
        "control_of": "",
        "seed": 1,
        "phase": "measured",
        "block": 0,
        "order": 0,
        "started_utc": "2026-01-01T00:00:00.000+00:00",
        "open_s": 0.1,
        "read_s": 2.5,
        "array_nbytes": 100,
        "stored_nbytes": 50,
        "wire_nbytes": 51.0,
        "n_requests": 7.0,
        "trace": {"n_retries": 0},
        "check": "crc32c of 120 chunks",
        "fingerprint": ORIGIN.fingerprint,
        "machine": ORIGIN.machine,
        "versions": ORIGIN.versions,
        "parameters": ORIGIN.parameters,
        "commit": ORIGIN.commit,
        "is_dirty": ORIGIN.is_dirty,
    }
    return Row(**(cells | changed))


def write_record(path: Path, rows: Sequence[Row]) -> Path:
    """Write a record of rows that were made by hand, of one origin or several."""
    path.unlink(missing_ok=True)
    Record(path, study=rows[0].study, provenance=ORIGIN).append(rows)
    return path
