"""Datasets on a longitude-latitude grid, after those of the published study: how they are written and opened."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import fsspec
import hdf5plugin  # noqa: F401  # teaches h5py to read Blosc
import numpy as np
import obstore
import pandas as pd
import xarray as xr
import zarr
from fsspec import AbstractFileSystem
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from obspec_utils.readers import BlockStoreReader
from zarr.abc.store import Store
from zarr.storage import FsspecStore, ObjectStore

from helpers.arrays import stores
from helpers.arrays.fields import FILL, SampleArray
from helpers.arrays.readers import expected_warning
from helpers.paths import ROOT
from wire.bed.locations import Location

VARIABLE = "temperature"
"""The variable of every dataset."""

HOST = "127.0.0.1"
"""Where the service, its users and Redis are."""

DatasetKind = Literal["zarr", "unconsolidated", "icechunk", "netcdf", "references", "broken"]


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
    def is_whole(self) -> bool:
        """Whether it can be opened."""
        return self.kind != "broken"


@dataclass(frozen=True, slots=True)
class Datasets:
    """Datasets in a store."""

    location: Location  # folder that holds a folder for each
    specs: tuple[DatasetSpec, ...]  # what they are
    stored_nbytes: int  # bytes that all of them take in the store


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
    source = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()
    made_by = [_GENERATION, source, seed, [asdict(spec) for spec in specs]]

    def write(place: Location) -> dict[str, Any]:
        for spec in specs:
            _WRITERS[spec.kind](place / spec.name, make_dataset(spec, seed=seed), spec)
        return {}

    target = location / f"maps-{stores.hash_recipe(made_by)}"
    prefixes = [f"{spec.name}/" for spec in specs]
    entry = stores.prepare(target, made_by, write, name="maps", prefixes=prefixes)
    return Datasets(target, tuple(specs), entry.nbytes)


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
    coordinates_chunked = spec.kind == "unconsolidated"
    # counted from another day, or its only chunk would be zero, and not be stored
    encoding["time"] = {"units": "days since 1970-01-01"}
    for axis, name in enumerate(("lat", "lon")):
        n = spec.chunk_shape[axis] if coordinates_chunked else dataset.sizes[name]
        encoding[name] = {"chunks": (n,)}
    if coordinates_chunked:
        options["consolidated"] = False
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
    codec: dict[str, Any] = {"compression": "blosc_lz4", "complevel": 5, "blosc_shuffle": 1}
    if spec.kind == "references":
        codec = {"compression": "zlib", "complevel": 4}  # as the published one
    encoding = {VARIABLE: {"chunksizes": (1, *spec.chunk_shape), **codec}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "array.nc"
        dataset.to_netcdf(path, engine="netcdf4", encoding=encoding)
        content = path.read_bytes()
    whole = spec.is_whole
    obstore.put(location.obstore(), "array.nc", content if whole else content[: len(content) // 2])


def _write_references(location: Location, dataset: xr.Dataset, spec: DatasetSpec) -> None:
    """Write a netCDF-4 file, and beside it the references to its chunks as kerchunk makes them."""
    from kerchunk.hdf import SingleHdf5ToZarr

    _write_netcdf(location, dataset, spec)
    path = f"{location.path}/array.nc"
    with location.fsspec(skip_instance_cache=True).open(path) as file:
        references = SingleHdf5ToZarr(
            file, f"{location.url}/array.nc", inline_threshold=0
        ).translate()
    obstore.put(location.obstore(), _REFERENCES, json.dumps(references).encode())


_REFERENCES = "references.json"

_WRITERS: dict[DatasetKind, Callable[[Location, xr.Dataset, DatasetSpec], None]] = {
    "zarr": write_zarr,
    "unconsolidated": write_zarr,
    "netcdf": _write_netcdf,
    "references": _write_references,
    "broken": _write_netcdf,
}


class ObjectFile(BlockStoreReader):
    """An object as a file, of which 32 blocks of 256 KiB are kept: HDF5 reads a few bytes here and there.

    It has no event loop in Python, which could wait for the lock that HDF5 holds.
    """

    def __init__(self, client: Any, key: str) -> None:
        super().__init__(client, key, block_size=256 * 2**10, max_cached_blocks=32)
        self.key = key


_IN_ZARR = ("zarr", "unconsolidated")


class Origin:
    """The store that datasets lie in, a folder each, read without a cache.

    Clients are made once a process, for every contender alike: a new client
    for each request would count connections, not what a cache saves.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
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

    def files(self) -> AbstractFileSystem:
        """Return the store as files, for what is opened by references."""
        return self.location.fsspec()

    def references(self, name: str) -> Store:
        """Return what references point to as a Zarr store, the list read anew for each opening."""
        files, path = self.files(), f"{(self.location / name).path}/{_REFERENCES}"
        references: dict[str, Any] = json.loads(files.cat_file(path))
        filesystem = fsspec.filesystem(
            "reference", fo=references, fs={self.location.scheme: files}, skip_instance_cache=True
        )
        filesystem.name = name  # by which a pickle calls it
        return FsspecStore(
            AsyncFileSystemWrapper(filesystem, asynchronous=True, semaphore=asyncio.Semaphore(1)),
            read_only=True,
            path="",
        )

    def snapshot(self, name: str) -> Any:
        """Return the store of an Icechunk dataset as it was last committed."""
        import icechunk

        repository = icechunk.Repository.open((self.location / name).icechunk_storage())
        return repository.readonly_session(branch="main").store

    def version(self, spec: DatasetSpec) -> str:
        """Ask for the ETag of the object that changes with the metadata of a dataset."""
        key = "zarr.json" if spec.kind in _IN_ZARR else "array.nc"
        return str(
            obstore.head(self._bucket, f"{(self.location / spec.name).prefix}/{key}")["e_tag"]
        )

    def open_file(self, key: str) -> ObjectFile:
        """Open an object as a file."""
        return ObjectFile(self._bucket, key)

    def open(self, spec: DatasetSpec) -> xr.Dataset:
        """Open a dataset, with the options of titiler.xarray's own openers and no others."""
        options: dict[str, Any] = {"decode_coords": "all", "decode_times": True}
        if spec.kind in _IN_ZARR:
            return self.open_zarr(spec.name, **options)
        if spec.kind == "icechunk":
            store: Any = self.snapshot(spec.name)
            options |= {"consolidated": False, "zarr_format": 3}
            return xr.open_dataset(store, engine="zarr", **options)
        if spec.kind == "references":
            store = self.references(spec.name)
            options |= {"consolidated": False, "zarr_format": 2}
            return xr.open_dataset(store, engine="zarr", **options)
        file: Any = self.open_file(f"{(self.location / spec.name).prefix}/array.nc")
        return xr.open_dataset(file, engine="h5netcdf", **options)


