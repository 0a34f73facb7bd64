"""How an HDF5 file and its variables lie, and which bytes the library asks for to read them.

Metadata are read, and noted. Chunks are not: where they lie is in the metadata, and the
library reads each of them whole, in the order of their places in the array.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, BinaryIO, cast

import h5py

from advisors.hdf5.files import (
    Chunk,
    Deadline,
    find_dataset,
    get_filters,
    get_page_nbytes,
    has_readable_heaps,
    is_variable_length,
    open_hdf5,
    visit_chunks,
    walk,
)
from helpers.errors import UserError


@dataclass(frozen=True, slots=True)
class Read:
    """Bytes that one layer asks of the next."""

    offset: int  # where they begin in the file, and how many
    nbytes: int
    is_metadata: bool = True  # whether HDF5 reads metadata; raw data otherwise
    is_ahead: bool = False  # whether it is read in the background, so that nobody waits for it

    @property
    def stop(self) -> int:
        """Offset of the first byte after it."""
        return self.offset + self.nbytes


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
class FileLayout:
    """What the library asks for of a file, in order and without a page buffer.

    `inspect_file` finds it in a file, `descriptions.describe_layout` makes one of a few numbers.
    Heaps count as raw data, as in HDF5.
    """

    opened: tuple[Read, ...]  # to open and list the file
    read: tuple[tuple[Read, ...], ...]  # then to read the variables, one after the other
    file_nbytes: int  # length of the file
    page_nbytes: int = 0  # bytes of a page; 0 where file space is not paged
    n_first_past: int = 0  # reads at the beginning that a page buffer does not see
    n_listed: int = 0  # objects and attributes that the tree has
    heaps: tuple[Span, ...] = ()  # of those that open it: heaps, of attributes of variable length
    references_nbytes: int = 0  # of a file of references to all chunks
    decode_s: float = 0.0  # processor time of decoding what is read

    @property
    def metadata(self) -> list[Span]:
        """Offset and end of all metadata, in order."""
        reads = chain(self.opened, *self.read)
        return merge_spans((read.offset, read.stop) for read in reads if read.is_metadata)

    @property
    def chunks(self) -> list[list[Read]]:
        """What is read of each variable but for metadata."""
        return [[one for one in reads if not one.is_metadata] for reads in self.read]


def list_tree(file: h5py.File, groups: Collection[str] | None = None) -> int:
    """Open objects of a file and read their attributes, as readers of netCDF do; count both.

    They are those of the whole tree, as of programs that look for something, or some groups with
    what is directly in them, as xarray opens a group.
    """
    if groups is None:
        return sum(_list_object(found) for _, found in walk(file))
    n_listed = 0
    for name in groups:
        n_listed += _list_object((group := file[name or "/"]).id)
        for found in map(group.get, group):
            if found is not None:  # a link may lead nowhere
                n_listed += _list_object(found.id)
    return n_listed


def _list_object(found: Any) -> int:
    n_attributes = int(h5py.h5a.get_num_attrs(found))
    if n_attributes:
        list(h5py.AttributeManager(_Holder(found)).values())
    return 1 + n_attributes


@dataclass(frozen=True, slots=True)
class _Holder:
    """What h5py's attributes want of their object."""

    id: Any


MAX_CHUNKS = 100_000
"""Chunks of a file that are looked at, those of its first variables first; the others are left out."""


def record_reads(
    file: BinaryIO, name: str, variables: Sequence[str], *, groups: Collection[str] | None = None
) -> FileLayout:
    """Note what the library asks for to open a file, to list it as `list_tree` does, and to read variables."""
    log = LoggedFile(file)
    with open_hdf5(log, name) as opened:
        n_open, n_listed = len(log.spans), list_tree(opened, groups)
        listing, reads = _classify(log, 0), list[tuple[Read, ...]]()
        heaps = tuple(span for span in log.spans if span[0] in log.heaps)
        for variable in variables:
            n_before = len(log.spans)
            dataset = find_dataset(opened, variable, name)
            reads.append(_record_dataset(log, dataset, n_before, MAX_CHUNKS - sum(map(len, reads))))
        page_nbytes = get_page_nbytes(opened)
    n_past = _count_first_past(file, name, page_nbytes, log.spans[:n_open])
    n = file.seek(0, 2)
    return FileLayout(tuple(listing), tuple(reads), n, page_nbytes, n_past, n_listed, heaps)


