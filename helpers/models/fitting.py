"""Costs of a reader, fitted to accesses that were measured.

The network is known, because it was measured or imposed; what a reader's
processor does with a chunk, a byte and a shard is not, and is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares, nnls

from helpers.errors import UserError
from helpers.models.accesses import COSTS, Floats, Load, Store, access_seconds

_LEAST_S = 1e-12  # below any clock, and the least decoding of a byte


@dataclass(frozen=True, slots=True)
class Observation:
    """The median time of accesses that were measured.

    Parameters
    ----------
    seconds : float
        Median, above 0.
    load : Load
        What each of them asked, an array an argument; or what the only one asked.
    """

    seconds: float
    load: Load


def predict_median(store: Store, load: Load) -> float:
    """Predict the median time of accesses.

    Parameters
    ----------
    store : Store
        What the accesses meet.
    load : Load
        What each of them asks.

    Returns
    -------
    float
        Seconds.

    Examples
    --------
    >>> predict_median(Store(chunk_s=0.5), Load([2, 4, 5], 0))
    2.0
    """
    return float(np.median(access_seconds(store, load)))


def fit_store(
    store: Store, observations: Sequence[Observation], *, start_s: float | None = None
) -> Store:
    """Fit what an access, a chunk, a byte and a shard cost in processor time.

    The least absolute error of logarithms, softened near 0, no cost below 0: twice
    as long counts as much as half as long. Network and connections stay as given.
    A cost of stored bytes is fitted where the observations tell them.

    Parameters
    ----------
    store : Store
        What is known already; its costs are replaced.
    observations : sequence of Observation
        Measured accesses, at least two that differ.
    start_s : float, optional
        Seconds of an access beside its chunks, where they are known.

    Returns
    -------
    Store
        With the costs fitted.

    Raises
    ------
    UserError
        If there are fewer than two observations, or one took no time.

    Examples
    --------
    >>> seen = [Observation(s, Load(n, 0)) for s, n in ((1.1, 10), (2.1, 20), (0.2, 1))]
    >>> round(fit_store(Store(), seen).chunk_s, 3)
    0.1
    """
    if len(observations) < 2 or not all(each.seconds > 0 for each in observations):
        raise UserError(
            f"observations: {len(observations)}; allowed: two or more, of times above 0"
        )
    bare = _with_costs(store, np.zeros(len(COSTS)))
    seconds = np.asarray([each.seconds for each in observations])

    def errors(logs: Floats) -> Floats:
        costs = _with_costs(bare, np.exp(logs), start_s)
        found = np.asarray([predict_median(costs, each.load) for each in observations])
        return np.asarray(np.log(found) - np.log(seconds))

    first = _guess(bare, observations, seconds)
    least = math.log(_LEAST_S)
    most = math.log(10 * seconds.max())
    start = np.clip(np.log(np.maximum(first, 1e-10)), least + 1, most - 1)
    found = least_squares(errors, start, bounds=(least, most), loss="soft_l1", f_scale=0.1)
    kept = np.exp(found.x)
    return _with_costs(bare, np.where(kept > 10 * _LEAST_S, kept, 0.0), start_s)


def _with_costs(bare: Store, costs: Floats, start_s: float | None = None) -> Store:
    """Put costs into a store, as many as there are; a known start stands above a fitted one."""
    named: dict[str, Any] = dict(zip(COSTS, map(float, costs), strict=False))
    return replace(bare, **named | ({} if start_s is None else {"start_s": start_s}))


def _guess(bare: Store, observations: Sequence[Observation], seconds: Floats) -> Floats:
    """Start from the least squares of what the network leaves unexplained."""
    scale = 1e6  # bytes and counts alike of order 1, for the solver's sake
    loads = [each.load for each in observations]
    costs = np.asarray([[np.median(column) for column in _columns(load)] for load in loads])
    scales = np.asarray([1.0, 1.0, scale, 1.0, scale])
    if not any(np.any(load.stored_nbytes) for load in loads):
        costs, scales = costs[:, :-1], scales[:-1]
    on_wire_s = np.asarray([predict_median(bare, load) for load in loads])
    left_s = np.maximum(seconds - on_wire_s, 0.02 * seconds)
    found = nnls(costs / scales / seconds[:, None], left_s / seconds)[0]
    return np.asarray(found / scales)


def _columns(load: Load) -> tuple[Floats, ...]:
    """List what costs are multiplied by, in the order of the costs."""
    n = np.asarray(load.n_chunks, np.float64)
    nbytes, stored = n * np.asarray(load.chunk_nbytes), n * np.asarray(load.stored_nbytes)
    return np.ones(1), n, nbytes, np.asarray(load.n_shards, np.float64), stored
