"""Files of many steps, a stored chunk each, and virtual datasets of all of them: kerchunk Parquet and Icechunk."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import xarray as xr
from virtualizarr import open_virtual_mfdataset
from virtualizarr.parsers import HDFParser, KerchunkParquetParser

from helpers.arrays.readers import expected_warning, make_registry, put_folder
from helpers.arrays.stores import StoredArray
from studies.cluster_studies import tables
from wire.bed.locations import Location

N_STEPS = 300
"""Of time, in one of the files, each a stored chunk of its own."""
WHOLE_FILES = {"time": N_STEPS, "depth": -1, "y": -1, "x": -1}
"""Chunks of Dask: a file each."""

_REFERENCES, _REPOSITORY = "all.parquet", "icechunk"
_NO_SPECIFICATION = "Numcodecs codecs are not in the Zarr version 3"

write_long_files = partial(tables.write_files, n_steps=N_STEPS)


def write_virtual(location: Location, *arguments: Any, **options: Any) -> list[int]:
    """Write the files, and the places of the chunks of all of them as one dataset, twice."""
    import icechunk  # an extra that not everyone has

    sums = write_long_files(location, *arguments, **options)
    paths = sorted(location.fsspec().glob(f"{location.path}/*.nc"))
    with expected_warning(_NO_SPECIFICATION), tempfile.TemporaryDirectory() as folder:
        dataset = open_virtual_mfdataset(
            [f"s3://{path}" for path in paths],
            make_registry(location),
            parser=HDFParser(),
            combine="nested",
            concat_dim="time",
            data_vars="minimal",
            coords="minimal",
            compat="override",
            loadable_variables=[],
        )
        # xarray reads no missing value of a coordinate from these references, and needs none here
        virtual = dataset[[tables.FILES_VARIABLE]].drop_vars([*dataset.coords])
        virtual.vz.to_kerchunk(str(Path(folder) / _REFERENCES), format="parquet")
        put_folder(Path(folder), location)
        repository = icechunk.Repository.create(
            (location / _REPOSITORY).icechunk_storage(), **location.icechunk_virtual_chunks()
        )
        session = repository.writable_session("main")
        virtual.vz.to_icechunk(session.store)
        session.commit("the places of all chunks")
    return sums


def open_parquet(folder: Location, _stored: StoredArray) -> Any:
    """Open the dataset of kerchunk Parquet, a file in each task."""
    parse = KerchunkParquetParser(reader_options={"storage_options": folder.fsspec_options()})
    with expected_warning(_NO_SPECIFICATION):
        return _open(parse(f"{folder.url}/{_REFERENCES}", make_registry(folder)))


def open_icechunk(folder: Location, _stored: StoredArray) -> Any:
    """Open the dataset of Icechunk, a file in each task."""
    import icechunk  # an extra that not everyone has

    repository = icechunk.Repository.open(
        (folder / _REPOSITORY).icechunk_storage(), **folder.icechunk_virtual_chunks()
    )
    with expected_warning(_NO_SPECIFICATION):
        return _open(repository.readonly_session("main").store)


def _open(store: Any) -> Any:
    options: dict[str, Any] = {"mask_and_scale": False, "decode_times": False}
    options |= {"consolidated": False, "zarr_format": 3, "chunks": WHOLE_FILES}
    return xr.open_zarr(store, **options)[tables.FILES_VARIABLE].data
