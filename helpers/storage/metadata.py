"""What a store says of its arrays: shape, type, chunks, compression; no values are read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numpy as np
import zarr
from zarr.errors import ContainsGroupError, GroupNotFoundError, NodeTypeValidationError
from zarr.storage import ObjectStore

from helpers.errors import UserError
from helpers.storage.layout import Shape
from helpers.storage.locations import parse_location


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """What a store says of an array.

    Parameters
    ----------
    variable : str
        Name in the store.
    shape : tuple of int
        Elements for each dimension.
    dtype : str
        Type of an element, as numpy names it.
    itemsize : int
        Bytes of an element.
    chunk_shape : tuple of int or None
        Elements of a chunk; None where it is stored without.
    compression_ratio : float or None
        Bytes in the array over bytes stored; None where the metadata do not tell.
    """

    variable: str
    shape: Shape
    dtype: str
    itemsize: int
    chunk_shape: Shape | None
    compression_ratio: float | None = None


def read_facts(address: str, variable: str = "") -> ArrayFacts:
    """Read the metadata of an array in a Zarr store or a netCDF-4 or HDF5 file.

    Parameters
    ----------
    address : str
        A path, or ``s3://BUCKET/PREFIX``.
    variable : str
        Name of the array; by default the largest.

    Returns
    -------
    ArrayFacts
        Of that array.

    Raises
    ------
    UserError
        If nothing is there, it is of another format, or its type has no fixed size.
    """
    is_file = address.endswith((".nc", ".nc4", ".h5", ".hdf5", ".he5"))
    try:
        arrays = _read_hdf5(address) if is_file else _read_zarr(address)
    except (FileNotFoundError, GroupNotFoundError, NodeTypeValidationError) as error:
        raise UserError(
            f"store: {address!r}: no array there; allowed: a Zarr store or a file .nc, .h5"
        ) from error
    except OSError as error:
        raise UserError(
            f"store: {address!r}: {' '.join(str(error).split())}; allowed: a file that can be read"
        ) from error
    if not arrays or (variable and variable not in arrays):
        raise UserError(f"variable: {variable!r}; allowed: {', '.join(arrays) or 'none is there'}")
    return arrays[variable or max(arrays, key=lambda name: math.prod(arrays[name].shape))]


def _facts(name: str, found: Any, chunks: Any, ratio: float | None = None) -> ArrayFacts:
    dtype = np.dtype(found.dtype)
    if dtype.hasobject or dtype.itemsize == 0:
        raise UserError(f"variable: {name!r} is of {dtype}; allowed: a type of fixed size")
    chunk_shape = tuple(int(c) for c in chunks) if chunks else None
    shape = tuple(int(n) for n in found.shape)
    return ArrayFacts(name, shape, dtype.name, dtype.itemsize, chunk_shape, ratio)


def _read_zarr(address: str) -> dict[str, ArrayFacts]:
    if "://" in address:
        store: Any = ObjectStore(parse_location(address).obstore(), read_only=True)
    elif not Path(address).is_dir():
        raise FileNotFoundError(address)
    else:
        store = address
    try:
        group = zarr.open_group(store, mode="r")
    except (GroupNotFoundError, ContainsGroupError):
        array = zarr.open_array(store, mode="r")
        return {"array": _facts("array", array, array.shards or array.chunks)}
    return {
        name: _facts(name, array, array.chunks) for name, array in group.arrays() if array.shape
    }


def _read_hdf5(address: str) -> dict[str, ArrayFacts]:
    options = parse_location(address).fsspec_options() if "://" in address else {}
    found: dict[str, ArrayFacts] = {}

    def visit(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset) and node.shape:
            stored = node.id.get_storage_size()
            found[name] = _facts(name, node, node.chunks, node.nbytes / stored if stored else None)

    with fsspec.open(address, "rb", **options) as file, h5py.File(file) as root:
        root.visititems(visit)
    return found
