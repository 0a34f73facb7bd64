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

from advisors.hdf5.check import GUIDE, check_file
from advisors.hdf5.cli import hdf5
from advisors.hdf5.inspection import inspect_file
from advisors.hdf5.recording import open_source
from advisors.hdf5.repack import apply_repack, list_repacks
from helpers.netem.profiles import get_profile
from tests.advisors.hdf5 import corpus

MIB = 2**20
ITEMS = (
    "paged-file-space", "page-size", "consolidated-metadata", "global-heaps", "chunk-bytes",
    "variable-length", "user-block", "filters", "chunk-cache", "small-datasets",
)  # fmt: skip


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


def _many_heaps(path: Path) -> None:
    _scattered(path)


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


CASES: list[tuple[Callable[[Path], None], set[str]]] = [
    (_sound, set()),
    (_unpaged, {"paged-file-space"}),
    (_small_pages, {"page-size"}),
    (_scattered, {"paged-file-space", "consolidated-metadata"}),
    (_tiny_chunks, {"chunk-bytes"}),
    (_huge_chunks, {"chunk-bytes", "chunk-cache"}),
    (_texts, {"variable-length"}),
    (_user_block, {"paged-file-space", "user-block"}),
    (_blosc, {"filters"}),
    (_small_datasets, {"paged-file-space", "small-datasets"}),
]


def run(*arguments: str) -> tuple[int, str]:
    """Run the command; return its exit code and what it prints."""
    done = CliRunner().invoke(hdf5, ["check", *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("make", "failed"), CASES, ids=lambda value: getattr(value, "__name__", "")
)
def test_each_fault_fails_its_item(
    tmp_path: Path, make: Callable[[Path], None], failed: set[str]
) -> None:
    """A file fails in what is wrong with it, and the exit code says whether it does."""
    path = tmp_path / "made.h5"
    make(path)
    code, output = run(str(path), "--json")
    found = json.loads(output)
    items = {item["name"]: item for item in found["items"]}
    assert tuple(items) == ITEMS
    assert {name for name, item in items.items() if item["status"] == "failed"} >= failed
    assert code == (1 if failed else 0) and found["is_passed"] == (not failed)
    for item in items.values():
        assert item["reason"] and item["bound"] and item["source"]
        assert (item["value"] is None) == (item["status"] == "not applicable")
    assert GUIDE in {item["source"] for item in items.values()}


def test_heaps_far_from_the_metadata_fail(tmp_path: Path) -> None:
    """Attributes of variable length between the data are more requests; without them nothing is asked."""
    path = tmp_path / "made.h5"
    with h5py.File(path, "w", meta_block_size=4 * MIB) as file:
        for number in range(4):
            values = np.random.default_rng(number).normal(size=(8, 100_000))
            new = file.create_dataset(f"x{number}", data=values, chunks=(1, 100_000))
            new.attrs["note"] = "text of variable length " * 300
            file.flush()
    items = {item.name: item for item in check_file(str(path), get_profile("in-region")).items}
    assert items["global-heaps"].status == "failed" and items["global-heaps"].value >= 2
    _sound(tmp_path / "sound.h5")
    items = {item.name: item for item in check_file(str(tmp_path / "sound.h5"), get_profile("in-region")).items}  # fmt: skip
    assert items["global-heaps"].status == "not applicable"


def test_text_names_items_and_verdict(tmp_path: Path) -> None:
    """A producer reads what failed, what was measured and what is asked; the network is named."""
    path = tmp_path / "made.h5"
    _tiny_chunks(path)
    code, output = run(str(path), "--profile", "wide-area")
    assert code == 1 and "failed          chunk-bytes: " in output
    assert "wide-area at full scale" in output and output.splitlines()[-1] == "failed: 1 item"
    _sound(tmp_path / "sound.h5")
    code, output = run(str(tmp_path / "sound.h5"))
    assert code == 0 and output.splitlines()[-1] == "passed"


def test_bad_input_has_a_code_of_its_own(tmp_path: Path) -> None:
    """What is no file, no HDF5 or no network is no verdict: 2, and one line."""
    text = tmp_path / "text.h5"
    text.write_text("no HDF5 " * 99)
    _sound(tmp_path / "sound.h5")
    for arguments in (
        (str(tmp_path / "none.h5"),),
        (str(text),),
        (str(tmp_path / "sound.h5"), "--profile", "moon"),
        (str(tmp_path / "sound.h5"), "--colour"),
        (),
    ):
        code, output = run(*arguments)
        assert code == 2, output
    assert run(str(text))[1].startswith("error: file: ")


def test_a_repack_mends_what_lies_in_the_layout(tmp_path: Path) -> None:
    """Pages put metadata together; what is in the data stays."""
    path, out = tmp_path / "made.h5", tmp_path / "out.h5"
    _scattered(path)
    with open_source(str(path)) as file:
        [repack, *_] = [one for one in list_repacks(inspect_file(file, "made")) if one.page_nbytes]
    apply_repack(str(path), repack, out)
    items = {
        item.name: item.status for item in check_file(str(out), get_profile("in-region")).items
    }
    for name in ("paged-file-space", "page-size", "consolidated-metadata", "global-heaps"):
        assert items[name] == "passed", name


@pytest.mark.parametrize("name", corpus.ALL)
def test_every_file_of_the_corpus_gets_a_verdict_or_a_line(name: str, tmp_path: Path) -> None:
    """No traceback on any file."""
    path = tmp_path / "made.h5"
    corpus.ALL[name](path)
    code, output = run(str(path), "--json")
    assert code in ((0, 1) if name in corpus.ORDINARY else (0, 1, 2))
    if code == 2:
        assert output.startswith("error: ") and output.count("\n") == 1
    else:
        assert len(json.loads(output)["items"]) == len(ITEMS)
