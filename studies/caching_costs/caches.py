"""Caches of opened datasets: one interface for all contenders."""

from __future__ import annotations

import collections
import hashlib
import io
import math
import pickle
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import cachetools
import itsdangerous
import redis
import xarray as xr
from zarr.abc.store import Store
from zarr.experimental.cache_store import CacheStore
from zarr.storage import MemoryStore, ObjectStore

from helpers.errors import UserError
from studies.caching_costs.datasets import ObjectFile, Origin

Opener = Callable[[Origin], xr.Dataset]
"""Opens a dataset from where it is told to read."""


class Cache:
    """Open each time: no cache. The others keep datasets, or the bytes to open them with."""

    is_shared: ClassVar[bool] = False
    """Whether requests share one dataset, which none of them may close."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin

    def get(self, name: str, open_dataset: Opener) -> xr.Dataset:
        """Return an opened dataset, from the cache if it is there."""
        return open_dataset(self._origin)


SHIPPED_ENVIRONMENT = {"AWS_ALLOW_HTTP": "true"}
"""What a process needs in its environment to reach a store here by titiler's function."""


class ShippedOrigin(Origin):
    """Open Zarr by titiler.xarray's own function, which keeps each dataset until the process ends.

    It takes no client, so that each entry has one of its own, with options of the environment
    (`SHIPPED_ENVIRONMENT`).
    """

    def open_zarr(self, name: str, **options: Any) -> xr.Dataset:
        """Open a Zarr group, or return the one that was opened from there before."""
        place = self.location / name
        client: Any = place.obstore()
        found = sorted(client.config.items())  # a cache of functions minds their order
        config = {key: value for key, value in found if key != "bucket"}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated")
            dataset: xr.Dataset = import_open_zarr()(place.url, infer_region=False, **config, **options)  # fmt: skip
            return dataset


def import_open_zarr() -> Any:
    """Import titiler's function, whose cache is its own; naming a contender needs no titiler."""
    from titiler.xarray.io import open_zarr

    return open_zarr


class ShippedCache(Cache):
    """Keep as titiler.xarray ships: Zarr without bound and without end, other formats not at all."""

    def __init__(self, origin: Origin) -> None:
        super().__init__(ShippedOrigin(origin.location))


class KeepingCache(Cache):
    """Keep what was opened; a request that comes while another opens the same dataset waits for it."""

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
                    kept = super().get(name, open_dataset)
                    self._keep(name, kept)
            finally:
                opening.release()
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

    def __init__(self, origin: Origin, n_entries: int = 128, ttl_s: float = math.inf) -> None:
        super().__init__(origin)
        self._kept: cachetools.TTLCache[str, xr.Dataset] = cachetools.TTLCache(n_entries, ttl_s)

    def _load(self, name: str) -> xr.Dataset | None:
        with self._lock:
            return self._kept.get(name)

    def _keep(self, name: str, dataset: xr.Dataset) -> None:
        with self._lock:
            self._kept[name] = dataset


_CHUNKS_NBYTES = 2**29  # of a dataset


class ChunkOrigin(Origin):
    """Read Zarr through zarr's own `CacheStore`, which keeps objects in memory as they are stored.

    Each opening has a new one, which goes with what was opened. zarr keeps an object larger than
    `max_size` all the same, so that it is larger than any object here.
    """

    def zarr_store(self, name: str) -> Store:
        """Return the store of a dataset behind a cache."""
        store = super().zarr_store(name)
        told: dict[str, Any] = {"max_age_seconds": "infinity", "max_size": _CHUNKS_NBYTES}
        return CacheStore(store, cache_store=MemoryStore(), **told)


def seal(name: str, key: bytes, dataset: xr.Dataset) -> bytes:
    """Write an opened dataset, metadata and coordinates without values and clients, and sign it.

    A pickle runs code, so only what this run signed is read.
    """
    return _signer(name, key).sign(dump(dataset))


def unseal(name: str, key: bytes, sealed: bytes, origin: Origin) -> xr.Dataset:
    """Read what `seal` wrote under that name, with the clients of this process; else BadSignature."""
    payload = _signer(name, key).unsign(sealed)
    dataset: xr.Dataset = _Unpickler(io.BytesIO(payload), origin).load()
    return dataset


def _signer(name: str, key: bytes) -> itsdangerous.Signer:
    """Make what signs bytes under their name with the key of the run."""
    # SHA-384 fills its characters: with one to spare, two texts would be the same MAC
    salt = name.encode("utf-8", "surrogatepass")
    return itsdangerous.Signer(key, salt, key_derivation="hmac", digest_method=hashlib.sha384)


class _Pickler(pickle.Pickler):
    """Names clients of the store instead of writing them, for they hold credentials."""

    def persistent_id(self, obj: Any) -> tuple[str, str] | None:
        if isinstance(obj, ObjectFile):
            return "file", obj.key
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
        return self._origin.zarr_store(self._origin.name_of(key))


def dump(dataset: xr.Dataset) -> bytes:
    """Write an opened dataset as bytes."""
    file = io.BytesIO()
    _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(dataset)
    return file.getvalue()


_PREFIX = "arrays-over-the-wire:"
_PATIENCE_S = 5.0


class RedisCache(KeepingCache):
    """Keep opened datasets as authenticated bytes in a Redis or Valkey server.

    A server that fails fails the tile, and with it the measurement: it would be one without a
    cache. The address is ``redis://[:PASSWORD@]HOST:PORT/NUMBER`` or ``rediss://…``; one that does
    not answer is refused.
    """

    def __init__(self, origin: Origin, url: str, key: bytes, ttl_s: float) -> None:
        super().__init__(origin)
        self._key, self._ttl_ms = key, max(1, round(1000 * ttl_s))
        refusal = "redis_url: {}; allowed: redis://HOST:PORT of a server that answers"
        try:
            patience = {"socket_timeout": _PATIENCE_S, "socket_connect_timeout": _PATIENCE_S}
            self._client = redis.Redis.from_url(url, **patience)
            self._client.ping()
        except ValueError as error:
            raise UserError(refusal.format("no address of a Redis server")) from error
        except redis.RedisError as error:
            raise UserError(refusal.format(f"no answer ({type(error).__name__})")) from error

    def _keep(self, name: str, dataset: xr.Dataset) -> None:
        self._client.set(_PREFIX + name, seal(name, self._key, dataset), px=self._ttl_ms)

    def _load(self, name: str) -> xr.Dataset | None:
        sealed: Any = self._client.get(_PREFIX + name)
        try:
            return None if sealed is None else unseal(name, self._key, sealed, self._origin)
        except itsdangerous.BadSignature:  # of another run
            return None


class VersionedCache(KeepingCache):
    """Keep datasets under the ETag of the object that changes with them: one HEAD for each tile."""

    def get(self, name: str, open_dataset: Opener) -> xr.Dataset:
        """Return an opened dataset, if it is of the version that the store has now."""
        return super().get(f"{name}@{self._origin.version(name)}", open_dataset)


class VersionedLruCache(VersionedCache, LruCache):
    """Of datasets in the process."""


class VersionedRedisCache(VersionedCache, RedisCache):
    """Of bytes in a Redis."""


@dataclass(frozen=True, slots=True)
class Told:
    """What caches are told."""

    key: bytes  # of the run, which signs what leaves the process
    redis_url: str = ""
    ttl_s: float = 86400  # that an entry lives, but for those of titiler itself


_MAKERS: Mapping[str, Callable[[Origin, Told], Cache]] = {
    "as-shipped": lambda origin, _: ShippedCache(origin),
    "none": lambda origin, _: Cache(origin),
    "lru": lambda origin, told: LruCache(origin, ttl_s=told.ttl_s),
    "redis": lambda origin, told: RedisCache(origin, told.redis_url, told.key, told.ttl_s),
    "lru-etag": lambda origin, told: VersionedLruCache(origin, ttl_s=told.ttl_s),
    "redis-etag": lambda origin, told: VersionedRedisCache(
        origin, told.redis_url, told.key, told.ttl_s
    ),
    "lru-chunks": lambda origin, told: LruCache(_with_chunks(origin), ttl_s=told.ttl_s),
    # the chunks of a version live as long as its dataset
    "lru-etag-chunks": lambda origin, _: VersionedLruCache(_with_chunks(origin)),
}
CACHES = tuple(_MAKERS)
"""Contenders, what titiler.xarray ships with first."""


def open_cache(name: str, origin: Origin, told: Told) -> Cache:
    """Make a contender, empty."""
    return _MAKERS[name](origin, told)


def _with_chunks(origin: Origin) -> ChunkOrigin:
    return ChunkOrigin(origin.location, origin.specs)
