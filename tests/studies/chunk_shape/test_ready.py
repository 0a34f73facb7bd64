"""Checks of the advisor's shapes: what is compared, measured and concluded."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pandas as pd
import pytest

from advisors.chunks.examples import EXAMPLES
from advisors.chunks.problem import Access
from advisors.chunks.search import best_chunk_shape
from helpers.arrays.reads import WrongValuesError
from helpers.models.access import Store
from helpers.netem.profiles import get_profile
from helpers.netem.proxy import open_proxy
from helpers.objectstore.testbed import Server, Testbed
from studies.chunk_shape import ready
from tests.stores import make_location

SMALL = ready.Check((600, 40, 20), ("series", "4x40x20@aligned"))


@pytest.fixture
def rows(server: Server) -> pd.DataFrame:
    """Measure a small check in two rounds, with no network emulated."""
    near = make_location(server, "ready")
    with open_proxy(str(near.endpoint_url), profile=get_profile("loopback")) as proxy:
        testbed = Testbed(near, near.through(proxy.endpoint_url), proxy)
        return pd.DataFrame(ready.measure_check("era5", SMALL, testbed, n_rounds=2))


def test_a_check_is_measured_and_told(rows: pd.DataFrame, tmp_path: Path) -> None:
    """Each shape is read in each round or predicted only, under all its names; a table has all."""
    assert (rows[["chunk_ms", "decode_ms_per_mb"]].nunique() == 1).all()
    read = rows.dropna(subset="read_s")
    assert {*read.groupby("layout").size()} == {2}
    assert (read["read_s"] > 0).all()
    assert read["layout"].iloc[0]
    names = ", ".join({*rows["layout"]})
    for name in (ready.OURS, "Dask's auto", "Zarr's guess", "netCDF-C", "best for series alone"):
        assert name in names
    assert not rows.drop_duplicates(["layout", "chunk_shape"])["chunk_shape"].duplicated().any()
    path = tmp_path / "ready.csv"
    rows.assign(machine="a machine", measured="today", zarr="3").to_csv(path, index=False)
    text = ready.render_ready(path)
    assert text.count("\n| ") == 2 + rows["layout"].nunique()
    assert "Measured on today" in text and re.search(r"before: \d\S* ms a chunk and \d", text)
    is_best = ready.compare_best(rows)[0].startswith(ready.OURS)
    assert ("answer is the best measured in 2 rounds" in text, "1 (1 to 1)" in text) == (
        is_best,
        False,
    )
    both = pd.concat([rows, rows.assign(network="in-region")])
    both.assign(machine="a machine", measured="today", zarr="3").to_csv(path, index=False)
    assert ready.render_ready(path).count("over the network in-region, on a machine") == 1
    assert ready.render_ready(path).count("Measured on today over the network") == 2
    steady, scattered = ready.render_ready(path).split("where delays scatter, in the shapes")
    assert ("rank correlation" in steady, "is the target: " in steady) == (True, False)
    assert ("rank correlation" in scattered, "is the target: " in scattered) == (False, True)
    assert scattered.count("\n| ") == 2 + read["layout"].nunique()
    assert ready.render_ready(tmp_path / "none.csv").startswith("Not measured yet")


def test_only_what_is_known_is_measured() -> None:
    """A check that there is not is one line."""
    with pytest.raises(SystemExit, match=r"^error: era6; allowed: era5, sentinel-2, light-sheet,"):
        ready.main(["era6"])


def test_costs_are_fitted_on_other_boxes(server: Server) -> None:
    """A chunk costs time in any layout, and what costs were fitted on is removed."""
    near, access = make_location(server, "fitted"), Access("box", (20, 20))
    values = ready.make_values((200, 200), np.dtype("float32"), 2.0)
    bare = Store(n_connections=10, compression_ratio=2.0)
    costs = ready.calibrate(near, values, [access], [(5, 5), (20, 20), (200, 200)], bare)
    assert costs.chunk_s + costs.start_s > 0
    assert (costs.n_connections, costs.network) == (10, bare.network)
    assert not [*obstore.list(near.obstore())]
    shapes = ready._calibrating((1, 256, 768, 768), np.dtype("uint16"))
    nbytes = [2 * math.prod(shape) for shape in shapes]
    assert nbytes == sorted({*nbytes}) and nbytes[0] <= 1e5 < nbytes[-1] <= 6.4e6


class _Lying:
    chunks = (1, 1)

    def __getitem__(self, box: Any) -> Any:
        return np.zeros((2, 2))


def test_a_wrong_read_is_no_row() -> None:
    """What differs from what was written ends the measurement."""
    with pytest.raises(WrongValuesError, match="reads other values"):
        ready.read_once(_Lying(), (slice(0, 2),) * 2, np.ones((4, 4)))


def test_arrays_are_examples_scaled_down() -> None:
    """Each check is of an example, has its dimensions and as many accesses, and the wanted bits."""
    assert [*ready.CHECKS] == [*EXAMPLES]
    for name, check in ready.CHECKS.items():
        pattern, example = ready.make_pattern(name, check, Store()), EXAMPLES[name]
        assert len(check.shape) == len(example.shape)
        assert len(check.accesses) == len(example.accesses)
        assert 2e8 < pattern.nbytes < 4e8, name
    wide = ready.make_values((1000,), np.dtype("uint16"), 2.0)
    assert (wide.dtype, wide.max() < 256) == (np.dtype("uint16"), True)
    real = ready.make_values((1000,), np.dtype("float32"), 2.0)
    assert real.dtype == np.dtype("float32")
    assert 1 <= real.min() < real.max() < 2


def test_the_advisors_shape_comes_first_and_none_twice() -> None:
    """A shape of two names is one candidate."""
    pattern = ready.make_pattern("era5", SMALL, Store(chunk_s=5e-4, n_connections=10))
    found = best_chunk_shape(pattern)
    candidates = ready.list_candidates(pattern, found, np.dtype("float32"))
    first = next(iter(candidates.items()))
    assert first[0] == found.best.chunk_shape
    assert first[1].startswith(f"{ready.OURS}, the fastest predicted")


def test_boxes_lie_where_their_access_says() -> None:
    """Aligned ones start at multiples of their extent, others anywhere, none outside."""
    rng = np.random.default_rng(0)
    boxes = [
        ready.draw_box(Access("tile", (4, 3), is_aligned=True), (10, 10), rng) for _ in "x" * 40
    ]
    assert {(box[0].start, box[1].start) for box in boxes} == {
        (y, x) for y in (0, 4) for x in (0, 3, 6)
    }
    anywhere = {ready.draw_box(Access("box", (4,)), (10,), rng)[0].start for _ in range(200)}
    assert anywhere == {*range(7)}


@pytest.mark.parametrize(
    ("ours", "other", "verdict", "best"),
    [
        ([1.0, 1.0, 1.0, 1.0], [2.0, 2.1, 2.0, 2.1], "met", "ours"),  # it is the best
        ([1.02, 1.03, 1.02, 1.03], [1.0, 1.0, 1.0, 1.0], "met", "other"),
        ([1.2, 1.21, 1.2, 1.21], [1.0, 1.0, 1.0, 1.0], "missed", "other"),
        ([1.0, 1.2, 1.0, 1.2], [1.0, 1.0, 1.0, 1.0], "undecided", "other"),
    ],
)
def test_the_target_is_judged_by_the_whole_interval(
    ours: list[float], other: list[float], verdict: str, best: str
) -> None:
    """Ours may take a twentieth longer than the best measured, as far as rounds can tell."""
    rows = pd.DataFrame(
        [
            {"layout": layout, "round": at, "read_s": seconds}
            for layout, times in ((ready.OURS, ours), ("other", other))
            for at, seconds in enumerate(times)
        ]
    )
    found = ready.compare_best(rows)
    assert (found[2], found[0]) == (verdict, ready.OURS if best == "ours" else "other")
