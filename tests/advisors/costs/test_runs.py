"""What a case asks of a store is counted from its record."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from advisors.costs.runs import count_run, find_runs, render_runs


def make_rows() -> pd.DataFrame:
    """Make three reads: two in a row, one after a long pause."""
    starts = ["2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "2026-01-01T05:00:00Z"]
    return pd.DataFrame(
        {
            "started_utc": starts,
            "open_s": 1.0,
            "read_s": 5.0,
            "n_requests": [10, 20, None],
            "wire_nbytes": [1e9, 2e9, None],
            "trace": [json.dumps({"n_open_requests": 4}), "{}", "{}"],
        }
    )


def test_requests_of_opening_count_and_pauses_do_not() -> None:
    """What was not traced counts nothing."""
    assert count_run(make_rows()) == pytest.approx(
        {"reads": 3, "requests": 34, "gb": 3.0, "minutes": 1.1}
    )


def test_every_published_case_over_a_network_is_priced() -> None:
    """Reading from outside the region costs more than from inside."""
    text = render_runs()
    titles = {f"{path.parent.name}/{path.stem}" for path in find_runs()}
    shown = {line.split(" | ")[0].removeprefix("| ") for line in text.splitlines()[2:]}
    assert shown <= titles
    assert {"cluster-scaling/in-region", "hdf5-drivers/in-region"} <= shown
    for line in text.splitlines()[2:]:
        inside, outside = (float(cell) for cell in line.strip("| ").split(" | ")[-2:])
        assert 0 <= inside < outside