def _record_dataset(
    log: LoggedFile, dataset: h5py.Dataset, n_before: int, n_most: int
) -> tuple[Read, ...]:
    """Note what reading a dataset asks for, from a place of the log on: chunks in the order of their places in the array.

    Of their index the library reads each part where it needs it, between chunks. Values are read
    of datasets alone that have them in heaps, for nothing else says where.
    """
    found = list[tuple[Chunk, int]]()

    def see(chunk: Chunk) -> bool | None:  # True ends it
        if len(found) < n_most:
            found.append((chunk, len(log.spans)))
        return True if len(found) >= n_most else None

    visit_chunks(dataset, see)
    raw = [(at, nbytes) for (_, at, nbytes), _ in found]
    if has_readable_heaps(dataset):
        dataset[()]
        return tuple(_classify(log, n_before, raw))
    index, reads = _classify(log, n_before), list[Read]()
    for (_, at, nbytes), n_spans in sorted(found):
        n_index = max(0, n_spans - n_before)
        reads += index[:n_index]
        index, n_before = index[n_index:], n_before + n_index
        reads.append(Read(at, nbytes, is_metadata=False))
    return (*reads, *index)


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


@dataclass(frozen=True, slots=True)
class Variable:
    """How a dataset lies."""

    name: str  # path inside the file
    shape: tuple[int, ...]  # elements for each dimension
    dtype: str  # kind of its values
    chunk_shape: tuple[int, ...]  # elements for each dimension; empty where it is not chunked
    n_chunks: int  # stored chunks, or 1 for all, and their bytes
    stored_nbytes: int
    nbytes: int  # bytes in memory
    filters: tuple[str, ...]  # names of its filters, in order
    missing_filters: tuple[str, ...]  # those that this machine does not have
    is_variable_length: bool  # whether its values lie in heaps, which are not in the chunks
    other_files: tuple[str, ...]  # that hold its values: external ones, or sources of a virtual one
    is_lossless: bool = True  # whether its values can be encoded anew
    filter_numbers: tuple[int, ...] = ()  # of its filters, as HDF5 registers them
    has_known_heaps: bool = False  # whether its values lie in heaps that were read to find them

    @property
    def chunk_nbytes(self) -> int:
        """Bytes of a chunk in memory, or of all values where it is not chunked."""
        n_elements = math.prod(self.chunk_shape or self.shape)
        return self.nbytes * n_elements // max(1, math.prod(self.shape))

    def check_filters(self) -> None:
        """Refuse a variable that cannot be decoded here."""
        if self.missing_filters:
            raise UserError(
                f"variable: {self.name!r} needs the filter {', '.join(self.missing_filters)}, which"
                " is not here; allowed: a variable whose filters are (HDF5_PLUGIN_PATH says where"
                " plugins lie; an encrypted variable needs its owner's)"
            )


@dataclass(frozen=True, slots=True)
class FileReport:
    """How an HDF5 file lies."""

    name: str  # path or address
    file_nbytes: int  # bytes of the file, and of the block before its beginning
    userblock_nbytes: int
    page_nbytes: int  # bytes of a page; 0 where file space is not paged
    # bytes that the library reads to list every object, attribute and chunk, each counted once;
    # and how many separate places they lie in
    metadata_nbytes: int
    n_metadata_spans: int
    n_listed: int  # objects and attributes
    variables: tuple[Variable, ...]  # every dataset
    n_left_out: int = 0  # objects and chunks that were not looked at, because time was over


