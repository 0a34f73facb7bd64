"""What a calibration may spend and in which steps, and which figures follow from what was seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, median
from typing import Any, Literal

import numpy as np

from helpers.errors import UserError
from helpers.models import WORTH

SMALL_NBYTES = 4096
"""Bytes of the ranges that latency and request rate are measured with."""

N_LANES = 4  # of these in flight at a time: few enough not to queue
BATCH = 20  # delays between two looks at the caps, and two writes of the file
MOST_DELAYS = 1000
MOST_CONNECTIONS = 256
N_PIECES = 2  # requests of a connection in one look at the bandwidth: objects may be small

LEAST_REQUESTS = 60
MOST_REQUESTS = 100_000
LEAST_NBYTES = 20_000_000

_ENOUGH = 0.8  # share of the planned delays from which their step is complete
_LEAST_ACCEPTED = 8  # below this a rate is a guess


@dataclass(frozen=True, slots=True)
class Caps:
    """What a calibration may ask a store for in all."""

    max_requests: int
    max_nbytes: int

    def __post_init__(self) -> None:
        """Refuse caps within which nothing can be measured, and those without an end."""
        if not LEAST_REQUESTS <= self.max_requests <= MOST_REQUESTS:
            raise UserError(
                f"max-requests: {self.max_requests}; allowed: {LEAST_REQUESTS} to {MOST_REQUESTS}"
            )
        # enough is left for bandwidth when all requests are small ones
        least = LEAST_NBYTES + SMALL_NBYTES * self.max_requests
        if self.max_nbytes < least:
            raise UserError(f"max-mb: {self.max_nbytes / 1e6:g}; allowed: at least {least / 1e6:g}")


Kind = Literal["find", "delays", "stream", "together", "requests"]


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a calibration, with what it may spend at most."""

    kind: Kind
    n_requests: int
    nbytes: int
    n_connections: int = 1

    @property
    def title(self) -> str:
        """What it measures."""
        titles = {
            "find": "find an object",
            "delays": f"first byte of {SMALL_NBYTES // 1024} KiB",
            "stream": "one connection",
            "together": f"{self.n_connections} connections",
            "requests": "request rate",
        }
        return titles[self.kind]


