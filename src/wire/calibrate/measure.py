"""The measuring of a store; each request is counted before it is made, and made once."""

from __future__ import annotations

import asyncio
import math
import os
import random
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, LocalStore, S3Store

from wire.bed.locations import Location, parse_location
from wire.calibrate.figures import (
    MOST_CONNECTIONS,
    N_LANES,
    N_PIECES,
    N_STREAMS,
    SMALL_NBYTES,
    Lane,
    MeasurementPlan,
    Observations,
    accepted_per_s,
    lane_nbytes,
    rate_together,
)
from wire.deadline import deadline
from wire.errors import UserError, cut

if TYPE_CHECKING:
    from obstore.store import RetryConfig

_FAILURES = (BaseError, OSError, ValueError)  # a time-out is an OSError
PATIENCE_S = 20.0  # for one request
_WRITING_S = 120.0
_WRITTEN_NBYTES = 32_000_000
_LEAST_OBJECT_NBYTES = 1_000_000
_ONCE: RetryConfig = {"max_retries": 0}  # a hidden second try would break the caps

_PAUSES_S = (0.1, 0.3, 1.0)  # of a connection that is asked to slow down, as clients make them
_GIVE_UP = 10  # failures in a row after which nothing more is asked
MOST_WAITED_S = 120.0  # for requests that failed in the end: a store may stall on one in ten
_WINDOW_S = 1.0  # for which bandwidth is looked at, if bytes suffice
_DELAYS = 5  # and for so many times p95, so that connections whose first bytes are late overlap


def _refuse(why: str) -> UserError:
    return UserError("store", why, "a store that answers within the caps")


@dataclass(slots=True)
class Purse:
    """What may be asked for, and what was."""

    max_requests: int
    max_nbytes: int
    n_requests: int = 0
    nbytes: int = 0  # sent by the store

    def spend(self, n_requests: int, nbytes: int = 0) -> None:
        """Count requests and bytes that are about to be asked for, or refuse them."""
        n, n_bytes = self.n_requests + n_requests, self.nbytes + nbytes
        if n > self.max_requests or n_bytes > self.max_nbytes:
            raise _refuse("the caps are reached")
        self.n_requests, self.nbytes = n, n_bytes


@dataclass(frozen=True, slots=True)
class Target:
    """The object that is read, and the client that reads it."""

    client: S3Store | GCSStore | AzureStore | LocalStore
    key: str
    nbytes: int


@contextmanager
def open_target(address: str, purse: Purse, prefix: str) -> Iterator[Target]:
    """Reach an object: one that is there, or one that is written."""
    if prefix:
        with _write_object(parse_location(address) / prefix.strip("/"), purse) as target:
            yield target
    else:
        yield _find_object(parse_location(address), purse)


def _refuse_redirects(place: Location, purse: Purse) -> None:
    """Refuse a store that leads elsewhere, and count what this asks for."""
    purse.spend(*place.refuse_redirects(PATIENCE_S))


def _find_object(place: Location, purse: Purse) -> Target:
    client, nbytes = replace(place, prefix="").obstore(_ONCE), 0
    if place.prefix:
        _refuse_redirects(place, purse)
        purse.spend(1)
        with _telling(place.url), suppress(FileNotFoundError):
            nbytes = obstore.head(client, place.prefix)["size"]
    if nbytes < _LEAST_OBJECT_NBYTES:
        problem = f"it has {nbytes} bytes" if nbytes else "no object is there"
        raise UserError(
            "store",
            f"{place.url}: {problem}",
            f"an object of at least {_LEAST_OBJECT_NBYTES / 1e6:g} MB, or --write PREFIX",
        )
    return Target(client, place.prefix, nbytes)


@contextmanager
def _write_object(folder: Location, purse: Purse) -> Iterator[Target]:
    """Write an object of 32 MB into a folder, and remove it in the end."""
    purse.spend(2)  # the removal too, which is a POST: no cap may prevent it
    place = folder / f"wire-calibrate-{secrets.token_hex(4)}"
    client = replace(folder, prefix="").obstore(_ONCE)
    _refuse_redirects(place, purse)
    with _telling(place.url, _WRITING_S):
        obstore.put(client, place.prefix, os.urandom(_WRITTEN_NBYTES), use_multipart=False)
    try:
        yield Target(client, place.prefix, _WRITTEN_NBYTES)
    finally:
        with _telling(place.url):
            obstore.delete(client, place.prefix)


@contextmanager
def _telling(url: str, patience_s: float = 0) -> Iterator[None]:
    """Say in one line what a store refuses, and wait for it no longer than this."""
    try:
        with deadline(patience_s := patience_s or PATIENCE_S):
            yield
    except UserError:
        raise
    except _FAILURES as error:
        raise UserError(
            "store",
            f"{url}: {describe_failure(error, patience_s)}",
            "a store that answers, and credentials that it takes",
        ) from error


