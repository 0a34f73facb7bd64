"""Datasets on a longitude-latitude grid, after those of the published study: how they are written and opened."""

from __future__ import annotations

import ast
import hashlib
import math
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import hdf5plugin  # noqa: F401  # teaches h5py to read Blosc
import numpy as np
import obstore
import pandas as pd
import xarray as xr
import zarr
from obspec_utils.readers import BlockStoreReader
from zarr.abc.store import Store
from zarr.storage import ObjectStore

from helpers.arrays import stores
from helpers.arrays.fields import FILL, SampleArray
from helpers.arrays.writers import expected_warning
from helpers.objectstore.locations import Location
from helpers.paths import ROOT

VARIABLE = "temperature"
"""The variable of every dataset."""

DatasetKind = Literal["zarr", "icechunk", "netcdf", "broken"]


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """What a dataset is made like."""

    name: str  # name in requests, records and figures
    kind: DatasetKind  # layout; a broken one is a netCDF-4 file that ends too early
    # elements (latitude, longitude); float64, as those of the published study
    shape: tuple[int, int]
    chunk_shape: tuple[int, int]

    @property
    def nbytes(self) -> int:
        """Bytes of the values in memory."""
        return 8 * self.shape[0] * self.shape[1]

    @property
    def version_key(self) -> str:
        """Object that changes with the metadata."""
        return "zarr.json" if self.kind == "zarr" else "array.nc"

    @property
    def is_whole(self) -> bool:
        """Whether it can be opened."""
        return self.kind != "broken"


@dataclass(frozen=True, slots=True)
class Datasets:
    """Datasets in a store."""

    location: Location  # folder that holds a folder for each
    specs: tuple[DatasetSpec, ...]  # what they are
    stored_nbytes: dict[str, int]  # bytes that each takes in the store


_SOURCE = ROOT / "data" / "ocean-temperature.nc"
_WEST_OF_SOURCE = 160.5 / 360  # share of the source's columns that lie west of the date line
_GENERATION = 4  # raise it when the same arguments make other bytes


def make_dataset(spec: DatasetSpec, *, seed: int) -> xr.Dataset:
    """Make the values and coordinates of a dataset of one day.

    Real sea surface temperature, enlarged; land is missing. The field is
    turned so that it begins at the date line, to within a cell.
    """
    n_lat, n_lon = spec.shape
    sample = SampleArray(_SOURCE, VARIABLE, (1, 1, n_lat, n_lon), seed)
    raw = sample.block((0, 0, 0, 0), sample.shape)[0]
    values = np.where(raw == FILL, np.nan, raw.astype(np.float64))
    values = np.roll(values, -round(_WEST_OF_SOURCE * n_lon), axis=-1)
    coordinates: dict[str, Any] = {
        "time": [np.datetime64("2000-01-16", "ns")],
        "lat": -90 + (np.arange(n_lat) + 0.5) * 180 / n_lat,
        "lon": -180 + (np.arange(n_lon) + 0.5) * 360 / n_lon,
    }
    return xr.Dataset({VARIABLE: (("time", "lat", "lon"), values)}, coords=coordinates)


def prepare_datasets(location: Location, specs: Sequence[DatasetSpec], *, seed: int) -> Datasets:
    """Store datasets in a folder of their own below `location`, unless they are there."""
    names = [spec.name for spec in specs]
    source = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()
    made_by = [_GENERATION, source, seed, [asdict(spec) for spec in specs]]

    def write(place: Location) -> dict[str, Any]:
        for spec in specs:
            _WRITERS[spec.kind](place / spec.name, make_dataset(spec, seed=seed), spec)
        return {}

    target = location / f"maps-{stores.name_of(made_by)}"
    under = [f"{name}/" for name in names]
    files = stores.prepare(target, made_by, write, name="maps", under=under).files
    sizes = {
        name: sum(size for key, (size, _) in files.items() if key.startswith(f"{name}/"))
        for name in names
    }
    return Datasets(target, tuple(specs), sizes)


def write_zarr(
    location: Location, dataset: xr.Dataset, spec: DatasetSpec, *, is_more: bool = False
) -> None:
    """Write a Zarr v3 group with the codec of the published study, or append days to it."""
    _fill(ObjectStore(location.obstore()), dataset, spec, is_more=is_more)


