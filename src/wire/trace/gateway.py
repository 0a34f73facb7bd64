"""The gateway: a forward proxy that ends TLS with certificates of its own, and writes a row a request.

A process of its own runs `main`: its `Settings` come over a pipe, and it answers why it
cannot begin, or with nothing. Then it sends a `Batch` now and then, and the last one when it is told to. Bodies
pass byte for byte, heads too but for a proxy's form and login; of a head nothing is kept but what the row says. It goes on for
processes that outlive the program, and for all of it should its owner be killed.
"""

from __future__ import annotations

import base64
import os
import re
import resource
import select
import shutil
import signal
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing.connection import Connection as Commands
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import psutil

from wire.bed.certificates import Authority, find_bundles, write_bundle
from wire.bed.exchange import BodyTransfer, Emulation, Exchange, Pipe, Upstream
from wire.bed.link import FREE_QUANTUM_NBYTES, Stream, Window
from wire.bed.messages import (
    BadHead,
    ChunkFraming,
    Head,
    PeerClosed,
    Source,
    is_readable,
    key_of,
    parse_request,
    parse_response,
    range_of,
    wait_for_either,
)
from wire.bed.networks import Profile
from wire.bed.process import STACK_NBYTES, find_pid
from wire.errors import describe_refusal
from wire.trace.rows import TOKEN, TracedRequest, Tunnel, is_listing
from wire.trace.trust import FILE_NAMES, Clients, Hello, Trust, has_mark, parse_hello

BATCH_S = 0.1
"""How often rows go to the owner: a gateway that is killed takes no more with it."""

LAST_ROWS_S = 0.25  # for connections that end with the program to be noticed
TREE_CHECK_S = 1.0  # how often processes that outlive the program are looked for
HANDSHAKE_TIMEOUT_S = 60.0

HELLO_TIMEOUT_S = 2.0  # for the rest of a hello; what comes later is passed on as it is

ANSWER_PAUSE_S = 0.1
"""A head of an answer that pauses for longer is passed on as far as it has come."""

REQUEST_PAUSE_S = 1.0
"""A head of a request that pauses for longer is passed on as it comes, and the connection is read no more."""

_CERTIFICATE_REQUEST = 13  # the type of a handshake's message (RFC 8446, 4)

_PRODUCT = re.compile(r"(?!Python/|Mozilla/)\b[A-Za-z][A-Za-z_.-]{0,30}/v?\d[\w.]{0,15}", re.ASCII)
_PROXY_FIELD = re.compile(rb"\r\nproxy-[^\r]*(?=\r\n)", re.IGNORECASE)
_ADDRESS = re.compile(rb"https?://[^/?]*", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}

_ASKS = "it asks its clients for a certificate, which the gateway could not show"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the gateway has to know besides its environment, which is the program's without us."""

    folder: Path  # of this user alone, for the bundle
    token: str  # what `TOKEN` is in processes of the program
    owner_pid: int
    profile: Profile | None  # what is emulated

    @property
    def bundle(self) -> Path:
        """The certificates that the program is told to trust."""
        return self.folder / "bundle.pem"

    def name_bundle(self, variable: str) -> Path:
        """Name the same file for one variable, so that it is known who has opened it."""
        return self.folder / "open" / f"{variable}.pem"


class Batch(NamedTuple):
    """What was seen since the last one."""

    rows: list[TracedRequest]
    tunnels: list[Tunnel]
    processor_s: float  # of the gateway


