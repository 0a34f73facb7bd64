"""What was published of the two drivers, and ours laid over it."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from studies.hdf5_drivers import two_drivers as study


def test_the_study_has_twenty_times_over_its_baseline() -> None:
    """By hand: 75.8 s of ROS3 at its best and 113.6 s of fsspec, of 2062 s."""
    found = study.read_study().set_index(["driver", "layout"])["over"]
    assert len(found) == 20 and found["fsspec-none", "original"] == 1
    assert found["ros3-tuned", "rechunked-8mib"] == pytest.approx(0.0368, abs=1e-4)
    assert found["fsspec-tuned", "paged-8mib"] == pytest.approx(0.0551, abs=1e-4)
    assert found["ros3-tuned", "original"] > 0.9  # its second row


def make_rows(**seconds: float) -> pd.DataFrame:
    """Make rows of two blocks of drivers on the original, and a copy of the first."""
    names = [*seconds, "control"]
    lines = [
        {
            "contender": name.replace("_", "-"), "control_of": "fsspec-none" * (name == "control"),
            "layout": "original", "task": "variables", "phase": "measured", "block": block,
            "open_s": 0.0, "read_s": seconds.get(name, 10.0) * (1 + 0.01 * block),
            "trace": json.dumps({"all_requests": 7}),
        }
        for name in names for block in (0, 1)
    ]  # fmt: skip
    return pd.DataFrame(lines)


def test_ours_is_laid_over_the_baseline_and_compared() -> None:
    """A driver that takes half of the baseline; what was not measured is no finding."""
    rows = make_rows(fsspec_none=10.0, ros3_none=5.0)
    ours = study.scale(rows).set_index("driver")["over"]
    assert ours["ros3-none"] == pytest.approx(0.5) and ours["fsspec-none"] == 1
    found = study.find_all(rows)
    assert found["no-cache-original"].value == pytest.approx(2.0)
    assert found["requests-ros3"].value == 7
    assert not {key for key in found if key.startswith(("equal", "gain", "paged"))}
    assert {key: one.holds for key, one in study.judge_claims(found).items()} == {
        "same-requests": True
    }
