"""What was seen of a program: its requests, what could not be read of it, and its processor seconds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from wire.bed.requests import RequestRow

METADATA_SERVICES = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
"""Where machines of a cloud are given credentials: asked without a proxy, as near as without us."""

TOKEN = "WIRE_TRACE"  # noqa: S105
"""Variable by which processes of the program are known."""


_ASKS_FOR_NAMES = re.compile(
    rb"[?&](list-type=|prefix=|delimiter=|marker=|max-keys=|comp=list\b)", re.IGNORECASE
)


def is_listing(target: bytes) -> bool:
    """Tell whether a request's target asks a store for names, by what its query has.

    Examples
    --------
    >>> is_listing(b"/bucket?list-type=2&prefix=a"), is_listing(b"/object"), is_listing(b"/o?sig=x")
    (True, False, False)
    """
    return bool(_ASKS_FOR_NAMES.search(target))


@dataclass(slots=True)
class TracedRequest(RequestRow):
    """Hold what was seen of one request of a program; `is_first` tells that its connection was new.

    Its key is the path that it names on its host, and nothing of a query.
    """

    host: str = ""  # as the program names it, with the port where that is not the scheme's own
    scheme: str = "https"  # or http
    pid: int = 0  # process that asked
    process: str = ""  # its name
    user_agent: str = ""  # name and version alone, `Boto3/1.43.117`
    sent_nbytes: int = 0  # bytes of the body that the request brought
    handshake_s: float = 0.0  # set-up of the connection to the store, of the first request on it
    client_blocked_s: float = 0.0  # of the body: waiting for the program to take them
    is_listing: bool = False  # whether its query asks for names of objects
    location_host: str = (
        ""  # of a redirect: the host that it leads to, and nothing of its path or query
    )


@dataclass(slots=True)
class Tunnel:
    """A connection through the gateway that was passed on unread, or failed; it is filled while it lasts."""

    host: str  # with its port
    reason: str  # why it was not read
    begin_s: float  # seconds since 1970
    end_s: float = 0.0
    nbytes_down: int = 0  # bytes from the host, encryption and all


@dataclass(frozen=True, slots=True)
class Bypass:
    """A connection of the program that does not end at the gateway; one entry a process and address."""

    pid: int
    name: str  # of the process
    address: str  # host:port
    remedy: str = ""  # what has it go through the gateway, where that is known


@dataclass(frozen=True, slots=True)
class CallSite:
    """A line of the program, and the library's function that it calls."""

    file: str  # relative to the working folder where it lies below; "In [7]" for a notebook's cell
    line: int
    function: str  # qualified name of the user's function, "<module>" at top level
    source: str  # the line, stripped; "" where it cannot be read
    library_call: str  # dotted name of the function just below the user's line; "" where none
    is_certain: bool  # an uncertain one is printed with "about"

    @property
    def label(self) -> str:
        """Name the line as `file:line`.

        Examples
        --------
        >>> CallSite("my.py", 14, "<module>", "", "", False).label
        'about my.py:14'
        """
        return f"{'' if self.is_certain else 'about '}{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Run:
    """Hold one run of a program under the gateway."""

    rows: Sequence[TracedRequest]  # in the order in which they ended
    wall_s: float
    begin_s: float  # seconds since 1970
    # as a shell has it: 128 and the number of the signal that ended it; None where it is not known,
    # of a trace that was ended before its program
    exit_code: int | None
    processor_s: Sequence[tuple[float, float]] = ()  # moment since 1970, seconds used by then
    bypassed: Sequence[Bypass] = ()
    unread: Sequence[Tunnel] = ()
    gateway_s: float = 0.0  # processor seconds of the gateway
    output_digest: str | None = None  # SHA-256 of what it printed, where that was asked for
    # what ended the trace before the program, or goes on after it: a line each
    remarks: Sequence[str] = ()
    # what no row has because the trace itself was ended or could not be written: a phrase each
    missing: Sequence[str] = ()
    # what may be the program's and may be another's, so that it is not known whether it was seen
    uncertain: Sequence[str] = ()
    # the line of the program that each row is for, in their order; None where nothing tells
    sites: Sequence[CallSite | None] = ()

    @property
    def unseen(self) -> list[str]:
        """Name with whom the program exchanged what no row has; metadata services need no row."""
        unread = [tunnel.host for tunnel in self.unread if tunnel.nbytes_down]
        past = [
            bypass.address
            for bypass in self.bypassed
            if not bypass.address.startswith(METADATA_SERVICES)
        ]
        return [*dict.fromkeys([*unread, *past, *self.missing])]

    @property
    def is_whole(self) -> bool | None:
        """Whether all that the program exchanged is in the rows; None where that is not known."""
        if self.unseen:
            return False
        return None if self.uncertain else True
