"""What a network is made of: validated profiles, shipped as data with sources."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import cache
from hashlib import sha256
from math import exp, inf, isfinite, log
from pathlib import Path
from types import UnionType
from typing import Any, Literal

from helpers.errors import UserError, show
from helpers.models.transfer import Network
from helpers.paths import ROOT


def check_number(
    name: str, value: object, *, low: float = 0, high: float = inf, is_open: bool = False
) -> None:
    """Refuse a figure that is not a number in its interval, open or closed below."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if is_number and low <= value <= high and not (is_open and value == low):  # type: ignore[operator]
        return
    interval = f"{'above' if is_open else 'at least'} {low:g}"
    most = "" if high == inf else f", at most {high:g}"
    raise UserError(f"{name} is {value!r}; allowed is a number {interval}{most}")


def check_kind(name: str, value: object, kind: type | UnionType) -> None:
    """Refuse a value of another type."""
    if not isinstance(value, kind):
        raise UserError(f"{name} is {value!r}; allowed is {kind}")


def check_known(where: str, given: object, kind: type) -> None:
    """Refuse what is no mapping of names of fields of `kind`."""
    if not isinstance(given, Mapping):
        raise UserError(f"{where} is {given!r}; allowed is a mapping")
    allowed = [one.name for one in fields(kind)]
    if unknown := [name for name in given if name not in allowed]:
        raise UserError(
            f"{where} has the unknown field {unknown[0]!r}; allowed are {', '.join(allowed)}"
        )


def check_mapping(where: str, given: Mapping[str, Any], kind: type) -> None:
    """Refuse what `kind` cannot be built from."""
    check_known(where, given, kind)
    needed = [one.name for one in fields(kind) if one.default is one.default_factory is MISSING]
    if missing := [name for name in needed if name not in given]:
        raise UserError(f"{where} lacks {missing[0]!r}; needed are {', '.join(needed)}")


def check_dilation(dilation: object) -> None:
    """Refuse a factor of time dilation that would speed time up, or stop it.

    Examples
    --------
    >>> check_dilation(0.5)
    Traceback (most recent call last):
    helpers.errors.UserError: dilation is 0.5; allowed is a number at least 1
    """
    check_number("dilation", dilation, low=1)


def check_profile(store: str, name: str, dilation: float | str = 1.0) -> None:
    """Refuse to emulate a network, or its time, on a store that has its own."""
    if not isinstance(dilation, str):  # who chooses it later chooses one that there is
        check_dilation(dilation)
    if store != "embedded" and name != "loopback":
        raise UserError(
            f"profile: {name!r}; allowed: loopback, because nothing is emulated on the network"
            " of a store of your own"
        )
    if store != "embedded" and dilation != 1:
        told = dilation if isinstance(dilation, str) else f"{dilation:g}"
        raise UserError(
            f"dilation: {told}; allowed: 1, because time is real on a store of your own"
        )


MB = 1_000_000
"""Bytes in a decimal megabyte."""

Fault = Literal["error_503", "reset", "truncate", "stall", "corrupt"]
FAULTS: tuple[Fault, ...] = ("error_503", "reset", "truncate", "stall", "corrupt")

_LATER = ("round_trip_s", "setup_round_trips", "initial_window_nbytes", "tail", "is_stratified")
RATES = ("stream_mb_per_s", "worker_mb_per_s", "aggregate_mb_per_s", "requests_per_s")

# The 95th percentile of a standard normal variate.
_Z95 = 1.6448536269514722


@dataclass(frozen=True, slots=True)
class FirstByte:
    """Hold the log-normal delay from a request to the first byte of its response.

    Examples
    --------
    >>> FirstByte(median_s=0.030, p95_s=0.100).delay_s(0.0)
    0.03
    """

    median_s: float  # seconds, above 0
    p95_s: float  # 95th percentile in seconds, at least the median

    def __post_init__(self) -> None:
        """Refuse delays that are no distribution."""
        check_number("first_byte_s.median_s", self.median_s, is_open=True)
        check_number("first_byte_s.p95_s", self.p95_s, low=self.median_s)

    def delay_s(self, z: float) -> float:
        """Compute the delay in seconds that belongs to a standard normal variate."""
        return self.median_s * exp(z * log(self.p95_s / self.median_s) / _Z95)


