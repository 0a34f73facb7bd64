"""What the harness reads: raw objects with and without the proxy, and the same bytes in more chunks."""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from helpers.arrays import reads
from helpers.arrays.readers import READERS, forget_clients
from helpers.arrays.stores import StoredArray
from helpers.benchmark.contender import Steps
from wire.bed.testbed import Testbed
from wire.host import n_cores

READER = "zarr-obstore"
LADDER = ("zarr-s3fs-one-get", READER)
"""Readers whose times are compared from rung to rung: of one thread of Python, and of many of Rust."""


def read_raw(
    stored: StoredArray,
    testbed: Testbed,
    n_connections: int,
    *,
    n_times: int = 1,
    is_direct: bool = False,
) -> reads.RawRead:
    """Read the objects of an array raw, so many times, through the proxy or past it."""
    route = replace(testbed, far=testbed.near) if is_direct else testbed
    return reads.RawRead.of_array(stored, route, n_connections=n_connections, n_times=n_times)


@dataclass(frozen=True, slots=True)
class ChunkedRead(Steps):
    """A whole array read in this process, a task a chunk, with a thread for each processor."""

    stored: StoredArray
    testbed: Testbed
    reader: str = READER
    n_connections: int = 0  # requests that its client may have in flight; 0: its own default

    def settings(self) -> dict[str, Any]:
        """Return what a comparison has to hold equal, or declare."""
        return {"codec": self.stored.codec, "layout": "zarr", "cache_state": reads.CACHE_STATE}

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of the array, and those of its objects."""
        return self.stored.nbytes, self.stored.stored_nbytes["zarr"]

    def prepare(self) -> None:
        """Forget clients and the trace, and allow the requests."""
        forget_clients({"async.concurrency": self.n_connections} if self.n_connections else {})
        self.testbed.take_trace()
        self.testbed.set_tag("open")

    def open(self) -> da.Array:
        """Open the array and describe its read; the checksums are what it returns."""
        stored = replace(self.stored, chunk_shape=self._block()).seen_from(self.testbed.far)
        array = reads.open_array(stored, READERS[self.reader])
        self.testbed.set_tag("read")
        return reads.read_into_sink(array, self.stored.chunk_shape)

    def _block(self) -> tuple[int, ...]:
        return self.stored.chunk_shape

    def check(self, checksums: NDArray[np.uint64]) -> str:
        """Compare what was read with what was written."""
        return reads.check_values(checksums, self.stored)

    def collect(self) -> dict[str, float]:
        """Count what passed over the wire."""
        return reads.count_requests(self.testbed.take_trace(), self.n_connections or n_cores())


class WholeRead(ChunkedRead):
    """The whole array by one call of zarr, whose client may have so many requests in flight."""

    __slots__ = ()

    def _block(self) -> tuple[int, ...]:
        return self.stored.shape


@dataclass(frozen=True, slots=True)
class Held(Steps):
    """So many threads that compute a second between them, or one that waits for it: what charging must hold."""

    n_threads: int  # 0: it waits
    dilation: float

    def settings(self) -> dict[str, Any]:
        """Nothing is read."""
        return {"cache_state": "nothing is read"}

    def nbytes(self) -> tuple[int, int]:
        """Nothing is read."""
        return 0, 0

    def read(self, _opened: None) -> float:
        """Compute or wait; return the processor seconds, or those of the network, that it took."""
        if not self.n_threads:
            time.sleep(self.dilation)
            return 1.0
        with ThreadPoolExecutor(self.n_threads) as pool:
            return sum(pool.map(_spin, [1 / self.n_threads] * self.n_threads))

    def check(self, seconds: float) -> str:
        """Say what was asked for."""
        return f"{seconds:.2f} s"


def _spin(seconds: float) -> float:
    """Hash for so many seconds of a processor, without the interpreter's lock."""
    data = bytes(500_000)
    began_s = time.thread_time()
    while (spent_s := time.thread_time() - began_s) < seconds:
        hashlib.sha256(data).digest()
    return spent_s
