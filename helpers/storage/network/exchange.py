"""One request and its response, under the terms of its arrival."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass, field, replace
from typing import NoReturn

from helpers.storage.network.heads import Head, has_body, range_of
from helpers.storage.network.imposed import Terms
from helpers.storage.network.pipes import Meter, Pipe, send
from helpers.storage.network.profiles import Fault
from helpers.storage.network.streams import Source, Way
from helpers.storage.network.trace import Draft, Trace
from helpers.storage.network.upstream import Upstream, UpstreamError

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
    """Answer with an error of the relay's own, as S3 words it; tell whether the connection goes on."""
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{_CODES[status]}</Code><Message>{reason}</Message></Error>'.encode()
    options = "" if is_kept else "Connection: close\r\n"
    lines = f"HTTP/1.1 {status} {_REASONS[status]}\r\n{options}Content-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    is_head = meter.draft.method == "HEAD"
    meter.draft.status = status
    meter.draft.first_byte_s = time.perf_counter()
    meter.ending()
    send(client.sock, lines.encode() + (b"" if is_head else body))
    meter.count(0 if is_head else len(body))
    return is_kept


@dataclass(slots=True)
class Exchange:
    """Serve one request.

    Parameters
    ----------
    client : Source
        Where the request comes from and its response goes to.
    upstream : Upstream
        Where the request goes to.
    pipe : Pipe
        What carries the bodies.
    request : Head
        The request.
    terms : Terms
        What it meets.
    meter : RowMeter
        The row it becomes.
    """

    client: Source
    upstream: Upstream
    pipe: Pipe
    request: Head
    terms: Terms
    meter: RowMeter
    fault: Fault | None = field(init=False)

    def __post_init__(self) -> None:
        """Take the fault, which befalls once."""
        self.fault = self.terms.fault

    def serve(self) -> bool:
        """Serve the request; tell whether the connection goes on.

        Raises
        ------
        Gone
            If either side leaves in the middle.
        CutShort
            If a fault ends the connection.
        """
        if self.fault == "reset":
            self._reset()
        if self.fault == "error_503":
            return self._slow_down()
        try:
            response = self._ask()
        except UpstreamError as error:
            text = f"the relay got no answer from {self.upstream.url}: {error}"
            return refuse(self.client, self.meter, 502, text)
        return self._respond(response)

    def _reset(self) -> NoReturn:
        """End the connection without an answer."""
        # closing without lingering sends RST instead of FIN
        linger = struct.pack("ii", 1, 0)
        self.client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        raise CutShort

    def _way(self, source: Source, sink: socket.socket | None, meter: Meter) -> Way:
        """Join a sender to a receiver, over the link that is imposed."""
        stream = self.terms.link.open_stream()
        return Way(source, sink, self.pipe, stream, meter)

    def _ask(self) -> Head:
        """Pass the request on and return the head of its response."""
        to_server = self._way(self.client, self.upstream.open().sock, Meter())
        return self.upstream.ask(self.request, to_server)

    def _slow_down(self) -> bool:
        """Drop the body of the request and answer 503 when an answer is due."""
        if self.request.expects_continue:
            send(self.client.sock, _CONTINUE)
        nowhere = replace(self._way(self.client, None, Meter()), pipe=Pipe(is_spliced=False))
        nowhere.move_body(self.request)
        self._sleep_until_due(time.perf_counter())
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
        draft.first_byte_s = time.perf_counter()
        send(self.client.sock, response.raw)
        is_delimited = is_empty or self._pass_body(response)
        is_kept = self.request.keeps_alive(self.request.first[2]) and response.keeps_alive(
            response.first[0]
        )
        return is_delimited and is_kept and not self.upstream.is_spent

    def _pass_body(self, response: Head) -> bool:
        """Pass the body of a response back; tell whether it had an end of its own."""
        way = self._way(self.upstream.open_source, self.client.sock, self.meter)
        if response.is_chunked:
            way.move_chunked(lambda nbytes: self._move(way, nbytes, is_last=False))
        elif response.length is not None:
            self._move(way, response.length, is_last=True)
        else:
            way.move(None)
            return False
        return True

    def _move(self, way: Way, nbytes: int, *, is_last: bool) -> None:
        """Move part of a body, with the fault in its middle if there is one to come."""
        fault, self.fault = self.fault, None
        if fault is not None:
            way.move(nbytes // 2)
            nbytes -= nbytes // 2
        if fault == "truncate":
            raise CutShort
        if fault == "stall":
            time.sleep(self.terms.link.profile.faults.stall_s)
        if fault == "corrupt":
            self.meter.ending()
            way.write(bytes([way.source.read_byte() ^ 0xFF]))
            self.meter.count(1)
            nbytes -= 1
        way.move(nbytes, is_last=is_last)
