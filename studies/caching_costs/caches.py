"""Caches of opened datasets: one interface, five contenders."""

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
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Protocol, get_args

import fsspec
import xarray as xr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import ObjectStore, WrapperStore

from helpers.errors import UserError
from helpers.objectstore.locations import Location
from studies.caching_costs.backends import (
    Counter,
    Counts,
    DiskBackend,
    EntryCache,
    Opener,
    RedisBackend,
    make_private,
)
from studies.caching_costs.origins import Origin, TamperedError, seal, unseal

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
        """Read an object from its file, or from the store and then keep it."""
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
        """Open an object as a file in memory, read from its file on disk."""
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


CacheName = Literal["none", "lru", "diskcache", "filecache", "redis"]
CACHES: tuple[CacheName, ...] = get_args(CacheName)
"""Contenders, the baseline first.

fsspec's `blockcache` is not among them: it keeps parts of objects that cannot
be authenticated one by one, and fails by a signal when its disk is full.
"""


class Cache(Protocol):
    """What keeps opened datasets, or the bytes to open them with."""

    @property
    def is_shared(self) -> bool:
        """Whether requests share one dataset, which none of them may close."""

    def get(self, name: str, open_dataset: Opener) -> xr.Dataset:
        """Return an opened dataset, from the cache if it is there."""

    def counts(self) -> Counts:
        """Return what happened since it was emptied."""

    def clear(self) -> None:
        """Empty it, and begin to count at zero."""

    def close(self) -> None:
        """Give back what it holds."""


class NoCache:
    """Open each time: the baseline.

    Parameters
    ----------
    origin : Origin
        Where datasets are read from.
    """

    is_shared = False

    def __init__(self, origin: Origin) -> None:
        self._origin, self._counter = origin, Counter()

    def get(self, name: str, open_dataset: Opener) -> xr.Dataset:
        """Open a dataset; a miss each time."""
        self._counter.add("misses")
        return open_dataset(self._origin)

    def counts(self) -> Counts:
        """Return what happened since it was emptied."""
        return self._counter.read()

    def clear(self) -> None:
        """Begin to count at zero."""
        self._counter.reset()

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""


class LruCache:
    """Keep opened datasets in the process, the most recently used ones.

    Parameters
    ----------
    origin : Origin
        Where datasets are read from.
    n_entries : int
        Most datasets to keep.
    """

    is_shared = True

    def __init__(self, origin: Origin, n_entries: int) -> None:
        self._origin, self._n_entries, self._counter = origin, n_entries, Counter()
        self._kept: OrderedDict[str, xr.Dataset] = OrderedDict()
        self._lock = Lock()

    def get(self, name: str, open_dataset: Opener) -> xr.Dataset:
        """Return a dataset, opened or kept.

        What falls out is not closed: a request may still read from it.
        """
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                self._counter.add("hits")
                return self._kept[name]
        self._counter.add("misses")
        dataset = open_dataset(self._origin)
        with self._lock:
            self._kept[name] = dataset
            while len(self._kept) > self._n_entries:
                self._kept.popitem(last=False)
        return dataset

    def counts(self) -> Counts:
        """Return what happened since it was emptied."""
        return self._counter.read()

    def clear(self) -> None:
        """Forget all datasets and begin to count at zero."""
        with self._lock:
            self._kept.clear()
        self._counter.reset()

    def close(self) -> None:
        """Forget all datasets."""
        self.clear()


class FileCache:
    """Keep the objects that opening and reading need, as files: fsspec's `filecache`.

    It saves requests and not the work of opening, and unlike the others it
    keeps chunks too.

    Parameters
    ----------
    origin : FileCacheOrigin
        Reads objects from files, and from the store where there is none.
    """

    is_shared = False

    def __init__(self, origin: FileCacheOrigin) -> None:
        self._origin = origin

    def get(self, name: str, open_dataset: Opener) -> xr.Dataset:
        """Open a dataset from cached objects."""
        return open_dataset(self._origin)

    def counts(self) -> Counts:
        """Return what happened since it was emptied, counted in objects."""
        return self._origin.counter.read()

    def clear(self) -> None:
        """Delete all files and begin to count at zero."""
        self._origin.clear()

    def close(self) -> None:
        """Do nothing: files belong to who gave the folder."""


def open_cache(
    name: str,
    origin: Origin,
    *,
    key: bytes,
    folder: Path,
    redis_url: str = "",
    n_entries: int = 128,
) -> Cache:
    """Make a contender."""
    if name not in CACHES:
        raise UserError(f"caches: {name!r}; allowed: {', '.join(CACHES)}")
    if len(key) < 16:
        raise UserError(f"key: {len(key)} bytes; allowed: at least 16")
    if name == "none":
        return NoCache(origin)
    if name == "lru":
        return LruCache(origin, n_entries)
    if name == "filecache":
        return FileCache(FileCacheOrigin(origin.location, folder, key))
    backend = DiskBackend(folder) if name == "diskcache" else RedisBackend(redis_url)
    return EntryCache(origin, backend, key)
