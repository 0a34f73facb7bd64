"""Origins: where datasets are read from, with clients that a process keeps."""

from __future__ import annotations

import io
import threading
from dataclasses import replace
from functools import lru_cache
from typing import Any

import obstore
from obspec_utils.registry import ObjectStoreRegistry
from zarr.abc.store import Store
from zarr.storage import ObjectStore

from helpers.storage.locations import Location

_BLOCK_NBYTES = 256 * 2**10
_N_BLOCKS = 32  # 8 MiB of a file


class ObjectFile(io.RawIOBase):
    """An object as a file that can be read from anywhere.

    It keeps blocks of 256 KiB, for HDF5 reads a few bytes here and there, and
    reads through it without an event loop in Python, which could wait for
    the lock that HDF5 holds.

    Parameters
    ----------
    client : obstore.store.S3Store
        Client of the bucket.
    key : str
        Path of the object in the bucket.
    """

    def __init__(self, client: Any, key: str) -> None:
        super().__init__()
        self.key = key
        self._client, self._at = client, 0
        self._nbytes = int(obstore.head(client, key)["size"])
        self._read_block = lru_cache(_N_BLOCKS)(self._fetch_block)

    def _fetch_block(self, number: int) -> bytes:
        start = number * _BLOCK_NBYTES
        end = min(start + _BLOCK_NBYTES, self._nbytes)
        return bytes(obstore.get_range(self._client, self.key, start=start, end=end))

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it can be read from anywhere."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a place.

        Parameters
        ----------
        offset : int
            Bytes from where `whence` says.
        whence : int
            As for any file.

        Returns
        -------
        int
            Bytes from the start.
        """
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._nbytes}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        """Return the place in bytes from the start."""
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        """Read as many bytes as fit, fewer at the end.

        Parameters
        ----------
        buffer : writable buffer
            Where they go.

        Returns
        -------
        int
            Number of bytes read.
        """
        start, end = self._at, min(self._at + len(buffer), self._nbytes)
        while self._at < end:
            number, place = divmod(self._at, _BLOCK_NBYTES)
            part = self._read_block(number)[place : place + end - self._at]
            buffer[self._at - start : self._at - start + len(part)] = part
            self._at += len(part)
        return max(0, end - start)


class Origin:
    """The store that datasets lie in, a folder each, read without a cache.

    Clients are made once a process, for every contender alike: a new client
    for each request would count connections, not what a cache saves.

    Parameters
    ----------
    location : Location
        Folder that holds the folders of the datasets.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self._lock = threading.Lock()
        self._stores: dict[str, Store] = {}
        self._bucket = replace(location, prefix="").obstore()

    def name_of(self, key: str) -> str:
        """Return the dataset that a path in the bucket belongs to.

        Parameters
        ----------
        key : str
            Path of a folder or an object of a dataset.

        Returns
        -------
        str
            Name of the dataset.
        """
        return key.removeprefix(self.location.prefix).strip("/").split("/")[0]

    def zarr_store(self, name: str) -> Store:
        """Return the Zarr store of a dataset.

        Parameters
        ----------
        name : str
            Name of the dataset.

        Returns
        -------
        Store
            The same one each time.
        """
        with self._lock:
            if name not in self._stores:
                self._stores[name] = self._make_zarr_store(name)
            return self._stores[name]

    def _make_zarr_store(self, name: str) -> Store:
        return ObjectStore((self.location / name).obstore(), read_only=True)

    def open_file(self, key: str) -> io.RawIOBase:
        """Open an object as a file.

        Parameters
        ----------
        key : str
            Path of the object in the bucket.

        Returns
        -------
        RawIOBase
            A file of its own for each call.
        """
        return ObjectFile(self._bucket, key)

    def read_object(self, key: str) -> bytes:
        """Read an object whole.

        Parameters
        ----------
        key : str
            Path of the object in the bucket.

        Returns
        -------
        bytes
            Its content.
        """
        return bytes(obstore.get(self._bucket, key).bytes())

    def registry(self) -> ObjectStoreRegistry[Any]:
        """Return by which client virtual references reach their bucket."""
        return ObjectStoreRegistry({replace(self.location, prefix="").url: self._bucket})
