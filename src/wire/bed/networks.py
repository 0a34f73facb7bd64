"""What a network is made of: profiles, shipped as data with sources or read from a file of one's own.

A profile is checked where it is read; one that code makes is trusted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from math import exp, inf, log
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from annotated_types import Ge, Gt, Le

from wire.errors import UserError, convert_validation_error, name_file, say, show
from wire.files import find_checkout, read_yaml

MB = 1_000_000
"""Bytes in a decimal megabyte."""

Fault = Literal["error_503", "reset", "truncate", "stall", "corrupt"]
FAULTS: tuple[Fault, ...] = ("error_503", "reset", "truncate", "stall", "corrupt")

# the 95th and the 99th percentile of a standard normal variate
_Z95, _Z99 = 1.6448536269514722, 2.3263478740408408

Region = Literal["same", "other", "outside", "unknown"]
"""Where a reader is: in the region of its store, in another of the same provider, or outside of it."""

Provider = Literal["aws", "aws-express", "google", "azure", "other", "unknown"]
"""Who bills a store; S3 Express One Zone has prices of its own."""

REGIONS: tuple[Region, ...] = get_args(Region)
PROVIDERS: tuple[Provider, ...] = get_args(Provider)

# In SI units, from a microsecond to a day and from a byte a second to an exabyte a second: what
# no network has makes sums that are no numbers.
_Seconds = Annotated[float, Ge(1e-6), Le(86_400)]
_MbPerS = Annotated[float, Ge(1e-6), Le(1e12)]
_PerSecond = Annotated[float, Ge(1e-6), Le(1e12)]
_Count = Annotated[float, Gt(0), Le(1e6)]
Share = Annotated[float, Ge(0), Le(1)]
# for pydantic, which is imported where a profile is read: the proxy's process reads none
_STRICT = {"strict": True, "extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, slots=True)
class FirstByte:
    """Hold the delay from a request to the first byte of its response.

    It is log-normal. Where a 99th percentile is stated, its slowest twentieth is stretched to
    reach that, because measured tails are heavier than those of a log-normal.

    Examples
    --------
    >>> FirstByte(median_s=0.030, p95_s=0.100).delay_s(0.0)
    0.03
    >>> round(FirstByte(0.030, 0.100, p99_s=0.300).delay_s(2.3263), 3)
    0.3
    """

    __pydantic_config__: ClassVar[Any] = _STRICT
    median_s: _Seconds
    p95_s: _Seconds  # at least the median
    p99_s: _Seconds | None = None  # at least the 95th percentile

    def delay_s(self, z: float) -> float:
        """Compute the delay in seconds that belongs to a standard normal variate."""
        if self.p99_s is not None and z > _Z95:
            return self.p95_s * exp((z - _Z95) * log(self.p99_s / self.p95_s) / (_Z99 - _Z95))
        return self.median_s * exp(z * log(self.p95_s / self.median_s) / _Z95)


@dataclass(frozen=True, slots=True)
class Faults:
    """Hold the probability that a request meets each kind of fault; together at most 1."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    error_503: Share = 0.0  # answered 503 SlowDown instead of being passed on
    reset: Share = 0.0  # connection reset before any byte of the response; not passed on
    truncate: Share = 0.0  # connection closed after half the body
    stall: Share = 0.0  # pause of `stall_s` seconds after half the body
    corrupt: Share = 0.0  # one byte in the middle of the body inverted
    stall_s: Annotated[float, Ge(0), Le(86_400)] = 1.0

    def pick(self, u: float) -> Fault | None:
        """Choose the fault that belongs to a uniform variate in [0, 1)."""
        for name in FAULTS:
            u -= getattr(self, name)
            if u < 0:
                return name
        return None


@dataclass(frozen=True, slots=True)
class Profile:
    """Hold a network to emulate; a figure that is None is not emulated."""

    __pydantic_config__: ClassVar[Any] = _STRICT
    name: str  # as records have it
    first_byte_s: FirstByte | None = None
    # ceilings for one connection and for all together, decimal MB/s
    stream_mb_per_s: _MbPerS | None = None
    aggregate_mb_per_s: _MbPerS | None = None
    requests_per_s: _PerSecond | None = None  # requests above this rate are answered 503 SlowDown
    faults: Faults = field(default_factory=Faults)  # for tests
    worker_mb_per_s: _MbPerS | None = None  # ceiling for all connections of one reading process
    # where each figure comes from
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)
    # a round trip, which the time to the first byte holds; those before the first request of a new
    # connection, TCP's one and TLS's; and the bytes that it sends in the first round trip of a
    # body, twice as many in each after one that it filled
    round_trip_s: _Seconds | None = None
    setup_round_trips: _Count | None = None
    initial_window_nbytes: Annotated[int, Gt(0), Le(2**40)] | None = None
    tls: bool = False  # whether clients reach it by TLS, for which their processors pay
    # how `wire calibrate` measured it, as its file says
    measurement: Mapping[str, Any] = field(default_factory=dict, hash=False)
    # what a bill depends on, never the name; None where the profile does not say
    provider: Provider | None = None
    region: Region | None = None

    @property
    def setup_s(self) -> float:
        """Seconds from opening a connection to the moment at which it can carry a request."""
        return (self.round_trip_s or 0.0) * (self.setup_round_trips or 0.0)


