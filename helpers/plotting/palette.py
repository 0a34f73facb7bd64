"""Every colour and marker of the book, and what may stand in one figure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import pandas as pd
from cycler import cycler

from helpers.errors import UserError

# Every colour of the book is in this table: hues by name, then what has a role of its own.
BLUE, GREEN, RED, PLUM, BROWN = "#0073b1", "#006b42", "#841900", "#953a7e", "#8a6000"
INDIGO, VIOLET, PURPLE, TEAL, RUST = "#0047b0", "#5b3fa0", "#450066", "#00636b", "#b34700"
BLACK, CHARCOAL, SLATE = "#101010", "#333333", "#444444"

CEILING_GREY = "#767676"
"""The raw ceiling, and lines that stand for what is predicted or equal."""
TEXT, AXIS, GRID, PAPER = CHARCOAL, "#666666", "#e5e5e5", "#ffffff"
BAND, NOTE, RULE = "#e8e8e8", "#555555", "#999999"
"""What is tolerated; the key above the axes; a line to compare with."""
OURS, THEIRS, THEIRS_GREY = BLUE, RED, "#777777"
"""What is measured here, and what others published."""
OPENING, MAKING, MAKING_TEXT = BLUE, "#b0b0b0", "#6b6b6b"
"""The parts of a tile's time; the second is too pale to write in."""
HALVED, DOUBLED = BLUE, RUST
"""An assumption that is varied."""
PAGE, CHUNK = "#bbbbbb", "#222222"
"""Where pages and chunks of a file begin."""
REQUEST_STEPS = ("#7a0177", "#c51b8a", "#41ab5d", "#0868ac")
"""Requests by their bytes, the smallest first."""

STYLE = (
    Path(__file__).with_name("book.mplstyle"),
    {
        "axes.edgecolor": AXIS,
        "axes.labelcolor": TEXT,
        "axes.prop_cycle": cycler(color=[BLUE, RED, GREEN, PLUM, BROWN, INDIGO]),
        "grid.color": GRID,
        "text.color": TEXT,
        "xtick.color": AXIS,
        "xtick.labelcolor": TEXT,
        "ytick.color": AXIS,
        "ytick.labelcolor": TEXT,
    },
)
"""Sizes and fonts from the file, colours from here; for `matplotlib.style.use`."""

TRACE_TOLERANCE = 1.1
"""Ratio of the most to the least up to which traces of contenders count as equal."""

Kind = Literal["reader", "cache", "option", "driver", "access", "medium", "codec"]
"""What is compared: readers of arrays, caches of a service, options of a bill, and so on."""


class UnfairComparisonError(UserError):
    """Contenders differ in a setting that nobody declared."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a contender is drawn everywhere."""

    color: str  # hexadecimal colour
    marker: str  # matplotlib marker, for those who see no colours
    is_hollow: bool = False  # whether marks are filled with paper, as those of untuned settings are

    @property
    def face(self) -> str:
        """Colour inside a mark."""
        return PAPER if self.is_hollow else self.color


_LOOKS: Mapping[Kind, Mapping[str, Look]] = MappingProxyType(
    {
        "reader": {
            "zarr-s3fs": Look(BLUE, "o"),
            "zarr-obstore": Look(GREEN, "s"),
            "zarr-obstore-batched": Look(RED, "D"),
            "zarr-obstore-in-place": Look(BLACK, "d"),
            "zarr-zarrs": Look(PLUM, "^"),
            "netcdf-fsspec": Look(BROWN, "v"),
            "netcdf-fsspec-5mib": Look(PURPLE, "P"),
            "references": Look(INDIGO, "h"),
            "raw": Look(CEILING_GREY, "x"),
        },
        "cache": {
            "none": Look(CHARCOAL, "o"),
            "lru": Look(VIOLET, "s"),
            "diskcache": Look(RED, "D"),
            "filecache": Look(TEAL, "^"),
            "redis": Look(RUST, "v"),
        },
        "option": {
            "none": Look(CHARCOAL, "o"),
            "disk": Look(RED, "D"),
            "shared": Look(TEAL, "^"),
            "redis": Look(RUST, "v"),
            "cdn": Look(VIOLET, "s"),
        },
        # A colour for each library, a mark for each of its caches, filled where it is tuned.
        "driver": {
            "fsspec-none": Look(BLUE, "o", is_hollow=True),
            "fsspec-readahead": Look(BLUE, ">", is_hollow=True),
            "fsspec-first": Look(BLUE, "p", is_hollow=True),
            "fsspec-background": Look(BLUE, "<", is_hollow=True),
            "fsspec-blockcache": Look(BLUE, "s", is_hollow=True),
            "fsspec-tuned": Look(BLUE, "o"),
            "ros3": Look(RED, "D", is_hollow=True),
            "ros3-none": Look(RED, "d", is_hollow=True),
            "ros3-tuned": Look(RED, "D"),
            "obstore": Look(GREEN, "s", is_hollow=True),
            "obstore-tuned": Look(GREEN, "s"),
            "h5coro": Look(PLUM, "^", is_hollow=True),
            "h5coro-tuned": Look(PLUM, "^"),
            "pyfive": Look(BROWN, "v", is_hollow=True),
            "pyfive-tuned": Look(BROWN, "v"),
            "zarr": Look(SLATE, "P", is_hollow=True),
            "zarr-sharded": Look(SLATE, "X", is_hollow=True),
            "references": Look(INDIGO, "h", is_hollow=True),
        },
        "access": {
            "series": Look(BLUE, "o"),
            "slice": Look(RED, "s"),
            "box": Look(BROWN, "^"),
            "region mean": Look(GREEN, "D"),
            "whole": Look(PLUM, "v"),
        },
        "medium": {
            "hdf5": Look(BLUE, "o"),
            "zarr": Look(BROWN, "s"),
            "sharded": Look(PLUM, "^"),
        },
        "codec": {
            "none": Look(CEILING_GREY, "o"),
            "zstd": Look(BLUE, "s"),
            "blosc-lz4": Look(RED, "D"),
            "shuffle, deflate": Look(GREEN, "^"),
            "rounded, shuffle, zstd": Look(PLUM, "v"),
        },
    }
)


