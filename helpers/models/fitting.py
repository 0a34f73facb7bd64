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
from helpers.models.accesses import Floats, Store, access_seconds

_COSTS = ("start_s", "chunk_s", "decode_s_per_nbyte", "request_s")
_LEAST_S = 1e-12  # below any clock, and the least decoding of a byte


@dataclass(frozen=True, slots=True)
class Observation:
    """A measured access.

    Parameters
    ----------
    seconds : float
        Median time, above 0.
    n_chunks : float
        Chunks touched, or what an array without chunks is read by.
    chunk_nbytes : float
        Bytes of a chunk in the array.
    n_shards : float
        Shards, or runs of chunks in a file, touched; 0 where there are none.
    n_requests : float
        Requests in all, 0 where they follow from the others.
    """

    seconds: float
    n_chunks: float
    chunk_nbytes: float
    n_shards: float = 0.0
    n_requests: float = 0.0


def predict_observation(store: Store, seen: Observation) -> float:
    """Predict the time of an access that was observed.

    Parameters
    ----------
    store : Store
        What the access meets.
    seen : Observation
        Its counts; its seconds do not matter.

    Returns
    -------
    float
        Seconds.

    Examples
    --------
    >>> predict_observation(Store(chunk_s=0.5), Observation(1.0, 4, 0))
    2.0
    """
    more: dict[str, Any] = {
        "n_shards": seen.n_shards or None,
        "n_requests": seen.n_requests or None,
    }
    return float(access_seconds(store, seen.n_chunks, seen.chunk_nbytes, **more))


def fit_store(
    store: Store, observations: Sequence[Observation], *, start_s: float | None = None
) -> Store:
    """Fit what an access, a chunk, a byte and a shard cost in processor time.

    The least absolute error of logarithms, softened near 0, no cost below 0: twice
    as long counts as much as half as long. Network and connections stay as given.

    Parameters
    ----------
    store : Store
        What is known already; its four costs are replaced.
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
    >>> seen = [Observation(1.1, 10, 0), Observation(2.1, 20, 0), Observation(0.2, 1, 0)]
    >>> round(fit_store(Store(), seen).chunk_s, 3)
    0.1
    """
    if len(observations) < 2 or not all(each.seconds > 0 for each in observations):
        raise UserError(
            f"observations: {len(observations)}; allowed: two or more, of times above 0"
        )
    nothing: dict[str, Any] = dict.fromkeys(_COSTS, 0.0)
    bare = replace(store, **nothing)
    seconds = np.asarray([each.seconds for each in observations])

    def errors(logs: Floats) -> Floats:
        costs = _with_costs(bare, np.exp(logs), start_s)
        found = np.asarray([predict_observation(costs, each) for each in observations])
        return np.asarray(np.log(found) - np.log(seconds))

    first = _guess(bare, observations, seconds)
    least = math.log(_LEAST_S)
    most = math.log(10 * seconds.max())
    start = np.clip(np.log(np.maximum(first, 1e-10)), least + 1, most - 1)
    found = least_squares(errors, start, bounds=(least, most), loss="soft_l1", f_scale=0.1)
    kept = np.exp(found.x)
    return _with_costs(bare, np.where(kept > 10 * _LEAST_S, kept, 0.0), start_s)


def _with_costs(bare: Store, costs: Floats, start_s: float | None) -> Store:
    """Put costs into a store; a known start stands above a fitted one."""
    named: dict[str, Any] = dict(zip(_COSTS, map(float, costs), strict=True))
    return replace(bare, **named | ({} if start_s is None else {"start_s": start_s}))


def _guess(bare: Store, observations: Sequence[Observation], seconds: Floats) -> Floats:
    """Start from the least squares of what the network leaves unexplained."""
    scale = 1e6  # bytes and counts alike of order 1, for the solver's sake
    costs = np.asarray(
        [(1.0, o.n_chunks, o.n_chunks * o.chunk_nbytes / scale, o.n_shards) for o in observations]
    )
    on_wire_s = np.asarray([predict_observation(bare, each) for each in observations])
    left_s = np.maximum(seconds - on_wire_s, 0.02 * seconds)
    found = nnls(costs / seconds[:, None], left_s / seconds)[0]
    return np.asarray(found / np.asarray([1.0, 1.0, scale, 1.0]))