def _fill(
    store: Any, dataset: xr.Dataset, spec: DatasetSpec, *, is_more: bool, **options: Any
) -> None:
    if is_more:
        with expected_warning("Consolidated metadata is currently not part"):
            dataset.to_zarr(store, append_dim="time", zarr_format=3, **options)
        return
    codec = zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=8)
    encoding: dict[str, Any] = {
        VARIABLE: {"chunks": (1, *spec.chunk_shape), "compressors": codec, "fill_value": np.nan}
    }
    # counted from another day, or its only chunk would be zero, and not be stored
    encoding["time"] = {"units": "days since 1970-01-01"}
    encoding |= {name: {"chunks": (dataset.sizes[name],)} for name in ("lat", "lon")}
    with expected_warning("Consolidated metadata is currently not part"):
        dataset.to_zarr(store, mode="w", encoding=encoding, zarr_format=3, **options)


def write_icechunk(
    location: Location, dataset: xr.Dataset, spec: DatasetSpec, *, is_more: bool = False
) -> None:
    """Write the same as a commit of an Icechunk repository, the first one or one more."""
    import icechunk  # an extra that not everyone has

    repository = icechunk.Repository.open_or_create(location.icechunk_storage())
    session = repository.writable_session("main")
    _fill(session.store, dataset, spec, is_more=is_more, consolidated=False)
    session.commit("the dataset")


