"""Tasks: what is asked of an open file, over one interface to every library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import obstore
import xxhash
from fsspec.spec import AbstractBufferedFile
from numpy.typing import NDArray

from helpers.errors import UserError
from helpers.objectstore.locations import Location

Bounds = tuple[int, int] | None
"""Half-open bounds along the first dimension; None for all of it."""


class MappingTree:
    """A tree whose groups are mappings, as those of h5py, pyfive and zarr are.

    `close` closes what lies below the root group, such as a file object.
    """

    def __init__(self, root: Any, close: Callable[[], None] = lambda: None) -> None:
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


class GroupTree(MappingTree):
    """A group that stands for a group of the file, or for all of it."""

    def __init__(self, root: Any, stands_for: str = "") -> None:
        super().__init__(root)
        self._prefix = f"{stands_for}/" if stands_for else ""

    def read(self, names: Sequence[str], bounds: Bounds) -> list[NDArray[Any]]:
        """Read variables one after the other."""
        return super().read([name.removeprefix(self._prefix) for name in names], bounds)


class H5CoroTree(MappingTree):
    """A file read by h5coro, all variables of a read at once, as its makers mean it."""

    def read(self, names: Sequence[str], bounds: Bounds) -> list[NDArray[Any]]:
        """Read variables, all at once."""
        slices = [list(bounds)] if bounds else []
        asked = [{"dataset": name, "hyperslice": slices} for name in names]
        promise = self.root.readDatasets(asked, block=True)
        return [np.asarray(promise[name]) for name in names]


def _as_text(value: Any) -> str:
    """Write an attribute as text, however a library returns it."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(-1)[0]
    return value.decode() if isinstance(value, bytes) else str(value)


TaskName = Literal[
    "variables",  # read the variables whole
    "subset",  # read a part of each variable
    "tree",  # list the variables of a group and the groups below
    "attributes",  # read one attribute of every variable of a group and the groups below
]
TASKS: tuple[TaskName, ...] = get_args(TaskName)
"""What can be asked of a file; opening is timed before each of them."""

ON_VALUES: tuple[TaskName, ...] = ("variables", "subset")
"""What every driver can be asked; of the tree, only what opens the file through h5py."""


@dataclass(frozen=True, slots=True)
class Task:
    """Something to ask of an open file."""

    name: TaskName  # one of `TASKS`
    variables: tuple[str, ...]  # paths of the variables to read
    bounds: tuple[int, int]  # half-open bounds of the part, along the first dimension
    group: str = ""  # group to list; empty for the whole file
    attribute: str = "long_name"  # attribute to read


@dataclass(frozen=True, slots=True)
class Answer:
    """What proves that a task was done: a checksum, and how much was read."""

    checksum: str  # of the values, of the names or of the texts
    n_items: int  # variables
    nbytes: int  # bytes of the values in memory; of text for the other tasks


def run_task(tree: MappingTree, task: Task) -> Answer:
    """Do what a task asks."""
    try:
        if task.name in ON_VALUES:
            bounds = task.bounds if task.name == "subset" else None
            return _prove_values(tree.read(task.variables, bounds))
        if task.name == "tree":
            return _prove_texts(tree.list_variables(task.group))
        found = tree.read_attributes(task.group, task.attribute)
        return _prove_texts([f"{name}={text}" for name, text in sorted(found.items())])
    except KeyError as error:
        raise UserError(
            f"variables: {', '.join(task.variables)} below {task.group or '/'}: {error};"
            " allowed: what is in the file"
        ) from error


def _prove_values(arrays: Sequence[NDArray[Any]]) -> Answer:
    """Compute a checksum of values, in the byte order of the machine, at the speed of memory."""
    whole = xxhash.xxh3_64()
    for values in arrays:
        native = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
        whole.update(f"{native.dtype.str}{native.shape}".encode())
        whole.update(native.data if native.size else b"")
    return Answer(whole.hexdigest(), len(arrays), sum(values.nbytes for values in arrays))


def _prove_texts(texts: Sequence[str]) -> Answer:
    joined = "\n".join(sorted(texts)).encode()
    return Answer(xxhash.xxh3_64_hexdigest(joined), len(texts), len(joined))


def split_object(location: Location) -> tuple[Location, str]:
    """Split the place of an object into its folder and its name."""
    prefix, _, name = location.prefix.rpartition("/")
    return replace(location, prefix=prefix), name


class PlainFile:
    """A reader of obstore as h5py takes file objects; its buffer is fetched anew after each seek."""

    def __init__(self, location: Location, **options: Any) -> None:
        folder, key = split_object(location)
        self._file = obstore.open_reader(folder.obstore(), key, **options)
        self.seek, self.tell, self.close = self._file.seek, self._file.tell, self._file.close

    def readinto(self, buffer: memoryview) -> int:
        """Read into a buffer; return the bytes that were there."""
        found = memoryview(self._file.read(len(buffer)))
        buffer[: len(found)] = found
        return len(found)

    def read(self, nbytes: int = -1) -> bytes:
        """Read bytes; all that follow by default."""
        return bytes(self._file.read() if nbytes < 0 else self._file.read(nbytes))


def fetch_whole(location: Location, part_nbytes: int, max_workers: int) -> bytes:
    """Fetch a whole object in ranges, so many at once."""
    folder, key = split_object(location)
    store = folder.obstore()
    nbytes = int(obstore.head(store, key)["size"])

    def fetch(start: int) -> Any:
        stop = min(start + part_nbytes, nbytes)
        return obstore.get_range(store, key, start=start, end=stop)

    with ThreadPoolExecutor(max_workers) as pool:  # `get_ranges` would join what is adjacent
        return b"".join(pool.map(fetch, range(0, nbytes, part_nbytes)))


class BlockFile(AbstractBufferedFile):  # type: ignore[misc]  # fsspec ships no types
    """An object that is read through obstore in blocks, which are kept.

    All but the client is fsspec's, as in an s3fs file object with the same cache.
    """

    def __init__(self, location: Location, *, block_size: int) -> None:
        folder, key = split_object(location)
        self._store = folder.obstore()
        nbytes = int(obstore.head(self._store, key)["size"])
        cache = {"block_size": block_size, "cache_type": "blockcache", "size": nbytes}
        super().__init__(None, key, **cache)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return bytes(obstore.get_range(self._store, self.path, start=start, end=end))
