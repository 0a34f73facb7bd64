"""How a load varies over a day, how many are at work at once, and what bursts leave of credits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from helpers.errors import UserError

__all__ = [
    "READS_PER_METERED",
    "concurrency",
    "credit_balances",
    "diurnal_curve",
    "least_stored_gb",
    "wait_probability",
]

HOURS = 24

# Bursting throughput of Amazon EFS, in its user guide and in the published study.
BASELINE_MB_PER_S_PER_GB = 0.05
LEAST_BASELINE_MB_PER_S = 1.0
READS_PER_METERED = 3.0
BURST_MB_PER_S_PER_GB = 0.1
LEAST_BURST_MB_PER_S = 100.0
CREDIT_GB_PER_GB = 2.1
LEAST_CREDIT_GB = 2100.0


def concurrency(requests_per_s: float, latency_s: float) -> float:
    """Count the requests in progress, by Little's law :cite:p:`little1961`.

    Parameters
    ----------
    requests_per_s : float
        Requests that arrive per second, on average.
    latency_s : float
        Mean seconds that one takes.

    Returns
    -------
    float
        Mean number in progress.

    Examples
    --------
    >>> concurrency(185, 0.5)
    92.5
    """
    return requests_per_s * latency_s


@lru_cache(maxsize=32)
def diurnal_curve(peak_ratio: float) -> tuple[float, ...]:
    """Spread a day's requests over its hours around one busiest hour.

    The curve is exp(k cos t), the smooth one with a single hump; k is what
    gives the peak that is asked for.

    Parameters
    ----------
    peak_ratio : float
        Rate in the busiest hour over the average, from 1 (even) to below 24 (one hour).

    Returns
    -------
    tuple of float
        Rate in each of 24 hours over the average; the busiest comes first.

    Raises
    ------
    UserError
        If no day has such a peak.

    Examples
    --------
    >>> diurnal_curve(1.0)[:2]
    (1.0, 1.0)
    >>> round(diurnal_curve(2.0)[0], 9), round(sum(diurnal_curve(2.0)), 9)
    (2.0, 24.0)
    """
    if not 1 <= peak_ratio < HOURS:
        raise UserError(f"peak_ratio is {peak_ratio!r}; allowed is a number from 1 to below 24")
    if peak_ratio == 1:
        return (1.0,) * HOURS
    low, high = 0.0, 500.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _hump(middle)[0] < peak_ratio else (low, middle)
    return _hump(low)


def _hump(k: float) -> tuple[float, ...]:
    """Make the curve for one k, with mean 1."""
    weights = [math.exp(k * (math.cos(2 * math.pi * hour / HOURS) - 1)) for hour in range(HOURS)]
    return tuple(weight * HOURS / sum(weights) for weight in weights)


def credit_balances(stored_gb: float, metered_mb_per_s: Sequence[float]) -> tuple[float, ...]:
    """Follow the burst credits of a shared file system hour by hour, from a full balance.

    Credits come in at the baseline rate of what is stored and go out with what
    is metered: writes whole, reads by a third.

    Parameters
    ----------
    stored_gb : float
        What the file system holds, GB.
    metered_mb_per_s : sequence of float
        Metered throughput in each hour, MB/s.

    Returns
    -------
    tuple of float
        Balance after each hour, GB; below 0 the file system would have throttled.

    Examples
    --------
    10 GB earn the least baseline of 1 MB/s; at 11 MB/s an hour costs 36 GB.

    >>> credit_balances(10, [11.0, 1.0])
    (2064.0, 2064.0)
    """
    earned = max(LEAST_BASELINE_MB_PER_S, BASELINE_MB_PER_S_PER_GB * stored_gb)
    full = max(LEAST_CREDIT_GB, CREDIT_GB_PER_GB * stored_gb)
    balances = []
    balance = full
    for metered in metered_mb_per_s:
        balance = min(full, balance + (earned - metered) * 3.6)
        balances.append(balance)
    return tuple(balances)


def least_stored_gb(metered_mb_per_s: Sequence[float], *, data_gb: float) -> float:
    """Find how much a bursting file system must hold so that it never throttles.

    Parameters
    ----------
    metered_mb_per_s : sequence of float
        Metered throughput in each hour of a day that repeats, MB/s.
    data_gb : float
        What it holds anyway, GB.

    Returns
    -------
    float
        GB, filled up with data that nobody needs where `data_gb` is not enough.

    Examples
    --------
    185 MB/s of reads all day are 61.7 MB/s metered:

    >>> round(least_stored_gb([185 / 3] * 24, data_gb=0.05))
    1233
    """
    low, high = data_gb, 1.0 + data_gb
    if _is_enough(low, metered_mb_per_s):
        return low
    while not _is_enough(high, metered_mb_per_s):
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if _is_enough(middle, metered_mb_per_s) else (middle, high)
    return high


def _is_enough(stored_gb: float, metered_mb_per_s: Sequence[float]) -> bool:
    """Tell whether two days in a row end as they began, without running out or hitting the ceiling."""
    if max(metered_mb_per_s) > max(LEAST_BURST_MB_PER_S, BURST_MB_PER_S_PER_GB * stored_gb):
        return False
    balances = credit_balances(stored_gb, [*metered_mb_per_s, *metered_mb_per_s])
    is_lasting = balances[-1] >= balances[HOURS - 1] * (1 - 1e-12)
    return is_lasting and min(balances) >= 0


def wait_probability(n_servers: int, load: float) -> float:
    """Compute the probability that all servers are busy, by Erlang's C formula.

    Parameters
    ----------
    n_servers : int
        Servers, at least 1.
    load : float
        Mean number of busy servers, below `n_servers`.

    Returns
    -------
    float
        From 0 to 1.

    Examples
    --------
    One server busy half of the time makes half of the arrivals wait:

    >>> wait_probability(1, 0.5)
    0.5
    """
    blocked = 1.0
    for n in range(1, n_servers + 1):
        blocked = load * blocked / (n + load * blocked)
    return blocked / (1 - load / n_servers * (1 - blocked))
