"""One array in many chunk shapes: written once, read box by box.

The same values lie in an HDF5 file on local disk, or as Zarr in an object
store, plain or sharded; what differs is which elements lie together.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import xxhash
import zarr
from numpy.typing import NDArray
from zarr.storage import ObjectStore

from helpers.errors import UserError
from helpers.storage import data, prepared
from helpers.storage.boxes import Box
from helpers.storage.data import FILL, SampleArray
from helpers.storage.layout import Shape
from helpers.storage.locations import Location

Medium = Literal["hdf5", "zarr", "sharded"]

_GENERATION = 1  # raise it when the same arguments make other bytes
_BLOCK_TIMES = 512  # of the sample made at a time
_LIBVER = "latest"
_ZARR: dict[str, Any] = {
    "zarr_format": 3,
    "compressors": None,
    "fill_value": float(FILL),
    "config": {"write_empty_chunks": True},
}


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


def prepare_values(folder: Path, sample: SampleArray) -> NDArray[np.float32]:
    """Make a sample as `make_values` does, or load it if the same was made before.

    Parameters
    ----------
    folder : Path
        Where values are kept; these get a folder of their own below.
    sample : SampleArray
        Of shape (time, 1, y, x).

    Returns
    -------
    ndarray of float32
        (time, y, x).
    """
    n, _, *plane = sample.shape
    # a plane tells another generator from this one, whatever library it is that differs
    last = sample.block((n - 1, 0, 0, 0), (n, 1, *plane))
    made_by = {
        "generation": _GENERATION,
        "source": hashlib.sha256(sample.source.read_bytes()).hexdigest(),
        "generator": hashlib.sha256(Path(data.__file__).read_bytes()).hexdigest(),
        "variable": sample.variable,
        "shape": sample.shape,
        "seed": sample.seed,
        "last": _hash_values(last),
        "versions": prepared.versions_of("numpy", "scipy"),
    }

    def write(draft: Path) -> dict[str, Any]:
        np.save(draft / "values.npy", make_values(sample))
        return {}

    place = folder / f"values-{prepared.name_of(made_by)}"
    prepared.prepare(place, made_by, write)
    return np.asarray(np.load(place / "values.npy"), np.float32)


def _hash_values(values: NDArray[np.float32]) -> str:
    return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(values).data)


def prepare_hdf5(folder: Path, values: NDArray[np.float32], chunking: Chunking) -> Path:
    """Write values to an HDF5 file, unless the same is there; chunks with shuffle and deflate.

    Without a filter the library reads parts of chunks, and a chunk would not
    be what is read.

    Parameters
    ----------
    folder : Path
        Where files are kept; this one gets a folder of its own below.
    values : ndarray of float32
        (time, y, x).
    chunking : Chunking
        How they lie.

    Returns
    -------
    Path
        The file.
    """
    how = {"chunks": chunking.chunk_shape, **_filters(chunking)}
    made_by = {
        "generation": _GENERATION,
        "values": _hash_values(values),
        "shape": values.shape,
        "axes": chunking.axes,
        "format": {"libver": _LIBVER, **how},
        "versions": {**prepared.versions_of("h5py"), "hdf5": h5py.version.hdf5_version},
    }

    def write(draft: Path) -> dict[str, Any]:
        with h5py.File(draft / "array.h5", "w", libver=_LIBVER) as file:
            file.create_dataset("t", data=values.transpose(chunking.axes), **how)
        return {}

    place = folder / f"hdf5-{prepared.name_of(made_by)}"
    prepared.prepare(place, made_by, write)
    return place / "array.h5"


def _filters(chunking: Chunking) -> dict[str, Any]:
    if chunking.chunk_shape is None:
        return {}
    return {"compression": "gzip", "compression_opts": 1, "shuffle": True}


def prepare_zarr(
    location: Location,
    values: NDArray[np.float32],
    chunking: Chunking,
    *,
    shard_shape: Shape | None = None,
) -> str:
    """Write values as a Zarr v3 array without compression, unless the same is there.

    Parameters
    ----------
    location : Location
        Where arrays are kept; this one gets a prefix of its own below.
    values : ndarray of float32
        (time, y, x).
    chunking : Chunking
        How they lie; contiguous storage has no objects and is refused.
    shard_shape : tuple of int, optional
        Elements of an object that holds several chunks.

    Returns
    -------
    str
        Prefix of the array below `location`.

    Raises
    ------
    UserError
        If the chunking is contiguous.
    """
    if chunking.chunk_shape is None:
        raise UserError(f"chunk_shape: none of {chunking.name}; allowed: a shape, in Zarr")
    how = {"chunks": chunking.chunk_shape, "shards": shard_shape, **_ZARR}
    made_by = {
        "generation": _GENERATION,
        "values": _hash_values(values),
        "shape": values.shape,
        "format": how,
        "versions": prepared.versions_of("zarr", "numcodecs"),
    }

    def write(place: Location) -> dict[str, Any]:
        store = ObjectStore((place / "array").obstore())
        array = zarr.create_array(store, shape=values.shape, dtype="float32", **how)
        array[...] = values
        return {}

    name = f"chunkings-{prepared.name_of(made_by)}"
    prepared.prepare(location / name, made_by, write, name="array", under=["array/"])
    return f"{name}/array"


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
        As `prepare_hdf5` made it.
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
