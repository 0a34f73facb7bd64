"""What a page of the acceptance thresholds computes from rows."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from helpers.benchmark import statistics
from studies.acceptance import findings
from studies.acceptance.workload import ALONE, BEST


def make_rows(*reads: tuple[str, str, int, list[float]], phase: str = "measured") -> pd.DataFrame:
    """Make rows of part, contender and number of chunks, with a time for each block."""
    lines = [
        (part, name, n_chunks, block, read_s, phase, "", "{}", 1e9)
        for part, name, n_chunks, times in reads
        for block, read_s in enumerate(times)
    ]
    names = ["part", "contender", "n_chunks", "block", "read_s", "phase", "control_of", "trace"]
    return pd.DataFrame(lines, columns=[*names, "stored_nbytes"])


def test_only_measured_pairs_are_compared() -> None:
    """A case that runs some checks has their ratios, paired within blocks, and no others."""
    rows = make_rows(
        ("ceiling", "raw", 4, [1.0, 2.0]),
        ("ceiling", BEST, 4, [2.0, 4.0]),
        ("decoding", ALONE, 4, [1.0, 1.0]),
    )
    pairs = findings.list_pairs(rows)
    assert [*pairs] == ["share-of-ceiling"]
    assert statistics.paired_between(*pairs["share-of-ceiling"]).centre == pytest.approx(0.5)
    assert findings.tell_in_turn(rows) == ""
    rows = make_rows(("decoding", ALONE, 4, [1.0, 1.0]), ("decoding", "raw", 4, [3.0, 3.0]))
    assert " at 0.25 of the rate " in findings.tell_in_turn(rows)


def test_each_more_chunk_costs_a_slope() -> None:
    """Between the two largest numbers of chunks, block by block."""
    rows = make_rows(
        ("overhead-10", BEST, 10, [9.0, 9.0]),
        ("overhead-100", BEST, 100, [1.0, 2.0]),
        ("overhead-300", BEST, 300, [3.0, 3.0]),
    )
    assert findings.slope_s(rows, BEST).tolist() == pytest.approx([0.01, 0.005])
    assert findings.measure_rest(rows)["ms-per-batched"].centre == pytest.approx(7.5)
    assert "ms-per-chunk" not in findings.measure_rest(rows)


def test_memory_is_that_of_the_watched_reads() -> None:
    """Times of these reads count nowhere, and a single pair of peaks has no interval."""
    rows = make_rows(
        ("growth-1", BEST, 4, [1.0]), ("growth-4", BEST, 16, [1.0]), phase="calibration"
    )
    rows["trace"] = [json.dumps({"peak_nbytes": n}) for n in (2e9, 3e9)]
    found = findings.measure_rest(rows)
    assert found["growth-memory"].centre == pytest.approx(1.5)
    assert found["peak-memory"].centre == pytest.approx(3.0)
    assert findings.tell(found)["growth-memory"] == "1.5"
    assert findings.list_pairs(rows) == {}


def test_processor_time_of_the_proxy_is_for_each_gigabyte() -> None:
    """Over the bytes of the same reads."""
    rows = make_rows(("proxy", "through the proxy", 0, [1.0, 1.0]))
    rows["trace"] = json.dumps({"proxy_cpu_s": 0.2})
    assert findings.measure_rest(rows)["proxy-cpu"].centre == pytest.approx(0.2)
