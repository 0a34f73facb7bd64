"""Relaying HTTP/1.1 as a state machine over bytes, with no socket in it.

`RelayProtocol.run` is a generator: it yields commands and is sent their replies; an error that a command
met is thrown into it. It parses heads and the framing of chunked bodies. Of all other bodies it sees no
byte: it has their length carried from one side to the other. `wire.bed.relay` carries commands out over
sockets, and tests write down what happens on either side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from enum import IntEnum
from math import inf
from typing import Any

from wire.bed import messages
from wire.bed.messages import (
    BadHead,
    ChunkFraming,
    Head,
    PeerClosed,
    parse_request,
    parse_response,
)

ANSWER_PAUSE_S = 0.1
"""A head of an answer that pauses for longer is passed on as far as it has come."""

REQUEST_PAUSE_S = 1.0
"""A head of a request that pauses for longer is passed on as it comes, and the connection is read no more."""

HEAD_END = b"\r\n\r\n"


class Side(IntEnum):
    """One of the two ends between which a relay stands."""

    CLIENT = 0
    SERVER = 1


CLIENT, SERVER = Side


# Commands and replies are not frozen: some fifteen are made for a request, at three times the cost.


@dataclass(slots=True)
class Receive:
    """Wait for bytes of the first of these sides that has some; the reply is `Received`, or None in time."""

    sides: tuple[Side, ...]
    timeout_s: float | None = None


@dataclass(slots=True)
class Received:
    """Bytes of a side; none if it has closed."""

    side: Side
    data: bytes


@dataclass(slots=True)
class Send:
    """Send bytes that are no body: heads and interim answers."""

    to: Side
    data: bytes
    is_last: bool = False  # of the response


@dataclass(slots=True)
class SendFramed:
    """Send bytes of a chunked body, its framing included, at the pace of its payload."""

    to: Side
    data: bytes
    n_payload: int
    is_last: bool = False


@dataclass(slots=True)
class Carry:
    """Carry raw bytes of a body to the other side, at its pace; infinitely many until the sender closes."""

    source: Side
    nbytes: float
    first: bytes = b""  # of them, those that were received already
    is_flipped: bool = False  # whether each bit of them is turned over
    is_last: bool = False  # of the response


@dataclass(slots=True)
class Connect:
    """Open the connection to the server; the reply tells whether it is another than before."""


@dataclass(slots=True)
class BeginExchange:
    """Show a request to the hooks; the reply is a `Decision`."""

    request: Head


@dataclass(slots=True)
class RefuseRequest:
    """Begin the exchange of what is no request; the reply is an `Answer`, or nothing where it passes unread."""

    problem: str


@dataclass(slots=True)
class RefuseFailure:
    """Ask what to answer where the server does not; the reply is an `Answer`, or nothing to fail alike."""

    error: Exception


@dataclass(slots=True)
class SendAnswer:
    """Send the client an answer that is not the server's."""

    answer: Answer


@dataclass(slots=True)
class RequestSent:
    """State that the server has the whole request."""


@dataclass(slots=True)
class BeginBody:
    """Show the head of a final response to the hooks; the reply tells whether its body is interrupted."""

    response: Head
    is_empty: bool


@dataclass(slots=True)
class Interrupt:
    """Do what is to happen in the middle of a body; the reply tells whether the next byte is flipped."""


@dataclass(slots=True)
class EndBody:
    """State that the whole body has passed."""


@dataclass(slots=True)
class EndExchange:
    """State that the exchange has ended."""


@dataclass(slots=True)
class PassUnread:
    """Pass on whatever comes until both sides have closed; one way, until the client says something."""

    reason: str
    is_one_way: bool = False
    from_client: bytes = b""  # received already
    from_server: bytes = b""


Command = (
    Receive
    | Send
    | SendFramed
    | Carry
    | Connect
    | BeginExchange
    | RefuseRequest
    | RefuseFailure
    | SendAnswer
    | RequestSent
    | BeginBody
    | Interrupt
    | EndBody
    | EndExchange
    | PassUnread
)


@dataclass(slots=True)
class Forward:
    """Decide that the request goes to the server, maybe with another head."""

    raw: bytes


