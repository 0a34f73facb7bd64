"""Opening maps, as a tile service does."""

from __future__ import annotations

import warnings
from typing import Any

import hdf5plugin  # noqa: F401  # teaches h5py to read Blosc
import ujson
import xarray as xr
from virtualizarr.manifests import ManifestStore
from virtualizarr.parsers.kerchunk.translator import manifestgroup_from_kerchunk_refs

from helpers.storage.caches.origins import Origin
from helpers.storage.layouts import expected_warning
from helpers.storage.maps.specs import MapSpec


def open_map(spec: MapSpec, origin: Origin) -> xr.Dataset:
    """Open a map, with the options of titiler.xarray's own openers and no others.

    Parameters
    ----------
    spec : MapSpec
        What to open.
    origin : Origin
        What to read it from.

    Returns
    -------
    Dataset
        Coordinates in memory, values not read.
    """
    folder = (origin.location / spec.name).prefix
    options: dict[str, Any] = {"decode_coords": "all", "decode_times": True}
    if spec.kind in ("netcdf", "broken"):
        file: Any = origin.open_file(f"{folder}/map.nc")
        return xr.open_dataset(file, engine="h5netcdf", **options)
    if spec.kind == "references":
        references = ujson.loads(origin.read_object(f"{folder}/references.json"))
        with expected_warning("Numcodecs codecs are not in the Zarr version 3"):
            group = manifestgroup_from_kerchunk_refs(references)
            virtual: Any = ManifestStore(group=group, registry=origin.registry())
            return xr.open_dataset(virtual, engine="zarr", consolidated=False, **options)
    store: Any = origin.zarr_store(spec.name)
    with warnings.catch_warnings():  # xarray says that a map without consolidated metadata is one
        warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated")
        return xr.open_dataset(store, engine="zarr", **options)
