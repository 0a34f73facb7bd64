"""Our own read path: any part of an array, and what it leaves to zarr."""

from __future__ import annotations

import dask.array as da
import numpy as np
import obstore
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from zarr.storage import ObjectStore

from helpers.arrays.direct import DirectArray, open_direct
from helpers.arrays.fields import FILL
from helpers.errors import UserError

SHAPE, CHUNK_SHAPE = (5, 7, 6), (2, 3, 6)


def write(store: obstore.store.MemoryStore, path: str = "a", **more: object) -> NDArray[np.float32]:
    """Write an array with one chunk that is not there."""
    values = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    values[:2, :3] = FILL
    options = {"compressors": zarr.codecs.BloscCodec(cname="zstd"), "fill_value": float(FILL)}
    array = zarr.create_array(
        ObjectStore(store), name=path, shape=SHAPE, chunks=CHUNK_SHAPE, dtype="float32",
        **(options | more),
    )  # fmt: skip
    array[...] = values
    return values


@pytest.fixture(scope="module")
def stored() -> tuple[DirectArray, NDArray[np.float32]]:
    """Open an array in memory, and give its values."""
    store = obstore.store.MemoryStore()
    values = write(store)
    return open_direct(store, "a", n_requests=3, n_decoders=2), values


def _one_of(n: int) -> st.SearchStrategy[slice | int]:
    ends = st.none() | st.integers(-n - 2, n + 2)
    return st.integers(-n, n - 1) | st.builds(slice, ends, ends)


INDICES = st.tuples(*map(_one_of, SHAPE))


@given(key=INDICES)
def test_any_part_is_read(
    stored: tuple[DirectArray, NDArray[np.float32]], key: tuple[slice | int, ...]
) -> None:
    """Whole chunks, clipped ones, none at all, and one that is not there: as NumPy has it."""
    array, values = stored
    np.testing.assert_array_equal(array[key], values[key])


@pytest.mark.parametrize("key", [..., (), 1, (..., 2), (slice(1, 3), ...), (0, ..., 5)])
def test_short_indices_are_completed(
    stored: tuple[DirectArray, NDArray[np.float32]], key: object
) -> None:
    """As NumPy does."""
    array, values = stored
    np.testing.assert_array_equal(array[key], values[key])  # type: ignore[index]


@pytest.mark.parametrize("key", [slice(None, None, 2), [1, 2], (0, 0, 0, 0), None, "x", 1.5])
def test_other_indices_are_refused(
    stored: tuple[DirectArray, NDArray[np.float32]], key: object
) -> None:
    """One line says which are read."""
    with pytest.raises(UserError, match="allowed: slices"):
        stored[0][key]


def test_indices_out_of_bounds(stored: tuple[DirectArray, NDArray[np.float32]]) -> None:
    """As those of NumPy."""
    with pytest.raises(IndexError, match="9"):
        stored[0][9]


def test_memory_is_used_again(stored: tuple[DirectArray, NDArray[np.float32]]) -> None:
    """Reading into an array leaves no other; one of another shape is refused."""
    array, values = stored
    out = np.zeros(SHAPE, np.float32)
    assert array.read([(0, n) for n in SHAPE], out) is out
    np.testing.assert_array_equal(out, values)
    with pytest.raises(UserError, match="out: float32 of"):
        array.read([(0, 1), (0, 1), (0, 1)], out)


def test_dask_and_xarray_take_it(stored: tuple[DirectArray, NDArray[np.float32]]) -> None:
    """It is an array to both."""
    array, values = stored
    blocks = da.from_array(array, array.chunks)  # type: ignore[no-untyped-call]
    np.testing.assert_array_equal(blocks.compute(), values)
    named = xr.DataArray(blocks, dims=("t", "y", "x"))
    assert float(named[4].sum()) == float(values[4].sum())


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"compressors": None}, "BytesCodec"),
        ({"compressors": zarr.codecs.GzipCodec()}, "GzipCodec"),
        ({"shards": (4, 6, 6)}, "ShardingCodec"),
        ({"zarr_format": 2, "compressors": None}, "older format"),
    ],
)
def test_what_zarr_has_to_read_is_refused(more: dict[str, object], told: str) -> None:
    """The line names the codecs."""
    store = obstore.store.MemoryStore()
    write(store, **more)
    with pytest.raises(UserError, match=told):
        open_direct(store, "a")


@pytest.mark.parametrize("content", [b"", b"\x00" * 16, b"not a chunk of Blosc at all"])
def test_a_spoilt_chunk_ends_the_read(content: bytes) -> None:
    """Never values that were not written, and the next read goes on."""
    store = obstore.store.MemoryStore()
    write(store)
    array = open_direct(store, "a", n_requests=2)
    whole = obstore.get(store, "a/c/1/1/0").bytes()
    obstore.put(store, "a/c/1/1/0", content)
    with pytest.raises((ValueError, RuntimeError)):
        array[...]
    obstore.put(store, "a/c/1/1/0", bytes(whole))
    assert array[...].shape == SHAPE


@pytest.mark.parametrize("counts", [{"n_requests": 0}, {"n_decoders": -1}])
def test_counts_are_checked(counts: dict[str, int]) -> None:
    """Before anything is read."""
    with pytest.raises(UserError, match="allowed: at least"):
        open_direct(obstore.store.MemoryStore(), "a", **counts)
