"""The measuring of a store, step by step; each request is counted before it is made, and made once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import fsspec.asyn
import numpy as np
import obstore

from advisors.calibrate.plan import (
    BATCH,
    MOST_CONNECTIONS,
    N_LANES,
    SMALL_NBYTES,
    Caps,
    Lane,
    Seen,
    Step,
    accepted_per_s,
    lane_nbytes,
    quantile,
    rate_together,
)
from advisors.calibrate.target import (
    FAILURES,
    LEAST_OBJECT_NBYTES,
    PATIENCE_S,
    Target,
    tell_failure,
)
from helpers.cli import check_interrupt

T = TypeVar("T")

PAUSES_S = (0.1, 0.3, 1.0)  # of a connection that is asked to slow down, as clients make them
GIVE_UP = 10  # failures in a row after which nothing more is asked
MOST_WAITED_S = 120.0  # for requests that failed in the end: a store may stall on one in ten
WINDOW_S = 1.0  # for which bandwidth is looked at, if bytes suffice
_DELAYS = 5  # and for so many times p95, so that connections whose first bytes are late overlap


class CapReachedError(Exception):
    """The next request would be more than was allowed."""


@dataclass(slots=True)
class Purse:
    """What may be asked for, and what was."""

    caps: Caps
    n_requests: int = 0
    nbytes: int = 0  # sent by the store

    def spend(self, n_requests: int, nbytes: int = 0) -> None:
        """Count requests and bytes that are about to be asked for, or refuse them."""
        if not self.allows(n_requests, nbytes):
            raise CapReachedError
        self.n_requests, self.nbytes = self.n_requests + n_requests, self.nbytes + nbytes

    def allows(self, n_requests: int, nbytes: int) -> bool:
        """Tell whether so much more is within the caps."""
        n, n_bytes = self.n_requests + n_requests, self.nbytes + nbytes
        return n <= self.caps.max_requests and n_bytes <= self.caps.max_nbytes


@dataclass(frozen=True, slots=True)
class Transfer:
    """One request: when it was made, when what came, or why nothing did."""

    asked_s: float
    lane: Lane = ()
    problem: str = ""
    ended_s: float = 0.0

    @property
    def is_throttled(self) -> bool:
        """Whether the store asks to slow down."""
        return self.problem.startswith(("it answers 503", "it answers 429"))


@dataclass(slots=True)
class Client:
    """Reads ranges of one object, counts what fails, and takes the steps of a calibration."""

    target: Target
    purse: Purse
    seen: Seen  # whose counts of failures grow
    n_in_a_row: int = 0  # failures since the last answer
    waited_s: float = 0.0  # in vain, over all
    reason: str = ""  # of the last
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    @property
    def is_gone(self) -> bool:
        """Whether the store has failed too often to ask on."""
        return self.n_in_a_row >= GIVE_UP or self.waited_s >= MOST_WAITED_S

    async def get(self, nbytes: int) -> Transfer:
        """Read so many bytes from anywhere in the object."""
        asked_s = time.perf_counter()
        if self.is_gone:
            return Transfer(asked_s, problem=self.reason)
        self.purse.spend(1, nbytes)
        try:
            async with asyncio.timeout(PATIENCE_S):
                lane = await self._receive(
                    self.rng.randrange(self.target.nbytes - nbytes + 1), nbytes
                )
        except FAILURES as error:
            return self._note(Transfer(asked_s, (), tell_failure(error), time.perf_counter()))
        self.n_in_a_row = 0
        return Transfer(asked_s, lane, "", lane[-1][0])

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

    def _note(self, failed: Transfer) -> Transfer:
        """Count a request that failed; to be asked to slow down is an answer."""
        self.reason = failed.problem
        if failed.is_throttled:
            self.seen.n_throttled += 1
        else:
            self.seen.n_failed += 1
            self.n_in_a_row += 1
            self.waited_s += failed.ended_s - failed.asked_s
        return failed

    async def get_patiently(self, nbytes: int) -> Transfer:
        """Read so many bytes, and ask again after a pause where the store asks to slow down."""
        for pause_s in PAUSES_S:
            one = await self.get(nbytes)
            if not one.is_throttled:
                return one
            await asyncio.sleep(pause_s * self.rng.uniform(0.5, 1.5))
        return await self.get(nbytes)

    async def delays(self, n: int) -> list[float]:
        """Measure the time to the first byte of small ranges, in seconds, a few at a time."""

        async def ask(n_each: int) -> list[Transfer]:
            return [await self.get(SMALL_NBYTES) for _ in range(n_each)]

        lanes = await asyncio.gather(*(ask(len(range(i, n, N_LANES))) for i in range(N_LANES)))
        return [one.lane[0][0] - one.asked_s for lane in lanes for one in lane if not one.problem]

    async def together(self, n: int, nbytes: int) -> float | None:
        """Measure the MB/s of connections that read at once; None if one of them failed."""

        async def read() -> Lane | None:
            lane: list[tuple[float, int]] = []
            while (had := lane[-1][1] if lane else 0) < nbytes:
                one = await self.get_patiently(min(nbytes - had, self.target.nbytes))
                if one.problem:
                    return None
                lane += [(s, had + got) for s, got in one.lane]
            return lane

        lanes = await asyncio.gather(*(read() for _ in range(n)))
        whole = [lane for lane in lanes if lane is not None]
        return rate_together(whole) / 1e6 if len(whole) == n else None

    async def burst(self, n: int) -> list[Transfer]:
        """Ask for small ranges, on each of some connections as soon as the last is answered."""
        turns, found = iter(range(n)), list[Transfer]()

        async def ask() -> None:
            for _ in turns:
                found.append(await self.get(SMALL_NBYTES))

        await asyncio.gather(*(ask() for _ in range(min(MOST_CONNECTIONS, max(N_LANES, n // 2)))))
        return found

    async def paced(self, n: int, per_s: float) -> list[Transfer]:
        """Ask for small ranges at a steady rate, answered or not."""
        start = time.perf_counter()

        async def ask(i: int) -> Transfer:
            await asyncio.sleep(max(0.0, start + i / per_s - time.perf_counter()))
            return await self.get(SMALL_NBYTES)

        return list(await asyncio.gather(*map(ask, range(n))))

    def run(self, steps: Sequence[Step]) -> str:
        """Take the steps; say why some could not be taken, if so."""
        works = {"delays": self._delays, "stream": self._stream, "together": self._together,
                 "requests": self._requests}  # fmt: skip
        self.seen.decode_mb_per_s, self.seen.chunk_ms = measure_decoding(), measure_chunk_ms()
        for step in (step for step in steps if step.kind != "find"):
            check_interrupt()
            try:
                works[step.kind](step)
            except CapReachedError:
                return f"the caps left too little for: {step.title}"
            if self.is_gone:
                return f"it fails too often ({self.reason})"
        lacking = ", ".join(step.title for step in steps if not self.seen.has(step))
        return f"too few answers for: {lacking} ({self.reason})" if lacking else ""

    def _do(
        self, n: int, nbytes: int, work: Callable[..., Coroutine[Any, Any, T]], *given: Any
    ) -> T:
        """Do a piece of work, unless what it may ask for is more than is left."""
        if not self.purse.allows(n, nbytes or n * SMALL_NBYTES):
            raise CapReachedError
        done: T = fsspec.asyn.sync(fsspec.asyn.get_loop(), work, *given)
        return done

    def _delays(self, step: Step) -> None:
        """Measure in batches; the first requests open connections and are not used."""
        self._do(N_LANES, 0, self.delays, N_LANES)
        n_left = step.n_requests - N_LANES
        while n_left > 0 and not self.is_gone:
            n = min(BATCH, n_left)
            self.seen.delays_s += self._do(n, 0, self.delays, n)
            n_left -= n

    def _stream(self, step: Step) -> None:
        """Read bodies on one connection; the first tells how long the others may be."""
        rate: float | None = None
        for _ in range(step.n_requests):
            wanted = LEAST_OBJECT_NBYTES if rate is None else int(1e6 * rate * WINDOW_S)
            nbytes = min(wanted, step.nbytes // step.n_requests, self.target.nbytes)
            found = self._do(1, nbytes, self.together, 1, nbytes)
            if rate is not None and found is not None:
                self.seen.streams_mb_per_s.append(found)
            rate = found or rate

    def _together(self, step: Step) -> None:
        """Read on several connections, unless more of them bring nothing more."""
        if self.seen.has_growth_ended or not self.seen.streams_mb_per_s:
            return
        # no more than its requests can bring
        most = step.n_requests // step.n_connections * self.target.nbytes
        window_s = WINDOW_S
        if self.seen.delays_s:
            window_s = max(window_s, _DELAYS * quantile(self.seen.delays_s, 0.95)[0])
        nbytes = min(lane_nbytes(self.seen, step, window_s=window_s), most)
        n = step.n_connections
        rate = self._do(step.n_requests, n * nbytes, self.together, n, nbytes)
        if rate is not None:
            self.seen.together_mb_per_s[n] = rate

    def _requests(self, step: Step) -> None:
        """Ask as fast as answers come; where some are refused, then at twice what was let through."""
        n_first = step.n_requests // 2
        n_rest = step.n_requests - n_first
        found = self._do(n_first, 0, self.burst, n_first)
        rate = _answered_per_s(found)
        if rate and any(one.is_throttled for one in found):
            guess = _find_limit(found)
            more = self._do(n_rest, 0, self.paced, n_rest, 2 * (guess or rate))
            self.seen.accepted_per_s = _find_limit(more) or guess
        elif rate:
            more = self._do(n_rest, 0, self.burst, n_rest)
            rate, self.seen.accepted_per_s = _answered_per_s(more), _find_limit(more)
        self.seen.answered_per_s = rate or None


def _answered_per_s(transfers: Sequence[Transfer]) -> float:
    """Count the requests a second that brought what was asked for."""
    good = [one for one in transfers if not one.problem]
    if not good:
        return 0.0
    return len(good) / (max(one.ended_s for one in good) - min(one.asked_s for one in transfers))


def _find_limit(transfers: Sequence[Transfer]) -> float | None:
    told = [one for one in transfers if one.is_throttled or not one.problem]
    return accepted_per_s([(one.asked_s, one.is_throttled) for one in told])


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
