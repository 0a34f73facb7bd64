"""What a network does, beside what was asked of it: latency, rates, overhead."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from math import ceil
from statistics import median
from typing import Literal
from urllib.parse import urlsplit

from helpers.errors import UserError
from helpers.measurement.probes import (
    MB,
    measure_accepted_per_s,
    measure_first_byte_s,
    measure_streams_mb_per_s,
    object_nbytes,
)

# Requests of the latency measurement are spread out to at most this rate, so
# that neither client nor relay queues them: latency is not capacity.
MAX_LATENCY_REQUESTS_PER_S = 400.0

# To exceed a request rate takes rate x latency connections, bounded by this.
MAX_CONNECTIONS = 256

# Rates are counted for this long, less where the object ends before.
WINDOW_S = 0.5

Quantity = Literal["first_byte_s", "stream_mb_per_s", "aggregate_mb_per_s", "requests_per_s"]


@dataclass(frozen=True, slots=True)
class Calibration:
    """Hold one figure of a network, asked and measured.

    Parameters
    ----------
    quantity : str
        What was measured, with its unit; `first_byte_s` is a median,
        `stream_mb_per_s` the median of the connections.
    n_connections : int
        Connections open at the time.
    asked, measured : float
        In the unit of `quantity`; MB are decimal.

    Examples
    --------
    >>> round(Calibration("stream_mb_per_s", 4, asked=20, measured=19).error, 6)
    -0.05
    """

    quantity: Quantity
    n_connections: int
    asked: float
    measured: float

    @property
    def error(self) -> float:
        """Deviation of the measured figure as a share of the asked one."""
        return self.measured / self.asked - 1


@dataclass(frozen=True, slots=True)
class Asked:
    """Hold what was asked of a network; None is not imposed and not measured.

    Parameters
    ----------
    first_byte_s : float or None
        Median delay to the first byte, seconds.
    stream_mb_per_s, aggregate_mb_per_s : float or None
        Ceilings for one connection and for all together, decimal MB/s.
    requests_per_s : float or None
        Ceiling on requests.
    """

    first_byte_s: float | None = None
    stream_mb_per_s: float | None = None
    aggregate_mb_per_s: float | None = None
    requests_per_s: float | None = None

    def rate_mb_per_s(self, n_connections: int) -> float | None:
        """Compute the rate of each of `n_connections` that read at once.

        Examples
        --------
        >>> Asked(stream_mb_per_s=18, aggregate_mb_per_s=250).rate_mb_per_s(50)
        5.0
        """
        rates = []
        if self.stream_mb_per_s is not None:
            rates.append(float(self.stream_mb_per_s))
        if self.aggregate_mb_per_s is not None:
            rates.append(self.aggregate_mb_per_s / n_connections)
        return min(rates, default=None)


def calibrate(
    url: str, asked: Asked, *, connections: Sequence[int] = (1, 4, 16, 64)
) -> list[Calibration]:
    """Measure a network beside what was asked of it.

    Takes 4 s for a median of 30 ms and 9 s for one of 150 ms, most of it in
    waiting for 20 requests one after the other on one connection.

    Parameters
    ----------
    url : str
        An object to read through the network, 16 MB or more, anonymously or
        with a presigned URL.
    asked : Asked
        What was imposed.
    connections : sequence of int
        Numbers of connections at which to measure, each at least 1.

    Returns
    -------
    list of Calibration
        Latency, then rate per connection and of all, at each number of
        connections; then the request rate, left out where 256 connections of
        this machine cannot exceed it by a fifth.

    Raises
    ------
    UserError
        If `url` answers with an error, or `connections` holds a number below 1.
    """
    if not connections or min(connections) < 1:
        raise UserError(f"connections is {tuple(connections)!r}; allowed are numbers from 1 on")
    rows: list[Calibration] = []
    for n in connections:
        rows += _calibrate_latency(url, asked, n)
    nbytes = object_nbytes(url)
    for n in connections:
        rows += _calibrate_rates(url, asked, n, nbytes)
    return rows + _calibrate_requests(url, asked)


def _calibrate_latency(url: str, asked: Asked, n: int) -> list[Calibration]:
    """Measure the median latency at `n` connections, well below the request rate."""
    if asked.first_byte_s is None:
        return []
    per_s = MAX_LATENCY_REQUESTS_PER_S
    if asked.requests_per_s is not None:
        per_s = min(per_s, asked.requests_per_s / 2)
    measured = measure_first_byte_s(url, n, spacing_s=1 / per_s)
    return [Calibration("first_byte_s", n, asked.first_byte_s, measured)]


def _calibrate_rates(url: str, asked: Asked, n: int, nbytes: int) -> list[Calibration]:
    """Measure the rates of `n` connections that read at once."""
    rate = asked.rate_mb_per_s(n)
    if rate is None:
        return []
    # a third is kept for what passes before all are under way
    window_s = min(WINDOW_S, 0.67 * nbytes / (rate * MB))
    rates = measure_streams_mb_per_s(url, n, window_s=window_s)
    return [
        Calibration("stream_mb_per_s", n, rate, median(rates)),
        Calibration("aggregate_mb_per_s", n, n * rate, sum(rates)),
    ]


def _calibrate_requests(url: str, asked: Asked) -> list[Calibration]:
    """Measure the requests accepted when half as many again are made."""
    if asked.requests_per_s is None:
        return []
    offered = 1.5 * asked.requests_per_s
    # twice what the median needs, because the mean is above the median
    n = max(4, ceil(2 * offered * (asked.first_byte_s or 0.001)))
    if n > MAX_CONNECTIONS:
        return []
    made, accepted = measure_accepted_per_s(url, n, offered_per_s=offered)
    if made < 1.2 * asked.requests_per_s:
        return []
    return [Calibration("requests_per_s", n, asked.requests_per_s, accepted)]


@dataclass(frozen=True, slots=True)
class Overhead:
    """Hold what passing through a relay costs, nothing imposed.

    Parameters
    ----------
    direct_mb_per_s, relayed_mb_per_s : float
        Medians over the rounds, decimal MB/s.
    ratio : float
        Median over the rounds of relayed over direct throughput.
    cpu_s_per_gb : float
        Processor time of the relay for each GB that passed, seconds.
    """

    direct_mb_per_s: float
    relayed_mb_per_s: float
    ratio: float
    cpu_s_per_gb: float


def measure_overhead(
    direct_urls: Sequence[str],
    relayed_urls: Sequence[str],
    *,
    cpu_s: Callable[[], float],
    n_rounds: int = 5,
    n_repeats: int = 4,
) -> Overhead:
    """Measure what a relay costs: the same objects directly and through it, in turn.

    Parameters
    ----------
    direct_urls, relayed_urls : sequence of str
        The same objects by both ways, one for each connection.
    cpu_s : callable
        Tells the processor time the relay has used so far, seconds.
    n_rounds : int
        Pairs of a direct and a relayed measurement; one more goes before as a warm-up.
    n_repeats : int
        Times each connection reads its object in a measurement.

    Returns
    -------
    Overhead
        Throughput of both ways, their ratio, processor time.
    """
    direct, relayed, cpu = list[float](), list[float](), list[float]()
    for _ in range(n_rounds + 1):
        direct.append(_read_all(direct_urls, n_repeats)[0])
        before_s = cpu_s()
        mb_per_s, nbytes = _read_all(relayed_urls, n_repeats)
        cpu.append((cpu_s() - before_s) / (nbytes / 1e9))
        relayed.append(mb_per_s)
    ratios = [b / a for a, b in zip(direct[1:], relayed[1:], strict=True)]
    return Overhead(median(direct[1:]), median(relayed[1:]), median(ratios), median(cpu[1:]))


def _read_all(urls: Sequence[str], n_repeats: int) -> tuple[float, int]:
    """Read all objects at once, each on a connection; return MB/s and bytes."""
    start_s = time.perf_counter()
    with ThreadPoolExecutor(len(urls)) as pool:
        nbytes = sum(pool.map(_read, urls, [n_repeats] * len(urls)))
    return nbytes / (time.perf_counter() - start_s) / MB, nbytes


def _read(url: str, n_repeats: int) -> int:
    """Read an object several times on one connection; return the bytes."""
    parts, buffer, nbytes = urlsplit(url), bytearray(1 << 20), 0
    connection = HTTPConnection(parts.hostname or "", parts.port)
    for _ in range(n_repeats):
        connection.request("GET", f"{parts.path}?{parts.query}")
        response = connection.getresponse()
        if response.status != 200:
            raise UserError(
                f"url is {url.partition('?')[0]!r} and answers {response.status}; "
                "allowed is an object that can be read"
            )
        while got := response.readinto(buffer):
            nbytes += got
    connection.close()
    return nbytes
