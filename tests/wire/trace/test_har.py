"""HTTP archives: our own have the run, those of browsers and proxies are analysed as it is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.refusals import refused
from tests.wire.trace.test_findings import chain, run_of
from tests.wire.trace.test_report import look_before_each
from wire.trace import cli, findings, har, stored
from wire.trace.rows import CallSite, Run, TracedRequest

LINE = CallSite("analysis.py", 14, "<module>", "ds = xr.open_zarr(url)", "xarray.open_zarr", True)


def write_archive(run: Run, words: list[str]) -> str:
    """Write the archive of a run."""
    return har.write_har(run, words, stored.describe_run(run))


def test_each_entry_is_har() -> None:
    """Each has what HAR 1.2 asks for, and no header; its phases add up to its time."""
    row = chain(1)[0]
    row.is_first, row.handshake_s, row.scheme, row.host = True, 0.02, "https", "h:1"
    row.start_s, row.end_s = 0.1, 0.3
    entry = json.loads(write_archive(run_of([row]), ["x"]))["log"]["entries"][0]
    assert entry["request"]["url"] == "https://h:1/b/f0"
    assert entry["request"]["headers"] == entry["response"]["headers"] == []
    assert {"status", "statusText", "httpVersion", "cookies", "content", "redirectURL"} <= {
        *entry["response"]
    }
    assert entry["time"] == pytest.approx(220.0)
    assert entry["startedDateTime"] == "1970-01-01T00:00:00.080+00:00"


def test_our_own_archive_gives_the_same_run(tmp_path: Path) -> None:
    """Ranges, connections, lines and what was not seen come back, so that all findings are the same."""
    rows = look_before_each(10)
    for number, row in enumerate(rows):
        row.range_start, row.range_nbytes = (7 * number, 1000) if number % 2 else (None, None)
        row.is_first, row.handshake_s = not number, 0.01 * (not number)
    run = run_of(rows, wall_s=3.0, processor_s=[(0.0, 0.0), (3.0, 0.5)], remarks=["gone"])
    run = replace(run, sites=[LINE if number % 3 else None for number in range(len(rows))])
    path = tmp_path / "any name"
    path.write_text(write_archive(run, ["python", "x.py"]))
    again, words = stored.read_har(path)
    assert words == ["python", "x.py"]
    assert (again.rows, again.sites) == (run.rows, run.sites)
    report = findings.report(again)
    assert report == findings.report(run)
    assert report.findings
    stored.write_trace(tmp_path / "t", run, ["python", "x.py"])
    assert stored.read_trace(tmp_path / "t")[0].sites == run.sites


def browse(n: int, **more: Any) -> dict[str, Any]:
    """Make the archive of a browser that reads chunks one after the other, with all that one writes down."""
    entries = []
    for number in range(n):
        begin_ms = 100 * number
        entries.append({
            "startedDateTime": f"2026-01-01T10:{begin_ms // 60000:02}:{begin_ms % 60000 / 1000:06.3f}+01:00",
            "time": 100.0,
            "connection": "443",
            "_transferSize": 5200,
            "_initiator": {"type": "script", "stack": {
                "callFrames": [{"functionName": "get", "url": "https://cdn.example/zarrita.js?v=1", "lineNumber": 7}],
                "parent": {"callFrames": [{"functionName": "draw", "url": "https://maps.example/app.js?token=hunter-2-canary", "lineNumber": 41}]},
            }},
            "request": {
                "method": "GET", "url": f"https://data.example/era5.zarr/t2m/c/0/{number}?X-Amz-Signature=hunter-2-canary",
                "headers": [
                    {"name": "Authorization", "value": "Bearer hunter-2-canary"}, {"name": "Range", "value": "bytes=0-4999"},
                    {"name": "User-Agent", "value": "Mozilla/5.0 (X11)"}, {"name": "Cookie", "value": "sid=hunter-2-canary"},
                ],
                "cookies": [{"name": "sid", "value": "hunter-2-canary"}], "bodySize": 0,
                "postData": {"text": "hunter-2-canary"},
            },
            "response": {
                "status": 206, "headers": [{"name": "Content-Range", "value": "bytes 0-4999/90000"}],
                "content": {"size": 5000, "text": "hunter-2-canary"}, "bodySize": -1, "headersSize": 200,
            },
            "timings": {"blocked": 1.0, "dns": -1, "connect": 30.0 if not number else -1, "ssl": 20.0 if not number else -1, "send": 0.5, "wait": 60.0, "receive": 8.0},
        })  # fmt: skip
    pages = [{"title": "https://maps.example/map?key=hunter-2-canary"}]
    return {"log": {"version": "1.2", "entries": entries, "pages": pages, **more}}


def test_an_archive_of_a_browser_is_analysed(tmp_path: Path) -> None:
    """Times, ranges, bytes and the line of the page's own script are found, and the cause; no secret is."""
    path = tmp_path / "page.har"
    archive = browse(20)
    archive["log"]["entries"].append(
        {**archive["log"]["entries"][0], "_fromCache": "memory", "timings": {}}
    )
    path.write_text(json.dumps(archive))
    run, words = stored.read_har(path)
    row = run.rows[0]
    assert words == []
    assert len(run.rows) == 20
    assert row.handshake_s == pytest.approx(0.03)
    assert row.first_byte_s - row.start_s == pytest.approx(0.0605, abs=1e-5)
    assert (row.range_start, row.range_nbytes, row.nbytes) == (0, 5000, 5000)
    assert (row.key, row.host, row.is_first) == ("/era5.zarr/t2m/c/0/0", "data.example", True)
    assert not run.rows[1].is_first
    site = run.sites[0]
    assert site == CallSite("app.js", 42, "draw", "", "get", True)
    assert "hunter-2" not in repr(run)
    report = findings.report(run)
    assert "in-turn" in [finding.name for finding in report.findings]
    assert "1 entries that came from a cache" in " ".join(report.not_seen)
    for more in ([], ["--json"]):
        shown = CliRunner().invoke(cli.trace, ["show", str(path), *more])
        assert shown.exit_code == 0, shown.output
        assert "20" in shown.stdout and "hunter-2" not in shown.output


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"log": {"entries": 3}}',
        '{"log": {"entries": []}}',
        '{"log": {"entries": [null]}}',
        '{"log": {"entries": [{"request": {"url": "https://h/x"}}]}}',
        json.dumps(browse(1)).replace('"wait": 60.0', '"wait": "long"'),
        json.dumps(browse(1)).replace('"wait": 60.0', '"wait": 1e300'),
        json.dumps(browse(1)).replace("2026-01-01", "2026-13-01"),
        json.dumps(browse(1)).replace("2026-01-01", "1026-01-01"),
        json.dumps(browse(1)).replace("https://data", "gopher://data"),
        json.dumps(browse(1)).replace("https://data.example", "https://[data"),
        '{"log": {"entries": ' + "[" * 5000 + "]" * 5000 + "}}",
        '{"log": {"entries": [{}], "_run": {}}}',
        write_archive(run_of(chain(2)), ["x"]).replace('"status": 200', '"status": "x"'),
        write_archive(run_of(chain(2)), ["x"]).replace('"start_s"', '"begun_s"'),
        write_archive(run_of(chain(2)), ["x"]).replace('"bodySize": 1000', '"bodySize": -5'),
        write_archive(run_of(chain(2)), ["x"]).replace('"start_s": 0.0', '"start_s": 0.0, "site": 4'),
        write_archive(run_of(chain(2)), ["x"]).replace('"wall_s": 0.2', '"wall_s": -3'),
    ],
)  # fmt: skip
def test_a_broken_archive_is_refused_in_a_line(text: str, tmp_path: Path) -> None:
    """What a stranger made, or a download that broke off."""
    path = tmp_path / "x.har"
    path.write_text(text)
    with refused("HAR .*", allowed="."):
        stored.read_har(path)


