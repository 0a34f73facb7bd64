"""Kerchunk references as Parquet, and Icechunk, with chunks of its own or those of the netCDF-4 file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import xarray as xr
from virtualizarr.parsers import KerchunkParquetParser

from helpers.arrays.readers import (
    create_zarr,
    expected_warning,
    make_registry,
    open_virtual,
    put_folder,
)
from helpers.arrays.stores import StoredArray
from studies.formats.source import Read, SourceArray
from wire.bed.locations import Location

_NAME = "references.parq"
_NO_SPECIFICATION = "Numcodecs codecs are not in the Zarr version 3"


def write_references(folder: Location, source: SourceArray) -> None:
    """Write kerchunk references as a folder of Parquet."""
    with tempfile.TemporaryDirectory() as temporary:
        virtual = open_virtual(source.netcdf, source.variable)
        virtual.vz.to_kerchunk(str(Path(temporary) / _NAME), format="parquet")
        put_folder(Path(temporary), folder)


def open_references(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Open such a folder through VirtualiZarr, which reads all of it, and obstore."""
    parse = KerchunkParquetParser(reader_options={"storage_options": folder.fsspec_options()})
    with expected_warning(_NO_SPECIFICATION):
        return _read(parse(f"{folder.url}/{_NAME}", make_registry(folder)), stored.variable)


def write_icechunk(folder: Location, source: SourceArray, *, is_virtual: bool = False) -> None:
    """Commit the chunks to an Icechunk repository, or, if it holds no value itself, their places."""
    repository = _repository("create", folder, is_virtual)
    session = repository.writable_session("main")
    if is_virtual:
        with expected_warning(_NO_SPECIFICATION):
            open_virtual(source.netcdf, source.variable).vz.to_icechunk(session.store)
    else:
        create_zarr(session.store, **source.array())[...] = source.values
    session.commit("the array")


def open_icechunk(
    folder: Location, stored: StoredArray, n_requests: int, *, is_virtual: bool = False
) -> Read:
    """Open such a repository; virtual chunks come from where the bucket is reached now."""
    session = _repository("open", folder, is_virtual).readonly_session("main")
    with expected_warning(_NO_SPECIFICATION):
        return _read(session.store, stored.variable)


def _repository(action: str, folder: Location, is_virtual: bool) -> Any:
    import icechunk  # an extra that not everyone has

    more = folder.icechunk_virtual_chunks() if is_virtual else {}
    return getattr(icechunk.Repository, action)(folder.icechunk_storage(), **more)


def _read(store: Any, variable: str) -> Read:
    dataset = xr.open_zarr(
        store,
        mask_and_scale=False,
        decode_times=False,
        consolidated=False,
        zarr_format=3,
        chunks=None,
    )
    return lambda box: dataset[variable][box].to_numpy()
