"""What a notebook shows below a traced cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

from wire.errors import format_size
from wire.trace import page
from wire.trace.report import Report
from wire.trace.rows import Run


def write_cell(run: Run, report: Report, words: Sequence[str]) -> str:
    """Write what a notebook shows below a cell: a row for each line that asked, and the page of the trace."""
    counts = Counter(run.sites)
    rows = []
    for site, count in counts.most_common():
        label = "not known" if site is None else f"{site.file}, line {site.line}"
        if site is not None and not site.is_certain:
            label = f"about {label}"
        inside = [row for row, place in zip(run.rows, run.sites, strict=True) if place == site]
        waited_s = _sum_spans([(row.start_s, row.end_s or row.start_s) for row in inside])
        rows.append((waited_s, label, site.source if site else "", count, inside))
    rows.sort(key=lambda row: -row[0])
    body = "".join(
        f"<tr><td>{escape(label)}</td><td><code>{escape(source)}</code></td><td>{count}</td>"
        f"<td>{format_size(sum(row.nbytes for row in inside))}</td><td>{waited_s:.2f} s</td></tr>"
        for waited_s, label, source, count, inside in rows
    )
    unseen = (
        f"<p>Not seen: {escape('; '.join(run.unseen))}. What was opened before the first"
        " traced cell goes past the gateway: open it again.</p>"
        if run.unseen
        else ""
    )
    return (
        f"{unseen}<table><thead><tr><th>line</th><th></th><th>requests</th><th>read</th>"
        f"<th>waited</th></tr></thead><tbody>{body}</tbody></table>"
        + page.write_cell(run, report, words)
    )


def _sum_spans(spans: list[tuple[float, float]]) -> float:
    """Return for how many seconds at least one of some spans lasted."""
    total_s, until_s = 0.0, float("-inf")
    for begin_s, end_s in sorted(spans):
        total_s += max(0.0, end_s - max(begin_s, until_s))
        until_s = max(until_s, end_s)
    return total_s
