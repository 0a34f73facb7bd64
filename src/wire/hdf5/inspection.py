"""How an HDF5 file and its variables lie, and which bytes the library asks for to read them.

Metadata are read, and noted. Chunks are not: where they lie is in the metadata, and the
library reads each of them whole, in the order of their places in the array.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from types import SimpleNamespace
from typing import Any, BinaryIO, NamedTuple, cast

import h5py

from wire.hdf5.files import (
    MAX_LINKS,
    Deadline,
    find_dataset,
    get_page_nbytes,
    is_variable_length,
    list_other_files,
    open_hdf5,
    walk,
)


class Read(NamedTuple):
    """Bytes that one layer asks of the next."""

    offset: int  # where they begin in the file, and how many
    nbytes: int
    is_metadata: bool = True  # whether HDF5 reads metadata; raw data otherwise
    is_ahead: bool = False  # whether it is read in the background, so that nobody waits for it

    @property
    def stop(self) -> int:
        """Offset of the first byte after it."""
        return self.offset + self.nbytes


_HEAP_SIGNATURE = b"GCOL"  # of a heap of values of variable length, which counts as raw data


class LoggedFile(io.RawIOBase):
    """A file object that logs each read, as HDF5 asks for it; after a deadline it refuses to read."""

    def __init__(self, file: BinaryIO, deadline: Deadline | None = None) -> None:
        super().__init__()
        self._file, self._deadline = file, deadline
        self.reads: list[Read] = []
        """Each read so far."""

    def readable(self) -> bool:
        """Return True: xarray asks for it."""
        return True

    def seekable(self) -> bool:
        """Return True: xarray asks for it."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to an offset."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the offset."""
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        """Read and log it."""
        if self._deadline is not None and self._deadline.is_over:
            raise TimeoutError("the time for looking at the file is over")
        position = self._file.tell()
        nbytes = int(cast(Any, self._file).readinto(buffer))
        is_heap = bytes(memoryview(buffer)[: len(_HEAP_SIGNATURE)]) == _HEAP_SIGNATURE
        self.reads.append(Read(position, len(buffer), not is_heap))
        return nbytes


@dataclass(frozen=True, slots=True)
class FileLayout:
    """What the library asks for of a file, in order and without a page buffer.

    `record_reads` finds it in a file, `describe_layout` makes one of a few numbers.
    """

    opened: tuple[Read, ...]  # to open and list the file
    read: tuple[tuple[Read, ...], ...]  # then to read the variables, one after the other
    file_nbytes: int  # length of the file
    page_nbytes: int = 0  # bytes of a page; 0 where file space is not paged
    n_listed: int = 0  # objects and attributes that the tree has
    references_nbytes: int = 0  # of a file of references to all chunks
    decode_s: float = 0.0  # processor time of decoding what is read
    variables: tuple[Variable, ...] = ()  # that are read, if they were looked at
    userblock_nbytes: int = 0  # before the beginning of the file

    @property
    def metadata(self) -> list[tuple[int, int]]:
        """Offset and end of all metadata, in order."""
        reads = chain(self.opened, *self.read)
        return merge_spans((read.offset, read.stop) for read in reads if read.is_metadata)

    @property
    def chunks(self) -> list[list[Read]]:
        """What is read of each variable but for metadata."""
        return [[read for read in reads if not read.is_metadata] for reads in self.read]


def iterate_listed(
    file: h5py.File, groups: Collection[str] | None, deadline: Deadline
) -> Iterator[tuple[str, Any]]:
    """Give paths and objects of the whole tree, or of some groups with what is directly in them.

    The whole is for programs that look for something; xarray opens a group.
    """
    if groups is None:
        yield from walk(file, deadline)
        return
    for name in groups:
        if not isinstance(group := file.get(name or "/"), h5py.Group):
            continue  # what is looked for in it is refused by its name
        yield name, group.id
        if len(group) > MAX_LINKS:
            deadline.n_left_out += len(group)
            continue
        for n, key in enumerate(group):
            if deadline.is_over:
                deadline.n_left_out += len(group) - n
                return
            if (child := group.get(key)) is not None:  # a link may lead nowhere
                yield f"{name}/{key}", child.id


def list_object(object_id: Any) -> int:
    """Read the attributes of an object, as readers of netCDF do; count both."""
    n_attributes = int(h5py.h5a.get_num_attrs(object_id))
    if n_attributes:
        list(h5py.AttributeManager(SimpleNamespace(id=object_id)).values())
    return 1 + n_attributes


MAX_CHUNKS = 100_000
"""Chunks of a file that are looked at, those of its first variables first; the others are left out."""


def record_reads(
    file: BinaryIO,
    name: str,
    variables: Sequence[str] | None = None,
    *,
    groups: Collection[str] | None = None,
    deadline: Deadline | None = None,
) -> FileLayout:
    """Note what the library asks for to open a file, to list it, and to read variables.

    They are listed as `iterate_listed` does it. Without `variables`, each dataset is read where it is listed.
    """
    log, n_seen, n_listed = LoggedFile(file), 0, 0
    listing, reads, looked_at = list[Read](), list[tuple[Read, ...]](), list[Variable]()

    def record(path: str, dataset: h5py.Dataset, n_before: int) -> None:
        n_most = MAX_CHUNKS - sum(map(len, reads))
        reads.append(_record_dataset(log, dataset, n_before, n_most))
        looked_at.append(inspect_variable(dataset, path))

    with open_hdf5(log, name) as opened:
        page_nbytes, userblock_nbytes = get_page_nbytes(opened), opened.userblock_size
        for path, object_id in iterate_listed(opened, groups, deadline or Deadline()):
            n_listed += list_object(object_id)
            listing += log.reads[n_seen:]
            if variables is None and isinstance(object_id, h5py.h5d.DatasetID):
                record(path.strip("/"), h5py.Dataset(object_id), len(log.reads))
            n_seen = len(log.reads)
        listing += log.reads[n_seen:]
        for variable in variables or ():
            n_seen = len(log.reads)
            record(variable, find_dataset(opened, variable, name), n_seen)
    return FileLayout(
        tuple(listing),
        tuple(reads),
        file.seek(0, 2),
        page_nbytes,
        n_listed,
        decode_s=sum(variable.decode_s for variable in looked_at),
        variables=tuple(looked_at),
        userblock_nbytes=userblock_nbytes,
    )


MOST_LISTED = 2_000
"""Objects of a group that h5netcdf is let open: it takes about a millisecond for each."""

MOST_GROUPS = 8
"""Groups that a program of xarray opens, each by a call of its own."""


def record_xarray(
    file: BinaryIO, variables: Sequence[str], deadline: Deadline
) -> tuple[FileLayout, ...]:
    """Log what ``xarray.open_dataset(url, engine="h5netcdf", group=…)`` reads, then each variable.

    Each group is opened by a call of its own, so by a file object of its own, and is a layout of
    its own. The call reads attributes, dimensions, and the values of coordinates, as xarray's
    engine does. What xarray cannot open is a ValueError whose text says why.
    """
    groups: dict[str, list[str]] = {}
    for variable in variables:
        group, _, key = variable.rpartition("/")
        groups.setdefault(group, []).append(key)
    if len(groups) > MOST_GROUPS:
        raise ValueError(f"{len(groups)} groups, more than {MOST_GROUPS}")
    return tuple(_record_group(file, group, keys, deadline) for group, keys in groups.items())


def _record_group(
    file: BinaryIO, group: str, keys: Sequence[str], deadline: Deadline
) -> FileLayout:
    """Log what xarray reads to open a group and load variables of it."""
    import xarray

    file.seek(0)
    log, reads, looked_at = LoggedFile(file, deadline), list[tuple[Read, ...]](), list[Variable]()
    with h5py.File(log, "r") as opened:
        if (n := len(opened[group or "/"])) > MOST_LISTED:
            raise ValueError(f"{n:,} objects in a group, more than {MOST_LISTED:,}")
    file.seek(0)
    log.reads.clear()
    with (
        warnings.catch_warnings(action="ignore"),  # of dimensions without names, and of odd values
        xarray.backends.H5NetCDFStore.open(log, group=group or None, phony_dims="access") as store,
        xarray.open_dataset(store) as dataset,
    ):
        n_listed = sum(1 + len(variable.attrs) for variable in dataset.variables.values())
        listing = tuple(log.reads)
        for key in keys:
            if key not in dataset.variables:
                raise ValueError(f"xarray does not list {key!r}")
            n_before = len(log.reads)
            h5_dataset = store.ds[key]._h5ds
            if dataset[key].variable._in_memory:  # a coordinate, which was read with its index
                reads.append(())
                continue
            n_most = MAX_CHUNKS - sum(map(len, reads))
            reads.append(_record_dataset(log, h5_dataset, n_before, n_most))
            looked_at.append(inspect_variable(h5_dataset, key))
    return FileLayout(
        listing,
        tuple(reads),
        file.seek(0, 2),
        n_listed=n_listed,
        decode_s=sum(variable.decode_s for variable in looked_at),
        variables=tuple(looked_at),
    )


def _record_dataset(
    log: LoggedFile, dataset: h5py.Dataset, n_before: int, n_most: int
) -> tuple[Read, ...]:
    """Note what reading a dataset asks for, from a place of the log on: chunks in the order of their places in the array.

    Of their index the library reads each part where it needs it, between chunks. Heaps of values
    of variable length are not looked for: nothing but the values says where they are.
    """
    # of each chunk its corner, offset and bytes, and how much of the index was read before it
    chunks = list[tuple[tuple[int, ...], int, int, int]]()

    def see(chunk: Any) -> bool | None:  # True ends it
        if len(chunks) < n_most:
            chunks.append((chunk.chunk_offset, chunk.byte_offset, chunk.size, len(log.reads)))
        return True if len(chunks) >= n_most else None

    if dataset.chunks is not None:
        dataset.id.chunk_iter(see)
    elif (offset := dataset.id.get_offset()) is not None and (
        nbytes := dataset.id.get_storage_size()
    ):
        see(h5py.h5d.StoreInfo((), 0, offset, nbytes))
    reads = list[Read]()
    for _, offset, nbytes, n_logged in sorted(chunks):
        reads += log.reads[n_before:n_logged]
        n_before = max(n_before, n_logged)
        reads.append(Read(offset, nbytes, is_metadata=False))
    return (*reads, *log.reads[n_before:])


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


# What the library takes on one processor, whatever the network. Decoding is that of the records'
# whole files, which are read from memory.
_NBYTE_S = 4e-10  # for a byte of values, next to its filters
# Values that a filter decodes in a second, in MB. deflate, shuffle, fletcher32, szip, nbit,
# scaleoffset; LZF, Blosc, LZ4, bitshuffle, Zstd, Blosc2
_MB_PER_S = {1: 600.0, 2: 3000.0, 3: 1500.0, 4: 150.0, 5: 400.0, 6: 300.0, 32000: 400.0,
             32001: 1000.0, 32004: 1500.0, 32008: 1500.0, 32015: 500.0, 32026: 1000.0}  # fmt: skip
_OTHER_MB_PER_S = 200.0
_LOSSLESS = {1, 2, 3, 4, 5, 32000, 32001, 32004, 32015, 32026}


def decode_nbyte_s(filter_numbers: Sequence[int]) -> float:
    """Estimate the time of decoding a byte of values, by its filters as HDF5 numbers them."""
    rates = (_MB_PER_S.get(number, _OTHER_MB_PER_S) for number in filter_numbers)
    return _NBYTE_S + sum(1e-6 / rate for rate in rates)


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
    filters: tuple[str, ...] = ()  # names of its filters, in order, and how HDF5 registers them
    filter_numbers: tuple[int, ...] = ()
    missing_filters: tuple[str, ...] = ()  # those that this machine does not have
    is_variable_length: bool = False  # whether its values lie in heaps, which are not in the chunks
    other_files: tuple[str, ...] = ()  # that hold its values: external, or of a virtual one

    @property
    def chunk_nbytes(self) -> int:
        """Bytes of a chunk in memory, or of all values where it is not chunked."""
        n_elements = math.prod(self.chunk_shape or self.shape)
        return self.nbytes * n_elements // max(1, math.prod(self.shape))

    @property
    def is_sparse(self) -> bool:
        """Whether most of its chunks were never stored."""
        pairs = zip(self.shape, self.chunk_shape, strict=False)
        return 2 * self.n_chunks < math.prod(-(-n // c) for n, c in pairs if c)

    @property
    def is_lossless(self) -> bool:
        """Whether values can be encoded anew, without loss and with the options that are stored."""
        return {*self.filter_numbers} <= _LOSSLESS

    @property
    def decode_s(self) -> float:
        """Estimated time of decoding it."""
        nbytes = min(self.nbytes, self.n_chunks * self.chunk_nbytes)
        return nbytes * decode_nbyte_s(self.filter_numbers)


def inspect_variable(dataset: h5py.Dataset, name: str) -> Variable:
    """Read how one dataset lies in its file."""
    dataset_id = dataset.id
    plist = dataset_id.get_create_plist()
    n_chunks = (
        dataset_id.get_num_chunks() if dataset.chunks else int(dataset_id.get_offset() is not None)
    )
    filters = [
        (number, text.decode(errors="replace") or "unnamed")
        for number, *_, text in map(plist.get_filter, range(plist.get_nfilters()))
    ]
    return Variable(
        name,
        dataset.shape or (),
        str(dataset.dtype),
        dataset.chunks or (),
        n_chunks,
        dataset_id.get_storage_size(),
        math.prod(dataset.shape or (0,)) * dataset.dtype.itemsize,
        tuple(name for _, name in filters),
        tuple(number for number, _ in filters),
        tuple(f"{name} (number {n})" for n, name in filters if not h5py.h5z.filter_avail(n)),
        is_variable_length(dataset.dtype),
        tuple(list_other_files(dataset)),
    )


REFERENCE_NBYTES = 80
"""Bytes of one reference in a JSON file: key, address, offset and length."""

# Of an index (B-tree, version 1): chunks of a node that is full, and those that stay in it where it
# is split because chunks were appended (H5Pset_btree_ratios: nine tenths)
_MOST_CHUNKS, _NODE_CHUNKS, _NODE_NBYTES = 64, 57, 2096
_HEADER_NBYTES = 512  # that HDF5 reads of an object to find out about it
_LATE_NBYTES = 104  # of attributes that were added to a variable when the file was closed
# Of chunks that grew as they were filled, and so moved, the last lies in a gap that another left:
# as a share of the file, where the records' granule has it
_GAP = 0.9
_DEFLATED = (2, 1)  # shuffle, deflate


def describe_layout(
    *, n_chunks: int, chunk_nbytes: float, n_variables: int = 1, n_read: int = 1,
    is_scattered: bool = True, touched: Sequence[int] = (), value_nbytes: float = 0.0,
) -> FileLayout:  # fmt: skip
    """Describe a file of variables that are alike, of which some are read, one after the other.

    Each has `n_chunks` of so many stored bytes, of which those `touched` are read, as numbers in the order in
    which they lie, or all. Scattered variables were appended in turn, so that each lies all over the file; else
    each lies in one piece. `value_nbytes` are those in memory of what is decoded of one variable; without them
    they are as stored, and deflate takes no time.
    """
    nbytes, front = round(chunk_nbytes), 2048 + _HEADER_NBYTES * n_variables
    n_nodes = -(-n_chunks // _NODE_CHUNKS)
    index_nbytes = n_chunks * nbytes + n_nodes * _NODE_NBYTES
    step, apart = (n_variables * nbytes, nbytes) if is_scattered else (nbytes, index_nbytes)
    file_nbytes = front + n_variables * index_nbytes

    def locate(variable: int, chunk: int) -> int:
        if is_scattered and chunk == n_chunks - 1 > _MOST_CHUNKS:
            chunk = int(_GAP * n_chunks)
        return min(front + variable * apart + chunk * step, file_nbytes)

    def read_variable(variable: int) -> Iterator[Read]:
        root = front + variable * apart  # of the index, made with the variable
        yield Read(2048 + _HEADER_NBYTES * variable, _HEADER_NBYTES)
        yield Read(2048 - _HEADER_NBYTES, _HEADER_NBYTES)  # of its group
        if is_scattered:
            yield Read(file_nbytes - _LATE_NBYTES, _LATE_NBYTES)
        yield Read(root, _NODE_NBYTES)
        node = -1  # a full node is split when the chunk comes for which it has no room
        for chunk in touched or range(n_chunks):
            if n_chunks > _MOST_CHUNKS and chunk // _NODE_CHUNKS != node:
                node = chunk // _NODE_CHUNKS
                n_splits = min(_MOST_CHUNKS + _NODE_CHUNKS * (max(node, 1) - 1), n_chunks - 1)
                yield Read(locate(variable, n_splits), _NODE_NBYTES)
            yield Read(locate(variable, chunk), nbytes, is_metadata=False)

    headers = (Read(2048 + _HEADER_NBYTES * n, _HEADER_NBYTES) for n in range(n_variables))
    opened = (Read(0, 96), *headers)
    read = tuple(tuple(read_variable(variable)) for variable in range(n_read))
    decoded = value_nbytes or len(touched or range(n_chunks)) * nbytes
    return FileLayout(
        opened,
        read,
        file_nbytes,
        references_nbytes=REFERENCE_NBYTES * n_variables * n_chunks,
        decode_s=n_read * decoded * decode_nbyte_s(_DEFLATED if value_nbytes else ()),
    )
