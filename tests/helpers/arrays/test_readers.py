"""Each layout is what it says it is, and each reader reads what was written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import h5py
import hypothesis.strategies as st
import numpy as np
import obstore
import pytest
import zarr
from hypothesis import given
from numpy.typing import NDArray
from zarr.storage import ObjectStore

from helpers.arrays import readers, reads, writers
from helpers.arrays.fields import FILL
from helpers.arrays.readers import READERS
from helpers.arrays.stores import StoredArray
from helpers.arrays.writers import CODECS, Codec, iterate_blocks
from helpers.benchmark.contender import CheckError
from helpers.objectstore.locations import Location
from helpers.objectstore.testbed import Server
from tests.stores import CHUNK_SHAPE, SHAPE, make_location, make_sample, make_stored

WHOLE = make_sample().block((0,) * 4, SHAPE)


@pytest.fixture(scope="module")
def location(server: Server) -> Location:
    """Locate the bucket of this module."""
    return make_location(server, "formats")


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Leave no client and no setting of a reader to other tests."""
    yield
    readers.forget_clients({})


def read(stored: StoredArray, name: str) -> NDArray[np.uint64]:
    """Read by a reader and return checksums."""
    reader = READERS[name]
    readers.forget_clients(reader.zarr_config)
    array = reads.open_array(stored, reader)
    sums = reads.read_into_sink(array, stored.chunk_shape)
    return np.asarray(sums.compute(scheduler="threads", num_workers=2))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", READERS)
def test_reads_what_was_written(location: Location, name: str, codec: Codec) -> None:
    """Checksums through each reader and codec are those of the sample itself."""
    stored = make_stored(location, codec=codec)
    assert np.array_equal(read(stored, name), stored.checksums)
    reader = READERS[name]
    array = reads.open_array(stored, reader)
    assert array.chunksize == CHUNK_SHAPE
    assert np.array_equal(array[1].compute(scheduler="synchronous"), WHOLE[1])


def spoil(location: Location, layout: str) -> None:
    """Flip every bit of 100 bytes in the middle of the first chunk's data."""
    client = location.obstore()
    if layout == "zarr":
        key, start = "zarr/temperature/c/0/0/0/0", 0
        size = len(obstore.get(client, key).bytes())
    else:
        key, refs = (
            "netcdf/array.nc",
            json.loads(bytes(obstore.get(client, "references/references.json").bytes())),
        )
        _, start, size = refs["refs"]["temperature/0.0.0.0"]
    body = bytearray(bytes(obstore.get(client, key).bytes()))
    middle = start + size // 2
    body[middle : middle + 100] = bytes(255 - value for value in body[middle : middle + 100])
    obstore.put(client, key, bytes(body))


@pytest.mark.parametrize("codec", ["none", "blosc-zstd"])
@pytest.mark.parametrize("name", READERS)
def test_corruption_is_found(location: Location, name: str, codec: Codec) -> None:
    """A read of other bytes ends in an error: of the codec's own, or of our check."""
    stored = make_stored(location / f"spoilt-{name}", codec=codec)
    reads.check_values(read(stored, name), stored)
    spoil(stored.location, READERS[name].layout)
    of_codecs = () if codec == "none" else (RuntimeError, OSError)
    with pytest.raises((CheckError, *of_codecs)):
        reads.check_values(read(stored, name), stored)


@pytest.mark.parametrize("codec", CODECS)
def test_layouts_are_as_asked(location: Location, codec: Codec, tmp_path: Path) -> None:
    """Zarr and HDF5 themselves say chunk shape, level 5, byte shuffle, codec, fill and dimensions."""
    stored = make_stored(location, codec=codec)
    array = zarr.open_array(ObjectStore(stored.at("zarr").obstore()), path="temperature", mode="r")
    found = array.metadata.to_dict()
    assert (array.chunks, array.dtype, array.fill_value) == (CHUNK_SHAPE, np.float32, FILL)
    assert found["dimension_names"] == writers.DIMENSIONS and found["zarr_format"] == 3
    asked = {"cname": codec.removeprefix("blosc-"), "clevel": 5, "shuffle": "shuffle"}
    for one in array.compressors:
        assert asked.items() <= one.to_dict()["configuration"].items()
    (path := tmp_path / "array.nc").write_bytes(
        bytes(obstore.get(stored.at("netcdf").obstore(), "array.nc").bytes())
    )
    with h5py.File(path) as file:
        dataset = file["temperature"]
        properties = dataset.id.get_create_plist()
        assert (dataset.chunks, dataset.fillvalue) == (CHUNK_SHAPE, FILL)
        filters = [properties.get_filter(i) for i in range(properties.get_nfilters())]
    number = {"blosc-lz4": 1, "blosc-zstd": 5}  # of the compressor, in Blosc's own list
    told = [(code, options[4:7]) for code, _, options, _ in filters]
    assert len(array.compressors) == len(told) == (codec != "none")
    assert told == [(32001, (5, 1, number.get(codec)))] * len(told)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=3))
def test_blocks_cover_each_element_once(pairs: list[tuple[int, int]]) -> None:
    """Blocks are at most a chunk, in C order, and together the array."""
    shape, chunk_shape = tuple(n for n, _ in pairs), tuple(c for _, c in pairs)
    counts = np.zeros(shape, int)
    for block in iterate_blocks(shape, chunk_shape):
        assert all(s.stop - s.start <= c for s, c in zip(block, chunk_shape, strict=True))
        counts[block] += 1
    assert (counts == 1).all()
    starts = [tuple(s.start for s in block) for block in iterate_blocks(shape, chunk_shape)]
    assert starts == sorted(starts)
