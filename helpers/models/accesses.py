"""Time of one access to a chunked array: latency, bandwidth, decoding, concurrency.

`helpers.models.requests` simulates a read chunk by chunk. Choosing a chunk
shape asks for a million reads, so this is the same fluid in closed form, on
numbers or on arrays of numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.errors import UserError
from helpers.models.fluid import Network, check_count

Floats = NDArray[np.float64]

COSTS = ("start_s", "chunk_s", "decode_s_per_nbyte", "request_s", "stored_s_per_nbyte")
"""What a reader's own work costs, beside the network."""

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
        Processor seconds for each request beside its chunk: a look into a shard's index;
        in a file, the seek to each run of chunks.
    is_file : bool
        Whether chunks lie in one file, in their order, so that neighbours are read in one go.
    stored_s_per_nbyte : float
        Processor seconds for each byte in the store: to inflate what compresses badly takes longer.
    """

    network: Network = field(default_factory=Network)
    n_connections: int = 1
    start_s: float = 0.0
    chunk_s: float = 0.0
    decode_s_per_nbyte: float = 0.0
    compression_ratio: float = 1.0
    request_s: float = 0.0
    is_file: bool = False
    stored_s_per_nbyte: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no store has."""
        check_count("n_connections", self.n_connections)
        for name in COSTS:
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"{name}: {getattr(self, name)!r}; allowed: at least 0, and finite")
        if not 0 < self.compression_ratio < math.inf:
            raise UserError(f"compression_ratio: {self.compression_ratio!r}; allowed: above 0")


@dataclass(frozen=True, slots=True)
class Load:
    """What an access asks of a layout, or several accesses, an array an argument.

    Parameters
    ----------
    n_chunks : float or array
        Chunks, or reads of an array without chunks, at least 1; expected values may be fractions.
    chunk_nbytes : float or array
        Bytes of each in the array, on average.
    n_shards : float or array
        Shards, or runs of neighbouring chunks in a file; 0 where chunks are objects.
    n_requests : float or array
        Requests over the wire, where some shards are read whole; 0 stands for
        one a chunk and one a shard.
    stored_nbytes : float or array
        Bytes of each chunk in the store, on average; 0 stands for the
        compression ratio of the store.
    n_longest : float or array
        Chunks read one after the other from the shard of which most are read,
        but not all; 0 where shards are alike.
    """

    n_chunks: Any
    chunk_nbytes: Any
    n_shards: Any = 0.0
    n_requests: Any = 0.0
    stored_nbytes: Any = 0.0
    n_longest: Any = 0.0


def access_seconds(store: Store, load: Load) -> Floats:
    """Predict the median time of an access from the chunks that it touches.

    Connections work side by side, each through its share of the chunks: wait
    for the first byte, receive, decode. The access cannot be shorter than its
    bytes through the link, its chunks through the processors, or its requests
    at the rate allowed. In a shard, the index comes first and chunks one
    after the other, as zarr reads them, so shards are what goes in parallel,
    and the access cannot be shorter than the longest of them.

    Parameters
    ----------
    store : Store
        What the access meets.
    load : Load
        What it asks.

    Returns
    -------
    ndarray of float
        Seconds.

    Examples
    --------
    Ten chunks of 1 MB, one at a time, 10 ms and 100 MB/s: ten times 20 ms.

    >>> store = Store(Network(0.01, 0.01, stream_nbytes_per_s=100e6))
    >>> round(float(access_seconds(store, Load(10, 1e6))), 6)
    0.2
    """
    n = np.asarray(load.n_chunks, np.float64)
    stored_nbytes = _stored_nbytes(store, load)
    has_shards, has_requests = np.any(load.n_shards), np.any(load.n_requests)
    n_jobs = np.minimum(np.asarray(load.n_shards, np.float64), n) if has_shards else n
    n_requests = load.n_requests if has_requests else n + (n_jobs if has_shards else 0.0)
    cpu_s = _cpu_s(store, load, stored_nbytes) + (store.request_s * n_jobs if has_shards else 0.0)
    abreast = np.minimum(store.n_connections, n_jobs)
    network = store.network
    in_turn = np.asarray(n_requests / n_jobs, np.float64)  # of a shard: its index, its chunks
    tail_s = _slowest_of(network, abreast, in_turn)
    wait_s = (n_jobs / abreast - 1) * in_turn * _mean_first_byte_s(network) + tail_s
    rate = np.minimum(network.stream_nbytes_per_s, network.aggregate_nbytes_per_s / abreast)
    in_turn_s = wait_s + n / abreast * stored_nbytes / rate + cpu_s / abreast
    at_link_s = tail_s + n * stored_nbytes / network.aggregate_nbytes_per_s
    at_cpu_s = tail_s + stored_nbytes / network.stream_nbytes_per_s + cpu_s
    at_rate_s = tail_s + n_requests / network.requests_per_s
    in_shard_s = _longest_shard_s(store, load, stored_nbytes)
    bounds_s = (in_turn_s, at_link_s, at_cpu_s, at_rate_s, in_shard_s)
    longest = np.maximum.reduce(np.broadcast_arrays(*bounds_s))
    return np.asarray(store.start_s + longest, np.float64)


