"""From which share of a file on a download wins is found between measured shares, or said to lie outside them."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from helpers.findings import Finding
from studies.hdf5_drivers import share_of_file as study
from studies.hdf5_drivers.files import TASKS, FileProperties, StoredFile
from wire.bed.locations import Location

CROSSINGS = [
    ([0.5, 1.5, 2.0], "from 5.8 % on", "between the shares on either side of it"),
    ([1.5, 2.0, 3.0], "from below 2 % on", "the download wins at the least share"),
    ([0.2, 0.4, 0.9], "not up to 20 %", "it never wins"),
]


@pytest.mark.parametrize(("ratios", "text", "reason"), CROSSINGS)
def test_a_crossing_is_described(ratios: list[float], text: str, reason: str) -> None:
    """In percent where it was passed, in words where it was not."""
    assert study.describe_crossing([2, 8, 20], ratios).verdict == text, reason


def test_shares_grow_and_are_compared_with_the_download() -> None:
    """Each way at each share; the tasks hold one another, so that shares grow."""
    for fewer, more in zip(study.SHARES, study.SHARES[1:], strict=False):
        assert {*TASKS[fewer]} < {*TASKS[more]}
    stored_nbytes = dict.fromkeys(TASKS[study.SHARES[-1]], 10)
    stored = StoredFile(
        Location("s3", "b"), {}, {"original": FileProperties(1000, stored_nbytes)}, {}
    )
    rows = make_rows()
    table = study.tabulate_shares(rows, stored)
    assert sorted({*table["share_percent"]}) == [1.0, 3.0, 6.0, 12.0]
    findings = study.find_all(rows, table)
    # virtual Zarr takes a second a variable, the download four seconds
    assert findings["virtual-10-over-whole-12"].value == pytest.approx(3)
    assert findings["crossing-virtual-10"].value == pytest.approx(4.1, abs=0.3)
    assert findings["share-12"] == Finding(12.0, unit="%")
    claims = study.judge_claims(findings)
    assert claims["whole-beats-default"].holds and not claims["whole-beats-blocks"].holds


def make_rows() -> pd.DataFrame:
    """Make a record of four blocks of each way at each share."""
    seconds = {
        "fsspec-readahead": lambda n: 10.0 * n,
        "fsspec-tuned": lambda n: 3.0 * n,
        "references": lambda n: 1.0 * n,
        study.WHOLE: lambda _n: 4.0,
    }
    lines: list[dict[str, Any]] = [
        {
            "contender": driver,
            "layout": "original",
            "task": task,
            "phase": "measured",
            "control_of": "",
            "block": block,
            "open_s": 0.0,
            "read_s": seconds[driver](len(TASKS[task])) * (1 + 0.01 * (block % 2)),
        }
        for block in range(4)
        for task in study.SHARES
        for driver in seconds
    ]
    return pd.DataFrame(lines)
