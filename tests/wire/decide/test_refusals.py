"""Questions that cannot be asked, and inputs that are meant to harm: one line each, and soon."""

from __future__ import annotations

import ast
import functools
import itertools
import json
import os
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from tests.refusals import refused
from tests.stores import Ranges, serve
from wire.decide.cli import decide, find_answer
from wire.decide.dataset import read_dataset
from wire.decide.show import write_code

ESCAPE, HUGE = "\x1b[31m", 10**30
# What is asked of an array of 10 by 10, unless it has a shape or an address; and what is said.
BAD = [
    ("--variable x", "variable", "^'x'$"),
    ("--type float33", "type", "^'float33'$"),
    ("--type object", "type", "^'object'$"),
    ("--type S999999999", "type", "^'S999999999'$"),
    ("--type float128", "type", "^'float128'$"),
    ("--type \n", "type", r"^'\\n'$"),
    ("--access zigzag:1", "access", "^'zigzag'$"),
    ("--access 20x1:1", "access", r"^\[20, 1\]$"),  # more than there is
    ("--access 2x2@odd:1", "access", "^'2x2@odd:1'$"),
    ("--access series:often", "access", "^'series:often'$"),
    ("--access series:0,map:0", "access", "^'series:0,map:0'$"),
    ("--access series:nan", "access", "^'series:nan'$"),
    ("--access series:1,series:1", "access", "^'series' "),
    ("--access series:1e308,map:1e308", "access", "^'series:1e308'$"),
    ("--access series:1e-320", "access", "^'series:1e-320'$"),
    ("--profile moon", "profile", "^'moon'$"),
    ("--memory 1e-9", "memory", "^1e-09$"),
    ("--append depth", "append", "^'depth'$"),
    ("--append time:0", "append", "^'time:0'$"),
    ("--append time:²", "append", "^'time:²'$"),
    (f"--append time:{10**40}", "append", "^'time:1000"),
    ("--wait-usd-hour -5", "wait-usd-hour", "^'-5'$"),
    ("--reads-per-month 1 --per-second 1", "reads-per-month", "^1"),
    ("--chunks 20,20", "chunks", r"^\[20, 20\]$"),
    ("--format hdf5", "format", "^'hdf5'$"),
    ("--chunks 4,4 --shards 6,6", "shards", r"^\[6, 6\]$"),
    ("--workers 2", "workers", "^2$"),
    ("--keep bytes", "keep", "^'bytes'$"),
    ("--price moon=1", "price 'moon'", ""),
    ("--price data_out_gb=1", "price 'data_out_gb'", ""),  # no byte leaves the region
    ("--price store_gb_month=-1", "price store_gb_month", "^-1$"),
    ("--price store_gb_month=nan", "price store_gb_month", "^nan$"),
    ("--price store_gb_month", "--price", "^'store_gb_month'$"),
    ("--profile google-in-region --budget-usd-month 5", "budget-usd-month", r"^5\.0$"),
    ("--profile institute --wait-usd-hour 5", "wait-usd-hour", r"^5\.0$"),
    ("--shape", "shape", ""),
    ("--shape 0,10", "shape", "^'0,10'$"),
    ("--shape 10x", "shape", "^'10x'$"),
    ("--shape 10*10", "shape", r"^'10\*10'$"),
    ("--shape ten", "shape", "^'ten'$"),
    ("--shape 2,2,2,2,2,2,2,2,2", "shape", "2"),
    ("--shape 1000000,100,100 --max-objects 1 --memory 1", "max-objects", "^1 "),
    *((f"--shape {text}", "shape", "") for text in ("1e300", "1" + "0" * 400, "9" * 5000, "1," * 5000,
      "9007199254740992,9007199254740992")),
    ("--shape 97,97,97,97,97,97,97,97", "max-objects", ""),
    (f"--chunks {HUGE},1", "chunks", ""),
    (f"--chunks 1,1 --shards {HUGE},1", "shards", ""),
    *((f"--{name} {value}", name, "") for value in ("0", "1e300", "1e-320", "nan", "inf", "-inf")
      for name in ("compression", "memory", "per-second", "budget-usd-month", "link-mb-per-s")),
    *((f"--{name} {value}", name, "") for value in (0, HUGE) for name in ("in-flight", "cores", "arrays", "batch")),
    *((f"--batch 1 --{name} {HUGE}", name, "") for name in ("workers", "prefetch")),
    *((f"--{name} {ESCAPE}", name, "31m") for name in ("type", "variable", "access", "append")),
    (f"--shape {ESCAPE}", "shape", "31m"),
    (f"--profile {ESCAPE}.yml", "profile", "31m"),
    ("nowhere.zarr", "dataset", "nowhere"),
    ("nowhere.zarr --shape 10,10", "shape", r"^\(10, 10\)$"),
    ("s3://key:PASSWORD@bucket/a.zarr", "store|dataset", "bucket"),
    ("s3://key:PASSWORD@bucket/a.h5", "store|dataset", "bucket"),
    ("https://key:PASSWORD@127.0.0.1:9/a.h5", "dataset", ""),
    ("https://127.0.0.1:9/a.h5?X-Amz-Signature=PASSWORD&X-Amz-Date=1", "dataset", ""),
    (f"https://127.0.0.1:9/{ESCAPE}.zarr", "dataset", "does not answer"),
    ("http://[", "dataset|store", r"http://\["),
    ("a" * 5000, "dataset", "aaa"),
    ("/dev/zero", "file", "/dev/zero"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "where", "value"), BAD, ids=[bad[0][-30:] for bad in BAD])
