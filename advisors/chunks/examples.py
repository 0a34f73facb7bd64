"""Arrays to try the advisor on, as many have them, and how each is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Example:
    """An array that many have, and how it is read; the compression is an assumption."""

    what: str
    shape: tuple[int, ...]  # elements for each dimension
    dtype: str
    accesses: tuple[str, ...]  # as the command takes them
    compression_ratio: float  # bytes in the array over bytes stored

    def options(self) -> dict[str, Any]:
        """Give the options of the command that it stands for."""
        shape = ",".join(map(str, self.shape))
        found = {"shape": shape, "dtype": self.dtype, "accesses": self.accesses}
        return {**found, "compression_ratio": self.compression_ratio}


EXAMPLES: Mapping[str, Example] = {
    "era5": Example(
        "forty years of an hourly reanalysis on a quarter of a degree: series at a point, and maps",
        (350_640, 721, 1440),
        "float32",
        ("series", "slice"),
        2.0,
    ),
    "sentinel-2": Example(
        "a year of scenes of one tile in four bands: tiles of a viewer, a pixel's year, Dask blocks",
        (73, 4, 10_980, 10_980),
        "uint16",
        ("1x4x256x256@aligned:8", "73x4x1x1", "73x4x512x512@aligned"),
        1.5,
    ),
    "light-sheet": Example(
        "a recording of a light-sheet microscope: planes, blocks to segment, and cuts across planes",
        (200, 1000, 2048, 2048),
        "uint16",
        ("1x1x2048x2048:4", "1x128x128x128@aligned:4", "1x1000x1x2048"),
        2.0,
    ),
    "point-cloud": Example(
        "a table of points with three coordinates: runs of a million points, and one column whole",
        (1_000_000_000, 3),
        "float32",
        ("1000000x3:9", "1000000000x1"),
        1.3,
    ),
}
"""Arrays to try the advisor on."""
