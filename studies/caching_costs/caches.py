"""Caches of opened datasets: one interface for all contenders."""

from __future__ import annotations

import asyncio
import collections
import hashlib
import io
import json
import math
import os
import shutil
import stat
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import cachetools
import fsspec
import itsdangerous
import xarray as xr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.experimental.cache_store import CacheStore
from zarr.storage import MemoryStore, ObjectStore, WrapperStore

from helpers.errors import UserError
from helpers.objectstore.locations import Location
from helpers.paths import make_private
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

Event = Literal["hits", "misses", "errors", "corrupt"]


@dataclass(frozen=True, slots=True)
class Counts:
    """Events of a cache since it was emptied."""

    hits: int = 0  # entries found, and entries that had to be made
    misses: int = 0
    errors: int = 0  # times that the cache failed and the store was read instead
    corrupt: int = 0  # entries that were not as this run wrote them, and were made anew


class Counter:
    """Count events of many threads."""

    def __init__(self) -> None:
        self._lock, self._counts = threading.Lock(), dict[str, int]()

    def add(self, event: Event) -> None:
        """Count one event."""
        with self._lock:
            self._counts[event] = self._counts.get(event, 0) + 1

    def reset(self) -> None:
        """Begin at zero."""
        with self._lock:
            self._counts.clear()

    def read(self) -> Counts:
        """Return the counts so far."""
        with self._lock:
            return Counts(**self._counts)


_MAC = "mac"


class FileCacheOrigin(Origin):
    """Read objects through fsspec's `filecache`.

    One such cache for all threads loses files: it lists a file before it has
    it, and reads its list from disk again when another thread writes it. So
    each object has a cache of its own, used by one thread at a time, and beside
    its file a MAC. What does not fit is read from the store, and so is what is
    older than `ttl_s`; fsspec's own default for that is a week.
    """

    def __init__(
        self, location: Location, folder: Path, key: bytes, *, ttl_s: float, **options: Any
    ) -> None:
        super().__init__(location, **options)
        make_private(folder)
        self.counter = Counter()
        self._key, self._folder, self._remote = key, folder, location.fsspec()
        self._ttl_s = ttl_s
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
            expiry_time=False,  # when it is over, `_read_file` says
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
            made_s = _check_files(folder, f"{self.location.bucket}/{key}")
            if time.time() - made_s > self._ttl_s:
                _remove(folder)
                return None
            mac, data = (folder / _MAC).read_bytes(), self._read(key)
            if signer(key, self._key).verify_signature(data, mac):
                return data
        except Exception:  # noqa: S110 - a spoilt list makes fsspec and json raise whatever comes
            pass  # it counts like a wrong MAC
        self.counter.add("corrupt")
        _remove(folder)
        return None

    def _fetch(self, key: str) -> bytes:
        """Let the cache fetch an object and sign it; if the disk is full, read the store."""
        try:
            data = self._read(key)
            mac = signer(key, self._key).get_signature(data)
            (self._folder_of(key) / _MAC).write_bytes(mac)
        except FileNotFoundError:
            _remove(self._folder_of(key))
            raise
        except OSError:
            self.counter.add("errors")
            _remove(self._folder_of(key))
            return super().read_object(key)
        return data

    def _make_zarr_store(self, name: str) -> Store:
        store = ObjectStore((self.location / name).obstore(), read_only=True)
        return _FileStore(store, origin=self, prefix=(self.location / name).prefix)

    def open_file(self, key: str) -> io.RawIOBase:
        """Open an object as a file in memory, read from its file on disk."""
        return io.BytesIO(self.read_object(key))  # type: ignore[return-value]


def _check_files(folder: Path, path: str) -> float:
    """Refuse files of others before fsspec follows its list to them; tell when ours came (s)."""
    found = {file.name: stat.S_ISREG(file.lstat().st_mode) for file in folder.iterdir()}
    listed = json.loads((folder / "cache").read_text()) if found.get("cache") else None
    if not isinstance(listed, dict) or [*listed] != [path] or folder.is_symlink():
        raise TamperedError(f"{path}: another list of files")
    expected = {"cache", _MAC, listed[path]["fn"]}
    if {*found} != expected or not all(found.values()):
        raise TamperedError(f"{path}: other files")
    return float(listed[path]["time"])


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


