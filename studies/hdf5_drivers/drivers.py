"""Drivers: the ways to open a file in object storage, one line of a registry each, and what is read of it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import h5netcdf  # noqa: F401  # its engine of xarray would import it in the clock
import h5py
import numpy as np
import obstore
import xarray
import xxhash
import zarr
from numpy.typing import NDArray
from virtualizarr.parsers import KerchunkJSONParser

from helpers.arrays.readers import expected_warning, make_registry
from studies.hdf5_drivers.ros3 import ABSENT, find_python, start_ros3
from wire.bed.locations import Location
from wire.hdf5.prediction import BLOCKS, DEFAULT, MIB, XARRAY, Way, choose_earthaccess

Values = list[NDArray[Any]]

VARIABLES, ONE_VARIABLE = "variables", "one variable"


class Tree:
    """An open file: its root group, or a group of it, as h5py, xarray or zarr have it.

    `close` closes what lies below the root group, such as a file object.
    """

    def __init__(
        self, root: Any, close: Callable[[], None] = lambda: None, *, stands_for: str = ""
    ) -> None:
        self.root, self._close, self._prefix = root, close, f"{stands_for}/" if stands_for else ""

    def __getitem__(self, name: str) -> Any:
        """Return a variable, of which `[:]` reads everything."""
        return self.root[name.removeprefix(self._prefix)]

    def close(self) -> None:
        """Close the file, then what lies below."""
        if hasattr(self.root, "close"):
            self.root.close()
        self._close()


def read_all(tree: Tree, names: Sequence[str]) -> Values:
    """Read variables whole, one after the other, as a program of a scientist does."""
    return [np.asarray(tree[name][:]) for name in names]


@dataclass(frozen=True, slots=True)
class Answer:
    """What proves that variables were read: a checksum, and how much it was."""

    checksum: str  # of the values
    n_items: int  # variables
    nbytes: int  # bytes of the values in memory


def prove(arrays: Values) -> Answer:
    """Prove what was read, whatever the order of bytes that a library keeps."""
    whole = xxhash.xxh3_64()
    for values in arrays:
        native = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
        whole.update(f"{native.dtype.str}{native.shape}".encode())
        whole.update(native.data if native.size else b"")
    return Answer(whole.hexdigest(), len(arrays), sum(values.nbytes for values in arrays))


CONVERTED = "gt1l/heights"
"""Group whose chunks references hold: that of the arrays that are read."""

Settings = Mapping[str, int | str]
"""Settings of a client, and of the library above it."""

_LIBRARY = ("page_buf_size", "rdcc_nbytes")


def open_with_fsspec(location: Location, settings: Settings) -> Tree:
    """Open through h5py over a file object of s3fs."""
    client = {name: value for name, value in settings.items() if name not in _LIBRARY}
    library = {name: value for name, value in settings.items() if name in _LIBRARY}
    file = location.fsspec().open(location.path, "rb", **client)
    return Tree(h5py.File(file, "r", **library), file.close)


def open_with_earthaccess(location: Location, _settings: Settings) -> Tree:
    """Open through h5py over a file object of s3fs, with what `earthaccess.open` sets for its length."""
    nbytes = int(location.fsspec().size(location.path))
    way = choose_earthaccess(nbytes)
    blocks: Settings = {"cache_type": way.cache_type, "block_size": way.block_nbytes}
    return open_with_fsspec(location, blocks)


def open_with_ros3(location: Location, settings: Settings) -> Tree:
    """Open through HDF5's own driver, in the process that has it."""
    file = start_ros3(find_python())
    file.open(location, settings)
    return Tree(file)


def find_absent(reads: Iterable[str]) -> dict[str, str]:
    """Find the reads whose driver is not here, each with the reason and how to get it."""
    absent = [read for read in reads if read.startswith("ros3")]
    return dict.fromkeys([] if find_python() else absent, ABSENT)


def open_with_xarray(location: Location, settings: Settings) -> Tree:
    """Open a group by its address, as users of xarray do; the engine makes the file object."""
    options: dict[str, Any] = {"storage_options": location.fsspec_options(), **settings}
    with expected_warning("The 'phony_dims' kwarg now defaults to"):
        group = xarray.open_dataset(location.url, engine="h5netcdf", group=CONVERTED, **options)
    return Tree(group, stands_for=CONVERTED)


def open_whole(location: Location, settings: Settings) -> Tree:
    """Fetch the file by obstore in ranges, several at once, and open it in memory by h5py."""
    content = fetch_whole(location, int(settings["part_nbytes"]), int(settings["max_workers"]))
    return Tree(h5py.File(content, "r"))


