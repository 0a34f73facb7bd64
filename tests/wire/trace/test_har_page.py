"""The analysis of a HAR in a browser finds what `wire trace` finds, and refuses what it refuses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.browser import open_browser
from tests.wire.trace.test_findings import chain, run_of
from tests.wire.trace.test_har import ZARRITA, browse, write_archive
from tests.wire.trace.test_report import look_before_each
from wire.trace import analysis, findings, stored
from wire.trace import page as page_of_trace
from wire.trace.catalog import make_catalog, write_catalog
from wire.trace.causes import REGISTRY
from wire.trace.page import read_script
from wire.trace.rows import Run, TracedRequest
from wire.trace.whatif import Trace

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "_static/har/har.js"
NODE = shutil.which("node")
PROGRAM = """
const fs = require("fs"), [, , script, catalog, ...paths] = process.argv;
require(script);
const texts = JSON.parse(fs.readFileSync(catalog, "utf8"));
console.log(JSON.stringify(paths.map((path) => {
  try {
    const report = wireHar.analyse(wireHar.readHar(fs.readFileSync(path, "utf8"), texts), texts);
    const {trace, sought, ...rest} = report;
    const columns = wireHar.makeColumns(report), others = wireHar.listOthers(texts).map((cause) => cause.name);
    return {...rest, columns, others, begin_s: trace.run.begin_s,
      sought: sought.map(({name, rows, text}) => [name, rows, text]),
      rows: trace.run.rows.map((row) => [row.start_s, row.first_byte_s, row.end_s, row.handshake_s, row.method, row.key, row.host,
        row.status, row.nbytes, row.range_start, row.range_nbytes, row.is_first, row.is_listing, row.user_agent, row.sent_nbytes])};
  } catch (error) {
    if (!(error instanceof wireHar.HarError)) throw error;
    return {refused: error.message};
  }
})));
"""


def analyse_in_node(folder: Path, texts: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Analyse archives with the script of the page."""
    if NODE is None:
        pytest.skip("no node on PATH")
    catalog, program = folder / "catalog.json", folder / "program.js"
    catalog.write_text(write_catalog())
    program.write_text(PROGRAM)
    paths = {name: folder / f"{name}.har" for name in texts}
    for name, path in paths.items():
        path.write_text(texts[name])
    words = [NODE, str(program), str(SCRIPT), str(catalog), *map(str, paths.values())]
    completed = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert completed.returncode == 0, completed.stderr[-2000:]
    return dict(zip(texts, json.loads(completed.stdout), strict=True))


def ask(places: list[tuple[float, float]], **values: Any) -> list[TracedRequest]:
    """Make a request for each begin and end."""
    return [
        TracedRequest(
            begin_s, begin_s + 0.05, end_s, connection=number, method="GET", status=200,
            nbytes=5_000_000, key=f"/b/a/c/0/{number}", host="h:1", **values,
        )
        for number, (begin_s, end_s) in enumerate(places)
    ]  # fmt: skip