class ChunkOrigin(Origin):
    """Read Zarr through zarr's own `CacheStore`, which keeps objects in memory as they are stored.

    Each dataset has one of its own, kept for as long as `ttl_s` says; without it there is a new
    one for each opening, which goes with what was opened. `max_size` bounds the objects below it,
    but zarr 3.1 keeps a larger one all the same, so that it is larger than any object here.
    """

    def __init__(self, location: Location, *, ttl_s: float | None = None) -> None:
        super().__init__(location, zarr_format=3)
        self._ttl_s, self._keeping = ttl_s, threading.Lock()
        self._cached: dict[str, Store] = {}

    def zarr_store(self, name: str) -> Store:
        """Return the store of a dataset behind a cache."""
        if self._ttl_s is None:
            return self._make_cache(name, "infinity")
        with self._keeping:
            if name not in self._cached:
                self._cached[name] = self._make_cache(name, math.ceil(self._ttl_s))
            return self._cached[name]

    def _make_cache(self, name: str, age_s: int | str) -> Store:
        kept, most = MemoryStore(), _CHUNKS_NBYTES
        store = super().zarr_store(name)
        return CacheStore(store, cache_store=kept, max_age_seconds=age_s, max_size=most)

    def forget(self) -> None:
        """Forget all objects."""
        with self._keeping:
            self._cached.clear()


_CHUNKS_NBYTES = 2**29  # of a dataset

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


SHIPPED_ENVIRONMENT = {"AWS_ALLOW_HTTP": "true"}
"""What a process needs in its environment to reach a store here by titiler's function."""


class ShippedOrigin(Origin):
    """Open Zarr by titiler.xarray's own function, which keeps each dataset until the process ends.

    It takes neither a client nor a Zarr format, so that each entry has a client of its own,
    whose options are those of the environment (`SHIPPED_ENVIRONMENT`).
    """

    def open_zarr(self, name: str, **options: Any) -> xr.Dataset:
        """Open a Zarr group, or return the one that was opened from there before."""
        place = self.location / name
        client: Any = place.obstore()
        found = sorted(client.config.items())  # a cache of functions minds their order
        config = {key: value for key, value in found if key != "bucket"}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated")
            dataset: xr.Dataset = _open_shipped()(
                place.url, infer_region=False, **config, **options
            )
            return dataset


def _open_shipped() -> Any:
    from titiler.xarray.io import open_zarr  # here, since naming a contender needs no titiler

    return open_zarr


class ShippedCache(Cache):
    """Keep as titiler.xarray ships: Zarr without bound and without end, other formats not at all."""

    def __init__(self, origin: Origin) -> None:
        super().__init__(ShippedOrigin(origin.location))

    def counts(self) -> Counts:
        """Return what happened since it was emptied; whom its function tells of."""
        hits = _open_shipped().cache_info().hits
        asked = super().counts().misses
        return Counts(hits=hits, misses=asked - hits)

    def clear(self) -> None:
        """Forget all datasets and begin to count at zero."""
        _open_shipped().cache_clear()
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


class EtagCache(LruCache):
    """Keep opened datasets under their version: the ETag of the object that changes with them.

    A HEAD for each tile tells it, so that data that change are opened anew at once.
    """

    def get(self, name: str, open_dataset: Opener) -> xr.Dataset:
        """Return an opened dataset, if it is of the version that the store has now."""
        dataset: xr.Dataset = super().get(f"{name}@{self._origin.version(name)}", open_dataset)
        return dataset


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
        return EtagCache(origin, n_entries, ttl_s)
    if name in ("lru", "lru-chunks"):
        where = ChunkOrigin(origin.location) if name == "lru-chunks" else origin
        return LruCache(where, n_entries, ttl_s)
    if name in ("filecache", "filecache-v3"):
        told: dict[str, Any] = {"ttl_s": ttl_s, "zarr_format": origin.zarr_format}
        return FileCache(FileCacheOrigin(origin.location, folder, key, **told))
    backend = DiskBackend(folder, ttl_s) if name == "diskcache" else RedisBackend(redis_url, ttl_s)
    return EntryCache(origin, backend, key)
