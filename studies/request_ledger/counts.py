"""What the requests of one operation come to: counts, bytes, and how they waited for one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from helpers.models.requests import Request, count_waits


@dataclass(frozen=True, slots=True)
class Counts:
    """The requests of one operation."""

    n_get: int
    n_head: int
    n_put: int
    n_other: int  # POST, DELETE, and LIST, which is a GET of a bucket
    n_failed: int  # answered with a status of 400 or more
    wire_nbytes: int  # of all bodies that were sent
    n_connections: int
    n_in_flight: int  # most at one moment
    n_waits: int  # longest chain of requests each of which began after the one before had ended
    n_joined: int  # ranges of an object that one request spans although others began inside

    def __add__(self, other: Counts) -> Counts:
        """Add two operations that follow one another."""
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in self.__slots__}
        most = {"n_in_flight", "n_connections"}
        return Counts(
            **{name: max(two) if name in most else sum(two) for name, two in pairs.items()}
        )


def is_listing(request: Request) -> bool:
    """Tell whether a request lists keys: a GET of a bucket, whose key is its name alone."""
    return request.method == "GET" and "/" not in request.key.strip("/")


def count(requests: Sequence[Request]) -> Counts:
    """Count the requests of one operation."""
    kinds = Counter("LIST" if is_listing(one) else one.method for one in requests)
    named = {kind: kinds.pop(kind, 0) for kind in ("GET", "HEAD", "PUT")}
    return Counts(
        n_get=named["GET"],
        n_head=named["HEAD"],
        n_put=named["PUT"],
        n_other=sum(kinds.values()),
        n_failed=sum(one.status >= 400 for one in requests),
        wire_nbytes=sum(one.nbytes for one in requests),
        n_connections=len({one.connection for one in requests}),
        n_in_flight=count_in_flight(requests),
        n_waits=count_waits(requests),
        n_joined=count_overlaps(requests),
    )


def count_in_flight(requests: Sequence[Request]) -> int:
    """Count the most requests at one moment; one that begins as another ends follows it."""
    events = [(one.start_s, 1) for one in requests] + [(one.end_s, -1) for one in requests]
    now = most = 0
    for _, change in sorted(events, key=lambda event: event):
        now += change
        most = max(most, now)
    return most


def count_overlaps(requests: Sequence[Request]) -> int:
    """Count the requests for a range that begins inside the one before it: bytes asked for twice."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for one in requests:
        if one.range_start is not None and one.range_nbytes:
            ranges.setdefault(one.key, []).append(
                (one.range_start, one.range_start + one.range_nbytes)
            )
    return sum(b[0] < a[1] for found in ranges.values() for a, b in pairwise(sorted(found)))
