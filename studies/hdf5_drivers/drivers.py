"""Drivers: the ways to open a file in object storage, one line of a registry each."""

from __future__ import annotations

import ctypes
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import h5py
import pyfive
import xarray
import zarr
from h5coro.h5coro import H5Coro
from h5coro.s3driver import S3Driver
from virtualizarr.parsers import KerchunkJSONParser
from zarr.storage import ObjectStore

from helpers.arrays.writers import expected_warning, make_registry
from helpers.errors import UserError
from helpers.objectstore.locations import Location
from studies.hdf5_drivers.tasks import (
    BlockFile,
    GroupTree,
    H5CoroTree,
    MappingTree,
    PlainFile,
    fetch_whole,
)

MIB = 2**20
CONVERTED = "gt1l/heights"
"""Group that conversions hold: they are for the arrays that are read."""

Settings = Mapping[str, int | str]
"""Settings of a client, and of the library above it."""


def _split(
    settings: Settings, above: Sequence[str] = ("page_buf_size", "rdcc_nbytes")
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split settings into those of the client, and those of the library above it."""
    parts: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for name, value in settings.items():
        parts[name in above][name] = value
    return parts


def _open_over(file: Any, settings: Settings) -> MappingTree:
    """Open through h5py over a file object, which is closed after it."""
    return MappingTree(h5py.File(file, "r", **_split(settings)[1]), file.close)


def open_with_fsspec(location: Location, settings: Settings) -> MappingTree:
    """Open through h5py over a file object of s3fs."""
    file = location.fsspec().open(location.path, "rb", **_split(settings)[0])
    return _open_over(file, settings)


def open_with_xarray(location: Location, settings: Settings) -> MappingTree:
    """Open a group by its address, as users of xarray do; the engine makes the file object."""
    group = xarray.open_dataset(
        location.url, engine="h5netcdf", group=CONVERTED, storage_options=location.fsspec_options()
    )
    return GroupTree(group, CONVERTED)


def open_with_obstore(location: Location, settings: Settings) -> MappingTree:
    """Open through h5py over a file object of obstore."""
    return _open_over(PlainFile(location, **_split(settings)[0]), settings)


def open_whole(location: Location, settings: Settings) -> MappingTree:
    """Fetch the file by obstore in ranges, several at once, and open it in memory by h5py."""
    content = fetch_whole(location, int(settings["part_nbytes"]), int(settings["max_workers"]))
    return _open_over(io.BytesIO(content), settings)


def open_with_obstore_blocks(location: Location, settings: Settings) -> MappingTree:
    """Open through h5py over blocks that are fetched with obstore."""
    return _open_over(BlockFile(location, block_size=int(settings["block_size"])), settings)


def open_with_ros3(location: Location, settings: Settings) -> MappingTree:
    """Open through HDF5's own driver; ``block_cache`` is what its block cache keeps, in bytes."""
    if "block_cache" in settings:
        return MappingTree(_open_with_block_cache(location, int(settings["block_cache"])))
    options: dict[str, Any] = {"aws_region": location.region.encode()}
    if location.access_key and location.secret_key:
        options["secret_id"] = location.access_key.encode()
        options["secret_key"] = location.secret_key.encode()
    library = _split(settings)[1]
    return MappingTree(h5py.File(location.url, "r", driver="ros3", **options, **library))


def _open_with_block_cache(location: Location, nbytes: int) -> h5py.File:
    """Open by ROS3 without a page buffer, and with a cache of one block, or of none.

    One block is the first of the file, and stays; other reads go past it. h5py has no name for
    the block cache, so that the library is called.
    """
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    keys = (location.access_key or "").encode(), (location.secret_key or "").encode()
    access.set_fapl_ros3(location.region.encode(), *keys)
    access.set_page_buffer_size(0, 0, 0)
    set_blocks = getattr(ctypes.CDLL(h5py.h5p.__file__), "H5Pset_fapl_ros3_block_caching", None)
    if set_blocks is not None:  # earlier versions have no block cache
        set_blocks.argtypes = [ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_bool]
        if set_blocks(access.id, nbytes, nbytes, True) < 0:
            raise UserError(f"block_cache: {nbytes}; allowed: what this HDF5 takes")
    return h5py.File(h5py.h5f.open(location.url.encode(), h5py.h5f.ACC_RDONLY, fapl=access))


def open_with_pyfive(location: Location, settings: Settings) -> MappingTree:
    """Open through pyfive over a file object of s3fs."""
    client, library = _split(settings, ["metadata_buffer_size"])
    file = location.fsspec().open(location.path, "rb", **client)
    return MappingTree(pyfive.File(file, **library), file.close)


def open_with_h5coro(location: Location, settings: Settings) -> MappingTree:
    """Open through h5coro and its own client of S3."""
    # its client takes endpoint and credentials from the environment of the process
    return H5CoroTree(H5Coro(location.path, S3Driver, **settings))


def open_zarr(location: Location, settings: Settings) -> MappingTree:
    """Open a Zarr group through obstore."""
    store = ObjectStore(location.obstore(), read_only=True)
    group = zarr.open_group(store, mode="r", zarr_format=3)
    return GroupTree(group)


def open_references(location: Location, settings: Settings) -> MappingTree:
    """Open references to an HDF5 file as Zarr through obstore."""
    return _open_virtual(lambda: KerchunkJSONParser()(location.url, make_registry(location)))


def open_icechunk(location: Location, settings: Settings) -> MappingTree:
    """Open an Icechunk repository whose chunks lie in an HDF5 file."""
    import icechunk  # which the drivers' interpreter has imported before the clock

    where, chunks = location.icechunk_storage(), location.icechunk_virtual_chunks()
    return _open_virtual(
        lambda: icechunk.Repository.open(where, **chunks).readonly_session("main").store
    )


def _open_virtual(open_store: Callable[[], Any]) -> MappingTree:
    with expected_warning("Numcodecs codecs are not in the Zarr version 3"):
        group = zarr.open_group(open_store(), mode="r", zarr_format=3)
        return GroupTree(group, CONVERTED)


@dataclass(frozen=True, slots=True)
class Client:
    """Who reads, whatever its settings."""

    open: Callable[[Location, Settings], MappingTree]  # from the place of the file to a tree
    libraries: tuple[str, ...]  # by which it reads, whose versions belong to a result
    in_flight: int = 1  # requests that its defaults let it have in flight
    reads_files: bool = True  # whether it reads HDF5 files; otherwise a conversion of its name


_FSSPEC = Client(open_with_fsspec, ("h5py", "s3fs"))
_XARRAY = Client(open_with_xarray, ("xarray", "h5netcdf", "s3fs"))
_ROS3 = Client(open_with_ros3, ("h5py", "HDF5 of h5py"))
_OBSTORE = Client(open_with_obstore, ("h5py", "obstore"))
_OBSTORE_BLOCKS = Client(open_with_obstore_blocks, ("h5py", "obstore"))
_OBSTORE_WHOLE = Client(open_whole, ("h5py", "obstore"), in_flight=10)
_H5CORO = Client(open_with_h5coro, ("h5coro",), in_flight=3)  # a thread a variable
_PYFIVE = Client(open_with_pyfive, ("pyfive", "s3fs"), in_flight=10)  # botocore's connections
_ZARR = Client(open_zarr, ("zarr", "obstore"), in_flight=10, reads_files=False)
_REFERENCES = Client(
    open_references, ("virtualizarr", "zarr", "obstore"), in_flight=10, reads_files=False
)
_ICECHUNK = Client(open_icechunk, ("icechunk", "zarr"), in_flight=10, reads_files=False)

# The two pairs of the published study: a file object and the library above it.
_PUBLISHED_FILE: Settings = {"cache_type": "blockcache", "block_size": 8 * MIB}
_PUBLISHED_LIBRARY: Settings = {"page_buf_size": 16 * MIB, "rdcc_nbytes": 4 * MIB}


@dataclass(frozen=True, slots=True)
class Driver:
    """A way to open a file, with its settings."""

    name: str  # name in parameter files, records and figures; it begins with its family's
    client: Client  # who reads
    description: str  # one line for readers of the book
    # settings of the client and of the library above it; what is not named is at its default
    settings: Settings = field(default_factory=dict)

    @property
    def family(self) -> str:
        """Name that it shares with the same client in other settings."""
        return self.name.partition("-")[0]

    @property
    def in_flight(self) -> int:
        """Requests that its settings or defaults let it have in flight."""
        return 2 if self.settings.get("cache_type") == "background" else self.client.in_flight


DRIVERS: Mapping[str, Driver] = {
    driver.name: driver
    for driver in (
        Driver(
            "fsspec-none",
            _FSSPEC,
            "h5py over an s3fs file object without a cache: published as the default",
            {"cache_type": "none"},
        ),
        Driver(
            "fsspec-readahead",
            _FSSPEC,
            "h5py over what `s3fs.open(path)` returns, which reads ahead in blocks of 50 MiB",
            {"cache_type": "readahead"},
        ),
        Driver(
            "xarray", _XARRAY, "xarray's engine on the file's address: it keeps blocks of 4 MiB"
        ),
        Driver(
            "fsspec-first",
            _FSSPEC,
            "h5py over an s3fs file object that keeps the first block",
            {"cache_type": "first", "block_size": 8 * MIB},
        ),
        Driver(
            "fsspec-background",
            _FSSPEC,
            "h5py over an s3fs file object that fetches the next block too: as earthaccess opens it",
            {"cache_type": "background", "block_size": 8 * MIB},
        ),
        Driver(
            "fsspec-blockcache",
            _FSSPEC,
            "h5py over an s3fs file object that keeps blocks of 8 MiB, the library at its defaults",
            _PUBLISHED_FILE,
        ),
        Driver(
            "fsspec-tuned",
            _FSSPEC,
            "h5py over blocks of 8 MiB, with page buffer and chunk cache: published as tuned",
            {**_PUBLISHED_FILE, **_PUBLISHED_LIBRARY},
        ),
        Driver(
            "ros3",
            _ROS3,
            "HDF5's own S3 driver at its defaults: it keeps blocks of 16 MiB, fetched in parts",
        ),
        Driver(
            "ros3-none",
            _ROS3,
            "HDF5's own S3 driver without any cache: its default before HDF5 1.14.3",
            {"block_cache": 0},
        ),
        Driver(
            "ros3-first",
            _ROS3,
            "HDF5's own S3 driver that keeps the first 16 MiB: its default in HDF5 1.14.3 to 1.14.6",
            {"block_cache": 16 * MIB},
        ),
        Driver(
            "ros3-tuned",
            _ROS3,
            "HDF5's own S3 driver with page buffer and chunk cache: published as tuned",
            _PUBLISHED_LIBRARY,
        ),
        Driver("obstore", _OBSTORE, "h5py over an obstore file object at its defaults"),
        Driver(
            "obstore-tuned",
            _OBSTORE_BLOCKS,
            "h5py over obstore that keeps blocks of 8 MiB, page buffer and chunk cache",
            {"block_size": 8 * MIB, **_PUBLISHED_LIBRARY},
        ),
        Driver(
            "obstore-whole",
            _OBSTORE_WHOLE,
            "h5py in memory, after obstore fetched the whole file in ranges of 8 MiB at once",
            {"part_nbytes": 8 * MIB, "max_workers": _OBSTORE_WHOLE.in_flight},
        ),
        Driver("h5coro", _H5CORO, "h5coro, which reads without HDF5, at its defaults"),
        Driver(
            "pyfive-tuned",
            _PYFIVE,
            "pyfive over an s3fs file object with blocks of 8 MiB and as much metadata at once",
            {**_PUBLISHED_FILE, "metadata_buffer_size": 8},
        ),
        Driver("zarr", _ZARR, "Zarr v3, an object a chunk, through obstore"),
        Driver("zarr-sharded", _ZARR, "Zarr v3, chunks gathered in shards, through obstore"),
        Driver("references", _REFERENCES, "references to chunks of the file, read as Zarr"),
        Driver(
            "references-rechunked",
            _REFERENCES,
            "references to chunks of the file rechunked in pages of 4 MiB, read as Zarr",
        ),
        Driver(
            "icechunk",
            _ICECHUNK,
            "Icechunk, whose chunks lie in the file rechunked in pages of 4 MiB",
        ),
    )
}
"""Every driver of the book in its settings, by name."""


LISTERS = tuple(name for name, one in DRIVERS.items() if "h5py" in one.client.libraries)
"""Drivers that can be asked about the tree: those of h5py."""


def get_drivers(names: Sequence[str], *, has_ros3: bool) -> tuple[list[Driver], list[str]]:
    """Look drivers up: those that can run, and the names of those that cannot without ROS3."""
    asked = [DRIVERS[name] for name in names]
    absent = [driver.name for driver in asked if driver.family == "ros3" and not has_ros3]
    if len(absent) == len(asked):
        raise UserError(f"drivers: {', '.join(names) or 'none'}; allowed: one that is built in")
    return [driver for driver in asked if driver.name not in absent], absent
