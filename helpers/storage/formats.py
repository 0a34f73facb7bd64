"""Formats: how an array is written, and the ways in which it is read.

A *layout* is what lies in the store (a Zarr group, a netCDF file, references
to that file); a *reader* is a way to open it as a Dask array. Each is one
entry of a registry, so that a new contender is one function and one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import h5netcdf
import hdf5plugin
import numpy as np
import obstore
import virtualizarr
import xarray as xr
import zarr
from numpy.typing import NDArray
from obspec_utils.registry import ObjectStoreRegistry
from virtualizarr.parsers import HDFParser, KerchunkJSONParser
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.errors import ZarrUserWarning
from zarr.storage import ObjectStore, WrapperStore

from helpers.storage.data import FILL
from helpers.storage.locations import Location

DIMENSIONS = ("time", "depth", "y", "x")

Codec = Literal["none", "blosc-lz4", "blosc-zstd"]
CODECS: tuple[Codec, ...] = ("none", "blosc-lz4", "blosc-zstd")
"""Codecs that Zarr and HDF5 both read, so that contenders share them."""

Layout = Literal["zarr", "netcdf", "references"]

Block = tuple[slice, ...]
Blocks = Callable[[], Iterator[tuple[Block, NDArray[np.float32]]]]


def iterate_blocks(shape: tuple[int, ...], chunk_shape: tuple[int, ...]) -> Iterator[Block]:
    """Yield the slices of each chunk, the last dimension fastest.

    Examples
    --------
    >>> [block[0].start for block in iterate_blocks((5,), (2,))]
    [0, 2, 4]
    """
    starts = [range(0, n, c) for n, c in zip(shape, chunk_shape, strict=True)]
    for corner in itertools.product(*starts):
        yield tuple(
            slice(i, min(i + c, n)) for i, c, n in zip(corner, chunk_shape, shape, strict=True)
        )


def write_zarr(
    location: Location,
    blocks: Blocks,
    *,
    variable: str,
    shape: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    codec: Codec,
) -> None:
    """Write blocks as a Zarr v3 group with consolidated metadata, a chunk an object."""
    store = ObjectStore(location.obstore())
    group = zarr.create_group(store, overwrite=True, zarr_format=3)
    array = group.create_array(
        variable,
        shape=shape,
        chunks=chunk_shape,
        dtype="float32",
        compressors=_zarr_compressor(codec),
        fill_value=float(FILL),
        dimension_names=DIMENSIONS,
        config={"write_empty_chunks": True},
    )
    for block, values in blocks():
        array[block] = values
    with _expected_warning("Consolidated metadata is currently not part"):
        zarr.consolidate_metadata(store)


def _zarr_compressor(codec: Codec) -> Any:
    if codec == "none":
        return None
    return zarr.codecs.BloscCodec(
        cname=codec.removeprefix("blosc-"), clevel=5, shuffle="shuffle", typesize=4
    )


def write_netcdf(
    location: Location,
    blocks: Blocks,
    *,
    variable: str,
    shape: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    codec: Codec,
) -> None:
    """Write blocks as one netCDF-4 file and upload it in parts."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "array.nc"
        with h5netcdf.File(path, "w") as file:
            file.dimensions = dict(zip(DIMENSIONS, shape, strict=True))
            target = file.create_variable(
                variable,
                DIMENSIONS,
                "float32",
                chunks=chunk_shape,
                fillvalue=FILL,
                **({} if codec == "none" else hdf5plugin.Blosc(codec.removeprefix("blosc-"), 5, 1)),
            )
            for block, values in blocks():
                target[block] = values
        obstore.put(location.obstore(), "array.nc", path, chunk_size=16 * 2**20)


WRITERS = {"zarr": write_zarr, "netcdf": write_netcdf}
"""Layouts that are written block by block."""


def write_references(location: Location, netcdf: Location, *, variable: str) -> None:
    """Write kerchunk references to the netCDF file at `netcdf`."""
    with _expected_warning("Numcodecs codecs are not in the Zarr version 3"):
        dataset = virtualizarr.open_virtual_dataset(
            f"{netcdf.url}/array.nc",
            registry=_registry(netcdf),
            parser=HDFParser(),
            loadable_variables=[],
        )
    references = dataset[[variable]].vz.to_kerchunk(format="dict")
    text = json.dumps(references, default=bytes.decode)
    obstore.put(location.obstore(), "references.json", text.encode())