class Gateway:
    """Hold what all connections share."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.authority = settings, Authority()
        self.trusted = find_bundles(os.environ)  # besides what the system has
        # one before this one wrote what the program trusts: what is encrypted is passed on unread
        self.is_reading = not settings.bundle.is_file()
        if self.is_reading:
            self.clients = self._share_authority()
        self._contexts = dict[tuple[Trust, bool], ssl.SSLContext]()
        self.certificate_requests = dict[
            str, bool
        ]()  # by host, whether it asks its clients for one
        self.emulation = Emulation(("", 0), seed=0)
        self.emulation.emulate(settings.profile or Profile("as it is"))
        self.rows = dict[int, TracedRequest]()  # under way
        self.tunnels = list[Tunnel]()
        self.unreadable = set[tuple[str, str]]()  # hosts, and clients that refused us
        self._lock, self._names = threading.Lock(), dict[int, str]()
        self._used_s = time.process_time()

    def _share_authority(self) -> Clients:
        """Write the files by which the program trusts the gateway, and watch who reads them."""
        settings = self.settings
        for name in ("open", "said", "peers", "data", "unreachable"):
            (settings.folder / name).mkdir(mode=0o700)
        write_bundle(settings.bundle, self.authority, self.trusted)
        (settings.folder / "authority.pem").write_bytes(self.authority.pem)
        for name in FILE_NAMES:
            os.link(settings.bundle, settings.name_bundle(name))
        return Clients(settings.folder, settings.bundle.stat().st_size, settings.token)

    def context_for(self, trust: Trust, *, is_watched: bool = False) -> ssl.SSLContext:
        """Return what verifies a server as a client would; a watched one tells which servers ask for certificates."""
        with self._lock:
            if (trust, is_watched) not in self._contexts:
                context = trust.make_context(self.trusted)
                if is_watched:
                    context._msg_callback = note_certificate_request  # type: ignore[attr-defined]
                self._contexts[trust, is_watched] = context
            return self._contexts[trust, is_watched]

    def find_process(self, sock: socket.socket) -> tuple[int, str] | None:
        """Find number and name of the process at the other end of a connection, if it is the program's."""
        with self._lock:
            pid = find_pid(sock, self._names)
            if pid is not None and pid not in self._names:
                with suppress(psutil.Error):
                    process = psutil.Process(pid)
                    # by its variables, or where these were written over by descent
                    parents = (parent.pid for parent in process.parents())
                    if has_token(process, self.settings) or self.settings.owner_pid in parents:
                        self._names[pid] = process.name()
            return (pid, self._names[pid]) if pid in self._names else None

    def take(self, *, is_last: bool = False) -> Batch:
        """Take what was seen since the last call; the last time what is under way too."""
        until_s = time.monotonic() + LAST_ROWS_S * is_last
        while self.rows and time.monotonic() < until_s:
            time.sleep(0.005)
        if is_last:
            for row in [*self.rows.values()]:
                row.is_cut = True
                self.end(row)
        rows = cast(list[TracedRequest], self.emulation.trace.take())
        over = [one for one in self.tunnels if one.end_s or is_last]
        for tunnel in over:
            tunnel.end_s = tunnel.end_s or time.time()
            self.tunnels.remove(tunnel)  # threads append to the list meanwhile
        before_s, self._used_s = self._used_s, time.process_time()
        return Batch(rows, over, self._used_s - before_s)

    def end(self, row: TracedRequest) -> None:
        """Write a row, unless it is written."""
        if self.rows.pop(id(row), None) is not None:
            self.emulation.trace.add(row, self.emulation.link.time)


def has_token(process: psutil.Process, settings: Settings) -> bool:
    """Tell whether a process has the program's limit or variables, which either may have written over."""
    with suppress(psutil.Error):
        return (
            has_mark(process.pid, settings.token) or process.environ().get(TOKEN) == settings.token
        )
    return False


def note_certificate_request(
    sock: ssl.SSLSocket, _direction: str, _version: int, _kind: int, message: int, _data: bytes
) -> None:
    """Mark the connection on which a server asks for a certificate; TLS 1.3 encrypts that it does."""
    if message == _CERTIFICATE_REQUEST:
        sock.is_asked = True  # type: ignore[attr-defined]


def find_processes(settings: Settings) -> list[psutil.Process]:
    """Find the processes of the program, whoever their parents are by now."""
    return [process for process in psutil.process_iter() if has_token(process, settings)]


class TimedPipe(Pipe):
    """Carry bytes, and sum how long their receiver kept us waiting."""

    giving_s = 0.0

    def give(self, sink: socket.socket, nbytes: int, count: Callable[[int], None]) -> None:
        """Hand on what was taken last."""
        before_s = time.perf_counter()
        super().give(sink, nbytes, count)
        self.giving_s += time.perf_counter() - before_s


