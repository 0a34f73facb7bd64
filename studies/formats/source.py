"""The array that every format holds, and how a part of it is asked for and verified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from helpers.arrays.readers import Codec
from helpers.arrays.stores import StoredArray
from wire.bed.locations import Location

Values = NDArray[np.float32]
Box = tuple[slice, ...]
"""Bounds of what is read, a slice for each dimension."""
Read = Callable[[Box], Values]
"""Reads the values within bounds."""

ACCESSES = ("whole", "step", "series")
"""What is read: the whole array, one step of its first dimension, or all steps at one place."""


@dataclass(frozen=True, slots=True)
class SourceArray:
    """An array whose values every format holds."""

    values: Values
    variable: str
    chunk_shape: tuple[int, ...]
    codec: Codec
    netcdf: Location  # of the netCDF-4 file, for formats that hold references to it

    def array(self) -> dict[str, Any]:
        """Describe the array to those who write the layouts of other studies."""
        return {
            "variable": self.variable,
            "shape": self.values.shape,
            "chunk_shape": self.chunk_shape,
            "codec": self.codec,
        }


def choose(access: str, stored: StoredArray) -> Box:
    """Choose the bounds of an access, which is in the middle of what it does not span."""
    spanned = {"whole": stored.dimensions, "step": stored.dimensions[1:]}
    whole = spanned.get(access, stored.dimensions[:1])
    extents = zip(stored.dimensions, stored.shape, strict=True)
    return tuple(slice(0, n) if name in whole else slice(n // 2, n // 2 + 1) for name, n in extents)


def digest(values: Values) -> str:
    """Digest values in C order."""
    return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(values).data)
