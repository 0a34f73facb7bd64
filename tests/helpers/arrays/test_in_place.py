"""Tests of the codec pipeline that decodes chunks in their place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import Blosc
from zarr.codecs import BloscCodec, GzipCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from helpers.arrays import readers

SHAPE, CHUNK_SHAPE = (4, 10, 6), (1, 5, 6)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the chunks that went zarr's own way."""
    counted: list[int] = []
    original = readers.BatchedCodecPipeline.read_batch

    async def read_batch(self: Any, batch: Any, *rest: Any) -> Any:
        counted.append(len(list(batch)))
        return await original(self, batch, *rest)

    monkeypatch.setattr(readers.BatchedCodecPipeline, "read_batch", read_batch)
    return counted


@pytest.fixture(autouse=True)
def pipeline() -> Iterator[None]:
    """Let zarr use the pipeline under test."""
    with zarr.config.set({"codec_pipeline.path": f"{readers.__name__}.InPlacePipeline"}):
        yield


def make_array(**options: Any) -> tuple[zarr.Array[Any], np.ndarray[Any, Any]]:
    """Store a range of numbers."""
    values = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    made = {"compressors": BloscCodec(cname="zstd"), "chunks": CHUNK_SHAPE, **options}
    array = zarr.create_array(MemoryStore(), shape=SHAPE, dtype="f4", fill_value=-1, **made)
    array[:] = values
    return array, values


def test_whole_chunks_are_not_copied(copies: list[int]) -> None:
    """A read of whole chunks whose places are contiguous never goes zarr's own way."""
    array, values = make_array()
    np.testing.assert_array_equal(array[1:3], values[1:3])
    assert copies == []


@pytest.mark.parametrize(
    ("options", "selection"),
    [
        ({}, np.s_[:, 2:7]),  # parts of chunks
        ({}, np.s_[..., 3]),  # an axis dropped
        ({"chunks": (1, 5, 3)}, np.s_[:]),  # places that are not contiguous
        ({"chunks": (1, 4, 6)}, np.s_[:]),  # a last chunk that hangs over the edge
        ({"compressors": GzipCodec()}, np.s_[:]),  # another codec
        ({"compressors": None}, np.s_[:]),  # none
        ({"order": "F"}, np.s_[:]),  # another order of the axes in memory
    ],
)
def test_other_reads_go_the_way_of_zarr(
    options: dict[str, Any], selection: Any, copies: list[int]
) -> None:
    """What cannot be decoded in place is read right all the same."""
    with zarr.config.set({"array.order": options.pop("order", "C")}):
        array, values = make_array(**options)
        np.testing.assert_array_equal(array[selection], values[selection])
    assert copies


@given(st.data())
def test_every_selection_agrees_with_numpy(data: st.DataObject) -> None:
    """Any box of an array reads as numpy slices it."""
    array, values = make_array()
    box = tuple(
        slice(*sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))) for n in SHAPE
    )
    np.testing.assert_array_equal(array[box], values[box])


@pytest.mark.parametrize("n_values", [10, 60])  # a chunk has 30
def test_a_chunk_of_another_length_is_refused(n_values: int) -> None:
    """A chunk that would leave a part of its place unwritten is an error, never old memory."""
    array, _ = make_array()
    encoded = Blosc().encode(np.zeros(n_values, np.float32))
    held = default_buffer_prototype().buffer.from_bytes(encoded)
    array.store._store_dict["c/1/0/0"] = held  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=f"{4 * n_values} bytes where 120 belong"):
        array[:]
