"""One read by a process with some threads and a concurrency for each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
from numpy.typing import NDArray
from zarr.storage import ObjectStore

from helpers.arrays.readers import READERS, forget_clients
from helpers.arrays.reads import CACHE_STATE, check_values, count_requests, read_into_sink
from helpers.arrays.stores import StoredArray
from helpers.benchmark.contender import Steps
from wire.bed.locations import Location
from wire.bed.networks import Profile
from wire.bed.testbed import Testbed

OBSTORE = "zarr-obstore"
S3FS = "zarr-s3fs-one-get"
POOLS = {f"{S3FS}-{n}": n for n in (32, 128)}
"""s3fs with more connections than the ten that it keeps by itself."""
CONTROL = "control"

# of a client that is refused: obstore's own, see its `RetryConfig`
_FIRST_WAIT, _LONGEST_WAIT, _RETRYING = (timedelta(seconds=s) for s in (0.1, 15, 180))
_MOST_RETRIES = 10


@dataclass(frozen=True, slots=True)
class Setting:
    """What a user sets."""

    n_threads: int
    concurrency: int  # requests in flight that zarr allows each thread

    @property
    def name(self) -> str:
        """How records and tables call it."""
        return f"{self.n_threads} x {self.concurrency}"

    @property
    def in_flight(self) -> int:
        """Count the requests in flight at most."""
        return self.n_threads * self.concurrency

    def count_steps(self, n_steps: int) -> int:
        """Count the steps that it reads: those of all settings, or where that is 0 one a thread."""
        return n_steps or self.n_threads


def list_settings(n_threads: Sequence[int], concurrency: Sequence[int]) -> list[Setting]:
    """List every combination."""
    return [Setting(*pair) for pair in itertools.product(n_threads, concurrency)]


def find_twin(client: str, clients: Sequence[str]) -> str | None:
    """Find of which client one is a second copy; None of one that is no copy.

    Examples
    --------
    >>> clients = ("zarr-obstore", "control", "zarr-s3fs-one-get", "control-zarr-s3fs-one-get")
    >>> [find_twin(client, clients) for client in clients]
    [None, 'zarr-obstore', None, 'zarr-s3fs-one-get']
    """
    if client == CONTROL:
        return clients[0]
    return client.removeprefix(f"{CONTROL}-") if client.startswith(CONTROL) else None


def share_profile(profile: Profile, n_processes: int, link_mb_per_s: float = 0.0) -> Profile:
    """Return the network that one of several equal processes sees: its part of what all share.

    The link of a worker is emulated for other processes than this one, so what all share is
    here its own link at most: that of the profile, where no other is given.

    Examples
    --------
    >>> profile = Profile("example", requests_per_s=5500, aggregate_mb_per_s=8000, worker_mb_per_s=500)
    >>> part = share_profile(profile, 8)
    >>> part.requests_per_s, part.aggregate_mb_per_s
    (687.5, 500)
    """
    rate, shared = profile.requests_per_s, profile.aggregate_mb_per_s
    links = link_mb_per_s or profile.worker_mb_per_s, shared and shared / n_processes
    return replace(
        profile,
        requests_per_s=rate and rate / n_processes,
        aggregate_mb_per_s=min(filter(None, links), default=None),
        worker_mb_per_s=None,
    )


@dataclass(frozen=True, slots=True)
class TunedRead(Steps):
    """Steps of an array, each by one thread, which asks for its chunks by one call of zarr."""

    setting: Setting
    stored: StoredArray
    testbed: Testbed
    dilation: float = 1.0  # of the network, which the waits of a client that is refused have too
    client: str = OBSTORE  # name of a reader
    n_steps: int = 0  # the same for all settings; 0: one for each thread

    def settings(self) -> dict[str, Any]:
        """Tell what a comparison has to hold equal, or declare."""
        setting = self.setting
        threads = {"n_threads": setting.n_threads, "async.concurrency": setting.concurrency}
        settings = {"codec": self.stored.codec, "layout": "zarr", "cache_state": CACHE_STATE}
        return {**settings, **threads, "concurrency": setting.in_flight}

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of the steps that are read, and their share of those stored."""
        share = self.setting.count_steps(self.n_steps) / self.stored.shape[0]
        stored_nbytes = int(share * self.stored.stored_nbytes["zarr"])
        return int(share * self.stored.nbytes), max(1, stored_nbytes)

    def prepare(self) -> None:
        """Forget clients, settings and the trace."""
        forget_clients({"async.concurrency": self.setting.concurrency})
        self.testbed.take_trace()
        self.testbed.set_tag("open")

    def open(self) -> da.Array:
        """Open the array, with a step of time in each task; the checksums are what it returns."""
        place = self.stored.seen_from(self.testbed.far).locate("zarr")
        extents = (1, *self.stored.shape[1:])
        blocks = dict(zip(self.stored.dimensions, extents, strict=True))
        options: Any = {"chunks": blocks, "mask_and_scale": False, "decode_times": False}
        if self.client == OBSTORE:
            dataset = xr.open_zarr(self._open_store(place), **options)
        elif self.client in POOLS:
            storage_options = place.fsspec_options() | {"max_concurrency": 1}
            storage_options["config_kwargs"] |= {"max_pool_connections": POOLS[self.client]}
            dataset = xr.open_zarr(place.url, storage_options=storage_options, **options)
        else:
            dataset = READERS[self.client].open(place, blocks)
        n_steps = self.setting.count_steps(self.n_steps)
        array: da.Array = dataset[self.stored.variable].data[:n_steps]
        self.testbed.set_tag("read")
        return read_into_sink(array, self.stored.chunk_shape)

    def _open_store(self, place: Location) -> Any:
        """Open a store whose client asks again as obstore does, in the time of the network."""
        waits = {"init_backoff": _FIRST_WAIT, "max_backoff": _LONGEST_WAIT}
        backoff: Any = {name: self.dilation * wait for name, wait in waits.items()} | {"base": 2}
        retries: Any = {"max_retries": _MOST_RETRIES, "retry_timeout": self.dilation * _RETRYING}
        return ObjectStore(place.obstore(retries | {"backoff": backoff}), read_only=True)

    def check(self, checksums: NDArray[np.uint64]) -> str:
        """Compare what was read with what was written."""
        part = replace(self.stored, checksums=self.stored.checksums[: len(checksums)])
        return check_values(checksums, part)

    def collect(self) -> dict[str, float]:
        """Count what passed over the wire, answers of 503 among it."""
        return count_requests(self.testbed.take_trace(), self.setting.in_flight)
