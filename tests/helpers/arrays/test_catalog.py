"""The catalogue leads to arrays: made here, or of others."""

from __future__ import annotations

import base64
import struct
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.storage import ObjectStore

from helpers.arrays import readers, reads, writers
from helpers.arrays.fields import FILL
from helpers.arrays.readers import READERS
from helpers.arrays.stores import StoredArray, describe_entries, open_entry, open_or_make_array
from helpers.arrays.writers import expected_warning
from helpers.errors import UserError
from helpers.objectstore.locations import Location
from helpers.objectstore.testbed import Server
from helpers.paths import ROOT
from tests import stand_ins
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


def make_enlarged(location: Location, dataset: str = "enlarged-ocean-temperature") -> StoredArray:
    """Find the array that the book makes, at the shape of the tests."""
    return open_or_make_array(
        dataset,
        location,
        shape=SHAPE,
        chunk_shape=CHUNK_SHAPE,
        codec="blosc-zstd",
        layouts=["zarr"],
    )


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


def test_intake_opens_the_enlarged_array(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intake reads through the environment what was written, endpoint and credentials included."""
    monkeypatch.setenv("ARRAYS_URL", make_enlarged(location).at("zarr").url)
    dataset = open_entry("enlarged-ocean-temperature").read(mask_and_scale=False)
    values = dataset["temperature"]
    assert values.dims == writers.DIMENSIONS
    assert values.data.chunksize == CHUNK_SHAPE
    assert np.array_equal(values.compute(scheduler="synchronous"), WHOLE)


@pytest.mark.parametrize("name", ["absent", "", "woa-file"])
def test_refuses_unknown_dataset(location: Location, name: str) -> None:
    """An entry that is not there is refused with those that are."""
    with pytest.raises(
        UserError, match=r"^dataset: .*; allowed: ocean-temperature, enlarged-"
    ) as refusal:
        make_enlarged(location, name)
    assert repr(name) in str(refusal.value)


def write_others(
    location: Location, *, zarr_format: int, dtype: str = "float32", name: str = "temp"
) -> np.ndarray:
    """Write an array as others have it: another name, other dimensions, with fill."""
    group = zarr.create_group(
        ObjectStore(location.obstore()),
        overwrite=True,
        zarr_format=zarr_format,  # type: ignore[arg-type]
    )
    names = ["month", "level", "lat", "lon"]
    values = np.arange(np.prod(OTHERS_SHAPE), dtype=dtype).reshape(OTHERS_SHAPE)
    values[:, :, 0, :] = FILL
    array = group.create_array(
        name,
        shape=OTHERS_SHAPE,
        chunks=OTHERS_CHUNK_SHAPE,
        dtype=dtype,
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


def find_others(
    path: Path,
    location: Location,
    shape: tuple[int, ...] = OTHERS_SHAPE,
    chunk_shape: tuple[int, ...] = OTHERS_CHUNK_SHAPE,
    layouts: tuple[writers.Layout, ...] = ("zarr",),
) -> StoredArray:
    """Find the array of others."""
    return open_or_make_array(
        "others",
        location,
        shape=shape,
        chunk_shape=chunk_shape,
        codec="none",
        layouts=layouts,
        path=path,
    )


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", [name for name, r in READERS.items() if r.layout == "zarr"])
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
        ({"shape": (4, 3, 6)}, r"^array_shape: .*allowed: at most \[4, 3, 6, 8\]"),
        ({"shape": (4, 3, 5, 8)}, r"^chunk_shape: .*between 1 and array_shape"),
        ({"layouts": ("netcdf",)}, "^contenders: .*only Zarr; allowed: zarr-s3fs, "),
        ({"layouts": ("zarr", "references")}, "^contenders: .*only Zarr"),
    ],
)
def test_refuses_to_read_others_as_what_they_are_not(
    location: Location, tmp_path: Path, change: dict[str, tuple[int, ...]], says: str
) -> None:
    """Another chunk shape, a shape beyond, or a layout that is not there is refused."""
    place = location / "others-refused"
    write_others(place, zarr_format=3)
    with pytest.raises(UserError, match=says):
        find_others(write_catalog(tmp_path, place.url), location, **change)  # type: ignore[arg-type]


def test_refuses_another_store(location: Location, tmp_path: Path) -> None:
    """A network before another store than the array's would be measured in vain: refused."""
    path = write_catalog(tmp_path, (location / "others-elsewhere").url)
    for other in (location.through("http://127.0.0.1:1"), Location("gs", "catalogs")):
        with pytest.raises(
            UserError, match=r"^store: .*allowed: s3://catalogs, where dataset 'others'"
        ):
            find_others(path, other)


def test_refuses_what_is_no_store(location: Location) -> None:
    """The field itself is a file on disk, not an array in a store."""
    with pytest.raises(UserError, match=r"^dataset: 'ocean-temperature' is no Zarr group; allowed"):
        make_enlarged(location, "ocean-temperature")


# The stores of 2020.

STORES_OF_2020 = {
    "cm26-temperature": "https://storage.googleapis.com",
    "wasabi-temperature": "https://s3.wasabisys.com",
    "jetstream-temperature": "https://js2.jetstream-cloud.org:8001",
    "osn-precipitation": "https://ncsa.osn.xsede.org",
    "ecco-temperature": "https://data.nas.nasa.gov",
    "esgf-opendap": "http://esgf-data.ucar.edu",
    "noaa-opendap": "https://psl.noaa.gov",
}
OPENED = f"{' x '.join(map(str, OTHERS_SHAPE))}, {' x '.join(map(str, OTHERS_CHUNK_SHAPE))}"


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a process that speaks as Google Cloud Storage and as an OPeNDAP server, and give its address."""
    folder = tmp_path_factory.mktemp("objects")
    group = zarr.open_group(folder / "cmip6/GFDL_CM2_6/control/ocean", zarr_format=2, mode="w")
    named = {"_ARRAY_DIMENSIONS": ["month", "level", "lat", "lon"]}
    shapes: Any = {"shape": OTHERS_SHAPE, "chunks": OTHERS_CHUNK_SHAPE, "dtype": "float32"}
    group.create_array("temp", attributes=named, **shapes)[:] = np.ones(OTHERS_SHAPE, "float32")
    with expected_warning("Consolidated metadata is currently not part"):
        zarr.consolidate_metadata(group.store)
    with serving(str(folder)) as address:
        yield address


@contextmanager
def serving(what: str) -> Iterator[str]:
    """Run a process of stand-ins and give its address."""
    command = [sys.executable, "-m", "tests.stand_ins", what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


@pytest.fixture(scope="module", params=["stand-in", "pydap"])
def opendap(request: pytest.FixtureRequest, stand_in: str) -> Iterator[str]:
    """Run an OPeNDAP server: the small one of the tests and, where it is installed, pydap."""
    if request.param == "stand-in":
        yield stand_in
        return
    pytest.importorskip("pydap", reason="pydap is not installed; it would serve here too")
    with serving("pydap") as address:
        yield address


def redirect(path: Path, moved: Mapping[str, str]) -> Path:
    """Copy the catalogue with other addresses, each of which has to be in it."""
    text = (ROOT / "catalog.yml").read_text()
    for old, new in moved.items():
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["wasabi-temperature", "jetstream-temperature", "osn-precipitation"]
)
def test_stores_that_speak_s3_open_lazily(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Zarr behind an endpoint of its own is opened by its metadata, chunk by chunk."""
    place = location / name
    write_others(place, zarr_format=3, name=open_entry(name).metadata["variable"])
    monkeypatch.setenv("ARRAYS_URL", place.url)
    moved = {STORES_OF_2020[name]: str(location.endpoint_url)}
    if name == "osn-precipitation":
        moved |= {"s3://Pangeo/pangeo-forge/gpcp-feedstock/gpcp.zarr": place.url, "anon: true": "anon: false"}  # fmt: skip
    [line] = describe_entries([name], redirect(tmp_path / "catalog.yml", moved)).to_dict("records")
    assert (line["reason"], f"{line['shape']}, {line['chunks']}") == ("", OPENED)
    assert line["type"] == "float32"


@pytest.mark.slow
def test_google_cloud_storage_opens_lazily(
    stand_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the study of 2020 read is opened through the protocol of Google's store."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", stand_in)
    moved = {STORES_OF_2020["cm26-temperature"]: stand_in}
    # for the kind of the bucket, gcsfs asks Google itself, and without a network tries for a minute
    moved |= {"token: anon": "token: anon\n        retry_timeout: 0.1"}
    path = redirect(tmp_path / "catalog.yml", moved)
    [line] = describe_entries(["cm26-temperature"], path).to_dict("records")
    assert (line["reason"], f"{line['shape']}, {line['chunks']}") == ("", OPENED)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variable"), [("esgf-opendap", "tas"), ("noaa-opendap", "sst")])
def test_opendap_opens_lazily_and_reads_what_is_there(
    opendap: str, tmp_path: Path, name: str, variable: str
) -> None:
    """Both servers of 2020 are asked through DAP 2; strides and single steps give the right values."""
    path = redirect(tmp_path / "catalog.yml", {STORES_OF_2020[name]: opendap})
    [line] = describe_entries([name], path).to_dict("records")
    assert (line["reason"], line["shape"]) == ("", " x ".join(map(str, stand_ins.SHAPE)))
    values, expected = open_entry(name, path).read()[variable], stand_ins.VARIABLES[variable]
    assert values.chunks is not None
    for chosen in (np.s_[:], np.s_[1], np.s_[1:3, ::2, 2:7:3], np.s_[3, 5, 7]):
        assert np.array_equal(values[chosen].compute(scheduler="synchronous"), expected[chosen])


def test_what_does_not_answer_is_told_and_the_others_are_shown(tmp_path: Path) -> None:
    """An unreachable store has its reason in its line, and stops no other."""
    moved = {STORES_OF_2020["noaa-opendap"]: "http://127.0.0.1:1", "{CATALOG_DIR}": str(ROOT)}
    path = redirect(tmp_path / "catalog.yml", moved)
    table = describe_entries(["noaa-opendap", "ocean-temperature"], path).set_index("entry")
    assert table.loc["noaa-opendap", "reason"].startswith("ConnectionRefusedError")
    assert table.loc["ocean-temperature", "reason"] == ""
    assert table.loc["ocean-temperature", "shape"] == "12 x 19 x 90 x 180"
    with pytest.raises(UserError, match="^dataset: 'absent'; allowed: "):
        describe_entries(["absent"])
