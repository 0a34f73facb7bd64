"""What is concluded from the rows of chunk shapes, worked out by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

from helpers.benchmark import statistics
from helpers.findings import NOISE, read_findings
from helpers.paths import ROOT
from studies.chunk_shape import findings, prediction
from studies.chunk_shape.layouts import RULES

RULE = RULES[0]
ACCESSES = ("series", "slice", "box")
FOUND = sorted((ROOT / "results" / "reference" / "chunk-shape").glob("*.findings.csv"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_the_noise_of_a_page_is_a_number(path: object) -> None:
    """It was parsed from text that began otherwise, so that no page could be unstable."""
    assert read_findings(path)[NOISE].value > 0  # type: ignore[arg-type]


def make_rows(
    times: dict[str, tuple[float, float]], *, copy: float = 1.0, spread: float = 0.01
) -> pd.DataFrame:
    """Make five blocks of layouts whose series and slice take so long; the rule has a copy."""
    times = {**times, "control": tuple(copy * s for s in times[RULE])}  # type: ignore[dict-item]
    lines = []
    for i, (name, pair) in enumerate(times.items()):
        for block in range(5):
            for access, s in zip(ACCESSES, (*pair, 1), strict=True):
                later = s * (1 + spread * ((block + i) % 5 - 2))
                trace = {"box_s": [9.0, later], "boxes": [2 * block, 2 * block + 1], "n_apart": 3}
                lines.append((name, block, access, json.dumps(trace)))
    rows = pd.DataFrame(lines, columns=["contender", "block", "access", "trace"])
    control = np.where(rows["contender"] == "control", RULE, "")
    return rows.assign(medium="hdf5", phase="measured", control_of=control, is_ceiling=False)


def test_the_noise_is_that_of_what_is_judged() -> None:
    """A copy of the rule that takes a fifth longer makes a page unstable."""
    blocks = findings.time_blocks(make_rows({RULE: (1.0, 2.0)}, copy=1.2))
    noise = statistics.noise_ratio(blocks, "control", value=findings.MIX)
    assert noise == pytest.approx(1.2, rel=0.02)


GAINS = [
    # times of series and slice: of the rule, of ours; gain of the mix, and in the worst access
    ((4.0, 1.0), (2.0, 2.0), 5 / 4, 2.0),
    ((1.0, 4.0), (4.0, 1.0), 1.0, 1.0),  # each has a slower access
]


@pytest.mark.parametrize(("rule", "ours", "equal", "worst"), GAINS)
def test_gains_are_those_of_the_pattern(
    rule: tuple[float, float], ours: tuple[float, float], equal: float, worst: float
) -> None:
    """Means of both accesses, and the slower access of each layout."""
    blocks = findings.time_blocks(make_rows({RULE: rule, "ours": ours}))
    for pattern, gain in {findings.MIX: equal, "worst access": worst}.items():
        found = statistics.paired_ratio(blocks, RULE, "ours", value=pattern)
        assert found.centre == pytest.approx(gain, rel=0.02)
        assert found.low < gain < found.high < 1.1 * found.low
    assert blocks.loc[blocks["contender"] == "ours", "bias"].median() == pytest.approx(
        max(ours) / min(ours), rel=0.03
    )


def test_two_copies_take_the_best_of_each_access() -> None:
    """Series from the layout that is fast for series, slices from the other."""
    times = {RULE: (2.0, 2.0), "a time step": (9.0, 1.0), "columns": (0.5, 8.0)}
    both = findings.add_two_copies(findings.time_blocks(make_rows(times)))
    found = statistics.paired_ratio(both, RULE, findings.TWO_COPIES, value="equal mix")
    assert found.centre == pytest.approx(2 / 0.75, rel=0.03)


def test_reads_of_all_blocks_are_pooled() -> None:
    """First reads stand apart, and a position counts once."""
    rows = make_rows({RULE: (1.0, 2.0)}, spread=0.1)
    found = prediction.pool(rows).set_index(prediction.PAIR).xs(("hdf5", RULE, "series"))
    assert (found["p50_s"], found["n_positions"]) == (1.0, 10)


def test_the_prediction_has_intervals_over_layouts() -> None:
    """One layout that is predicted badly widens both; what has no prediction is left out."""
    rng = np.random.default_rng(1)
    lines = [
        {"contender": name, "access": access, "p50_s": s, "predicted_s": s * factor}
        for name, factor in {"a": 1.05, "b": 0.95, "c": 1.05, "d": 9.0, "flat": math.nan}.items()
        for access, s in zip(ACCESSES, rng.uniform(1, 5, 3), strict=True)
    ]
    table = pd.DataFrame(lines)
    table["relative_error"] = table["predicted_s"] / table["p50_s"] - 1
    error, rank = prediction.judge(table)
    assert error.low == pytest.approx(0.05) and error.centre < 1 < error.high
    assert rank.low < rank.centre < rank.high


def test_traffic_is_counted_by_the_box() -> None:
    """Requests over the wire where they were traced, else chunks."""
    traced = {"n_boxes": 4, "n_chunks": 3.0, "decoded_nbytes": 80}
    rows = pd.DataFrame(
        {
            "medium": ["zarr", "hdf5"],
            "contender": RULE,
            "access": "series",
            "phase": "measured",
            "control_of": "",
            "is_ceiling": False,
            "n_requests": [20.0, math.nan],
            "wire_nbytes": [120.0, math.nan],
            "array_nbytes": 40,
            "trace": json.dumps(traced),
        }
    )
    found = findings.count_traffic(rows)
    assert found["requests"]["series"].tolist() == [5.0, 3.0]
    assert found["over_read"]["series"].tolist() == [3.0, 2.0]