def test_what_cannot_be_asked_is_one_line(asked: str, where: str, value: str) -> None:
    """What is wrong or meant to harm says what it is and what is allowed; no password, no code of a terminal."""
    options = [word for word in asked.split(" ") if asked != "--shape"]
    if asked.startswith("--") and not asked.startswith("--shape"):
        options = ["--shape", "10,10", *options]
    with refused(where, value, ".") as caught:
        CliRunner().invoke(decide, options, catch_exceptions=False)
    text = str(caught.value)
    assert "PASSWORD" not in text and len(text) < 500


@pytest.mark.parametrize("options", [
    ("--shape", "7,881918,30,6,10,1,2191,662", "--chunks", "5,441891,15,1,9,1,717,45"),
    ("--shape", "151442096837821", "--chunks", "19263977511874", "--access", "whole", "--memory", "1e9"),
    ("--shape", "1000000,1000000", "--chunks", "1,1", "--arrays", "1000000", "--together", "1000000"),
])  # fmt: skip
def test_files_beyond_measure_are_foretold_from_a_part(options: tuple[str, ...]) -> None:
    """Chunks of terabytes, and as many as there are, take neither memory nor time."""
    asked = ["--format", "hdf5", "--keep", "bytes", *options]
    assert CliRunner().invoke(decide, asked, catch_exceptions=False).exit_code == 0


def test_a_file_whose_chunks_were_never_stored_is_foretold_from_those_that_were(
    tmp_path: Path,
) -> None:
    """One chunk of a million million: what is read is no more than the file has, over and over its cache."""
    with h5py.File(tmp_path / "sparse.h5", "w") as file:
        file.create_dataset("x", shape=(10**6, 10**6), chunks=(1, 1), dtype="f4")[0, 0] = 1
    found = find_answer(str(tmp_path / "sparse.h5"), access="whole", keep="bytes")
    nbytes = (tmp_path / "sparse.h5").stat().st_size
    assert found.choices and all(one.reads[0].nbytes < 10 * nbytes for one in found.choices)


@pytest.mark.parametrize("shape", [(2**53,), (2**31, 2**31)])
def test_a_file_of_more_chunks_than_memory_holds_is_foretold(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    """An axis of them is never listed, whether one was stored or none."""
    with h5py.File(tmp_path / "empty.h5", "w") as file:
        file.create_dataset("x", shape, "i1", chunks=(1,) * len(shape))
    found = find_answer(str(tmp_path / "empty.h5"), access="whole", keep="bytes")
    assert found.choices and all(one.reads[0].nbytes < 2**30 for one in found.choices)


def test_files_that_never_end_are_refused(tmp_path: Path) -> None:
    """Pipes, devices, metadata beyond measure and what takes too long; an empty file is called so."""
    os.mkfifo(tmp_path / "pipe.h5")
    (tmp_path / "zero.nc").symlink_to("/dev/zero")
    (tmp_path / "empty.h5").touch()
    for name in ("zero", "many", "pipe", "inside"):
        (tmp_path / f"{name}.zarr" / "v").mkdir(parents=True)
    (tmp_path / "zero.zarr" / ".zmetadata").symlink_to("/dev/zero")
    (tmp_path / "many.zarr" / "zarr.json").write_bytes(b" " * (2**23 + 1))
    zarr.open_group(tmp_path / "inside.zarr", mode="a")
    pipes = [tmp_path / "pipe.zarr" / "zarr.json", tmp_path / "inside.zarr" / "v" / "zarr.json"]
    for pipe in pipes:
        os.mkfifo(pipe)
    for name, told in (("pipe.h5", "no regular file"), ("zero.nc", "no regular file"), ("empty.h5", "is empty"),
                       ("zero.zarr", ".zmetadata is none"), ("many.zarr", "zarr.json is none"),
                       ("pipe.zarr", "zarr.json is none"), ("inside.zarr", "zarr.json is no regular file")):  # fmt: skip
        with refused("dataset|file", told):
            read_dataset(str(tmp_path / name))


def _write_array(folder: Path, **changes: object) -> Path:
    """Write the metadata of an array of Zarr 2, with some that make no sense."""
    folder.mkdir(parents=True)
    plain: dict[str, object] = {"zarr_format": 2, "shape": [10], "chunks": [5], "dtype": "<f4", "order": "C"}  # fmt: skip
    rest: dict[str, object] = {"fill_value": 0, "compressor": None, "filters": None}
    (folder / ".zarray").write_text(json.dumps(plain | rest | changes))
    return folder


@pytest.mark.parametrize(("way", "nbytes"), [("disk", 2**36), ("web", 2**23 + 1)])
def test_metadata_of_arrays_in_groups_have_a_bound(tmp_path: Path, way: str, nbytes: int) -> None:
    """A nested object of zeros without an end is refused before it is read whole."""
    zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    os.truncate(_write_array(tmp_path / "a.zarr" / "t") / ".zarray", nbytes)
    with serve(functools.partial(Ranges, directory=str(tmp_path))) as address:
        folder = str(tmp_path) if way == "disk" else address
        with refused("dataset", r"t/\.zarray ", "^at most"):
            read_dataset(f"{folder}/a.zarr", "t")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"shape": [10**400]}, "has extents"),
        ({"chunks": [10**400]}, "has extents"),
        ({"shape": {}}, "make no sense"),
        ({"dtype": "<q9"}, "type of data is none"),
        ({"compressor": {"id": "magic"}}, "codec is none"),
    ],
    ids=lambda one: str(one)[:20],
)
def test_metadata_that_make_no_sense_are_said_in_our_words(
    tmp_path: Path, changes: dict[str, object], told: str
) -> None:
    """No class, call or number of an error of a library is shown."""
    _write_array(tmp_path / "a.zarr", **changes)
    with refused("dataset|variable", told) as caught:
        find_answer(str(tmp_path / "a.zarr"))
    assert not re.search(r"class|Errno|Generic|Error|zarr\.core", str(caught.value))


