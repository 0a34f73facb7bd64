"""A relay between clients and a server: sockets at the rim of `wire.bed.protocol`, and hooks.

Bodies pass from one socket to the other without being looked at, through the kernel where it can. What
a relay is for is written as hooks (`RelayHook`): the emulated network is one, the trace of a program
another, and a relay may have both.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from math import inf
from typing import Any

from wire.bed import protocol
from wire.bed.link import FREE_QUANTUM_NBYTES, Stream, VirtualTime
from wire.bed.messages import (
    READ_NBYTES,
    BadHead,
    Head,
    PeerClosed,
    is_readable,
    key_of,
    range_of,
)
from wire.bed.protocol import CLIENT, SERVER, Answer, Decision, Forward, RelayProtocol, Side
from wire.bed.requests import RequestRow

# A server on loopback or in the same site accepts in well under this.
CONNECT_TIMEOUT_S = 10.0

# How long `RowCollector.take` waits for rows of requests whose last byte is being sent.
GRACE_S = 0.25

COPIED_NBYTES = 1 << 18  # at a time, where bodies do not pass through the kernel: what caches hold

HAS_SPLICE = hasattr(os, "splice")

# Bytes that may lie between the relay and a client that is not reading (the
# kernel doubles it). Unbounded, it would grow to 4 MB, and a client that
# decodes one chunk would find the next one fetched at memory speed; much less,
# and each send would wait for the client to be scheduled.
SEND_BUFFER_NBYTES = 1 << 18

BACKLOG = 1024

# 300 threads of the default 8 MiB would reserve 2.4 GB of addresses.
STACK_NBYTES = 1 << 18

NO_DESCRIPTOR_PAUSE_S = 0.1
"""How long new connections wait where no descriptor or thread is left."""

LOOPBACK = "127.0.0.1"

_REAL_TIME = VirtualTime()

_ERRORS = {
    400: ("Bad Request", "BadRequest"),
    502: ("Bad Gateway", "BadGateway"),
    503: ("Slow Down", "SlowDown"),
}


def make_answer(request: Head | None, status: int, reason: str, *, is_kept: bool = False) -> Answer:
    """Make an error of the relay's own, as S3 words it; of a HEAD without its body."""
    phrase, code = _ERRORS[status]
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{reason}</Message></Error>'.encode()
    options = "" if is_kept else "Connection: close\r\n"
    head = f"HTTP/1.1 {status} {phrase}\r\n{options}Content-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    is_head = request is not None and request.first[0] == b"HEAD"
    return Answer(status, head.encode(), b"" if is_head else body, is_kept)


class FreePace:
    """The pace of a body that nothing holds up."""

    quantum_nbytes = FREE_QUANTUM_NBYTES

    def wait(self, nbytes: int) -> None:
        """Return at once."""


class RelayedExchange:
    """Hold one request and its response while they pass; hooks fill it."""

    def __init__(self, relay: Relay, request: Head | None, row: RequestRow) -> None:
        self.relay, self.request, self.row = relay, request, row
        self.response: Head | None = None  # the head of the final one
        self.clock = _REAL_TIME  # whose seconds the row has, until it is collected
        self.pace: Stream | FreePace = FreePace()  # of the body that passes next
        self.interrupt: Callable[[], bool] | None = None
        """What happens in the middle of the response's body; returns whether the next byte is flipped."""
        self.decision: Decision | None = None  # a hook's; without one the request is forwarded
        self.sent_nbytes = 0  # bytes of the body of the request that the server has
        self.sent_s = 0.0  # when the server had the request with its body
        self.client_blocked_s = 0.0  # of the response: waiting for the client to take it
        self.is_recorded = True  # whether its row is collected


class RelayHook:
    """Act on what one connection relays; each connection has hooks of its own.

    The moments are those at which a hook can still change what happens next: `on_connect` before the
    first byte is read, `on_request` before the server hears of a request, `before_body` before the client
    hears of its response. `on_end` sees what has happened, however it has. Hooks may wait, and what they
    raise ends the connection: a ConnectionResetError resets it.
    """

    def on_connect(self, relay: Relay) -> None:
        """Act on a connection that was accepted."""

    def on_request(self, exchange: RelayedExchange) -> None:
        """Act on a request that has arrived: delay it, decide what becomes of it, set the pace of its body.

        What this raises as BadHead is answered as what is no request.
        """

    def before_body(self, exchange: RelayedExchange) -> None:
        """Act on the head of a response: delay it, set the pace of its body and what interrupts that."""

    def on_end(self, exchange: RelayedExchange) -> None:
        """Complete the row of a request that has ended."""

    def on_unread(self, reason: str) -> Callable[[int], None] | None:
        """Act on a connection whose rest passes unread; return what counts the bytes of the server."""
        return None

    def on_close(self) -> None:
        """Act on the end of the connection."""


