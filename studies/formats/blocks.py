"""Blocks of Dask over stored chunks: equal to them, a multiple of them, and unaligned."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from helpers.arrays.readers import READERS
from helpers.arrays.stores import StoredArray
from helpers.errors import UserError
from helpers.objectstore.locations import Location
from studies.formats.formats import Read

Extents = tuple[int, ...]
Cut = Callable[[Extents, Extents], Extents]
"""From the shapes of an array and of its chunks to that of a block."""


def as_stored(shape: Extents, chunk_shape: Extents) -> Extents:
    """Cut an array into blocks of one stored chunk."""
    return chunk_shape


def multiply(shape: Extents, chunk_shape: Extents) -> Extents:
    """Cut an array into blocks of twice a stored chunk in each dimension, where there is room.

    Examples
    --------
    >>> multiply((8, 20, 320), (1, 5, 320))
    (2, 10, 320)
    """
    return tuple(min(2 * c, n) for n, c in zip(shape, chunk_shape, strict=True))


def misalign(shape: Extents, chunk_shape: Extents) -> Extents:
    """Cut an array into blocks half as long again as a stored chunk, in the first dimension that can.

    Examples
    --------
    >>> misalign((8, 20, 320), (1, 5, 320))
    (1, 7, 320)
    """
    for i, (n, c) in enumerate(zip(shape, chunk_shape, strict=True)):
        if 1 < c < n:
            return (*chunk_shape[:i], min(c + c // 2, n), *chunk_shape[i + 1 :])
    raise UserError(
        f"chunk_shape: {list(chunk_shape)} with netcdf-dask-unaligned; allowed: with an extent"
        f" above 1 and below that of array_shape {list(shape)}"
    )


def read_in(cut: Cut, reader: str) -> Callable[[Location, StoredArray, int], Read]:
    """Read as a reader of cluster scaling does, in blocks of Dask."""
    return partial(_open_in_blocks, cut=cut, open=READERS[reader].open)


def _open_in_blocks(
    folder: Location, stored: StoredArray, n_requests: int, *, cut: Cut, open: Any
) -> Read:
    """Read on as many threads as there are processors; HDF5 lets in one after the other."""
    blocks = dict(zip(stored.dimensions, cut(stored.shape, stored.chunk_shape), strict=True))
    with warnings.catch_warnings():
        # xarray says of blocks that cut chunks what is measured here
        warnings.filterwarnings("ignore", "The specified chunks separate", UserWarning)
        variable = open(folder, blocks, n_requests)[stored.variable]
    return lambda box: variable[box].to_numpy()
