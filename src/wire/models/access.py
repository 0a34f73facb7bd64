"""One access to a chunked array: the chunks that it touches, and the time that these take.

A *selection* asks for a box of elements; a store returns whole chunks. What a
selection costs is decided by how many chunks its box touches, which is a
product over dimensions, and so is its expected value when the box lies
anywhere with equal chance. Time is latency, bandwidth, decoding and concurrency:
`wire.models.transfer` simulates a read chunk by chunk. Choosing a chunk
shape asks for a million reads, so this is the same fluid in closed form, on
numbers or on arrays of numbers.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from wire.models.transfer import Network

Shape = tuple[int, ...]


def balanced_extents(shape: Sequence[int], itemsize: int, chunk_nbytes: int) -> tuple[float, ...]:
    """Compute the balanced chunk extents before they are rounded, by Rew's rule of 2013.

    With N chunks in all, a line along the first dimension and the hyperplane across it
    touch equally many, the square root of N; the other dimensions share the
    hyperplane's equally. Where that would cut a dimension finer than its
    elements, the dimension is cut into elements and the others share the rest.
    """
    n_chunks = max(1.0, math.prod(shape) * itemsize / chunk_nbytes)
    n, *inner = shape
    if not inner:
        return (n / n_chunks,)
    along = min(max(math.sqrt(n_chunks), n_chunks / math.prod(inner)), float(n))
    counts = [along, *_share(inner, n_chunks / along)]
    return tuple(max(1.0, extent / count) for extent, count in zip(shape, counts, strict=True))


def _share(extents: Sequence[int], n_chunks: float) -> list[float]:
    """Cut dimensions into `n_chunks` together, equally but none finer than its elements."""
    counts = [1.0] * len(extents)
    for n_before, i in enumerate(sorted(range(len(extents)), key=extents.__getitem__)):
        counts[i] = min(float(extents[i]), n_chunks ** (1 / (len(extents) - n_before)))
        n_chunks /= counts[i]
    return counts


def balanced_chunk_shape(shape: Sequence[int], itemsize: int, chunk_nbytes: int) -> Shape:
    """Choose the chunk shape that a line and the hyperplane across it touch equally often.

    Of the shapes that round `balanced_extents` down or up in each dimension, it is the largest that
    is not above `chunk_nbytes`, which are at least `itemsize` and at most the array's.

    Examples
    --------
    >>> balanced_chunk_shape((98128, 277, 349), 4, 2**22)
    (1032, 29, 35)
    >>> balanced_chunk_shape((98128, 277, 349), 4, 4096)
    (33, 5, 6)
    """
    extents = balanced_extents(shape, itemsize, chunk_nbytes)
    # Rounding may have moved a whole extent to either side: its floor must be safe.
    low = [max(1, math.floor(extent * (1 - 1e-9))) for extent in extents]
    choices = [(c, c + 1) if c < n else (c,) for c, n in zip(low, shape, strict=True)]
    fitting = [
        candidate
        for candidate in itertools.product(*choices)
        if math.prod(candidate) * itemsize <= chunk_nbytes
    ]
    return max(fitting, key=math.prod)


def count_chunks(shape: Sequence[int], chunk_shape: Sequence[int]) -> int:
    """Count the chunks of an array, clipped ones included."""
    return math.prod(-(-n // c) for n, c in zip(shape, chunk_shape, strict=True))


def chunks_touched(selection: Sequence[slice], chunk_shape: Sequence[int]) -> int:
    """Count the chunks that a selection touches.

    Examples
    --------
    Elements 3 to 8 lie in the second, third and first chunk of four each:

    >>> chunks_touched((slice(3, 9),), (4,))
    3
    """
    return math.prod(
        (s.stop - 1) // c - s.start // c + 1 for s, c in zip(selection, chunk_shape, strict=True)
    )


def expected_touched(extent: int, chunk_extent: Any, n: int) -> Any:
    """Compute how many chunks a range touches on average, in one dimension.

    The range starts anywhere with equal chance: at 0, 1, … or ``n - extent``.
    In closed form, from the sum of ``floor(i / c)`` over the first i.

    Examples
    --------
    Two elements of four in chunks of two: starts 0, 1 and 2 touch 1, 2 and 1.

    >>> round(expected_touched(2, 2, 4), 3)
    1.333
    """

    def floors(stop: int) -> Any:
        """Sum ``i // chunk_extent`` for i below `stop`."""
        whole, rest = divmod(stop, chunk_extent)
        return chunk_extent * whole * (whole - 1) // 2 + rest * whole

    n_starts = n - extent + 1
    first, last = floors(n_starts), floors(n) - floors(extent - 1)
    return 1 + (last - first) / n_starts


