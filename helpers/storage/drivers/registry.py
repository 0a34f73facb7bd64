"""Drivers: the ways to open a file in object storage, one line of a registry each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from helpers.errors import UserError
from helpers.storage.drivers import openers
from helpers.storage.drivers.openers import Settings
from helpers.storage.drivers.trees import Tree
from helpers.storage.locations import Location

MIB = 2**20

Kind = Literal["hdf5", "zarr", "zarr-sharded", "references"]

# The two pairs of the published study: a file object and the library above it.
_PUBLISHED_FILE: Settings = {"cache_type": "blockcache", "block_size": 8 * MIB}
_PUBLISHED_LIBRARY: Settings = {"page_buf_size": 16 * MIB, "rdcc_nbytes": 4 * MIB}


@dataclass(frozen=True, slots=True)
class Driver:
    """A way to open a file, with its settings.

    Parameters
    ----------
    name : str
        Name in parameter files, records and figures.
    open : callable
        From the place of the file and the settings to a tree.
    description : str
        One line for readers of the book.
    settings : mapping
        Settings of the client and of the library above it; what is not named
        is at its default.
    kind : {"hdf5", "zarr", "zarr-sharded", "references"}
        What it reads.
    tuned_from : str
        Driver of which this is the tuned setting; empty if it is none.
    needs_ros3 : bool
        Whether it needs an h5py that is built with ROS3.
    registered : str
        Driver of the registry of which this is one with other settings; empty for
        one that is there itself.
    """

    name: str
    open: Callable[[Location, Settings], Tree]
    description: str
    settings: Settings = field(default_factory=dict)
    kind: Kind = "hdf5"
    tuned_from: str = ""
    needs_ros3: bool = False
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
            openers.open_with_fsspec,
            "h5py over an s3fs file object without a cache: published as the default",
            {"cache_type": "none"},
        ),
        Driver(
            "fsspec-readahead",
            openers.open_with_fsspec,
            "h5py over an s3fs file object that reads ahead: the default of s3fs",
            {"cache_type": "readahead"},
        ),
        Driver(
            "fsspec-first",
            openers.open_with_fsspec,
            "h5py over an s3fs file object that keeps the first block",
            {"cache_type": "first", "block_size": 8 * MIB},
        ),
        Driver(
            "fsspec-background",
            openers.open_with_fsspec,
            "h5py over an s3fs file object that fetches the next block in the background",
            {"cache_type": "background", "block_size": 8 * MIB},
        ),
        Driver(
            "fsspec-blockcache",
            openers.open_with_fsspec,
            "h5py over an s3fs file object that keeps blocks of 8 MiB, the library at its defaults",
            _PUBLISHED_FILE,
        ),
        Driver(
            "fsspec-tuned",
            openers.open_with_fsspec,
            "the same with page buffer and chunk cache: published as tuned",
            {**_PUBLISHED_FILE, **_PUBLISHED_LIBRARY},
            tuned_from="fsspec-none",
        ),
        Driver(
            "ros3",
            openers.open_with_ros3,
            "HDF5's own S3 driver at its defaults, with blocks of 16 MiB and a page buffer",
            needs_ros3=True,
        ),
        Driver(
            "ros3-none",
            openers.open_with_ros3,
            "HDF5's own S3 driver without block cache and page buffer: its default before HDF5 2.2",
            {"block_cache": 0},
            needs_ros3=True,
        ),
        Driver(
            "ros3-tuned",
            openers.open_with_ros3,
            "HDF5's own S3 driver with page buffer and chunk cache: published as tuned",
            _PUBLISHED_LIBRARY,
            tuned_from="ros3",
            needs_ros3=True,
        ),
        Driver(
            "obstore", openers.open_with_obstore, "h5py over an obstore file object at its defaults"
        ),
        Driver(
            "obstore-tuned",
            openers.open_with_obstore_blocks,
            "h5py over obstore that keeps blocks of 8 MiB, page buffer and chunk cache",
            {"block_size": 8 * MIB, **_PUBLISHED_LIBRARY},
            tuned_from="obstore",
        ),
        Driver(
            "h5coro", openers.open_with_h5coro, "h5coro, which reads without HDF5, at its defaults"
        ),
        Driver(
            "h5coro-tuned",
            openers.open_with_h5coro,
            "h5coro with cache lines of 8 MiB",
            {"cacheLineSize": 8 * MIB},
            tuned_from="h5coro",
        ),
        Driver(
            "pyfive",
            openers.open_with_pyfive,
            "pyfive, which reads without HDF5, over an s3fs file object at its defaults",
        ),
        Driver(
            "pyfive-tuned",
            openers.open_with_pyfive,
            "pyfive over an s3fs file object with blocks of 8 MiB and as much metadata at once",
            {**_PUBLISHED_FILE, "metadata_buffer_size": 8},
            tuned_from="pyfive",
        ),
        Driver(
            "zarr", openers.open_zarr, "Zarr v3, an object a chunk, through obstore", kind="zarr"
        ),
        Driver(
            "zarr-sharded",
            openers.open_zarr,
            "Zarr v3, chunks gathered in shards, through obstore",
            kind="zarr-sharded",
        ),
        Driver(
            "references",
            openers.open_references,
            "references to the chunks of the HDF5 file, read as Zarr through obstore",
            kind="references",
        ),
    )
}
"""Every driver of the book in its settings, by name."""


def get_drivers(names: Sequence[str], *, has_ros3: bool) -> tuple[list[Driver], list[str]]:
    """Look drivers up, and set aside those that this machine does not have.

    Parameters
    ----------
    names : sequence of str
        Of `DRIVERS`.
    has_ros3 : bool
        Whether an h5py with ROS3 is there.

    Returns
    -------
    tuple of list of Driver and list of str
        Those that can run, and the names of those that cannot.

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
