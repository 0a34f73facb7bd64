"""Phases of a run: the requests of each line of the program, and stretches of these that differ."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from math import inf
from typing import TYPE_CHECKING

from wire.errors import redact
from wire.models.transfer import TOLERANCE_S
from wire.trace.analysis import ElapsedTime
from wire.trace.causes.clients import client_of
from wire.trace.rows import METADATA_SERVICES, CallSite
from wire.trace.whatif import Clock, Trace

if TYPE_CHECKING:
    from wire.trace.rows import Run

PAUSE_S = 1.0
"""Idle seconds without a request from which on a gap is a pause of the user, and counts in no gain."""

_SERIES = 6  # requests alone, from which on a stretch is a phase of its own
_SWITCHES, _SHARE = 4, 0.25  # between two lines of a function, from which on they are one loop
_MOST_PARTS = 30  # of a phase in which causes are sought
_GAP_S = 1.0  # between two stretches of a program whose lines are not known


def join_intervals(rows: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Join intervals where they touch; they are in the order in which they begin.

    Examples
    --------
    >>> join_intervals([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    [(0.0, 3.0), (5.0, 6.0)]
    """
    joined = list[tuple[float, float]]()
    begin_s = end_s = -inf
    for start_s, stop_s in rows:
        if start_s > end_s:
            if end_s > -inf:
                joined.append((begin_s, end_s))
            begin_s = start_s
        end_s = max(end_s, stop_s)
    return [*joined, (begin_s, end_s)] if end_s > -inf else []


def find_pauses(run: Run, busy: Sequence[tuple[float, float]]) -> list[tuple[float, float, float]]:
    """Find where nothing is read and nothing computed: begin, end, and the idle seconds in between.

    A user who thinks between two cells, or a program that sleeps. None where credentials are sought
    past the gateway, for that is idle too.
    """
    begin_s, end_s = run.begin_s, run.begin_s + run.wall_s
    if any(bypass.address.startswith(METADATA_SERVICES) for bypass in run.bypassed):
        return []
    starts_s = [begin_s, *(stop_s for _, stop_s in busy)]
    stops_s = [*(start_s for start_s, _ in busy), end_s]
    pauses = list[tuple[float, float, float]]()
    for start_s, stop_s in zip(starts_s, stops_s, strict=True):
        if stop_s - start_s < PAUSE_S:
            continue
        used_s = _read_used(run.processor_s, stop_s) - _read_used(run.processor_s, start_s)
        if (idle_s := stop_s - start_s - used_s) >= PAUSE_S:
            pauses.append((start_s, stop_s, idle_s))
    return pauses


def _read_used(samples: Sequence[tuple[float, float]], moment_s: float) -> float:
    """Return the CPU seconds that were used by a moment, between two samples in proportion."""
    if len(samples) < 2:
        return 0.0
    place = min(max(bisect_right(samples, (moment_s, inf)), 1), len(samples) - 1)
    (before_s, before), (after_s, after) = samples[place - 1], samples[place]
    share = (moment_s - before_s) / (after_s - before_s) if after_s > before_s else 1.0
    return before + min(1.0, max(0.0, share)) * (after - before)


@dataclass
class Phase:
    """The requests of one line, or those whose line is not known, and the seconds that they took."""

    trace: Trace  # on a clock of its own
    places: Sequence[int]  # in the trace of the run
    waited_s: float = 0.0  # each second shared with the phases that wait in it too
    share_alone: float = 1.0  # of its busy seconds, in which no other phase waits

    @cached_property
    def stretches(self) -> list[Trace]:
        """Parts in which requests for data are alone, and those in between."""
        return _split(self.trace, _find_series(self.trace))

    @cached_property
    def pieces(self) -> list[Trace]:
        """Parts with no request for a while between them."""
        return _split(self.trace, _find_gaps(self.trace))


