"""What a network does, beside its target: latency and rates, by a plain client."""

from __future__ import annotations

import re
import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from math import ceil, inf, log2
from statistics import median
from typing import Literal
from urllib.parse import urlsplit

import pandas as pd

from helpers.errors import UserError
from helpers.netem.profiles import MB, Profile, check_dilation

# No answer for this long means that the network is not what it should be.
PATIENCE_S = 20.0


@dataclass(slots=True)
class _Getter:
    """Ask for one range over and over on one connection, and note when what came."""

    url: str
    byte_range: str
    sock: socket.socket = field(init=False)
    head: bytes = field(init=False, default=b"")
    asked_s: float = field(init=False, default=0.0)
    first_byte_s: float = field(init=False, default=0.0)
    last_s: float = field(init=False, default=0.0)
    got_nbytes: int = field(init=False, default=0)
    nbytes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        is_safe, host = parts.scheme == "https", parts.hostname or ""
        self.sock = socket.create_connection(
            (host, parts.port or (443 if is_safe else 80)), PATIENCE_S
        )
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if is_safe:
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=host)

    def ask(self) -> None:
        """Send the request."""
        parts = urlsplit(self.url)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        lines = (
            f"GET {target} HTTP/1.1",
            f"Host: {parts.netloc}",
            f"Range: bytes={self.byte_range}",
        )
        self.head, self.got_nbytes, self.nbytes, self.first_byte_s = b"", 0, 0, 0.0
        self.asked_s = time.perf_counter()
        self.sock.sendall("\r\n".join((*lines, "", "")).encode())

    @property
    def status(self) -> int:
        """HTTP status of the answer."""
        return int(self.head[9:12])

    @property
    def has_all(self) -> bool:
        """Whether the answer has come whole."""
        return bool(self.head) and self.got_nbytes == self.nbytes

    def receive(self, buffer: bytearray) -> None:
        """Take what has come."""
        got = self.sock.recv_into(buffer)
        self.last_s = time.perf_counter()
        if not got:
            raise ConnectionError(f"{self.url.partition('?')[0]} closed the connection")
        if self.head:
            self.got_nbytes += got
            return
        self.first_byte_s = self.last_s
        head, _, body = bytes(buffer[:got]).partition(b"\r\n\r\n")
        self.head, self.got_nbytes = head, len(body)
        self.nbytes = _number(head, rb"(?i)\r\ncontent-length: *(\d+)")


def _number(head: bytes, pattern: bytes) -> int:
    """Find a number in the head of an answer."""
    if found := re.search(pattern, head):
        return int(found[1])
    raise ConnectionError(f"an answer lacks what {pattern!r} matches")


class _Getters:
    """Hold several getters and wait for what comes to any of them."""

    def __init__(self, getters: Sequence[_Getter]) -> None:
        self.all = getters
        self._buffer = bytearray(1 << 20)
        self._selector = selectors.DefaultSelector()
        for getter in getters:
            self._selector.register(getter.sock, selectors.EVENT_READ, getter)

    def receive(self, timeout_s: float) -> list[_Getter]:
        """Take what comes within `timeout_s`; return the getters it came to."""
        ready: list[_Getter] = [key.data for key, _ in self._selector.select(max(0.0, timeout_s))]
        for getter in ready:
            getter.receive(self._buffer)
        return ready

    def close(self) -> None:
        """Close all connections, whatever is on its way."""
        self._selector.close()
        for getter in self.all:
            getter.sock.close()


@contextmanager
def _open_getters(url: str, byte_range: str, n: int) -> Iterator[_Getters]:
    """Open `n` connections."""
    with ExitStack() as stack:
        opened = []
        for _ in range(n):
            opened.append(_Getter(url, byte_range))
            stack.callback(opened[-1].sock.close)
        getters = _Getters(opened)
        stack.callback(getters.close)
        yield getters


