"""Each snippet of an answer runs as it stands, against the store of the tests."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import obstore
import pytest
import xarray as xr
from zarr.errors import ZarrUserWarning

from advisors.decide import snippets
from advisors.decide.question import Question
from advisors.decide.ranking import decide
from helpers.arrays.readers import forget_clients
from helpers.objectstore.locations import Location
from helpers.objectstore.testbed import Server
from tests.stores import client_environment, make_location

SHAPE = (600, 30, 40)
VALUES = np.random.default_rng(5).normal(size=SHAPE).astype("float32")
BUCKET = "decide"


@pytest.fixture(scope="module")
def location(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Location:
    """Locate the bucket of this module, with a granule in it."""
    path = tmp_path_factory.mktemp("granule") / "granule.h5"
    write_granule(path)
    found = make_location(server, BUCKET)
    obstore.put(found.obstore(), "granule.h5", path)
    return found


def write_granule(path: Path) -> None:
    """Write the values as a file that both h5py and xarray open."""
    encoding = {"field": {"chunksizes": (60, 10, 10), "zlib": True}}
    dataset = xr.Dataset({"field": (("t", "y", "x"), VALUES)})
    dataset.to_netcdf(path, engine="h5netcdf", encoding=encoding)


@pytest.fixture(autouse=True)
def here(
    server: Server, location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Lead every client to the store of the tests, as a user's environment would."""
    for name, value in client_environment(server).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.chdir(tmp_path)
    yield
    forget_clients({})


def paste(code: str, *, below: str = "") -> dict[str, Any]:
    """Run code with a bucket, or a folder in it, in the place of the reader's own."""
    space: dict[str, Any] = {"__name__": "pasted"}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Numcodecs codecs are not", ZarrUserWarning)
        exec(code.replace(snippets.BUCKET, f"s3://{BUCKET}{below}"), space)
    return space


@pytest.mark.parametrize("client", snippets.clients_for("zarr", "xarray"))
def test_every_client_of_zarr_reads(client: str) -> None:
    """An array that was made by the first lines is read by the next ones."""
    made = paste(snippets.write_array(SHAPE, (60, 10, 10), (120, 30, 40), "float32", copy=client))
    made["array"][...] = VALUES
    read = paste(snippets.read_array(client, 16, 2, "[0]", copy=client))
    np.testing.assert_array_equal(read["values"], VALUES[0])


@pytest.mark.parametrize("reader", ["any", "xarray"])
@pytest.mark.parametrize("way", ["blocks", "whole"])
def test_a_file_is_read(way: str, reader: Any) -> None:
    """In blocks and fetched whole, by h5py and by xarray."""
    codes = {
        "blocks": snippets.read_blocks(2**16, reader),
        "whole": snippets.read_whole(2**16, 4, reader),
    }
    granule = paste(codes[way])["granule"]
    np.testing.assert_array_equal(np.asarray(granule["field"]), VALUES)
    granule.close()


def test_references_are_read() -> None:
    """The chunks of the file come as those of Zarr."""
    found = paste(snippets.read_references())["dataset"]
    np.testing.assert_array_equal(found["field"].values, VALUES)


def test_a_file_is_rewritten() -> None:
    """The copy has the chunks, the pages and the values."""
    write_granule(Path("granule.h5"))
    paste(snippets.rewrite_file((100, 30, 40), 2**20))
    with h5py.File("new.h5") as file:
        assert file["field"].chunks == (100, 30, 40)
        assert file.id.get_create_plist().get_file_space_page_size() == 2**20
        np.testing.assert_array_equal(file["field"][...], VALUES)


@pytest.mark.parametrize("cache", ["none", "disk", "shared", "redis", "cdn"])
def test_what_was_opened_is_kept(cache: str) -> None:
    """The second call returns what the first has opened, and it still reads."""
    name = f"kept-{cache}"
    made = paste(snippets.write_array(SHAPE, (60, 10, 10), None, "float32", copy=name))
    made["array"][...] = VALUES
    space = paste(snippets.keep_open(cache, 3600, 10))
    for _ in range(2):
        dataset = space["open_dataset"](f"s3://{BUCKET}/{name}.zarr")
        np.testing.assert_array_equal(dataset["field"][0].values, VALUES[0])
    if "cache" in space:
        space["cache"].close()
    assert ("headers" in space) == (cache == "cdn")


@pytest.mark.parametrize(
    "given",
    [
        {"access": "series:0.8,map:0.2"},  # one copy, another shape, two copies
        {"access": "series:1", "max_objects": 4, "compression": 1.5},  # shards
        {"access": "1x10x10@aligned:1", "requests_per_s": 10},  # a service, each cache
        {"access": "whole:1", "chunks": "60,10,10"},  # a file beside Zarr
        {"access": "series:1", "must_stay": "hdf5", "reader": "xarray"},
    ],
    ids=["fields", "shards", "service", "file", "xarray"],
)
def test_the_code_of_every_choice_runs(given: dict[str, Any], request: Any) -> None:
    """Whatever an answer says to paste can be pasted."""
    write_granule(Path("granule.h5"))
    answer = decide(Question.ask(shape=",".join(map(str, SHAPE)), **given))
    for number, choice in enumerate(answer.choices):
        is_zarr = choice.format == "zarr"
        below = f"/{request.node.callspec.id}/{number}" if is_zarr else ""
        space = paste(choice.code, below=below)
        if is_zarr:
            assert space["array"].chunks == choice.chunk_shapes[-1]
            assert space["array"].shards == choice.shard_shape
        for name in ("granule", "cache"):
            if name in space:
                space[name].close()
