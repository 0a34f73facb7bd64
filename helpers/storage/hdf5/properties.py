"""What an HDF5 file says of itself: how its space is managed, and how its arrays are cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import h5py

from helpers.errors import UserError

Strategy = Literal["fsm", "page", "aggregate", "none"]
_STRATEGIES: Mapping[int, Strategy] = {
    h5py.h5f.FSPACE_STRATEGY_FSM_AGGR: "fsm",
    h5py.h5f.FSPACE_STRATEGY_PAGE: "page",
    h5py.h5f.FSPACE_STRATEGY_AGGR: "aggregate",
    h5py.h5f.FSPACE_STRATEGY_NONE: "none",
}


@dataclass(frozen=True, slots=True)
class FileProperties:
    """The creation properties of a file and of its arrays.

    Parameters
    ----------
    strategy : {"fsm", "page", "aggregate", "none"}
        How the file's space is managed; ``"page"`` is a paged file.
    page_nbytes : int
        Bytes of a page; 0 where the file is not paged.
    file_nbytes : int
        Bytes of the file.
    chunk_shapes : mapping of str to tuple of int
        Elements of a chunk, for each chunked variable by its path.
    stored_nbytes : mapping of str to int
        Bytes that each variable takes in the file, without metadata.
    """

    strategy: Strategy
    page_nbytes: int
    file_nbytes: int
    chunk_shapes: Mapping[str, tuple[int, ...]]
    stored_nbytes: Mapping[str, int]

    @property
    def metadata_nbytes(self) -> int:
        """Bytes of the file that are no data: headers, indices, attributes and gaps."""
        return self.file_nbytes - sum(self.stored_nbytes.values())


def read_properties(file: h5py.File) -> FileProperties:
    """Read the properties of an open file from the file itself, never from its name.

    Parameters
    ----------
    file : h5py.File
        Open for reading, by any driver.

    Returns
    -------
    FileProperties
        Of the file and of each variable.
    """
    plist = file.id.get_create_plist()
    strategy = _STRATEGIES[plist.get_file_space_strategy()[0]]
    variables = dict(iterate_variables(file))
    return FileProperties(
        strategy,
        int(plist.get_file_space_page_size()) if strategy == "page" else 0,
        int(file.id.get_filesize()),
        {name: tuple(each.chunks) for name, each in variables.items() if each.chunks},
        {name: int(each.id.get_storage_size()) for name, each in variables.items()},
    )


def iterate_variables(group: h5py.Group, path: str = "") -> Iterator[tuple[str, h5py.Dataset]]:
    """Yield each variable of a group and of the groups below, in the order of names.

    Parameters
    ----------
    group : h5py.Group
        Where to begin.
    path : str
        Put before each name.

    Yields
    ------
    tuple of str and h5py.Dataset
        Path without a leading slash, and the variable.
    """
    for name in sorted(group):
        item = group[name]
        if isinstance(item, h5py.Group):
            yield from iterate_variables(item, f"{path}{name}/")
        elif isinstance(item, h5py.Dataset):
            yield f"{path}{name}", item


def check_page_buffer(page_nbytes: int, page_buffer_nbytes: int, what: str) -> None:
    """Refuse a page buffer that does not hold one page, as HDF5 would when it opens the file.

    Parameters
    ----------
    page_nbytes : int
        Bytes of a page of the file; 0 where it is not paged.
    page_buffer_nbytes : int
        Bytes of the page buffer; 0 for none.
    what : str
        The file, for the message.

    Raises
    ------
    UserError
        If the buffer is smaller than a page.

    Examples
    --------
    >>> check_page_buffer(4 * 2**20, 16 * 2**20, "granule.h5")
    """
    if 0 < page_buffer_nbytes < page_nbytes:
        raise UserError(
            f"page_buf_size: {page_buffer_nbytes} for {what};"
            f" allowed: 0, or at least a page of that file, {page_nbytes}"
        )
