"""Where the chunks of an HDF5 file lie, by the file's own index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """Where the chunks of a file lie, and how many bytes each has there.

    Parameters
    ----------
    starts, nbytes : ndarray of int
        Address and stored bytes, of the shape of the grid of chunks.
    """

    starts: NDArray[np.int64]
    nbytes: NDArray[np.int64]


def read_index(path: Path) -> ChunkIndex | None:
    """Read the index of the chunks of a file.

    Parameters
    ----------
    path : Path
        As `helpers.storage.chunkings.prepare_hdf5` made it.

    Returns
    -------
    ChunkIndex or None
        None of a file without chunks.
    """
    with h5py.File(path, "r") as file:
        array = file["t"]
        if array.chunks is None:
            return None
        grid = tuple(-(-n // c) for n, c in zip(array.shape, array.chunks, strict=True))
        index = ChunkIndex(np.zeros(grid, np.int64), np.zeros(grid, np.int64))

        def note(chunk: Any) -> None:
            at = tuple(i // c for i, c in zip(chunk.chunk_offset, array.chunks, strict=True))
            index.starts[at], index.nbytes[at] = chunk.byte_offset, chunk.size

        array.id.chunk_iter(note)
    return index
