"""A report as one screen."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from wire.errors import cut, format_size, printable
from wire.trace.causes.results import describe_status
from wire.trace.findings import N_PRINTED
from wire.trace.report import Finding, PhaseReport, Report

BOOK = "https://arrays-over-the-wire.github.io/arrays-over-the-wire/"
_ACCOUNT = {
    "start-up": "start-up, before the first request",
    "processor": "CPU: the program computes",
    "connections": "setting up connections",
    "idle": "idle: pauses, sleep, or other programs on this machine",
}
_WORTH_A_LINE = 0.02  # share of the time
_MOST_LINES = 5  # of a program, in the account
_LIMIT = 0.5  # share of a processor from which on the gateway may be what is waited for


def render(report: Report, command: Sequence[str]) -> Iterator[str]:
    """Write a report as lines of text, whatever hosts and names hold."""
    yield from (printable(line).replace("\n", r"\n") for line in _render(report, command))


def _render(report: Report, command: Sequence[str]) -> Iterator[str]:
    yield report.verdict
    if not report.n_requests:
        yield from _list_unseen(report)
        return
    yield from _summarise(report)
    yield from _write_account(report)
    yield from _list_changes(report, command)
    yield from report.notes
    yield from _list_unseen(report)


def _list_unseen(report: Report) -> Iterator[str]:
    yield from (f"not known whether seen: {phrase}" for phrase in report.not_known)
    yield from (f"not seen: {place}" for place in report.not_seen)


def _write_account(report: Report) -> Iterator[str]:
    """Write what the wall time was made of, line by line; the seconds add up to it."""
    if not report.account_s:
        return
    phases = sorted(report.phases, key=lambda phase: -phase.waited_s)[:_MOST_LINES]
    rows = [
        (report.account_s["start-up"], _ACCOUNT["start-up"]),
        *((phase.waited_s, f"waiting: {_name_phase(phase)}") for phase in phases),
        *((report.account_s[name], text) for name, text in _ACCOUNT.items() if name != "start-up"),
    ]
    rows = [row for row in rows if row[0] >= _WORTH_A_LINE * report.wall_s]
    rows.append((report.wall_s - sum(seconds for seconds, _ in rows), "the rest"))
    yield f"{_seconds(report.wall_s)} went to:"
    texts = _round([seconds for seconds, _ in rows], report.wall_s)
    for (_, name), text in zip(rows, texts, strict=True):
        if text.strip(" 0.s"):
            yield f"{text}  {name}"


def _round(parts_s: Sequence[float], total_s: float) -> list[str]:
    """Write seconds so that they add up as printed: the largest rests are rounded up."""
    n_digits = 0 if total_s >= 1000 else 1 if total_s >= 10 else 2
    unit = 10**n_digits
    floors = [math.floor(unit * seconds) for seconds in parts_s]
    n_missing = round(unit * sum(parts_s)) - sum(floors)
    by_rest = sorted(range(len(floors)), key=lambda i: floors[i] - unit * parts_s[i])
    for i in by_rest[:n_missing]:
        floors[i] += 1
    return [f"{number / unit:8,.{n_digits}f} s" for number in floors]


def _name_phase(phase: PhaseReport) -> str:
    """Write a line of the program, or the client of requests whose line is not known."""
    requests = f"{phase.n_requests:,} request{'s' * (phase.n_requests > 1)}"
    if phase.code_line is None:
        return f"{requests}{f' of {phase.client}' if phase.client else ''}"
    source = f"  {cut(phase.code_line.source)}" if phase.code_line.source else ""
    return f"{phase.code_line.label}{source}  ({requests})"


def _list_changes(report: Report, command: Sequence[str]) -> Iterator[str]:
    """Write what is worth a change, each cause once with all its lines, the most serious first."""
    groups = dict[str, list[Finding]]()
    for finding in report.findings:
        groups.setdefault(finding.name, []).append(finding)
    if any(finding.phase_gain for finding in report.findings):
        yield "What would help, of the seconds from the first request of a line to its last:"
    for number, group in enumerate([*groups.values()][:N_PRINTED]):
        yield from _describe_cause(group, report, command, is_book_named=number == 0)


def _describe_cause(
    group: Sequence[Finding], report: Report, command: Sequence[str], *, is_book_named: bool
) -> Iterator[str]:
    """Write a cause: what was seen of it, what to write instead, what that gains, and how to try it."""
    first = group[0]
    count = sum(finding.count for finding in group)
    evidence = first.evidence if len(group) == 1 else f"{first.title}, {count:,} requests"
    yield f"{_describe_saving(group)}{evidence}"
    by_text = dict[str, list[Finding]]()
    for finding in group:
        by_text.setdefault(finding.line, []).append(finding)
    for text, findings in by_text.items():
        places = _name_places(findings, report)
        lines = text.splitlines()
        yield f"  {places}-> {lines[0]}"
        indent = " " * len(places)
        yield from (f"  {indent}   {line}" for line in lines[1:])
        if gain := describe_gain(_add_up(findings), report):
            yield f"  {indent}   {gain}"
    setting = next((finding.setting for finding in group if finding.setting), "")
    if setting and command:
        yield f"  measure it: wire trace --try {setting} {shlex.join(command)}"
    yield f"  why: {BOOK if is_book_named else ''}{first.see}"


def _add_up(findings: Sequence[Finding]) -> Finding:
    """Add up what one change gains at several lines."""
    before_s, saved_s, least_saved_s = (
        sum(getattr(finding, name) for finding in findings)
        for name in ("phase_seconds", "saved_s", "least_saved_s")
    )
    if len(findings) == 1 or not saved_s:
        return findings[0]
    has_least = all(finding.phase_least_gain for finding in findings)
    return replace(
        findings[0],
        is_bound=any(finding.is_bound for finding in findings),
        phase_seconds=before_s,
        saved_s=saved_s,
        phase_gain=before_s / max(before_s - saved_s, 1e-3),
        phase_least_gain=before_s / max(before_s - least_saved_s, 1e-3) if has_least else 0.0,
    )


def _describe_saving(group: Sequence[Finding]) -> str:
    """Write the seconds that a cause takes, at all of its lines."""
    saved_s = sum(finding.saved_s for finding in group)
    if not saved_s:
        return ""
    least_s = sum(finding.least_saved_s for finding in group)
    if not any(finding.is_bound for finding in group):
        return f"Save {_short(saved_s)}: "
    if least_s and _short(least_s) != _short(saved_s):
        return f"Save {_short(least_s)} to {_short(saved_s)}: "
    return f"Save {'' if least_s else 'up to '}{_short(saved_s)}: "


def _name_places(findings: Sequence[Finding], report: Report) -> str:
    """Name the lines of some causes: `a.py:3, 7`; nothing where none is known."""
    lines = [
        report.phases[finding.phase].code_line
        for finding in findings
        if 0 <= finding.phase < len(report.phases)
    ]
    by_file = dict[str, list[str]]()
    for line in lines:
        if line is not None:
            name = line.label.rpartition(":")[0]
            numbers = by_file.setdefault(name, [])
            if str(line.line) not in numbers:
                numbers.append(str(line.line))
    text = "; ".join(f"{name}:{', '.join(numbers)}" for name, numbers in by_file.items())
    return f"{text}  " if text else ""


def _summarise(report: Report) -> Iterator[str]:
    """Write what was asked for, without causes."""
    if report.gateway_share > _LIMIT:
        yield f"the gateway used a CPU for {_percent(report.gateway_share)} of the time: it may be the limit"
    hosts = f"{len(report.hosts)} hosts" if len(report.hosts) > 1 else cut(report.hosts[0])
    sent = f"; {format_size(report.sent_nbytes)} sent" if report.sent_nbytes else ""
    counts = (
        f"{report.n_requests:,} requests to {hosts}, {report.n_waits:,} of them one after the other"
    )
    if not report.time_s:  # which takes longer than a count
        yield f"{counts}; {format_size(report.moved_nbytes)} moved{sent}"
        return
    yield (
        f"{counts}, at most {report.n_in_flight} concurrent;"
        f" {format_size(report.moved_nbytes)} moved, {format_size(report.unique_nbytes)} of it once{sent}"
    )
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in report.kinds.items())
    median_s, p95_s = report.first_byte_s
    stream = f", {report.stream_mb_per_s:.0f} MB/s a connection" if report.stream_mb_per_s else ""
    yield (
        f"  {kinds}; latency {1000 * median_s:.0f} ms, 95th percentile {1000 * p95_s:.0f}{stream};"
        f" gateway {_percent(report.gateway_share)}"
    )
    if {*report.refused} - {404}:
        yield f"  failed: {', '.join(_refusals(report))}"
    if report.on:
        yield f"  on {report.on}: {_seconds(report.predicted_s)}, predicted"


def _refusals(report: Report) -> Iterator[str]:
    """Name the answers that were none, as the standard does."""
    for status, number in report.refused.items():
        yield f"{number:,} of {report.n_requests:,} {describe_status(status)}"


def describe_gain(finding: Finding, report: Report) -> str:
    """Describe what a change gains at its line, or of the whole program where it has none."""
    if not finding.phase_gain:
        return ""
    low, high = f"{finding.phase_least_gain:.2g}", f"{finding.phase_gain:.2g}"
    before_s = finding.phase_seconds
    best = _short(max(before_s - finding.saved_s, 0.0))
    times = f"{best} instead of {_short(before_s)}"
    is_line = 0 <= finding.phase < len(report.phases)
    has_line = is_line and report.phases[finding.phase].code_line is not None
    where = "this line" if has_line else "these requests" if is_line else "the program"
    if not finding.is_bound or (finding.phase_least_gain and low == high):
        return f"predicted {high}x faster for {where}: {times}"
    if not finding.phase_least_gain:
        return f"at most {high}x faster for {where}: {times}"
    return (
        f"predicted {low}x to {high}x faster for {where}, for the trace does not show enough"
        f" for one number: {times} at best"
    )


def _short(seconds: float) -> str:
    """Write seconds with as many digits as the account has."""
    if seconds < 1:
        return f"{seconds:.2g} s"
    return f"{seconds:,.1f} s" if seconds < 100 else f"{seconds:,.0f} s"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1f} %"