def make_runs() -> dict[str, Run]:
    """Make a run of each cause that the page seeks."""
    turns = [(0.2 * i, 0.2 * i + 0.15) for i in range(30)]
    abreast = [(0.1 * (i // 4) + 0.001 * (i % 4), 0.1 * (i // 4) + 0.1) for i in range(40)]
    plain, wide = ask(turns), ask(abreast)
    ranged = [replace(row, key="/b/file.nc") for row in plain]
    changed: dict[str, list[TracedRequest]] = {
        "in turn": plain,
        "few": wide,
        "looks": look_before_each(12),
        "repeats": [replace(row, key=f"/b/a/c/0/{i // 3}") for i, row in enumerate(plain)],
        "probes": [replace(row, status=404 if i % 2 else 200) for i, row in enumerate(plain)],
        "refused": [replace(row, status=403, nbytes=0) for row in plain],
        "throttled": [replace(row, status=503 if i % 3 else 200) for i, row in enumerate(plain)],
        "listings": [replace(row, is_listing=i % 2 == 0) for i, row in enumerate(plain)],
        "connections": [replace(row, is_first=True, handshake_s=0.04) for row in plain],
        "large": [replace(row, nbytes=40_000_000 + i) for i, row in enumerate(plain[:3])],
        "small": [
            replace(row, nbytes=900, key=f"/b/a/c/{i}", start_s=0.01 * i, first_byte_s=0.01 * i + 0.1,
                    end_s=0.01 * i + 0.11)
            for i, row in enumerate(ask([(0, 1)] * 150))
        ],
        "metadata": [replace(row, key=f"/b/g{i}/zarr.json", nbytes=700) for i, row in enumerate(plain)],
        "tail": [
            replace(row, first_byte_s=row.end_s + 1, end_s=row.end_s + 1.1) if i == 20 else row
            for i, row in enumerate(wide)
        ],
        "writes": [replace(row, method="PUT", nbytes=0, sent_nbytes=12_250) for row in plain],
        "redirects": [replace(row, status=307 if i % 2 else 200) for i, row in enumerate(plain)],
        "overlaps": [
            replace(row, range_start=1_000_000 * i, range_nbytes=5_000_000)
            for i, row in enumerate(ranged)
        ],
        "neighbours": [
            replace(row, range_start=40_000 * i, range_nbytes=40_000, nbytes=40_000)
            for i, row in enumerate(ranged)
        ],
        "parts": [
            replace(row, range_start=9_000_000 * (i * 7 % 30), range_nbytes=800, nbytes=800,
                    first_byte_s=row.end_s - 0.01)
            for i, row in enumerate(ranged)
        ],
        "samples": [replace(row, key=f"/b/a/c/{i // 5}") for i, row in enumerate(plain)],
        "unfinished": [replace(row, end_s=0.0) if i == 4 else row for i, row in enumerate(plain)],
        "blocked": [replace(row, client_blocked_s=0.06) for row in wide],
    }  # fmt: skip
    runs = {name: run_of(rows, wall_s=12.0) for name, rows in changed.items()}
    used = [(0.0, 0.0), (2.0, 1.5), (6.0, 2.5), (12.0, 6.0)]
    return runs | {"processor": run_of(plain, wall_s=12.0, processor_s=used)}


def assert_equal(page: dict[str, Any], run: Run) -> None:
    """Check that a page shows what Python finds in a run: requests, counts, seconds and causes."""
    trace, report = Trace(run), findings.report(run)
    for values, row in zip(page["rows"], run.rows, strict=True):
        moments = [row.start_s, row.first_byte_s, row.end_s, row.handshake_s]
        assert values[:4] == pytest.approx(moments, abs=2e-6)
        assert values[4:] == [
            row.method, row.key, row.host, row.status, row.nbytes, row.range_start, row.range_nbytes,
            row.is_first, row.is_listing, row.user_agent, row.sent_nbytes,
        ]  # fmt: skip
    for name in ("n_requests", "n_waits", "n_in_flight", "moved_nbytes", "unique_nbytes", "hosts"):
        assert page[name] == getattr(report, name), name
    assert page["kinds"] == report.kinds
    assert page["refused"] == {str(status): count for status, count in report.refused.items()}
    assert page["time_s"] == pytest.approx(report.time_s, abs=1e-4)
    assert page["latency_s"] == pytest.approx(report.first_byte_s[0], abs=1e-5)
    assert page["stream_mb_per_s"] == pytest.approx(report.stream_mb_per_s, rel=1e-3)
    expected = []
    for cause in REGISTRY.values():
        evidence = None if cause.name in page["others"] else cause.find(trace)
        if evidence is not None and len(evidence.rows) >= cause.least:
            expected.append([cause.name, [*evidence.rows], evidence.text])
    assert page["sought"] == expected
    # what Python predicts a gain of, for the whole of the requests, the page leaves out nowhere
    if len(report.phases) == 1:
        names = {finding.name for finding in report.findings} - {*page["others"]}
        assert names & {name for name, *_ in expected} <= {
            cause["name"] for cause in page["causes"]
        }


def test_the_same_is_found_in_each_archive(tmp_path: Path) -> None:
    """For traces of our own with each cause, the recorded example, and what a browser writes."""
    example, words = stored.read_trace(ROOT / "results/traced/example")
    runs = make_runs() | {"example": example}
    texts = {name: write_archive(run, words) for name, run in runs.items()}
    texts["browser"] = json.dumps(browse(20))
    cached = browse(40)
    cached["log"]["entries"][0]["_fromCache"] = "disk"
    cached["log"]["entries"][1]["request"]["url"] = (
        "https://me:pw@Data.example:443/a%20b/%C3%A9/%zz?list-type=2"
    )
    cached["log"]["entries"][2]["startedDateTime"] = "2026-01-01T09:00:00.123456Z"
    cached["log"]["entries"][3]["connection"] = "77"
    cached["log"]["entries"][4]["response"]["headers"] = [
        {"name": "Content-Length", "value": "777"}
    ]
    texts["cached"] = json.dumps(cached)
    pages = analyse_in_node(tmp_path, texts)
    sought = {name for page in pages.values() for name, *_ in page.get("sought", [])}
    for name, page in pages.items():
        assert "refused" not in page or isinstance(page["refused"], dict), (name, page)
        assert_equal(page, stored.read_har(tmp_path / f"{name}.har")[0])
    missing = {*REGISTRY} - {*pages["example"]["others"]} - sought - {"failed", "link"}
    assert not missing, f"in no archive of this test: {missing}"
    assert pages["cached"]["nLeft"] == 1
    drawn = page_of_trace.make_columns(example, findings.report(example))
    assert pages["example"]["columns"]["lines"] == drawn["lines"]
    for name in ("line", "setup", "wait", "body", "bytes", "from"):
        values = drawn[name] if isinstance(drawn[name], list) else [drawn[name]] * drawn["n"]
        assert pages["example"]["columns"][name] == pytest.approx(values, abs=1), name


def test_an_array_in_a_browser_has_its_cause(tmp_path: Path) -> None:
    """The page finds what Python finds in what zarrita asked for in Chromium, and advises on it first."""
    page = analyse_in_node(tmp_path, {"zarrita": ZARRITA.read_text()})["zarrita"]
    assert_equal(page, stored.read_har(ZARRITA)[0])
    assert [cause["name"] for cause in page["causes"]] == ["in-turn"]


def test_main_causes_are_chosen_and_marked(tmp_path: Path) -> None:
    """A cause has its title, words and place in the book, and its requests are marked in the waterfall."""
    runs = make_runs()
    texts = {name: write_archive(runs[name], []) for name in ("looks", "repeats")}
    pages = analyse_in_node(tmp_path, texts | {"quick": write_archive(run_of(chain(1)), [])})
    number = [item["name"] for item in pages["looks"]["causes"]].index("looks")
    chosen = pages["looks"]["causes"][number]
    assert chosen["title"] == REGISTRY["looks"].title
    assert chosen["see"] == REGISTRY["looks"].see
    assert chosen["remedy"] in [remedy.text for remedy in REGISTRY["looks"].clients.values()] + [
        REGISTRY["looks"].remedy.text
    ]
    columns = pages["looks"]["columns"]
    assert sum(marks >> number & 1 for marks in columns["cause"]) == len(chosen["rows"])
    heads = [columns["methods"][method] == "HEAD" for method in columns["method"]]
    assert [bool(marks >> number & 1) for marks in columns["cause"]] == heads
    assert sum(columns["start"]) == pytest.approx(1e6 * runs["looks"].rows[-1].start_s, abs=1)
    assert pages["quick"]["causes"] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ('{"log": {"entries": [', "not JSON"),
        ("[]", "no log with entries"),
        ('{"log": {"entries": 3}}', "no log with entries"),
        ('{"log": {"entries": []}}', "None of the 0 entries"),
        ('{"log": {"entries": [null]}}', "Entry 0"),
        ('{"log": {"entries": [{"request": {"url": "https://h/x"}}]}}', "Entry 0"),
        (json.dumps(browse(1)).replace('"wait": 60.0', '"wait": "long"'), 'number "long"'),
        (json.dumps(browse(1)).replace('"wait": 60.0', '"wait": 1e300'), "number 1e"),
        (json.dumps(browse(1)).replace("2026-01-01", "2026-13-01"), "startedDateTime"),
        (json.dumps(browse(1)).replace("2026-01-01", "1026-01-01"), "outside of all years"),
        (json.dumps(browse(1)).replace("https://data", "gopher://data"), "scheme is 'gopher'"),
        (json.dumps(browse(1)).replace("https://data.example", "https://[data"), "no host"),
        ('{"log": {"entries": [{}], "_run": {}}}', "Entry 0"),
        (write_archive(run_of(chain(2)), []).replace('"status": 200', '"status": "x"'), "number x"),
        (write_archive(run_of(chain(2)), []).replace('"bodySize": 1000', '"bodySize": -5'), "-5"),
        (write_archive(run_of(chain(2)), []).replace('"wall_s": 0.2', '"wall_s": -3'), "no run"),
    ],
)
def test_a_bad_file_gets_one_line(text: str, words: str, tmp_path: Path) -> None:
    """It names what is wrong, and where."""
    message = analyse_in_node(tmp_path, {"bad": text})["bad"]["refused"]
    assert words in message
    assert "\n" not in message and len(message) < 200


def test_each_threshold_is_one_of_the_catalog() -> None:
    """No number by which a cause is told stands in the script under a name that Python has not."""
    catalog, script = make_catalog(), SCRIPT.read_text()
    used = {*re.findall(r'limits\["([^"]+)"\]', script)}
    assert used
    assert used <= {*catalog["limits"]}
    names = {*re.findall(r"^  \"?([a-z-]+)\"?\(trace\) \{", script, re.MULTILINE)}
    assert len(names) > 15
    assert names <= {*REGISTRY}
    assert analysis._CHUNK.pattern == catalog["patterns"]["chunk"]


def write_page(folder: Path) -> str:
    """Write the elements of the page with its scripts, as a file without a server."""
    source = (ROOT / "pages/har.md").read_text()
    html = "\n".join(re.findall(r"```\{raw\} html\n(.*?)```", source, re.DOTALL))
    style = (ROOT / "_static/har/har.css").read_text()
    (folder / "page.html").write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<title>x</title><style>{style}</style><script type="application/json" id="har-catalog">{write_catalog()}'
        f"</script><script>{read_script()}</script>{html}<script>{SCRIPT.read_text()}</script></html>"
    )
    return (folder / "page.html").as_uri()


