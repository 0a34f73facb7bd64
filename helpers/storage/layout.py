"""Chunk arithmetic on tuples of ints: shapes, chunks touched, over-read.

A *selection* asks for a box of elements; a store returns whole chunks. What a
selection costs is decided by how many chunks its box touches, which is a
product over dimensions, and so is its expected value when the box lies
anywhere with equal chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from helpers.errors import UserError
from helpers.storage.balance import balanced_chunk_shape, balanced_extents
from helpers.storage.shapes import Shape, check_shape, check_within

__all__ = [
    "Shape",
    "balanced_chunk_shape",
    "balanced_extents",
    "check_shape",
    "check_within",
    "chunks_touched",
    "contiguous_runs",
    "count_chunks",
    "expected_chunks",
    "expected_touched",
    "read_amplification",
]


def count_chunks(shape: Sequence[int], chunk_shape: Sequence[int]) -> int:
    """Count the chunks of an array, clipped ones included.

    Parameters
    ----------
    shape, chunk_shape : sequence of int
        Elements for each dimension.

    Returns
    -------
    int
        At least 1.

    Examples
    --------
    >>> count_chunks((10, 7), (4, 7))
    3
    """
    return math.prod(-(-n // c) for n, c in zip(shape, chunk_shape, strict=True))


def chunks_touched(selection: Sequence[slice], chunk_shape: Sequence[int]) -> int:
    """Count the chunks that a selection touches.

    Parameters
    ----------
    selection : sequence of slice
        Half-open index ranges, one for each dimension, unit step.
    chunk_shape : sequence of int
        Elements for each dimension.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    UserError
        If the lengths differ, or a range is empty or has another step.

    Examples
    --------
    Elements 3 to 8 lie in the second, third and first chunk of four each:

    >>> chunks_touched((slice(3, 9),), (4,))
    3
    """
    _check_selection(selection, chunk_shape)
    return math.prod(
        (s.stop - 1) // c - s.start // c + 1 for s, c in zip(selection, chunk_shape, strict=True)
    )


def _check_selection(selection: Sequence[slice], chunk_shape: Sequence[int]) -> None:
    if len(selection) != len(chunk_shape):
        raise UserError(f"selection: {len(selection)} ranges; allowed: {len(chunk_shape)}")
    for s in selection:
        if (
            s.start is None
            or s.stop is None
            or not 0 <= s.start < s.stop
            or s.step not in (None, 1)
        ):
            raise UserError(f"selection: {s}; allowed: START < STOP, from 0, in steps of 1")


def expected_touched(extent: int, chunk_extent: Any, n: int) -> Any:
    """Compute how many chunks a range touches on average, in one dimension.

    The range starts anywhere with equal chance: at 0, 1, … or ``n - extent``.
    In closed form, from the sum of ``floor(i / c)`` over the first i.

    Parameters
    ----------
    extent : int
        Elements of the range, at most `n`.
    chunk_extent : int or array of int
        Elements of a chunk, at least 1 and at most `n`.
    n : int
        Elements of the dimension.

    Returns
    -------
    float or array of float
        At least 1.

    Examples
    --------
    Two elements of four in chunks of two: starts 0, 1 and 2 touch 1, 2 and 1.

    >>> round(expected_touched(2, 2, 4), 3)
    1.333
    """

    def floors(stop: int) -> Any:
        """Sum ``i // chunk_extent`` for i below `stop`."""
        whole, rest = divmod(stop, chunk_extent)
        return chunk_extent * whole * (whole - 1) // 2 + rest * whole

    n_starts = n - extent + 1
    first, last = floors(n_starts), floors(n) - floors(extent - 1)
    return 1 + (last - first) / n_starts


def expected_chunks(
    shape: Sequence[int], extent: Sequence[int], chunk_shape: Sequence[int]
) -> float:
    """Compute how many chunks a box touches on average, wherever it lies.

    Dimensions are independent, so it is the product of `expected_touched`.

    Parameters
    ----------
    shape, extent, chunk_shape : sequence of int
        Elements of the array, of the box and of a chunk, for each dimension.

    Returns
    -------
    float
        At least 1.

    Raises
    ------
    UserError
        If the box or the chunk is not within the array.

    Examples
    --------
    >>> expected_chunks((100, 8), (100, 1), (10, 4))
    10.0
    """
    whole = check_shape("shape", shape)
    box = check_within("extent", extent, whole)
    chunk = check_within("chunk_shape", chunk_shape, whole)
    return float(math.prod(map(expected_touched, box, chunk, whole)))


def read_amplification(selection: Sequence[slice], chunk_shape: Sequence[int]) -> float:
    """Compute the elements decoded per element requested.

    A store returns whole chunks, so a selection that clips a chunk pays for
    all of it. A value of 1 means that nothing was read in vain.

    Parameters
    ----------
    selection : sequence of slice
        Half-open index ranges, one for each dimension, unit step.
    chunk_shape : sequence of int
        Elements for each dimension.

    Returns
    -------
    float
        Dimensionless ratio, at least 1.

    Raises
    ------
    UserError
        If the lengths differ, or a range is empty or has another step.

    Examples
    --------
    One row, stored in chunks ten rows deep, costs ten rows:

    >>> read_amplification((slice(0, 1), slice(0, 100)), (10, 100))
    10.0
    """
    n_requested = math.prod(s.stop - s.start for s in selection)
    n_decoded = chunks_touched(selection, chunk_shape) * math.prod(chunk_shape)
    return float(n_decoded / n_requested)


def contiguous_runs(selection: Sequence[slice], shape: Sequence[int]) -> int:
    """Count the runs of neighbouring elements that a selection takes, in C order.

    What an array stored without chunks costs: each run is a seek.

    Parameters
    ----------
    selection : sequence of slice
        Half-open index ranges, one for each dimension, unit step.
    shape : sequence of int
        Elements of the array for each dimension, the last the fastest.

    Returns
    -------
    int
        At least 1.

    Examples
    --------
    >>> contiguous_runs((slice(0, 5), slice(2, 4), slice(0, 7)), (9, 9, 7))
    5
    """
    _check_selection(selection, shape)
    extents = [s.stop - s.start for s in selection]
    while len(extents) > 1 and extents[-1] == shape[len(extents) - 1]:
        extents.pop()
    return math.prod(extents[:-1])
