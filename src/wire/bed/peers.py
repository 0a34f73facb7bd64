"""Which process is at the other end of a connection; the kernel knows, so that no client has to help."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress

from wire.bed.link import OWNER

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


def find_pid(sock: socket.socket, likely_pids: Iterable[int]) -> int | None:
    """Find the process at the other end of an accepted connection, the likely ones first.

    They are nearly always enough.
    """
    inode = find_inode(sock.getpeername(), sock.getsockname())
    return _find_holder(inode, likely_pids) or _find_holder(inode, _list_pids())


def _list_pids() -> Iterator[int]:
    """List all processes, the newest first; nothing is read unless somebody asks for the first."""
    yield from (int(name) for name in reversed(os.listdir("/proc")) if name.isdigit())


def find_inode(peer: tuple[str, int], own: tuple[str, int]) -> int:
    """Ask the kernel for the inode of the socket at the other end; 0 if it has forgotten it.

    One question about one socket takes 15 microseconds. To read its table of all connections,
    /proc/net/tcp, takes it milliseconds even where there are none: first bytes came late by that.
    """
    addresses = [socket.inet_aton(address) for address, _ in (peer, own)]
    ends = struct.pack("!HH4s12x4s12x", peer[1], own[1], *addresses)
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
