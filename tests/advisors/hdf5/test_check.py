"""The checklist tells sound files from others item by item, with an exit code for a producer's CI."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
from click.testing import CliRunner

from advisors.hdf5.cli import hdf5

MIB = 2**20


def make_sound(path: Path, **how: Any) -> h5py.File:
    """Make a file in pages with a chunked dataset."""
    file = h5py.File(path, "w", fs_strategy="page", fs_page_size=MIB)
    values = np.random.default_rng(0).normal(size=(4, 200, 200))
    options = {"chunks": (1, 200, 200), "compression": "gzip", **how}
    file.create_dataset("x", data=values, **options)
    return file


def _sound(path: Path) -> None:
    make_sound(path).close()


def _unpaged(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.zeros((4, 200, 200)), chunks=(1, 200, 200), compression=1)


def _small_pages(path: Path) -> None:
    with h5py.File(path, "w", fs_strategy="page", fs_page_size=4096) as file:
        for number in range(300):
            file[f"v{number}"] = number


def _scattered(path: Path) -> None:
    """Put objects and their metadata between data of some MB."""
    with h5py.File(path, "w") as file:
        for number in range(4):
            new = file.create_group(f"g{number}").create_dataset(
                "x", data=np.random.default_rng(number).normal(size=(8, 100_000)),
                chunks=(1, 100_000),
            )  # fmt: skip
            new.attrs["note"] = "text of variable length " * 3
            file.flush()


def _tiny_chunks(path: Path) -> None:
    make_sound(path, chunks=(1, 10, 10)).close()


def _huge_chunks(path: Path) -> None:
    with make_sound(path) as file:
        file.create_dataset("y", (3000, 1000), "f8", chunks=(3000, 1000), compression=1)[0, 0] = 1


def _texts(path: Path) -> None:
    with make_sound(path) as file:
        file["names"] = ["a", "bb"]


def _user_block(path: Path) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("x", data=np.zeros((4, 200, 200)), chunks=(1, 200, 200), compression=1)


def _blosc(path: Path) -> None:
    options = dict(hdf5plugin.Blosc())
    make_sound(path, compression=options.pop("compression"), **options).close()


def _small_datasets(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for number in range(4):
            file[f"small{number}"] = np.arange(900.0)
            file[f"large{number}"] = np.random.default_rng(number).normal(size=700_000)


CASES: list[tuple[Callable[[Path], None], set[str], str]] = [
    (_sound, set(), "metadata lie together"),
    (_unpaged, {"paged-file-space"}, "the file has no pages"),
    (_small_pages, {"page-size"}, "more than a page of 4.1 kB"),
    (_scattered, {"paged-file-space", "consolidated-metadata"}, "metadata are scattered over"),
    (_tiny_chunks, {"chunk-bytes"}, "1 dataset has chunks below 100 kB: x"),
    (_huge_chunks, {"chunk-bytes", "chunk-cache"}, "1 dataset has chunks above 16 MB: y"),
    (_texts, {"variable-length"}, "1 dataset has values of variable length"),
    (_user_block, {"paged-file-space", "user-block"}, "a user block of 512 bytes"),
    (_blosc, {"filters"}, "filters that need a plugin (blosc): x"),
    (_small_datasets, {"paged-file-space", "consolidated-metadata", "small-datasets"}, "small datasets are scattered"),
]  # fmt: skip


def run(*arguments: str) -> tuple[int, str]:
    """Run the command; return its exit code and what it prints."""
    done = CliRunner().invoke(hdf5, ["check", *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.mark.parametrize(("make", "failed", "told"), CASES, ids=[one[0].__name__ for one in CASES])
def test_each_fault_fails_its_item(
    tmp_path: Path, make: Callable[[Path], None], failed: set[str], told: str
) -> None:
    """A file fails in what is wrong with it, one line says so, and so does the exit code."""
    path = tmp_path / "made.h5"
    make(path)
    code, output = run(str(path), "--json")
    found = json.loads(output)
    items = {item["name"]: item for item in found["items"]}
    assert {name for name, item in items.items() if item["status"] == "failed"} == failed
    assert (code, found["is_passed"]) == (bool(failed), not failed) and len(items) == 10
    for item in items.values():
        assert (item["value"] is None) == (item["status"] == "not applicable"), item
        assert item["text"] and "\n" not in item["text"]
    _, text = run(str(path))
    assert told in text and len(text.splitlines()) == 12


def test_bad_input_has_a_code_of_its_own(tmp_path: Path) -> None:
    """What is no file, no HDF5 or no network is no verdict: 2, and one line."""
    text, sound = tmp_path / "text.h5", tmp_path / "sound.h5"
    text.write_text("no HDF5 " * 99)
    _sound(sound)
    for arguments in (
        (str(tmp_path / "none.h5"),),
        (str(text),),
        (str(sound), "--profile", "moon"),
        (str(sound), "--colour"),
        (),
    ):
        code, output = run(*arguments)
        assert code == 2, output
    assert run(str(text))[1].startswith("error: file: ")
