"""What a terminal is told: the one error that users see as a line, and the one function that prints."""

from __future__ import annotations

import reprlib
import sys
from typing import Any

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
    """Escape what is not printed, but for the ends of lines."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def tell_refusal(error: OSError) -> str:
    """Say in one line what the system did not allow, and where."""
    where = f"{cut(str(error.filename))}: " if error.filename else ""
    told = error.strerror or " ".join(str(error).split())
    return f"{where}{told}; allowed: a folder that can be written and has room"


def explain(error: Any, *, depth: int | None = None) -> str:
    """Say in one line what pydantic says in four: the first field, its value and what is allowed.

    A field is named by its whole place, or by the first `depth` parts of it.
    """
    first = error.errors(include_url=False)[0]
    context = first.get("ctx", {})
    if not first["loc"]:  # of several parameters together, in their own words
        return str(context.get("error", first["msg"]))
    where, words = ".".join(map(str, first["loc"][:depth])), _WORDS.get(first["type"])
    if first["type"] in ("missing", "extra_forbidden", "unexpected_keyword_argument"):
        return f"{where}: {first['msg']}"
    words = words or ("{error}" if "error" in context else first["msg"])
    return f"{where}: {show(first['input'])}; allowed: {words.format(**context)}"


_WORDS = {
    "literal_error": "{expected}",
    "greater_than_equal": "at least {ge}",
    "greater_than": "above {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "below {lt}",
    "too_short": "at least {min_length} in the list",
    "too_long": "at most {max_length} in the list",
    "string_pattern_mismatch": "text like {pattern}",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "list_type": "a list",
}


def write_bytes(value: float) -> str:
    """Write bytes in the unit that reads best.

    Examples
    --------
    >>> write_bytes(1_048_576), write_bytes(40)
    ('1.05 MB', '40 bytes')
    """
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{float(f'{value / size:.3g}'):,.15g} {unit}"
    return f"{value:.0f} bytes"


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
    """Cut a text to the length that a message shows, and escape what is not printed."""
    text = text[: 2 * _SHOWN_LENGTH]
    escaped = printable(text).replace("\n", r"\n")
    return escaped if len(escaped) <= _SHOWN_LENGTH else escaped[: _SHOWN_LENGTH - 3] + "..."
