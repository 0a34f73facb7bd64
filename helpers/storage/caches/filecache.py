"""Files of fsspec's `filecache` as an origin: each is checked before it is used."""

from __future__ import annotations

import asyncio
import collections
import hashlib
import io
import json
import os
import shutil
import stat
import threading
from pathlib import Path
from typing import Any

import fsspec
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import ObjectStore, WrapperStore

from helpers.storage.caches.backends import make_private
from helpers.storage.caches.counts import Counter
from helpers.storage.caches.entries import TamperedError, seal, unseal
from helpers.storage.caches.origins import Origin
from helpers.storage.locations import Location

_MAC = "code-of-authentication"


class FileCacheOrigin(Origin):
    """Read objects through fsspec's `filecache`.

    One such cache for all threads loses files: it lists a file before it has
    it, and reads its list from disk again when another thread writes it. So
    each object has a cache of its own, used by one thread at a time, and beside
    its file a code of authentication. What does not fit is read from the store.

    Parameters
    ----------
    location : Location
        Folder that holds the folders of the datasets.
    folder : Path
        Folder of the files; made if absent, for this user alone.
    key : bytes
        Key of the run.
    """

    def __init__(self, location: Location, folder: Path, key: bytes) -> None:
        super().__init__(location)
        make_private(folder)
        self.counter = Counter()
        self._key, self._folder, self._remote = key, folder, location.fsspec()
        self._locks: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)

    def clear(self) -> None:
        """Delete all files and begin to count at zero."""
        for path in self._folder.iterdir():
            _remove(path)
        self.counter.reset()

    def read_object(self, key: str) -> bytes:
        """Read an object from its file, or from the store and then keep it.

        Parameters
        ----------
        key : str
            Path of the object in the bucket.

        Returns
        -------
        bytes
            Its content as the store has it.
        """
        with self._lock:
            lock = self._locks[key]
        with lock:
            kept = self._read_file(key)
            if kept is not None:
                self.counter.add("hits")
                return kept
            fetched = self._fetch(key)
            self.counter.add("misses")  # what is absent is no entry, and is asked for each time
            return fetched

    def _folder_of(self, key: str) -> Path:
        return self._folder / hashlib.sha256(key.encode()).hexdigest()

    def _read(self, key: str) -> bytes:
        """Read an object through the cache, which fetches it if it has not."""
        files = fsspec.filesystem(
            "filecache",
            fs=self._remote,
            cache_storage=str(self._folder_of(key)),
            skip_instance_cache=True,
        )
        with files.open(f"{self.location.bucket}/{key}") as file:
            return bytes(file.read())

    def _read_file(self, key: str) -> bytes | None:
        """Read an object that is there already; None if it is not, or not as it was.

        What is not whole is forgotten, for fsspec would hand it to be signed.
        """
        folder = self._folder_of(key)
        if not os.path.lexists(folder):
            return None
        try:
            _check_files(folder, f"{self.location.bucket}/{key}")
            mac = (folder / _MAC).read_bytes()
            return unseal(mac + self._read(key), name=key, key=self._key)
        except Exception:  # a spoilt list makes fsspec and json raise whatever comes
            self.counter.add("corrupt")
            self._forget(key)
            return None

    def _fetch(self, key: str) -> bytes:
        """Let the cache fetch an object and sign it; if the disk is full, read the store."""
        try:
            data = self._read(key)
            sealed = seal(data, name=key, key=self._key)
            (self._folder_of(key) / _MAC).write_bytes(sealed[: len(sealed) - len(data)])
        except FileNotFoundError:
            self._forget(key)
            raise
        except OSError:
            self.counter.add("errors")
            self._forget(key)
            return super().read_object(key)
        return data

    def _forget(self, key: str) -> None:
        _remove(self._folder_of(key))

    def _make_zarr_store(self, name: str) -> Store:
        store = ObjectStore((self.location / name).obstore(), read_only=True)
        return _FileStore(store, origin=self, prefix=(self.location / name).prefix)

    def open_file(self, key: str) -> io.RawIOBase:
        """Open an object as a file in memory, read from its file on disk.

        Parameters
        ----------
        key : str
            Path of the object in the bucket.

        Returns
        -------
        RawIOBase
            The whole object.
        """
        return io.BytesIO(self.read_object(key))  # type: ignore[return-value]


def _check_files(folder: Path, path: str) -> None:
    """Refuse files other than fsspec and this module write, before fsspec follows its list to them."""
    found = {file.name: stat.S_ISREG(file.lstat().st_mode) for file in folder.iterdir()}
    listed = json.loads((folder / "cache").read_text()) if found.get("cache") else None
    if not isinstance(listed, dict) or [*listed] != [path] or folder.is_symlink():
        raise TamperedError(f"{path}: another list of files")
    expected = {"cache", _MAC, listed[path]["fn"]}
    if {*found} != expected or not all(found.values()):
        raise TamperedError(f"{path}: other files")


def _remove(path: Path) -> None:
    """Delete what lies in a folder of the cache; of a link, the link alone."""
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


class _FileStore(WrapperStore[ObjectStore[Any]]):
    """A Zarr store whose whole objects come from files."""

    def __init__(self, store: ObjectStore[Any], *, origin: FileCacheOrigin, prefix: str) -> None:
        super().__init__(store)
        self._objects, self._prefix = origin, prefix

    def _with_store(self, store: ObjectStore[Any]) -> _FileStore:
        return _FileStore(store, origin=self._objects, prefix=self._prefix)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        if byte_range is not None:
            return await self._store.get(key, prototype, byte_range)
        try:
            data = await asyncio.to_thread(self._objects.read_object, f"{self._prefix}/{key}")
        except FileNotFoundError:
            return None
        return prototype.buffer.from_bytes(data)
