"""What is compared: how it opens, reads and checks, and under which settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from helpers.benchmark.provenance import Scalar, as_json
from helpers.errors import UserError
from helpers.plotting.palette import check_styles

Number = int | float
Traced = Number | Sequence[Number]


class CheckError(Exception):
    """What was read is not what was written."""


class Steps:
    """A way to read, in the steps of a measurement; a study's own overrides what differs.

    `contend` makes a contender of it. Only `open` and `read` are timed.
    """

    __slots__ = ()

    palette: ClassVar[str] = ""
    """Kind of contender whose colours it takes, see `palette.Kind`; empty where none is drawn."""

    def settings(self) -> Mapping[str, Scalar]:
        """Tell what a comparison has to hold equal, or declare: `cache_state` is required."""
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
        """Return the numbers of the trace, `n_requests` and `wire_nbytes` among them.

        It runs before the check, whose own requests are not counted.
        """
        return {}

    def versions(self) -> Mapping[str, str]:
        """Return what processes beside this one have imported, see `provenance.name_beside`."""
        return {}


_ANY = Steps()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """What is compared: how it opens, reads and checks, and under which settings.

    `name` and `point` together identify it: the same format at four worker
    counts is four contenders of one name, with points {"n_workers": 1} and so on.
    Its callables are those of `Steps`, where `contend` makes it.
    """

    name: str  # on the page, one colour across the book
    settings: Mapping[str, Scalar]  # declared facts; `cache_state` is required
    open: Callable[[], Any]
    read: Callable[[Any], Any]
    check: Callable[[Any], str]
    array_nbytes: int  # decoded
    stored_nbytes: int  # encoded
    point: Mapping[str, Scalar] = field(default_factory=dict)  # place on the x-axis
    enter_block: Callable[[int], None] = _ANY.enter_block
    prepare: Callable[[], None] = _ANY.prepare
    collect: Callable[[], Mapping[str, Traced]] = _ANY.collect
    versions: Callable[[], Mapping[str, str]] = _ANY.versions
    group: str = ""  # contenders of one group run next to each other in a block
    is_ceiling: bool = False  # whether it reads raw, without decoding
    control_of: str | None = None  # contender of which this is a second copy, for A/A

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


def contend(
    name: str,
    steps: Steps,
    *,
    point: Mapping[str, Scalar],
    read: Callable[[Any], Any] | None = None,
    settings: Mapping[str, Scalar] | None = None,
    group: str = "",
    is_ceiling: bool = False,
    control_of: str | None = None,
) -> Contender:
    """Make a contender of a way to read, at a place on the x-axis.

    A contender without a colour is refused here, before an hour of measuring
    and not after it, and so is one that states no `cache_state` or reads nothing.
    What is timed is `read`, where a notebook shows it; `settings` are declared beside
    those of `steps`; the rest is as in `Contender`.
    """
    if steps.palette:
        check_styles([control_of or name], steps.palette)
    array_nbytes, stored_nbytes = steps.nbytes()
    return Contender(
        name=name,
        point=point,
        group=group,
        settings={**steps.settings(), **(settings or {})},
        open=steps.open,
        read=read or steps.read,
        check=steps.check,
        enter_block=steps.enter_block,
        prepare=steps.prepare,
        collect=steps.collect,
        versions=steps.versions,
        array_nbytes=array_nbytes,
        stored_nbytes=stored_nbytes,
        is_ceiling=is_ceiling,
        control_of=control_of,
    )
