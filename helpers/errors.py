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
    """Say in one line what the system did not allow, and where.

    Examples
    --------
    >>> tell_refusal(OSError(28, "No space left on device", "results/one.csv"))
    'results/one.csv: No space left on device; allowed: a folder that can be written and has room'
    """
    where = f"{error.filename}: " if error.filename else ""
    told = error.strerror or " ".join(str(error).split())
    return f"{where}{told}; allowed: a folder that can be written and has room"


def show(value: object) -> str:
    """Write a value for a message: in one line, however long, nested or odd it is.

    Examples
    --------
    >>> show("zarr"), show([1, 2, 3])
    ("'zarr'", '[1, 2, 3]')
    >>> len(show("x" * 1000)) <= 80
    True
    """
    shorter = reprlib.Repr()
    shorter.maxstring = shorter.maxlong = shorter.maxother = _SHOWN_LENGTH
    shorter.maxlist = shorter.maxdict = shorter.maxset = shorter.maxtuple = 12
    try:
        text = shorter.repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits
        text = f"a number of {int(value).bit_length()} bits" if isinstance(value, int) else "?"
    return cut(text)


def cut(text: str) -> str:
    r"""Cut a text to the length that a message shows, and escape what is not printed.

    Examples
    --------
    >>> print(cut("two" + chr(10) + "lines"))
    two\nlines
    """
    escaped = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: 2 * _SHOWN_LENGTH])
    is_whole = len(text) <= 2 * _SHOWN_LENGTH and len(escaped) <= _SHOWN_LENGTH
    return escaped if is_whole else escaped[: _SHOWN_LENGTH - 3] + "..."
