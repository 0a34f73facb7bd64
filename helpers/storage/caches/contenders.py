"""The contenders: what a service may do with a dataset that it has opened."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Literal, Protocol, get_args

import xarray as xr

from helpers.errors import UserError
from helpers.storage.caches.backends import DiskBackend, RedisBackend
from helpers.storage.caches.counts import Counter, Counts
from helpers.storage.caches.entrycache import EntryCache, Opener
from helpers.storage.caches.filecache import FileCacheOrigin
from helpers.storage.caches.origins import Origin

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
    """Make a contender.

    Parameters
    ----------
    name : str
        One of `CACHES`.
    origin : Origin
        Where datasets are read from.
    key : bytes
        Key of the run, at least 16 bytes: what is cached is authenticated with it.
    folder : Path
        For caches on disk; made if absent, readable by this user alone.
    redis_url : str
        Address of a Redis or Valkey server.
    n_entries : int
        Most datasets that the cache in the process keeps.

    Returns
    -------
    Cache
        Empty or, on disk and in Redis, with the entries of this run.

    Raises
    ------
    UserError
        If the name is unknown, the key is short, the folder belongs to others,
        or the server of a Redis does not answer.
    """
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
