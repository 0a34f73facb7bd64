"""The proxy's process: `python -m wire.bed.process FD HOST PORT SEED DILATION OWNER_PID`.

It sends the port it listens on over the pipe of that descriptor, then answers each command that
comes, a tuple of its name and arguments. It ends with its owner: at the end of the pipe, which
comes however the owner ended, or when its parent is another process than its owner.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection as Commands
from pathlib import Path
from typing import Any

from wire.bed.exchange import Emulation, Exchange, Pipe, Upstream, refuse
from wire.bed.link import OWNER, Link, Window
from wire.bed.messages import BadHead, Source, key_of, parse_request, range_of
from wire.bed.requests import RequestRow

UNKNOWN = -1
"""Number of processes that cannot be seen, which share one link."""

# <linux/sock_diag.h>, <linux/inet_diag.h> and <linux/netlink.h>
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ANY = 4, 20, 1, 0xFFFFFFFF


class Workers:
    """Number the processes that read, from 1 in the order in which they are first seen.

    No client has to help: the kernel knows the socket at the other end of a connection, and the
    open files of a process name its sockets. A connection is looked up once.
    """

    def __init__(self, owner_pid: int) -> None:
        self._lock = threading.Lock()
        self._numbers = {owner_pid: OWNER}

    def number_of(self, sock: socket.socket) -> int:
        """Return the number of the process at the other end of an accepted connection."""
        with self._lock:
            pid = find_pid(sock, self._numbers)
            return UNKNOWN if pid is None else self._numbers.setdefault(pid, len(self._numbers))


def find_pid(sock: socket.socket, known: Iterable[int]) -> int | None:
    """Find the process at the other end of an accepted connection, among those known first.

    They are nearly always enough.
    """
    inode = find_inode(sock.getpeername(), sock.getsockname())
    everybody = (int(name) for name in reversed(os.listdir("/proc")) if name.isdigit())
    return _find_holder(inode, known) or _find_holder(inode, everybody)


def find_inode(there: tuple[str, int], here: tuple[str, int]) -> int:
    """Ask the kernel for the inode of the socket at the other end; 0 if it has forgotten it.

    One question about one socket takes 15 microseconds. To read its table of all connections,
    /proc/net/tcp, takes it milliseconds even where there are none: first bytes came late by that.
    """
    addresses = [socket.inet_aton(address) for address, _ in (there, here)]
    ends = struct.pack("!HH4s12x4s12x", there[1], here[1], *addresses)
    wanted = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, _ANY)
    body = wanted + ends + struct.pack("=III", 0, _ANY, _ANY)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(body), _BY_FAMILY, _REQUEST, 0, 0) + body)
        answer = kernel.recv(4096)
    kind = struct.unpack_from("=H", answer, 4)[0]
    return int(struct.unpack_from("=I", answer, 84)[0]) if kind == _BY_FAMILY else 0


def _find_holder(inode: int, pids: Iterable[int]) -> int | None:
    """Find the process that has a socket open, among those that may be asked."""
    wanted = f"socket:[{inode}]"
    for pid in pids if inode else ():
        folder = f"/proc/{pid}/fd"
        with suppress(OSError):  # it has ended, or belongs to somebody else
            for file in reversed(os.listdir(folder)):
                with suppress(OSError):  # it was closed meanwhile
                    if os.readlink(f"{folder}/{file}") == wanted:
                        return pid
    return None


_HANDSHAKE = b"\x16"  # the first byte of a connection under TLS (RFC 8446)


class Connection:
    """Serve one client's connection until either side ends it."""

    def __init__(
        self, emulation: Emulation, workers: Workers, sock: socket.socket, number: int
    ) -> None:
        self._emulation, self._workers = emulation, workers
        self._client = Source(sock)
        self._number = number  # in the trace
        # real seconds: the clock of later requests may be another
        self._accepted_s = time.perf_counter()
        self._is_new = True  # until its first request
        self._window = Window()
        self._worker: int | None = None  # looked up when first needed
        self._upstream = Upstream(emulation.address)
        self._pipe = Pipe()

    def serve(self) -> None:
        """Serve requests, then close both sides."""
        try:
            self._decipher()
            while self._serve_one():
                pass
        except (OSError, BadHead):
            pass  # how connections end, on either side: the row of a request under way is written by now
        finally:
            self._upstream.close()
            self._client.sock.close()
            self._pipe.close()

    def _decipher(self) -> None:
        """Answer by TLS where the client speaks it, which its first byte tells."""
        context, sock = self._emulation.tls, self._client.sock
        if context is not None and sock.recv(1, socket.MSG_PEEK) == _HANDSHAKE:
            self._client = Source(context.wrap_socket(sock, server_side=True))
            self._pipe.close()
            self._pipe = Pipe(is_copying=True)

    def _serve_one(self) -> bool:
        """Serve one request and write its row; tell whether the connection goes on."""
        trace, problem = self._emulation.trace, ""
        try:
            raw = self._client.read_head()
            if not raw:
                return False
            request = parse_request(raw)
        except BadHead as error:
            problem = str(error)
        link = self._emulation.link  # that of this request to its end, whatever is emulated later
        row = self._open_row(link)
        try:
            if problem:  # the row says nothing else of what is no request
                return refuse(self._client, trace, row, link.time, status=400, reason=problem)
            met = self._emulation.admit(link, row.start_s)
            if link.profile.worker_mb_per_s is not None:
                if self._worker is None:
                    self._worker = self._workers.number_of(self._client.sock)
                row.worker = self._worker
            row.tag, row.method = met.tag, request.first[0].decode("ascii")
            row.key = key_of(request.first[1])
            row.range_start, row.range_nbytes = range_of(request, None)
            ends = self._client, self._upstream, self._pipe
            return Exchange(*ends, request, met, trace, row, self._window).serve()
        finally:
            trace.add(row, link.time)

    def _open_row(self, link: Link) -> RequestRow:
        """Begin the row of a request, which has arrived once its connection has been set up.

        A client that opened it earlier than it asked has waited for a part of that already.
        """
        is_first, self._is_new = self._is_new, False
        if is_first:
            link.sleep_until(link.time.of(self._accepted_s) + link.profile.setup_s)
        return RequestRow(link.time.now_s(), connection=self._number, is_first=is_first)


