"""The study of chunk shapes: what boxes ask of layouts, what is written, and what is concluded."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from zarr.abc.store import RangeByteRequest
from zarr.core._coalesce import coalesce_ranges
from zarr.core.indexing import morton_order_coords

from helpers.arrays import fields
from helpers.benchmark import ranking, statistics
from helpers.benchmark.contender import CheckError
from helpers.errors import UserError
from helpers.models.access import IoCounts, Store
from helpers.objectstore.testbed import Server
from studies.chunk_shape import (
    contenders,
    figures,
    findings,
    layouts,
    prediction,
    sentences,
    workload,
)
from studies.chunk_shape.contenders import make_rewrites
from studies.chunk_shape.layouts import ChunkLayout
from studies.chunk_shape.workload import read_index
from tests.stores import make_location

SHAPE = (48, 12, 14)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> workload.Plan:
    """Make a small array whose files go to a folder of their own."""
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path))
    return workload.Plan(layouts.make_sample(SHAPE, 3), n_boxes=2, n_blocks=2, seed=3)


def test_every_layout_fits_its_array() -> None:
    """All fit the array, none that calibrates is compared, and the named ones are there."""
    shape = layouts.scale_shape(16)
    chosen, calibrating = layouts.make_chunk_layouts(shape), layouts.make_calibrations(shape)
    for one in [*chosen, *calibrating]:
        chunk = one.chunk_shape or (1, 1, 1)
        assert all(1 <= c <= n for c, n in zip(chunk, shape, strict=True))
    lies = {(one.chunk_shape, one.axes) for one in chosen}
    assert not lies & {(one.chunk_shape, one.axes) for one in calibrating}
    assert {"a time step", "dask auto", "zarr auto", "netcdf-4 default", "as the box"} <= {
        one.name for one in chosen
    }


def test_ours_moves_with_the_mix_and_keeps_the_bound() -> None:
    """More series want longer chunks, and no chunk is larger than the rule's largest."""
    shape = layouts.scale_shape(4)
    store = Store(start_s=1e-4, chunk_s=1e-4, decode_s_per_nbyte=5e-9)
    ours = {one.name: one.chunk_shape for one in layouts.choose_ours(shape, store)}
    assert set(ours) == set(layouts.PATTERNS)
    for chunk in ours.values():
        assert chunk is not None and 4 * math.prod(chunk) <= layouts.BOUND_NBYTES
    equal, skewed = ours["ours 50:50"], ours["ours 80:20"]
    assert equal is not None and skewed is not None and skewed[0] > equal[0]


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
    found = workload.count_file_io(box, (40, 8, 8), ChunkLayout("a", chunk), index)
    assert (found.n_chunks, found.n_shards) == (n_chunks, n_seeks)
    assert (found.chunk_nbytes, found.stored_nbytes) == (4 * math.prod(chunk), 8192)


def test_the_index_of_a_file_is_where_its_chunks_are(plan: workload.Plan) -> None:
    """Stored bytes at their addresses are those that HDF5 gives for each chunk."""
    one = ChunkLayout("a", (20, 5, 6))
    path = layouts.prepare_hdf5(plan.values, one)
    index, content = read_index(path), path.read_bytes()
    assert index is not None and index.starts.shape == (3, 3, 3)
    with h5py.File(path) as file:
        for at in np.ndindex(3, 3, 3):
            _, stored = file["t"].id.read_direct_chunk(tuple(np.multiply(at, one.chunk_shape)))
            start = index.starts[at]
            assert content[start : start + index.nbytes[at]] == stored


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_a_sieve_reads_all_that_is_asked(data: st.DataObject) -> None:
    """Reads hold every byte of the box, are no more than its runs, and no longer than they may."""
    shape = tuple(data.draw(st.lists(st.integers(1, 60), min_size=3, max_size=3)))
    starts = [data.draw(st.integers(0, n - 1)) for n in shape]
    box = [slice(i, data.draw(st.integers(i + 1, n))) for i, n in zip(starts, shape, strict=True)]
    _, reads = workload.sieve_reads(box, shape)
    asked = 4 * math.prod(s.stop - s.start for s in box)
    assert asked <= sum(reads)
    assert max(reads) <= max(65536, asked)
    places = np.ravel_multi_index(np.ogrid[tuple(box)], shape).ravel()
    assert len(reads) <= 1 + np.count_nonzero(np.diff(places) > 1)


