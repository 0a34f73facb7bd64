"""A report as one screen."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from http import HTTPStatus

from wire.errors import cut, format_size, printable
from wire.trace.findings import N_PRINTED
from wire.trace.report import Finding, Report

BOOK = "https://arrays-over-the-wire.github.io/arrays-over-the-wire/"
_TIME = {
    "start": "before the first request", "connections": "setting up connections", "first bytes": "latency",
    "bodies": "receiving", "client": "the client cannot keep up", "processor": "CPU",
    "idle": "idle",
}  # fmt: skip
_LIMIT = 0.5  # share of a processor from which on the gateway may be what is waited for


def render(report: Report, command: Sequence[str]) -> Iterator[str]:
    """Write a report as lines of text, whatever hosts and names hold."""
    yield from (printable(line).replace("\n", r"\n") for line in _render(report, command))


def _render(report: Report, command: Sequence[str]) -> Iterator[str]:
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
        yield f"the gateway used a CPU for {_percent(report.gateway_share)} of the time: it may be the limit"
    if not report.n_requests:
        yield f"no request was seen in {_seconds(report.wall_s)}, exit code {report.exit_code}"
        return
    n_hosts = f"{len(report.hosts)} hosts" if len(report.hosts) > 1 else cut(report.hosts[0])
    sent = f"; {format_size(report.sent_nbytes)} sent" if report.sent_nbytes else ""
    if not report.time_s:  # which takes longer than a count
        yield (
            f"{report.n_requests:,} requests to {n_hosts} in {_seconds(report.wall_s)};"
            f" {report.n_waits:,} waits one after the other; {format_size(report.moved_nbytes)} moved{sent}"
        )
        return
    yield (
        f"{report.n_requests:,} requests to {n_hosts} in {_seconds(report.wall_s)};"
        f" {report.n_waits:,} waits one after the other; at most {report.n_in_flight} concurrent;"
        f" {format_size(report.moved_nbytes)} moved, {format_size(report.unique_nbytes)} of it once{sent}"
    )
    shares = [f"{share} {_TIME[what]}" for what, share in _shares(report).items() if share != "0 %"]
    yield f"  time: {', '.join(shares)}; gateway {_percent(report.gateway_share)}"
    yield f"  asked: {', '.join(f'{n:,} {kind}' for kind, n in report.kinds.items())}"
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
        try:
            phrase = f"{status} {HTTPStatus(status).phrase}"
        except ValueError:
            phrase = f"status {status}" if status else "no answer"
        yield f"{number:,} of {report.n_requests:,} {phrase}"


def _shares(report: Report) -> dict[str, str]:
    """Write shares of the time in whole per cent that add up to a hundred: the largest rests are rounded up."""
    total_s = sum(report.time_s.values())
    exact = {what: 100 * seconds / total_s for what, seconds in report.time_s.items()}
    floors = {what: math.floor(share) for what, share in exact.items()}
    rests = sorted(exact, key=lambda what: floors[what] - exact[what])
    up = {*rests[: 100 - sum(floors.values())]}
    return {what: f"{floors[what] + (what in up)} %" for what in exact}


def _gain(one: Finding, report: Report) -> str:
    if not one.gain:
        return ""
    times = f"{_seconds(one.seconds)} instead of {_seconds(report.predicted_s)}"
    if not one.is_bound:
        return f"predicted {one.gain:.2g}x faster: {times}"
    low, high = f"{one.least_gain:.2g}", f"{one.gain:.2g}"
    if not one.least_gain or low == high:
        return f"{'predicted' if one.least_gain else 'at most'} {high}x faster: {times}"
    return f"predicted {low}x to {high}x faster, for the trace does not show the bandwidth: {times} at best"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1f} %"