class RowCollector:
    """Collect the rows of many threads."""

    def __init__(self, record: Callable[[Any], None] = lambda _row: None) -> None:
        self._record = record  # called with each row as it is complete, one at a time
        self._condition = threading.Condition()
        self._rows = list[RequestRow]()
        self._ending = set[RelayedExchange]()  # of which the last byte is being sent
        self._under_way = dict[RelayedExchange, Callable[[], None]]()
        self._epochs_s = dict[VirtualTime, float]()

    def begin(self, exchange: RelayedExchange, complete: Callable[[], None]) -> None:
        """Take note of an exchange, and of what completes its row."""
        self._under_way[exchange] = complete  # atomic, as each of these

    def announce(self, exchange: RelayedExchange) -> None:
        """Announce that the next send may be the last, so that `take` waits for its row."""
        self._ending.add(exchange)

    def end(self, exchange: RelayedExchange) -> None:
        """Collect the row of an exchange that ends now, unless it has been collected."""
        with self._condition:
            complete = self._under_way.pop(exchange, None)
            self._ending.discard(exchange)
            if complete is not None and exchange.is_recorded:
                complete()
                self._collect(exchange.row, exchange.clock)
            self._condition.notify_all()

    def _collect(self, row: RequestRow, clock: VirtualTime) -> None:
        row.end_s = clock.now_s()
        # wall-clock times that do not jump with the wall's clock
        epoch_s = self._epochs_s.setdefault(clock, time.time() - clock.now_s())
        moments = (row.start_s, row.first_byte_s, row.end_s)
        stamps = (round(moment_s + epoch_s, 6) if moment_s else 0.0 for moment_s in moments)
        row.start_s, row.first_byte_s, row.end_s = stamps
        self._record(row)
        self._rows.append(row)

    def wait_for_rest(self, timeout_s: float) -> None:
        """Wait for exchanges to end, and collect as cut short those that have not in time."""
        with self._condition:
            self._condition.wait_for(lambda: not self._under_way, timeout=timeout_s)
            exchanges = [*self._under_way]
        for exchange in exchanges:
            exchange.row.is_cut = True
            self.end(exchange)

    def take(self) -> list[RequestRow]:
        """Return the rows gathered since the last call and forget them.

        A client may have the last byte of a response before the thread that
        sent it has written the row; those rows are waited for.
        """
        with self._condition:
            self._condition.wait_for(lambda: not self._ending, timeout=GRACE_S)
            rows, self._rows = self._rows, []
        return rows


class BodyPipe:
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

    def fill(self, source: socket.socket, limit_nbytes: int) -> int:
        """Receive what has arrived, at most `limit_nbytes`; 0 means that the sender closed."""
        if sys.platform == "linux" and self._ends:
            return os.splice(source.fileno(), self._ends[1], limit_nbytes)
        room = self._buffer[:limit_nbytes]
        n_received = source.recv_into(room)
        if isinstance(source, ssl.SSLSocket) and n_received:
            # a record is 16 KiB at most, and each turn costs: what else is there comes along
            source.setblocking(False)
            with contextlib.suppress(ssl.SSLWantReadError):
                while n_more := (
                    source.recv_into(room[n_received:]) if n_received < len(room) else 0
                ):
                    n_received += n_more
            source.setblocking(True)
        return n_received

    def drain(self, sink: socket.socket, nbytes: int, add: Callable[[int], None]) -> None:
        """Send the `nbytes` received last, and count what the receiver has room for each time."""
        n_sent = 0
        while n_sent < nbytes:
            if sys.platform == "linux" and self._ends:
                n_more = os.splice(self._ends[0], sink.fileno(), nbytes - n_sent)
            else:
                n_more = sink.send(self._buffer[n_sent:nbytes])
            add(n_more)
            n_sent += n_more