@dataclass(frozen=True, slots=True)
class Tail:
    """Hold the few requests whose first byte comes much later than the others'.

    Examples
    --------
    >>> Tail(share=0, late_s=1)
    Traceback (most recent call last):
    helpers.errors.UserError: tail.share is 0; allowed is a number above 0, at most 0.5
    """

    share: float  # of all requests, above 0 and at most a half, or it would not be a tail
    late_s: float  # seconds by which they come later

    def __post_init__(self) -> None:
        """Refuse what is no tail."""
        check_number("tail.share", self.share, high=0.5, is_open=True)
        check_number("tail.late_s", self.late_s, is_open=True)


@dataclass(frozen=True, slots=True)
class Faults:
    """Hold the probability, from 0 to 1, that a request meets each kind of fault."""

    error_503: float = 0.0  # answered 503 SlowDown instead of being passed on
    reset: float = 0.0  # connection reset before any byte of the response; not passed on
    truncate: float = 0.0  # connection closed after half the body
    stall: float = 0.0  # pause of `stall_s` seconds after half the body
    corrupt: float = 0.0  # one byte in the middle of the body inverted
    stall_s: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what is no set of exclusive probabilities."""
        for name in FAULTS:
            check_number(f"faults.{name}", getattr(self, name), high=1)
        check_number("faults.stall_s", self.stall_s)
        total = sum(getattr(self, name) for name in FAULTS)
        check_number("the sum of the probabilities in faults", total, high=1)

    def pick(self, u: float) -> Fault | None:
        """Choose the fault that belongs to a uniform variate in [0, 1).

        Examples
        --------
        >>> Faults(reset=0.5).pick(0.2), Faults(reset=0.5).pick(0.7)
        ('reset', None)
        """
        for name in FAULTS:
            u -= getattr(self, name)
            if u < 0:
                return name
        return None


@dataclass(frozen=True, slots=True)
class Profile:
    """Hold a network to emulate; a figure that is None is not emulated.

    Examples
    --------
    >>> Profile("slow", stream_mb_per_s=0)
    Traceback (most recent call last):
    helpers.errors.UserError: stream_mb_per_s is 0; allowed is a number above 0
    """

    name: str  # how records call it
    first_byte_s: FirstByte | None = None  # delay from a request to the first byte of its response
    # ceilings for one connection and for all together, decimal MB/s
    stream_mb_per_s: float | None = None
    aggregate_mb_per_s: float | None = None
    requests_per_s: float | None = None  # requests above this rate are answered 503 SlowDown
    faults: Faults = field(default_factory=Faults)  # for tests
    scale: float = 1.0  # factor by which bandwidths and request rate were divided
    worker_mb_per_s: float | None = None  # ceiling for all connections of one reading process
    # where each figure comes from
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)
    # a round trip, which the time to the first byte holds; those before the first request of a new
    # connection, TCP's one and TLS's; and the bytes that it sends in the first round trip of a
    # body, twice as many in each after one that it filled
    round_trip_s: float | None = None
    setup_round_trips: float | None = None
    initial_window_nbytes: int | None = None
    tail: Tail | None = None  # requests whose first byte comes later by a fixed time
    is_stratified: bool | None = None  # False draws each first byte alone, and not in even sets

    def __post_init__(self) -> None:
        """Refuse figures that no network has."""
        if not isinstance(self.name, str) or not self.name:
            raise UserError(f"name is {self.name!r}; allowed is a text that is not empty")
        check_kind("first_byte_s", self.first_byte_s, FirstByte | None)
        check_kind("faults", self.faults, Faults)
        for name in RATES:
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), is_open=True)
        check_number("scale", self.scale, low=1)
        self._check_round_trips()
        check_kind("tail", self.tail, Tail | None)
        check_kind("is_stratified", self.is_stratified, bool | None)
        check_known("sources", self.sources, Profile)

    def _check_round_trips(self) -> None:
        """Refuse round trips longer than the whole answer, and what takes some where none is told."""
        counted = ("setup_round_trips", "initial_window_nbytes")
        told = [name for name in counted if getattr(self, name) is not None]
        for name in told:
            check_number(name, getattr(self, name), is_open=True)
        if self.round_trip_s is not None:
            most = 0.0 if self.first_byte_s is None else self.first_byte_s.median_s
            if not most:
                raise UserError(
                    f"round_trip_s is {self.round_trip_s!r}; allowed is None without first_byte_s"
                )
            check_number("round_trip_s", self.round_trip_s, high=most, is_open=True)
        elif told:
            name = told[0]
            raise UserError(
                f"{name} is {getattr(self, name)!r}; allowed is None without round_trip_s"
            )

    @property
    def setup_s(self) -> float:
        """Seconds from opening a connection to the moment at which it can carry a request."""
        return (self.round_trip_s or 0.0) * (self.setup_round_trips or 0.0)

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Profile:
        """Build a profile from plain values, as they come from YAML or JSON."""
        check_mapping(f"profile {given.get('name')!r}", given, cls)
        values = dict(given)
        for name, kind in (("first_byte_s", FirstByte), ("faults", Faults), ("tail", Tail)):
            if isinstance(values.get(name), Mapping):
                check_mapping(name, values[name], kind)
                values[name] = kind(**values[name])
        return cls(**values)

    def slowed_down(self, dilation: float) -> Profile:
        """Return what this network is in real time when it is emulated `dilation` times slower.

        Examples
        --------
        >>> Profile("example", stream_mb_per_s=90).slowed_down(10).stream_mb_per_s
        9.0
        """
        first = self.first_byte_s
        slow = first and FirstByte(first.median_s * dilation, first.p95_s * dilation)
        tail = self.tail and replace(self.tail, late_s=self.tail.late_s * dilation)
        trip_s = self.round_trip_s and self.round_trip_s * dilation
        slower = self._with_rates(1 / dilation)
        return replace(slower, first_byte_s=slow, round_trip_s=trip_s, tail=tail)

    def unscaled(self) -> Profile:
        """Return the network of which this is a scale model."""
        return replace(self._with_rates(self.scale), scale=1.0)

    def _with_rates(self, factor: float) -> Profile:
        told = ((name, getattr(self, name)) for name in RATES)
        rates: dict[str, Any] = {name: rate * factor for name, rate in told if rate is not None}
        return replace(self, **rates)

    def to_mapping(self) -> dict[str, Any]:
        """Return the plain values from which `from_mapping` builds the same profile.

        Digests of them stand in records, so a field that came later is there only where it is told.
        """
        values = asdict(self).items()
        return {name: value for name, value in values if value is not None or name not in _LATER}


@cache
def _read_profiles() -> dict[str, Profile]:
    """Read the profiles that ship with the package."""
    import yaml  # here, because the proxy's process needs no YAML and starts faster without

    text = Path(__file__).with_name("profiles.yaml").read_text(encoding="utf-8")
    return {
        name: Profile.from_mapping({"name": name, **given})
        for name, given in yaml.safe_load(text).items()
    }


def profile_names() -> tuple[str, ...]:
    """Return the names of the profiles that ship with the package.

    Examples
    --------
    >>> profile_names()
    ('loopback', 'in-region', 'other-region', 'wide-area', 'express', 'in-region-full-scale', 'other-region-full-scale', 'google-in-region', 'azure-in-region', 'institute')
    """
    return tuple(_read_profiles())


_FILE = re.compile(r"(?P<path>.+\.ya?ml)(?:@(?P<digest>[0-9a-f]{8}))?")

# What a network cannot be predicted without.
_NEEDED = ("first_byte_s", "stream_mb_per_s", "aggregate_mb_per_s")


def get_profile(name: str) -> Profile:
    """Return a profile that ships with the package, or that of a file, such as `wire calibrate` writes.

    A file is sought from the current folder and from the checkout. Its fields are those of
    `Profile` but the name, which is that of the file. ``FILE@DIGEST``, see `pin_profile`, is
    refused once its figures have changed; so is a calibration that lacks latency or bandwidth.
    One that is not whole, or was made on another machine, is told in a line on standard error.

    Examples
    --------
    >>> get_profile("in-region").aggregate_mb_per_s
    200
    """
    if name in _read_profiles():
        return _read_profiles()[name]
    found = _find_file(name)
    digest = _FILE.fullmatch(name)["digest"]  # type: ignore[index]
    if digest not in (None, found.digest):
        raise UserError(
            f"profile is {name!r}; allowed is the file as it was: its figures have"
            f" become {found.digest}"
        )
    _check_measurement(found)
    return found.profile


def get_measurement(name: str) -> Mapping[str, Any]:
    """Return how the profile of a file was measured; nothing for one that ships or was written by hand."""
    return {} if name in _read_profiles() else _find_file(name).measurement


def pin_profile(name: str) -> str:
    """Name a profile so that its figures cannot change unnoticed: a file with a digest of them.

    Records are published, so a file is named from the checkout, and not by an absolute path.
    """
    if name in _read_profiles():
        return name
    found = _find_file(name)
    path = _FILE.fullmatch(name)["path"]  # type: ignore[index]
    if Path(path).is_absolute():
        raise UserError(f"profile is {name!r}; allowed is a path that begins at the checkout")
    get_profile(name)
    return f"{path}@{found.digest}"


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """A profile from a file of a user's own, and how it was measured."""

    profile: Profile
    measurement: Mapping[str, Any]  # as `wire calibrate` writes it; empty where nothing is told

    @property
    def digest(self) -> str:
        """Hash of the figures, in eight digits."""
        left_out = ("name", "sources")
        figures = {k: v for k, v in self.profile.to_mapping().items() if k not in left_out}
        return sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()[:8]