class Server(Upstream):
    """Hold a connection to a server, opened once: what happens to it happens to the program's."""

    def open(self) -> Source:
        """Return the connection as it is."""
        if self.source is None:  # for as long as the program is ready to wait
            self.source = Source(socket.create_connection(self.address))
            self.source.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.source


class OtherProtocol(Exception):
    """What one side says is no HTTP/1.1: by agreement (101), or because it speaks no such thing."""

    def __init__(self, *, is_agreed: bool = False) -> None:
        super().__init__()
        self.is_agreed = is_agreed


class TracedExchange(Exchange):
    """Serve one request so that what one side says or breaks is what the other meets."""

    row: TracedRequest
    pipe: TimedPipe

    def serve(self) -> bool:
        """Serve the request; tell whether the connection goes on."""
        if self.fault is not None:
            return super().serve()
        source, is_whole = self.upstream.open(), True
        source.sock.sendall(self.request.raw)
        response = self._wait_for_consent(source) if self.request.expects_continue else None
        if self.request.brings_body:
            is_whole = response is None and self._send_body(source)
        self.upstream.passed_s = self.met.link.time.now_s()
        response = response or self._read_answer(source)
        while response.status < 200:
            self.client.sock.sendall(response.raw)
            response = self._read_answer(source)
        self.pipe.giving_s = 0.0
        try:
            is_kept = self._respond(response, source)
        finally:
            self.row.client_blocked_s = self.pipe.giving_s
        return is_kept and is_whole and self.request.keeps_alive(self.request.first[2])

    def _read_answer(self, source: Source) -> Head:
        answer = source.read_head_as_it_comes(self.client.sock.sendall, ANSWER_PAUSE_S)
        if not answer:
            raise PeerClosed("it closed the connection without an answer")
        if isinstance(answer, Head):
            if answer.status != 101:
                return answer
            self.row.status, self.row.first_byte_s = 101, self.met.link.time.now_s()
            self.client.sock.sendall(answer.raw)
            raise OtherProtocol(is_agreed=True)
        self.client.sock.sendall(answer)
        raise OtherProtocol

    def _pass_body(self, response: Head, source: Source) -> bool:
        """Pass the body of a response back; tell whether it had an end of its own."""
        if not response.is_chunked:
            return super()._pass_body(response, source)
        stream = self.met.link.open_stream(self.row.worker, self.window)
        for nbytes in self._pass_chunks(source, self.client.sock, stream):
            self._count(nbytes)
        return True

    def _pass_chunks(self, source: Source, sink: socket.socket, stream: Stream) -> Iterator[int]:
        """Pass a chunked body on byte for byte; yield the bytes of payload that have passed."""
        framing = ChunkFraming()
        while not framing.is_over:
            before, limit = framing.nbytes, int(stream.quantum_nbytes)
            data = source.take_kept(limit) or source.sock.recv(limit)
            if not data:
                raise PeerClosed("closed in the middle of a chunked body")
            n = framing.follow(data)
            stream.wait(n)
            if framing.is_over and sink is self.client.sock:
                self.trace.ending(self.row)
            before_s = time.perf_counter()
            sink.sendall(data[:n])
            self.pipe.giving_s += time.perf_counter() - before_s
            source.put_back(data[n:])
            yield framing.nbytes - before
            if framing.is_broken:
                raise OtherProtocol

    def _wait_for_consent(self, source: Source) -> Head | None:
        """Pass on that the body may come, or return what the server says instead; a client may not wait for it."""
        while wait_for_either(self.client, source) is source:
            response = self._read_answer(source)
            if response.status >= 200:
                return response
            self.client.sock.sendall(response.raw)
            if response.status == 100:
                break
        return None

    def _send_body(self, source: Source) -> bool:
        """Pass the body of the request on; tell whether the server took all of it."""
        stream = self.met.link.open_stream(self.row.worker)
        body = BodyTransfer(self.client, source.sock, self.pipe, stream, self._count_sent)
        try:
            if self.request.is_chunked:
                for nbytes in self._pass_chunks(self.client, source.sock, stream):
                    self._count_sent(nbytes)
            else:
                body.move(self.request.length or 0)
        except OSError:
            if not is_readable(source.sock):  # else it says why it takes no more
                raise
            return False
        return True

    def _count_sent(self, nbytes: int) -> None:
        self.row.sent_nbytes += nbytes


