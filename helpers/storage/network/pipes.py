"""Carrying bytes between two sockets: through the kernel, or by copying."""

from __future__ import annotations

import os
import socket
import sys

from helpers.storage.network.pacing import FREE_QUANTUM_NBYTES

HAS_SPLICE = hasattr(os, "splice")


class Gone(ConnectionError):
    """One side closed its connection, or broke the framing, before the end.

    Parameters
    ----------
    sock : socket.socket
        The side that is gone.
    reason : str
        What happened, for the answer to the other side.
    """

    def __init__(self, sock: socket.socket, reason: object) -> None:
        super().__init__(str(reason))
        self.sock = sock


def send(sink: socket.socket, data: bytes | memoryview) -> None:
    """Send all of `data`; raise `Gone` if the receiver is."""
    try:
        sink.sendall(data)
    except OSError as error:
        raise Gone(sink, error) from error


class Meter:
    """Count what passes; this one does not care."""

    def ending(self) -> None:
        """Learn that the next send may be the last."""

    def count(self, nbytes: int) -> None:
        """Learn that `nbytes` of a body were handed on."""


class Pipe:
    """Carry bytes between two sockets: through the kernel, or by copying.

    `os.splice` moves pages from one socket to a pipe and on to the other, so a
    body never enters Python. Where the system has none (macOS), bytes are copied.
    """

    def __init__(self, *, is_spliced: bool = HAS_SPLICE) -> None:
        self._ends: tuple[int, int] | None = None
        self._is_spliced = is_spliced
        self._buffer = memoryview(b"")

    def close(self) -> None:
        """Close the pipe; bytes that are still in it are lost."""
        if self._ends is not None:
            for end in self._ends:
                os.close(end)
            self._ends = None

    def _open(self) -> tuple[int, int]:
        """Open the pipe on first use, wide enough for the largest quantum."""
        if self._ends is None:
            self._ends = os.pipe()
            _widen(self._ends[1])
        return self._ends

    def take(self, source: socket.socket, limit_nbytes: int) -> int:
        """Take what has arrived, at most `limit_nbytes`; 0 means that the sender closed."""
        try:
            if sys.platform == "linux" and self._is_spliced:
                return os.splice(source.fileno(), self._open()[1], limit_nbytes)
            if not self._buffer:
                self._buffer = memoryview(bytearray(FREE_QUANTUM_NBYTES))
            return source.recv_into(self._buffer, min(limit_nbytes, FREE_QUANTUM_NBYTES))
        except OSError as error:
            raise Gone(source, error) from error

    def give(self, sink: socket.socket | None, nbytes: int, meter: Meter) -> None:
        """Hand the `nbytes` taken last to the receiver; a copied body without one is dropped."""
        given = 0
        while given < nbytes:
            got = self._give_some(sink, given, nbytes)
            meter.count(got)
            given += got

    def _give_some(self, sink: socket.socket | None, given: int, nbytes: int) -> int:
        """Hand on what the receiver has room for; return its bytes."""
        if sink is None:
            return nbytes - given
        try:
            if sys.platform == "linux" and self._is_spliced:
                return os.splice(self._open()[0], sink.fileno(), nbytes - given)
            return sink.send(self._buffer[given:nbytes])
        except OSError as error:
            raise Gone(sink, error) from error


def _widen(pipe: int) -> None:
    """Let a pipe hold a whole quantum, where the system allows it."""
    if sys.platform != "linux":
        return
    import fcntl

    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, FREE_QUANTUM_NBYTES)
    except PermissionError:
        # over the user's share of pipe pages (64 MiB): it stays at 64 KiB, which only costs wake-ups
        return
