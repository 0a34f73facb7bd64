"""A report as one screen, and a trace as files: a table, an HTTP archive and a waterfall."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from advisors.trace.analysis import kind_of
from advisors.trace.findings import N_PRINTED, Finding, Report
from advisors.trace.rows import Run, TracedRequest
from helpers.errors import UserError, cut, explain, printable, redact, show, write_bytes
from helpers.paths import replace_file

BOOK = "https://arrays-over-the-wire.github.io/arrays-over-the-wire/"
FILES = ("trace.csv", "trace.har", "trace.html")
_TIME = {
    "start": "before the first request", "connections": "setting up connections", "first bytes": "waiting for first bytes",
    "bodies": "receiving", "client": "the client cannot keep up", "processor": "processor",
    "idle": "idle",
}  # fmt: skip
_LIMIT = 0.5  # share of a processor from which on the gateway may be what is waited for


def render(report: Report, command: Sequence[str]) -> Iterator[str]:
    """Write a report as lines of text."""
    yield from _summarise(report)
    for number, one in enumerate(report.findings[:N_PRINTED], 1):
        yield f"{number}  {one.title}: {one.evidence}"
        yield f"     {one.line}"
        if gain := _gain(one, report):
            yield f"     {gain}"
        if one.setting:
            yield f"     wire trace --try {one.setting} -- {shlex.join(command)}   measures it"
        yield f"     {BOOK}{one.see}"
    if report.n_requests and not report.findings and not report.notes:
        yield "no known cause that is worth a change"
    yield from report.notes
    yield from (f"not seen: {one}" for one in report.not_seen)


def _summarise(report: Report) -> Iterator[str]:
    """Say what was asked for and what it took, without causes."""
    if report.gateway_share > _LIMIT:
        yield f"the gateway had a processor for {_percent(report.gateway_share)} of the time: it may be the limit"
    if not report.n_requests:
        yield f"no request was seen in {_seconds(report.wall_s)}, exit code {report.exit_code}"
        return
    n_hosts = f"{len(report.hosts)} hosts" if len(report.hosts) > 1 else cut(report.hosts[0])
    sent = f"; {write_bytes(report.sent_nbytes)} sent" if report.sent_nbytes else ""
    if not report.time_s:  # which takes longer than a count
        yield (
            f"{report.n_requests:,} requests to {n_hosts} in {_seconds(report.wall_s)};"
            f" {report.n_waits:,} waits one after the other; {write_bytes(report.moved_nbytes)} moved{sent}"
        )
        return
    yield (
        f"{report.n_requests:,} requests to {n_hosts} in {_seconds(report.wall_s)};"
        f" {report.n_waits:,} waits one after the other; at most {report.n_in_flight} concurrent;"
        f" {write_bytes(report.moved_nbytes)} moved, {write_bytes(report.unique_nbytes)} of it once{sent}"
    )
    shares = [f"{share} {_TIME[what]}" for what, share in _shares(report).items() if share != "0 %"]
    yield f"  time: {', '.join(shares)}; gateway {_percent(report.gateway_share)}"
    yield f"  asked: {', '.join(f'{n:,} {kind}' for kind, n in report.kinds.items())}"
    median_s, p95_s = report.first_byte_s
    stream = f", {report.stream_mb_per_s:.0f} MB/s a stream" if report.stream_mb_per_s else ""
    yield f"  network: first byte {1000 * median_s:.0f} ms, 95th percentile {1000 * p95_s:.0f}{stream}"
    if report.on:
        yield f"  on {report.on}: {_seconds(report.predicted_s)}, predicted"


def _shares(report: Report) -> dict[str, str]:
    """Write shares of the time in whole per cent that add up to a hundred: the largest rests are rounded up."""
    exact = {what: 100 * seconds / report.wall_s for what, seconds in report.time_s.items()}
    floors = {what: math.floor(share) for what, share in exact.items()}
    rests = sorted(exact, key=lambda what: floors[what] - exact[what])
    up = {*rests[: 100 - sum(floors.values())]}
    return {what: f"{floors[what] + (what in up)} %" for what in exact}


def _gain(one: Finding, report: Report) -> str:
    if not one.gain:
        return ""
    words = "at most" if one.is_bound else "predicted"
    return f"{words} {one.gain:.2g} times as fast: {_seconds(one.seconds)} instead of {_seconds(report.predicted_s)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1f} %"


# Files of a trace.


def write_trace(folder: Path, run: Run, command: Sequence[str]) -> None:
    """Write what was seen, as a table and as an archive, without credentials."""
    replace_file(folder / "trace.csv", redact(write_csv(run.rows)))
    replace_file(folder / "trace.har", redact(write_har(run, command)))


def write_page(folder: Path, run: Run, report: Report, command: Sequence[str]) -> None:
    """Write what is said of it, as a page."""
    replace_file(folder / "trace.html", redact(write_html(run, report, command)))


_COLUMNS = [one.name for one in fields(TracedRequest) if one.name not in ("tag", "worker")]


def write_csv(rows: Sequence[TracedRequest]) -> str:
    """Write a row a request."""
    file = io.StringIO()
    writer = csv.DictWriter(file, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return file.getvalue()


def read_files(folder: Path) -> tuple[Run, list[str]]:
    """Read a trace and the command that it is of, and refuse what is none in one line."""
    from pydantic import TypeAdapter, ValidationError

    where = f"trace folder {cut(str(folder))}"
    try:
        told = json.loads((folder / "trace.har").read_text(encoding="utf-8"))["log"]
        with (folder / "trace.csv").open(encoding="utf-8", newline="") as file:
            rows = [
                {name: text for name, text in row.items() if text != ""}
                for row in csv.DictReader(file)
            ]
        run = TypeAdapter(Run).validate_python({**told["_run"], "rows": rows})
        command = shlex.split(told["_command"])
    except ValidationError as error:
        raise UserError(f"{where}: {explain(error)}") from error
    except (OSError, ValueError, TypeError, KeyError, AttributeError, csv.Error) as error:
        wanted = f"allowed: a folder with {FILES[0]} and {FILES[1]} as wire trace writes them"
        raise UserError(f"{where}: {show(error)}; {wanted}") from error
    times = [
        (row.start_s, row.first_byte_s or row.start_s, row.end_s or math.inf) for row in run.rows
    ]
    is_sane = all(
        0 <= a <= b <= c and row.nbytes >= 0 for (a, b, c), row in zip(times, run.rows, strict=True)
    )
    if not (is_sane and 0 < run.wall_s < math.inf and math.isfinite(run.begin_s)):
        raise UserError(f"{where}: times that run backwards; allowed: those of a trace")
    return run, command


def write_har(run: Run, command: Sequence[str]) -> str:
    """Write an HTTP archive 1.2, without headers: any browser's network panel opens it.

    What the format has no place for stands under names of our own, as it allows.
    """
    nothing: dict[str, Any] = {
        "cookies": [],
        "headers": [],
        "headersSize": -1,
        "httpVersion": "HTTP/1.1",
    }
    entries = []
    for row in sorted(run.rows, key=lambda row: row.start_s):
        end_s = row.end_s or row.first_byte_s or row.start_s
        first_s = row.first_byte_s or end_s
        timings = {
            "blocked": -1, "dns": -1, "ssl": -1, "send": 0,
            "connect": round(1000 * row.handshake_s, 3) if row.is_first else -1,
            "wait": round(1000 * (first_s - row.start_s), 3),
            "receive": round(1000 * (end_s - first_s), 3),
        }  # fmt: skip
        asked = {
            **nothing, "method": row.method, "url": f"{row.scheme}://{row.host}{quote(row.key)}",
            "queryString": [], "bodySize": row.sent_nbytes,
        }  # fmt: skip
        answer = {
            **nothing, "status": row.status, "statusText": "", "redirectURL": "", "bodySize": row.nbytes,
            "content": {"size": row.nbytes, "mimeType": ""},
        }  # fmt: skip
        entries.append({
            "startedDateTime": datetime.fromtimestamp(row.start_s, UTC).isoformat(timespec="milliseconds"),
            "time": round(sum(max(0, value) for value in timings.values()), 3),
            "request": asked, "response": answer, "cache": {}, "timings": timings,
            "connection": str(row.connection), "_kind": kind_of(row), "_process": row.process,
        })  # fmt: skip
    log = {
        "version": "1.2", "creator": {"name": "wire trace", "version": "1"}, "entries": entries,
        "_command": shlex.join(command), "_run": asdict(replace(run, rows=())),
    }  # fmt: skip
    return json.dumps({"log": log}, indent=1)


# Those of `helpers.plotting.palette`, which needs matplotlib: one a kind of object.
_COLOURS = {
    "metadata": "#953a7e", "manifest": "#953a7e", "listing": "#5b3fa0",
    "HEAD": "#b34700", "probe": "#841900", "credentials": "#841900", "write": "#8a6000",
    "chunk": "#0073b1", "range": "#0073b1", "object": "#0073b1",
}  # fmt: skip
_WIDTH, _ROW, _MOST_HEIGHT, _LEAST_HEIGHT = 10_000, 10, 720, 160
_STYLE = """
body{font:16px/1.45 system-ui,sans-serif;color:#333;background:#fff;margin:0 auto;max-width:75rem;padding:1rem;box-sizing:border-box}
h1{font-size:1.25rem;overflow-wrap:anywhere}h2{font-size:1rem;margin:1.5rem 0 .3rem}p{margin:.3rem 0;overflow-wrap:anywhere}
svg{display:block;width:100%;border:1px solid #999;box-sizing:border-box}
.axis{display:flex;justify-content:space-between;font-size:.8rem;color:#555}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1rem;list-style:none;padding:0;margin:.4rem 0;font-size:.9rem}
.key i{display:inline-block;width:.8em;height:.8em;margin-right:.35em;border:1px solid #555}
li{margin:.6rem 0}code{font-size:.85rem;overflow-wrap:anywhere}
"""


def write_html(run: Run, report: Report, command: Sequence[str]) -> str:
    """Write a page that needs nothing else: when each request waited and received, and what to change."""
    rows = sorted((row for row in run.rows if row.end_s), key=lambda row: row.start_s)
    title = f"What {cut(shlex.join(command))} waited for"
    lines = [*_summarise(report), *(f"not seen: {one}" for one in report.not_seen)]
    causes = "".join(
        f"<li><b>{_safe(one.title)}</b>: {_safe(one.evidence)}.<br><code>{_safe(one.line)}</code><br>"
        f'{_safe(_gain(one, report))} <a href="{BOOK}{one.see}">more</a></li>'
        for one in report.findings[:N_PRINTED]
    )
    begin_s = run.begin_s + report.time_s.get("start", 0.0)
    until_s = max([run.begin_s + run.wall_s, *(row.end_s for row in rows)])
    ticks = (begin_s - run.begin_s + part * (until_s - begin_s) / 4 for part in range(5))
    axis = "".join(f"<span>{second:.1f} s</span>" for second in ticks)
    height = min(_MOST_HEIGHT, max(_LEAST_HEIGHT, 8 * len(rows)))
    key = "".join(
        f'<li><i style="background:{_COLOURS[kind]}"></i>{kind}</li>' for kind in report.kinds
    )
    body = [
        f"<h1>{_safe(title)}</h1>",
        *(f"<p>{_safe(line.strip())}</p>" for line in lines),
        "<h2>Each request from top to bottom, in the order in which they began</h2>",
        "<p>Pale while it waits for its first byte, full while it receives.",
        "A staircase is a chain: each step waited for the one before. A wall is many at once.</p>",
        f'<svg role="img" aria-label="requests over time" style="height:{height}px"',
        f' viewBox="0 0 {_WIDTH} {_ROW * max(len(rows), 1)}" preserveAspectRatio="none">',
        *_bars(rows, begin_s, until_s),
        "</svg>",
        f'<div class="axis">{axis}</div>',
        f'<ul class="key">{key}</ul>',
        f"<h2>What to change</h2><ol>{causes or 'No known cause that is worth it.'}</ol>",
    ]
    head = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{_safe(title)}</title><style>{_STYLE}</style>"
    )
    return f"{head}<body>{chr(10).join(body)}</body></html>"


def _safe(text: str) -> str:
    return escape(printable(text))


def _bars(rows: Sequence[TracedRequest], begin_s: float, until_s: float) -> Iterator[str]:
    """Draw each request: its wait pale, its body full, at least as wide as one can see."""
    scale = _WIDTH / max(until_s - begin_s, 1e-9)
    for number, row in enumerate(rows):
        first_s = row.first_byte_s or row.end_s
        x, wait = scale * (row.start_s - begin_s), scale * (first_s - row.start_s)
        body, y, tall = max(scale * (row.end_s - first_s), 12.0), _ROW * number, _ROW - 1
        told = f"{row.method} {cut(row.key)}, {row.status}, {write_bytes(row.nbytes)}, {1000 * (row.end_s - row.start_s):.0f} ms"
        yield (
            f'<g fill="{_COLOURS[kind_of(row)]}"><title>{_safe(told)}</title>'
            f'<path fill-opacity=".35" d="M{x:.0f} {y}h{wait:.0f}v{tall}h-{wait:.0f}z"/>'
            f'<path d="M{x + wait:.0f} {y}h{body:.0f}v{tall}h-{body:.0f}z"/></g>'
        )
