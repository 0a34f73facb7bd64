"""Time of one access to a chunked array: latency, bandwidth, decoding, concurrency.

`helpers.models.transfer` simulates a read chunk by chunk. Choosing a chunk
shape asks for a million reads, so this is the same fluid in closed form, on
numbers or on arrays of numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from helpers.models.transfer import Network

Floats = NDArray[np.float64]

_LEAST_S = 1e-12  # below any clock
_N_ITERATIONS = 10  # of the mean value analysis; 200 change times by 4 % at most, mostly below 1


@dataclass(frozen=True, slots=True)
class Store:
    """What an access meets: a network, a reader's connections, and processors."""

    # time to first byte, rates of one connection and of all, requests a second
    network: Network = field(default_factory=Network)
    n_connections: int = 1  # requests in flight at most; 1 for a reader that waits for each
    start_s: float = 0.0  # seconds that an access takes before and after its requests
    chunk_s: float = 0.0  # processor seconds for each chunk, however small; chunks queue for it
    decode_s_per_nbyte: float = 0.0  # processor seconds for each byte of the array that is decoded
    compression_ratio: float = 1.0  # bytes in the array over bytes in the store
    # processor seconds for each request beside its chunk: a look into a shard's index; in a file,
    # the seek to each run of chunks
    request_s: float = 0.0
    # whether chunks lie in one file, in their order, so that neighbours are read in one go
    is_file: bool = False
    # processor seconds for each byte in the store: to inflate what compresses badly takes longer
    stored_s_per_nbyte: float = 0.0


@dataclass(frozen=True, slots=True)
class IoCounts:
    """What an access asks of a layout, or several accesses, an array an argument."""

    # chunks, or reads of an array without chunks, at least 1; expected values may be fractions
    n_chunks: Any
    chunk_nbytes: Any  # bytes of each in the array, on average
    # shards, or runs of neighbouring chunks in a file; 0 where chunks are objects
    n_shards: Any = 0.0
    # requests over the wire, where some shards are read whole; 0 stands for one a chunk and one a
    # shard
    n_requests: Any = 0.0
    # bytes of each chunk in the store, on average; 0 stands for the compression ratio of the
    # store
    stored_nbytes: Any = 0.0


def access_seconds(store: Store, counts: IoCounts, *, quantile: float = 0.5) -> Floats:
    """Predict the median time of an access, or a later quantile, from the chunks that it touches.

    Connections work side by side: each waits for the first byte, receives over a link that all
    share, and has its chunk decoded by one processor, in turn. As many chunks, or runs of them, as
    there are connections go at once, and end when the last of them does; each further one takes
    the mean time between two that come in once all are under way. Quantiles differ by the last first
    byte of those.

    Examples
    --------
    Ten chunks of 1 MB, one at a time, 10 ms and 100 MB/s: ten times 20 ms.

    >>> store = Store(Network(0.01, 0.01, stream_nbytes_per_s=100e6))
    >>> round(float(access_seconds(store, IoCounts(10, 1e6))), 6)
    0.2
    """
    n = np.asarray(counts.n_chunks, np.float64)
    stored_nbytes = np.asarray(counts.stored_nbytes, np.float64)
    if not np.any(stored_nbytes):
        stored_nbytes = np.asarray(counts.chunk_nbytes, np.float64) / store.compression_ratio
    has_shards, has_requests = np.any(counts.n_shards), np.any(counts.n_requests)
    n_jobs = np.minimum(np.asarray(counts.n_shards, np.float64), n) if has_shards else n
    n_requests = counts.n_requests if has_requests else n + (n_jobs if has_shards else 0.0)
    # what a chunk costs: its call, its bytes in the array, and its bytes in the store
    decode_s = store.decode_s_per_nbyte * np.asarray(counts.chunk_nbytes, np.float64)
    cpu_s = store.chunk_s + decode_s + store.stored_s_per_nbyte * stored_nbytes
    network, abreast = store.network, np.minimum(store.n_connections, n_jobs)
    job = _Job(
        network=network,
        in_turn=np.asarray(n_requests / n_jobs, np.float64),
        n_chunks=np.asarray(n / n_jobs, np.float64),
        nbytes=np.asarray(n * stored_nbytes / n_jobs, np.float64),
        cpu_s=np.asarray(n / n_jobs * cpu_s + (store.request_s if has_shards else 0.0), np.float64),
    )
    wave_s = np.maximum(job.wave_s(abreast, 0.5), job.wave_s(abreast, quantile))
    found = wave_s + (n_jobs - abreast) * job.apart_s(abreast)
    return np.asarray(store.start_s + found, np.float64)


