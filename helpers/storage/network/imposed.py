"""What is imposed on all connections, and what each request meets of it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from random import Random

from helpers.storage.network.pacing import Link, normal_variates
from helpers.storage.network.pipes import HAS_SPLICE
from helpers.storage.network.profiles import Fault, Profile
from helpers.storage.network.trace import Trace


@dataclass(frozen=True, slots=True)
class Terms:
    """Hold what one request meets.

    Parameters
    ----------
    link : Link
        The link its bodies pass.
    delay_s : float
        Seconds from the request to the first byte of its response.
    fault : Fault or None
        What goes wrong; `error_503` also where the request rate is exceeded.
    tag : str
        The tag in force.
    """

    link: Link
    delay_s: float
    fault: Fault | None
    tag: str


class Network:
    """Hold what is imposed on all connections; it can be changed at any moment.

    Delays and faults are drawn in the order in which requests arrive, from two
    sequences of the seed, which go on when the profile changes.

    Parameters
    ----------
    address : tuple of str and int
        Host and port of the upstream server.
    seed : int
        Seed of delays and faults.
    is_spliced : bool
        Whether bodies pass through the kernel, or are copied.
    """

    def __init__(
        self, address: tuple[str, int], *, seed: int, is_spliced: bool = HAS_SPLICE
    ) -> None:
        self.address = address
        self.is_spliced = is_spliced
        self.trace = Trace()
        self._lock = threading.Lock()
        self._delays = Random(f"delays {seed}")
        self._variates = normal_variates(self._delays)
        self._faults = Random(f"faults {seed}")
        self._link = Link(Profile("loopback"))
        self._tag = ""

    def impose(self, profile: Profile) -> None:
        """Impose a profile on the requests that arrive from now on.

        A new set of delays begins, so that what follows meets whole sets.
        """
        link = Link(profile)
        with self._lock:
            self._link = link
            self._variates = normal_variates(self._delays)

    def set_tag(self, tag: str) -> None:
        """Tag the requests that arrive from now on."""
        with self._lock:
            self._tag = tag

    def admit(self, now_s: float) -> Terms:
        """Draw what a request meets that arrives now."""
        with self._lock:
            z, u = next(self._variates), self._faults.random()
            link, tag = self._link, self._tag
        profile = link.profile
        delay_s = 0.0 if profile.first_byte_s is None else profile.first_byte_s.delay_s(z)
        fault = profile.faults.pick(u) if link.admits(now_s) else "error_503"
        return Terms(link, delay_s, fault, tag)