DROP = """(() => {
  const files = new DataTransfer();
  files.items.add(new File([%s], %s));
  document.getElementById("har-drop").dispatchEvent(new DragEvent("drop", {dataTransfer: files, bubbles: true, cancelable: true}));
})()"""
STATUS = "document.getElementById('har-status').textContent"


@pytest.mark.slow
def test_a_dropped_file_is_analysed(tmp_path: Path) -> None:
    """From a file, on a phone: causes, waterfall and status; a bad file is one line and leaves nothing behind."""
    url = write_page(tmp_path)
    with open_browser(tmp_path / "browser") as tab:
        tab.open(url, width=390)
        assert "wire trace show" in tab.evaluate(
            "document.getElementById('har-others').textContent"
        )
        text = write_archive(make_runs()["looks"], [])
        tab.evaluate(DROP % (json.dumps(text), '"page.har"'))
        tab.wait_until(f"{STATUS}.includes('found')")
        assert REGISTRY["looks"].title in tab.evaluate(
            "document.getElementById('har-report').textContent"
        )
        marks = "document.querySelector('#har-waterfall div').shadowRoot.querySelector('.causes').textContent"
        assert "requests marked" in tab.evaluate(marks)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        input_name = "document.querySelector('label[for=har-file]').textContent"
        assert "HAR" in tab.evaluate(input_name)
        tab.evaluate(DROP % ('"{"', '"bad.har"'))
        tab.wait_until(f"{STATUS}.includes('not JSON')")
        assert tab.evaluate("document.getElementById('har-report').textContent") == ""
        assert tab.evaluate("document.getElementById('har-waterfall').hidden")
        assert tab.faults() == []
