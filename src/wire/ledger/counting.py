"""Counts of the requests of one access: kinds, bytes moved and unique, chains."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from wire.bed.requests import RequestRow
from wire.models.transfer import count_waits

KINDS = ("GET", "HEAD", "LIST", "PUT")
_GCS_OBJECT = re.compile(r"^/storage/v1/b/[^/]+/o/.")
_GCS_BUCKET = re.compile(r"^/storage/v1/b/[^/]+/o/?$")
_AZURE = re.compile(r"^/devstoreaccount1/[^/]+/?$")
_S3_BUCKET = re.compile(r"^/[^/]*/?$")
_UPLOADS = re.compile(r"^/upload/|^/resumable/")


def name_kind(row: RequestRow) -> str:
    """Name the kind of a request, whichever interface it speaks.

    Google's interface has no HEAD: a GET of an object's description is one in all but name.

    Examples
    --------
    >>> names = ["/bucket/o", "/bucket/", "/storage/v1/b/bucket/o/o", "/storage/v1/b/bucket/o"]
    >>> [name_kind(RequestRow(0, method="GET", key=name)) for name in names]
    ['GET', 'LIST', 'HEAD', 'LIST']
    """
    if row.method == "GET":
        if _GCS_OBJECT.match(row.key):
            return "HEAD"
        listings = (_GCS_BUCKET, _AZURE, _S3_BUCKET)
        return "LIST" if any(pattern.match(row.key) for pattern in listings) else "GET"
    if row.method == "POST" and _UPLOADS.match(row.key):
        return "PUT"
    return row.method


def count_unique_nbytes(rows: Sequence[RequestRow]) -> int:
    """Count the bytes of objects that were fetched, those fetched more than once once alone.

    Examples
    --------
    Bytes 0 to 99 and then 50 to 149 of one object:

    >>> ranges = {"method": "GET", "key": "/b/o", "status": 206, "nbytes": 100}
    >>> count_unique_nbytes([RequestRow(0, range_start=n, **ranges) for n in (0, 50)])
    150
    """
    spans = defaultdict[str, list[tuple[int, int]]](list)
    for row in rows:
        if name_kind(row) == "GET" and row.status < 400:
            start = row.range_start or 0
            spans[row.key].append((start, start + row.nbytes))
    total = 0
    for parts in spans.values():
        reached = 0
        for start, end in sorted(parts):
            total += max(0, end - max(start, reached))
            reached = max(reached, end)
    return total


def max_in_flight(rows: Sequence[RequestRow]) -> int:
    """Count the requests that were in flight together, at most."""
    moments = sorted([(row.start_s, 1) for row in rows] + [(row.end_s, -1) for row in rows])
    return max(itertools.accumulate(change for _, change in moments), default=0)


def count_requests(rows: Sequence[RequestRow]) -> dict[str, int]:
    """Count the requests of one access.

    `n_other` are of another kind, as DELETE and POST; `n_failed` were answered with a status of 400
    or more; `n_waits` is the longest chain of requests each of which began after the one before had
    ended; `unique_nbytes` are bytes of objects that were fetched at least once.
    """
    kinds = Counter(name_kind(row) for row in rows)
    named = {f"n_{kind.lower()}": kinds.pop(kind, 0) for kind in KINDS}
    return named | {
        "n_other": sum(kinds.values()),
        "n_requests": len(rows),
        "n_failed": sum(row.status >= 400 for row in rows),
        "wire_nbytes": sum(row.nbytes for row in rows),
        "unique_nbytes": count_unique_nbytes(rows),
        "n_connections": len({row.connection for row in rows}),
        "n_in_flight": max_in_flight(rows),
        "n_waits": count_waits(rows),
    }
