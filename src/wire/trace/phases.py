"""Phases of a run: the requests of each line of the program, and stretches of these that differ."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from wire.errors import redact
from wire.models.transfer import TOLERANCE_S
from wire.trace.report import CodeLine
from wire.trace.rows import METADATA_SERVICES
from wire.trace.whatif import Clock, Trace

if TYPE_CHECKING:
    from wire.trace.report import Site
    from wire.trace.rows import Run

    Moments = np.ndarray[tuple[int], np.dtype[np.float64]]

PAUSE_S = 1.0
"""Idle seconds without a request from which on a gap is a pause of the user, and counts in no gain."""

_SERIES = 6  # requests alone, from which on a stretch is a phase of its own
_SWITCHES, _SHARE = 4, 0.25  # between two lines of a function, from which on they are one loop
_GAP_S = 1.0  # between two stretches of a program whose lines are not known


@dataclass(frozen=True, slots=True)
class Busy:
    """Hold stretches of time, one after the other, in which something is under way."""

    begins_s: Moments
    ends_s: Moments

    @classmethod
    def of(cls, begins_s: Moments, ends_s: Moments) -> Busy:
        """Join intervals, which are in the order in which they begin, where they touch.

        Examples
        --------
        >>> busy = Busy.of(np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0, 6.0]))
        >>> busy.begins_s.tolist(), busy.ends_s.tolist()
        ([0.0, 5.0], [3.0, 6.0])
        """
        if not len(begins_s):
            return cls(begins_s, ends_s)
        until_s = np.maximum.accumulate(ends_s)
        is_new = np.append(True, begins_s[1:] > until_s[:-1])
        return cls(begins_s[is_new], until_s[np.append(is_new[1:], True)])

    def before(self, moments_s: Moments) -> Moments:
        """Compute the busy seconds before each moment."""
        if not len(self.begins_s):
            return np.zeros_like(moments_s)
        passed_s = np.append(0.0, (self.ends_s - self.begins_s).cumsum())
        edges_s = np.column_stack([self.begins_s, self.ends_s]).ravel()
        return np.interp(moments_s, edges_s, np.repeat(passed_s, 2)[1:-1])


def find_pauses(run: Run, busy: Busy) -> list[tuple[float, float, float]]:
    """Find where nothing is read and nothing computed: begin, end, and the idle seconds in between.

    A user who thinks between two cells, or a program that sleeps. None where credentials are sought
    past the gateway, for that is idle too.
    """
    begin_s, end_s = run.begin_s, run.begin_s + run.wall_s
    if any(bypass.address.startswith(METADATA_SERVICES) for bypass in run.bypassed):
        return []
    starts_s = np.append(begin_s, busy.ends_s)
    stops_s = np.append(busy.begins_s, end_s)
    used_s = np.zeros(len(starts_s))
    if len(run.processor_s) > 1:
        moments_s, seconds = np.array(run.processor_s).T
        used_s = np.interp(stops_s, moments_s, seconds) - np.interp(starts_s, moments_s, seconds)
    idle_s = stops_s - starts_s - used_s
    return [
        (float(starts_s[i]), float(stops_s[i]), float(idle_s[i]))
        for i in np.flatnonzero(idle_s >= PAUSE_S)
    ]


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
        self._begins_s = np.fromiter((row.start_s for row in trace.rows), float, len(trace.rows))
        self._ends_s = np.fromiter((row.end_s for row in trace.rows), float, len(trace.rows))
        self.busy = Busy.of(self._begins_s, self._ends_s)
        self.pauses = find_pauses(trace.run, self._with_tunnels())
        self.pauses_s = sum(seconds for *_, seconds in self.pauses)
        first_s = self._begins_s[0] if trace.rows else 0.0
        trace.pauses_s = sum(seconds for _, stop_s, seconds in self.pauses if stop_s > first_s)
        trace.clock = Clock((stop_s, seconds) for _, stop_s, seconds in self.pauses)

    def _with_tunnels(self) -> Busy:
        """Return when requests, or what was passed on unread, were under way."""
        tunnels = [(one.begin_s, one.end_s) for one in self.trace.run.unread if one.nbytes_down]
        if not tunnels:
            return self.busy
        begins_s = np.append(self._begins_s, [begin_s for begin_s, _ in tunnels])
        ends_s = np.append(self._ends_s, [max(pair) for pair in tunnels])
        order = np.argsort(begins_s, kind="stable")
        return Busy.of(begins_s[order], ends_s[order])

    @cached_property
    def phases(self) -> list[Phase]:
        """The phases of the run, the one that waited longest first."""
        phases = [self._make_phase(line, places) for line, places in group_lines(self.trace)]
        _share_time(phases)
        return sorted(phases, key=lambda phase: -phase.waited_s)

    def _make_phase(self, code_line: CodeLine | None, places: Sequence[int]) -> Phase:
        part = self.trace.select(places, self._clock_of(places))
        part.code_line = code_line
        return Phase(part, places)

    def _clock_of(self, places: Sequence[int]) -> Clock:
        """Make the clock of some requests: of the gaps between them what others wait for does not count."""
        if len(places) == len(self.trace.rows):
            return self.trace.clock
        chosen = np.asarray(places)
        own = Busy.of(self._begins_s[chosen], self._ends_s[chosen])
        starts_s, stops_s = own.ends_s[:-1], own.begins_s[1:]
        others_s = self.busy.before(stops_s) - self.busy.before(starts_s)
        cuts = [*zip(stops_s.tolist(), others_s.tolist(), strict=True)]
        pauses = [(stop_s, seconds) for _, stop_s, seconds in self.pauses]
        return Clock([*(cut for cut in cuts if cut[1] > 0), *pauses])


def group_lines(trace: Trace) -> Iterator[tuple[CodeLine | None, Sequence[int]]]:
    """Group the requests of a run by the line of the program that they came from.

    Lines of one function that take turns are the body of one loop, and one group: a HEAD and the GET
    after it are understood together only.
    """
    if not trace.sites:
        if trace.rows:
            yield None, range(len(trace.rows))
        return
    by_line = defaultdict[tuple[str, str, int] | None, list[int]](list)
    sites = dict[tuple[str, str, int], Site]()
    for i, site in enumerate(trace.sites):
        line = None if site is None else (site.file, site.function, site.line)
        by_line[line].append(i)
        if site is not None and line is not None:
            sites.setdefault(line, site)
    loops = _join_loops(trace, {line: len(places) for line, places in by_line.items() if line})
    groups = defaultdict[tuple[str, str, int] | None, list[tuple[str, str, int] | None]](list)
    for line in by_line:
        groups[loops.get(line, line) if line else None].append(line)
    for lines in groups.values():
        places = sorted(i for line in lines for i in by_line[line])
        longest = max(lines, key=lambda line: _waited_s(trace, by_line[line]))
        yield (None if longest is None else make_code_line(sites[longest])), places


def make_code_line(site: Site) -> CodeLine:
    """Describe a line of the program, without passwords that its text may hold."""
    return CodeLine(
        site.file,
        site.line,
        site.function,
        redact(site.source.strip()),
        site.library_call or "",
        site.is_certain,
    )


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
    events = list[tuple[float, int]]()
    busies = list[Busy]()
    for phase in phases:
        rows = phase.trace.rows
        begins_s = np.fromiter((row.start_s for row in rows), float, len(rows))
        ends_s = np.fromiter((row.end_s for row in rows), float, len(rows))
        busies.append(busy := Busy.of(begins_s, ends_s))
        events += [(moment_s, 1) for moment_s in busy.begins_s.tolist()]
        events += [(moment_s, -1) for moment_s in busy.ends_s.tolist()]
    if not events:
        return
    events.sort()
    moments_s = np.array([moment_s for moment_s, _ in events])
    n_busy = np.array([*accumulate(step for _, step in events)])[:-1]
    spans_s = np.diff(moments_s)
    shared_s = np.append(0.0, (spans_s / np.maximum(n_busy, 1)).cumsum())
    alone_s = np.append(0.0, (spans_s * (n_busy == 1)).cumsum())
    for phase, busy in zip(phases, busies, strict=True):
        edges_s = (busy.begins_s, busy.ends_s)
        shares = [np.interp(edge_s, moments_s, shared_s) for edge_s in edges_s]
        phase.waited_s = float((shares[1] - shares[0]).sum())
        alone = [np.interp(edge_s, moments_s, alone_s) for edge_s in edges_s]
        total_s = float((busy.ends_s - busy.begins_s).sum())
        phase.share_alone = float((alone[1] - alone[0]).sum()) / total_s if total_s else 1.0


def _find_series(trace: Trace) -> list[int]:
    """Find where stretches begin in which requests for data are alone, or in which they are not."""
    data = trace.data
    if len(data) <= _SERIES:
        return []
    begins_s = np.fromiter((trace.rows[i].start_s for i in data), float, len(data))
    until_s = np.maximum.accumulate(
        np.fromiter((trace.rows[i].end_s for i in data), float, len(data))
    )
    is_after = np.append(True, until_s[:-1] <= begins_s[1:] + TOLERANCE_S)
    is_alone = is_after & np.append(is_after[1:], True)
    edges = [0, *(np.flatnonzero(np.diff(is_alone)) + 1).tolist(), len(data)]
    starts = list[int]()
    is_before = False
    for first, last in pairwise(edges):
        is_series = bool(is_alone[first]) and last - first >= _SERIES
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
    """Cut a trace before some of its requests."""
    if not starts:
        return []
    edges = [0, *starts, len(trace.rows)]
    return [trace.select(range(*pair), trace.clock) for pair in pairwise(edges)]
