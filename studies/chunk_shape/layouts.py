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

from helpers.arrays import fields, stores
from helpers.arrays.fields import FILL, SampleArray
from helpers.paths import ROOT
from wire.bed.locations import Location
from wire.decide.layouts import Access, AccessPattern, best_layout
from wire.errors import UserError
from wire.files import cache_folder
from wire.host import installed
from wire.models.access import Shape, Store, balanced_chunk_shape, count_chunks

Medium = Literal["hdf5", "zarr", "sharded"]

_GENERATION = 1  # raise it when the same arguments make other bytes
_BLOCK_TIMES = 512  # of the sample made at a time
FILTERS: dict[str, Any] = {"compression": "gzip", "compression_opts": 1, "shuffle": True}
_ZARR: dict[str, Any] = {
    "zarr_format": 3,
    "compressors": None,
    "fill_value": float(FILL),
    "config": {"write_empty_chunks": True},
}

FULL_SHAPE = (98128, 277, 349)
"""The reanalysis variable of Rew (2013): time, y, x."""

PUBLISHED_NBYTES = (2**22, 2**20, 2**13, 2**12)
"""Chunk bytes of the published tables."""

RULES = tuple(f"balanced {nbytes // 1024} KiB" for nbytes in PUBLISHED_NBYTES)
"""The balance rule at each of these, the largest first."""

OURS = "ours"
"""The layout that the advisor chooses for as many series as slices."""

FOR_ONE_ACCESS: Mapping[str, str] = {
    "whole series": RULES[1],
    "whole slices": RULES[1],
    "a time step": RULES[2],
}
"""Layouts as long or as flat as can be, by the balance rule of about as many bytes a chunk."""

DEFAULTS: Mapping[str, str] = {
    "hdf5": "netcdf-4 default",
    "zarr": "dask auto",
    "sharded": "zarr auto",
}
"""What a library chooses where nobody asks, on each medium."""

SHARD_BY = 2
"""Chunks of a shard in each dimension."""


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """How the elements of an array lie together."""

    name: str  # name on the page
    # elements for each dimension (time, y, x); None for contiguous storage
    chunk_shape: Shape | None
    axes: Shape = (0, 1, 2)  # order of the dimensions in a file without chunks, the fastest last
    libver: str = "latest"  # of the format of a file


def scale_shape(factor: float) -> Shape:
    """Divide each extent of the reanalysis by one factor.

    Examples
    --------
    >>> scale_shape(10)
    (9813, 28, 35)
    """
    shape = tuple(max(1, round(n / factor)) for n in FULL_SHAPE)
    if 4 * math.prod(shape) <= PUBLISHED_NBYTES[0]:
        raise UserError(
            "scale_factor",
            f"{factor:g}",
            (
                f"less, so that an array of {4 * math.prod(shape)} bytes has more than one "
                f"chunk of {PUBLISHED_NBYTES[0]}"
            ),
        )
    return shape


def make_sample(shape: Shape, seed: int) -> NDArray[np.float32]:
    """Make the array (time, y, x), or load it if the same was made before."""
    source = ROOT / "data" / "ocean-temperature.nc"
    sample = SampleArray(source, "temperature", (shape[0], 1, *shape[1:]), seed)
    made_by = {
        "generation": _GENERATION,
        "source": hashlib.sha256(source.read_bytes()).hexdigest(),
        "generator": hashlib.sha256(Path(fields.__file__).read_bytes()).hexdigest(),
        "shape": shape,
        "seed": seed,
        "versions": installed(["numpy", "scipy"]),
    }

    def write(draft: Path) -> dict[str, Any]:
        starts = range(0, shape[0], _BLOCK_TIMES)
        ends = [(min(start + _BLOCK_TIMES, shape[0]), 1, *shape[1:]) for start in starts]
        parts = [
            sample.block((start, 0, 0, 0), end) for start, end in zip(starts, ends, strict=True)
        ]
        np.save(draft / "values.npy", np.concatenate(parts)[:, 0])
        return {}

    place = cache_folder() / "chunkings" / f"values-{stores.hash_recipe(made_by)}"
    stores.prepare(place, made_by, write)
    return np.asarray(np.load(place / "values.npy"), np.float32)