def fetch_whole(location: Location, part_nbytes: int, max_workers: int) -> io.BytesIO:
    """Fetch a whole object in ranges, so many at once, each to its place in one buffer."""
    prefix, _, key = location.prefix.rpartition("/")
    store = replace(location, prefix=prefix).obstore()
    nbytes = int(obstore.head(store, key)["size"])
    content = io.BytesIO()
    content.seek(nbytes - 1)
    content.write(b"\0")  # all of its memory, once

    def fetch(start: int) -> None:
        stop = min(start + part_nbytes, nbytes)
        buffer[start:stop] = obstore.get_range(store, key, start=start, end=stop)

    with content.getbuffer() as buffer, ThreadPoolExecutor(max_workers) as pool:
        list(pool.map(fetch, range(0, nbytes, part_nbytes)))  # `get_ranges` joins what is adjacent
    return content


def open_references(location: Location, _settings: Settings) -> Tree:
    """Open references to a file, which lie next to it, as Zarr through obstore."""
    with expected_warning("Numcodecs codecs are not in the Zarr version 3"):
        address = location.url.removesuffix(".h5") + ".json"
        store = KerchunkJSONParser()(address, make_registry(location))
        return Tree(zarr.open_group(store, mode="r", zarr_format=3), stands_for=CONVERTED)


@dataclass(frozen=True, slots=True)
class Driver:
    """A way to open a file, with its settings."""

    name: str  # in parameter files, records and figures
    open: Callable[[Location, Settings], Tree]  # from the place of the file
    description: str  # one line for readers of the book
    way: Way  # what it is to the model, which says what comes between library and network
    # settings of the client and of the library above it; what is not named is at its default
    settings: Settings = field(default_factory=dict)

    @property
    def in_flight(self) -> int:
        """Requests that its settings or defaults let it have in flight."""
        return self.way.in_flight


_LIBRARY_TUNED: Settings = {"page_buf_size": 16 * MIB, "rdcc_nbytes": 4 * MIB}  # as published
_NO_BLOCKS: Settings = {"block_nbytes": 0, "blocks_nbytes": 0}

DRIVERS: Mapping[str, Driver] = {
    driver.name: driver
    for driver in (
        Driver(
            "fsspec-readahead",
            open_with_fsspec,
            "h5py over `s3fs.open(path)`, nothing set",
            DEFAULT,
        ),
        Driver("xarray", open_with_xarray, "`xarray.open_dataset(address)`, nothing set", XARRAY),
        Driver(
            "fsspec-none",
            open_with_fsspec,
            "h5py over an s3fs file object without a cache: published as the default",
            Way("no cache", cache_type="none"),
            {"cache_type": "none"},
        ),
        Driver(
            "fsspec-tuned",
            open_with_fsspec,
            "h5py over blocks of 8 MiB, with page buffer and chunk cache: published as tuned",
            BLOCKS,
            {"cache_type": "blockcache", "block_size": 8 * MIB, **_LIBRARY_TUNED},
        ),
        Driver(
            "obstore-whole",
            open_whole,
            "h5py in memory, after obstore fetched the file in ranges of 8 MiB, ten at once",
            Way("whole", "whole", in_flight=10),
            {"part_nbytes": 8 * MIB, "max_workers": 10},
        ),
        Driver(
            "references",
            open_references,
            "virtual references to the chunks of the file, read as Zarr through obstore",
            Way("references", "references", in_flight=10),
        ),
        Driver(
            "earthaccess",
            open_with_earthaccess,
            "h5py over the file object that `earthaccess.open` makes: blocks of 4 to 16 MiB, the next one fetched too",
            choose_earthaccess(0),
        ),
        Driver(
            "ros3",
            open_with_ros3,
            "HDF5's own S3 driver, nothing set: blocks of 16 MiB and a page buffer of 64 MiB",
            Way("ROS3", block_nbytes=16 * MIB, page_buffer_nbytes=64 * MIB),
        ),
        Driver(
            "ros3-none",
            open_with_ros3,
            "HDF5's own S3 driver without any cache: published as the default",
            Way("ROS3, no cache", cache_type="none"),
            {**_NO_BLOCKS, "page_buf_size": 0},
        ),
        Driver(
            "ros3-tuned",
            open_with_ros3,
            "HDF5's own S3 driver with page buffer and chunk cache: published as tuned",
            Way("ROS3, page buffer", cache_type="none", page_buffer_nbytes=16 * MIB),
            {**_NO_BLOCKS, **_LIBRARY_TUNED},
        ),
        Driver(
            "ros3-blocks",
            open_with_ros3,
            "HDF5's own S3 driver with all caches of the tuned file object: blocks of 8 MiB, 256 MiB in all",
            BLOCKS,
            {"block_nbytes": 8 * MIB, "blocks_nbytes": 256 * MIB, **_LIBRARY_TUNED},
        ),
    )
}
"""Every driver of the book in its settings, by name; another is a line here and what opens it."""
