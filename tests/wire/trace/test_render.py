"""What a reader sees: an account that adds up, and what helps, in the words of the library of each line."""

from __future__ import annotations

import re

import pytest

from studies.own_program.example_trace import read_example
from tests.wire.trace import planted
from wire.trace import findings, render
from wire.trace.phases import Timeline
from wire.trace.report import Report
from wire.trace.whatif import Trace


def make_program() -> planted.Program:
    """Make the program of three lines that read through s3fs, with a sleep: each read has a HEAD before it."""
    program = planted.Program(agent="aiobotocore/3.10")
    program.at(19, 'return ds["t"].load().mean()', "xarray.core.dataarray.DataArray.load", "read")
    for first in range(0, 80, 8):
        keys = [f"/b/a.zarr/t/c/{first + i}/0" for i in range(8)]
        program.together(keys, method="HEAD", n=8)
        program.together(keys, 19_000, n=8)
    program.pause(20.0)
    program.at(13, "data = fs.cat_file(path)", "fsspec.asyn.sync_wrapper.<locals>.wrapper")
    for i in range(40):
        program.wait(f"/b/plain/{i}", method="HEAD")
        program.wait(f"/b/plain/{i}", 20_000)
    program.at(27, 'ds["t"][k].load()', "xarray.core.dataarray.DataArray.load")
    for i in range(10):
        keys = [f"/b/a.zarr/t/c/{i}/{j}" for j in range(4)]
        program.together(keys, method="HEAD", n=4)
        program.together(keys, 19_000, n=4)
    program.pause(1.5, busy=True)
    return program


def render_program() -> tuple[Report, list[str]]:
    """Report the program, and what is printed of it."""
    report = findings.report(make_program().end())
    return report, [*render.render(report, ["python", "my.py"])]


def test_the_account_adds_up_to_the_wall_time() -> None:
    """Start-up, the wait of each line, CPU and pauses are all that the program took, as printed."""
    report, lines = render_program()
    assert sum(report.account_s.values()) == pytest.approx(report.wall_s)
    waits_s = sum(phase.waited_s for phase in report.phases)
    assert report.account_s["waiting"] == pytest.approx(waits_s, rel=1e-6)
    assert report.account_s["idle"] == pytest.approx(20.0, abs=0.3)
    (head,) = (number for number, line in enumerate(lines) if line.endswith(" s went to:"))
    rows = [
        match for line in lines[head + 1 :] if (match := re.match(r" +([\d.]+) s  (\w.*)", line))
    ]
    assert sum(float(row[1]) for row in rows) == pytest.approx(
        float(lines[head].split()[0]), abs=0.01
    )
    assert len([row for row in rows if row[2].startswith("waiting: my.py:")]) == 3


def test_gains_are_of_their_line_and_in_order() -> None:
    """Whatever the program slept, what a change saves is said of its line, and the most comes first."""
    report, lines = render_program()
    saved_s = [
        float(match[1])
        for line in lines
        if (match := re.match(r"Save (?:up to )?([\d.]+) s", line))
    ]
    assert len(saved_s) >= 2
    assert saved_s == sorted(saved_s, reverse=True)
    for line in lines:
        if match := re.search(
            r"predicted ([\d.]+)x faster for this line: ([\d.]+) s instead of ([\d.]+) s", line
        ):
            assert float(match[3]) / float(match[2]) == pytest.approx(float(match[1]), rel=0.1)
    assert not any(f"instead of {report.wall_s:.1f}" in line for line in lines)
    assert len(lines) <= 26


