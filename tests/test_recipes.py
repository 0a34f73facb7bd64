"""Tests of the page of recipes: each block runs as it stands, and reads what was written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import obstore
import pytest
import redis
import xarray as xr
import zarr
from markdown_it import MarkdownIt
from zarr.storage import ObjectStore

from helpers.arrays.writers import expected_warning
from helpers.netem.profiles import get_profile
from helpers.netem.proxy import Request, open_proxy
from helpers.objectstore.locations import Location
from helpers.objectstore.testbed import Server
from helpers.paths import ROOT
from studies.caching_costs.valkey import Valkey, open_valkey
from tests.nursery import Nursery, open_nursery
from tests.stores import client_environment, make_location

PAGE = (ROOT / "recipes.md").read_text(encoding="utf-8")
REFERENCE = ROOT / "results" / "reference"
# A line that a reader takes the comment sign from, such as that of the endpoint.
OPTIONAL = re.compile(r"^( *)# (.*,)(?:  # .*)?$", re.MULTILINE)

_DRAW = np.random.default_rng(17)
# What was written, under the names that recipes give to what they read.
WRITTEN = {
    "temperature": _DRAW.normal(size=(24, 40, 80)).astype("float32"),
    "heights": _DRAW.normal(size=1_200_000),  # of more than one range of 8 MiB
}
_HEIGHTS = "gt1l/heights/h_ph"

# Stands before a block whose login and search need an account: what is opened is opened by
# earthaccess, from the store of the tests.
_EARTHACCESS = """
import inspect
import earthaccess, s3fs
from earthaccess.store import _open_files
assert "open_kwargs" in inspect.signature(earthaccess.open).parameters
earthaccess.login = lambda: None
earthaccess.search_data = lambda **_: ["s3://bucket/granule.h5"]
earthaccess.open = lambda granules, *, open_kwargs: _open_files(
    dict.fromkeys(granules), s3fs.S3FileSystem(), open_kwargs=open_kwargs
)
"""
# Stands behind each block: keeps what was read.
_KEEP = """
import numpy
for name in {"temperature", "heights"} & globals().keys():
    numpy.save(f"{name}.npy", globals()[name])
