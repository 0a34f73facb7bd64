"""The page of a trace in a browser: the picture, the table, keys, a phone, the dark, and hostile names."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.browser import Tab, open_browser
from tests.wire.trace.test_findings import chain, run_of
from tests.wire.trace.test_report import look_before_each
from wire.trace import findings, page
from wire.trace.rows import CallSite, Run

HOSTILE = "/b/</script><script>alert(1)</script><!--\u2028{i}'\"&amp;"
LINES = [
    CallSite("analysis.py", 14, "<module>", "ds = xr.open_zarr(url)", "xarray.open_zarr", True),
    CallSite("analysis.py", 21, "<module>", "ds.load() # </style><b>", "", False),
]


def with_lines(run: Run) -> Run:
    """Put the first half of the requests on one line, the rest on another."""
    n = len(run.rows)
    return replace(run, sites=[LINES[2 * number // n] for number in range(n)])


def unpack_keys(columns: dict[str, list[str]]) -> list[str]:
    """Put keys together as the script does."""
    keys, before = list[str](), ""
    shared = columns["shared"] if isinstance(columns["shared"], list) else [columns["shared"]] * 99
    for n_shared, rest in zip(shared, columns["rest"], strict=False):
        before = before[: int(n_shared)] + rest
        keys.append(before)
    return keys


def test_columns_hold_the_trace_and_little_more() -> None:
    """Times add up, keys come back, what is always the same stands once, and a million bytes are enough for 20,000."""
    rows = chain(20_000, key="/bucket/era5.zarr/t2m/c/{i}/é{i}", think_s=0.01)
    run = with_lines(run_of(rows))
    columns = page.make_columns(run, findings._list(run, ""))
    assert unpack_keys({**columns, "rest": columns["rest"][:99]}) == [row.key for row in rows[:99]]
    assert sum(columns["start"]) == round(1e6 * rows[-1].start_s)
    assert (columns["status"], columns["wait"], columns["n"]) == (200, 100_000, 20_000)
    assert [line["name"] for line in columns["lines"]] == ["analysis.py:14", "about analysis.py:21"]
    assert columns["line"][9_999:10_001] == [0, 1]
    assert len(json.dumps(columns)) < 1_000_000


def test_a_cause_marks_its_requests_alone() -> None:
    """Those that were found, whatever began or ended in between; one that never ended has no cause."""
    rows = look_before_each(20)
    rows.insert(0, replace(rows[0], start_s=-1.0, first_byte_s=0.0, end_s=0.0, key="/b/never"))
    run = with_lines(run_of(rows, wall_s=9.0))
    report = findings.report(run)
    number, finding = next(
        (number, finding)
        for number, finding in enumerate(report.findings)
        if finding.name == "looks"
    )
    marks = page.make_columns(run, report)["cause"]
    marked = [i for i, mark in enumerate(marks) if mark >> number & 1]
    assert len(marked) == finding.count >= 10
    assert {run.rows[i].method for i in marked} == {"HEAD"}
    assert marks[0] == 0


def test_nothing_in_a_name_ends_the_script() -> None:
    """Whatever a key, a host or a line holds is text in the page, and in the frame of a notebook."""
    run = with_lines(run_of(chain(30, key=HOSTILE, host="<img src=x onerror=alert(1)>")))
    text = page.write_html(run, findings.report(run), ["python", "<b>.py"])
    assert len(re.findall("<script", text)) == len(re.findall("</script", text)) == 2
    assert "<img" not in text and "<b>.py" not in text and "<!--" not in text
    cell = page.write_cell(run, findings.report(run))
    assert cell.count('"') == cell.count('="') * 2  # nothing ends the attribute but its own end


def test_a_cell_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored with a notebook has the first requests, and says of how many."""
    monkeypatch.setattr(page, "MAX_IN_CELL", 5)
    run = run_of(chain(20))
    cell = page.write_cell(run, findings.report(run))
    assert "&quot;n&quot;:5,&quot;total&quot;:20" in cell


WATERFALL = "document.querySelector('[data-wire-waterfall]')"
ROOT = f"{WATERFALL}.shadowRoot"


def press(tab: Tab, *keys: str) -> None:
    """Press keys over the picture."""
    for key in keys:
        tab.evaluate(
            f"{ROOT}.querySelector('canvas[tabindex]').dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}'}}))"
        )


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    """It fits a phone, draws in light and dark, zooms, filters, marks a cause, and reads a request to who cannot see."""
    run = with_lines(run_of(look_before_each(200), wall_s=50.0))
    rows = [replace(row, key=HOSTILE.format(i=n)) if n == 7 else row for n, row in enumerate(run.rows)]  # fmt: skip
    run = replace(run, rows=rows)
    path = tmp_path / "trace.html"
    path.write_text(page.write_html(run, findings.report(run), ["python", "<b>.py"]))
    with open_browser(tmp_path / "browser") as tab:
        for width, scheme in ((390, "dark"), (1280, "light")):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            tab.send("Emulation.setEmulatedMedia", features=features)
            tab.open(path.as_uri(), width=width)
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            assert tab.evaluate(f"{WATERFALL}.hasAttribute('data-dark')") is (scheme == "dark")
            assert tab.evaluate(f"{WATERFALL}.wire.shown()") == 400
        n_colours = tab.evaluate(
            f"(() => {{ const c = {ROOT}.querySelector('canvas[tabindex]'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, found = new Set(); for (let i = 0; i < d.length; i += 4) found.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return found.size; }})()"
        )
        assert n_colours > 5
        press(tab, "+", "+", "+")
        tab.wait_until(f"{WATERFALL}.wire.shown() < 100")
        press(tab, "0", "ArrowDown", "ArrowDown")
        heard = tab.evaluate(f"{ROOT}.querySelector('[aria-live]').textContent")
        assert (
            heard.startswith("Request 2 of ") and "GET /b/f0" in heard and "analysis.py:14" in heard
        )
        tab.evaluate(f"{ROOT}.querySelector('.causes button').click()")
        assert tab.evaluate(f"{WATERFALL}.wire.state.cause") == 0
        tab.evaluate(
            f"(() => {{ const s = {ROOT}.querySelector('input'); s.value = 'alert'; s.dispatchEvent(new Event('input')); {ROOT}.querySelector('details').open = true; }})()"
        )
        tab.wait_until(f"{ROOT}.querySelectorAll('tbody tr').length === 1")
        assert "<script>alert(1)" in tab.evaluate(f"{ROOT}.querySelector('tbody').textContent")
        assert tab.evaluate("document.querySelectorAll('b').length") >= 1
        assert not tab.faults()


def test_a_notebook_shows_the_page_in_a_frame(tmp_path: Path) -> None:
    """Its own style does not reach the picture."""
    run = with_lines(run_of(chain(20)))
    cell = page.write_cell(run, findings.report(run))
    path = tmp_path / "notebook.html"
    path.write_text(f"<style>* {{display: none !important}} iframe, body, html {{display: block !important}}</style>{cell}")  # fmt: skip
    with open_browser(tmp_path / "browser") as tab:
        tab.open(path.as_uri(), width=800)
        assert tab.evaluate("document.querySelector('iframe').offsetHeight") > 400
        assert not tab.faults()


def test_without_scripts_it_is_a_table() -> None:
    """A reader whose browser runs none sees the first requests, and how many more there are."""
    run = run_of(chain(600))
    text = page.write_html(run, findings.report(run), ["x"])
    assert text.count("<tr><td>") == 500
    assert "100 more are in trace.csv" in text