@dataclass(frozen=True, slots=True)
class _Answer:
    """Hold when a small request was made, how long its first byte took, its status."""

    asked_s: float
    delay_s: float
    status: int


def _ask_spaced(getters: _Getters, n_requests: int, spacing_s: float) -> list[_Answer]:
    """Make small requests, one each `spacing_s`, while connections are idle."""
    idle, answers, n_asked = deque(getters.all), list[_Answer](), 0
    due_s = time.perf_counter()
    while len(answers) < n_requests:
        now_s = time.perf_counter()
        may_ask = bool(idle) and n_asked < n_requests
        if may_ask and now_s >= due_s:
            idle.popleft().ask()
            n_asked, due_s = n_asked + 1, due_s + spacing_s
            continue
        ready = getters.receive(due_s - now_s if may_ask else PATIENCE_S)
        if not ready and not may_ask:
            raise TimeoutError(f"no answer within {PATIENCE_S} s")
        for getter in ready:
            if getter.has_all:
                delay_s = getter.first_byte_s - getter.asked_s
                answers.append(_Answer(getter.asked_s, delay_s, getter.status))
                idle.append(getter)
    return answers


def measure_first_byte_s(
    url: str, n_connections: int, *, spacing_s: float, setup_s: float = 0.0
) -> float:
    """Measure the median time from a request of one byte to the first byte of its answer.

    The first request on a connection is held up for as long as an emulated set-up takes, so that
    is waited for before.
    """
    n_requests = 20 * ceil((n_connections + 4) / 20)
    with _open_getters(url, "0-0", n_connections) as getters:
        time.sleep(setup_s)
        answers = _ask_spaced(getters, n_requests, spacing_s)
    _check_status(url, answers)
    return median(one.delay_s for one in answers)


def object_nbytes(url: str) -> int:
    """Return the size in bytes of an object that can be read in ranges."""
    with _open_getters(url, "0-0", 1) as getters:
        _check_status(url, _ask_spaced(getters, 1, 0.0))
        return _number(getters.all[0].head, rb"(?i)\r\ncontent-range: *bytes 0-0/(\d+)")


def _check_status(url: str, answers: Sequence[_Answer]) -> None:
    """Refuse an object that cannot be read in ranges."""
    if bad := [one.status for one in answers if one.status != 206]:
        raise UserError(
            f"url is {url.partition('?')[0]!r} and answers {bad[0]}; "
            "allowed is an object that can be read in ranges"
        )


