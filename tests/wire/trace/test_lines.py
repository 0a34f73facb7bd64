"""Each request is on the line of the program that waits for it, and an uncertain line is said to be so."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pytest
import zarr

from tests.stores import allow_everybody, client_environment, make_location
from tests.wire.trace.line_programs import PROGRAMS, TAGS, LineProgram
from wire.bed.locations import Location
from wire.bed.networks import FirstByte, Profile
from wire.bed.testbed import Server
from wire.trace import launch
from wire.trace.lines import locate, read_samples
from wire.trace.rows import CallSite, TracedRequest

QUICK = (
    "urllib",
    "requests-threads",
    "library-in-a-pool",
    "aiohttp",
    "forked-pool",
    "subprocess-curl",
)

RECORDS = """\
begin 7 1 "/home/user"
site 1 {"file":"/home/user/a.py","line":3,"function":"read","call":"requests.api.get","is_standard":0}
site 2 {"file":"/home/user/a.py","line":9,"function":"<module>","call":"concurrent.futures._base.wait","is_standard":1}
site 3 {"file":"/home/user/a.py","line":5,"function":"other","call":"zarr.core.sync.sync","is_standard":0}
at 100.0000 11 2 100.0000
at 100.0000 12 1 100.0000
at 100.5000 12 3 100.5000
at 101.0000 12 - 101.0000
at 101.0000 11 1 101.0000
at 101.0000 13 3 101.0000
asks 102.0000 1 GET "/b/key?secret=1"
at 103.00"""


def make_row(
    start_s: float, end_s: float, key: str = "/b/a", pid: int = 7, first_byte_s: float = 0.0
) -> TracedRequest:
    return TracedRequest(start_s, first_byte_s or end_s, end_s, method="GET", key=key, pid=pid)


def test_requests_are_joined_by_process_and_time(tmp_path: Path) -> None:
    """A thread that waits for others is not the one that asks; two that ask make a line uncertain."""
    (tmp_path / "7").write_text(RECORDS)
    samples = read_samples(tmp_path)
    rows = [
        make_row(100.1, 100.2),
        make_row(100.6, 100.7),
        make_row(101.1, 101.2),
        make_row(102.01, 102.1, "/b/key"),
        make_row(100.1, 100.2, pid=8),
        make_row(90.0, 90.1),
    ]
    places = [(site.line, site.is_certain) if site else None for site in locate(rows, samples)]
    assert places[0] == (3, True)
    assert places[1] == (5, True)
    assert places[2] in [(3, False), (5, False)]
    assert places[3] == (3, True)
    assert places[4] is places[5] is None


TWO_THREADS = """\
begin 7 1 "/home/user"
site 1 {"file":"/home/user/a.py","line":3,"function":"read","call":"obstore.get","is_standard":0}
site 2 {"file":"/home/user/a.py","line":5,"function":"other","call":"obstore.get","is_standard":0}
at 100.0000 11 1 99.9900
at 100.0300 12 2 100.0200
at 100.2000 12 - 100.1900
at 100.3000 11 2 100.2800
"""


@pytest.mark.parametrize(
    ("start_s", "end_s", "line"),
    [
        pytest.param(100.0, 100.04, "about a.py:3", id="another thread arrives meanwhile"),
        pytest.param(100.1, 100.18, "about", id="two threads throughout"),
        pytest.param(100.185, 100.23, "about a.py:3", id="another thread leaves meanwhile"),
        pytest.param(100.21, 100.27, "a.py:3", id="one thread throughout"),
        pytest.param(100.27, 100.31, "about a.py:3", id="its line changes meanwhile"),
        pytest.param(100.285, 100.31, "a.py:5", id="the next line is seen late"),
        pytest.param(100.31, 100.33, "a.py:5", id="one thread at the next line"),
    ],
)
def test_a_line_is_certain_where_no_other_can_be_meant(
    start_s: float, end_s: float, line: str, tmp_path: Path
) -> None:
    """A second thread in a library, seen at one sample only, may be the one that asked."""
    (tmp_path / "7").write_text(TWO_THREADS)
    (site,) = locate([make_row(start_s, end_s)], read_samples(tmp_path))
    assert site is not None
    assert site.label.replace("/home/user/", "").startswith(line)


def test_a_request_is_on_the_line_that_waits_for_its_answer(tmp_path: Path) -> None:
    """What reads the body afterwards, longer perhaps, is another line."""
    (tmp_path / "7").write_text(TWO_THREADS)
    row = make_row(100.24, 100.6, first_byte_s=100.275)
    (site,) = locate([row], read_samples(tmp_path))
    assert site is not None and site.label == "/home/user/a.py:3"


NEAR = Profile("near", FirstByte(0.03, 0.04), aggregate_mb_per_s=400)


@pytest.fixture(scope="module")
def store(server: Server) -> Location:
    """Store what the programs read."""
    location = make_location(server, "arrays")
    fill(location)
    return location


def fill(location: Location) -> None:
    """Write the objects of the programs, which everybody may read."""
    client = location.botocore()
    for tag in TAGS:
        for n in range(8):
            client.put_object(Bucket=location.bucket, Key=f"lines/{tag}{n}", Body=b"x" * 2000)
    cube = zarr.open_group(
        zarr.storage.ObjectStore((location / "lines/cube").obstore()), mode="w", zarr_format=3
    )
    array = cube.create_array(
        "a", shape=(4, 8, 8), chunks=(1, 4, 4), dtype="f8", dimension_names=("t", "y", "x")
    )
    array[:] = np.random.default_rng(0).random((4, 8, 8))
    file = io.BytesIO()
    with h5py.File(file, "w") as content:
        for name in "ab":
            content.create_dataset(
                name, data=np.random.default_rng(0).random((20, 5000)), chunks=(1, 5000)
            )
    client.put_object(Bucket=location.bucket, Key="lines/cube.nc", Body=file.getvalue())
    allow_everybody(location)


class Verdict(NamedTuple):
    """How the requests of a program were put on lines."""

    n_requests: int
    n_right: int  # on the right line, *about* or not
    n_about: int  # on a line that is said to be uncertain, or on none
    wrong: list[tuple[str, str, int | None, CallSite]]  # on another line without *about*


@pytest.fixture(scope="module")
def judge(store: Location, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Verdict]:
    """Run each program once, and compare the lines of its requests with those that asked."""

    @cache
    def judge_program(program: LineProgram) -> Verdict:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path_factory.mktemp(program.name))
            return _judge(program, store)

    return judge_program


def _judge(program: LineProgram, store: Location) -> Verdict:
    Path("program.py").write_text(program.text)
    marks_path = Path("marks.json").absolute()
    environment = {**client_environment(store), "MARKS": str(marks_path)}
    words = [sys.executable, "-W", "ignore", "program.py"]
    run = launch.run(words, environment=environment, profile=NEAR, is_silent=True)
    assert run.exit_code == 0 and run.rows
    expected_lines, marks = program.find_lines(), json.loads(marks_path.read_text())
    n_right, n_about, wrong = 0, 0, []
    for row, site in zip(run.rows, run.sites, strict=True):
        tag = row.key.rpartition("/")[2].rstrip("0123456789")
        expected = expected_lines.get(tag)
        if expected is None and marks:
            expected = [line for moment, line in marks if moment <= row.start_s][-1]
        right_lines = (expected, expected_lines.get("dan"))
        is_right = site is not None and (expected is None or site.line in right_lines)
        n_right += is_right
        n_about += site is None or not site.is_certain
        if site is not None and site.is_certain and not is_right:
            wrong.append((row.method, row.key, expected, site))
    return Verdict(len(run.rows), n_right, n_about, wrong)


def needs_curl(program: LineProgram) -> bool:
    """Tell whether a program calls what is not installed."""
    return "curl" in program.body and shutil.which("curl") is None


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            program, id=program.name, marks=[pytest.mark.slow] * (program.name not in QUICK)
        )
        for program in PROGRAMS
    ],
)
def test_requests_are_on_their_lines(program: LineProgram, judge: Callable[..., Verdict]) -> None:
    """No request is on another line without *about*; only where two lines may ask are many uncertain."""
    if needs_curl(program):
        pytest.skip("curl is not on PATH: apt install curl")
    verdict = judge(program)
    assert not verdict.wrong
    if program.is_ambiguous:
        assert verdict.n_about >= 0.5 * verdict.n_requests
    else:
        n_allowed = 1 if program.is_sampled else 0
        assert verdict.n_requests - verdict.n_right <= n_allowed, verdict


@pytest.mark.slow
def test_nearly_all_requests_are_on_their_lines(judge: Callable[..., Verdict]) -> None:
    """Of all programs' requests 95 % are on the right line, those that are uncertain included."""
    programs = [program for program in PROGRAMS if not needs_curl(program)]
    verdicts = [judge(program) for program in programs]
    n_requests = sum(verdict.n_requests for verdict in verdicts)
    n_right = sum(verdict.n_right for verdict in verdicts)
    n_about = sum(verdict.n_about for verdict in verdicts)
    print(f"{n_right} of {n_requests} requests on their lines; {n_about} of all uncertain")
    for program, verdict in zip(programs, verdicts, strict=True):
        print(f"{program.name:28} {verdict[:3]}", *verdict.wrong)
    assert not [entry for verdict in verdicts for entry in verdict.wrong]
    assert n_right >= 0.95 * n_requests
