"""What a trace tells of a driver: bytes in vain, dependent requests, requests at once."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.storage.network import Request
from helpers.storage.reads import count_requests, max_in_flight


def dependency_depth(trace: Sequence[Request]) -> int:
    """Count the longest chain of requests of which each starts after the one before ended.

    It bounds the time from below: so many times the time to first byte, whatever the
    bandwidth.

    Parameters
    ----------
    trace : sequence of Request
        In any order.

    Returns
    -------
    int
        At most the number of requests; 0 without any.
    """
    depth, free_s = 0, float("-inf")
    for request in sorted(trace, key=lambda each: each.end_s):
        if request.start_s >= free_s:
            depth, free_s = depth + 1, request.end_s
    return depth


def count_distinct_nbytes(trace: Sequence[Request]) -> int:
    """Count the bytes of an object that were fetched at least once.

    Parameters
    ----------
    trace : sequence of Request
        Those without a range count as a whole object.

    Returns
    -------
    int
        At most the bytes over the wire.
    """
    ranges = sorted(
        (each.key, each.range_start or 0, (each.range_start or 0) + each.nbytes)
        for each in trace
        if each.nbytes
    )
    distinct, last_key, reached = 0, "", 0
    for key, start, stop in ranges:
        start = start if key != last_key else max(start, reached)
        reached = max(stop, reached) if key == last_key else stop
        distinct, last_key = distinct + max(0, stop - start), key
    return distinct


def summarise_trace(trace: Sequence[Request], *, needed_nbytes: int) -> dict[str, float]:
    """Summarise the requests of an opening and a read.

    Parameters
    ----------
    trace : sequence of Request
        Those of the opening are tagged ``"open"``, those of the read ``"read"``.
    needed_nbytes : int
        Stored bytes of what was read, at least 1; 0 where that is not known.

    Returns
    -------
    dict of str to float
        What `count_requests` counts, and over both together: bytes over the wire
        over those needed, bytes fetched more than once, most requests in flight,
        and the longest chain of dependent requests.
    """
    if not trace:
        return {}
    nbytes = sum(request.nbytes for request in trace)
    found = count_requests(trace, 1) | {
        "all_requests": len(trace),
        "all_nbytes": nbytes,
        "all_max_in_flight": max_in_flight(trace),
        "repeated_nbytes": nbytes - count_distinct_nbytes(trace),
        "dependency_depth": dependency_depth(trace),
    }
    if needed_nbytes:
        found["over_read"] = round(nbytes / needed_nbytes, 3)
    return found
