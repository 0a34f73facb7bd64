"""Requests as a trace has them: a row of each, and what waited for what."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

TOLERANCE_S = 1e-4
"""How much earlier than the end of an answer a request may begin that waited for it: stamps are late by so much."""


@dataclass(slots=True)
class Request:
    """Hold what was seen of one request; never a header or a query. It is filled while the request is served.

    `pandas.DataFrame(proxy.take_trace())` is a table of them, a row a request.
    """

    # when the head of the request had arrived, after the set-up of its connection if there was one
    # to emulate, the first byte of the response was handed to the
    # client and the last one was; seconds since 1970, from a clock that never steps back and, where
    # time is dilated, goes slower from the start of the proxy on. 0 for a moment never reached
    start_s: float
    first_byte_s: float = 0.0
    end_s: float = 0.0
    connection: int = 0  # number of the client's connection, from 1 in order of acceptance
    method: str = ""  # HTTP method
    key: str = ""  # path without query, percent-decoded: `/bucket/object`
    range_start: int | None = None  # range asked for, in bytes; None where there was none
    range_nbytes: int | None = None
    status: int = 0  # HTTP status sent to the client; 0 if no response was begun
    nbytes: int = 0  # bytes of the body handed to the client, without chunked framing
    tag: str = ""  # tag in force when the request arrived
    # number of the process that asked, from 1 in order of appearance, where each has a link of its
    # own; 0 for the owner of the proxy and where none has
    worker: int = 0
    is_cut: bool = False  # whether its response ended before its end, on either side
    is_first: bool = False  # whether it was the first on its connection


@dataclass(frozen=True, slots=True)
class Dependency:
    """What a request may have waited for, in the order in which requests began."""

    n_ended: int  # requests that began before it and had ended by then, whichever of them
    think_s: float  # seconds from the last of these ends, or from the first start, to its own start
    nbytes: int  # bytes of its answer
    depth: int  # requests in the longest chain, each begun after the one before had ended, to it


def find_dependencies(rows: Iterable[Request], tolerance: float = TOLERANCE_S) -> list[Dependency]:
    """Find what each request can have waited for, from when requests began and ended.

    Nobody sees from outside what waited for what. But a request can only have waited for one that
    began before it and had ended, within `tolerance` seconds, when it began; and no client can be
    quicker than the longest chain of such, on a network with the same delays. Which of
    those ended first does not matter: a pool gives a free place to the next request.

    Examples
    --------
    Two at once, then one half a second after both had ended:

    >>> found = find_dependencies([Request(0.0, 0.5, 1.0), Request(0.0, 0.5, 2.0), Request(2.5, 2.7, 3.0)])
    >>> [(one.n_ended, one.think_s, one.depth) for one in found]
    [(0, 0.0, 1), (0, 0.0, 1), (2, 0.5, 2)]
    """
    under_way, found = list[tuple[float, int]](), list[Dependency]()
    n_ended = depth = 0
    since_s: float | None = None
    for row in sorted(rows, key=lambda one: one.start_s):
        since_s = row.start_s if since_s is None else since_s
        while under_way and under_way[0][0] <= row.start_s + tolerance:
            end_s, its_depth = heapq.heappop(under_way)
            since_s = end_s if not n_ended else max(since_s, end_s)
            n_ended, depth = n_ended + 1, max(depth, its_depth)
        heapq.heappush(under_way, (row.end_s, depth + 1))
        think_s = round(max(row.start_s - since_s, 0.0), 4)
        found.append(Dependency(n_ended, think_s, row.nbytes, depth + 1))
    return found


def count_waits(rows: Iterable[Request], tolerance: float = TOLERANCE_S) -> int:
    """Count the requests of the longest chain in which each began after the one before had ended.

    A read takes at least so many times the time to first byte, whatever the bandwidth.
    """
    return max((one.depth for one in find_dependencies(rows, tolerance)), default=0)
