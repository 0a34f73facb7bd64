"""The study of balanced chunks: its tables, its layouts, and files rewritten by its tools."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import pytest

from helpers.benchmark.contender import CheckError
from studies.chunk_shape import balanced as study
from studies.chunk_shape import layouts
from studies.chunk_shape.layouts import ChunkLayout

SHAPE = (48, 12, 14)


def test_published_tables_are_read_by_layout() -> None:
    """By hand: 180 s over 13 ms, 38 s over 1.6 s, and 99 minutes over 7."""
    theirs, minutes = study.read_study(), study.read_rewrites()
    assert {*theirs.index} == {*study.ORDER}
    assert theirs.loc["contiguous, time fastest", "theirs, bias"] == pytest.approx(180 / 0.013)
    assert theirs.loc["balanced 4 KiB", "theirs, first over later"] == pytest.approx(38 / 1.6)
    assert minutes.loc[("balanced 4096 KiB", "h5repack"), "theirs, disk"] == pytest.approx(99 / 7)


def test_layouts_are_those_of_the_study() -> None:
    """At its full size chunks are those of its tables, and files have the index of that time."""
    found = {one.name: one for one in study.list_layouts(layouts.FULL_SHAPE)}
    assert [*found] == study.ORDER
    assert found["balanced 4096 KiB"].chunk_shape == (1032, 29, 35)
    assert found["balanced 16 KiB"].chunk_shape == (64, 8, 8)
    assert {one.libver for one in found.values()} == {"earliest"}


@pytest.fixture
def rewrite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> study.Rewrite:
    """Plan a rewrite of a small array by Dask."""
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path))
    target = ChunkLayout("balanced 4096 KiB", (9, 3, 4))
    return study.plan_rewrites(layouts.make_sample(SHAPE, 3), [target], ["nccopy", "h5repack"])[0]


@pytest.mark.parametrize("tool", study.TOOLS)
def test_a_tool_rewrites_right_or_makes_no_row(tool: str, rewrite: study.Rewrite) -> None:
    """The chunks are those asked for, even small ones; other values or chunks are an error."""
    if reason := study.find_absent().get(tool):
        pytest.skip(reason)
    way = replace(rewrite, tool=tool)
    for wrong in ({"expected": 0}, {"layout": ChunkLayout("balanced 4096 KiB", (8, 3, 4))}):
        way.prepare()
        way.read(None)
        with pytest.raises(CheckError, match=tool):
            replace(way, **wrong).check(None)  # type: ignore[arg-type]
        assert not way.target.exists()
    way.prepare()
    way.read(None)
    with h5py.File(way.target) as file:
        assert file["t"].compression == "gzip" and file["t"].shuffle
    assert way.check(None).startswith("xxh3")
    assert tool == "dask" or way.versions()[f"library of {tool}"][0].isdigit()


def test_an_absent_tool_is_a_line_with_its_reason(
    rewrite: study.Rewrite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no contender; the table of rewrites says how to get it."""
    monkeypatch.setenv("PATH", "")
    absent = study.find_absent()
    assert {*absent} == {"nccopy", "h5repack"} and "apt install netcdf-bin" in absent["nccopy"]
    assert [one.tool for one in study.plan_rewrites(layouts.make_sample(SHAPE, 3), [rewrite.layout], absent)] == ["dask"]  # fmt: skip
    rows = study.pd.DataFrame(
        [("dask", "rewrite", "measured", "balanced 4096 KiB", 2.0)],
        columns=["contender", "access", "phase", "target", "read_s"],
    )
    table = study.tabulate_rewrites(rows, {}, absent)
    assert table.loc[("balanced 4096 KiB", "dask"), "seconds"] == 2
    assert table.loc[("every target", "nccopy"), "absent"] == absent["nccopy"]


def test_the_first_read_stands_apart() -> None:
    """Of reads of 4 s, 1 s and 1 s it takes four times as long as the others."""
    trace = '{"box_s": [4.0, 1.0, 1.0]}'
    rows = study.pd.DataFrame(
        [("balanced 4 KiB", "series", "measured", "", 0, trace)],
        columns=["contender", "access", "phase", "control_of", "block", "trace"],
    )
    assert study.compare_first(rows)["balanced 4 KiB", "series", 0] == 4
