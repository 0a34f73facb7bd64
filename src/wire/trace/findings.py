"""The report of a run: what it waited for in each phase, which known causes that has, and what mends them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING

from wire.deadline import deadline
from wire.errors import format_size
from wire.models import WORTH
from wire.models.transfer import Network, count_waits
from wire.trace import analysis
from wire.trace.causes import REGISTRY, Cause, Evidence
from wire.trace.causes.clients import explain_no_effect, find_clients
from wire.trace.causes.results import describe_status
from wire.trace.phases import Phase, Timeline, join_intervals
from wire.trace.report import Finding, PhaseReport, Report
from wire.trace.whatif import Trace

if TYPE_CHECKING:
    from wire.trace.rows import Run
    from wire.trace.whatif import Edit

__all__ = ["WITHIN_S", "explain_no_effect", "find", "find_causes", "find_clients", "report"]

N_PRINTED = 4
MOST_LINES = 100
"""Lines of a program in which causes are sought that are worth a change only at several together."""

_LEAST_S = 0.1  # that a change saves
_LEAST_SHARE = 0.03  # of the run that a change of one phase saves
_UNSEEN_NBYTES_PER_S = 50e6  # of a stream that no body shows
_SURE = 1.2  # times the time predicted, above which on a slower network the gain is one at most
_ALONE = (
    0.9  # share of its seconds in which a phase waits alone, below which its gain is one at most
)
_LIKELY = 0.5  # weight of a cause, below which it is no more than possible
_BEST_IN_FLIGHT = 64  # requests at once that nothing forbids
_SAME = 0.5  # share of the requests of a cause that are those of another, of which it is a part


@dataclass(frozen=True, slots=True)
class _Networks:
    """Hold the network that is likely, the slowest that the trace does not rule out, and what it shows."""

    likely: Network
    slowest: Network
    observed: Network


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Hold a cause in some requests, with the seconds that it takes."""

    cause: Cause
    trace: Trace  # of the requests among which it was sought
    evidence: Evidence
    base_s: float  # that these take as they are
    saved_s: float  # of these, as is likely
    saved_least_s: float = 0.0
    saved_most_s: float = 0.0


def find(run: Run, on: Network | None = None) -> list[Finding]:
    """Find known causes in a run, those that give a wrong result first and then by predicted gain.

    One that gains less than what is worth a change is none. On another network than that of the trace
    both times are predicted.
    """
    return find_causes(Timeline(Trace(run, on)))


def find_causes(timeline: Timeline) -> list[Finding]:
    """Find known causes in each phase of a run and in all of it, as `find` does."""
    trace = timeline.trace
    if not trace.rows:
        return []
    networks = _bound_networks(trace)
    wall_s = _predict_wall(trace, networks.likely) - timeline.pauses_s
    findings = list[Finding]()
    absorbed = set[str]()
    for number, (phase, groups) in enumerate(_seek_in_phases(timeline.phases, networks, wall_s)):
        for group in _absorb(groups):
            absorbed.update(group[0].cause.absorbs)
            findings.append(_make_finding(group, phase, number, wall_s, timeline))
    whole = Phase(trace, range(len(trace.rows)))
    candidates = [
        [candidate]
        for cause in REGISTRY.values()
        if cause.scope == "run" and cause.name not in absorbed
        for candidate in _choose(_seek(cause, [trace], networks), networks, wall_s)
    ]
    for group in _absorb(candidates):
        findings.append(_make_finding(group, whole, -1, wall_s, timeline))
    return _sort_findings(findings)


