"""File objects over obstore, for libraries that read through one."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import obstore
from fsspec.caching import BlockCache

from helpers.storage.locations import Location


def split_object(location: Location) -> tuple[Location, str]:
    """Split the place of an object into its folder and its name.

    Parameters
    ----------
    location : Location
        Place of the object.

    Returns
    -------
    tuple of Location and str
        Folder, and name below it.
    """
    prefix, _, name = location.prefix.rpartition("/")
    return replace(location, prefix=prefix), name


class PlainFile:
    """A reader of obstore as h5py takes file objects.

    Its buffer is fetched anew after each seek.

    Parameters
    ----------
    location : Location
        Place of the object.
    **options
        For `obstore.open_reader`, as in ``buffer_size``.
    """

    def __init__(self, location: Location, **options: Any) -> None:
        folder, key = split_object(location)
        self._file = obstore.open_reader(folder.obstore(), key, **options)
        self.seek, self.tell, self.close = self._file.seek, self._file.tell, self._file.close

    def readinto(self, buffer: memoryview) -> int:
        """Read into a buffer; return the bytes that were there."""
        found = memoryview(self._file.read(len(buffer)))
        buffer[: len(found)] = found
        return len(found)

    def read(self, nbytes: int = -1) -> bytes:
        """Read bytes; all that follow by default."""
        return bytes(self._file.read() if nbytes < 0 else self._file.read(nbytes))


class BlockFile(io.RawIOBase):
    """An object that is read through obstore in blocks, which are kept.

    The cache is fsspec's, so that only the client differs from an s3fs file
    object with the same cache.

    Parameters
    ----------
    location : Location
        Place of the object.
    block_size : int
        Bytes of a block.
    """

    def __init__(self, location: Location, *, block_size: int) -> None:
        folder, self._key = split_object(location)
        self._store = folder.obstore()
        self._nbytes = int(obstore.head(self._store, self._key)["size"])
        self._cache = BlockCache(block_size, self._fetch, self._nbytes)
        self._at = 0

    def _fetch(self, start: int, stop: int) -> bytes:
        return bytes(obstore.get_range(self._store, self._key, start=start, end=stop))

    def seekable(self) -> bool:
        """Say that there is a place to read from."""
        return True

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def tell(self) -> int:
        """Return the place of the next read, in bytes."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a place, in bytes, from the start, from here or from the end."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._nbytes}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return the bytes that were there."""
        stop = min(self._at + len(buffer), self._nbytes)
        found = self._cache._fetch(self._at, stop)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)
