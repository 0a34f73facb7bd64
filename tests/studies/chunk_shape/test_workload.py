"""Boxes read from layouts and verified, what they ask of a file, and costs that come back from a fit."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.benchmark.contender import CheckError
from studies.chunk_shape import layouts, prediction, workload
from studies.chunk_shape.layouts import ChunkLayout
from wire.bed.networks import get_profile, of_one_process
from wire.models.access import IoCounts, Store

SHAPE = (48, 12, 14)
STORED = ChunkLayout("a", (5, 3, 4))


def read_box(array: object, box: tuple[slice, ...]) -> np.ndarray:
    """Read as the notebook does."""
    return np.asarray(array[box])  # type: ignore[index]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> workload.ReadPlan:
    """Make a small array whose files go to a folder of their own."""
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path))
    values = layouts.make_sample(SHAPE, 3)
    return workload.ReadPlan(values, n_boxes=2, n_blocks=2, seed=3, read=read_box)


FILES = [
    # box, chunk shape, chunks, seeks
    ((slice(0, 40), slice(0, 1), slice(0, 1)), (10, 4, 4), 4, 4),  # a series: all apart
    ((slice(0, 1), slice(0, 8), slice(0, 8)), (10, 4, 4), 4, 1),  # a slice lies in one piece
    ((slice(0, 11), slice(0, 8), slice(0, 3)), (10, 4, 4), 4, 4),  # x is cut, so rows are apart
    ((slice(0, 40), slice(0, 8), slice(0, 8)), (10, 4, 4), 16, 1),  # the whole array
]


@pytest.mark.parametrize(("box", "chunk", "n_chunks", "n_seeks"), FILES)
def test_a_file_is_asked_for_chunks_and_seeks(
    box: tuple[slice, ...], chunk: tuple[int, ...], n_chunks: int, n_seeks: int
) -> None:
    """Counted by hand."""
    grid = tuple(-(-n // c) for n, c in zip((40, 8, 8), chunk, strict=True))
    starts = 8192 * np.arange(math.prod(grid)).reshape(grid)  # one after the other
    index = workload.ChunkIndex(starts, np.full(grid, 8192))
    found = workload.count_file_io(box, chunk, index)
    assert (found.n_chunks, found.n_shards) == (n_chunks, n_seeks)
    assert found.chunk_nbytes == 4 * math.prod(chunk)


def test_the_index_of_a_file_is_where_its_chunks_are(plan: workload.ReadPlan) -> None:
    """Stored bytes at their addresses are those that HDF5 gives for each chunk."""
    path = layouts.prepare_hdf5(plan.values, ChunkLayout("a", (20, 5, 6)))
    index, content = workload.read_index(path), path.read_bytes()
    assert index is not None and index.starts.shape == (3, 3, 3)
    with h5py.File(path) as file:
        for at in np.ndindex(3, 3, 3):
            _, stored = file["t"].id.read_direct_chunk(tuple(np.multiply(at, (20, 5, 6))))
            start = index.starts[at]
            assert content[start : start + index.nbytes[at]] == stored


def test_a_file_is_read_and_a_wrong_read_is_no_row(plan: workload.ReadPlan) -> None:
    """Each access of a layout gives what was written; other values are an error."""
    flat = ChunkLayout("flat", None, (1, 2, 0))
    reads = workload.make_reads("hdf5", None, plan, [STORED, flat])  # type: ignore[arg-type]
    assert len(reads) == 6
    for read in reads:
        read.enter_block(1)
        read.prepare()
        sums = read.read(read.open())
        assert read.check(sums).startswith("xxh3 of")
        trace = read.collect()
        assert trace["boxes"] == read.boxes.share(1) and trace["n_boxes"] == len(sums)
        assert len(trace["box_s"]) == len(sums) and min(trace["box_s"]) > 0
        with pytest.raises(CheckError, match="read other values"):
            read.check([each + 1 for each in sums])


def test_blocks_have_positions_of_their_own(plan: workload.ReadPlan) -> None:
    """Shares do not overlap, and few positions come again; where chunks run out they are shared."""
    series = layouts.make_accesses(SHAPE)[0]
    boxes = plan.draw(ChunkLayout("a", (1, 1, 1)), series)
    assert len(boxes.places) == 4 and not set(boxes.share(0)) & set(boxes.share(1))
    assert replace(boxes, places=boxes.places[:1]).share(7) == [0, 0]
    boxes = plan.draw(ChunkLayout("a", SHAPE), series)
    assert len(boxes.places) == 4 and boxes.n_apart == 1


def make_read(loads: list[IoCounts], name: str = "a", n_each: int = 1) -> workload.HyperslabRead:
    """Make a read of as many positions, each of which asks for so much."""
    places: list[tuple[slice, ...]] = [(slice(i, i + 1),) for i in range(len(loads))]
    boxes = workload.Hyperslabs(places, 6, [*range(len(loads))], n_each)
    access, one = layouts.make_accesses(SHAPE)[0], ChunkLayout(name, (1, 1, 1))
    return workload.HyperslabRead("hdf5", one, access, boxes, loads, dict, read_box)


TIMES = [
    # seconds allowed, positions of a series that takes a second, of one that takes five
    (0.4, 1, 1),  # once in any case
    (4.0, 5, 2),  # the first after opening stands apart
    (99.0, 8, 8),  # no more than were drawn
]


@pytest.mark.parametrize(("access_time_s", "n_short", "n_long"), TIMES)
def test_short_reads_get_more_positions(access_time_s: float, n_short: int, n_long: int) -> None:
    """By the predicted time; what belongs to a position goes with it."""
    reads = [make_read([IoCounts(n, 4, 1)] * 16, n_each=8) for n in (1, 5)]
    store: dict[layouts.Medium, Store] = {"hdf5": Store(chunk_s=1.0)}
    shared = prediction.share_out(store, reads, n_blocks=2, access_time_s=access_time_s)
    for read, n_each in zip(shared, (n_short, n_long), strict=True):
        assert read.boxes.n_each == n_each and read.boxes.n_apart == min(6, 2 * n_each)
        assert len(read.boxes.places) == len(read.boxes.sums) == len(read.loads) == 2 * n_each


def test_every_medium_has_a_copy(plan: workload.ReadPlan) -> None:
    """Noise is known wherever something is judged."""
    ours = replace(STORED, name=layouts.OURS)
    reads = workload.make_reads("hdf5", None, plan, [ours])  # type: ignore[arg-type]
    reads += [replace(read, medium="zarr") for read in reads]
    copies = {each.point["medium"] for each in workload.make_contenders(reads) if each.control_of}
    assert copies == {"hdf5", "zarr"}


POINTS = [
    # chunks, their bytes, seeks
    (1, 1e3, 1), (10, 1e6, 2), (100, 1e5, 7), (300, 1e4, 4), (5, 1e7, 5), (40, 1, 40),
]  # fmt: skip


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
            "trace": json.dumps({"boxes": [0], "box_s": [prediction.predict_median(made, read)]}),
        }
        for read in reads
    ]
    fitted = prediction.fit_disk(pd.DataFrame(lines), reads)
    for read in reads:
        assert prediction.predict_median(fitted, read) == pytest.approx(
            prediction.predict_median(made, read), rel=0.01
        )


def test_the_median_is_over_accesses_without_the_first() -> None:
    """Of what is left the middle one counts."""
    loads = [IoCounts(n, 10, 1) for n in (99, 1, 2, 9)]
    assert prediction.predict_median(Store(chunk_s=1.0), make_read(loads, n_each=4)) == 2


def test_the_price_of_defaults_depends_on_the_array() -> None:
    """Two padded chunks of 134 MB by one stream each, over a wave of ten; of the reanalysis more."""
    profile = of_one_process(get_profile("in-region"))
    stores = prediction.describe_stores(["zarr"], pd.DataFrame(), [], profile)
    small, large = prediction.predict_defaults(stores, [6, 1]).itertuples()
    assert small.default_s == pytest.approx(134.2 / 86 + 0.026, rel=0.02)
    assert small.ours_s == pytest.approx(0.026 + 18.1 / 500, rel=0.1)
    assert large.Index > 200 * small.Index and large.ratio > 2 * small.ratio
    assert prediction.predict_defaults({}, [6]).empty
