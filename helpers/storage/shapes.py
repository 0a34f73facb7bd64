"""Shapes as tuples of ints, and the refusal of those that no array has."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.errors import UserError

Shape = tuple[int, ...]


def check_shape(name: str, shape: Sequence[int]) -> Shape:
    """Refuse a shape without dimensions, or with an extent below 1.

    Parameters
    ----------
    name : str
        Name of the parameter, for the message.
    shape : sequence of int
        Elements for each dimension.

    Returns
    -------
    tuple of int
        The same shape.

    Raises
    ------
    UserError
        If it is empty, or an extent is no whole number of at least 1.
    """
    whole = all(not isinstance(n, bool) and n == int(n) and n >= 1 for n in shape)
    if not shape or not whole:
        raise UserError(
            f"{name}: {list(shape)}; allowed: one or more extents, each a whole number above 0"
        )
    return tuple(int(n) for n in shape)


def check_within(name: str, part: Sequence[int], shape: Shape) -> Shape:
    """Refuse extents that an array does not have.

    Parameters
    ----------
    name : str
        Name of the parameter, for the message.
    part : sequence of int
        Elements for each dimension, of a chunk or of an access.
    shape : tuple of int
        Elements of the array.

    Returns
    -------
    tuple of int
        The same extents.

    Raises
    ------
    UserError
        If the lengths differ, or an extent is below 1 or above the array's.
    """
    if len(part) != len(shape):
        raise UserError(f"{name}: {list(part)}; allowed: {len(shape)} extents, as the array has")
    checked = check_shape(name, part)
    if any(p > n for p, n in zip(checked, shape, strict=True)):
        raise UserError(f"{name}: {list(part)}; allowed: at most the array's, {list(shape)}")
    return checked
