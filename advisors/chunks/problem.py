"""The problem: an array, how it is read and from what, and the bounds of its chunks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from helpers.arrays.chunks import Shape, count_chunks
from helpers.models.access import Store

Floats = NDArray[np.float64]
Shapes = NDArray[np.int64]
"""Candidates: one shape a row."""

Criterion = Literal["mean", "worst"]

_LARGEST = 2**31 - 1  # bytes of a chunk that codecs take


@dataclass(frozen=True, slots=True)
class Access:
    """A box of elements, read anywhere in the array with equal chance."""

    name: str  # name on the page
    extent: Shape  # elements for each dimension
    # whether it starts at multiples of its extent, as tiles of a viewer and blocks of Dask do
    is_aligned: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """How an array lies in a store."""

    chunk_shape: Shape  # elements for each dimension
    shard_shape: Shape | None = None  # of an object that holds several chunks

    @property
    def object_shape(self) -> Shape:
        """Elements of an object for each dimension."""
        return self.shard_shape or self.chunk_shape

    def count_objects(self, shape: Shape) -> int:
        """Count the objects of an array."""
        return count_chunks(shape, self.object_shape)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a layout must respect."""

    min_chunk_nbytes: int = 1  # of a chunk in the array; a small array's own bytes are enough
    max_chunk_nbytes: int = 100_000_000
    max_objects: int = 1_000_000  # of the array; with more chunks than that it is sharded
    memory_nbytes: int = 8_000_000_000  # for the chunks that are decoded at once
    # elements of an object along each dimension at most, so that an append rewrites little
    longest: Shape | None = None


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """An array, the accesses to it, how often each happens, and what it is read from."""

    shape: Shape  # elements of the array for each dimension
    itemsize: int  # bytes of an element, at least 1
    accesses: Sequence[Access]  # one or more, none larger than the array
    weights: Sequence[float]  # how often each happens, in any unit; their sum is above 0
    store: Store  # what an access meets
    bounds: Bounds = field(default_factory=Bounds)
    # whether the weighted mean is to be least, or the slowest access that happens
    criterion: Criterion = "mean"
    together: int = 1  # boxes that a program asks for at once: a batch, or variables of a file

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
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.itemsize

    @property
    def max_nbytes(self) -> int:
        """Bytes of a chunk at most: as bound, and as many at once as fit in memory."""
        at_once = self.bounds.memory_nbytes // self.store.n_connections
        return max(self.itemsize, min(self.bounds.max_chunk_nbytes, at_once, _LARGEST))

    @property
    def min_nbytes(self) -> int:
        """Bytes of a chunk at least: as bound, but no more than the array or the most allowed."""
        return min(self.bounds.min_chunk_nbytes, self.max_nbytes // 2, self.nbytes)
