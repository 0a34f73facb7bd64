"""One request and its response, passed on to the server under the conditions of its arrival, and its row."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from random import Random

from helpers.netem.http import (
    BadHead,
    BodyTransfer,
    Head,
    PeerClosed,
    Pipe,
    Source,
    has_body,
    parse_response,
    range_of,
    send,
)
from helpers.netem.profiles import Fault, Profile
from helpers.netem.shaping import (
    REAL_TIME,
    Link,
    VirtualTime,
    Window,
    normal_variates,
)

# A server on loopback or in the same site accepts in well under this.
CONNECT_TIMEOUT_S = 10.0

# How long `Trace.take` waits for rows of requests whose last byte is being sent.
GRACE_S = 0.25


@dataclass(slots=True)
class OpenRequest:
    """Gather the row of a request while it is served; see `helpers.netem.proxy.Request`."""

    start_s: float  # times are of the trace's clock
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

    def count(self, nbytes: int) -> None:
        """Add to the bytes of the body handed to the client."""
        self.nbytes += nbytes


class Trace:
    """Collect the rows of many threads."""

    def __init__(self, virtual: VirtualTime = REAL_TIME) -> None:
        self._condition = threading.Condition()
        self._rows: list[tuple[object, ...]] = []
        self._n_ending = 0
        self.set_clock(virtual)

    def set_clock(self, virtual: VirtualTime) -> None:
        """Stamp by another clock from now on, between two reads."""
        self.time = virtual
        # Epoch of this clock: wall-clock times that do not jump with the clock.
        self._epoch_s = time.time() - virtual.now_s()

    def ending(self, row: OpenRequest) -> None:
        """Announce that the next send may be the last, so that `take` waits for its row."""
        if not row.is_ending:
            row.is_ending = True
            with self._condition:
                self._n_ending += 1

    def add(self, row: OpenRequest) -> None:
        """Write the row of a request that ends now."""
        times = (row.start_s, row.first_byte_s, self.time.now_s())
        written = (
            *(0.0 if at_s is None else round(at_s + self._epoch_s, 6) for at_s in times),
            *(row.connection, row.method, row.key, row.range_start, row.range_nbytes),
            *(row.status, row.nbytes, row.tag, row.worker, row.is_cut, row.is_first),
        )
        with self._condition:
            self._rows.append(written)
            if row.is_ending:
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


class Upstream:
    """Hold one connection to the server, opened when first needed."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self._source: Source | None = None
        self.passed_s = 0.0  # when the last request had been passed on with its body

    def close(self) -> None:
        """Drop the connection, whatever is under way on it."""
        if self._source is not None:
            self._source.sock.close()
            self._source = None

    def open(self) -> Source:
        """Return a connection that is open as far as can be told without using it."""
        if self._source is not None and _is_readable(self._source.sock):
            self.close()  # an idle connection that has something to say says that it is closed
        if self._source is None:
            sock = socket.create_connection(self.address, CONNECT_TIMEOUT_S)
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._source = Source(sock)
        return self._source

    def ask(self, request: Head, body: BodyTransfer, source: Source) -> Head:
        """Pass a request on with its body, and return the head of its final response."""
        send(source.sock, request.raw)
        if request.is_chunked:
            body.move_chunked(body.move)
        else:
            body.move(request.length or 0)
        self.passed_s = body.stream.link.time.now_s()
        while True:
            raw = source.read_head()
            if not raw:
                raise PeerClosed("it closed the connection without an answer")
            response = parse_response(raw)
            if response.status >= 200:  # interim ones are for the proxy, which answers them itself
                return response


def _is_readable(sock: socket.socket) -> bool:
    """Tell whether reading would return at once."""
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(0))


@dataclass(frozen=True, slots=True)
class RequestConditions:
    """Hold what one request meets."""

    link: Link  # the link its bodies pass
    delay_s: float  # seconds from the request to the first byte of its response
    fault: Fault | None  # what goes wrong; `error_503` also where the request rate is exceeded
    tag: str  # the tag in force


class Network:
    """Hold what is emulated on all connections; it can be changed at any moment.

    Delays and faults are drawn in the order in which requests arrive, each from a
    sequence of the seed, which go on when the profile changes.
    """

    def __init__(
        self, address: tuple[str, int], *, seed: int, virtual: VirtualTime = REAL_TIME
    ) -> None:
        self.address, self.time = address, virtual
        self.trace = Trace(virtual)
        self._lock = threading.Lock()
        self._delays = Random(f"delays {seed}")
        self._variates = normal_variates(self._delays)
        self._faults = Random(f"faults {seed}")
        self.link = Link(Profile("loopback"), virtual)
        self._tag = ""

    def emulate(self, profile: Profile, dilation: float | None = None) -> None:
        """Emulate a profile on the requests that arrive from now on, maybe at another dilation.

        A new set of delays begins, so that what follows meets whole sets.
        """
        if dilation is not None:
            self.time = VirtualTime(dilation)
            self.trace.set_clock(self.time)
        link = Link(profile, self.time)
        with self._lock:
            self.link = link
            self._variates = normal_variates(self._delays)

    def set_tag(self, tag: str) -> None:
        """Tag the requests that arrive from now on."""
        with self._lock:
            self._tag = tag

    def admit(self, now_s: float) -> RequestConditions:
        """Draw what a request meets that arrives now."""
        with self._lock:
            z, u = next(self._variates), self._faults.random()
            link, tag = self.link, self._tag
        profile = link.profile
        delay_s = 0.0 if profile.first_byte_s is None else profile.first_byte_s.delay_s(z)
        fault = profile.faults.pick(u) if link.admits(now_s) else "error_503"
        return RequestConditions(link, delay_s, fault, tag)


