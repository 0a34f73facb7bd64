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

    label: str  # what a reader would say, as in "s3fs, default"
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
            "zarr-s3fs": Look("s3fs, default", BLUE, "o"),
            "zarr-s3fs-one-get": Look("s3fs, one request", BLUE, "p"),
            "zarr-obstore": Look("obstore", GREEN, "s"),
            "zarr-obstore-batched": Look("obstore, batched", RED, "D"),
            "zarr-obstore-in-place": Look("obstore, in place (ours)", BLACK, "d"),
            "zarr-zarrs": Look("zarrs pipeline", PLUM, "^"),
            "netcdf-fsspec": Look("netCDF, s3fs", BROWN, "v"),
            "netcdf-fsspec-5mib": Look("netCDF, read-ahead 5 MiB", PURPLE, "P"),
            "netcdf-fsspec-50mib": Look("netCDF, read-ahead 50 MiB", PURPLE, "X"),
            "references": Look("references to netCDF", INDIGO, "h"),
            "raw": Look("raw reads", CEILING_GREY, "x"),
        },
        "cache": {
            "none": Look("no cache", CHARCOAL, "o"),
            "lru": Look("datasets in the process", VIOLET, "s"),
            "diskcache": Look("diskcache", RED, "D"),
            "filecache": Look("fsspec file cache", TEAL, "^"),
            "redis": Look("Redis", RUST, "v"),
            "as-shipped": Look("as shipped", PURPLE, "p"),
            "none-v3": Look("no cache, Zarr v3", CHARCOAL, "o", is_hollow=True),
            "filecache-v3": Look("file cache, Zarr v3", TEAL, "^", is_hollow=True),
            "cachestore-v3": Look("zarr CacheStore, Zarr v3", TEAL, "h"),
            "lru-etag": Look("datasets by version", VIOLET, "P"),
            "redis-etag": Look("Redis by version", RUST, "*"),
            "lru-chunks": Look("chunks in the process", VIOLET, "X"),
        },
        "option": {
            "none": Look("no cache", CHARCOAL, "o"),
            "disk": Look("disk", RED, "D"),
            "shared": Look("shared file system", TEAL, "^"),
            "redis": Look("Redis", RUST, "v"),
            "cdn": Look("CDN", PURPLE, "p"),
            "process": Look("in the process", VIOLET, "s"),
            "cdn-process": Look("CDN and process", PURPLE, "p", is_hollow=True),
        },
        # A colour for each library, a mark for each of its caches, filled where it is tuned.
        "driver": {
            "fsspec-none": Look("s3fs, no cache", BLUE, "o", is_hollow=True),
            "fsspec-readahead": Look("s3fs, read-ahead", BLUE, ">", is_hollow=True),
            "fsspec-first": Look("s3fs, first bytes", BLUE, "p", is_hollow=True),
            "fsspec-background": Look("s3fs, background", BLUE, "<", is_hollow=True),
            "fsspec-blockcache": Look("s3fs, block cache", BLUE, "s", is_hollow=True),
            "fsspec-tuned": Look("s3fs, tuned", BLUE, "o"),
            "xarray": Look("xarray's engine", PURPLE, "v", is_hollow=True),
            "ros3": Look("ROS3", RED, "D", is_hollow=True),
            "ros3-none": Look("ROS3, no cache", RED, "d", is_hollow=True),
            "ros3-first": Look("ROS3, first bytes", RED, "p", is_hollow=True),
            "ros3-tuned": Look("ROS3, tuned", RED, "D"),
            "obstore": Look("obstore", GREEN, "s", is_hollow=True),
            "obstore-tuned": Look("obstore, tuned", GREEN, "s"),
            "obstore-whole": Look("downloaded whole", GREEN, "*"),
            "h5coro": Look("h5coro", PLUM, "^", is_hollow=True),
            "h5coro-tuned": Look("h5coro, tuned", PLUM, "^"),
            "pyfive": Look("pyfive", BROWN, "v", is_hollow=True),
            "pyfive-tuned": Look("pyfive, tuned", BROWN, "v"),
            "zarr": Look("Zarr", SLATE, "P", is_hollow=True),
            "zarr-sharded": Look("Zarr, sharded", SLATE, "X", is_hollow=True),
            "references": Look("references", INDIGO, "h", is_hollow=True),
            "references-rechunked": Look("references to a repack", INDIGO, "h"),
            "icechunk": Look("Icechunk", INDIGO, "P"),
        },
        "access": {
            "series": Look("series", BLUE, "o"),
            "slice": Look("slice", RED, "s"),
            "box": Look("box", BROWN, "^"),
            "region mean": Look("region mean", GREEN, "D"),
            "whole": Look("whole", PLUM, "v"),
        },
        "medium": {
            "hdf5": Look("HDF5", BLUE, "o"),
            "zarr": Look("Zarr", BROWN, "s"),
            "sharded": Look("Zarr, sharded", PLUM, "^"),
        },
        "codec": {
            "none": Look("no codec", CEILING_GREY, "o"),
            "zstd": Look("Zstandard", BLUE, "s"),
            "blosc-lz4": Look("Blosc LZ4", RED, "D"),
            "shuffle, deflate": Look("shuffle, deflate", GREEN, "^"),
            "rounded, shuffle, zstd": Look("rounded, shuffle, zstd", PLUM, "v"),
        },
        # What others measured: stores of 2020, formats of the follow-up, clients on real S3.
        "store": {
            "GCS Zarr": Look("GCS Zarr", BLUE, "o"),
            "GCS NetCDF": Look("GCS NetCDF", BROWN, "v"),
            "Wasabi Zarr": Look("Wasabi Zarr", GREEN, "s"),
            "Jetstream Zarr": Look("Jetstream Zarr", PLUM, "^"),
            "OSN Zarr": Look("OSN Zarr", RED, "D"),
            "ECCO Data Portal": Look("ECCO Data Portal", INDIGO, "h"),
            "ESGF UCAR OPeNDAP": Look("ESGF UCAR OPeNDAP", BLACK, "P"),
            "NOAA ESRL OPeNDAP": Look("NOAA ESRL OPeNDAP", PURPLE, "X"),
        },
        "published-format": {
            "CSV": Look("CSV", BLACK, "o"),
            "Partitioned CSV": Look("Partitioned CSV", PURPLE, "s"),
            "Partitioned Parquet": Look("Partitioned Parquet", RED, "D"),
            "NetCDF": Look("NetCDF", BROWN, "v"),
            "Zarr Array": Look("Zarr Array", BLUE, "^"),
            "Zarr Group": Look("Zarr Group", GREEN, "p"),
        },
        "published-client": {
            "zarr-s3fs": Look("zarr through s3fs", BLUE, "o"),
            "zarr-obstore": Look("zarr through obstore", GREEN, "s"),
            "zarr-icechunk": Look("Icechunk", INDIGO, "h"),
            "tensorstore": Look("TensorStore", RED, "D"),
            "tiledb": Look("TileDB", PLUM, "^"),
            "polars-parquet": Look("Parquet, polars", PURPLE, "P"),
            "pyarrow-parquet": Look("Parquet, pyarrow", BROWN, "v"),
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


def labels(kind: Kind) -> dict[str, str]:
    """Map each contender of a kind to its label, for a column of the frame that is drawn."""
    return {name: look.label for name, look in _LOOKS[kind].items()}


def colors(kind: Kind) -> dict[str, str]:
    """Map each label of a kind to its colour: `palette` of a figure of seaborn."""
    return {look.label: look.color for look in _LOOKS[kind].values()}


def markers(kind: Kind) -> dict[str, str]:
    """Map each label of a kind to its marker: `markers` of a figure of seaborn."""
    return {look.label: look.marker for look in _LOOKS[kind].values()}


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
