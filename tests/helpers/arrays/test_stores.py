"""Stored arrays are made once, complete, as asked, and read back as they were made."""

from __future__ import annotations

import base64
import re
import struct
from pathlib import Path
from typing import Any

import h5netcdf
import numpy as np
import obstore
import pytest
import zarr
from numcodecs import Blosc
from zarr.storage import ObjectStore

from helpers.arrays import readers, reads, stores
from helpers.arrays.fields import FILL
from helpers.arrays.readers import READERS, expected_warning, iterate_blocks
from helpers.arrays.stores import (
    Entry,
    StoredArray,
    open_entry,
    open_or_make_array,
    prepare,
    prepare_array,
)
from helpers.paths import CATALOG
from tests.refusals import refused
from tests.stores import (
    CHUNK_SHAPE,
    SHAPE,
    SOURCE,
    client_environment,
    make_location,
    make_sample,
    make_stored,
)
from wire.bed.locations import Location
from wire.bed.testbed import Server


def test_large_planes_do_not_depend_on_the_block() -> None:
    """Rounding is the same in small and large blocks, however they are computed."""
    sample = make_sample((1, 1, 700, 900))
    whole = sample.block((0, 0, 0, 0), sample.shape)
    for block in iterate_blocks(sample.shape, (1, 1, 97, 131)):
        starts, stops = zip(*((part.start, part.stop) for part in block), strict=True)
        assert np.array_equal(sample.block(starts, stops), whole[block])


def test_land_is_fill_and_ocean_is_water() -> None:
    """Land has the fill value of the source, ocean has temperatures, in the source's shares."""
    with h5netcdf.File(SOURCE) as file:
        source = file["temperature"][:]
    sample = make_sample((12, 19, 180, 360)).block((0, 0, 0, 0), (12, 1, 180, 360))
    ocean = sample[sample != FILL]
    assert np.mean(sample == FILL) == pytest.approx(np.mean(source[:, 0] == FILL), abs=0.03)
    assert -4 < ocean.min() < 0 < 28 < ocean.max() < 36
    assert sample.dtype == np.float32


@pytest.mark.parametrize("shape", [(12, 10, 90, 180), (2, 10, 270, 540), (1, 5, 1080, 1440)])
@pytest.mark.parametrize("cname", ["lz4", "zstd"])
def test_compresses_like_its_source(shape: tuple[int, ...], cname: str) -> None:
    """The ratio of compression is within a quarter of the source's own, with the same codec."""
    with h5netcdf.File(SOURCE) as file:
        source = file["temperature"][:]
    sample = make_sample(shape).block((0, 0, 0, 0), shape)
    assert ratio(sample, cname) == pytest.approx(ratio(source, cname), rel=0.25)


def ratio(values: np.ndarray, cname: str) -> float:
    """Compress in blocks of up to a month, as chunks are."""
    codec = Blosc(cname=cname, clevel=5, shuffle=Blosc.SHUFFLE)
    months = [np.ascontiguousarray(month[:5]) for month in values]
    return sum(m.nbytes for m in months) / sum(len(codec.encode(m)) for m in months)


@pytest.fixture(scope="module")
def location(server: Server) -> Location:
    """Locate the bucket of this module."""
    return make_location(server, "stores")


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


def test_stored_nbytes_are_those_of_the_objects(location: Location) -> None:
    """Bytes in the store are what the store lists, and compression shows in them."""
    stored = make_stored(location / "cached")
    for layout, nbytes in stored.stored_nbytes.items():
        listed = obstore.list(stored.locate(layout).obstore()).collect()
        assert nbytes == sum(item["size"] for item in listed)
    raw = make_stored(location / "cached", codec="none", layouts=["zarr", "netcdf"])
    for layout in ("zarr", "netcdf"):
        assert stored.stored_nbytes[layout] < 0.8 * raw.stored_nbytes[layout]