class Relay:
    """Relay one connection until either side ends it.

    Parameters
    ----------
    client : socket
        The accepted connection.
    number : int
        Number of the connection, from 1 in the order of acceptance.
    collector : RowCollector
        Where rows go.
    address : tuple of str and int, optional
        The server, to which a connection is opened when it is needed, and again where it was lost. Without
        one the relay is transparent: a hook connects it (`connect`), once, and no answer is its own.
    row_type : type
        What a row is.
    """

    def __init__(
        self,
        client: socket.socket,
        number: int,
        collector: RowCollector,
        *,
        address: tuple[str, int] | None = None,
        row_type: type[RequestRow] = RequestRow,
        is_copying: bool = False,
    ) -> None:
        self.client, self.server, self.number = client, None, number
        # real seconds: the clock of later requests may be another
        self.accepted_s = time.perf_counter()
        self.hooks: Sequence[RelayHook] = ()
        self._collector, self._address, self._row_type = collector, address, row_type
        self._pipe, self._is_new_server = BodyPipe(is_copying=is_copying), False
        self._protocol = RelayProtocol(is_transparent=address is None)
        self._exchange: RelayedExchange | None = None  # under way
        self._n_exchanges = 0

    client: socket.socket
    server: socket.socket | None

    def serve(self) -> None:
        """Serve requests, then close both sides."""
        try:
            for hook in self.hooks:
                hook.on_connect(self)
            self._run()
        except ConnectionResetError:
            self._reset_client()
        except (OSError, ValueError):
            pass  # how connections end, on either side
        finally:
            self._end_exchange()
            for hook in self.hooks:
                hook.on_close()
            self.close_server()
            self.client.close()
            self._pipe.close()

    def _reset_client(self) -> None:
        """Have the client's connection end by a reset."""
        with contextlib.suppress(OSError):  # closing without lingering sends RST instead of FIN
            linger = struct.pack("ii", 1, 0)
            self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    def _run(self) -> None:
        """Carry out the commands of the protocol, and tell it what comes of them."""
        steps, actions = self._protocol.run(), _ACTIONS
        reply: Any = None
        error: Exception | None = None
        with contextlib.suppress(StopIteration):
            while True:
                command = steps.send(reply) if error is None else steps.throw(error)
                reply = error = None
                try:
                    reply = actions[type(command)](self, command)
                except (OSError, BadHead) as problem:
                    error = problem

    def encrypt_client(self, context: ssl.SSLContext) -> None:
        """Begin TLS with the client."""
        self.client = context.wrap_socket(self.client, server_side=True)
        self._pipe.close()
        self._pipe = BodyPipe(is_copying=True)

    def connect(self, address: tuple[str, int], timeout_s: float | None = None) -> socket.socket:
        """Open a connection to a server in place of that of before."""
        self.close_server()
        self.server = socket.create_connection(address, timeout_s)
        self.server.settimeout(None)
        self.server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._is_new_server = True
        return self.server

    def close_server(self) -> None:
        """Drop the connection to the server, whatever is under way on it."""
        if self.server is not None:
            self.server.close()
            self.server = None

    def _socket_of(self, side: Side) -> socket.socket:
        if side is CLIENT:
            return self.client
        if self.server is None:
            raise PeerClosed("there is no connection to the server")
        return self.server

    def _receive(self, command: protocol.Receive) -> protocol.Received | None:
        if len(command.sides) == 1:
            side = command.sides[0]
            sock = self._socket_of(side)
            if command.timeout_s is not None and not is_readable(sock, command.timeout_s):
                return None
            return protocol.Received(side, sock.recv(READ_NBYTES))
        return receive_any({side: self._socket_of(side) for side in command.sides})

    def _connect(self, _command: protocol.Connect) -> bool:
        """Have a connection that is open as far as can be seen without using it; return whether it is new."""
        if self._address is not None:
            if self.server is not None and is_readable(self.server):
                self.close_server()  # an idle connection that has something to say says that it is closed
            if self.server is None:
                self.connect(self._address, CONNECT_TIMEOUT_S)
        is_new, self._is_new_server = self._is_new_server, False
        return is_new

    def _send(self, command: protocol.Send) -> None:
        if command.is_last:
            self._announce_end()
        self._socket_of(command.to).sendall(command.data)

    def _send_framed(self, command: protocol.SendFramed) -> None:
        exchange, n_left = self._current, command.n_payload
        while n_left:
            n = min(n_left, int(exchange.pace.quantum_nbytes))
            exchange.pace.wait(n)
            n_left -= n
        if command.is_last:
            self._announce_end()
        begin_s = time.perf_counter()
        self._socket_of(command.to).sendall(command.data)
        self._count_passed(exchange, command.to)(command.n_payload)
        if command.to is CLIENT:
            exchange.client_blocked_s += time.perf_counter() - begin_s

    def _carry(self, command: protocol.Carry) -> None:
        """Carry a body in paced quanta."""
        exchange, n_left, received = self._current, command.nbytes, command.first
        sink = SERVER if command.source is CLIENT else CLIENT
        source_sock, sink_sock = self._socket_of(command.source), self._socket_of(sink)
        if command.is_flipped:
            received = bytes(byte ^ 0xFF for byte in received or source_sock.recv(int(n_left)))
        pace, pipe, add = exchange.pace, self._pipe, self._count_passed(exchange, sink)
        while n_left > 0:
            limit = int(min(n_left, pace.quantum_nbytes))
            head, received = received[:limit], received[limit:]
            n = len(head) or pipe.fill(source_sock, limit)
            if not n and n_left == inf:
                return
            if not n:
                raise PeerClosed(f"closed {n_left} bytes before the end of a body")
            pace.wait(n)
            if command.is_last and n == n_left:
                self._announce_end()
            begin_s = time.perf_counter()
            if head:
                sink_sock.sendall(head)
                add(n)
            else:
                pipe.drain(sink_sock, n, add)
            if sink is CLIENT:
                exchange.client_blocked_s += time.perf_counter() - begin_s
            n_left -= n

    @staticmethod
    def _count_passed(exchange: RelayedExchange, sink: Side) -> Callable[[int], None]:
        """Return what counts bytes of a body that one side has taken."""
        row = exchange.row

        def add_to_response(nbytes: int) -> None:
            row.nbytes += nbytes

        def add_to_request(nbytes: int) -> None:
            exchange.sent_nbytes += nbytes

        return add_to_response if sink is CLIENT else add_to_request

    @property
    def _current(self) -> RelayedExchange:
        if self._exchange is None:
            raise RuntimeError("a body passes without an exchange")
        return self._exchange

    def _announce_end(self) -> None:
        if self._exchange is not None:
            self._collector.announce(self._exchange)

    def _open_exchange(self, request: Head | None) -> RelayedExchange:
        if self._exchange is None:
            is_first = self._n_exchanges == 0
            self._n_exchanges += 1
            row = self._row_type(_REAL_TIME.now_s(), connection=self.number, is_first=is_first)
            exchange = self._exchange = RelayedExchange(self, request, row)
            self._collector.begin(exchange, lambda: self._complete(exchange))
        return self._exchange

    def _complete(self, exchange: RelayedExchange) -> None:
        for hook in self.hooks:
            hook.on_end(exchange)

    def _begin_exchange(self, command: protocol.BeginExchange) -> Decision:
        """Open the row of a request, and have the hooks decide what becomes of it."""
        request = command.request
        exchange = self._open_exchange(request)
        row = exchange.row
        row.method, row.key = request.first[0].decode("ascii"), key_of(request.first[1])
        row.range_start, row.range_nbytes = range_of(request, None)
        for hook in self.hooks:
            hook.on_request(exchange)
            if exchange.decision is not None and not isinstance(exchange.decision, Forward):
                break
        if not isinstance(exchange.decision, Forward | Answer | None):
            self._end_exchange()  # which is none of HTTP
        return exchange.decision or Forward(request.raw)

    def _refuse_request(self, command: protocol.RefuseRequest) -> Answer:
        exchange = self._open_exchange(None)  # the row says nothing else of what is no request
        exchange.request = None
        exchange.row.method = exchange.row.key = ""
        exchange.row.range_start = exchange.row.range_nbytes = None
        for hook in self.hooks:
            hook.on_request(exchange)
        return make_answer(None, 400, command.problem)

    def _refuse_failure(self, command: protocol.RefuseFailure) -> Answer | None:
        if self._address is None:
            return None
        where = "http://{}:{}".format(*self._address)
        reason = f"the proxy got no answer from {where}: {command.error}"
        return make_answer(self._current.request, 502, reason)

    def _send_answer(self, command: protocol.SendAnswer) -> None:
        exchange, answer = self._current, command.answer
        exchange.row.status, exchange.row.first_byte_s = answer.status, exchange.clock.now_s()
        self._announce_end()
        self.client.sendall(answer.head + answer.body)
        exchange.row.nbytes += len(answer.body)

    def _note_sent(self, _command: protocol.RequestSent) -> None:
        self._current.sent_s = self._current.clock.now_s()

    def _begin_body(self, command: protocol.BeginBody) -> bool:
        """Have the hooks act on a response; return whether something interrupts its body."""
        exchange = self._current
        exchange.response, row = command.response, exchange.row
        if exchange.request is not None:
            row.range_start, row.range_nbytes = range_of(exchange.request, command.response)
        for hook in self.hooks:
            hook.before_body(exchange)
        row.status, row.first_byte_s = command.response.status, exchange.clock.now_s()
        row.is_cut = not command.is_empty  # until all of it has passed
        return exchange.interrupt is not None

    def _interrupt(self, _command: protocol.Interrupt) -> bool:
        interrupt = self._current.interrupt
        return interrupt is not None and interrupt()

    def _end_body(self, _command: protocol.EndBody) -> None:
        self._current.row.is_cut = False

    def _end_exchange(self, _command: protocol.EndExchange | None = None) -> None:
        if self._exchange is not None:
            self._collector.end(self._exchange)
            self._exchange = None

    def _pass_unread(self, command: protocol.PassUnread) -> None:
        """Pass on what comes from either side, until both have ended; one way, what the server says alone."""
        counters = [hook.on_unread(command.reason) for hook in self.hooks]

        def pass_on(side: Side, data: bytes) -> None:
            self._socket_of(CLIENT if side is SERVER else SERVER).sendall(data)
            for add in counters if side is SERVER else ():
                if add is not None:
                    add(len(data))

        if command.from_server:
            pass_on(SERVER, command.from_server)
        if command.from_client and command.is_one_way:
            return
        if command.from_client:
            pass_on(CLIENT, command.from_client)
        sockets = {side: self._socket_of(side) for side in (CLIENT, SERVER)}
        while (received := receive_any(sockets, FREE_QUANTUM_NBYTES)).data:
            if received.side is CLIENT and command.is_one_way:
                return
            pass_on(received.side, received.data)
        if any(isinstance(sock, ssl.SSLSocket) for sock in sockets.values()):
            return  # which has no end of one side alone
        speaker = SERVER if received.side is CLIENT else CLIENT
        if speaker is CLIENT and command.is_one_way:
            return
        sockets[speaker].shutdown(socket.SHUT_WR)
        while data := sockets[speaker].recv(FREE_QUANTUM_NBYTES):
            pass_on(speaker, data)


