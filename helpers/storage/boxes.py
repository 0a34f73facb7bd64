"""Boxes drawn anywhere in an array, without a common chunk as far as there are enough."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from helpers.storage.layout import Shape

Box = tuple[slice, ...]


def draw_boxes(
    shape: Shape, extent: Shape, chunk_shape: Shape, *, n_boxes: int, seed: int
) -> tuple[list[Box], int]:
    """Draw boxes anywhere in an array, without a common chunk as far as there are enough.

    Parameters
    ----------
    shape, extent, chunk_shape : tuple of int
        Elements of the array, of a box and of a chunk.
    n_boxes : int
        Boxes wanted.
    seed : int
        Seed of the draw.

    Returns
    -------
    tuple of list and int
        Boxes, as many as wanted where there are as many places, and how many of
        them, the first, share no chunk.
    """
    rng = np.random.default_rng([seed, *extent, *chunk_shape])
    size, chunk = np.asarray(extent), np.asarray(chunk_shape)
    last = np.asarray(shape) - size
    drawn = np.unique(rng.integers(0, last + 1, (20 * n_boxes, len(shape))), axis=0)
    apart: list[NDArray[np.int64]] = []
    shared: list[NDArray[np.int64]] = []
    for start in rng.permutation(drawn):
        if len(apart) == n_boxes:
            break
        touched = apart and _share_chunk(start, np.stack(apart), size, chunk).any()
        (shared if touched else apart).append(start)
    chosen = apart + shared[: n_boxes - len(apart)]
    boxes = [
        tuple(slice(int(i), int(i + e)) for i, e in zip(start, extent, strict=True))
        for start in chosen
    ]
    return boxes, len(apart)


def _share_chunk(
    a: NDArray[np.int64], b: NDArray[np.int64], size: NDArray[np.int64], chunk: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Tell which boxes of one size have a chunk in common with `a`: a range in every dimension."""
    meet = (a // chunk <= (b + size - 1) // chunk) & (b // chunk <= (a + size - 1) // chunk)
    return np.asarray(meet.all(axis=-1))
