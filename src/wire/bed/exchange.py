"""One request and its response, passed on to the server under the conditions of its arrival, and its row.

Bodies pass from one socket to the other without being looked at, at the pace of a stream.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random

from wire.bed.link import FREE_QUANTUM_NBYTES, Link, Stream, VirtualTime, Window, normal_variates
from wire.bed.messages import (
    BadHead,
    Head,
    PeerClosed,
    Source,
    is_readable,
    parse_response,
    range_of,
)
from wire.bed.networks import Fault, Profile
from wire.bed.requests import RequestRow

# A server on loopback or in the same site accepts in well under this.
CONNECT_TIMEOUT_S = 10.0

# Most interim responses before the one that counts.
MAX_INTERIM = 10

# How long `Trace.take` waits for rows of requests whose last byte is being sent.
GRACE_S = 0.25

COPIED_NBYTES = 1 << 18  # at a time, where bodies do not pass through the kernel: what caches hold

HAS_SPLICE = hasattr(os, "splice")


class Trace:
    """Collect the rows of many threads."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._rows = list[RequestRow]()
        self._ending = set[int]()  # rows of which the last byte is being sent
        self._epochs_s = dict[VirtualTime, float]()

    def ending(self, row: RequestRow) -> None:
        """Announce that the next send may be the last, so that `take` waits for its row."""
        with self._condition:
            self._ending.add(id(row))

    def add(self, row: RequestRow, clock: VirtualTime) -> None:
        """Take the row of a request that ends now, whose moments are of this clock."""
        row.end_s = clock.now_s()
        with self._condition:
            # wall-clock times that do not jump with the wall's clock
            epoch_s = self._epochs_s.setdefault(clock, time.time() - clock.now_s())
            moments = (row.start_s, row.first_byte_s, row.end_s)
            stamps = (round(at_s + epoch_s, 6) if at_s else 0.0 for at_s in moments)
            self._ending.discard(id(row))
            row.start_s, row.first_byte_s, row.end_s = stamps
            self._rows.append(row)
            self._condition.notify_all()

    def take(self) -> list[RequestRow]:
        """Return the rows gathered since the last call and forget them.

        A client may have the last byte of a response before the thread that
        sent it has written the row; those rows are waited for.
        """
        with self._condition:
            self._condition.wait_for(lambda: not self._ending, timeout=GRACE_S)
            rows, self._rows = self._rows, []
        return rows


class Pipe:
    """Carry bytes between two sockets: through the kernel, or by copying.

    `os.splice` moves pages from one socket to a pipe and on to the other, so a
    body never enters Python. Where the system has none (macOS), and where a side
    is encrypted, bytes are copied.
    """

    def __init__(self, *, is_copying: bool = False) -> None:
        self._ends = os.pipe() if HAS_SPLICE and not is_copying else ()
        self._buffer = memoryview(bytearray(0 if self._ends else COPIED_NBYTES))
        if sys.platform == "linux" and self._ends:
            import fcntl

            # over the user's share of pipe pages (64 MiB) it stays at 64 KiB, which costs wake-ups
            with contextlib.suppress(PermissionError):
                fcntl.fcntl(self._ends[1], fcntl.F_SETPIPE_SZ, FREE_QUANTUM_NBYTES)

    def close(self) -> None:
        """Close the pipe; bytes that are still in it are lost."""
        for end in self._ends:
            os.close(end)

    def take(self, source: socket.socket, limit_nbytes: int) -> int:
        """Take what has arrived, at most `limit_nbytes`; 0 means that the sender closed."""
        if sys.platform == "linux" and self._ends:
            return os.splice(source.fileno(), self._ends[1], limit_nbytes)
        room = self._buffer[:limit_nbytes]
        taken = source.recv_into(room)
        if isinstance(source, ssl.SSLSocket) and taken:
            # a record is 16 KiB at most, and each turn costs: what else is there comes along
            source.setblocking(False)
            with contextlib.suppress(ssl.SSLWantReadError):
                while more := source.recv_into(room[taken:]) if taken < len(room) else 0:
                    taken += more
            source.setblocking(True)
        return taken

    def give(self, sink: socket.socket, nbytes: int, count: Callable[[int], None]) -> None:
        """Hand the `nbytes` taken last to the receiver, and count what it has room for each time."""
        given = 0
        while given < nbytes:
            if sys.platform == "linux" and self._ends:
                n_more = os.splice(self._ends[0], sink.fileno(), nbytes - given)
            else:
                n_more = sink.send(self._buffer[given:nbytes])
            count(n_more)
            given += n_more


