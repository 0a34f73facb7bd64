"""The ledger: counts of a trace, its environments, what changed between versions, and the contract."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from helpers.errors import UserError
from helpers.models.requests import Request
from helpers.models.transfer import Network, replay
from helpers.paths import ROOT
from studies.request_ledger import client_process, findings
from studies.request_ledger.cli import ledger
from studies.request_ledger.counts import count
from studies.request_ledger.environments import Environment, make_environment, read_environments
from studies.request_ledger.workload import LAYOUTS


def request(start_s: float, end_s: float, **more: object) -> Request:
    """Make a request; what a test does not name is that of a plain GET."""
    given = {
        "first_byte_s": end_s, "connection": 1, "method": "GET", "key": "/b/o", "range_start": None,
        "range_nbytes": None, "status": 200, "nbytes": 10, "tag": "",
    }  # fmt: skip
    return Request(start_s=start_s, end_s=end_s, **{**given, **more})  # type: ignore[arg-type]


def test_requests_are_counted_by_method_and_by_their_waits() -> None:
    """Two at once, then one that waited, a listing and a failed look-up."""
    found = count(
        [
            request(0, 1),
            request(0, 2, connection=2, method="HEAD", nbytes=0),
            request(2, 3),
            request(3, 4, key="/b"),
            request(4, 5, status=404, method="HEAD"),
        ]
    )
    assert (found.n_get, found.n_head, found.n_other, found.n_failed) == (2, 2, 1, 1)
    assert (found.n_connections, found.n_in_flight, found.n_waits) == (2, 2, 4)
    assert found.wire_nbytes == 40


def test_overlapping_ranges_are_bytes_asked_for_twice() -> None:
    """The second range begins inside the first, the third after it."""
    ranges = [(0, 100), (50, 100), (150, 10)]
    requests = [request(i, i + 1, range_start=a, range_nbytes=n) for i, (a, n) in enumerate(ranges)]
    assert count(requests).n_joined == 1


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
        ({"n_requests": 64}, "n_requests"),  # s3fs of 2026 asks twice for each chunk
        ({"n_waits": 32, "least_waits": 32, "most_waits": 32}, "n_waits"),  # zarr of 2022, in turn
        ({"wire_nbytes": 52.9e6}, "wire_nbytes"),  # a netCDF file of 8.7 MB in s3fs of 2023
    ],
)
def test_regressions_that_happened_are_found(after: dict[str, object], count: str) -> None:
    """Each as more than before, and the way back as less."""
    found = findings.compare(lines(), lines(environment="new", **after))
    assert list(found["count"]) == [count]
    assert (found["after"] > found["before"]).all()
    back = findings.compare(lines(**after), lines(environment="new"))
    assert (back["after"] < back["before"]).all()


def test_what_differs_from_moment_to_moment_is_no_change() -> None:
    """A chain that is one longer, and metadata that are some bytes longer."""
    after = lines(environment="new", n_waits=6, least_waits=6, most_waits=7, wire_nbytes=14e6 + 500)
    assert findings.compare(lines(), after).empty


@pytest.mark.skipif(not shutil.which("node"), reason="no node to run the script of the page")
def test_the_page_replays_as_python_does() -> None:
    """Over random requests and networks, to the last digits."""
    rng, cases = random.Random(1), []
    for _ in range(60):
        steps: list[float] = []
        for i in range(rng.randint(1, 40)):
            steps += [rng.randint(-1 - i, i - 1), rng.choice([0, 0.004]), rng.randint(0, 3_000_000)]
        p50 = rng.uniform(1, 200)
        rates = {"stream": rng.uniform(5, 500), "link": rng.uniform(5, 5000)}
        cases.append((steps, {"p50": p50, "p95": p50 * rng.uniform(1.01, 4), **rates}))
    script = ROOT / "_static" / "request-ledger" / "request-ledger.js"
    program = (
        f"const {{replay}} = require({json.dumps(str(script))});"
        "const cases = JSON.parse(require('fs').readFileSync(0));"
        "console.log(JSON.stringify(cases.map(([steps, network]) => replay(steps, network))))"
    )
    done = subprocess.run(
        ["node", "-e", program], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    for (steps, given), shown in zip(cases, json.loads(done.stdout), strict=True):
        rates = {f"{name}_nbytes_per_s": 1e6 * given[key] for name, key in _RATES.items()}
        network = Network(given["p50"] / 1e3, given["p95"] / 1e3, **rates)
        expected = replay(findings.read_steps(steps), network, rng=EvenDraws())
        assert shown == pytest.approx(expected.seconds, rel=1e-12)


_RATES = {"stream": "stream", "aggregate": "link"}


_GOLDEN = 0.6180339887498949


class EvenDraws(random.Random):
    """Draws that fill the distribution evenly, in a fixed order that a script can repeat."""

    def __init__(self) -> None:
        super().__init__(0)
        self.n = 0

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        """Draw the next quantile: steps of the golden ratio never come twice near one another."""
        self.n += 1
        return mu + sigma * NormalDist().inv_cdf((0.5 + (self.n - 1) * _GOLDEN) % 1)


def test_a_queue_goes_on_with_whatever_ends_first() -> None:
    """Two at once of three: seen on a slow network, and foretold for one that is ten times as quick."""
    slow, quick = Network(0.2, 0.2), Network(0.02, 0.02)
    steps = [-1, 0.0, 10, -1, 0.0, 10, -2, 0.001, 10]
    line = dict.fromkeys(findings.KEY, "a") | {"reason": "", "n_requests": 3, "steps": steps}
    seen = [{**line, "network": name, "span_s": s} for name, s in (("slow", 0.4), ("quick", 0.041))]
    found = findings.replay_all(pd.DataFrame(seen), {"slow": slow, "quick": quick})
    assert found["predicted_s"].tolist() == pytest.approx([0.041, 0.401])
    assert found["error"].tolist() == pytest.approx([0, 0.25])


def test_gaps_that_are_joined_cost_their_bytes() -> None:
    """On one connection each request costs a first byte; in flight at once joining gains nothing."""
    network = Network(0.1, 0.1, stream_nbytes_per_s=1e9)
    in_turn = [findings.predict_gap(gap, network, 1) for gap in (0, 2**21)]
    at_once = [findings.predict_gap(gap, network, 48) for gap in (0, 2**21)]
    assert in_turn[0] == pytest.approx(48 * (0.1 + 65536 / 1e9)) and in_turn[1] < 0.2
    assert at_once[0] < at_once[1]


def test_environments_are_listed_in_one_file(tmp_path: Path) -> None:
    """Each has clients that the ledger knows; a file that is no such list is refused in a line."""
    found = read_environments()
    assert len({one.name for one in found}) == len(found) > 40
    assert {client for one in found for client in one.clients} <= {*LAYOUTS}
    wrong = tmp_path / "environments.yaml"
    wrong.write_text("stacks: 3\n")
    with pytest.raises(UserError, match=r"^environments\.yaml: .*"):
        read_environments(wrong)


@pytest.mark.slow
def test_a_version_that_does_not_exist_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line that names it, and the rest goes on."""
    monkeypatch.setenv("ARRAYS_CACHE", os.fspath(tmp_path))
    absent = Environment("zarr 0.0.99", ("zarr-s3fs",), ("zarr==0.0.99",), "2026-01-01", "3.12")
    with pytest.raises(UserError, match=r"^zarr 0\.0\.99: cannot be installed: [^\n]*$"):
        make_environment(absent)


def test_an_unknown_client_is_refused() -> None:
    """Before anything is run."""
    done = CliRunner().invoke(ledger, ["check", "--client", "netscape"])
    assert isinstance(done.exception, UserError) and "'netscape'" in str(done.exception)


def test_a_checksum_is_of_the_values_and_not_of_their_axes() -> None:
    """Clients keep or drop an axis of one element, and have their own byte order."""
    values = np.arange(6, dtype="<f4").reshape(1, 2, 3)
    assert client_process.digest(values) == client_process.digest(values[0].astype(">f4"))
    assert client_process.digest(values) != client_process.digest(values + 1)