@pytest.mark.parametrize("what", ["link", "folder", "circle", "list"])
def test_a_folder_that_is_no_store_is_said_in_our_words(tmp_path: Path, what: str) -> None:
    """Links may lead out of a store, or in a circle; metadata may be a folder, or a list."""
    path = tmp_path / "a.zarr" / ".zarray"
    path.parent.mkdir()
    if what == "folder":
        path.mkdir()
    elif what == "list":
        path.write_text("[]")
    else:
        path.symlink_to(path if what == "circle" else _write_array(tmp_path / "b") / ".zarray")
    with refused("dataset", allowed=".") as caught:
        read_dataset(str(path.parent))
    assert not re.search(r"class|Errno|Generic|Error", str(caught.value))


@pytest.mark.parametrize("number", ["1.0e+300", "1.0e-308"])
def test_a_profile_beyond_physics_is_refused(tmp_path: Path, number: str) -> None:
    """Each of its numbers, at the door: sums of them would be none."""
    path = tmp_path / "mine.yml"
    for text in (f"first_byte_s: {{median_s: {number}, p95_s: {number}}}", f"stream_mb_per_s: {number}",
                 f"aggregate_mb_per_s: {number}", f"worker_mb_per_s: {number}", f"requests_per_s: {number}"):  # fmt: skip
        path.write_text(text)
        with refused(f"profile 'mine.yml': {text.partition(':')[0]}.*", allowed="^at (most|least)"):
            CliRunner().invoke(decide, ["--shape", "10", "--profile", str(path)], catch_exceptions=False)  # fmt: skip


def test_a_profile_of_aliases_or_of_megabytes_is_refused(tmp_path: Path) -> None:
    """Nine levels of nine are 387 million values."""
    path = tmp_path / "mine.yml"
    levels = [
        f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in itertools.pairwise("abcdefghij")
    ]
    for text, problem in (("\n".join(["a: &a [1]", *levels]), "alias"), ("x" * 300_000, "300000 bytes"), ("[" * 5000, "deep")):  # fmt: skip
        path.write_text(text)
        with refused("profile 'mine.yml'", problem):
            CliRunner().invoke(decide, ["--shape", "10", "--profile", str(path)], catch_exceptions=False)  # fmt: skip


HOSTILE = 'q"); __import__("os").system("id")#\x1b[31m'


def test_names_of_a_dataset_are_text_in_lines_to_copy_and_on_a_terminal(tmp_path: Path) -> None:
    """A dataset called as code is quoted, whatever it is read by."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset(HOSTILE.replace("/", ""), data=np.zeros((60, 40, 30)), chunks=(6, 4, 3))
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("v", shape=(60, 40, 30), chunks=(1, 40, 30), dtype="f4", dimension_names=[HOSTILE, "y", "x"])  # fmt: skip
    for name in ("a.h5", "a.zarr"):
        for keep in ("nothing", "format", "bytes"):
            if (name, keep) == ("a.zarr", "format"):
                continue
            text = CliRunner().invoke(decide, [str(tmp_path / name), "--keep", keep, "--why"], catch_exceptions=False)  # fmt: skip
            assert text.exit_code == 0 and text.output.replace("\n", "").isprintable()
            found = find_answer(str(tmp_path / name), keep=keep)
            for choice in found.choices:
                calls = [one.func for one in ast.walk(ast.parse(write_code(found.question, choice))) if isinstance(one, ast.Call)]  # fmt: skip
                assert not any(
                    isinstance(one, ast.Name) and one.id == "__import__" for one in calls
                )
