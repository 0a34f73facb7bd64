"""The little of HTTP/1.1 that a relay must understand: heads, and the framing of bodies."""

from __future__ import annotations

import re
import select
import socket
import ssl
from dataclasses import dataclass
from urllib.parse import unquote

# Larger heads are refused; S3 allows 8 KB of headers.
MAX_HEAD_NBYTES = 1 << 16

# Seconds from the first byte of a head to its last.
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
    requested = _RANGE.fullmatch(request.fields.get(b"range", b""))
    if requested is None:
        return None, None
    if response is not None and (
        answered := _CONTENT_RANGE.match(response.fields.get(b"content-range", b""))
    ):
        return int(answered[1]), int(answered[2]) - int(answered[1]) + 1
    first, last = requested[1], requested[2]
    if not first:
        return None, int(last) if last else None
    return int(first), int(last) - int(first) + 1 if last else None


def is_readable(sock: socket.socket, seconds: float = 0) -> bool:
    """Return whether a read returns within so many seconds."""
    if isinstance(sock, ssl.SSLSocket) and sock.pending():
        return True  # deciphered already: the kernel knows nothing of it
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(1000 * seconds))


class ChunkFraming:
    """Follow the framing of a chunked body while its bytes pass."""

    def __init__(self) -> None:
        self.nbytes = 0  # of the payload so far
        self.is_over = self.is_broken = False
        self._left_nbytes = 0  # of this chunk, with the line's end after it
        self._line, self._is_trailer = b"", False

    @property
    def n_payload_left(self) -> int:
        """Bytes of the payload of this chunk that are still to come."""
        return max(self._left_nbytes - 2, 0)

    def skip(self, nbytes: int) -> None:
        """Note bytes of the payload of this chunk that have passed."""
        self.nbytes += nbytes
        self._left_nbytes -= nbytes

    def follow(self, data: bytes, *, is_payload_left: bool = False) -> int:
        """Follow the bytes that come next, to the payload of a chunk where that is left to be skipped.

        Returns how many are the body's; all of what is no such framing.
        """
        position = 0
        while position < len(data) and not (self.is_over or self.is_broken):
            if self._left_nbytes:
                if is_payload_left and self.n_payload_left:
                    break
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