def _describe_making(values: NDArray[np.float32], **settings: Any) -> dict[str, Any]:
    """List all that decides the bytes of values in a format."""
    digest = xxhash.xxh3_128_hexdigest(np.ascontiguousarray(values).data)
    return {"generation": _GENERATION, "values": digest, "shape": values.shape, **settings}


def prepare_hdf5(values: NDArray[np.float32], chunk_layout: ChunkLayout) -> Path:
    """Write values to an HDF5 file, unless the same is there; chunks with shuffle and deflate.

    Without a filter the library reads parts of chunks, and a chunk would not
    be what is read.
    """
    is_chunked = chunk_layout.chunk_shape is not None
    options = {"chunks": chunk_layout.chunk_shape, **(FILTERS if is_chunked else {})}
    versions = {**installed(["h5py"]), "hdf5": h5py.version.hdf5_version}
    written = {"format": {"libver": chunk_layout.libver, **options}, "versions": versions}
    made_by = _describe_making(values, axes=chunk_layout.axes, **written)

    def write(draft: Path) -> dict[str, Any]:
        with h5py.File(draft / "array.h5", "w", libver=chunk_layout.libver) as file:
            file.create_dataset("t", data=values.transpose(chunk_layout.axes), **options)
        return {}

    place = cache_folder() / "chunkings" / f"hdf5-{stores.hash_recipe(made_by)}"
    stores.prepare(place, made_by, write)
    return place / "array.h5"


def prepare_zarr(
    location: Location, values: NDArray[np.float32], chunk_shape: Shape, shard_shape: Shape | None
) -> str:
    """Write values as a Zarr v3 array without compression, unless the same is there."""
    options = {"chunks": chunk_shape, "shards": shard_shape, **_ZARR}
    versions = installed(["zarr", "numcodecs"])
    made_by = _describe_making(values, format=options, versions=versions)

    def write(place: Location) -> dict[str, Any]:
        store = ObjectStore((place / "array").obstore())
        array = zarr.create_array(store, shape=values.shape, dtype="float32", **options)
        array[...] = values
        return {}

    name = f"chunkings-{stores.hash_recipe(made_by)}"
    stores.prepare(location / name, made_by, write, name="array", prefixes=["array/"])
    return f"{name}/array"


def drop_pages(path: Path) -> None:
    """Ask the kernel to forget the pages of a file.

    It reaches the page cache of this kernel alone: a hypervisor's cache and
    the disk's own keep what they have.
    """
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def open_hdf5(path: Path) -> Any:
    """Open the variable of a file without HDF5's cache of chunks."""
    return h5py.File(path, "r", rdcc_nbytes=0)["t"]


def open_zarr(location: Location) -> Any:
    """Open a Zarr array with a new client."""
    return zarr.open_array(ObjectStore(location.obstore(), read_only=True), mode="r")


