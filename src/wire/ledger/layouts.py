"""What the clients of the ledger read: HDF5 files, trees, coordinates, shards and a table, written without a network."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import obstore
from numpy.typing import NDArray

from wire.bed.locations import Location
from wire.ledger.clients import FILES, PARTS, SHARDED, THREE_VARIABLES, WHOLE, checksum

N_VARIABLES, N_CHUNKS, CHUNK = 12, 64, 10_000
"""Of an HDF5 file: variables, chunks of each, elements of a chunk: 61 MB in all."""
_ROUND = 4  # chunks that a variable gets before the next one goes on
_PAGE_NBYTES = 4 * 2**20
ARRAY_SHAPE = (512, 512)
_CHUNK_SHAPE = (64, 128)
N_GROUPS, N_COORDINATES = 24, 40
WRITTEN = {"written-tree": 13, "appended": 9}
"""Layouts that an access writes, and the objects there afterwards: of metadata, and of chunks."""

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stored:
    """The layouts below a prefix of a bucket, and what reading them must return."""

    prefix: str
    folder: Path  # the same objects as files, as long as they are needed
    expected: Mapping[tuple[str, str], int]  # by layout and access

    def needed_nbytes(self, layout: str) -> int:
        """Return the size of a layout in the store, in bytes."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file() and (
            path.relative_to(self.folder).parts[0].partition(".")[0] == layout
        ))  # fmt: skip


def write_layouts(
    near: Location, prefix: str, folder: Path, layouts: Collection[str], *, seed: int
) -> Stored:
    """Write layouts to a folder and to a store."""
    rng = np.random.default_rng(seed)
    expected: dict[tuple[str, str], int] = {}
    if set(layouts) & {*FILES}:
        expected |= _write_files(folder, rng)
    if set(layouts) & {"tree", "tree-unconsolidated"}:
        _write_trees(folder, rng)
    if "appended" in layouts:
        _write_dataset(folder, rng)
    if "coordinates" in layouts:
        _write_coordinates(folder, rng)
    if set(layouts) & {SHARDED, "chunks"}:
        expected |= _write_arrays(folder, rng)
    if "parquet" in layouts:
        expected |= _write_table(folder, rng)
    expected |= {
        ("tree", "open tree"): N_GROUPS + 1,
        ("tree-unconsolidated", "open tree"): N_GROUPS + 1,
        ("coordinates", "open"): N_COORDINATES,
        ("written-tree", "write tree"): 5,
        ("appended", "append"): 4,
    }
    store = near.obstore()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = f"{prefix}/{path.relative_to(folder).as_posix()}"
            obstore.put(store, name, path.read_bytes())
    _publish(near, prefix)
    return Stored(prefix, folder, expected)


def _publish(near: Location, prefix: str) -> None:
    """Let everybody read: some clients sign nothing."""
    where = f"arn:aws:s3:::{near.bucket}/{near.prefix}/{prefix}/*".replace("//", "/")
    allowed = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": where}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    near.botocore().put_bucket_policy(Bucket=near.bucket, Policy=policy)


def _write_files(folder: Path, rng: np.random.Generator) -> dict[tuple[str, str], int]:
    """Write one content as an HDF5 file that grew in rounds, and with pages of metadata together."""
    import h5py

    values = {f"v{n:02d}": rng.random(N_CHUNKS * CHUNK) for n in range(N_VARIABLES)}
    paged = {"fs_strategy": "page", "fs_page_size": _PAGE_NBYTES, "libver": "v110"}
    for layout, options in zip(FILES, ({}, paged), strict=True):
        with h5py.File(folder / layout, "w", **options) as file:
            for name in values:
                file.create_dataset(name, (0,), "f8", chunks=(CHUNK,), maxshape=(None,))
                file[name].attrs["long_name"] = f"variable {name} of a file that grew in rounds"
            for start in range(0, N_CHUNKS * CHUNK, _ROUND * CHUNK):
                for name, elements in values.items():
                    end = start + _ROUND * CHUNK
                    file[name].resize((end,))
                    file[name][start:end] = elements[start:end]
    three = checksum(*[values[name] for name in THREE_VARIABLES])
    first = checksum(values[THREE_VARIABLES[1]][:CHUNK])
    return {
        (layout, access): crc
        for layout in FILES
        for access, crc in (("three variables", three), ("one chunk", first))
    }


def _write_trees(folder: Path, rng: np.random.Generator) -> None:
    """Write a tree of groups, each with two variables and a coordinate, consolidated and not."""
    import xarray as xr

    groups = {
        f"/g{number:02d}": xr.Dataset(
            {name: ("x", rng.random(16)) for name in ("a", "b")}, {"x": np.arange(16)}
        )
        for number in range(N_GROUPS)
    }
    tree = xr.DataTree.from_dict(groups)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Consolidated metadata")
        for layout, is_consolidated in (("tree", True), ("tree-unconsolidated", False)):
            tree.to_zarr(folder / layout, zarr_format=3, consolidated=is_consolidated)


def _write_dataset(folder: Path, rng: np.random.Generator) -> None:
    """Write a dataset of eight steps, to be appended to."""
    import xarray as xr

    coordinates = {"time": np.arange(8.0), "x": np.arange(16)}
    dataset = xr.Dataset({"a": (("time", "x"), rng.random((8, 16)))}, coordinates)
    encoding = {"a": {"chunks": (4, 16)}, "time": {"chunks": (4,)}}
    dataset.to_zarr(folder / "appendable", zarr_format=3, consolidated=False, encoding=encoding)


def _write_coordinates(folder: Path, rng: np.random.Generator) -> None:
    """Write a dataset whose every variable has a coordinate of its own."""
    import xarray as xr

    names = [f"{number:02d}" for number in range(N_COORDINATES)]
    dataset = xr.Dataset(
        {f"v{name}": (f"x{name}", rng.random(16)) for name in names},
        {f"x{name}": np.arange(16) for name in names},
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Consolidated metadata")
        dataset.to_zarr(folder / "coordinates", zarr_format=3, consolidated=True)


def _write_arrays(folder: Path, rng: np.random.Generator) -> dict[tuple[str, str], int]:
    """Write an array in shards of inner chunks, and in plain chunks."""
    import zarr

    values: Values = rng.random(ARRAY_SHAPE)
    half = ARRAY_SHAPE[0] // 2
    settings: dict[str, dict[str, Any]] = {
        SHARDED: {"chunks": (32, 32), "shards": (half, half)},
        "chunks": {"chunks": _CHUNK_SHAPE},
    }
    for layout, chunking in settings.items():
        group = zarr.open_group(folder / layout, mode="w", zarr_format=3)
        array = group.create_array("values", shape=ARRAY_SHAPE, dtype="f8", **chunking)
        array[:] = values
    expected = {(SHARDED, access): checksum(values[part]) for access, part in PARTS.items()}
    return expected | {("chunks", "whole array"): checksum(values[WHOLE])}


def _write_table(folder: Path, rng: np.random.Generator) -> dict[tuple[str, str], int]:
    """Write a table of six columns in four row groups."""
    import pyarrow
    import pyarrow.parquet

    columns = {f"c{number}": rng.integers(0, 2**40, 400_000) for number in range(6)}
    table = pyarrow.table(columns)
    pyarrow.parquet.write_table(table, folder / "table.parquet", row_group_size=100_000)
    return {("parquet", "one column"): int(columns["c3"].sum())}
