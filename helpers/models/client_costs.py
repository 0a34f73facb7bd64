"""What a client and a server take beside the network, and its fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from helpers.errors import UserError


@dataclass(frozen=True, slots=True)
class ClientCosts:
    """What the client and the server take beside the network.

    Parameters
    ----------
    request_s : float
        Seconds for a request.
    start_s : float
        Seconds for a new client, its connection and the library's own work.
    is_assumed : bool
        Whether nothing was measured.
    """

    request_s: float = 0.0
    start_s: float = 0.0
    is_assumed: bool = field(default=False, repr=False)


TYPICAL_COSTS = ClientCosts(request_s=0.004, start_s=0.05, is_assumed=True)
"""Costs where none were fitted: an assumption, not a measurement; `fit_costs` finds those of a machine.

Without them a file object that makes thousands of requests looks too fast, and a repair that
leaves a handful looks better than it is.
"""


def fit_costs(measured: Sequence[tuple[int, float]]) -> ClientCosts:
    """Fit the client's costs to reads over a network that imposes nothing.

    Parameters
    ----------
    measured : sequence of (int, float)
        Requests and seconds of two or more reads, of few and of many requests.

    Returns
    -------
    ClientCosts
        The line through the reads of fewest and of most requests.

    Raises
    ------
    UserError
        If all have as many requests.

    Examples
    --------
    >>> fit_costs([(2, 0.25), (102, 0.75)])
    ClientCosts(request_s=0.005, start_s=0.24)
    """
    (few, few_s), (many, many_s) = min(measured), max(measured)
    if few == many:
        raise UserError(f"measured: {list(measured)}; allowed: reads of few and of many requests")
    request_s = max(0.0, (many_s - few_s) / (many - few))
    return ClientCosts(request_s, max(0.0, few_s - few * request_s))
