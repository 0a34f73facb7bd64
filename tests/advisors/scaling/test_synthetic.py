"""Stores whose data are absent: each can be opened, listed and searched, within bounds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from advisors.scaling.cli import stores
from advisors.scaling.synthetic import (
    KINDS,
    RECORD,
    _tell_graphs,
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
    (row,) = measure_stores(["zarr"], [20_000, 10_000], limit_s=0.05)  # and no larger one
    assert row["ended_by"] == "time" and row["n_chunks"] == 10_000 and row["limit_s"] == 0.05


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
        told = "not done in" if row["ended_by"] == "time" else f"ended: {row['ended_by']}"
        assert not row["ended_by"] or told in text or "not measured" in text
    assert find_exponent([], "seconds") != find_exponent([], "seconds")
    assert "e-0" not in text and " 0 MB" not in text and "Our target" in text.splitlines()[-1]
    steps = [{"n_chunks": n, "seconds": s} for n, s in ((10**5, 0.0137), (10**6, 0.0172))]
    assert math.isnan(find_exponent(steps, "seconds")), "too short to tell"


def test_what_is_measured_anew_replaces_its_own_rows(tmp_path: Path) -> None:
    """All other rows stay with the machine that they came from; a file of another kind is refused."""
    path, was = tmp_path / "stores.csv", RECORD.read_text(encoding="utf-8")
    path.write_text(was.replace("Xeon", "Yeon"), encoding="utf-8")
    options = ["--kind", "graph-ten-chunks-a-task", "--out", str(path), "--chunks"]
    assert CliRunner().invoke(stores, [*options, "10000"]).exit_code == 0
    before, after = read_rows(RECORD), read_rows(path)
    assert (
        len(after) == len(before)
        and sum("Yeon" in row["machine"] for row in after) == len(after) - 1
    )
    assert (after[-1]["kind"], after[-1]["n_chunks"]) == ("graph-ten-chunks-a-task", 10_000)
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"stores.csv: not read .*; allowed"):
        CliRunner().invoke(stores, [*options, "10000"], catch_exceptions=False)
    assert path.read_text(encoding="utf-8") == "a,b\n1,2\n"


@pytest.mark.parametrize(("n", "batched_s", "told"), [(10**6, 9, "kept"), (10**6, 11, "missed"), (10**5, 9, "is for")])  # fmt: skip
def test_graphs_of_batches_are_held_to_their_target(n: int, batched_s: float, told: str) -> None:
    """At a million chunks the target is kept or missed; below it is not judged."""
    times = {"graph-task-a-chunk": 100.0, "graph-ten-chunks-a-task": batched_s}
    rows = [
        {"kind": kind, "n_chunks": n, "step": "graph", "seconds": s} for kind, s in times.items()
    ]
    assert f"takes {batched_s:.1f} %" in (text := _tell_graphs(rows)) and told in text
