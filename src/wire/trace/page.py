"""A trace as a page of HTML that needs nothing else: what to change, and a waterfall to zoom into."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape
from importlib import resources
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from wire.errors import cut, format_size, printable
from wire.trace.analysis import kind_of
from wire.trace.render import BOOK, describe_gain

if TYPE_CHECKING:
    from wire.trace.report import Report
    from wire.trace.rows import Run, TracedRequest

MAX_DRAWN = 300_000
"""Requests that a page holds, the first of them; the table `trace.csv` has all."""

MAX_IN_CELL = 20_000
"""Requests that the output of a notebook's cell holds: it is stored with the notebook."""

_MAX_LISTED = 500  # in the table that a browser without scripts shows
_MAX_FINDINGS = 9
_CELL_HEIGHT_PX = 900
_STYLE = """
:root{color-scheme:light dark;--ink:#1f2328;--soft:#59636e;--paper:#fff;--plate:#f6f8fa;--rule:#d1d9e0;--link:#0969da}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9da7b3;--paper:#0f1419;--plate:#1a2129;--rule:#39424c;--link:#58a6ff}}
body{font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;color:var(--ink);background:var(--paper);margin:0 auto;max-width:80rem;padding:1rem;box-sizing:border-box}
h1{font-size:1.15rem;font-weight:500;color:var(--soft);overflow-wrap:anywhere;margin:0}
h2{font-size:1.05rem;margin:1.4rem 0 .3rem}p{margin:.35rem 0;overflow-wrap:anywhere}
.verdict{font-size:1.35rem;line-height:1.35;font-weight:600;margin:.5rem 0}
.facts{color:var(--soft)}a{color:var(--link)}
ol.causes{padding-left:1.4rem}ol.causes li{margin:.7rem 0}
code{font-family:ui-monospace,SFMono-Regular,Menlo,monospace;font-size:.88em;overflow-wrap:anywhere}
ol.causes code{display:block;background:var(--plate);border-left:3px solid var(--rule);padding:.3rem .6rem;margin:.25rem 0;white-space:pre-wrap}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem}
th,td{padding:.15rem .5rem;border-bottom:1px solid var(--rule);text-align:right}td:nth-child(3){text-align:left;overflow-wrap:anywhere}
"""


def write_html(run: Run, report: Report, command: Sequence[str]) -> str:
    """Write the page of a trace, whose run and command are those of `redact_run`."""
    return _write_document(run, report, command, MAX_DRAWN)


def write_cell(run: Run, report: Report, command: Sequence[str] = ()) -> str:
    """Write what a notebook shows below a cell: the page in a frame, which the notebook's style does not reach.

    Of a large trace it holds the first requests, for the output is stored with the notebook.
    """
    document = _write_document(run, report, command, MAX_IN_CELL)
    return (
        f'<iframe title="what the cell waited for" sandbox="allow-scripts allow-popups"'
        f' style="width:100%;height:{_CELL_HEIGHT_PX}px;border:0" srcdoc="{escape(document)}"></iframe>'
    )


def write_waterfall(run: Run, report: Report, *, max_rows: int = MAX_DRAWN) -> str:
    """Write the waterfall as an element of a page that also has `read_script`.

    Until the script has run, or where none runs, it is a table of the first requests.
    """
    spans = _measure_spans(run)
    trace = _make_columns(run, report, spans[:max_rows])
    return (
        f'<div data-wire-waterfall><script type="application/json">{_embed(trace)}</script>'
        f"{_write_table(spans)}</div>"
    )


@cache
def read_script() -> str:
    """Read the script that draws waterfalls."""
    return (resources.files("wire.trace") / "waterfall.js").read_text(encoding="utf-8")


def _write_document(run: Run, report: Report, command: Sequence[str], max_rows: int) -> str:
    title = f"What {cut(shlex.join(command))} waited for" if command else "What it waited for"
    body = "\n".join([
        f"<h1>{_safe(title)}</h1>",
        f'<p class="verdict">{_safe(report.verdict)}</p>',
        f'<p class="facts">{_safe(_summarise(report))}</p>',
        *_write_findings(report),
        *(f"<p>{_safe(note)}</p>" for note in report.notes),
        *(f"<p><b>Not known whether seen:</b> {_safe(line)}</p>" for line in report.not_known),
        *(f"<p><b>Not seen:</b> {_safe(line)}</p>" for line in report.not_seen),
        "<h2>Each request, in the order in which they began</h2>",
        "<p>A staircase is a chain: each step waited for the one before.",
        "A wall is many concurrent requests.</p>",
        write_waterfall(run, report, max_rows=max_rows),
    ])  # fmt: skip
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        # nothing of a trace leaves the page, whatever a key of it holds
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
        " script-src 'unsafe-inline'; style-src 'unsafe-inline'\">"
        f"<title>{_safe(title)}</title><style>{_STYLE}</style>"
        f"<body>{body}<script>{read_script()}</script></body></html>"
    )