class Connection:
    """Serve one connection of the program until either side ends it."""

    def __init__(self, gateway: Gateway, sock: socket.socket, number: int) -> None:
        self._gateway, self._number = gateway, number
        self._accepted_s = time.perf_counter()
        self._client = Source(sock)
        self._server = Server(("", 0))
        self._pipe = TimedPipe(is_copying=True)
        self._scheme, self._host, self._port = "https", "", 0
        self._login: bytes | None = None  # for the proxy between, if there is one
        self._handshake_s, self._is_new = 0.0, True
        self._window = Window()

    def serve(self) -> None:
        """Serve requests, then close both sides."""
        try:
            found = self._gateway.find_process(self._client.sock)
            raw, is_whole = self._client.read_request_head() if found else (b"", False)
            if found and raw:
                self._pid, self._name = found
                self._explanation.unlink(missing_ok=True)  # of another connection from that port
                if not is_whole:
                    self._refuse("a head without an end")
                elif raw.startswith(b"CONNECT "):
                    self._serve_tunnel(raw)
                else:
                    self._serve_requests(raw)
        except ConnectionResetError:
            with suppress(OSError):  # closing without lingering sends RST instead of FIN
                linger = struct.pack("ii", 1, 0)
                self._client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        except (OSError, ValueError):
            pass  # how connections end, on either side: the row of a request under way is written by now
        finally:
            self._client.sock.close()
            self._server.close()
            self._pipe.close()

    @property
    def _place(self) -> str:
        return self._host if _PORTS[self._scheme] == self._port else f"{self._host}:{self._port}"

    def _tell(self, why: str, error: Exception | None = None) -> Tunnel:
        """Record that a connection is not read, and for now as one that failed."""
        if error is not None:
            words = getattr(error, "reason", "") or getattr(error, "strerror", "") or error
            why = f"{why} ({words})"
        tunnel = Tunnel(self._place, why, time.time(), 0.0 if error is None else time.time())
        self._gateway.tunnels.append(tunnel)
        return tunnel

    def _connect(self, greeting: bytes = b"") -> Source:
        """Connect to the server, or to the user's own proxy, which is greeted with a head."""
        proxy = find_proxy(self._scheme, self._host, self._port)
        address, self._login = (self._host, self._port), None
        if proxy is not None:
            address, self._login = (proxy.hostname or "", proxy.port or 80), login_of(proxy)
        self._server.close()
        begin_s, self._server = time.perf_counter(), Server(address)
        try:
            server = self._server.open()
        except OSError as error:
            self._tell("it cannot be reached", error)
            if self._scheme == "http" and proxy is None:
                self._explain(error)
            raise
        if greeting and self._login is not None:
            server.sock.sendall(add_login(greeting, self._login))
            answer = server.read_head()
            if not 200 <= parse_response(answer).status < 300:
                self._client.sock.sendall(answer)
                raise PeerClosed("the user's own proxy refuses")
        self._handshake_s = time.perf_counter() - begin_s
        return server

    @property
    def _explanation(self) -> Path:
        """Where our shim looks why a connection failed."""
        port = self._client.sock.getpeername()[1]
        return self._gateway.settings.folder / "unreachable" / str(port)

    def _explain(self, error: OSError) -> None:
        """Leave word for our shim, which lets the program fail as it would have without us.

        All others meet a connection that ends without an answer. An answer, such as 502, is a success
        to curl, requests, httpx and fetch: they would print it and go on.
        """
        words = (isinstance(error, socket.gaierror), error.errno, error.strerror)
        self._explanation.write_text(repr(words))

    def _serve_tunnel(self, raw: bytes) -> None:
        """Open the tunnel that the program asks for, and read what passes if that can be read."""
        host, _, port = parse_request(raw).first[1].decode("ascii").rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        try:
            server = self._connect(raw)
        except OSError:
            self._client.sock.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            raise
        self._client.sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        data = peek(self._client.sock, server.sock)
        hello = parse_hello(data)
        trust = self._find_trust(data, hello)
        if hello is None or isinstance(trust, str):
            return self._relay(server, str(trust))
        name = hello.server_name or self._host
        try:
            why = self._encrypt(server, trust, name)
            context = self._make_server_context(server, name)
            if not why and not can_answer(context, data):
                why = "it and the gateway have no TLS in common"
        except (OSError, ValueError) as error:  # the program may know better whom to trust
            why = f"TLS with it failed ({getattr(error, 'reason', '') or error})"
        if why:
            return self._relay(self._connect(raw), why)
        if self._accept(context, hello):
            self._serve_requests(b"")

    def _find_trust(self, data: bytes, hello: Hello | None) -> Trust | str:
        """Find whom a client that begins so would trust without us, or say why it cannot be read."""
        if not data.startswith(b"\x16"):
            return "it is not TLS"
        if not self._gateway.is_reading:
            return "the gateway ended"
        if hello is None:
            return "its first words are not understood"
        if hello.protocols and b"http/1.1" not in hello.protocols:
            return f"it speaks {'HTTP/2' if b'h2' in hello.protocols else 'another protocol'} only"
        if (self._place, hello.print) in self._gateway.unreadable:
            return "the program does not accept the certificate"
        trust = self._gateway.clients.find_trust(self._pid, hello)
        if isinstance(trust, Trust) and trust.may_have_certificate and self._is_asking:
            return _ASKS
        return trust

    @property
    def _is_asking(self) -> bool | None:
        """Whether the server asks its clients for a certificate; None if that is not known."""
        return self._gateway.certificate_requests.get(self._place)

    def _encrypt(self, server: Source, trust: Trust, name: str) -> str:
        """Begin TLS with the server, whose certificate must be in order; say why it must not be read, if so."""
        is_watched = trust.may_have_certificate and self._is_asking is None
        context = self._gateway.context_for(trust, is_watched=is_watched)
        begin_s = time.perf_counter()
        server.sock.settimeout(HANDSHAKE_TIMEOUT_S)
        server.sock = context.wrap_socket(server.sock, server_hostname=name)
        server.sock.settimeout(None)
        self._handshake_s += time.perf_counter() - begin_s
        if is_watched:
            is_asked = getattr(server.sock, "is_asked", False)
            self._gateway.certificate_requests[self._place] = is_asked
            return _ASKS if is_asked else ""
        return ""

    def _make_server_context(self, server: Source, name: str) -> ssl.SSLContext:
        """Return what answers the program in the name of its server."""
        certificate = cast(ssl.SSLSocket, server.sock).getpeercert(binary_form=True) or b""
        peers = self._gateway.settings.folder / "peers"
        pem = ssl.DER_cert_to_PEM_cert(certificate)
        return self._gateway.authority.server_context(name, pem, peers)

    def _accept(self, context: ssl.SSLContext, hello: Hello) -> bool:
        """Begin TLS with the program in the name of its server; tell whether it accepts that."""
        sock = self._client.sock
        sock.settimeout(HANDSHAKE_TIMEOUT_S)
        try:
            self._client.sock = context.wrap_socket(sock, server_side=True)
        except OSError as error:
            self._gateway.unreadable.add((self._place, hello.print))  # the next one passes
            self._tell("the program did not accept the certificate", error)
            return False
        self._client.sock.settimeout(None)
        return True

    def _relay(self, server: Source, why: str, *, is_one_way: bool = False) -> None:
        """Pass on unread what comes from either side, until both have ended; one way, what the server says alone."""
        tunnel, client = self._tell(why), self._client
        speaker, listener = client, server
        try:
            while True:
                speaker = wait_for_either(client, server)
                listener = server if speaker is client else client
                if speaker is client and is_one_way:
                    return
                data = speaker.take_kept(FREE_QUANTUM_NBYTES)
                if not data:
                    break
                listener.sock.sendall(data)
                tunnel.nbytes_down += len(data) if speaker is server else 0
            if isinstance(client.sock, ssl.SSLSocket) or isinstance(server.sock, ssl.SSLSocket):
                return  # which has no end of one side alone
            listener.sock.shutdown(socket.SHUT_WR)
            while data := listener.take_kept(FREE_QUANTUM_NBYTES) or listener.sock.recv(
                FREE_QUANTUM_NBYTES
            ):
                speaker.sock.sendall(data)
                tunnel.nbytes_down += len(data) if listener is server else 0
        finally:
            tunnel.end_s = time.time()

    def _serve_requests(self, raw: bytes) -> None:
        """Serve the requests of a connection; `raw` is the head of the first, where that was read already."""
        is_tunnel = self._server.source is not None
        is_whole = True
        while True:
            if not raw:
                server = self._server.source
                if server is not None and wait_for_either(server, self._client) is server:
                    # a server that closes, or says something unasked, has no answer to come: what it
                    # says then would reach the program late, as the answer to its next request
                    if self._is_new and (greeting := server.take_kept(FREE_QUANTUM_NBYTES)):
                        self._client.sock.sendall(greeting)
                        self._relay(server, "its server speaks first")
                    return
                pause_s = REQUEST_PAUSE_S if is_tunnel else None
                raw, is_whole = self._client.read_request_head(pause_s)
            if not raw:
                return
            try:
                request = parse_request(raw if is_whole else b"")
                if not is_tunnel:
                    self._turn_to(request)
            except BadHead as error:
                if not is_tunnel:
                    return self._refuse(str(error))
                server = self._server.open()
                server.sock.sendall(raw)
                return self._relay(server, "it is not HTTP/1.1")
            try:
                if not self._serve_one(request):
                    return
            except OtherProtocol as other:
                # what comes next from the program may be for another server
                is_one_way = not (is_tunnel or other.is_agreed)
                words = (
                    "it changed to another protocol" if other.is_agreed else "it is not HTTP/1.1"
                )
                return self._relay(self._server.open(), words, is_one_way=is_one_way)
            raw = b""

    def _refuse(self, reason: str) -> None:
        """Answer what is no request in a proxy's form: it is not known whose it is, and goes to no server."""
        words = f"wire trace: {reason}\n".encode()
        fields = b"Connection: close\r\nContent-Type: text/plain\r\nContent-Length: %d" % len(words)
        self._client.sock.sendall(b"HTTP/1.1 400 Bad Request\r\n%s\r\n\r\n%s" % (fields, words))
        tunnel = self._tell("a request was refused, which is not HTTP/1.1")
        tunnel.end_s = time.time()

    def _turn_to(self, request: Head) -> None:
        """Connect to the server that a request in a proxy's form names, unless it is that of the one before."""
        try:
            parts = urlsplit(request.first[1].decode("latin-1"))
            place = parts.hostname or "", parts.port or 80
        except ValueError as error:
            raise BadHead("no URL of a server") from error
        if parts.scheme != "http" or not place[0]:
            raise BadHead("no URL of a server")
        if self._server.source is None or place != (self._host, self._port):
            self._scheme, self._is_new = "http", True
            self._host, self._port = place
            self._connect()

    def _serve_one(self, request: Head) -> bool:
        """Serve one request and write its row; tell whether the connection goes on."""
        emulation = self._gateway.emulation
        row = self._open_row(request)
        self._gateway.rows[id(row)] = row
        try:
            ends = self._client, self._server, self._pipe
            met = emulation.admit(emulation.link, row.start_s)
            if self._scheme == "https":
                sent = request
            elif self._login is not None:
                sent = replace(request, raw=add_login(request.raw, self._login))
            else:
                sent = for_server(request)
            return TracedExchange(*ends, sent, met, emulation.trace, row, self._window).serve()
        finally:
            self._gateway.end(row)

    def _open_row(self, request: Head) -> TracedRequest:
        """Begin the row of a request that has arrived."""
        link = self._gateway.emulation.link
        is_first, self._is_new = self._is_new, False
        if is_first:
            link.sleep_until(link.time.of(self._accepted_s) + link.profile.setup_s)
        row = TracedRequest(link.time.now_s(), connection=self._number, is_first=is_first)
        row.method, row.key = request.first[0].decode("ascii"), key_of(request.first[1])
        row.range_start, row.range_nbytes = range_of(request, None)
        row.is_listing = is_listing(request.first[1])
        row.host, row.scheme = self._place, self._scheme
        row.pid, row.process = self._pid, self._name
        agent = _PRODUCT.search(request.fields.get(b"user-agent", b"").decode("latin-1"))
        row.user_agent = agent[0] if agent else ""
        row.handshake_s = max(self._handshake_s, link.profile.setup_s) if is_first else 0.0
        return row


