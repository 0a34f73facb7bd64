"""Checks with a package from anywhere: what it is named, what it is compared with, what is printed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.refusals import refused
from tests.stores import make_location
from wire.bed.networks import get_profile
from wire.bed.testbed import Server, Testbed
from wire.ledger import check, cli
from wire.ledger.check import CheckResult, Difference, Failure, make_environments, name_package
from wire.ledger.clients import CLIENTS
from wire.ledger.environments import HERE, Environment, read_environments
from wire.ledger.layouts import write_layouts
from wire.ledger.measure import LedgerLine, list_lines, open_ledger


def test_a_requirement_is_a_url_a_version_or_a_folder(tmp_path: Path) -> None:
    """Each is installed next to the packages that the last release has beside it."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "S3fs"\n')
    url = "s3fs @ git+https://example.org/s3fs@branch"
    for requirement in (str(tmp_path), f"s3fs @ {tmp_path}", url, "s3fs==2026.3.0"):
        assert name_package(requirement) == "s3fs"
        package, release, candidate = make_environments(requirement)
        assert package == "s3fs" and release.packages[0] == "s3fs"
        assert release.packages[1:] == candidate.packages[1:]
        assert release.clients == candidate.clients and "s3fs-file" in candidate.clients
    assert make_environments(str(tmp_path))[2].packages[0] == f"s3fs @ {tmp_path.as_uri()}"


def test_a_name_alone_compares_the_newest_release_with_the_newest_of_the_list() -> None:
    """So a weekly run sees a release that nobody has listed yet."""
    newest = [one.version for one in read_environments() if one.package == "gcsfs"][-1]
    _, release, candidate = make_environments("gcsfs")
    assert release.packages[0] == f"gcsfs=={newest}" and candidate.packages[0] == "gcsfs"


def test_what_is_no_package_of_the_ledger_is_refused(tmp_path: Path) -> None:
    """With the packages that are, and a folder without a project too."""
    with refused("--with", allowed="gcsfs"):
        make_environments("numpy==2.0")
    with refused("--with", allowed="a Python project"):
        name_package(str(tmp_path))


def test_a_folder_may_have_a_setup_py_alone(tmp_path: Path) -> None:
    """As s3fs has: its build says the name."""
    (tmp_path / "setup.py").write_text(
        'from setuptools import setup\nsetup(name="S3fs", version="1")\n'
    )
    assert name_package(str(tmp_path)) == "s3fs"


MORE = Difference("s3fs-file", "hdf5-paged", "one chunk", "n_requests", 2, 9, True)
LESS = Difference("s3fs-file", "hdf5-paged", "one chunk", "wire_nbytes", 2e6, 1e6, False)


WRONG = Failure("s3fs-file", "hdf5-paged", "one chunk", "candidate", "read 1, not 2")


@pytest.mark.parametrize(
    ("differences", "wrong", "code"),
    [
        ((MORE, LESS), (), 1),
        ((LESS,), (), 0),
        ((), (), 0),
        ((), (WRONG,), 1),
        ((), (replace(WRONG, environment="last release"),), 0),
    ],
)
def test_the_exit_code_is_1_where_something_is_more(
    differences: tuple[Difference, ...],
    wrong: tuple[Failure, ...],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In words and as JSON; what could not be measured is said."""
    absent = Failure("gdal-zarr", "chunks", "whole array", "candidate", "no driver")
    releases = "s3fs 1", "s3fs 2"
    result = CheckResult("s3fs", *releases, *releases, 3, differences, wrong, (absent,))
    monkeypatch.setattr(cli, "check_package", lambda *_arguments, **_more: result)
    for options in ([], ["--json"]):
        outcome = CliRunner().invoke(cli.ledger, ["check", "--with", "s3fs==2", *options])
        assert outcome.exit_code == code
        assert "no driver" in outcome.output and ("read 1, not 2" in outcome.output) == bool(wrong)
    [printed] = json.loads(outcome.output)["results"]
    assert [entry["is_more"] for entry in printed["differences"]] == [
        entry.is_more for entry in differences
    ]


def test_accesses_are_read_right_and_counted_as_the_proxy_saw_them(
    server: Server, tmp_path: Path
) -> None:
    """Requests of an access are those of the server's side, one by one; and its own release is equal."""
    near, network = make_location(server, "accesses"), get_profile("loopback")
    names = ["zarr-array-obstore"]
    layouts = {layout for layout, _ in CLIENTS[names[0]].accesses}
    stored = write_layouts(near, "accesses", tmp_path, layouts, seed=0)
    environments = [Environment(HERE, tuple(names)), Environment("again", tuple(names))]
    from wire.bed.proxy import open_proxy

    with (
        open_proxy(str(near.endpoint_url), profile=network) as proxy,
        open_ledger(
            Testbed(near, near.through(proxy.endpoint_url), proxy),
            stored,
            environments[:1],
            names,
            profile=network,
        ) as ledger,
    ):
        line = LedgerLine(HERE, names[0], "chunks", "whole array")
        assert line in list_lines(environments[:1], names)
        assert ledger.prepare(line) == ""
        answer = ledger.run(line)
        rows: list[Any] = []
        take = ledger.testbed.take_trace
        rows += take()
        assert ledger.check(line, answer) == ""
        assert "read" in ledger.check(line, {"value": 0})
        reads = [row for row in rows if "/c/" in row.key and row.method == "GET"]
        assert len(reads) == 32
        counts = ledger.measure(line)
        assert counts["n_requests"] == len(rows) and counts["n_get"] >= 32
        assert counts["unique_nbytes"] <= counts["wire_nbytes"]


def test_two_environments_that_are_one_have_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Absent accesses are named with their reason, and compared are the others."""
    line_counts = {"n_requests": 5, "n_waits": 2, "wire_nbytes": 100, "versions": "zarr 3"}

    class Stand:
        def measure(self, line: LedgerLine) -> dict[str, Any]:
            reason = "no such feature" if line.access == "whole array" else ""
            return line_counts | {"absent": reason, "wrong": ""}

    pair = [Environment(name, ("gdal-zarr",)) for name in (check.RELEASE, check.CANDIDATE)]
    stand: Any = Stand()
    result = check.compare_environments(stand, "rasterio", pair, ["gdal-zarr"])
    assert (result.n_compared, result.differences) == (1, ())
    place = "gdal-zarr", "chunks", "whole array"
    assert result.absent == tuple(
        Failure(*place, name, "no such feature") for name in (check.RELEASE, check.CANDIDATE)
    )
    assert result.last_packages == result.candidate_packages == "zarr 3"
