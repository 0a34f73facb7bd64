"""Look at the connections of processes, so quickly that short ones are seen too.

A look lists the open files of each process, some tens of microseconds, and asks the kernel for
its table of connections only where a socket is new.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple, Protocol

# <linux/sock_diag.h>, <linux/inet_diag.h> and <linux/netlink.h>
_SOCK_DIAG, _BY_FAMILY, _REQUEST_DUMP, _DONE, _ERROR = 4, 20, 0x301, 3, 2
_SYN_SENT, _TIME_WAIT, LISTEN = 2, 6, 10
_STATES = 0xFFF & ~(1 << _TIME_WAIT)  # of what nobody holds any more there may be thousands
TABLE_S = 0.05
"""Between looks at whose connections are alive: those of other programs that last for two are known."""

_MOST_LOOKS = 3
"""How often the kernel is asked for a new socket that is not in its table: it may be of another kind."""


End = tuple[str, int]
"""Address and port."""


class TcpSocket(NamedTuple):
    """Hold one entry of the kernel's table."""

    state: int
    local: End
    remote: End
    inode: int


def list_tcp_sockets() -> list[TcpSocket]:
    """Ask the kernel for all TCP sockets that somebody has, those that listen included."""
    return [entry for family in (socket.AF_INET, socket.AF_INET6) for entry in _list_family(family)]


def _list_family(family: int) -> Iterator[TcpSocket]:
    body = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 0, _STATES)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.send(struct.pack("=IHHII", 16 + len(body), _BY_FAMILY, _REQUEST_DUMP, 0, 0) + body)
        while True:
            data, place = kernel.recv(1 << 16), 0
            while place + 16 <= len(data):
                nbytes, kind = struct.unpack_from("=IH", data, place)
                if kind in (_DONE, _ERROR):
                    return
                yield parse_socket(data[place + 16 : place + nbytes])
                place += (nbytes + 3) & ~3


def parse_socket(message: bytes) -> TcpSocket:
    """Parse what the kernel says of a socket, an inet_diag_msg."""
    family, state = message[0], message[1]
    local_port, remote_port = struct.unpack_from("!HH", message, 4)
    n = 4 if family == socket.AF_INET else 16
    local, remote = (_write_address(message[start : start + n]) for start in (8, 24))
    inode = struct.unpack_from("=I", message, 68)[0]
    return TcpSocket(state, (local, local_port), (remote, remote_port), inode)


def _write_address(raw: bytes) -> str:
    address = ip_address(raw)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def find_descendants(root: int) -> list[int]:
    """Find a process and all that it and its children have started."""
    processes, pending = list[int](), [root]
    while pending:
        pid = pending.pop()
        if pid in processes:
            continue
        processes.append(pid)
        with suppress(OSError, ValueError):
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                    pending += map(int, file.read().split())
    return processes


class TableReader(Protocol):
    """What else learns from a look: `wire.trace.closed`."""

    def take(self) -> None:
        """Take what has been reported meanwhile."""

    def look(self, table: Iterable[TcpSocket], own_inodes: Collection[int]) -> None:
        """Learn from the sockets of the machine, and those of the program's processes."""


class ConnectionLook:
    """Find the connections of a program's processes that do not end at the gateway."""

    def __init__(self, port: int, closed: TableReader | None = None) -> None:
        self._port = port
        self._closed, self._table_s = closed, 0.0  # when the next table is due
        self._known, self._n_looks = dict[int, int](), dict[int, int]()  # by inode
        self.served_ports = set[int]()

    def find_new(self, pids: Iterable[int]) -> list[tuple[int, str, int]]:
        """Return process, host and port of each connection that was not there at the last look."""
        current = {inode: pid for pid in pids for inode in find_inodes(pid)}
        fresh = {inode: pid for inode, pid in current.items() if inode not in self._known}
        is_due = self._closed is not None and time.monotonic() >= self._table_s
        if not fresh and not is_due:
            return []
        table = list_tcp_sockets()
        if self._closed is not None:
            self._table_s = time.monotonic() + TABLE_S
            self._closed.take()
            self._closed.look(table, current)
        by_inode = {entry.inode: entry for entry in table}
        own = {**self._known, **fresh}
        self.served_ports |= {
            entry.local[1] for entry in table if entry.state == LISTEN and entry.inode in own
        }
        ends = {entry.local for entry in table if entry.inode in own}
        connections = list[tuple[int, str, int]]()
        for inode, pid in fresh.items():
            entry = by_inode.get(inode)
            if entry is None or entry.state == _SYN_SENT:
                self._n_looks[inode] = self._n_looks.get(inode, 0) + (entry is None)
                if self._n_looks[inode] < _MOST_LOOKS:
                    continue
            self._known[inode] = pid
            self._n_looks.pop(inode, None)
            if entry is None or entry.state in (_SYN_SENT, LISTEN):
                continue
            is_own = entry.remote in ends or entry.local[1] in self.served_ports
            if not is_own and entry.remote != ("127.0.0.1", self._port):
                connections.append((pid, *entry.remote))
        return connections


def find_inodes(pid: int | str) -> Iterator[int]:
    """Find the sockets that a process has open, by their inodes."""
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError, ValueError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("socket:["):
                    yield int(target[8:-1])
