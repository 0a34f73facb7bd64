"""One read by a process with some threads, a concurrency for each, and a pool for all."""

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

from helpers.arrays.readers import READERS, LimitedStore, forget_clients
from helpers.arrays.reads import CACHE_STATE, count_requests, read_into_sink
from helpers.arrays.stores import StoredArray
from helpers.benchmark.contender import CheckError, Steps
from helpers.netem.profiles import Profile
from helpers.objectstore.locations import Location
from helpers.objectstore.testbed import Testbed

OBSTORE = "zarr-obstore"

# of a client that is refused: obstore's own, see its `RetryConfig`
_FIRST_WAIT, _LONGEST_WAIT, _RETRYING = (timedelta(seconds=s) for s in (0.1, 15, 180))
_MOST_RETRIES = 10


@dataclass(frozen=True, slots=True)
class Setting:
    """What a user sets."""

    n_threads: int
    concurrency: int  # requests in flight that zarr allows each thread
    pool: int = 0  # that all threads together may have; 0: as many as they like

    @property
    def name(self) -> str:
        """How records and tables call it."""
        pool = f", pool of {self.pool}" if self.pool else ""
        return f"{self.n_threads} x {self.concurrency}{pool}"

    @property
    def in_flight(self) -> int:
        """Count the requests in flight at most."""
        most = self.n_threads * self.concurrency
        return min(most, self.pool) if self.pool else most


def list_settings(
    n_threads: Sequence[int], concurrency: Sequence[int], pools: Sequence[int]
) -> list[Setting]:
    """List every combination."""
    return [Setting(*one) for one in itertools.product(n_threads, concurrency, pools)]


def share_profile(profile: Profile, n_processes: int) -> Profile:
    """Return the network that one of several equal processes sees: its part of what all share.

    Examples
    --------
    >>> share_profile(Profile("example", requests_per_s=5500, worker_mb_per_s=500), 8).requests_per_s
    687.5
    """
    shared = {name: getattr(profile, name) for name in ("aggregate_mb_per_s", "requests_per_s")}
    parts: dict[str, Any] = {k: v / n_processes for k, v in shared.items() if v is not None}
    return replace(profile, **parts)


def find_link(profile: Profile) -> float | None:
    """Find the bandwidth that this process can have, in MB/s; None where none is emulated."""
    rates = [profile.worker_mb_per_s, profile.aggregate_mb_per_s]
    return min((rate for rate in rates if rate is not None), default=None)


@dataclass(frozen=True, slots=True)
class TunedRead(Steps):
    """As many steps of an array as there are threads, a step each."""

    setting: Setting
    stored: StoredArray
    testbed: Testbed
    dilation: float = 1.0  # of the network, which the waits of a client that is refused have too
    client: str = OBSTORE  # name of a reader

    @property
    def threads(self) -> dict[str, Any]:
        """The threads of Dask that read."""
        return {"scheduler": "threads", "num_workers": self.setting.n_threads}

    def settings(self) -> dict[str, Any]:
        """Tell what a comparison has to hold equal, or declare."""
        one = self.setting
        threads = {"n_threads": one.n_threads, "async.concurrency": one.concurrency}
        told = {"codec": self.stored.codec, "layout": "zarr", "cache_state": CACHE_STATE}
        return {**told, **threads, "pool": one.pool, "concurrency": one.in_flight}

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of the steps that are read, and their share of those stored."""
        share = self.setting.n_threads / self.stored.shape[0]
        stored_nbytes = int(share * self.stored.stored_nbytes["zarr"])
        return int(share * self.stored.nbytes), max(1, stored_nbytes)

    def prepare(self) -> None:
        """Forget clients, settings and the trace."""
        forget_clients({"async.concurrency": self.setting.concurrency})
        self.testbed.take_trace()
        self.testbed.set_tag("open")

    def open(self) -> da.Array:
        """Open the array, with a step of time in each task; the checksums are what it returns."""
        place = self.stored.seen_from(self.testbed.far).at("zarr")
        extents = (1, *self.stored.shape[1:])
        blocks = dict(zip(self.stored.dimensions, extents, strict=True))
        if self.client == OBSTORE:
            how: Any = {"chunks": blocks, "mask_and_scale": False, "decode_times": False}
            dataset = xr.open_zarr(self._open_store(place), **how)
        else:
            dataset = READERS[self.client].open(place, blocks, self.setting.concurrency)
        array: da.Array = dataset[self.stored.variable].data[: self.setting.n_threads]
        self.testbed.set_tag("read")
        return read_into_sink(array, self.stored.chunk_shape)

    def _open_store(self, place: Location) -> Any:
        """Open a store whose client asks again as obstore does, in the time of the network."""
        waits = {"init_backoff": _FIRST_WAIT, "max_backoff": _LONGEST_WAIT}
        backoff: Any = {name: self.dilation * wait for name, wait in waits.items()} | {"base": 2}
        retries: Any = {"max_retries": _MOST_RETRIES, "retry_timeout": self.dilation * _RETRYING}
        store: Any = ObjectStore(place.obstore(retries | {"backoff": backoff}), read_only=True)
        return LimitedStore(store, n_connections=self.setting.pool) if self.setting.pool else store

    def read(self, sink: da.Array) -> NDArray[np.uint64]:
        """Read every chunk into the sink, and keep nothing but checksums."""
        checksums: NDArray[np.uint64] = sink.compute(**self.threads)  # type: ignore[no-untyped-call]
        return checksums

    def check(self, checksums: NDArray[np.uint64]) -> str:
        """Compare what was read with what was written."""
        wrong = int((checksums != self.stored.checksums[: len(checksums)]).sum())
        if wrong or checksums.shape[1:] != self.stored.checksums.shape[1:]:
            raise CheckError(f"{wrong} of {checksums.size} chunks differ from what was written")
        return f"xxh3 of {checksums.size} chunks"

    def collect(self) -> dict[str, float]:
        """Count what passed over the wire, answers of 503 among it."""
        return count_requests(self.testbed.take_trace(), self.setting.in_flight)
