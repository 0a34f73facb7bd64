"""Options of the command line that are pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wire.errors import UserError


def read_pairs(option: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Read NAME=VALUE pairs; a value that is no number stays text."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not (name and sign and value):
            raise UserError(f"--{option}", f"{pair!r}", "NAME=VALUE")
        try:
            values[name] = float(value)
        except ValueError:
            values[name] = value
    return values


def read_numbers(option: str, pairs: Sequence[str]) -> dict[str, float]:
    """Read NAME=NUMBER pairs."""
    values = read_pairs(option, pairs)
    for name, value in values.items():
        if not isinstance(value, float):
            raise UserError(f"--{option}", f"{name}={value}", "a number")
    return values
