"""One array in many chunk shapes: written, read back, and boxes drawn apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.arrays.chunks import chunks_touched, draw_hyperslabs
from helpers.errors import UserError
from helpers.objectstore.testbed import Server
from studies.chunk_shape import layouts
from studies.chunk_shape.layouts import ChunkLayout
from tests.stores import make_location, make_sample

BOX = (slice(3, 9), slice(2, 4), slice(1, 6))


def make_values() -> np.ndarray:
    """Make 12 times of a small field."""
    return layouts.make_values(make_sample((12, 1, 20, 30)))


LAYOUTS = [
    ChunkLayout("contiguous", None),
    ChunkLayout("series in one piece", None, (1, 2, 0)),
    ChunkLayout("chunks", (5, 7, 30)),
]


@pytest.mark.parametrize("one", LAYOUTS, ids=lambda one: one.name)
def test_a_file_reads_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: ChunkLayout
) -> None:
    """A box comes back the same in each order, and chunks are those asked for."""
    values = make_values()
    assert values.shape == (12, 20, 30) and len(np.unique(values)) > 100
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path))
    path = layouts.prepare_hdf5(values, one)
    layouts.drop_pages(path)
    array = layouts.open_hdf5(path)
    assert array.chunks == one.chunk_shape
    found = array[tuple(BOX[axis] for axis in one.axes)]
    assert np.array_equal(found, values[BOX].transpose(one.axes))


@pytest.mark.parametrize("shard_shape", [None, (10, 14, 30)])
def test_a_zarr_array_reads_as_it_was_written(
    server: Server, shard_shape: tuple[int, ...] | None
) -> None:
    """A box comes back the same, sharded or not."""
    values = make_values()
    location = make_location(server, "chunkings")
    place = layouts.prepare_zarr(location, values, LAYOUTS[2], shard_shape=shard_shape)
    array = layouts.open_zarr(location / place)
    assert (array.chunks, array.shards) == (LAYOUTS[2].chunk_shape, shard_shape)
    assert np.array_equal(array[BOX], values[BOX])
    with pytest.raises(UserError, match="chunk_shape: none of contiguous"):
        layouts.prepare_zarr(location, values, LAYOUTS[0])


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
        grid = np.indices([-(-n // c) for n, c in zip(shape, chunk, strict=True)]).reshape(3, -1).T
        touched = {
            tuple(at)
            for at in grid.tolist()
            if all(
                i * c < s.stop and (i + 1) * c > s.start
                for i, c, s in zip(at, chunk, box, strict=True)
            )
        }
        assert len(touched) == chunks_touched(box, chunk)
        assert not touched & owners
        owners |= touched
