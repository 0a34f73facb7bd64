"""Moving bytes from one socket to another without looking at them, through the kernel where it can."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass

from helpers.netem.http import MAX_HEAD_NBYTES, BadHead, Head
from helpers.netem.shaping import FREE_QUANTUM_NBYTES, Stream

HAS_SPLICE = hasattr(os, "splice")


class Gone(ConnectionError):
    """One side closed its connection, or broke the framing, before the end."""

    def __init__(self, sock: socket.socket, reason: object) -> None:
        super().__init__(str(reason))
        self.sock = sock  # the side that is gone


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


# Bytes read with a head: a body's beginning comes along and is copied, so no
# more than a small object's worth.
READ_NBYTES = 1 << 14

# Lines of chunked framing: a length, an extension, a trailer.
MAX_LINE_NBYTES = 1 << 12


class Source:
    """Read heads and lines from a blocking socket; bytes read too far are kept for the body."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._kept = b""

    def _receive(self) -> bytes:
        """Return what has arrived, at least one byte, or nothing at its end."""
        try:
            return self.sock.recv(READ_NBYTES)
        except OSError as error:
            raise Gone(self.sock, error) from error

    def _read_to(self, mark: bytes, limit_nbytes: int) -> bytes:
        """Read up to and with `mark`; nothing if the sender closed before any byte."""
        while (end := self._kept.find(mark)) < 0:
            if len(self._kept) > limit_nbytes:
                raise BadHead(f"no end within {limit_nbytes} bytes")
            more = self._receive()
            if not more and self._kept:
                raise Gone(self.sock, "closed in the middle of a head")
            if not more:
                return b""
            self._kept += more
        end += len(mark)
        taken, self._kept = self._kept[:end], self._kept[end:]
        return taken

    def read_head(self) -> bytes:
        """Read a head with the empty line that ends it; nothing if the sender closed."""
        return self._read_to(b"\r\n\r\n", MAX_HEAD_NBYTES)

    def read_line(self) -> bytes:
        """Read a line of a chunked body with its end."""
        try:
            line = self._read_to(b"\r\n", MAX_LINE_NBYTES)
        except BadHead as error:
            raise Gone(self.sock, error) from error
        if not line:
            raise Gone(self.sock, "closed in the middle of a chunked body")
        return line

    def read_byte(self) -> int:
        """Read one byte of a body."""
        if data := self.take_kept(1) or self.sock.recv(1):
            return data[0]
        raise Gone(self.sock, "closed in the middle of a body")

    def take_kept(self, limit_nbytes: int) -> bytes:
        """Take at most `limit_nbytes` of what was read too far."""
        taken, self._kept = self._kept[:limit_nbytes], self._kept[limit_nbytes:]
        return taken

    @property
    def has_kept(self) -> bool:
        """Whether bytes were read too far."""
        return bool(self._kept)


@dataclass(frozen=True, slots=True)
class Way:
    """Join a sender to a receiver."""

    source: Source  # where bytes come from
    sink: socket.socket | None  # where they go; None drops them, which takes a copying pipe
    pipe: Pipe  # what carries them
    stream: Stream  # when they may pass
    meter: Meter  # what counts them

    def move(self, nbytes: int | None, *, is_last: bool = False) -> None:
        """Move `nbytes` in paced quanta, or with None all until the sender closes."""
        left = nbytes
        while left is None or left > 0:
            got = self._move_quantum(left, is_last=is_last)
            if not got and left is None:
                return
            if not got:
                raise Gone(self.source.sock, f"closed {left} bytes before the end of a body")
            left = None if left is None else left - got

    def _move_quantum(self, left: int | None, *, is_last: bool) -> int:
        """Move what has arrived, at most a quantum; return its bytes, 0 at the sender's end."""
        limit = (
            self.stream.quantum_nbytes if left is None else min(left, self.stream.quantum_nbytes)
        )
        kept = self.source.take_kept(limit)
        got = len(kept) or self.pipe.take(self.source.sock, limit)
        if not got:
            return 0
        self.stream.wait(got)
        if is_last and got == left:
            self.meter.ending()
        if kept:
            self.write(kept)
            self.meter.count(got)
        else:
            self.pipe.give(self.sink, got, self.meter)
        return got

    def write(self, data: bytes) -> None:
        """Write framing, which is neither paced nor counted."""
        if self.sink is not None:
            send(self.sink, data)

    def move_body(self, head: Head) -> None:
        """Move the whole body that a request's head announces."""
        if head.is_chunked:
            self.move_chunked(self.move)
        else:
            self.move(head.length or 0, is_last=True)

    def move_chunked(self, move_payload: Callable[[int], None]) -> None:
        """Move a chunked body; `move_payload` moves the bytes of one chunk."""
        while True:
            line = self.source.read_line()
            nbytes = self._chunk_nbytes(line)
            if not nbytes:
                break
            self.write(line)
            move_payload(nbytes)
            self.write(self.source.read_line())
        while (trailer := self.source.read_line()) != b"\r\n":
            line += trailer
        self.meter.ending()
        self.write(line + trailer)

    def _chunk_nbytes(self, line: bytes) -> int:
        """Parse the line that begins a chunk."""
        try:
            return int(line.partition(b";")[0].strip(), 16)
        except ValueError as error:
            raise Gone(self.source.sock, "sent a chunk without a length") from error
