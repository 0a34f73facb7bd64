"""The balance rule: the chunk shape that a line and the hyperplane across it touch equally often."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from helpers.errors import UserError
from helpers.storage.shapes import Shape, check_shape


def balanced_extents(
    shape: Sequence[int], itemsize: int, chunk_nbytes: int, *, axis: int = 0
) -> tuple[float, ...]:
    """Compute the balanced chunk extents before they are rounded.

    With N chunks in all, a line along `axis` and the hyperplane across it
    touch equally many, the square root of N; the other dimensions share the
    hyperplane's equally. Where that would cut a dimension finer than its
    elements, the dimension is cut into elements and the others share the rest.
    The rule is that of Rew (2013), for any number of dimensions.

    Parameters
    ----------
    shape : sequence of int
        Elements of the array for each dimension.
    itemsize : int
        Bytes of an element, at least 1.
    chunk_nbytes : int
        Bytes of a chunk, at least `itemsize` and at most the array's.
    axis : int
        Dimension along which lines are read.

    Returns
    -------
    tuple of float
        Elements for each dimension, each at least 1.

    Raises
    ------
    UserError
        If an argument is out of bounds.

    Examples
    --------
    >>> [round(extent, 2) for extent in balanced_extents((98128, 277, 349), 4, 2**22)]
    [1031.68, 28.4, 35.78]
    """
    shape = _check_balance(shape, itemsize, chunk_nbytes, axis)
    n_chunks = max(1.0, math.prod(shape) * itemsize / chunk_nbytes)
    others = [i for i in range(len(shape)) if i != axis]
    if not others:
        return (shape[axis] / n_chunks,)
    across = math.prod(shape[i] for i in others)
    along = min(max(math.sqrt(n_chunks), n_chunks / across), float(shape[axis]))
    counts = _share({i: shape[i] for i in others}, n_chunks / along) | {axis: along}
    return tuple(max(1.0, shape[i] / counts[i]) for i in range(len(shape)))


def _check_balance(shape: Sequence[int], itemsize: int, chunk_nbytes: int, axis: int) -> Shape:
    checked = check_shape("shape", shape)
    if itemsize < 1:
        raise UserError(f"itemsize: {itemsize}; allowed: bytes of an element, at least 1")
    array_nbytes = math.prod(checked) * itemsize
    if not itemsize <= chunk_nbytes <= array_nbytes:
        raise UserError(
            f"chunk_nbytes: {chunk_nbytes}; allowed: from {itemsize}, an element,"
            f" to {array_nbytes}, the array"
        )
    if not 0 <= axis < len(checked):
        raise UserError(f"axis: {axis}; allowed: 0 to {len(checked) - 1}")
    return checked


def _share(extents: dict[int, int], n_chunks: float) -> dict[int, float]:
    """Cut dimensions into `n_chunks` together, equally but none finer than its elements."""
    counts: dict[int, float] = {}
    for left, (i, extent) in zip(
        range(len(extents), 0, -1), sorted(extents.items(), key=lambda item: item[1]), strict=True
    ):
        counts[i] = min(float(extent), n_chunks ** (1 / left))
        n_chunks /= counts[i]
    return counts


def balanced_chunk_shape(
    shape: Sequence[int], itemsize: int, chunk_nbytes: int, *, axis: int = 0
) -> Shape:
    """Choose the chunk shape that a line and the hyperplane across it touch equally often.

    Of the shapes that round `balanced_extents` down or up in each dimension,
    it is the largest that is not above `chunk_nbytes`.

    Parameters
    ----------
    shape : sequence of int
        Elements of the array for each dimension.
    itemsize : int
        Bytes of an element, at least 1.
    chunk_nbytes : int
        Most bytes of a chunk, at least `itemsize` and at most the array's.
    axis : int
        Dimension along which lines are read.

    Returns
    -------
    tuple of int
        Elements for each dimension.

    Raises
    ------
    UserError
        If an argument is out of bounds.

    Examples
    --------
    >>> balanced_chunk_shape((98128, 277, 349), 4, 2**22)
    (1032, 29, 35)
    >>> balanced_chunk_shape((98128, 277, 349), 4, 4096)
    (33, 5, 6)
    """
    extents = balanced_extents(shape, itemsize, chunk_nbytes, axis=axis)
    # Rounding may have moved a whole extent to either side: its floor must be safe.
    low = [max(1, math.floor(extent * (1 - 1e-9))) for extent in extents]
    choices = [(c, c + 1) if c < n else (c,) for c, n in zip(low, shape, strict=True)]
    fitting = [
        candidate
        for candidate in itertools.product(*choices)
        if math.prod(candidate) * itemsize <= chunk_nbytes
    ]
    return max(fitting, key=math.prod)
