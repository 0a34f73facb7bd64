"""One face for every library that reads a tree of variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import zarr
from h5coro.h5coro import H5Coro
from numpy.typing import NDArray

Bounds = tuple[int, int] | None
"""Half-open bounds along the first dimension; None for all of it."""


class Tree(Protocol):
    """What an open file, or what stands for one, can be asked."""

    def list_variables(self, group: str) -> list[str]:
        """List the paths of all variables below a group."""

    def read(self, names: Sequence[str], bounds: Bounds) -> list[NDArray[Any]]:
        """Read variables, or a part of each."""

    def read_attributes(self, group: str, attribute: str) -> dict[str, str]:
        """Read one attribute of every variable below a group."""

    def close(self) -> None:
        """Close what was opened."""


def _nothing() -> None:
    """Close nothing."""


class MappingTree:
    """A tree whose groups are mappings, as those of h5py, pyfive and zarr are.

    Parameters
    ----------
    root : mapping
        The root group; closed by its `close` where it has one.
    close : callable
        Closes what lies below, such as a file object.
    """

    def __init__(self, root: Any, close: Callable[[], None] = _nothing) -> None:
        self.root, self._close = root, close

    def list_variables(self, group: str) -> list[str]:
        """List the paths of all variables below a group."""
        return [name for name, _ in self._iterate(group)]

    def read(self, names: Sequence[str], bounds: Bounds) -> list[NDArray[Any]]:
        """Read variables one after the other, as a program of a scientist does."""
        part = slice(*bounds) if bounds else slice(None)
        return [np.asarray(self.root[name][part]) for name in names]

    def read_attributes(self, group: str, attribute: str) -> dict[str, str]:
        """Read one attribute of every variable below a group."""
        return {name: _as_text(each.attrs[attribute]) for name, each in self._iterate(group)}

    def close(self) -> None:
        """Close the file, then what lies below."""
        if hasattr(self.root, "close"):
            self.root.close()
        self._close()

    def _iterate(self, path: str) -> Iterator[tuple[str, Any]]:
        group = self.root[path] if path else self.root
        for name in sorted(group):
            item = group[name]
            below = f"{path}/{name}".strip("/")
            if hasattr(item, "keys"):
                yield from self._iterate(below)
            else:
                yield below, item


class ZarrTree(MappingTree):
    """A Zarr group that stands for a group of the file.

    Parameters
    ----------
    root : zarr.Group
        The group; its metadata are consolidated, so that listing costs nothing more.
    stands_for : str
        Path in the file that the group stands for; empty for the whole.
    """

    def __init__(self, root: zarr.Group, *, stands_for: str = "") -> None:
        super().__init__(root)
        self._prefix = f"{stands_for}/" if stands_for else ""

    def read(self, names: Sequence[str], bounds: Bounds) -> list[NDArray[Any]]:
        """Read variables one after the other."""
        return super().read([name.removeprefix(self._prefix) for name in names], bounds)

    def _iterate(self, path: str) -> Iterator[tuple[str, Any]]:
        found = dict(self.root.members(max_depth=None))
        for name in sorted(found):
            below = f"{self._prefix}{name}"
            if isinstance(found[name], zarr.Array) and f"{below}/".startswith(path):
                yield below, found[name]


class H5CoroTree:
    """A file read by h5coro, all variables of a read at once, as its makers mean it.

    Parameters
    ----------
    file : H5Coro
        The open file.
    """

    def __init__(self, file: H5Coro) -> None:
        self.file = file

    def list_variables(self, group: str) -> list[str]:
        """List the paths of all variables below a group."""
        return sorted(self._list(group, with_attributes=False))

    def read(self, names: Sequence[str], bounds: Bounds) -> list[NDArray[Any]]:
        """Read variables, all at once."""
        slices = [list(bounds)] if bounds else []
        asked = [{"dataset": name, "hyperslice": slices} for name in names]
        promise = self.file.readDatasets(asked, block=True)
        return [np.asarray(promise[name]) for name in names]

    def read_attributes(self, group: str, attribute: str) -> dict[str, str]:
        """Read one attribute of every variable below a group."""
        found = self._list(group, with_attributes=True)
        return {name: _as_text(found[name][attribute]) for name in sorted(found)}

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def _list(self, path: str, *, with_attributes: bool) -> dict[str, Mapping[str, Any]]:
        variables, _, groups = self.file.list(path, w_attr=with_attributes)
        found = {f"{path}/{name}".strip("/"): each for name, each in variables.items()}
        for name in groups:
            found |= self._list(f"{path}/{name}".strip("/"), with_attributes=with_attributes)
        return found


def _as_text(value: Any) -> str:
    """Write an attribute as text, however a library returns it."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(-1)[0]
    return value.decode() if isinstance(value, bytes) else str(value)