def measure_accepted_per_s(
    url: str, n_connections: int, *, offered_per_s: float
) -> tuple[float, float]:
    """Measure how many requests a second are let through when more are made."""
    with _open_getters(url, "0-0", n_connections) as getters:
        answers = _ask_spaced(getters, ceil(1.5 * offered_per_s), 1 / offered_per_s)
    answers.sort(key=lambda one: one.asked_s)
    counted = answers[len(answers) // 2 :]
    duration_s = counted[-1].asked_s - counted[0].asked_s
    accepted = [one for one in counted if one.status == 206]
    _check_status(url, accepted or answers[:1])
    return (len(counted) - 1) / duration_s, (len(accepted) - 1) / duration_s


def measure_streams_mb_per_s(
    url: str, n_connections: int, *, window_s: float, ramp_s: float = 0.0
) -> list[float]:
    """Measure the rate of each of several connections that read at once.

    Each reads the object from its beginning. Once all are under way, and `ramp_s` of slow start
    are over, bytes are counted until `window_s` is over or one of them has the whole object. One
    that nothing comes over meanwhile, as on a machine that is busy, has the rate 0.
    """
    with _open_getters(url, "0-", n_connections) as getters:
        for getter in getters.all:
            getter.ask()
        _receive_while(getters, lambda: not all(one.got_nbytes for one in getters.all))
        _receive_until(getters, time.perf_counter() + max(ramp_s, window_s / 8))
        before = [(one.last_s, one.got_nbytes) for one in getters.all]
        _receive_until(getters, time.perf_counter() + window_s)
        return [
            (one.got_nbytes - nbytes) / (one.last_s - last_s) / MB if one.last_s > last_s else 0.0
            for one, (last_s, nbytes) in zip(getters.all, before, strict=True)
        ]


def _receive_while(getters: _Getters, is_needed: Callable[[], bool]) -> None:
    """Take what comes as long as it is needed."""
    while is_needed():
        if not getters.receive(PATIENCE_S):
            raise TimeoutError(f"nothing came within {PATIENCE_S} s")


def _receive_until(getters: _Getters, end_s: float) -> None:
    """Take what comes until a moment, or until one getter has all."""
    while (left_s := end_s - time.perf_counter()) > 0:
        if any(one.has_all for one in getters.receive(left_s)):
            return


# Requests of the latency measurement are spread out to at most this rate, so
# that neither client nor proxy queues them: latency is not capacity.
MAX_LATENCY_REQUESTS_PER_S = 400.0

# To exceed a request rate takes rate x latency connections, bounded by this.
MAX_CONNECTIONS = 256

# Rates are counted for this long in the network's time, less where the object ends before.
WINDOW_S = 0.5

Quantity = Literal["first_byte_s", "stream_mb_per_s", "aggregate_mb_per_s", "requests_per_s"]


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
        """Tell a figure measured in real seconds in those of a network slowed down.

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
    """Measure a network beside the profile that it should have.

    Takes 4 s for a median of 30 ms and 9 s for one of 150 ms, most of it in
    waiting for 20 requests one after the other on one connection; with a dilation,
    as many times longer, told in the network's seconds. The object at `url` has 16 MB
    or more, and is read anonymously. Found are latency, then rate per connection and of
    all, at each number of connections; then the request rate, left out where 256
    connections of this machine cannot exceed it by a fifth. A figure of the profile that
    is None is not measured.
    """
    if not connections or min(connections) < 1:
        raise UserError(f"connections is {tuple(connections)!r}; allowed are numbers from 1 on")
    check_dilation(dilation)
    real = profile.slowed_down(dilation)
    rows: list[Calibration] = []
    for n in connections:
        rows += _calibrate_latency(url, real, n)
    nbytes = object_nbytes(url)
    for n in connections:
        rows += _calibrate_rates(url, real, n, nbytes, window_s=WINDOW_S * dilation)
    rows += _calibrate_requests(url, real)
    return [one.in_time_of(dilation) for one in rows]


def tabulate_calibration(
    probe_url: Callable[[], str], profile: Profile, *, dilation: float = 1.0
) -> pd.DataFrame:
    """Tabulate what a network does beside its profile; empty where nothing is emulated.

    `probe_url` makes the object that is read and gives its address. Where nothing is emulated it
    is not called: the store may be one that nobody may write to.
    """
    # readers stay far below the ceiling on requests
    wanted = replace(profile, requests_per_s=None)
    is_emulated = wanted.first_byte_s or wanted.stream_mb_per_s or wanted.aggregate_mb_per_s
    found = calibrate(probe_url(), wanted, dilation=dilation) if is_emulated else []
    lines = [(c.quantity, c.n_connections, c.target, c.measured, c.error) for c in found]
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


def _calibrate_requests(url: str, profile: Profile) -> list[Calibration]:
    """Measure the requests accepted when half as many again are made."""
    if profile.requests_per_s is None:
        return []
    offered = 1.5 * profile.requests_per_s
    # twice what the median needs, because the mean is above the median
    delay_s = profile.first_byte_s.median_s if profile.first_byte_s else 0.001
    n = max(4, ceil(2 * offered * delay_s))
    if n > MAX_CONNECTIONS:
        return []
    made, accepted = measure_accepted_per_s(url, n, offered_per_s=offered)
    if made < 1.2 * profile.requests_per_s:
        return []
    return [Calibration("requests_per_s", n, profile.requests_per_s, accepted)]