# Bytes that may lie between the proxy and a client that is not reading (the
# kernel doubles it). Unbounded, it would grow to 4 MB, and a client that
# decodes one chunk would find the next one fetched at memory speed; much less,
# and each send would wait for the client to be scheduled.
SEND_BUFFER_NBYTES = 1 << 18

# How often the owner is looked for, should another process hold its pipe open.
OWNER_CHECK_S = 1.0

BACKLOG = 1024

# 300 threads of the default 8 MiB would reserve 2.4 GB of addresses.
STACK_NBYTES = 1 << 18

_HOST = "127.0.0.1"


def listen() -> socket.socket:
    """Listen on a free port of the loopback interface."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_NBYTES)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind((_HOST, 0))
    listener.listen(BACKLOG)
    return listener


def accept_all(listener: socket.socket, emulation: Emulation, owner_pid: int = 0) -> None:
    """Serve each connection in a thread of its own; accepted sockets inherit the listener's options."""
    workers = Workers(owner_pid)
    for number in count(1):
        sock, _ = listener.accept()
        serve = Connection(emulation, workers, sock, number).serve
        threading.Thread(target=serve, daemon=True).start()


def encrypt(emulation: Emulation, bundle: Path) -> None:
    """Answer clients by TLS too, from now on, and write what they are to trust."""
    from wire.bed.certificates import Authority, find_bundles, write_bundle  # slow to import

    authority = Authority()
    write_bundle(bundle, authority, find_bundles(os.environ))
    emulation.tls = authority.server_context(_HOST)


COMMANDS: dict[str, Callable[..., Any]] = {
    "emulate": Emulation.emulate,
    "tag": lambda emulation, tag: setattr(emulation, "tag", tag),
    "encrypt": encrypt,
    "take": lambda emulation: emulation.trace.take(),
}


def main(arguments: list[str]) -> None:
    """Answer commands until the owner is gone; threads under way end with the process."""
    descriptor, host, port, seed, dilation, owner_pid = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner, who then stops us
    threading.stack_size(STACK_NBYTES)
    commands, owner, listener = Commands(int(descriptor)), int(owner_pid), listen()
    emulation = Emulation((host, int(port)), seed=int(seed), dilation=float(dilation))
    threading.Thread(target=accept_all, args=(listener, emulation, owner), daemon=True).start()
    commands.send(listener.getsockname()[1])
    with suppress(EOFError):
        while os.getppid() == owner:
            if commands.poll(OWNER_CHECK_S):
                command, *given = commands.recv()
                commands.send(COMMANDS[command](emulation, *given))


if __name__ == "__main__":
    main(sys.argv[1:])
