"""When bytes may pass: delays, links and request rates, shared by all connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from random import Random
from statistics import NormalDist

from wire.bed.networks import MB, Profile

# Bytes pass in quanta that take about this long, so that a rate is smooth at
# the scale of a request (tens of ms) and a thread wakes some 250 times a second.
QUANTUM_S = 0.004

# A quantum is at least 64 KiB, or the interpreter could not carry 250 MB/s in
# quanta, and at most 256 KiB, or 64 connections would queue for too long.
MIN_QUANTUM_NBYTES = 1 << 16
MAX_QUANTUM_NBYTES = 1 << 18

# Quanta taken at a time when nothing is emulated: as much as a pipe holds.
FREE_QUANTUM_NBYTES = 1 << 20

# A busy machine wakes a thread late; up to this much is made up for.
MAX_LATE_S = 0.1

# Depth of the bucket of requests: a burst of a tenth of a second passes.
BURST_S = 0.1

OWNER = 0
"""Number of the process that owns the proxy: it is no worker and has no link of its own."""

# Delays come in sets of this many that carry the whole distribution.
N_STRATA = 20


@dataclass(frozen=True, slots=True)
class VirtualTime:
    """The time an emulated network lives in: one second of it takes `dilation` real ones.

    Whatever waits for this clock or is stamped by it is slowed down alike, so that bytes in
    buffers are the same share of a rate at every dilation (Gupta et al., 2006, *To infinity and
    beyond: time-warped network emulation*).
    """

    dilation: float = 1.0  # real seconds in a virtual one, at least 1

    def now_s(self) -> float:
        """Read the clock."""
        return self.of(time.perf_counter())

    def of(self, real_s: float) -> float:
        """Compute what this clock shows at a moment of `time.perf_counter`."""
        return real_s / self.dilation


class Sleeper:
    """Sleep until a moment, less the lateness with which sleeps have ended so far."""

    def __init__(self, virtual: VirtualTime) -> None:
        self._virtual = virtual
        self._overshoot_s = 0.0  # real seconds: it is the machine that wakes late

    def until(self, deadline_s: float) -> None:
        """Return at about `deadline_s`, in virtual time."""
        before_s = time.perf_counter()
        asked_s = deadline_s * self._virtual.dilation - before_s - self._overshoot_s
        if asked_s <= 0:
            return
        time.sleep(asked_s)
        late_s = time.perf_counter() - before_s - asked_s
        # Threads race on this estimate, harmlessly; a preempted sleep (1 ms and
        # more) says nothing about the next one, so it counts as 1 ms at most.
        self._overshoot_s += 0.05 * (min(late_s, 0.001) - self._overshoot_s)


def normal_variates(rng: Random) -> Iterator[float]:
    """Draw standard normal variates, stratified in sets of 20.

    Each set holds one variate from each twentieth of the distribution, in
    random order and symmetric about zero: its median is exactly that of the
    distribution, whatever the seed, and it always has its share of the tail. A
    run of some tens of requests then meets the network that is the target,
    where independent draws would miss its median by 15 %.
    """
    inverse = NormalDist().inv_cdf
    while True:
        lower = [inverse((k + 1 - rng.random()) / N_STRATA) for k in range(N_STRATA // 2)]
        variates = lower + [-z for z in lower]
        rng.shuffle(variates)
        yield from variates


class Clock:
    """Compute when bytes that enter a link now have passed it; an idle one gathers a quantum of credit.

    One without a rate lets them pass at once.
    """

    __slots__ = ("_credit_s", "_free_s", "_s_per_byte")

    def __init__(self, mb_per_s: float | None, quantum_nbytes: int) -> None:
        self._s_per_byte = 0.0 if mb_per_s is None else 1 / (mb_per_s * MB)
        self._credit_s = max(QUANTUM_S, quantum_nbytes * self._s_per_byte)
        self._free_s = 0.0

    def start(self, now_s: float) -> None:
        """Drop all credit: bytes enter from now on."""
        self._free_s = now_s

    def enter(self, now_s: float, nbytes: int, *, late_s: float = 0.0) -> float:
        """Queue bytes behind those that entered before; return when the last has passed.

        Bytes cannot have entered earlier than a quantum before `now_s`, unless
        the caller was woken `late_s` seconds late: a network would not have
        waited for that.
        """
        earliest_s = now_s - self._credit_s - late_s
        self._free_s = max(self._free_s, earliest_s) + nbytes * self._s_per_byte
        return self._free_s


class Bucket:
    """Let requests pass up to a rate, with bursts of a tenth of a second.

    Examples
    --------
    >>> bucket = Bucket(10)
    >>> [bucket.take(now_s) for now_s in (5.0, 5.0, 5.2)]
    [True, False, True]
    """

    def __init__(self, requests_per_s: float) -> None:
        self._rate = requests_per_s
        self._depth = max(1.0, BURST_S * requests_per_s)
        self._tokens = self._depth
        self._at_s = 0.0

    def take(self, now_s: float) -> bool:
        """Take a token if there is one; the caller holds a lock."""
        self._tokens = min(self._depth, self._tokens + (now_s - self._at_s) * self._rate)
        self._at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def quantum_nbytes(profile: Profile) -> int:
    """Compute the bytes that pass at a time under a profile.

    Examples
    --------
    18 MB/s for 4 ms are 72 kB:

    >>> quantum_nbytes(Profile("example", stream_mb_per_s=18))
    72000
    """
    # an eighth: the queue of many connections is one quantum of each
    shared = (profile.worker_mb_per_s or inf, profile.aggregate_mb_per_s or inf)
    rate = min(profile.stream_mb_per_s or inf, min(shared) / 8)
    if rate == inf:
        return FREE_QUANTUM_NBYTES
    return min(MAX_QUANTUM_NBYTES, max(MIN_QUANTUM_NBYTES, round(rate * MB * QUANTUM_S)))


class Link:
    """Hold what all connections share under one profile: the link and the request rate."""

    def __init__(self, profile: Profile, virtual: VirtualTime) -> None:
        self.profile, self.time = profile, virtual
        self.quantum_nbytes = quantum_nbytes(profile)
        self._lock = threading.Lock()
        self.sleep_until = Sleeper(virtual).until
        self._clock = Clock(profile.aggregate_mb_per_s, self.quantum_nbytes)
        self._workers: dict[int, Clock] = {}
        self._bucket = None if profile.requests_per_s is None else Bucket(profile.requests_per_s)

    def admits(self, now_s: float) -> bool:
        """Take one request from the allowed rate; False means that it is exceeded."""
        with self._lock:
            return self._bucket is None or self._bucket.take(now_s)

    def open_stream(self, worker: int = OWNER, window: Window | None = None) -> Stream:
        """Begin a body on one connection of a worker, without credit; its window is for bodies sent to it."""
        clock = Clock(self.profile.stream_mb_per_s, self.quantum_nbytes)
        clock.start(self.time.now_s())
        if window is not None and not window.begin(self.profile, self.time.now_s()):
            window = None
        return Stream(self, clock, worker, window)

    def enter(self, now_s: float, nbytes: int, *, late_s: float, worker: int = OWNER) -> float:
        """Queue bytes on the link of their worker and on the shared one; return when all passed."""
        rate = self.profile.worker_mb_per_s
        with self._lock:
            clocks = [self._clock]
            if rate is not None and worker != OWNER:
                clock = Clock(rate, self.quantum_nbytes)
                clocks.append(self._workers.setdefault(worker, clock))
            return max(clock.enter(now_s, nbytes, late_s=late_s) for clock in clocks)


@dataclass(slots=True)
class Window:
    """How much a connection sends in a round trip: slow start, from its opening to its end.

    It sends a window, waits for the end of the round trip in which that began, and then sends
    twice as much. Once a window takes longer to send than a round trip, nothing waits any more.
    Of bodies that do not fill the window it stays as it is, and so it does while idle.
    """

    n_filled: int = 0  # windows that were filled since the connection was opened
    left_nbytes: int = 0  # that may still pass in this round trip
    _nbytes: int = 0  # of the window at first, and seconds of the round trip
    _trip_s: float = 0.0
    _round_s: float = 0.0  # when this round trip began

    def begin(self, profile: Profile, now_s: float) -> bool:
        """Begin a body; return whether its profile has windows at all."""
        if profile.round_trip_s is None or profile.initial_window_nbytes is None:
            return False
        self._nbytes, self._trip_s = profile.initial_window_nbytes, profile.round_trip_s
        self._round_s, self.left_nbytes = now_s, self._nbytes << self.n_filled
        return True

    def take(self, now_s: float, nbytes: int) -> float:
        """Take bytes that are to pass now, no more than are left; return when they may begin to."""
        if self.left_nbytes == self._nbytes << self.n_filled:
            self._round_s = max(self._round_s, now_s)
        begins_s, self.left_nbytes = self._round_s, self.left_nbytes - nbytes
        if not self.left_nbytes:
            self.n_filled += 1
            self.left_nbytes = self._nbytes << self.n_filled
            self._round_s += self._trip_s
        return begins_s


@dataclass(slots=True)
class Stream:
    """Pace one body: by the clock of its connection, that of its worker and that of the link."""

    link: Link  # what is shared with other connections
    clock: Clock  # the connection's own
    worker: int = OWNER  # number of the process that it goes to
    window: Window | None = None  # of its connection, where one is emulated
    late_s: float = field(init=False, default=0.0)

    @property
    def quantum_nbytes(self) -> int:
        """Bytes to take at a time."""
        most = self.link.quantum_nbytes
        return most if self.window is None else min(most, self.window.left_nbytes)

    def wait(self, nbytes: int) -> None:
        """Sleep until `nbytes` more have passed all, so that a body of n bytes ends n / rate after its head."""
        now_s = self.link.time.now_s()
        if self.window is not None and (begins_s := self.window.take(now_s, nbytes)) > now_s:
            self.link.sleep_until(begins_s)
            self.clock.start(begins_s)  # waiting for a round trip gives no credit
            now_s = self.link.time.now_s()
        shared_s = self.link.enter(now_s, nbytes, late_s=self.late_s, worker=self.worker)
        own_s = self.clock.enter(now_s, nbytes, late_s=self.late_s)
        deadline_s = max(shared_s, own_s)
        self.link.sleep_until(deadline_s)
        late_s = self.link.time.now_s() - max(now_s, deadline_s)
        self.late_s = min(max(late_s, 0.0), MAX_LATE_S)
