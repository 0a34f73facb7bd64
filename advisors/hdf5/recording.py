"""Which bytes the HDF5 library asks for to open a file and to read variables of it.

Metadata are read, and noted. Chunks are not: where they lie is in the
metadata, and the library reads each of them whole, in the order of their
places in the array.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import h5py

from advisors.hdf5.sources import LoggedFile, open_hdf5
from helpers.errors import UserError

CHUNK_CACHE_NBYTES = 8 * 2**20
"""Chunk cache for each dataset; an uncompressed chunk that is larger is read row by row."""


def iterate_chunks(dataset: h5py.Dataset) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Give the corner, the offset and the bytes of each stored chunk."""
    if dataset.chunks is None:
        offset = dataset.id.get_offset()
        nbytes = dataset.id.get_storage_size()
        if offset is not None and nbytes:
            yield (0,) * dataset.ndim, offset, nbytes
        return
    found: list[tuple[tuple[int, ...], int, int]] = []
    dataset.id.chunk_iter(
        lambda info: found.append((info.chunk_offset, info.byte_offset, info.size))
    )
    yield from sorted(found)


def iterate_raw_reads(dataset: h5py.Dataset) -> Iterator[tuple[int, int]]:
    """Give the bytes that the library asks for to read a whole dataset.

    Chunks that are compressed, or that fit the chunk cache, are read whole;
    of others, each run of bytes that is contiguous in memory as well.
    """
    for corner, offset, nbytes in iterate_chunks(dataset):
        if dataset.chunks is None or _is_filtered(dataset) or nbytes <= CHUNK_CACHE_NBYTES:
            yield offset, nbytes
        else:
            yield from _iterate_rows(dataset, corner, offset)


def _is_filtered(dataset: h5py.Dataset) -> bool:
    return bool(dataset.id.get_create_plist().get_nfilters())


def _iterate_rows(
    dataset: h5py.Dataset, corner: tuple[int, ...], offset: int
) -> Iterator[tuple[int, int]]:
    chunk_shape, shape = dataset.chunks, dataset.shape
    extents = [min(c, n - at) for c, n, at in zip(chunk_shape, shape, corner, strict=True)]
    outer = dataset.ndim - 1
    while outer and extents[outer] == chunk_shape[outer] == shape[outer]:
        outer -= 1
    run_nbytes = math.prod(extents[outer:]) * dataset.dtype.itemsize
    for index in itertools.product(*map(range, extents[:outer])):
        start = sum(i * math.prod(chunk_shape[dim + 1 :]) for dim, i in enumerate(index))
        yield offset + start * dataset.dtype.itemsize, run_nbytes


Phase = Literal["open", "read"]


@dataclass(frozen=True, slots=True)
class LibraryRead:
    """Bytes that the library asks of its driver."""

    offset: int  # where they begin, and how many
    nbytes: int
    # whether they are metadata; raw data otherwise, to which HDF5 counts the heaps of strings of
    # variable length
    is_metadata: bool
    phase: Phase  # opening with the listing of the tree, or reading of variables


@dataclass(frozen=True, slots=True)
class Recording:
    """What the library asks for, without a page buffer."""

    reads: tuple[LibraryRead, ...]  # in order
    file_nbytes: int  # length of the file
    page_nbytes: int  # bytes of a page; 0 where file space is not paged
    n_first_past: int  # reads at the beginning that a page buffer does not see


def get_page_nbytes(file: h5py.File) -> int:
    """Return the bytes of a page, 0 where file space is not paged."""
    plist = file.id.get_create_plist()
    is_paged = plist.get_file_space_strategy()[0] == h5py.h5f.FSPACE_STRATEGY_PAGE
    return int(plist.get_file_space_page_size()) if is_paged else 0


def list_tree(file: h5py.File) -> None:
    """Open each object of a file and read its attributes, as readers of netCDF do."""

    def visit(_: str, found: Any) -> None:  # any value returned would end the visit
        list(found.attrs.values())

    visit("/", file)
    file.visititems(visit)


def record_reads(file: BinaryIO, name: str, variables: Sequence[str]) -> Recording:
    """Note what the library asks for to open a file and to read variables."""
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
    """Return a dataset by its path."""
    found = file.get(variable)
    if isinstance(found, h5py.Dataset):
        return found
    names: list[str] = []
    file.visititems(lambda key, item: names.append(key) if isinstance(item, h5py.Dataset) else None)
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    raise UserError(f"variable: {variable!r} is not in {name}; allowed: {shown or 'none'}")
