"""What the metadata of an HDF5 file say about how it lies."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import h5py

from helpers.errors import UserError
from helpers.storage.repairs.recording import (
    find_dataset,
    get_page_nbytes,
    iterate_chunks,
    record_reads,
)
from helpers.storage.repairs.sources import open_hdf5

CHUNK_BOUNDS_NBYTES = (10**3, 10**4, 10**5, 10**6, 10**7)
"""Upper bounds of the classes of the chunk histogram; the last class is open."""

_STRATEGIES = {
    h5py.h5f.FSPACE_STRATEGY_FSM_AGGR: "free-space managers and aggregators",
    h5py.h5f.FSPACE_STRATEGY_PAGE: "paged",
    h5py.h5f.FSPACE_STRATEGY_AGGR: "aggregators",
    h5py.h5f.FSPACE_STRATEGY_NONE: "none",
}


@dataclass(frozen=True, slots=True)
class Variable:
    """How a dataset lies.

    Parameters
    ----------
    name : str
        Path inside the file.
    shape : tuple of int
        Elements for each dimension.
    dtype : str
        Kind of its values.
    chunk_shape : tuple of int
        Elements for each dimension of a chunk; empty where it is not chunked.
    n_chunks, stored_nbytes : int
        Stored chunks, or 1 for all, and their bytes.
    nbytes : int
        Bytes in memory.
    filters : tuple of str
        Names of its filters, in order.
    missing_filters : tuple of str
        Those that this machine does not have.
    is_variable_length : bool
        Whether its values lie in heaps, which are not in the chunks.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    chunk_shape: tuple[int, ...]
    n_chunks: int
    stored_nbytes: int
    nbytes: int
    filters: tuple[str, ...]
    missing_filters: tuple[str, ...]
    is_variable_length: bool

    def check_filters(self) -> None:
        """Refuse a variable that cannot be decoded here.

        Raises
        ------
        UserError
            If a filter is missing; encryption comes as a filter too.
        """
        if self.missing_filters:
            raise UserError(
                f"variable: {self.name!r} needs the filter {', '.join(self.missing_filters)}, which"
                " is not here; allowed: a variable whose filters are (HDF5_PLUGIN_PATH says where"
                " plugins lie; an encrypted variable needs its owner's)"
            )


@dataclass(frozen=True, slots=True)
class FileReport:
    """How an HDF5 file lies.

    Parameters
    ----------
    name : str
        Path or address.
    file_nbytes, userblock_nbytes : int
        Bytes of the file, and of the block before its beginning.
    strategy : str
        How file space is managed.
    page_nbytes : int
        Bytes of a page; 0 where file space is not paged.
    metadata_nbytes, n_metadata_spans : int
        Bytes that the library reads to list every object, attribute and
        chunk, each counted once; and how many separate places they lie in.
    metadata_end : int
        Offset after the last of them.
    chunk_counts, chunk_nbytes : tuple of int
        Stored chunks in each class of `CHUNK_BOUNDS_NBYTES`, and their bytes.
    variables : tuple of Variable
        Every dataset.
    """

    name: str
    file_nbytes: int
    userblock_nbytes: int
    strategy: str
    page_nbytes: int
    metadata_nbytes: int
    n_metadata_spans: int
    metadata_end: int
    chunk_counts: tuple[int, ...]
    chunk_nbytes: tuple[int, ...]
    variables: tuple[Variable, ...]

    def variable(self, name: str) -> Variable:
        """Return a variable by its name.

        Parameters
        ----------
        name : str
            Path inside the file, with or without a slash before it.

        Returns
        -------
        Variable
            How it lies.
        """
        return next(v for v in self.variables if v.name == name.strip("/"))


def inspect_file(file: BinaryIO, name: str) -> FileReport:
    """Read how an HDF5 file lies from its metadata alone.

    Parameters
    ----------
    file : file object
        Open HDF5 file.
    name : str
        How messages call it.

    Returns
    -------
    FileReport
        Strategy, pages, chunks, filters, and where metadata lie.

    Raises
    ------
    UserError
        If it is truncated or damaged.
    """
    with open_hdf5(file, name) as opened:
        strategy = _STRATEGIES[opened.id.get_create_plist().get_file_space_strategy()[0]]
        page_nbytes, userblock_nbytes = get_page_nbytes(opened), opened.userblock_size
        variables = [
            _inspect_variable(find_dataset(opened, v, name)) for v in list_datasets(opened)
        ]
        stored = [nbytes for v in variables for *_, nbytes in iterate_chunks(opened[v.name])]
    recording = record_reads(file, name, [variable.name for variable in variables])
    metadata = [(r.offset, r.offset + r.nbytes) for r in recording.reads if r.is_metadata]
    spans = merge_spans(metadata)
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
    )


def list_datasets(file: h5py.File) -> list[str]:
    """Return the paths of every dataset, each once.

    Parameters
    ----------
    file : h5py.File
        Open file.

    Returns
    -------
    list of str
        Paths inside the file.
    """
    names: list[str] = []
    file.visititems(lambda key, item: names.append(key) if isinstance(item, h5py.Dataset) else None)
    return names


def _inspect_variable(dataset: h5py.Dataset) -> Variable:
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
    )


def _list_filters(dataset: h5py.Dataset) -> list[tuple[int, str]]:
    plist = dataset.id.get_create_plist()
    found = [plist.get_filter(number) for number in range(plist.get_nfilters())]
    return [(number, text.decode(errors="replace") or "unnamed") for number, *_, text in found]


def is_variable_length(dtype: Any) -> bool:
    """Tell whether values of a type, or parts of them, lie in heaps.

    Parameters
    ----------
    dtype : numpy dtype
        As h5py gives it.

    Returns
    -------
    bool
        True for strings and sequences of variable length.
    """
    if dtype.subdtype is not None:
        return is_variable_length(dtype.subdtype[0])
    if dtype.fields:
        return any(is_variable_length(field[0]) for field in dtype.fields.values())
    return h5py.check_vlen_dtype(dtype) is not None or (
        (info := h5py.check_string_dtype(dtype)) is not None and info.length is None
    )


def merge_spans(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge ranges that touch or overlap.

    Parameters
    ----------
    spans : iterable of (int, int)
        Half-open ranges.

    Returns
    -------
    list of (int, int)
        Sorted, apart from one another.

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
