"""One request and its response, passed on to the server under the terms of its arrival."""

from __future__ import annotations

import select
import socket
import struct
import threading
from dataclasses import dataclass, field, replace
from random import Random

from helpers.netem.http import BadHead, Head, has_body, parse_response, range_of
from helpers.netem.peers import OWNER, Workers
from helpers.netem.profiles import Fault, Profile
from helpers.netem.shaping import REAL_TIME, Link, VirtualTime, Window, normal_variates
from helpers.netem.streams import HAS_SPLICE, Gone, Meter, Pipe, Source, Way, send
from helpers.netem.trace import Draft, Trace

# A server on loopback or in the same site accepts in well under this.
CONNECT_TIMEOUT_S = 10.0


class UpstreamError(ConnectionError):
    """The server gave no answer that could be passed on."""


class Upstream:
    """Hold one connection to the server, opened when first needed."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._source: Source | None = None
        self.is_spent = False  # whether the connection cannot carry another request
        self.passed_s = 0.0  # when the last request had been passed on with its body

    @property
    def url(self) -> str:
        """Where the server is, for messages."""
        return "http://{}:{}".format(*self._address)

    @property
    def open_source(self) -> Source:
        """The connection on which a response is being read."""
        if self._source is None:
            raise UpstreamError("no request is under way")
        return self._source

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
            try:
                sock = socket.create_connection(self._address, CONNECT_TIMEOUT_S)
            except OSError as error:
                raise UpstreamError(str(error)) from error
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._source = Source(sock)
        return self._source

    def ask(self, request: Head, body: Way) -> Head:
        """Pass a request on and return the head of its final response."""
        source = self.open()
        try:
            return self._converse(request, body, source)
        except BadHead as error:
            raise UpstreamError(str(error)) from error
        except Gone as error:
            if error.sock is source.sock:
                raise UpstreamError(str(error)) from error
            raise

    def _converse(self, request: Head, body: Way, source: Source) -> Head:
        """Send a request with its body, pass interim responses, return the final one."""
        send(source.sock, request.raw)
        response = None
        if request.expects_continue and not self._is_body_coming(body.source, source):
            response = self._read_response(source, body.source)
        if response is None:
            self._pass_body(request, body)
        else:
            self.is_spent = True  # whether the client still sends its body is open
        self.passed_s = body.stream.link.time.now_s()
        while response is None:
            response = self._read_response(source, body.source)
        return response

    def _pass_body(self, request: Head, body: Way) -> None:
        """Pass the body of a request on, as far as the server wants it."""
        try:
            body.move_body(request)
        except Gone as error:
            if error.sock is body.source.sock:
                raise
            self.is_spent = True  # it may have answered before it closed: read on

    def _is_body_coming(self, client: Source, source: Source) -> bool:
        """Wait for either side; tell whether the client sends without waiting for a 100."""
        if client.has_kept:
            return True
        readable, _, _ = select.select([client.sock, source.sock], [], [])
        return source.sock not in readable

    def _read_response(self, source: Source, client: Source) -> Head | None:
        """Read one response; an interim one is passed on at once, and None returned."""
        raw = source.read_head()
        if not raw:
            raise Gone(source.sock, "it closed the connection without an answer")
        response = parse_response(raw)
        if response.status >= 200:
            return response
        send(client.sock, raw)
        return None


def _is_readable(sock: socket.socket) -> bool:
    """Tell whether reading would return at once."""
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(0))


@dataclass(frozen=True, slots=True)
class Terms:
    """Hold what one request meets."""

    link: Link  # the link its bodies pass
    delay_s: float  # seconds from the request to the first byte of its response
    fault: Fault | None  # what goes wrong; `error_503` also where the request rate is exceeded
    tag: str  # the tag in force
    worker: int = OWNER  # number of the process that asks, where workers have links of their own


class Network:
    """Hold what is emulated on all connections; it can be changed at any moment.

    Delays, tails and faults are drawn in the order in which requests arrive, each from a
    sequence of the seed, which go on when the profile changes. Bodies pass
    through the kernel, or are copied.
    """

    def __init__(
        self,
        address: tuple[str, int],
        *,
        seed: int,
        owner_pid: int = 0,
        virtual: VirtualTime = REAL_TIME,
        is_spliced: bool = HAS_SPLICE,
    ) -> None:
        self.address, self.time = address, virtual
        self.workers = Workers(owner_pid)
        self.is_spliced = is_spliced
        self.trace = Trace(virtual)
        self._lock = threading.Lock()
        self._delays = Random(f"delays {seed}")
        self._variates = normal_variates(self._delays)
        self._faults = Random(f"faults {seed}")
        self._tails = Random(f"tails {seed}")
        self._link = Link(Profile("loopback"), virtual)
        self._tag = ""

    def emulate(self, profile: Profile, dilation: float | None = None) -> None:
        """Emulate a profile on the requests that arrive from now on, maybe at another dilation.

        A new set of delays begins, so that what follows meets whole sets.
        """
        if dilation is not None:
            self.time = VirtualTime(dilation)
            self.trace.live_in(self.time)
        link = Link(profile, self.time)
        with self._lock:
            self._link = link
            is_stratified = profile.is_stratified is not False
            self._variates = normal_variates(self._delays, is_stratified=is_stratified)

    def set_up(self, accepted_s: float) -> None:
        """Sleep until a connection that was accepted then can carry a request."""
        with self._lock:
            link = self._link
        link.sleep_until(accepted_s + link.profile.setup_s)

    def set_tag(self, tag: str) -> None:
        """Tag the requests that arrive from now on."""
        with self._lock:
            self._tag = tag

    def admit(self, now_s: float) -> Terms:
        """Draw what a request meets that arrives now."""
        with self._lock:
            z, u, tail = next(self._variates), self._faults.random(), self._tails.random()
            link, tag = self._link, self._tag
        profile = link.profile
        delay_s = 0.0 if profile.first_byte_s is None else profile.first_byte_s.delay_s(z)
        if profile.tail is not None and tail < profile.tail.share:
            delay_s += profile.tail.late_s
        fault = profile.faults.pick(u) if link.admits(now_s) else "error_503"
        return Terms(link, delay_s, fault, tag)


SLOW_DOWN = "Please reduce your request rate."
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_REASONS = {400: "Bad Request", 502: "Bad Gateway", 503: "Slow Down"}
_CODES = {400: "BadRequest", 502: "BadGateway", 503: "SlowDown"}


class CutShort(ConnectionError):
    """A fault that was asked for ends the connection here."""


@dataclass(frozen=True, slots=True)
class RowMeter(Meter):
    """Count the body of a response into its row."""

    trace: Trace
    draft: Draft

    def ending(self) -> None:
        """Announce that the row comes soon."""
        self.trace.ending(self.draft)

    def count(self, nbytes: int) -> None:
        """Add to the bytes of the row."""
        self.draft.nbytes += nbytes


def refuse(
    client: Source, meter: RowMeter, status: int, reason: str, *, is_kept: bool = False
) -> bool:
    """Answer with an error of the proxy's own, as S3 words it; tell whether the connection goes on."""
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{_CODES[status]}</Code><Message>{reason}</Message></Error>'.encode()
    options = "" if is_kept else "Connection: close\r\n"
    lines = f"HTTP/1.1 {status} {_REASONS[status]}\r\n{options}Content-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    is_head = meter.draft.method == "HEAD"
    meter.draft.status = status
    meter.draft.first_byte_s = meter.trace.time.now_s()
    meter.ending()
    send(client.sock, lines.encode() + (b"" if is_head else body))
    meter.count(0 if is_head else len(body))
    return is_kept


