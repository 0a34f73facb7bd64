"""Opened datasets as authenticated bytes outside the process."""

from __future__ import annotations

from collections.abc import Callable

import xarray as xr

from helpers.storage.caches import entries
from helpers.storage.caches.backends import Backend, BackendError
from helpers.storage.caches.counts import Counter, Counts
from helpers.storage.caches.origins import Origin

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
            return entries.load(entries.unseal(sealed, name=name, key=self._key), self._origin)
        except BackendError:
            self._counter.add("errors")
        except entries.TamperedError:
            self._counter.add("corrupt")
        return None

    def _save(self, name: str, dataset: xr.Dataset) -> None:
        payload = entries.dump(dataset)
        try:
            self._backend.put(name, entries.seal(payload, name=name, key=self._key))
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
