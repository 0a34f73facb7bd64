"""Caches between the HDF5 library and the wire: which requests a sequence of reads becomes.

Each cache is a record of its settings and simulates what the real one asks
for, read by read, without bytes.
"""

from helpers.models.caches.base import Cache, Read, Reading, read_through
from helpers.models.caches.file_objects import (
    BackgroundCache,
    BlockCache,
    FirstCache,
    NoCache,
    ReadAheadCache,
)
from helpers.models.caches.hdf5 import PageBuffer, Parts, Ros3Cache

__all__ = [
    "BackgroundCache",
    "BlockCache",
    "Cache",
    "FirstCache",
    "NoCache",
    "PageBuffer",
    "Parts",
    "Read",
    "ReadAheadCache",
    "Reading",
    "Ros3Cache",
    "read_through",
]
