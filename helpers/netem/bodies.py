"""Bodies that pass from one socket to another without being looked at, at the pace of a stream."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass

from helpers.netem.http import PeerClosed, Source, send
from helpers.netem.shaping import FREE_QUANTUM_NBYTES, Stream

HAS_SPLICE = hasattr(os, "splice")


class Pipe:
    """Carry bytes between two sockets: through the kernel, or by copying.

    `os.splice` moves pages from one socket to a pipe and on to the other, so a
    body never enters Python. Where the system has none (macOS), bytes are copied.
    """

    def __init__(self) -> None:
        self._ends = os.pipe()
        self._buffer = memoryview(b"")
        if sys.platform == "linux":
            import fcntl

            # over the user's share of pipe pages (64 MiB) it stays at 64 KiB, which costs wake-ups
            with contextlib.suppress(PermissionError):
                fcntl.fcntl(self._ends[1], fcntl.F_SETPIPE_SZ, FREE_QUANTUM_NBYTES)

    def close(self) -> None:
        """Close the pipe; bytes that are still in it are lost."""
        for end in self._ends:
            os.close(end)

    def take(self, source: socket.socket, limit_nbytes: int) -> int:
        """Take what has arrived, at most `limit_nbytes`; 0 means that the sender closed."""
        try:
            if sys.platform == "linux" and HAS_SPLICE:
                return os.splice(source.fileno(), self._ends[1], limit_nbytes)
            if not self._buffer:
                self._buffer = memoryview(bytearray(FREE_QUANTUM_NBYTES))
            return source.recv_into(self._buffer, min(limit_nbytes, FREE_QUANTUM_NBYTES))
        except OSError as error:
            raise PeerClosed(str(error)) from error

    def give(self, sink: socket.socket, nbytes: int, count: Callable[[int], None]) -> None:
        """Hand the `nbytes` taken last to the receiver, and count what it has room for each time."""
        given = 0
        while given < nbytes:
            try:
                if sys.platform == "linux" and HAS_SPLICE:
                    n_more = os.splice(self._ends[0], sink.fileno(), nbytes - given)
                else:
                    n_more = sink.send(self._buffer[given:nbytes])
            except OSError as error:
                raise PeerClosed(str(error)) from error
            count(n_more)
            given += n_more


@dataclass(frozen=True, slots=True)
class BodyTransfer:
    """Move a body from its sender to its receiver, at the pace of a stream."""

    source: Source
    sink: socket.socket
    pipe: Pipe  # what carries it
    stream: Stream  # when its bytes may pass
    count: Callable[[int], None] = lambda _nbytes: None  # learns what was handed on
    ending: Callable[[], None] = lambda: None  # learns that the next send may be the last

    def move(self, nbytes: int | None, *, is_last: bool = False) -> None:
        """Move `nbytes` in paced quanta, or with None all until the sender closes."""
        if nbytes is None:
            while self._move_quantum(None, is_last=False):
                pass
            return
        while nbytes > 0:
            if not (moved := self._move_quantum(nbytes, is_last=is_last)):
                raise PeerClosed(f"closed {nbytes} bytes before the end of a body")
            nbytes -= moved

    def _move_quantum(self, left: int | None, *, is_last: bool) -> int:
        """Move what has arrived, at most a quantum; return its bytes, 0 at the sender's end."""
        quantum = self.stream.quantum_nbytes
        limit = quantum if left is None else min(left, quantum)
        kept = self.source.take_kept(limit)
        nbytes = len(kept) or self.pipe.take(self.source.sock, limit)
        if not nbytes:
            return 0
        self.stream.wait(nbytes)
        if is_last and nbytes == left:
            self.ending()
        if kept:
            send(self.sink, kept)
            self.count(nbytes)
        else:
            self.pipe.give(self.sink, nbytes, self.count)
        return nbytes

    def move_chunked(self, move_payload: Callable[[int], None]) -> None:
        """Move a chunked body, its framing neither paced nor counted; `move_payload` moves the bytes of one chunk."""
        while True:
            line, nbytes = self.source.read_chunk_length()
            if not nbytes:
                break
            send(self.sink, line)
            move_payload(nbytes)
            send(self.sink, self.source.read_line())
        trailer = self.source.read_trailer()
        self.ending()
        send(self.sink, line + trailer)
