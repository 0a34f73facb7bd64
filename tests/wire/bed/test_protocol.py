"""Playbooks of the relay's protocol: bytes in, commands and bytes out, and no socket.

A playbook lists what the two sides say, in order: bytes, a pause, or an error of the connection. Sides
close when they have said all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.bed import messages, protocol
from wire.bed.messages import BadHead, ChunkFraming, Head, PeerClosed
from wire.bed.protocol import (
    CLIENT,
    SERVER,
    Answer,
    Decision,
    Forward,
    LeaveUnread,
    RelayProtocol,
    Restart,
    Side,
)

PAUSE = object()
Says = tuple[Side, bytes | object | Exception]
GET = b"GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: signed, as it is\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"


def forward(request: Head) -> Decision:
    """Decide as a relay without hooks does."""
    return Forward(request.raw)


class Playbook:
    """Play both sides of a relay, and keep what each has received."""

    def __init__(
        self,
        *says: Says,
        is_transparent: bool = False,
        decide: Callable[[Head], Decision] = forward,
        interrupt: Callable[[], bool] | None = None,
        refused_sends: tuple[Side, ...] = (),
    ) -> None:
        self._says = [*says]
        self._decide, self._interrupt, self._refused = decide, interrupt, refused_sends
        self._now_s = 0.0
        self.received = {CLIENT: b"", SERVER: b""}
        self.commands = list[Any]()
        self.error: Exception | None = None
        self._is_transparent = is_transparent
        self._run(RelayProtocol(is_transparent=is_transparent, now_s=lambda: self._now_s))

    def _run(self, relay: RelayProtocol) -> None:
        steps, reply, error = relay.run(), None, None
        try:
            while True:
                command = steps.send(reply) if error is None else steps.throw(error)
                self.commands.append(command)
                reply = error = None
                try:
                    reply = self._act(command)
                except (OSError, BadHead) as problem:
                    error = problem
        except StopIteration:
            pass
        except Exception as failure:
            self.error = failure

    def _act(self, command: Any) -> Any:
        match command:
            case protocol.Receive(sides, timeout_s):
                return self._receive(sides, timeout_s)
            case protocol.Send(to, data) | protocol.SendFramed(to, data):
                self._send(to, data)
            case protocol.Carry(source):
                self._carry(command, SERVER if source is CLIENT else CLIENT)
            case protocol.BeginExchange(request):
                return self._decide(request)
            case protocol.RefuseRequest(problem):
                return Answer(400, b"refused: ", problem.encode())
            case protocol.RefuseFailure(problem):
                return (
                    None
                    if self._is_transparent
                    else Answer(502, b"failed: ", str(problem).encode())
                )
            case protocol.SendAnswer(answer):
                self._send(CLIENT, answer.head + answer.body)
            case protocol.BeginBody():
                return self._interrupt is not None
            case protocol.Interrupt():
                assert self._interrupt is not None
                return self._interrupt()
            case protocol.PassUnread(_, is_one_way, from_client, from_server):
                self._pass_unread(b"" if is_one_way else from_client, from_server, is_one_way)
        return None

    def _send(self, to: Side, data: bytes) -> None:
        if to in self._refused:
            raise BrokenPipeError("the other side takes no more")
        self.received[to] += data

    def _receive(
        self, sides: tuple[Side, ...], timeout_s: float | None
    ) -> protocol.Received | None:
        while places := [i for i, (side, _) in enumerate(self._says) if side in sides]:
            side, said = self._says.pop(places[0])
            self._now_s += 0.02
            if isinstance(said, Exception):
                raise said
            if isinstance(said, bytes):
                if len(said) > messages.READ_NBYTES:
                    self._says.insert(places[0], (side, said[messages.READ_NBYTES :]))
                return protocol.Received(side, said[: messages.READ_NBYTES])
            if timeout_s is not None:
                self._now_s += timeout_s
                return None
        return protocol.Received(sides[-1], b"")

    def _carry(self, command: protocol.Carry, sink: Side) -> None:
        data = command.first
        while len(data) < command.nbytes:
            received = self._receive((command.source,), None)
            assert received is not None
            if not received.data:
                break
            data += received.data
        if command.nbytes < len(data):
            n = int(command.nbytes)
            self._says.insert(0, (command.source, data[n:]))
            data = data[:n]
        self._send(sink, bytes(byte ^ 0xFF for byte in data) if command.is_flipped else data)
        if len(data) < command.nbytes < inf:
            raise PeerClosed("closed before the end of a body")

    def _pass_unread(self, from_client: bytes, from_server: bytes, is_one_way: bool) -> None:
        self._send(CLIENT, from_server)
        self._send(SERVER, from_client)
        for side, said in self._says:
            if isinstance(said, bytes) and not (is_one_way and side is CLIENT):
                self._send(CLIENT if side is SERVER else SERVER, said)

    def count(self, kind: type) -> int:
        """Count the commands of a kind."""
        return sum(isinstance(command, kind) for command in self.commands)

    @property
    def unread(self) -> list[str]:
        """Why what follows passes unread, if it does."""
        return [c.reason for c in self.commands if isinstance(c, protocol.PassUnread)]

    @property
    def is_whole(self) -> bool:
        """Whether the last send of a response was announced and its exchange ended."""
        return any(getattr(command, "is_last", False) for command in self.commands) and bool(
            self.count(protocol.EndExchange)
        )


def answer(head: bytes, body: bytes = b"") -> bytes:
    """Write an answer."""
    return b"HTTP/1.1 " + head + b"\r\n\r\n" + body


CHUNKED = b"3;note=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n"
KEPT = {
    "a length": (GET, answer(b"200 OK\r\nContent-Length: 4", b"body")),
    "no bytes": (GET, answer(b"200 OK\r\nContent-Length: 0")),
    "HEAD states a length that does not come": (
        GET.replace(b"GET", b"HEAD"),
        answer(b"200 OK\r\nContent-Length: 3000"),
    ),
    "HEAD of chunks": (
        GET.replace(b"GET", b"HEAD"),
        answer(b"200 OK\r\nTransfer-Encoding: chunked"),
    ),
    "204": (GET, answer(b"204 No Content")),
    "304 with the length of what is there": (
        GET,
        answer(b"304 Not Modified\r\nContent-Length: 9"),
    ),
    "416": (GET, answer(b"416 No\r\nContent-Length: 2", b"no")),
    "chunks": (GET, answer(b"200 OK\r\nTransfer-Encoding: chunked", CHUNKED)),
    "an upload": (
        b"PUT /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde",
        answer(b"200 OK\r\nContent-Length: 0"),
    ),
    "an upload in chunks": (
        b"PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED,
        answer(b"200 OK\r\nContent-Length: 0"),
    ),
    "HTTP/1.0 that stays": (
        b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        answer(b"200 OK\r\nContent-Length: 1", b"a"),
    ),
    "early hints": (
        GET,
        answer(b"103 Early Hints\r\nLink: a") + answer(b"200 OK\r\nContent-Length: 1", b"a"),
    ),
}


@pytest.mark.parametrize("is_transparent", [True, False])
@pytest.mark.parametrize("name", KEPT)
def test_a_message_passes_byte_for_byte_and_another_follows(
    name: str, is_transparent: bool
) -> None:
    """Both sides get what the other has said, wherever it is torn, and the connection stays."""
    request, response = KEPT[name]
    for size in (1, 7, 10_000):
        pieces: list[Says] = [(CLIENT, request[i : i + size]) for i in range(0, len(request), size)]
        pieces += [(SERVER, response[i : i + size]) for i in range(0, len(response), size)]
        played = Playbook(*pieces, (CLIENT, GET), (SERVER, OK), is_transparent=is_transparent)
        assert played.error is None and played.unread == []
        assert played.received == {SERVER: request + GET, CLIENT: response + OK}
        assert played.count(protocol.EndExchange) == 2 and played.is_whole


CLOSED = {
    "until it closes": (GET, answer(b"200 OK", b"to the end")),
    "by the server": (GET, answer(b"200 OK\r\nConnection: close\r\nContent-Length: 1", b"a")),
    "by the client": (
        b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\n",
        answer(b"200 OK\r\nContent-Length: 1", b"a"),
    ),
    "HTTP/1.0": (b"GET /a HTTP/1.0\r\n\r\n", answer(b"200 OK\r\nContent-Length: 1", b"a")),
    "a server of HTTP/1.0": (GET, b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na"),
}


@pytest.mark.parametrize("name", CLOSED)
def test_a_connection_ends_as_its_sides_agree(name: str) -> None:
    """Nothing more is read of the client."""
    request, response = CLOSED[name]
    played = Playbook((CLIENT, request), (SERVER, response), (CLIENT, GET))
    assert played.received == {SERVER: request, CLIENT: response}
    assert played.count(protocol.EndExchange) == 1


def test_pipelined_requests_are_served_in_turn() -> None:
    """The second waits in the buffer."""
    played = Playbook((CLIENT, GET + GET), (SERVER, OK), (SERVER, OK))
    assert played.received == {SERVER: GET + GET, CLIENT: OK + OK}
    sends = [c.to for c in played.commands if isinstance(c, protocol.Send)]
    assert sends == [SERVER, CLIENT, SERVER, CLIENT]


PUT = b"PUT /a HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
CONSENT, STORED = answer(b"100 Continue"), answer(b"200 OK\r\nContent-Length: 0")
DENIED = answer(b"403 No\r\nContent-Length: 0")
UPLOADS: dict[str, tuple[list[Says], bytes, bytes]] = {
    "it waits for consent": (
        [(CLIENT, PUT), (SERVER, CONSENT), (CLIENT, b"abc"), (SERVER, STORED)],
        PUT + b"abc",
        CONSENT + STORED,
    ),
    "it does not wait": (
        [(CLIENT, PUT + b"abc"), (SERVER, CONSENT + STORED)],
        PUT + b"abc",
        CONSENT + STORED,
    ),
    "it is refused, and brings no body": ([(CLIENT, PUT), (SERVER, DENIED)], PUT, DENIED),
    "hints come before consent": (
        [
            (CLIENT, PUT),
            (SERVER, answer(b"102 Processing")),
            (SERVER, CONSENT),
            (CLIENT, b"abc"),
            (SERVER, STORED),
        ],
        PUT + b"abc",
        answer(b"102 Processing") + CONSENT + STORED,
    ),
}


@pytest.mark.parametrize("is_transparent", [True, False])
@pytest.mark.parametrize("name", UPLOADS)
def test_consent_to_a_body_is_the_servers(name: str, is_transparent: bool) -> None:
    """A client that asks first hears what the server says, and one that does not wait is served too."""
    says, to_server, to_client = UPLOADS[name]
    played = Playbook(*says, is_transparent=is_transparent)
    assert played.received == {SERVER: to_server, CLIENT: to_client}
    assert played.error is None


def test_a_server_that_takes_no_more_of_a_body_says_why() -> None:
    """Its answer arrives, and the connection ends, whose next bytes are of that body."""
    request = b"PUT /a HTTP/1.1\r\nContent-Length: 9\r\n\r\n"

    class Full(Playbook):
        def _carry(self, command: protocol.Carry, sink: Side) -> None:
            if sink is SERVER:
                raise BrokenPipeError
            super()._carry(command, sink)

    for is_transparent in (True, False):
        says: list[Says] = [(CLIENT, request + b"abc"), (SERVER, DENIED), (CLIENT, GET)]
        played = Full(*says, is_transparent=is_transparent)
        assert played.received == {SERVER: request, CLIENT: DENIED}
    played = Full((CLIENT, request + b"abc"), (SERVER, PAUSE), is_transparent=True)
    assert isinstance(played.error, BrokenPipeError)


MALFORMED = [
    b"GARBAGE\r\n\r\n",
    b"GET /a HTTP/2\r\n\r\n",
    b"GET  HTTP/1.1\r\n\r\n",
    b"GET /a HTTP/1.1\r\nno colon\r\n\r\n",
    # folded and spaced names are ways to smuggle a request
    b"GET /a HTTP/1.1\r\nA : 1\r\n\r\n",
    b"GET /a HTTP/1.1\r\nA: 1\r\n b\r\n\r\n",
    b"PUT /a HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"PUT /a HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"PUT /a HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"PUT /a HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
    # Python refuses to read a number of so many digits
    b"PUT /a HTTP/1.1\r\nContent-Length: " + 5000 * b"9" + b"\r\n\r\n",
    b"GET /a HTTP/1.1\r\nX-A: " + 90_000 * b"a" + b"\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHos",
]


@pytest.mark.parametrize("raw", MALFORMED)
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    """No server hears of it, nor of what comes after it."""
    for is_transparent in (True, False):
        says: list[Says] = [(CLIENT, raw)]
        says += [(CLIENT, GET)] * raw.endswith(protocol.HEAD_END)  # else it would go on with that
        played = Playbook(*says, is_transparent=is_transparent)
        assert played.received[SERVER] == b"" and played.received[CLIENT].startswith(b"refused: ")
        assert played.count(protocol.EndExchange) == 1


@pytest.mark.parametrize("raw", MALFORMED)
def test_what_is_no_request_passes_in_a_tunnel(raw: bytes) -> None:
    """Its one server gets it as it is, and answers itself."""

    def restart(request: Head) -> Decision:
        return Restart() if request.first[0] == b"CONNECT" else Forward(request.raw)

    connect = b"CONNECT a:443 HTTP/1.1\r\n\r\n"
    says: list[Says] = [(CLIENT, connect), (CLIENT, raw), (CLIENT, PAUSE), (SERVER, b"eh?")]
    played = Playbook(*says, is_transparent=True, decide=restart)
    assert played.received == {SERVER: raw, CLIENT: b"eh?"}
    assert played.unread == ["it is not HTTP/1.1"]


def test_a_request_for_a_host_that_cannot_be_named_is_refused() -> None:
    """The hook that connects says so; the server of the request before hears nothing of it."""

    def decide(request: Head) -> Decision:
        if b"99999" in request.first[1]:
            raise BadHead("no URL of a server")
        return Forward(request.raw)

    second = b"GET http://b:99999/ HTTP/1.1\r\nAuthorization: for-b\r\n\r\n"
    says: list[Says] = [(CLIENT, GET), (SERVER, OK), (CLIENT, second)]
    played = Playbook(*says, is_transparent=True, decide=decide)
    assert played.received == {SERVER: GET, CLIENT: OK + b"refused: no URL of a server"}


@pytest.mark.parametrize("is_late", [True, False])
def test_a_head_has_a_time(is_late: bool) -> None:
    """A client that sends it byte by byte is refused after it, and one that is idle before it is not."""
    pieces = [GET[i : i + 1] for i in range(len(GET))]
    says: list[Says] = [(CLIENT, PAUSE), *((CLIENT, piece) for piece in pieces), (SERVER, OK)]
    if is_late:
        says.insert(20, (CLIENT, PAUSE))
    played = Playbook(*says)
    assert played.received[SERVER] == (b"" if is_late else GET)
    waits = [c.timeout_s for c in played.commands if isinstance(c, protocol.Receive)]
    first, second, third = waits[:3]
    assert first is None and second == messages.HEAD_TIMEOUT_S and third is not None
    assert third < second


FAILURES: dict[str, list[Says]] = {
    "no answer": [(SERVER, b"")],
    "no HTTP": [(SERVER, b"this is not HTTP\r\n\r\n")],
    "a head that ends early": [(SERVER, b"HTTP/1.1 200 OK\r\nCont")],
    "a head that pauses": [(SERVER, b"HTTP/1.1 200 OK\r\n"), (SERVER, PAUSE)],
    "a head without an end": [(SERVER, b"HTTP/1.1 200 OK\r\nA: " + 70_000 * b"b")],
    "a length of 5000 digits": [
        (SERVER, answer(b"200 OK\r\nContent-Length: " + 5000 * b"9")),
    ],
    "a reset": [(SERVER, ConnectionResetError("reset"))],
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_relay_that_stands_in_for_a_server_answers_for_it(name: str) -> None:
    """The client hears of what failed, and the connection ends."""
    played = Playbook((CLIENT, GET), *FAILURES[name], (CLIENT, GET))
    assert played.received[CLIENT].startswith(b"failed: ")
    assert played.received[SERVER] == GET and played.count(protocol.EndExchange) == 1


@pytest.mark.parametrize("failure", ["no answer", "a reset"])
def test_a_transparent_relay_fails_as_its_server(failure: str) -> None:
    """Nothing is answered for it."""
    played = Playbook((CLIENT, GET), *FAILURES[failure], is_transparent=True)
    assert isinstance(played.error, ConnectionError) and played.received[CLIENT] == b""


ODD_ANSWERS: dict[str, list[Any]] = {
    "a bare line feed": [b"HTTP/1.1 200 OK\nContent-Length: 1\n\na"],
    "no head at all": [b"hello\n"],
    "a folded field": [b"HTTP/1.1 200 OK\r\nX-A: a\r\n b\r\nContent-Length: 1\r\n\r\na"],
    "a head that ends early": [b"HTTP/1.1 200 OK\r\nContent-Le"],
    "a head that pauses": [b"HTTP/1.1 200 OK\r\nContent-", PAUSE, b"Length: 1\r\n\r\na"],
    "a large head": [b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 70_000 + b"\r\n\r\nbody"],
    "a chunk of no length": [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n"
    ],
    "chunks with bare line feeds": [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n"
    ],
    "another coding": [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: unchunked\r\n\r\nzz\r\nabc",
    ],
    "two lengths": [b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"],
    "less than its length": [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"],
    "fewer chunks": [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nab"],
}


@pytest.mark.parametrize("name", ODD_ANSWERS)
def test_an_odd_answer_passes_as_it_is(name: str) -> None:
    """Byte for byte, through a transparent relay."""
    pieces = ODD_ANSWERS[name]
    played = Playbook((CLIENT, GET), *((SERVER, piece) for piece in pieces), is_transparent=True)
    assert played.received[CLIENT] == b"".join(p for p in pieces if isinstance(p, bytes))


def test_a_head_that_pauses_is_passed_on_as_far_as_it_has_come() -> None:
    """And then parsed as a whole."""
    says: list[Says] = [(CLIENT, GET), (SERVER, OK[:20]), (SERVER, PAUSE), (SERVER, OK[20:])]
    played = Playbook(*says, is_transparent=True)
    pieces = [c.data for c in played.commands if isinstance(c, protocol.Send) and c.to is CLIENT]
    assert pieces == [OK[:20], OK[20:-4]]
    (begin,) = [c for c in played.commands if isinstance(c, protocol.BeginBody)]
    assert begin.response.length == 4


def test_what_is_for_another_host_does_not_follow_an_odd_answer() -> None:
    """Outside of a tunnel the next request may be for another server: it passes one way."""
    says: list[Says] = [(CLIENT, GET), (SERVER, b"no head\r\n\r\n"), (CLIENT, GET)]
    played = Playbook(*says, is_transparent=True)
    assert played.received == {SERVER: GET, CLIENT: b"no head\r\n\r\n"}


def test_a_change_of_protocol_is_passed_on() -> None:
    """After 101 both sides speak as they like, and the row has that status."""
    switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n\r\n"
    says: list[Says] = [
        (CLIENT, GET),
        (SERVER, switch + b"at once"),
        (CLIENT, b"hi"),
        (SERVER, b"ho"),
    ]
    played = Playbook(*says, is_transparent=True)
    assert played.received == {SERVER: GET + b"hi", CLIENT: switch + b"at onceho"}
    assert played.unread == ["it changed to another protocol"]
    kinds = [type(command) for command in played.commands]
    assert kinds.index(protocol.EndExchange) < kinds.index(protocol.PassUnread)


def test_a_server_that_speaks_unasked_is_not_taken_for_an_answer() -> None:
    """At first it is another protocol; between two requests the connection ends."""

    def open_tunnel(request: Head) -> Decision:
        return Restart() if request.first[0] == b"CONNECT" else Forward(request.raw)

    connect: Says = (CLIENT, b"CONNECT a:1 HTTP/1.1\r\n\r\n")
    greeted = Playbook(connect, (SERVER, b"220 hello"), is_transparent=True, decide=open_tunnel)
    assert greeted.received[CLIENT] == b"220 hello"
    assert greeted.unread == ["its server speaks first"]
    says: list[Says] = [(CLIENT, GET), (SERVER, OK), (SERVER, OK), (CLIENT, GET)]
    played = Playbook(*says, is_transparent=True)
    assert played.received == {SERVER: GET, CLIENT: OK} and not played.unread


def test_a_tunnel_that_cannot_be_read_passes_with_what_came_early() -> None:
    """Bytes that a client has sent right behind its CONNECT are not lost."""
    says: list[Says] = [(CLIENT, b"CONNECT a:1 HTTP/1.1\r\n\r\nearly"), (SERVER, b"said")]
    played = Playbook(*says, is_transparent=True, decide=lambda _: LeaveUnread("why"))
    assert played.received == {SERVER: b"early", CLIENT: b"said"} and played.unread == ["why"]


def test_a_decision_of_a_hook_replaces_the_server() -> None:
    """An answer of a hook keeps the connection if both may, and a rewritten head is what is sent."""
    slow_down = Answer(503, b"503", is_kept=True)
    decisions: Iterator[Decision] = iter((slow_down, Forward(b"another head"), slow_down))
    closing = GET.replace(b"Host", b"Connection: close\r\nHost")
    says: list[Says] = [(CLIENT, GET + GET + closing), (SERVER, OK), (CLIENT, GET)]
    played = Playbook(*says, decide=lambda _request: next(decisions))
    assert played.received == {SERVER: b"another head", CLIENT: b"503" + OK + b"503"}


@pytest.mark.parametrize(
    ("head", "body", "n_first"),
    [
        (b"Content-Length: 9", b"012345678", 9),
        (b"Transfer-Encoding: chunked", b"9\r\n012345678\r\n2\r\nab\r\n0\r\n\r\n", 9),
        (b"Transfer-Encoding: chunked", b"1\r\n0\r\n0\r\n\r\n", 1),
    ],
)
def test_a_body_is_interrupted_in_its_middle(head: bytes, body: bytes, n_first: int) -> None:
    """Of chunks it is the first one, once; a byte is flipped there, or what a hook raises ends it."""
    response = answer(b"200 OK\r\n" + head, body)
    flips = list[None]()

    def flip() -> bool:
        flips.append(None)
        return True

    played = Playbook((CLIENT, GET), (SERVER, response), interrupt=flip)
    place = response.index(b"0", response.index(b"\r\n\r\n") + 4) + n_first // 2
    flipped = response[:place] + bytes([response[place] ^ 0xFF]) + response[place + 1 :]
    assert played.received[CLIENT] == flipped and len(flips) == 1

    def truncate() -> bool:
        raise PeerClosed("truncate")

    played = Playbook((CLIENT, GET), (SERVER, response), interrupt=truncate)
    assert played.received[CLIENT] == response[:place] and not played.count(protocol.EndBody)


def test_a_long_body_is_not_looked_at() -> None:
    """What was received with its head goes first, and the rest is carried by its length alone."""
    head = answer(b"200 OK\r\nContent-Length: 1000000")
    says: list[Says] = [(CLIENT, GET), (SERVER, head + b"first"), (SERVER, 999_995 * b"x")]
    played = Playbook(*says)
    (carry,) = [c for c in played.commands if isinstance(c, protocol.Carry)]
    assert (carry.nbytes, carry.first, carry.is_last) == (1_000_000, b"first", True)
    chunks = answer(b"200 OK\r\nTransfer-Encoding: chunked", b"fffff\r\nfirst")
    played = Playbook((CLIENT, GET), (SERVER, chunks), (SERVER, 0xFFFFA * b"x" + b"\r\n0\r\n\r\n"))
    (carry,) = [c for c in played.commands if isinstance(c, protocol.Carry)]
    assert (carry.nbytes, carry.first) == (0xFFFFA, b"")
    payloads = [c.n_payload for c in played.commands if isinstance(c, protocol.SendFramed)]
    assert payloads[0] == sum(payloads) == 5 and played.is_whole


def test_a_body_that_is_cut_short_ends_the_connection() -> None:
    """What has come is passed on, and no end of the body is stated."""
    cut = answer(b"200 OK\r\nContent-Length: 9", b"abc")
    played = Playbook((CLIENT, GET), (SERVER, cut))
    assert played.received[CLIENT] == cut and isinstance(played.error, PeerClosed)
    assert not played.count(protocol.EndBody)


def test_a_client_that_leaves_is_not_answered() -> None:
    """Its error ends the exchange."""
    played = Playbook((CLIENT, GET), (SERVER, OK), refused_sends=(CLIENT,))
    assert isinstance(played.error, BrokenPipeError) and not played.count(protocol.EndBody)


def test_another_connection_to_the_server_has_said_nothing_yet() -> None:
    """What one that was replaced had said is not taken for an answer of the next."""

    class Reconnecting(Playbook):
        def _act(self, command: Any) -> Any:
            if isinstance(command, protocol.Connect):
                return self.count(protocol.Connect) == 2
            return super()._act(command)

    says: list[Says] = [(CLIENT, GET), (SERVER, OK + b"unasked"), (CLIENT, GET), (SERVER, OK)]
    assert Reconnecting(*says).received[CLIENT] == OK + OK


@given(st.lists(st.integers(1, 9), max_size=6), st.integers(1, 12), st.booleans())
def test_chunks_are_followed_wherever_they_are_torn(
    sizes: list[int], size: int, is_payload_left: bool
) -> None:
    """Payload and end are found however the bytes arrive, and what follows is not the body's."""
    chunks = (b"%x;x=y\r\n%s\r\n" % (n, b"0" * n) for n in sizes)
    body = b"".join(chunks) + b"0\r\nT: t\r\n\r\n"
    framing, n_taken, data = ChunkFraming(), 0, body + b"GET"
    while not framing.is_over:
        n_taken += framing.follow(data[n_taken : n_taken + size], is_payload_left=is_payload_left)
        if is_payload_left and (n := framing.n_payload_left):
            framing.skip(n)
            n_taken += n
    assert (framing.nbytes, n_taken, framing.is_broken) == (sum(sizes), len(body), False)


@given(st.lists(st.binary(max_size=40), max_size=8), st.booleans())
def test_noise_ends_the_connection_or_passes(noise: list[bytes], is_transparent: bool) -> None:
    """Whatever a server says, the relay ends, and a transparent one has passed it on."""
    says: list[Says] = [(SERVER, piece) for piece in noise if piece]
    played = Playbook((CLIENT, GET), *says, is_transparent=is_transparent)
    assert played.error is None or isinstance(played.error, OSError)
    if is_transparent and any(noise):
        assert played.received[CLIENT] == b"".join(noise)
    elif not is_transparent:
        assert re.match(b"failed: ", played.received[CLIENT])