@dataclass(frozen=True, slots=True)
class _Job:
    """What a connection does before it is free again: a chunk, or the chunks of a shard."""

    network: Network
    in_turn: Floats  # requests, each after the last
    n_chunks: Floats  # that are decoded in turn
    nbytes: Floats  # over the wire, of all chunks
    cpu_s: Floats  # of the only processor, for all chunks

    @property
    def alone_s(self) -> Floats:
        """What its bodies take if none is received beside them."""
        fastest = min(self.network.stream_nbytes_per_s, self.network.aggregate_nbytes_per_s)
        return np.asarray(self.nbytes / fastest, np.float64)

    def wave_s(self, n: Floats, quantile: float) -> Floats:
        """Expect so many that begin at once: the later come in, the fewer are left to wait for.

        Bodies end as far apart as they began, the last of them when all have come through the
        link; then their last chunks queue for the processor, which has had the others by then.
        """
        network = self.network
        first_s = _delay_s(network, n, n, self.in_turn)
        last_s = _delay_s(network, 1.0, n, self.in_turn, quantile)
        at_link_s = first_s + n * self.nbytes / network.aggregate_nbytes_per_s
        at_rate_s = first_s + n * self.in_turn / network.requests_per_s + self.alone_s
        received_s = np.maximum.reduce([last_s + self.alone_s, at_link_s, at_rate_s])
        queued_s = np.maximum(first_s - last_s + (n - 1) * self.cpu_s / self.n_chunks, 0.0)
        ends_s = received_s + self.cpu_s + queued_s
        return np.asarray(np.maximum(ends_s, first_s + n * self.cpu_s), np.float64)

    def apart_s(self, n: Floats) -> Floats:
        """Expect the time between two that end, where so many are always under way.

        Mean value analysis of a closed network of queues (Reiser and Lavenberg 1980), as Schweitzer
        approximates it: one that comes finds at the link and at the processor what the others
        have there in the mean. A link is no queue before its streams fill it.
        """
        network, others = self.network, 1 - 1 / n
        wait_s = self.in_turn * network.first_byte_mean_s
        shared_s = self.nbytes / network.aggregate_nbytes_per_s
        bounds_s = (shared_s, self.cpu_s, self.in_turn / network.requests_per_s, _LEAST_S)
        least_s = np.maximum.reduce(np.broadcast_arrays(*bounds_s))
        receiving = decoding = np.zeros_like(least_s)  # jobs that are there, in the mean
        apart_s = least_s
        for _ in range(_N_ITERATIONS):
            receive_s = np.maximum(self.alone_s, shared_s * (1 + receiving * others))
            decode_s = self.cpu_s * (1 + decoding * others)
            apart_s = np.maximum(least_s, (wait_s + receive_s + decode_s) / n)
            receiving, decoding = receive_s / apart_s, decode_s / apart_s
        return np.asarray(apart_s, np.float64)


def _delay_s(
    network: Network, rank: Floats | float, n: Floats, in_turn: Floats, quantile: float = 0.5
) -> Floats:
    """Expect the median of one of n sums of first bytes in turn: rank 1 is the longest of them.

    A sum of log-normal delays is taken as log-normal, of the same mean and variance; the median
    of an order statistic by its approximation of a third (Hyndman and Fan 1996). Another
    quantile, of the longest alone, is exact.
    """
    if network.first_byte_median_s == 0:
        return np.zeros(np.broadcast_shapes(np.shape(n), np.shape(in_turn)))
    at = (n - rank + 2 / 3) / (n + 1 / 3) if quantile == 0.5 else quantile ** (1 / n)
    z = ndtri(at)
    variance = np.log1p(math.expm1(network.first_byte_sigma**2) / in_turn)  # of the logarithm
    median_s = in_turn * network.first_byte_mean_s * np.exp(-variance / 2)
    return np.asarray(median_s * np.exp(np.sqrt(variance) * z), np.float64)