# deflate, shuffle, fletcher32, szip, nbit; LZF, Blosc, LZ4, Zstd, Blosc2
_LOSSLESS = {1, 2, 3, 4, 5, 32000, 32001, 32004, 32015, 32026}


def inspect_file(
    file: BinaryIO, name: str, deadline: Deadline | None = None
) -> tuple[FileReport, FileLayout]:
    """Read how an HDF5 file lies from its metadata alone, and what reading all of it asks for."""
    deadline, log, n_listed, n_reads = deadline or Deadline(), LoggedFile(file), 0, 0
    variables, reads = list[Variable](), list[tuple[Read, ...]]()
    listing, heaps = list[Read](), list[Span]()
    with open_hdf5(log, name) as opened:
        n_open, n_seen = len(log.spans), 0
        page_nbytes, userblock_nbytes = get_page_nbytes(opened), opened.userblock_size
        for path, found in walk(opened, deadline):
            n_listed += _list_object(found)
            listing += _classify(log, n_seen)
            heaps += [span for span in log.spans[n_seen:] if span[0] in log.heaps]
            if isinstance(found, h5py.h5d.DatasetID):
                dataset = h5py.Dataset(found)
                reads.append(_record_dataset(log, dataset, len(log.spans), MAX_CHUNKS - n_reads))
                n_reads += len(reads[-1])
                variables.append(inspect_variable(dataset, path.strip("/")))
            n_seen = len(log.spans)
    n_past = _count_first_past(file, name, page_nbytes, log.spans[:n_open])
    n = file.seek(0, 2)
    layout = FileLayout(
        tuple(listing), tuple(reads), n, page_nbytes, n_past, n_listed, tuple(heaps)
    )
    spans = layout.metadata
    metadata_nbytes = sum(stop - start for start, stop in spans)
    places = (metadata_nbytes, len(spans), n_listed)
    report = FileReport(
        name, n, userblock_nbytes, page_nbytes, *places, tuple(variables), deadline.n_left_out
    )
    return report, layout


def inspect_variable(dataset: h5py.Dataset, name: str) -> Variable:
    """Read how one dataset lies in its file."""
    n_chunks = (
        dataset.id.get_num_chunks() if dataset.chunks else int(dataset.id.get_offset() is not None)
    )
    filters = [
        (number, text.decode(errors="replace") or "unnamed")
        for number, *_, text in get_filters(dataset)
    ]
    return Variable(
        name,
        dataset.shape or (),
        str(dataset.dtype),
        dataset.chunks or (),
        n_chunks,
        dataset.id.get_storage_size(),
        math.prod(dataset.shape or (0,)) * dataset.dtype.itemsize,
        tuple(name for _, name in filters),
        tuple(f"{name} (number {n})" for n, name in filters if not h5py.h5z.filter_avail(n)),
        is_variable_length(dataset.dtype),
        (*list_external(dataset), *dict.fromkeys(file for file, _ in list_sources(dataset))),
        is_lossless(dataset),
        tuple(number for number, _ in filters),
        has_readable_heaps(dataset),
    )


def list_external(dataset: h5py.Dataset) -> list[str]:
    """Name the files, not of HDF5, in which a dataset has its values."""
    return [str(name) for name, *_ in dataset.external or ()]


def list_sources(dataset: h5py.Dataset) -> list[tuple[str, str]]:
    """Name the other files, and the datasets in them, of which a virtual dataset is made."""
    found = dataset.virtual_sources() if dataset.is_virtual else ()
    return [(source.file_name, source.dset_name) for source in found if source.file_name != "."]


def is_lossless(dataset: h5py.Dataset) -> bool:
    """Tell whether values can be encoded anew, without loss and with the options that are stored."""
    return all(number in _LOSSLESS for number, *_ in get_filters(dataset))
