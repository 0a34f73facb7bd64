"""The one error that is shown to users as a single line."""

from __future__ import annotations

import reprlib

from helpers.redaction import redact

_SHOWN_LENGTH = 80  # characters of a value in a message


class UserError(ValueError):
    """Something the user asked for cannot be done.

    The message is one line that names the parameter, its value and what is
    allowed; the command line prints it without a traceback, and no credential is in it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(redact(message))


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
    escaped = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return escaped if len(escaped) <= _SHOWN_LENGTH else escaped[: _SHOWN_LENGTH - 3] + "..."
