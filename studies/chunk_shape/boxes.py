"""How well boxes are ranked: chunk shapes of many sizes and proportions, predicted and measured.

`python -m studies.chunk_shape.boxes` measures for some fifteen minutes and writes the record that the
page on chunk shape shows. Layouts of a case take times for boxes that are much alike, so that ranks
among them are chance; these are further apart.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from advisors.chunks.problem import Access
from helpers.arrays.chunks import Shape, count_chunks
from helpers.benchmark.statistics import Interval
from helpers.book.studies import write_table
from helpers.models.access import Store, predict_median
from helpers.netem.profiles import network_of
from helpers.objectstore.testbed import Testbed, open_testbed
from helpers.paths import ROOT
from helpers.plotting.tables import digits
from studies.chunk_shape.ready import (
    N_CONNECTIONS,
    SCATTERED,
    calibrate,
    count_box,
    draw_box,
    make_values,
    open_layout,
    read_once,
    stamp,
    write_layout,
)
from studies.chunk_shape.sentences import judge_target, tell_interval
from studies.chunk_shape.workload import stack

RECORD = ROOT / "results" / "reference" / "boxes.csv"
RANKED = 0.9
"""The rank correlation that predictions are to have at least."""

_ARRAY: Shape = (1152, 256, 256)  # of 4 bytes, some 300 MB
_BOX = Access("box", (64, 64, 64))
_RATIO = 2.0  # bytes in the array over those stored
_N_ROUNDS, _N_EACH = 20, 8  # boxes of a round, after one that connects
_CALIBRATING: tuple[Shape, ...] = ((16, 16, 64), (16, 64, 64), (64, 32, 128), (128, 128, 64))
_N_CALIBRATING = 12  # boxes


def spread_shapes() -> dict[Shape, str]:
    """List chunk shapes of three sizes: cubes, and those drawn out or pressed flat along a dimension."""
    found: dict[Shape, str] = {}
    for exponent in (5, 6, 7):
        found[(2**exponent,) * 3] = "a cube"
        for axis in range(3):
            for name, by, others in (("long", 2, -1), ("flat", -2, 1)):
                exponents = [exponent + (by if at == axis else others) for at in range(3)]
                shape = tuple(min(2**e, n) for e, n in zip(exponents, _ARRAY, strict=True))
                found[shape] = f"{name} along {['time', 'y', 'x'][axis]}"
    return found


def measure_boxes(
    testbed: Testbed, store: Store, values: NDArray[np.generic], rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """Measure every shape: a row a round, by a new client, each time the median of the same boxes.

    Some boxes touch twice the chunks of others, so that a median of all says less of a shape.
    """
    shapes = spread_shapes()
    rounds = [[draw_box(_BOX, _ARRAY, rng) for _ in range(1 + _N_EACH)] for _ in range(_N_ROUNDS)]
    places = {shape: f"boxes-{at}" for at, shape in enumerate(shapes)}
    for shape, place in places.items():
        write_layout(testbed.near / place, values, shape)
    for number, boxes in enumerate(rounds):
        for at in rng.permutation(len(shapes)):
            shape = [*shapes][at]
            array = open_layout(testbed.far / places[shape])
            asked = [count_box(box, shape, values.dtype.itemsize) for box in boxes[1:]]
            yield {
                "chunk_shape": "x".join(map(str, shape)),
                "proportions": shapes[shape],
                "n_objects": count_chunks(_ARRAY, shape),
                "chunk_ms": 1e3 * store.chunk_s,
                "decode_ms_per_mb": 1e9 * store.decode_s_per_nbyte,
                "predicted_s": predict_median(store, stack(asked)),
                "round": number,
                "read_s": float(np.median([read_once(array, box, values) for box in boxes][1:])),
            }
    for place in places.values():
        (testbed.near / place).clear()


def measure() -> pd.DataFrame:
    """Calibrate without a network, then measure over that of the cases; what was written is removed."""
    rng = np.random.default_rng(0)
    values = make_values(_ARRAY, np.dtype("float32"), _RATIO)
    with open_testbed("embedded", SCATTERED, needed_nbytes=20 * values.nbytes) as testbed:
        bare = Store(n_connections=N_CONNECTIONS, compression_ratio=_RATIO)
        near = testbed.near
        costs = calibrate(near, values, [_BOX], _CALIBRATING, bare, n_each=_N_CALIBRATING)
        store = replace(costs, network=network_of(SCATTERED))
        return pd.DataFrame(measure_boxes(testbed, store, values, rng))


def rank_correlation(rows: pd.DataFrame) -> Interval:
    """Correlate the ranks of predicted and measured times; the 95 % interval resamples shapes."""
    pairs = rows.groupby("chunk_shape")[["predicted_s", "read_s"]].mean()

    def correlate(predicted: Any, measured: Any) -> float:
        return float(stats.spearmanr(predicted, measured).statistic)

    found = stats.bootstrap(
        (pairs["predicted_s"], pairs["read_s"]),
        correlate,
        paired=True,
        vectorized=False,
        n_resamples=1000,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    centre = correlate(pairs["predicted_s"], pairs["read_s"])
    return Interval(centre, float(found.low), float(found.high), len(pairs))


def render_boxes(path: Path = RECORD) -> str:
    """Write the shapes as a table, the rank correlation, its verdict, and what was measured where."""
    if not path.exists():
        return "Not measured yet; `python -m studies.chunk_shape.boxes` does it.\n"
    rows = pd.read_csv(path)
    told = rows.iloc[0]
    by = ["chunk_shape", "proportions", "n_objects"]
    means = rows.groupby(by)[["predicted_s", "read_s"]].mean().reset_index()
    lines = [
        (
            one["chunk_shape"].replace("x", " \u00d7 "),
            one["proportions"],
            f"{one['n_objects']:,}",
            *(digits(1000 * one[name], n=3) for name in ("predicted_s", "read_s")),
        )
        for _, one in means.sort_values("predicted_s").iterrows()
    ]
    titles = ("chunks", "proportions", "objects", "predicted (ms)", "measured (ms)")
    rank = rank_correlation(rows)
    times = rows.pivot(index="round", columns="chunk_shape", values="read_s")
    halves = float(times[::2].mean().corr(times[1::2].mean(), method="spearman"))
    error = float((means["predicted_s"] / means["read_s"] - 1).abs().median())
    return (
        f"{write_table(titles, lines)}\n"
        f"Predicted and measured times have a rank correlation of {tell_interval(rank)} over {rank.n}"
        f" shapes; at least {RANKED:g} is the target: {judge_target(rank, [(RANKED, 1.0)])}.\n"
        f"Two halves of the {len(times)} rounds have {digits(halves, n=3)}; the median error of the"
        f" prediction is {digits(100 * error)} %.\n"
        f"Measured on {told['measured']} over the network {SCATTERED.name}, on {told['machine']}, with zarr"
        f" {told['zarr']}.\n"
    )


if __name__ == "__main__":
    stamp(measure()).to_csv(RECORD, index=False, lineterminator="\n")
    print(render_boxes(), file=sys.stderr)