def test_one_advice_for_several_lines_is_said_once() -> None:
    """Each of three lines asks for sizes: one cause, one setting to try, and the lines of each remedy."""
    _, lines = render_program()
    text = "\n".join(lines)
    assert text.count("an extra request (HEAD) before each object") == 1
    assert text.count("--try max_concurrency=1") == 1
    assert text.count("-> fs = s3fs.S3FileSystem(max_concurrency=1)") == 1
    assert "my.py:13  -> fs = s3fs.S3FileSystem(max_concurrency=1)" in text
    assert re.search(r"my.py:(19, 27|27, 19)  -> ds = xr.open_zarr\(url, storage_options=", text)
    assert "my.py:13  -> parts = fs.cat(paths)" in text


READS = [  # client, function that the line calls, what objects in turn are told
    ("aiobotocore/3.10", "fsspec.asyn.sync_wrapper.<locals>.wrapper", "fs.cat(paths)"),
    ("aiobotocore/3.10", "zarr.core.array.Array.__getitem__", "values = array[:]"),
    ("aiobotocore/3.10", "xarray.core.dataarray.DataArray.load", "ds = ds.load()"),
    ("object_store/0.12", "obstore._get.get", "obstore.get_async("),
    ("object_store/0.12", "zarr.core.array.Array.__getitem__", "values = array[:]"),
    ("Boto3/1.43", "botocore.client.ClientCreator._create_api_method.<locals>._api_call", "ThreadPoolExecutor"),
    ("python-requests/2.33", "requests.sessions.Session.get", "pool.map(session.get"),
    ("Python/3.12 aiohttp/3.13", "fsspec.asyn.sync_wrapper.<locals>.wrapper", "fs.cat(paths)"),
    ("aiobotocore/3.10", "aiobotocore.client.AioBaseClient._make_api_call", "concurrent requests"),
]  # fmt: skip


@pytest.mark.parametrize(("agent", "library_call", "remedy"), READS)
def test_a_remedy_is_in_the_words_of_the_library_that_the_line_calls(
    agent: str, library_call: str, remedy: str
) -> None:
    """Files with numbers for names look like chunks, and are none where a file system reads them."""
    program = planted.Program(agent=agent)
    program.at(3, "read()", library_call)
    for i in range(30):
        program.wait(f"/b/plain/{i}", 20_000)
    (finding,) = findings.find(program.end())
    assert finding.name == "in-turn"
    assert remedy in finding.line


@pytest.mark.parametrize("library_call", ["", "zarr.core.array.Array.__getitem__"])
@pytest.mark.parametrize("cause", ["in_turn_chunks", "looks", "samples", "tree", "writes"])
def test_a_program_of_zarr_alone_is_told_nothing_of_xarray(cause: str, library_call: str) -> None:
    """Nor is one whose lines are not known."""
    program = planted.Program()
    program.at(3, "read()", library_call)
    getattr(planted, cause)(program)
    for finding in findings.find(program.end(has_lines=bool(library_call))):
        assert not re.search(r"\b(xr|ds)\b", finding.line), finding.name


def test_calls_of_one_line_are_one_phase() -> None:
    """A line that opens an array and reads it, now certain and now not, is told of what most requests are for."""
    program = planted.Program(agent="aiobotocore/3.10")
    for i in range(20):
        program.at(15, 'group["t"][i]', "zarr.core.group.Group.__getitem__")
        if i % 4 == 0:
            program.wait("/b/a/t/zarr.json", 800)
        program.at(15, 'group["t"][i]', "zarr.core.array.Array.__getitem__")
        program.wait(f"/b/a/t/c/{i}")
    (phase,) = Timeline(Trace(program.end())).phases
    assert phase.trace.code_line is not None
    assert phase.trace.code_line.library_call == "zarr.core.array.Array.__getitem__"


def test_the_example_of_the_book_is_told_of_what_it_uses() -> None:
    """It opens with Zarr and s3fs, and has never heard of xarray."""
    run, report, words = read_example()
    assert {site.library_call.partition(".")[0] for site in run.sites if site} == {"s3fs", "zarr"}
    lines = [*render.render(report, words)]
    assert len(lines) <= 27
    assert not re.search(r"\b(xr|ds)\.", "\n".join(lines))
