"""What an HDF5 file says of itself, and what is said of each of its variables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import BinaryIO

import h5py

from advisors.hdf5.files import (
    check_links,
    find_dataset,
    get_filters,
    get_page_nbytes,
    has_readable_heaps,
    is_variable_length,
    iterate_chunks,
    list_datasets,
    open_hdf5,
)
from advisors.hdf5.recording import Recording, record_reads
from helpers.errors import UserError


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

    def variable(self, name: str) -> Variable:
        """Return a variable by its name."""
        return next(v for v in self.variables if v.name == name.strip("/"))


# deflate, shuffle, fletcher32, szip, nbit; LZF, Blosc, LZ4, Zstd, Blosc2
_LOSSLESS = {1, 2, 3, 4, 5, 32000, 32001, 32004, 32015, 32026}


def inspect_file(file: BinaryIO, name: str) -> tuple[FileReport, Recording]:
    """Read how an HDF5 file lies from its metadata alone, and what reading all of it asks for."""
    with open_hdf5(file, name) as opened:
        check_links(opened, name)
        page_nbytes, userblock_nbytes = get_page_nbytes(opened), opened.userblock_size
        names = list_datasets(opened)
        variables = tuple(inspect_variable(find_dataset(opened, v, name)) for v in names)
    recording = record_reads(file, name, names)
    metadata = recording.metadata
    report = FileReport(
        name,
        recording.file_nbytes,
        userblock_nbytes,
        page_nbytes,
        sum(stop - start for start, stop in metadata),
        len(metadata),
        recording.n_listed,
        variables,
    )
    return report, recording


def inspect_variable(dataset: h5py.Dataset) -> Variable:
    """Read how one dataset lies in its file."""
    stored = [nbytes for *_, nbytes in iterate_chunks(dataset)]
    filters = [
        (number, text.decode(errors="replace") or "unnamed")
        for number, *_, text in get_filters(dataset)
    ]
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
