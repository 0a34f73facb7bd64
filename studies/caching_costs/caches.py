"""Caches of opened datasets: one interface for all contenders."""

from __future__ import annotations

import collections
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import cachetools
import itsdangerous
import xarray as xr

from helpers.errors import UserError
from studies.caching_costs import backends
from studies.caching_costs.backends import (
    Backend,
    BackendError,
    DiskBackend,
    RedisBackend,
    TamperedError,
    signer,
)
from studies.caching_costs.datasets import Origin
from studies.caching_costs.origins import (
    ChunkOrigin,
    Counter,
    Counts,
    FileCacheOrigin,
    ShippedOrigin,
    import_open_zarr,
)

CacheName = Literal[
    "none",
    "as-shipped",
    "lru",
    "diskcache",
    "filecache",
    "redis",
    "none-v3",
    "filecache-v3",
    "cachestore-v3",
    "lru-etag",
    "redis-etag",
    "lru-chunks",
]
CACHES: tuple[CacheName, ...] = get_args(CacheName)
"""Contenders, the baseline first; those that end in `-v3` tell xarray the Zarr format.

fsspec's `blockcache` is not among them: it keeps parts of objects that cannot
be authenticated one by one, and fails by a signal when its disk is full.
"""

Opener = Callable[[Origin], xr.Dataset]
"""Opens a dataset from where it is told to read."""


class Cache:
    """Open each time: the baseline. The others keep datasets, or the bytes to open them with."""

    is_shared: ClassVar[bool] = False
    """Whether requests share one dataset, which none of them may close."""

    def __init__(self, origin: Origin) -> None:
        self._origin, self._counter = origin, Counter()

    def get(self, name: str, open_dataset: Opener) -> xr.Dataset:
        """Return an opened dataset, from the cache if it is there."""
        self._counter.add("misses")
        return open_dataset(self._origin)

    def counts(self) -> Counts:
        """Return what happened since it was emptied."""
        return self._counter.read()

    def clear(self) -> None:
        """Empty it, and begin to count at zero."""
        self._counter.reset()

    def close(self) -> None:
        """Give back what it holds."""


class ShippedCache(Cache):
    """Keep as titiler.xarray ships: Zarr without bound and without end, other formats not at all."""

    def __init__(self, origin: Origin) -> None:
        super().__init__(ShippedOrigin(origin.location))

    def counts(self) -> Counts:
        """Return what happened since it was emptied; whom its function tells of."""
        hits = import_open_zarr().cache_info().hits
        asked = super().counts().misses
        return Counts(hits=hits, misses=asked - hits)

    def clear(self) -> None:
        """Forget all datasets and begin to count at zero."""
        import_open_zarr().cache_clear()
        super().clear()


class ChunkCache(Cache):
    """Open each time from objects that zarr's own cache keeps."""

    def __init__(self, origin: ChunkOrigin) -> None:
        super().__init__(origin)
        self._objects = origin

    def clear(self) -> None:
        """Forget all objects and begin to count at zero."""
        self._objects.forget()
        super().clear()


class KeepingCache(Cache):
    """Keep what was opened: who asks while another opens the same waits, so that it is opened once."""

    def __init__(self, origin: Origin) -> None:
        super().__init__(origin)
        self._lock = threading.Lock()
        self._opening: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)

    def get(self, name: str, open_dataset: Opener) -> xr.Dataset:
        """Return an opened dataset, from the cache if it is there."""
        kept = self._load(name)
        if kept is None:
            with self._lock:
                opening = self._opening[name.partition("@")[0]]  # of all versions of it
            is_alone = opening.acquire(blocking=False)
            if not is_alone:
                opening.acquire()
            try:
                kept = None if is_alone else self._load(name)
                if kept is None:
                    dataset = super().get(name, open_dataset)
                    self._keep(name, dataset)
                    return dataset
            finally:
                opening.release()
        self._counter.add("hits")
        return kept

    def _load(self, name: str) -> xr.Dataset | None:
        """Return what is kept under a name."""
        raise NotImplementedError

    def _keep(self, name: str, dataset: xr.Dataset) -> None:
        """Keep what was opened."""
        raise NotImplementedError


