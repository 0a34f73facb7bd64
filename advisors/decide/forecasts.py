"""What to expect of an access: median and tail, requests and bytes, and what limits it; by the helpers' models."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisors.chunks.candidates import chunk_nbytes, predict_seconds, touched_chunks
from advisors.chunks.problem import Access, AccessPattern
from advisors.chunks.search import MODEL_ERROR
from advisors.decide.question import Question
from helpers.arrays.chunks import Shape
from helpers.models.access import IoCounts, Store, access_seconds
from helpers.models.transfer import Client, simulate

_N_CHUNKS = 100  # simulated at most: of more, the tail is narrower still
_N_SIMULATED = 1500  # chunks of all simulated reads together: some tens of milliseconds
_IN_FLIGHT = (1, 2, 4, 8, 10, 16, 32, 64, 128)  # requests of one worker that are tried
_MOST_IN_FLIGHT = 2048  # of all workers together


@dataclass(frozen=True, slots=True)
class Asked:
    """What one access asks of a layout, and how its median time is predicted."""

    n_chunks: float  # expected
    chunk_nbytes: float  # in the array
    stored_nbytes: float  # of each in the store
    predict: Callable[[Store], float]
    n_shards: float = 0.0  # 0 where chunks are objects, or parts of a file
    is_in_turn: bool = False  # whether the chunks of a shard are read one after the other

    @property
    def n_requests(self) -> float:
        """Requests: one a chunk, and one for the index of each shard."""
        return self.n_chunks + self.n_shards


def ask_chunks(
    pattern: AccessPattern, access: Access, chunk: Shape, shard: Shape | None = None
) -> Asked:
    """Expect what an access asks of chunks, or of chunks in shards."""
    alone = replace(pattern, accesses=[access], weights=[1.0])
    shapes = np.asarray([chunk], np.int64)
    shards = None if shard is None else np.asarray([shard], np.int64)

    def predict(store: Store) -> float:
        asked = replace(alone, store=store)
        return float(predict_seconds(asked, shapes, shard_shapes=shards)[0, 0])

    nbytes = float(chunk_nbytes(pattern, shapes)[0])
    return Asked(
        float(touched_chunks(pattern, access, shapes)[0]),
        nbytes,
        nbytes / pattern.store.compression_ratio,
        predict,
        0.0 if shards is None else float(touched_chunks(pattern, access, shards)[0]),
        not pattern.reads_shards_abreast,
    )


def ask_blocks(n_blocks: float, block_nbytes: float, compression: float) -> Asked:
    """Expect what an access asks of a file that is read in blocks, compressed as it is stored."""
    nbytes = block_nbytes * compression
    counts = IoCounts(n_blocks, nbytes, stored_nbytes=block_nbytes)
    return Asked(n_blocks, nbytes, block_nbytes, lambda s: float(access_seconds(s, counts)))


def ask_in_turn(store: Store, n_requests: int) -> Store:
    """Describe a store of which each chunk takes so many requests, one after the other.

    Examples
    --------
    >>> from helpers.models.transfer import Network
    >>> round(float(access_seconds(ask_in_turn(Store(Network(0.01, 0.01)), 2), IoCounts(1, 0))), 6)
    0.02
    """
    network = store.network
    waits = ("first_byte_median_s", "first_byte_p95_s", "tail_s")
    in_turn = {name: n_requests * getattr(network, name) for name in waits}
    rate = network.requests_per_s / n_requests
    return replace(store, network=replace(network, **in_turn, requests_per_s=rate))


@dataclass(frozen=True, slots=True)
class Forecast:
    """What to expect of one access."""

    access: str
    share: float  # of all accesses
    p50_s: float | None  # median and 95th percentile, once the array is open; None if unknown
    p95_s: float | None
    n_requests: float  # expected, and the bytes that they bring
    nbytes: float
    limit: str  # what the access would gain most without


def forecast(store: Store, asked: Asked, *, access: str, share: float) -> Forecast:
    """Predict one access by the model of the chunk search, and its tail by simulated reads."""
    p50_s = asked.predict(store)
    p95_s = p50_s * tail_ratio(store, asked)
    nbytes = asked.n_chunks * asked.stored_nbytes
    limit = find_limit(store, asked)
    return Forecast(access, share, p50_s, p95_s, asked.n_requests, nbytes, limit)


def tail_ratio(store: Store, asked: Asked) -> float:
    """Compute the 95th percentile over the median of simulated reads, each with its own delays.

    Examples
    --------
    >>> from helpers.models.transfer import Network
    >>> tail_ratio(Store(Network(0.01, 0.01)), ask_blocks(3, 1e6, 1))
    1.0
    """
    n_chunks = max(1, min(round(asked.n_chunks), _N_CHUNKS))
    n_abreast = min(store.n_connections, n_chunks)
    if asked.n_shards and asked.is_in_turn:
        n_abreast = min(n_abreast, max(1, round(asked.n_shards)))
    client = Client(
        asked.stored_nbytes,
        requests_per_chunk=asked.n_requests / asked.n_chunks,
        connections_per_worker=n_abreast,
        cpu_s_per_chunk=store.chunk_s + store.decode_s_per_nbyte * asked.chunk_nbytes,
    )
    seconds = [
        simulate(store.network, client, n_chunks, n_workers=1, n_cores=1, seed=seed)
        for seed in range(max(20, min(200, _N_SIMULATED // n_chunks)))
    ]
    tail_s = statistics.quantiles(seconds, n=20, method="inclusive")[-1]
    middle_s = statistics.median(seconds)
    return max(1.0, round(tail_s / middle_s, 9)) if middle_s else 1.0


def find_limit(store: Store, asked: Asked) -> str:
    """Name that without which the access would take the least time.

    Examples
    --------
    >>> from helpers.models.transfer import Network
    >>> find_limit(Store(Network(0.01, 0.01, stream_nbytes_per_s=1e9)), ask_blocks(10, 1e6, 1))
    'latency'
    """
    network = store.network
    free = {
        "latency": replace(network, first_byte_median_s=0.0, first_byte_p95_s=0.0, tail_share=0.0),
        "one stream's rate": replace(network, stream_nbytes_per_s=math.inf),
        "the link": replace(network, aggregate_nbytes_per_s=math.inf),
        "the request rate": replace(network, requests_per_s=math.inf),
    }
    seconds = {name: asked.predict(replace(store, network=one)) for name, one in free.items()}
    seconds["processors"] = asked.predict(replace(store, chunk_s=0.0, decode_s_per_nbyte=0.0))
    return min(seconds, key=seconds.__getitem__)


def share_out(question: Question, asked: Asked, n_workers: int, n_each: int) -> Store:
    """Describe the workers that an access keeps busy: no more than it has chunks."""
    n_busy = min(n_workers, max(1, math.floor(asked.n_chunks)))
    return question.machine(n_workers * n_each, n_busy)


def choose_flight(
    question: Question, reads: Sequence[Asked], shares: Sequence[float]
) -> tuple[int, int]:
    """Choose the fewest workers, and then requests in flight of each, that are about as fast as any.

    About is within the model's own error; what all of them decode at once fits in memory.
    """
    most_nbytes = max(asked.chunk_nbytes for asked in reads)
    timed: dict[tuple[int, int], float] = {}
    for n_workers in (2**i for i in range(question.cores.bit_length())):
        for n_each in _IN_FLIGHT:
            n_all = n_workers * n_each
            is_much = n_all > _MOST_IN_FLIGHT or n_all * most_nbytes > question.memory_gb * 1e9
            if is_much and timed:
                break
            parts = zip(shares, reads, strict=True)
            timed[n_workers, n_each] = sum(
                share * asked.predict(share_out(question, asked, n_workers, n_each))
                for share, asked in parts
            )
    least = min(timed.values())
    return min(pair for pair, seconds in timed.items() if seconds <= least * (1 + MODEL_ERROR))
