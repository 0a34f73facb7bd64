"""What passed: one row for each request, the same for every client."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from helpers.netem.shaping import REAL_TIME, VirtualTime

# How long `take` waits for rows of requests whose last byte is being sent.
GRACE_S = 0.25


@dataclass(frozen=True, slots=True)
class Request:
    """Hold what the proxy saw of one request; never a header or a query."""

    # when the head of the request had arrived, after the set-up of its connection if there was one
    # to emulate, the first byte of the response was handed to the
    # client and the last one was; seconds since 1970, from a clock that never steps back and, where
    # time is dilated, goes slower from the start of the proxy on. 0 for a moment never reached
    start_s: float
    first_byte_s: float
    end_s: float
    connection: int  # number of the client's connection, from 1 in order of acceptance
    method: str  # HTTP method
    key: str  # path without query, percent-decoded: `/bucket/object`
    range_start: int | None  # range asked for, in bytes; None where there was none
    range_nbytes: int | None
    status: int  # HTTP status sent to the client; 0 if no response was begun
    nbytes: int  # bytes of the body handed to the client, without chunked framing
    tag: str  # tag in force when the request arrived
    # number of the process that asked, from 1 in order of appearance, where each has a link of its
    # own; 0 for the owner of the proxy and where none has
    worker: int = 0
    is_cut: bool = False  # whether its response ended before its end, on either side
    is_first: bool = False  # whether it was the first on its connection


@dataclass(slots=True)
class Draft:
    """Gather a row while its request is served; times are of the trace's clock."""

    start_s: float
    connection: int
    is_first: bool = False
    method: str = ""
    key: str = ""
    range_start: int | None = None
    range_nbytes: int | None = None
    tag: str = ""
    worker: int = 0
    first_byte_s: float | None = None
    status: int = 0
    nbytes: int = 0
    is_ending: bool = False
    is_cut: bool = False


class Trace:
    """Collect the rows of many threads."""

    def __init__(self, virtual: VirtualTime = REAL_TIME) -> None:
        self._condition = threading.Condition()
        self._rows: list[tuple[object, ...]] = []
        self._n_ending = 0
        self.live_in(virtual)

    def live_in(self, virtual: VirtualTime) -> None:
        """Stamp by another clock from now on, between two reads."""
        self.time = virtual
        # Epoch of this clock: wall-clock times that do not jump with the clock.
        self._epoch_s = time.time() - virtual.now_s()

    def ending(self, draft: Draft) -> None:
        """Announce that the next send may be the last, so that `take` waits for its row."""
        if draft.is_ending:
            return
        draft.is_ending = True
        with self._condition:
            self._n_ending += 1

    def add(self, draft: Draft) -> None:
        """Write the row of a request that ends now."""
        end_s = self.time.now_s()
        first_byte_s = draft.first_byte_s
        row = (
            round(draft.start_s + self._epoch_s, 6),
            0.0 if first_byte_s is None else round(first_byte_s + self._epoch_s, 6),
            round(end_s + self._epoch_s, 6),
            *(draft.connection, draft.method, draft.key),
            *(draft.range_start, draft.range_nbytes),
            *(draft.status, draft.nbytes, draft.tag, draft.worker, draft.is_cut, draft.is_first),
        )
        with self._condition:
            self._rows.append(row)
            if draft.is_ending:
                self._n_ending -= 1
                self._condition.notify_all()

    def take(self) -> list[tuple[object, ...]]:
        """Return the rows gathered since the last call and forget them.

        A client may have the last byte of a response before the thread that
        sent it has written the row; those rows are waited for.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._n_ending == 0, timeout=GRACE_S)
            rows, self._rows = self._rows, []
        return rows
