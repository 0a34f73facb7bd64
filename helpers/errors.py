"""What a terminal is told: the one error that users see as a line, and the one function that prints."""

from __future__ import annotations

import reprlib
import sys

from helpers.redaction import redact

_SHOWN_LENGTH = 80  # characters of a value in a message


class UserError(ValueError):
    """Something the user asked for cannot be done.

    The message is one line that names the parameter, its value and what is
    allowed; the command line prints it without a traceback, and no credential is in it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(redact(message)))


def say(text: object = "", *, err: bool = False) -> None:
    """Print to the terminal, without credentials and without what would steer it.

    Names of files and fields of records may come from a stranger.
    """
    print(printable(redact(str(text))), file=sys.stderr if err else sys.stdout, flush=True)


def printable(text: str) -> str:
    r"""Escape what is not printed, but for the ends of lines.

    Examples
    --------
    >>> print(printable("a" + chr(27) + "[31mb"))
    a\x1b[31mb
    """
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def tell_refusal(error: OSError) -> str:
    """Say in one line what the system did not allow, and where."""
    where = f"{cut(str(error.filename))}: " if error.filename else ""
    told = error.strerror or " ".join(str(error).split())
    return f"{where}{told}; allowed: a folder that can be written and has room"


def show(value: object) -> str:
    """Write a value for a message: in one line, however long, nested or odd it is.

    Credentials go before it is cut, for the rest of one would be recognised no more.

    Examples
    --------
    >>> show("zarr"), show([1, 2, 3]), show({"password": "hunter-2"})
    ("'zarr'", '[1, 2, 3]', "{'password': '***'}")
    """
    shorter = reprlib.Repr(maxlist=12, maxdict=12, maxset=12, maxtuple=12)
    shorter.maxstring = shorter.maxlong = shorter.maxother = 1000
    try:
        text = shorter.repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits
        text = "a number of thousands of digits"
    return cut(redact(text))


def cut(text: str) -> str:
    r"""Cut a text to the length that a message shows, and escape what is not printed.

    Examples
    --------
    >>> print(cut("two" + chr(10) + "lines"))
    two\nlines
    """
    text = text[: 2 * _SHOWN_LENGTH]
    escaped = printable(text).replace("\n", r"\n")
    return escaped if len(escaped) <= _SHOWN_LENGTH else escaped[: _SHOWN_LENGTH - 3] + "..."