@dataclass(frozen=True, slots=True)
class BodyTransfer:
    """Move a body from its sender to its receiver, at the pace of a stream."""

    source: Source
    sink: socket.socket
    pipe: Pipe  # what carries it
    stream: Stream  # when its bytes may pass
    count: Callable[[int], None] = lambda _nbytes: None  # learns what was handed on
    ending: Callable[[], None] = lambda: None  # learns that the next send may be the last

    def move(self, nbytes: float, *, is_last: bool = False) -> None:
        """Move `nbytes` in paced quanta, or where they are infinite all until the sender closes."""
        while nbytes > 0:
            limit = int(min(nbytes, self.stream.quantum_nbytes))
            kept = self.source.take_kept(limit)
            moved = len(kept) or self.pipe.take(self.source.sock, limit)
            if not moved and nbytes == inf:
                return
            if not moved:
                raise PeerClosed(f"closed {nbytes} bytes before the end of a body")
            self.stream.wait(moved)
            if is_last and moved == nbytes:
                self.ending()
            if kept:
                self.sink.sendall(kept)
                self.count(moved)
            else:
                self.pipe.give(self.sink, moved, self.count)
            nbytes -= moved

    def move_chunked(self, move_payload: Callable[[int], None]) -> None:
        """Move a chunked body, its framing neither paced nor counted; `move_payload` moves the bytes of one chunk."""
        while True:
            line, nbytes = self.source.read_chunk_length()
            if not nbytes:
                break
            self.sink.sendall(line)
            move_payload(nbytes)
            self.sink.sendall(self.source.read_line())
        trailer = self.source.read_trailer()
        self.ending()
        self.sink.sendall(line + trailer)


