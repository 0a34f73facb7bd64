"""What a page of cluster scaling finds: fair rows, knees, parts of an array, ratios by threads."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from helpers.arrays.stores import StoredArray
from helpers.benchmark.statistics import Comparison, Interval, add_throughputs
from studies.cluster_scaling import findings
from studies.cluster_scaling.findings import judge_gain
from tests.refusals import refused
from wire.bed.locations import parse_location

GROWS = judge_gain(Interval(1.3, 1.2, 1.4, 5), 1.05)
ENDED = judge_gain(Interval(1.01, 0.97, 1.05, 5), 1.05)
FALLS = judge_gain(Interval(0.8, 0.7, 0.9, 5), 1.05)
UNDECIDED = judge_gain(Interval(1.1, 0.9, 1.3, 5), 1.05)


@pytest.mark.parametrize(
    ("first", "second", "knee"),
    [
        (GROWS, GROWS, None),
        (GROWS, ENDED, 4),
        (ENDED, ENDED, 2),
        (GROWS, FALLS, 4),
        (ENDED, GROWS, None),
        (GROWS, UNDECIDED, None),
        (UNDECIDED, ENDED, 4),  # what is shown, and no more
    ],
)
def test_a_knee_is_where_no_step_gains(
    first: Comparison, second: Comparison, knee: int | None
) -> None:
    """Growth ends where it was shown to; another contender's steps do not count."""
    gains = {("a", 4, 8): second, ("a", 2, 4): first, ("b", 4, 8): ENDED}
    assert findings.find_knee(gains, "a") == knee
    assert findings.find_knee({}, "a") is None


def make_rows(**changed: Any) -> pd.DataFrame:
    """Make rows of netCDF and s3fs at two sizes; the changed cells are those of the last row."""
    lines: list[dict[str, Any]] = [
        {
            "contender": name, "n_workers": n, "concurrency": 2 * n, "point": json.dumps({"n_workers": n}),
            "block": block, "phase": "measured", "is_ceiling": False, "control_of": "",
            "codec": "zstd", "cache_state": "cold", "array_nbytes": 100, "stored_nbytes": 50,
            "wire_nbytes": 100, "n_requests": 8, "read_s": seconds / n,
            "trace": json.dumps({"n_open_requests": 1, "mean_in_flight": n, "max_in_flight": 2 * n}),
        }
        for block in range(3)
        for n in (1, 2)
        for name, seconds in ((findings.NETCDF, 3.0 + block), (findings.OF_2020, 1.0 + block / 3))
    ]  # fmt: skip
    lines[-1] |= changed
    return pd.DataFrame(lines)


@pytest.mark.parametrize(
    ("name", "value"),
    [("codec", "lz4"), ("concurrency", 7), ("cache_state", "warm"), ("array_nbytes", 9)],
)
def test_contenders_that_differ_are_refused(name: str, value: Any) -> None:
    """At one point all contenders have the same settings; points may differ."""
    findings.check_fair(make_rows())
    with refused(name, allowed="^the same of all contenders$"):
        findings.check_fair(make_rows(**{name: value}))
    findings.check_fair(make_rows(**{name: value, "is_ceiling": True}))  # it decodes nothing


def test_ratios_stand_by_threads_next_to_the_published_ones() -> None:
    """Zarr over netCDF is paired in blocks; where one was not measured only the published ones stand."""
    ratios = findings.measure_ratios(make_rows())
    ours = ratios[ratios["where"] == "here"]
    assert list(ours["threads"]) == [2, 4] and list(ours["ratio"].round(6)) == [3, 3]
    theirs = findings.measure_ratios(make_rows().query("contender != 'netcdf-fsspec'"))
    assert {*theirs["where"]} == {"published, 2020"} and theirs["ratio"].between(4, 12).all()


def test_requests_stand_by_chunk_and_thread() -> None:
    """Requests a chunk, bytes over those stored and requests in flight are those of the trace."""
    top = make_rows().query("n_workers == 2")
    table = findings.tabulate_requests(top, n_chunks=4)
    assert [*table.loc[findings.NETCDF]] == [2, 2, 1, 0.5, 1]
    untraced = findings.tabulate_requests(top.assign(trace="{}"), n_chunks=4)
    assert list(untraced) == ["not traced"]


