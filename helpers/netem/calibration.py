"""What a network does, next to its target: latency and rates, by plain threads that read one object."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from math import ceil, inf, log2
from statistics import median
from typing import Literal
from urllib.parse import urlsplit

import numpy as np
import pandas as pd

from helpers.errors import UserError
from helpers.netem.profiles import MB, Profile

# No answer for this long means that the network is not what it should be.
PATIENCE_S = 20.0

# Requests of the latency measurement are spread out to at most this rate, so
# that neither client nor proxy queues them: latency is not capacity.
MAX_LATENCY_REQUESTS_PER_S = 400.0

# Rates are counted for this long in the network's time, less where the object ends before.
WINDOW_S = 0.5

PIECE_NBYTES = 1 << 16

Quantity = Literal["first_byte_s", "stream_mb_per_s", "aggregate_mb_per_s"]


@dataclass(frozen=True, slots=True)
class Calibration:
    """Hold one figure of a network, target and measured.

    Examples
    --------
    >>> round(Calibration("stream_mb_per_s", 4, target=20, measured=19).error, 6)
    -0.05
    """

    # what was measured, with its unit; `first_byte_s` is a median, `stream_mb_per_s` the median
    # of the connections
    quantity: Quantity
    n_connections: int  # connections open at the time
    target: float  # in the unit of `quantity`; MB are decimal
    measured: float

    @property
    def error(self) -> float:
        """Deviation of the measured figure as a share of the target."""
        return self.measured / self.target - 1

    def in_time_of(self, dilation: float) -> Calibration:
        """Give a figure measured in real seconds in those of a network slowed down.

        Examples
        --------
        >>> Calibration("first_byte_s", 1, target=0.3, measured=0.3).in_time_of(10).target
        0.03
        """
        factor = 1 / dilation if self.quantity == "first_byte_s" else dilation
        return replace(self, target=factor * self.target, measured=factor * self.measured)


def calibrate(
    url: str,
    profile: Profile,
    *,
    connections: Sequence[int] = (1, 4, 16, 64),
    dilation: float = 1.0,
) -> list[Calibration]:
    """Measure latency, rate of a connection and rate of all, at each number of connections.

    Takes 4 s for a median of 30 ms and 9 s for one of 150 ms, most of it in
    waiting for 20 requests one after the other on one connection; with a dilation,
    as many times longer, given in the network's seconds. The object at `url` has 16 MB
    or more, and is read anonymously. A figure of the profile that is None is not measured.
    """
    real = profile.slowed_down(dilation)
    with closing(_connect(url)) as connection:
        nbytes = int(_ask(connection, url, "0-0").headers["Content-Range"].rpartition("/")[2])
    rows: list[Calibration] = []
    for n in connections:
        rows += _calibrate_latency(url, real, n)
    for n in connections:
        rows += _calibrate_rates(url, real, n, nbytes, window_s=WINDOW_S * dilation)
    return [each.in_time_of(dilation) for each in rows]


def tabulate_calibration(
    probe_url: Callable[[], str], profile: Profile, *, dilation: float = 1.0
) -> pd.DataFrame:
    """Tabulate what a network does next to its profile; empty where nothing is emulated.

    `probe_url` makes the object that is read and gives its address. Where nothing is emulated it
    is not called: the store may be one that nobody may write to.
    """
    is_emulated = profile.first_byte_s or profile.stream_mb_per_s or profile.aggregate_mb_per_s
    rows = calibrate(probe_url(), profile, dilation=dilation) if is_emulated else []
    lines = [(c.quantity, c.n_connections, c.target, c.measured, c.error) for c in rows]
    names = ["quantity", "n_connections", "target", "measured", "error"]
    return pd.DataFrame(lines, columns=names)


def _calibrate_latency(url: str, profile: Profile, n: int) -> list[Calibration]:
    """Measure the median latency at `n` connections, well below the request rate."""
    if profile.first_byte_s is None:
        return []
    per_s = min(MAX_LATENCY_REQUESTS_PER_S, (profile.requests_per_s or inf) / 2)
    measured = measure_first_byte_s(url, n, spacing_s=1 / per_s, setup_s=profile.setup_s)
    return [Calibration("first_byte_s", n, profile.first_byte_s.median_s, measured)]


def _calibrate_rates(
    url: str, profile: Profile, n: int, nbytes: int, *, window_s: float
) -> list[Calibration]:
    """Measure the rates of `n` connections that read at once."""
    rate = min(profile.stream_mb_per_s or inf, (profile.aggregate_mb_per_s or inf) / n)
    if rate == inf:
        return []
    # a third is kept for what passes before all are under way
    window_s = min(window_s, 0.67 * nbytes / (rate * MB))
    trip_s, window = profile.round_trip_s or 0.0, profile.initial_window_nbytes or inf
    ramp_s = trip_s * ceil(log2(max(1.0, rate * MB * trip_s / window)))
    rates = measure_streams_mb_per_s(url, n, window_s=window_s, ramp_s=ramp_s)
    return [
        Calibration("stream_mb_per_s", n, rate, median(rates)),
        Calibration("aggregate_mb_per_s", n, n * rate, sum(rates)),
    ]


def _connect(url: str) -> http.client.HTTPConnection:
    """Open a connection to the server of an object."""
    parts = urlsplit(url)
    is_safe = parts.scheme == "https"
    kind = http.client.HTTPSConnection if is_safe else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=PATIENCE_S)
    connection.connect()
    return connection


def _ask(
    connection: http.client.HTTPConnection, url: str, byte_range: str
) -> http.client.HTTPResponse:
    """Ask for a range; return when the head of the answer is there."""
    target = url.removeprefix("{0.scheme}://{0.netloc}".format(urlsplit(url)))
    connection.request("GET", target, headers={"Range": f"bytes={byte_range}"})
    response = connection.getresponse()
    if response.status != 206:
        raise UserError(
            f"url is {url.partition('?')[0]!r} and answers {response.status}; "
            "allowed is an object that can be read in ranges"
        )
    return response


def measure_first_byte_s(
    url: str, n_connections: int, *, spacing_s: float, setup_s: float = 0.0
) -> float:
    """Measure the median time from a request of one byte to the first byte of its answer.

    Requests are made one each `spacing_s`, while connections are idle. The first on a connection
    is held up for as long as an emulated set-up takes, so that is waited for before.
    """
    n_requests = 20 * ceil((n_connections + 4) / 20)
    turns = count()
    all_open = threading.Barrier(n_connections + 1)
    start_s = inf

    def ask() -> list[float]:
        delays_s: list[float] = []
        with closing(_connect(url)) as connection:
            all_open.wait(PATIENCE_S)  # all are open
            all_open.wait(PATIENCE_S + setup_s)  # and it has been said when the first may ask
            while (turn := next(turns)) < n_requests:
                time.sleep(max(0.0, start_s + turn * spacing_s - time.perf_counter()))
                asked_s = time.perf_counter()
                response = _ask(connection, url, "0-0")
                delays_s.append(time.perf_counter() - asked_s)
                response.read()
        return delays_s

    with ThreadPoolExecutor(n_connections) as threads:
        asking = [threads.submit(ask) for _ in range(n_connections)]
        all_open.wait(PATIENCE_S)
        time.sleep(setup_s)
        start_s = time.perf_counter()
        all_open.wait(PATIENCE_S)
        return median(delay_s for each in asking for delay_s in each.result())


def measure_streams_mb_per_s(
    url: str, n_connections: int, *, window_s: float, ramp_s: float = 0.0
) -> list[float]:
    """Measure the rate of each of several connections that read at once.

    Each reads the object from its beginning. Bytes are counted from the moment when all are under
    way and `ramp_s` of slow start are over, for `window_s` or until one has the whole object. One
    that nothing comes over meanwhile, as on a machine that is busy, has the rate 0.
    """
    started_s: list[float] = []  # of connections that are under way
    stretch_s = max(ramp_s, window_s / 8)

    def read() -> tuple[list[float], list[int], bool]:
        moments, came = list[float](), list[int]()
        with closing(_connect(url)) as connection:
            response = _ask(connection, url, "0-")
            while piece := response.read1(PIECE_NBYTES):
                moments.append(time.perf_counter())
                came.append(len(piece) + (came[-1] if came else 0))
                if len(came) == 1:
                    started_s.append(moments[0])
                is_counted = len(started_s) == n_connections
                if is_counted and moments[-1] > max(started_s) + stretch_s + window_s:
                    return moments, came, False
        return moments, came, True

    with ThreadPoolExecutor(n_connections) as threads:
        reading = [threads.submit(read) for _ in range(n_connections)]
        lanes = [each.result() for each in reading]
    start_s = max(started_s) + stretch_s
    ends_s = [moments[-1] for moments, _, is_whole in lanes if is_whole]
    end_s = min([start_s + window_s, *ends_s])
    return [
        float(np.diff(np.interp([start_s, end_s], moments, came))[0]) / (end_s - start_s) / MB
        for moments, came, _ in lanes
    ]
