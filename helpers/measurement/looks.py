"""One look and one colour per contender across the whole book, and what may stand in one figure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from helpers.errors import UserError

STYLE = Path(__file__).with_name("book.mplstyle")
CEILING_GREY = "#767676"


class UnfairComparisonError(UserError):
    """Contenders differ in a setting that nobody declared."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a contender is drawn everywhere.

    Parameters
    ----------
    color : str
        Hexadecimal colour.
    marker : str
        Matplotlib marker, for those who see no colours.
    """

    color: str
    marker: str


def contender_palette(extra: Mapping[str, Look] | None = None) -> dict[str, Look]:
    """Return the colour and marker of each contender.

    Dark enough to write labels in, with a contrast of at least 4.5 to 1 on
    white, and any two at least 14 apart in CIE Lab for readers with
    protanopia, deuteranopia or tritanopia, 37 for others.

    Parameters
    ----------
    extra : mapping, optional
        Further contenders; a name or a colour that is taken is refused.

    Returns
    -------
    dict of str to Look
        Name to look.

    Raises
    ------
    UserError
        If `extra` takes a name or a look that is in use.
    """
    looks = {
        "zarr-s3fs": Look("#0073b1", "o"),
        "zarr-obstore": Look("#006b42", "s"),
        "zarr-obstore-batched": Look("#841900", "D"),
        "zarr-obstore-in-place": Look("#101010", "d"),
        "zarr-zarrs": Look("#953a7e", "^"),
        "netcdf-fsspec": Look("#8a6000", "v"),
        "references": Look("#0047b0", "h"),
        "raw": Look(CEILING_GREY, "x"),
    }
    for name, look in (extra or {}).items():
        if name in looks or look.color in {known.color for known in looks.values()}:
            raise UserError(
                f"extra: {name!r} in {look.color} is taken; allowed: new names and colours"
            )
        looks[name] = look
    return looks


def comparison(
    df: pd.DataFrame,
    on: Sequence[str] = ("codec", "concurrency", "cache_state", "array_nbytes"),
    *,
    declared: Collection[str] = (),
) -> str:
    """Refuse a comparison that mixes settings, or write its footnote.

    Contenders are compared at each point of the x-axis; the ceiling is not a
    contender, for it decodes nothing.

    Parameters
    ----------
    df : DataFrame
        A record, or several.
    on : sequence of str
        Columns that must be equal.
    declared : collection of str
        Columns of `on` that may differ, because the reader is told.

    Returns
    -------
    str
        Text to print under the figure; empty if all is equal.

    Raises
    ------
    UnfairComparisonError
        If a setting differs and is not declared, naming it.
    UserError
        If a column is missing, or `declared` is not among `on`.
    """
    if missing := [name for name in (*on, "point") if name not in df]:
        raise UserError(f"on: {', '.join(missing)} is in no row; allowed: columns of the record")
    if unknown := sorted({*declared} - {*on}):
        raise UserError(f"declared: {', '.join(unknown)}; allowed: {', '.join(on)}")
    rows = df[~df["is_ceiling"]] if "is_ceiling" in df else df
    notes = [note for name in on if (note := _mixture(rows, name))]
    unfair = [note for note in notes if note.split(":")[0] not in declared]
    if unfair:
        raise UnfairComparisonError(
            f"contenders differ in {'; '.join(unfair)}; make them equal or declare it"
        )
    return f"Not equal, by declaration: {'; '.join(notes)}." if notes else ""


def _mixture(rows: pd.DataFrame, name: str) -> str:
    """Say which contender has which value, if they differ at any point."""
    for _, part in rows.groupby("point", sort=False):
        if part[name].nunique(dropna=False) > 1:
            told = part.groupby(name, dropna=False, sort=False)["contender"].unique()
            return f"{name}: " + ", ".join(
                f"{value} ({', '.join(who)})" for value, who in told.items()
            )
    return ""
