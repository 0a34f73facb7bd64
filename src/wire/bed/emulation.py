"""The emulated network: a hook of the relay that delays, limits and throttles, and has requests go wrong."""

from __future__ import annotations

import socket
import ssl
import threading
from dataclasses import dataclass
from random import Random

from wire.bed.link import Link, VirtualTime, Window, normal_variates
from wire.bed.messages import PeerClosed, is_readable
from wire.bed.networks import Fault, Profile
from wire.bed.peers import Workers
from wire.bed.relay import Relay, RelayedExchange, RelayHook, make_answer

SLOW_DOWN = "Please reduce your request rate."

STALL_CHECK_S = 0.05
"""How often a client is looked for that waits for a stalled body."""

_HANDSHAKE = b"\x16"  # the first byte of a connection under TLS (RFC 8446)


@dataclass(frozen=True, slots=True)
class RequestConditions:
    """Hold what one request meets."""

    delay_s: float  # seconds from the request to the first byte of its response
    fault: Fault | None  # what goes wrong; `error_503` also where the request rate is exceeded
    tag: str  # the tag in force


class Emulation:
    """Hold what is emulated on all connections; it can be changed at any moment.

    Delays and faults are drawn in the order in which requests arrive, each from a
    sequence of the seed, which go on when the profile changes.
    """

    def __init__(self, *, seed: int, dilation: float = 1.0, owner_pid: int = 0) -> None:
        self._lock = threading.Lock()
        self._delays = Random(f"delays {seed}")
        self._variates = normal_variates(self._delays)
        self._faults = Random(f"faults {seed}")
        self.link = Link(Profile("loopback"), VirtualTime(dilation))
        self.workers = Workers(owner_pid)
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

    def draw_conditions(self, link: Link, now_s: float) -> RequestConditions:
        """Draw what a request meets that arrives now, over the link that it arrived on."""
        with self._lock:
            z, u, tag = next(self._variates), self._faults.random(), self.tag
        profile = link.profile
        delay_s = 0.0 if profile.first_byte_s is None else profile.first_byte_s.delay_s(z)
        fault = profile.faults.pick(u) if link.admits(now_s) else "error_503"
        return RequestConditions(delay_s, fault, tag)


class EmulatedConnection(RelayHook):
    """Emulate the network on one connection. A request that brings a body meets no fault and no ceiling."""

    def __init__(self, emulation: Emulation) -> None:
        self._emulation, self._link = emulation, emulation.link
        self._window = Window()  # what the connection may send in a round trip
        self._worker: int | None = None  # looked up when first needed
        self._conditions = RequestConditions(0.0, None, "")  # of the request under way

    def on_connect(self, relay: Relay) -> None:
        """Answer by TLS where the client speaks it, which its first byte shows."""
        context = self._emulation.tls
        if context is not None and relay.client.recv(1, socket.MSG_PEEK) == _HANDSHAKE:
            relay.encrypt_client(context)

    def on_request(self, exchange: RelayedExchange) -> None:
        """Have a request arrive once its connection has been set up, and draw what it meets.

        A client that opened it earlier than it asked has waited for a part of that already.
        """
        row = exchange.row
        # the link of this request to its end, whatever is emulated later
        link = self._link = self._emulation.link
        exchange.clock = link.time
        if row.is_first:
            link.sleep_until(link.time.of(exchange.relay.accepted_s) + link.profile.setup_s)
        row.start_s = link.time.now_s()
        if exchange.request is None:
            return
        met = self._conditions = self._emulation.draw_conditions(link, row.start_s)
        row.tag, row.worker = met.tag, self._find_worker(exchange.relay.client)
        if exchange.request.brings_body:
            exchange.pace = link.open_stream(row.worker)
            return
        if met.fault == "reset":
            raise ConnectionResetError(met.fault)
        if met.fault == "error_503":
            link.sleep_until(row.start_s + met.delay_s)
            exchange.decision = make_answer(exchange.request, 503, SLOW_DOWN, is_kept=True)

    def _find_worker(self, client: socket.socket) -> int:
        """Return the number of the process that asks, where each has a link of its own."""
        if self._link.profile.worker_mb_per_s is None:
            return 0
        if self._worker is None:
            self._worker = self._emulation.workers.number_of(client)
        return self._worker

    def before_body(self, exchange: RelayedExchange) -> None:
        """Hold a response back until its first byte is due: a delay after the end of the request."""
        link, met, request = self._link, self._conditions, exchange.request
        brings_body = request is not None and request.brings_body
        sent_s = exchange.sent_s if brings_body else exchange.row.start_s
        link.sleep_until(sent_s + met.delay_s)
        exchange.pace = link.open_stream(exchange.row.worker, self._window)
        if met.fault is not None and not brings_body:
            exchange.interrupt = lambda: self._fail(exchange)

    def _fail(self, exchange: RelayedExchange) -> bool:
        """Have the body go wrong in its middle; return whether its next byte is flipped."""
        fault = self._conditions.fault
        if fault == "truncate":
            raise PeerClosed(fault)
        if fault == "stall":
            self._stall(exchange.relay.client)
        return fault == "corrupt"

    def _stall(self, client: socket.socket) -> None:
        """Hand on nothing for a while, unless the client gives up before."""
        link = self._link
        until_s = link.time.now_s() + link.profile.faults.stall_s
        while (now_s := link.time.now_s()) < until_s:
            link.sleep_until(min(until_s, now_s + STALL_CHECK_S))
            if is_readable(client):
                raise PeerClosed("the client gave up while the body stalled")