@pytest.mark.parametrize(
    ("chunk_shape", "allowed"),
    [
        ((1, 6, 40), "^4 extents"),
        ((1, 0, 40, 80), r"^between 1 and array_shape \[3, 6, 40, 80\]$"),
        ((1, 7, 40, 80), "^between 1 and"),  # one more than there is
    ],
)
def test_refuses_chunk_shape(chunk_shape: tuple[int, ...], allowed: str) -> None:
    """A chunk shape that does not fit is refused in one line."""
    with refused("chunk_shape", re.escape(str([*chunk_shape])), allowed):
        stores.check_chunk_shape(SHAPE, chunk_shape)


CONTENT = b"twelve bytes"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep locks in a folder of the test."""
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture(params=["folder", "prefix"])
def place(request: pytest.FixtureRequest, cache: Path, tmp_path: Path) -> Path | Location:
    """Name a place on local disk, or in the store of the tests."""
    if request.param == "folder":
        return tmp_path / "made" / "abc"
    server: Server = request.getfixturevalue("server")
    return make_location(server, "prepared") / tmp_path.name


def make(place: Any, made_by: object = "codec 1", content: bytes = CONTENT) -> tuple[Entry, int]:
    """Prepare two files; return the entry, and how often they were written."""
    written = []

    def write(target: Any) -> dict[str, Any]:
        written.append(target)
        for name in ("data/a", "data/b"):
            put(target, name, content)
        return {"told": 1}

    return prepare(place, made_by, write, prefixes=["data/"]), len(written)


def put(place: Any, name: str, content: bytes) -> None:
    """Write a file or an object."""
    if isinstance(place, Location):
        obstore.put(place.obstore(), name, content)
        return
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    (place / name).write_bytes(content)


def read(place: Any, name: str) -> bytes:
    """Read a file or an object."""
    if isinstance(place, Location):
        return bytes(obstore.get(place.obstore(), name).bytes())
    return (place / name).read_bytes()


def test_a_second_call_writes_nothing(place: Any) -> None:
    """The entry is found, with what was told of it; a writing that failed has left none."""

    def fail(target: Any) -> dict[str, Any]:
        put(target, "data/a", CONTENT[:3])
        raise OSError("Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        prepare(place, "codec 1", fail, prefixes=["data/"])
    first, n_written = make(place)
    again, n_again = make(place)
    assert (n_written, n_again) == (1, 0) and again == first
    assert (first.nbytes, first.facts) == (2 * len(CONTENT), {"told": 1})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data/a", CONTENT[:5]),  # cut off
        ("data/a", CONTENT[::-1]),  # as long, but other bytes
        ("data/c", CONTENT),  # nobody made it
        ("entry.json", b'{"made_by": "codec 1", "fi'),  # half an entry
        ("entry.json", b"{}"),  # an entry of another form
    ],
)
def test_what_does_not_hold_is_made_anew(place: Any, name: str, content: bytes) -> None:
    """Whatever was altered, or made by another codec, what lies there afterwards is what was asked for."""
    make(place, "codec 2", CONTENT[::-1])
    first, n_written = make(place)
    assert n_written == 1 and read(place, "data/b") == CONTENT
    put(place, name, content)
    again, n_written = make(place)
    assert n_written == 1 and (again.nbytes, again.facts) == (first.nbytes, first.facts)
    assert read(place, "data/a") == CONTENT
    assert make(place)[1] == 0


# The catalogue leads to arrays: made here, or of others.

OTHERS = "cm26-temperature"
ENCODED_FILL = base64.b64encode(struct.pack("<d", FILL)).decode()  # as xarray writes it
OTHERS_SHAPE, OTHERS_CHUNK_SHAPE = (4, 3, 6, 8), (1, 3, 6, 4)


@pytest.fixture
def led(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lead clients to the server, as users do: through the environment."""
    for name, value in client_environment(server).items():
        monkeypatch.setenv(name, value)
    readers.forget_clients({})


@pytest.mark.usefixtures("led")
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


