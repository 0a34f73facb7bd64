"""What a refusal names, without the sentence in which it is printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from wire.errors import UserError


@contextmanager
def refused(
    where: str, value: str = "", allowed: str = "", *, kind: type[UserError] = UserError
) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Expect a refusal in one line: `where` is its place, and its value and what is allowed match.

    Parameters
    ----------
    where : str
        A regular expression that the whole place matches.
    value, allowed : str
        Regular expressions that are found in these fields; empty for any.
    kind : type
        The class of the error.
    """
    with pytest.raises(kind) as caught:
        yield caught
    check_refusal(caught.value, where, value, allowed)


def check_refusal(error: UserError, where: str, value: str = "", allowed: str = "") -> None:
    """Assert the fields of a refusal, each a regular expression as of `refused`."""
    assert re.fullmatch(where, error.where), error.args
    assert re.search(value, error.value), error.args
    assert re.search(allowed, error.allowed), error.args
    assert str(error).isprintable(), "one line"
