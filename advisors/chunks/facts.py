"""What a store of Zarr, HDF5 or netCDF says of its arrays, and what writes one in other chunks."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from helpers.arrays.chunks import Shape
from helpers.errors import UserError, cut

_SUFFIXES = (".nc", ".nc4", ".h5", ".hdf5", ".he5")  # of files far away; one on disk needs none
_ALLOWED = (
    "a Zarr store or a netCDF or HDF5 file that can be read; --variable reads one array alone"
)


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """What a store says of an array."""

    variable: str  # name in the store, after the groups that it lies in
    shape: Shape  # elements for each dimension
    dtype: np.dtype[Any]  # type of an element
    chunk_shape: Shape | None = None  # elements of a chunk; None where it is stored without
    shard_shape: Shape | None = None  # elements of an object that holds several chunks
    # bytes in the array over bytes stored; None where the metadata do not tell
    compression_ratio: float | None = None

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def has_fixed_size(self) -> bool:
        """Tell whether all elements have as many bytes, so that a chunk has a size."""
        return not self.dtype.hasobject and self.dtype.kind != "T" and self.itemsize > 0


def read_facts(address: str, variable: str = "") -> ArrayFacts:
    """Read the metadata of an array: of the largest of a store, unless it is named by its path."""
    try:
        with warnings.catch_warnings(action="ignore"):  # the store is another's, as it is
            arrays = _read_arrays(address, variable.strip("/"))
    except UserError:
        raise
    except FileNotFoundError as error:  # as zarr says too where nothing is
        raise UserError(f"store: {address!r}: no array there; allowed: {_ALLOWED}") from error
    except Exception as error:  # whatever its library makes of a store that is damaged or away
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise UserError(f"store: {address!r}: {reason}; allowed: {_ALLOWED}") from error
    return _choose(arrays, variable.strip("/"))


def _choose(arrays: Mapping[str, ArrayFacts], variable: str) -> ArrayFacts:
    """Take the array that is named, or the largest whose elements have a size."""
    if not arrays or (variable and variable not in arrays):
        raise UserError(
            f"variable: {variable!r}; allowed: {cut(', '.join(arrays)) or 'none is there'}"
        )
    usable = {name: each for name, each in arrays.items() if each.has_fixed_size} or arrays
    found = arrays[variable or max(usable, key=lambda name: math.prod(arrays[name].shape or (0,)))]
    if not found.has_fixed_size:
        raise UserError(
            f"variable: {found.variable!r} is of {found.dtype}; allowed: a type of fixed size"
        )
    if not found.shape or not all(found.shape):
        raise UserError(
            f"variable: {found.variable!r} has no elements along {list(found.shape)};"
            " allowed: one or more dimensions, none of them empty"
        )
    return found


def _read_arrays(address: str, variable: str) -> dict[str, ArrayFacts]:
    path = None if "://" in address else Path(address)
    if path is not None and not path.exists():
        raise FileNotFoundError(address)
    is_file = path.is_file() if path else address.lower().endswith(_SUFFIXES)
    if not is_file or address.endswith(".zip"):
        found = _read_zarr(address, variable)
    elif path and _begins(path, b"CDF"):
        found = _read_classic(address)
    else:
        found = _read_hdf5(address)
    return {each.variable: each for each in found}


def _begins(path: Path, mark: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(mark)) == mark


def _read_zarr(address: str, variable: str) -> Iterable[ArrayFacts]:
    import obstore  # here, as numbers alone need no library of a format
    import zarr
    from zarr.storage import ObjectStore

    from helpers.objectstore.locations import parse_location

    store: Any = address
    if "://" in address:
        location = parse_location(address)
        with suppress(FileNotFoundError):  # zarr asks for several at once, and loses their errors
            obstore.head(location.obstore(), "zarr.json")
        store = ObjectStore(location.obstore(), read_only=True)
    node = zarr.open(store, mode="r")
    if isinstance(node, zarr.Array):
        yield _of_zarr("array", node)
    elif variable and isinstance(found := node.get(variable), zarr.Array):
        yield _of_zarr(variable, found)  # the others may be of types that zarr cannot read
    else:
        for name, found in node.members(max_depth=None):
            if isinstance(found, zarr.Array):
                yield _of_zarr(name, found)


def _of_zarr(name: str, found: Any) -> ArrayFacts:
    return ArrayFacts(name, found.shape, np.dtype(found.dtype), found.chunks, found.shards)


def _read_classic(address: str) -> Iterable[ArrayFacts]:
    """Read a netCDF-3 file, which has no chunks."""
    from scipy.io import netcdf_file

    with netcdf_file(address, mmap=True) as file:
        for name, found in file.variables.items():
            yield ArrayFacts(name, tuple(found.shape), np.dtype(found.data.dtype))


def _read_hdf5(address: str) -> Iterable[ArrayFacts]:
    import fsspec
    import h5py

    from helpers.objectstore.locations import parse_location

    options = parse_location(address).fsspec_options() if "://" in address else {}
    found: list[ArrayFacts] = []

    def visit(name: str, node: Any) -> None:
        if not isinstance(node, h5py.Dataset) or node.shape is None:
            return
        stored = node.id.get_storage_size()
        with suppress(TypeError):  # of a type that numpy lacks
            ratio = node.nbytes / stored if stored and node.nbytes else None
            found.append(ArrayFacts(name, node.shape, node.dtype, node.chunks, None, ratio))

    with fsspec.open(address, "rb", **options) as file, h5py.File(file) as root:
        root.visititems(visit)
    return found


def write_snippet(facts: ArrayFacts, chunk: Shape, shard: Shape | None) -> str:
    """Write what makes an array in given chunks: in Zarr, and in netCDF-4 where it has the type."""
    name = facts.variable.rpartition("/")[2]
    shards = f", shards={shard}" if shard else ""
    lines = [
        "# Zarr",
        "import zarr",
        "",
        f"array = zarr.create_array({json.dumps(name + '.zarr')}, shape={facts.shape},"
        f" chunks={chunk}{shards}, dtype={_write_type(facts.dtype)})",
    ]
    if facts.dtype.kind in "biumM" or facts.dtype.name in ("float32", "float64"):
        how = f'{{"chunksizes": {chunk}, "zlib": True, "shuffle": True}}'
        lines += [
            "",
            "# netCDF-4 through xarray: dataset.to_netcdf(path, encoding=encoding)",
            f"encoding = {{{json.dumps(name)}: {how}}}",
        ]
    return "\n".join(lines)


def _write_type(dtype: np.dtype[Any]) -> str:
    """Write a type as Zarr takes it; what it does not know, as bytes."""
    if dtype.names is not None:
        try:
            return repr(dtype.descr)
        except ValueError:  # fields that overlap
            return f'"V{dtype.itemsize}"'
    if dtype.kind in "SUV" or dtype.char in "gG":
        return f'"{dtype.kind if dtype.kind in "SU" else "V"}{dtype.str[2:]}"'
    return f'"{dtype.name}"'
