"""What a program would have taken, had it asked otherwise: exact edits of a trace, replayed."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from math import ceil
from statistics import median
from typing import TYPE_CHECKING

from wire.models.transfer import TOLERANCE_S, Network, Step, replay
from wire.trace.analysis import (
    DATA_KINDS,
    find_network,
    find_time,
    kind_of,
    most_in_flight,
    number_objects,
)  # fmt: skip

if TYPE_CHECKING:
    from wire.trace.rows import CallSite, Run, TracedRequest

HANDSHAKE_ROUND_TRIPS = 2  # of TCP and of TLS 1.3
INITIAL_WINDOW_NBYTES = 14_600  # ten segments (RFC 6928), doubled each round trip
RETRIED = (429, 500, 502, 503)
"""Answers after which a client asks again."""
_THROTTLED = (
    0.05  # share of the requests that are refused, from which on a store is asked too often
)
_PARTS_AT_ONCE = 10  # of a body in several streams
_CLIENT_S = 0.005  # of a pause between two requests, which the client itself needs
_N_DRAWS = 5
MAX_REPLAYED = 10_000
"""Requests of a trace up to which all are replayed; of more some of each stretch of time are."""

_SAMPLED = 2_000  # requests of a longer run that are replayed
_LEAST_REPLAYED = 100  # of a phase of it
_N_STRETCHES, _LEAST_OF_STRETCH = 20, 20


@dataclass(frozen=True, slots=True)
class EditedRequest:
    """A request of an edited trace, in place of one or more that there were."""

    rows: tuple[int, ...]  # their places in the trace
    nbytes: float  # of its answer
    n_parts: int = 1  # streams that bring it


@dataclass(frozen=True, slots=True)
class Edit:
    """What is asked for instead; what stands in no `EditedRequest` is not asked for."""

    requests: Sequence[EditedRequest]
    free: frozenset[int] = (
        frozenset()
    )  # places in the trace of requests that wait for no other's answer
    n_in_flight: int = 10  # of these at once
    less_s: float = 0.0  # by which each first byte comes sooner
    is_connected: bool = False  # whether no connection is made anew
    most_wait_s: float = math.inf  # of a first byte
    # the most that the program does before a request on a new connection: it makes no client
    most_set_up_s: float = math.inf
    # whether what the program does between free requests may go on side by side, and they need no
    # connection of their own: a bound
    is_best: bool = False


def keep(rows: Sequence[TracedRequest], dropped: Iterable[int] = ()) -> list[EditedRequest]:
    """Ask for what was asked for, but for some."""
    without = {*dropped}
    return [EditedRequest((i,), row.nbytes) for i, row in enumerate(rows) if i not in without]


def split(
    requests: Iterable[EditedRequest], large: Iterable[int], part_nbytes: float
) -> list[EditedRequest]:
    """Have some bodies come in several streams."""
    chosen = {*large}
    return [
        replace(request, n_parts=ceil(request.nbytes / part_nbytes))
        if request.rows[0] in chosen
        else request
        for request in requests
    ]


class Clock:
    """Count the seconds of a phase: without pauses, and without those of others' requests."""

    def __init__(self, cuts: Iterable[tuple[float, float]] = ()) -> None:
        # each cut is a moment and the seconds just before it that do not count
        pairs = sorted(cuts)
        self._moments_s = [moment_s for moment_s, _ in pairs]
        self._cut_s = [0.0, *accumulate(seconds for _, seconds in pairs)]

    def read(self, moment_s: float) -> float:
        """Return a moment on this clock.

        Examples
        --------
        >>> clock = Clock([(10.0, 4.0)])
        >>> clock.read(5.0), clock.read(10.0)
        (5.0, 6.0)
        """
        return moment_s - self._cut_s[bisect_right(self._moments_s, moment_s)]


