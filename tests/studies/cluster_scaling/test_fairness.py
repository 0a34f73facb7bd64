"""Whether contenders were compared at equal settings, and what their traces add."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from helpers.arrays.reads import CACHE_STATE, CACHE_STATE_BEFORE
from helpers.benchmark.record import read_records
from helpers.errors import UserError
from helpers.paths import ROOT
from studies.cluster_scaling.findings import UnfairComparisonError, compare_settings


def make_rows(**changed: dict[str, Any]) -> pd.DataFrame:
    """Return rows of two contenders and the ceiling at two points; `changed` by contender."""
    rows = []
    for n_workers in (1, 2):
        for name in ("a", "b", "raw"):
            row = {
                "contender": name,
                "point": f'{{"n_workers": {n_workers}}}',
                "is_ceiling": name == "raw",
                "codec": "none" if name == "raw" else "zstd",
                "concurrency": 8 * n_workers,  # grows along the x-axis, for all alike
                "cache_state": "cold",
                "array_nbytes": 100,
            }
            rows.append(row | changed.get(name, {}))
    return pd.DataFrame(rows)


def test_equal_contenders_need_no_footnote() -> None:
    """Equal at each point is fair, whatever changes from point to point."""
    assert compare_settings(make_rows()) == ""
    # a record that is continued calls the same state by both names
    renamed = {"a": {"cache_state": CACHE_STATE_BEFORE}, "b": {"cache_state": CACHE_STATE}}
    assert compare_settings(make_rows(**renamed, raw={"cache_state": CACHE_STATE})) == ""


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("codec", "lz4", r"codec: zstd \(a\), lz4 \(b\)"),
        ("concurrency", 10, r"concurrency: 8 \(a\), 10 \(b\)"),
        ("cache_state", "warm", r"cache_state: cold \(a\), warm \(b\)"),
        ("array_nbytes", 99, r"array_nbytes: 100 \(a\), 99 \(b\)"),
        ("codec", None, r"codec: zstd \(a\), .*\(b\)"),  # unknown is not equal
    ],
)
def test_unfair_is_refused_or_footnoted(name: str, value: object, told: str) -> None:
    """Undeclared, the line names the setting; declared, the footnote does; another does not help."""
    rows = make_rows(b={name: value})
    other = "array_nbytes" if name != "array_nbytes" else "codec"
    for declared in ((), (other,)):
        with pytest.raises(UnfairComparisonError, match=f"contenders differ in {told}"):
            compare_settings(rows, declared=declared)
    note = compare_settings(rows, declared=(name,))
    assert note.startswith(f"Not equal, by declaration: {name}: ") and note.endswith("(b).")


def make_traced(**seen: dict[str, Any]) -> pd.DataFrame:
    """Return rows of two equal contenders and the ceiling with traces; `seen` by contender."""
    rows = make_rows().assign(n_requests=10, wire_nbytes=50.0, stored_nbytes=50)
    for name, values in seen.items():
        for key, value in values.items():
            rows.loc[rows["contender"] == name, key] = value
    flights = {name: values.get("in_flight", 0.9) for name, values in seen.items()}
    shares = rows["contender"].map(flights).fillna(0.9) * rows["concurrency"]
    traces = [json.dumps({"mean_in_flight": s, "max_in_flight": s}) for s in shares]
    return rows.assign(trace=traces)


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        ({}, "^$"),
        ({"in_flight": 0.85}, "^$"),  # within the tolerance
        ({"in_flight": 0.5}, r"in flight over threads, on average: 0.5 \(b\), 0.9 \(a\), at n_"),
        ({"in_flight": 0.5}, r"in flight over threads, at most: 0.5 \(b\), 0.9 \(a\), at n_"),
        ({"n_requests": 20}, r"requests a chunk: 2 \(a\), 4 \(b\), at n_workers 2"),
        ({"wire_nbytes": 100.0}, r"over the wire over those stored: 1 \(a\), 2 \(b\), at"),
    ],
)
def test_what_the_trace_saw_is_declared(seen: dict[str, Any], told: str) -> None:
    """Equal settings are not equal reads: requests in flight, a chunk and bytes are compared."""
    note = compare_settings(make_traced(b=seen), n_chunks=5)
    assert re.search(told, note), note
    assert (note == "") or note.startswith("Not equal, in the trace: ")


def test_settings_and_traces_share_a_footnote() -> None:
    """A declared setting does not hide the trace; what was not traced is said to be so."""
    note = compare_settings(make_traced(b={"codec": "lz4", "n_requests": 20}), declared=("codec",))
    assert re.match(
        r"Not equal, by declaration: codec: .* Not equal, in the trace: requests: ", note
    )
    untraced = make_traced().assign(trace="{}", n_requests=np.nan, wire_nbytes=np.nan)
    assert compare_settings(untraced) == "Requests were not traced, so they are not compared."


def test_the_reference_declares_how_netcdf_reads() -> None:
    """In region netCDF has half as many requests in flight as threads, and the footnote says it."""
    rows = read_records([ROOT / "results" / "reference" / "cluster-scaling" / "in-region.csv"])
    measured = rows[(rows["phase"] == "measured") & (rows["control_of"] == "")]
    note = compare_settings(measured)
    assert "requests in flight over threads, at most: 0.5 (netcdf-fsspec), 1 (" in note


def test_comparison_on_what_is_not_there_is_refused() -> None:
    """A column nobody recorded cannot be equal."""
    with pytest.raises(UserError, match="rows: codec is in none"):
        compare_settings(make_rows().drop(columns="codec"))
    with pytest.raises(UserError, match="declared: colour; allowed: codec"):
        compare_settings(make_rows(), declared=("colour",))
