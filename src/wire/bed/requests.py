"""What was seen of a request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RequestRow:
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
