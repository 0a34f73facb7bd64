"""A cluster that reads an array, event by event: up to 10,000 workers and a million chunks.

Four events make a chunk: its request is sent, its first byte comes, its last byte comes, it is
decoded. They are handled in batches, with NumPy: a million chunks are four million events, of which SimPy
takes 3.6 microseconds for each with twenty thousand processes that do nothing but wait. A batch
takes 1.9 for an event with all that is said below. These are the approximations:

- Events of a batch, a fiftieth of the slots, happen at their own times, but the rates between
  them are those of the batch's beginning. With fewer than a hundred slots a batch is one event.
- Bandwidth and cores are fluids: the connections of a worker share its link equally, and no
  connection has more than its own ceiling nor more than its fair share of the site's link.
- The scheduler is one queue: it hears of a finished task and gives out the next in `task_s`.
- Of a hedged request the first answer counts, and what the other has sent by then costs nothing.
- A connection starts slowly once, with its first chunk, and stays open.
- A read of more than `n_waves` chunks a slot goes on at the mean rate of these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from advisors.scaling.latency import Tail, connect
from helpers.errors import UserError
from helpers.models.transfer import Client, check_count
from helpers.netem.profiles import Profile, check_number

Array = npt.NDArray[np.float64]
Indexes = npt.NDArray[np.intp]

_BATCHES = 50  # of a wave
_FEWEST_CHUNKS = 40  # that are simulated, for each of the waves
_FREE = 1e18  # bytes per second of a connection that nothing limits, so that no rate is infinite
_ALMOST = 1 - 1e-9  # of a ceiling, but for rounding
_BURST_S = 0.1  # for which a store lets requests pass above its rate
# Of obstore: the first back-off, the base of their growth, the longest, and how many it takes.
_BACKOFF_S, _BASE, _LONGEST_S, MOST_TRIES = 0.1, 2.0, 15.0, 10
_TIMEOUT_S = 30.0  # after which a client asks again, so that no wait is longer

CAUSES = (
    "graph", "scheduler", "connecting", "first byte", "refusals", "stream", "worker link",
    "site link", "decoding", "no chunk left",
)  # fmt: skip
"""Where the time of a slot goes, from the call to the return."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Workers that are alike, and what they stand on."""

    n_workers: int
    cores_per_worker: float = 2.0
    n_cores: float = math.inf  # of all workers together, where they share a machine
    graph_s: float = 0.0  # seconds of submission for each task, before the first one begins
    rtt_s: float | None = None  # a round trip; None for the profile's, 0 for open connections
    hedge_after_s: float = math.inf  # a second request is sent if no byte has come by then
    tail: Tail = field(default_factory=Tail)

    def __post_init__(self) -> None:
        """Refuse a cluster that cannot be."""
        check_count("n_workers", self.n_workers)
        for name in ("cores_per_worker", "n_cores", "hedge_after_s"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name}: {getattr(self, name)!r}; allowed: above 0")
        for name in ("graph_s", "rtt_s"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class Simulated:
    """One simulated read."""

    n_workers: int
    seconds: float  # from the call to the return, graph included
    n_chunks: int
    nbytes: float
    n_simulated: int  # chunks, before the read goes on at a steady rate
    # of a chunk, from its first request to its last byte: median, 95th and 99th percentile
    chunk_s: tuple[float, float, float]
    n_requests: float  # that the store answered, hedges included
    n_hedges: float
    n_refused: float  # 503 SlowDown
    n_given_up: float  # chunks refused so often that a client would have ended the read
    shares: Mapping[str, float]  # of slot time, by `CAUSES`

    @property
    def limit(self) -> str:
        """What takes most of the time of the slots."""
        return max(self.shares, key=self.shares.__getitem__)


def simulate_cluster(
    profile: Profile,
    client: Client,
    cluster: Cluster,
    n_chunks: int,
    *,
    seed: int = 0,
    n_waves: int = 50,
) -> Simulated:
    """Simulate one read of an array by a cluster: the seed is that of first bytes and back-offs.

    Of a slot `n_waves` chunks are simulated at most; a longer read goes on at a steady rate.

    Examples
    --------
    Two workers of one connection, ten chunks of 1 MB at 100 MB/s: five times 10 ms.

    >>> fast = Profile("fast", stream_mb_per_s=100)
    >>> found = simulate_cluster(fast, Client(1e6), Cluster(2), 10)
    >>> round(found.seconds, 6), found.limit
    (0.05, 'stream')
    """
    check_count("n_chunks", n_chunks)
    check_count("n_waves", n_waves)
    if not client.chunk_nbytes > 0:
        raise UserError(f"chunk_nbytes: {client.chunk_nbytes!r}; allowed: above 0")
    n_slots = cluster.n_workers * client.connections_per_worker
    n_simulated = min(n_chunks, n_waves * max(n_slots, _FEWEST_CHUNKS))
    read = _Read(profile, client, cluster, n_simulated, np.random.default_rng(seed))
    end_s, more = read.run(), n_chunks / n_simulated
    before_s = client.start_s + cluster.graph_s * math.ceil(n_chunks / client.chunks_per_task)
    steady_s, added_s, cause = read.steady_s()
    seconds = before_s + end_s + (n_chunks - n_simulated) * steady_s
    p50, p95, p99 = (float(each) for each in np.quantile(read.chunk_s, (0.5, 0.95, 0.99)))
    spent_s = {name: more * value for name, value in read.split_s().items()}
    spent_s["graph"] = before_s * n_slots
    spent_s[cause] += (n_chunks - n_simulated) * added_s * n_slots
    # a part of a read may hold more than its share of slow chunks, so no more than all is divided
    slot_s = max(n_slots * seconds, math.fsum(spent_s.values()))
    rest = 1 - math.fsum(spent_s.values()) / slot_s  # slots that wait for the end
    return Simulated(
        n_workers=cluster.n_workers,
        seconds=seconds,
        n_chunks=n_chunks,
        nbytes=n_chunks * client.chunk_nbytes,
        n_simulated=n_simulated,
        chunk_s=(p50, p95, p99),
        n_requests=(n_simulated * client.requests_per_chunk + read.n_hedges) * more,
        n_hedges=read.n_hedges * more,
        n_refused=read.n_refused * more,
        n_given_up=read.n_given_up * more,
        shares={name: spent_s[name] / slot_s if name in spent_s else rest for name in CAUSES},
    )


@dataclass(frozen=True, slots=True)
class _Fluid:
    """What jobs share: each has a ceiling, so have all of a worker, and so have all together."""

    each: float
    worker: float
    together: float

    def rates(self, is_job: npt.NDArray[np.bool_], width: int) -> tuple[Array, Array]:
        """Compute the rate that each slot has or would have, from where the jobs are.

        Also how many jobs are held by their own ceiling, by that of their worker, and by that of all.
        """
        most = len(is_job) // width
        n_jobs = np.add.reduce(is_job.reshape(most, width), axis=0, dtype=np.intp)
        rates, held = _share(self, np.bincount(n_jobs, minlength=most + 1)[1:].tobytes())
        return np.concatenate([rates[n_jobs]] * most), held


@lru_cache(maxsize=10_000)  # some 300 bytes each; a small cluster is often as it was before
def _share(fluid: _Fluid, n_workers: bytes) -> tuple[Array, Array]:
    """Share among so many workers of one job, of two and so on: rates from no job on, and who is held."""
    sizes = np.arange(1, len(n_workers) // np.intp(0).itemsize + 1)
    jobs = sizes * np.frombuffer(n_workers, np.intp)
    ceilings = np.minimum(fluid.each, fluid.worker / sizes)
    rates, wanted = ceilings, jobs * ceilings
    if wanted.sum() > fluid.together:
        # Max-min fairness: the level at which all is given away. With any set of jobs held at
        # their ceilings it comes out too low, but for the right set, so it is the highest.
        left = fluid.together - wanted.sum() + np.cumsum(wanted)
        with np.errstate(divide="ignore"):
            rates = np.minimum(ceilings, (left / np.cumsum(jobs)).max())
    by_all, by_worker = rates < ceilings * _ALMOST, ceilings < fluid.each * _ALMOST
    by_one = jobs[~by_all & ~by_worker].sum()
    held = np.array([by_one, jobs[~by_all & by_worker].sum(), jobs[by_all].sum()], dtype=float)
    return np.concatenate([rates[:1], rates]), held


_ASKING, _WAITING, _RECEIVING, _DECODING, _DRAINING, _DONE = range(6)


class _Read:
    """Slots that ask, wait, receive and decode until no chunk is left.

    A slot is one connection; slot `i` belongs to worker `i % n_workers`, so that the first slots
    to be given a chunk are those of different workers.
    """

    def __init__(
        self,
        profile: Profile,
        client: Client,
        cluster: Cluster,
        n_chunks: int,
        rng: np.random.Generator,
    ) -> None:
        self.client, self.cluster, self.rng, self.n_left = client, cluster, rng, n_chunks
        self.network = connect(replace(profile, worker_mb_per_s=None), cluster.rtt_s)
        worker = profile.worker_mb_per_s
        self.link = _Fluid(
            min(self.network.stream_nbytes_per_s, _FREE),
            math.inf if worker is None else 1e6 * worker,
            self.network.aggregate_nbytes_per_s,
        )
        self.cores = _Fluid(1.0, cluster.cores_per_worker, cluster.n_cores)
        self.opening_s = self.network.new_connection_s(client.chunk_nbytes)
        n = cluster.n_workers * client.connections_per_worker
        self.phase = np.full(n, _DONE, np.int8)
        # when the next event is due, or when the last one was while a fluid decides
        self.due = np.full(n, math.inf)
        self.left, self.backlog = np.zeros(n), np.zeros(n)  # bytes, and seconds of a core
        self.in_rate, self.core_rate = np.ones(n), np.ones(n)
        self.asked, self.backoff = np.zeros(n), np.zeros(n)
        self.n_tries, self.n_more = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.is_new = np.ones(n, np.bool_)
        self.now = self.end = self.scheduler = self.step_s = 0.0
        self.depth = max(client.requests_per_chunk, _BURST_S * self.network.requests_per_s)
        self.tokens = self.depth
        self.n_hedges = self.n_refused = self.n_given_up = self.n_done = 0
        self.chunk_s = np.zeros(n_chunks)
        self.spent_s = dict.fromkeys(CAUSES[1:-1], 0.0)
        self.held_s = np.zeros(3)  # of slots that receive, by what holds their rate

    def steady_s(self) -> tuple[float, float, str]:
        """Compute the seconds of one more chunk once all slots are at work, by Little's law.

        A slot spends the mean time of a chunk on it, and no chunk takes less than what scheduler,
        site and store give away for one: the seconds that this adds, and whose they are.
        """
        spent_s = math.fsum(self.spent_s.values()) - self.spent_s["connecting"]
        mean_s = spent_s / len(self.chunk_s) / len(self.phase)
        least_s = {
            "scheduler": self.client.task_s / self.client.chunks_per_task,
            "site link": self.client.chunk_nbytes / self.network.aggregate_nbytes_per_s,
            "refusals": self.client.requests_per_chunk / self.network.requests_per_s,
        }
        cause = max(least_s, key=least_s.__getitem__)
        return max(mean_s, least_s[cause]), max(0.0, least_s[cause] - mean_s), cause

    def run(self) -> float:
        """Return when the last chunk is decoded."""
        n = len(self.phase)
        self.give(np.arange(n), np.zeros(n))
        while n_active := n - int(np.count_nonzero(self.phase == _DONE)):
            self.step(max(1, n_active // _BATCHES))
        return self.end

    def step(self, n_events: int) -> None:
        """Go on until so many events have happened, and let what ends there go on."""
        at = self.foresee()
        soon = at.min() if n_events == 1 else np.partition(at, n_events - 1)[n_events - 1]
        until = max(self.now, float(soon))
        self.advance(until)
        happened = np.flatnonzero(at <= until)
        kinds = self.phase[happened]
        handlers = (self.ask, self.begin, self.receive, self.decode, self.drain)
        for kind in sorted({*kinds.tolist()}):
            slots = happened[kinds == kind]
            handlers[kind](slots, at[slots])
        self.tokens = min(self.tokens, self.depth)

    def foresee(self) -> Array:
        """Compute when the next event of each slot comes, at the rates of now."""
        is_receiving, width = self.phase == _RECEIVING, self.cluster.n_workers
        self.in_rate, self.held = self.link.rates(is_receiving, width)
        self.core_rate, _ = self.cores.rates(self.backlog > 0, width)
        at = np.where(is_receiving, self.now + self.left / self.in_rate, self.due)
        is_decoding = (self.phase == _DECODING) | (self.phase == _DRAINING)
        return np.where(is_decoding, self.now + self.backlog / self.core_rate, at)

    def advance(self, until: float) -> None:
        """Let bytes and processor time pass."""
        self.step_s, self.now = until - self.now, until
        self.left -= self.in_rate * self.step_s
        self.backlog = np.maximum(0.0, self.backlog - self.core_rate * self.step_s)
        self.held_s += self.held * self.step_s
        if self.step_s:  # of an infinite rate, no time would be no number
            self.tokens += self.network.requests_per_s * self.step_s

    def give(self, slots: Indexes, at: Array) -> None:
        """Give free slots the next chunk of their task, or the next task, or let them end."""
        goes_on = self.n_more[slots] > 0
        self.n_more[slots] -= goes_on
        self.await_request(slots[goes_on], at[goes_on])
        slots, at = _in_order(slots[~goes_on], at[~goes_on])
        n_tasks = min(len(slots), math.ceil(self.n_left / self.client.chunks_per_task))
        self.stop(slots[n_tasks:], at[n_tasks:])
        if n_tasks:
            self.schedule(slots[:n_tasks], at[:n_tasks])

    def schedule(self, slots: Indexes, at: Array) -> None:
        """Pass the scheduler's queue: a task leaves it `task_s` after the later of two moments."""
        n, size, task_s = len(slots), self.client.chunks_per_task, self.client.task_s
        counts = np.full(n, size)
        counts[-1] = min(size, self.n_left - size * (n - 1))
        self.n_left -= int(counts.sum())
        # Lindley's recursion, with the sum of service times taken out
        served = task_s * np.arange(n)
        ends = np.maximum.accumulate(np.maximum(at, self.scheduler) - served) + served + task_s
        # A queue that is empty at the end of this step had idle moments in it, which are for those
        # whose events are handled one step late.
        last_s = float(ends[-1])
        self.scheduler = last_s if last_s > self.now else self.now - self.step_s
        self.spent_s["scheduler"] += float((ends - at).sum())
        self.n_more[slots] = counts - 1
        self.await_request(slots, ends)

    def await_request(self, slots: Indexes, at: Array) -> None:
        """Note when slots will ask for a chunk."""
        self.phase[slots], self.due[slots], self.asked[slots] = _ASKING, at, at
        self.backoff[slots], self.n_tries[slots] = _BACKOFF_S, 0

    def stop(self, slots: Indexes, at: Array) -> None:
        """Let slots end for which no chunk is left, once they have decoded what they have."""
        has_work = self.backlog[slots] > 0
        self.phase[slots] = np.where(has_work, _DRAINING, _DONE)
        self.due[slots] = np.where(has_work, at, math.inf)
        if len(ended := at[~has_work]):
            self.end = max(self.end, float(ended.max()))

    def ask(self, slots: Indexes, at: Array) -> None:
        """Let the store take the requests for which it has room, and refuse the others."""
        if math.isfinite(self.network.requests_per_s):
            slots, at = _in_order(slots, at)
            room = int(max(0.0, self.tokens) / self.client.requests_per_chunk)
            self.refuse(slots[room:], at[room:])
            slots, at = slots[:room], at[:room]
            self.tokens -= len(slots) * self.client.requests_per_chunk
        waits_s, opening_s = self.draw_waits_s(len(slots)), self.opening_s * self.is_new[slots]
        self.is_new[slots] = False
        self.spent_s["connecting"] += float(opening_s.sum())
        self.spent_s["first byte"] += float(waits_s.sum())
        self.phase[slots], self.due[slots] = _WAITING, at + waits_s + opening_s

    def refuse(self, slots: Indexes, at: Array) -> None:
        """Answer 503, after which a client waits for a random while that grows."""
        backoff_s = self.rng.uniform(_BACKOFF_S, _BASE * self.backoff[slots])
        backoff_s = np.minimum(_LONGEST_S, backoff_s)
        self.backoff[slots], self.due[slots] = backoff_s, at + self.network.round_trip_s + backoff_s
        self.spent_s["refusals"] += float(backoff_s.sum()) + self.network.round_trip_s * len(slots)
        self.n_tries[slots] += 1
        self.n_given_up += int((self.n_tries[slots] == MOST_TRIES + 1).sum())
        self.n_refused += len(slots)

    def draw_waits_s(self, n: int) -> Array:
        """Draw the waits of chunks: one first byte after another, hedged each, and the client's."""
        whole, part = divmod(self.client.requests_per_chunk, 1)
        waits_s, hedge_s = (
            np.full(n, float(self.client.wait_s_per_chunk)),
            self.cluster.hedge_after_s,
        )
        for weight in [1.0] * int(whole) + [part] * bool(part):
            drawn = self.draw_first_bytes_s(n)
            late = np.flatnonzero(drawn > hedge_s)
            drawn[late] = np.minimum(drawn[late], hedge_s + self.draw_first_bytes_s(len(late)))
            self.n_hedges += len(late)
            self.tokens -= len(late)
            waits_s += weight * drawn
        return waits_s

    def draw_first_bytes_s(self, n: int) -> Array:
        """Draw times to the first byte: log-normal, with a power law beyond a quantile."""
        sigma, tail = self.network.first_byte_sigma, self.cluster.tail
        drawn = np.exp(sigma * self.rng.standard_normal(n))
        if math.isfinite(tail.alpha):
            start = math.exp(sigma * NormalDist().inv_cdf(1 - tail.share))
            late = np.flatnonzero(drawn > start)
            # of 1 less a number below 1, for 0 has no negative power
            drawn[late] = start * (1 - self.rng.random(len(late))) ** (-1 / tail.alpha)
        drawn *= self.network.first_byte_median_s
        if self.network.tail_share:
            drawn += self.network.tail_s * (self.rng.random(n) < self.network.tail_share)
        return np.minimum(drawn, _TIMEOUT_S)

    def begin(self, slots: Indexes, at: Array) -> None:
        """Receive from the first byte on, also in what is left of this step."""
        self.phase[slots], self.due[slots] = _RECEIVING, at
        self.left[slots] = self.client.chunk_nbytes - self.in_rate[slots] * (self.now - at)

    def receive(self, slots: Indexes, at: Array) -> None:
        """Take the last byte, and decode now or behind the next request."""
        self.chunk_s[self.n_done : self.n_done + len(slots)] = at - self.asked[slots]
        self.n_done += len(slots)
        self.spent_s["stream"] += float((at - self.due[slots]).sum())
        self.phase[slots], self.due[slots] = _DECODING, at
        is_free = self.backlog[slots] <= 0
        self.load(slots[is_free], at[is_free])
        if self.client.is_overlapped:
            self.give(slots[is_free], at[is_free])

    def load(self, slots: Indexes, at: Array) -> None:
        """Hand chunks to the processors, also for what is left of this step."""
        done = self.core_rate[slots] * (self.now - at)
        self.backlog[slots] = self.client.cpu_s_per_chunk - done

    def decode(self, slots: Indexes, at: Array) -> None:
        """End decoding; where it went on behind a request, the chunk that waited for it begins."""
        self.spent_s["decoding"] += float((at - self.due[slots]).sum())
        self.backlog[slots] = 0.0
        if self.client.is_overlapped:
            self.load(slots, at)
        self.give(slots, at)

    def drain(self, slots: Indexes, at: Array) -> None:
        """End with the last chunk of a slot."""
        self.spent_s["decoding"] += float((at - self.due[slots]).sum())
        self.backlog[slots] = 0.0
        self.stop(slots, at)

    def split_s(self) -> dict[str, float]:
        """Tell seconds of slots by cause; receiving is divided by what held its rate."""
        parts = self.spent_s["stream"] * self.held_s / (self.held_s.sum() or 1.0)
        names = ("stream", "worker link", "site link")
        return self.spent_s | dict(zip(names, map(float, parts), strict=True))


def _in_order(slots: Indexes, at: Array) -> tuple[Indexes, Array]:
    """Sort slots by the times of their events."""
    order = np.argsort(at, kind="stable")
    return slots[order], at[order]
