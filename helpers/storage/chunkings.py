"""One array in many chunk shapes: written once, read box by box.

The same values lie in an HDF5 file on local disk, or as Zarr in an object
store, plain or sharded; what differs is which elements lie together.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.storage import ObjectStore

from helpers.errors import UserError
from helpers.storage.boxes import Box
from helpers.storage.data import FILL, SampleArray
from helpers.storage.layout import Shape
from helpers.storage.locations import Location

Medium = Literal["hdf5", "zarr", "sharded"]

_BLOCK_TIMES = 512  # of the sample made at a time


@dataclass(frozen=True, slots=True)
class Chunking:
    """How the elements of an array lie together.

    Parameters
    ----------
    name : str
        Name on the page.
    chunk_shape : tuple of int or None
        Elements for each dimension (time, y, x); None for contiguous storage.
    axes : tuple of int
        Order of the dimensions in a file without chunks, the fastest last.
    """

    name: str
    chunk_shape: Shape | None
    axes: Shape = (0, 1, 2)


def make_values(sample: SampleArray) -> NDArray[np.float32]:
    """Make the sample, a level deep, as one array (time, y, x) in memory.

    Parameters
    ----------
    sample : SampleArray
        Of shape (time, 1, y, x).

    Returns
    -------
    ndarray of float32
        Land is fill.
    """
    n, _, *plane = sample.shape
    parts = [
        sample.block((t, 0, 0, 0), (min(t + _BLOCK_TIMES, n), 1, *plane))
        for t in range(0, n, _BLOCK_TIMES)
    ]
    return np.concatenate(parts)[:, 0]


def write_hdf5(path: Path, values: NDArray[np.float32], chunking: Chunking) -> int:
    """Write values to an HDF5 file, unless it is there; chunks with shuffle and deflate.

    Without a filter the library reads parts of chunks, and a chunk would not
    be what is read.

    Parameters
    ----------
    path : Path
        File to make.
    values : ndarray of float32
        (time, y, x).
    chunking : Chunking
        How they lie.

    Returns
    -------
    int
        Bytes of the file.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".part")
        stored = values.transpose(chunking.axes)
        with h5py.File(draft, "w", libver="latest") as file:
            file.create_dataset("t", data=stored, chunks=chunking.chunk_shape, **_filters(chunking))
        with draft.open("rb") as written:  # clean pages alone can be dropped
            os.fsync(written.fileno())
        draft.rename(path)
    return path.stat().st_size


def _filters(chunking: Chunking) -> dict[str, Any]:
    if chunking.chunk_shape is None:
        return {}
    return {"compression": "gzip", "compression_opts": 1, "shuffle": True}


def write_zarr(
    location: Location,
    values: NDArray[np.float32],
    chunking: Chunking,
    *,
    shard_shape: Shape | None = None,
) -> None:
    """Write values as a Zarr v3 array without compression, unless it is there.

    Parameters
    ----------
    location : Location
        Folder of the array.
    values : ndarray of float32
        (time, y, x).
    chunking : Chunking
        How they lie; contiguous storage has no objects and is refused.
    shard_shape : tuple of int, optional
        Elements of an object that holds several chunks.

    Raises
    ------
    UserError
        If the chunking is contiguous.
    """
    if chunking.chunk_shape is None:
        raise UserError(f"chunk_shape: none of {chunking.name}; allowed: a shape, in Zarr")
    store = ObjectStore(location.obstore())
    try:
        found = zarr.open_array(store, mode="r")
        if found.attrs.get("is_whole"):
            return
    except FileNotFoundError:
        pass
    array = zarr.create_array(
        store,
        shape=values.shape,
        chunks=chunking.chunk_shape,
        shards=shard_shape,
        dtype="float32",
        compressors=None,
        fill_value=float(FILL),
        config={"write_empty_chunks": True},
        overwrite=True,
    )
    array[...] = values
    array.attrs["is_whole"] = True


def drop_pages(path: Path) -> None:
    """Ask the kernel to forget the pages of a file.

    It reaches the page cache of this kernel alone: a hypervisor's cache and
    the disk's own keep what they have.

    Parameters
    ----------
    path : Path
        File that nobody is writing.
    """
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def open_hdf5(path: Path, *, cache_nbytes: int = 0) -> Any:
    """Open the variable of a file, by default without HDF5's cache of chunks.

    Where an array has fewer chunks than boxes are read, a chunk comes again.

    Parameters
    ----------
    path : Path
        As `write_hdf5` made it.
    cache_nbytes : int
        Bytes of decoded chunks that the library keeps (``rdcc_nbytes``).

    Returns
    -------
    h5py.Dataset
        Not read yet.
    """
    return h5py.File(path, "r", rdcc_nbytes=cache_nbytes, rdcc_nslots=10007)["t"]


def open_zarr(location: Location) -> Any:
    """Open a Zarr array with a new client.

    Parameters
    ----------
    location : Location
        Folder of the array.

    Returns
    -------
    zarr.Array
        Not read yet.
    """
    return zarr.open_array(ObjectStore(location.obstore(), read_only=True), mode="r")


def read_box(array: Any, box: Box, *, axes: Shape = (0, 1, 2)) -> NDArray[np.float32]:
    """Read a box of elements.

    Parameters
    ----------
    array : h5py.Dataset or zarr.Array
        Opened.
    box : tuple of slice
        Of (time, y, x).
    axes : tuple of int
        Order in which the dimensions lie.

    Returns
    -------
    ndarray of float32
        Of (time, y, x).
    """
    stored = np.asarray(array[tuple(box[i] for i in axes)])
    return stored.transpose(np.argsort(axes))
