"""What a trace says in numbers: kinds of object, where the time went, and the network that it shows."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from math import inf
from statistics import median, quantiles
from typing import TYPE_CHECKING

from wire.models.transfer import TOLERANCE_S, Network
from wire.trace.rows import METADATA_SERVICES

if TYPE_CHECKING:
    from wire.trace.rows import Run, TracedRequest

_METADATA = {".zmetadata", ".zarray", ".zattrs", ".zgroup", "zarr.json", "attributes.json", "info"}
_MANIFESTS = re.compile(r"/(snapshots|manifests|refs|transactions)/|/repo$")
_CHUNK = re.compile(r"/c/[\d/]+$|/c(\.\d+)+$|/\d+([./]\d+)*$|/chunks/\w+$")
DATA_KINDS = ("chunk", "range", "object")
"""Kinds of requests that bring values, or a part of a file."""

_LARGE_NBYTES = 256 * 1024  # of a body from which on its rate is that of a stream
_FLOWS = 0.7  # of the rate of a stream that several have at once, below which they share a link


def kind_of(row: TracedRequest) -> str:
    """Name what a request is for, as far as its method, path and answer tell."""
    is_ranged = row.range_nbytes is not None
    is_listing = row.is_listing or (row.key.endswith("/") and row.range_start is None)
    return _find_kind(row.host, row.method, row.status, row.key, is_listing, is_ranged)


def _find_kind(
    host: str, method: str, status: int, key: str, is_listing: bool, is_ranged: bool
) -> str:
    name = key.rpartition("/")[2]
    if host.partition(":")[0] in METADATA_SERVICES:
        return "credentials"
    if method not in ("GET", "HEAD"):
        return "write"
    if status == 404:
        return "probe"
    if method == "HEAD":
        return "HEAD"
    if is_listing:
        return "listing"
    if name in _METADATA:
        return "metadata"
    if _MANIFESTS.search(key):
        return "manifest"
    if _CHUNK.search(key):
        return "chunk"
    return "range" if is_ranged else "object"


def is_chunk(row: TracedRequest) -> bool:
    """Tell whether a path is that of a chunk or a shard, of Zarr, TensorStore or Icechunk."""
    return bool(_CHUNK.search(row.key))


def array_of(key: str) -> str:
    """Return the path of the array that a chunk belongs to.

    Examples
    --------
    >>> array_of("/b/tree/a/time/c/0/1"), array_of("/b/a/0.1.2"), array_of("/b/a/c.0.1")
    ('/b/tree/a/time', '/b/a', '/b/a')
    """
    return _CHUNK.sub("", key)


def is_metadata(row: TracedRequest) -> bool:
    """Tell whether a request is for metadata of Zarr, found or not."""
    return row.method in ("GET", "HEAD") and row.key.rpartition("/")[2] in _METADATA


def is_data(row: TracedRequest) -> bool:
    """Tell whether a request brought values, or a part of a file."""
    return kind_of(row) in DATA_KINDS and row.status < 300


def span_of(row: TracedRequest) -> tuple[int, int]:
    """Give where in its object the bytes of an answer begin and end."""
    start = row.range_start or 0
    return start, start + row.nbytes


def fresh_nbytes(spans: Iterable[tuple[int, int]]) -> list[int]:
    """Count the bytes of each span that lie in none before it.

    Examples
    --------
    >>> fresh_nbytes([(0, 10), (20, 30), (5, 25), (0, 30)])
    [10, 10, 10, 0]
    """
    spans = [*spans]
    edges = sorted({edge for span in spans for edge in span})
    places = {edge: place for place, edge in enumerate(edges)}
    following = [*range(len(edges))]  # from each edge on, the next one after which nothing came yet
    fresh = list[int]()
    for start, end in spans:
        nbytes, place, last = 0, places[start], places[end]
        while (place := _skip(following, place)) < last:
            nbytes += edges[place + 1] - edges[place]
            following[place] = place + 1
        fresh.append(nbytes)
    return fresh


def _skip(following: list[int], place: int) -> int:
    """Go to the end of what has come, and shorten the way for those who go after."""
    while following[place] != place:
        following[place] = following[following[place]]
        place = following[place]
    return place


def unique_nbytes(rows: Iterable[TracedRequest]) -> int:
    """Count the bytes that would have been enough: each byte of each object once."""
    rows = [*rows]
    groups = defaultdict[int, list[int]](list)
    for i, number in enumerate(number_objects(rows)):
        groups[number].append(i)
    return sum(
        rows[places[0]].nbytes
        if len(places) == 1
        else sum(fresh_nbytes(span_of(rows[i]) for i in places))
        for places in groups.values()
    )


def number_objects(rows: Sequence[TracedRequest]) -> list[int]:
    """Give each object a number, and each request that of its object."""
    numbers = defaultdict[str, dict[str, int]](dict)
    n_objects = 0
    numbered = list[int]()
    for row in rows:
        of_host = numbers[row.host]
        if (number := of_host.get(row.key)) is None:
            number = of_host[row.key] = n_objects
            n_objects += 1
        numbered.append(number)
    return numbered


def most_bodies(rows: Sequence[TracedRequest]) -> int:
    """Count the bodies that were under way at once, at most."""
    begins_s = sorted(row.first_byte_s or row.end_s for row in rows)
    ends_s = sorted(row.end_s for row in rows)
    most = n_ended = 0
    for number, begin_s in enumerate(begins_s, 1):
        while ends_s[n_ended] <= begin_s and n_ended < number - 1:
            n_ended += 1
        most = max(most, number - n_ended)
    return most


def intervals(
    rows: Iterable[TracedRequest], until_s: float
) -> Iterator[tuple[float, float, int, int, float]]:
    """Sweep over the requests: begin and end of each interval, requests before and after their first byte.

    The last number is the part of the interval in which the bodies waited for the client. A request
    that did not end goes on `until_s`.
    """
    starts_s, firsts_s, ends_s = list[float](), list[float](), list[float]()
    changes = list[tuple[float, float]]()  # of the bodies that wait for the client
    for row in rows:
        end_s = row.end_s or until_s
        first_s = min(row.first_byte_s or end_s, end_s)
        starts_s.append(row.start_s)
        firsts_s.append(first_s)
        ends_s.append(end_s)
        if row.client_blocked_s and end_s > first_s:
            share = min(1.0, row.client_blocked_s / (end_s - first_s))
            changes += [(first_s, share), (end_s, -share)]
    moments_s = sorted([*starts_s, *firsts_s, *ends_s])
    for moments in (starts_s, firsts_s, ends_s):
        moments.sort()
        moments.append(inf)
    changes = [*sorted(changes), (inf, 0.0)]
    n_begun = n_first = n_ended = n_changed = 0
    blocked = 0.0
    for time_s, following_s in zip(moments_s, [*moments_s[1:], until_s], strict=False):
        if following_s <= time_s:
            continue
        while starts_s[n_begun] <= time_s:
            n_begun += 1
        while firsts_s[n_first] <= time_s:
            n_first += 1
        while ends_s[n_ended] <= time_s:
            n_ended += 1
        while changes[n_changed][0] <= time_s:
            blocked, n_changed = blocked + changes[n_changed][1], n_changed + 1
        n_flowing = n_first - n_ended
        share = blocked / n_flowing if n_flowing else 0.0
        yield time_s, following_s, n_begun - n_first, n_flowing, share


def in_flight(rows: Iterable[TracedRequest]) -> list[int]:
    """Count the requests that were under way when each began, itself included, in that order."""
    ordered = sorted(rows, key=lambda row: row.start_s)
    ends = sorted(row.end_s for row in ordered)
    return [
        i + 1 - bisect_right(ends, row.start_s + TOLERANCE_S, hi=i) for i, row in enumerate(ordered)
    ]


def most_in_flight(rows: Iterable[TracedRequest]) -> int:
    """Count the requests that were under way at once, at most."""
    return max(in_flight(rows), default=0)


def find_time(run: Run) -> dict[str, float]:
    """Find what each second of a run was spent on; the seconds add up to its wall time.

    Before its first request a program starts, then somebody always has the turn: with no request in
    flight a connection that is set up, its processors, or nobody; with all requests before their first
    byte the store; while bodies flow the network, or the client, where it does not take them.
    """
    begin_s, end_s = run.begin_s, run.begin_s + run.wall_s
    parts_s = dict.fromkeys(
        ("start", "connections", "first bytes", "bodies", "client", "processor", "idle"), 0.0
    )
    if not run.rows:
        return parts_s | {"start": run.wall_s}
    # the set-up of a connection as what it is: a wait before its first request
    spans = sorted((row.start_s - row.handshake_s, row.end_s or end_s) for row in run.rows)
    parts_s["start"] = max(0.0, spans[0][0] - begin_s)
    for start_s, stop_s, n_waiting, n_flowing, blocked in intervals(run.rows, end_s):
        if n_flowing:
            parts_s["client"] += blocked * (stop_s - start_s)
            parts_s["bodies"] += (1 - blocked) * (stop_s - start_s)
        elif n_waiting:
            parts_s["first bytes"] += stop_s - start_s
    gaps, until_s = list[tuple[float, float]](), spans[0][0]
    for start_s, stop_s in [*spans, (end_s, end_s)]:
        if start_s > until_s:
            gaps.append((until_s, start_s))
        until_s = max(until_s, stop_s)
    parts_s["processor"] = _busy_s(run.processor_s, gaps)
    parts_s["idle"] = sum(stop_s - start_s for start_s, stop_s in gaps) - parts_s["processor"]
    parts_s["connections"] = max(0.0, run.wall_s - sum(parts_s.values()))
    return parts_s


def _busy_s(samples: Sequence[tuple[float, float]], gaps: Sequence[tuple[float, float]]) -> float:
    """Compute the seconds in gaps in which a processor of the program was at work.

    Between two samples what was computed is taken to lie in the gaps, where nothing was waited for.
    """
    if len(samples) < 2 or not gaps:
        return 0.0
    gap_clock = ElapsedTime(gaps)
    passed_s = [gap_clock.seconds_by(time_s) for time_s, _ in samples]
    used_s = [seconds for _, seconds in samples]
    pairs = zip(pairwise(passed_s), pairwise(used_s), strict=True)
    return sum(max(0.0, min(b - a, after - before)) for (a, b), (before, after) in pairs)


class ElapsedTime:
    """Count the seconds of some stretches of time, which follow one another, up to a moment."""

    def __init__(self, stretches: Sequence[tuple[float, float]]) -> None:
        self._begins_s = [begin_s for begin_s, _ in stretches]
        self._ends_s = [end_s for _, end_s in stretches]
        lengths_s = (end_s - begin_s for begin_s, end_s in stretches)
        self._passed_s = [0.0, *accumulate(lengths_s)]

    @property
    def total_s(self) -> float:
        """Seconds of all stretches."""
        return self._passed_s[-1]

    def seconds_by(self, time_s: float) -> float:
        """Return the seconds that have passed by a moment."""
        place = bisect_left(self._ends_s, time_s)
        if place == len(self._ends_s):
            return self.total_s
        return self._passed_s[place] + max(0.0, time_s - self._begins_s[place])


def find_network(rows: Sequence[TracedRequest]) -> Network:
    """Estimate first byte and rates from the requests of a trace.

    A stream has the upper quartile of what large bodies had; all share a link where those that flowed at
    once were slower than that. What no request shows is without bound.
    """
    first_s = [
        row.first_byte_s - row.start_s for row in rows if row.first_byte_s and row.status < 400
    ]
    rates = [
        row.nbytes / max(row.end_s - row.first_byte_s - row.client_blocked_s, 1e-4)
        for row in rows
        if row.nbytes >= _LARGE_NBYTES and row.first_byte_s and not row.is_cut
    ]
    first_byte_s = median(first_s) if first_s else 0.0
    late_s = quantiles(first_s, n=20)[-1] if len(first_s) > 1 else first_byte_s
    if not rates:
        return Network(first_byte_s, max(late_s, first_byte_s))
    stream = quantiles(rates, n=4)[-1] if len(rates) > 1 else rates[0]
    alone = Network(first_byte_s, max(late_s, first_byte_s), stream)
    # bytes that came while several bodies flowed, over what as many streams would have brought alone
    shared, flowing_s = list[tuple[float, float]](), 0.0
    for start_s, stop_s, _, n_flowing, _ in intervals(rows, max(row.end_s for row in rows)):
        if n_flowing > 1:
            flowing_s += (stop_s - start_s) * n_flowing
            if shared and shared[-1][1] == start_s:
                start_s = shared.pop()[0]
            shared.append((start_s, stop_s))
    if not shared:
        return alone
    sharing_clock = ElapsedTime(shared)
    nbytes = sum(
        row.nbytes
        * (sharing_clock.seconds_by(row.end_s) - sharing_clock.seconds_by(row.first_byte_s))
        / max(row.end_s - row.first_byte_s, 1e-9)
        for row in rows
        if row.first_byte_s
    )
    together = nbytes / sharing_clock.total_s
    n_together = flowing_s / sharing_clock.total_s
    if together >= _FLOWS * stream * n_together or nbytes < _LARGE_NBYTES:
        return alone
    return replace(alone, aggregate_nbytes_per_s=max(together, stream))
