"""Origins that keep something themselves: files on disk, objects in memory, datasets as titiler ships."""

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import fsspec
import xarray as xr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.experimental.cache_store import CacheStore
from zarr.storage import MemoryStore, ObjectStore, WrapperStore

from helpers.objectstore.locations import Location
from helpers.paths import make_private
from studies.caching_costs.backends import (
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
            dataset: xr.Dataset = import_open_zarr()(
                place.url, infer_region=False, **config, **options
            )
            return dataset


def import_open_zarr() -> Any:
    """Import titiler's function, whose cache is its own; naming a contender needs no titiler."""
    from titiler.xarray.io import open_zarr

    return open_zarr