def plan_steps(caps: Caps) -> tuple[Step, ...]:
    """Share the caps among the steps, so that all together stay within them.

    Two fifths of the requests go to the latency, up to 1000 and in whole batches of twenty; half
    of what is left to 2, 4, 8 and more connections, as many as it takes; the rest to the request
    rate. Bytes go to one connection (15 %) and to several, in proportion to their number up to 8.
    """
    n_find, n_stream = 2, 4
    n_delays = N_LANES + max(BATCH, min(MOST_DELAYS, int(0.4 * caps.max_requests) // BATCH * BATCH))
    left = caps.max_requests - n_find - n_delays - n_stream
    sizes: list[int] = []
    while N_PIECES * (sum(sizes) + 2 ** (len(sizes) + 1)) <= left / 2 and (
        2 ** (len(sizes) + 1) <= MOST_CONNECTIONS
    ):
        sizes.append(2 ** (len(sizes) + 1))
    n_rate = left - N_PIECES * sum(sizes)
    nbytes = caps.max_nbytes - SMALL_NBYTES * (n_delays + n_rate)
    weights = [min(n, 8) for n in sizes]
    return (
        Step("find", n_find, 0),
        Step("delays", n_delays, n_delays * SMALL_NBYTES, N_LANES),
        Step("stream", n_stream, int(0.15 * nbytes)),
        *(
            Step("together", N_PIECES * n, int(0.85 * nbytes * weight / sum(weights)), n)
            for n, weight in zip(sizes, weights, strict=True)
        ),
        Step("requests", n_rate, n_rate * SMALL_NBYTES),
    )


@dataclass(slots=True)
class Seen:
    """What was measured: plain numbers."""

    delays_s: list[float] = field(default_factory=list)  # to the first byte of small ranges
    streams_mb_per_s: list[float] = field(default_factory=list)  # of bodies on one connection
    together_mb_per_s: dict[int, float] = field(default_factory=dict)  # by number of connections
    answered_per_s: float | None = None  # small requests that came back a second
    accepted_per_s: float | None = None  # of more that were made; None where none was refused
    n_throttled: int = 0  # answers that ask to slow down
    n_failed: int = 0  # requests without an answer, and bodies that are not what was asked for
    decode_mb_per_s: float | None = None
    chunk_ms: float | None = None  # of a processor for a chunk, whatever its bytes

    @property
    def has_growth_ended(self) -> bool:
        """Whether twice the connections brought less than a tenth more."""
        rates = self.rates_by_connections()
        return len(rates) > 1 and rates[-1][1] < WORTH * rates[-2][1]

    def rates_by_connections(self) -> list[tuple[int, float]]:
        """List the bandwidth of 1, 2, 4 and more connections, MB/s."""
        if not self.streams_mb_per_s:
            return []
        return [(1, median(self.streams_mb_per_s)), *sorted(self.together_mb_per_s.items())]

    def has(self, step: Step) -> bool:
        """Tell whether a step has told what it was to tell."""
        if step.kind == "delays":
            return len(self.delays_s) >= _ENOUGH * (step.n_requests - N_LANES)
        if step.kind == "together":
            return step.n_connections in self.together_mb_per_s or self.has_growth_ended
        known = {"stream": self.streams_mb_per_s, "requests": self.answered_per_s}
        return step.kind == "find" or bool(known[step.kind])


def quantile(values: Sequence[float], q: float) -> tuple[float, float | None, float | None]:
    """Estimate a quantile, with a 95 % interval that supposes no distribution.

    The interval lies between two of the values (order statistics, by the normal approximation of
    their ranks); an end is None where even the extreme value does not bound the quantile.

    Examples
    --------
    >>> quantile([float(i) for i in range(1, 101)], 0.5)
    (50.5, 40.0, 60.0)
    """
    ordered, n = sorted(values), len(values)
    half = NormalDist().inv_cdf(0.975) * math.sqrt(n * q * (1 - q))
    ranks = math.floor(n * q - half), math.ceil(n * q + half)
    ends = [ordered[rank - 1] if 1 <= rank <= n else None for rank in ranks]
    # Hazen's definition: half of the values lie on each side of the middle of the ranks
    return float(np.quantile(ordered, q, method="hazen")), ends[0], ends[1]


Lane = Sequence[tuple[float, int]]
"""Of one connection, moments in seconds and the bytes that had come by then; the first is its head."""


def rate_together(lanes: Sequence[Lane]) -> float:
    """Compute the bytes a second of connections that read at once.

    Bytes are counted from the moment when the last of them has its first byte to the moment when
    the first has all. Where that is less than a fifth of the whole, as when first bytes come far
    apart, they are counted in the busiest fifth.

    Examples
    --------
    The second starts a second later, and both bring 10 bytes a second from then on:

    >>> rate_together([[(0.0, 0), (3.0, 30)], [(1.0, 0), (3.0, 20)]])
    20.0
    """
    heads, ends = [lane[0][0] for lane in lanes], [lane[-1][0] for lane in lanes]
    start, end = max(heads), min(ends)
    least = 0.2 * (max(ends) - min(heads))
    starts, span = np.array([start]), end - start
    if span < least:
        starts, span = np.array([moment for lane in lanes for moment, _ in lane]), least
        starts = starts[starts <= max(ends) - span]
    nbytes = np.zeros(len(starts))
    for lane in lanes:
        moments, came = zip(*lane, strict=True)
        nbytes += np.interp(starts + span, moments, came) - np.interp(starts, moments, came)
    return float(nbytes.max()) / span


def lane_nbytes(seen: Seen, step: Step, *, window_s: float) -> int:
    """Choose the bytes of each connection, so that all read for about `window_s`.

    No connection is faster than a single one, and twice as many bring at most twice as much.
    """
    rates = seen.rates_by_connections()
    n, most = rates[-1][0], rates[-1][1]
    expected = min(rates[0][1], most * max(1, step.n_connections // n) / step.n_connections)
    return min(int(1e6 * expected * window_s), step.nbytes // step.n_connections)


def accepted_per_s(asked: Sequence[tuple[float, bool]]) -> float | None:
    """Estimate the requests a second that a store lets through, from when each was asked and whether refused.

    Stores let a burst through first, so requests are counted from the first that was refused.
    None where none was, or where too few were let through to tell.

    Examples
    --------
    Every second one of 20 a second is refused:

    >>> accepted_per_s([(i / 20, i % 2 == 0) for i in range(41)])
    10.0
    """
    ordered = sorted(asked)
    first = next((i for i, (_, is_refused) in enumerate(ordered) if is_refused), None)
    if first is None:
        return None
    counted = ordered[first:]
    n_accepted = sum(not is_refused for _, is_refused in counted)
    duration_s = counted[-1][0] - counted[0][0]
    return n_accepted / duration_s if n_accepted >= _LEAST_ACCEPTED and duration_s else None


def make_figures(seen: Seen, origin: str) -> dict[str, Any]:
    """Turn what was seen into the fields of a profile, each with its source; `origin` ends the sources."""
    found: dict[str, Any] = {}
    sources: dict[str, str] = {}
    if seen.delays_s:
        (median_s, *_), (p95_s, *_) = quantile(seen.delays_s, 0.5), quantile(seen.delays_s, 0.95)
        found["first_byte_s"] = {"median_s": _round(median_s), "p95_s": _round(p95_s)}
        p99_s, _, most_s = quantile(seen.delays_s, 0.99)
        if most_s is not None:  # fewer delays do not bound it
            found["first_byte_s"]["p99_s"] = _round(p99_s)
        sources["first_byte_s"] = (
            f"{len(seen.delays_s)} reads of {SMALL_NBYTES} bytes, {N_LANES} at a time"
        )
    if rates := seen.rates_by_connections():
        n = rates[-1][0]
        found["stream_mb_per_s"] = _round(rates[0][1])
        sources["stream_mb_per_s"] = f"median of {len(seen.streams_mb_per_s)} bodies"
        if n > 1:
            found["aggregate_mb_per_s"] = _round(max(rate for _, rate in rates))
            ended = "where growth ended" if seen.has_growth_ended else "where it still grew"
            sources["aggregate_mb_per_s"] = f"the most of 1 to {n} connections, {ended}"
    if seen.accepted_per_s is not None:
        found["requests_per_s"] = _round(seen.accepted_per_s)
        sources["requests_per_s"] = f"let through when more were made; {seen.n_throttled} refused"
    elif seen.answered_per_s is not None:
        sources["requests_per_s"] = f"none was refused at {_round(seen.answered_per_s):g} a second"
    return {**found, "sources": {name: f"{text}; {origin}" for name, text in sources.items()}}


def summarise(seen: Seen) -> dict[str, Any]:
    """Tell beside the figures what a profile has no field for: intervals, and what grows how far."""
    told: dict[str, Any] = {}
    for percent in (50, 95, 99) if seen.delays_s else ():
        ends = quantile(seen.delays_s, percent / 100)
        told[f"first_byte_p{percent}_s"] = [None if one is None else _round(one) for one in ends]
    if rates := seen.rates_by_connections():
        told["mb_per_s_by_connections"] = {n: _round(rate) for n, rate in rates}
    for name in ("answered_per_s", "decode_mb_per_s", "chunk_ms"):
        if (value := getattr(seen, name)) is not None:
            told[name] = _round(value)
    return told


def _round(value: float) -> float:
    """Keep four digits: more are noise, and make a file hard to read."""
    return float(f"{value:.4g}")
