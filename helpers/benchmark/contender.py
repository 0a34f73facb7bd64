"""What is compared: how it opens, reads and checks, and under which settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.benchmark.provenance import as_json
from wire.errors import UserError
from wire.host import Scalar

Number = int | float
Traced = Number | str | Sequence[Number]


class CheckError(Exception):
    """What was read is not what was written."""


class Steps:
    """A way to read, in the steps of a measurement; a study's own overrides what differs.

    Only `open` and `read` are timed.
    """

    __slots__ = ()

    def settings(self) -> Mapping[str, Scalar]:
        """Return what a comparison has to hold equal, or declare: `cache_state` is required."""
        raise NotImplementedError

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes that are read, decoded and encoded."""
        raise NotImplementedError

    def enter_block(self, block: int) -> None:
        """Choose, before `prepare`, what differs between blocks."""

    def prepare(self) -> None:
        """Empty caches and start the trace, before the clock."""

    def open(self) -> Any:
        """Open what is read: timed; its result is what `read` takes."""

    def read(self, opened: Any, /) -> Any:
        """Read: timed; its result is what `check` takes."""
        raise NotImplementedError

    def check(self, result: Any, /) -> str:
        """Say in a few words what was verified, or raise `CheckError`."""
        raise NotImplementedError

    def collect(self) -> Mapping[str, Traced]:
        """Return the numbers and names of the trace, `n_requests` and `wire_nbytes` among them.

        It runs before the check, whose own requests are not counted.
        """
        return {}

    def find_dead_process(self) -> str:
        """Say in a line what has ended that a read waits for, such as the proxy; nothing while all is there."""
        testbed = getattr(self, "testbed", None)
        return str(testbed.find_dead_process()) if testbed is not None else ""

    def find_machines(self) -> list[int]:
        """Find the processes that read, each a machine of its own with those that it starts."""
        return [os.getpid()]

    def find_services(self) -> list[int]:
        """Find the processes that serve what is read, which no client pays for."""
        testbed = getattr(self, "testbed", None)
        return [] if testbed is None else [*testbed.pids]

    def versions(self) -> Mapping[str, str]:
        """Return what processes beside this one have imported, see `provenance.name_worker_versions`."""
        return {}


@dataclass(slots=True)
class Contender:
    """A way to read, under a name and at a place on the x-axis.

    `name` and `point` together identify it: the same format at four worker
    counts is four contenders of one name, with points {"n_workers": 1} and so on.
    """

    name: str  # on the page, one colour across the book
    steps: Steps
    point: Mapping[str, Scalar] = field(default_factory=dict, kw_only=True)
    # what is timed, where a notebook shows it; else that of `steps`
    read: Callable[[Any], Any] | None = field(default=None, kw_only=True)
    # beside those of `steps`
    settings: Mapping[str, Scalar] | None = field(default=None, kw_only=True)
    # CPUs of each of its machines that count, slowed down as its network is; 0: none counts;
    # None: as many as the case says
    cpus: int | None = field(default=None, kw_only=True)
    n_machines: int = field(
        default=1, kw_only=True
    )  # processes that read, each a machine of its own
    group: str = field(default="", kw_only=True)  # one group runs next to each other in a block
    is_ceiling: bool = field(default=False, kw_only=True)  # whether it reads raw, without decoding
    # contender of which this is a second copy, for A/A
    control_of: str | None = field(default=None, kw_only=True)
    nbytes: tuple[int, int] = field(init=False)  # decoded and encoded

    def __post_init__(self) -> None:
        self.settings = {**self.steps.settings(), **(self.settings or {})}
        if "cache_state" not in self.settings:
            raise UserError("settings", f"{self.name} states no cache_state", "text, as in 'cold'")
        self.nbytes = self.steps.nbytes()

    @property
    def identity(self) -> tuple[str, str]:
        """Name and point, as text."""
        return self.name, as_json(self.point)
