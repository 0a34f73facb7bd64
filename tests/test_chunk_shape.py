"""The study of chunk shapes: what boxes ask of layouts, what is written, and what is concluded."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from collections import Counter
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

from helpers.errors import UserError
from helpers.measurement.measure import CheckError
from helpers.models.accesses import Load, Store
from helpers.storage import chunkings, data
from helpers.storage.chunk_index import read_index
from helpers.storage.chunkings import Chunking
from helpers.storage.layout import contiguous_runs
from helpers.storage.server import Server
from helpers.studies.chunk_shape import (
    decoding,
    findings,
    layouts,
    loads,
    planning,
    predicting,
    reading,
    verdicts,
)
from helpers.studies.chunk_shape.rewriting import make_rewrites
from tests.stores import make_location

SHAPE = (48, 12, 14)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> planning.Plan:
    """Make a small array whose files go to a folder of their own."""
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path))
    return planning.Plan(layouts.make_sample(SHAPE, 3), n_boxes=2, n_blocks=2, seed=3)


def test_every_layout_fits_its_array() -> None:
    """All fit the array, none that calibrates is compared, and the named ones are there."""
    shape = layouts.scale_shape(16)
    chosen, calibrating = layouts.make_chunkings(shape), layouts.make_calibrations(shape)
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
    assert set(ours) == set(layouts.MIXES)
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
    index = loads.lay_in_order(grid, 8192)
    found = loads.load_file(box, (40, 8, 8), Chunking("a", chunk), index)
    assert (found.n_chunks, found.n_shards) == (n_chunks, n_seeks)
    assert (found.chunk_nbytes, found.stored_nbytes) == (4 * math.prod(chunk), 8192)


def test_the_index_of_a_file_is_where_its_chunks_are(plan: planning.Plan) -> None:
    """Stored bytes at their addresses are those that HDF5 gives for each chunk."""
    one = Chunking("a", (20, 5, 6))
    path = planning.prepare_file(plan, one)
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
    _, reads = loads.sieve_reads(box, shape)
    asked = 4 * math.prod(s.stop - s.start for s in box)
    assert asked <= sum(reads)
    assert max(reads) <= max(65536, asked)
    assert len(reads) <= contiguous_runs(box, shape)


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
    plan: planning.Plan,
    monkeypatch: pytest.MonkeyPatch,
    medium: str,
    box: tuple[slice, ...],
) -> None:
    """What is counted is what the installed zarr asks of its store."""
    one = Chunking("a", (5, 3, 4))
    shard = layouts.shard_of(medium, SHAPE, one)  # type: ignore[arg-type]
    location = make_location(server, f"loads-{medium}")
    place = chunkings.prepare_zarr(location, plan.values, one, shard_shape=shard)
    array = chunkings.open_zarr(location / place)
    asked, get = [], zarr.storage.ObjectStore.get

    async def count(store: object, key: str, *rest: object, **more: object) -> object:
        asked.append(key)
        return await get(store, key, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(zarr.storage.ObjectStore, "get", count)
    assert np.array_equal(array[box], plan.values[box])
    assert len(asked) == loads.load_objects(box, one, shard).n_requests


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_requests_of_shards_are_counted(data: st.DataObject) -> None:
    """Shard by shard: one where all its chunks are touched, else an index and its chunks."""
    chunk = tuple(data.draw(st.lists(st.integers(1, 4), min_size=3, max_size=3)))
    by = tuple(data.draw(st.lists(st.integers(1, 3), min_size=3, max_size=3)))
    starts = [data.draw(st.integers(0, 20)) for _ in range(3)]
    box = tuple(slice(i, i + data.draw(st.integers(1, 12))) for i in starts)
    ranges = [range(s.start // c, (s.stop - 1) // c + 1) for s, c in zip(box, chunk, strict=True)]
    shards = Counter(
        tuple(i // n for i, n in zip(at, by, strict=True)) for at in itertools.product(*ranges)
    )
    in_parts = [n for n in shards.values() if n < math.prod(by)]
    shard = tuple(c * n for c, n in zip(chunk, by, strict=True))
    found = loads.load_objects(box, Chunking("a", chunk), shard)
    assert (found.n_chunks, found.n_shards) == (sum(shards.values()), len(shards))
    assert found.n_requests == len(shards) + sum(in_parts)
    assert found.n_longest == max(in_parts, default=0)


def test_a_region_mean_is_the_mean_over_time() -> None:
    """A map is left of a region, and other accesses keep their values."""
    accesses = {each.name: each for each in layouts.make_accesses(SHAPE)}
    values = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    assert np.allclose(reading.reduce_box(accesses["region mean"], values), values.mean(axis=0))
    assert reading.reduce_box(accesses["box"], values) is values


def test_blocks_have_positions_of_their_own(plan: planning.Plan) -> None:
    """Shares do not overlap, and few positions come again."""
    boxes = plan.draw(Chunking("a", (1, 1, 1)), layouts.make_accesses(SHAPE)[0])
    assert len(boxes.places) == 4 and not set(boxes.share(0)) & set(boxes.share(1))
    assert replace(boxes, places=boxes.places[:1]).share(7) == [0, 0]


def test_where_chunks_run_out_positions_share_them(plan: planning.Plan) -> None:
    """As many positions as are asked for, and the first alone has no chunk in common."""
    boxes = plan.draw(Chunking("a", SHAPE), layouts.make_accesses(SHAPE)[0])
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
        boxes = reading.Boxes(places, 6, list(range(16)), 8)
        asked = [Load(n_chunks, 4, 1)] * 16
        one = Chunking(f"{n_chunks} chunks", (1, 1, 1))
        ways.append(reading.BoxRead("hdf5", one, access, boxes, asked, dict))
    fitted = {"hdf5": (Store(chunk_s=1.0), None)}
    short, long = predicting.share_out(fitted, ways, n_blocks=2, access_time_s=access_time_s)
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
    found = predicting.pool(rows).iloc[0]
    assert (found["first_s"], found["p50_s"], found["p95_s"]) == (8.0, 2.5, pytest.approx(3.85))
    assert (found["odd_s"], found["even_s"]) == (2.5, 2.5)  # 1 and 4, 2 and 3
    assert (found["n_positions"], found["n_apart"], found["n_chunks"]) == (5, 3, 2)


def test_what_is_read_once_has_no_other_half() -> None:
    """The only read of a block is its first and its median."""
    found = predicting.pool(make_rows([[0]], [[2.0]])).iloc[0]
    assert found["first_s"] == found["p50_s"] == 2.0 and math.isnan(found["even_s"])


def test_a_file_is_read_and_a_wrong_read_is_no_row(plan: planning.Plan) -> None:
    """Each access of a layout gives what was written; other values are an error."""
    ways = planning.make_ways(
        "hdf5", None, plan, [Chunking("a", (5, 3, 4)), Chunking("b", (5, 3, 4))]
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


STORED = Chunking("a", (5, 3, 4))


def open_stored(plan: planning.Plan) -> Any:
    """Open what is read of a file, made if it is not there."""
    return planning.make_ways("hdf5", None, plan, [STORED])[0].open()  # type: ignore[arg-type]


def test_a_changed_codec_is_what_is_read(
    plan: planning.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes of another codec are not taken for those of this one."""
    assert open_stored(plan).compression_opts == 1
    stronger = {"compression": "gzip", "compression_opts": 9}
    monkeypatch.setattr(chunkings, "_filters", lambda _one: stronger)
    assert open_stored(plan).compression_opts == 9


