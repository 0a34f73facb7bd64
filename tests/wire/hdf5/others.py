"""HDF5 files as others write them: by h5py, netCDF4, h5netcdf and xarray, in the formats of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5netcdf
import h5py
import netCDF4
import numpy as np
import pandas as pd
import xarray
from h5py import h5d, h5s, h5t

RNG_SEED = 7


def make_values(*shape: int) -> Any:
    """Make values that deflate to about two thirds."""
    rng = np.random.default_rng(RNG_SEED)
    return rng.normal(size=shape).astype("f4").round(2)


def write_small_chunks(path: Path, scale: int) -> None:
    """Write arrays in the chunks that h5py guesses: small ones, under an index of version 1."""
    with h5py.File(path, "w") as file:
        for name in ("speed", "height", "angle"):
            values = make_values(50 * scale, 200, 60)
            made = file.create_dataset(f"beam/{name}", data=values, chunks=True, compression=4)
            made.attrs["units"] = "m"


def write_unlimited(path: Path, scale: int) -> None:
    """Write a step at a time along an unlimited dimension, as models do by netCDF4."""
    with netCDF4.Dataset(path, "w") as made:
        made.createDimension("time", None)
        made.createDimension("y", 90)
        made.createDimension("x", 180)
        made.Conventions = "CF-1.8"
        for name in ("time", "y", "x"):
            made.createVariable(name, "f8", (name,)).units = "days since 2000-01-01"
        made["y"][:], made["x"][:] = np.arange(90), np.arange(180)
        fields = [
            made.createVariable(name, "f4", ("time", "y", "x"), zlib=True, shuffle=True)
            for name in ("tas", "pr", "ps")
        ]
        values = make_values(90, 180)
        for step in range(20 * scale):
            made["time"][step] = step
            for field in fields:
                field[step] = values + step


def write_groups(path: Path, scale: int) -> None:
    """Write many groups of small arrays, each with attributes of variable length."""
    with h5py.File(path, "w") as file:
        for orbit in range(12 * scale):
            group = file.create_group(f"orbit{orbit:03}")
            group.attrs["title"] = f"orbit {orbit}"
            for name in ("lat", "lon", "value", "quality"):
                made = group.create_dataset(name, data=make_values(4000), chunks=(1000,))
                made.attrs["long_name"], made.attrs["units"] = f"{name} of it", "1"


def write_texts(path: Path, scale: int) -> None:
    """Write a table of texts of fixed length, with numbers next to them."""
    with h5py.File(path, "w") as file:
        n = 40_000 * scale
        texts = np.array([f"station-{number % 977:08}" for number in range(n)], "S24")
        file.create_dataset("station", data=texts, chunks=(4096,), compression="gzip")
        file.create_dataset("level", data=make_values(n), chunks=(4096,), compression="lzf")
        file["station"].attrs["_Encoding"] = "ascii"


def write_extensible(path: Path, scale: int) -> None:
    """Write by the newest format: an extensible array, a version-2 tree, and a fixed array."""
    with h5py.File(path, "w", libver="latest") as file:
        n = 40 * scale
        shape: dict[str, Any] = {"shape": (n, 100, 100), "dtype": "f4", "chunks": (1, 50, 100)}
        for name, most in (
            ("extensible", (None, 100, 100)),
            ("tree", (None, None, 100)),
            ("fixed", None),
        ):
            made = file.create_dataset(name, maxshape=most, compression=2, **shape)
            made[...] = make_values(n, 100, 100)


def write_pages(path: Path, scale: int) -> None:
    """Write pages with metadata in them, as NASA's cloud-optimised files are."""
    with h5py.File(path, "w", fs_strategy="page", fs_page_size=2**20 // 4) as file:
        for name in ("a", "b", "c", "d"):
            values = make_values(40 * scale, 100, 100)
            made = file.create_dataset(
                f"science/{name}", data=values, chunks=(4, 100, 100), compression=4
            )
            made.attrs["valid_range"] = [0.0, 1.0]


def write_compact(path: Path, scale: int) -> None:
    """Write many compact datasets next to one large contiguous one."""
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5d.COMPACT)
        for number in range(40):
            made = h5d.create(
                file.id, b"p%d" % number, h5t.NATIVE_DOUBLE, h5s.create_simple((500,)), dcpl=plist
            )
            made.write(h5s.ALL, h5s.ALL, np.arange(500.0))
        file["signal"] = make_values(200_000 * scale)


