"""Where entries are kept outside the process, and what a cache did with them."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, Protocol

import diskcache
import redis
import redis.backoff
import redis.retry
import xarray as xr
from diskcache.core import MODE_BINARY, MODE_RAW

from helpers.errors import UserError
from studies.caching_costs import origins
from studies.caching_costs.origins import Origin, TamperedError

_PREFIX = "arrays-over-the-wire:"
_PATIENCE_S = 0.5
_ENTRY_FILE = re.compile(r"[0-9a-f]{2}[/\\][0-9a-f]{2}[/\\][0-9a-f]{28}\.val")


class BackendError(Exception):
    """A backend could not be read or written."""


class Backend(Protocol):
    """Bytes by name; every failure is a `BackendError`, foreign entries are a `TamperedError`."""

    def get(self, name: str) -> bytes | None:
        """Return the bytes of an entry, None if there are none."""

    def put(self, name: str, sealed: bytes) -> None:
        """Keep the bytes of an entry."""

    def clear(self) -> None:
        """Delete all entries."""

    def close(self) -> None:
        """Give back files and connections."""


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

    Parameters
    ----------
    folder : Path
        Made if absent, for this user alone.

    Raises
    ------
    UserError
        If others may write there, or it cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        make_private(folder)
        try:
            self._cache = diskcache.Cache(str(folder), disk=_BytesDisk)
        except (OSError, sqlite3.Error) as error:
            raise UserError(
                f"folder: {folder}: no cache can be made ({error}); allowed: a folder with room"
            ) from error

    def get(self, name: str) -> bytes | None:
        """Return the bytes of an entry, None if there are none."""
        try:
            try:
                return self._find(name)
            except _LostFileError:
                return self._find(name)
        except (OSError, sqlite3.Error, diskcache.Timeout) as error:
            raise BackendError(str(error)) from error
        except Exception as error:  # of a row that is spoilt, whatever it makes diskcache raise
            raise TamperedError(f"{name}: {type(error).__name__}") from error

    def _find(self, name: str) -> bytes | None:
        found: bytes | None = self._cache.get(name)
        return found

    def put(self, name: str, sealed: bytes) -> None:
        """Keep the bytes of an entry."""
        try:
            self._cache.set(name, sealed)
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
    is there to be read instead.

    Parameters
    ----------
    url : str
        ``redis://[:PASSWORD@]HOST:PORT/NUMBER`` or ``rediss://…``.

    Raises
    ------
    UserError
        If the address is none, or the server does not answer.
    """

    def __init__(self, url: str) -> None:
        refusal = "redis_url: {}; allowed: redis://HOST:PORT of a server that answers"
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
        try:
            found = self._client.get(_PREFIX + name)
        except redis.RedisError as error:
            if str(error).startswith("WRONGTYPE"):
                raise TamperedError(f"{name}: not of the type that this run writes") from error
            raise BackendError(type(error).__name__) from error
        return None if found is None else bytes(found)  # type: ignore[arg-type]

    def put(self, name: str, sealed: bytes) -> None:
        """Keep the bytes of an entry."""
        try:
            self._client.set(_PREFIX + name, sealed)
        except redis.RedisError as error:
            raise BackendError(type(error).__name__) from error

    def clear(self) -> None:
        """Delete the entries of this project, and none of others."""
        for key in self._client.scan_iter(match=_PREFIX + "*"):
            self._client.delete(key)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


def make_private(folder: Path) -> None:
    """Make a folder for this user alone, or refuse one that others may write to."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = folder.stat().st_mode
    except OSError as error:
        raise UserError(
            f"folder: {folder}: {error.strerror}; allowed: a folder that can be made"
        ) from error
    if mode & 0o022:
        raise UserError(f"folder: {folder}: others may write to it; allowed: a folder of mode 700")


Event = Literal["hits", "misses", "errors", "corrupt"]


@dataclass(frozen=True, slots=True)
class Counts:
    """Events of a cache since it was emptied."""

    hits: int = 0  # entries found, and entries that had to be made
    misses: int = 0
    errors: int = 0  # times that the cache failed and the store was read instead
    corrupt: int = 0  # entries that were not as this run wrote them, and were made anew

    @property
    def hit_ratio(self) -> float:
        """Share of look-ups that found an entry; nan if there was none.

        Examples
        --------
        >>> Counts(hits=3, misses=1).hit_ratio
        0.75
        """
        total = self.hits + self.misses
        return self.hits / total if total else float("nan")


class Counter:
    """Count events of many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def add(self, event: Event) -> None:
        """Count one event."""
        with self._lock:
            self._counts[event] += 1

    def reset(self) -> None:
        """Begin at zero."""
        with self._lock:
            self._counts: dict[Event, int] = {
                "hits": 0,
                "misses": 0,
                "errors": 0,
                "corrupt": 0,
            }

    def read(self) -> Counts:
        """Return the counts so far.

        Returns
        -------
        Counts
            A copy that does not change.
        """
        with self._lock:
            return Counts(**self._counts)


def difference(after: Counts, before: Counts) -> Counts:
    """Subtract counts: what happened in between.

    Examples
    --------
    >>> difference(Counts(hits=5, misses=1), Counts(hits=2, misses=1))
    Counts(hits=3, misses=0, errors=0, corrupt=0)
    """
    one, two = asdict(after), asdict(before)
    return Counts(**{field.name: one[field.name] - two[field.name] for field in fields(Counts)})


Opener = Callable[[Origin], xr.Dataset]
"""Opens a dataset from where it is told to read."""


class EntryCache:
    """Keep opened datasets as authenticated bytes, outside the process.

    A backend that fails costs one opening, never a request: the failure is
    counted, and the next request tries again.

    Parameters
    ----------
    origin : Origin
        Where datasets are read from.
    backend : Backend
        What keeps the bytes.
    key : bytes
        Key of the run.
    """

    is_shared = False

    def __init__(self, origin: Origin, backend: Backend, key: bytes) -> None:
        self._origin, self._backend, self._key = origin, backend, key
        self._counter = Counter()

    def get(self, name: str, open_dataset: Opener) -> xr.Dataset:
        """Return a dataset, opened or read back."""
        found = self._load(name)
        if found is not None:
            self._counter.add("hits")
            return found
        self._counter.add("misses")
        dataset = open_dataset(self._origin)
        self._save(name, dataset)
        return dataset

    def _load(self, name: str) -> xr.Dataset | None:
        try:
            sealed = self._backend.get(name)
            if sealed is None:
                return None
            return origins.load(origins.unseal(sealed, name=name, key=self._key), self._origin)
        except BackendError:
            self._counter.add("errors")
        except origins.TamperedError:
            self._counter.add("corrupt")
        return None

    def _save(self, name: str, dataset: xr.Dataset) -> None:
        payload = origins.dump(dataset)
        try:
            self._backend.put(name, origins.seal(payload, name=name, key=self._key))
        except BackendError:
            self._counter.add("errors")

    def counts(self) -> Counts:
        """Return what happened since it was emptied."""
        return self._counter.read()

    def clear(self) -> None:
        """Delete all entries and begin to count at zero."""
        self._backend.clear()
        self._counter.reset()

    def close(self) -> None:
        """Give back files and connections."""
        self._backend.close()
