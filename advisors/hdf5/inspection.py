"""What an HDF5 file says of itself, and what is said of each of its variables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import h5py

from advisors.hdf5.recording import (
    find_dataset,
    get_page_nbytes,
    has_readable_heaps,
    is_variable_length,
    iterate_chunks,
    list_datasets,
    open_hdf5,
    record_reads,
)
from helpers.errors import UserError

CHUNK_BOUNDS_NBYTES = (10**3, 10**4, 10**5, 10**6, 10**7)
"""Upper bounds of the classes of the chunk histogram; the last class is open."""


@dataclass(frozen=True, slots=True)
class Variable:
    """How a dataset lies."""

    name: str  # path inside the file
    shape: tuple[int, ...]  # elements for each dimension
    dtype: str  # kind of its values
    # elements for each dimension of a chunk; empty where it is not chunked
    chunk_shape: tuple[int, ...]
    n_chunks: int  # stored chunks, or 1 for all, and their bytes
    stored_nbytes: int
    nbytes: int  # bytes in memory
    filters: tuple[str, ...]  # names of its filters, in order
    missing_filters: tuple[str, ...]  # those that this machine does not have
    is_variable_length: bool  # whether its values lie in heaps, which are not in the chunks
    # names of other files that hold its values: external ones, or sources of a virtual dataset
    other_files: tuple[str, ...]
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
    strategy: str  # how file space is managed
    page_nbytes: int  # bytes of a page; 0 where file space is not paged
    # bytes that the library reads to list every object, attribute and chunk, each counted once;
    # and how many separate places they lie in
    metadata_nbytes: int
    n_metadata_spans: int
    metadata_end: int  # offset after the last of them
    # stored chunks in each class of `CHUNK_BOUNDS_NBYTES`, and their bytes
    chunk_counts: tuple[int, ...]
    chunk_nbytes: tuple[int, ...]
    variables: tuple[Variable, ...]  # every dataset
    is_ordered: bool = False  # whether its global attributes have an order
    # separate places of heaps read with the tree, of attributes of variable length; their bytes
    n_heap_spans: int = 0
    heap_nbytes: int = 0
    n_listed: int = 0  # objects and attributes
    has_virtual: bool = False  # whether a dataset is virtual, whose sources are named in a heap too

    @property
    def nbytes(self) -> int:
        """Bytes of all values in memory."""
        return sum(variable.nbytes for variable in self.variables)

    @property
    def is_sparse(self) -> bool:
        """Whether hardly anything of what is declared is stored."""
        return any(
            variable.nbytes > 100 * max(10**7, variable.n_chunks * variable.chunk_nbytes)
            for variable in self.variables
        )

    def variable(self, name: str) -> Variable:
        """Return a variable by its name."""
        return next(v for v in self.variables if v.name == name.strip("/"))


# deflate, shuffle, fletcher32, szip, nbit; LZF, Blosc, LZ4, Zstd, Blosc2
_LOSSLESS = {1, 2, 3, 4, 5, 32000, 32001, 32004, 32015, 32026}

_STRATEGIES = {
    h5py.h5f.FSPACE_STRATEGY_FSM_AGGR: "free-space managers and aggregators",
    h5py.h5f.FSPACE_STRATEGY_PAGE: "paged",
    h5py.h5f.FSPACE_STRATEGY_AGGR: "aggregators",
    h5py.h5f.FSPACE_STRATEGY_NONE: "none",
}


def inspect_file(file: BinaryIO, name: str) -> FileReport:
    """Read how an HDF5 file lies from its metadata alone."""
    with open_hdf5(file, name) as opened:
        is_ordered = opened["/"].id.get_create_plist().get_attr_creation_order() > 0
        strategy = _STRATEGIES[opened.id.get_create_plist().get_file_space_strategy()[0]]
        page_nbytes, userblock_nbytes = get_page_nbytes(opened), opened.userblock_size
        has_virtual = any(opened[v].is_virtual for v in list_datasets(opened))
        variables = [inspect_variable(find_dataset(opened, v, name)) for v in list_datasets(opened)]
        stored = [nbytes for v in variables for *_, nbytes in iterate_chunks(opened[v.name])]
    recording = record_reads(file, name, [variable.name for variable in variables])
    metadata = [(r.offset, r.offset + r.nbytes) for r in recording.reads if r.is_metadata]
    spans = merge_spans(metadata)
    opened_heaps = [r for r in recording.reads if r.is_heap and r.phase == "open"]
    heaps = merge_spans((r.offset, r.offset + r.nbytes) for r in opened_heaps)
    counts, nbytes = _count_chunks(stored)
    return FileReport(
        name,
        recording.file_nbytes,
        userblock_nbytes,
        strategy,
        page_nbytes,
        sum(stop - start for start, stop in spans),
        len(spans),
        spans[-1][1],
        counts,
        nbytes,
        tuple(variables),
        is_ordered,
        len(heaps),
        sum(stop - start for start, stop in heaps),
        recording.n_listed,
        has_virtual,
    )


def inspect_variable(dataset: h5py.Dataset) -> Variable:
    """Read how one dataset lies in its file."""
    stored = [nbytes for *_, nbytes in iterate_chunks(dataset)]
    filters = _list_filters(dataset)
    return Variable(
        dataset.name.strip("/"),
        dataset.shape or (),
        str(dataset.dtype),
        dataset.chunks or (),
        len(stored),
        sum(stored),
        math.prod(dataset.shape or (0,)) * dataset.dtype.itemsize,
        tuple(name for _, name in filters),
        tuple(f"{name} (number {n})" for n, name in filters if not h5py.h5z.filter_avail(n)),
        is_variable_length(dataset.dtype),
        (*list_external(dataset), *dict.fromkeys(file for file, _ in list_sources(dataset))),
        is_lossless(dataset.id.get_create_plist()),
        tuple(number for number, _ in filters),
        has_readable_heaps(dataset),
    )


def list_external(dataset: h5py.Dataset) -> list[str]:
    """Name the files, not of HDF5, in which a dataset has its values."""
    return [str(name) for name, *_ in dataset.external or ()]


def refuse_external(dataset: h5py.Dataset, name: str) -> None:
    """Refuse a dataset whose copy would name external files, for the library writes to those."""
    if external := list_external(dataset):
        raise UserError(
            f"file: {name}: {dataset.name!r} has its values in another file, {external[0]!r},"
            " which a copy would write to; allowed: a file that holds its values itself"
        )


def list_sources(dataset: h5py.Dataset) -> list[tuple[str, str]]:
    """Name the other files, and the datasets in them, of which a virtual dataset is made."""
    found = dataset.virtual_sources() if dataset.is_virtual else ()
    return [(source.file_name, source.dset_name) for source in found if source.file_name != "."]


def _list_filters(dataset: h5py.Dataset) -> list[tuple[int, str]]:
    plist = dataset.id.get_create_plist()
    found = [plist.get_filter(number) for number in range(plist.get_nfilters())]
    return [(number, text.decode(errors="replace") or "unnamed") for number, *_, text in found]


def is_lossless(plist: Any) -> bool:
    """Tell whether values can be encoded anew, without loss and with the options that are stored."""
    return all(plist.get_filter(number)[0] in _LOSSLESS for number in range(plist.get_nfilters()))


def merge_spans(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge ranges that touch or overlap.

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


def _count_chunks(stored: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    counts, sums = Counter[int](), Counter[int]()
    for nbytes in stored:
        place = sum(nbytes >= bound for bound in CHUNK_BOUNDS_NBYTES)
        counts[place] += 1
        sums[place] += nbytes
    places = range(len(CHUNK_BOUNDS_NBYTES) + 1)
    return tuple(counts[p] for p in places), tuple(sums[p] for p in places)
