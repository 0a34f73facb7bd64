"""Datasets on a longitude-latitude grid, as a tile service meets them, after those of the published study."""

from __future__ import annotations

import ast
import hashlib
import json
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import hdf5plugin  # noqa: F401  # teaches h5py to read Blosc
import numpy as np
import obstore
import pandas as pd
import ujson
import virtualizarr
import xarray as xr
import zarr
from virtualizarr.manifests import ManifestStore
from virtualizarr.parsers import HDFParser
from virtualizarr.parsers.kerchunk.translator import manifestgroup_from_kerchunk_refs
from zarr.storage import ObjectStore

from helpers.arrays import prepared
from helpers.arrays.fields import FILL, SampleArray
from helpers.arrays.writers import expected_warning, make_registry
from helpers.errors import UserError
from helpers.objectstore.locations import Location
from helpers.paths import ROOT
from studies.caching_costs.origins import Origin

VARIABLE = "temperature"
"""The variable of every map."""

DatasetKind = Literal["zarr", "netcdf", "references", "broken"]


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """What a map is made like."""

    name: str  # name in requests, records and figures
    kind: DatasetKind  # layout; a broken map is a netCDF-4 file that ends too early
    # elements (latitude, longitude); float64, as those of the published study
    shape: tuple[int, int]
    chunk_shape: tuple[int, int]
    coordinate_chunk: int = 0  # elements of a chunk of each coordinate; 0 for one chunk
    is_consolidated: bool = True  # whether the Zarr group holds the metadata of its arrays

    def __post_init__(self) -> None:
        if any(not 1 <= c <= n for c, n in zip(self.chunk_shape, self.shape, strict=True)):
            raise UserError(
                f"chunk_shape: {list(self.chunk_shape)} of {self.name};"
                f" allowed: between 1 and {list(self.shape)}"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of the values in memory."""
        return 8 * self.shape[0] * self.shape[1]

    @property
    def is_whole(self) -> bool:
        """Whether it can be opened."""
        return self.kind != "broken"


@dataclass(frozen=True, slots=True)
class Datasets:
    """Maps in a store."""

    location: Location  # folder that holds a folder for each map
    specs: tuple[DatasetSpec, ...]  # what they are
    stored_nbytes: dict[str, int]  # bytes that each takes in the store


_SOURCE = ROOT / "data" / "ocean-temperature.nc"
_WEST_OF_SOURCE = 160.5 / 360  # share of the source's columns that lie west of the date line
_GENERATION = 2  # raise it when the same arguments make other bytes


def make_dataset(spec: DatasetSpec, *, seed: int) -> xr.Dataset:
    """Make the values and coordinates of a map.

    Real sea surface temperature, enlarged; land is missing. The field is
    turned so that it begins at the date line, to within a cell.
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


def prepare_datasets(location: Location, specs: Sequence[DatasetSpec], *, seed: int) -> Datasets:
    """Store maps, unless they are there.

    Parameters
    ----------
    location : Location
        Where maps are kept; these get a folder of their own below.
    specs : sequence of DatasetSpec
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
    return Datasets(target, tuple(specs), sizes)


def _write_zarr(location: Location, dataset: xr.Dataset, spec: DatasetSpec) -> None:
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


def _write_netcdf(location: Location, dataset: xr.Dataset, spec: DatasetSpec) -> None:
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


def _write_references(location: Location, dataset: xr.Dataset, spec: DatasetSpec) -> None:
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


_WRITERS: dict[DatasetKind, Callable[[Location, xr.Dataset, DatasetSpec], None]] = {
    "zarr": _write_zarr,
    "netcdf": _write_netcdf,
    "broken": _write_netcdf,
    "references": _write_references,
}


def open_map_dataset(spec: DatasetSpec, origin: Origin) -> xr.Dataset:
    """Open a map, with the options of titiler.xarray's own openers and no others."""
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


_TABLE = ROOT / "results" / "published" / "tile_caching_dataset_specs.csv"
_OTHERS = ("consolidated", "unconsolidated", "chunked-coordinates", "netcdf", "references")
BROKEN = "broken"
"""Name of the map that must fail."""


def published_specs() -> dict[str, tuple[str, tuple[int, int], tuple[int, int]]]:
    """Read the geometry of the published made datasets.

    The corrected columns are used: those of the report take time for latitude.
    The smallest of its chunked stores, of 32 MiB, has a single chunk too.

    Examples
    --------
    >>> published_specs()["single-4mib"]
    ('single_chunk_store_lat512_lon1024.zarr', (512, 1024), (512, 1024))
    """
    table = pd.read_csv(_TABLE)
    made = table[table["dataset"].str.contains("_store_")]
    found = {}
    for line in made.itertuples():
        shape, chunks = (
            _extents(line.shape_from_tile_tests),
            _extents(line.chunks_from_tile_tests),
        )
        kind = "single" if str(line.dataset).startswith("single") else "chunked"
        nbytes = 8 * shape[0] * shape[1]
        found[f"{kind}-{round(nbytes / 2**20)}mib"] = (str(line.dataset), shape, chunks)
    order = sorted(found, key=lambda name: (name.startswith("chunked"), found[name][1]))
    return {name: found[name] for name in order}


def _extents(text: object) -> tuple[int, int]:
    extents = ast.literal_eval(str(text))
    return int(extents["lat"]), int(extents["lon"])


def dataset_names() -> tuple[str, ...]:
    """List all datasets: published synthetic ones, stand-ins for real ones, the broken one."""
    return (*published_specs(), *_OTHERS, BROKEN)


def make_specs(names: Sequence[str], *, scale: float) -> tuple[DatasetSpec, ...]:
    """Scale maps of the published study.

    Parameters
    ----------
    names : sequence of str
        Of `dataset_names`.
    scale : float
        Factor on each side of grid and chunks, above 0 and at most 1; bytes
        go with its square.

    Returns
    -------
    tuple of DatasetSpec
        In the order of `names`.

    Raises
    ------
    UserError
        If a name is unknown or the scale out of bounds.

    Examples
    --------
    >>> make_specs(["chunked-64mib"], scale=0.5)[0].chunk_shape
    (724, 1448)
    """
    if not 0 < scale <= 1:
        raise UserError(f"map_scale: {scale!r}; allowed: above 0 and at most 1")
    unknown = [name for name in names if name not in dataset_names()]
    if unknown or not names:
        raise UserError(
            f"maps: {', '.join(unknown) or 'none'}; allowed: {', '.join(dataset_names())}"
        )
    return tuple(_make_spec(name, scale) for name in names)


def _make_spec(name: str, scale: float) -> DatasetSpec:
    def scaled(*extents: int) -> tuple[int, int]:
        return max(8, round(extents[0] * scale)), max(8, round(extents[1] * scale))

    made = published_specs()
    if name in made:
        _, shape, chunks = made[name]
        return DatasetSpec(name, "zarr", scaled(*shape), scaled(*chunks))
    if name in ("netcdf", BROKEN):  # the grid of the published precipitation file
        shape = scaled(600, 1440)
        return DatasetSpec(name, "netcdf" if name == "netcdf" else "broken", shape, shape)
    if name == "references":  # of the published reference to sea surface temperature
        return DatasetSpec(name, "references", scaled(720, 1440), scaled(720, 1440))
    shape = scaled(361, 576)  # of the published meteorology
    return DatasetSpec(
        name,
        "zarr",
        shape,
        scaled(181, 288),
        coordinate_chunk=-(-shape[1] // 12) if name == "chunked-coordinates" else 0,
        is_consolidated=name != "unconsolidated",
    )
