"""Drivers: the ways to open a file in object storage, and what is read of it.

A driver registers itself here, or in a module of its own in this folder.
"""

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
from helpers.plotting import palette
from helpers.registry import Registry, leave_out
from studies.hdf5_drivers.ros3 import ABSENT, find_python, start_ros3
from wire.bed.locations import Location
from wire.clients import CLIENTS
from wire.errors import UserError
from wire.hdf5.prediction import BLOCKS, DEFAULT, MIB, ROS3, XARRAY, ReadMethod, choose_earthaccess

Values = list[NDArray[Any]]

VARIABLES, ONE_VARIABLE = "variables", "one variable"
SIX_VARIABLES, TWELVE_VARIABLES = "six variables", "twelve variables"


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
    """Open through h5py over a file object of the client that fsspec has for the store.

    That of S3 is forgotten before each read, as `forget_clients` does; any other is new here.
    """
    client = {name: value for name, value in settings.items() if name not in _LIBRARY}
    library = {name: value for name, value in settings.items() if name in _LIBRARY}
    is_new = {} if location.scheme == "s3" else {"skip_instance_cache": True}
    file = location.fsspec(**is_new).open(location.path, "rb", **client)
    return Tree(h5py.File(file, "r", **library), file.close)


def open_with_earthaccess(location: Location, _settings: Settings) -> Tree:
    """Open through h5py over a file object of s3fs, with what `earthaccess.open` sets for its length."""
    nbytes = int(location.fsspec().size(location.path))
    method = choose_earthaccess(nbytes)
    blocks: Settings = {"cache_type": method.cache_type, "block_size": method.block_nbytes}
    return open_with_fsspec(location, blocks)


def open_with_ros3(location: Location, settings: Settings) -> Tree:
    """Open through HDF5's own driver, in the process that has it."""
    if not (python := find_python()):
        raise UserError("ROS3", "no h5py has it here", ABSENT.partition(": ")[2])
    file = start_ros3(python)
    file.open(location, settings)
    return Tree(file)


def _explain_no_ros3() -> str:
    """Explain how to get ROS3 where no Python here has it; return nothing where one has."""
    return "" if find_python() else ABSENT


def _list_versions_of_ros3() -> Mapping[str, str]:
    """Return the versions that the process of ROS3 has imported."""
    versions = start_ros3(find_python()).versions if find_python() else {}
    return {f"{name} of ROS3": version for name, version in versions.items()}


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


def _need_nothing() -> str:
    """Return no reason why a driver is absent: this environment has it."""
    return ""


def _import_nothing() -> Mapping[str, str]:
    """Return no versions beside those that this process has imported."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A way to open a file, with its settings."""

    name: str  # in parameter files, records and figures
    label: str  # on pages
    color: str  # in figures, of its library; with a marker for each of its caches
    marker: str
    open: Callable[[Location, Settings], Tree]  # from the place of the file
    description: str  # one line for readers of the book
    packages: tuple[str, ...]  # that it imports, whose versions decide what it does
    method: ReadMethod  # what it is to the model, which says what comes between library and network
    service: str = "s3"  # who serves the file: s3, or one of `helpers.arrays.services`
    n_concurrent: int = 0  # concurrent requests, where the model has another number
    # settings of the client and of the library above it; what is not named is at its default
    settings: Settings = field(default_factory=dict)
    # why it cannot run here and how to get it, and versions of a process of its own
    explain_absence: Callable[[], str] = _need_nothing
    list_versions: Callable[[], Mapping[str, str]] = _import_nothing

    @property
    def concurrency(self) -> int:
        """Concurrent requests that its settings or defaults allow."""
        return self.n_concurrent or self.method.in_flight

    def read(self, tree: Tree, names: Sequence[str]) -> Values:
        """Read variables whole, one after the other."""
        return read_all(tree, names)


DRIVERS: Registry[Driver] = Registry("driver", __name__)
"""Every driver of the book in its settings, by name; a module in this folder adds another."""


def find_absent(reads: Iterable[str]) -> dict[str, str]:
    """Find the "driver on layout" whose driver is not here, each with the reason and how to get it.

    Where a page is rendered from its record, a driver that is not here is refused.
    """
    reasons = {read: DRIVERS[read.partition(" on ")[0]].explain_absence() for read in reads}
    return leave_out({read: reason for read, reason in reasons.items() if reason})


_LIBRARY_TUNED: Settings = {"page_buf_size": 16 * MIB, "rdcc_nbytes": 4 * MIB}  # as published
_NO_BLOCKS: Settings = {"block_nbytes": 0, "blocks_nbytes": 0}

