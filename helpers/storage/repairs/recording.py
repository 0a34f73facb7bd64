"""Which bytes the HDF5 library asks for to open a file and to read variables of it.

Metadata are read, and noted. Chunks are not: where they lie is in the
metadata, and the library reads each of them whole, in the order of their
places in the array.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import h5py

from helpers.errors import UserError
from helpers.storage.repairs.chunks import iterate_raw_reads
from helpers.storage.repairs.sources import LoggedFile, open_hdf5

Phase = Literal["open", "read"]


@dataclass(frozen=True, slots=True)
class LibraryRead:
    """Bytes that the library asks of its driver.

    Parameters
    ----------
    offset, nbytes : int
        Where they begin, and how many.
    is_metadata : bool
        Whether they are metadata; raw data otherwise, to which HDF5 counts
        the heaps of strings of variable length.
    phase : {"open", "read"}
        Opening with the listing of the tree, or reading of variables.
    """

    offset: int
    nbytes: int
    is_metadata: bool
    phase: Phase


@dataclass(frozen=True, slots=True)
class Recording:
    """What the library asks for, without a page buffer.

    Parameters
    ----------
    reads : tuple of LibraryRead
        In order.
    file_nbytes : int
        Length of the file.
    page_nbytes : int
        Bytes of a page; 0 where file space is not paged.
    n_first_past : int
        Reads at the beginning that a page buffer does not see.
    """

    reads: tuple[LibraryRead, ...]
    file_nbytes: int
    page_nbytes: int
    n_first_past: int


def get_page_nbytes(file: h5py.File) -> int:
    """Return the bytes of a page, 0 where file space is not paged.

    Parameters
    ----------
    file : h5py.File
        Open file.

    Returns
    -------
    int
        As the file's own creation properties have it.
    """
    plist = file.id.get_create_plist()
    is_paged = plist.get_file_space_strategy()[0] == h5py.h5f.FSPACE_STRATEGY_PAGE
    return int(plist.get_file_space_page_size()) if is_paged else 0


def list_tree(file: h5py.File) -> None:
    """Open each object of a file and read its attributes, as readers of netCDF do.

    Parameters
    ----------
    file : h5py.File
        Open file.
    """

    def visit(_: str, found: Any) -> None:  # any value returned would end the visit
        list(found.attrs.values())

    visit("/", file)
    file.visititems(visit)


def record_reads(file: BinaryIO, name: str, variables: Sequence[str]) -> Recording:
    """Note what the library asks for to open a file and to read variables.

    Parameters
    ----------
    file : file object
        Open HDF5 file.
    name : str
        How messages call it.
    variables : sequence of str
        Paths of datasets inside the file.

    Returns
    -------
    Recording
        What it asks for.

    Raises
    ------
    UserError
        If a variable is missing, or the file cannot be read.
    """
    log = LoggedFile(file)
    with open_hdf5(log, name) as opened:
        page_nbytes = get_page_nbytes(opened)
        n_open = len(log.spans)
        list_tree(opened)
        found = [find_dataset(opened, variable, name) for variable in variables]

        def classify(spans: Sequence[tuple[int, int]], phase: Phase) -> list[LibraryRead]:
            return [LibraryRead(*span, span[0] not in log.heaps, phase) for span in spans]

        reads = classify(log.spans, "open")
        for dataset in found:
            n_before = len(log.spans)
            raw = [LibraryRead(*span, False, "read") for span in iterate_raw_reads(dataset)]
            reads += classify(log.spans[n_before:], "read")
            reads += raw
    n_first_past = _count_first_past(file, name, page_nbytes, log.spans[:n_open])
    return Recording(tuple(reads), file.seek(0, 2), page_nbytes, n_first_past)


def _count_first_past(
    file: BinaryIO, name: str, page_nbytes: int, spans: Sequence[tuple[int, int]]
) -> int:
    """Count the reads that come before the library has its page buffer."""
    if not page_nbytes:
        return 0
    log = LoggedFile(file)
    with open_hdf5(log, name, page_buf_size=page_nbytes):
        pairs = zip(spans, log.spans, strict=False)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def find_dataset(file: h5py.File, variable: str, name: str) -> h5py.Dataset:
    """Return a dataset by its path.

    Parameters
    ----------
    file : h5py.File
        Open file.
    variable : str
        Path inside the file.
    name : str
        How messages call the file.

    Returns
    -------
    h5py.Dataset
        The dataset.

    Raises
    ------
    UserError
        If there is none.
    """
    found = file.get(variable)
    if isinstance(found, h5py.Dataset):
        return found
    names: list[str] = []
    file.visititems(lambda key, item: names.append(key) if isinstance(item, h5py.Dataset) else None)
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    raise UserError(f"variable: {variable!r} is not in {name}; allowed: {shown or 'none'}")
