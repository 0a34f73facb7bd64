"""Which bytes the HDF5 library asks for to open a file, to list it and to read variables.

Metadata are read, and noted. Chunks are not: where they lie is in the metadata, and the
library reads each of them whole, in the order of their places in the array.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import h5py

from advisors.hdf5.caches import Read
from advisors.hdf5.files import (
    find_dataset,
    get_page_nbytes,
    has_readable_heaps,
    iterate_chunks,
    open_hdf5,
)

_HEAP_SIGNATURE = b"GCOL"
_HEAP_HEADER_NBYTES = 16  # signature, version, and from byte 8 on the bytes of the whole heap

Span = tuple[int, int]
"""Offset and length."""


class LoggedFile:
    """A file object that notes each read, as HDF5 asks for it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell
        self.spans: list[Span] = []
        """Offset and length of each read so far."""
        self.heaps: set[int] = set()
        """Offsets of reads that brought heaps of values of variable length."""
        self._heap_stop = 0  # where the heap that was read last ends

    def read(self, nbytes: int = -1) -> bytes:
        """Read and note it, as `readinto` does."""
        at = self._file.tell()
        found = self._file.read(nbytes)
        self._note(at, len(found), found[:_HEAP_HEADER_NBYTES])
        return found

    def readinto(self, buffer: Any) -> int:
        """Read and note it."""
        at = self._file.tell()
        nbytes = int(cast(Any, self._file).readinto(buffer))
        self._note(at, len(buffer), bytes(memoryview(buffer)[:_HEAP_HEADER_NBYTES]))
        return nbytes

    def _note(self, offset: int, nbytes: int, beginning: bytes) -> None:
        before = self.spans[-1] if self.spans else (-1, 0)
        if beginning.startswith(_HEAP_SIGNATURE):
            self._heap_stop = offset + int.from_bytes(beginning[8:], "little")
            self.heaps.add(offset)
        # of a heap above 4 KiB the library reads the beginning, and then the rest
        elif before[0] in self.heaps and offset == sum(before) and offset < self._heap_stop:
            self.heaps.add(offset)
        self.spans.append((offset, nbytes))

    def flush(self) -> None:
        """Do nothing: nothing is written."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What the library asks for, without a page buffer; heaps count as raw data, as in HDF5."""

    opened: tuple[Read, ...]  # to open and list the file, in order; then to read the variables
    read: tuple[Read, ...]
    heaps: tuple[Span, ...]  # of those that open it: heaps, of attributes of variable length
    file_nbytes: int  # length of the file
    page_nbytes: int  # bytes of a page; 0 where file space is not paged
    n_first_past: int  # reads at the beginning that a page buffer does not see
    n_listed: int  # objects and attributes that the tree has

    @property
    def metadata(self) -> list[Span]:
        """Offset and end of all metadata, in order."""
        reads = (*self.opened, *self.read)
        return merge_spans((read.offset, read.stop) for read in reads if read.is_metadata)


def list_tree(file: h5py.File, groups: Collection[str] | None = None) -> int:
    """Open objects of a file and read their attributes, as readers of netCDF do; count both.

    They are those of the whole tree, as of programs that look for something, or some groups with
    what is directly in them, as xarray opens a group.
    """
    n_listed = 0

    def visit(_: str, found: Any) -> None:  # any value returned would end the visit
        nonlocal n_listed
        n_listed += 1 + len(list(found.attrs.values()))

    if groups is None:
        visit("/", file)
        file.visititems(visit)
        return n_listed
    for name in groups:
        visit(name, group := file[name or "/"])
        for found in map(group.get, group):
            if found is not None:  # a link may lead nowhere
                visit("", found)
    return n_listed


def record_reads(
    file: BinaryIO,
    name: str,
    variables: Sequence[str],
    *,
    groups: Collection[str] | None = None,
) -> Recording:
    """Note what the library asks for to open a file, to list it and to read variables.

    It is listed as `list_tree` does. Values are read of datasets alone that have them in heaps, for nothing else says where.
    """
    log = LoggedFile(file)
    with open_hdf5(log, name) as opened:
        page_nbytes = get_page_nbytes(opened)
        n_open = len(log.spans)
        n_listed = list_tree(opened, groups)
        found = [find_dataset(opened, variable, name) for variable in variables]
        n_before = len(log.spans)
        opening, reads = _classify(log, 0), list[Read]()
        heaps = tuple(span for span in log.spans if span[0] in log.heaps)
        for dataset in found:
            raw = [(at, nbytes) for _, at, nbytes in iterate_chunks(dataset)]
            is_read = has_readable_heaps(dataset)
            if is_read:
                dataset[()]
            reads += _classify(log, n_before, raw)
            reads += [] if is_read else [Read(*span, is_metadata=False) for span in raw]
            n_before = len(log.spans)
    n_first_past = _count_first_past(file, name, page_nbytes, log.spans[:n_open])
    nbytes = file.seek(0, 2)
    return Recording(
        tuple(opening), tuple(reads), heaps, nbytes, page_nbytes, n_first_past, n_listed
    )


def _classify(log: LoggedFile, start: int, raw: Sequence[Span] = ()) -> list[Read]:
    """Tell metadata, heaps and raw data apart in what was read from a place of the log on."""
    ordered = sorted(raw)
    starts, reads = [at for at, _ in ordered], list[Read]()
    for offset, nbytes in log.spans[start:]:
        place = bisect_right(starts, offset) - 1
        is_raw = place >= 0 and offset < sum(ordered[place])
        reads.append(Read(offset, nbytes, is_metadata=not is_raw and offset not in log.heaps))
    return reads


def _count_first_past(file: BinaryIO, name: str, page_nbytes: int, spans: Sequence[Span]) -> int:
    """Count the reads that come before the library has its page buffer."""
    if not page_nbytes:
        return 0
    log = LoggedFile(file)
    with open_hdf5(log, name, page_buf_size=page_nbytes):
        pairs = zip(spans, log.spans, strict=False)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def merge_spans(spans: Any) -> list[tuple[int, int]]:
    """Merge ranges, from offset to end, that touch or overlap.

    Examples
    --------
    >>> merge_spans([(5, 7), (0, 2), (2, 3), (6, 9)])
    [(0, 3), (5, 9)]
    """
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged
