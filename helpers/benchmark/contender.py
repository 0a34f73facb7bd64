"""What is compared: how it opens, reads and checks, and under which settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from helpers.arrays.stores import StoredArray
from helpers.benchmark.provenance import Scalar, as_json, imported, name_beside
from helpers.errors import UserError
from helpers.plotting.palette import check_looks

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


class Way(Protocol):
    """A way to read, in the steps that a measurement needs."""

    @property
    def stored(self) -> StoredArray:
        """What is read."""

    def settings(self) -> dict[str, Any]:
        """Tell what a comparison has to hold equal, or declare."""

    def prepare(self) -> None:
        """Empty caches and the trace."""

    def open(self) -> Any:
        """Open what is to be read."""

    def check(self, result: Any, /) -> str:
        """Compare what was read with what was written."""

    def ask(self, question: Callable[[], Any], /) -> list[Any]:
        """Put a question to every process that reads beside this one."""

    def collect(self) -> Mapping[str, float]:
        """Count what passed over the wire."""


def contend(
    name: str,
    way: Way,
    n_workers: int,
    *,
    read: Callable[[Any], Any],
    settings: Mapping[str, Any],
    **more: Any,
) -> Contender:
    """Make a contender of a way to read and a number of workers.

    Contenders with as many workers run next to each other, so that a cluster
    is scaled once for all of them. A reader without a colour is refused here,
    before an hour of measuring and not after it.
    """
    check_looks([more.get("control_of") or name], "reader")
    layout = way.settings()["layout"]
    layout = "netcdf" if layout == "references" else layout
    return Contender(
        name=name,
        point={"n_workers": n_workers},
        group=str(n_workers),
        settings={**way.settings(), **settings},
        open=way.open,
        read=read,
        check=way.check,
        prepare=way.prepare,
        collect=way.collect,
        versions=lambda: name_beside("workers", way.ask(imported)),
        array_nbytes=way.stored.nbytes,
        stored_nbytes=way.stored.stored_nbytes[layout],
        **more,
    )
