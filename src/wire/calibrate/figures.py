"""How the caps of a calibration are shared, and which figures follow from what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from wire.errors import UserError
from wire.models import WORTH

SMALL_NBYTES = 4096
"""Bytes of the ranges that latency and request rate are measured with."""

N_LANES = 4  # of these in flight at a time: few enough not to queue
N_STREAMS = 4  # bodies on one connection
N_PIECES = 2  # requests of a connection in one look at the bandwidth: objects may be small
MOST_CONNECTIONS = 256
N_FIND = (
    4  # to see that no answer leads elsewhere, then to find an object, or to write and remove one
)
_MOST_DELAYS = 1000
_LEAST_OF_P99 = 400  # delays that bound it
_LEAST_REQUESTS, _MOST_REQUESTS = 60, 100_000
_LEAST_NBYTES = 20_000_000
_ENOUGH = 0.8  # share of the planned delays that suffices
_LEAST_ACCEPTED = 8  # below this a rate is a guess


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """What each part of a calibration may ask for at most."""

    n_delays: int  # small ranges for the latency
    stream_nbytes: int  # of each body on one connection
    together_nbytes: dict[int, int]  # of each connection, by their number
    n_rate: int  # small ranges for the request rate


def share_caps(max_requests: int, max_nbytes: int) -> MeasurementPlan:
    """Share caps among the parts of a calibration, or refuse those within which nothing can be measured.

    Two fifths of the requests go to the latency, up to 1000; half of what is left to 2, 4, 8 and
    more connections, as many as it takes; the rest to the request rate. Bytes go to one connection
    (15 %) and to several, in proportion to their number up to 8.
    """
    if not _LEAST_REQUESTS <= max_requests <= _MOST_REQUESTS:
        allowed = f"{_LEAST_REQUESTS} to {_MOST_REQUESTS}"
        raise UserError("max-requests", max_requests, allowed)
    # enough is left for bandwidth when all requests are small ones
    least = _LEAST_NBYTES + SMALL_NBYTES * max_requests
    if max_nbytes < least:
        raise UserError("max-mb", f"{max_nbytes / 1e6:g}", f"at least {least / 1e6:g}")
    n_delays = N_LANES + min(_MOST_DELAYS, int(0.4 * max_requests) // 20 * 20)
    left = max_requests - N_FIND - n_delays - N_STREAMS
    sizes = [2]
    while N_PIECES * (sum(sizes) + 2 * sizes[-1]) <= left / 2 and 2 * sizes[-1] <= MOST_CONNECTIONS:
        sizes.append(2 * sizes[-1])
    n_rate = left - N_PIECES * sum(sizes)
    nbytes = max_nbytes - SMALL_NBYTES * (n_delays + n_rate)
    weights = {n: min(n, 8) for n in sizes}
    shares = {n: 0.85 * nbytes * weight / sum(weights.values()) for n, weight in weights.items()}
    n_requests = {n: int(share / n) for n, share in shares.items()}
    return MeasurementPlan(n_delays, int(0.15 * nbytes / N_STREAMS), n_requests, n_rate)


@dataclass(slots=True)
class Observations:
    """What was measured: plain numbers."""

    delays_s: list[float] = field(default_factory=list)  # to the first byte of small ranges
    streams_mb_per_s: list[float] = field(default_factory=list)  # of bodies on one connection
    together_mb_per_s: dict[int, float] = field(default_factory=dict)  # by number of connections
    answered_per_s: float | None = None  # small requests that came back a second
    accepted_per_s: float | None = None  # of more that were made; None where none was refused
    n_throttled: int = 0  # answers that ask to slow down
    decode_mb_per_s: float | None = None
    chunk_ms: float | None = None  # of a processor for a chunk, whatever its bytes

    def rates_by_connections(self) -> dict[int, float]:
        """List the bandwidth of 1, 2, 4 and more connections, MB/s."""
        if not self.streams_mb_per_s:
            return {}
        return {1: median(self.streams_mb_per_s), **self.together_mb_per_s}

    @property
    def has_growth_ended(self) -> bool:
        """Whether twice the connections brought less than a tenth more."""
        rates = [*self.rates_by_connections().values()]
        return len(rates) > 1 and rates[-1] < WORTH * rates[-2]

    def is_whole(self, plan: MeasurementPlan) -> bool:
        """Tell whether each part of a plan has told what it was to tell."""
        has_delays = len(self.delays_s) >= _ENOUGH * (plan.n_delays - N_LANES)
        has_all = self.has_growth_ended or self.together_mb_per_s.keys() == {*plan.together_nbytes}
        return has_delays and has_all and bool(self.streams_mb_per_s and self.answered_per_s)


Lane = Sequence[tuple[float, int]]
"""Of one connection, moments in seconds and the bytes that had come by then; the first is its head."""


def rate_together(lanes: Sequence[Lane]) -> float:
    """Compute the bytes a second of connections that read at once.

    Bytes are counted from the moment when the last of them has its first byte to the moment when
    the first has all. Where that is less than a fifth of the whole, as when first bytes come far
    apart, they are counted in the busiest fifth.
    """
    heads, ends = [lane[0][0] for lane in lanes], [lane[-1][0] for lane in lanes]
    least = 0.2 * (max(ends) - min(heads))
    starts, span = np.array([max(heads)]), min(ends) - max(heads)
    if span < least:
        starts, span = np.array([moment for lane in lanes for moment, _ in lane]), least
        starts = starts[starts <= max(ends) - span]
    nbytes = np.zeros(len(starts))
    for lane in lanes:
        moments, came = zip(*lane, strict=True)
        nbytes += np.interp(starts + span, moments, came) - np.interp(starts, moments, came)
    return float(nbytes.max()) / span


def lane_nbytes(
    observed: Observations, plan: MeasurementPlan, n_connections: int, *, window_s: float
) -> int:
    """Choose the bytes of each connection, so that all read for about `window_s`.

    No connection is faster than a single one, and twice as many bring at most twice as much.
    """
    rates = observed.rates_by_connections()
    n, most = [*rates.items()][-1]
    expected = min(rates[1], most * max(1, n_connections // n) / n_connections)
    return min(int(1e6 * expected * window_s), plan.together_nbytes[n_connections])


def accepted_per_s(requests: Sequence[tuple[float, bool]]) -> float | None:
    """Estimate the requests a second that a store lets through, from when each was asked and whether refused.

    Stores let a burst through first, so requests are counted from the first that was refused.
    None where none was, or where too few were let through to tell.
    """
    ordered = sorted(requests)
    first = next((i for i, (_, is_refused) in enumerate(ordered) if is_refused), None)
    if first is None:
        return None
    counted = ordered[first:]
    n_accepted = sum(not is_refused for _, is_refused in counted)
    duration_s = counted[-1][0] - counted[0][0]
    return n_accepted / duration_s if n_accepted >= _LEAST_ACCEPTED and duration_s else None


def make_figures(observed: Observations, origin: str) -> dict[str, Any]:
    """Turn what was seen into the fields of a profile, each with its source; `origin` ends the sources."""
    figures: dict[str, Any] = {}
    sources: dict[str, str] = {}
    if n := len(observed.delays_s):
        percents = (50, 95, 99) if n >= _LEAST_OF_P99 else (50, 95)
        values = np.percentile(observed.delays_s, percents, method="hazen")
        names = ("median_s", "p95_s", "p99_s")
        figures["first_byte_s"] = dict(zip(names, map(_round, values), strict=False))
        sources["first_byte_s"] = f"{n} reads of {SMALL_NBYTES} bytes, {N_LANES} at a time"
    if rates := observed.rates_by_connections():
        figures["stream_mb_per_s"] = _round(rates[1])
        sources["stream_mb_per_s"] = f"median of {len(observed.streams_mb_per_s)} bodies"
        if len(rates) > 1:
            figures["aggregate_mb_per_s"] = _round(max(rates.values()))
            ended = "where growth ended" if observed.has_growth_ended else "where it still grew"
            sources["aggregate_mb_per_s"] = f"the most of 1 to {max(rates)} connections, {ended}"
    if observed.accepted_per_s is not None:
        figures["requests_per_s"] = _round(observed.accepted_per_s)
        sources["requests_per_s"] = (
            f"let through when more were made; {observed.n_throttled} refused"
        )
    elif observed.answered_per_s is not None:
        sources["requests_per_s"] = (
            f"none was refused at {_round(observed.answered_per_s):g} a second"
        )
    return {**figures, "sources": {name: f"{text}; {origin}" for name, text in sources.items()}}


def list_more(observed: Observations) -> dict[str, Any]:
    """List what a profile has no field for: what grows how far, and what a processor does."""
    rates = {n: _round(rate) for n, rate in observed.rates_by_connections().items()}
    numbers = {name: getattr(observed, name) for name in ("answered_per_s", "decode_mb_per_s", "chunk_ms")}  # fmt: skip
    rounded = {name: _round(value) for name, value in numbers.items() if value is not None}
    return {"mb_per_s_by_connections": rates, **rounded}


def _round(value: float) -> float:
    """Keep four digits: more are noise, and make a file hard to read."""
    return float(f"{value:.4g}")