def of_one_process(profile: Profile) -> Profile:
    """Make the link of a worker that of all: what one process sees that reads on its own.

    The proxy gives each process its own link, but for the one that started it, whose raw reads
    stand for all workers. Where that process is the reader, this is its network.

    Examples
    --------
    >>> one = Profile("example", worker_mb_per_s=500, aggregate_mb_per_s=20_000)
    >>> of_one_process(one).aggregate_mb_per_s
    500
    """
    links = filter(None, (profile.worker_mb_per_s, profile.aggregate_mb_per_s))
    return replace(profile, worker_mb_per_s=None, aggregate_mb_per_s=min(links, default=None))


def make_profile(name: str, figures: Mapping[Any, Any]) -> Profile:
    """Make a profile from plain values, as they come from YAML, and refuse what is no network."""
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import to_json

    allowed_fields = [
        field.name for field in fields(Profile) if field.name not in ("name", "measurement")
    ]
    if unknown := [name for name in figures if name not in allowed_fields]:
        raise UserError(
            f"profile {name!r}", f"unknown field {show(unknown[0])}", ", ".join(allowed_fields)
        )
    try:
        # of JSON, in which a mapping may be a dataclass and a text is never a number
        text = to_json({**figures, "name": name}, inf_nan_mode="constants", fallback=str)
        profile = TypeAdapter(Profile).validate_json(text)
    except ValidationError as error:
        raise convert_validation_error(error).within(f"profile {name!r}") from error
    _check_together(profile)
    return profile


def _check_together(profile: Profile) -> None:
    """Refuse figures that do not go with one another."""
    first, faults = profile.first_byte_s, profile.faults
    quantiles = [] if first is None else [first.median_s, first.p95_s, first.p99_s or first.p95_s]
    if quantiles != sorted(quantiles):
        field, problem = "first_byte_s", "quantiles fall"
        allowed = "median_s, p95_s and p99_s in this order"
    elif sum(getattr(faults, name) for name in FAULTS) > 1:
        field, problem, allowed = "faults", "their sum is above 1", "at most 1"
    elif (profile.round_trip_s or 0.0) > (first.median_s if first else 0.0):
        field, problem = "round_trip_s", "longer than the median of first_byte_s"
        allowed = "at most that"
    elif profile.round_trip_s is None and (
        profile.setup_round_trips or profile.initial_window_nbytes
    ):
        field, problem, allowed = "round_trip_s", "is missing", "stated with what takes round trips"
    else:
        return
    raise UserError(f"profile {profile.name!r}: {field}", problem, allowed)


def check_dilation(dilation: float) -> None:
    """Refuse a factor of time dilation that would speed time up, or stop it."""
    if not 1 <= dilation < inf:
        raise UserError("dilation", f"{dilation!r}", "a number at least 1")


def check_profile(store: str, name: str, dilation: float | str = 1.0) -> None:
    """Refuse to emulate a network, or its time, on a store that has its own."""
    where = "on a store of your own"
    if store != "embedded" and name != "loopback":
        raise UserError("profile", f"{name!r}", f"loopback, because nothing is emulated {where}")
    if store != "embedded" and dilation != 1:
        raise UserError("dilation", f"{dilation:g}", f"1, because time is real {where}")


@cache
def _known_profiles() -> dict[str, Profile]:
    """Read the profiles that ship."""
    import yaml  # here, because the proxy's process needs no YAML and starts faster without

    text = Path(__file__).with_name("networks.yaml").read_text(encoding="utf-8")
    return {
        name: make_profile(name, profile_figures)
        for name, profile_figures in yaml.safe_load(text).items()
    }


def profile_names() -> tuple[str, ...]:
    """Return the names of the profiles that there are."""
    return tuple(_known_profiles())


_ALSO_CALLED = {"same-region": "in-region", "another-region": "other-region"}

# The path of a profile's file; records of before have a digest of its figures behind it.
_FILE = re.compile(r"(?P<path>.+\.ya?ml)(?:@[0-9a-f]{8})?")


def get_profile(name: str) -> Profile:
    """Return a profile that ships with the package, or that of a file, such as `wire calibrate` writes.

    A file is sought from the current folder and from the checkout. Its fields are those of
    `Profile` but the name, which is that of the file. A line on standard error warns of one that
    was measured on another machine.

    Examples
    --------
    >>> get_profile("in-region").stream_mb_per_s
    86.0
    """
    name = _ALSO_CALLED.get(name, name)
    if name in _known_profiles():
        return _known_profiles()[name]
    match = _FILE.fullmatch(name)
    folders = [Path(), *filter(None, [find_checkout()])]
    places = [folder / match["path"] for folder in folders] if match else []
    path = next(filter(Path.is_file, places), None)
    if path is None:
        names = ", ".join([*profile_names(), *_ALSO_CALLED])
        allowed = f"{names}, or the path of a YAML file that is there"
        raise UserError("profile", f"{name!r}", allowed)
    name = name_file(path)
    figures = read_yaml(path, f"profile {name!r}")
    measurement = figures.pop("measurement", {})
    if not isinstance(measurement, dict):
        raise UserError(f"profile {name!r}: measurement", show(measurement), "a mapping")
    figures.pop("scale", None)  # always 1 in the files of earlier calibrations
    profile = replace(make_profile(name, figures), measurement=measurement)
    if isinstance(measured_on := profile.measurement.get("machine"), Mapping):
        from wire.host import differences, machine

        if other_machine := "; ".join(differences(machine(), measured_on)):
            _warn(f"{profile.name} was measured on another machine: {other_machine}")
    return profile


@cache
def _warn(text: str) -> None:
    """Say something in a line of its own, once."""
    say(f"warning: {' '.join(text.split())}", err=True)
