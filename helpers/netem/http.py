"""The little of HTTP/1.1 the proxy must understand: heads, lengths and ranges."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

# Larger heads are refused; S3 allows 8 KB of headers.
MAX_HEAD_NBYTES = 1 << 16

_RANGE = re.compile(rb"bytes=(\d*)-(\d*)")
_CONTENT_RANGE = re.compile(rb"bytes (\d+)-(\d+)/")
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class BadHead(ValueError):
    """What arrived is no head of an HTTP/1.1 message."""


@dataclass(frozen=True, slots=True)
class Head:
    """Hold a head as it arrived and the fields that matter, names in lower case."""

    raw: bytes  # the head as received, with the empty line that ends it
    first: tuple[bytes, bytes, bytes]  # the three words of the first line
    fields: dict[bytes, bytes]  # header fields; repeated ones are joined by commas

    @property
    def is_chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return self.fields.get(b"transfer-encoding", b"").lower().endswith(b"chunked")

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
    if not fields.get(b"content-length", b"0").isdigit():
        raise BadHead("Content-Length is not one number")
    return first.split(b" ", 2), fields


def parse_request(raw: bytes) -> Head:
    r"""Parse the head of a request.

    Examples
    --------
    >>> parse_request(b"GET /bucket/a?b HTTP/1.1\r\nHost: c\r\n\r\n").first
    (b'GET', b'/bucket/a?b', b'HTTP/1.1')
    """
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
    r"""Parse the head of a response.

    Examples
    --------
    >>> parse_response(b"HTTP/1.1 206 Partial Content\r\n\r\n").first[1]
    b'206'
    """
    words, fields = _parse(raw)
    if (
        len(words) < 2
        or not words[0].startswith(b"HTTP/1.")
        or not re.fullmatch(rb"[1-5]\d\d", words[1])
    ):
        raise BadHead("the first line is not HTTP/1.1 STATUS REASON")
    return Head(raw, (words[0], words[1], words[2] if len(words) > 2 else b""), fields)


def has_body(method: bytes, status: int) -> bool:
    """Tell whether a response to `method` with `status` has a body at all."""
    return method != b"HEAD" and status >= 200 and status not in (204, 304)


def key_of(target: bytes) -> str:
    """Return the path of a request's target, decoded and without its query.

    The query of a presigned URL carries a signature, so nothing of it is kept.

    Examples
    --------
    >>> key_of(b"/bucket/sea%20ice?X-Amz-Signature=1")
    '/bucket/sea ice'
    """
    path = target.partition(b"?")[0]
    if not path.startswith(b"/"):
        # a proxy's form, http://host/path, whose host may carry credentials
        path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
    return unquote(path.decode("latin-1"))


def range_of(request: Head, response: Head | None) -> tuple[int | None, int | None]:
    r"""Return start and length in bytes of the range that a request asks for.

    Examples
    --------
    >>> request = parse_request(b"GET /a HTTP/1.1\r\nRange: bytes=10-19\r\n\r\n")
    >>> range_of(request, None)
    (10, 10)
    """
    asked = _RANGE.fullmatch(request.fields.get(b"range", b""))
    if asked is None:
        return None, None
    if response is not None and (
        got := _CONTENT_RANGE.match(response.fields.get(b"content-range", b""))
    ):
        return int(got[1]), int(got[2]) - int(got[1]) + 1
    if not asked[1]:
        return None, int(asked[2]) if asked[2] else None
    return int(asked[1]), int(asked[2]) - int(asked[1]) + 1 if asked[2] else None
