"""Stores of many kinds, ordinary and hostile: each gets an answer, or one line that says why not."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from click.testing import CliRunner

from advisors.chunks.cli import chunks_command
from helpers.errors import UserError
from helpers.objectstore.testbed import Server
from tests.stores import make_location

SHAPE = (50, 20, 30)
PAIR = np.dtype([("speed", "f4"), ("flag", "i2")])


def ask(*arguments: str) -> dict[str, Any]:
    """Run the command and return its answer."""
    found = CliRunner().invoke(chunks_command, [*arguments, "--json"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    answer: dict[str, Any] = json.loads(found.output)
    return answer


def refuse(*arguments: str) -> str:
    """Run the command and return the one line with which it refuses."""
    with pytest.raises(UserError) as caught:
        CliRunner().invoke(chunks_command, list(arguments), catch_exceptions=False)
    line = str(caught.value)
    assert "allowed" in line and "\n" not in line and len(line) < 600
    return line


def write_zarr(path: Path, **how: Any) -> None:
    """Write a group with an array at its root, one below, text, and a scalar."""
    group = zarr.create_group(path, **how)
    for name in ("t", "deep/down/u"):
        group.create_array(name, shape=SHAPE, dtype="f4", chunks=(1, 20, 30))
    group.create_array("scalar", shape=(), dtype="f8")
    group.create_array("names", shape=(10**6,), dtype=str, chunks=(1000,))


def consolidate(path: Path, version: int) -> None:
    """Write a group and consolidate its metadata."""
    write_zarr(path, zarr_format=version)
    zarr.consolidate_metadata(path, zarr_format=version)


def bare(path: Path, **how: Any) -> None:
    """Write an array that lies in no group."""
    zarr.create_array(path, **{"shape": SHAPE, "dtype": "f4", "chunks": (1, 20, 30), **how})


def write_netcdf(path: Path, form: str) -> None:
    """Write with the netCDF library: a record dimension, and in netCDF-4 a group and text."""
    with netCDF4.Dataset(path, "w", format=form) as file:
        for name, n in zip("tyx", (None, *SHAPE[1:]), strict=True):
            file.createDimension(name, n)
        file.createVariable("t", "f4", tuple("tyx"))[:] = np.zeros(SHAPE, "f4")
        file.createVariable("scalar", "f8", ())
        if form == "NETCDF4":
            file.createVariable("names", str, ("t",))[0] = "one"
            group = file.createGroup("deep/down")
            group.createVariable("u", "f4", tuple("tyx"), chunksizes=(1, 20, 30))[:] = 0


def write_odd(path: Path) -> None:
    """Write what HDF5 holds beside arrays: no data, references, text, links to nowhere, a cycle."""
    with h5py.File(path, "w") as file:
        file["t"] = np.zeros(SHAPE, "f4")
        file["empty"] = h5py.Empty("f4")
        file["none"] = np.zeros((0, 5))
        file.create_dataset("references", (3,), h5py.ref_dtype)
        file.create_dataset("names", (10**6,), h5py.string_dtype(), chunks=(1000,))
        file.create_dataset("ragged", (10,), h5py.vlen_dtype("i4"))
        file.create_dataset("opaque", (10,), "V16")
        file["soft"], file["far"] = h5py.SoftLink("/no"), h5py.ExternalLink("no.h5", "/no")
        file["type"] = PAIR
        file.create_group("group")["parent"] = h5py.SoftLink("/")


def xarray_file(path: Path) -> None:
    """Write a file as xarray does, with time and text along a dimension."""
    values = {"t": (("time", "y", "x"), np.zeros(SHAPE, "f4")), "names": ("y", ["a"] * 20)}
    times = np.arange(50).astype("M8[D]").astype("M8[ns]")
    xr.Dataset(values, {"time": times}).to_netcdf(path, engine="h5netcdf")


ORDINARY: dict[str, tuple[Callable[[Path], None], str]] = {
    # name of the store: how it is made, the array that is taken
    "group3.zarr": (lambda path: write_zarr(path, zarr_format=3), "deep/down/u"),
    "group2.zarr": (lambda path: write_zarr(path, zarr_format=2), "deep/down/u"),
    "consolidated3.zarr": (lambda path: consolidate(path, 3), "deep/down/u"),
    "consolidated2.zarr": (lambda path: consolidate(path, 2), "deep/down/u"),
    "bare3.zarr": (bare, "array"),
    "bare2.zarr": (lambda path: bare(path, zarr_format=2), "array"),
    "a folder": (bare, "array"),
    "sharded.zarr": (lambda path: bare(path, shards=(10, 20, 30)), "array"),
    "text3.zarr": (lambda path: bare(path, dtype="U7"), "array"),
    "bytes3.zarr": (lambda path: bare(path, dtype="S10"), "array"),
    "pairs3.zarr": (lambda path: bare(path, dtype=PAIR), "array"),
    "pairs2.zarr": (lambda path: bare(path, dtype=PAIR, zarr_format=2), "array"),
    "times2.zarr": (lambda path: bare(path, dtype="M8[ns]", zarr_format=2), "array"),
    "classic.nc": (lambda path: write_netcdf(path, "NETCDF3_CLASSIC"), "t"),
    "classic64.nc": (lambda path: write_netcdf(path, "NETCDF3_64BIT_OFFSET"), "t"),
    "model.nc4": (lambda path: write_netcdf(path, "NETCDF4_CLASSIC"), "t"),
    "groups.nc": (lambda path: write_netcdf(path, "NETCDF4"), "deep/down/u"),
    "no suffix": (lambda path: write_netcdf(path, "NETCDF4"), "deep/down/u"),
    "odd.h5": (write_odd, "t"),
    "xarray.nc": (xarray_file, "t"),
}


@pytest.mark.filterwarnings("ignore")  # of the libraries that write
@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_store_gets_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The largest array is taken, the answer's shape is its, and the snippet runs."""
    make, variable = ORDINARY[name]
    make(tmp_path / name)
    with warnings.catch_warnings(action="error"):
        answer = ask(str(tmp_path / name))
    same_size = {"deep/down/u": {"t", "deep/down/u"}}.get(variable, {variable})
    assert answer["variable"] in same_size and answer["shape"] == [*SHAPE]
    if "/" in variable:
        assert ask(str(tmp_path / name), "--variable", f"/{variable}")["variable"] == variable
    monkeypatch.chdir(tmp_path)
    exec(answer["snippet"], space := {})
    assert list(space["array"].chunks) == answer["chunk_shape"]
    assert space["array"].dtype.itemsize == answer["itemsize"]


