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
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection as CommandPipe
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import psutil

from wire.bed.certificates import Authority, find_bundles, find_bundles_of, write_bundle
from wire.bed.emulation import EmulatedConnection, Emulation
from wire.bed.link import FREE_QUANTUM_NBYTES
from wire.bed.messages import (
    MAX_HEAD_NBYTES,
    BadHead,
    Head,
    PeerClosed,
    is_readable,
    parse_response,
)
from wire.bed.networks import Profile
from wire.bed.peers import find_pid
from wire.bed.protocol import Close, Decision, Forward, LeaveUnread, Restart
from wire.bed.relay import (
    STACK_NBYTES,
    Relay,
    RelayedExchange,
    RelayHook,
    RowCollector,
    accept_all,
)
from wire.errors import describe_refusal
from wire.trace.request_log import LOG_NAME, RequestLog
from wire.trace.rows import TOKEN, TracedRequest, Tunnel, is_listing
from wire.trace.trust import FILE_NAMES, ClientHello, Trust, TrustingClients, has_mark, parse_hello

BATCH_S = 0.1
"""How often rows go to the owner: a gateway that is killed takes no more with it."""

LAST_ROWS_S = 0.25  # for connections that end with the program to be noticed
TREE_CHECK_S = 1.0  # how often processes that outlive the program are looked for
HANDSHAKE_TIMEOUT_S = 60.0

HELLO_TIMEOUT_S = 2.0  # for the rest of a hello; what comes later is passed on as it is

_CERTIFICATE_REQUEST = 13  # the type of a handshake's message (RFC 8446, 4)

_PRODUCT = re.compile(r"(?!Python/|Mozilla/)\b[A-Za-z][A-Za-z_.-]{0,30}/v?\d[\w.]{0,15}", re.ASCII)
_PROXY_FIELD = re.compile(rb"\r\nproxy-[^\r]*(?=\r\n)", re.IGNORECASE)
_ADDRESS = re.compile(rb"https?://[^/?]*", re.IGNORECASE)
_LOCATION = re.compile(
    r"https?://(?:[^/?#@]*@)?([\w.-]{1,253}(?::\d{1,5})?|\[[\da-fA-F:]+\](?::\d{1,5})?)(?=[/?#]|$)",
    re.ASCII | re.IGNORECASE,
)
_PORTS = {"http": 80, "https": 443}

_ASKS = "it asks its clients for a certificate, which the gateway could not show"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the gateway has to know besides its environment, which is the program's without us."""

    folder: Path  # of this user alone, for the bundle
    token: str  # what `TOKEN` is in processes of the program
    owner_pid: int
    profile: Profile | None  # what is emulated
    log: Path | None = None  # where requests are appended as they end; None for the folder above
    secrets: tuple[str, ...] = ()  # of the command, blacked out in it

    @property
    def log_path(self) -> Path:
        """The file with a line for each request that has ended (`wire.trace.request_log`)."""
        return self.log or self.folder / LOG_NAME

    @property
    def bundle(self) -> Path:
        """The certificates that the program is told to trust."""
        return self.folder / "bundle.pem"

    def name_bundle(self, variable: str) -> Path:
        """Name the file of one variable, by which it is known who has opened it."""
        return self.folder / "open" / f"{variable}.pem"


