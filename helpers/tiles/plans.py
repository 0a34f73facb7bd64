"""Which tiles are asked for: a plan, from a seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from helpers.errors import UserError
from helpers.tiles.service import Tile


def zipf_weights(n: int, *, exponent: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Compute the popularity of n things by rank.

    Parameters
    ----------
    n : int
        Number of things, at least 1.
    exponent : float
        0 for all alike; 1 for the second half as popular as the first.

    Returns
    -------
    ndarray of float
        Probabilities, the first the largest; their sum is 1.

    Examples
    --------
    >>> (11 * zipf_weights(3, exponent=1)).round(6).tolist()
    [6.0, 3.0, 2.0]
    """
    if n < 1 or not 0 <= exponent < np.inf:
        raise UserError(
            f"zipf_exponent: {exponent!r} of {n} things; allowed: at least 0, of at least one"
        )
    weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum())


def cold_plan(names: Sequence[str], *, n_users: int) -> list[list[Tile]]:
    """Plan one tile of each map, so that each is opened once.

    Parameters
    ----------
    names : sequence of str
        Maps.
    n_users : int
        Users among which the tiles are dealt, at least 1.

    Returns
    -------
    list of list of tuple
        Tiles of each user that has any.

    Examples
    --------
    >>> [len(part) for part in cold_plan(["a", "b", "c"], n_users=2)]
    [2, 1]
    """
    tiles: list[Tile] = [(name, 1, 1, 0) for name in names]
    return _deal(tiles, n_users)


def warm_plan(
    names: Sequence[str], *, n_requests: int, n_users: int, exponent: float, seed: int
) -> list[list[Tile]]:
    """Plan requests by popularity, of maps and of their tiles.

    Tiles are the twenty of zooms 1 and 2. Which map and tile is how popular is
    drawn too, so that popularity does not follow size.

    Parameters
    ----------
    names : sequence of str
        Maps.
    n_requests : int
        Requests in all, at least 1.
    n_users : int
        Users among which they are dealt, at least 1.
    exponent : float
        Of Zipf's law, for maps and tiles alike.
    seed : int
        The plan depends on it and on the arguments alone.

    Returns
    -------
    list of list of tuple
        Tiles of each user that has any.
    """
    if n_requests < 1 or n_users < 1:
        raise UserError(
            f"n_requests: {n_requests}, n_users: {n_users}; allowed: at least 1 of each"
        )
    rng = np.random.default_rng(seed)
    places = [(z, x, y) for z in (1, 2) for x in range(2**z) for y in range(2**z)]
    maps = rng.permutation(len(names))
    order = rng.permutation(len(places))
    which = rng.choice(maps, n_requests, p=zipf_weights(len(maps), exponent=exponent))
    where = rng.choice(order, n_requests, p=zipf_weights(len(order), exponent=exponent))
    tiles = [(names[i], *places[k]) for i, k in zip(which, where, strict=True)]
    return _deal(tiles, n_users)


def _deal(tiles: Sequence[Tile], n_users: int) -> list[list[Tile]]:
    parts = [list(tiles[i::n_users]) for i in range(n_users)]
    return [part for part in parts if part]
