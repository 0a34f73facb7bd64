"""Tests of the page of recipes: each block runs as it stands, and reads what was written."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import obstore
import pytest
import xarray as xr
import zarr
from markdown_it import MarkdownIt
from zarr.storage import ObjectStore

from helpers.arrays.readers import expected_warning
from helpers.paths import ROOT
from studies.hdf5_drivers.ros3 import find_python
from tests.nursery import run_program
from tests.stores import client_environment, make_location
from wire.bed.emulators import write_connection_string
from wire.bed.locations import Location
from wire.bed.networks import get_profile
from wire.bed.proxy import open_proxy
from wire.bed.requests import RequestRow
from wire.bed.testbed import Server, Testbed
from wire.ledger.layouts import Stored
from wire.ledger.services import open_services

PAGES = sorted((ROOT / "pages").glob("recipes-*.md"))
REFERENCE = ROOT / "results" / "reference"
# The recipe that promises to do without credentials; the bucket of the others wants them.
PUBLIC = "Open a public bucket"
# Lines that a reader, or a switch of the page, takes the comment sign from.
NOT_ON_AWS = re.compile(r"^( *)# (.*,)  # (?:not on .*|where there is no TLS)$", re.MULTILINE)
ANONYMOUS = re.compile(r"^( *)# (.*,)  # public bucket$", re.MULTILINE)

_DRAW = np.random.default_rng(17)
# What was written, under the names that recipes give to what they read.
WRITTEN = {
    "temperature": _DRAW.normal(size=(24, 40, 80)).astype("float32"),
    "heights": _DRAW.normal(size=1_200_000),  # of more than one range of 8 MiB
    "reflectivity": _DRAW.normal(size=(36, 81)).astype("float32"),  # of the sweep that is read
}
_HEIGHTS = "gt1l/heights/h_ph"

# Stands behind each block: keeps what was read, and in how many blocks of Dask.
_KEEP = """
import json
import numpy
if "dataset" in globals():
    with open("chunks.json", "w") as file:
        json.dump({name: len(sizes) for name, sizes in dataset.chunks.items()}, file)
for name in {"temperature", "heights", "reflectivity", "batch", "samples"} & globals().keys():
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
        language = token.info.removeprefix("{code-block} ")
        if token.type == "fence" and language in ("python", "bash"):
            code = re.sub(r"^:emphasize-lines: .*\n", "", token.content)
            found.setdefault(title, []).append((language, code))
    return found


RECIPES = find_recipes("\n".join(page.read_text(encoding="utf-8") for page in PAGES))


