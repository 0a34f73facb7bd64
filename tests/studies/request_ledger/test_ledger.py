"""The ledger: counts of a trace, its environments, what changed between versions."""

from __future__ import annotations

import os
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from studies.request_ledger import cli, clients, findings, gcs, written
from studies.request_ledger.environments import (
    HERE,
    Environment,
    make_environment,
    read_environments,
)
from studies.request_ledger.workload import LAYOUTS, Session, contend_all, count
from tests.refusals import refused
from tests.stores import make_location
from wire.bed.networks import get_profile
from wire.bed.requests import RequestRow
from wire.bed.testbed import Server, Testbed
from wire.ledger import environments, issues
from wire.ledger.check import CANDIDATE, RELEASE, CheckReport


def test_requests_are_counted_by_method_and_by_their_waits() -> None:
    """Two at once, one that waited, a listing, a failed look-up; the second range begins in the first."""
    ranges: Any = {"range_nbytes": 100, "nbytes": 10, "status": 200}
    found = count(
        [
            RequestRow(0, 0, 1, 1, "GET", "/b/o", range_start=0, **ranges),
            RequestRow(0, 0, 2, 2, "HEAD", "/b/o", status=200),
            RequestRow(2, 2, 3, 1, "GET", "/b/o", range_start=50, **ranges),
            RequestRow(3, 3, 4, 1, "GET", "/b", nbytes=10, status=200),
            RequestRow(4, 4, 5, 1, "HEAD", "/b/p", status=404),
            RequestRow(5, 5, 6, 1, "GET", "/b/o", range_start=150, **ranges),
        ]
    )
    assert found == {
        "n_get": 3, "n_head": 2, "n_put": 0, "n_other": 1, "n_failed": 1, "wire_nbytes": 40,
        "n_connections": 2, "n_in_flight": 2, "n_waits": 5, "n_joined": 1,
    }  # fmt: skip


def lines(**more: object) -> pd.DataFrame:
    """Make lines of one operation as `merge_runs` has them."""
    line = {
        "client": "zarr-s3fs", "environment": "old", "layout": "zarr-v2", "operation": "whole",
        "n_requests": 32, "wire_nbytes": 14e6, "n_waits": 5, "least_waits": 5, "most_waits": 6,
    }  # fmt: skip
    return pd.DataFrame([{**line, **more}])


@pytest.mark.parametrize(
    ("after", "count"),
    [
        ({"n_requests": 64}, ["n_requests"]),  # s3fs of 2026 asks twice for each chunk
        ({"n_waits": 32, "least_waits": 32, "most_waits": 32}, ["n_waits"]),  # zarr of 2022
        ({"wire_nbytes": 52.9e6}, ["wire_nbytes"]),  # a netCDF file of 8.7 MB in s3fs of 2023
        # from moment to moment a chain is one longer, and metadata some bytes
        ({"n_waits": 6, "least_waits": 6, "most_waits": 7, "wire_nbytes": 14e6 + 500}, []),
    ],
)
def test_regressions_that_happened_are_found(after: dict[str, object], count: list[str]) -> None:
    """Each as more than before, and the way back as less."""
    found = findings.compare(lines(), lines(environment="new", **after))
    assert list(found["count"]) == count
    assert (found["after"] > found["before"]).all()
    back = findings.compare(lines(**after), lines(environment="new"))
    assert (back["after"] < back["before"]).all() and list(back["count"]) == count


def test_the_newest_versions_are_compared_with_the_record() -> None:
    """More requests of a client are a difference; what it could not do before either is no news."""
    line = dict.fromkeys(findings.COUNTS, 1) | {"client": "zarr-s3fs", "layout": "zarr-v2"}
    line |= dict.fromkeys(("n_waits", "n_in_flight", "n_connections", "n_joined", "span_s"), 1)
    line |= {"needed_nbytes": 1, "absent": "", "phase": "measured", "block": 0, "n_requests": 32}
    line |= {"operation": "whole", "environment": "2026", "versions": "s3fs 2026.9.0"}
    refused_line = line | {"operation": "append", "absent": "no such feature"}
    committed = pd.DataFrame([line, refused_line])
    newest = committed.assign(environment="newest s3fs", versions="s3fs 2026.12.0")
    newest.loc[0, "n_requests"] = 64
    result = cli.compare_client("zarr-s3fs", committed, newest)
    assert [(entry.count, entry.before, entry.after) for entry in result.differences] == [
        ("n_requests", 32, 64)
    ]
    assert (result.n_compared, result.candidate) == (1, "s3fs 2026.12.0")
    assert [failure.environment for failure in result.absent] == [RELEASE, CANDIDATE]
    report = CheckReport((result,)).to_json()
    titles = [issue.title for issue in issues.list_issues(report)]
    assert titles == ["zarr-s3fs: whole of zarr-v2 requests more with s3fs 2026.12.0"]


