"""What is concluded from the rows of chunk shapes, worked out by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

from helpers.benchmark import statistics
from studies.chunk_shape import findings, prediction
from studies.chunk_shape.layouts import RULES
from wire.bed.networks import get_profile
from wire.models.access import Store
from wire.models.transfer import network_of

RULE = RULES[0]
ACCESSES = ("series", "slice", "box")


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


@pytest.mark.parametrize(
    ("rule", "ours", "gain"),
    [((4.0, 1.0), (2.0, 2.0), 5 / 4), ((1.0, 4.0), (4.0, 1.0), 1.0)],  # series, slice
)
def test_a_gain_is_that_of_the_mix(
    rule: tuple[float, float], ours: tuple[float, float], gain: float
) -> None:
    """Means of both accesses, with the noise of a copy that takes a fifth longer."""
    blocks = findings.time_blocks(make_rows({RULE: rule, "ours": ours}, copy=1.2))
    found = statistics.paired_ratio(blocks, RULE, "ours", value=findings.MIX)
    assert found.centre == pytest.approx(gain, rel=0.02)
    assert found.low < gain < found.high < 1.1 * found.low
    assert found.noise == pytest.approx(1.2, rel=0.02)
    biases = blocks.loc[blocks["contender"] == "ours", "bias"]
    assert biases.median() == pytest.approx(max(ours) / min(ours), rel=0.03)


def test_bytes_and_proportions_are_judged_with_the_other_held() -> None:
    """A default that differs in both says nothing of either."""
    times = {RULE: (2.2, 2.2), RULES[1]: (2.0, 2.0), "ours": (1.5, 1.5), "dask auto": (40.0, 40.0)}
    times |= {"whole series": (1.0, 9.0), "whole slices": (12.0, 1.0)}
    blocks = findings.time_blocks(make_rows(times))
    over = {name: one for (_, name), one in findings.compare_layouts(blocks).items()}
    gains = findings.contrast(blocks, over)
    expected = {"bytes": 1.1, "proportions": 2 / 1.5, "bad proportions": 5 / 2}
    assert {name: gain.centre for name, gain in gains.items()} == pytest.approx(expected, rel=0.03)
    assert gains["bytes"].quantity == f"{RULE} over {RULES[1]}, {findings.MIX}"
    times[RULE] = (1.6, 1.6)  # the largest is the best now, and is not compared with itself
    blocks = findings.time_blocks(make_rows(times))
    over = {name: one for (_, name), one in findings.compare_layouts(blocks).items()}
    assert findings.contrast(blocks, over)["bytes"].centre == pytest.approx(2 / 1.6, rel=0.03)


def test_two_copies_take_the_best_of_each_access() -> None:
    """Series from the layout that is fast for series, slices from the other."""
    times = {RULE: (2.0, 2.0), "a time step": (9.0, 1.0), "columns": (0.5, 8.0)}
    found = findings.gain_two_copies(findings.time_blocks(make_rows(times)), RULE)
    assert found.centre == pytest.approx(2 / 0.75, rel=0.03)


def test_reads_of_all_blocks_are_pooled() -> None:
    """First reads stand apart, and a position counts once."""
    rows = make_rows({RULE: (1.0, 2.0)}, spread=0.1)
    found = prediction.pool(rows).set_index(prediction.PAIR).xs(("hdf5", RULE, "series"))
    assert (found["p50_s"], found["n_positions"]) == (1.0, 10)


def test_a_layout_counts_once_in_the_error_of_the_prediction() -> None:
    """One layout that is predicted badly widens the interval; what has no prediction is left out."""
    factors = {"a": 1.05, "b": 0.95, "c": 1.05, "d": 9.0, "flat": math.nan}
    lines = [
        (name, 1.0 + i, factor * (1.0 + i)) for name, factor in factors.items() for i in range(3)
    ]
    table = pd.DataFrame(lines, columns=["contender", "p50_s", "predicted_s"])
    table["relative_error"] = table["predicted_s"] / table["p50_s"] - 1
    error, rank = prediction.judge(table)
    assert (error.centre, error.n) == (pytest.approx(0.05), 4) and error.high > 1
    assert 0 < rank < 1 and prediction.judge(table[table["contender"] == "a"])[1] == 1


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


def test_long_chunks_suit_time_series_and_flat_ones_maps() -> None:
    """At equal bytes the predicted time of one falls with the length of a chunk, and that of the other rises."""
    store = Store(network_of(get_profile("in-region")), 10)
    curves = prediction.predict_proportions(store, (2000, 40, 50), (200, 20, 25))
    assert list(curves.columns) == ["n_steps", "series", "slice"]
    assert curves["series"].iloc[0] > 3 * curves["series"].iloc[-1]
    assert curves["slice"].iloc[-1] > 3 * curves["slice"].iloc[0]


def test_marks_are_of_series_and_slices_of_zarr() -> None:
    """With the steps that their chunks hold."""
    pooled = pd.DataFrame(
        [
            ("zarr", "ours", "series", 1.0),
            ("zarr", "ours", "box", 1.0),
            ("hdf5", "ours", "slice", 1.0),
        ],
        columns=["medium", "contender", "access", "p50_s"],
    )
    marks = findings.add_steps(pooled, {"ours": (30, 2, 2), "contiguous": None})
    assert marks[["layout", "n_steps"]].to_numpy().tolist() == [["ours", 30]]