@dataclass(slots=True)
class Answer:
    """Decide that the client gets this answer, without the server."""

    status: int
    head: bytes
    body: bytes = b""
    is_kept: bool = False  # whether the connection goes on


@dataclass(slots=True)
class Restart:
    """Decide that what follows are requests inside a tunnel: nothing received so far is of them."""


@dataclass(slots=True)
class LeaveUnread:
    """Decide that what follows is passed on unread."""

    reason: str


@dataclass(slots=True)
class Close:
    """Decide that the connection ends."""


Decision = Forward | Answer | Restart | LeaveUnread | Close
Steps = Generator[Command, Any, Any]


class OtherProtocol(Exception):
    """What one side says is no HTTP/1.1: by agreement (101), or because it speaks no such thing."""

    def __init__(self, *, is_agreed: bool = False) -> None:
        super().__init__()
        self.is_agreed = is_agreed

    @property
    def reason(self) -> str:
        """Words for it."""
        return "it changed to another protocol" if self.is_agreed else "it is not HTTP/1.1"


class RelayProtocol:
    """Relay the requests of one connection.

    A transparent relay stands in for the network: what one side says or breaks is what the other meets,
    and what is no HTTP/1.1 passes unread. One that is not stands in for the server: it answers itself
    what cannot be read (400) and what the server does not answer (502), within a time.
    """

    def __init__(
        self, *, is_transparent: bool = False, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._is_transparent, self._now_s = is_transparent, now_s
        self._buffers = [b"", b""]  # of either side: received, and not passed on
        self._is_tunnel = self._is_connected = self._is_served = False

    def run(self) -> Generator[Command, Any, None]:
        """Serve requests, to the end of the connection."""
        while (yield from self._serve_one()):
            pass

    def _serve_one(self) -> Steps:
        """Serve one request; return whether the connection goes on."""
        is_idle = self._is_transparent and self._is_connected and not self._buffers[CLIENT]
        if is_idle and (yield from self._receive(SERVER, CLIENT)) is SERVER:
            # a server that closes, or says something unasked, has no answer to come: what it says
            # then would reach the program late, as the answer to its next request
            if self._buffers[SERVER] and not self._is_served:
                yield self._unread("its server speaks first")
            return False
        raw, is_whole = yield from self._read_request_head()
        if not raw:
            return False
        try:
            request = parse_request(raw if is_whole else b"")
            decision = yield BeginExchange(request)
        except BadHead as error:
            return (yield from self._refuse(raw, str(error) if is_whole else _describe(raw)))
        if isinstance(decision, Restart):
            self._buffers = [b"", b""]
            self._is_tunnel = self._is_connected = True
            return True
        if isinstance(decision, LeaveUnread):
            yield self._unread(decision.reason)
        if isinstance(decision, Close | LeaveUnread):
            return False
        self._is_served = True
        try:
            is_kept = yield from self._exchange(request, decision)
        except OtherProtocol as other:
            yield EndExchange()
            # what comes next from the program may be for another server
            is_one_way = not (self._is_tunnel or other.is_agreed)
            yield self._unread(other.reason, is_one_way=is_one_way)
            return False
        yield EndExchange()
        return is_kept

    def _refuse(self, raw: bytes, problem: str) -> Steps:
        """Answer what is no request, or pass it on unread in a tunnel, whose one server it is for."""
        if self._is_tunnel and self._is_transparent:
            self._buffers[CLIENT] = raw + self._buffers[CLIENT]
            yield self._unread("it is not HTTP/1.1")
        else:
            yield SendAnswer((yield RefuseRequest(problem)))
            yield EndExchange()
        return False

    def _unread(self, reason: str, *, is_one_way: bool = False) -> PassUnread:
        """Hand over what was received with what is still to come."""
        client, server = self._buffers[CLIENT], self._buffers[SERVER]
        return PassUnread(reason, is_one_way, client, server)

    def _receive(self, *sides: Side, timeout_s: float | None = None) -> Steps:
        """Wait for bytes of one of these sides, the first that has some; return it, or None in time.

        Of a side that has closed the buffer is empty.
        """
        for side in sides:
            if self._buffers[side]:
                return side
        return (yield from self._receive_more(*sides, timeout_s=timeout_s))

    def _receive_more(self, *sides: Side, timeout_s: float | None = None) -> Steps:
        """Wait for more than the buffers hold."""
        received = yield Receive(sides, timeout_s)
        if received is None:
            return None
        self._buffers[received.side] += received.data
        return received.side

    def _take(self, side: Side, nbytes: float) -> bytes:
        """Take at most so many bytes out of a buffer."""
        buffer = self._buffers[side]
        if not buffer:
            return b""
        n = int(min(nbytes, len(buffer)))
        self._buffers[side] = buffer[n:]
        return buffer[:n]

    def _read_request_head(self) -> Steps:
        """Read the head of a request; return it and whether it is one: it may be too long, end or pause."""
        n_bytes, until_s = 0, inf
        pause_s = REQUEST_PAUSE_S if self._is_transparent and self._is_tunnel else None
        while (end := self._buffers[CLIENT].find(HEAD_END)) < 0:
            n_bytes = len(self._buffers[CLIENT])
            timeout_s = pause_s if n_bytes else None
            if n_bytes and not self._is_transparent:
                until_s = min(until_s, self._now_s() + messages.HEAD_TIMEOUT_S)
                timeout_s = max(until_s - self._now_s(), 0.0)
            if n_bytes > messages.MAX_HEAD_NBYTES:
                break
            yield from self._receive_more(CLIENT, timeout_s=timeout_s)
            if len(self._buffers[CLIENT]) == n_bytes:
                break  # it pauses, or has closed
        n_head = end + len(HEAD_END) if end >= 0 else n_bytes
        return self._take(CLIENT, n_head), end >= 0

    def _exchange(self, request: Head, decision: Forward | Answer) -> Steps:
        """Have a request answered; return whether the connection goes on."""
        is_kept = request.keeps_alive(request.first[2])
        if isinstance(decision, Answer):
            yield SendAnswer(decision)
            return decision.is_kept and is_kept
        try:
            response, is_whole = yield from self._ask(request, decision.raw)
        except (BadHead, OSError) as error:
            answer = yield RefuseFailure(error)
            if answer is None:
                raise
            yield SendAnswer(answer)
            return False
        return (yield from self._respond(request, response)) and is_kept and is_whole

    def _ask(self, request: Head, raw: bytes) -> Steps:
        """Pass a request on; return the head of its final response, and whether the server took all of it."""
        if (yield Connect()):
            self._buffers[SERVER] = b""
        self._is_connected, is_whole, response = True, True, None
        yield Send(SERVER, raw)
        if request.expects_continue:
            response = yield from self._wait_for_consent()
        if request.brings_body:
            is_whole = response is None and (yield from self._send_body(request))
        yield RequestSent()
        while response is None or response.status < 200:
            if response is not None:
                yield Send(CLIENT, response.raw)
            response = yield from self._read_response()
        return response, is_whole

    def _wait_for_consent(self) -> Steps:
        """Pass on that the body may come, or return what the server says instead; a client may not wait for it."""
        while (yield from self._receive(CLIENT, SERVER)) is SERVER:
            response = yield from self._read_response()
            if response.status >= 200:
                return response
            yield Send(CLIENT, response.raw)
            if response.status == 100:
                break
        return None

    def _send_body(self, request: Head) -> Steps:
        """Pass the body of a request on; return whether the server took all of it."""
        try:
            if request.is_chunked:
                yield from self._pass_chunked(CLIENT, SERVER)
            else:
                n = request.length or 0
                yield Carry(CLIENT, n, self._take(CLIENT, n))
        except OSError:
            if (yield from self._receive(SERVER, timeout_s=0)) is None:
                raise  # else it says why it takes no more
            return False
        return True

    def _read_response(self) -> Steps:
        """Read the head of a response; of a transparent relay what comes before a pause is passed on at once.

        The bytes of the head are those that are still to be passed on.
        """
        n_passed, until_s = 0, inf
        while (end := self._buffers[SERVER].find(HEAD_END)) < 0:
            n_bytes = len(self._buffers[SERVER])
            if n_bytes > messages.MAX_HEAD_NBYTES:
                break
            timeout_s = ANSWER_PAUSE_S if n_bytes > n_passed else None
            if not self._is_transparent and n_bytes:
                until_s = min(until_s, self._now_s() + messages.HEAD_TIMEOUT_S)
                timeout_s = max(until_s - self._now_s(), 0.0)
            received = yield Receive((SERVER,), timeout_s)
            if received is None and self._is_transparent:
                yield Send(CLIENT, self._buffers[SERVER][n_passed:])
                n_passed = n_bytes
            elif received is None:
                raise BadHead(f"no end within {messages.HEAD_TIMEOUT_S:g} s")
            elif not received.data:
                break
            else:
                self._buffers[SERVER] += received.data
        if not self._buffers[SERVER]:
            raise PeerClosed("it closed the connection without an answer")
        return (yield from self._parse_response(end, n_passed))

    def _parse_response(self, end: int, n_passed: int) -> Steps:
        """Parse the head of a response that ends there, if it does, and of which so much has been passed on."""
        nbytes = end + len(HEAD_END) if end >= 0 else len(self._buffers[SERVER])
        raw = self._take(SERVER, nbytes)
        try:
            if end < 0:
                raise BadHead("a head without an end")
            response = parse_response(raw)
            if n_passed:
                response = replace(response, raw=raw[n_passed:])
        except BadHead:
            if not self._is_transparent:
                raise
            self._buffers[SERVER] = raw[n_passed:] + self._buffers[SERVER]
            raise OtherProtocol from None
        if response.status == 101:
            yield BeginBody(response, is_empty=True)
            yield Send(CLIENT, response.raw, is_last=True)
            raise OtherProtocol(is_agreed=True)
        return response

    def _respond(self, request: Head, response: Head) -> Steps:
        """Pass a response back; return whether the connection can go on after it."""
        has_none = request.first[0] == b"HEAD" or response.status in (204, 304)
        is_chunked, nbytes = response.is_chunked, response.length
        is_empty = has_none or (nbytes == 0 and not is_chunked)
        is_interrupted = yield BeginBody(response, is_empty)
        yield Send(CLIENT, response.raw, is_last=is_empty)
        if not is_empty:
            if is_chunked:
                yield from self._pass_chunked(SERVER, CLIENT, is_interrupted=is_interrupted)
            elif nbytes is not None:
                yield from self._carry(nbytes, is_interrupted=is_interrupted, is_last=True)
            else:
                yield from self._carry(inf)
            yield EndBody()
        is_delimited = is_empty or is_chunked or nbytes is not None
        return is_delimited and response.keeps_alive(response.first[0])

    def _carry(
        self, nbytes: float, *, is_interrupted: bool = False, is_last: bool = False
    ) -> Steps:
        """Carry a part of the response's body, with what interrupts it in its middle."""
        if is_interrupted:
            if half := nbytes // 2:
                yield Carry(SERVER, half, self._take(SERVER, half))
            nbytes -= half
            if (yield Interrupt()):
                yield Carry(SERVER, 1, self._take(SERVER, 1), True, is_last and nbytes == 1)
                nbytes -= 1
        if nbytes:
            yield Carry(SERVER, nbytes, self._take(SERVER, nbytes), is_last=is_last)

    def _pass_chunked(self, source: Side, sink: Side, *, is_interrupted: bool = False) -> Steps:
        """Pass a chunked body on byte for byte; only the first chunk is interrupted."""
        framing = ChunkFraming()
        while not framing.is_over:
            if n := framing.n_payload_left:
                if is_interrupted:
                    yield from self._carry(n, is_interrupted=True)
                    is_interrupted = False
                else:
                    yield Carry(source, n, self._take(source, n))
                framing.skip(n)
                continue
            yield from self._receive(source)
            if not self._buffers[source]:
                raise PeerClosed("closed in the middle of a chunked body")
            n_before = framing.nbytes
            n = framing.follow(self._buffers[source], is_payload_left=is_interrupted)
            if framing.is_broken and not self._is_transparent:
                raise PeerClosed("sent a chunk without a length")
            n_payload, is_last = framing.nbytes - n_before, framing.is_over and sink is CLIENT
            yield SendFramed(sink, self._take(source, n), n_payload, is_last)
            if framing.is_broken:
                raise OtherProtocol


def _describe(raw: bytes) -> str:
    """Describe why what was read is no head."""
    if len(raw) > messages.MAX_HEAD_NBYTES:
        return f"no end within {messages.MAX_HEAD_NBYTES} bytes"
    return "a head without an end"
