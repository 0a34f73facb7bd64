"""References to the chunks of the netCDF-4 file: as Parquet, and as virtual chunks in Icechunk."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from virtualizarr.parsers import KerchunkParquetParser

from helpers.arrays.stores import StoredArray
from helpers.arrays.writers import expected_warning, make_registry, open_virtual, put_folder
from helpers.objectstore.locations import Location
from studies.formats.source import Read, Source

_NAME = "references.parq"
_NO_SPECIFICATION = "Numcodecs codecs are not in the Zarr version 3"


def write_references(folder: Location, source: Source) -> None:
    """Write kerchunk references as a folder of Parquet."""
    with tempfile.TemporaryDirectory() as made:
        virtual = open_virtual(source.netcdf, source.variable)
        virtual.vz.to_kerchunk(str(Path(made) / _NAME), format="parquet")
        put_folder(Path(made), folder)


def open_references(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Open such a folder through VirtualiZarr, which reads all of it, and obstore."""
    parse = KerchunkParquetParser(reader_options={"storage_options": folder.fsspec_options()})
    with expected_warning(_NO_SPECIFICATION):
        return _read(parse(f"{folder.url}/{_NAME}", make_registry(folder)), stored.variable)


def write_icechunk(folder: Location, source: Source) -> None:
    """Commit the places of the chunks to an Icechunk repository, which holds no value itself."""
    import icechunk  # an extra that not everyone has

    how = folder.icechunk_virtual_chunks()
    repository = icechunk.Repository.create(folder.icechunk_storage(), **how)
    session = repository.writable_session("main")
    with expected_warning(_NO_SPECIFICATION):
        open_virtual(source.netcdf, source.variable).vz.to_icechunk(session.store)
    session.commit("where the chunks of the file are")


def open_icechunk(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Open such a repository; the chunks come from where the bucket is reached now."""
    import icechunk  # an extra that not everyone has

    how = folder.icechunk_virtual_chunks()
    session = icechunk.Repository.open(folder.icechunk_storage(), **how).readonly_session("main")
    with expected_warning(_NO_SPECIFICATION):
        return _read(session.store, stored.variable)


def _read(store: Any, variable: str) -> Read:
    how: dict[str, Any] = {"consolidated": False, "zarr_format": 3, "chunks": None}
    dataset = xr.open_zarr(store, mask_and_scale=False, decode_times=False, **how)
    return lambda box: np.asarray(dataset[variable][box].to_numpy(), np.float32)
