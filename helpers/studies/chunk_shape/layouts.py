"""The array of the study, its accesses, and the layouts that are compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import dask.array as da
import numpy as np
import pandas as pd
import zarr
from numpy.typing import NDArray

from helpers import chunking
from helpers.chunking import Access, Bounds
from helpers.errors import UserError
from helpers.models.accesses import Store
from helpers.paths import ROOT, cache_folder
from helpers.storage import chunkings, layout
from helpers.storage.chunkings import Chunking, Medium
from helpers.storage.data import SampleArray
from helpers.storage.layout import Shape

FULL_SHAPE = (98128, 277, 349)
"""The reanalysis variable of Rew (2013): time, y, x."""

PUBLISHED_NBYTES = (2**22, 2**20, 2**13, 2**12)
"""Chunk bytes of the published tables."""

BOUND_NBYTES = PUBLISHED_NBYTES[0]
"""Most bytes of a chunk of ours: those of the largest published one."""

MIXES: Mapping[str, tuple[float, float]] = {
    "ours 50:50": (1, 1),
    "ours 80:20": (8, 2),
    "ours, worst access": (8, 2),
}
"""Weights of series and slice for which our shape is chosen."""

SHARD_BY = 2
"""Chunks of a shard in each dimension."""


def scale_shape(factor: float) -> Shape:
    """Divide each extent of the reanalysis by one factor.

    Examples
    --------
    >>> scale_shape(10)
    (9813, 28, 35)
    """
    if not factor > 0:
        raise UserError(f"scale_factor: {factor:g}; allowed: above 0")
    shape = tuple(max(1, round(n / factor)) for n in FULL_SHAPE)
    if 4 * math.prod(shape) <= BOUND_NBYTES:
        raise UserError(
            f"scale_factor: {factor:g}; allowed: less, so that an array of {4 * math.prod(shape)}"
            f" bytes has more than one chunk of {BOUND_NBYTES}"
        )
    return shape


def make_accesses(shape: Shape) -> list[Access]:
    """List the five accesses: a tenth of each dimension is a box, a sixth across a region."""
    t, y, x = shape
    return [
        Access("series", (t, 1, 1)),
        Access("slice", (1, y, x)),
        Access("box", tuple(max(1, n // 10) for n in shape)),
        Access("region mean", (t, max(1, y // 6), max(1, x // 6))),
        Access("whole", shape),
    ]


def make_chunkings(shape: Shape) -> list[Chunking]:
    """List the layouts that are compared, but for ours.

    Chunk bytes are the published ones, not scaled, because what a chunk costs
    depends on them; an array too small for a size goes without it.
    """
    most = 4 * math.prod(shape)
    balanced = {
        f"balanced {n // 1024} KiB": layout.balanced_chunk_shape(shape, 4, n)
        for n in PUBLISHED_NBYTES
        if n < most
    }
    side = round((PUBLISHED_NBYTES[1] / 4) ** (1 / 3))
    auto = da.core.normalize_chunks("auto", shape, dtype="float32")  # type: ignore[no-untyped-call]
    named: dict[str, Shape] = {
        **balanced,
        "netcdf-4 default": netcdf_default(shape),
        "a time step": (1, *shape[1:]),
        "square": tuple(min(side, n) for n in shape),
        "dask auto": tuple(int(part[0]) for part in auto),
        "zarr auto": _zarr_auto(shape),
        "as the box": make_accesses(shape)[2].extent,
    }
    first = [
        Chunking("contiguous, time slowest", None),
        Chunking("contiguous, time fastest", None, (1, 2, 0)),
    ]
    return first + [Chunking(name, chunk) for name, chunk in named.items()]


def make_calibrations(shape: Shape) -> list[Chunking]:
    """List the layouts that calibrate, none of which is predicted later.

    They span chunk bytes and proportions: long and thin, flat, and between.
    Without chunks, y or x varies slowest.
    """
    t, y, x = shape
    wanted: dict[str, Shape] = {
        "half of each": (-(-t // 2), -(-y // 2), -(-x // 2)),
        "columns": (-(-t // 5), 3, 4),
        "eight steps": (8, y, x),
        "tiles": (60, 9, 11),
        "long tiles": (700, 11, 14),
        "crumbs": (100, 3, 5),
        "slabs": (200, y, x),
        "sticks": (-(-t // 2), 5, 7),
    }
    chunked = [
        Chunking(f"calibrating, {name}", tuple(map(min, chunk, shape)))
        for name, chunk in wanted.items()
    ]
    flat = [Chunking("calibrating, y slowest", None, (1, 0, 2))]
    return [*chunked, *flat, Chunking("calibrating, x slowest", None, (2, 0, 1))]


def _zarr_auto(shape: Shape) -> Shape:
    store = zarr.storage.MemoryStore()
    return tuple(zarr.create_array(store, shape=shape, dtype="float32", chunks="auto").chunks)


def netcdf_default(shape: Shape) -> Shape:
    """Ask the netCDF library for the chunks that it would choose, no dimension unlimited."""
    import netCDF4

    with netCDF4.Dataset("default.nc", "w", diskless=True) as file:
        names = ("t", "y", "x")
        for name, n in zip(names, shape, strict=True):
            file.createDimension(name, n)
        variable = file.createVariable("v", "f4", names, zlib=True)
        return tuple(int(c) for c in variable.chunking())


def choose_ours(shape: Shape, store: Store) -> list[Chunking]:
    """Choose our shape for each mix of series and slice, from what calibration found."""
    pair, bounds = make_accesses(shape)[:2], Bounds(max_chunk_nbytes=BOUND_NBYTES)
    return [
        Chunking(
            name,
            chunking.best_chunk_shape(
                shape, 4, pair, weights, store,
                bounds=bounds, criterion="worst" if name.endswith("worst access") else "mean",
            ).best.chunk_shape,
        )
        for name, weights in MIXES.items()
    ]  # fmt: skip


def fits(medium: Medium, shape: Shape, one: Chunking, *, max_chunks: int) -> bool:
    """Tell whether a medium holds a layout: objects have chunks, several, and not too many."""
    if medium == "hdf5":
        return True
    return one.chunk_shape is not None and (
        1 < layout.count_chunks(shape, one.chunk_shape) <= max_chunks
    )


def shard_of(medium: Medium, shape: Shape, one: Chunking) -> Shape | None:
    """Take as many chunks in each dimension to a shard, where there are as many."""
    if medium != "sharded" or one.chunk_shape is None:
        return None
    pairs = zip(one.chunk_shape, shape, strict=True)
    return tuple(c * min(SHARD_BY, -(-n // c)) for c, n in pairs)


def make_sample(shape: Shape, seed: int) -> NDArray[np.float32]:
    """Make the array (time, y, x), or load it if the same was made before."""
    source = ROOT / "data" / "ocean-temperature.nc"
    sample = SampleArray(source, "temperature", (shape[0], 1, *shape[1:]), seed)
    return chunkings.prepare_values(cache_folder() / "chunkings", sample)


def describe(shape: Shape, layouts: Mapping[Medium, Sequence[Chunking]]) -> pd.DataFrame:
    """Tabulate layouts: medium, chunk shape, bytes, count."""
    lines = [
        (
            one.name,
            medium,
            " x ".join(map(str, one.chunk_shape)) if one.chunk_shape else "none",
            4 * math.prod(one.chunk_shape) / 1000 if one.chunk_shape else np.nan,
            layout.count_chunks(shape, one.chunk_shape) if one.chunk_shape else 1,
        )
        for medium, chosen in layouts.items()
        for one in chosen
    ]
    names = ["layout", "medium", "chunk shape", "kB", "chunks"]
    return pd.DataFrame(lines, columns=names).set_index(["medium", "layout"])
