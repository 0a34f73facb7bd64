"""What a model adds to a profile: stragglers, and what a new connection costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from helpers.errors import UserError
from helpers.netem.profiles import Profile, check_number

_WINDOW_NBYTES = 14_600  # of a new connection: ten segments (RFC 6928)


@dataclass(frozen=True, slots=True)
class Tail:
    """Stragglers: the slowest `share` of first bytes follow a power law with exponent `alpha`."""

    share: float = 0.05
    alpha: float = math.inf  # without end: the log-normal distribution goes on

    def __post_init__(self) -> None:
        """Refuse what is no tail, or one whose mean is infinite."""
        check_number("tail share", self.share, high=0.5, is_open=True)
        if not self.alpha > 1:
            raise UserError(f"tail alpha: {self.alpha!r}; allowed: above 1")


def fit_tail(ratios: npt.ArrayLike, share: float = 0.05) -> Tail:
    """Fit the tail of times, each over the median of its kind, by Hill's estimator.

    Examples
    --------
    Of ten thousand quantiles of a power law with exponent 3:

    >>> quantiles = (np.arange(10_000) + 0.5) / 10_000
    >>> round(fit_tail((1 - quantiles) ** (-1 / 3)).alpha, 1)
    3.0
    """
    values = np.sort(np.asarray(ratios, dtype=float))
    n = max(2, round(share * len(values)))
    if len(values) <= n or not 0 < values[0] <= values[-1] < math.inf:
        raise UserError(f"ratios: {len(values)} values; allowed: more, all above 0 and finite")
    return Tail(share, 1 / float(np.log(values[-n:] / values[-n - 1]).mean()))


def guess_rtt_s(profile: Profile) -> float:
    """Guess the round trip: 1 ms, and what the first byte takes longer than the 30 ms of a region."""
    first = profile.first_byte_s
    return 0.0 if first is None else 1e-3 + max(0.0, first.median_s - 0.03)


def slow_start_s(nbytes: float, rate: float, rtt_s: float) -> float:
    """Compute what the first bytes of a connection take longer than at its full rate.

    The window doubles with each round trip, until it carries the rate or the bytes have ended.

    Examples
    --------
    A window that is large enough at once costs nothing:

    >>> slow_start_s(1e6, rate=1e6, rtt_s=0.01)
    0.0
    >>> round(slow_start_s(1e9, rate=90e6, rtt_s=0.1), 2)
    0.83
    """
    if not rtt_s:
        return 0.0
    n_full = math.ceil(math.log2(max(1.0, rate * rtt_s / _WINDOW_NBYTES)))
    n_rounds = min(n_full, math.log2(nbytes / _WINDOW_NBYTES + 1))
    return max(0.0, n_rounds * rtt_s - _WINDOW_NBYTES * (2**n_rounds - 1) / rate)
