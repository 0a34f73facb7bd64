"""What is read of a dataset: Zarr, HDF5 and netCDF, on disk, in a bucket and on the web, and refusals."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import obstore
import pytest
import zarr
from scipy.io import netcdf_file
from zarr.storage import ObjectStore

from tests.refusals import refused
from tests.stores import Ranges, client_environment, make_location, serve
from wire.bed.networks import get_profile
from wire.bed.testbed import Server
from wire.decide import dataset
from wire.decide.cli import find_answer
from wire.decide.dataset import read_dataset
from wire.decide.show import to_mapping
from wire.hdf5.advice import advise

SHAPE, CHUNKS, SHARDS = (64, 40, 60), (16, 20, 30), (32, 40, 60)
BUCKET = "of-test-dataset"
WORDS = np.dtype("int32")


def fill(group: zarr.Group, **how: Any) -> None:
    """Put a large array, two smaller ones that are alike, and a coordinate into a group."""
    values = np.repeat(np.arange(64, dtype=WORDS), 2400).reshape(SHAPE)
    for name, shape in (("large", SHAPE), ("one", (64, 40)), ("two", (64, 40)), ("time", (64,))):
        n = len(shape)
        chunks = {
            "chunks": CHUNKS[:n],
            **({"shards": SHARDS} if how.get("shards") and n == 3 else {}),
        }
        array = group.create_array(name, shape=shape, dtype=WORDS, **chunks)
        array[...] = values[(slice(None), slice(None), slice(None))[:n] + (0,) * (3 - n)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with datasets of every kind."""
    root = tmp_path_factory.mktemp("datasets")
    fill(zarr.open_group(root / "two.zarr", mode="w", zarr_format=2))
    fill(zarr.open_group(root / "three.zarr", mode="w", zarr_format=3))
    fill(zarr.open_group(root / "sharded.zarr", mode="w", zarr_format=3), shards=True)
    with warnings.catch_warnings(action="ignore"):  # of a convention that many stores have
        zarr.consolidate_metadata(root / "three.zarr")
    with h5py.File(root / "file.h5", "w") as file:
        values = np.zeros(SHAPE, WORDS)
        file.create_dataset("g/large", data=values, chunks=CHUNKS, compression="gzip", shuffle=True)
        for name in ("flat", "twin"):
            file.create_dataset(name, data=values[0])
        file.create_dataset("words", data=["a"])
    with netcdf_file(root / "old.nc", "w") as old:
        old.createDimension("x", 50)
        old.createVariable("v", "f4", ("x",))[:] = 1
    (root / "granule").write_bytes((root / "file.h5").read_bytes())
    fill(zarr.open_group(root / "zarr.nc", mode="w", zarr_format=3))
    with warnings.catch_warnings(action="ignore"):
        zarr.consolidate_metadata(root / "zarr.nc")
    (root / "after-a-block").write_bytes(bytes(512) + (root / "file.h5").read_bytes())
    (root / "broken.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(200))
    (root / "image.tif").write_bytes(b"II*")
    zarr.open_group(root / "empty.zarr", mode="w")
    return root


@pytest.fixture(scope="module")
def places(folder: Path, server: Server) -> Iterator[dict[str, str]]:
    """The same datasets on disk, in a bucket and on the web."""
    store = make_location(server, BUCKET).obstore()
    for path in folder.rglob("*"):
        if path.is_file():
            obstore.put(store, path.relative_to(folder).as_posix(), path.read_bytes())
    with serve(functools.partial(Ranges, directory=str(folder))) as address:
        yield {"disk": str(folder), "bucket": f"s3://{BUCKET}", "web": address}


@pytest.fixture(autouse=True)
def _here(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lead every client to the store of the tests, as a user's environment would."""
    for name, value in client_environment(server).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.mark.parametrize("where", ["disk", "bucket", "web"])
@pytest.mark.parametrize(
    ("name", "variable", "layout", "n_arrays"),
    [
        ("two.zarr", "large", (CHUNKS, None), 1),
        ("three.zarr", "", (CHUNKS, None), 4),  # consolidated, so that the web needs no list
        ("sharded.zarr", "large", (CHUNKS, SHARDS), 1),
        ("three.zarr/large", "", (CHUNKS, None), 1),
        ("file.h5", "", (CHUNKS, None), 4),
        # whatever they are called
        ("granule", "", (CHUNKS, None), 4),
        ("after-a-block", "", (CHUNKS, None), 4),
        ("zarr.nc", "", (CHUNKS, None), 4),
    ],
)
def test_a_dataset_tells_its_layout(
    places: dict[str, str], where: str, name: str, variable: str, layout: Any, n_arrays: int
) -> None:
    """Shape, type, chunks, shards, codec and how well it compresses, wherever it lies."""
    found = read_dataset(f"{places[where]}/{name}", variable)
    assert found.layout is not None and (found.shape, found.dtype) == (SHAPE, WORDS)
    assert (found.layout.chunk_shape, found.layout.shard_shape) == layout
    assert found.compression is not None and found.compression > 5 and found.codec != "none"
    assert len(found.names) == n_arrays and found.names[0].rpartition("/")[2] == "large"


@pytest.mark.parametrize(
    ("where", "name", "variable", "fields"),
    [
        ("disk", "gone.zarr", "", ("dataset", "nothing is there$")),
        ("disk", "empty.zarr", "", ("variable", "^0 arrays")),
        ("disk", "image.tif", "", ("dataset", "not HDF5$")),
        ("disk", "old.nc", "", ("dataset", "netCDF-3, which has no chunks$")),
        ("disk", "broken.h5", "", ("file", "broken.h5", "^a sound file")),
        (
            "disk",
            "three.zarr",
            "lorem",
            ("variable", "^'lorem'$", "4 arrays, the largest first: large"),
        ),
        ("disk", "file.h5", "words", ("variable", "^words$", "^an array with elements")),
        ("bucket", "gone.zarr", "", ("dataset", "nothing is there$")),
        ("bucket", "gone.h5", "", ("dataset", "nothing is there$")),
        ("bucket", "image.tif", "", ("dataset", "not HDF5$")),
        ("bucket", "old.nc", "", ("dataset", "netCDF-3, which has no chunks$")),
        ("web", "403/a.zarr", "", ("dataset", "access is refused$", "^credentials")),
        ("web", "403/a.h5", "", ("dataset", "access is refused$", "^credentials")),
        ("web", "503/a.zarr", "", ("dataset", "asks to wait")),
        ("web", "gone.zarr", "", ("dataset", "nothing is there$")),
    ],
)
def test_what_cannot_be_read_is_one_line(
    places: dict[str, str], where: str, name: str, variable: str, fields: tuple[str, ...]
) -> None:
    """Each says what it is and what to do."""
    with refused(*fields) as caught:
        read_dataset(f"{places[where]}/{name}", variable)
    assert caught.value.allowed


def test_a_server_that_is_away_and_keys_that_are_wrong(
    places: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody answers at that port; a key that the store does not know is refused."""
    with refused("dataset", "does not answer"):
        read_dataset("http://127.0.0.1:9/a.zarr")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "lorem-ipsum")
    for name in ("three.zarr", "file.h5"):
        with refused("dataset", allowed="credentials"):
            read_dataset(f"{places['bucket']}/{name}")


def test_of_a_file_of_too_many_datasets_one_is_to_be_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not looked at could be the largest; one that is named is read."""
    monkeypatch.setattr(dataset, "_LISTED_S", 0)
    with refused("dataset", "more datasets ", "--variable"):
        read_dataset(str(folder / "file.h5"))
    assert read_dataset(str(folder / "file.h5"), "g/large").shape == SHAPE


def test_a_few_requests_are_enough(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata, and the lengths of five objects, whose ratio comes near that of all; those that are alike are counted."""
    asked: list[str] = []
    get, head = ObjectStore.get, obstore.head

    async def note(store: Any, key: str, *rest: Any, **more: Any) -> Any:
        asked.append(key)
        return await get(store, key, *rest, **more)

    monkeypatch.setattr(ObjectStore, "get", note)
    monkeypatch.setattr(obstore, "head", lambda store, key: asked.append(key) or head(store, key))
    found = read_dataset(str(folder / "three.zarr"))
    objects = [one for one in (folder / "three.zarr/large/c").rglob("*") if one.is_file()]
    stored = sum(one.stat().st_size for one in objects)
    assert len(asked) <= 10 and found.n_alike == 1
    assert found.compression == pytest.approx(found.nbytes / stored, rel=0.2)
    assert read_dataset(str(folder / "file.h5"), "flat").n_alike == 2


def test_a_file_on_the_web_is_read_today_as_fsspec_opens_it(places: dict[str, str]) -> None:
    """Five MiB ahead and not fifty, as the advice on it says; the answer has the address without its secrets."""
    address = f"{places['web']}/file.h5"
    found = find_answer(f"{address}?token=lorem-ipsum", access="whole", keep="bytes")
    said = advise(address, get_profile("in-region"), variables=["g/large"]).advice[0].prediction
    assert found.now.client.name == "fsspec-https" and said.method.name == "fsspec.open"
    assert found.now.reads[0].nbytes == pytest.approx(said.nbytes, rel=0.02)
    assert "lorem" not in str(to_mapping(found))
