"""Formats: how an array is written, and the ways in which it is read.

A *layout* is what lies in the store (a Zarr group, a netCDF file, references
to that file); a *reader* is a way to open it as a Dask array. Each is one
entry of a registry, so that a new contender is one function and one line.
"""

from helpers.storage.layouts import (
    CODECS,
    DIMENSIONS,
    LAYOUTS,
    WRITERS,
    Block,
    Blocks,
    Codec,
    Layout,
    iterate_blocks,
    write_netcdf,
    write_references,
    write_zarr,
)
from helpers.storage.readers import READERS, Chunks, LimitedStore, Reader

__all__ = [
    "CODECS",
    "DIMENSIONS",
    "LAYOUTS",
    "READERS",
    "WRITERS",
    "Block",
    "Blocks",
    "Chunks",
    "Codec",
    "Layout",
    "LimitedStore",
    "Reader",
    "iterate_blocks",
    "write_netcdf",
    "write_references",
    "write_zarr",
]