@dataclass(slots=True)
class Exchange:
    """Serve one request."""

    client: Source  # where the request comes from and its response goes to
    upstream: Upstream  # where the request goes to
    pipe: Pipe  # what carries the bodies
    request: Head  # the request
    terms: Terms  # what it meets
    meter: RowMeter  # the row it becomes
    window: Window  # what its connection may send in a round trip
    fault: Fault | None = field(init=False)

    def __post_init__(self) -> None:
        """Take the fault, which befalls once."""
        self.fault = self.terms.fault

    def serve(self) -> bool:
        """Serve the request; tell whether the connection goes on."""
        if self.fault == "reset":
            # closing without lingering sends RST instead of FIN
            linger = struct.pack("ii", 1, 0)
            self.client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            raise CutShort
        if self.fault == "error_503":
            return self._slow_down()
        try:
            to_server = self._way(self.client, self.upstream.open().sock, Meter())
            response = self.upstream.ask(self.request, to_server)
        except UpstreamError as error:
            text = f"the proxy got no answer from {self.upstream.url}: {error}"
            return refuse(self.client, self.meter, 502, text)
        return self._respond(response)

    def _way(
        self,
        source: Source,
        sink: socket.socket | None,
        meter: Meter,
        window: Window | None = None,
    ) -> Way:
        """Join a sender to a receiver, over the link that is emulated."""
        stream = self.terms.link.open_stream(self.terms.worker, window)
        return Way(source, sink, self.pipe, stream, meter)

    def _slow_down(self) -> bool:
        """Drop the body of the request and answer 503 when an answer is due."""
        if self.request.expects_continue:
            send(self.client.sock, _CONTINUE)
        nowhere = replace(self._way(self.client, None, Meter()), pipe=Pipe(is_spliced=False))
        nowhere.move_body(self.request)
        self._sleep_until_due(self.terms.link.time.now_s())
        is_kept = self.request.keeps_alive(self.request.first[2])
        return refuse(self.client, self.meter, 503, SLOW_DOWN, is_kept=is_kept)

    def _sleep_until_due(self, passed_s: float) -> None:
        """Sleep until the first byte is due, counted from the end of the request."""
        asked_s = passed_s if self.request.brings_body else self.meter.draft.start_s
        self.terms.link.sleep_until(asked_s + self.terms.delay_s)

    def _respond(self, response: Head) -> bool:
        """Pass a response back; tell whether the connection goes on."""
        draft = self.meter.draft
        draft.range_start, draft.range_nbytes = range_of(self.request, response)
        is_empty = not has_body(self.request.first[0], response.status) or response.length == 0
        self._sleep_until_due(self.upstream.passed_s)
        if is_empty:
            self.meter.ending()
        draft.status = response.status
        draft.first_byte_s = self.terms.link.time.now_s()
        send(self.client.sock, response.raw)
        draft.is_cut = not is_empty  # until all of it has passed
        is_delimited = is_empty or self._pass_body(response)
        draft.is_cut = False
        is_kept = self.request.keeps_alive(self.request.first[2]) and response.keeps_alive(
            response.first[0]
        )
        return is_delimited and is_kept and not self.upstream.is_spent

    def _pass_body(self, response: Head) -> bool:
        """Pass the body of a response back; tell whether it had an end of its own."""
        way = self._way(self.upstream.open_source, self.client.sock, self.meter, self.window)
        if response.is_chunked:
            way.move_chunked(lambda nbytes: self._move(way, nbytes, is_last=False))
        elif response.length is not None:
            self._move(way, response.length, is_last=True)
        else:
            way.move(None)
            return False
        return True

    def _stall(self) -> None:
        """Hand on nothing for a while, unless the client gives up before."""
        link = self.terms.link
        until_s = link.time.now_s() + link.profile.faults.stall_s
        while (now_s := link.time.now_s()) < until_s:
            link.sleep_until(min(until_s, now_s + 0.05))
            if _is_readable(self.client.sock):
                raise Gone(self.client.sock, "it gave up while the body stalled")

    def _move(self, way: Way, nbytes: int, *, is_last: bool) -> None:
        """Move part of a body, with the fault in its middle if there is one to come."""
        fault, self.fault = self.fault, None
        if fault is not None:
            way.move(nbytes // 2)
            nbytes -= nbytes // 2
        if fault == "truncate":
            raise CutShort
        if fault == "stall":
            self._stall()
        if fault == "corrupt":
            self.meter.ending()
            way.write(bytes([way.source.read_byte() ^ 0xFF]))
            self.meter.count(1)
            nbytes -= 1
        way.move(nbytes, is_last=is_last)