@pytest.mark.parametrize(
    "box",
    [
        (slice(3, 4), slice(0, 12), slice(0, 14)),  # a slice: some chunks of each shard
        (slice(0, 48), slice(5, 6), slice(0, 1)),  # a series
        (slice(2, 30), slice(1, 9), slice(0, 14)),  # some shards whole
        (slice(0, 48), slice(0, 12), slice(0, 14)),  # all, the clipped ones too
    ],
)
@pytest.mark.parametrize("medium", ["zarr", "sharded"])
def test_requests_are_those_that_zarr_makes(
    server: Server,
    plan: workload.Plan,
    monkeypatch: pytest.MonkeyPatch,
    medium: str,
    box: tuple[slice, ...],
) -> None:
    """What is counted is what the installed zarr asks of its store."""
    one = ChunkLayout("a", (5, 3, 4))
    shard = layouts.shard_of(medium, SHAPE, one)  # type: ignore[arg-type]
    location = make_location(server, f"loads-{medium}")
    place = layouts.prepare_zarr(location, plan.values, one, shard_shape=shard)
    array = layouts.open_zarr(location / place)
    asked, get = [], zarr.storage.ObjectStore.get

    async def count(store: object, key: str, *rest: object, **more: object) -> object:
        asked.append(key)
        return await get(store, key, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(zarr.storage.ObjectStore, "get", count)
    assert np.array_equal(array[box], plan.values[box])
    assert len(asked) == workload.count_object_io(box, one, shard, SHAPE).n_requests


def test_the_table_of_readers_tells_what_the_newer_one_saves_and_what_it_brings_more() -> None:
    """Fewer requests for the same chunks, more bytes, less time."""
    _, _, old, new = prediction.render_readers().splitlines()
    told = [[float(cell) for cell in line.split("|")[3:-1]] for line in (old, new)]
    (chunks, requests, mb, seconds), (same, fewer, more, less) = told
    assert (chunks, requests) == (same, 1 + chunks)
    assert fewer < requests / 10 and more > mb and less < seconds / 2


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_requests_of_shards_are_counted(data: st.DataObject) -> None:
    """Shard by shard: one where all its chunks are touched, else an index and its chunks.

    Before zarr 3.3 these come one by one, and since then as zarr puts ranges together; a shard
    at the edge of the array holds fewer chunks, and nothing lies between them for those it lacks.
    """
    chunk = tuple(data.draw(st.lists(st.integers(1, 4), min_size=3, max_size=3)))
    by = tuple(data.draw(st.lists(st.integers(1, 3), min_size=3, max_size=3)))
    starts = [data.draw(st.integers(0, 20)) for _ in range(3)]
    box = tuple(slice(i, i + data.draw(st.integers(1, 12))) for i in starts)
    extents = tuple(part.stop + data.draw(st.integers(0, 8)) for part in box)
    ranges = [range(s.start // c, (s.stop - 1) // c + 1) for s, c in zip(box, chunk, strict=True)]
    shards = Counter(
        tuple(i // n for i, n in zip(at, by, strict=True)) for at in itertools.product(*ranges)
    )
    in_parts = [n for n in shards.values() if n < math.prod(by)]
    shard = tuple(c * n for c, n in zip(chunk, by, strict=True))
    one = ChunkLayout("a", chunk)
    found = workload.count_object_io(box, one, shard, extents, in_turn=True)
    assert (found.n_chunks, found.n_shards) == (sum(shards.values()), len(shards))
    assert found.n_requests == len(shards) + sum(in_parts)
    assert found.n_longest == max(in_parts, default=0)

    nbytes, n_runs, n_nbytes = 4 * math.prod(chunk), 0, 0
    most = {
        "max_gap_bytes": nbytes * data.draw(st.integers(0, 3)),
        "max_coalesced_bytes": 6 * nbytes,
    }
    n_chunks = [-(-n // c) for n, c in zip(extents, chunk, strict=True)]
    touched = defaultdict(list)
    for at in itertools.product(*ranges):
        where = tuple(i // n for i, n in zip(at, by, strict=True))
        every = (
            tuple(i * n + j for i, n, j in zip(where, by, one, strict=True))
            for one in morton_order_coords(by)
        )
        held = [one for one in every if all(i < n for i, n in zip(one, n_chunks, strict=True))]
        start = nbytes * held.index(at)
        touched[where].append(RangeByteRequest(start, start + nbytes))
    for asked in touched.values():
        runs = (
            coalesce_ranges(asked, **most)[0]
            if len(asked) < math.prod(by)
            else [[*enumerate(asked)]]
        )
        n_runs += len(runs)
        n_nbytes += sum(max(r.end for _, r in run) - min(r.start for _, r in run) for run in runs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workload, "_MOST_APART_NBYTES", most["max_gap_bytes"])
        patch.setattr(workload, "_MOST_TOGETHER_NBYTES", most["max_coalesced_bytes"])
        found = workload.count_object_io(box, one, shard, extents, in_turn=False)
    assert (found.n_chunks, found.n_shards) == (sum(shards.values()), n_runs)
    assert found.n_requests == n_runs + len(in_parts)
    assert found.n_chunks * found.stored_nbytes == pytest.approx(n_nbytes)


def test_a_region_mean_is_the_mean_over_time() -> None:
    """A map is left of a region, and other accesses keep their values."""
    accesses = {each.name: each for each in layouts.make_accesses(SHAPE)}
    values = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    assert np.allclose(
        workload.reduce_hyperslab(accesses["region mean"], values), values.mean(axis=0)
    )
    assert workload.reduce_hyperslab(accesses["box"], values) is values


def test_blocks_have_positions_of_their_own(plan: workload.Plan) -> None:
    """Shares do not overlap, and few positions come again."""
    boxes = plan.draw(ChunkLayout("a", (1, 1, 1)), layouts.make_accesses(SHAPE)[0])
    assert len(boxes.places) == 4 and not set(boxes.share(0)) & set(boxes.share(1))
    assert replace(boxes, places=boxes.places[:1]).share(7) == [0, 0]


def test_where_chunks_run_out_positions_share_them(plan: workload.Plan) -> None:
    """As many positions as are asked for, and the first alone has no chunk in common."""
    boxes = plan.draw(ChunkLayout("a", SHAPE), layouts.make_accesses(SHAPE)[0])
    assert len(boxes.places) == 4 and boxes.n_apart == 1


TIMES = [
    # seconds of reading allowed, positions of a box that takes a second, of one that takes five
    (0.5, 3, 3),  # three in any case
    (4.0, 4, 3),
    (7.9, 7, 3),
    (99.0, 8, 8),  # no more than were drawn
]


@pytest.mark.parametrize(("access_time_s", "n_short", "n_long"), TIMES)
def test_short_reads_get_more_positions(access_time_s: float, n_short: int, n_long: int) -> None:
    """By the predicted time; what belongs to a position goes with it."""
    access, ways = layouts.make_accesses(SHAPE)[0], []
    for n_chunks in (1, 5):
        places = [(slice(i, i + 1),) for i in range(16)]
        boxes = workload.Hyperslabs(places, 6, list(range(16)), 8)
        asked = [IoCounts(n_chunks, 4, 1)] * 16
        one = ChunkLayout(f"{n_chunks} chunks", (1, 1, 1))
        ways.append(workload.HyperslabRead("hdf5", one, access, boxes, asked, dict))
    fitted = {"hdf5": (Store(chunk_s=1.0), None)}
    short, long = prediction.share_out(fitted, ways, n_blocks=2, access_time_s=access_time_s)
    for way, n_each in ((short, n_short), (long, n_long)):
        assert way.boxes.n_each == n_each and way.boxes.n_apart == min(6, 2 * n_each)
        assert len(way.boxes.places) == len(way.boxes.sums) == len(way.loads) == 2 * n_each
        assert [way.boxes.share(block)[0] for block in (0, 1, 2)] == [0, n_each, 0]


def make_rows(boxes: list[list[int]], box_s: list[list[float]]) -> pd.DataFrame:
    """Make the rows of blocks of one access to one layout, the first three positions apart."""
    traces = [
        {"boxes": some, "box_s": seconds, "n_apart": 3, "n_chunks": 2.0}
        for some, seconds in zip(boxes, box_s, strict=True)
    ]
    table = pd.DataFrame({"trace": [json.dumps(trace) for trace in traces]})
    return table.assign(medium="hdf5", contender="a", access="series")


def test_reads_of_all_blocks_are_pooled() -> None:
    """First reads stand apart, a position that comes again counts once; worked out by hand."""
    rows = make_rows([[0, 1, 2], [3, 4, 0]], [[9.0, 1.0, 2.0], [7.0, 4.0, 3.0]])
    found = prediction.pool(rows).iloc[0]
    assert (found["first_s"], found["p50_s"], found["p95_s"]) == (8.0, 2.5, pytest.approx(3.85))
    assert (found["odd_s"], found["even_s"]) == (2.5, 2.5)  # 1 and 4, 2 and 3
    assert (found["n_positions"], found["n_apart"], found["n_chunks"]) == (5, 3, 2)


def test_what_is_read_once_has_no_other_half() -> None:
    """The only read of a block is its first and its median."""
    found = prediction.pool(make_rows([[0]], [[2.0]])).iloc[0]
    assert found["first_s"] == found["p50_s"] == 2.0 and math.isnan(found["even_s"])


def test_a_file_is_read_and_a_wrong_read_is_no_row(plan: workload.Plan) -> None:
    """Each access of a layout gives what was written; other values are an error."""
    ways = workload.make_ways(
        "hdf5", None, plan, [ChunkLayout("a", (5, 3, 4)), ChunkLayout("b", (5, 3, 4))]
    )  # type: ignore[arg-type]
    assert {way.chunks.name for way in ways} == {"a"}  # a shape is written and read once
    for way in ways:
        way.enter_block(1)
        way.prepare()
        found = way.read(way.open())
        assert way.check(found).startswith("xxh3 of")
        told = way.collect()
        assert told["boxes"] == way.boxes.share(1) and told["n_boxes"] == len(found)
        assert len(told["box_s"]) == len(found) and min(told["box_s"]) > 0
        with pytest.raises(CheckError, match="read other values"):
            way.check([each + 1 for each in found])


STORED = ChunkLayout("a", (5, 3, 4))


def open_stored(plan: workload.Plan) -> Any:
    """Open what is read of a file, made if it is not there."""
    return workload.make_ways("hdf5", None, plan, [STORED])[0].open()  # type: ignore[arg-type]


def test_a_changed_codec_is_what_is_read(
    plan: workload.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes of another codec are not taken for those of this one."""
    assert open_stored(plan).compression_opts == 1
    stronger = {"compression": "gzip", "compression_opts": 9}
    monkeypatch.setattr(layouts, "_filters", lambda _one: stronger)
    assert open_stored(plan).compression_opts == 9


@pytest.mark.parametrize("fill_value", [0.0, 1.0])
def test_changed_settings_of_zarr_are_what_is_read(
    server: Server, plan: workload.Plan, monkeypatch: pytest.MonkeyPatch, fill_value: float
) -> None:
    """Objects are named by all that makes them."""
    location = make_location(server, "settings")
    monkeypatch.setattr(layouts, "_ZARR", {**layouts._ZARR, "fill_value": fill_value})
    place = layouts.prepare_zarr(location, plan.values, STORED)
    assert layouts.open_zarr(location / place).fill_value == fill_value


def test_a_changed_generator_makes_the_array_anew(
    plan: workload.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other values under the same shape and seed are not the stored ones, in no layout."""
    assert np.array_equal(open_stored(plan)[...], plan.values)
    block = fields.SampleArray.block
    monkeypatch.setattr(fields.SampleArray, "block", lambda *asked: block(*asked) + 1)
    other = replace(plan, values=layouts.make_sample(SHAPE, 3))
    assert not np.array_equal(other.values, plan.values)
    assert np.array_equal(open_stored(other)[...], other.values)


@pytest.mark.parametrize("name", ["values.npy", "array.h5"])
def test_what_was_cut_off_is_made_anew(plan: workload.Plan, tmp_path: Path, name: str) -> None:
    """A file that lost its end, on a full disk or by a copy, costs a rewriting and no case."""
    open_stored(plan)
    (path,) = tmp_path.rglob(name)
    path.write_bytes(path.read_bytes()[:5000])
    again = replace(plan, values=layouts.make_sample(SHAPE, 3))
    assert np.array_equal(again.values, plan.values)
    assert np.array_equal(open_stored(again)[...], plan.values)


def test_predictions_are_of_the_boxes_that_are_read() -> None:
    """The median over boxes of a cost a chunk."""
    access = layouts.make_accesses(SHAPE)[0]
    boxes = workload.Hyperslabs([(slice(0, 1),)] * 4, 4, [0] * 4, 4)
    asked = [IoCounts(n, 4, 1) for n in (99, 1, 2, 9)]  # the first is told apart
    way = workload.HyperslabRead("hdf5", ChunkLayout("a", (1, 1, 1)), access, boxes, asked, dict)
    found = prediction.predict({"hdf5": (Store(chunk_s=0.5), None)}, [way])
    assert found["predicted_s"].tolist() == [1.0]


ACCESSES = ("series", "slice", "box", "region mean", "whole")


def make_trace(seconds: list[float]) -> str:
    """Write the trace of a call: a first read after opening, and those that follow."""
    return json.dumps({"box_s": [9.0, *seconds]})


def make_record(layouts_s: dict[str, list[dict[str, list[float]]]]) -> pd.DataFrame:
    """Make the record of layouts: blocks, each with the later reads of each access."""
    lines = [
        {"contender": name, "block": block, "access": access, "trace": make_trace(seconds)}
        for name, blocks in layouts_s.items()
        for block, one in enumerate(blocks)
        for access, seconds in one.items()
    ]
    rows = pd.DataFrame(lines).assign(medium="hdf5", phase="measured", control_of="")
    copies = rows[rows["contender"] == findings.RULE]
    copies = copies.assign(contender="control", control_of=findings.RULE)
    return pd.concat([rows, copies], ignore_index=True)


def make_blocks(
    times: dict[str, tuple[float, float]], noise: tuple[float, ...] = (0.99, 1.0, 1.01, 1.0, 1.0)
) -> pd.DataFrame:
    """Make blocks of layouts whose series and slice take so long, with noise of their own."""
    layouts_s = {}
    for i, (name, pair) in enumerate(times.items()):
        turned = noise[i % len(noise) :] + noise[: i % len(noise)]
        layouts_s[name] = [
            {access: [factor * s] for access, s in zip(ACCESSES, (*pair, 1, 1, 1), strict=True)}
            for factor in turned
        ]
    return findings.time_blocks(make_record(layouts_s))


def name_layouts(*names: str) -> pd.DataFrame:
    """Make the table of the layouts of a page, each measured under its own name."""
    return pd.DataFrame({"medium": "hdf5", "contender": names, "measured_as": names})


def judge_pairs(
    pairs: list[findings.Pair], blocks: pd.DataFrame
) -> dict[findings.Pair, statistics.Comparison]:
    """Judge pairs as the page does."""
    return {
        pair: statistics.judge(
            statistics.paired_ratio(blocks, pair.held, pair.rule, value=pair.quantity),
            statistics.noise_ratio(blocks, "control", value=pair.quantity),
        )
        for pair in pairs
    }


def test_a_block_is_one_time_of_each_layout() -> None:
    """The median of its later reads, whatever their number and positions; worked out by hand."""
    each = {access: [1.0] for access in ACCESSES}
    rows = make_record(
        {findings.RULE: [{**each, "series": [4.0, 2.0, 3.0]}, {**each, "series": [5.0]}]}
    )
    found = findings.time_blocks(rows)
    assert found["contender"].tolist() == [findings.RULE] * 2 + ["control"] * 2
    assert found["series"].tolist() == [3.0, 5.0] * 2
    assert found["equal mix (50:50)"].tolist() == [2.0, 3.0] * 2
    skewed = found["four series to a slice (80:20)"]
    assert skewed.tolist() == [pytest.approx(2.6), pytest.approx(4.2)] * 2
    assert (found["bias"] * found["inverse bias"]).tolist() == [1.0] * 4


def test_the_slower_access_is_chosen_by_layout() -> None:
    """By the medians over blocks, also in a block where noise turned the two round."""
    each = {access: [1.0] for access in ACCESSES}
    times = [(3.0, 2.0), (1.0, 2.0), (3.0, 2.0)]
    rows = make_record({findings.RULE: [{**each, "series": [a], "slice": [b]} for a, b in times]})
    found = findings.time_blocks(rows)
    assert found["worst access"].tolist() == [3.0, 1.0, 3.0] * 2
    assert found["bias"].tolist() == [1.5, 0.5, 1.5] * 2


def test_a_block_that_lacks_an_access_is_left_out() -> None:
    """A run that ended within a block leaves half of it."""
    each = {access: [1.0] for access in ACCESSES}
    rows = make_record({findings.RULE: [each, {"series": [1.0]}]})
    assert findings.time_blocks(rows)["block"].tolist() == [0, 0]


GAINS = [
    # ours, the rule: series and slice; gain of 80:20, of the slower; is the slower met, the mix
    ((1, 2), (2, 4), 2.0, 2.0, "met", "met"),  # twice as fast in both
    ((1, 4), (4, 4), 4 / 1.6, 1.0, "met", "met"),  # the slower is equal
    ((1, 4), (4, 4.6), 4.12 / 1.6, 1.15, "missed", "met"),  # faster, but not by enough
    ((1, 4), (4, 5.2), 4.24 / 1.6, 1.3, "undecided", "met"),  # faster by just enough, or not
    ((4, 4), (4, 2), 3.6 / 4.0, 1.0, "met", "missed"),  # ours loses at an equal mix
    ((4, 4), (4, 3.62), 3.924 / 4, 1.0, "met", "undecided"),  # by about as much as it may
    ((5, 5), (4, 4), 4 / 5, 0.8, "missed", "missed"),  # ours loses all
]


@pytest.mark.parametrize(("ours", "rule", "pattern", "slower", "is_slower", "is_mix"), GAINS)
def test_gains_have_intervals_and_targets_follow_them(
    ours: tuple[float, float],
    rule: tuple[float, float],
    pattern: float,
    slower: float,
    is_slower: str,
    is_mix: str,
) -> None:
    """Weighted as the mix, against the rule at the same bound, and targets judged by intervals."""
    times = dict.fromkeys(layouts.PATTERNS, ours) | {findings.RULE: rule}
    blocks, named = make_blocks(times), name_layouts(*times)
    gains = judge_pairs(findings.list_pairs(named), blocks)
    table = findings.tabulate_gains(gains)
    for quantity, expected in ((findings.MIX_NAMES[8, 2], pattern), ("worst access", slower)):
        line = table.loc[("hdf5", "ours 80:20", findings.RULE, quantity)]
        assert line["gain"] == pytest.approx(expected, rel=0.02)
        assert line["low"] < expected < line["high"] < 1.1 * line["low"]
    numbers = {"median error": 0.3, "rank correlation": 0.96}
    ends = {
        f"{k}, {end}": v + d
        for k, v in numbers.items()
        for end, d in (("low", -0.02), ("high", 0.02))
    }
    told = sentences.judge_targets("hdf5", gains, pd.DataFrame({**numbers, **ends}, index=["hdf5"]))
    error, rank, worst, loss = told.split("; ")
    assert error == "median error of the prediction 30 [28, 32] %, missed"
    assert rank == "its rank correlation 0.96 [0.94, 0.98], undecided"
    assert worst.startswith("gain of the worst access") and worst.endswith(f" times, {is_slower}")
    assert loss.startswith("time at an equal mix") and loss.endswith(f"], {is_mix}")


TARGETS = [
    # low, high, verdict against at least 1.3, or within 5 % of one
    (1.31, 1.5, "met"),
    (1.15, 1.38, "undecided"),
    (1.15, 1.29, "missed"),
    (0.97, 1.04, "met"),
    (0.97, 1.06, "undecided"),
    (0.5, 0.9, "missed"),
    (0.9, 1.5, "undecided"),  # all is possible
    (math.nan, math.nan, "undecided"),  # one block
]


@pytest.mark.parametrize(("low", "high", "verdict"), TARGETS)
def test_targets_are_judged_by_the_whole_interval(low: float, high: float, verdict: str) -> None:
    """Met where all of it meets the target, missed where none of it does."""
    found = statistics.Interval(1.2, low, high, n=5)
    assert sentences.judge_target(found, sentences._GAIN) == verdict


def test_the_gain_over_the_best_size_is_the_least() -> None:
    """So are its ends; ours is faster than the best where it is faster than each."""
    sizes = {"balanced 4 KiB": (1.0, 1.01), "balanced 8 KiB": (1.2, 1.2), findings.RULE: (9, 9)}
    times = {"ours 50:50": (1.0, 1.0), **sizes}
    gains = judge_pairs(findings.list_pairs(name_layouts(*times)), make_blocks(times))
    least, verdict = sentences.find_gain("hdf5", "equal-mix", sizes, gains)
    assert least.low < 1 < least.high and verdict == "indistinguishable"
    assert sentences.tell_gain((least, verdict)).endswith("] times (indistinguishable)")
    without = [name for name in sizes if name != "balanced 4 KiB"]
    least, verdict = sentences.find_gain("hdf5", "equal-mix", without, gains)
    assert least.centre == pytest.approx(1.2, rel=0.02) and verdict == "faster"
    assert sentences.tell_gain((least, verdict)).endswith("] times")


def test_ours_of_another_name_is_judged_under_it() -> None:
    """A shape that is stored once stands under both names, and is not compared with itself twice."""
    times = {findings.RULE: (1.0, 1.0), "balanced 8 KiB": (2.0, 2.0)}
    names = (*times, "ours 50:50")
    named = name_layouts(*names).assign(measured_as=[*times, findings.RULE])
    gains = judge_pairs(findings.list_pairs(named), make_blocks(times))
    same, _ = sentences.find_gain("hdf5", "equal-mix", {findings.RULE}, gains)
    assert (same.low, same.centre, same.high) == (1.0, 1.0, 1.0)
    ranks = {
        ("hdf5", "series"): ranking.rank(make_blocks(times), control="control", value="series")
    }
    told = findings.tabulate_first(ranks, named).iloc[0, 0]
    assert told == f"{findings.RULE} = ours 50:50"


def test_biases_have_intervals() -> None:
    """The slower over the faster in each block; a layout of no bias has one within its interval."""
    times = {findings.RULE: (1.0, 1.0), "a time step": (40.0, 1.0)}
    layouts_s = {
        name: [
            {access: [s] for access, s in zip(ACCESSES, (a * slow, b / slow, 1, 1, 1), strict=True)}
            for slow in (0.98, 1.02, 0.99, 1.01, 1.0)
        ]
        for name, (a, b) in times.items()
    }
    named = pd.DataFrame(
        [
            {"medium": "hdf5", "contender": name, "access": access, "p50_s": 1.0}
            for name in times
            for access in ACCESSES
        ]
    )
    found = findings.bias(named, findings.time_blocks(make_record(layouts_s))).xs("hdf5")
    even, uneven = found.loc[findings.RULE], found.loc["a time step"]
    assert even["low"] < 1 < even["high"] < 1.1
    assert uneven["low"] < 40 < uneven["high"] < 44


def test_the_noise_of_each_quantity_is_its_own() -> None:
    """Said of what gains are judged by, and of the least and the most noisy access."""
    noise = dict.fromkeys((("hdf5", name) for name in findings.QUANTITIES), 1.02)
    noise |= {("hdf5", "box"): 1.2, ("hdf5", findings.MIX_NAMES[1, 1]): 1.04}
    assert sentences.tell_noise("hdf5", noise) == (
        "equal mix (50:50) 4 %, four series to a slice (80:20) 2 %, worst access 2 %;"
        " a single access 2 % to 20 %"
    )


def test_every_medium_has_a_copy(plan: workload.Plan) -> None:
    """Noise is known wherever something is judged, also where the usual layout is not stored."""
    ways = workload.make_ways("hdf5", None, plan, [STORED])  # type: ignore[arg-type]
    ways += [replace(way, medium="zarr") for way in ways]
    made = contenders.contend_all(ways, None, plan, [])  # type: ignore[arg-type]
    copies = {(each.point["medium"], each.control_of) for each in made if each.control_of}
    assert copies == {("hdf5", "a"), ("zarr", "a")}


def test_the_prediction_has_intervals_over_layouts() -> None:
    """One layout that is predicted badly widens both."""
    rng = np.random.default_rng(1)
    lines = [
        {"medium": "zarr", "contender": name, "access": access, "p50_s": s, "predicted_s": s * f}
        for name, f in {"a": 1.05, "b": 0.95, "c": 1.05, "d": 9.0}.items()
        for access, s in zip(ACCESSES, rng.uniform(1, 5, 5), strict=True)
    ]
    table = pd.DataFrame(lines)
    table = table.assign(odd_s=table["p50_s"], even_s=table["p50_s"])
    table["relative_error"] = table["predicted_s"] / table["p50_s"] - 1
    judged = prediction.judge(table)
    boxes = judged.loc["zarr, boxes alone"]
    assert boxes["pairs of layout and access"] == 4
    assert "two halves of the reads 1" in sentences._tell_boxes(judged, "zarr")
    found = judged.loc["zarr"]
    assert found["median error, low"] == pytest.approx(0.05)
    assert found["median error, high"] > 1 > found["median error"]
    assert (
        found["rank correlation, low"] < found["rank correlation"] < found["rank correlation, high"]
    )


def test_positions_are_counted_with_their_fewest() -> None:
    """Pairs with a hundred positions apart are counted, the whole left out."""
    table = pd.DataFrame(
        {
            "contender": ["a", "b", "b", "b"],
            "access": ["series", "series", "slice", "whole"],
            "n_positions": [100, 15, 100, 1],
            "n_apart": [100, 4, 100, 1],
        }
    )
    assert sentences.count_positions(table) == (3, 2, 15, 4)


def test_the_bias_stands_beside_the_published_one() -> None:
    """The published ranges are those of the source's own column, to two digits."""
    biases = pd.Series({"contiguous, time slowest": 48.0, "balanced 4 KiB": 1.5, "square": 99.0})
    told = sentences.tell_bias(biases)
    assert told == (
        "without chunks 48 to 48 (published 14000 to 17000),"
        " in balanced chunks 1.5 to 1.5 (published 1 to 1.1)"
    )
    assert sentences.tell_bias(biases[1:]).startswith("in balanced chunks 1.5 to 1.5")


def test_advice_is_judged_against_the_fastest_and_the_rule() -> None:
    """Ratios of times, worked out by hand; superlatives are those that were judged."""
    times = {"as the box": (2, 8), findings.RULE: (4, 2), "balanced 4 KiB": (4, 1)}
    boxes = {"as the box": 3.0, findings.RULE: 9.0, "balanced 4 KiB": 3.0, "contiguous": 1.0}
    blocks = make_blocks({**times, "contiguous": (9, 9)})
    blocks["box"] *= blocks["contender"].replace("control", findings.RULE).map(boxes)
    named = name_layouts(*times, "contiguous")
    judged = sentences.Verdicts(
        noise={}, tools={},
        gains=judge_pairs(findings.list_pairs(named), blocks),
        ranks={
            (each.medium, each.name): ranking.rank(
                each.rows, control="control", value=each.quantity
            )
            for each in findings.contests(blocks)
        },
    )  # fmt: skip
    told = sentences.tell_advice("hdf5", judged, named)
    assert "as long for it as the fastest layout, contiguous;" in told
    chunked = told.split("of layouts with chunks they are among the fastest (")[1].split(");")[0]
    assert {*chunked.split("; ")} == {"as the box", "balanced 4 KiB"}
    assert "times the rule's time for a series and 4 [" in told
    assert "slower than balanced 4096 KiB (4 [" in told
    nothing = replace(judged, gains={})
    assert sentences.tell_advice("hdf5", nothing, named) == ""


def test_tools_are_named_as_they_were_judged() -> None:
    """Those that cannot be told apart from the fastest or the slowest are named with it."""
    seconds = {"a": 1.0, "nccopy": 2.0, "h5repack": 2.001}
    tools = {
        name: pd.DataFrame(
            {"block": range(5), "work_s": [s * f for f in (0.99, 1.0, 1.01, 1.0, 1.0)]}
        ).assign(contender=name, most_nbytes=1e8, array_nbytes=1e9, concurrency=1)
        for name, s in seconds.items()
    }
    before = {
        "a time step": (21.0, 1.0),
        "balanced 1024 KiB": (1.0, 1.0),
        findings.RULE: (1.0, 1.0),
    }
    between = {
        (a, b): statistics.judge(
            statistics.paired_between(tools[a], tools[b], value="work_s", n_compared=3), 1.05
        )
        for a, b in itertools.permutations(tools, 2)
    }
    costs = findings.rewrite_costs(tools, make_blocks(before, (1.0,) * 5), between)
    assert costs["verdict"].to_dict() == {"a": "", "nccopy": "slower", "h5repack": "slower"}
    told = sentences.tell_rewriting(costs, between)
    assert told["rewrite-tool"] == "a"
    assert told["rewrite-slowest"].startswith("among the slowest (h5repack; nccopy), 0.033")
    assert told["rewrite-h5repack-over-nccopy"].endswith(" times (indistinguishable)")
    assert told["rewrite-payback"] == "0.1 [0.099, 0.101] reads"
    assert sentences.tell_rewriting(costs.iloc[:0], {}) == {}


def test_caches_of_chunks_are_paired_with_none() -> None:
    """Times faster than without, each with its interval."""
    kept = pd.DataFrame(
        {
            "contender": [findings.NO_CACHE] * 3 + ["cache of 64 MiB"] * 3,
            "block": [0, 1, 2] * 2,
            "work_s": [1.0, 2.0, 3.0, 0.1, 0.21, 0.29],
        }
    )
    found = {
        name: statistics.paired_ratio(kept, findings.NO_CACHE, name, value="work_s")
        for name in kept["contender"].unique()
    }
    line = findings.cache_gains(kept, found).loc["cache of 64 MiB"]
    assert line["times as fast as without"] == pytest.approx(10)
    assert line["low"] < 10 < line["high"]


@pytest.mark.parametrize("chunk", [(3, 2, 2), (48, 12, 14), (5, 7, 3)])
def test_codecs_of_each_chunk_size_get_the_same_values(chunk: tuple[int, ...]) -> None:
    """Clipped at the borders, the chunks hold each value once."""
    values = np.arange(math.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    parts = contenders.cut(values, chunk)
    found = np.sort(np.concatenate([part.ravel() for part in parts]))
    assert np.array_equal(found, values.ravel())


@pytest.mark.parametrize("factor", [0.0, -1.0, 50.0, float("nan")])
def test_an_array_without_several_chunks_is_refused(factor: float) -> None:
    """The rule's largest chunk needs an array that is larger; the parameter is named."""
    with pytest.raises(UserError, match="scale_factor: .*; allowed: "):
        layouts.scale_shape(factor)


def test_codecs_decode_what_they_encoded() -> None:
    """All keep the values but the one that rounds, and that one to its bits."""
    values = np.linspace(1, 2, 4096, dtype=np.float32)
    for name, codecs in contenders.CODECS.items():
        found = contenders.decode(codecs, contenders.encode(codecs, values))
        assert np.allclose(found, values, rtol=2**-12 if "rounded" in name else 0), name


def test_a_larger_cache_of_chunks_changes_no_value(plan: workload.Plan) -> None:
    """Adjacent slices are those written, whatever is kept of them."""
    made = contenders.make_adjacents(plan)
    assert len({each.name for each in made}) == len(made) == 4
    for each in made:
        assert each.check(each.read(each.open())).startswith("xxh3 of")


@pytest.mark.parametrize("tool", ["nccopy", "h5repack", "Dask", "cubed"])
def test_a_rewriting_gives_the_chunks_asked_for(plan: workload.Plan, tool: str) -> None:
    """Each tool that is there writes the same values in balanced chunks, and tells its costs."""
    made = {each.name: each for each in make_rewrites(plan)}
    if tool not in made:
        assert shutil.which(tool) is None
        pytest.skip(f"{tool} is not installed")
    each = made[tool]
    for _ in range(2):  # the second time over what the first made
        each.prepare()
        each.read(each.open())
        assert each.check(None).startswith("xxh3")
    assert each.collect()["work_s"] > 0 and each.collect()["most_nbytes"] > 1e6
    told = each.versions()
    wanted = {"Dask": "dask", "cubed": "cubed"}.get(tool, f"tool {tool}")
    assert told[wanted][0].isdigit()
    assert (tool in ("Dask", "cubed")) == ("HDF5 of h5py in rewriting" in told)


def test_a_rewriting_that_gains_nothing_never_pays() -> None:
    """The payback is infinite, not negative."""
    assert findings.payback_reads(10, {"a": 1.0}, {"a": 2.0}) == math.inf


def test_figures_have_plain_numbers_and_names_in_order() -> None:
    """Names stand in the order of their points, so that no two lines cross; no tick is a power."""
    times = {"a": (700.0, 2.0), "b": (41.0, 40.0), "c": (40.0, 41.0), "d": (1.0, 900.0)}
    table = pd.DataFrame(
        {"medium": "zarr", "contender": name, "access": access, "p50_s": s, "predicted_s": s}
        for name, pair in times.items()
        for access, s in zip(ACCESSES, (*pair, 1.0, 1.0, 1.0), strict=True)
    )
    above, below = (Figure(figsize=(7.2, 5), layout="constrained") for _ in range(2))
    ax, panels = above.subplots(), below.subplots(1, 2, sharey=True)
    figures.draw_fronts([ax], table)
    names = sorted(ax.texts, key=lambda text: -text.xyann[1])  # type: ignore[attr-defined]
    assert [text.get_text() for text in names] == [*times]
    figures.draw_traffic(panels, table.assign(requests=table["p50_s"], over_read=table["p50_s"]))
    above.draw_without_rendering()
    below.draw_without_rendering()
    for each in (ax, *panels):
        told = [label.get_text() for label in each.get_xticklabels()]
        assert told and not any("$" in text for text in told)