class Batch(NamedTuple):
    """What was seen since the last one."""

    rows: list[TracedRequest]
    tunnels: list[Tunnel]
    processor_s: float  # of the gateway
    problem: str = ""  # why not all of it could be written into the log
    own_ends: Sequence[tuple[str, int]] = ()  # of the gateway's connections to servers


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
        self._emulation: Emulation | None = None
        if settings.profile is not None:
            self._emulation = Emulation(seed=0)
            self._emulation.emulate(settings.profile)
        self._log = RequestLog(settings.log_path, settings.secrets)
        self._collector = RowCollector(self._log.write_request)
        self.tunnels = list[Tunnel]()
        self._own_ends = deque[tuple[str, int]]()  # threads append to it meanwhile
        self.unreadable = set[tuple[str, str]]()  # hosts, and clients that refused us
        self._lock, self._names = threading.Lock(), dict[int, str]()
        self._used_s = time.process_time()

    def _share_authority(self) -> TrustingClients:
        """Write the files by which the program trusts the gateway, and watch who reads them."""
        settings = self.settings
        for name in ("open", "said", "peers", "data", "unreachable"):
            (settings.folder / name).mkdir(mode=0o700)
        write_bundle(settings.bundle, self.authority, self.trusted)
        (settings.folder / "authority.pem").write_bytes(self.authority.pem)
        for name in FILE_NAMES:
            bundles = find_bundles_of(name, os.environ)
            write_bundle(settings.name_bundle(name), self.authority, bundles)
        return TrustingClients(settings.folder, settings.token)

    def context_for(self, trust: Trust, *, is_watched: bool = False) -> ssl.SSLContext:
        """Return what verifies a server as a client would; a watched one tells which servers ask for certificates."""
        with self._lock:
            if (trust, is_watched) not in self._contexts:
                context = trust.make_context(self.trusted)
                if is_watched:
                    context._msg_callback = note_certificate_request  # type: ignore[attr-defined]
                self._contexts[trust, is_watched] = context
            return self._contexts[trust, is_watched]

    def open_relay(self, client: socket.socket, number: int) -> Relay:
        """Make the relay of a connection."""
        relay = Relay(client, number, self._collector, row_type=TracedRequest, is_copying=True)
        traced = TracedConnection(self)
        relay.hooks = (traced,)
        if self._emulation is not None:
            relay.hooks = (traced, EmulatedConnection(self._emulation))
        return relay

    @property
    def setup_s(self) -> float:
        """Seconds that the set-up of a connection is emulated to take."""
        return 0.0 if self._emulation is None else self._emulation.link.profile.setup_s

    def find_client(self, sock: socket.socket) -> tuple[int, str] | None:
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
        if is_last:
            self._collector.wait_for_rest(LAST_ROWS_S)
        rows = cast(list[TracedRequest], self._collector.take())
        ended = [tunnel for tunnel in self.tunnels if tunnel.end_s or is_last]
        for tunnel in ended:
            tunnel.end_s = tunnel.end_s or time.time()
            self.tunnels.remove(tunnel)  # threads append to the list meanwhile
        for tunnel in (*ended, *self.tunnels):
            self._log.write_tunnel(tunnel)
        before_s, self._used_s = self._used_s, time.process_time()
        own_ends = [self._own_ends.popleft() for _ in range(len(self._own_ends))]
        return Batch(rows, ended, self._used_s - before_s, self._log.problem, own_ends)

    def note_server(self, server: socket.socket) -> None:
        """Remember the near end of a connection to a server, so that nobody takes it for the program's."""
        host, port = server.getsockname()[:2]
        self._own_ends.append((host.removeprefix("::ffff:"), port))


def has_token(process: psutil.Process, settings: Settings) -> bool:
    """Return whether a process has the program's limit or variables, which either may have written over."""
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
    """Find the processes of the program that run, whoever their parents are by now."""
    return [
        process
        for process in psutil.process_iter()
        if has_token(process, settings) and not is_zombie(process)
    ]


def is_zombie(process: psutil.Process) -> bool:
    """Return whether a process has ended, and whoever should wait for it does not, as in a container."""
    with suppress(psutil.Error):
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return True


