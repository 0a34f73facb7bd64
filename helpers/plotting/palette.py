"""The colours of the book, and how what is compared is drawn: readers as they register themselves, all else here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cycler import cycler

from helpers.registry import REGISTRIES
from wire.errors import UserError

# Every colour of the book is in this table: hues by name, then what has a role of its own.
BLUE, GREEN, RED, PLUM, BROWN = "#0073b1", "#006b42", "#841900", "#953a7e", "#8a6000"
INDIGO, VIOLET, PURPLE, RUST = "#0047b0", "#5b3fa0", "#450066", "#b34700"
BLACK, CHARCOAL = "#101010", "#333333"

CEILING_GREY = "#767676"  # the raw ceiling, and lines of what is predicted or equal
TEXT, AXIS, GRID, PAPER = CHARCOAL, "#666666", "#e5e5e5", "#ffffff"
RULE = "#999999"  # a line to compare with
OURS = BLUE  # what is measured here, next to what others published
PAGE, CHUNK = "#bbbbbb", "#222222"  # where pages and chunks of a file begin
REQUEST_STEPS = ("#7a0177", "#c51b8a", "#41ab5d", "#0868ac")  # by their bytes, the smallest first

STYLE = (
    Path(__file__).with_name("pages.mplstyle"),
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

Kind = Literal["reader", "cache", "option", "driver", "access", "medium", "store", "format"]
"""What is compared: readers of arrays, caches of a service, options of a bill, and so on."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a contender is drawn everywhere."""

    label: str  # what a reader would say, as in "s3fs, default"
    color: str  # hexadecimal colour
    marker: str  # matplotlib marker, for those who see no colours


_STYLES: Mapping[str, Mapping[str, Style]] = {
    "reader": {  # next to those of the registry
        "zarr-s3fs-one-get-32": Style("s3fs, one request, pool of 32", RED, "<"),
        "zarr-s3fs-one-get-128": Style("s3fs, one request, pool of 128", RED, ">"),
        "raw": Style("raw reads", CEILING_GREY, "x"),
    },
    "cache": {
        "none": Style("no cache", CHARCOAL, "o"),
        "lru": Style("datasets in the process", VIOLET, "s"),
        "redis": Style("Redis", RUST, "v"),
        "diskcache": Style("diskcache", RUST, "<"),
        "filecache": Style("fsspec filecache", RUST, "^"),
        "filecache-in-turn": Style("filecache, one at a time", RUST, "1"),
        "as-shipped": Style("titiler's default", PURPLE, "p"),
        "lru-etag": Style("datasets by version", VIOLET, "P"),
        "redis-etag": Style("Redis by version", RUST, "*"),
        "lru-chunks": Style("chunks in the process", VIOLET, "X"),
        "lru-etag-chunks": Style("chunks by version", VIOLET, "D"),
        "lru-icechunk": Style("Icechunk in the process", VIOLET, "d"),
    },
    "option": {
        "none": Style("no cache", CHARCOAL, "o"),
        "redis": Style("Redis", RUST, "v"),
        "cdn": Style("CDN and process", PURPLE, "p"),
        "process": Style("in the process, titiler's default", VIOLET, "s"),
    },
    "access": {
        "series": Style("series", BLUE, "o"),
        "slice": Style("slice", RED, "s"),
        "box": Style("box", BROWN, "^"),
    },
    "medium": {
        "hdf5": Style("HDF5", BLUE, "o"),
        "zarr": Style("Zarr", BROWN, "s"),
        "sharded": Style("Zarr, sharded", PLUM, "^"),
    },
    # What others measured: stores of 2020, and formats of the follow-up.
    "store": {
        "GCS Zarr": Style("GCS Zarr", BLUE, "o"),
        "GCS NetCDF": Style("GCS NetCDF", BROWN, "v"),
        "Wasabi Zarr": Style("Wasabi Zarr", GREEN, "s"),
        "Jetstream Zarr": Style("Jetstream Zarr", PLUM, "^"),
        "OSN Zarr": Style("OSN Zarr", RED, "D"),
        "ECCO Data Portal": Style("ECCO Data Portal", INDIGO, "h"),
        "ESGF UCAR OPeNDAP": Style("ESGF UCAR OPeNDAP", BLACK, "P"),
        "NOAA ESRL OPeNDAP": Style("NOAA ESRL OPeNDAP", PURPLE, "X"),
    },
    "format": {
        "CSV": Style("CSV", BROWN, "v"),
        "Partitioned CSV": Style("CSV in parts", BLACK, "P"),
        "Partitioned Parquet": Style("Parquet in parts", GREEN, "s"),
        "NetCDF": Style("netCDF", PLUM, "^"),
        "Zarr Array": Style("Zarr array", BLUE, "o"),
        "Zarr Group": Style("Zarr group", RED, "D"),
        "TileDB Embedded": Style("TileDB", INDIGO, "h"),
    },
}


def list_styles(kind: Kind) -> dict[str, Style]:
    """Map each contender of a kind to its style: readers that are registered, then all others."""
    drawn = [reader for reader in REGISTRIES.get(kind, {}).values() if reader.color]
    registered = {reader.name: Style(reader.label, reader.color, reader.marker) for reader in drawn}
    return registered | dict(_STYLES.get(kind, {}))


def labels(kind: Kind) -> dict[str, str]:
    """Map each contender of a kind to its label, for a column of the frame that is drawn."""
    return {name: style.label for name, style in list_styles(kind).items()}


def colors(kind: Kind) -> dict[str, str]:
    """Map each label of a kind to its colour: `palette` of a figure of seaborn."""
    return {style.label: style.color for style in list_styles(kind).values()}


def markers(kind: Kind) -> dict[str, str]:
    """Map each label of a kind to its marker: `markers` of a figure of seaborn."""
    return {style.label: style.marker for style in list_styles(kind).values()}


def find_style(name: str, kind: Kind) -> Style:
    """Return the style of one contender, or refuse it by its name."""
    if name not in (styles := list_styles(kind)):
        raise UserError(
            kind,
            f"no colour and marker for {name}",
            f"{', '.join(styles)}, or a reader that registers its own, or a line in"
            f" {Path(__file__).name}",
        )
    return styles[name]