class Trace:
    """The requests of a run, in the order in which they began, and what each may have waited for.

    One of a phase has some of the requests of its `root`, whose `origin` are their places there, on
    a clock of its own.
    """

    def __init__(
        self,
        run: Run,
        network: Network | None = None,
        set_up_s: float = math.nan,
        *,
        clock: Clock | None = None,
        root: Trace | None = None,
        origin: Sequence[int] = (),
    ) -> None:
        self.run = run
        self.clock = clock or Clock()
        self.pauses_s = 0.0  # from the first request on
        self.root = root or self
        self.code_line: CallSite | None = None
        if root is None:
            order = sorted(
                (i for i, row in enumerate(run.rows) if row.end_s),
                key=lambda i: run.rows[i].start_s,
            )
            self.rows: list[TracedRequest] = [run.rows[i] for i in order]
            is_located = len(run.sites) == len(run.rows)
            self.sites = [run.sites[i] for i in order] if is_located else []
            self.origin: Sequence[int] = range(len(self.rows))
        else:
            self.rows = [root.rows[i] for i in origin]
            self.sites = []
            self.origin = origin
        self.network = network  # to replay on; None for that of the trace
        self._last_end_s = max((row.end_s for row in self.rows), default=0.0)
        set_ups_s = [row.handshake_s for row in self.rows if row.is_first]
        self._set_up_s = median(set_ups_s or [0.0]) if math.isnan(set_up_s) else set_up_s
        self._base_s = dict[Network, float]()  # what the trace takes as it is, by network
        self._sampled: tuple[Edit, list[tuple[Trace, Edit, float]]] | None = None

    @cached_property
    def _looked(self) -> dict[int, int]:
        """The last look at each object before a request for it: what that waits for, whatever ended later."""
        looked, looks = dict[int, int](), dict[tuple[str, str], int]()
        for i, row in enumerate(self.rows):
            name = (row.host, row.key)
            if name in looks and self.rows[looks[name]].end_s <= row.start_s + TOLERANCE_S:
                looked[i] = looks[name]
            if row.method == "HEAD" or row.status in RETRIED:
                looks[name] = i
        return looked

    @cached_property
    def observed(self) -> Network:
        """The network that the requests of the run show."""
        return find_network(self.rows) if self.root is self else self.root.observed

    @cached_property
    def kinds(self) -> list[str]:
        """What each request is for."""
        if self.root is not self:
            return [self.root.kinds[i] for i in self.origin]
        return [*map(kind_of, self.rows)]

    @cached_property
    def objects(self) -> list[int]:
        """The number of the object that each request is for."""
        if self.root is not self:
            numbers = self.root.objects
            return [numbers[i] for i in self.origin]
        return number_objects(self.rows)

    @cached_property
    def data(self) -> list[int]:
        """Places of the requests that brought values, or a part of a file."""
        return [
            i
            for i, kind in enumerate(self.kinds)
            if kind in DATA_KINDS and self.rows[i].status < 300
        ]

    @cached_property
    def _all_asked(self) -> list[EditedRequest]:
        """What was asked for as it is, which edits share: of a long trace what is replayed of it."""
        if len(self.rows) <= self._max_replayed:
            return keep(self.rows)
        return [
            EditedRequest((i,), self.rows[i].nbytes)
            for first, part, _ in self._stretches
            for i in range(first, first + len(part.rows))
        ]

    @cached_property
    def is_throttled(self) -> bool:
        """Whether the store asked for fewer requests, in the whole run."""
        if self.root is not self:
            return self.root.is_throttled
        n_refused = sum(row.status in RETRIED for row in self.rows)
        return n_refused > 1 and n_refused >= _THROTTLED * len(self.rows)

    @cached_property
    def repeated(self) -> frozenset[int]:
        """Places of the requests whose bytes had come before."""
        ranges, repeats = set[tuple[int, int | None, int | None]](), list[int]()
        for i, row in enumerate(self.rows):
            if row.method != "GET" or row.status >= 300 or self.kinds[i] == "listing":
                continue
            name = self.objects[i], row.range_start, row.range_nbytes
            if name in ranges:
                repeats.append(i)
            ranges.add(name)
        return frozenset(repeats)

    @cached_property
    def n_data_in_flight(self) -> int:
        """Requests for data that were concurrent, at most."""
        return most_in_flight([self.rows[i] for i in self.data])

    def select(self, places: Sequence[int], clock: Clock) -> Trace:
        """Return the trace of some of its requests."""
        origin = [self.origin[i] for i in places]
        part = Trace(
            self.run, self.network, self._set_up_s, clock=clock, root=self.root, origin=origin
        )
        part.code_line = self.code_line
        return part

    @cached_property
    def time(self) -> dict[str, float]:
        """What each second went to."""
        return find_time(self.run)

    @property
    def asking_s(self) -> float:
        """Seconds of the run from its first request on, without pauses."""
        return self.run.wall_s - self.time["start"] - self.pauses_s

    def places(self, chosen: Callable[[TracedRequest], bool]) -> list[int]:
        """Find where some requests stand."""
        return [i for i, row in enumerate(self.rows) if chosen(row)]

    def by_object(self, places: Iterable[int]) -> Iterator[list[int]]:
        """Group requests by what they ask for, each group in the order in which they began."""
        groups, objects = defaultdict[int, list[int]](list), self.objects
        for i in places:
            groups[objects[i]].append(i)
        yield from groups.values()

    @property
    def span_s(self) -> float:
        """Seconds from the first request to the last end, on its clock."""
        if not self.rows:
            return 0.0
        return self.clock.read(self._last_end_s) - self.clock.read(self.rows[0].start_s)

    @cached_property
    def _previous(self) -> list[int | None]:
        """For each request the one that ended last of those that had begun before and ended by then."""
        under_way, previous = list[tuple[float, int]](), list[int | None]()
        latest: tuple[float, int] | None = None
        for i, row in enumerate(self.rows):
            while under_way and under_way[0][0] <= row.start_s + TOLERANCE_S:
                ended = heapq.heappop(under_way)
                latest = ended if latest is None else max(latest, ended)
            previous.append(None if latest is None else latest[1])
            heapq.heappush(under_way, (row.end_s, i))
        return previous

    def _find_thinking(self, remaining: Container[int]) -> list[tuple[int, float]]:
        """Compute the seconds before each request from the last end of one that is asked for still.

        Before them stands which of the dropped requests in between began first. A request waited for
        the look at its object if that is dropped, else for whatever ended last. Both began before it,
        so each step leads back, however short a request was.
        """
        thinking = list[tuple[int, float]]()
        for i, row in enumerate(self.rows):
            before = self._previous[i]
            if (looked := self._looked.get(i)) is not None and looked not in remaining:
                before = looked
            since_s = self.rows[0].start_s if before is None else self.rows[before].end_s
            think_s = max(0.0, self.clock.read(row.start_s) - self.clock.read(since_s))
            if before is None or before in remaining:
                thinking.append((i, think_s))
                continue
            # a client that is refused waits on purpose before it asks again
            is_refused = self.rows[before].status in RETRIED
            first, before_s = thinking[before]
            thinking.append((first, before_s + (0.0 if is_refused else think_s)))
        return thinking

    def steps(
        self, edit: Edit, connect: Network, stream_delay_s: Callable[[TracedRequest], float]
    ) -> list[Step]:
        """Write an edited trace as steps, each after so many of the others have ended."""
        place = {i: number for number, request in enumerate(edit.requests) for i in request.rows}
        thinking = self._find_thinking(place)
        ended = sorted(
            max(self.rows[i].end_s for i in request.rows)
            for request in edit.requests
            for _ in range(request.n_parts)
        )
        steps = list[Step]()
        first_after = n_free = 0  # of the free requests in a row
        for request in sorted(edit.requests, key=lambda item: self.rows[min(item.rows)].start_s):
            row = self.rows[first := min(request.rows)]
            since, think_s = thinking[first]
            # what the program did between requests that are joined it does still, the client does not
            joined = set[int]() if edit.is_best else {*request.rows} - {first}
            pauses_s = [thinking[i][1] - _CLIENT_S for i in joined]
            think_s += sum(max(0.0, pause_s) for pause_s in pauses_s)
            after = bisect_right(ended, self.rows[since].start_s + TOLERANCE_S)
            if first in edit.free:
                first_after = after if not n_free else first_after
                n_free += request.n_parts
                after = first_after + max(0, n_free - edit.n_in_flight)
                # of those that go at once all but the first need a connection of their own
                is_new = 1 < n_free <= edit.n_in_flight and not (row.is_first or edit.is_best)
            else:
                n_free, is_new = 0, False
            if edit.is_connected:
                think_s = max(0.0, think_s - row.handshake_s)
            if row.is_first:
                think_s = min(think_s, edit.most_set_up_s)
            opening_s = min(max(0.0, stream_delay_s(row) - edit.less_s), edit.most_wait_s)
            if (
                len(request.rows) > 1 and not edit.is_best
            ):  # a longer body begins as slowly as on a new connection
                opening_s += replace(connect, setup_s=0.0).new_connection_s(request.nbytes)
            for part in range(request.n_parts):
                wave = max(0, part + 1 - _PARTS_AT_ONCE)
                nbytes = request.nbytes / request.n_parts
                connect_s = (
                    connect.new_connection_s(nbytes)
                    if is_new or (part and not wave and not edit.is_best)
                    else 0.0
                )
                steps.append(Step(after + wave, think_s, nbytes, opening_s=opening_s + connect_s))
        return steps

    def seconds(self, edit: Edit, network: Network) -> float:
        """Replay an edited trace: on its own network each request keeps its first byte.

        Of many requests some of each stretch of time are replayed, and stand for the stretch.
        """
        if len(self.rows) <= self._max_replayed:
            return self._replay(edit, network)
        return sum(
            weight
            * part._replay(replace(edit, requests=sample.requests, free=sample.free), network)
            for part, sample, weight in self._sample(edit)
        )

    def _sample(self, edit: Edit) -> list[tuple[Trace, Edit, float]]:
        """Take the part of an edit that each sampled stretch has; that of the latest edit is kept."""
        if (
            self._sampled
            and self._sampled[0].requests is edit.requests
            and self._sampled[0].free is edit.free
        ):
            return self._sampled[1]
        wanted = {
            i for first, part, _ in self._stretches for i in range(first, first + len(part.rows))
        }
        by_place = {item.rows[0]: item for item in edit.requests if item.rows[0] in wanted}
        samples = list[tuple[Trace, Edit, float]]()
        for first, part, weight in self._stretches:
            within = range(first, first + len(part.rows))
            requests = [
                EditedRequest(
                    tuple(j - first for j in item.rows if j in within), item.nbytes, item.n_parts
                )
                for i in within
                if (item := by_place.get(i))
            ]
            if requests:
                free = frozenset(i - first for i in within if i in edit.free)
                samples.append((part, replace(edit, requests=requests, free=free), weight))
        self._sampled = edit, samples
        return samples

    def base_seconds(self, network: Network) -> float:
        """Replay the trace as it was, once for each network."""
        if network not in self._base_s:
            self._base_s[network] = self.seconds(self._as_it_was, network)
        return self._base_s[network]

    @cached_property
    def _as_it_was(self) -> Edit:
        return Edit(self._all_asked)

    def keep(self, dropped: Iterable[int] = ()) -> list[EditedRequest]:
        """Ask for what was asked for, but for some; of a long trace what is replayed alone."""
        without = {*dropped}
        return [item for item in self._all_asked if item.rows[0] not in without]

    @property
    def _max_replayed(self) -> int:
        """Requests of this trace that are replayed: its part of those of a run that has more."""
        n_all = len(self.root.rows)
        if n_all <= MAX_REPLAYED:
            return MAX_REPLAYED
        return max(_LEAST_REPLAYED, min(_SAMPLED, MAX_REPLAYED) * len(self.rows) // n_all)

    @property
    def n_replayed(self) -> int:
        """Number of requests that predictions rest on."""
        is_whole = len(self.rows) <= self._max_replayed
        return len(self.rows) if is_whole else sum(len(part.rows) for _, part, _ in self._stretches)

    @cached_property
    def _stretches(self) -> list[tuple[int, Trace, float]]:
        """Take the first requests of stretches of equal time: their place, and the seconds that each stands for."""
        n_stretches = max(1, min(_N_STRETCHES, self._max_replayed // _LEAST_OF_STRETCH))
        begin_s, step_s = self.clock.read(self.rows[0].start_s), self.span_s / n_stretches
        starts_s = [
            *(self.clock.read(row.start_s) for row in self.rows),
            self.clock.read(self._last_end_s),
        ]
        edges = [bisect_left(starts_s, begin_s + number * step_s) for number in range(n_stretches)]
        stretches = list[tuple[int, Trace, float]]()
        for first, last in pairwise([*edges, len(self.rows)]):
            chosen = range(first, min(last, first + self._max_replayed // n_stretches))
            if chosen:
                part = self.select(chosen, self.clock)
                whole_s = starts_s[last] - starts_s[first]
                part_s = starts_s[first + len(chosen)] - starts_s[first]
                stretches.append((first, part, whole_s / part_s if part_s > 0 else 1.0))
        return stretches

    def _replay(self, edit: Edit, shown: Network) -> float:
        if self.network is None:
            alone = replace(shown, first_byte_median_s=0.0, first_byte_p95_s=0.0)
            # TCP and TLS take two round trips, and a body begins slowly on a new connection
            connect = replace(
                shown,
                setup_s=self._set_up_s,
                round_trip_s=self._set_up_s / HANDSHAKE_ROUND_TRIPS,
                initial_window_nbytes=INITIAL_WINDOW_NBYTES,
            )
            steps = self.steps(
                edit, connect, lambda row: max(0.0, (row.first_byte_s or row.end_s) - row.start_s)
            )
            replayed_s = replay(steps, alone, n_draws=1)
        else:
            target = self.network
            steps = self.steps(
                edit,
                target,
                lambda row: target.new_connection_s(row.nbytes) if row.is_first else 0.0,
            )
            replayed_s = replay(steps, target, n_draws=_N_DRAWS)
        if not edit.free or edit.is_best:
            return replayed_s
        # what the program did between requests it does in turn, whatever is in flight
        return max(replayed_s, sum(step.think_s for step in steps))
