"""What is compared: how it opens, reads and checks, and under which settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.errors import UserError
from helpers.measurement.provenance import Scalar, as_json

Number = int | float
Traced = Number | Sequence[Number]


class CheckError(Exception):
    """What was read is not what was written."""


def _nothing() -> None:
    """Do nothing, where a contender needs no preparation."""


def _enter_any(_block: int) -> None:
    """Do nothing, where all blocks are alike."""


def _no_versions() -> Mapping[str, str]:
    """Return no versions, where no process beside this one measures."""
    return {}


def _no_numbers() -> Mapping[str, Traced]:
    """Return no numbers, where nothing is traced."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """What is compared: how it opens, reads and checks, and under which settings.

    `name` and `point` together identify it: the same format at four worker
    counts is four contenders of one name, with points {"n_workers": 1} and so on.

    Parameters
    ----------
    name : str
        Name on the page, one colour across the book.
    point : mapping
        Place on the x-axis.
    settings : mapping
        Declared facts: codec, concurrency, n_workers, client settings, and
        `cache_state`, which is required.
    open, read, check : callable
        `open()` is timed and returns what `read` takes; `read(opened)` is timed
        and returns what `check` takes; `check(read)` is not timed, says in a few
        words what was verified, and raises `CheckError` when it is wrong.
    array_nbytes, stored_nbytes : int
        Bytes decoded and encoded.
    enter_block : callable
        Runs before `prepare` with the number of the block, for what differs between blocks.
    prepare : callable
        Runs before the clock: empties caches, starts the trace.
    collect : callable
        Runs after the clock and before the check, so that the check's own
        requests are not counted. Returns `n_requests`, `wire_nbytes` and any
        other numbers of the trace, or lists of them.
    versions : callable
        Runs after the clock. Returns what processes beside this one have
        imported by then, see `provenance.name_beside`.
    group : str
        Contenders of one group run next to each other in a block.
    is_ceiling : bool
        Whether it reads raw, without decoding.
    control_of : str or None
        Name of the contender of which this is a second copy, for A/A.
    """

    name: str
    settings: Mapping[str, Scalar]
    open: Callable[[], Any]
    read: Callable[[Any], Any]
    check: Callable[[Any], str]
    array_nbytes: int
    stored_nbytes: int
    point: Mapping[str, Scalar] = field(default_factory=dict)
    enter_block: Callable[[int], None] = _enter_any
    prepare: Callable[[], None] = _nothing
    collect: Callable[[], Mapping[str, Traced]] = _no_numbers
    versions: Callable[[], Mapping[str, str]] = _no_versions
    group: str = ""
    is_ceiling: bool = False
    control_of: str | None = None

    def __post_init__(self) -> None:
        """Refuse a contender that does not state its cache state or its bytes."""
        if "cache_state" not in self.settings:
            raise UserError(
                f"settings: {self.name} states no cache_state; allowed: text, as in 'cold'"
            )
        for name in ("array_nbytes", "stored_nbytes"):
            if getattr(self, name) < 1:
                raise UserError(
                    f"{name}: {getattr(self, name)} of {self.name}; allowed: at least 1"
                )

    @property
    def identity(self) -> tuple[str, str]:
        """Name and point, as text."""
        return self.name, as_json(self.point)
