"""Making and storing maps."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hdf5plugin  # noqa: F401  # teaches h5py to read Blosc
import numpy as np
import obstore
import virtualizarr
import xarray as xr
import zarr
from virtualizarr.parsers import HDFParser
from zarr.storage import ObjectStore

from helpers.errors import UserError
from helpers.paths import ROOT
from helpers.storage import prepared
from helpers.storage.data import FILL, SampleArray
from helpers.storage.layouts import expected_warning, make_registry
from helpers.storage.locations import Location
from helpers.storage.maps.specs import VARIABLE, MapKind, Maps, MapSpec

_SOURCE = ROOT / "data" / "ocean-temperature.nc"
_WEST_OF_SOURCE = 160.5 / 360  # share of the source's columns that lie west of the date line
_GENERATION = 2  # raise it when the same arguments make other bytes


def make_dataset(spec: MapSpec, *, seed: int) -> xr.Dataset:
    """Make the values and coordinates of a map.

    Real sea surface temperature, enlarged; land is missing. The field is
    turned so that it begins at the date line, to within a cell.

    Parameters
    ----------
    spec : MapSpec
        What to make.
    seed : int
        Seed of the small-scale variability.

    Returns
    -------
    Dataset
        One time step of one variable, in memory.
    """
    n_lat, n_lon = spec.shape
    sample = SampleArray(_SOURCE, VARIABLE, (1, 1, n_lat, n_lon), seed)
    raw = sample.block((0, 0, 0, 0), sample.shape)[0]
    values = np.where(raw == FILL, np.nan, raw.astype(np.float64))
    values = np.roll(values, -round(_WEST_OF_SOURCE * n_lon), axis=-1)
    coordinates = {
        "time": [np.datetime64("2000-01-16", "ns")],
        "lat": -90 + (np.arange(n_lat) + 0.5) * 180 / n_lat,
        "lon": -180 + (np.arange(n_lon) + 0.5) * 360 / n_lon,
    }
    return xr.Dataset({VARIABLE: (("time", "lat", "lon"), values)}, coords=coordinates)


def prepare_maps(location: Location, specs: Sequence[MapSpec], *, seed: int) -> Maps:
    """Store maps, unless they are there.

    Parameters
    ----------
    location : Location
        Where maps are kept; these get a folder of their own below.
    specs : sequence of MapSpec
        What to make, each name once.
    seed : int
        Seed of the values.

    Returns
    -------
    Maps
        Where they lie.

    Raises
    ------
    UserError
        If a name is given twice, or none is given.
    """
    names = [spec.name for spec in specs]
    if not names or len({*names}) < len(names):
        raise UserError(f"maps: {', '.join(names) or 'none'}; allowed: at least one, each once")
    source = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()
    made_by = [_GENERATION, source, seed, [asdict(spec) for spec in specs]]

    def write(place: Location) -> dict[str, Any]:
        for spec in specs:
            _WRITERS[spec.kind](place / spec.name, make_dataset(spec, seed=seed), spec)
        return {}

    target = location / f"maps-{prepared.name_of(made_by)}"
    under = [f"{name}/" for name in names]
    files = prepared.prepare(target, made_by, write, name="maps", under=under).files
    sizes = {
        name: sum(size for key, (size, _) in files.items() if key.startswith(f"{name}/"))
        for name in names
    }
    return Maps(target, tuple(specs), sizes)


def _write_zarr(location: Location, dataset: xr.Dataset, spec: MapSpec) -> None:
    """Write a Zarr v3 group with the codec of the published study."""
    codec = zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=8)
    encoding: dict[str, Any] = {
        VARIABLE: {"chunks": (1, *spec.chunk_shape), "compressors": codec, "fill_value": np.nan}
    }
    # counted from another day, or its only chunk would be zero, and not be stored
    encoding["time"] = {"units": "days since 1970-01-01"}
    for name in ("lat", "lon"):
        n = dataset.sizes[name]
        encoding[name] = {"chunks": (min(spec.coordinate_chunk or n, n),)}
    store = ObjectStore(location.obstore())
    with expected_warning("Consolidated metadata is currently not part"):
        dataset.to_zarr(
            store, mode="w", encoding=encoding, consolidated=spec.is_consolidated, zarr_format=3
        )


def _write_netcdf(location: Location, dataset: xr.Dataset, spec: MapSpec) -> None:
    """Write a netCDF-4 file with the same codec; a broken one lacks its second half.

    The netCDF library writes it: where it is imported, h5py writes no Blosc.
    """
    codec = {"compression": "blosc_lz4", "complevel": 5, "blosc_shuffle": 1}
    encoding = {VARIABLE: {"chunksizes": (1, *spec.chunk_shape), **codec}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "map.nc"
        dataset.to_netcdf(path, engine="netcdf4", encoding=encoding)
        content = path.read_bytes()
    whole = spec.is_whole
    obstore.put(location.obstore(), "map.nc", content if whole else content[: len(content) // 2])


def _write_references(location: Location, dataset: xr.Dataset, spec: MapSpec) -> None:
    """Write a netCDF-4 file, and kerchunk references to it."""
    _write_netcdf(location, dataset, spec)
    with expected_warning("Numcodecs codecs are not in the Zarr version 3"):
        virtual = virtualizarr.open_virtual_dataset(
            f"{location.url}/map.nc",
            registry=make_registry(location),
            parser=HDFParser(),
            loadable_variables=[],
        )
    references = virtual.vz.to_kerchunk(format="dict")
    text = json.dumps(references, default=bytes.decode)
    obstore.put(location.obstore(), "references.json", text.encode())


_WRITERS: dict[MapKind, Callable[[Location, xr.Dataset, MapSpec], None]] = {
    "zarr": _write_zarr,
    "netcdf": _write_netcdf,
    "broken": _write_netcdf,
    "references": _write_references,
}