def peek(client: socket.socket, server: socket.socket) -> bytes:
    """Look at what a client says first, of TLS its whole hello, and take nothing; nothing if the server speaks first."""
    poller = select.poll()
    for sock in (client, server):
        poller.register(sock, select.POLLIN)
    poller.poll()
    first, until_s = b"", time.monotonic() + HELLO_TIMEOUT_S
    while is_readable(client) and time.monotonic() < until_s:
        first = client.recv(FREE_QUANTUM_NBYTES, socket.MSG_PEEK)
        if not first.startswith(b"\x16") or len(first) >= 5 + int.from_bytes(first[3:5]):
            break
        time.sleep(0.001)  # the rest is on its way
    return first


def can_answer(context: ssl.SSLContext, hello: bytes) -> bool:
    """Tell whether TLS can go on after a hello, without saying a word to who sent it."""
    heard, said = ssl.MemoryBIO(), ssl.MemoryBIO()
    heard.write(hello)
    try:
        context.wrap_bio(heard, said, server_side=True).do_handshake()
    except ssl.SSLWantReadError:
        return True
    except ssl.SSLError:
        pass
    return False


def find_proxy(scheme: str, host: str, port: int) -> SplitResult | None:
    """Find the user's own proxy for a host, if there is one."""
    url = getproxies().get(scheme) or getproxies().get("all")
    if not url or proxy_bypass(f"{host}:{port}"):
        return None
    return urlsplit(url if "://" in url else f"http://{url}")