def get_looks(kind: Kind) -> dict[str, Look]:
    """Return the look of everything of a kind, in the order in which it is drawn.

    Within a kind any two differ in colour or marker; between kinds they may be
    the same, for they never stand in one figure.
    """
    return dict(_LOOKS[kind])


def check_looks(names: Iterable[str], kind: Kind) -> None:
    """Refuse, before anything is measured, what no figure could show."""
    known = _LOOKS[kind]
    if unknown := [name for name in dict.fromkeys(names) if name not in known]:
        raise UserError(
            f"{kind}: no colour and marker for {', '.join(unknown)};"
            f" allowed: {', '.join(known)}, or a line in {Path(__file__).name}"
        )


def find_look(name: str, kind: Kind) -> Look:
    """Return the look of one contender, or refuse it by its name."""
    check_looks([name], kind)
    return _LOOKS[kind][name]


def contender_palette(extra: Mapping[str, Look] | None = None) -> dict[str, Look]:
    """Return the colour and marker of each reader.

    Dark enough to write labels in, with a contrast of at least 4.5 to 1 on
    white, and any two at least 14 apart in CIE Lab, also for those who see
    with protanopia, deuteranopia or tritanopia.
    """
    looks = get_looks("reader")
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
    n_chunks: int = 0,
) -> str:
    """Refuse a comparison that mixes settings, or write its footnote.

    Contenders are compared at each point of the x-axis; the ceiling is not a
    contender, for it decodes nothing. A setting is what was asked: whether as
    many requests were in flight is what the trace saw. It is how a contender
    reads, so it is not refused, but where it differs the footnote says so.
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
    told = [f"Not equal, by declaration: {'; '.join(notes)}."] if notes else []
    return " ".join([*told, *filter(None, [_compare_traces(rows, n_chunks)])])


def _compare_traces(rows: pd.DataFrame, n_chunks: int) -> str:
    """Say in what the traces of contenders differ, or that there are none."""
    if "trace" not in rows:
        return ""
    traced = _read_traces(rows, n_chunks)
    if traced.empty:
        return "Requests were not traced, so they are not compared."
    points = rows["point"]
    notes = [_scatter(traced[name], rows["contender"], points) for name in traced]
    told = "; ".join(note for note in notes if note)
    return f"Not equal, in the trace: {told}." if told else ""


def _read_traces(rows: pd.DataFrame, n_chunks: int) -> pd.DataFrame:
    """Tabulate what the trace saw of each row, in the words of the footnote."""
    trace = pd.DataFrame([json.loads(text) for text in rows["trace"]], index=rows.index)
    threads = rows["concurrency"]
    columns = {
        "requests a chunk" if n_chunks else "requests": rows["n_requests"] / (n_chunks or 1),
        "bytes over the wire over those stored": rows["wire_nbytes"] / rows["stored_nbytes"],
    }
    for name, word in (("mean", "on average"), ("max", "at most")):
        if f"{name}_in_flight" in trace:
            columns[f"requests in flight over threads, {word}"] = (
                trace[f"{name}_in_flight"] / threads
            )
    return pd.DataFrame(columns).dropna(axis="columns", how="all")


def _scatter(seen: pd.Series[float], contenders: pd.Series[str], points: pd.Series[str]) -> str:
    """Say which contender has how much, at the point where they differ most, if they do."""
    medians: Any = seen.groupby([points, contenders], sort=False).median().unstack()
    # of points at which they differ alike, the largest speaks
    places = sorted(map(str, medians.index), key=lambda p: [*json.loads(p).values()], reverse=True)
    spans = {p: medians.loc[p].max() / medians.loc[p].min() for p in places}
    point = max(places, key=lambda p: spans[p] if spans[p] > 0 else 0)
    if not spans[point] > TRACE_TOLERANCE:
        return ""
    found = medians.loc[point].dropna().sort_values().map("{:.2g}".format)
    told = ", ".join(
        f"{value} ({', '.join(found.index[found == value])})" for value in dict.fromkeys(found)
    )
    place = ", ".join(f"{name} {value}" for name, value in json.loads(point).items())
    return f"{seen.name}: {told}, at {place}"


def _mixture(rows: pd.DataFrame, name: str) -> str:
    """Say which contender has which value, if they differ at any point."""
    for _, part in rows.groupby("point", sort=False):
        if part[name].nunique(dropna=False) > 1:
            told = part.groupby(name, dropna=False, sort=False)["contender"].unique()
            return f"{name}: " + ", ".join(
                f"{value} ({', '.join(who)})" for value, who in told.items()
            )
    return ""
