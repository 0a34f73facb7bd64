"""Each request is on the line of the program that waits for it, and an uncertain line is said to be so."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from tests.stores import client_environment, make_location
from tests.wire.trace.line_programs import PROGRAMS, TAGS, LineProgram
from wire.bed.locations import Location
from wire.bed.networks import FirstByte, Profile
from wire.bed.testbed import Server
from wire.trace import launch
from wire.trace.lines import locate, read_samples
from wire.trace.rows import TracedRequest

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
at 100.0000 11 2
at 100.0000 12 1
at 100.5000 12 3
at 101.0000 12 -
at 101.0000 11 1
at 101.0000 13 3
asks 102.0000 1 GET "/b/key?secret=1"
at 103.00"""


def make_row(start_s: float, end_s: float, key: str = "/b/a", pid: int = 7) -> TracedRequest:
    return TracedRequest(start_s, end_s, end_s, method="GET", key=key, pid=pid)


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
    allowed = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": "s3:GetObject",
        "Resource": f"arn:aws:s3:::{location.bucket}/lines/*",
    }
    policy = {"Version": "2012-10-17", "Statement": [allowed]}
    client.put_bucket_policy(Bucket=location.bucket, Policy=json.dumps(policy))


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            program, id=program.name, marks=[pytest.mark.slow] * (program.name not in QUICK)
        )
        for program in PROGRAMS
    ],
)
def test_requests_are_on_their_lines(
    program: LineProgram, store: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request is on another line without *about*, and of each program's at most one or 5 % with it."""
    if "curl" in program.body and shutil.which("curl") is None:
        pytest.skip("curl is not on PATH: apt install curl")
    script = tmp_path / "program.py"
    script.write_text(program.text)
    monkeypatch.chdir(tmp_path)
    marks_path = tmp_path / "marks.json"
    environment = {**client_environment(store), "MARKS": str(marks_path)}
    words = [sys.executable, "-W", "ignore", "program.py"]
    run = launch.run(words, environment=environment, profile=NEAR, is_silent=True)
    assert run.exit_code == 0 and run.rows
    expected_lines, marks = program.find_lines(), json.loads(marks_path.read_text())
    n_right, wrong = 0, []
    for row, site in zip(run.rows, run.sites, strict=True):
        tag = row.key.rpartition("/")[2].rstrip("0123456789")
        expected = expected_lines.get(tag)
        if expected is None and marks:
            expected = [line for moment, line in marks if moment <= row.start_s][-1]
        if site and (expected is None or site.line in (expected, expected_lines.get("dan"))):
            n_right += 1
        elif site is None or site.is_certain:
            wrong.append((row.method, row.key, expected, site))
    assert not [entry for entry in wrong if entry[3]], wrong
    if program.is_ambiguous:
        assert not any(site.is_certain for site in run.sites if site)
    else:
        assert len(run.rows) - n_right <= max(1, 0.05 * len(run.rows)), wrong
