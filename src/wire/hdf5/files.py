"""HDF5 files on disk, in object storage or behind a web server: opened and walked."""

from __future__ import annotations

import math
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import fsspec
import h5py
import hdf5plugin  # noqa: F401  # teaches h5py to read Blosc and its kin
from fsspec.spec import AbstractBufferedFile

from wire.bed.locations import Location, open_location
from wire.deadline import deadline
from wire.errors import UserError, cut, describe_system_error, redact, show
from wire.interrupts import check_interrupt

_FOR_A_MESSAGE_S = 2.0  # of looking for names that a message lists

Source = str | Location
"""A path on disk, an address (s3, gs, https), or a place in a store with its credentials."""


def is_near(source: Source) -> bool:
    """Tell whether a source is a path on disk."""
    return isinstance(source, str) and "://" not in source


def name_source(source: Source) -> str:
    """Return how messages call a source: by its path, or its address without secrets."""
    return source.url if isinstance(source, Location) else redact(source)


@contextmanager
def open_source(source: Source, patience_s: float = 1e6) -> Iterator[BinaryIO]:
    """Open an HDF5 file for reading, with a cache of large blocks if it is far away."""
    name = name_source(source)
    try:
        with deadline(patience_s):
            try:
                file = _open_bytes(source)
            except UserError:
                raise
            except Exception as error:  # whatever its client makes of a store
                problem, allowed = (
                    f"cannot be read ({redact(shorten_error(error))})",
                    "a file that can be",
                )
                if isinstance(error, FileNotFoundError):
                    problem, allowed = "is not there", "a file that exists"
                raise UserError("file", f"{name} {problem}", allowed) from error
            with file:
                yield file
    except TimeoutError as error:
        problem = f"{name}: not read in {patience_s:g} s"
        raise UserError("file", problem, "one that answers by then") from error


def _open_bytes(source: Source) -> BinaryIO:
    if isinstance(source, str) and is_near(source):
        return _open_regular(source)
    open_options: dict[str, Any] = {"block_size": 8 * 2**20, "cache_type": "blockcache"}
    if isinstance(source, str) and source.startswith(("http://", "https://")):
        file = fsspec.filesystem("https", skip_instance_cache=True).open(source, **open_options)
        if not isinstance(file, AbstractBufferedFile) or not file.size:
            problem = f"{name_source(source)}: its server does not serve ranges of bytes"
            raise UserError("file", problem, "one that does, or a copy")
        return cast(BinaryIO, file)
    location = source if isinstance(source, Location) else open_location(source)
    options = location.fsspec_options()
    if location.scheme == "s3":  # s3fs asks five times itself, so its client need not
        options["config_kwargs"] |= {"retries": {"total_max_attempts": 1}}
    client = fsspec.filesystem(location.scheme, skip_instance_cache=True, **options)
    return cast(BinaryIO, client.open(location.path, **open_options))


def _open_regular(path: str) -> BinaryIO:
    """Open a file on disk; a pipe or a device would be waited for, or never end."""
    status = os.stat(path)
    if stat.S_ISREG(status.st_mode) and status.st_size:
        return open(path, "rb")  # `open_source` closes it
    kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file but a pipe or a device"
    kind = "empty" if stat.S_ISREG(status.st_mode) else kind
    raise UserError("file", f"{cut(path)} is {kind}", "an HDF5 file")


# what h5py raises of a file whose metadata make no sense
_ERRORS = (OSError, RuntimeError, LookupError, ValueError, TypeError, ArithmeticError, MemoryError)


@contextmanager
def open_hdf5(file: Any, name: str, **options: Any) -> Iterator[h5py.File]:
    """Open an HDF5 file over a file object, and say in one line what the library cannot read of it."""
    try:
        with h5py.File(file, "r", **options) as opened:
            yield opened
    except UserError:
        raise
    except _ERRORS as error:
        text = cut(" ".join(str(error).split()))
        problem = f"cannot be read ({shorten_error(error)})"
        allowed = "a sound file that nothing writes to"
        if "file signature not found" in text:
            problem, allowed = "is not HDF5", "an HDF5 or netCDF-4 file"
        elif "truncated" in text:
            problem = f"is truncated ({text.partition('(')[2].rstrip(')')})"
            allowed = "a whole file"
        raise UserError("file", f"{name} {problem}", allowed) from error


