"""Layouts: what lies in the store, and how an array is written in each.

A *layout* is a Zarr group, a netCDF file, or references to that file. Blocks
arrive one after the other, so an array of any size costs the memory of a few.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import hdf5plugin  # noqa: F401  # before netCDF4, whose own HDF5 would keep filters out of h5py
import netCDF4
import numpy as np
import obstore
import virtualizarr
import xarray as xr
import zarr
from numpy.typing import NDArray
from obspec_utils.registry import ObjectStoreRegistry
from virtualizarr.parsers import HDFParser
from zarr.storage import ObjectStore

from helpers.arrays.fields import FILL
from helpers.objectstore.locations import Location

DIMENSIONS = ("time", "depth", "y", "x")

Codec = Literal["none", "blosc-lz4", "blosc-zstd"]
CODECS: tuple[Codec, ...] = ("none", "blosc-lz4", "blosc-zstd")
"""Codecs that Zarr and HDF5 both read, so that contenders share them."""

Layout = Literal["zarr", "netcdf", "references", "opendap"]
"""What lies in a store, and what a server makes of it for those who ask by OPeNDAP."""
LAYOUTS: tuple[Layout, ...] = ("zarr", "netcdf", "references")
"""Layouts in the order in which they are written: references need their file."""

Block = tuple[slice, ...]
"""Half-open bounds in elements, one slice for each dimension."""

Blocks = Callable[[], Iterator[tuple[Block, NDArray[np.float32]]]]
"""Where the values come from: each chunk once, when it is asked for."""

_PART_NBYTES = 16 * 2**20  # of an upload
_N_PARTS = 2  # in memory at a time; obstore's default of 12 would grow with the file to 200 MB
BLOSC_LEVEL = 5


def iterate_blocks(shape: tuple[int, ...], chunk_shape: tuple[int, ...]) -> Iterator[Block]:
    """Yield the slices of each chunk, the last dimension fastest."""
    starts = [range(0, n, c) for n, c in zip(shape, chunk_shape, strict=True)]
    for corner in itertools.product(*starts):
        yield tuple(
            slice(i, min(i + c, n)) for i, c, n in zip(corner, chunk_shape, shape, strict=True)
        )


def create_zarr(
    store: Any,
    *,
    variable: str,
    shape: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    codec: Codec,
    shard_shape: tuple[int, ...] | None = None,
) -> Any:
    """Create an array in a Zarr v3 group; what an interrupted write has left there is deleted."""
    compressor, name = None, codec.removeprefix("blosc-")
    if codec != "none":
        how: Any = {"cname": name, "clevel": BLOSC_LEVEL, "shuffle": "shuffle", "typesize": 4}
        compressor = zarr.codecs.BloscCodec(**how)
    return zarr.create_group(store, overwrite=True, zarr_format=3).create_array(
        variable,
        shape=shape,
        chunks=chunk_shape,
        shards=shard_shape,
        dtype="float32",
        compressors=compressor,
        fill_value=float(FILL),
        dimension_names=DIMENSIONS,
        config={"write_empty_chunks": True},
    )


def write_zarr(location: Location, blocks: Blocks, **array: Any) -> None:
    """Write blocks to an array of `create_zarr`, a chunk an object, with consolidated metadata."""
    store = ObjectStore(location.obstore())
    created = create_zarr(store, **array)
    for block, values in blocks():
        created[block] = values
    with expected_warning("Consolidated metadata is currently not part"):
        zarr.consolidate_metadata(store)


def write_netcdf(
    location: Location,
    blocks: Blocks,
    *,
    variable: str,
    shape: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    codec: Codec,
) -> None:
    """Write blocks as one netCDF-4 file, ``array.nc``, and upload it in parts.

    The file is made on local disk first, because HDF5 writes in no order, and
    by the netCDF library: with h5py, Blosc fails to write in a process that
    has imported netCDF4 before, which brings an HDF5 of its own.
    """
    how: dict[str, Any] = {"complevel": BLOSC_LEVEL, "blosc_shuffle": 1}  # of bytes
    how["compression"] = None if codec == "none" else codec.replace("-", "_")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "array.nc"
        with netCDF4.Dataset(path, "w") as file:
            for name, extent in zip(DIMENSIONS, shape, strict=True):
                file.createDimension(name, extent)
            target = file.createVariable(
                variable,
                "f4",
                DIMENSIONS,
                chunksizes=chunk_shape,
                fill_value=FILL,
                **how,
            )
            for block, values in blocks():
                target[block] = values
        obstore.put(
            location.obstore(), "array.nc", path, chunk_size=_PART_NBYTES, max_concurrency=_N_PARTS
        )


WRITERS: Mapping[str, Callable[..., None]] = {"zarr": write_zarr, "netcdf": write_netcdf}
"""Layouts that are written block by block."""


def put_folder(made: Path, into: Location) -> None:
    """Put all files of a folder of this machine below a location, under the same names."""
    client = into.obstore()
    for path in sorted(path for path in made.rglob("*") if path.is_file()):
        obstore.put(client, path.relative_to(made).as_posix(), path)


def open_virtual(netcdf: Location, variable: str) -> xr.Dataset:
    """Open the netCDF file at `netcdf` as the places of its chunks."""
    with expected_warning("Numcodecs codecs are not in the Zarr version 3"):
        dataset = virtualizarr.open_virtual_dataset(
            f"{netcdf.url}/array.nc",
            registry=make_registry(netcdf),
            parser=HDFParser(),
            loadable_variables=[],
        )
    return dataset[[variable]]


def write_references(location: Location, netcdf: Location, *, variable: str) -> None:
    """Write kerchunk references, ``references.json``, to the netCDF file at `netcdf`."""
    references = open_virtual(netcdf, variable).vz.to_kerchunk(format="dict")
    text = json.dumps(references, default=bytes.decode)
    obstore.put(location.obstore(), "references.json", text.encode())


@contextlib.contextmanager
def expected_warning(message: str) -> Iterator[None]:
    """Keep out of the notebooks what a library says of a choice that the book makes and explains."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message, UserWarning)
        yield


def make_registry(location: Location) -> ObjectStoreRegistry[Any]:
    """Tell VirtualiZarr by which client the bucket of a location is reached."""
    bucket = dataclasses.replace(location, prefix="")
    return ObjectStoreRegistry({bucket.url: bucket.obstore()})