_TABLE = ROOT / "results" / "published" / "tile_caching_dataset_specs.csv"
_EXTENTS = re.compile(r"'lat': (\d+), 'lon': (\d+)")


def published_specs() -> dict[str, DatasetSpec]:
    """Read the geometry of the published datasets, by their published names.

    The corrected columns are used: those of the report take time for latitude. The smallest of its
    chunked stores, of 32 MiB, has a single chunk too. Others stand in for real datasets, by
    kind and grid, with one step of time; the last one must fail.

    Examples
    --------
    >>> published_specs()["single_chunk_store_lat512_lon1024.zarr"].name
    'single-4mib'
    """
    table = pd.read_csv(_TABLE)
    specs = dict[str, DatasetSpec]()
    columns = ["dataset", "shape_from_tile_tests", "chunks_from_tile_tests"]
    for published, *texts in table[columns].dropna().itertuples(index=False):
        (n_lat, n_lon), chunk_shape = (
            (int(a), int(b)) for text in texts for a, b in _EXTENTS.findall(text)
        )
        kind = "single" if published.startswith("single") else "chunked"
        name = f"{kind}-{round(8 * n_lat * n_lon / 2**20)}mib"
        specs[published] = DatasetSpec(name, "zarr", (n_lat, n_lon), chunk_shape)
    ordered = sorted(
        specs.items(), key=lambda item: (item[1].name.startswith("chunked"), item[1].shape)
    )
    whole = DatasetSpec("netcdf", "netcdf", (600, 1440), (600, 1440))
    unscaled = {
        "aws-noaa-oisst-feedstock_reference": DatasetSpec(
            "references", "references", (720, 1440), (720, 1440)
        ),
        "cmip6-pds_GISS-E2-1-G_historical_tas": DatasetSpec(
            "consolidated", "zarr", (90, 144), (90, 144)
        ),
        "power_901_monthly_meteorology_utc.zarr": DatasetSpec(
            "unconsolidated", "unconsolidated", (361, 576), (25, 25)
        ),
        "GLDAS_NOAH025_3H.A20230731.2100.021.nc4": replace(whole, name="netcdf-protected"),
        "pr_day_ACCESS-CM2_historical_r1i1p1f1_gn_1950.nc": whole,
        "none": replace(whole, name="broken", kind="broken"),
    }
    return dict(ordered) | unscaled


def dataset_names() -> tuple[str, ...]:
    """List all datasets: published synthetic ones, the netCDF file, the broken one."""
    return tuple(spec.name for spec in published_specs().values())


def label_datasets() -> dict[str, str]:
    """Map each name of `dataset_names` to what pages call it: its published bytes and chunks, or its kind.

    The smallest store of the chunked series has one chunk, as the store of the other series has.

    Examples
    --------
    >>> labels = label_datasets()
    >>> labels["single-32mib"], labels["chunked-32mib"], labels["chunked-64mib"]
    ('32 MiB in one chunk', '32 MiB in one chunk, again', '64 MiB in 4 chunks')
    """
    labels = dict(_OTHER_LABELS)
    for spec in published_specs().values():
        if spec.name not in _OTHER_LABELS:
            sides = zip(spec.shape, spec.chunk_shape, strict=True)
            n_chunks = math.prod(-(-n // side) for n, side in sides)
            chunks = "one chunk" if n_chunks == 1 else f"{n_chunks} chunks"
            label = f"{round(spec.nbytes / 2**20)} MiB in {chunks}"
            labels[spec.name] = f"{label}, again" if label in labels.values() else label
    return labels


_OTHER_LABELS = {
    "references": "virtual Zarr",
    "consolidated": "Zarr, consolidated",
    "unconsolidated": "Zarr, not consolidated",
    "netcdf": "netCDF",
    "netcdf-protected": "netCDF with a login",
    "broken": "broken file",
}


def make_specs(names: Sequence[str], *, scale: float) -> tuple[DatasetSpec, ...]:
    """Scale datasets of the published study, those of `dataset_names`.

    `scale` is a factor on each side of grid and chunks, above 0 and at most 1;
    bytes go with its square.

    Examples
    --------
    >>> make_specs(["chunked-64mib"], scale=0.5)[0].chunk_shape
    (724, 1448)
    """
    published = {spec.name: spec for spec in published_specs().values()}

    def scaled(grid: tuple[int, int]) -> tuple[int, int]:
        return max(8, round(grid[0] * scale)), max(8, round(grid[1] * scale))

    return tuple(
        replace(spec, shape=scaled(spec.shape), chunk_shape=scaled(spec.chunk_shape))
        for spec in (published[name] for name in names)
    )
