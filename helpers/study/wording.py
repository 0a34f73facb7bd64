"""Numbers and profiles in the words of a page."""

from __future__ import annotations

import math

from helpers.storage.network import Profile


def digits(value: float, *, n: int = 2) -> str:
    """Format a number with two significant digits, or `n`, without an exponent.

    Examples
    --------
    >>> digits(1234.5), digits(3.14159), digits(0.0456)
    ('1200', '3.1', '0.046')
    >>> digits(1.272, n=3)
    '1.27'
    """
    if not math.isfinite(value):
        return "not measured"
    rounded = float(f"{value:.{n}g}")
    return f"{rounded:.0f}" if abs(rounded) >= 10 ** (n - 1) else f"{rounded:.{n}g}"


def describe_profile(profile: Profile) -> str:
    """Say in one line what a profile imposes."""
    if profile.first_byte_s is None:
        return "nothing imposed"
    scale = "at full scale" if profile.scale == 1 else f"bandwidths divided by {profile.scale:g}"
    return (
        f"{1000 * profile.first_byte_s.median_s:g} ms to the first byte, {profile.stream_mb_per_s:g} MB/s a stream,"
        f" {profile.aggregate_mb_per_s:g} MB/s in all ({scale})"
    )