def shorten_error(error: BaseException) -> str:
    """Give what an error says in one line; its kind where it says nothing."""
    if isinstance(error, OSError) and error.errno:
        return describe_system_error(error)
    text = " ".join(str(error).split()).strip("'\"")
    for pattern, words in _WORDS:
        if re.search(pattern, text, re.IGNORECASE):
            return words
    return cut(text) or type(error).__name__


# What libraries say, in our words.
_WORDS = (
    (r"signature not found|truncated", "it is no whole HDF5 file"),
    (r"filter .*not registered|required filter|plugin", "a filter of it is not installed"),
    (r"\balloc|memory", "it asks for more memory than there is"),
    (r"connect|endpoint", "its server does not answer"),
    (r"synchronously|^Unable to|^Can't", "its metadata make no sense"),
)


class Deadline:
    """A time at which work on a file ends, and what was left out because of it."""

    def __init__(self, seconds: float = math.inf) -> None:
        self._end_s = time.monotonic() + seconds
        self.n_left_out = 0
        """Objects that were there and not looked at; at least so many."""

    @property
    def is_over(self) -> bool:
        """Whether it has passed; an interrupt that h5py swallowed is raised here."""
        check_interrupt()
        return time.monotonic() >= self._end_s


MAX_LINKS = 100_000
"""Links of a group that are listed; the library lists all at once, and no deadline ends that."""


def walk(file: h5py.File, deadline: Deadline | None = None) -> Iterator[tuple[str, Any]]:
    """Give path and handle of each object that hard links lead to, each once, groups before what is in them.

    Without recursion, for groups may be nested a thousand deep; each is opened from the one above.
    What a group of too many links holds is left out, and counted by the deadline.
    """
    deadline, visited = deadline or Deadline(), set[int]()
    stack: list[tuple[str, Any, bytes]] = [("", file.id, b"/")]  # path, where it lies, its name
    while stack:
        path, parent, name = stack.pop()
        if deadline.is_over:
            deadline.n_left_out += 1 + len(stack)
            return
        if name != b"/" and parent.links.get_info(name).type != h5py.h5l.TYPE_HARD:
            continue
        object_id = h5py.h5o.open(parent, name)
        if (address := int(h5py.h5o.get_info(object_id).addr)) in visited:
            continue
        visited.add(address)
        yield path, object_id
        if isinstance(object_id, h5py.h5g.GroupID):
            if len(object_id) > MAX_LINKS:
                deadline.n_left_out += len(object_id)
                continue
            names = [raw.decode(errors="surrogateescape") for raw in object_id]
            stack += [(f"{path}/{name}", object_id, os.fsencode(name)) for name in reversed(names)]


def list_datasets(file: h5py.File, deadline: Deadline | None = None) -> list[str]:
    """Return the paths of every dataset, each once."""
    objects = walk(file, deadline)
    return [
        path.strip("/") for path, object_id in objects if isinstance(object_id, h5py.h5d.DatasetID)
    ]


def find_dataset(file: h5py.File, variable: str, name: str) -> h5py.Dataset:
    """Return a dataset by its path."""
    dataset = file.get(variable)
    if isinstance(dataset, h5py.Dataset):
        return dataset
    names = list_datasets(file, Deadline(_FOR_A_MESSAGE_S))
    shown = ", ".join(map(cut, names[:8])) + f" and {len(names) - 8} more" * (len(names) > 8)
    raise UserError("variables", f"{show(variable)} is not in {name}", shown or "none")


def list_other_files(dataset: h5py.Dataset) -> list[str]:
    """Name the files in which a dataset has its values: external ones, or those of a virtual one."""
    sources = dataset.virtual_sources() if dataset.is_virtual else ()
    names = (source.file_name for source in sources if source.file_name != ".")
    return [*(str(name) for name, *_ in dataset.external or ()), *dict.fromkeys(names)]


def get_page_nbytes(file: h5py.File) -> int:
    """Return the bytes of a page, 0 where file space is not paged."""
    plist = file.id.get_create_plist()
    is_paged = plist.get_file_space_strategy()[0] == h5py.h5f.FSPACE_STRATEGY_PAGE
    return int(plist.get_file_space_page_size()) if is_paged else 0


def is_variable_length(dtype: Any) -> bool:
    """Tell whether values of a type, or parts of them, lie in heaps."""
    if dtype.subdtype is not None:
        return is_variable_length(dtype.subdtype[0])
    if dtype.fields:
        return any(is_variable_length(field[0]) for field in dtype.fields.values())
    return h5py.check_vlen_dtype(dtype) is not None or (
        (info := h5py.check_string_dtype(dtype)) is not None and info.length is None
    )