def describe_failure(error: Exception, patience_s: float = 0) -> str:
    """Say in a few words how a request failed.

    Examples
    --------
    >>> describe_failure(OSError("GET in 1 ms - Server returned non-2xx status code: 503 Slow Down: "))
    'it answers 503 Slow Down'
    """
    text = " ".join(str(error).split())
    if isinstance(error, FileNotFoundError):
        return "it has no such bucket or object"
    if isinstance(error, TimeoutError):
        return f"it does not answer within {patience_s or PATIENCE_S:g} s"
    if status := re.search(r"status code: (\d{3})[: ]*([\w ]*)", text):
        return f"it answers {status[1]} {status[2]}".rstrip()
    return "it does not answer" if "error sending request" in text else cut(text)


@dataclass(frozen=True, slots=True)
class Transfer:
    """One request: when it was made and ended, what came when, or why nothing did."""

    asked_s: float
    ended_s: float
    lane: Lane = ()
    problem: str = ""

    @property
    def is_throttled(self) -> bool:
        """Whether the store asks to slow down."""
        return self.problem.startswith(("it answers 503", "it answers 429"))


@dataclass(slots=True)
class MeasuringClient:
    """Reads ranges of one object, counts what fails, and takes the parts of a calibration."""

    target: Target
    purse: Purse
    plan: MeasurementPlan
    observations: Observations = field(default_factory=Observations)
    n_in_a_row: int = 0  # failures since the last answer
    waited_s: float = 0.0  # in vain, over all
    reason: str = ""  # of the last
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    async def get(self, nbytes: int) -> Transfer:
        """Read so many bytes from anywhere in the object; nothing more once the store is given up."""
        asked_s = time.perf_counter()
        if self.n_in_a_row >= _GIVE_UP or self.waited_s >= MOST_WAITED_S:
            raise _refuse(f"it fails too often ({self.reason})")
        self.purse.spend(1, nbytes)
        start = self.rng.randrange(self.target.nbytes - nbytes + 1)
        try:
            async with asyncio.timeout(PATIENCE_S):
                lane = await self._receive(start, nbytes)
        except _FAILURES as error:
            failed = Transfer(asked_s, time.perf_counter(), (), describe_failure(error))
            self.reason = failed.problem
            if failed.is_throttled:  # which is an answer
                self.observations.n_throttled += 1
            else:
                self.n_in_a_row += 1
                self.waited_s += failed.ended_s - asked_s
            return failed
        self.n_in_a_row = 0
        return Transfer(asked_s, lane[-1][0], lane)

    async def _receive(self, start: int, nbytes: int) -> Lane:
        """Read a range; what differs from what was asked for is an error."""
        where: Any = {"range": (start, start + nbytes)}
        answer = await obstore.get_async(self.target.client, self.target.key, options=where)
        lane = [(time.perf_counter(), 0)]
        async for part in answer.stream(min(max(nbytes // 50, 1 << 16), 1 << 20)):
            lane.append((time.perf_counter(), lane[-1][1] + len(part)))
        got, size = lane[-1][1], answer.meta["size"]
        if got != nbytes or size != self.target.nbytes:
            raise ValueError(f"it sent {got} of {nbytes} bytes, of an object of {size} bytes")
        return lane

    async def ask(self, n: int, n_connections: int, per_s: float = math.inf) -> list[Transfer]:
        """Ask for small ranges, so many at a time, at a steady rate or as soon as others are answered."""
        start, lanes = time.perf_counter(), asyncio.Semaphore(n_connections)

        async def ask_one(i: int) -> Transfer:
            await asyncio.sleep(max(0.0, start + i / per_s - time.perf_counter()))
            async with lanes:
                return await self.get(SMALL_NBYTES)

        return list(await asyncio.gather(*map(ask_one, range(n))))

    async def together(self, n: int, nbytes: int) -> float | None:
        """Measure the MB/s of connections that read at once; None if one of them failed."""

        async def read() -> Lane | None:
            lane: list[tuple[float, int]] = []
            while (had := lane[-1][1] if lane else 0) < nbytes:
                for pause_s in (*_PAUSES_S, 0.0):  # asked again where the store asks to slow down
                    transfer = await self.get(min(nbytes - had, self.target.nbytes))
                    if not transfer.is_throttled:
                        break
                    await asyncio.sleep(pause_s * self.rng.uniform(0.5, 1.5))
                if transfer.problem:
                    return None
                lane += [(s, had + got) for s, got in transfer.lane]
            return lane

        lanes = await asyncio.gather(*(read() for _ in range(n)))
        whole = [lane for lane in lanes if lane is not None]
        return rate_together(whole) / 1e6 if len(whole) == n else None

    async def measure(self) -> Observations:
        """Take all parts, or say why there is nothing whole."""
        observed = self.observations
        await self.ask(N_LANES, N_LANES)  # which open connections
        delays = await self.ask(self.plan.n_delays - N_LANES, N_LANES)
        observed.delays_s = [
            transfer.lane[0][0] - transfer.asked_s for transfer in delays if not transfer.problem
        ]
        await self._measure_bandwidth()
        await self._measure_rate()
        observed.decode_mb_per_s, observed.chunk_ms = measure_decoding(), measure_chunk_ms()
        if not observed.is_whole(self.plan):
            raise _refuse(f"too few answers ({self.reason})")
        return observed

    async def _measure_bandwidth(self) -> None:
        """Read bodies on one connection, the first of which tells how long others may be; then on several."""
        rate, wanted = None, _LEAST_OBJECT_NBYTES
        for _ in range(N_STREAMS):
            nbytes = min(wanted, self.plan.stream_nbytes, self.target.nbytes)
            transfers = await self.together(1, nbytes)
            if rate is not None and transfers is not None:
                self.observations.streams_mb_per_s.append(transfers)
            rate = transfers or rate
            wanted = int(1e6 * _WINDOW_S * rate) if rate else wanted
        window_s = max(
            _WINDOW_S, _DELAYS * float(np.quantile(self.observations.delays_s or [0.0], 0.95))
        )
        for n in self.plan.together_nbytes:
            if self.observations.has_growth_ended or not self.observations.streams_mb_per_s:
                return
            nbytes = lane_nbytes(self.observations, self.plan, n, window_s=window_s)
            # no more than its requests can bring
            rate = await self.together(n, min(nbytes, N_PIECES * self.target.nbytes))
            if rate is not None:
                self.observations.together_mb_per_s[n] = rate

    async def _measure_rate(self) -> None:
        """Ask as fast as answers come; where some are refused, then at twice what was let through."""
        n_first = self.plan.n_rate // 2
        n_rest = self.plan.n_rate - n_first
        n_connections = min(MOST_CONNECTIONS, max(N_LANES, n_first // 2))
        transfers = await self.ask(n_first, n_connections)
        rate, limit = _answered_per_s(transfers), _find_limit(transfers)
        if rate and any(transfer.is_throttled for transfer in transfers):
            more = await self.ask(n_rest, n_rest, 2 * (limit or rate))
            self.observations.accepted_per_s = _find_limit(more) or limit
        elif rate:
            more = await self.ask(n_rest, n_connections)
            rate, self.observations.accepted_per_s = _answered_per_s(more), _find_limit(more)
        self.observations.answered_per_s = rate or None


def _answered_per_s(transfers: Sequence[Transfer]) -> float:
    """Count the requests a second that brought what was asked for."""
    ends = [transfer.ended_s for transfer in transfers if not transfer.problem]
    return (
        len(ends) / (max(ends) - min(transfer.asked_s for transfer in transfers)) if ends else 0.0
    )


def _find_limit(transfers: Sequence[Transfer]) -> float | None:
    answered = [transfer for transfer in transfers if transfer.is_throttled or not transfer.problem]
    return accepted_per_s([(transfer.asked_s, transfer.is_throttled) for transfer in answered])


def measure_chunk_ms() -> float:
    """Measure how many milliseconds zarr takes for a chunk whatever its bytes: small ones, in memory."""
    import zarr
    from obstore.store import MemoryStore
    from zarr.storage import ObjectStore

    n = 500
    array: Any = zarr.create_array(ObjectStore(MemoryStore()), data=np.arange(8 * n), chunks=(8,))
    taken_s = list[float]()
    for _ in range(4):  # the first of which imports what it needs
        start = time.perf_counter()
        array[:]
        taken_s.append(time.perf_counter() - start)
    return 1e3 / n * float(np.median(taken_s[1:]))


def measure_decoding() -> float:
    """Measure how many MB/s of an array one processor decodes: smooth values, Blosc with zstd."""
    from numcodecs import blosc

    blosc.use_threads = False  # as zarr has it, whose chunks are decoded side by side
    rng = np.random.default_rng(0)
    values = np.cumsum(rng.normal(0, 0.01, 1_000_000)).astype(np.float32).round(2)
    codec = blosc.Blosc(cname="zstd", clevel=5, shuffle=blosc.SHUFFLE)
    encoded, taken_s = codec.encode(values), list[float]()
    while sum(taken_s) < 0.3:
        start = time.perf_counter()
        codec.decode(encoded)
        taken_s.append(time.perf_counter() - start)
    return values.nbytes / float(np.median(taken_s)) / 1e6