class Timeline:
    """The seconds of a run: pauses, when requests were under way, and phases."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.busy = join_intervals((row.start_s, row.end_s) for row in trace.rows)
        self._busy_time = ElapsedTime(self.busy)
        tunnels = (
            (tunnel.begin_s, max(tunnel.begin_s, tunnel.end_s))
            for tunnel in trace.run.unread
            if tunnel.nbytes_down
        )
        self.pauses = find_pauses(trace.run, join_intervals(sorted([*self.busy, *tunnels])))
        self.pauses_s = sum(seconds for *_, seconds in self.pauses)
        first_s = trace.rows[0].start_s if trace.rows else 0.0
        trace.pauses_s = sum(seconds for _, stop_s, seconds in self.pauses if stop_s > first_s)
        trace.clock = Clock((stop_s, seconds) for _, stop_s, seconds in self.pauses)

    @cached_property
    def phases(self) -> list[Phase]:
        """The phases of the run, the one that waited longest first."""
        phases = [self._make_phase(line, places) for line, places in group_lines(self.trace)]
        _share_time(phases)
        return sorted(phases, key=lambda phase: -phase.waited_s)

    def _make_phase(self, code_line: CallSite | None, places: Sequence[int]) -> Phase:
        part = self.trace.select(places, self._clock_of(places))
        part.code_line = code_line
        return Phase(part, places)

    def _clock_of(self, places: Sequence[int]) -> Clock:
        """Make the clock of some requests: of the gaps between them what others wait for does not count."""
        if len(places) == len(self.trace.rows):
            return self.trace.clock
        own = join_intervals((self.trace.rows[i].start_s, self.trace.rows[i].end_s) for i in places)
        cuts = [(stop_s, seconds) for _, stop_s, seconds in self.pauses]
        for (_, start_s), (stop_s, _) in pairwise(own):
            by_stop_s = self._busy_time.seconds_by(stop_s)
            if (others_s := by_stop_s - self._busy_time.seconds_by(start_s)) > 0:
                cuts.append((stop_s, others_s))
        return Clock(cuts)


def group_lines(trace: Trace) -> Iterator[tuple[CallSite | None, Sequence[int]]]:
    """Group the requests of a run by the line of the program that they came from.

    Lines of one function that take turns are the body of one loop, and one group: a HEAD and the GET
    after it are understood together only.
    """
    if not trace.sites:
        yield from ((None, places) for places in _group_clients(trace, range(len(trace.rows))))
        return
    by_line = defaultdict[tuple[str, str, int] | None, list[int]](list)
    sites = defaultdict[tuple[str, str, int], Counter[CallSite]](Counter)
    for i, site in enumerate(trace.sites):
        line = None if site is None else (site.file, site.function, site.line)
        by_line[line].append(i)
        if site is not None and line is not None:
            sites[line][site] += 1
    loops = _join_loops(trace, {line: len(places) for line, places in by_line.items() if line})
    groups = defaultdict[tuple[str, str, int] | None, list[tuple[str, str, int] | None]](list)
    for line in by_line:
        groups[loops.get(line, line) if line else None].append(line)
    for lines in groups.values():
        places = sorted(i for line in lines for i in by_line[line])
        longest = max(lines, key=lambda line: _waited_s(trace, by_line[line]))
        if longest is None:
            yield from ((None, part) for part in _group_clients(trace, places))
        else:
            yield _redact_source(_choose_site(sites[longest])), places


def _group_clients(trace: Trace, places: Sequence[int]) -> list[Sequence[int]]:
    """Group requests whose line is not known by the client that made them."""
    names = {agent: client_of(agent) for agent in {trace.rows[i].user_agent for i in places}}
    if len({*names.values()}) < 2:
        return [places] if places else []
    groups = defaultdict[str, list[int]](list)
    for i in places:
        groups[names[trace.rows[i].user_agent]].append(i)
    return [*groups.values()]


def _choose_site(sites: Counter[CallSite]) -> CallSite:
    """Choose the function that most requests of a line come from: some open, and most read."""
    calls = Counter[str]()
    for site, number in sites.items():
        calls[site.library_call] += number
    library_call = calls.most_common(1)[0][0]
    chosen = max(
        (site for site in sites if site.library_call == library_call), key=lambda site: sites[site]
    )
    is_certain = 2 * sum(n for site, n in sites.items() if site.is_certain) >= sites.total()
    return replace(chosen, is_certain=is_certain)


def _redact_source(site: CallSite) -> CallSite:
    """Black out passwords that the text of a line may hold."""
    return replace(site, source=redact(site.source))


def _waited_s(trace: Trace, places: Sequence[int]) -> float:
    return sum(trace.rows[i].end_s - trace.rows[i].start_s for i in places)


def _join_loops(
    trace: Trace, counts: dict[tuple[str, str, int], int]
) -> dict[tuple[str, str, int], tuple[str, str, int]]:
    """Find lines of a function between which requests go back and forth: each line's group."""
    switches = Counter[tuple[tuple[str, str, int], tuple[str, str, int]]]()
    latest = dict[tuple[str, str], tuple[str, str, int]]()
    for site in trace.sites:
        if site is None:
            continue
        function, line = (site.file, site.function), (site.file, site.function, site.line)
        before = latest.get(function, line)
        if before != line:
            switches[min(before, line), max(before, line)] += 1
        latest[function] = line
    groups = dict[tuple[str, str, int], tuple[str, str, int]]()
    for (first, second), number in sorted(switches.items()):
        if number >= max(_SWITCHES, _SHARE * min(counts[first], counts[second])):
            target, source = groups.get(first, first), groups.get(second, second)
            for line in counts:
                if groups.get(line, line) == source:
                    groups[line] = target
    return groups


