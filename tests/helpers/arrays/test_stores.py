"""Stored arrays are made once, complete, as asked, and read back as they were made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest

from helpers.arrays import stores
from helpers.arrays.stores import checksum, prepare_array
from helpers.arrays.writers import LAYOUTS
from helpers.errors import UserError
from helpers.objectstore.locations import Location
from helpers.objectstore.testbed import Server
from helpers.paths import ROOT
from tests.stores import (
    CHUNK_SHAPE,
    SHAPE,
    client_environment,
    make_location,
    make_sample,
    make_stored,
)


@pytest.fixture(scope="module")
def location(server: Server) -> Location:
    """Locate the bucket of this module."""
    return make_location(server, "stores")


def list_objects(location: Location) -> dict[str, tuple[Any, Any]]:
    """Map objects to what changes when they are written again."""
    found = obstore.list(location.obstore()).collect()
    return {item["path"]: (item["e_tag"], item["last_modified"]) for item in found}


def test_second_preparation_writes_nothing(location: Location) -> None:
    """An array that is there is described, not written: no object changes."""
    told: list[str] = []
    first = make_stored(location / "cached")
    before = list_objects(location / "cached")
    sample = make_sample()
    again = prepare_array(
        sample,
        location / "cached",
        chunk_shape=CHUNK_SHAPE,
        codec="blosc-zstd",
        layouts=LAYOUTS,
        progress=told.append,
    )
    assert list_objects(location / "cached") == before
    assert told == []
    assert np.array_equal(again.checksums, first.checksums)
    assert (again.location, again.stored_nbytes) == (first.location, first.stored_nbytes)


def test_what_decides_the_bytes_decides_the_folder(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another seed, shape, chunk shape, codec or generation is another array."""
    place = location / "cached"

    def folder(**change: Any) -> Location:
        how = {"chunk_shape": CHUNK_SHAPE, "codec": "blosc-zstd", "layouts": ["zarr"]}
        sample = make_sample(change.pop("shape", SHAPE), change.pop("seed", 0))
        return prepare_array(sample, place, **(how | change)).location

    changes: list[dict[str, Any]] = [{}, {"seed": 1}, {"shape": (3, 6, 40, 81)}, {"codec": "none"}]
    folders = [folder(**one) for one in (*changes, {"chunk_shape": (1, 6, 40, 50)})]
    monkeypatch.setattr(stores, "_GENERATION", stores._GENERATION + 1)
    assert len({each.prefix for each in (*folders, folder())}) == 6


def test_checksums_are_of_the_sample(location: Location) -> None:
    """Each checksum is that of the chunk of the sample array at its place in the grid."""
    stored, sample = make_stored(location / "cached"), make_sample()
    assert stored.checksums.shape == (3, 2, 1, 2)
    assert stored.n_chunks == 12
    assert stored.nbytes == sample.nbytes == 230_400
    assert stored.checksums[2, 1, 0, 1] == checksum(sample.block((2, 4, 0, 50), (3, 6, 40, 80)))
    assert len(np.unique(stored.checksums)) == 12


def test_stored_nbytes_are_those_of_the_objects(location: Location) -> None:
    """Bytes in the store are what the store lists, and compression shows in them."""
    stored = make_stored(location / "cached")
    for layout, nbytes in stored.stored_nbytes.items():
        listed = obstore.list(stored.at(layout).obstore()).collect()
        assert nbytes == sum(item["size"] for item in listed)
    raw = make_stored(location / "cached", codec="none", layouts=["zarr", "netcdf"])
    for layout in ("zarr", "netcdf"):
        assert stored.stored_nbytes[layout] < 0.8 * raw.stored_nbytes[layout]


def test_secrets_are_not_shown(location: Location) -> None:
    """Neither a stored array nor what lies in the store shows credentials."""
    stored = make_stored(location / "cached")
    texts = [repr(stored), str(stored)]
    client = stored.location.obstore()
    for name in ("references/references.json", "zarr/zarr.json", "zarr.json", "netcdf.json"):
        texts.append(bytes(obstore.get(client, name).bytes()).decode())
    assert not any(secret in text for secret in location.secrets for text in texts)


@pytest.mark.parametrize(
    ("chunk_shape", "says"),
    [
        ((1, 6, 40), "allowed: 4 extents"),
        ((1, 0, 40, 80), r"between 1 and array_shape \[3, 6, 40, 80\]"),
        ((1, 7, 40, 80), "between 1 and"),  # one more than there is
    ],
)
def test_refuses_chunk_shape(chunk_shape: tuple[int, ...], says: str) -> None:
    """A chunk shape that does not fit is refused in one line."""
    with pytest.raises(UserError, match=rf"^chunk_shape: \[.*{says}"):
        stores.check_chunk_shape(SHAPE, chunk_shape)


_WRITE = """
import sys
import os
from helpers.objectstore.processes import peak_nbytes
from helpers.arrays.fields import SampleArray
from helpers.objectstore.locations import parse_location
from helpers.arrays.stores import prepare_array
from tests.stores import SOURCE

sample = SampleArray(SOURCE, "temperature", (int(sys.argv[1]), 5, 360, 720))
how = {"chunk_shape": (1, 5, 360, 720), "codec": "blosc-lz4", "layouts": [sys.argv[2]]}
prepare_array(sample, parse_location("s3://stores/growth"), **how)
print(peak_nbytes(os.getpid()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["zarr", "netcdf"])
def test_memory_does_not_grow_with_the_array(
    location: Location, server: Server, layout: str, tmp_path: Path
) -> None:
    """Four times the array takes the same peak memory, less than 1 GB."""
    script = tmp_path / "write.py"
    script.write_text(_WRITE)
    environment = {**os.environ, **client_environment(server), "PYTHONPATH": str(ROOT)}
    peaks = []
    for n_times in (12, 48):  # 62 and 249 MB
        command = [sys.executable, str(script), str(n_times), layout]
        run = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        peaks.append(int(run.stdout))
    small_nbytes, large_nbytes = peaks
    assert large_nbytes < 1e9
    assert large_nbytes - small_nbytes < 60e6, "a third of what the larger array adds"


_FILTER = """
import helpers.arrays.writers
import h5py, hdf5plugin
with h5py.File("x.h5", "w", driver="core", backing_store=False) as file:
    file.create_dataset("a", data=[1.0] * 3000, chunks=(1000,), **hdf5plugin.Blosc())
    print(file["a"][:].sum())
"""


def test_whoever_imports_it_first_has_the_filters() -> None:
    """netCDF4 brings an HDF5 of its own, beside which h5py finds no filter that comes later."""
    own = {name: value for name, value in os.environ.items() if name != "HDF5_PLUGIN_PATH"}
    command = [sys.executable, "-c", _FILTER]
    run = subprocess.run(command, env=own, stdout=subprocess.PIPE, check=True)
    assert float(run.stdout) == 3000
