"""The little of HTTP/1.1 that the proxy must understand: heads, and the framing of bodies."""

from __future__ import annotations

import re
import select
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import unquote

# Larger heads are refused; S3 allows 8 KB of headers.
MAX_HEAD_NBYTES = 1 << 16

# Lines of chunked framing: a length, an extension, a trailer.
MAX_LINE_NBYTES = 1 << 12

# Seconds from the first byte of a head, or of such a line, to its last.
HEAD_TIMEOUT_S = 10.0

# Bytes read with a head: a body's beginning comes along and is copied, so no
# more than a small object's worth.
READ_NBYTES = 1 << 14

# No object is longer than 18 digits say, and Python refuses to read some thousand.
_RANGE = re.compile(rb"bytes=(\d{0,18})-(\d{0,18})")
_CONTENT_RANGE = re.compile(rb"bytes (\d{1,18})-(\d{1,18})/")
_LENGTH = re.compile(rb"\d{1,18}")
_CHUNK_LENGTH = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(;.*)?\r\n", re.DOTALL)
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class BadHead(ValueError):
    """What arrived is no head of an HTTP/1.1 message, or no line between its chunks."""


class PeerClosed(ConnectionError):
    """One side closed its connection, or broke the framing, before the end."""


@dataclass(frozen=True, slots=True)
class Head:
    """Hold a head as it arrived and the fields that matter, names in lower case."""

    raw: bytes  # the head as received, with the empty line that ends it
    first: tuple[bytes, bytes, bytes]  # the three words of the first line
    fields: dict[bytes, bytes]  # header fields; repeated ones are joined by commas

    @property
    def is_chunked(self) -> bool:
        """Whether the body comes in chunks."""
        codings = self.fields.get(b"transfer-encoding", b"").lower()
        return codings.rpartition(b",")[2].strip() == b"chunked"

    @property
    def length(self) -> int | None:
        """Stated length of the body in bytes; None if it states none."""
        text = self.fields.get(b"content-length")
        return None if text is None else int(text)

    @property
    def status(self) -> int:
        """Status of a response."""
        return int(self.first[1])

    @property
    def brings_body(self) -> bool:
        """Whether a body follows a request."""
        return self.is_chunked or bool(self.length)

    @property
    def expects_continue(self) -> bool:
        """Whether the client of a request waits for `100 Continue` before its body."""
        return self.fields.get(b"expect", b"").lower() == b"100-continue"

    def keeps_alive(self, version: bytes) -> bool:
        """Whether the connection stays open after this message."""
        options = self.fields.get(b"connection", b"").lower()
        return b"keep-alive" in options if version == b"HTTP/1.0" else b"close" not in options


def _parse(raw: bytes) -> tuple[list[bytes], dict[bytes, bytes]]:
    """Split a head into the words of its first line and its fields."""
    first, *lines = raw[:-4].split(b"\r\n")
    fields: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _TOKEN.fullmatch(name):
            raise BadHead("a header field has no name")
        name, value = name.lower(), value.strip()
        fields[name] = fields[name] + b", " + value if name in fields else value
    if not _LENGTH.fullmatch(fields.get(b"content-length", b"0")):
        raise BadHead("Content-Length is not one number")
    return first.split(b" ", 2), fields


def parse_request(raw: bytes) -> Head:
    """Parse the head of a request."""
    words, fields = _parse(raw)
    is_line = (
        len(words) == 3 and _TOKEN.fullmatch(words[0]) and words[2] in (b"HTTP/1.1", b"HTTP/1.0")
    )
    if not is_line or not words[1] or b" " in words[1]:
        raise BadHead("the first line is not METHOD TARGET HTTP/1.1")
    head = Head(raw, (words[0], words[1], words[2]), fields)
    if b"transfer-encoding" in fields and (not head.is_chunked or head.length is not None):
        raise BadHead("the length of the body is ambiguous")
    return head