@contextlib.contextmanager
def _expected_warning(message: str) -> Iterator[None]:
    """Keep out of the notebooks what zarr says of a choice that the book makes and explains."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message, ZarrUserWarning)
        yield


def _registry(location: Location) -> ObjectStoreRegistry:
    bucket = dataclasses.replace(location, prefix="")
    return ObjectStoreRegistry({bucket.url: bucket.obstore()})


class LimitedStore(WrapperStore[ObjectStore]):
    """A store that keeps at most `n_connections` requests in flight.

    The limit covers the wire alone: chunks that have arrived are decoded
    while the next ones are fetched, where a thread that fetches and then
    decodes leaves its connection idle meanwhile.
    """

    def __init__(self, store: ObjectStore, *, n_connections: int) -> None:
        super().__init__(store)
        self._n_connections = n_connections
        self._slots = asyncio.Semaphore(n_connections)

    def __reduce__(self) -> tuple[Any, ...]:
        return _limit_store, (self._store, self._n_connections)

    def _with_store(self, store: ObjectStore) -> LimitedStore:
        return LimitedStore(store, n_connections=self._n_connections)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Get a value when a slot is free."""
        async with self._slots:
            return await self._store.get(key, prototype, byte_range)


def _limit_store(store: ObjectStore, n_connections: int) -> LimitedStore:
    return LimitedStore(store, n_connections=n_connections)


Chunks = Mapping[str, int]
"""Extent of a Dask block in elements, by dimension; empty for the stored chunks."""


def _open_zarr(store: Any, **options: Any) -> xr.Dataset:
    return xr.open_zarr(store, mask_and_scale=False, decode_times=False, **options)


def _open_with_fsspec(location: Location, chunks: Chunks, n_connections: int) -> xr.Dataset:
    return _open_zarr(location.url, storage_options=location.fsspec_options(), chunks=chunks)


def _open_with_obstore(location: Location, chunks: Chunks, n_connections: int) -> xr.Dataset:
    return _open_zarr(ObjectStore(location.obstore(), read_only=True), chunks=chunks)


def _open_limited(location: Location, chunks: Chunks, n_connections: int) -> xr.Dataset:
    store = ObjectStore(location.obstore(), read_only=True)
    return _open_zarr(LimitedStore(store, n_connections=n_connections), chunks=chunks)


_BLOCK_NBYTES = 5 * 2**20
"""Read-ahead of a file object: fsspec's default in 2020; s3fs now reads 50 MiB ahead of every jump."""


def _open_file_object(location: Location, chunks: Chunks, n_connections: int) -> xr.Dataset:
    file = location.fsspec().open(f"{location.path}/array.nc", block_size=_BLOCK_NBYTES)
    return xr.open_dataset(
        file, engine="h5netcdf", mask_and_scale=False, decode_times=False, chunks=chunks
    )


def _open_references(location: Location, chunks: Chunks, n_connections: int) -> xr.Dataset:
    with _expected_warning("Numcodecs codecs are not in the Zarr version 3"):
        store = KerchunkJSONParser()(f"{location.url}/references.json", _registry(location))
        return _open_zarr(store, consolidated=False, zarr_format=3, chunks=chunks)


@dataclass(frozen=True, slots=True)
class Reader:
    """A way to open a layout.

    Parameters
    ----------
    name : str
        Name in parameter files, records and figures.
    layout : {"zarr", "netcdf", "references"}
        What it reads.
    open : callable
        From a location, the extent of Dask blocks and a number of connections
        for each process to a dataset.
    description : str
        One line for readers of the book.
    is_batched : bool
        Whether one Dask task reads several stored chunks.
    zarr_config : mapping
        Settings of zarr in every process that reads.
    """

    name: str
    layout: Layout
    open: Callable[[Location, Chunks, int], xr.Dataset]
    description: str
    is_batched: bool = False
    zarr_config: Mapping[str, Any] = field(default_factory=dict)


_ZARRS = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}

READERS: Mapping[str, Reader] = {
    reader.name: reader
    for reader in (
        Reader("zarr-s3fs", "zarr", _open_with_fsspec, "Zarr v3 through s3fs at its defaults, a task a chunk: the way of 2020"),
        Reader("zarr-obstore", "zarr", _open_with_obstore, "Zarr v3 through obstore, a task a chunk"),
        Reader("zarr-obstore-batched", "zarr", _open_limited, "Zarr v3 through obstore, several chunks in flight in a task", True),
        Reader("zarr-zarrs", "zarr", _open_with_obstore, "Zarr v3 through obstore and the zarrs codec pipeline", False, _ZARRS),
        Reader("netcdf-fsspec", "netcdf", _open_file_object, "netCDF-4 through an s3fs file object that reads 5 MiB ahead: the way of 2020"),
        Reader("references", "references", _open_references, "kerchunk references to the netCDF-4 file, read by VirtualiZarr through obstore"),
    )
}
"""Every contender of the book, by name."""