def _share_time(phases: Sequence[Phase]) -> None:
    """Give each phase its part of the seconds in which requests of several are under way."""
    busies = [
        join_intervals((row.start_s, row.end_s) for row in phase.trace.rows) for phase in phases
    ]
    events = sorted(
        event
        for number, busy in enumerate(busies)
        for begin_s, end_s in busy
        for event in ((begin_s, 1, number), (end_s, -1, number))
    )
    shared_s = alone_s = since_s = 0.0
    n_busy = 0
    entered = [(0.0, 0.0)] * len(phases)
    alone_of = [0.0] * len(phases)
    for moment_s, step, number in events:
        if n_busy:
            shared_s += (moment_s - since_s) / n_busy
            alone_s += (moment_s - since_s) * (n_busy == 1)
        n_busy, since_s = n_busy + step, moment_s
        if step > 0:
            entered[number] = shared_s, alone_s
        else:
            phases[number].waited_s += shared_s - entered[number][0]
            alone_of[number] += alone_s - entered[number][1]
    for phase, busy, seconds in zip(phases, busies, alone_of, strict=True):
        total_s = sum(end_s - begin_s for begin_s, end_s in busy)
        phase.share_alone = seconds / total_s if total_s else 1.0


def _find_series(trace: Trace) -> list[int]:
    """Find where stretches begin in which requests for data are alone, or in which they are not."""
    data = trace.data
    if len(data) <= _SERIES:
        return []
    rows = [trace.rows[i] for i in data]
    until_s = [*accumulate((row.end_s for row in rows), max)]
    is_after = [
        True, *(end_s <= row.start_s + TOLERANCE_S for end_s, row in zip(until_s, rows[1:], strict=False))
    ]  # fmt: skip
    is_alone = [*map(bool.__and__, is_after, [*is_after[1:], True])]
    changes = [i for i in range(1, len(data)) if is_alone[i] != is_alone[i - 1]]
    edges = [0, *changes, len(data)]
    starts = list[int]()
    is_before = False
    for first, last in pairwise(edges):
        is_series = is_alone[first] and last - first >= _SERIES
        if first and (is_series or is_before):
            starts.append(data[first])
        is_before = is_series
    return starts


def _find_gaps(trace: Trace) -> list[int]:
    """Find the first requests after a gap."""
    starts, until_s = list[int](), 0.0
    for i, row in enumerate(trace.rows):
        if i and row.start_s - until_s >= _GAP_S:
            starts.append(i)
        until_s = max(until_s, row.end_s)
    return starts


def _split(trace: Trace, starts: Sequence[int]) -> list[Trace]:
    """Cut a trace before some of its requests; of many parts the longest count."""
    if not starts:
        return []
    edges = [*pairwise([0, *starts, len(trace.rows)])]
    if len(edges) > _MOST_PARTS:
        edges = sorted(sorted(edges, key=lambda pair: pair[0] - pair[1])[:_MOST_PARTS])
    return [trace.select(range(*pair), trace.clock) for pair in edges]