def login_of(proxy: SplitResult) -> bytes:
    """Return the field with which the address of a proxy has us log in, if it does."""
    if proxy.username is None:
        return b""
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return b"Proxy-Authorization: Basic %s\r\n" % base64.b64encode(login.encode())


def add_login(head: bytes, login: bytes) -> bytes:
    """Return a head in a proxy's form with the login for the next proxy."""
    first, _, rest = head.partition(b"\r\n")
    return first + b"\r\n" + login + rest


def for_server(request: Head) -> Head:
    r"""Return a request as its server would have got it with no proxy between: in a proxy's form none arrives.

    Examples
    --------
    >>> head = parse_request(b"GET http://host/b/a?x HTTP/1.1\r\nHost: host\r\nProxy-Connection: keep-alive\r\n\r\n")
    >>> for_server(head).raw
    b'GET /b/a?x HTTP/1.1\r\nHost: host\r\n\r\n'
    """
    method, target, version = request.first
    found = _ADDRESS.match(target)
    if found is None:
        return request
    fields = _PROXY_FIELD.sub(b"", request.raw[len(b" ".join(request.first)) :])
    path = b"/" + target[found.end() :].removeprefix(b"/")
    return replace(request, raw=b" ".join((method, path, version)) + fields)


def accept_all(listener: socket.socket, gateway: Gateway) -> None:
    """Serve each connection in a thread of its own."""
    for number in count(1):
        try:
            sock, _ = listener.accept()
            serve = Connection(gateway, sock, number).serve
            threading.Thread(target=serve, daemon=True).start()
        except (OSError, RuntimeError):  # no descriptor or thread is left: later there may be
            time.sleep(BATCH_S)


def main(arguments: list[str]) -> None:
    """Serve until the program and all that it left have ended."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # sent to the whole group they are for the program
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    threading.stack_size(STACK_NBYTES)
    commands, listener = Commands(int(arguments[0])), socket.socket(fileno=int(arguments[1]))
    settings: Settings = commands.recv()
    try:
        gateway = Gateway(settings)
    except OSError as error:
        return commands.send(describe_refusal(error))
    threading.Thread(target=accept_all, args=(listener, gateway), daemon=True).start()
    with suppress(EOFError, OSError):  # a killed owner is no reason for the program to fail
        commands.send("")
        while not commands.poll(BATCH_S):
            commands.send(gateway.take())
        commands.recv()
        commands.send(gateway.take(is_last=True))
    commands.close()
    while find_processes(settings):
        gateway.take()
        time.sleep(TREE_CHECK_S)
    shutil.rmtree(settings.folder, ignore_errors=True)
