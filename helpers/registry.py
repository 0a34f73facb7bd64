"""Readers, registered where they are written: what studies compare, and how their pages draw it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from helpers.paths import RENDERED
from wire.errors import UserError


class Reader(Protocol):
    """A way to open and read an array or a file, which a study compares with others.

    One that is drawn in figures has a colour and a marker of its own; the others have none.
    """

    @property
    def name(self) -> str:
        """Name in parameter files, records and figures."""

    @property
    def label(self) -> str:
        """Name on pages, as a reader of the book would say it."""

    @property
    def color(self) -> str:
        """Hexadecimal colour in figures; empty where it is not drawn by itself."""

    @property
    def marker(self) -> str:
        """Marker of matplotlib, for those who see no colours."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages that it imports, whose versions decide what it does."""

    @property
    def concurrency(self) -> int:
        """Concurrent requests at most; 0 for as many as a case says."""

    @property
    def open(self) -> Callable[..., Any]:
        """Function that opens what lies at a location; its result is what `read` takes."""

    @property
    def read(self) -> Callable[..., Any]:
        """Function that reads a part of what is open into memory."""


class Registry[R: Reader](Mapping[str, R]):
    """The readers of one kind by name, in the order in which modules register them.

    A new reader is a module in the package of its registry: all modules there are imported
    before anything is looked up, so no list names them.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind, self._package = kind, package
        self._readers: dict[str, R] = {}
        self._is_complete = False
        REGISTRIES[kind] = self

    def register(self, *readers: R) -> None:
        """Add readers; refuse a name that another has."""
        for reader in readers:
            if reader.name in self._readers:
                raise UserError(self.kind, f"{reader.name} is registered twice", "each name once")
            self._readers[reader.name] = reader

    def _complete(self) -> dict[str, R]:
        """Import the modules of the package, once, and return all readers."""
        if not self._is_complete:
            self._is_complete = True
            package = importlib.import_module(self._package)
            for module in pkgutil.iter_modules(package.__path__, f"{self._package}."):
                importlib.import_module(module.name)
        return self._readers

    def __getitem__(self, name: str) -> R:
        """Return the reader of this name."""
        return self._complete()[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._complete())

    def __len__(self) -> int:
        """Count the readers."""
        return len(self._complete())

    def labels(self) -> dict[str, str]:
        """Map each name to what pages call the reader."""
        return {name: reader.label for name, reader in self.items()}


REGISTRIES: dict[str, Registry[Any]] = {}
"""Every registry whose module is imported, by its kind."""


def list_missing(packages: tuple[str, ...]) -> list[str]:
    """List the packages that are not installed here."""
    return [name for name in packages if importlib.util.find_spec(name) is None]


def leave_out(absent: Mapping[str, str]) -> dict[str, str]:
    """Return the readers that cannot run here, each with how to get it.

    Raises
    ------
    UserError
        If a page is being rendered from its record: it would lose the rows of these readers.
    """
    if absent and RENDERED in os.environ:
        ways = "; ".join(dict.fromkeys(absent.values()))
        raise UserError(
            "contenders",
            f"{', '.join(absent)} cannot run here, and a page that is rendered would lose their rows",
            f"all readers of the record ({ways})",
        )
    return dict(absent)
