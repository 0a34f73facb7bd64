"""Time of one access to a chunked array: latency, bandwidth, decoding, concurrency.

`helpers.models.requests` simulates a read chunk by chunk. Choosing a chunk
shape asks for a million reads, so this is the same fluid in closed form, on
numbers or on arrays of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls

from helpers.errors import UserError
from helpers.models.fluid import Network, check_count

Floats = NDArray[np.float64]

_NORMAL_P95 = NormalDist().inv_cdf(0.95)
_BLOM = 0.375  # the k-th of k normal variates lies near the (k - 3/8) / (k + 1/4) quantile


@dataclass(frozen=True, slots=True)
class Store:
    """What an access meets: a network, a reader's connections, and processors.

    Parameters
    ----------
    network : Network
        Time to first byte, rates of one connection and of all, requests a second.
    n_connections : int
        Requests in flight at most; 1 for a reader that waits for each.
    start_s : float
        Seconds that an access takes before and after its requests.
    chunk_s : float
        Processor seconds for each chunk, however small; chunks queue for it.
    decode_s_per_nbyte : float
        Processor seconds for each byte of the array that is decoded.
    compression_ratio : float
        Bytes in the array over bytes in the store.
    request_s : float
        Processor seconds for each request beside its chunk: a look into a shard's index.
    """

    network: Network = field(default_factory=Network)
    n_connections: int = 1
    start_s: float = 0.0
    chunk_s: float = 0.0
    decode_s_per_nbyte: float = 0.0
    compression_ratio: float = 1.0
    request_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no store has."""
        check_count("n_connections", self.n_connections)
        for name in ("start_s", "chunk_s", "decode_s_per_nbyte", "request_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"{name}: {getattr(self, name)!r}; allowed: at least 0, and finite")
        if not 0 < self.compression_ratio < math.inf:
            raise UserError(f"compression_ratio: {self.compression_ratio!r}; allowed: above 0")


def access_seconds(
    store: Store, n_chunks: Any, chunk_nbytes: Any, *, n_shards: Any | None = None
) -> Floats:
    """Predict the median time of an access from the chunks that it touches.

    Connections work side by side, each through its share of the chunks: wait
    for the first byte, receive, decode. The access cannot be shorter than its
    bytes through the link, its chunks through the processors, or its requests
    at the rate allowed. In a shard, the index comes first and chunks one
    after the other, as zarr reads them, so shards are what goes in parallel.

    Parameters
    ----------
    store : Store
        What the access meets.
    n_chunks : float or array
        Chunks touched, at least 1; expected values may be fractions.
    chunk_nbytes : float or array
        Bytes of a chunk in the array.
    n_shards : float or array, optional
        Shards touched, at least 1; none where chunks are objects.

    Returns
    -------
    ndarray of float
        Seconds.

    Examples
    --------
    Ten chunks of 1 MB, one at a time, 10 ms and 100 MB/s: ten times 20 ms.

    >>> store = Store(Network(0.01, 0.01, stream_nbytes_per_s=100e6))
    >>> round(float(access_seconds(store, 10, 1e6)), 6)
    0.2
    """
    n = np.asarray(n_chunks, np.float64)
    stored_nbytes = np.asarray(chunk_nbytes, np.float64) / store.compression_ratio
    n_jobs = n if n_shards is None else np.minimum(np.asarray(n_shards, np.float64), n)
    n_requests = n if n_shards is None else n + n_jobs
    cpu_s = (store.chunk_s + store.decode_s_per_nbyte * np.asarray(chunk_nbytes)) * n
    cpu_s = cpu_s + (0.0 if n_shards is None else store.request_s * n_jobs)
    abreast = np.minimum(store.n_connections, n_jobs)
    network = store.network
    tail_s = _slowest_of(network, abreast)
    wait_s = (n_requests / abreast - 1) * _mean_first_byte_s(network) + tail_s
    rate = np.minimum(network.stream_nbytes_per_s, network.aggregate_nbytes_per_s / abreast)
    in_turn_s = wait_s + n / abreast * stored_nbytes / rate + cpu_s / abreast
    at_link_s = tail_s + n * stored_nbytes / network.aggregate_nbytes_per_s
    at_cpu_s = tail_s + stored_nbytes / network.stream_nbytes_per_s + cpu_s
    at_rate_s = tail_s + n_requests / network.requests_per_s
    longest = np.maximum.reduce(np.broadcast_arrays(in_turn_s, at_link_s, at_cpu_s, at_rate_s))
    return np.asarray(store.start_s + longest, np.float64)


def _sigma(network: Network) -> float:
    if network.first_byte_median_s == 0:
        return 0.0
    return math.log(network.first_byte_p95_s / network.first_byte_median_s) / _NORMAL_P95


def _mean_first_byte_s(network: Network) -> float:
    return network.first_byte_median_s * math.exp(_sigma(network) ** 2 / 2)


def _slowest_of(network: Network, n: Floats) -> Floats:
    """Expect the slowest of n first bytes: what the last of parallel requests waits."""
    if network.first_byte_median_s == 0:
        return np.zeros_like(n)
    # A table over whole numbers, interpolated: the inverse of the normal is slow.
    whole = np.arange(1, int(np.ceil(n.max())) + 1)
    z = [NormalDist().inv_cdf((k - _BLOM) / (k + 1 - 2 * _BLOM)) for k in whole]
    table = network.first_byte_median_s * np.exp(_sigma(network) * np.asarray(z))
    return np.asarray(np.interp(n, whole, table), np.float64)


@dataclass(frozen=True, slots=True)
class Observation:
    """A measured access over a network that imposes nothing.

    Parameters
    ----------
    seconds : float
        Median time, above 0.
    n_chunks : float
        Chunks touched, or seeks of an array without chunks.
    chunk_nbytes : float
        Bytes of a chunk in the array.
    n_shards : float
        Shards touched, 0 where there are none.
    """

    seconds: float
    n_chunks: float
    chunk_nbytes: float
    n_shards: float = 0.0


def fit_store(store: Store, observations: Sequence[Observation]) -> Store:
    """Fit what an access, a chunk, a byte and a shard cost in processor time.

    The least error of logarithms, no cost below 0. What is imposed on the network
    later is not among the observations, so nothing predicted is fitted.

    Parameters
    ----------
    store : Store
        What is known already; its four costs are replaced.
    observations : sequence of Observation
        Measured accesses, at least two that differ.

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
    scale = 1e6  # bytes and counts alike of order 1, for the solver's sake
    costs = np.asarray(
        [(1.0, o.n_chunks, o.n_chunks * o.chunk_nbytes / scale, o.n_shards) for o in observations]
    )
    seconds = np.asarray([o.seconds for o in observations])
    first = nnls(costs / seconds[:, None], np.ones(len(seconds)))[0]
    start_s, chunk_s, scaled_s, request_s = _fit_logarithms(costs, seconds, first)
    return replace(
        store,
        start_s=start_s,
        chunk_s=chunk_s,
        decode_s_per_nbyte=scaled_s / scale,
        request_s=request_s,
    )


def _fit_logarithms(costs: Floats, seconds: Floats, first: Floats) -> list[float]:
    """Fit factors rather than differences: twice as long counts as much as half as long."""
    if np.allclose(costs @ first, seconds, rtol=1e-7):
        return [float(value) for value in first]
    floor = 1e-12  # s, below any clock
    found = least_squares(
        lambda logs: np.log(costs @ np.exp(logs)) - np.log(seconds),
        np.log(np.maximum(first, 1e-7)),
        bounds=(math.log(floor), math.log(seconds.max() * 10)),
        loss="soft_l1",
    )
    return [float(value) if value > 10 * floor else 0.0 for value in np.exp(found.x)]


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
