"""Refusing figures that no network has, in one line that says what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from math import isfinite
from types import UnionType
from typing import Any

from helpers.errors import UserError


def check_number(name: str, value: object, *, low: float, high: float, is_open: bool) -> None:
    """Refuse a figure that is not a number in its interval, open or closed below."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if is_number and low <= value <= high and not (is_open and value == low):  # type: ignore[operator]
        return
    interval = f"{'above' if is_open else 'at least'} {low:g}" + (
        "" if high == float("inf") else f", at most {high:g}"
    )
    raise UserError(f"{name} is {value!r}; allowed is a number {interval}")


def check_positive(name: str, value: object) -> None:
    """Refuse what is not a finite number above zero."""
    check_number(name, value, low=0, high=float("inf"), is_open=True)


def check_kind(name: str, value: object, kind: type | UnionType) -> None:
    """Refuse a value of another type."""
    if not isinstance(value, kind):
        raise UserError(f"{name} is {value!r}; allowed is {kind}")


def check_known(where: str, given: object, kind: type) -> None:
    """Refuse what is no mapping of names of fields of `kind`."""
    if not isinstance(given, Mapping):
        raise UserError(f"{where} is {given!r}; allowed is a mapping")
    allowed = [one.name for one in fields(kind)]
    if unknown := [name for name in given if name not in allowed]:
        raise UserError(
            f"{where} has the unknown field {unknown[0]!r}; allowed are {', '.join(allowed)}"
        )


def check_complete(where: str, given: Mapping[str, Any], kind: type) -> None:
    """Refuse a mapping without a field that `kind` needs."""
    needed = [
        one.name
        for one in fields(kind)
        if one.default is MISSING and one.default_factory is MISSING
    ]
    if missing := [name for name in needed if name not in given]:
        raise UserError(f"{where} lacks {missing[0]!r}; needed are {', '.join(needed)}")


def check_mapping(where: str, given: object, kind: type) -> None:
    """Refuse what `kind` cannot be built from."""
    check_known(where, given, kind)
    if isinstance(given, Mapping):
        check_complete(where, given, kind)
