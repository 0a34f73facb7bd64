"""The problem: an array, an access pattern, and bounds of its chunks; and what is recommended for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from helpers.arrays.chunks import Shape, check_shape, check_within
from helpers.errors import UserError
from helpers.models.access import Store

Floats = NDArray[np.float64]
Shapes = NDArray[np.int64]
"""Candidates: one shape a row."""

Criterion = Literal["mean", "worst"]


@dataclass(frozen=True, slots=True)
class Access:
    """A box of elements, read anywhere in the array with equal chance."""

    name: str  # name on the page
    extent: Shape  # elements for each dimension


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a chunk shape must respect."""

    min_chunk_nbytes: int = 1  # bytes of a chunk in the array; a small array's own bytes are enough
    max_chunk_nbytes: int = 100_000_000
    max_objects: int = 1_000_000  # objects in the store; what has more chunks is sharded
    # memory of a reader for the chunks that it decodes at once, and of a writer for one shard
    memory_nbytes: int = 1_000_000_000

    def __post_init__(self) -> None:
        """Refuse bounds between which there is nothing."""
        for name in self.__dataclass_fields__:
            if getattr(self, name) < 1:
                raise UserError(f"{name}: {getattr(self, name)}; allowed: at least 1")
        if self.min_chunk_nbytes > self.max_chunk_nbytes:
            raise UserError(
                f"min_chunk_nbytes: {self.min_chunk_nbytes};"
                f" allowed: at most max_chunk_nbytes, {self.max_chunk_nbytes}"
            )


@dataclass(frozen=True, slots=True)
class Choice:
    """A chunk shape and what it is expected to cost."""

    chunk_shape: Shape  # elements for each dimension
    seconds: dict[str, float]  # predicted time of each access
    score: float  # their weighted mean, or the slowest, in s


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to store, and what else there is."""

    best: Choice  # the least predicted time; the best of the shapes that are clearly others
    second: Choice
    # no access of these is faster without another being slower, thinned to steps of 2 percent
    front: tuple[Choice, ...]
    # elements for each dimension of an object that holds several chunks; None where chunks are
    # objects
    shard_shape: Shape | None
    n_chunks: int  # of the whole array
    n_objects: int

    @property
    def second_costs(self) -> float:
        """Time of the second-best over that of the best."""
        return self.second.score / self.best.score


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """An array, the accesses to it, how often each happens, and what it is read from."""

    shape: Shape  # elements of the array for each dimension
    itemsize: int  # bytes of an element, at least 1
    accesses: Sequence[Access]  # one or more, none larger than the array
    weights: Sequence[float]  # how often each happens, in any unit; their sum is above 0
    store: Store  # what an access meets
    bounds: Bounds = field(default_factory=Bounds)  # what a chunk shape must respect
    # whether the weighted mean is to be least, or the slowest access that happens
    criterion: Criterion = "mean"

    def __post_init__(self) -> None:
        """Refuse arrays, accesses and weights that make no sense."""
        shape = check_shape("shape", self.shape)
        if self.itemsize < 1:
            raise UserError(f"itemsize: {self.itemsize}; allowed: bytes of an element, at least 1")
        if not self.accesses:
            raise UserError("accesses: none; allowed: at least one")
        for access in self.accesses:
            check_within(f"access {access.name}", access.extent, shape)
        weights = list(self.weights)
        if len(weights) != len(self.accesses):
            raise UserError(f"weights: {weights}; allowed: {len(self.accesses)}, one an access")
        if not all(0 <= w < math.inf for w in weights) or not sum(weights) > 0:
            raise UserError(f"weights: {weights}; allowed: at least 0 each, above 0 together")
        if self.max_nbytes < self.itemsize:
            raise UserError(
                f"memory_nbytes: {self.bounds.memory_nbytes}; allowed: at least an element for"
                f" each of {self.store.n_connections} connections"
            )

    @property
    def shares(self) -> Floats:
        """Weights, scaled so that their sum is 1."""
        weights = np.asarray(self.weights, np.float64)
        return np.asarray(weights / weights.sum())

    def score(self, seconds: Floats) -> Floats:
        """Weigh times by how often each access happens, or take the slowest that does."""
        if self.criterion == "worst":
            return np.asarray(seconds[..., self.shares > 0].max(axis=-1))
        return np.asarray(seconds @ self.shares)

    @property
    def max_nbytes(self) -> int:
        """Bytes of a chunk at most: as bound, and as many at once as fit in memory."""
        at_once = self.bounds.memory_nbytes // self.store.n_connections
        return min(self.bounds.max_chunk_nbytes, at_once)

    @property
    def min_nbytes(self) -> int:
        """Bytes of a chunk at least: as bound, but no more than the array or the most allowed."""
        return min(self.bounds.min_chunk_nbytes, self.max_nbytes // 2, self.nbytes // 2)

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.itemsize


def make_choice(
    pattern: AccessPattern, shape: Sequence[int], seconds: Floats, group: Sequence[int] = ()
) -> Choice:
    """Put a shape and the predicted times of some accesses together: of all, unless a group is named."""
    names = [access.name for access in pattern.accesses]
    told = {names[i]: float(seconds[i]) for i in group or range(len(names))}
    return Choice(tuple(int(c) for c in shape), told, float(pattern.score(seconds)))


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """What a store says of an array."""

    variable: str  # name in the store
    shape: Shape  # elements for each dimension
    dtype: str  # type of an element, as numpy names it
    itemsize: int  # bytes of an element
    chunk_shape: Shape | None  # elements of a chunk; None where it is stored without
    # bytes in the array over bytes stored; None where the metadata do not tell
    compression_ratio: float | None = None


def read_facts(address: str, variable: str = "") -> ArrayFacts:
    """Read the metadata of an array in a Zarr store or a netCDF-4 or HDF5 file."""
    is_file = address.endswith((".nc", ".nc4", ".h5", ".hdf5", ".he5"))
    try:
        arrays = _read_hdf5(address) if is_file else _read_zarr(address)
    except FileNotFoundError as error:  # as zarr says too where nothing is
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
    import zarr  # here, as numbers alone need no library of a format

    node = zarr.open(_reach(address), mode="r")
    if isinstance(node, zarr.Array):
        return {"array": _facts("array", node, node.shards or node.chunks)}
    return {name: _facts(name, array, array.chunks) for name, array in node.arrays() if array.shape}


def _reach(address: str) -> Any:
    """Make what zarr opens of a folder, or of an address in object storage."""
    if "://" not in address:
        if not Path(address).is_dir():
            raise FileNotFoundError(address)
        return address
    from zarr.storage import ObjectStore

    from helpers.objectstore.locations import parse_location

    return ObjectStore(parse_location(address).obstore(), read_only=True)


def _read_hdf5(address: str) -> dict[str, ArrayFacts]:
    import fsspec
    import h5py

    options = {}
    if "://" in address:
        from helpers.objectstore.locations import parse_location

        options = parse_location(address).fsspec_options()
    found: dict[str, ArrayFacts] = {}

    def visit(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset) and node.shape:
            stored = node.id.get_storage_size()
            found[name] = _facts(name, node, node.chunks, node.nbytes / stored if stored else None)

    with fsspec.open(address, "rb", **options) as file, h5py.File(file) as root:
        root.visititems(visit)
    return found