"""


def find_recipes(text: str) -> dict[str, list[tuple[str, str]]]:
    """List the blocks of each recipe, with their languages, by its heading."""
    found: dict[str, list[tuple[str, str]]] = {}
    title = ""
    tokens = MarkdownIt().parse(text)
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "heading_open" and following is not None:
            title = following.content
        if token.type == "fence" and token.info in ("python", "bash"):
            found.setdefault(title, []).append((token.info, token.content))
    return found


RECIPES = find_recipes(PAGE)


@dataclass(frozen=True)
class World:
    """A bucket with what recipes read, its address, and a Redis."""

    location: Location
    endpoint_url: str
    environment: dict[str, str]
    granule: Path
    valkey: Valkey
    nursery: Nursery
    take_trace: Callable[[], list[Request]]

    def run(self, language: str, block: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a block in a process and a folder of its own, with its optional lines."""
        code, n_lines = OPTIONAL.subn(r"\1\2", block)
        code = code.replace("https://s3.example.org", self.endpoint_url)
        # what has no such line takes the address from the environment
        address = {} if n_lines else {"AWS_ENDPOINT_URL": self.endpoint_url}
        if not (folder / "granule.h5").exists():
            os.link(self.granule, folder / "granule.h5")
        environment = {**self.environment, **address, "HOME": str(folder)}
        if language == "python":
            before = _EARTHACCESS if "import earthaccess" in code else ""
            (folder / "recipe.py").write_text(f"{before}{code}{_KEEP}")
            return self.nursery.run(folder / "recipe.py", environment)
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def world(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Write what the recipes read, and serve it through a proxy that traces."""
    location, folder = make_location(server, "bucket"), tmp_path_factory.mktemp("written")
    _write_fields(location, folder)
    granule = _write_granule(location, folder)
    with (
        open_proxy(server.endpoint_url, profile=get_profile("loopback")) as proxy,
        open_valkey() as valkey,
        open_nursery() as nursery,
    ):
        environment = {
            **client_environment(server),
            "AWS_ALLOW_HTTP": "true",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "REDIS_URL": valkey.url,
            "CACHE_KEY": "a key of the tests",
        }
        del environment["AWS_ENDPOINT_URL"]
        yield World(
            location, proxy.endpoint_url, environment, granule, valkey, nursery, proxy.take_trace
        )


def _write_fields(location: Location, folder: Path) -> None:
    """Write a field as Zarr and as netCDF."""
    axes = {
        name: np.arange(n)
        for name, n in zip(("time", "y", "x"), WRITTEN["temperature"].shape, strict=True)
    }
    field = xr.Dataset({"temperature": (tuple(axes), WRITTEN["temperature"])}, axes)
    with expected_warning("Consolidated metadata is currently not part"):
        field.to_zarr(
            ObjectStore((location / "temperature.zarr").obstore()),
            zarr_format=3,
            encoding={"temperature": {"chunks": (4, 20, 40)}},
        )
    path = folder / "temperature.nc"
    encoding = {"temperature": {"chunksizes": (4, 20, 40), "zlib": True}}
    field.to_netcdf(path, engine="h5netcdf", encoding=encoding)
    obstore.put(location.obstore(), path.name, path)


def _write_granule(location: Location, folder: Path) -> Path:
    """Write an HDF5 file of small chunks, as instruments do."""
    path = folder / "granule.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset(
            _HEIGHTS, data=WRITTEN["heights"], chunks=(10_000,), compression=1, shuffle=True
        )
        made.attrs["units"] = "meters"
    obstore.put(location.obstore(), path.name, path)
    return path


def check_values(folder: Path) -> None:
    """Compare what was read, or repacked, with what was written."""
    found = {path.stem: np.load(path) for path in folder.glob("*.npy")}
    if (folder / "repacked.h5").exists():
        with h5py.File(folder / "repacked.h5") as file:
            assert file[_HEIGHTS].attrs["units"] == "meters"
            found["heights"] = file[_HEIGHTS][:]
    assert found
    for name, values in found.items():
        assert len(values)
        np.testing.assert_array_equal(values, WRITTEN[name][: len(values)])


def _is_paged(world: World, folder: Path, trace: list[Request]) -> None:
    with h5py.File(folder / "repacked.h5") as file:
        strategy = file.id.get_create_plist().get_file_space_strategy()[0]
        assert strategy == h5py.h5f.FSPACE_STRATEGY_PAGE
        assert file[_HEIGHTS].chunks == (100_000,)


def _is_sharded(world: World, folder: Path, trace: list[Request]) -> None:
    store = ObjectStore((world.location / "temperature-sharded.zarr").obstore(), read_only=True)
    array = zarr.open_array(store, path="temperature", mode="r")
    assert (array.shards, array.chunks) == ((24, 40, 40), (12, 10, 10))
    np.save(folder / "temperature.npy", array[:])


def _asks_once(world: World, folder: Path, trace: list[Request]) -> None:
    chunks = [one.method for one in trace if "/temperature/c/" in one.key]
    assert chunks == ["GET"] * 24


def _fetches_ranges(world: World, folder: Path, trace: list[Request]) -> None:
    assert len([one for one in trace if one.key.endswith("granule.h5")]) == 3  # HEAD, two ranges


def _opens_once(world: World, folder: Path, trace: list[Request]) -> None:
    assert len([one for one in trace if one.key.endswith("temperature.zarr/zarr.json")]) == 1


def _keeps_no_secret(world: World, folder: Path, trace: list[Request]) -> None:
    _opens_once(world, folder, trace)
    with redis.Redis.from_url(world.valkey.url) as client:
        entries = [client.get(key) for key in client.scan_iter()]
    secret = world.environment["AWS_SECRET_ACCESS_KEY"].encode()
    assert entries and not any(secret in entry for entry in entries)


_ALSO: dict[str, Callable[[World, Path, list[Request]], None]] = {
    "Make s3fs faster": _asks_once,
    "Fetch the whole file in parallel ranges": _fetches_ranges,
    "Repack HDF5 with h5repack": _is_paged,
    "Repack HDF5 with h5py": _is_paged,
    "Write chunks in shards": _is_sharded,
    "Keep opened datasets in a process": _opens_once,
    "Share opened datasets in Redis": _keeps_no_secret,
}


@pytest.mark.parametrize("title", RECIPES)
def test_recipe_reads_what_was_written(title: str, world: World, tmp_path: Path) -> None:
    """Every block of a recipe runs, and what it reads or repacks equals what was written."""
    world.take_trace()
    for language, block in RECIPES[title]:
        program = block.split()[0]
        if language == "bash" and shutil.which(program, path=world.environment["PATH"]) is None:
            pytest.skip(f"{program} is not on PATH")
        done = world.run(language, block, tmp_path)
        assert done.returncode == 0, done.stderr
    if also := _ALSO.get(title):
        also(world, tmp_path, world.take_trace())
    check_values(tmp_path)


def test_address_from_the_environment(world: World, tmp_path: Path) -> None:
    """A recipe whose line with the endpoint stays a comment takes it from the environment."""
    (language, block), *_ = RECIPES["Open Zarr through obstore"]
    without = OPTIONAL.sub("", block)
    assert without != block
    done = world.run(language, without, tmp_path)
    assert done.returncode == 0, done.stderr
    check_values(tmp_path)
