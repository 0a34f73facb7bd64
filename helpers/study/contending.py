"""Ways to read as contenders of the one timing loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from helpers.measurement.looks import check_looks
from helpers.measurement.measure import Contender
from helpers.measurement.provenance import imported, name_beside
from helpers.storage.stores import StoredArray


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
