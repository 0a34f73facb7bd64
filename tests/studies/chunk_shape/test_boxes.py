"""Ranks of chunk shapes for boxes: what is compared, fitted, measured and concluded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers.models.access import Store
from helpers.netem.profiles import get_profile
from helpers.netem.proxy import open_proxy
from helpers.objectstore.testbed import Server, Testbed
from studies.chunk_shape import boxes
from studies.chunk_shape.ready import make_values
from tests.stores import make_location


def test_shapes_are_of_many_sizes_and_proportions() -> None:
    """Each of three sizes comes as a cube, drawn out and pressed flat; none is longer than the array."""
    shapes = boxes.spread_shapes()
    assert shapes[16, 128, 128] == "flat along time"
    assert [kind.split()[0] for kind in shapes.values()].count("a") == 3
    assert all(c <= n for shape in shapes for c, n in zip(shape, boxes._ARRAY, strict=True))
    assert not {*boxes._CALIBRATING} & {*shapes} - {(128, 128, 16)}


def test_boxes_are_read_in_each_shape(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round reads the same boxes in each shape, verified, beside what the fit predicts for these."""
    for name, value in {"_ARRAY": (32, 32, 32), "_N_ROUNDS": 2, "_N_EACH": 2}.items():
        monkeypatch.setattr(boxes, name, value)
    monkeypatch.setattr(boxes, "_BOX", boxes.Access("box", (8, 8, 8)))
    values, rng = make_values((32, 32, 32), np.dtype("float32"), 2.0), np.random.default_rng(1)
    near = make_location(server, "boxes")
    with open_proxy(str(near.endpoint_url), profile=get_profile("loopback")) as proxy:
        testbed = Testbed(near, near.through(proxy.endpoint_url), proxy)
        rows = pd.DataFrame(
            boxes.measure_boxes(testbed, Store(n_connections=10, chunk_s=5e-4), values, rng)
        )
    assert {*rows.groupby("chunk_shape").size()} == {2}
    assert (rows[["read_s", "predicted_s"]] > 0).all(axis=None)
    whole = rows.set_index("chunk_shape")["n_objects"]
    assert whole["32x32x32"].iloc[0] == 1


def test_ranks_are_judged_by_their_whole_interval(tmp_path: Path) -> None:
    """A prediction that orders shapes as measured is met, the contrary one missed."""
    lines = [
        {
            "chunk_shape": f"{k}x1x1",
            "proportions": "a cube",
            "n_objects": 1000,
            "predicted_s": k,
            "read_s": 0.1 * k + block / 1000,
            "round": block,
            "machine": "a machine",
            "measured": "today",
            "zarr": "3",
        }
        for k in range(1, 9)
        for block in range(4)
    ]
    rows, path = pd.DataFrame(lines), tmp_path / "boxes.csv"
    rows.to_csv(path, index=False)
    text = boxes.render_boxes(path)
    assert "rank correlation of 1 [1, 1] over 8 shapes; at least 0.9 is the target: met." in text
    assert "halves of the 4 rounds have 1;" in text and "on a machine, with zarr 3" in text
    assert text.count("\n| ") == 1 + 8
    rows.assign(predicted_s=9 - rows["predicted_s"]).to_csv(path, index=False)
    assert "at least 0.9 is the target: missed." in boxes.render_boxes(path)
    assert boxes.render_boxes(tmp_path / "none.csv").startswith("Not measured yet")


def test_a_box_asks_for_the_chunks_it_touches() -> None:
    """Eight where it crosses a border in each dimension."""
    asked = boxes.count_box((slice(3, 6),) * 3, (4, 4, 4), 4)
    assert (asked.n_chunks, asked.chunk_nbytes) == (8, 256)
    assert float(boxes.predict_median(Store(chunk_s=0.5), asked)) == 4