SLOW_DOWN = "Please reduce your request rate."
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_ERRORS = {
    400: ("Bad Request", "BadRequest"),
    502: ("Bad Gateway", "BadGateway"),
    503: ("Slow Down", "SlowDown"),
}


def refuse(
    client: Source, trace: Trace, row: OpenRequest, status: int, reason: str, is_kept: bool = False
) -> bool:
    """Answer with an error of the proxy's own, as S3 words it; tell whether the connection goes on."""
    phrase, code = _ERRORS[status]
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{reason}</Message></Error>'.encode()
    options = "" if is_kept else "Connection: close\r\n"
    head = f"HTTP/1.1 {status} {phrase}\r\n{options}Content-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    sent = b"" if row.method == "HEAD" else body
    row.status, row.first_byte_s = status, trace.time.now_s()
    trace.ending(row)
    send(client.sock, head.encode() + sent)
    row.count(len(sent))
    return is_kept


@dataclass(slots=True)
class Exchange:
    """Serve one request. One that brings a body meets no fault and no ceiling on requests."""

    client: Source  # where the request comes from and its response goes to
    upstream: Upstream  # where the request goes to
    pipe: Pipe  # what carries the bodies
    request: Head
    met: RequestConditions
    trace: Trace
    row: OpenRequest
    window: Window  # what its connection may send in a round trip
    fault: Fault | None = field(init=False)  # still to come

    def __post_init__(self) -> None:
        self.fault = None if self.request.brings_body else self.met.fault

    def serve(self) -> bool:
        """Serve the request; tell whether the connection goes on."""
        if self.fault == "reset":
            # closing without lingering sends RST instead of FIN
            linger = struct.pack("ii", 1, 0)
            self.client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            raise PeerClosed(self.fault)
        is_kept = self.request.keeps_alive(self.request.first[2])
        if self.fault == "error_503":
            self.met.link.sleep_until(self.row.start_s + self.met.delay_s)
            return refuse(self.client, self.trace, self.row, 503, SLOW_DOWN, is_kept)
        if self.request.expects_continue:
            send(self.client.sock, _CONTINUE)
        try:
            source = self.upstream.open()
            stream = self.met.link.open_stream(self.row.worker)
            body = BodyTransfer(self.client, source.sock, self.pipe, stream)
            response = self.upstream.ask(self.request, body, source)
        except (BadHead, OSError) as error:
            where = "http://{}:{}".format(*self.upstream.address)
            reason = f"the proxy got no answer from {where}: {error}"
            return refuse(self.client, self.trace, self.row, 502, reason)
        return self._respond(response, source) and is_kept

    def _respond(self, response: Head, source: Source) -> bool:
        """Pass a response back; tell whether the connection goes on."""
        row = self.row
        row.range_start, row.range_nbytes = range_of(self.request, response)
        is_empty = not has_body(self.request.first[0], response.status) or response.length == 0
        # the first byte is due a delay after the end of the request
        asked_s = self.upstream.passed_s if self.request.brings_body else row.start_s
        self.met.link.sleep_until(asked_s + self.met.delay_s)
        if is_empty:
            self.trace.ending(row)
        row.status = response.status
        row.first_byte_s = self.met.link.time.now_s()
        send(self.client.sock, response.raw)
        row.is_cut = not is_empty  # until all of it has passed
        is_delimited = is_empty or self._pass_body(response, source)
        row.is_cut = False
        return is_delimited and response.keeps_alive(response.first[0])

    def _pass_body(self, response: Head, source: Source) -> bool:
        """Pass the body of a response back; tell whether it had an end of its own."""
        body = BodyTransfer(
            source,
            self.client.sock,
            self.pipe,
            self.met.link.open_stream(self.row.worker, self.window),
            self.row.count,
            lambda: self.trace.ending(self.row),
        )
        if response.is_chunked:
            body.move_chunked(lambda nbytes: self._move(body, nbytes, is_last=False))
        elif response.length is not None:
            self._move(body, response.length, is_last=True)
        else:
            body.move(None)
            return False
        return True

    def _stall(self) -> None:
        """Hand on nothing for a while, unless the client gives up before."""
        link = self.met.link
        until_s = link.time.now_s() + link.profile.faults.stall_s
        while (now_s := link.time.now_s()) < until_s:
            link.sleep_until(min(until_s, now_s + 0.05))
            if _is_readable(self.client.sock):
                raise PeerClosed("the client gave up while the body stalled")

    def _move(self, body: BodyTransfer, nbytes: int, *, is_last: bool) -> None:
        """Move part of a body, with the fault in its middle if there is one to come."""
        fault, self.fault = self.fault, None
        if fault is not None:
            body.move(nbytes // 2)
            nbytes -= nbytes // 2
        if fault == "truncate":
            raise PeerClosed(fault)
        if fault == "stall":
            self._stall()
        if fault == "corrupt":
            body.ending()
            send(body.sink, bytes([body.source.read_byte() ^ 0xFF]))
            body.count(1)
            nbytes -= 1
        body.move(nbytes, is_last=is_last)
