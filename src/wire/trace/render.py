"""A report as one screen."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence

from wire.errors import cut, format_size, printable
from wire.trace.causes.results import describe_status
from wire.trace.findings import N_PRINTED, format_seconds
from wire.trace.report import Finding, Report

BOOK = "https://arrays-over-the-wire.github.io/arrays-over-the-wire/"
_TIME = {
    "start": "before the first request", "connections": "setting up connections", "first bytes": "latency",
    "bodies": "receiving", "client": "the client cannot keep up", "processor": "CPU",
    "idle": "idle",
}  # fmt: skip
_INDENT = " " * 10
_WORTH_A_LINE = 0.05  # share of the time
_LIMIT = 0.5  # share of a processor from which on the gateway may be what is waited for


def render(report: Report, command: Sequence[str]) -> Iterator[str]:
    """Write a report as lines of text, whatever hosts and names hold."""
    yield from (printable(line).replace("\n", r"\n") for line in _render(report, command))


def _render(report: Report, command: Sequence[str]) -> Iterator[str]:
    yield report.verdict
    if not report.n_requests:
        yield from (f"not seen: {place}" for place in report.not_seen)
        return
    yield from _summarise(report)
    yield from _list_phases(report, command)
    yield from report.notes
    yield from (f"not seen: {place}" for place in report.not_seen)


def _list_phases(report: Report, command: Sequence[str]) -> Iterator[str]:
    """Write where a program waited, with the causes that are worth a change, the most serious first."""
    printed = report.findings[:N_PRINTED]
    # the phase of the most serious cause comes first, then those without one by their time
    numbers = list(dict.fromkeys(finding.phase for finding in printed))
    longest = [number for number in range(len(report.phases)) if number not in numbers]
    wall_s = report.reading_s
    for number in numbers:
        yield _name_phase(report, number)
        for finding in printed:
            if finding.phase == number:
                yield from _describe_finding(finding, report, command)
    for number in longest[: N_PRINTED - len(numbers)]:
        if report.phases[number].waited_s >= _WORTH_A_LINE * wall_s:
            yield f"{_name_phase(report, number)}: nothing known to change"
    busy_s = sum(report.time_s.get(part, 0.0) for part in ("start", "processor"))
    if busy_s >= _WORTH_A_LINE * wall_s:
        yield f"{_align(busy_s)}  start-up and CPU"


def _name_phase(report: Report, number: int) -> str:
    """Write a phase: its seconds, its line in the program, and its requests."""
    if not 0 <= number < len(report.phases):
        return f"{_align(report.reading_s)}  the whole program"
    phase = report.phases[number]
    requests = f"{phase.n_requests:,} requests"
    if phase.code_line is None:
        client = f" of {phase.client}" if phase.client else ""
        return f"{_align(phase.waited_s)}  {requests}{client}"
    source = f"  {cut(phase.code_line.source)}" if phase.code_line.source else ""
    return f"{_align(phase.waited_s)}  {phase.code_line.label}{source}  ({requests})"


def _align(seconds: float) -> str:
    return f"{format_seconds(seconds):>8}"


def _describe_finding(finding: Finding, report: Report, command: Sequence[str]) -> Iterator[str]:
    """Write a cause: what was seen of it, what to write instead, what that gains, and how to try it."""
    yield f"{_INDENT}{finding.title}: {finding.evidence}"
    for mark, line in zip(("->", *["  "] * 99), finding.line.splitlines(), strict=False):
        yield f"{_INDENT}{mark} {line}"
    if gain := describe_gain(finding, report):
        yield f"{_INDENT}   {gain}"
    if finding.setting and command:
        yield (
            f"{_INDENT}-> wire trace --try {finding.setting} {shlex.join(command)}   measures it"
        )
    yield f"{_INDENT}   {BOOK}{finding.see}"


def _summarise(report: Report) -> Iterator[str]:
    """Write what was asked for and what it took, without causes."""
    if report.gateway_share > _LIMIT:
        yield f"the gateway used a CPU for {_percent(report.gateway_share)} of the time: it may be the limit"
    if not report.n_requests:
        yield f"no request was seen in {_seconds(report.wall_s)}, exit code {report.exit_code}"
        return
    n_hosts = f"{len(report.hosts)} hosts" if len(report.hosts) > 1 else cut(report.hosts[0])
    sent = f"; {format_size(report.sent_nbytes)} sent" if report.sent_nbytes else ""
    counts = (
        f"{report.n_requests:,} requests to {n_hosts} in {_seconds(report.wall_s)},"
        f" {report.n_waits:,} of them one after the other"
    )
    if not report.time_s:  # which takes longer than a count
        yield f"{counts}; {format_size(report.moved_nbytes)} moved{sent}"
        return
    yield (
        f"{counts}, at most {report.n_in_flight} concurrent;"
        f" {format_size(report.moved_nbytes)} moved, {format_size(report.unique_nbytes)} of it once{sent}"
    )
    shares = [f"{share} {_TIME[what]}" for what, share in _shares(report).items() if share != "0 %"]
    yield f"  time: {', '.join(shares)}; gateway {_percent(report.gateway_share)}"
    yield f"  requests: {', '.join(f'{n:,} {kind}' for kind, n in report.kinds.items())}"
    if report.refused:
        yield f"  failed: {', '.join(_refusals(report))}"
    median_s, p95_s = report.first_byte_s
    stream = f", {report.stream_mb_per_s:.0f} MB/s a connection" if report.stream_mb_per_s else ""
    yield f"  network: latency {1000 * median_s:.0f} ms, 95th percentile {1000 * p95_s:.0f}{stream}"
    if report.on:
        yield f"  on {report.on}: {_seconds(report.predicted_s)}, predicted"


def _refusals(report: Report) -> Iterator[str]:
    """Name the answers that were none, as the standard does."""
    for status, number in report.refused.items():
        yield f"{number:,} of {report.n_requests:,} {describe_status(status)}"


def _shares(report: Report) -> dict[str, str]:
    """Write shares of the time in whole per cent that add up to a hundred: the largest rests are rounded up."""
    total_s = sum(report.time_s.values())
    exact = {what: 100 * seconds / total_s for what, seconds in report.time_s.items()}
    floors = {what: math.floor(share) for what, share in exact.items()}
    rests = sorted(exact, key=lambda what: floors[what] - exact[what])
    up = {*rests[: 100 - sum(floors.values())]}
    return {what: f"{floors[what] + (what in up)} %" for what in exact}


def describe_gain(finding: Finding, report: Report) -> str:
    """Describe what a change gains: of the phase where that is not the whole, and of the program."""
    if not finding.gain:
        return ""
    times = f"{_seconds(finding.seconds)} instead of {_seconds(report.predicted_s)}"
    low, high = f"{finding.least_gain:.2g}", f"{finding.gain:.2g}"
    if not finding.is_bound or (finding.least_gain and low == high):
        gain = f"predicted {high}x faster: {times}"
    elif not finding.least_gain:
        gain = f"at most {high}x faster: {times}"
    else:
        gain = (
            f"predicted {low}x to {high}x faster, for the trace does not show enough"
            f" for one number: {times} at best"
        )
    phase_high = f"{finding.phase_gain:.2g}"
    if finding.phase < 0 or phase_high == high:
        return gain
    most = "up to " if finding.is_bound else ""
    return f"{gain} ({most}{phase_high}x for these requests alone)"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1f} %"
