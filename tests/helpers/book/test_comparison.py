"""``wire compare``: two records of one case, side by side, or one line that says why not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from helpers.benchmark.record import WRITTEN, list_records
from helpers.book import comparison
from helpers.book.cases import Case
from helpers.book.cli import compare
from helpers.errors import UserError
from helpers.paths import ROOT
from tests.rows import ORIGIN, make_row, write_record

SECONDS = [1.0, 1.04, 0.97, 1.02, 0.99]
COPY = "zarr-s3fs, again"


def write(path: Path, times: float = 1.0, **changed: Any) -> Path:
    """Write a record of a contender, its copy and another at two points; the other takes `times` as long."""
    rows = []
    for n in (1, 2):
        for block, s in enumerate(SECONDS):
            told: dict[str, Any] = {"point": {"n_workers": n}, "block": block, **changed}
            rows += [
                make_row(**(told | {"read_s": s / n})),
                make_row(
                    **(
                        told
                        | {"contender": COPY, "control_of": "zarr-s3fs", "read_s": s * 1.01 / n}
                    )
                ),
                make_row(**(told | {"contender": "other", "read_s": s * times / n})),
            ]
    warm = make_row(phase="warm-up", read_s=1000.0, **changed)
    return write_record(path, [warm, *rows])


def run(*given: str) -> str:
    """Ask the command."""
    found = CliRunner().invoke(compare, list(given), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def pick(found: Mapping[str, Any], name: str, n: int) -> dict[str, Any]:
    """Find the row of a contender at a number of workers."""
    [row] = [
        row for row in found["rows"] if (row["contender"], row["point"]) == (name, {"n_workers": n})
    ]
    return dict(row)


def test_a_record_with_itself(tmp_path: Path) -> None:
    """Every ratio is 1, nothing is told apart, and nothing differs in origin."""
    path = write(tmp_path / "a.csv")
    found = comparison.compare_records(path, path)
    assert [row["ratio"] for row in found["rows"]] == [1.0] * 4
    assert {row["verdict"] for row in found["rows"]} == {"indistinguishable"}
    assert found["origin"] == {} and found["only_in_a"] == found["only_in_b"] == []
    assert "nothing differs in origin" in run(str(path), str(path))


def test_what_takes_twice_as_long(tmp_path: Path) -> None:
    """A contender that is slower in A is told so at each point; the copy counts with its original."""
    a, b = write(tmp_path / "a.csv", times=2.0), write(tmp_path / "b.csv")
    found = comparison.compare_records(a, b)
    assert len(found["rows"]) == 4, "two contenders at two points, and no row for the copy"
    for n in (1, 2):
        row = pick(found, "other", n)
        assert row["ratio"] == pytest.approx(2.0) and row["low"] < 2.0 < row["high"]
        assert (row["verdict"], row["n_a"], row["n_b"]) == ("slower", 5, 5)
        assert row["a_s"] == pytest.approx(2 * row["b_s"])
        assert 1 <= row["noise_a"] < 1.05 and 1 <= row["noise_b"] < 1.05
        assert pick(found, "zarr-s3fs", n)["verdict"] == "indistinguishable"
    text = run(str(a), str(b))
    assert text.count("A is slower") == 2 and "unpaired" in text and "Compared: 4." in text
    assert run(str(b), str(a)).count("A is faster") == 2


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
    b = write(tmp_path / "b.csv", **there)
    origin = json.loads(run(str(a), str(b), "--json"))["origin"]
    assert origin["machine"] == {"cpu": ["One", "Two"]}
    assert origin["versions"] == {"zarr": ["3.1.6", "3.2.0"]}
    assert origin["parameters"] == {"seed": [1, 7]}
    assert {*map(tuple, origin["settings"].values())} == {("zstd", "none")}
    assert origin["run"] == {"commit": ["a" * 8, "b" * 8]}
    text = run(str(a), str(b))
    assert "what differs in versions (A; B):\n    zarr: 3.1.6; 3.2.0" in text


def test_one_block_shows_no_noise(tmp_path: Path) -> None:
    """A record of one block has ratios, and neither intervals nor a verdict."""
    a = write(tmp_path / "a.csv", times=2.0)
    rows = [make_row(point={"n_workers": 1}), make_row(point={"n_workers": 1}, contender="other")]
    b = write_record(tmp_path / "b.csv", rows)
    found = comparison.compare_records(a, b)
    row = pick(found, "other", 1)
    assert row["low"] is row["high"] is row["noise_b"] is None
    assert row["verdict"] == "indistinguishable"
    assert found["only_in_a"] == ['other at {"n_workers": 2}', 'zarr-s3fs at {"n_workers": 2}']
    text = run(str(a), str(b))
    assert "noise unknown" in text and "only in A: other at" in text


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"case": "wide-area"}, "is of cluster-scaling/in-region, b.csv of cluster-scaling/wide"),
        ({"study": "chunk-shape"}, "b.csv of chunk-shape/in-region; allowed: two records of one"),
        ({"phase": "warm-up"}, "b.csv: no measured row; allowed"),
    ],
)
def test_records_that_do_not_compare(changed: dict[str, str], says: str, tmp_path: Path) -> None:
    """Another case or study is one line, and so is a record of nothing."""
    a = write(tmp_path / "a.csv")
    b = write_record(tmp_path / "b.csv", [make_row(**changed)])
    refuse(says, str(a), str(b))


def refuse(says: str, *given: str) -> None:
    """Expect one line."""
    with pytest.raises(UserError, match=says) as caught:
        run(*given)
    assert "\n" not in str(caught.value)


def test_nothing_in_common(tmp_path: Path) -> None:
    """Other contenders, or other points, are named."""
    a = write(tmp_path / "a.csv")
    b = write_record(tmp_path / "b.csv", [make_row(contender="third")])
    refuse(
        "no contender at a point in common; .*A has zarr-s3fs, other, B has third", str(a), str(b)
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "b.csv: cannot be read as a record: FileNotFoundError"),
        ("", "b.csv"),
        ("a,b\n1,2\n", "b.csv: not a record of this schema: differs in"),
        (",".join(WRITTEN) + "\ntorn", "b.csv: torn"),
    ],
)
def test_files_that_are_no_records(text: str | None, says: str, tmp_path: Path) -> None:
    """Each is one line that names the file."""
    a, b = write(tmp_path / "a.csv"), tmp_path / "b.csv"
    if text is not None:
        b.write_text(text)
    refuse(says, str(a), str(b))


def test_a_case_is_its_record_and_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a case, a site's record is laid over the reference; one that was not measured is told."""
    case = Case("laptop", "cluster-scaling", "in-region", tmp_path)
    monkeypatch.setattr(comparison, "find_case", lambda title, site: case)
    refuse("has no record at site laptop; allowed: after wire run", case.title)
    write(case.result(".csv"), times=2.0)
    write(case.result(".csv", "reference"))
    assert run(case.title).count("A is slower") == 2


@pytest.mark.parametrize("given", [(), ("a.csv",), ("a.csv", "b.csv", "c.csv")])
def test_the_wrong_number_of_records(given: tuple[str, ...]) -> None:
    """What is asked for is said."""
    refuse("allowed: A.csv B.csv, or CASE", *given)


@pytest.mark.parametrize("value", ["read_s", "open_s"])
@pytest.mark.parametrize(
    "path", list_records(ROOT / "results" / "reference"), ids=lambda p: f"{p}"[-30:]
)
def test_every_reference_record_compares_with_itself(path: Path, value: str) -> None:
    """Whatever a study records can be compared, by its times to read; by those to open, where it opens."""
    try:
        found = comparison.compare_records(path, path, value=value)
    except UserError as error:
        if value == "open_s" and "not above 0" in str(error):
            return
        raise
    assert found["rows"] and all(row["ratio"] == 1 for row in found["rows"])
    assert found["origin"] == {}
    assert len("\n".join(comparison.render_comparison(found, path, path))) > 100