def _stored_nbytes(store: Store, load: Load) -> Floats:
    if np.any(load.stored_nbytes):
        return np.asarray(load.stored_nbytes, np.float64)
    return np.asarray(load.chunk_nbytes, np.float64) / store.compression_ratio


def _longest_shard_s(store: Store, load: Load, stored_nbytes: Floats) -> Floats:
    """Add up the index and the chunks of the longest shard, each after a delay of its own."""
    n = np.asarray(load.n_longest, np.float64)
    if not np.any(n):
        return n
    each_s = stored_nbytes / store.network.stream_nbytes_per_s + _cpu_s_each(
        store, load, stored_nbytes
    )
    wait_s = _slowest_of(store.network, np.ones_like(n), n + 1)
    return np.asarray(np.where(n > 0, wait_s + n * each_s, 0.0), np.float64)


def _cpu_s(store: Store, load: Load, stored_nbytes: Floats) -> Floats:
    return np.asarray(_cpu_s_each(store, load, stored_nbytes) * np.asarray(load.n_chunks))


def _cpu_s_each(store: Store, load: Load, stored_nbytes: Floats) -> Floats:
    """Add up what a chunk costs: its call, its bytes in the array, and its bytes in the store."""
    decode_s = store.decode_s_per_nbyte * np.asarray(load.chunk_nbytes, np.float64)
    return np.asarray(store.chunk_s + decode_s + store.stored_s_per_nbyte * stored_nbytes)


def _sigma(network: Network) -> float:
    if network.first_byte_median_s == 0:
        return 0.0
    return math.log(network.first_byte_p95_s / network.first_byte_median_s) / _NORMAL_P95


def _mean_first_byte_s(network: Network) -> float:
    return network.first_byte_median_s * math.exp(_sigma(network) ** 2 / 2)


def _slowest_of(network: Network, n: Floats, in_turn: Floats) -> Floats:
    """Expect the slowest of n sums of first bytes in turn: what the last of them waits.

    A sum of log-normal delays is taken as log-normal, of the same mean and variance.
    """
    if network.first_byte_median_s == 0:
        return np.zeros(np.broadcast_shapes(n.shape, in_turn.shape))
    # A table over whole numbers, interpolated: the inverse of the normal is slow.
    whole = np.arange(1, int(np.ceil(n.max())) + 1)
    z = [NormalDist().inv_cdf((k - _BLOM) / (k + 1 - 2 * _BLOM)) for k in whole]
    variance = np.log1p(math.expm1(_sigma(network) ** 2) / in_turn)  # of the logarithm
    median_s = in_turn * _mean_first_byte_s(network) * np.exp(-variance / 2)
    return np.asarray(median_s * np.exp(np.sqrt(variance) * np.interp(n, whole, z)), np.float64)
