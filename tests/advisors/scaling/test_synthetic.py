"""Stores whose data are absent: each can be opened, listed and searched, within bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisors.scaling.synthetic import (
    KINDS,
    find_exponent,
    measure_stores,
    read_rows,
    render_stores,
)
from helpers.errors import UserError

N = 2000


def take_steps(kind: str, folder: Path) -> dict[str, Any]:
    """Take every step of a store, and return what each found."""
    if kind == "icechunk":
        pytest.importorskip("icechunk")
    steps, found = KINDS[kind](N, folder), {}
    step, do = next(steps)
    while True:
        found[step] = do()
        try:
            step, do = steps.send(found[step])
        except StopIteration:
            return found


@pytest.mark.parametrize(
    ("kind", "listed", "n_found"),
    [
        ("zarr", N, 20),  # a time series of twenty steps
        ("sharded", 2, 2),
        ("json-references", N + 2, 20),  # and two or three of metadata
        ("parquet-references", N + 3, 20),
        ("icechunk", N, 20),
    ],
)
def test_what_is_listed_and_found(kind: str, listed: int, n_found: int, tmp_path: Path) -> None:
    """A listing names every chunk or shard, and a time series finds its chunks."""
    found = take_steps(kind, tmp_path)
    assert found["list"] == listed
    assert len(found["find"]) == n_found and all(found["find"])


def test_references_say_where_bytes_lie(tmp_path: Path) -> None:
    """The tenth time step of both kinds of references is the tenth file."""
    for kind in ("json-references", "parquet-references"):
        folder = tmp_path / kind
        folder.mkdir()
        path, offset, nbytes = take_steps(kind, folder)["find"][9]
        assert (path, offset, nbytes) == ("s3://bucket/step-0000009.nc", 0, 40_000)


@pytest.mark.parametrize(
    ("kind", "n"), [("graph-task-a-chunk", N), ("graph-ten-chunks-a-task", N // 10)]
)
def test_graphs_have_their_tasks(kind: str, n: int, tmp_path: Path) -> None:
    """A task a chunk, or one for ten."""
    assert n <= take_steps(kind, tmp_path)["graph"] <= 2 * n + 3


def test_a_process_is_measured_and_bounded() -> None:
    """A store that fits gives a row a step; one that has no memory or no time says so."""
    rows = [*measure_stores(["json-references"], [10_000])]
    assert [row["step"] for row in rows] == ["open", "list", "find"]
    assert all(row["seconds"] > 0 and row["memory_mb"] >= 0 and not row["ended_by"] for row in rows)  # type: ignore[operator]
    # enough to import what is needed, and not for the references themselves
    (row,) = measure_stores(["json-references"], [500_000], memory_gb=0.42)
    assert row["ended_by"] == "memory"
    (row,) = measure_stores(["zarr"], [10_000], limit_s=0.05)
    assert row["ended_by"] == "time"


@pytest.mark.parametrize(("kinds", "numbers"), [(["tape"], [1000]), (["zarr"], []), (["zarr"], [1500]), (["zarr"], [0])])  # fmt: skip
def test_unknown_stores_are_refused(kinds: list[str], numbers: list[int]) -> None:
    """A kind that is none and a number that no grid has are named."""
    with pytest.raises(UserError, match="^--(kind|chunks) .*; allowed"):
        next(measure_stores(kinds, numbers))


def test_the_record_is_on_the_page() -> None:
    """Every step of the committed record has a line, and what ended a process is said."""
    rows, text = read_rows(), render_stores()
    assert {row["n_chunks"] for row in rows} >= {10**5, 10**6}
    assert (
        text.count("\n| ") == len({(row["kind"], row["step"]) for row in rows if row["step"]}) + 1
    )
    for row in rows:
        assert not row["ended_by"] or f"ended: {row['ended_by']}" in text or "not measured" in text
    assert find_exponent([], "seconds") != find_exponent([], "seconds")
