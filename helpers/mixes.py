"""A mix of accesses to an array, the bounds of its chunks, and what is recommended for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from helpers.errors import UserError
from helpers.models.accesses import Store
from helpers.storage.layout import Shape, check_shape, check_within

Floats = NDArray[np.float64]
Shapes = NDArray[np.int64]
"""Candidates: one shape a row."""

Criterion = Literal["mean", "worst"]


@dataclass(frozen=True, slots=True)
class Access:
    """A box of elements, read anywhere in the array with equal chance.

    Parameters
    ----------
    name : str
        Name on the page.
    extent : tuple of int
        Elements for each dimension.
    """

    name: str
    extent: Shape


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a chunk shape must respect.

    Parameters
    ----------
    min_chunk_nbytes, max_chunk_nbytes : int
        Bytes of a chunk in the array; a small array's own bytes are enough.
    max_objects : int
        Objects in the store; what has more chunks is sharded.
    memory_nbytes : int
        Memory of a reader for the chunks that it decodes at once, and of a
        writer for one shard.
    """

    min_chunk_nbytes: int = 1
    max_chunk_nbytes: int = 100_000_000
    max_objects: int = 1_000_000
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
    """A chunk shape and what it is expected to cost.

    Parameters
    ----------
    chunk_shape : tuple of int
        Elements for each dimension.
    seconds : dict of str to float
        Predicted time of each access.
    score : float
        Their weighted mean, or the slowest, in s.
    """

    chunk_shape: Shape
    seconds: dict[str, float]
    score: float


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to store, and what else there is.

    Parameters
    ----------
    best, second : Choice
        The least predicted time; the best of the shapes that are clearly others.
    front : tuple of Choice
        No access of these is faster without another being slower, thinned to
        steps of 2 percent.
    shard_shape : tuple of int or None
        Elements for each dimension of an object that holds several chunks;
        None where chunks are objects.
    n_chunks, n_objects : int
        Of the whole array.
    """

    best: Choice
    second: Choice
    front: tuple[Choice, ...]
    shard_shape: Shape | None
    n_chunks: int
    n_objects: int

    @property
    def second_costs(self) -> float:
        """Time of the second-best over that of the best."""
        return self.second.score / self.best.score


@dataclass(frozen=True, slots=True)
class Mix:
    """An array, the accesses to it, how often each happens, and what it is read from.

    Parameters
    ----------
    shape : tuple of int
        Elements of the array for each dimension.
    itemsize : int
        Bytes of an element, at least 1.
    accesses : sequence of Access
        One or more, none larger than the array.
    weights : sequence of float
        How often each happens, in any unit; their sum is above 0.
    store : Store
        What an access meets.
    bounds : Bounds
        What a chunk shape must respect.
    criterion : {"mean", "worst"}
        Whether the weighted mean is to be least, or the slowest access that happens.
    """

    shape: Shape
    itemsize: int
    accesses: Sequence[Access]
    weights: Sequence[float]
    store: Store
    bounds: Bounds = field(default_factory=Bounds)
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
        """Weigh times by how often each access happens, or take the slowest that does.

        Parameters
        ----------
        seconds : ndarray of float
            Times, the last axis an access.

        Returns
        -------
        ndarray of float
            Without the last axis.
        """
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
