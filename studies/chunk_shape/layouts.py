"""The array of the study, its accesses, and the layouts that are compared."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import dask.array as da
import h5py
import numpy as np
import pandas as pd
import xxhash
import zarr
from numpy.typing import NDArray
from zarr.storage import ObjectStore

from advisors.chunks.problem import Access, AccessPattern, Bounds, Criterion
from advisors.chunks.search import best_chunk_shape
from helpers.arrays import chunks, fields, prepared
from helpers.arrays.chunks import Shape
from helpers.arrays.fields import FILL, SampleArray
from helpers.errors import UserError
from helpers.models.access import Store
from helpers.objectstore.locations import Location
from helpers.paths import ROOT, cache_folder

Medium = Literal["hdf5", "zarr", "sharded"]

_GENERATION = 1  # raise it when the same arguments make other bytes
_BLOCK_TIMES = 512  # of the sample made at a time
_LIBVER = "latest"
_ZARR: dict[str, Any] = {
    "zarr_format": 3,
    "compressors": None,
    "fill_value": float(FILL),
    "config": {"write_empty_chunks": True},
}


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """How the elements of an array lie together."""

    name: str  # name on the page
    # elements for each dimension (time, y, x); None for contiguous storage
    chunk_shape: Shape | None
    axes: Shape = (0, 1, 2)  # order of the dimensions in a file without chunks, the fastest last


def make_values(sample: SampleArray) -> NDArray[np.float32]:
    """Make the sample, a level deep, as one array (time, y, x) in memory."""
    n, _, *plane = sample.shape
    parts = [
        sample.block((t, 0, 0, 0), (min(t + _BLOCK_TIMES, n), 1, *plane))
        for t in range(0, n, _BLOCK_TIMES)
    ]
    return np.concatenate(parts)[:, 0]


def make_sample(shape: Shape, seed: int) -> NDArray[np.float32]:
    """Make the array (time, y, x), or load it if the same was made before."""
    source = ROOT / "data" / "ocean-temperature.nc"
    sample = SampleArray(source, "temperature", (shape[0], 1, *shape[1:]), seed)
    # a plane tells another generator from this one, whatever library it is that differs
    last = sample.block((shape[0] - 1, 0, 0, 0), sample.shape)
    made_by = {
        "generation": _GENERATION,
        "source": hashlib.sha256(source.read_bytes()).hexdigest(),
        "generator": hashlib.sha256(Path(fields.__file__).read_bytes()).hexdigest(),
        "variable": sample.variable,
        "shape": sample.shape,
        "seed": seed,
        "last": _hash_values(last),
        "versions": prepared.versions_of("numpy", "scipy"),
    }

    def write(draft: Path) -> dict[str, Any]:
        np.save(draft / "values.npy", make_values(sample))
        return {}

    place = cache_folder() / "chunkings" / f"values-{prepared.name_of(made_by)}"
    prepared.prepare(place, made_by, write)
    return np.asarray(np.load(place / "values.npy"), np.float32)


def _hash_values(values: NDArray[np.float32]) -> str:
    return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(values).data)


def _describe_making(values: NDArray[np.float32], **how: Any) -> dict[str, Any]:
    """List all that decides the bytes of values in a format."""
    made_by = {"generation": _GENERATION, "values": _hash_values(values), "shape": values.shape}
    return {**made_by, **how}


def prepare_hdf5(values: NDArray[np.float32], chunk_layout: ChunkLayout) -> Path:
    """Write values to an HDF5 file, unless the same is there; chunks with shuffle and deflate.

    Without a filter the library reads parts of chunks, and a chunk would not
    be what is read.
    """
    how = {"chunks": chunk_layout.chunk_shape, **_filters(chunk_layout)}
    versions = {**prepared.versions_of("h5py"), "hdf5": h5py.version.hdf5_version}
    written = {"format": {"libver": _LIBVER, **how}, "versions": versions}
    made_by = _describe_making(values, axes=chunk_layout.axes, **written)

    def write(draft: Path) -> dict[str, Any]:
        with h5py.File(draft / "array.h5", "w", libver=_LIBVER) as file:
            file.create_dataset("t", data=values.transpose(chunk_layout.axes), **how)
        return {}

    place = cache_folder() / "chunkings" / f"hdf5-{prepared.name_of(made_by)}"
    prepared.prepare(place, made_by, write)
    return place / "array.h5"


def _filters(chunk_layout: ChunkLayout) -> dict[str, Any]:
    if chunk_layout.chunk_shape is None:
        return {}
    return {"compression": "gzip", "compression_opts": 1, "shuffle": True}


def prepare_zarr(
    location: Location,
    values: NDArray[np.float32],
    chunk_layout: ChunkLayout,
    *,
    shard_shape: Shape | None = None,
) -> str:
    """Write values as a Zarr v3 array without compression, unless the same is there."""
    if chunk_layout.chunk_shape is None:
        raise UserError(f"chunk_shape: none of {chunk_layout.name}; allowed: a shape, in Zarr")
    how = {"chunks": chunk_layout.chunk_shape, "shards": shard_shape, **_ZARR}
    versions = prepared.versions_of("zarr", "numcodecs")
    made_by = _describe_making(values, format=how, versions=versions)

    def write(place: Location) -> dict[str, Any]:
        store = ObjectStore((place / "array").obstore())
        array = zarr.create_array(store, shape=values.shape, dtype="float32", **how)
        array[...] = values
        return {}

    name = f"chunkings-{prepared.name_of(made_by)}"
    prepared.prepare(location / name, made_by, write, name="array", under=["array/"])
    return f"{name}/array"


def drop_pages(path: Path) -> None:
    """Ask the kernel to forget the pages of a file.

    It reaches the page cache of this kernel alone: a hypervisor's cache and
    the disk's own keep what they have.
    """
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def open_hdf5(path: Path, *, cache_nbytes: int = 0) -> Any:
    """Open the variable of a file, by default without HDF5's cache of chunks.

    Where an array has fewer chunks than boxes are read, a chunk comes again.
    """
    return h5py.File(path, "r", rdcc_nbytes=cache_nbytes, rdcc_nslots=10007)["t"]


def open_zarr(location: Location) -> Any:
    """Open a Zarr array with a new client."""
    return zarr.open_array(ObjectStore(location.obstore(), read_only=True), mode="r")


FULL_SHAPE = (98128, 277, 349)
"""The reanalysis variable of Rew (2013): time, y, x."""

PUBLISHED_NBYTES = (2**22, 2**20, 2**13, 2**12)
"""Chunk bytes of the published tables."""

BOUND_NBYTES = PUBLISHED_NBYTES[0]
"""Most bytes of a chunk of ours: those of the largest published one."""

PATTERNS: Mapping[str, tuple[float, float]] = {
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


def make_chunk_layouts(shape: Shape) -> list[ChunkLayout]:
    """List the layouts that are compared, but for ours.

    Chunk bytes are the published ones, not scaled, because what a chunk costs
    depends on them; an array too small for a size goes without it.
    """
    most = 4 * math.prod(shape)
    balanced = {
        f"balanced {n // 1024} KiB": chunks.balanced_chunk_shape(shape, 4, n)
        for n in PUBLISHED_NBYTES
        if n < most
    }
    side = round((PUBLISHED_NBYTES[1] / 4) ** (1 / 3))
    auto = da.core.normalize_chunks("auto", shape, dtype="float32")  # type: ignore[no-untyped-call]
    named: dict[str, Shape] = {
        **balanced,
        "netcdf-4 default": _netcdf_default(shape),
        "a time step": (1, *shape[1:]),
        "square": tuple(min(side, n) for n in shape),
        "dask auto": tuple(int(part[0]) for part in auto),
        "zarr auto": tuple(zarr.create_array({}, shape=shape, dtype="f4", chunks="auto").chunks),
        "as the box": make_accesses(shape)[2].extent,
    }
    flat = {"contiguous, time slowest": (0, 1, 2), "contiguous, time fastest": (1, 2, 0)}
    first = [ChunkLayout(name, None, axes) for name, axes in flat.items()]
    return first + [ChunkLayout(name, chunk) for name, chunk in named.items()]


def make_calibrations(shape: Shape) -> list[ChunkLayout]:
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
    made = [
        ChunkLayout(f"calibrating, {name}", tuple(map(min, chunk, shape)))
        for name, chunk in wanted.items()
    ]
    flat = {"y": (1, 0, 2), "x": (2, 0, 1)}
    return made + [ChunkLayout(f"calibrating, {k} slowest", None, axes) for k, axes in flat.items()]


def _netcdf_default(shape: Shape) -> Shape:
    """Ask the netCDF library for the chunks that it would choose, no dimension unlimited."""
    import netCDF4

    with netCDF4.Dataset("default.nc", "w", diskless=True) as file:
        for name, n in zip("tyx", shape, strict=True):
            file.createDimension(name, n)
        return tuple(
            int(c) for c in file.createVariable("v", "f4", tuple("tyx"), zlib=True).chunking()
        )


def choose_ours(shape: Shape, store: Store) -> list[ChunkLayout]:
    """Choose our shape for each access pattern of series and slice, from what calibration found."""
    pair, bounds = make_accesses(shape)[:2], Bounds(max_chunk_nbytes=BOUND_NBYTES)
    ours = []
    for name, weights in PATTERNS.items():
        criterion: Criterion = "worst" if name.endswith("worst access") else "mean"
        pattern = AccessPattern(shape, 4, pair, weights, store, bounds, criterion)
        ours.append(ChunkLayout(name, best_chunk_shape(pattern).best.chunk_shape))
    return ours


def shard_of(medium: Medium, shape: Shape, one: ChunkLayout) -> Shape | None:
    """Take as many chunks in each dimension to a shard, where there are as many."""
    if medium != "sharded" or one.chunk_shape is None:
        return None
    pairs = zip(one.chunk_shape, shape, strict=True)
    return tuple(c * min(SHARD_BY, -(-n // c)) for c, n in pairs)


def describe(shape: Shape, layouts: Mapping[Medium, Sequence[ChunkLayout]]) -> pd.DataFrame:
    """Tabulate layouts: medium, chunk shape, bytes, count."""
    lines = [
        (
            one.name,
            medium,
            " x ".join(map(str, one.chunk_shape)) if one.chunk_shape else "none",
            4 * math.prod(one.chunk_shape) / 1000 if one.chunk_shape else np.nan,
            chunks.count_chunks(shape, one.chunk_shape) if one.chunk_shape else 1,
        )
        for medium, chosen in layouts.items()
        for one in chosen
    ]
    names = ["layout", "medium", "chunk shape", "kB", "chunks"]
    return pd.DataFrame(lines, columns=names).set_index(["medium", "layout"])
