"""The one error that is shown to users as a single line."""

from __future__ import annotations

from helpers.redaction import redact


class UserError(ValueError):
    """Something the user asked for cannot be done.

    The message is one line that names the parameter, its value and what is
    allowed; the command line prints it without a traceback, and no credential is in it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(redact(message))