_ACTIONS: dict[type, Callable[[Relay, Any], Any]] = {
    protocol.Receive: Relay._receive,
    protocol.Send: Relay._send,
    protocol.SendFramed: Relay._send_framed,
    protocol.Carry: Relay._carry,
    protocol.Connect: Relay._connect,
    protocol.BeginExchange: Relay._begin_exchange,
    protocol.RefuseRequest: Relay._refuse_request,
    protocol.RefuseFailure: Relay._refuse_failure,
    protocol.SendAnswer: Relay._send_answer,
    protocol.RequestSent: Relay._note_sent,
    protocol.BeginBody: Relay._begin_body,
    protocol.Interrupt: Relay._interrupt,
    protocol.EndBody: Relay._end_body,
    protocol.EndExchange: Relay._end_exchange,
    protocol.PassUnread: Relay._pass_unread,
}


def receive_any(
    sockets: dict[Side, socket.socket], limit_nbytes: int = READ_NBYTES
) -> protocol.Received:
    """Wait until one of several senders says something or closes, and receive that; of the first if several do."""
    poller = select.poll()
    for sock in sockets.values():
        poller.register(sock, select.POLLIN)
    while True:
        for side, sock in sockets.items():
            sock.settimeout(0)
            try:
                return protocol.Received(side, sock.recv(limit_nbytes))
            except (
                BlockingIOError,
                ssl.SSLWantReadError,
            ):  # of TLS something may come that is no byte
                continue
            finally:
                sock.settimeout(None)
        poller.poll()


def listen() -> socket.socket:
    """Listen on a free port of the loopback interface."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_NBYTES)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind((LOOPBACK, 0))
    listener.listen(BACKLOG)
    return listener


def accept_all(listener: socket.socket, open_relay: Callable[[socket.socket, int], Relay]) -> None:
    """Serve each connection in a thread of its own; accepted sockets inherit the listener's options."""
    for number in count(1):
        try:
            sock, _ = listener.accept()
            serve = open_relay(sock, number).serve
            threading.Thread(target=serve, daemon=True).start()
        except (OSError, RuntimeError):  # no descriptor or thread is left: later there may be
            time.sleep(NO_DESCRIPTOR_PAUSE_S)