def parse_response(raw: bytes) -> Head:
    """Parse the head of a response."""
    words, fields = _parse(raw)
    is_line = len(words) > 1 and words[0].startswith(b"HTTP/1.")
    if not is_line or not re.fullmatch(rb"[1-5]\d\d", words[1]):
        raise BadHead("the first line is not HTTP/1.1 STATUS REASON")
    return Head(raw, (words[0], words[1], words[2] if len(words) > 2 else b""), fields)


def key_of(target: bytes) -> str:
    """Return the path of a request's target, decoded; of its query, which may hold a signature, nothing."""
    path = target.partition(b"?")[0]
    if not path.startswith(b"/"):
        # a proxy's form, http://host/path, whose host may carry credentials
        path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
    return unquote(path.decode("latin-1"))


def range_of(request: Head, response: Head | None) -> tuple[int | None, int | None]:
    """Return start and length in bytes of the range that a request asks for."""
    asked = _RANGE.fullmatch(request.fields.get(b"range", b""))
    if asked is None:
        return None, None
    if response is not None and (
        sent := _CONTENT_RANGE.match(response.fields.get(b"content-range", b""))
    ):
        return int(sent[1]), int(sent[2]) - int(sent[1]) + 1
    if not asked[1]:
        return None, int(asked[2]) if asked[2] else None
    return int(asked[1]), int(asked[2]) - int(asked[1]) + 1 if asked[2] else None


def is_readable(sock: socket.socket, seconds: float = 0) -> bool:
    """Tell whether reading returns within so long."""
    if isinstance(sock, ssl.SSLSocket) and sock.pending():
        return True  # deciphered already: the kernel knows nothing of it
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(1000 * seconds))


def wait_for_either(first: Source, second: Source) -> Source:
    """Wait until one of two senders has something to say, or closes, and return it; the first if both do."""
    poller = select.poll()
    for source in (first, second):
        poller.register(source.sock, select.POLLIN)
    while True:
        for source in (first, second):
            if source.hear():
                return source
        poller.poll()


class ChunkFraming:
    """Follow the framing of a chunked body while its bytes pass."""

    def __init__(self) -> None:
        self.nbytes = 0  # of the payload so far
        self.is_over = self.is_broken = False
        self._left_nbytes = 0  # of this chunk, with the line's end after it
        self._line, self._is_trailer = b"", False

    def follow(self, data: bytes) -> int:
        """Take the bytes that come next, and return how many are the body's; all of what is no such framing."""
        position = 0
        while position < len(data) and not (self.is_over or self.is_broken):
            if self._left_nbytes:
                n = min(self._left_nbytes, len(data) - position)
                # the last two end the line
                self.nbytes += max(min(n, self._left_nbytes - 2), 0)
                self._left_nbytes -= n
                position += n
                continue
            end = data.find(b"\n", position) + 1 or len(data)
            self._line += data[position:end]
            position = end
            if self._line.endswith(b"\n"):
                self._take_line()
            elif len(self._line) > MAX_HEAD_NBYTES:
                self.is_broken = True
        return len(data) if self.is_broken else position

    def _take_line(self) -> None:
        line, self._line = self._line, b""
        if self._is_trailer:
            self.is_over = line == b"\r\n"
        elif (length := _CHUNK_LENGTH.fullmatch(line)) is None:
            self.is_broken = True
        elif (nbytes := int(length[1], 16)) > 0:
            self._left_nbytes = nbytes + 2
        else:
            self._is_trailer = True


