"""Connections that have ended, as the kernel reports them: those too short for any look are among them.

Looks at the files of processes see a connection that lasts some milliseconds, and a shorter one by
chance. The kernel however reports each TCP socket of the network namespace when it is destroyed, with
both ends and the bytes that it had received (`ss --events` reads the same), and asks for no privilege.
It does not say whose the socket was. So what ended is sorted into what is known to be the program's or
the gateway's, what is known to be another program's because it lived through a whole look at the files
of the program's processes and was in none, and the rest, which may be either.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Collection, Iterable
from contextlib import suppress

from wire.trace.sockets import LISTEN, End, TcpSocket, parse_socket

# <linux/sock_diag.h>: SKNLGRP_INET_TCP_DESTROY and SKNLGRP_INET6_TCP_DESTROY, as bits
_GROUPS = 1 << 0 | 1 << 2
_SOCK_DIAG, _HEADER, _BODY = 4, 16, 72
_INFO, _RECEIVED_AT = 2, 128  # INET_DIAG_INFO, and in <linux/tcp.h> where tcpi_bytes_received is
_BUFFER_NBYTES = 1 << 22  # the system may allow less
_MOST_PAIRS = 20_000
_UID_AT = 64  # in inet_diag_msg

Pair = frozenset[End]
"""Both ends of a connection, which on one machine are two sockets."""


class ClosedConnections:
    """Gather the connections of this machine that end, from now on."""

    def __init__(self) -> None:
        self._pairs = dict[Pair, tuple[End, int]]()  # the far end, and the bytes received
        self._others, self._alive = set[Pair](), dict[int, Pair]()
        self._listening = set[int]()
        self.is_complete = True
        """Whether the system has reported all of them."""
        self._kernel: socket.socket | None = None
        try:
            self._kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)
            self._kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_NBYTES)
            self._kernel.bind((0, _GROUPS))
            self._kernel.setblocking(False)
        except OSError:
            self.close()
            self.is_complete = False

    def close(self) -> None:
        """Gather no more."""
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None

    def take(self) -> None:
        """Take what the kernel has reported since the last call."""
        while self._kernel is not None:
            try:
                data = self._kernel.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:  # more has ended than its buffer holds
                self.is_complete = False
                continue
            with suppress(struct.error, IndexError, ValueError):
                self._add(data)

    def _add(self, data: bytes) -> None:
        message = data[_HEADER : struct.unpack_from("=I", data)[0]]
        uid = struct.unpack_from("=I", message, _UID_AT)[0]
        if uid not in (0, os.geteuid()):  # 0 also where the system no longer says
            return
        entry, nbytes = parse_socket(message), read_received(message[_BODY:])
        if entry.state == LISTEN or not (entry.local[1] and entry.remote[1]):
            return
        pair = frozenset((entry.local, entry.remote))
        _, before_nbytes = self._pairs.get(pair, (entry.remote, 0))
        remote = entry.local if entry.local[1] in self._listening else entry.remote
        if len(self._pairs) < _MOST_PAIRS:
            self._pairs[pair] = remote, max(nbytes, before_nbytes)
        else:
            self.is_complete = False

    def look(self, table: Iterable[TcpSocket], own_inodes: Collection[int]) -> None:
        """Learn which connections are other programs'.

        `own_inodes` are the sockets of the program's processes, listed between the table of the last
        call and this one: what is in both tables and not among them is not the program's.
        """
        alive = dict[int, Pair]()
        for entry in table:
            if entry.state == LISTEN:
                self._listening.add(entry.local[1])
            elif entry.inode:
                alive[entry.inode] = frozenset((entry.local, entry.remote))
        for inode, pair in alive.items():
            if self._alive.get(inode) == pair and inode not in own_inodes:
                self._others.add(pair)
        self._alive = alive

    def find_unattributed(
        self, *, own_ends: Collection[End], own_ports: Collection[int], own_places: Collection[str]
    ) -> list[str]:
        """Return the far ends of connections that may be the program's, `host:port` each.

        Parameters
        ----------
        own_ends : collection of (str, int)
            The gateway's own ends of its connections, those at which it listens included.
        own_ports : collection of int
            Ports at which the program itself listens.
        own_places : collection of str
            Far ends, `host:port`, that are known to be the program's, such as those past the gateway.
        """
        self.take()
        places = list[str]()
        for pair, (remote, nbytes) in self._pairs.items():
            is_known = pair in self._others or any(
                end in own_ends or end[1] in own_ports or f"{end[0]}:{end[1]}" in own_places
                for end in pair
            )
            if nbytes and not is_known:
                listening = [end for end in pair if end[1] in self._listening]
                host, port = listening[0] if len(listening) == 1 else remote
                places.append(f"{host}:{port}")
        return places


def read_received(attributes: bytes) -> int:
    """Return the bytes that a socket has received, of the attributes of its report; 0 if none says."""
    place = 0
    while place + 4 <= len(attributes):
        nbytes, kind = struct.unpack_from("=HH", attributes, place)
        if kind == _INFO and nbytes >= 4 + _RECEIVED_AT + 8:
            return int(struct.unpack_from("=Q", attributes, place + 4 + _RECEIVED_AT)[0])
        place += max(4, (nbytes + 3) & ~3)
    return 0
