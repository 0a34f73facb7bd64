"""What storing and reading cost, and after how many reads a rewriting has paid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from helpers.errors import UserError
from helpers.models.accesses import Floats


@dataclass(frozen=True, slots=True)
class Prices:
    """What storing and reading costs, in one currency.

    Parameters
    ----------
    storage_per_gb_month : float
        Price of keeping 1 GB, 1e9 bytes, for a month.
    get_per_1000 : float
        Price of a thousand requests.
    egress_per_gb : float
        Price of reading 1 GB out of the store.
    waiting_per_hour : float
        Price of an hour in which a reader waits: the machine's, or a person's.
    """

    storage_per_gb_month: float
    get_per_1000: float = 0.0
    egress_per_gb: float = 0.0
    waiting_per_hour: float = 0.0

    def __post_init__(self) -> None:
        """Refuse negative prices."""
        for name in self.__dataclass_fields__:
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"{name}: {getattr(self, name)!r}; allowed: at least 0, and finite")

    def of_read(self, seconds: Any, n_requests: Any, nbytes: Any) -> Floats:
        """Price reads.

        Parameters
        ----------
        seconds, n_requests, nbytes : float or array
            Time, requests and stored bytes of each read.

        Returns
        -------
        ndarray of float
            In the currency of the prices.

        Examples
        --------
        >>> prices = Prices(0.023, get_per_1000=0.4, waiting_per_hour=36)
        >>> round(float(prices.of_read(10, 1000, 0)), 2)
        0.5
        """
        return np.asarray(
            np.asarray(seconds) * (self.waiting_per_hour / 3600)
            + np.asarray(n_requests) * (self.get_per_1000 / 1000)
            + np.asarray(nbytes) * (self.egress_per_gb / 1e9),
            np.float64,
        )

    def of_month(self, stored_nbytes: float, n_copies: int) -> float:
        """Price keeping copies for a month.

        Parameters
        ----------
        stored_nbytes : float
            Bytes of one copy in the store.
        n_copies : int
            Copies kept.

        Returns
        -------
        float
            In the currency of the prices.

        Examples
        --------
        >>> round(Prices(0.02).of_month(1e12, 2), 6)
        40.0
        """
        return self.storage_per_gb_month * stored_nbytes / 1e9 * n_copies


def payback_reads(
    cost_s: float, before_s: Mapping[str, float], after_s: Mapping[str, float]
) -> float:
    """Compute after how many reads of each kind, equally mixed, a rewriting has paid.

    Parameters
    ----------
    cost_s : float
        Seconds that rewriting took.
    before_s, after_s : mapping of str to float
        Seconds of each kind of read, before and after.

    Returns
    -------
    float
        Reads; infinite if reads gain nothing.

    Raises
    ------
    UserError
        If the two name other reads.

    Examples
    --------
    >>> payback_reads(100, {"series": 11, "slice": 1}, {"series": 1, "slice": 1})
    20.0
    """
    if set(before_s) != set(after_s) or not before_s:
        raise UserError(f"after_s: {', '.join(after_s)}; allowed: {', '.join(before_s)}")
    gain_s = sum(before_s[name] - after_s[name] for name in before_s) / len(before_s)
    return cost_s / gain_s if gain_s > 0 else math.inf
