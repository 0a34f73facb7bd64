"""One array in many chunk shapes: written, read back, and boxes drawn apart."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from studies.chunk_shape import layouts
from studies.chunk_shape.layouts import ChunkLayout
from studies.chunk_shape.workload import count_object_io, draw_hyperslabs
from tests.refusals import refused
from tests.stores import make_location
from wire.bed.testbed import Server
from wire.models.access import Store

BOX = (slice(3, 9), slice(2, 4), slice(1, 6))
VALUES = np.random.default_rng(1).normal(size=(12, 20, 30)).astype(np.float32)


@pytest.mark.parametrize(
    "one",
    [
        ChunkLayout("contiguous", None),
        ChunkLayout("series in one piece", None, (1, 2, 0)),
        ChunkLayout("chunks", (5, 7, 30)),
    ],
)
def test_a_file_reads_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: ChunkLayout
) -> None:
    """A box comes back the same in each order, and chunks are those asked for."""
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path))
    path = layouts.prepare_hdf5(VALUES, one)
    layouts.drop_pages(path)
    array = layouts.open_hdf5(path)
    assert array.chunks == one.chunk_shape
    found = array[tuple(BOX[axis] for axis in one.axes)]
    assert np.array_equal(found, VALUES[BOX].transpose(one.axes))


@pytest.mark.parametrize("shard_shape", [None, (10, 14, 30)])
def test_a_zarr_array_reads_as_it_was_written(
    server: Server, shard_shape: tuple[int, ...] | None
) -> None:
    """A box comes back the same, sharded or not."""
    location = make_location(server, "chunkings")
    place = layouts.prepare_zarr(location, VALUES, (5, 7, 30), shard_shape)
    array = layouts.open_zarr(location / place)
    assert (array.chunks, array.shards) == ((5, 7, 30), shard_shape)
    assert np.array_equal(array[BOX], VALUES[BOX])


@pytest.mark.parametrize("medium", get_args(layouts.Medium))
def test_every_layout_fits_its_array(medium: layouts.Medium) -> None:
    """None that calibrates is compared; ours keeps the bound of the rule, and a default is there."""
    shape = layouts.scale_shape(4)
    store = Store(start_s=1e-4, chunk_s=1e-4, decode_s_per_nbyte=5e-9)
    chosen = layouts.make_layouts(medium, shape, store)
    calibrating = layouts.make_calibrations(shape)
    for one in [*chosen, *calibrating]:
        chunk = one.chunk_shape or (1, 1, 1)
        assert all(1 <= c <= n for c, n in zip(chunk, shape, strict=True))
    named = {one.name: one.chunk_shape for one in chosen}
    assert not {*named.values()} & {one.chunk_shape for one in calibrating}
    assert {layouts.OURS, layouts.RULES[1], layouts.DEFAULTS[medium]} <= {*named}
    assert 4 * math.prod(named[layouts.OURS] or ()) <= layouts.PUBLISHED_NBYTES[0]


@settings(deadline=None)
@given(st.data())
def test_boxes_share_no_chunk(data: st.DataObject) -> None:
    """Of those said to be apart, no two touch a chunk in common; no place is drawn twice."""
    shape = tuple(data.draw(st.integers(1, 30)) for _ in range(3))
    extent = tuple(data.draw(st.integers(1, n)) for n in shape)
    chunk = tuple(data.draw(st.integers(1, n)) for n in shape)
    boxes, n_apart = draw_hyperslabs(shape, extent, chunk, n_boxes=12, seed=1)
    assert 1 <= n_apart <= len(boxes) <= 12
    assert len({tuple(s.start for s in box) for box in boxes}) == len(boxes)
    owners: set[tuple[int, ...]] = set()
    for box in boxes:
        assert all(0 <= s.start < s.stop <= n for s, n in zip(box, shape, strict=True))
        assert tuple(s.stop - s.start for s in box) == extent
    for box in boxes[:n_apart]:
        ranges = (
            range(s.start // c, (s.stop - 1) // c + 1) for s, c in zip(box, chunk, strict=True)
        )
        touched = {*itertools.product(*ranges)}
        assert not touched & owners
        owners |= touched


@pytest.mark.parametrize("factor", [50.0, 1000.0])
def test_an_array_without_several_chunks_is_refused(factor: float) -> None:
    """The rule's largest chunk needs an array that is larger; the parameter is named."""
    with refused("scale_factor"):
        layouts.scale_shape(factor)


@pytest.mark.parametrize(
    "box",
    [
        (slice(3, 4), slice(0, 20), slice(0, 30)),  # a slice: some chunks of each shard
        (slice(0, 12), slice(5, 6), slice(0, 1)),  # a series
        (slice(2, 12), slice(1, 15), slice(0, 30)),  # some shards whole
        (slice(0, 12), slice(0, 20), slice(0, 30)),  # all, the clipped ones too
    ],
)
@pytest.mark.parametrize("medium", ["zarr", "sharded"])
def test_requests_are_those_that_zarr_makes(
    server: Server, monkeypatch: pytest.MonkeyPatch, medium: str, box: tuple[slice, ...]
) -> None:
    """What a box is counted to ask of an object store, the installed zarr asks."""
    chunk = (5, 3, 4)
    shard = layouts.shard_of(medium, VALUES.shape, chunk)  # type: ignore[arg-type]
    location = make_location(server, f"loads-{medium}")
    place = layouts.prepare_zarr(location, VALUES, chunk, shard)
    array = layouts.open_zarr(location / place)
    asked, get = [], zarr.storage.ObjectStore.get

    async def count(store: object, key: str, *rest: object, **more: object) -> object:
        asked.append(key)
        return await get(store, key, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(zarr.storage.ObjectStore, "get", count)
    assert np.array_equal(array[box], VALUES[box])
    assert len(asked) == count_object_io(box, chunk, shard, VALUES.shape).n_requests
