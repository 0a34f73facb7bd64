"""Which process is at the other end of a connection: a worker, with a link of its own.

No client has to help: the kernel's table of connections names the socket at the other end, and
the open files of a process name its sockets. A connection is looked up once.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

HAS_PEERS = sys.platform == "linux"

OWNER = 0
"""Number of the process that owns the proxy: it is no worker and has no link of its own."""

UNKNOWN = -1
"""Number of processes that cannot be seen, which share one link."""


class Workers:
    """Number the processes that read, from 1 in the order in which they are first seen."""

    def __init__(self, owner_pid: int) -> None:
        self._lock = threading.Lock()
        self._numbers = {owner_pid: OWNER}

    def number_of(self, sock: socket.socket) -> int:
        """Return the number of the process at the other end of an accepted connection."""
        inode = _find_inode(sock.getpeername(), sock.getsockname())
        if not inode:
            return UNKNOWN
        with self._lock:
            # those seen before come first, and are nearly always enough
            pid = _find_holder(inode, self._numbers) or _find_holder(inode, _list_processes())
            return UNKNOWN if pid is None else self._numbers.setdefault(pid, len(self._numbers))


def _find_inode(there: tuple[str, int], here: tuple[str, int]) -> str:
    """Find the inode of the socket at the other end; empty if the kernel has forgotten it."""
    pair = [_write_address(there), _write_address(here)]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        cells = line.split()
        if cells[1:3] == pair and cells[9] != "0":
            return cells[9]
    return ""


def _write_address(address: tuple[str, int]) -> str:
    """Write an address as the kernel does: the bytes of an int in this machine's order."""
    number = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    return f"{number:08X}:{address[1]:04X}"


def _list_processes() -> list[int]:
    """List all processes, the newest first."""
    return sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True)


def _find_holder(inode: str, pids: Iterable[int]) -> int | None:
    """Find the process that has a socket open."""
    return next((pid for pid in pids if _holds(pid, f"socket:[{inode}]")), None)


def _holds(pid: int, name: str) -> bool:
    """Tell whether a process has a file open, as far as it may be asked."""
    folder = f"/proc/{pid}/fd"
    try:
        return any(_read_link(f"{folder}/{file}") == name for file in os.listdir(folder))
    except OSError:  # it has ended, or belongs to somebody else
        return False


def _read_link(path: str) -> str:
    """Read a link; empty if its file was closed meanwhile."""
    try:
        return os.readlink(path)
    except OSError:
        return ""
