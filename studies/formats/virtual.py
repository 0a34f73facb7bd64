"""References to the chunks of the netCDF-4 file: as Parquet, and as virtual chunks in Icechunk."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from virtualizarr.parsers import KerchunkParquetParser

from helpers.arrays.writers import expected_warning, make_registry, open_virtual, put_folder
from helpers.objectstore.locations import Location

_NAME = "references.parq"
_NO_SPECIFICATION = "Numcodecs codecs are not in the Zarr version 3"


def write_parquet(folder: Location, netcdf: Location, variable: str) -> None:
    """Write kerchunk references as a folder of Parquet."""
    with tempfile.TemporaryDirectory() as made:
        root = Path(made) / _NAME
        open_virtual(netcdf, variable).vz.to_kerchunk(str(root), format="parquet")
        put_folder(Path(made), folder)


def open_parquet(folder: Location) -> xr.Dataset:
    """Open such a folder through VirtualiZarr, which reads all of it, and obstore."""
    parse = KerchunkParquetParser(reader_options={"storage_options": folder.fsspec_options()})
    with expected_warning(_NO_SPECIFICATION):
        store = parse(f"{folder.url}/{_NAME}", make_registry(folder))
        return _open_zarr(store)


def write_icechunk(folder: Location, netcdf: Location, variable: str) -> None:
    """Commit the places of the chunks to an Icechunk repository, which holds no value itself."""
    import icechunk  # an extra that not everyone has

    session = icechunk.Repository.create(
        folder.icechunk_storage(), **folder.icechunk_virtual_chunks()
    ).writable_session("main")
    with expected_warning(_NO_SPECIFICATION):
        open_virtual(netcdf, variable).vz.to_icechunk(session.store)
    session.commit("where the chunks of the file are")


def open_icechunk(folder: Location) -> xr.Dataset:
    """Open such a repository; the chunks come from where the bucket is reached now."""
    import icechunk  # an extra that not everyone has

    session = icechunk.Repository.open(
        folder.icechunk_storage(), **folder.icechunk_virtual_chunks()
    ).readonly_session("main")
    with expected_warning(_NO_SPECIFICATION):
        return _open_zarr(session.store)


def _open_zarr(store: Any) -> xr.Dataset:
    how: dict[str, Any] = {"consolidated": False, "zarr_format": 3, "chunks": None}
    dataset: xr.Dataset = xr.open_zarr(store, mask_and_scale=False, decode_times=False, **how)
    return dataset


def values_of(dataset: xr.Dataset, variable: str, box: tuple[slice, ...]) -> NDArray[np.float32]:
    """Read a part of a variable into memory."""
    return np.asarray(dataset[variable][box].to_numpy(), np.float32)