def test_a_cluster_reads_its_part_of_an_array() -> None:
    """The first steps of an array have their own chunks, checksums and share of the stored bytes."""
    sums = np.arange(8 * 2, dtype=np.uint64).reshape(8, 2, 1, 1)
    whole = StoredArray(parse_location("s3://bucket/a"), "t", (16, 4, 10, 10), (2, 2, 10, 10), "none", sums, {"zarr": 6400})  # fmt: skip
    part = findings.take_steps(whole, 4)
    assert part.shape == (4, 4, 10, 10) and part.n_chunks == 4
    assert part.stored_nbytes == {"zarr": 1600} and (part.checksums == sums[:2]).all()
    assert findings.take_steps(whole, 16).n_chunks == 16
    table = findings.describe_array(whole)
    assert table.loc["zarr", "n_chunks"] == 16 and table.loc["zarr", "ratio"] == 4


def test_busy_processors_are_a_share_of_all() -> None:
    """Three seconds of two processors in two real ones are three quarters of what there was."""
    rows = make_rows().assign(
        machine=json.dumps({"n_cores": 2}), real_open_s=0.5, real_read_s=1.5,
        trace=json.dumps({"busy_s": 3.0}),
    )  # fmt: skip
    busy = findings.measure_busy(rows)
    assert busy[findings.NETCDF, 2] == pytest.approx(75) and len(busy) == 4
    assert findings.measure_busy(rows.assign(trace="{}")).isna().all()


def test_growth_is_told_next_to_that_of_raw_reads() -> None:
    """A reader that grows twofold where raw reads grow fourfold has half of their growth."""
    rows = make_rows().query(f"contender == '{findings.NETCDF}'").assign(case="in-region")
    raw = rows.assign(contender="raw", is_ceiling=True)
    raw["read_s"] = rows["read_s"] / rows["n_workers"]
    found = findings.compare_growth(
        add_throughputs(pd.concat([rows, raw], ignore_index=True)), findings.NETCDF, 1, 2
    )
    assert found.centre == pytest.approx(0.5) and found.n == 3


def test_a_reader_is_judged_by_its_own_gain() -> None:
    """One that takes half as long as the defaults gains twice, and is faster."""
    lines = [
        {"contender": name, "control_of": of, "block": block, "phase": "measured", "s_per_gb": seconds}
        for block in range(4)
        for name, of, seconds in (
            (findings.TODAY, "", 2.0 + block / 100),
            ("control", findings.TODAY, 2.0),
            (findings.OBSTORE, "", 1.0),
        )
    ]  # fmt: skip
    found = findings.compare_gain(pd.DataFrame(lines), findings.OBSTORE, control="control")
    assert found.ratio.centre == pytest.approx(2, rel=0.02) and found.verdict == "faster"


def test_a_law_is_tabulated_or_refused() -> None:
    """Seconds with a head and a unit; arrays that grow with the cluster say which run helps."""
    rows = pd.DataFrame({"n_workers": [1, 2, 4], "read_s": [41.0, 21.0, 11.0]})
    table = findings.tabulate_fit(rows, {1: 20, 2: 20, 4: 20}, slots=1, sizes=[8])
    assert table.loc[8, "90 % of runs from (s)"] <= 6 <= table.loc[8, "to (s)"]
    grown = findings.tabulate_fit(rows, {1: 20, 2: 40, 4: 80}, slots=1, sizes=[8])
    assert "one of 4 workers with 20 chunks" in grown.loc["why"].iloc[0]


@pytest.mark.parametrize(
    ("ratio", "noise", "verdict"),
    [
        (Interval(1.17, 1.13, 1.19, 5), 1.05, "grows"),
        (Interval(0.80, 0.75, 0.85, 5), 1.05, "falls"),
        (Interval(1.01, 0.97, 1.05, 5), 1.05, "ended"),
        (Interval(1.02, 1.01, 1.03, 5), 1.05, "ended"),  # a gain, but inside the noise
        (Interval(1.05, 1.03, 1.07, 5), 1.01, "grows"),  # small and shown is not ended
        (Interval(1.15, 0.95, 1.39, 5), 1.05, "undecided"),  # not shown is not ended
        (Interval(1.00, math.nan, math.nan, 1), 1.05, "undecided"),
        (Interval(1.00, 0.99, 1.01, 5), math.nan, "undecided"),
    ],
)
def test_that_growth_ended_has_to_be_shown(ratio: Interval, noise: float, verdict: str) -> None:
    """What cannot be told apart from no gain may still be one."""
    assert judge_gain(ratio, noise).verdict == verdict
