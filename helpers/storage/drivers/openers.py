"""How each library opens a file in object storage."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import h5py
import pyfive
import zarr
from h5coro.h5coro import H5Coro
from h5coro.s3driver import S3Driver
from virtualizarr.parsers import KerchunkJSONParser
from zarr.storage import ObjectStore

from helpers.errors import UserError
from helpers.storage.drivers.fileobjects import BlockFile, PlainFile
from helpers.storage.drivers.trees import H5CoroTree, MappingTree, Tree, ZarrTree
from helpers.storage.layouts import expected_warning, make_registry
from helpers.storage.locations import Location

CONVERTED = "gt1l/heights"
"""Group that conversions hold: they are for the arrays that are read."""

Settings = Mapping[str, int | str]
"""Settings of a client, and of the library above it."""

_LIBRARY = ("page_buf_size", "rdcc_nbytes")


def _library_settings(settings: Settings) -> dict[str, Any]:
    return {name: settings[name] for name in _LIBRARY if name in settings}


def _client_settings(settings: Settings) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in _LIBRARY}


def open_with_fsspec(location: Location, settings: Settings) -> Tree:
    """Open through h5py over a file object of s3fs."""
    file = location.fsspec().open(location.path, "rb", **_client_settings(settings))
    return MappingTree(h5py.File(file, "r", **_library_settings(settings)), file.close)


def open_with_obstore(location: Location, settings: Settings) -> Tree:
    """Open through h5py over a file object of obstore."""
    file = PlainFile(location, **_client_settings(settings))
    return MappingTree(h5py.File(file, "r", **_library_settings(settings)), file.close)


def open_with_obstore_blocks(location: Location, settings: Settings) -> Tree:
    """Open through h5py over blocks that are fetched with obstore."""
    file = BlockFile(location, block_size=int(settings["block_size"]))
    return MappingTree(h5py.File(file, "r", **_library_settings(settings)), file.close)


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