def test_a_large_archive_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes and entries have a bound."""
    path = tmp_path / "x.har"
    path.write_text(json.dumps(browse(9)))
    for name in ("MAX_NBYTES", "MAX_READ"):
        with monkeypatch.context() as patch, refused("HAR .*", allowed="^at most"):
            patch.setattr(har, name, 8)
            stored.read_har(path)


def test_the_archive_of_many_requests_has_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser opens no more, and the archive says how many there are."""
    monkeypatch.setattr(har, "MAX_ARCHIVED", 5)
    log = json.loads(write_archive(run_of(chain(20)), ["x"]))["log"]
    assert (len(log["entries"]), log["comment"]) == (5, "the first 5 of 20 requests")


def test_a_secret_in_a_line_of_code_is_blacked_out(tmp_path: Path) -> None:
    """The source of a line may hold one."""
    line = replace(LINE, source='fs = S3FileSystem(secret="wJalrXUtnFEMIbPxRfiCY")')
    run = replace(run_of([TracedRequest(0.0, 0.1, 0.2, key="/b/f")]), sites=[line])
    clean, words = stored.redact_run(run, ["x"])
    stored.write_trace(tmp_path, clean, words)
    for path in tmp_path.iterdir():
        assert "wJalrX" not in path.read_text(), path
    assert "S3FileSystem" in (tmp_path / "trace.json").read_text()


ZARRITA = Path(__file__).with_name("zarrita.har")
"""A page in Chromium that reads 24 chunks of an array with zarrita, one selection after the other."""


def test_an_array_in_a_browser_has_its_cause() -> None:
    """What zarrita asked for is told apart, and that it asked in turn is the one cause."""
    run, command = stored.read_har(ZARRITA)
    report = findings.report(run)
    assert (command, run.exit_code) == ([], None)
    assert report.kinds == {"chunk": 24, "object": 2, "metadata": 1}
    (finding,) = report.findings
    assert finding.name == "in-turn"
    paths = [run.rows[place].key for place in finding.rows]
    assert {path for path in paths if ".zarr/c/" in path} == {
        f"/temperature.zarr/c/{day}/0/0" for day in range(24)
    }
    assert finding.gain > 2
