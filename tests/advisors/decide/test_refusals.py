"""Questions that cannot be asked, and inputs that are meant to harm: one line each, and soon."""

from __future__ import annotations

import ast
import itertools
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from advisors.decide import dataset
from advisors.decide.cli import decide, find_answer
from advisors.decide.dataset import read_dataset
from advisors.decide.show import write_code
from helpers.cli import main
from helpers.errors import UserError

BAD = [
    ((), "shape: none"),
    (("--shape", "0,10"), "shape: '0'"),
    (("--shape", "ten"), "shape: 'ten'"),
    (("--shape", ",".join("2" * 9)), "at most 8"),
    (("--shape", "10,10", "--type", "float33"), "type: 'float33'"),
    (("--shape", "10,10", "--type", "object"), "type: 'object'"),
    (("--shape", "10,10", "--variable", "x"), "variable: 'x'"),
    (("--shape", "10,10", "--access", "zigzag:1"), "access: 'zigzag'"),
    (("--shape", "10,10", "--access", "20x1:1"), r"access: \[20, 1\]"),  # more than there is
    (("--shape", "10,10", "--access", "2x2@odd:1"), "access: '2x2@odd:1'"),
    (("--shape", "10,10", "--access", "series:often"), "access: 'series:often'"),
    (("--shape", "10,10", "--access", "series:0,map:0"), "access: 'series:0,map:0'"),
    (("--shape", "10,10", "--access", "series:nan"), "access: 'series:nan'"),
    (("--shape", "10,10", "--access", "series:1,series:1"), "access: 'series' is there twice"),
    (("--shape", "10,10", "--profile", "moon"), "'moon'"),
    (("--shape", "10,10", "--memory", "1e-9"), "memory: 1e-09"),
    (("--shape", "1000000,100,100", "--max-objects", "1", "--memory", "1"), "max-objects: 1"),
    (("--shape", "10,10", "--append", "depth"), "append: 'depth'"),
    (("--shape", "10,10", "--append", "time:0"), "append: 'time:0'"),
    (("nowhere.zarr",), "nothing is there"),
    (("nowhere.zarr", "--shape", "10,10"), r"shape: \(10, 10\)"),
    (("--shape", "10,10", "--wait-usd-hour", "-5"), "wait-usd-hour: '-5'"),
    *((("--shape", "10,10", f"--{name}", "0"), f"{name}: '0'") for name in
      ("in-flight", "cores", "arrays", "max-objects", "batch", "memory", "compression", "per-second", "budget-usd-month")),
    (("--shape", "10,10", "--reads-per-month", "1", "--per-second", "1"), "reads-per-month: 1"),
    (("--shape", "10,10", "--chunks", "20,20"), r"chunks: \[20, 20\]"),
    (("--shape", "10,10", "--format", "hdf5"), "format: 'hdf5'"),
    (("--shape", "10,10", "--chunks", "4,4", "--shards", "6,6"), r"shards: \[6, 6\]"),
    (("--shape", "10,10", "--workers", "2"), "workers: 2"),
    (("--shape", "10,10", "--keep", "bytes"), "keep: 'bytes'"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_questions_are_one_line(options: tuple[str, ...], message: str) -> None:
    """What cannot be asked says what it is, and what is allowed."""
    with pytest.raises(UserError, match=message) as caught:
        CliRunner().invoke(decide, list(options), catch_exceptions=False)
    assert "\n" not in str(caught.value) and "allowed" in str(caught.value)


def test_a_command_that_has_moved_names_the_other() -> None:
    """In one line."""
    with pytest.raises(UserError, match="wire decide --keep one-copy"):
        CliRunner().invoke(main, ["chunks", "--shape", "10,10"], catch_exceptions=False)


NUMBERS = [
    ("--shape", "1e300"),
    ("--shape", "1" + "0" * 400),
    ("--shape", "9" * 5000),
    ("--shape", ",".join(["1"] * 5000)),
    ("--shape", ",".join(["2"] * 5000)),
    ("--shape", "9007199254740992,9007199254740992"),
    ("--shape", "97,97,97,97,97,97,97,97"),
    ("--shape", "10,10", "--chunks", f"{10**30},1"),
    ("--shape", "10,10", "--chunks", "1,1", "--shards", f"{10**30},1"),
    ("--shape", "10,10", "--access", "series:1e308,map:1e308"),
    ("--shape", "10,10", "--access", "series:1e-320"),
    ("--shape", "10,10", "--append", f"time:{10**40}"),
    ("--shape", "10,10", "--append", "time:²"),
    ("--shape", "10,10", "--type", "S999999999"),
    *(
        ("--shape", "10,10", f"--{name}", value)
        for name in ("compression", "memory", "per-second", "budget-usd-month", "link-mb-per-s")
        for value in ("1e300", "1e-320", "nan", "inf", "-inf")
    ),
    *(("--shape", "10,10", "--batch", "1", f"--{name}", f"{10**30}") for name in ("workers", "prefetch")),
    *(("--shape", "10,10", f"--{name}", f"{10**30}") for name in ("in-flight", "cores", "arrays", "batch")),
]  # fmt: skip
ESCAPE = "\x1b[31m"
TEXTS = [
    ("--shape", ESCAPE),
    ("--shape", "10,10", "--type", ESCAPE),
    ("--shape", "10,10", "--variable", ESCAPE),
    ("--shape", "10,10", "--access", ESCAPE),
    ("--shape", "10,10", "--append", ESCAPE),
    ("--shape", "10,10", "--profile", f"{ESCAPE}.yml"),
    ("s3://key:PASSWORD@bucket/a.zarr",),
    ("s3://key:PASSWORD@bucket/a.h5",),
    ("https://key:PASSWORD@127.0.0.1:9/a.h5",),
    ("https://127.0.0.1:9/a.h5?X-Amz-Signature=PASSWORD&X-Amz-Date=1",),
    (f"https://127.0.0.1:9/{ESCAPE}.zarr",),
    ("http://[",),
    ("a" * 5000,),
    ("/dev/zero",),
]


@pytest.mark.parametrize("options", [*NUMBERS, *TEXTS], ids=lambda one: "".join(one)[-30:])
def test_what_is_meant_to_harm_is_one_line(options: tuple[str, ...]) -> None:
    """Numbers beyond floats and memory, codes of a terminal, and passwords: refused, never shown."""
    with pytest.raises(UserError) as caught:
        CliRunner().invoke(decide, list(options), catch_exceptions=False)
    text = str(caught.value)
    assert text.isprintable() and "allowed" in text and "PASSWORD" not in text and len(text) < 500


@pytest.mark.parametrize("options", [
    ("--shape", "7,881918,30,6,10,1,2191,662", "--chunks", "5,441891,15,1,9,1,717,45"),
    ("--shape", "151442096837821", "--chunks", "19263977511874", "--access", "whole", "--memory", "1e9"),
    ("--shape", "1000000,1000000", "--chunks", "1,1", "--arrays", "1000000", "--together", "1000000"),
])  # fmt: skip
def test_files_beyond_measure_are_foretold_from_a_part(options: tuple[str, ...]) -> None:
    """Chunks of terabytes, and as many as there are, take neither memory nor time."""
    asked = ["--format", "hdf5", "--keep", "bytes", *options]
    assert CliRunner().invoke(decide, asked, catch_exceptions=False).exit_code == 0


def test_files_that_never_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(dataset, "_DISK_S", 0.5)
    for name, told in (("pipe.h5", "no regular file"), ("zero.nc", "no regular file"), ("empty.h5", "is empty"),
                       ("zero.zarr", ".zmetadata is none"), ("many.zarr", "zarr.json is none"),
                       ("pipe.zarr", "zarr.json is none"), ("inside.zarr", "take too long")):  # fmt: skip
        with pytest.raises(UserError, match=told):
            read_dataset(str(tmp_path / name))
    pipes[1].open("wb").close()  # frees its reader


def test_a_profile_of_aliases_or_of_megabytes_is_refused(tmp_path: Path) -> None:
    """Nine levels of nine are 387 million values."""
    path = tmp_path / "mine.yml"
    levels = [
        f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in itertools.pairwise("abcdefghij")
    ]
    for text, told in (("\n".join(["a: &a [1]", *levels]), "alias"), ("x" * 300_000, "300000 bytes"), ("[" * 5000, "deep")):  # fmt: skip
        path.write_text(text)
        with pytest.raises(UserError, match=told):
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