def _sort_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Order causes: a wrong result, then gains that are predicted, then those of at most so much.

    Among each the cause comes first that saves most seconds at all of its lines, but for causes of
    which the trace shows little more than that they are possible: these are the last.
    """
    saved_s = defaultdict[str, float](float)
    for finding in findings:
        saved_s[finding.name] += finding.saved_s
    is_most = {
        name: all(
            finding.is_bound and not finding.least_gain
            for finding in findings
            if finding.name == name
        )
        for name in saved_s
    }
    return sorted(
        findings,
        key=lambda finding: (
            REGISTRY[finding.name].rank, is_most[finding.name],
            is_most[finding.name] and REGISTRY[finding.name].weight < _LIKELY,
            -saved_s[finding.name], finding.name,
            -finding.saved_s,
        ),
    )  # fmt: skip


def _seek_in_phases(
    phases: Sequence[Phase], networks: _Networks, wall_s: float
) -> list[tuple[Phase, list[list[_Candidate]]]]:
    """Seek causes in each phase: those that are worth a change there, and those that are at all lines together.

    A cause that is spread over fifty lines, none of which is worth a change alone, is one all the same.
    Of such lines those count that waited longest.
    """
    sought = [
        _seek_in_phase(phase, networks, wall_s, has_small=number < MOST_LINES)
        for number, phase in enumerate(phases)
    ]
    spread_s = defaultdict[str, float](float)
    for _, small in sought:
        for candidate in small:
            spread_s[candidate.cause.name] += candidate.saved_s
    least_s = max(_LEAST_S, _LEAST_SHARE * wall_s)
    return [
        (
            phase,
            [
                *groups,
                *(
                    [_bound(candidate, networks)]
                    for candidate in small
                    if spread_s[candidate.cause.name] >= least_s
                ),
            ],
        )
        for phase, (groups, small) in zip(phases, sought, strict=True)
    ]


def _seek_in_phase(
    phase: Phase, networks: _Networks, wall_s: float, *, has_small: bool
) -> tuple[list[list[_Candidate]], list[_Candidate]]:
    """Seek each cause in the whole phase, then in its stretches; where no line is known, in its pieces.

    The first of these in which there is any counts, so that what holds of all of a phase is reported
    as one, and one concurrent read hides nothing. The second list has causes of the whole phase that
    save too little to be worth a change alone.
    """
    groups, small = list[list[_Candidate]](), list[_Candidate]()
    for cause in REGISTRY.values():
        if cause.scope != "phase":
            continue
        if cause.rank and not has_small and not _is_long(phase.trace, wall_s):
            continue
        in_all = _seek(cause, [phase.trace], networks)
        candidates = _choose(in_all, networks, wall_s)
        if not candidates and _is_long(phase.trace, wall_s):
            parts = [part for part in phase.stretches if _is_long(part, wall_s)]
            candidates = _choose(_seek(cause, parts, networks), networks, wall_s)
            if not candidates and phase.trace.code_line is None:
                parts = [part for part in phase.pieces if _is_long(part, wall_s)]
                candidates = _choose(_seek(cause, parts, networks), networks, wall_s)
        if candidates:
            groups.append(candidates)
        else:
            small += in_all
    return groups, small


def _is_long(trace: Trace, wall_s: float) -> bool:
    """Find whether some requests take so long that a change of them can be worth it.

    On another network they may take longer than they took.
    """
    return trace.network is not None or trace.span_s >= max(_LEAST_S, _LEAST_SHARE * wall_s)


def _choose(
    candidates: Sequence[_Candidate], networks: _Networks, wall_s: float
) -> list[_Candidate]:
    """Choose what is worth a change of the run, or makes its result wrong, with the bounds of its gain."""
    least_s = max(_LEAST_S, _LEAST_SHARE * wall_s)
    return [
        _bound(candidate, networks)
        for candidate in candidates
        if not candidate.cause.rank or candidate.saved_s >= least_s
    ]


def _seek(cause: Cause, traces: Sequence[Trace], networks: _Networks) -> list[_Candidate]:
    """Seek a cause in parts of a run; those that a change makes faster by more than a little."""
    candidates = list[_Candidate]()
    for trace in traces:
        evidence = cause.find(trace)
        if evidence is None or len(evidence.rows) < cause.least:
            continue
        candidate = _predict(cause, trace, evidence, networks)
        if not cause.rank or candidate.saved_s >= candidate.base_s * (1 - 1 / WORTH):
            candidates.append(candidate)
    return candidates


def _absorb(groups: list[list[_Candidate]]) -> list[list[_Candidate]]:
    """Leave out causes that are a part of another that was found in the same requests."""
    rows = [
        {place for candidate in group for place in _origin_of(candidate)} for group in groups
    ]  # of each cause, in the run
    hidden = {
        j
        for i, group in enumerate(groups)
        for j, partial in enumerate(groups)
        if partial[0].cause.name in group[0].cause.absorbs
        and len(rows[i] & rows[j]) >= _SAME * len(rows[j])
        and sum(part.saved_s for part in partial) <= 2 * sum(part.saved_s for part in group)
    }
    return [group for i, group in enumerate(groups) if i not in hidden]


def _origin_of(candidate: _Candidate) -> list[int]:
    return [candidate.trace.origin[i] for i in candidate.evidence.rows]


def _predict(cause: Cause, trace: Trace, evidence: Evidence, networks: _Networks) -> _Candidate:
    """Predict what a phase takes as it is, and without a cause, on the network that is likely."""
    if evidence.edit is None:
        base_s = trace.asking_s
        return _Candidate(cause, trace, evidence, base_s, min(evidence.saved_s, base_s))
    is_here = trace.network is None
    base_s = trace.span_s if is_here else trace.base_seconds(networks.likely)
    saved_s = base_s * _predict_share(trace, evidence.edit, networks.likely)
    return _Candidate(cause, trace, evidence, base_s, saved_s)


def _predict_share(trace: Trace, edit: Edit, network: Network) -> float:
    """Predict the share of its seconds that a trace saves with an edit."""
    before_s = trace.base_seconds(network)
    return 1 - trace.seconds(edit, network) / before_s if before_s else 0.0


def _bound(candidate: _Candidate, networks: _Networks) -> _Candidate:
    """Add what a change saves at least and at most.

    At least: on the slowest network that the trace does not rule out. At most: on the network as
    observed, whose rates are without bound where no body showed one. Where the cause says that it
    gains so much at most, the replay is of `_make_best`, which is an upper bound of what the change
    saves, for four reasons. All requests of the cause begin as soon as the first of them could, as
    many as there are up to 64, whether they need one another or not; no program begins one earlier.
    Each brings the bytes that the change leaves of it, after the first byte that it had, and no
    connection is set up for it. Its body takes no longer than at the rate that the fastest quarter of
    bodies had, and shares no link of which nothing was seen. And what the program computes between
    them goes on side by side. Beyond it is a change that does more than its cause describes, such as
    reading fewer bytes, and a store that answers faster than it did.
    """
    edit = candidate.evidence.edit
    if edit is None:
        return replace(candidate, saved_most_s=candidate.saved_s)
    trace, base_s, saved_s = candidate.trace, candidate.base_s, candidate.saved_s
    least_s, most_s = saved_s, saved_s
    if networks.slowest != networks.likely:
        least_s = base_s * _predict_share(trace, edit, networks.slowest)
    is_most = candidate.cause.is_bound or candidate.evidence.is_bound
    if is_most or not networks.observed == networks.likely == networks.slowest:
        most_edit = _make_best(candidate.evidence.rows if is_most else (), edit)
        most_s = base_s * _predict_share(trace, most_edit, networks.observed)
    return replace(
        candidate, saved_least_s=min(saved_s, least_s), saved_most_s=max(saved_s, most_s)
    )


def _make_best(places: Sequence[int], edit: Edit) -> Edit:
    """Make the edit than which none of its kind is faster: some requests wait for none of the others."""
    is_joined = any(len(request.rows) > 1 for request in edit.requests)
    if not places or not (edit.free or is_joined):
        return replace(edit, is_best=True)
    return replace(
        edit,
        is_best=True,
        n_in_flight=max(edit.n_in_flight, _BEST_IN_FLIGHT),
        free=edit.free | frozenset(places),
    )


def _make_finding(
    group: Sequence[_Candidate], phase: Phase, number: int, wall_s: float, timeline: Timeline
) -> Finding:
    """Report a cause of a phase, as a user reads it."""
    cause = group[0].cause
    longest = max(group, key=lambda candidate: candidate.saved_s)
    evidence, trace = longest.evidence, longest.trace
    base_s, saved_s, least_s, most_s = (
        sum(getattr(candidate, name) for candidate in group)
        for name in ("base_s", "saved_s", "saved_least_s", "saved_most_s")
    )
    rows = [trace.rows[i] for i in evidence.rows] or trace.rows
    call = phase.trace.code_line.library_call if phase.trace.code_line else ""
    remedy = cause.remedy_for(call, find_clients(rows))
    text = remedy.text
    for name, value in evidence.values.items():
        text = text.replace(f"{{{name}}}", value)
    is_most = evidence.edit is None or cause.is_bound or evidence.is_bound
    is_sure = base_s - least_s <= _SURE * (base_s - saved_s)
    is_bound = is_most or not is_sure or phase.share_alone < _ALONE
    top_s = most_s if is_bound else saved_s
    low_s = least_s if is_bound else saved_s
    low_s *= phase.share_alone if phase.share_alone < _ALONE else 1.0
    has_gain = cause.rank == 1  # none of a wrong result, nor where nothing but reading less helps
    has_least = has_gain and not is_most
    pauses_s = timeline.pauses_s
    more = f", and {len(group) - 1} times more" if len(group) > 1 else ""
    return Finding(
        name=cause.name,
        title=cause.title,
        count=sum(len(candidate.evidence.rows) for candidate in group),
        evidence=evidence.text + more,
        line=text,
        gain=_times(wall_s, top_s) if has_gain else 0.0,
        seconds=max(wall_s - top_s, 1e-3) + pauses_s,
        is_bound=is_bound,
        setting=remedy.setting if remedy.setting and cause.can_try(trace, evidence) else "",
        see=cause.see,
        least_gain=_times(wall_s, low_s) if has_least else 0.0,
        phase=number,
        phase_gain=_times(base_s, top_s) if has_gain else 0.0,
        phase_least_gain=_times(base_s, low_s) if has_least else 0.0,
        phase_seconds=base_s,
        saved_s=top_s if has_gain else 0.0,
        least_saved_s=low_s if has_least else 0.0,
        waited_s=_measure_wait(group, timeline),
        rows=sorted({place for candidate in group for place in _origin_of(candidate)}),
    )


def _measure_wait(group: Sequence[_Candidate], timeline: Timeline) -> float:
    """Measure the seconds with requests under way that a cause concerns, or that it would set free."""
    rows = timeline.trace.rows
    places = {
        candidate.trace.origin[i]
        for candidate in group
        for i in (
            *candidate.evidence.rows, *(candidate.evidence.edit.free if candidate.evidence.edit else ())
        )
    }  # fmt: skip
    busy = join_intervals((rows[i].start_s, rows[i].end_s) for i in sorted(places))
    return sum(end_s - begin_s for begin_s, end_s in busy)


def _times(seconds: float, saved_s: float) -> float:
    """Compute how many times as fast something is without some of its seconds."""
    return seconds / max(seconds - saved_s, 1e-3)


def _bound_networks(trace: Trace) -> _Networks:
    """Return the network that is likely, and the slowest that the trace does not rule out.

    A rate that no body showed may be much lower, and a link may carry no more than it was seen to.
    """
    observed = trace.observed
    is_shown = isfinite(observed.stream_nbytes_per_s)
    rate = observed.stream_nbytes_per_s if is_shown else _UNSEEN_NBYTES_PER_S
    likely, low = replace(observed, stream_nbytes_per_s=rate), rate if is_shown else rate / 5
    together = min(observed.aggregate_nbytes_per_s, low * max(1, analysis.most_bodies(trace.rows)))
    slowest = replace(likely, stream_nbytes_per_s=low, aggregate_nbytes_per_s=together)
    return _Networks(likely, slowest, observed)


def _predict_wall(trace: Trace, network: Network) -> float:
    """Compute what the program takes: as it was, or on another network in place of its own."""
    wall_s = trace.run.wall_s
    if trace.network is None or not trace.rows:
        return wall_s
    return wall_s - trace.span_s + trace.base_seconds(network)


WITHIN_S = 8.0
"""Seconds in which a report is made: of a larger trace it has the requests alone."""


def report(
    run: Run, on: tuple[str, Network] = ("", Network()), *, within_s: float = WITHIN_S
) -> Report:
    """Report what a run asked for, what it waited for and what is known to mend it.

    What takes longer than `within_s` is left out, and the report says so: first the causes, then
    whatever takes more than a count.
    """
    name, network = on
    counted: Report | None = None
    try:
        with deadline(within_s):
            timeline = Timeline(Trace(run, network if name else None))
            counted = _count(timeline, name)
            trace = timeline.trace
            notes = [*counted.notes]
            if trace.n_replayed < len(trace.rows):
                notes.append(
                    f"gains are predicted from {trace.n_replayed:,} of {len(trace.rows):,} requests"
                )
            if (n_lines := len(timeline.phases)) > MOST_LINES:
                notes.append(
                    f"causes that save little at a line were sought in {MOST_LINES} of"
                    f" {n_lines:,} lines, those that waited longest"
                )
            findings = find_causes(timeline)
            whole = replace(counted, findings=findings, notes=notes)
            return replace(whole, verdict=write_verdict(whole))
    except TimeoutError:
        counted = counted or _list(run, name)
        note = (
            f"causes were not sought: {len(run.rows):,} requests take longer than"
            f" {within_s:g} s to analyse"
        )
        return replace(counted, notes=[*counted.notes, note], verdict=write_verdict(counted))


def write_verdict(report: Report) -> str:
    """Write in one sentence what a program waits for, in plain words."""
    n_refused = sum(report.refused.values())
    total = format_seconds(report.predicted_s)
    if not report.n_requests:
        return f"No request of your program was seen in {total}."
    if n_refused == report.n_requests:
        status = describe_status(next(iter(report.refused)))
        return (
            f"The store refused every one of {n_refused:,} requests ({status}): nothing was read."
        )
    if report.findings:
        first = report.findings[0]
        cause = REGISTRY[first.name]
        if cause.rank == 0:
            return f"Your program spends its time {cause.sentence}."
        waits_s = [finding.waited_s for finding in report.findings if finding.name == first.name]
        spent_s = sum(waits_s) if first.phase >= 0 else _waiting_s(report, first.name)
        spent_s = min(spent_s, report.predicted_s)
        return f"Your program spends {format_seconds(spent_s)} of {total} {cause.sentence}."
    if not report.time_s:
        return f"Your program made {report.n_requests:,} requests in {total}."
    waits = format_seconds(min(_waiting_s(report, ""), report.predicted_s))
    return (
        f"Your program spends {waits} of {total} waiting for the store,"
        " and nothing that is known would make it faster."
    )


def _waiting_s(report: Report, name: str) -> float:
    """Return the seconds that a cause of the whole run is about."""
    parts = {
        "processor": ("processor", "client"),
        "link": ("bodies",),
        "credentials": ("idle", "first bytes"),
    }.get(name, ("connections", "first bytes", "bodies"))
    return sum(report.time_s.get(part, 0.0) for part in parts)


def format_seconds(seconds: float) -> str:
    """Write a duration with two or three digits.

    Examples
    --------
    >>> [format_seconds(value) for value in (0.1234, 12.34, 1234.0)]
    ['0.12 s', '12 s', '1,234 s']
    """
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds:,.0f} s"


def _list(run: Run, name: str) -> Report:
    """Report what needs one look at each request."""
    past = [
        f"connection of pid {bypass.pid} ({bypass.name}) to {bypass.address} past the gateway"
        f"{'; ' * bool(bypass.remedy)}{bypass.remedy}"
        for bypass in run.bypassed
    ]
    tunnels = [
        f"{tunnel.host}, {format_size(tunnel.nbytes_down)} passed on unread: {tunnel.reason}"
        for tunnel in run.unread
    ]
    refused = Counter(row.status for row in run.rows if row.status >= 400 or not row.status)
    return Report(
        verdict="",
        wall_s=run.wall_s,
        exit_code=run.exit_code,
        n_requests=len(run.rows),
        hosts=sorted({row.host for row in run.rows}),
        n_waits=count_waits(row for row in run.rows if row.end_s),
        n_in_flight=0,
        moved_nbytes=sum(row.nbytes for row in run.rows),
        unique_nbytes=0,
        sent_nbytes=sum(row.sent_nbytes for row in run.rows),
        time_s={},
        kinds={},
        first_byte_s=(0.0, 0.0),
        stream_mb_per_s=0.0,
        gateway_share=run.gateway_s / run.wall_s,
        on=name,
        predicted_s=run.wall_s,
        findings=[],
        not_known=[*run.uncertain],
        not_seen=[*past, *tunnels, *run.missing, *run.remarks],
        refused=dict(refused.most_common()),
    )


def _count(timeline: Timeline, name: str) -> Report:
    """Report what is counted, and the network that the requests show."""
    trace = timeline.trace
    rows, observed = trace.rows, trace.observed
    rate = observed.stream_nbytes_per_s
    return replace(
        _list(trace.run, name),
        n_in_flight=analysis.most_in_flight(rows),
        unique_nbytes=analysis.unique_nbytes(rows),
        time_s=trace.time,
        kinds=dict(Counter(trace.kinds).most_common()),
        first_byte_s=(observed.first_byte_median_s, observed.first_byte_p95_s),
        stream_mb_per_s=rate / 1e6 if isfinite(rate) else 0.0,
        predicted_s=_predict_wall(trace, observed),
        phases=[*_describe_phases(timeline)],
        pauses_s=timeline.pauses_s,
        account_s=_make_account(timeline),
    )


def _make_account(timeline: Timeline) -> dict[str, float]:
    """Add up what the wall time was made of: idle seconds are those of pauses, start-up included."""
    time_s = timeline.trace.time
    # before the first request
    start_pauses_s = min(timeline.pauses_s - timeline.trace.pauses_s, time_s["start"])
    return {
        "start-up": time_s["start"] - start_pauses_s,
        "waiting": time_s["first bytes"] + time_s["bodies"] + time_s["client"],
        "connections": time_s["connections"],
        "processor": time_s["processor"],
        "idle": time_s["idle"] + start_pauses_s,
    }


def _describe_phases(timeline: Timeline) -> Iterator[PhaseReport]:
    """Describe what each phase asked for."""
    begin_s = timeline.trace.run.begin_s
    for phase in timeline.phases:
        rows = phase.trace.rows
        yield PhaseReport(
            code_line=phase.trace.code_line,
            client=find_clients(rows)[-1],
            n_requests=len(rows),
            n_waits=count_waits(rows),
            n_in_flight=analysis.most_in_flight(rows),
            moved_nbytes=sum(row.nbytes for row in rows),
            waited_s=phase.waited_s,
            begin_s=rows[0].start_s - begin_s,
            end_s=max(row.end_s for row in rows) - begin_s,
        )
