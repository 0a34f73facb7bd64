"""The comparison of dilations: what it reads, tells and refuses; how long it takes is its result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from helpers.errors import UserError
from helpers.netem.profiles import FirstByte, Profile
from studies.cluster_scaling.validity import Workload, measure, render_validity

FAST = Profile("fast", FirstByte(0.002, 0.002), stream_mb_per_s=50.0)
FEW = Workload(4, 50_000, n_connections=2)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path / "cache"))


def test_reads_are_told_in_virtual_time_beside_arithmetic() -> None:
    """No read is shorter than the network's virtual time, with what the processor needs of it."""
    plan = ((1, 0.0), (5, 0.0), (5, 0.02))
    rows = measure(FAST, plan, workload=FEW, n_rounds=2)
    assert rows["dilation"].tolist() == [1, 5, 5, 5, 5, 1], "the order turns"
    # two waves of 2 ms and 1 for 50 kB; then the processor is busy from the first one on
    assert rows["predicted_s"].round(6).tolist() == [0.006, 0.006, 0.019, 0.006, 0.019, 0.006]
    assert (rows["read_s"] > rows["predicted_s"] - 0.0005).all()
    assert (rows["first_byte_s"] > 0.0019).all() and (rows["body_s"] > 0.0009).all()


@pytest.mark.parametrize(
    ("profile", "plan", "n_rounds", "says"),
    [
        (FAST, (), 1, "dilations, n_rounds: .*; allowed: one or more of each"),
        (FAST, ((1, 0.0),), 0, "dilations, n_rounds: .*; allowed: one or more of each"),
        (FAST, ((0.5, 0.0),), 1, "^dilation is 0.5; allowed"),
        (FAST, ((float("nan"), 0.0),), 1, "^dilation is nan; allowed"),
        # not to be predicted by hand
        (Profile("p", FirstByte(0.1, 0.2), stream_mb_per_s=1), ((1, 0.0),), 1, "^profile: 'p'"),
    ],
)
def test_no_comparison_without_dilations(
    profile: Profile, plan: Any, n_rounds: int, says: str
) -> None:
    """What cannot be compared is refused in one line."""
    with pytest.raises(UserError, match=says):
        measure(profile, plan, n_rounds=n_rounds)


def test_the_page_says_what_is_shown(tmp_path: Path) -> None:
    """Ratios stand with intervals, and what is not shown to be one within the bar is named."""
    path = tmp_path / "dilation.csv"
    assert "Not measured yet" in render_validity(path)
    lines = [
        (i, k, used, 0.7 + used, (0.7 + used) * (1 + 0.001 * i) * (1.2 if used and k == 4 else 1))
        for i in range(4)
        for k in (1, 2, 4)
        for used in (0.0, 0.1)
    ]
    rows = pd.DataFrame(
        lines, columns=["round", "dilation", "processor_s", "predicted_s", "read_s"]
    )
    rows.assign(machine="2 cores, X", measured="2026-01-02").to_csv(path, index=False)
    told = render_validity(path)
    assert "| 4 | 0.7 | 0.701 | 1 (1 to 1) |" in told
    assert "| 4 | 0.8 | 0.961 | 1.2 (1.2 to 1.21) |" in told
    assert "All intervals lie within 5 % of 1.\n" in told
    assert "Not within 5 % of 1 is the interval at 4.\n" in told
    assert told.endswith("Measured on 2026-01-02 in 4 rounds, on 2 cores, X.\n")
