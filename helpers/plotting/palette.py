"""Every colour and marker of the book, and what may stand in one figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

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
OPENING, MAKING = BLUE, "#b0b0b0"
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

Kind = Literal[
    "reader",
    "cache",
    "option",
    "driver",
    "access",
    "medium",
    "codec",
    "store",
    "published-format",
    "published-client",
]
"""What is compared: readers of arrays, caches of a service, options of a bill, and so on."""


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


_LOOKS: Mapping[str, Mapping[str, Look]] = MappingProxyType(
    {
        "reader": {
            "zarr-s3fs": Look(BLUE, "o"),
            "zarr-s3fs-one-get": Look(BLUE, "p"),
            "zarr-obstore": Look(GREEN, "s"),
            "zarr-obstore-batched": Look(RED, "D"),
            "zarr-obstore-in-place": Look(BLACK, "d"),
            "zarr-zarrs": Look(PLUM, "^"),
            "netcdf-fsspec": Look(BROWN, "v"),
            "netcdf-fsspec-5mib": Look(PURPLE, "P"),
            "netcdf-fsspec-50mib": Look(PURPLE, "X"),
            "references": Look(INDIGO, "h"),
            "raw": Look(CEILING_GREY, "x"),
        },
        "cache": {
            "none": Look(CHARCOAL, "o"),
            "lru": Look(VIOLET, "s"),
            "diskcache": Look(RED, "D"),
            "filecache": Look(TEAL, "^"),
            "redis": Look(RUST, "v"),
            "as-shipped": Look(PURPLE, "p"),
            "none-v3": Look(CHARCOAL, "o", is_hollow=True),
            "filecache-v3": Look(TEAL, "^", is_hollow=True),
            "cachestore-v3": Look(TEAL, "h"),
            "lru-etag": Look(VIOLET, "P"),
            "redis-etag": Look(RUST, "*"),
            "lru-chunks": Look(VIOLET, "X"),
        },
        "option": {
            "none": Look(CHARCOAL, "o"),
            "disk": Look(RED, "D"),
            "shared": Look(TEAL, "^"),
            "redis": Look(RUST, "v"),
            "cdn": Look(PURPLE, "p"),
            "process": Look(VIOLET, "s"),
            "cdn-process": Look(PURPLE, "p", is_hollow=True),
        },
        # A colour for each library, a mark for each of its caches, filled where it is tuned.
        "driver": {
            "fsspec-none": Look(BLUE, "o", is_hollow=True),
            "fsspec-readahead": Look(BLUE, ">", is_hollow=True),
            "fsspec-first": Look(BLUE, "p", is_hollow=True),
            "fsspec-background": Look(BLUE, "<", is_hollow=True),
            "fsspec-blockcache": Look(BLUE, "s", is_hollow=True),
            "fsspec-tuned": Look(BLUE, "o"),
            "xarray": Look(PURPLE, "v", is_hollow=True),
            "ros3": Look(RED, "D", is_hollow=True),
            "ros3-none": Look(RED, "d", is_hollow=True),
            "ros3-first": Look(RED, "p", is_hollow=True),
            "ros3-tuned": Look(RED, "D"),
            "obstore": Look(GREEN, "s", is_hollow=True),
            "obstore-tuned": Look(GREEN, "s"),
            "obstore-whole": Look(GREEN, "*"),
            "h5coro": Look(PLUM, "^", is_hollow=True),
            "h5coro-tuned": Look(PLUM, "^"),
            "pyfive": Look(BROWN, "v", is_hollow=True),
            "pyfive-tuned": Look(BROWN, "v"),
            "zarr": Look(SLATE, "P", is_hollow=True),
            "zarr-sharded": Look(SLATE, "X", is_hollow=True),
            "references": Look(INDIGO, "h", is_hollow=True),
            "references-rechunked": Look(INDIGO, "h"),
            "icechunk": Look(INDIGO, "P"),
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
        # What others measured: stores of 2020, formats of the follow-up, clients on real S3.
        "store": {
            "GCS Zarr": Look(BLUE, "o"),
            "GCS NetCDF": Look(BROWN, "v"),
            "Wasabi Zarr": Look(GREEN, "s"),
            "Jetstream Zarr": Look(PLUM, "^"),
            "OSN Zarr": Look(RED, "D"),
            "ECCO Data Portal": Look(INDIGO, "h"),
            "ESGF UCAR OPeNDAP": Look(BLACK, "P"),
            "NOAA ESRL OPeNDAP": Look(PURPLE, "X"),
        },
        "published-format": {
            "CSV": Look(BLACK, "o"),
            "Partitioned CSV": Look(PURPLE, "s"),
            "Partitioned Parquet": Look(RED, "D"),
            "NetCDF": Look(BROWN, "v"),
            "Zarr Array": Look(BLUE, "^"),
            "Zarr Group": Look(GREEN, "p"),
        },
        "published-client": {
            "zarr-s3fs": Look(BLUE, "o"),
            "zarr-obstore": Look(GREEN, "s"),
            "zarr-icechunk": Look(INDIGO, "h"),
            "tensorstore": Look(RED, "D"),
            "tiledb": Look(PLUM, "^"),
            "polars-parquet": Look(PURPLE, "P"),
            "pyarrow-parquet": Look(BROWN, "v"),
        },
    }
)


def get_looks(kind: Kind) -> dict[str, Look]:
    """Return the look of everything of a kind, in the order in which it is drawn.

    Within a kind any two differ in colour or marker; between kinds they may be
    the same, for they never stand in one figure. Colours are dark enough to
    write labels in, with a contrast of at least 4.5 to 1 on white, and those of
    readers at least 14 apart in CIE Lab, also for those who see with
    protanopia, deuteranopia or tritanopia.
    """
    return dict(_LOOKS[kind])


def check_looks(names: Iterable[str], kind: str) -> None:
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