def _find_file(name: str) -> ProfileFile:
    """Find and read the file that a name means."""
    match = _FILE.fullmatch(name)
    allowed = f"{', '.join(profile_names())}, or the path of a YAML file"
    if match is None:
        raise UserError(f"profile is {name!r}; allowed are {allowed}")
    path = Path(match["path"])
    for place in (path, ROOT / path):
        if place.is_file():
            return read_profile_file(place)
    raise UserError(f"profile is {name!r}; there is no such file; allowed are {allowed}")


def read_profile_file(path: Path) -> ProfileFile:
    """Read a profile from a YAML file; refuse what is none in one line."""
    import yaml

    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or "it is no YAML"
        raise UserError(f"profile is {path.name!r}, not read: {reason}") from error
    if not isinstance(given, dict):
        raise UserError(f"profile {path.name!r} is {show(given)}; allowed is a mapping")
    measurement = given.pop("measurement", {})
    if not isinstance(measurement, dict):
        raise UserError(
            f"profile {path.name!r}: measurement is {show(measurement)}; allowed is a mapping"
        )
    return ProfileFile(Profile.from_mapping({**given, "name": path.name}), measurement)


def _check_measurement(found: ProfileFile) -> None:
    """Refuse a calibration that tells too little; warn of one that is partial or not of this machine."""
    told, name = found.measurement, found.profile.name
    if told.get("state") == "partial":
        why = told.get("why") or "it was interrupted"
        if missing := [each for each in _NEEDED if getattr(found.profile, each) is None]:
            raise UserError(
                f"profile is {name!r}, whose calibration lacks {', '.join(missing)} ({why});"
                " allowed: after the same wire calibrate has measured the rest"
            )
        _warn(f"{name} is partial: {why}")
    if isinstance(told.get("machine"), Mapping):
        from helpers.benchmark.provenance import differences, machine

        if others := "; ".join(differences(machine(), told["machine"])):
            _warn(f"{name} was measured on another machine: {others}")


