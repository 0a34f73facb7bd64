"""Jumps: releases with which an access requests more, waits longer or moves more bytes than with the one before.

A rule over counts finds them, from two releases next to each other alone; nothing is listed by
hand. What is written by hand is why, and which line takes it back: data that a jump may have.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from wire.bed.networks import get_profile
from wire.models.transfer import Step, network_of, replay

RATIO = 1.2
"""How many times the counts of the release before make a jump."""
LEAST = MappingProxyType({"n_requests": 2, "n_waits": 4, "wire_nbytes": 2_000_000})
"""Counts that the rule compares, and the least difference: a chain varies by a few from moment to moment.

A connection brings about 2 MB while one request waits for its first byte, so fewer bytes cost less than a request.
"""
NETWORKS = ("in-region", "other-region", "wide-area", "express")
"""Networks over which a jump is replayed."""
_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class MeasuredAccess:
    """What one access of a client requested with one release, block by block."""

    client: str
    layout: str
    access: str
    package: str  # whose release it is
    version: str
    place: int  # in the order of releases
    blocks: tuple[Mapping[str, float], ...]  # counts of each block
    steps: tuple[float, ...] = ()  # requests that had ended before each, and its bytes, in turn

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Client, layout, access and package: releases are compared within."""
        return self.client, self.layout, self.access, self.package

    def bounds(self, count: str) -> tuple[float, float]:
        """Return the least and the most that the blocks counted."""
        values = [block[count] for block in self.blocks]
        return min(values), max(values)

    def seconds(self, network: str) -> float:
        """Predict the seconds of its requests over a network, CPU time not counted; 0 where none are known."""
        pairs = zip(self.steps[::2], self.steps[1::2], strict=True)
        steps = [Step(int(-1 - ended), 0.0, nbytes) for ended, nbytes in pairs]
        return replay(steps, network_of(get_profile(network)), n_draws=5) if steps else 0.0


@dataclass(frozen=True, slots=True)
class Jump:
    """A release with which an access requests more or less than with the release before."""

    before: MeasuredAccess
    after: MeasuredAccess
    more: tuple[str, ...]  # counts that grew
    less: tuple[str, ...]  # counts that shrank

    @property
    def is_worse(self) -> bool:
        """Whether some count grew."""
        return bool(self.more)

    @property
    def name(self) -> str:
        """A name for links: package, version, client, layout and access."""
        after = self.after
        words = (after.package, after.version, after.client, after.layout, after.access)
        return "-".join(words).replace(" ", "-").replace(".", "-").lower()


def compare_releases(before: MeasuredAccess, after: MeasuredAccess) -> Jump | None:
    """Compare an access with two releases; a count differs only if all blocks of both agree.

    The releases must lie further apart than the blocks of either do.

    Examples
    --------
    A request for each of 32 chunks, and two with the next release:

    >>> counts = {"n_requests": 32, "n_waits": 5, "wire_nbytes": 2e6}
    >>> old = MeasuredAccess("zarr", "chunks", "whole", "s3fs", "2026.2.0", 0, (counts, counts))
    >>> twice = counts | {"n_requests": 64}
    >>> new = MeasuredAccess("zarr", "chunks", "whole", "s3fs", "2026.3.0", 1, (twice, twice))
    >>> jump = compare_releases(old, new)
    >>> jump.more, jump.less
    (('n_requests',), ())

    Where one block did not, nothing is said:

    >>> compare_releases(old, MeasuredAccess(*new.key, "2026.3.0", 1, (twice, counts))) is None
    True
    """
    more, less = list[str](), list[str]()
    for count, least in LEAST.items():
        (low, high), (new_low, new_high) = before.bounds(count), after.bounds(count)
        noise = max(high - low, new_high - new_low, least)
        if new_low > RATIO * high and new_low - high >= noise:
            more.append(count)
        elif low > RATIO * new_high and low - new_high >= noise:
            less.append(count)
    return Jump(before, after, tuple(more), tuple(less)) if more or less else None


def find_jumps(measured: Iterable[MeasuredAccess]) -> list[Jump]:
    """Find the jumps between releases next to each other, the order that of the releases."""
    by_key: dict[tuple[str, str, str, str], list[MeasuredAccess]] = {}
    for access in sorted(measured, key=lambda access: access.place):
        by_key.setdefault(access.key, []).append(access)
    pairs = itertools.chain.from_iterable(map(itertools.pairwise, by_key.values()))
    jumps = [compare_releases(before, after) for before, after in pairs]
    return [jump for jump in jumps if jump is not None]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a release changed what clients request, and the line that takes it back."""

    package: str
    version: str
    clients: tuple[str, ...]
    because: str  # one sentence
    links: tuple[str, ...] = ()  # issues and pull requests
    line: str = ""  # to paste; empty where the release is for the better
    measured_as: str = ""  # client of the ledger that has this line
    instead: str = ""  # or a release without the jump
    counts: tuple[str, ...] = ()  # that it explains the growth of; empty for all


def read_explanations(path: Path = _FOLDER / "jumps.yaml") -> list[Explanation]:
    """Read why releases changed what clients request."""
    entries: list[dict[str, Any]] = yaml.safe_load(path.read_text("utf-8"))
    lists = ("clients", "links", "counts")
    return [
        Explanation(**(entry | {name: tuple(entry.get(name, ())) for name in lists}))
        for entry in entries
    ]


def explain_jump(jump: Jump, explanations: Sequence[Explanation]) -> Explanation | None:
    """Return why a jump came about, where somebody wrote it down."""
    for explanation in explanations:
        release = explanation.package, explanation.version
        if release == (jump.after.package, jump.after.version) and (
            jump.after.client in explanation.clients
            and {*jump.more} <= {*(explanation.counts or LEAST)}
        ):
            return explanation
    return None


def read_dates(path: Path = _FOLDER / "releases.yaml") -> dict[tuple[str, str], date]:
    """Read the day of each release, by package and version."""
    listed: dict[str, dict[str, date]] = yaml.safe_load(path.read_text("utf-8"))
    return {
        (package, str(version)): day
        for package, versions in listed.items()
        for version, day in versions.items()
    }


_WORDS = {"n_requests": "requests", "n_waits": "requests in a chain", "wire_nbytes": "MB"}


def describe_change(jump: Jump, count: str) -> str:
    """Describe how a count changed, in a few words.

    Examples
    --------
    >>> old = MeasuredAccess("a", "b", "c", "d", "1", 0, ({"wire_nbytes": 61e6},))
    >>> new = MeasuredAccess("a", "b", "c", "d", "2", 1, ({"wire_nbytes": 135.6e6},))
    >>> describe_change(Jump(old, new, ("wire_nbytes",), ()), "wire_nbytes")
    '61 to 136 MB'
    """
    scale = 1e6 if count == "wire_nbytes" else 1
    values = [access.bounds(count)[0] / scale for access in (jump.before, jump.after)]
    texts = [f"{value:.0f}" if value >= 10 or scale == 1 else f"{value:.2g}" for value in values]
    return f"{texts[0]} to {texts[1]} {_WORDS[count]}"