Hyperslab = tuple[slice, ...]

# By zarr's defaults the chunks of a shard come in one request up to so far apart, and up to so many bytes.
_MOST_APART_NBYTES, _MOST_TOGETHER_NBYTES = 2**20, 2**24
_INDEX_NBYTES = 16  # of a shard's index, for each of its chunks


@dataclass(frozen=True, slots=True)
class ObjectIo:
    """What a box asks of an object store."""

    n_chunks: int  # chunks that are decoded
    n_indices: int  # shards whose index comes first, because only some of their chunks are asked
    n_fetches: int  # requests for chunks; all that wait for an index begin after it
    fetched_nbytes: int  # stored bytes of these, with what lies between joined chunks
    index_nbytes: int  # bytes of an index

    @property
    def n_requests(self) -> int:
        """Requests in all."""
        return self.n_indices + self.n_fetches


def count_object_io(
    box: Hyperslab,
    chunk_shape: Shape,
    shard_shape: Shape | None,
    shape: Shape,
    *,
    nbytes: int,
) -> ObjectIo:
    """Count what a box asks of an object store, as zarr reads chunks and shards from 3.3 on.

    A shard of which every chunk is touched comes whole; of any other comes its index, and then
    its chunks in runs, with what lies between them. At the edge of the array, of extents `shape`,
    a shard holds fewer chunks, which lie side by side. `nbytes` are those of a chunk in the store.

    Examples
    --------
    Chunks of two elements, four in a shard: of the first shard three come in one request after
    its index, the second comes in part too.

    >>> found = count_object_io((slice(2, 12),), (2,), (8,), (16,), nbytes=8)
    >>> found.n_chunks, found.n_requests, found.fetched_nbytes
    (5, 4, 40)
    """
    n_chunks = chunks_touched(box, chunk_shape)
    if shard_shape is None:
        return ObjectIo(n_chunks, 0, n_chunks, n_chunks * nbytes, 0)
    chunks_per_shard = tuple(s // c for s, c in zip(shard_shape, chunk_shape, strict=True))
    n_all, n_indices, n_fetches, fetched_nbytes = math.prod(chunks_per_shard), 0, 0, 0
    alike = [
        Counter(_chunks_by_shard(*dimension))
        for dimension in zip(box, chunk_shape, chunks_per_shard, shape, strict=True)
    ]
    for combined in itertools.product(*(counted.items() for counted in alike)):
        n_shards = math.prod(n for _, n in combined)
        touched, held = zip(*(part for part, _ in combined), strict=True)
        fetches = [nbytes * n_all]
        if math.prod(map(len, touched)) < n_all:
            n_indices += n_shards
            fetches = _fetches(touched, _number(chunks_per_shard, held), nbytes)
        n_fetches += n_shards * len(fetches)
        fetched_nbytes += n_shards * sum(fetches)
    return ObjectIo(n_chunks, n_indices, n_fetches, fetched_nbytes, _INDEX_NBYTES * n_all)


def _chunks_by_shard(
    part: slice, chunk: int, chunks_per_shard: int, extent: int
) -> Iterator[tuple[range, int]]:
    """List the chunks, in one dimension, that a range touches in each shard, by place, and how many it holds."""
    first, last, n = part.start // chunk, (part.stop - 1) // chunk, -(-extent // chunk)
    for shard in range(first // chunks_per_shard, last // chunks_per_shard + 1):
        touched = range(
            max(first - shard * chunks_per_shard, 0),
            min(last - shard * chunks_per_shard, chunks_per_shard - 1) + 1,
        )
        yield touched, min(chunks_per_shard, n - shard * chunks_per_shard)


def _fetches(touched: Sequence[range], places: NDArray[np.int64], nbytes: int) -> list[int]:
    """List the bytes of each request for some chunks of a shard, of so many bytes each."""
    starts = nbytes * np.sort(places[np.ix_(*touched)].ravel())
    spans = [[int(starts[0])] * 2]  # start and end
    for start in map(int, starts):
        is_near = start - spans[-1][1] <= _MOST_APART_NBYTES
        if is_near and start + nbytes - spans[-1][0] <= _MOST_TOGETHER_NBYTES:
            spans[-1][1] = start + nbytes
        else:
            spans.append([start, start + nbytes])
    return [end - start for start, end in spans if end > start]


@lru_cache(256)
def _number(shape: Shape, held: Shape) -> NDArray[np.int64]:
    """Give the place of each chunk that a shard holds: Morton order, the first dimension fastest."""
    index, n = np.indices(held), len(shape)
    bits = range(max(shape).bit_length())
    keys = sum(((index[d] >> b) & 1) << (b * n + d) for b in bits for d in range(n))
    return np.argsort(np.argsort(np.ravel(keys))).reshape(held)


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
    # seconds that client and server take for each request next to the network
    wait_s: float = 0.0
    # whether all connections but the first are new, as of a program that has opened the array
    is_cold: bool = False


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
    # what a chunk costs: its call, and its bytes in the array
    cpu_s = store.chunk_s + store.decode_s_per_nbyte * np.asarray(counts.chunk_nbytes, np.float64)
    network, abreast = store.network, np.minimum(store.n_connections, n_jobs)
    job = _Job(
        network=network,
        in_turn=np.asarray(n_requests / n_jobs, np.float64),
        n_chunks=np.asarray(n / n_jobs, np.float64),
        nbytes=np.asarray(n * stored_nbytes / n_jobs, np.float64),
        cpu_s=np.asarray(n / n_jobs * cpu_s + (store.request_s if has_shards else 0.0), np.float64),
        wait_s=store.wait_s,
    )
    wave_s = np.maximum(job.wave_s(abreast, 0.5), job.wave_s(abreast, quantile))
    seconds = wave_s + (n_jobs - abreast) * job.apart_s(abreast)
    if store.is_cold:
        seconds = seconds + np.where(abreast > 1, _connect_s(network, job.nbytes), 0.0)
    return np.asarray(store.start_s + seconds, np.float64)


@dataclass(frozen=True, slots=True)
class _Job:
    """What a connection does before it is free again: a chunk, or the chunks of a shard."""

    network: Network
    in_turn: Floats  # requests, each after the last
    n_chunks: Floats  # that are decoded in turn
    nbytes: Floats  # over the wire, of all chunks
    cpu_s: Floats  # of the only processor, for all chunks
    wait_s: float  # that client and server take for each request

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
        waited_s = self.in_turn * self.wait_s
        first_s = waited_s + _delay_s(network, n, n, self.in_turn)
        last_s = waited_s + _delay_s(network, 1.0, n, self.in_turn, quantile)
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
        network, missing_share = self.network, 1 - 1 / n
        wait_s = self.in_turn * (network.first_byte_mean_s + self.wait_s)
        shared_s = self.nbytes / network.aggregate_nbytes_per_s
        bounds_s = (shared_s, self.cpu_s, self.in_turn / network.requests_per_s, _LEAST_S)
        least_s = np.maximum.reduce(np.broadcast_arrays(*bounds_s))
        receiving = decoding = np.zeros_like(least_s)  # jobs that are there, in the mean
        apart_s = least_s
        for _ in range(_N_ITERATIONS):
            receive_s = np.maximum(self.alone_s, shared_s * (1 + receiving * missing_share))
            decode_s = self.cpu_s * (1 + decoding * missing_share)
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
    position = (n - rank + 2 / 3) / (n + 1 / 3) if quantile == 0.5 else quantile ** (1 / n)
    z = ndtri(position)
    variance = np.log1p(math.expm1(network.first_byte_sigma**2) / in_turn)  # of the logarithm
    median_s = in_turn * network.first_byte_mean_s * np.exp(-variance / 2)
    tail = np.maximum(z - _NORMAL_P95, 0.0) * network.tail_slope / np.sqrt(in_turn)
    return np.asarray(median_s * np.exp(np.sqrt(variance) * z + tail), np.float64)


_NORMAL_P95 = float(ndtri(0.95))
_MOST_ROUNDS = 40  # of a window that doubles: more than any body has


def _connect_s(network: Network, nbytes: Floats) -> Floats:
    """Compute by how much longer bodies take that are the first on new connections.

    This is `Network.new_connection_s` for arrays of bodies.
    """
    window, rest = network.initial_window_nbytes, np.asarray(nbytes, np.float64)
    waited_s = np.full(rest.shape, network.setup_s)
    for _ in range(_MOST_ROUNDS):
        round_s = network.round_trip_s - window / network.stream_nbytes_per_s
        if not round_s > 0:
            break
        waited_s = waited_s + np.where(rest > window, round_s, 0.0)
        rest, window = rest - window, 2 * window
    return waited_s