def write_user_block(path: Path, scale: int) -> None:
    """Write a block of the user's before the file, as MATLAB does."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name in ("x", "y"):
            file.create_dataset(
                name, data=make_values(300 * scale, 400), chunks=(50, 100), compression=3
            )


def write_dense(path: Path, scale: int) -> None:
    """Write more attributes of an object than fit its header: a heap and an index of names."""
    with h5py.File(path, "w", libver="v110") as file:
        for name in ("band1", "band2", "band3"):
            values = make_values(60 * scale, 128, 64)
            made = file.create_dataset(name, data=values, chunks=(6, 128, 64), compression=1)
            for number in range(60):
                made.attrs[f"calibration_{number:02}"] = np.arange(12.0) + number


def write_by_h5netcdf(path: Path, scale: int) -> None:
    """Write dimensions, coordinates and a group by h5netcdf."""
    with h5netcdf.File(path, "w") as file:
        file.dimensions = {"y": 120 * scale, "x": 300}
        for name in ("y", "x"):
            made = file.create_variable(name, (name,), "f8")
            made[...] = np.arange(float(file.dimensions[name].size))
        for name in ("elevation", "slope"):
            made = file.create_variable(name, ("y", "x"), "f4", chunks=(40, 100))
            made[...] = make_values(120 * scale, 300)
            made.attrs["grid_mapping"] = "crs"


def write_by_xarray(path: Path, scale: int) -> None:
    """Write a dataset of xarray with times and coordinates, nothing set but chunks."""
    n = 60 * scale
    shape = {"time": n, "lat": 73, "lon": 144}
    data = {
        name: (tuple(shape), make_values(*shape.values()), {"units": "K"})
        for name in ("air", "dew", "skin")
    }
    coords = {
        "time": pd.date_range("2020-01-01", periods=n),
        "lat": np.linspace(-90, 90, 73),
        "lon": np.arange(0, 360, 2.5),
    }
    encoding = {name: {"chunksizes": (10, 73, 144), "zlib": True, "complevel": 3} for name in data}
    xarray.Dataset(data, coords).to_netcdf(path, engine="h5netcdf", encoding=encoding)


@dataclass(frozen=True, slots=True)
class OtherFile:
    """A file that others write, and what a reader asks of it."""

    write: Callable[[Path, int], None]  # at a scale, 1 for some MB at most
    variables: tuple[str, ...]  # that are read
    is_netcdf: bool = True  # whether xarray opens it
    scale: int = 30  # at which it is some 60 to 150 MB


OTHERS = {
    "small-chunks": OtherFile(write_small_chunks, ("beam/height",)),
    "unlimited": OtherFile(write_unlimited, ("pr",)),
    "groups": OtherFile(write_groups, ("orbit003/value", "orbit007/lat"), scale=60),
    "texts": OtherFile(write_texts, ("station", "level"), scale=300),
    "newest-format": OtherFile(write_extensible, ("extensible", "tree"), scale=30),
    "pages": OtherFile(write_pages, ("science/b", "science/d")),
    "compact": OtherFile(write_compact, ("p7", "signal"), scale=100),
    "user-block": OtherFile(write_user_block, ("y",), is_netcdf=False, scale=200),
    "dense-attributes": OtherFile(write_dense, ("band2",)),
    "h5netcdf": OtherFile(write_by_h5netcdf, ("elevation",), scale=300),
    "xarray": OtherFile(write_by_xarray, ("air", "skin")),
}