def _write_netcdf(location: Location, dataset: xr.Dataset, spec: DatasetSpec) -> None:
    """Write a netCDF-4 file with the same codec; a broken one lacks its second half.

    The netCDF library writes it: where it is imported, h5py writes no Blosc.
    """
    codec = {"compression": "blosc_lz4", "complevel": 5, "blosc_shuffle": 1}
    encoding = {VARIABLE: {"chunksizes": (1, *spec.chunk_shape), **codec}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "array.nc"
        dataset.to_netcdf(path, engine="netcdf4", encoding=encoding)
        content = path.read_bytes()
    whole = spec.is_whole
    obstore.put(location.obstore(), "array.nc", content if whole else content[: len(content) // 2])


_WRITERS: dict[DatasetKind, Callable[[Location, xr.Dataset, DatasetSpec], None]] = {
    "zarr": write_zarr,
    "netcdf": _write_netcdf,
    "broken": _write_netcdf,
}


class ObjectFile(BlockStoreReader):
    """An object as a file, of which 32 blocks of 256 KiB are kept: HDF5 reads a few bytes here and there.

    It has no event loop in Python, which could wait for the lock that HDF5 holds.
    """

    def __init__(self, client: Any, key: str) -> None:
        super().__init__(client, key, block_size=256 * 2**10, max_cached_blocks=32)
        self.key = key


class Origin:
    """The store that datasets lie in, a folder each, read without a cache.

    Clients are made once a process, for every contender alike: a new client
    for each request would count connections, not what a cache saves.
    """

    def __init__(self, location: Location, specs: Sequence[DatasetSpec] = ()) -> None:
        self.location, self.specs = location, specs  # which of them has a version
        self._lock = threading.Lock()
        self._stores: dict[str, Store] = {}
        self._bucket = replace(location, prefix="").obstore()

    def name_of(self, key: str) -> str:
        """Return the dataset that a path in the bucket belongs to."""
        return key.removeprefix(self.location.prefix).strip("/").split("/")[0]

    def zarr_store(self, name: str) -> Store:
        """Return the Zarr store of a dataset."""
        with self._lock:
            if name not in self._stores:
                client = (self.location / name).obstore()
                self._stores[name] = ObjectStore(client, read_only=True)
            return self._stores[name]

    def open_zarr(self, name: str, **options: Any) -> xr.Dataset:
        """Open a Zarr group as titiler does, which also requests the metadata of the older format."""
        store: Any = self.zarr_store(name)
        with warnings.catch_warnings():  # xarray says which has no consolidated metadata
            warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated")
            return xr.open_dataset(store, engine="zarr", **options)

    def snapshot(self, name: str) -> Any:
        """Return the store of an Icechunk dataset as it was last committed."""
        import icechunk

        repository = icechunk.Repository.open((self.location / name).icechunk_storage())
        return repository.readonly_session(branch="main").store

    def version(self, name: str) -> str:
        """Ask for the ETag of the object that changes with a dataset."""
        (spec,) = (spec for spec in self.specs if spec.name == name)
        key = f"{(self.location / name).prefix}/{spec.version_key}"
        return str(obstore.head(self._bucket, key)["e_tag"])

    def open_file(self, key: str) -> ObjectFile:
        """Open an object as a file."""
        return ObjectFile(self._bucket, key)


def open_dataset(spec: DatasetSpec, origin: Origin) -> xr.Dataset:
    """Open a dataset, with the options of titiler.xarray's own openers and no others."""
    folder = (origin.location / spec.name).prefix
    options: dict[str, Any] = {"decode_coords": "all", "decode_times": True}
    if spec.kind in ("netcdf", "broken"):
        file: Any = origin.open_file(f"{folder}/array.nc")
        return xr.open_dataset(file, engine="h5netcdf", **options)
    if spec.kind == "icechunk":
        store: Any = origin.snapshot(spec.name)
        return xr.open_dataset(store, engine="zarr", consolidated=False, zarr_format=3, **options)
    return origin.open_zarr(spec.name, **options)


_TABLE = ROOT / "results" / "published" / "tile_caching_dataset_specs.csv"

_Grid = tuple[int, int]
_GRIDS: dict[str, tuple[DatasetKind, _Grid, _Grid]] = {
    "netcdf": ("netcdf", (600, 1440), (600, 1440)),  # of the published precipitation
    "broken": ("broken", (600, 1440), (600, 1440)),
}
"""A stand-in for a real dataset of the study, and one that must fail: kind, grid and chunks."""


def published_specs() -> dict[str, tuple[str, _Grid, _Grid]]:
    """Read the geometry of the published synthetic datasets.

    The corrected columns are used: those of the report take time for latitude.
    The smallest of its chunked stores, of 32 MiB, has a single chunk too.

    Examples
    --------
    >>> published_specs()["single-4mib"]
    ('single_chunk_store_lat512_lon1024.zarr', (512, 1024), (512, 1024))
    """
    columns = ["shape_from_tile_tests", "chunks_from_tile_tests"]
    table = pd.read_csv(_TABLE, converters=dict.fromkeys(columns, _read_extents))
    found: dict[str, tuple[str, _Grid, _Grid]] = {}
    for name, shape, chunks in table[["dataset", *columns]].itertuples(index=False):
        if "_store_" in name:
            kind = "single" if name.startswith("single") else "chunked"
            found[f"{kind}-{round(8 * math.prod(shape) / 2**20)}mib"] = (name, shape, chunks)
    order = sorted(found, key=lambda name: (name.startswith("chunked"), found[name][1]))
    return {name: found[name] for name in order}


def _read_extents(text: str) -> _Grid | None:
    extents = ast.literal_eval(text) if text else {}
    return (int(extents["lat"]), int(extents["lon"])) if "lat" in extents else None


def dataset_names() -> tuple[str, ...]:
    """List all datasets: published synthetic ones, the netCDF file, the broken one."""
    return (*published_specs(), *_GRIDS)


def make_specs(names: Sequence[str], *, scale: float) -> tuple[DatasetSpec, ...]:
    """Scale datasets of the published study, those of `dataset_names`.

    `scale` is a factor on each side of grid and chunks, above 0 and at most 1;
    bytes go with its square.

    Examples
    --------
    >>> make_specs(["chunked-64mib"], scale=0.5)[0].chunk_shape
    (724, 1448)
    """
    return tuple(_make_spec(name, scale) for name in names)


def _make_spec(name: str, scale: float) -> DatasetSpec:
    kind, *grids = _GRIDS.get(name) or ("zarr", *published_specs()[name][1:])
    (n_lat, n_lon), chunks = ([max(8, round(n * scale)) for n in grid] for grid in grids)
    return DatasetSpec(name, kind, (n_lat, n_lon), (chunks[0], chunks[1]))