@dataclass(frozen=True)
class World:
    """A bucket with what recipes read, and its address."""

    location: Location
    endpoint_url: str
    environment: dict[str, str]
    gcs_url: str  # the same granule behind Google's interface; empty where no emulator is installed
    granule: Path
    take_trace: Callable[[], list[RequestRow]]

    def run(
        self,
        language: str,
        block: str,
        folder: Path,
        *,
        is_anonymous: bool = False,
        python: str = sys.executable,
    ) -> subprocess.CompletedProcess[str]:
        """Run a block in a process and a folder of its own, with its optional lines."""
        code, n_lines = NOT_ON_AWS.subn(r"\1\2", block)
        code = code.replace("https://s3.example.org", self.endpoint_url)
        code = code.replace("https://storage.example.org", self.gcs_url)
        # what has no such line takes the address from the environment
        address = {} if n_lines else {"AWS_ENDPOINT_URL": self.endpoint_url}
        if not (folder / "granule.h5").exists():
            os.link(self.granule, folder / "granule.h5")
        environment = {**self.environment, **address, "HOME": str(folder)}
        if is_anonymous:
            code = ANONYMOUS.sub(r"\1\2", code)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if is_anonymous else ():
            del environment[name]
        if language == "python":
            (folder / "recipe.py").write_text(f"{code}{_KEEP}")
            if python == sys.executable:
                return run_program(folder / "recipe.py", environment)
        command = ["bash", "-euo", "pipefail", "-c", code]
        return subprocess.run(
            [python, "recipe.py"] if language == "python" else command,
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
    _write_tree(location)
    public = make_location(server, "public-bucket")
    _write_fields(public, folder)
    _write_tree(public)
    obstore.put(public.obstore(), granule.name, granule)
    statement = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": ["s3:GetObject", "s3:ListBucket"],
        "Resource": ["arn:aws:s3:::public-bucket", "arn:aws:s3:::public-bucket/*"],
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    public.botocore().put_bucket_policy(Bucket="public-bucket", Policy=policy)
    services = Path(tempfile.mkdtemp(dir=folder))
    shutil.copy(granule, services)
    testbed, stored = Testbed(location, location), Stored("", services, {})
    loopback = get_profile("loopback")
    with (
        open_proxy(server.endpoint_url, profile=loopback) as proxy,
        open_services({"gcs", "azure"}, testbed, stored, loopback, seed=0) as (opened, _absent),
    ):
        environment = {
            **client_environment(server),
            "AWS_ALLOW_HTTP": "true",
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # asks by gRPC, which no emulator answers
            "HDF5_ROS3_VFD_FORCE_PATH_STYLE": "true",  # no host is named after a bucket
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }
        del environment["AWS_ENDPOINT_URL"]
        if "azure" in opened and importlib.util.find_spec("adlfs"):
            url = str(opened["azure"].far.endpoint_url)
            environment["AZURE_STORAGE_CONNECTION_STRING"] = write_connection_string(url)
        gcs = str(opened["gcs"].far.endpoint_url) if "gcs" in opened else ""
        yield World(location, proxy.endpoint_url, environment, gcs, granule, proxy.take_trace)


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
    step_by_step = {"temperature": {"chunksizes": (1, 20, 40), "zlib": True}}
    for number, part in enumerate((slice(0, 12), slice(12, 24))):
        half = folder / f"temperature-{number}.nc"
        field.isel(time=part).to_netcdf(half, engine="h5netcdf", encoding=step_by_step)
        obstore.put(location.obstore(), half.name, half)


def _write_tree(location: Location) -> None:
    """Write radar sweeps of 20 km as a tree of groups, of which the fourth is read."""
    axes = {
        "azimuth": np.arange(36) * 10.0,
        "range": np.arange(81) * 250.0,
        "time": ("azimuth", np.datetime64("2026-06-01") + np.arange(36)),
    }
    values = WRITTEN["reflectivity"]
    sweeps = {
        f"/sweep_{number:02d}": xr.Dataset(
            {"reflectivity": (("azimuth", "range"), values if number == 3 else 0 * values)}, axes
        )
        for number in range(5)
    }
    with expected_warning("Consolidated metadata is currently not part"):
        xr.DataTree.from_dict(sweeps).to_zarr(
            ObjectStore((location / "radar.zarr").obstore()), zarr_format=3, consolidated=True
        )


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
    if (folder / "rewritten.h5").exists():
        with h5py.File(folder / "rewritten.h5") as file:
            assert file[_HEIGHTS].attrs["units"] == "meters"
            found["heights"] = file[_HEIGHTS][:]
    assert found
    for name, values in found.items():
        assert len(values)
        np.testing.assert_array_equal(values, WRITTEN[name][: len(values)])


def _asks_once(world: World, folder: Path, trace: list[RequestRow]) -> None:
    chunks = [one.method for one in trace if "/temperature/c/" in one.key]
    assert chunks == ["GET"] * 24


def _fetches_ranges(world: World, folder: Path, trace: list[RequestRow]) -> None:
    assert len([one for one in trace if one.key.endswith("granule.h5")]) == 3  # HEAD, two ranges


def _opens_once(world: World, folder: Path, trace: list[RequestRow]) -> None:
    """The version is requested for each opening, and the metadata once; so it is of tiles."""
    (_, block) = RECIPES["Keep opened datasets in a process"][0]
    tiles = world.run("python", block.partition("for _ in")[0] + _TILES, folder)
    assert tiles.returncode == 0, tiles.stderr
    for part in (trace, world.take_trace()):
        rows = [row for row in part if row.key.endswith("temperature.zarr/zarr.json")]
        assert [row.method for row in rows] == ["HEAD", "GET", "HEAD"]


_TILES = """
from starlette.testclient import TestClient

query = {"url": "s3://bucket/temperature.zarr", "variable": "temperature", "sel": "time=0"}
for _ in range(2):
    answer = TestClient(app).get("/tiles/WebMercatorQuad/2/2/1.npy", params=query)
    assert answer.status_code == 200, answer.text
sweep = open_dataset("s3://bucket/radar.zarr", group="sweep_03", decode_times=False)
assert sweep["time"].dtype == "int64" and "reflectivity" in sweep, sweep
"""


def _draws_boxes(world: World, folder: Path, trace: list[RequestRow]) -> None:
    """Each index has its own place, and the boxes of a batch are fetched side by side."""
    batch = np.load(folder / "batch.npy")
    (folder / "batch.npy").unlink()
    start = np.random.default_rng(5).integers(0, np.subtract((24, 40, 80), (4, 20, 20)) + 1)
    np.testing.assert_array_equal(
        batch[5], WRITTEN["temperature"][tuple(map(slice, start, np.add(start, (4, 20, 20))))]
    )
    np.save(folder / "temperature.npy", WRITTEN["temperature"])


def _reads_chunks_once(world: World, folder: Path, trace: list[RequestRow]) -> None:
    """Each step comes once, in another order than it is stored, and each chunk is requested once."""
    samples = np.load(folder / "samples.npy")
    (folder / "samples.npy").unlink()
    assert not np.array_equal(samples, WRITTEN["temperature"])
    order = [int(np.flatnonzero(WRITTEN["temperature"][:, 0, 0] == step[0, 0])[0]) for step in samples]  # fmt: skip
    assert sorted(order) == [*range(24)]
    chunks = [row.key for row in trace if "/temperature/c/" in row.key]
    assert len(chunks) == len({*chunks}) == 24
    np.save(folder / "temperature.npy", samples[np.argsort(order)])


def _opens_one_sweep(world: World, folder: Path, trace: list[RequestRow]) -> None:
    """No chunk of another sweep is requested, nor the times before the sweep is chosen."""
    chunks = [row.key for row in trace if "/c/" in row.key or row.key.endswith("/c")]
    assert chunks and all("/sweep_03/" in key for key in chunks)


def _keeps_blocks(world: World, folder: Path, trace: list[RequestRow]) -> None:
    """Three tasks together fetch no more than the file, twice: a block is not read again."""
    size = obstore.head(world.location.obstore(), "temperature.nc")["size"]
    assert sum(one.nbytes for one in trace) <= 2 * size


def _makes_few_tasks(world: World, folder: Path, trace: list[RequestRow]) -> None:
    """A file is one block, though it has twelve steps, each stored in chunks of its own."""
    assert json.loads((folder / "chunks.json").read_text()) == {"time": 2, "y": 1, "x": 1}


def _refuses_a_flipped_byte(world: World, folder: Path, trace: list[RequestRow]) -> None:
    """Whatever byte of a chunk that was written so changes, a read ends with an error."""
    store = (world.location / "checked.zarr").obstore()
    name = "temperature/c/0/0/0"
    sound = bytes(obstore.get(store, name).bytes())
    array = zarr.open_array(ObjectStore(store, read_only=True), path="temperature", mode="r")
    for place in range(0, len(sound), len(sound) // 20):
        damaged = bytearray(sound)
        damaged[place] ^= 1
        obstore.put(store, name, bytes(damaged))
        with pytest.raises(ValueError, match="checksum"):
            array[:4, :20, :40]
    obstore.put(store, name, sound)
    np.testing.assert_array_equal(array[...], WRITTEN["temperature"])


def _reads_a_chunk_once(world: World, folder: Path, trace: list[RequestRow]) -> None:
    assert len([one for one in trace if "/temperature/c/" in one.key]) == 1
    np.save(folder / "temperature.npy", WRITTEN["temperature"])


def _appends_new_objects(world: World, folder: Path, trace: list[RequestRow]) -> None:
    """No shard is written twice, and the times stay one chunk."""
    written = [
        row.key for row in trace if row.method == "PUT" and "/archive.zarr/" in f"/{row.key}"
    ]
    assert len({key for key in written if "/temperature/c/" in key}) == 6
    assert len([key for key in written if "/temperature/c/" in key]) == 6
    assert {key.rpartition("/time/")[2] for key in written if "/time/c/" in key} == {"c/0"}


def _fetches_to_disk(world: World, folder: Path, trace: list[RequestRow]) -> None:
    assert (folder / "downloaded.h5").read_bytes() == world.granule.read_bytes()
    starts = sorted(one.range_start or 0 for one in trace if one.method == "GET")
    assert starts == [0, 8 * 2**20]


_ALSO: dict[str, Callable[[World, Path, list[RequestRow]], None]] = {
    "Append a day": _appends_new_objects,
    "Make s3fs faster": _asks_once,
    "Fetch the whole file in parallel ranges": _fetches_ranges,
    "Download a file to disk in parallel ranges": _fetches_to_disk,
    "Keep opened datasets in a process": _opens_once,
    "Load random boxes": _draws_boxes,
    "Open a tree of groups": _opens_one_sweep,
    "Shuffle chunks, then samples": _reads_chunks_once,
    "Open netCDF through Dask": _keeps_blocks,
    "Keep chunks for tiles": _reads_a_chunk_once,
    "Open many netCDF files": _makes_few_tasks,
    "Write Zarr with a checksum": _refuses_a_flipped_byte,
}


@pytest.mark.parametrize("title", RECIPES)
def test_recipe_reads_what_was_written(title: str, world: World, tmp_path: Path) -> None:
    """Every block of a recipe runs, and what it reads or repacks equals what was written."""
    world.take_trace()
    for language, block in RECIPES[title]:
        program = block.split()[0]
        if language == "bash" and shutil.which(program, path=world.environment["PATH"]) is None:
            pytest.skip(f"{program} is not on PATH")
        if "storage.example.org" in block and not world.gcs_url:
            pytest.skip("no emulator of Google Cloud Storage is installed")
        if "adlfs" in block and "AZURE_STORAGE_CONNECTION_STRING" not in world.environment:
            pytest.skip("no emulator of Azure can be installed: npm is needed, or adlfs")
        if 'driver="ros3"' in block and not find_python():
            pytest.skip("no h5py with ROS3 is here: make ros3")
        if "--apply" in block and shutil.which("h5repack") is None:
            pytest.skip("h5repack is not on PATH: apt install hdf5-tools")
        python = find_python() if 'driver="ros3"' in block else sys.executable
        done = world.run(language, block, tmp_path, is_anonymous=title == PUBLIC, python=python)
        assert done.returncode == 0, done.stderr
    if also := _ALSO.get(title):
        also(world, tmp_path, world.take_trace())
    check_values(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "title",
    [title for title, blocks in RECIPES.items() if any(ANONYMOUS.search(b) for _, b in blocks)],
)
def test_recipe_of_a_public_bucket(title: str, world: World, tmp_path: Path) -> None:
    """With its lines for a public bucket a recipe reads the same without credentials."""
    world.take_trace()
    for language, block in RECIPES[title]:
        if "storage.example.org" in block:
            pytest.skip("the emulator of Google Cloud Storage asks nobody for credentials")
        public = re.sub(r"\bbucket(?=[/\"])", "public-bucket", block)
        completed = world.run(language, public, tmp_path, is_anonymous=True)
        assert completed.returncode == 0, completed.stderr
    if title in ("Load random boxes", "Shuffle chunks, then samples"):  # read in another order
        _ALSO[title](world, tmp_path, world.take_trace())
    check_values(tmp_path)


def test_a_bucket_that_is_not_public_refuses_those_without_credentials(
    world: World, tmp_path: Path
) -> None:
    """The recipe for public buckets is tested against a store that does ask who reads."""
    for language, block in RECIPES[PUBLIC]:
        private = block.replace("s3://public-bucket", "s3://bucket")
        assert world.run(language, private, tmp_path, is_anonymous=True).returncode != 0


def test_address_from_the_environment(world: World, tmp_path: Path) -> None:
    """A recipe whose line with the endpoint stays a comment takes it from the environment."""
    (language, block), *_ = RECIPES["Open Zarr through obstore"]
    without = NOT_ON_AWS.sub("", block)
    assert without != block
    done = world.run(language, without, tmp_path)
    assert done.returncode == 0, done.stderr
    check_values(tmp_path)
