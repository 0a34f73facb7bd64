"""What a page of cluster scaling says is judged: who is fastest, and whether growth ended."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest

from helpers.benchmark import ranking as rankings
from helpers.benchmark import statistics
from helpers.benchmark.record import read_records
from helpers.benchmark.statistics import Gain, Interval, judge_gain
from helpers.netem.profiles import get_profile
from helpers.paths import ROOT
from studies.cluster_scaling import findings

REFERENCE = ROOT / "results" / "reference" / "cluster-scaling"
LIMITS = pd.Series({2: "the latency", 4: "the stream", 8: "the link"})

GROWS = judge_gain(Interval(1.3, 1.2, 1.4, 5), 1.05)
ENDED = judge_gain(Interval(1.01, 0.97, 1.05, 5), 1.05)
FALLS = judge_gain(Interval(0.8, 0.7, 0.9, 5), 1.05)
UNDECIDED = judge_gain(Interval(1.1, 0.9, 1.3, 5), 1.05)


@pytest.mark.parametrize(
    ("first", "second", "knee", "told"),
    [
        (GROWS, GROWS, "none up to 8", "throughput still grows at 8 workers"),
        (GROWS, ENDED, "4", "growth ends at 4 workers"),
        (ENDED, ENDED, "2", "growth ends at 2 workers"),
        (GROWS, FALLS, "4", "growth ends at 4 workers"),
        (ENDED, GROWS, "none up to 8", "throughput still grows at 8 workers"),
        (GROWS, UNDECIDED, "undecided from 4 on", "whether throughput still grows from 4 to 8"),
        (UNDECIDED, ENDED, "4", "growth ends at 4 workers"),  # what is shown, and no more
    ],
)
def test_a_knee_is_where_no_step_gains(first: Gain, second: Gain, knee: str, told: str) -> None:
    """Growth ends where it was shown to; where it is undecided, the text says so."""
    gains = {("a", 4, 8): second, ("a", 2, 4): first, ("b", 4, 8): ENDED}
    assert findings.tell_knee(gains, "a") == knee
    text = findings.tell_scaling(gains, "a", LIMITS)
    assert text.startswith(told)
    assert f"{second.ratio.low:.3g} to {second.ratio.high:.3g}" in text


@pytest.mark.parametrize(
    ("dilation", "cores", "machine"),
    [
        (1.0, "", "2 cores, Some CPU"),
        (
            10.0,
            "as on 20 cores",
            "2 cores, Some CPU; as on 20 cores, because time is dilated 10 times",
        ),
    ],
)
def test_dilated_rows_say_what_they_stand_for(dilation: float, cores: str, machine: str) -> None:
    """Two cores whose network is ten times slower are as many as twenty."""
    facts = json.dumps({"n_cores": 2, "cpu": "Some CPU"})
    rows = pd.DataFrame({"dilation": [dilation], "machine": [facts]})
    assert findings.tell_cores(rows) == cores
    assert findings.tell_machine(rows) == machine


def test_one_size_has_no_growth() -> None:
    """Without a step nothing is said of growth; one block has a ratio and no interval."""
    assert findings.tell_knee({}, "a") == "not measured"
    assert findings.tell_scaling({}, "a", LIMITS).startswith("one size of the cluster")
    single = judge_gain(Interval(1.5, math.nan, math.nan, 1), math.nan)
    assert "1.5 times as fast as 4; the model" in findings.tell_scaling(
        {("a", 4, 8): single}, "a", LIMITS
    )


def judge(case: str) -> tuple[pd.DataFrame, rankings.Ranking, findings.Gains]:
    """Judge a reference record as the notebook does."""
    rows = statistics.add_throughputs(read_records([REFERENCE / f"{case}.csv"]))
    parameters = json.loads(rows["parameters"].iloc[0])
    ranking = rankings.rank(findings.select_rows(rows, n_workers=8), control="control")
    n = len(parameters["contenders"])
    gains = {
        (name, low, high): statistics.compare_points(
            rows, name, low, high, control="control", n_compared=n
        )
        for name in parameters["contenders"]
        for low, high in ((2, 4), (4, 8))
    }
    return rows, ranking, gains


TIED = ("zarr-obstore", "references")
"""Readers that no record of these two cases tells apart from the one with the shortest median."""


@pytest.mark.parametrize(
    ("case", "knee", "fastest"),
    [
        ("in-region", "none up to 8", {"zarr-obstore-in-place", *TIED}),
        ("other-region", "none up to 8", {"zarr-obstore-in-place", "zarr-s3fs-one-get", *TIED}),
        ("wide-area", "none up to 8", {"zarr-obstore-in-place", "zarr-s3fs-one-get"}),
    ],
)
def test_the_reference_says_what_its_record_shows(case: str, knee: str, fastest: set[str]) -> None:
    """No page names a winner or an end of growth that its record does not show."""
    rows, ranking, gains = judge(case)
    assert set(ranking.fastest) == fastest
    expected = pd.DataFrame(
        [(name, n, "shared link") for name in ranking.others for n in (2, 4, 8)]
        + [(ranking.best, n, "shared link") for n in (2, 4, 8)],
        columns=["contender", "n_workers", "limit"],
    )
    errors = pd.DataFrame({"relative_error": [0.1, -0.1]})
    found = findings.find_all(
        rows, expected, errors, ranking, gains, profile=get_profile("in-region")
    )
    assert found["knee-workers"] == knee
    assert found["verdict"].startswith(
        "With 8 workers zarr-obstore-in-place has the shortest median: "
    )
    assert found["verdict"].lower().endswith(f"{found['scaling']}.".lower())
    assert found["best-contender"].startswith("among the fastest: zarr-obstore-in-place, ")
    assert all(f"({name})" in found["best-reads"] for name in fastest)
    assert "less than can be told apart" not in found["scaling"]
    assert found["ratio-best-to-netcdf"].replace(".", "").isdigit()


def test_a_ratio_that_is_no_difference_says_so() -> None:
    """A factor is told with its verdict; one of the best with itself is one."""
    even = statistics.judge(Interval(1.1, 0.9, 1.3, 5), 1.05)
    slower = statistics.judge(Interval(2.0, 1.8, 2.2, 5), 1.05)
    ranking = rankings.Ranking("a", ("a", "b"), {"b": even, "c": slower})
    told = [findings.tell_ratio(ranking, name) for name in "abcd"]
    assert told == ["1.0", "1.1 (cannot be told apart)", "2", "not measured"]


@pytest.mark.parametrize(
    ("n_bound", "n", "dilation", "told"),
    [
        (0, 3, 8.0, "none of the other readers is held up by processors 8 times as fast as this"),
        (3, 3, 1.0, "all 3 other readers are held up by this machine's processors, so ratios"),
        (1, 3, 1.0, "1 of the 3 other readers is held up by"),
        (1, 1, 2.0, "the only other reader is held up by processors 2 times as fast as"),
    ],
)
def test_all_and_none_are_called_so(n_bound: int, n: int, dilation: float, told: str) -> None:
    """Of the readers beside the best, those that wait for processors are counted in words."""
    limits = ["processors"] * n_bound + ["latency"] * (n - n_bound)
    rows = [("best", "processors"), ("raw", "processors"), *zip("abc", limits, strict=False)]
    expected = pd.DataFrame(rows, columns=["contender", "limit"])
    assert f"By the model {told}" in findings._tell_others(expected, "best", dilation=dilation)