@cache
def _warn(text: str) -> None:
    """Say something in a line of its own, once."""
    print(f"warning: {text}", file=sys.stderr)


def network_of(profile: Profile, *, streams_per_worker: int = 1) -> Network:
    """Turn a profile into what the request model takes, in bytes and seconds.

    So many streams share the link of a worker, where the profile states one.
    """

    def rate(mb_per_s: float | None) -> float:
        return inf if mb_per_s is None else 1e6 * mb_per_s

    first, tail = profile.first_byte_s, profile.tail
    return Network(
        first.median_s if first else 0.0,
        first.p95_s if first else 0.0,
        min(rate(profile.stream_mb_per_s), rate(profile.worker_mb_per_s) / streams_per_worker),
        rate(profile.aggregate_mb_per_s),
        inf if profile.requests_per_s is None else profile.requests_per_s,
        tail_share=tail.share if tail else 0.0,
        tail_s=tail.late_s if tail else 0.0,
        setup_s=profile.setup_s,
        round_trip_s=profile.round_trip_s or 0.0,
        initial_window_nbytes=profile.initial_window_nbytes or inf,
    )


def take_scatter_out(profile: Profile) -> Profile:
    """Give every first byte of a profile the same delay: the mean of them."""
    mean_s = network_of(profile).first_byte_mean_s
    steady = FirstByte(mean_s, mean_s) if mean_s else None
    return replace(profile, name=f"{profile.name}, first bytes steady", first_byte_s=steady)
