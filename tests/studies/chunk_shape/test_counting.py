"""What a box asks of an object store is what the installed zarr asks of its store."""

from __future__ import annotations

import math

import numpy as np
import pytest
import zarr

from helpers.objectstore.testbed import Server
from studies.chunk_shape import layouts
from studies.chunk_shape.counting import count_object_io
from tests.stores import make_location

SHAPE, CHUNK = (48, 12, 14), (5, 3, 4)


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
    server: Server, monkeypatch: pytest.MonkeyPatch, medium: str, box: tuple[slice, ...]
) -> None:
    """Counted at its store."""
    values = np.arange(math.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    shard = layouts.shard_of(medium, SHAPE, CHUNK)  # type: ignore[arg-type]
    location = make_location(server, f"loads-{medium}")
    place = layouts.prepare_zarr(location, values, CHUNK, shard)
    array = layouts.open_zarr(location / place)
    asked, get = [], zarr.storage.ObjectStore.get

    async def count(store: object, key: str, *rest: object, **more: object) -> object:
        asked.append(key)
        return await get(store, key, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(zarr.storage.ObjectStore, "get", count)
    assert np.array_equal(array[box], values[box])
    assert len(asked) == count_object_io(box, CHUNK, shard, SHAPE).n_requests