def _summarise(report: Report) -> str:
    hosts = f"{len(report.hosts)} hosts" if len(report.hosts) != 1 else report.hosts[0]
    refused = sum(report.refused.values())
    return ", ".join([
        _format_seconds(report.wall_s),
        f"{report.n_requests:,} requests to {hosts}",
        f"{report.n_waits:,} of them one after the other",
        *([f"at most {report.n_in_flight:,} concurrent"] if report.n_in_flight else []),
        f"{format_size(report.moved_nbytes)} moved",
        *([f"{refused:,} failed"] if refused else []),
        *([f"predicted on {report.on}: {_format_seconds(report.predicted_s)}"] if report.on else []),
    ])  # fmt: skip


def _write_findings(report: Report) -> Iterator[str]:
    yield "<h2>What to change</h2>"
    if not report.findings:
        yield "<p>No known cause that is worth a change.</p>"
        return
    yield '<ol class="causes">'
    for finding in report.findings[:_MAX_FINDINGS]:
        phase = report.phases[finding.phase] if finding.phase >= 0 else None
        site = phase.code_line if phase else None
        place = f" at <b>{_safe(site.label)}</b>" if site else ""
        source = f"<code>{_safe(site.source)}</code>" if site and site.source else ""
        yield (
            f"<li><b>{_safe(finding.title)}</b>{place}: {_safe(finding.evidence)}.{source}"
            f"<code>→ {_safe(finding.line)}</code>{_safe(describe_gain(finding, report))}"
            f' <a href="{BOOK}{escape(finding.see)}" target="_blank" rel="noopener">more</a></li>'
        )
    yield "</ol>"


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"


class _Span(NamedTuple):
    """Hold when a request did what, in microseconds since the program began."""

    begin: int
    place: int  # in the run
    setup: int
    wait: int
    body: int
    row: TracedRequest


def _measure_spans(run: Run) -> list[_Span]:
    """Measure each request in the order in which they began; one without an end lasts as long as the program."""
    begin_s = run.begin_s
    until_s = max([begin_s + run.wall_s, *(row.end_s for row in run.rows)])
    spans = list[_Span]()
    for place, row in enumerate(run.rows):
        start_s, end_s = row.start_s, row.end_s or until_s
        first_s = row.first_byte_s or end_s
        setup = int(1e6 * row.handshake_s + 0.5)
        begin = max(0, int(1e6 * (start_s - begin_s) + 0.5) - setup)
        wait = max(0, int(1e6 * (first_s - start_s) + 0.5))
        body = max(0, int(1e6 * (end_s - first_s) + 0.5))
        spans.append(_Span(begin, place, setup, wait, body, row))
    spans.sort(key=itemgetter(0, 1))
    return spans


def make_columns(run: Run, report: Report, *, max_rows: int = MAX_DRAWN) -> dict[str, Any]:
    """Make the columns that the waterfall draws: no header, query or credential, and no object for a request.

    Times are whole microseconds, those of `start` from the request before. A key is how much of the
    one before it shares, and its rest. A column whose values are all equal is that value.
    """
    return _make_columns(run, report, _measure_spans(run)[:max_rows])


def _make_columns(run: Run, report: Report, spans: Sequence[_Span]) -> dict[str, Any]:
    rows = [span.row for span in spans]
    begins = [span.begin for span in spans]
    shared, rests = _share_keys([_flatten(row.key) for row in rows])
    lines, line_of = _find_lines(run, spans)
    causes = mark_causes(run, report, spans)
    columns: dict[str, list[Any]] = {
        "start": [b - a for a, b in zip([0, *begins], begins, strict=False)],
        "setup": [span.setup for span in spans],
        "wait": [span.wait for span in spans],
        "body": [span.body for span in spans],
        "status": [row.status for row in rows],
        "bytes": [row.nbytes for row in rows],
        "from": [-1 if row.range_start is None else row.range_start for row in rows],
        "shared": shared,
        "rest": rests,
        "line": line_of,
        "cause": causes,
    }
    tables = dict[str, list[str]]()
    for name, plural, values in (
        ("method", "methods", [row.method for row in rows]),
        ("kind", "kinds", [kind_of(row) for row in rows]),
        ("host", "hosts", [row.host for row in rows]),
    ):
        tables[plural] = [printable(value) for value in dict.fromkeys(values)]
        numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
        columns[name] = [numbers[value] for value in values]
    return {
        "version": 1,
        "n": len(rows),
        "total": len(run.rows),
        "wall": round(1e6 * run.wall_s),
        **{name: _shorten(column) for name, column in columns.items()},
        **tables,
        "lines": [{"name": name, "code": code} for name, code in lines],
        "causes": [
            {"title": finding.title, "line": finding.line}
            for finding in report.findings[:_MAX_FINDINGS]
        ],
    }


