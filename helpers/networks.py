"""From a network that is imposed to the one that models take."""

from __future__ import annotations

import math

from helpers.models.fluid import Network
from helpers.storage.network import Profile


def network_of(profile: Profile) -> Network:
    """Turn a profile into what the request model takes.

    Parameters
    ----------
    profile : Profile
        What is imposed; a figure that is None bounds nothing.

    Returns
    -------
    Network
        The same, in bytes and seconds.
    """

    def rate(mb_per_s: float | None) -> float:
        return math.inf if mb_per_s is None else 1e6 * mb_per_s

    first = profile.first_byte_s
    return Network(
        first.median_s if first else 0.0,
        first.p95_s if first else 0.0,
        rate(profile.stream_mb_per_s),
        rate(profile.aggregate_mb_per_s),
        math.inf if profile.requests_per_s is None else profile.requests_per_s,
    )
