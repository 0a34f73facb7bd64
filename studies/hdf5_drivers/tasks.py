"""Tasks: what is read of an open file, over one interface to every library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

Values = list[NDArray[Any]]

VARIABLES, ONE_VARIABLE = "variables", "one variable"


class Tree:
    """An open file: its root group, or a group of it, as h5py, xarray or zarr have it.

    `close` closes what lies below the root group, such as a file object.
    """

    def __init__(
        self, root: Any, close: Callable[[], None] = lambda: None, *, stands_for: str = ""
    ) -> None:
        self.root, self._close, self._prefix = root, close, f"{stands_for}/" if stands_for else ""

    def __getitem__(self, name: str) -> Any:
        """Return a variable, of which `[:]` reads everything."""
        return self.root[name.removeprefix(self._prefix)]

    def close(self) -> None:
        """Close the file, then what lies below."""
        if hasattr(self.root, "close"):
            self.root.close()
        self._close()


def read_all(tree: Tree, names: Sequence[str]) -> Values:
    """Read variables whole, one after the other, as a program of a scientist does."""
    return [np.asarray(tree[name][:]) for name in names]


@dataclass(frozen=True, slots=True)
class Answer:
    """What proves that variables were read: a checksum, and how much it was."""

    checksum: str  # of the values
    n_items: int  # variables
    nbytes: int  # bytes of the values in memory


def prove(arrays: Values) -> Answer:
    """Prove what was read, whatever the order of bytes that a library keeps."""
    whole = xxhash.xxh3_64()
    for values in arrays:
        native = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
        whole.update(f"{native.dtype.str}{native.shape}".encode())
        whole.update(native.data if native.size else b"")
    return Answer(whole.hexdigest(), len(arrays), sum(values.nbytes for values in arrays))
