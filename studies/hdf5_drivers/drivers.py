"""Drivers: the ways to open a file in object storage, one line of a registry each."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import h5py
import pyfive
import zarr
from h5coro.h5coro import H5Coro
from h5coro.s3driver import S3Driver
from virtualizarr.parsers import KerchunkJSONParser
from zarr.storage import ObjectStore

from helpers.arrays.writers import expected_warning, make_registry
from helpers.errors import UserError
from helpers.objectstore.locations import Location
from studies.hdf5_drivers.tasks import BlockFile, H5CoroTree, MappingTree, PlainFile, Tree, ZarrTree

CONVERTED = "gt1l/heights"
"""Group that conversions hold: they are for the arrays that are read."""

Settings = Mapping[str, int | str]
"""Settings of a client, and of the library above it."""

_LIBRARY = ("page_buf_size", "rdcc_nbytes")


def _library_settings(settings: Settings) -> dict[str, Any]:
    return {name: settings[name] for name in _LIBRARY if name in settings}


def _client_settings(settings: Settings) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in _LIBRARY}


def _open_over(file: Any, settings: Settings) -> Tree:
    """Open through h5py over a file object, which is closed after it."""
    return MappingTree(h5py.File(file, "r", **_library_settings(settings)), file.close)


def open_with_fsspec(location: Location, settings: Settings) -> Tree:
    """Open through h5py over a file object of s3fs."""
    file = location.fsspec().open(location.path, "rb", **_client_settings(settings))
    return _open_over(file, settings)


def open_with_obstore(location: Location, settings: Settings) -> Tree:
    """Open through h5py over a file object of obstore."""
    return _open_over(PlainFile(location, **_client_settings(settings)), settings)


def open_with_obstore_blocks(location: Location, settings: Settings) -> Tree:
    """Open through h5py over blocks that are fetched with obstore."""
    return _open_over(BlockFile(location, block_size=int(settings["block_size"])), settings)


def open_with_ros3(location: Location, settings: Settings) -> Tree:
    """Open through HDF5's own driver; ``block_cache`` of 0 turns its caches off."""
    if "block_cache" in settings:
        return MappingTree(_open_without_caches(location))
    options: dict[str, Any] = {"aws_region": location.region.encode()}
    if location.access_key and location.secret_key:
        options["secret_id"] = location.access_key.encode()
        options["secret_key"] = location.secret_key.encode()
    file = h5py.File(location.url, "r", driver="ros3", **options, **_library_settings(settings))
    return MappingTree(file)


def _open_without_caches(location: Location) -> h5py.File:
    """Open by ROS3 as it was before HDF5 2.2, which asks for a block cache and a page buffer.

    h5py has no name for the block cache, so that the library is called.
    """
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    keys = (location.access_key or "").encode(), (location.secret_key or "").encode()
    access.set_fapl_ros3(location.region.encode(), *keys)
    access.set_page_buffer_size(0, 0, 0)
    set_blocks = getattr(ctypes.CDLL(h5py.h5p.__file__), "H5Pset_fapl_ros3_block_caching", None)
    if set_blocks is not None:  # earlier versions have no block cache
        set_blocks.argtypes = [ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_bool]
        if set_blocks(access.id, 0, 0, True) < 0:
            raise UserError("block_cache: 0; allowed: what this HDF5 takes, which is not that")
    return h5py.File(h5py.h5f.open(location.url.encode(), h5py.h5f.ACC_RDONLY, fapl=access))


def open_with_pyfive(location: Location, settings: Settings) -> Tree:
    """Open through pyfive over a file object of s3fs."""
    client = {name: value for name, value in settings.items() if name != "metadata_buffer_size"}
    more = {name: value for name, value in settings.items() if name not in client}
    file = location.fsspec().open(location.path, "rb", **client)
    return MappingTree(pyfive.File(file, **more), file.close)


def open_with_h5coro(location: Location, settings: Settings) -> Tree:
    """Open through h5coro and its own client of S3."""
    # its client takes endpoint and credentials from the environment of the process
    return H5CoroTree(H5Coro(location.path, S3Driver, **settings))


def open_zarr(location: Location, settings: Settings) -> Tree:
    """Open a Zarr group through obstore."""
    store = ObjectStore(location.obstore(), read_only=True)
    return ZarrTree(zarr.open_group(store, mode="r", zarr_format=3))


def open_references(location: Location, settings: Settings) -> Tree:
    """Open references to an HDF5 file as Zarr through obstore."""
    with expected_warning("Numcodecs codecs are not in the Zarr version 3"):
        store = KerchunkJSONParser()(location.url, make_registry(location))
        group = zarr.open_group(store, mode="r", zarr_format=3)
        return ZarrTree(group, stands_for=CONVERTED)


MIB = 2**20

Kind = Literal["hdf5", "zarr", "zarr-sharded", "references"]

# The two pairs of the published study: a file object and the library above it.
_PUBLISHED_FILE: Settings = {"cache_type": "blockcache", "block_size": 8 * MIB}
_PUBLISHED_LIBRARY: Settings = {"page_buf_size": 16 * MIB, "rdcc_nbytes": 4 * MIB}


