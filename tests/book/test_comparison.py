"""``wire compare``: two records of one case, side by side, or one line that says why not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from book import comparison
from book.cases import Case
from book.cli import compare
from helpers.benchmark.record import WRITTEN
from helpers.errors import UserError
from helpers.paths import ROOT
from tests.rows import ORIGIN, make_row, write_record

SECONDS = [1.0, 1.04, 0.97, 1.02, 0.99]


def write(path: Path, times: float = 1.0, **changed: Any) -> Path:
    """Write a record of a contender, its copy and another at two points; the other takes `times` as long."""
    copy = {"contender": "zarr-s3fs, again", "control_of": "zarr-s3fs"}
    rows = [make_row(phase="warm-up", read_s=1000.0, **changed)]
    for n in (1, 2):
        for block, s in enumerate(SECONDS):
            told: dict[str, Any] = {"point": {"n_workers": n}, "block": block, **changed}
            for own, read_s in (({}, s), (copy, s * 1.01), ({"contender": "other"}, s * times)):
                rows.append(make_row(**{**told, **own, "read_s": read_s / n}))
    return write_record(path, rows)


def run(*given: str) -> str:
    """Ask the command."""
    found = CliRunner().invoke(compare, list(given), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_a_record_with_itself(tmp_path: Path) -> None:
    """Every ratio is 1, nothing is told apart, and nothing differs in origin."""
    path = write(tmp_path / "a.csv")
    for one in (path, ROOT / "results" / "reference" / "cluster-scaling" / "in-region.csv"):
        found = comparison.compare_records(one, one)
        assert {row["ratio"] for row in found["rows"]} == {1.0}
        assert found["origin"] == {}
    assert "nothing differs in origin" in run(str(path), str(path))


def test_what_takes_twice_as_long(tmp_path: Path) -> None:
    """A contender that is slower in A is told so at each point; the copy counts with its original."""
    a, b = write(tmp_path / "a.csv", times=2.0), write(tmp_path / "b.csv")
    found = comparison.compare_records(a, b)["rows"]
    assert [row["contender"] for row in found] == ["zarr-s3fs", "other"] * 2
    for row in found[1::2]:
        assert row["ratio"] == pytest.approx(2.0) and row["low"] < 2.0 < row["high"]
        assert (row["n_a"], row["n_b"]) == (5, 5)
    assert {row["ratio"] for row in found[::2]} == {1.0}
    text = run(str(a), str(b))
    write(a, times=1e308), write(b, times=1e-308)
    assert re.search("other +n_workers 1 +not measured", run(str(a), str(b))), (
        "a ratio beyond floats"
    )
    write(a, times=1.72e308), write(b, times=0.97)
    assert re.search(r"other +n_workers 1 +1\d+ +\d+ to not measured", run(str(a), str(b)))
    assert "unpaired" in text and re.search(r"other +n_workers 1 +2 +1\.\d+ to 2\.\d+ +5, 5", text)


def test_what_differs_in_origin(tmp_path: Path) -> None:
    """Machine, versions, parameters, settings and commit stand side by side; the rest is left out."""
    a = write(tmp_path / "a.csv", dilation=1.0)
    there = {
        "machine": {"cpu": "Two", "n_cores": 2},
        "versions": {"zarr": "3.2.0", "dask": "2026.8"},
        "parameters": {**ORIGIN.parameters, "seed": 7, "dilation": 1.0},
        "settings": {"codec": "none", "cache_state": "cold"},
        "commit": "b" * 40,
    }
    origin = json.loads(run(str(a), str(write(tmp_path / "b.csv", **there)), "--json"))["origin"]
    assert origin["machine: cpu"] == ["One", "Two"]
    assert origin["versions: zarr"] == ["3.1.6", "3.2.0"]
    assert origin["parameters: seed"] == [1, 7]
    assert origin["settings of other: codec"] == ["zstd", "none"]
    assert origin["commit"] == ["a" * 8, "b" * 8]
    assert "versions: dask" not in origin, "what one side did not import"


def test_one_block_has_no_interval(tmp_path: Path) -> None:
    """A record of one block has ratios alone."""
    a, b = write(tmp_path / "a.csv"), write_record(tmp_path / "b.csv", [make_row(point={"n_workers": 1})])  # fmt: skip
    assert comparison.compare_records(a, b)["rows"][0]["low"] is None
    assert "one value" in run(str(a), str(b))


@pytest.mark.parametrize(
    ("b", "says"),
    [
        ({"case": "wide-area"}, "is of cluster-scaling/in-region, b.csv of cluster-scaling/wide"),
        ({"phase": "warm-up"}, "b.csv: no measured row; allowed"),
        ({"contender": "third"}, "no contender at a point in common; .*, B has third"),
        (None, "b.csv: cannot be read as a record: FileNotFoundError"),
        ("", "b.csv"),
        ("a,b\n1,2\n", "b.csv: not a record of this schema: differs in"),
        (",".join(WRITTEN) + "\ntorn", "b.csv: torn"),
    ],
)
def test_records_that_do_not_compare(b: Any, says: str, tmp_path: Path) -> None:
    """Each is one line that names the file."""
    a, path = write(tmp_path / "a.csv"), tmp_path / "b.csv"
    if isinstance(b, dict):
        write_record(path, [make_row(**b)])
    elif b is not None:
        path.write_text(b)
    with pytest.raises(UserError, match=says) as caught:
        run(str(a), str(path))
    assert "\n" not in str(caught.value)


def test_a_case_is_its_record_and_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a case, a site's record is laid over the reference; one that was not measured is told."""
    case = Case("laptop", "cluster-scaling", "in-region", tmp_path)
    monkeypatch.setattr(comparison, "find_case", lambda title, site: case)
    with pytest.raises(UserError, match="has no record at site laptop; allowed: after wire run"):
        run(case.title)
    write(case.result(".csv"), times=2.0)
    write(case.result(".csv", "reference"))
    assert run(case.title).startswith(f"{case.title}, read_s: A is ")
    with pytest.raises(UserError, match=r"allowed: A\.csv B\.csv, or CASE"):
        run("a.csv")