class Source:
    """Read heads and lines from a blocking socket; bytes read too far are kept for the body."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._kept = b""

    def _read_to(self, mark: bytes, limit_nbytes: int) -> bytes:
        """Read up to and with `mark`; nothing if the sender closed before any byte."""
        until_s = 0.0
        while (end := self._kept.find(mark)) < 0:
            if len(self._kept) > limit_nbytes:
                raise BadHead(f"no end within {limit_nbytes} bytes")
            if self._kept:  # nearly all come whole, so that nobody looks at the time
                until_s = until_s or time.monotonic() + HEAD_TIMEOUT_S
                left_s = until_s - time.monotonic()
                if left_s <= 0 or not is_readable(self.sock, left_s):
                    raise BadHead(f"no end within {HEAD_TIMEOUT_S:g} s")
            more = self.sock.recv(READ_NBYTES)
            if not more and self._kept:
                raise PeerClosed("closed in the middle of a head")
            if not more:
                return b""
            self._kept += more
        return self.take_kept(end + len(mark))

    def read_head(self) -> bytes:
        """Read a head with the empty line that ends it; nothing if the sender closed."""
        return self._read_to(b"\r\n\r\n", MAX_HEAD_NBYTES)

    def read_request_head(self, pause_s: float | None = None) -> tuple[bytes, bool]:
        """Read the head of a request; tell whether it is one: it may be too long, end, or pause for too long."""
        while (end := self._kept.find(b"\r\n\r\n")) < 0 and len(self._kept) <= MAX_HEAD_NBYTES:
            if self._kept and pause_s is not None and not is_readable(self.sock, pause_s):
                break
            more = self.sock.recv(READ_NBYTES)
            if not more:
                break
            self._kept += more
        return self.take_kept(end + 4 if end >= 0 else len(self._kept)), end >= 0

    def read_head_as_it_comes(
        self, pass_on: Callable[[bytes], None], pause_s: float
    ) -> Head | bytes:
        """Read the head of a response without a limit of time; what comes before a pause is passed on at once.

        Returns the head with what is left to be passed on as its bytes, or those bytes alone where it is no
        head: too long, or ended by the sender.
        """
        n_passed = 0
        while (end := self._kept.find(b"\r\n\r\n")) < 0 and len(self._kept) <= MAX_HEAD_NBYTES:
            if len(self._kept) > n_passed and not is_readable(self.sock, pause_s):
                pass_on(self._kept[n_passed:])
                n_passed = len(self._kept)
            more = self.sock.recv(READ_NBYTES)
            if not more:
                break
            self._kept += more
        raw = self.take_kept(end + 4 if end >= 0 else len(self._kept))
        with suppress(BadHead):
            return replace(parse_response(raw if end >= 0 else b""), raw=raw[n_passed:])
        return raw[n_passed:]

    def read_line(self) -> bytes:
        """Read a line of a chunked body with its end."""
        if line := self._read_to(b"\r\n", MAX_LINE_NBYTES):
            return line
        raise PeerClosed("closed in the middle of a chunked body")

    def read_chunk_length(self) -> tuple[bytes, int]:
        """Read the line before a chunk of a body, and the bytes of that chunk."""
        line = self.read_line()
        if found := _CHUNK_LENGTH.fullmatch(line):
            return line, int(found[1], 16)
        raise PeerClosed("sent a chunk without a length")

    def read_trailer(self) -> bytes:
        """Read the lines that end a chunked body, no more than a head may have."""
        lines = [self.read_line()]
        while lines[-1] != b"\r\n":
            lines.append(self.read_line())
            if sum(map(len, lines)) > MAX_HEAD_NBYTES:
                raise PeerClosed(f"sent a trailer of more than {MAX_HEAD_NBYTES} bytes")
        return b"".join(lines)

    def read_byte(self) -> int:
        """Read one byte of a body."""
        if data := self.take_kept(1) or self.sock.recv(1):
            return data[0]
        raise PeerClosed("closed in the middle of a body")

    def hear(self) -> bool:
        """Read what is there, without waiting; tell whether something is kept or the sender has closed."""
        self.sock.settimeout(0)
        try:
            more = b"" if self._kept else self.sock.recv(READ_NBYTES)
            self._kept += more
        except (BlockingIOError, ssl.SSLWantReadError):  # of TLS something may come that is no byte
            return False
        finally:
            self.sock.settimeout(None)
        return True

    def put_back(self, data: bytes) -> None:
        """Keep what was taken and is of the next message."""
        self._kept = data + self._kept

    def take_kept(self, limit_nbytes: int) -> bytes:
        """Take at most `limit_nbytes` of what was read too far."""
        taken, self._kept = self._kept[:limit_nbytes], self._kept[limit_nbytes:]
        return taken
