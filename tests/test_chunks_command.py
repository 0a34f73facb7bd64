"""The command that recommends chunks, from numbers and from stores."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from helpers.commands.chunks import chunks
from helpers.errors import UserError


def run(*arguments: str) -> str:
    """Run the command and return what it prints."""
    found = CliRunner().invoke(chunks, list(arguments), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_the_balanced_rule_prints_the_published_shape() -> None:
    """The shape alone is the first line."""
    shape = ("--shape", "98128,277,349", "--itemsize", "4")
    out = run(*shape, "--chunk-nbytes", "4194304", "--rule", "balanced")
    assert out.splitlines()[0] == "1032,29,35"
    assert "1031.68 x 28.40 x 35.78" in out


def test_a_mix_is_weighed() -> None:
    """Who reads series more often gets longer chunks."""
    lengths = []
    for weight in ("0.2", "0.8", "0.99"):
        out = run("--shape", "9000,90,90", "--itemsize", "4", "--json",
                  "--access", f"series:{weight}", "--access", f"slice:{1 - float(weight)}")  # fmt: skip
        answer = json.loads(out)
        assert set(answer["seconds"]) == {"series", "slice"}
        assert answer["pareto_front"] and answer["second_best"]["costs"] >= 1
        lengths.append(answer["chunk_shape"][0])
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1]


@pytest.mark.parametrize("sharded", [False, True])
def test_the_snippet_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, sharded: bool
) -> None:
    """What is to be pasted makes an array with the chunks that were recommended."""
    monkeypatch.chdir(tmp_path)
    more = ("--max-objects", "9", "--chunk-nbytes", "4000") if sharded else ()
    answer = json.loads(run("--shape", "600,30,40", "--itemsize", "4", "--json", *more))
    exec(answer["snippet"], space := {})
    assert list(space["array"].chunks) == answer["chunk_shape"]
    assert bool(space["array"].shards) == sharded
    assert list(zarr.open_array("array.zarr").chunks) == answer["chunk_shape"]
    values = np.zeros((600, 30, 40), "float32")
    import xarray as xr

    dataset = xr.Dataset({"array": (("t", "y", "x"), values)})
    dataset.to_netcdf("array.nc", engine="h5netcdf", encoding=space["encoding"])
    with h5py.File("array.nc") as file:
        assert list(file["array"].chunks) == answer["chunk_shape"]


def test_stores_tell_their_shape_and_chunks(tmp_path: Path) -> None:
    """The largest array of a file or a Zarr group is taken, or the one that is named."""
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file.create_dataset("time", data=np.arange(50.0))
        file.create_dataset("t", (50, 20, 30), "f4", chunks=(1, 20, 30))
    group = zarr.create_group(tmp_path / "a.zarr")
    group.create_array("t", shape=(50, 20, 30), dtype="f4", chunks=(1, 20, 30))
    group.create_array("time", shape=(50,), dtype="f8")
    for name in ("a.nc", "a.zarr"):
        out = run(str(tmp_path / name), "--access", "series")
        assert "The chunks that t has now, 1,20,30, take" in out
        answer = json.loads(
            run(str(tmp_path / name), "--variable", "time", "--json", "--access", "whole")
        )
        assert (answer["shape"], answer["itemsize"]) == ([50], 8)


REFUSED = [
    ((), "shape: none"),
    (("--shape", "3,x", "--itemsize", "4"), "shape: '3,x'"),
    (("--shape", "", "--itemsize", "4"), "shape: none"),
    (("--shape", "3,0", "--itemsize", "4"), "shape: [3, 0]"),
    (("--shape", "3,3"), "itemsize: None"),
    (("--shape", "3,3", "--dtype", "O"), "dtype: 'O'"),
    (("--shape", "3,3", "--dtype", "U"), "dtype: 'U'"),
    (("--shape", "3,3", "--dtype", "float33"), "dtype: 'float33'"),
    (("--shape", "3,3", "--itemsize", "4", "--access", "series:-1"), "weights: [-1.0]"),
    (("--shape", "3,3", "--itemsize", "4", "--access", "series:0"), "weights: [0.0]"),
    (("--shape", "3,3", "--itemsize", "4", "--access", "4x1"), "access: [4, 1]"),
    (("--shape", "3,3", "--itemsize", "4", "--access", "line"), "access: 'line'"),
    (("--shape", "3,3", "--itemsize", "4", "--access", "series:much"), "access: 'series:much'"),
    (("--shape", "3,3", "--itemsize", "4", "--chunk-nbytes", "99", "--rule", "balanced"),
     "chunk_nbytes: 99"),
    (("/nowhere.nc",), "store: '/nowhere.nc'"),
    (("/nowhere.zarr",), "store: '/nowhere.zarr'"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_bad_input_is_named(arguments: tuple[str, ...], words: str) -> None:
    """One line names the parameter, the value and what is allowed."""
    with pytest.raises(UserError) as caught:
        CliRunner().invoke(chunks, list(arguments), catch_exceptions=False)
    assert str(caught.value).startswith(words)
    assert "allowed" in str(caught.value) and "\n" not in str(caught.value)


def test_a_type_without_fixed_size_is_named(tmp_path: Path) -> None:
    """Texts of any length have no chunk bytes."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("names", data=["a", "bc"], dtype=h5py.string_dtype())
    with pytest.raises(UserError, match="variable: 'names' is of object; allowed: a type of fixed"):
        CliRunner().invoke(chunks, [str(tmp_path / "a.h5")], catch_exceptions=False)
