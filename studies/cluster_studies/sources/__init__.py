"""What two studies read with growing clusters: stores of 2020 and formats of 2022, a line each.

A source registers itself here, or in a module of its own in this folder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask.array as da
import fsspec
import intake
import numpy as np
import xarray as xr
from dask.delayed import delayed
from intake.readers import datatypes
from intake.readers import readers as intake_readers

from helpers.arrays import readers, reads, stores
from helpers.arrays.readers import READERS, ArrayReader
from helpers.arrays.stores import StoredArray
from helpers.benchmark.contender import CheckError
from helpers.registry import Registry
from studies.cluster_studies import tables, virtual_files
from studies.cluster_studies.opendap import OPENDAP
from wire.bed.locations import Location
from wire.bed.networks import Profile
from wire.host import installed

Open = Callable[[Location, StoredArray], Any]
"""From the folder of a layout and its array to an array or a table of Dask."""

_CHUNK_NBYTES_OF_2020 = 194.4e6
_AS_STORED: dict[str, Any] = {"mask_and_scale": False, "decode_times": False}


def _chunks(stored: StoredArray) -> dict[str, int]:
    return dict(zip(stored.dimensions, stored.chunk_shape, strict=True))


def open_by(reader: ArrayReader) -> Open:
    """Make the function that opens as a reader of arrays does, and takes the array of Dask."""
    return partial(_open_shared, reader=reader)


def _open_shared(_folder: Location, stored: StoredArray, *, reader: ArrayReader) -> Any:
    return reads.open_array(stored, reader)


def _open_file(file: Any, stored: StoredArray, **options: Any) -> Any:
    """Open netCDF over a file object, or by its address."""
    options |= {"engine": "h5netcdf", "chunks": _chunks(stored), **_AS_STORED}
    return xr.open_dataset(file, **options)[stored.variable].data


def _open_file_object(folder: Location, stored: StoredArray) -> Any:
    """Open netCDF over a file object of s3fs with the read-ahead of 2020, to scale."""
    nbytes = 4 * math.prod(stored.chunk_shape)
    options = tables.make_old_options(folder, nbytes, _CHUNK_NBYTES_OF_2020)
    return _open_file(fsspec.filesystem("s3", **options).open(f"{folder.path}/array.nc"), stored)


def _open_address(folder: Location, stored: StoredArray) -> Any:
    """Open netCDF by its address, which xarray reads in blocks that it keeps."""
    options = folder.fsspec_options()
    return _open_file(f"{folder.url}/array.nc", stored, storage_options=options)


def _open_over_http(folder: Location, stored: StoredArray) -> Any:
    """Open netCDF over a file object of plain HTTP, whose address holds the signature."""
    place = {"Bucket": folder.bucket, "Key": f"{folder.prefix}/array.nc"}
    address = folder.botocore().generate_presigned_url("get_object", Params=place, ExpiresIn=86400)
    return _open_file(fsspec.filesystem("http").open(address), stored)


def _open_by_intake(folder: Location, stored: StoredArray, *, of_then: bool) -> Any:
    """Open netCDF through an entry of an Intake catalogue, with blocks of a stored chunk."""
    options = folder.fsspec_options()
    if of_then:
        options = tables.make_old_options(folder, 4 * math.prod(stored.chunk_shape))
    data = datatypes.HDF5(f"{folder.url}/array.nc", storage_options=options)
    catalog = intake.Catalog()
    catalog["map"] = intake_readers.XArrayDatasetReader(data, chunks=_chunks(stored), **_AS_STORED)
    return catalog["map"].read()[stored.variable].data


def _open_bare_array(folder: Location, stored: StoredArray) -> Any:
    """Open a Zarr array alone: no group, no consolidated metadata, no xarray."""
    options = {**folder.fsspec_options(), "max_concurrency": 1}
    return da.from_zarr(f"{folder.url}/{stored.variable}", storage_options=options)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """A layout, who reads it on a cluster, and over which link."""

    name: str
    label: str  # on pages
    published: tuple[str, ...]  # the series that it stands next to
    layout: str
    open: Open
    is_of_today: bool = False  # not as it was read then
    # a link that all workers share, in MB/s of array; 0: that of the region
    link_mb_per_s: int = 0
    packages: tuple[str, ...] = ()  # that have to be installed

    color = marker = ""  # figures draw it as the series that it stands next to
    concurrency = 0  # as many threads as a case has

    @property
    def shared(self) -> ArrayReader | None:
        """Reader of arrays that it uses; None where it has one of its own."""
        return getattr(self.open, "keywords", {}).get("reader")

    @property
    def reader(self) -> ArrayReader:
        """Reader of arrays whose settings of zarr all processes have: the one that it uses, or none of them."""
        return self.shared or READERS["zarr-s3fs"]

    def read(self, sink: Any) -> Any:
        """Read everything into a sink that keeps checksums."""
        return sink.compute()

    @property
    def is_table(self) -> bool:
        """Whether Dask holds rows of it, and not chunks."""
        return self.layout in TABLES and self.layout not in ARRAYS

    @property
    def network(self) -> str:
        """Name of the network that it is read over."""
        return "opendap" if self.layout == "opendap" else f"link-{self.link_mb_per_s}"


SOURCES: Registry[ClusterSource] = Registry("source of clusters", __name__)
"""Every source of the studies, by name; a module in this folder adds another."""

# Layouts that are made here, next to those that all studies share; each with its writer.
_csv = partial(tables.write_tables, suffix="csv")
_parquet = partial(tables.write_tables, suffix="parquet")
TABLES: Mapping[str, Callable[..., list[int]]] = {
    "csv": partial(_csv, is_whole=True),
    "csv-parts": partial(_csv, is_whole=False),
    "parquet": partial(_parquet, is_whole=True),
    "parquet-parts": partial(_parquet, is_whole=False),
    "tiledb": tables.write_tiledb,
    "files": tables.write_files,
    "long-files": virtual_files.write_long_files,
    "virtual-files": virtual_files.write_virtual,
}
ARRAYS = ("tiledb", "files", "long-files", "virtual-files")
"""Those of them that are no tables."""

_OF_2020 = open_by(READERS["zarr-s3fs-one-get"])
_TODAY = open_by(READERS["zarr-s3fs"])
LINKS = {2000: "Jetstream Zarr", 3500: "Wasabi Zarr", 5500: "OSN Zarr"}
"""MB/s of array at which the stores outside the region saturated in 2020."""

# fmt: off
_IN_REGION = (
    ClusterSource("zarr-2020", "Zarr, client of 2020", ("GCS Zarr",), "zarr", _OF_2020),
    ClusterSource("zarr-today", "Zarr, s3fs of today", ("GCS Zarr",), "zarr", _TODAY, is_of_today=True),
    ClusterSource("zarr-obstore", "Zarr, obstore", ("GCS Zarr",), "zarr", open_by(READERS["zarr-obstore"]), is_of_today=True),
    ClusterSource("netcdf-2020", "netCDF, client of 2020", ("GCS NetCDF",), "netcdf", _open_file_object),
    ClusterSource("netcdf-today", "netCDF, xarray of today", ("GCS NetCDF",), "netcdf", _open_address, is_of_today=True),
    ClusterSource("netcdf-http", "netCDF over HTTP", ("ECCO Data Portal",), "netcdf", _open_over_http),
    ClusterSource("opendap", "OPeNDAP", ("ESGF UCAR OPeNDAP", "NOAA ESRL OPeNDAP"), "opendap", open_by(OPENDAP)),
)
_FORMATS = (
    ClusterSource("csv", "CSV", ("CSV",), "csv", tables.read_csv),
    ClusterSource("csv-parts", "CSV in parts", ("Partitioned CSV",), "csv-parts", tables.read_csv),
    ClusterSource("parquet-parts", "Parquet in parts", ("Partitioned Parquet",), "parquet-parts", tables.read_parquet),
    ClusterSource("netcdf-intake", "netCDF by Intake", ("NetCDF",), "netcdf", partial(_open_by_intake, of_then=True)),
    ClusterSource("netcdf-intake-today", "netCDF by Intake, of today", ("NetCDF",), "netcdf", partial(_open_by_intake, of_then=False), is_of_today=True),
    ClusterSource("zarr-array", "Zarr array", ("Zarr Array",), "zarr", _open_bare_array),
    ClusterSource("zarr-group", "Zarr group", ("Zarr Group",), "zarr", _OF_2020),
    ClusterSource("zarr-group-today", "Zarr group, s3fs of today", ("Zarr Group",), "zarr", _TODAY, is_of_today=True),
    ClusterSource("tiledb", "TileDB", ("TileDB Embedded",), "tiledb", tables.read_tiledb),
)
_FILES = tuple(
    ClusterSource(f"files-{method}", label, (), "files", partial(tables.open_files, method=method), is_of_today=True)
    for method, label in (("objects", "open_mfdataset"), ("tasks", "the same in tasks"), ("recipe", "as the recipe"))
)
# fmt: on
_FAR = tuple(
    replace(
        source,
        name=f"{source.name}-{link}",
        label=f"{source.label}, {link / 1000:g} GB/s",
        published=(LINKS[link],) if source.layout == "zarr" else source.published,
        link_mb_per_s=link,
    )
    for link in LINKS
    for source in _IN_REGION
    if source.layout != "opendap"
)
SOURCES.register(*_IN_REGION, *_FAR, *_FORMATS, *_FILES)

ENTRIES = {
    "cm26-temperature": "GCS Zarr",
    "cm26-netcdf": "GCS NetCDF",
    "wasabi-temperature": "Wasabi Zarr",
    "jetstream-temperature": "Jetstream Zarr",
    "osn-precipitation": "OSN Zarr",
    "ecco-temperature": "ECCO Data Portal",
    "esgf-opendap": "ESGF UCAR OPeNDAP",
    "noaa-opendap": "NOAA ESRL OPeNDAP",
}
"""The stores of 2020 themselves: entries of the catalogue by the store that each is."""


def find_series(name: str) -> tuple[str, ...]:
    """Find the published series that a source or an entry stands next to."""
    return SOURCES[name].published if name in SOURCES else (ENTRIES.get(name, ""),)


def limit_link(profile: Profile, stored: StoredArray, link_mb_per_s: int) -> Profile:
    """Make the link of all carry so many MB/s of array: over the wire fewer, as Zarr compresses.

    Nothing else differs from the network in region. 0 leaves it as it is.
    """
    if not link_mb_per_s:
        return profile
    share = stored.stored_nbytes["zarr"] / stored.nbytes
    return replace(profile, aggregate_mb_per_s=link_mb_per_s * share)


def make_layouts(stored: StoredArray, names: Sequence[str]) -> dict[str, stores.Entry]:
    """Make the layouts of tables that sources need from the array that is stored, unless they are there."""
    entries: dict[str, stores.Entry] = {}
    group = READERS["zarr-obstore"].open(stored.locate("zarr"), None)
    for layout in names:
        is_array = layout in ARRAYS
        shape, block_shape = (stored.shape, stored.chunk_shape) if is_array else tables.cut(stored)

        def blocks(shape: Any = shape, block_shape: Any = block_shape) -> Any:
            for block in readers.iterate_blocks(shape, block_shape):
                yield block, np.asarray(group[stored.variable][block].to_numpy(), np.float32)

        def write(place: Location, layout: str = layout, shape: Any = shape) -> dict[str, Any]:
            more = {"chunk_shape": stored.chunk_shape} if layout in ARRAYS else {}
            return {"sums": TABLES[layout](place / layout, blocks, shape, **more)}

        sums, versions = (
            [hex(n) for n in stored.checksums.ravel()],
            installed(("pyarrow", "tiledb")),
        )
        made_by = [1, layout, sums, stored.shape, stored.chunk_shape, versions]
        entries[layout] = stores.prepare(
            stored.location / "tables", made_by, write, name=layout, prefixes=[f"{layout}/"]
        )
    return entries


@dataclass(frozen=True, slots=True)
class SourceRead(reads.ArrayRead):
    """A source read by a cluster into a sink that keeps checksums, or of tables sums of bits."""

    source: ClusterSource
    entry: stores.Entry | None  # of a layout that is made here

    def settings(self) -> dict[str, Any]:
        """Tell what a comparison has to hold equal, or declare."""
        settings = {"codec": self.stored.codec, "layout": self.source.layout}
        # what Dask holds, by which the study of 2022 counted: of a table all three columns
        held = self._nbytes() * (tables.ROW_NBYTES // 4 if self.source.is_table else 1)
        return {**settings, "cache_state": reads.CACHE_STATE, "held_nbytes": held}

    def _nbytes(self) -> int:
        is_cut = self.source.is_table
        return 4 * math.prod(tables.cut(self.stored)[0] if is_cut else self.stored.shape)

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of the values, and of what holds them."""
        known_nbytes = self.stored.stored_nbytes.get(self.source.layout, 0)
        return self._nbytes(), known_nbytes if self.entry is None else self.entry.nbytes

    def open(self) -> Any:
        """Open the source and describe its read."""
        stored = self.stored.seen_from(self.testbed.far)
        folder = stored.location / "tables" if self.entry else stored.location
        opened = self.source.open(folder / self.source.layout, stored)
        self.testbed.set_tag("read")
        if not self.source.is_table:
            corner = tuple(slice(n) for n in stored.shape)
            return reads.read_into_sink(opened[corner], stored.chunk_shape)
        return delayed([delayed(tables.sum_bits)(part) for part in opened.to_delayed()])

    def check(self, result: Any) -> str:
        """Compare what was read with what was written."""
        if not self.source.is_table:
            return reads.check_values(result, self.stored)
        sums = [int(total) for total in np.sum(result, axis=0, dtype=np.uint64)]
        if self.entry is None or sums != self.entry.facts["sums"]:
            raise CheckError(f"{self.source.name} reads other rows than were written")
        return f"sums of bits of {sums[0]} rows in {len(result)} partitions"


def find_dilation(group: str, per_worker: float) -> float:
    """Find by how much time is slowed for a size of cluster and a network, so that each worker has its processors.

    What a server of OPeNDAP computes is real, so its clients read in real time; so are stores of others.

    Examples
    --------
    >>> find_dilation("8 link-0", 1.0), find_dilation("8 opendap", 1.0)
    (8.0, 1.0)
    """
    n_workers, network = group.split()
    return max(1.0, int(n_workers) * per_worker) if network.startswith("link-") else 1.0
