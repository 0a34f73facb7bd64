"""What a model adds to a profile: stragglers, and what a new connection costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from helpers.errors import UserError
from helpers.models.transfer import Network
from helpers.netem.profiles import Profile, check_number, network_of

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


def connect(profile: Profile, rtt_s: float | None = None) -> Network:
    """Turn a profile into a network in which new connections cost what they do.

    A round trip that is not given is the profile's, or is guessed: 1 ms, and what the first byte
    takes longer than the 30 ms of a region. TCP and TLS 1.3 take one each, and the window of slow
    start begins with ten segments (RFC 6928), where the profile does not say otherwise.

    Examples
    --------
    A first byte of 90 ms: two round trips of 61 ms, and none more for what one window holds.

    >>> from helpers.netem.profiles import FirstByte
    >>> round(connect(Profile("far", FirstByte(0.09, 0.2))).new_connection_s(14_000), 3)
    0.122
    """
    first = profile.first_byte_s
    guessed_s = 0.0 if first is None else 1e-3 + max(0.0, first.median_s - 0.03)
    trip_s = (profile.round_trip_s or guessed_s) if rtt_s is None else rtt_s
    trips = 2.0 if profile.setup_round_trips is None else profile.setup_round_trips
    window = profile.initial_window_nbytes or _WINDOW_NBYTES
    given = {"setup_s": trips * trip_s, "round_trip_s": trip_s, "initial_window_nbytes": window}
    return replace(network_of(profile), **given)