def _shorten(column: list[Any]) -> Any:
    """Return the value of a column that has only one, else the column."""
    is_same = len(column) > 1 and not isinstance(column[0], str) and len({*column}) == 1
    return column[0] if is_same else column


def _share_keys(keys: Iterable[str]) -> tuple[list[int], list[str]]:
    """Split each key into how many characters it shares with the one before, and the rest.

    Examples
    --------
    >>> _share_keys(["/b/c/0/1", "/b/c/0/2", "/b"])
    ([0, 7, 2], ['/b/c/0/1', '2', ''])
    """
    shared, rests, before = list[int](), list[str](), ""
    for key in keys:
        n_equal, most = 0, min(len(key), len(before))
        while n_equal < most:  # the longest beginning that both have, halving what is not sure
            half = (n_equal + most + 1) // 2
            if before.startswith(key[:half]):
                n_equal = half
            else:
                most = half - 1
        if not key.isascii():  # browsers count other characters otherwise
            n_equal = min(n_equal, next(i for i, letter in enumerate(key) if letter > "\x7f"))
        shared.append(n_equal)
        rests.append(key[n_equal:])
        before = key
    return shared, rests


def _find_lines(run: Run, spans: Sequence[_Span]) -> tuple[list[tuple[str, str]], list[int]]:
    """Find the lines of the program, and which of them each request is for; -1 where nothing tells."""
    if not run.sites:
        return [], [-1] * len(spans)
    numbers, line_of = dict[tuple[str, str], int](), list[int]()
    for span in spans:
        site = run.sites[span.place]
        if site is None:
            line_of.append(-1)
            continue
        about = "" if site.is_certain else "about "
        line = printable(f"{about}{site.file}:{site.line}"), printable(cut(site.source))
        line_of.append(numbers.setdefault(line, len(numbers)))
    return [*numbers], line_of


def mark_causes(run: Run, report: Report, spans: Sequence[_Span]) -> list[int]:
    """Mark each request with the causes that concern it, a bit for each."""
    # findings count the requests that ended, in the order in which they began
    ended = sorted(
        (place for place, row in enumerate(run.rows) if row.end_s),
        key=lambda place: run.rows[place].start_s,
    )
    marks = dict[int, int]()
    for number, finding in enumerate(report.findings[:_MAX_FINDINGS]):
        for place in finding.rows:
            marks[ended[place]] = marks.get(ended[place], 0) | 1 << number
    return [marks.get(span.place, 0) for span in spans]


def _write_table(spans: Sequence[_Span]) -> str:
    """Write the first requests as a table, for a browser without scripts."""
    head = "".join(
        f"<th>{name}</th>"
        for name in ("began (s)", "method", "key", "status", "bytes", "latency (ms)", "body (ms)")
    )
    lines = [
        f"<tr><td>{span.begin / 1e6:.3f}<td>{_safe(span.row.method)}<td>{_safe(cut(span.row.key))}"
        f"<td>{span.row.status or 'none'}<td>{span.row.nbytes}"
        f"<td>{span.wait / 1000:.1f}<td>{span.body / 1000:.1f}"
        for span in spans[:_MAX_LISTED]
    ]
    more = len(spans) - len(lines)
    rest = f"<p>{more:,} more are in trace.csv.</p>" if more else ""
    return f'<div class="scroll"><table><tr>{head}{"".join(lines)}</table></div>{rest}'


def _embed(value: Any) -> str:
    """Write JSON so that it can stand in a script element: nothing in it ends that, or begins a comment."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def _flatten(text: str) -> str:
    return text if text.isprintable() else printable(text)


def _safe(text: str) -> str:
    return escape(printable(text))