@pytest.mark.parametrize("fill_value", [0.0, 1.0])
def test_changed_settings_of_zarr_are_what_is_read(
    server: Server, plan: planning.Plan, monkeypatch: pytest.MonkeyPatch, fill_value: float
) -> None:
    """Objects are named by all that makes them."""
    location = make_location(server, "settings")
    monkeypatch.setattr(chunkings, "_ZARR", {**chunkings._ZARR, "fill_value": fill_value})
    place = chunkings.prepare_zarr(location, plan.values, STORED)
    assert chunkings.open_zarr(location / place).fill_value == fill_value


def test_a_changed_generator_makes_the_array_anew(
    plan: planning.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other values under the same shape and seed are not the stored ones, in no layout."""
    assert np.array_equal(open_stored(plan)[...], plan.values)
    block = data.SampleArray.block
    monkeypatch.setattr(data.SampleArray, "block", lambda *asked: block(*asked) + 1)
    other = replace(plan, values=layouts.make_sample(SHAPE, 3))
    assert not np.array_equal(other.values, plan.values)
    assert np.array_equal(open_stored(other)[...], other.values)


@pytest.mark.parametrize("name", ["values.npy", "array.h5"])
def test_what_was_cut_off_is_made_anew(plan: planning.Plan, tmp_path: Path, name: str) -> None:
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
    boxes = reading.Boxes([(slice(0, 1),)] * 4, 4, [0] * 4, 4)
    asked = [Load(n, 4, 1) for n in (99, 1, 2, 9)]  # the first is told apart
    way = reading.BoxRead("hdf5", Chunking("a", (1, 1, 1)), access, boxes, asked, dict)
    found = predicting.predict({"hdf5": (Store(chunk_s=0.5), None)}, [way])
    assert found["predicted_s"].tolist() == [1.0]


def make_table(ours: tuple[float, float], rule: tuple[float, float]) -> pd.DataFrame:
    """Make medians of series and slice, of ours and of the rule."""
    times = {name: ours for name in layouts.MIXES} | {findings.RULE: rule}
    return pd.DataFrame(
        [
            {"medium": "hdf5", "contender": name, "access": access, "p50_s": seconds}
            for name, pair in times.items()
            for access, seconds in zip(
                ("series", "slice", "box", "region mean", "whole"), (*pair, 1, 1, 1), strict=True
            )
        ]
    )


GAINS = [
    # ours, the rule: series and slice; gain of 80:20, of the worst; is the worst met, the mix
    ((1, 2), (2, 4), 2.0, 2.0, "met", "met"),  # twice as fast in both
    ((1, 4), (4, 4), 4 / 1.6, 1.0, "met", "met"),  # the worst is equal
    ((1, 4), (4, 4.6), 4.12 / 1.6, 1.15, "missed", "met"),  # faster, but not by enough
    ((4, 4), (4, 2), 3.6 / 4.0, 1.0, "met", "missed"),  # ours loses at an equal mix
    ((5, 5), (4, 4), 4 / 5, 0.8, "missed", "missed"),  # ours loses all
]


@pytest.mark.parametrize(("ours", "rule", "mean", "worst", "is_worst", "is_mix"), GAINS)
def test_gains_name_their_comparator(
    ours: tuple[float, float],
    rule: tuple[float, float],
    mean: float,
    worst: float,
    is_worst: str,
    is_mix: str,
) -> None:
    """Weighted as the mix, against the rule at the same bound, and bars judged honestly."""
    gains = verdicts.compare_gains(make_table(ours, rule))
    line = gains.loc[("hdf5", "ours 80:20", findings.RULE)]
    assert (line["mean"], line["worst"]) == pytest.approx((mean, worst))
    judged = pd.DataFrame({"median error": [0.3], "rank correlation": [0.96]}, index=["hdf5"])
    told = verdicts.judge_bars("hdf5", gains, judged).split("; ")
    assert told[0] == "median error of the prediction 30 %, missed"
    assert told[1] == "its rank correlation 0.96, met"
    assert told[2].startswith("gain of the worst access") and told[2].endswith(f", {is_worst}")
    assert told[3].startswith("time at an equal mix") and told[3].endswith(f", {is_mix}")


def test_positions_are_told_with_their_fewest() -> None:
    """Pairs with a hundred positions apart are counted, the whole left out."""
    table = pd.DataFrame(
        {
            "contender": ["a", "b", "b", "b"],
            "access": ["series", "series", "slice", "whole"],
            "n_positions": [100, 15, 100, 1],
            "n_apart": [100, 4, 100, 1],
        }
    )
    told = verdicts.tell_positions(table)
    assert told.startswith("2 of 3 pairs of layout and access are read at 100 positions")
    assert told.endswith("the others at 15 or more, of which 4 or more share none (b, series)")


def test_the_bias_stands_beside_the_published_one() -> None:
    """The published ranges are those of the source's own column, to two digits."""
    biases = pd.Series({"contiguous, time slowest": 48.0, "balanced 4 KiB": 1.5, "square": 99.0})
    told = verdicts.tell_bias(biases)
    assert told == (
        "without chunks 48 to 48 (published 14000 to 17000),"
        " in balanced chunks 1.5 to 1.5 (published 1 to 1.1)"
    )
    assert "without chunks not stored" in verdicts.tell_bias(biases[1:])


def test_advice_is_judged_against_the_fastest_and_the_rule() -> None:
    """Three ratios of medians, worked out by hand."""
    times = {"as the box": (2, 8, 3), findings.RULE: (4, 2, 1.5), "other": (9, 9, 1)}
    accesses = ("series", "slice", "box")
    named = pd.DataFrame(
        [
            {"medium": "hdf5", "contender": name, "access": access, "p50_s": seconds}
            for name, three in times.items()
            for access, seconds in zip(accesses, three, strict=True)
        ]
    )
    told = verdicts.tell_advice("hdf5", findings.judge_advice(named))
    assert "3 times as long for it as the fastest layout, other" in told
    assert "0.5 times the rule's time for a series and 4 times for a slice" in told


@pytest.mark.parametrize("chunk", [(3, 2, 2), (48, 12, 14), (5, 7, 3)])
def test_codecs_of_each_chunk_size_get_the_same_values(chunk: tuple[int, ...]) -> None:
    """Clipped at the borders, the chunks hold each value once."""
    values = np.arange(math.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    parts = decoding.cut(values, chunk)
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
    for name, codecs in decoding.CODECS.items():
        found = decoding.decode(codecs, decoding.encode(codecs, values))
        assert np.allclose(found, values, rtol=2**-12 if "rounded" in name else 0), name


def test_a_larger_cache_of_chunks_changes_no_value(plan: planning.Plan) -> None:
    """Adjacent slices are those written, whatever is kept of them."""
    made = decoding.make_adjacents(plan)
    assert len({each.name for each in made}) == len(made) == 4
    for each in made:
        assert each.check(each.read(each.open())).startswith("xxh3 of")


@pytest.mark.parametrize("tool", ["nccopy", "h5repack", "Dask", "cubed"])
def test_a_rewriting_gives_the_chunks_asked_for(plan: planning.Plan, tool: str) -> None:
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