@pytest.mark.parametrize("name", ["a b", "a %41 #b", "a {project} $HOME", "é?"])
def test_a_file_of_the_catalogue_is_found_in_any_folder(tmp_path: Path, name: str) -> None:
    """The path of a checkout is pasted into a template and an address, and means itself there."""
    (tmp_path / name).mkdir()
    path = tmp_path / name / "catalog.yml"
    path.write_text(CATALOG.read_text())
    source = stores.open_entry("ocean-temperature", path)
    assert stores._find_file(source) == path.parent / "data" / "ocean-temperature.nc"


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
    """Write the catalogue, with another address for the array of others."""
    public = "gs://cmip6/GFDL_CM2_6/control/ocean\n      storage_options:\n        token: anon"
    text = CATALOG.read_text()
    assert public in text
    path = folder / "catalog.yml"
    path.write_text(text.replace(public, f"{url}\n      storage_options: {{{options}}}"))
    return path


def find_others(path: Path, location: Location, **changed: Any) -> StoredArray:
    """Find the array of others."""
    how: dict[str, Any] = {"shape": OTHERS_SHAPE, "chunk_shape": OTHERS_CHUNK_SHAPE}
    how |= {"codec": "none", "layouts": ("zarr",), "dataset": OTHERS, "path": path}
    return open_or_make_array(location=location, **how | changed)


@pytest.mark.usefixtures("led")
@pytest.mark.parametrize(
    ("zarr_format", "name"), [(2, "zarr-obstore"), (2, "zarr-s3fs"), (3, "zarr-obstore")]
)
def test_array_of_others(location: Location, tmp_path: Path, zarr_format: int, name: str) -> None:
    """An array of others is read where it is; a first read gives its checksums, fill included."""
    place = location / f"others-{zarr_format}"
    values = write_others(place, zarr_format=zarr_format)
    stored = find_others(write_catalog(tmp_path, place.url), location)
    assert stored.locate("zarr") == place
    assert not stored.is_made
    assert stored.dimensions == ("month", "level", "lat", "lon")
    expected = reads.checksum_chunks(values, OTHERS_CHUNK_SHAPE)
    assert np.array_equal(stored.checksums, expected)
    readers.forget_clients(READERS[name].zarr_config)
    sums = reads.read_into_sink(reads.open_array(stored, READERS[name]), stored.chunk_shape)
    assert reads.check_values(sums.compute(scheduler="synchronous"), stored)
    readers.forget_clients({})


@pytest.mark.usefixtures("led")
def test_anonymous_entry_takes_no_credentials(tmp_path: Path) -> None:
    """An entry that says anonymous is not given the credentials of the environment."""
    path = write_catalog(tmp_path, "s3://public/data", "anon: true")
    assert stores._locate(OTHERS, open_entry(OTHERS, path), ["zarr"]).secrets == ()


@pytest.mark.usefixtures("led")
@pytest.mark.parametrize(
    ("change", "where", "allowed"),
    [
        ({"chunk_shape": (1, 3, 6, 8)}, "chunk_shape", r"^\[1, 3, 6, 4\]"),
        ({"shape": (5, 3, 6, 8)}, "array_shape", r"^at most \[4, 3, 6, 8\]"),
        ({"layouts": ("netcdf",)}, "contenders", "^zarr-s3fs, "),
        ({"layouts": ("zarr", "references")}, "contenders", "^zarr-s3fs, "),
        ({"dataset": "absent"}, "dataset", "^ocean-temp"),
        # a network before another store than the array's would be measured in vain
        ({"location": Location("gs", "catalogs")}, "store", "^s3://stores, where"),
        # the field itself is a file on disk, not an array in a store
        ({"dataset": "ocean-temperature", "path": CATALOG}, "dataset", "."),
    ],
)
def test_refuses_to_read_others_as_what_they_are_not(
    location: Location, tmp_path: Path, change: dict[str, Any], where: str, allowed: str
) -> None:
    """Another chunk shape, a shape beyond, a layout or an entry that is not there is refused."""
    place = location / "others-refused"
    write_others(place, zarr_format=3)
    how = {"path": write_catalog(tmp_path, place.url), "location": location} | change
    with refused(where, allowed=allowed):
        find_others(**how)