class TracedConnection(RelayHook):
    """Trace one connection of the program: find its server, read its TLS where it can, and fill its rows."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._relay: Relay
        self._scheme, self._host, self._port = "https", "", 0
        self._pid, self._name = 0, ""
        self._login: bytes | None = None  # for the proxy between, if there is one
        self._handshake_s, self._is_new, self._is_tunnel = 0.0, True, False
        self._tunnel: Tunnel | None = None  # what passes unread

    def on_connect(self, relay: Relay) -> None:
        """Serve the program alone."""
        self._relay = relay
        client = self._gateway.find_client(relay.client)
        if client is None:
            raise PeerClosed("it is not the program's")
        self._pid, self._name = client
        self._explanation.unlink(missing_ok=True)  # of another connection from that port

    def on_request(self, exchange: RelayedExchange) -> None:
        """Connect to the server that a request names, and fill its row."""
        request, row = exchange.request, cast(TracedRequest, exchange.row)
        row.pid, row.process = self._pid, self._name
        if request is not None and not self._is_tunnel:
            if request.first[0] == b"CONNECT":
                row.key = ""
                exchange.decision = self._open_tunnel(exchange, request)
                return
            self._turn_to(exchange, request)
            raw = request.raw
            if self._login is None:
                raw = strip_proxy_form(request).raw
            elif self._login:
                raw = add_login(raw, self._login)
            exchange.decision = Forward(raw)
        row.host, row.scheme = self._place, self._scheme
        row.is_first, self._is_new = self._is_new, False
        row.start_s = exchange.clock.now_s()
        if request is None:
            return
        row.is_listing = is_listing(request.first[1])
        agent = _PRODUCT.search(request.fields.get(b"user-agent", b"").decode("latin-1"))
        row.user_agent = agent[0] if agent else ""
        setup_s = self._gateway.setup_s
        row.handshake_s = max(self._handshake_s, setup_s) if row.is_first else 0.0

    def on_end(self, exchange: RelayedExchange) -> None:
        """Fill in what the row says of the end."""
        row = cast(TracedRequest, exchange.row)
        row.sent_nbytes, row.client_blocked_s = exchange.sent_nbytes, exchange.client_blocked_s
        if exchange.response is not None and 300 <= row.status < 400:
            row.location_host = find_location_host(exchange.response)

    def on_unread(self, reason: str) -> Callable[[int], None]:
        """Record that the connection is read no more."""
        tunnel = self._tunnel = self._record_tunnel(reason)

        def add(nbytes: int) -> None:
            tunnel.nbytes_down += nbytes

        return add

    def on_close(self) -> None:
        """Record the end of what passed unread."""
        if self._tunnel is not None:
            self._tunnel.end_s = time.time()

    @property
    def _place(self) -> str:
        return self._host if _PORTS[self._scheme] == self._port else f"{self._host}:{self._port}"

    def _record_tunnel(self, reason: str, error: Exception | None = None) -> Tunnel:
        """Record that a connection is not read, or with an error that it could not be made."""
        if error is not None:
            words = getattr(error, "reason", "") or getattr(error, "strerror", "") or error
            reason = f"{reason} ({words})"
        tunnel = Tunnel(self._place, reason, time.time(), 0.0 if error is None else time.time())
        self._gateway.tunnels.append(tunnel)
        return tunnel

    def _connect(self, exchange: RelayedExchange, greeting: bytes = b"") -> None:
        """Connect to the server, or to the user's own proxy, which is greeted with a head."""
        proxy = find_proxy(self._scheme, self._host, self._port)
        address, self._login = (self._host, self._port), None
        if proxy is not None:
            address, self._login = (proxy.hostname or "", proxy.port or 80), login_of(proxy)
        begin_s = time.perf_counter()
        try:
            server = self._relay.connect(address)  # for as long as the program is ready to wait
        except OSError as error:
            self._record_tunnel("it cannot be reached", error)
            if self._scheme == "http" and proxy is None:
                self._explain(error)
            raise
        self._gateway.note_server(server)
        if greeting and self._login is not None:
            server.sendall(add_login(greeting, self._login))
            answer = read_head(server)
            try:
                status = parse_response(answer).status
            except BadHead as error:
                raise PeerClosed("the user's own proxy gives no answer") from error
            if not 200 <= status < 300:
                self._record_refusal(exchange, status)
                self._relay.client.sendall(answer)
                raise PeerClosed("the user's own proxy refuses")
        self._handshake_s = time.perf_counter() - begin_s

    def _record_refusal(self, exchange: RelayedExchange, status: int) -> None:
        """Keep the row of a tunnel that the user's own proxy refuses."""
        row = cast(TracedRequest, exchange.row)
        row.host, row.scheme, row.status = self._place, self._scheme, status
        row.first_byte_s = exchange.clock.now_s()
        exchange.is_recorded = True

    @property
    def _explanation(self) -> Path:
        """Where our shim looks why a connection failed."""
        port = self._relay.client.getpeername()[1]
        return self._gateway.settings.folder / "unreachable" / str(port)

    def _explain(self, error: OSError) -> None:
        """Leave word for our shim, which lets the program fail as it would have without us.

        All others meet a connection that ends without an answer. An answer, such as 502, is a success
        to curl, requests, httpx and fetch: they would print it and go on.
        """
        words = (isinstance(error, socket.gaierror), error.errno, error.strerror)
        self._explanation.write_text(repr(words))

    def _open_tunnel(self, exchange: RelayedExchange, request: Head) -> Decision:
        """Open the tunnel that the program asks for, and read what passes if that can be read."""
        exchange.is_recorded = False  # unless it is refused
        host, _, port = request.first[1].decode("ascii").rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        client = self._relay.client
        try:
            self._connect(exchange, request.raw)
        except PeerClosed:
            return Close()
        except OSError:
            client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            raise
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        data = peek(client, cast(socket.socket, self._relay.server))
        hello = parse_hello(data)
        trust = self._find_trust(data, hello)
        if hello is None or isinstance(trust, str):
            return LeaveUnread(str(trust))
        name = hello.server_name or self._host
        try:
            reason = self._encrypt(trust, name)
            context = self._make_server_context(name)
            if not reason and not can_answer(context, data):
                reason = "it and the gateway have no TLS in common"
        except (OSError, ValueError) as error:  # the program may know better whom to trust
            reason = f"TLS with it failed ({getattr(error, 'reason', '') or error})"
        if reason:
            self._connect(exchange, request.raw)
            return LeaveUnread(reason)
        if not self._accept(context, hello):
            return Close()
        self._is_tunnel = True
        return Restart()

    def _find_trust(self, data: bytes, hello: ClientHello | None) -> Trust | str:
        """Find whom a client that begins so would trust without us, or say why it cannot be read."""
        if not data.startswith(b"\x16"):
            return "it is not TLS"
        if not self._gateway.is_reading:
            return "the gateway ended"
        if hello is None:
            return "its first words are not understood"
        if hello.protocols and b"http/1.1" not in hello.protocols:
            return f"it speaks {'HTTP/2' if b'h2' in hello.protocols else 'another protocol'} only"
        if (self._place, hello.fingerprint) in self._gateway.unreadable:
            return "the program does not accept the certificate"
        trust = self._gateway.clients.find_trust(self._pid, hello)
        if isinstance(trust, Trust) and trust.may_have_certificate and self._is_asking:
            return _ASKS
        return trust

    @property
    def _is_asking(self) -> bool | None:
        """Whether the server asks its clients for a certificate; None if that is not known."""
        return self._gateway.certificate_requests.get(self._place)

    def _encrypt(self, trust: Trust, name: str) -> str:
        """Begin TLS with the server, whose certificate must be in order; say why it must not be read, if so."""
        is_watched = trust.may_have_certificate and self._is_asking is None
        context = self._gateway.context_for(trust, is_watched=is_watched)
        begin_s, sock = time.perf_counter(), cast(socket.socket, self._relay.server)
        sock.settimeout(HANDSHAKE_TIMEOUT_S)
        server = context.wrap_socket(sock, server_hostname=name)
        self._relay.server = server
        server.settimeout(None)
        self._handshake_s += time.perf_counter() - begin_s
        if is_watched:
            is_asked = getattr(server, "is_asked", False)
            self._gateway.certificate_requests[self._place] = is_asked
            return _ASKS if is_asked else ""
        return ""

    def _make_server_context(self, name: str) -> ssl.SSLContext:
        """Return what answers the program in the name of its server."""
        server = cast(ssl.SSLSocket, self._relay.server)
        pem = ssl.DER_cert_to_PEM_cert(server.getpeercert(binary_form=True) or b"")
        peers = self._gateway.settings.folder / "peers"
        return self._gateway.authority.server_context(name, pem, peers)

    def _accept(self, context: ssl.SSLContext, hello: ClientHello) -> bool:
        """Begin TLS with the program in the name of its server; return whether it accepts that."""
        self._relay.client.settimeout(HANDSHAKE_TIMEOUT_S)
        try:
            self._relay.encrypt_client(context)
        except OSError as error:
            self._gateway.unreadable.add((self._place, hello.fingerprint))  # the next one passes
            self._record_tunnel("the program did not accept the certificate", error)
            return False
        self._relay.client.settimeout(None)
        return True

    def _turn_to(self, exchange: RelayedExchange, request: Head) -> None:
        """Connect to the server that a request in a proxy's form names, unless it is that of the one before."""
        try:
            parts = urlsplit(request.first[1].decode("latin-1"))
            place = parts.hostname or "", parts.port or 80
        except ValueError as error:
            raise BadHead("no URL of a server") from error
        if parts.scheme != "http" or not place[0]:
            raise BadHead("no URL of a server")
        if self._relay.server is None or place != (self._host, self._port):
            self._scheme, self._is_new = "http", True
            self._host, self._port = place
            self._connect(exchange)


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
    """Return whether TLS can go on after a hello, without saying a word to who sent it."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    incoming.write(hello)
    try:
        context.wrap_bio(incoming, outgoing, server_side=True).do_handshake()
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


def strip_proxy_form(request: Head) -> Head:
    r"""Return a request as its server would have got it with no proxy between: in a proxy's form none arrives.

    Examples
    --------
    >>> from wire.bed.messages import parse_request
    >>> head = parse_request(b"GET http://host/b/a?x HTTP/1.1\r\nHost: host\r\nProxy-Connection: keep-alive\r\n\r\n")
    >>> strip_proxy_form(head).raw
    b'GET /b/a?x HTTP/1.1\r\nHost: host\r\n\r\n'
    """
    method, target, version = request.first
    address = _ADDRESS.match(target)
    if address is None:
        return request
    fields = _PROXY_FIELD.sub(b"", request.raw[len(b" ".join(request.first)) :])
    path = b"/" + target[address.end() :].removeprefix(b"/")
    return replace(request, raw=b" ".join((method, path, version)) + fields)


def find_location_host(response: Head) -> str:
    r"""Return the host, with a port that it names, to which an answer leads; nothing if it names none.

    Examples
    --------
    >>> head = parse_response(b"HTTP/1.1 302 Found\r\nLocation: https://u:p@b.example:8443/a?sig=x\r\n\r\n")
    >>> find_location_host(head)
    'b.example:8443'
    """
    location = response.fields.get(b"location", b"").decode("latin-1")
    match = _LOCATION.match(location)
    return match[1] if match else ""


def read_head(sock: socket.socket) -> bytes:
    """Read a head and nothing behind it: what comes next may be TLS."""
    head = b""
    while not head.endswith(b"\r\n\r\n") and len(head) <= MAX_HEAD_NBYTES:
        byte = sock.recv(1)
        if not byte:
            break
        head += byte
    return head


def main(arguments: list[str]) -> None:
    """Serve until the program and all that it left have ended."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # sent to the whole group they are for the program
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    threading.stack_size(STACK_NBYTES)
    commands, listener = CommandPipe(int(arguments[0])), socket.socket(fileno=int(arguments[1]))
    settings: Settings = commands.recv()
    try:
        gateway = Gateway(settings)
    except OSError as error:
        return commands.send(describe_refusal(error))
    threading.Thread(target=accept_all, args=(listener, gateway.open_relay), daemon=True).start()
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