def write_bytes(content: bytes) -> Callable[[Path], None]:
    """Write a file of these bytes."""

    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


def cut(path: Path) -> None:
    """Write an HDF5 file and lose its second half."""
    write_odd(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def spoil(text: str) -> Callable[[Path], None]:
    """Write a bare array whose metadata are another text."""

    def write(path: Path) -> None:
        bare(path)
        (path / "zarr.json").write_text(text, encoding="utf-8")

    return write


def spoil_one(path: Path) -> None:
    """Write a group of which one array is of a type that nobody knows."""
    write_zarr(path)
    metadata = json.loads((path / "names" / "zarr.json").read_text())
    (path / "names" / "zarr.json").write_text(json.dumps(metadata | {"data_type": "unheard-of"}))


def only_text(path: Path) -> None:
    """Write a file of which every array is of text."""
    with h5py.File(path, "w") as file:
        file.create_dataset("names", (10,), h5py.string_dtype())


HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    # name of the store: how it is made, words of the line
    "nothing.zarr": (lambda path: None, "no array there"),
    "nothing.nc": (lambda path: None, "no array there"),
    "empty.zarr": (lambda path: path.mkdir(), "no array there"),
    "empty-group.zarr": (zarr.create_group, "none is there"),
    "no-json.zarr": (spoil("{"), "store: "),
    "a-list.zarr": (spoil("[]"), "store: "),
    "version4.zarr": (spoil('{"zarr_format": 4, "node_type": "array"}'), "store: "),
    "one-is-broken.zarr": (spoil_one, "--variable"),
    "empty.nc": (write_bytes(b""), "store: "),
    "text.nc": (write_bytes(b"hello, world\n" * 99), "store: "),
    "a-page.nc": (write_bytes(b"<html>404</html>"), "store: "),
    "cut.h5": (cut, "store: "),
    "header-alone.h5": (write_bytes(b"\x89HDF\r\n\x1a\n"), "store: "),
    "classic-header.nc": (write_bytes(b"CDF\x01"), "store: "),
    "cdf5.nc": (lambda path: write_netcdf(path, "NETCDF3_64BIT_DATA"), "store: "),
    "folder.nc": (lambda path: path.mkdir(), "no array there"),
    "only-text.h5": (only_text, "variable: 'names' is of object"),
    "new\nline.nc": (write_bytes(b""), "store: "),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_store_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    """The line names the store or the variable, and what would do."""
    make, words = HOSTILE[name]
    make(tmp_path / name)
    assert words in refuse(str(tmp_path / name))


@pytest.mark.filterwarnings("ignore")
def test_a_variable_is_read_beside_a_broken_one(tmp_path: Path) -> None:
    """Who names an array is not refused for another, of whatever type."""
    spoil_one(tmp_path / "a.zarr")
    assert ask(str(tmp_path / "a.zarr"), "--variable", "t")["shape"] == [*SHAPE]
    write_odd(tmp_path / "a.h5")
    assert (
        ask(str(tmp_path / "a.h5"), "--variable", "opaque", "--access", "whole")["itemsize"] == 16
    )
    for variable, words in (
        ("names", "variable: 'names' is of object"),
        ("none", "variable: 'none' has no elements"),
        ("empty", "variable: 'empty'; allowed: "),
        ("of nobody", "variable: 'of nobody'; allowed: "),
    ):
        assert refuse(str(tmp_path / "a.h5"), "--variable", variable).startswith(words)


def test_a_store_far_away_gets_an_answer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bare arrays, groups and files are read through the bucket as from a folder."""
    location = make_location(server, "facts")
    monkeypatch.setenv("AWS_ENDPOINT_URL", str(location.endpoint_url))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", str(location.access_key))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", str(location.secret_key))
    for name in ("bare", "group"):
        store = zarr.storage.ObjectStore((location / name).obstore())
        place = "" if name == "bare" else "deep/t"
        zarr.create_array(store, name=place, shape=SHAPE, dtype="f4", chunks=(1, 20, 30))
        answer = ask(f"s3://facts/{name}")
        assert (answer["variable"], answer["shape"]) == (place or "array", [*SHAPE])
    assert "no array there" in refuse("s3://facts/nothing")
    assert "no array there" in refuse("s3://facts/nothing.nc")


@pytest.mark.parametrize("name", ["a.zarr", "a.nc", ""])
@pytest.mark.parametrize("kind", ["wrong key", "no key", "no bucket"])
def test_a_bucket_that_cannot_be_read_is_one_line(
    server: Server, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    """Whoever may not read it, or reads one that is not there, gets a line and no traceback."""
    location = make_location(server, "closed")
    monkeypatch.setenv("AWS_ENDPOINT_URL", str(location.endpoint_url))
    if kind == "no key":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    else:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", str(location.access_key))
        secret = "hushhush" if kind == "wrong key" else str(location.secret_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    bucket = "nowhere" if kind == "no bucket" else "closed"
    address = f"s3://{bucket}/{name}".rstrip("/")
    command = [Path(sys.executable).with_name("wire"), "chunks", address]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("error: "), done.stderr
    assert address in done.stderr and "hushhush" not in done.stderr


@pytest.mark.parametrize("name", ["a.zarr", "a.nc"])
def test_a_location_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Nobody answers: the line names the place and the reason, and no credential."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anybody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hushhush")
    line = refuse(f"s3://bucket/{name}")
    assert line.startswith(f"store: 's3://bucket/{name}': ") and "127.0.0.1:9" in line
    assert "hushhush" not in line
    line = refuse(f"https://somebody:hushhush@example.invalid/{name}")
    assert line.startswith("store: ") and "s3://BUCKET/PREFIX" in line and "hushhush" not in line


SNIPPETS = ["f4,i2", "S10", "U7", "V12", "M8[ns]", "m8[s]", "?", "c8", ">f8", "f2", "g", "3f4"]


@pytest.mark.filterwarnings("ignore")  # zarr tells which types have no specification
@pytest.mark.parametrize("dtype", SNIPPETS)
def test_the_snippet_of_any_type_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """An array is made whose elements have as many bytes; netCDF is left out where it lacks them."""
    monkeypatch.chdir(tmp_path)
    answer = ask("--shape", "600,30", "--dtype", dtype)
    exec(answer["snippet"], space := {})
    assert space["array"].dtype.itemsize == answer["itemsize"] == np.dtype(dtype).itemsize
    assert ("encoding" in space) == (np.dtype(dtype).kind in "mMbf" and dtype not in ("f2", "g"))


SIZES = [
    ("1" + "0" * 20 + ",10", "shape: [100000000000000000000, 10]; allowed: "),
    (",".join("2" * 40), "shape: 40 "),
    ("9007199254740993", "shape: [9007199254740993]; allowed: "),
]


@pytest.mark.parametrize("rule", ["best", "balanced"])
@pytest.mark.parametrize(("shape", "words"), SIZES)
def test_an_array_that_nobody_has_is_refused(shape: str, words: str, rule: str) -> None:
    """At once, whichever rule is asked, and in one line."""
    line = refuse("--shape", shape, "--itemsize", "4", "--rule", rule, "--chunk-nbytes", "1000")
    assert line.startswith(words)


@pytest.mark.parametrize("shape", ["9007199254740992,9007199254740992", ",".join(["1000"] * 8)])
def test_an_array_that_no_shard_tames_is_refused(shape: str) -> None:
    """It has more objects than are allowed, whatever holds its chunks together."""
    assert refuse("--shape", shape, "--itemsize", "8").startswith("max_objects: 1000000; allowed")


def test_dimensions_of_one_element_cost_nothing() -> None:
    """Thirty of them are no search, and a chunk has one element in each."""
    answer = ask("--shape", ",".join(["1"] * 30 + ["500", "400", "300"]), "--itemsize", "4")
    assert answer["chunk_shape"][:30] == [1] * 30