class Upstream:
    """Hold one connection to the server, opened when first needed."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.source: Source | None = None
        self.passed_s = 0.0  # when the last request had been passed on with its body

    def close(self) -> None:
        """Drop the connection, whatever is under way on it."""
        if self.source is not None:
            self.source.sock.close()
            self.source = None

    def open(self) -> Source:
        """Return a connection that is open as far as can be told without using it."""
        if self.source is not None and is_readable(self.source.sock):
            self.close()  # an idle connection that has something to say says that it is closed
        if self.source is None:
            self.source = Source(socket.create_connection(self.address, CONNECT_TIMEOUT_S))
            self.source.sock.settimeout(None)
            self.source.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.source

    def ask(self, request: Head, body: BodyTransfer, source: Source) -> Head:
        """Pass a request on with its body, and return the head of its final response."""
        source.sock.sendall(request.raw)
        if request.is_chunked:
            body.move_chunked(body.move)
        else:
            body.move(request.length or 0)
        self.passed_s = body.stream.link.time.now_s()
        for _ in range(MAX_INTERIM):
            raw = source.read_head()
            if not raw:
                raise PeerClosed("it closed the connection without an answer")
            response = parse_response(raw)
            if response.status >= 200:  # interim ones are for the proxy, which answers them itself
                return response
        raise BadHead(f"no answer after {MAX_INTERIM} interim ones")


@dataclass(frozen=True, slots=True)
class RequestConditions:
    """Hold what one request meets."""

    link: Link  # the link its bodies pass
    delay_s: float  # seconds from the request to the first byte of its response
    fault: Fault | None  # what goes wrong; `error_503` also where the request rate is exceeded
    tag: str  # the tag in force


class Emulation:
    """Hold what is emulated on all connections; it can be changed at any moment.

    Delays and faults are drawn in the order in which requests arrive, each from a
    sequence of the seed, which go on when the profile changes.
    """

    def __init__(self, address: tuple[str, int], *, seed: int, dilation: float = 1.0) -> None:
        self.address, self.trace = address, Trace()
        self._lock = threading.Lock()
        self._delays = Random(f"delays {seed}")
        self._variates = normal_variates(self._delays)
        self._faults = Random(f"faults {seed}")
        self.link = Link(Profile("loopback"), VirtualTime(dilation))
        self.tag = ""  # of the requests that arrive from now on
        self.tls: ssl.SSLContext | None = None  # with which clients are answered that speak TLS

    def emulate(self, profile: Profile, dilation: float | None = None) -> None:
        """Emulate a profile on the requests that arrive from now on, maybe at another dilation.

        A new set of delays begins, so that what follows meets whole sets.
        """
        clock = self.link.time if dilation is None else VirtualTime(dilation)
        with self._lock:
            self.link = Link(profile, clock)
            self._variates = normal_variates(self._delays)

    def admit(self, link: Link, now_s: float) -> RequestConditions:
        """Draw what a request meets that arrives now, over the link that it arrived on."""
        with self._lock:
            z, u, tag = next(self._variates), self._faults.random(), self.tag
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
    client: Source,
    trace: Trace,
    row: RequestRow,
    clock: VirtualTime,
    *,
    status: int,
    reason: str,
    is_kept: bool = False,
) -> bool:
    """Answer with an error of the proxy's own, as S3 words it; tell whether the connection goes on."""
    phrase, code = _ERRORS[status]
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{reason}</Message></Error>'.encode()
    options = "" if is_kept else "Connection: close\r\n"
    head = f"HTTP/1.1 {status} {phrase}\r\n{options}Content-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    sent = b"" if row.method == "HEAD" else body
    row.status, row.first_byte_s = status, clock.now_s()
    trace.ending(row)
    client.sock.sendall(head.encode() + sent)
    row.nbytes += len(sent)
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
    row: RequestRow
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
            return self._refuse(503, SLOW_DOWN, is_kept)
        if self.request.expects_continue:
            self.client.sock.sendall(_CONTINUE)
        try:
            source = self.upstream.open()
            stream = self.met.link.open_stream(self.row.worker)
            body = BodyTransfer(self.client, source.sock, self.pipe, stream)
            response = self.upstream.ask(self.request, body, source)
        except (BadHead, OSError) as error:
            where = "http://{}:{}".format(*self.upstream.address)
            reason = f"the proxy got no answer from {where}: {error}"
            return self._refuse(502, reason)
        return self._respond(response, source) and is_kept

    def _refuse(self, status: int, reason: str, is_kept: bool = False) -> bool:
        ends = self.client, self.trace, self.row, self.met.link.time
        return refuse(*ends, status=status, reason=reason, is_kept=is_kept)

    def _respond(self, response: Head, source: Source) -> bool:
        """Pass a response back; tell whether the connection goes on."""
        row = self.row
        row.range_start, row.range_nbytes = range_of(self.request, response)
        has_none = self.request.first[0] == b"HEAD" or response.status in (204, 304)
        is_empty = has_none or response.length == 0
        # the first byte is due a delay after the end of the request
        asked_s = self.upstream.passed_s if self.request.brings_body else row.start_s
        self.met.link.sleep_until(asked_s + self.met.delay_s)
        if is_empty:
            self.trace.ending(row)
        row.status = response.status
        row.first_byte_s = self.met.link.time.now_s()
        self.client.sock.sendall(response.raw)
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
            self._count,
            lambda: self.trace.ending(self.row),
        )
        if response.is_chunked:
            body.move_chunked(lambda nbytes: self._move(body, nbytes, is_last=False))
        elif response.length is not None:
            self._move(body, response.length, is_last=True)
        else:
            body.move(inf)
            return False
        return True

    def _count(self, nbytes: int) -> None:
        self.row.nbytes += nbytes

    def _stall(self) -> None:
        """Hand on nothing for a while, unless the client gives up before."""
        link = self.met.link
        until_s = link.time.now_s() + link.profile.faults.stall_s
        while (now_s := link.time.now_s()) < until_s:
            link.sleep_until(min(until_s, now_s + 0.05))
            if is_readable(self.client.sock):
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
            body.sink.sendall(bytes([body.source.read_byte() ^ 0xFF]))
            body.count(1)
            nbytes -= 1
        body.move(nbytes, is_last=is_last)
