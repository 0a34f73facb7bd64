"""A map as a table of places and values, as text and as Parquet; what Dask reads of it; TileDB, and many files."""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import fsspec
import numpy as np
import pyarrow as pa
import xarray as xr
from numpy.typing import NDArray

from helpers.arrays.readers import DIMENSIONS, Block, Blocks, put_folder
from helpers.arrays.stores import StoredArray
from helpers.arrays.tables import (
    TableSuffix,
    name_part,
    tiledb_options,
    write_table,
    write_tiledb_array,
)
from wire.bed.locations import Location

ROW_NBYTES = 24
"""Bytes that Dask holds of a row, as the study of 2022 counted them: three columns of eight."""
N_STEPS = 12
"""Of time, in one of many files."""
FILES_VARIABLE = "values"
_COLUMNS = ("x", "y", "z")
_LINE_NBYTES = 22  # of text, and a little more than a row has


def cut(stored: StoredArray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Cut from an array the part that tables hold, a quarter, and its partitions, a quarter of a chunk.

    Text takes so much longer that the whole could not be waited for, and as many partitions as
    there are chunks keep as many threads busy.
    """
    (time, depth, y, x), (*chunk, cy, cx) = stored.shape, stored.chunk_shape
    return (time, depth, max(1, y // 4), x), (*chunk, max(1, cy // 2), max(1, cx // 2))


def tabulate(block: Block, values: NDArray[np.float32], shape: tuple[int, ...]) -> pa.Table:
    """Make rows of longitude, latitude and value, in the order of the block."""
    places = [
        np.round((np.arange(part.start, part.stop) + 0.5) * degrees / n - degrees / 2, 5)
        for part, n, degrees in zip(block[2:], shape[2:], (180, 360), strict=True)
    ]
    y, x = (
        np.broadcast_to(axis, values.shape).ravel() for axis in np.meshgrid(*places, indexing="ij")
    )
    z = values.ravel() + 0.0  # no zero has a sign, which text would lose
    return pa.table(dict(zip(_COLUMNS, (x, y, z.astype(float)), strict=True)))


def sum_bits(frame: Any) -> NDArray[np.uint64]:
    """Count the rows of a table, and sum the bits of each column: parts add up, whatever they are."""
    columns = (np.asarray(frame[name], np.float32).view(np.uint32) for name in _COLUMNS)
    return np.array([len(frame), *(column.sum(dtype=np.uint64) for column in columns)], np.uint64)


def write_tables(
    location: Location,
    blocks: Blocks,
    shape: tuple[int, ...],
    *,
    suffix: TableSuffix,
    is_whole: bool,
) -> list[int]:
    """Write a table as text or Parquet, one file or one for each chunk; return its sums of bits."""
    sums = np.zeros(1 + len(_COLUMNS), np.uint64)

    def tabulate_each() -> Iterator[pa.Table]:
        """Make a table of each block, and add up its bits."""
        for block, values in blocks():
            table = tabulate(block, values, shape)
            np.add(sums, sum_bits(table), out=sums)
            yield table

    with tempfile.TemporaryDirectory() as folder:
        if is_whole:  # a chunk is a group of rows
            write_table(f"{folder}/{name_part(0, suffix)}", tabulate_each(), suffix)
        else:
            for number, table in enumerate(tabulate_each()):
                write_table(f"{folder}/{name_part(number, suffix)}", [table], suffix)
        put_folder(Path(folder), location)
    return [int(total) for total in sums]


def make_old_options(folder: Location, nbytes: int, of_then: float = 57e6) -> dict[str, Any]:
    """Give s3fs the settings of then: one request for a range, and 5 MiB read ahead, to scale.

    To the bytes that a task reads they are as to the 57 MB of a chunk or partition of 2022.
    """
    ahead = {"default_block_size": max(4096, int(5 * 2**20 * nbytes / of_then))}
    return {**folder.fsspec_options(), "max_concurrency": 1, **ahead}


def read_csv(folder: Location, stored: StoredArray) -> Any:
    """Open text, one file or many, in partitions of about as many rows as a file in parts has."""
    nbytes = _LINE_NBYTES * math.prod(cut(stored)[1])
    options = {"storage_options": make_old_options(folder, nbytes), "blocksize": nbytes}
    return dd.read_csv(f"{folder.url}/*.csv", dtype=float, **options)


def read_parquet(folder: Location, stored: StoredArray) -> Any:
    """Open Parquet files, a partition each."""
    return dd.read_parquet(f"{folder.url}/*.parquet", storage_options=folder.fsspec_options())


def write_tiledb(
    location: Location, blocks: Blocks, shape: tuple[int, ...], *, chunk_shape: tuple[int, ...]
) -> list[int]:
    """Write a dense TileDB array in tiles of a chunk; its chunks are checked one by one, by no sum."""
    import tiledb  # an extra that not everyone has

    values = np.empty(shape, np.float32)
    for block, part in blocks():
        values[block] = part
    filters = [tiledb.ByteShuffleFilter(), tiledb.ZstdFilter(level=5)]
    write_tiledb_array(location, values, attribute="", chunk_shape=chunk_shape, filters=filters)
    return []


def write_files(
    location: Location,
    blocks: Blocks,
    shape: tuple[int, ...],
    *,
    chunk_shape: tuple[int, ...],
    n_steps: int = N_STEPS,
) -> list[int]:
    """Write netCDF files of `n_steps` each, with coordinates and bounds as those of CMIP6 have.

    Their chunks are checked one by one, by no sum.
    """
    centres = [np.arange(n, dtype=float) for n in shape]
    bounds = {
        f"{name}_bnds": ((name, "bnds"), np.stack([centre - 0.5, centre + 0.5], axis=1))
        for name, centre in zip(DIMENSIONS, centres, strict=True)
    }
    coordinates = dict(zip(DIMENSIONS, centres, strict=True))
    encoding = {FILES_VARIABLE: {"chunksizes": chunk_shape, "zlib": True, "complevel": 1}}
    values = np.empty((n_steps, *shape[1:]), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        for block, part in blocks():
            begin, end = block[0].start // n_steps * n_steps, block[0].stop
            values[block[0].start - begin : end - begin, *block[1:]] = part
            is_last = all(part.stop == n for part, n in zip(block[1:], shape[1:], strict=True))
            if is_last and end in (begin + n_steps, shape[0]):
                held = {FILES_VARIABLE: (DIMENSIONS, values[: end - begin])}
                steps = xr.Dataset(bounds, coordinates).isel(time=slice(begin, end))
                path = f"{folder}/steps-{begin:05d}.nc"
                steps.assign(held).to_netcdf(path, encoding=encoding, unlimited_dims=["time"])
        put_folder(Path(folder), location)
    return []


def open_files(
    folder: Location,
    _stored: StoredArray,
    *,
    method: str,
    chunks: Mapping[str, int] | None = None,
) -> Any:
    """Open many netCDF files as one array, in one of these ways.

    ``objects`` of s3fs, one after the other; the same in ``tasks``; or as the ``recipe`` has it, by their
    addresses in tasks, without a comparison of what all files have. `chunks` of Dask are those of the
    recipe, stored chunks where none are given.
    """
    options = folder.fsspec_options()
    fs = fsspec.filesystem("s3", **options)
    paths = sorted(fs.glob(f"{folder.path}/*.nc"))
    reading: dict[str, Any] = {"engine": "h5netcdf", "parallel": method != "objects"}
    reading |= {"mask_and_scale": False, "decode_times": False}
    if method == "recipe":
        reading |= {"combine": "nested", "concat_dim": "time", "chunks": chunks or {}}
        reading |= {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
        urls = [f"s3://{path}" for path in paths]
        return xr.open_mfdataset(urls, storage_options=options, **reading)[FILES_VARIABLE].data
    # its defaults of now are what is measured, of which it says that they will change
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        return xr.open_mfdataset([fs.open(path) for path in paths], **reading)[FILES_VARIABLE].data


def read_tiledb(folder: Location, stored: StoredArray) -> da.Array:
    """Open a TileDB array through Dask, a tile a block."""
    array: da.Array = da.from_tiledb(  # type: ignore[no-untyped-call]
        f"{folder.url}/array", storage_options=tiledb_options(folder)
    )
    return array