class LruCache(KeepingCache):
    """Keep opened datasets in the process, the most recently used ones, as long as they live."""

    is_shared = True

    def __init__(self, origin: Origin, n_entries: int, ttl_s: float = math.inf) -> None:
        super().__init__(origin)
        self._kept: cachetools.TTLCache[str, xr.Dataset] = cachetools.TTLCache(n_entries, ttl_s)

    def _load(self, name: str) -> xr.Dataset | None:
        with self._lock:
            return self._kept.get(name)

    def _keep(self, name: str, dataset: xr.Dataset) -> None:
        with self._lock:
            self._kept[name] = dataset

    def clear(self) -> None:
        """Forget all datasets and begin to count at zero."""
        with self._lock:
            self._kept.clear()
        super().clear()


class VersionedCache(KeepingCache):
    """Keep datasets under the ETag of the object that changes with them, which a HEAD for each tile tells."""

    def get(self, name: str, open_dataset: Opener) -> xr.Dataset:
        """Return an opened dataset, if it is of the version that the store has now."""
        return super().get(f"{name}@{self._origin.version(name)}", open_dataset)


class VersionedLruCache(VersionedCache, LruCache):
    """Of datasets in the process."""


class EntryCache(KeepingCache):
    """Keep opened datasets as authenticated bytes, outside the process.

    A backend that fails costs one opening, never a request: the failure is
    counted, and the next request tries again.
    """

    def __init__(self, origin: Origin, backend: Backend, key: bytes) -> None:
        super().__init__(origin)
        self._backend, self._key = backend, key

    def _keep(self, name: str, dataset: xr.Dataset) -> None:
        try:
            self._backend.put(name, signer(name, self._key).sign(backends.dump(dataset)))
        except BackendError:
            self._counter.add("errors")

    def _load(self, name: str) -> xr.Dataset | None:
        try:
            sealed = self._backend.get(name)
            if sealed is None:
                return None
            payload = signer(name, self._key).unsign(sealed)
            return backends.load(payload, self._origin)
        except BackendError:
            self._counter.add("errors")
        except (TamperedError, itsdangerous.BadSignature):
            self._counter.add("corrupt")
        return None

    def clear(self) -> None:
        """Delete all entries and begin to count at zero."""
        self._backend.clear()
        super().clear()

    def close(self) -> None:
        """Give back files and connections."""
        self._backend.close()


class VersionedEntryCache(VersionedCache, EntryCache):
    """Of bytes outside it."""


class FileCache(Cache):
    """Keep the objects that opening and reading need, as files: fsspec's `filecache`.

    It saves requests and not the work of opening, and unlike the others it
    keeps chunks too. It counts objects, and its files belong to who gave the folder.
    """

    def __init__(self, origin: FileCacheOrigin) -> None:
        self._files, self._origin, self._counter = origin, origin, origin.counter

    def get(self, name: str, open_dataset: Opener) -> xr.Dataset:
        """Open a dataset from cached objects."""
        return open_dataset(self._origin)

    def clear(self) -> None:
        """Delete all files and begin to count at zero."""
        self._files.clear()


def open_cache(
    name: str,
    origin: Origin,
    *,
    key: bytes,
    folder: Path,
    redis_url: str = "",
    n_entries: int = 128,
    ttl_s: float = 86400,
) -> Cache:
    """Make a contender, whose entries live for `ttl_s` seconds, but for those of titiler itself."""
    if name not in CACHES:
        raise UserError(f"caches: {name!r}; allowed: {', '.join(CACHES)}")
    if len(key) < 16:
        raise UserError(f"key: {len(key)} bytes; allowed: at least 16")
    if name.endswith("-v3"):
        origin = Origin(origin.location, zarr_format=3)
    if name in ("none", "none-v3"):
        return Cache(origin)
    if name == "as-shipped":
        return ShippedCache(origin)
    if name == "cachestore-v3":
        return ChunkCache(ChunkOrigin(origin.location, ttl_s=ttl_s))
    if name == "lru-etag":
        return VersionedLruCache(origin, n_entries, ttl_s)
    if name in ("lru", "lru-chunks"):
        where = ChunkOrigin(origin.location) if name == "lru-chunks" else origin
        return LruCache(where, n_entries, ttl_s)
    if name in ("filecache", "filecache-v3"):
        told: dict[str, Any] = {"ttl_s": ttl_s, "zarr_format": origin.zarr_format}
        return FileCache(FileCacheOrigin(origin.location, folder, key, **told))
    backend = DiskBackend(folder, ttl_s) if name == "diskcache" else RedisBackend(redis_url, ttl_s)
    kind = VersionedEntryCache if name == "redis-etag" else EntryCache
    return kind(origin, backend, key)
