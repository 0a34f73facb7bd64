"""What commands share: examples in their help, and options that are pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from wire.errors import UserError

Examples = Sequence[tuple[str, str]]
"""Command lines, as they are typed, each with what it is for."""


class ExampleCommand(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *args: Any, examples: Examples = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples line by line."""
        if self.examples:
            with formatter.section("Examples"):
                formatter.write_dl(self.examples)


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