def make_accesses(shape: Shape) -> list[Access]:
    """List the accesses: a point over all times, all points at a time, a tenth of each dimension."""
    t, y, x = shape
    box = tuple(max(1, n // 10) for n in shape)
    return [Access("series", (t, 1, 1)), Access("slice", (1, y, x)), Access("box", box)]


def make_layouts(medium: Medium, shape: Shape, store: Store) -> list[ChunkLayout]:
    """List the layouts that are compared on a medium; ours is chosen by the costs of its store.

    Chunk bytes are the published ones, not scaled, because what a chunk costs depends on them.
    """
    rules = zip(RULES, PUBLISHED_NBYTES, strict=True)
    named: dict[str, Shape] = {k: balanced_chunk_shape(shape, 4, n) for k, n in rules}
    first: list[ChunkLayout] = []
    if medium == "hdf5":
        first = [ChunkLayout("contiguous, time slowest", None)]
        first += [ChunkLayout("contiguous, time fastest", None, (1, 2, 0))]
        side = round((PUBLISHED_NBYTES[1] / 4) ** (1 / 3))
        named |= {
            DEFAULTS[medium]: _choose_by_netcdf(shape),
            "a time step": (1, *shape[1:]),
            "square": tuple(min(side, n) for n in shape),
            "as the box": make_accesses(shape)[2].extent,
        }
    else:
        auto = zarr.create_array({}, shape=shape, dtype="f4", chunks="auto").chunks
        names = RULES[:2] if medium == "zarr" else RULES[1:2]  # each chunk is a request
        named = {name: named[name] for name in names} | {"zarr auto": tuple(auto)}
    if medium == "zarr":
        parts = da.core.normalize_chunks("auto", shape, dtype="float32")  # type: ignore[no-untyped-call]
        named[DEFAULTS[medium]] = tuple(int(part[0]) for part in parts)
        t, y, x = shape
        n_columns = max(1.0, PUBLISHED_NBYTES[1] / (4 * t))
        side_y = max(1, round(math.sqrt(n_columns * y / x)))
        column = (t, side_y, max(1, min(x, round(n_columns / side_y))))
        flat = (max(1, PUBLISHED_NBYTES[1] // (4 * y * x)), y, x)
        named |= {"whole series": column, "whole slices": flat}
    accesses, most = make_accesses(shape)[:2], PUBLISHED_NBYTES[0]
    pattern = AccessPattern(shape, 4, accesses, (1, 1), store, max_chunk_nbytes=most)
    named[OURS] = best_layout(pattern).chunk_shape
    return first + [ChunkLayout(name, chunk) for name, chunk in named.items()]


def _choose_by_netcdf(shape: Shape) -> Shape:
    """Ask the netCDF library for the chunks that it would choose, no dimension unlimited."""
    import netCDF4

    with netCDF4.Dataset("default.nc", "w", diskless=True) as file:
        for name, n in zip("tyx", shape, strict=True):
            file.createDimension(name, n)
        variable = file.createVariable("v", "f4", tuple("tyx"), zlib=True)
        return tuple(int(c) for c in variable.chunking())


def make_calibrations(shape: Shape) -> list[ChunkLayout]:
    """List the layouts that calibrate a disk: long and thin, flat, and between; none is predicted."""
    t, y, x = shape
    wanted: dict[str, Shape] = {
        "half of each": (-(-t // 2), -(-y // 2), -(-x // 2)),
        "columns": (-(-t // 5), 3, 4),
        "eight steps": (8, y, x),
        "tiles": (60, 9, 11),
        "long tiles": (700, 11, 14),
        "crumbs": (100, 3, 5),
    }
    return [
        ChunkLayout(f"calibrating, {name}", tuple(map(min, chunk, shape)))
        for name, chunk in wanted.items()
    ]


def shard_of(medium: Medium, shape: Shape, chunk_shape: Shape) -> Shape | None:
    """Take as many chunks in each dimension to a shard, where there are as many."""
    if medium != "sharded":
        return None
    return tuple(c * min(SHARD_BY, -(-n // c)) for c, n in zip(chunk_shape, shape, strict=True))


def describe(shape: Shape, layouts: Mapping[Medium, Sequence[ChunkLayout]]) -> pd.DataFrame:
    """Tabulate layouts: medium, chunk shape, bytes, count."""
    lines = []
    pairs = [(medium, layout) for medium, group in layouts.items() for layout in group]
    for medium, layout in pairs:
        facts: tuple[Any, ...] = ("none", math.nan, 1)
        if chunk := layout.chunk_shape:
            chunk_text, kb = " x ".join(map(str, chunk)), 4 * math.prod(chunk) / 1000
            facts = chunk_text, kb, count_chunks(shape, chunk)
        lines.append((medium, layout.name, *facts))
    names = ["medium", "contender", "chunk shape", "kB", "chunks"]
    return pd.DataFrame(lines, columns=names).set_index(names[:2])
