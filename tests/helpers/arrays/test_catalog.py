"""The catalogue leads to arrays: made here, or of others."""

from __future__ import annotations

import base64
import struct
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.storage import ObjectStore

from helpers.arrays import readers, reads
from helpers.arrays.fields import FILL
from helpers.arrays.readers import READERS
from helpers.arrays.stores import StoredArray, open_entry, open_or_make_array
from helpers.arrays.writers import expected_warning
from helpers.errors import UserError
from helpers.objectstore.locations import Location
from helpers.objectstore.testbed import Server
from helpers.paths import CATALOG
from tests.stores import (
    CHUNK_SHAPE,
    SHAPE,
    client_environment,
    make_location,
    make_sample,
    make_stored,
)

WHOLE = make_sample().block((0,) * 4, SHAPE)
ENCODED_FILL = base64.b64encode(struct.pack("<d", FILL)).decode()  # as xarray writes it
OTHERS_SHAPE, OTHERS_CHUNK_SHAPE = (4, 3, 6, 8), (1, 3, 6, 4)


@pytest.fixture(scope="module")
def location(server: Server) -> Location:
    """Locate the bucket of this module."""
    return make_location(server, "catalogs")


@pytest.fixture(autouse=True)
def _environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lead clients to the server, as users do: through the environment."""
    for name, value in client_environment(server).items():
        monkeypatch.setenv(name, value)
    readers.forget_clients({})


def test_made_array_is_that_of_the_field(location: Location) -> None:
    """An entry made from another is stored, with its field, variable and seed."""
    told: list[str] = []
    found = open_or_make_array(
        "enlarged-ocean-temperature",
        location / "told",
        shape=SHAPE,
        chunk_shape=CHUNK_SHAPE,
        codec="none",
        layouts=["zarr"],
        seed=3,
        progress=told.append,
    )
    expected = make_stored(location, codec="none", layouts=["zarr"], seed=3)
    assert np.array_equal(found.checksums, expected.checksums)
    assert found.is_made
    assert told == ["writing 0 MB as zarr"]


def write_others(location: Location, *, zarr_format: int) -> np.ndarray:
    """Write an array as others have it: another name, other dimensions, with fill."""
    group = zarr.create_group(
        ObjectStore(location.obstore()),
        overwrite=True,
        zarr_format=zarr_format,  # type: ignore[arg-type]
    )
    names = ["month", "level", "lat", "lon"]
    values = np.arange(np.prod(OTHERS_SHAPE), dtype="float32").reshape(OTHERS_SHAPE)
    values[:, :, 0, :] = FILL
    array = group.create_array(
        "temp",
        shape=OTHERS_SHAPE,
        chunks=OTHERS_CHUNK_SHAPE,
        dtype="float32",
        fill_value=float(FILL),
        dimension_names=names if zarr_format == 3 else None,
        attributes={"_FillValue": ENCODED_FILL}
        if zarr_format == 3
        else {"_ARRAY_DIMENSIONS": names},
    )
    array[:] = values
    with expected_warning("Consolidated metadata is currently not part"):
        zarr.consolidate_metadata(group.store)
    return values


def write_catalog(folder: Path, url: str, options: str = "") -> Path:
    """Write a catalogue of one entry."""
    path = folder / "catalog.yml"
    path.write_text(
        textwrap.dedent(
            f"""\
            version: 2
            data:
              store:
                datatype: intake.readers.datatypes:Zarr
                kwargs: {{url: "{url}", {options}}}
                metadata: {{}}
                user_parameters: {{}}
            entries:
              others:
                reader: intake.readers.readers:XArrayDatasetReader
                output_instance: xarray:Dataset
                kwargs:
                  args: ["{{data(store)}}"]
                  chunks: {{}}
                  consolidated: true
                metadata: {{variable: temp}}
                user_parameters: {{}}
            aliases: {{}}
            metadata: {{}}
            user_parameters: {{}}
            """
        )
    )
    return path


def find_others(path: Path, location: Location, **changed: Any) -> StoredArray:
    """Find the array of others."""
    how: dict[str, Any] = {"shape": OTHERS_SHAPE, "chunk_shape": OTHERS_CHUNK_SHAPE}
    how |= {"codec": "none", "layouts": ("zarr",), "dataset": "others", "path": path}
    return open_or_make_array(location=location, **how | changed)


@pytest.mark.parametrize(
    ("zarr_format", "name"), [(2, "zarr-obstore"), (2, "zarr-s3fs"), (3, "zarr-obstore")]
)
def test_array_of_others(location: Location, tmp_path: Path, zarr_format: int, name: str) -> None:
    """An array of others is read where it is; a first read gives its checksums, fill included."""
    place = location / f"others-{zarr_format}"
    values = write_others(place, zarr_format=zarr_format)
    stored = find_others(write_catalog(tmp_path, place.url), location)
    assert stored.at("zarr") == place
    assert not stored.is_made
    assert stored.dimensions == ("month", "level", "lat", "lon")
    expected = reads.checksum_chunks(values, OTHERS_CHUNK_SHAPE)
    assert np.array_equal(stored.checksums, expected)
    readers.forget_clients(READERS[name].zarr_config)
    sums = reads.read_into_sink(reads.open_array(stored, READERS[name]), stored.chunk_shape)
    assert reads.check_values(sums.compute(scheduler="synchronous"), stored)
    readers.forget_clients({})


def test_anonymous_entry_takes_no_credentials(tmp_path: Path) -> None:
    """An entry that says anonymous is not given the credentials of the environment."""
    from helpers.arrays.stores import _locate

    path = write_catalog(tmp_path, "s3://public/data", "storage_options: {anon: true}")
    assert _locate("others", open_entry("others", path), ["zarr"]).secrets == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"chunk_shape": (1, 3, 6, 8)}, r"^chunk_shape: \[1, 3, 6, 8\]; allowed: \[1, 3, 6, 4\]"),
        ({"shape": (5, 3, 6, 8)}, r"^array_shape: .*allowed: at most \[4, 3, 6, 8\]"),
        ({"layouts": ("netcdf",)}, "^contenders: .*only Zarr; allowed: zarr-s3fs, "),
        ({"layouts": ("zarr", "references")}, "^contenders: .*only Zarr"),
        ({"dataset": "absent"}, "^dataset: 'absent'; allowed: others"),
        # a network before another store than the array's would be measured in vain
        ({"location": Location("gs", "catalogs")}, "^store: .*allowed: s3://catalogs, where"),
        # the field itself is a file on disk, not an array in a store
        ({"dataset": "ocean-temperature", "path": CATALOG}, "is no Zarr group; allowed"),
    ],
)
def test_refuses_to_read_others_as_what_they_are_not(
    location: Location, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    """Another chunk shape, a shape beyond, a layout or an entry that is not there is refused."""
    place = location / "others-refused"
    write_others(place, zarr_format=3)
    how = {"path": write_catalog(tmp_path, place.url), "location": location} | change
    with pytest.raises(UserError, match=says):
        find_others(**how)