_S3FS, _OBSTORE = ("h5py", "s3fs"), ("h5py", "obstore")
_ROS3: dict[str, Any] = {
    "color": palette.RED,
    "open": open_with_ros3,
    "packages": (),  # those of another process
    "explain_absence": _explain_no_ros3,
    "list_versions": _list_versions_of_ros3,
}

DRIVERS.register(
    Driver(
        name="fsspec-readahead",
        label=CLIENTS["fsspec-readahead"].label,
        color=palette.BLUE,
        marker=">",
        open=open_with_fsspec,
        description="h5py over `s3fs.open(path)`, nothing set",
        packages=_S3FS,
        method=DEFAULT,
    ),
    Driver(
        name="xarray",
        label="xarray, default",
        color=palette.PURPLE,
        marker="v",
        open=open_with_xarray,
        description="`xarray.open_dataset(address)`, nothing set",
        packages=("xarray", "h5netcdf", "s3fs"),
        method=XARRAY,
    ),
    Driver(
        name="fsspec-none",
        label="s3fs, no cache",
        color=palette.BLUE,
        marker="d",
        open=open_with_fsspec,
        description="h5py over an s3fs file object without a cache: published as the default",
        packages=_S3FS,
        method=ReadMethod("no cache", cache_type="none"),
        settings={"cache_type": "none"},
    ),
    Driver(
        name="fsspec-tuned",
        label=CLIENTS["fsspec-tuned"].label,
        color=palette.BLUE,
        marker="o",
        open=open_with_fsspec,
        description="h5py over blocks of 8 MiB, with page buffer and chunk cache: published as tuned",
        packages=_S3FS,
        method=BLOCKS,
        settings={"cache_type": "blockcache", "block_size": 8 * MIB, **_LIBRARY_TUNED},
    ),
    Driver(
        name="obstore-whole",
        label=CLIENTS["obstore-whole"].label,
        color=palette.GREEN,
        marker="*",
        open=open_whole,
        description="h5py in memory, after obstore fetched the file in ranges of 8 MiB, ten at once",
        packages=_OBSTORE,
        method=ReadMethod("whole", "whole", in_flight=CLIENTS["obstore-whole"].concurrency),
        settings={"part_nbytes": 8 * MIB, "max_workers": CLIENTS["obstore-whole"].concurrency},
    ),
    Driver(
        name="references",
        label=f"virtual Zarr, {CLIENTS['references'].concurrency} requests",
        color=palette.INDIGO,
        marker="h",
        open=open_references,
        description="virtual references to the chunks of the file, read as Zarr through obstore",
        packages=CLIENTS["references"].packages,
        method=ReadMethod("references", "references", in_flight=CLIENTS["references"].concurrency),
    ),
    Driver(
        name="earthaccess",
        label="earthaccess, default",
        color=palette.BROWN,
        marker="^",
        open=open_with_earthaccess,
        description="h5py over the file object that `earthaccess.open` makes: blocks of 4 to 16 MiB, the next one fetched too",
        packages=_S3FS,
        method=choose_earthaccess(0),
    ),
    Driver(
        **_ROS3,
        name="ros3",
        label="ROS3, default",
        marker="<",
        description="HDF5's own S3 driver, nothing set: eight blocks of 16 MiB and a page buffer of 64 MiB",
        method=ROS3,
    ),
    Driver(
        **_ROS3,
        name="ros3-none",
        label="ROS3, no cache",
        marker="D",
        description="HDF5's own S3 driver without any cache: published as the default",
        method=ReadMethod("ROS3, no cache", cache_type="none"),
        settings={**_NO_BLOCKS, "page_buf_size": 0},
    ),
    Driver(
        **_ROS3,
        name="ros3-tuned",
        label="ROS3, page buffer",
        marker="p",
        description="HDF5's own S3 driver with page buffer and chunk cache: published as tuned",
        method=ReadMethod("ROS3, page buffer", cache_type="none", page_buffer_nbytes=16 * MIB),
        settings={**_NO_BLOCKS, **_LIBRARY_TUNED},
    ),
    Driver(
        **_ROS3,
        name="ros3-blocks",
        label="ROS3, 8 MiB blocks",
        marker="s",
        description="HDF5's own S3 driver with all caches of the tuned file object: blocks of 8 MiB, 256 MiB in all",
        method=BLOCKS,
        settings={"block_nbytes": 8 * MIB, "blocks_nbytes": 256 * MIB, **_LIBRARY_TUNED},
    ),
)
