"""What the metadata of an HDF5 file say about how it lies."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import h5py

from helpers.errors import UserError
from helpers.storage.repairs.chunks import iterate_chunks
from helpers.storage.repairs.recording import find_dataset, get_page_nbytes, record_reads
from helpers.storage.repairs.reports import CHUNK_BOUNDS_NBYTES, FileReport, Variable
from helpers.storage.repairs.sources import open_hdf5

_STRATEGIES = {
    h5py.h5f.FSPACE_STRATEGY_FSM_AGGR: "free-space managers and aggregators",
    h5py.h5f.FSPACE_STRATEGY_PAGE: "paged",
    h5py.h5f.FSPACE_STRATEGY_AGGR: "aggregators",
    h5py.h5f.FSPACE_STRATEGY_NONE: "none",
}


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
        (*list_external(dataset), *dict.fromkeys(file for file, _ in list_sources(dataset))),
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
