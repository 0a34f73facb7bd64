"""Costs of a disk that made the times of accesses come back from a fit."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.models.access import IoCounts, Store
from helpers.netem.profiles import get_profile, of_one_process
from studies.chunk_shape.layouts import ChunkLayout, make_accesses
from studies.chunk_shape.prediction import (
    describe_stores,
    fit_disk,
    predict_defaults,
    predict_median,
)
from studies.chunk_shape.workload import HyperslabRead, Hyperslabs

POINTS = [
    # chunks, their bytes, seeks
    (1, 1e3, 1), (10, 1e6, 2), (100, 1e5, 7), (300, 1e4, 4), (5, 1e7, 5), (40, 1, 40),
]  # fmt: skip


def make_read(loads: list[IoCounts], name: str = "a", n_each: int = 1) -> HyperslabRead:
    """Make a read of as many positions, each of which asks for so much."""
    places: list[tuple[slice, ...]] = [(slice(i, i + 1),) for i in range(len(loads))]
    boxes = Hyperslabs(places, 6, [*range(len(loads))], n_each)
    access, one = make_accesses((10, 10, 10))[0], ChunkLayout(name, (1, 1, 1))
    return HyperslabRead("hdf5", one, access, boxes, loads, dict, lambda array, _box: array)


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-4, 0.1), st.floats(1e-5, 1e-2), st.floats(1e-10, 1e-8), st.floats(1e-4, 1e-2))
def test_a_fit_finds_what_made_the_times(
    start_s: float, chunk_s: float, byte_s: float, seek_s: float
) -> None:
    """Times come back from the costs that made them."""
    costs = {"start_s": start_s, "chunk_s": chunk_s, "decode_s_per_nbyte": byte_s}
    made = Store(is_file=True, request_s=seek_s, **costs)  # type: ignore[arg-type]
    reads = [make_read([IoCounts(*one)], str(i)) for i, one in enumerate(POINTS)]
    lines = [
        {
            "medium": "hdf5",
            "contender": read.layout.name,
            "access": "series",
            "phase": "calibration",
            "trace": json.dumps({"boxes": [0], "box_s": [predict_median(made, read)]}),
        }
        for read in reads
    ]
    fitted = fit_disk(pd.DataFrame(lines), reads)
    for read in reads:
        assert predict_median(fitted, read) == pytest.approx(predict_median(made, read), rel=0.01)


def test_the_median_is_over_accesses_without_the_first() -> None:
    """Of what is left the middle one counts."""
    loads = [IoCounts(n, 10, 1) for n in (99, 1, 2, 9)]
    assert predict_median(Store(chunk_s=1.0), make_read(loads, n_each=4)) == 2


def test_the_price_of_defaults_depends_on_the_array() -> None:
    """Two padded chunks of 134 MB by one stream each, over a wave of ten; of the reanalysis more."""
    profile = of_one_process(get_profile("in-region"))
    stores = describe_stores(["zarr"], pd.DataFrame(), [], profile)
    small, large = predict_defaults(stores, [6, 1]).itertuples()
    assert small.default_s == pytest.approx(134.2 / 86 + 0.026, rel=0.02)
    assert small.ours_s == pytest.approx(0.026 + 18.1 / 500, rel=0.1)
    assert large.Index > 200 * small.Index and large.ratio > 2 * small.ratio
    assert predict_defaults({}, [6]).empty
