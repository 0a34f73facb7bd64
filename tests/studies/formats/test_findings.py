"""What a page of formats computes from rows."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from studies.formats import findings, prediction
from studies.formats.parameters import Parameters
from tests.refusals import refused
from wire.bed.networks import get_profile

TIMES = {
    "zarr-obstore": [1.0, 1.1, 1.0, 1.05, 1.0],
    "control": [1.02, 1.08, 1.01, 1.04, 1.0],
    "zarr-direct": [0.5, 0.52, 0.5, 0.51, 0.5],
    "csv-pandas": [9.0, 9.1, 9.2, 9.0, 9.1],
    "parquet-pandas": [3.0, 3.1, 3.0, 3.0, 3.1],
    "raw": [0.4, 0.41, 0.4, 0.4, 0.4],
}
NAMES = ["zarr-obstore", "csv-pandas", "parquet-pandas"]


def make_rows(phase: str = "measured", access: str = "whole") -> pd.DataFrame:
    """Make rows of five blocks."""
    lines = [
        {
            "phase": phase,
            "case": "x",
            "block": block,
            "point": json.dumps({"access": access}),
            "access": access,
            "contender": name,
            "control_of": "zarr-obstore" if name == "control" else "",
            "is_ceiling": name == "raw",
            "open_s": 0.2,
            "read_s": read_s,
            "array_nbytes": 1e8,
            "stored_nbytes": 5e7,
            "wire_nbytes": 5e7,
            "n_requests": 20,
            "concurrency": 4,
            "trace": json.dumps({"n_open_requests": 2, "busy_s": 0.3}),
        }
        for name, times in TIMES.items()
        for block, read_s in enumerate(times)
    ]
    return pd.DataFrame(lines)


def test_opening_counts_and_who_left_is_left_out() -> None:
    """What is judged is opening and reading, of the contenders that a case still names."""
    everything = pd.concat([make_rows(), make_rows("calibration"), make_rows(access="write")])
    rows = findings.add_totals(everything.reset_index(drop=True), NAMES)
    assert (rows["total_s"] - rows["read_s"]).tolist() == pytest.approx([0.2] * len(rows))
    assert {*rows["contender"]} == {*TIMES} - {"zarr-direct"} and len(rows) == 25


def test_tables_hold_each_contender_once() -> None:
    """Medians by access, the whole array first and the quickest first."""
    both = pd.concat([make_rows(access="step"), make_rows()], ignore_index=True)
    table: Any = findings.tabulate(findings.add_totals(both, NAMES))
    assert table.loc["whole"].index.tolist() == [
        "raw",
        "zarr-obstore",
        "parquet-pandas",
        "csv-pandas",
    ]
    assert table.index[0] == ("whole", "raw") and len(table) == 8
    csv = table.loc[("whole", "csv-pandas")]
    assert (csv["wire_mb"], csv["open_requests"]) == (50, 2)
    assert csv["processors (s/GB)"] == pytest.approx(3)


def test_references_take_the_bytes_of_their_file() -> None:
    """Their write is their own."""
    nbytes = {"zarr": 5e7, "references": 1e4, "netcdf": 6e7}
    written = {"access": "write", "contender": ["zarr", "references"], "real_read_s": [1.0, 0.01]}
    kept: Any = SimpleNamespace(nbytes=nbytes)
    names = ["zarr-obstore", "references-obstore"]
    costs = findings.tabulate_costs(names, kept, pd.DataFrame(written))
    assert costs["stored_mb"].tolist() == [50, 60.01] and costs["write_s"].tolist() == [1.0, 0.01]


def test_prediction_waits_for_the_network() -> None:
    """Requests in turn while opening, and by connections while reading; nothing is free."""
    calibrated = make_rows(phase="calibration").groupby("contender").head(1)
    profile = get_profile("in-region")
    assert profile.first_byte_s is not None
    expected = prediction.predict_formats(calibrated, profile)
    least_s = 0.2 + 2 * profile.first_byte_s.median_s + 5 * profile.first_byte_s.median_s
    assert (expected["total_s"] > least_s).all()
    rows = findings.add_totals(make_rows(), NAMES)
    errors = prediction.compare_predicted(rows, expected).set_index("contender")
    assert errors["relative_error"].abs().max() < 3 and {*NAMES} < {*errors.index}


@pytest.mark.parametrize(
    ("values", "where", "value", "allowed"),
    [
        (
            {"array_shape": [10, 50, 1000, 1000]},
            "array_shape",
            " of 2 GB$",
            "^at most 0.4 GB, with csv-pandas$",
        ),
        (
            {"array_shape": [100, 100, 1000, 1000], "contenders": ["icechunk"]},
            "array_shape",
            " of 40 GB$",
            "",
        ),
        ({"accesses": ["step"]}, "accesses", "step", "whole"),
    ],
)
def test_what_cannot_be_made_is_refused(
    values: dict[str, Any], where: str, value: str, allowed: str
) -> None:
    """Before anything is written."""
    with refused(f"case: {where}", value, allowed):
        Parameters.check(values, "case")
