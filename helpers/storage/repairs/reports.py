"""What is said of an HDF5 file, and of each of its variables."""

from __future__ import annotations

from dataclasses import dataclass

from helpers.errors import UserError

CHUNK_BOUNDS_NBYTES = (10**3, 10**4, 10**5, 10**6, 10**7)
"""Upper bounds of the classes of the chunk histogram; the last class is open."""


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
    other_files : tuple of str
        Names of other files that hold its values: external ones, or sources
        of a virtual dataset.
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
    other_files: tuple[str, ...]

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