def test_a_repeat_may_be_a_warm_up_and_a_count_may_not() -> None:
    """Counts are of measured rows alone; whether they come out the same is asked of all."""
    line = dict.fromkeys(findings.COUNTS, 1) | dict.fromkeys(findings.KEY, "here")
    chains = ("n_requests", "n_waits", "n_in_flight", "n_connections", "n_joined")
    line |= dict.fromkeys((*chains, "span_s", "needed_nbytes"), 1)
    line |= {"absent": "", "versions": "zarr 3.4.2", "phase": "measured"}
    again = {"phase": "warm-up", "n_get": 2}
    other = {"layout": "b"}
    table = pd.DataFrame([line, line | again, line | other, line | other | {"absent": "no driver"}])
    assert findings.merge_runs(table)["n_get"].tolist() == [1, 1]
    assert findings.compare_repeats(table).tolist() == [False]


def test_what_clients_raised_is_a_line_each_without_paths() -> None:
    """Versions that raised the same share a line; what was asked has none."""
    raised = (
        "ImportError: no 'a' in 'b' (./.cache/ledger/0a/venv/lib/python3.12/site-packages/b.py)"
    )
    lines = [("a", "1", raised), ("a", "1", raised), ("a", "2", raised), ("a", "3", ""), ("b", "1", "KeyError: 'c'. More.")]  # fmt: skip
    table = findings.list_refusals(pd.DataFrame(lines, columns=["client", "environment", "absent"]))
    assert table.reset_index().to_numpy().tolist() == [
        ["a", "1, 2", "ImportError: no 'a' in 'b'"],
        ["b", "1", "KeyError: 'c'"],
    ]


def test_environments_are_listed_in_one_file() -> None:
    """Each has a name of its own, clients and layouts that the ledger knows, and a day and a Python."""
    found = read_environments()
    assert len({one.name for one in found}) == len(found) > 40
    assert {client for one in found for client in one.clients} <= {*LAYOUTS}
    known = {layout for layouts in LAYOUTS.values() for layout in layouts}
    assert {layout for one in found for layout in one.layouts} <= known
    assert all(one.until and one.python and one.packages for one in found[1:])


@pytest.mark.slow
def test_a_version_that_does_not_exist_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line that names it, and the rest goes on."""
    monkeypatch.setenv("ARRAYS_CACHE", os.fspath(tmp_path))
    absent = Environment("zarr 0.0.99", ("zarr-s3fs",), ("zarr==0.0.99",), "2026-01-01", "3.12")
    with refused(r"zarr 0\.0\.99", r"^cannot be installed: [^\n]*$"):
        make_environment(absent)


def test_an_environment_that_was_changed_is_made_anew_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is run as this user: it is as it was made, in a folder that nobody else may write to."""
    monkeypatch.setenv("ARRAYS_CACHE", os.fspath(tmp_path))
    calls: list[tuple[object, ...]] = []

    def stand_in(*arguments: object) -> None:
        calls.append(arguments)
        program = Path(str(arguments[-1])) / "bin" / "python"
        if arguments[0] == "venv":
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text("as made")

    monkeypatch.setattr(environments, "_uv", stand_in)
    environment = Environment("zarr 3.1.0", ("zarr-s3fs",), ("zarr==3.1.0",), "2026-01-01", "3.12")
    python = make_environment(environment)
    assert make_environment(environment) == python and len(calls) == 2
    python.write_text("changed")
    assert make_environment(environment).read_text() == "as made" and len(calls) == 4
    environment.folder.chmod(0o777)
    with refused("cache", f"^{environment.folder}: may be written to by others"):
        make_environment(environment)


def test_a_checksum_is_of_the_values_and_not_of_their_axes() -> None:
    """Clients keep or drop an axis of one element, and have their own byte order."""
    values = np.arange(6, dtype="<f4").reshape(1, 2, 3)
    assert clients.digest(values) == clients.digest(values[0].astype(">f4"))
    assert clients.digest(values) != clients.digest(values + 1)


def test_gcsfs_is_asked_over_an_emulator(server: Server) -> None:
    """It reads a chunk right by the API of Google, in one request since 2026.8.1, and the rest asks by S3."""
    near, network = make_location(server, "ledger"), get_profile("loopback")
    stored = written.write_layouts(near, (16, 64, 64), (8, 32, 32), seed=0)
    asked = [(HERE, "zarr-gcsfs", "zarr-v2", "one chunk")]
    with (
        gcs.open_service(["zarr-gcsfs"], near, stored.prefix, network, seed=0) as services,
        Session({HERE: Environment(HERE, ())}) as session,
    ):
        testbed = Testbed(near, near)
        read = methodcaller("go")
        [contender] = contend_all(asked, session, testbed, stored, read=read, services=services)
        contender.steps.prepare()
        answer = contender.read(contender.steps.open())
        counts = contender.steps.collect()
        checked = contender.steps.check(answer), counts["n_requests"], counts["absent"]
        assert checked == ("crc32 equal", 1, "")
    with gcs.open_service(["zarr-s3fs"], near, stored.prefix, network, seed=0) as services:
        assert services == {}