@dataclass(frozen=True, slots=True)
class Driver:
    """A way to open a file, with its settings."""

    name: str  # name in parameter files, records and figures
    # from the place of the file and the settings to a tree
    open: Callable[[Location, Settings], Tree]
    description: str  # one line for readers of the book
    # settings of the client and of the library above it; what is not named is at its default
    settings: Settings = field(default_factory=dict)
    kind: Kind = "hdf5"  # what it reads
    tuned_from: str = ""  # driver of which this is the tuned setting; empty if it is none
    needs_ros3: bool = False  # whether it needs an h5py that is built with ROS3
    # driver of the registry of which this is one with other settings; empty for one that is there
    # itself
    registered: str = ""

    @property
    def registered_name(self) -> str:
        """Name of the registry's driver of which this is one with other settings."""
        return self.registered or self.name

    @property
    def page_buffer_nbytes(self) -> int:
        """Bytes of the page buffer that the settings ask for; 0 for the library's default."""
        return int(self.settings.get("page_buf_size", 0))


DRIVERS: Mapping[str, Driver] = {
    driver.name: driver
    for driver in (
        Driver(
            "fsspec-none",
            open_with_fsspec,
            "h5py over an s3fs file object without a cache: published as the default",
            {"cache_type": "none"},
        ),
        Driver(
            "fsspec-readahead",
            open_with_fsspec,
            "h5py over an s3fs file object that reads ahead: the default of s3fs",
            {"cache_type": "readahead"},
        ),
        Driver(
            "fsspec-first",
            open_with_fsspec,
            "h5py over an s3fs file object that keeps the first block",
            {"cache_type": "first", "block_size": 8 * MIB},
        ),
        Driver(
            "fsspec-background",
            open_with_fsspec,
            "h5py over an s3fs file object that fetches the next block in the background",
            {"cache_type": "background", "block_size": 8 * MIB},
        ),
        Driver(
            "fsspec-blockcache",
            open_with_fsspec,
            "h5py over an s3fs file object that keeps blocks of 8 MiB, the library at its defaults",
            _PUBLISHED_FILE,
        ),
        Driver(
            "fsspec-tuned",
            open_with_fsspec,
            "the same with page buffer and chunk cache: published as tuned",
            {**_PUBLISHED_FILE, **_PUBLISHED_LIBRARY},
            tuned_from="fsspec-none",
        ),
        Driver(
            "ros3",
            open_with_ros3,
            "HDF5's own S3 driver at its defaults, with blocks of 16 MiB and a page buffer",
            needs_ros3=True,
        ),
        Driver(
            "ros3-none",
            open_with_ros3,
            "HDF5's own S3 driver without block cache and page buffer: its default before HDF5 2.2",
            {"block_cache": 0},
            needs_ros3=True,
        ),
        Driver(
            "ros3-tuned",
            open_with_ros3,
            "HDF5's own S3 driver with page buffer and chunk cache: published as tuned",
            _PUBLISHED_LIBRARY,
            tuned_from="ros3",
            needs_ros3=True,
        ),
        Driver("obstore", open_with_obstore, "h5py over an obstore file object at its defaults"),
        Driver(
            "obstore-tuned",
            open_with_obstore_blocks,
            "h5py over obstore that keeps blocks of 8 MiB, page buffer and chunk cache",
            {"block_size": 8 * MIB, **_PUBLISHED_LIBRARY},
            tuned_from="obstore",
        ),
        Driver("h5coro", open_with_h5coro, "h5coro, which reads without HDF5, at its defaults"),
        Driver(
            "h5coro-tuned",
            open_with_h5coro,
            "h5coro with cache lines of 8 MiB",
            {"cacheLineSize": 8 * MIB},
            tuned_from="h5coro",
        ),
        Driver(
            "pyfive",
            open_with_pyfive,
            "pyfive, which reads without HDF5, over an s3fs file object at its defaults",
        ),
        Driver(
            "pyfive-tuned",
            open_with_pyfive,
            "pyfive over an s3fs file object with blocks of 8 MiB and as much metadata at once",
            {**_PUBLISHED_FILE, "metadata_buffer_size": 8},
            tuned_from="pyfive",
        ),
        Driver("zarr", open_zarr, "Zarr v3, an object a chunk, through obstore", kind="zarr"),
        Driver(
            "zarr-sharded",
            open_zarr,
            "Zarr v3, chunks gathered in shards, through obstore",
            kind="zarr-sharded",
        ),
        Driver(
            "references",
            open_references,
            "references to the chunks of the HDF5 file, read as Zarr through obstore",
            kind="references",
        ),
    )
}
"""Every driver of the book in its settings, by name."""


def get_drivers(names: Sequence[str], *, has_ros3: bool) -> tuple[list[Driver], list[str]]:
    """Look drivers up: those that can run, and the names of those that cannot without ROS3.

    Raises
    ------
    UserError
        If a name is unknown, or nothing is left to run.
    """
    if unknown := [name for name in names if name not in DRIVERS]:
        raise UserError(f"drivers: {', '.join(unknown)}; allowed: {', '.join(DRIVERS)}")
    asked = [DRIVERS[name] for name in names]
    absent = [driver.name for driver in asked if driver.needs_ros3 and not has_ros3]
    if len(absent) == len(asked):
        raise UserError(f"drivers: {', '.join(names) or 'none'}; allowed: one that is built in")
    return [driver for driver in asked if driver.name not in absent], absent
