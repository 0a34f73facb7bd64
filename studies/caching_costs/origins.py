"""Origins: where datasets are read from; and entries: opened datasets as authenticated bytes."""

from __future__ import annotations

import hashlib
import hmac
import io
import pickle
import threading
from dataclasses import replace
from functools import lru_cache
from typing import Any

import obstore
import xarray as xr
from obspec_utils.registry import ObjectStoreRegistry
from zarr.abc.store import Store
from zarr.storage import ObjectStore

from helpers.objectstore.locations import Location

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
        """Go to a place."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._nbytes}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        """Return the place in bytes from the start."""
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        """Read as many bytes as fit, fewer at the end."""
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
        """Return the dataset that a path in the bucket belongs to."""
        return key.removeprefix(self.location.prefix).strip("/").split("/")[0]

    def zarr_store(self, name: str) -> Store:
        """Return the Zarr store of a dataset."""
        with self._lock:
            if name not in self._stores:
                self._stores[name] = self._make_zarr_store(name)
            return self._stores[name]

    def _make_zarr_store(self, name: str) -> Store:
        return ObjectStore((self.location / name).obstore(), read_only=True)

    def open_file(self, key: str) -> io.RawIOBase:
        """Open an object as a file."""
        return ObjectFile(self._bucket, key)

    def read_object(self, key: str) -> bytes:
        """Read an object whole."""
        return bytes(obstore.get(self._bucket, key).bytes())

    def registry(self) -> ObjectStoreRegistry[Any]:
        """Return by which client virtual references reach their bucket."""
        return ObjectStoreRegistry({replace(self.location, prefix="").url: self._bucket})


_MAC_NBYTES = hashlib.sha256().digest_size


class TamperedError(Exception):
    """Bytes are not those that this run wrote under that name."""


def seal(payload: bytes, *, name: str, key: bytes) -> bytes:
    """Put a code of authentication before a payload.

    Examples
    --------
    >>> len(seal(b"abc", name="a", key=b"k"))
    35
    """
    return _sign(payload, name, key) + payload


def unseal(sealed: bytes, *, name: str, key: bytes) -> bytes:
    """Check the code of authentication and return the payload.

    Examples
    --------
    >>> unseal(seal(b"abc", name="a", key=b"k"), name="a", key=b"k")
    b'abc'
    """
    mac, payload = sealed[:_MAC_NBYTES], sealed[_MAC_NBYTES:]
    if not hmac.compare_digest(mac, _sign(payload, name, key)):
        raise TamperedError(f"{name}: not written by this run")
    return payload


def _sign(payload: bytes, name: str, key: bytes) -> bytes:
    code = hmac.new(key, f"{len(name)}:{name}".encode(), hashlib.sha256)
    code.update(payload)
    return code.digest()


class _Pickler(pickle.Pickler):
    """Names clients of the store instead of writing them, for they hold credentials."""

    def persistent_id(self, obj: Any) -> tuple[str, str] | None:
        if isinstance(obj, ObjectFile):
            return "file", obj.key
        if isinstance(obj, ObjectStoreRegistry):
            return "registry", ""
        if isinstance(obj, ObjectStore):
            return "zarr", str(obj.store.prefix or "")
        return None


class _Unpickler(pickle.Unpickler):
    """Puts this process's own clients in the place of names."""

    def __init__(self, file: io.BytesIO, origin: Origin) -> None:
        super().__init__(file)
        self._origin = origin

    def persistent_load(self, pid: tuple[str, str]) -> Any:
        kind, key = pid
        if kind == "file":
            return self._origin.open_file(key)
        if kind == "registry":
            return self._origin.registry()
        return self._origin.zarr_store(self._origin.name_of(key))


def dump(dataset: xr.Dataset) -> bytes:
    """Write an opened dataset: metadata and coordinates, no values and no client."""
    file = io.BytesIO()
    _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(dataset)
    return file.getvalue()


def load(payload: bytes, origin: Origin) -> xr.Dataset:
    """Read what `dump` wrote; only after `unseal`.

    Parameters
    ----------
    payload : bytes
        An authenticated pickle.
    origin : Origin
        Whose clients the dataset reads with.

    Returns
    -------
    Dataset
        As it was opened.
    """
    dataset: xr.Dataset = _Unpickler(io.BytesIO(payload), origin).load()
    return dataset
