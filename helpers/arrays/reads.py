"""One read of a stored array over the wire, in the steps that a measurement needs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import dask.array as da
import fsspec.asyn
import numpy as np
import obstore
import xxhash
import zarr
from numpy.typing import NDArray
from zarr.storage import ObjectStore

from helpers.arrays import readers
from helpers.arrays.clusters import Cluster
from helpers.arrays.readers import ArrayReader
from helpers.arrays.stores import StoredArray, arrange_checksums, checksum
from helpers.benchmark.contender import CheckError, Steps
from helpers.benchmark.provenance import imported, name_worker_versions
from wire.bed.locations import REQUEST_S, Location
from wire.bed.requests import RequestRow
from wire.bed.testbed import Testbed
from wire.errors import UserError
from wire.host import Scalar

CACHE_STATE = "nothing cached, warm server; the trace counts new connections"

ON_FILES = "pages dropped on every node; the file system's own caches as they are"


@dataclass(frozen=True, slots=True)
class ArrayRead(Steps):
    """A whole array read by one reader on a cluster."""

    stored: StoredArray
    reader: ArrayReader
    testbed: Testbed  # the network that it is read over
    cluster: Cluster

    def settings(self) -> dict[str, Any]:
        """Tell what a comparison has to hold equal, or declare."""
        return {
            "codec": self.stored.codec,
            "layout": self.reader.layout,
            "cache_state": ON_FILES if self._is_on_files else CACHE_STATE,
            "request_timeout_s": self.reader.request_timeout_s,
        }

    @property
    def _is_on_files(self) -> bool:
        return self.stored.location.scheme == "file"

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of the array, and those of the layout that holds its values."""
        layout = "netcdf" if self.reader.layout == "references" else self.reader.layout
        return self.stored.nbytes, self.stored.stored_nbytes[layout]

    def prepare(self) -> None:
        """Empty the caches of every process that reads, and of the trace; note the workers."""
        self.cluster.pin_workers()
        config = dict(self.reader.zarr_config)
        self.cluster.client.run(readers.forget_data, config)
        if self._is_on_files:
            self.cluster.client.run(readers.forget_pages, self.stored.location.path)
        readers.forget_clients(config)
        self.testbed.take_trace()
        self.testbed.set_tag("open")

    def open(self) -> da.Array:
        """Open the array and describe its read; the checksums are what it returns."""
        array = open_array(self.stored.seen_from(self.testbed.far), self.reader)
        self.testbed.set_tag("read")
        return read_into_sink(array, self.stored.chunk_shape)

    def read(self, opened: da.Array) -> NDArray[np.uint64]:
        """Read every chunk into the sink, and keep nothing but checksums."""
        checksums: NDArray[np.uint64] = opened.compute()  # type: ignore[no-untyped-call]
        return checksums

    def find_machines(self) -> list[int]:
        """Find this process and those of the workers, where they are on this machine."""
        return [*super(ArrayRead, self).find_machines(), *self.cluster.find_here()]

    def versions(self) -> dict[str, str]:
        """Ask the workers what they have imported."""
        return name_worker_versions("workers", self.cluster.client.run(imported).values())

    def check(self, checksums: NDArray[np.uint64]) -> str:
        """Compare what was read with what was written."""
        return check_values(checksums, self.stored)

    def collect(self) -> dict[str, float]:
        """Count what passed over the wire during the read.

        A worker that ended is refused: its tasks were done by fewer than the point says.
        """
        self.cluster.check_workers()
        counts = count_requests(self.testbed.take_trace(), self.cluster.n_threads())
        return {**counts, "n_workers_obtained": len(self.cluster.workers())}


@dataclass(frozen=True, slots=True)
class RawRead(Steps):
    """The objects that hold the chunks of an array in Zarr, read raw: no decoding, no scheduler.

    The ceiling of every comparison: one process keeps as many requests in flight
    as the readers may, with obstore, the fastest client we know.
    """

    stored: StoredArray
    testbed: Testbed
    n_connections: int
    n_times: int  # that each object is read
    keys: list[str]
    expected: list[int]  # checksums of the objects, read without the network

    @classmethod
    def of_array(
        cls, stored: StoredArray, testbed: Testbed, *, n_connections: int, n_times: int = 1
    ) -> Self:
        """Read the objects that hold the chunks of an array in Zarr, all of them so many times."""
        keys = n_times * list_chunks(stored)
        expected = _read_all(stored.locate("zarr"), keys, n_connections)
        return cls(stored, testbed, n_connections, n_times, keys, expected)

    def settings(self) -> Mapping[str, Scalar]:
        """Tell what a comparison has to hold equal, or declare."""
        return {
            "codec": self.stored.codec,
            "layout": "zarr",
            "cache_state": CACHE_STATE,
            "request_timeout_s": REQUEST_S,
        }

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes that the objects hold."""
        return self.n_times * self.stored.nbytes, self.n_times * self.stored.stored_nbytes["zarr"]

    def prepare(self) -> None:
        """Empty the trace."""
        self.testbed.take_trace()
        self.testbed.set_tag("open")

    def open(self) -> Location:
        """Return where the objects are; there is nothing to open."""
        self.testbed.set_tag("read")
        return self.stored.locate("zarr").through(self.testbed.far.endpoint_url)

    def read(self, location: Location) -> list[int]:
        """Read every object and keep nothing but checksums."""
        return _read_all(location, self.keys, self.n_connections)

    def check(self, checksums: list[int]) -> str:
        """Compare what was read with the same objects read without the network."""
        if checksums != self.expected:
            raise CheckError("raw objects differ from those in the store")
        return f"xxh3 of {len(checksums)} objects"

    def collect(self) -> dict[str, float]:
        """Count what passed over the wire during the read."""
        return count_requests(self.testbed.take_trace(), self.n_connections)


def list_chunks(stored: StoredArray) -> list[str]:
    """List the objects that hold the chunks of an array in Zarr, those that are there."""
    client = stored.locate("zarr").obstore()
    store = ObjectStore(client, read_only=True)
    array = zarr.open_array(store, path=stored.variable, mode="r")
    encode, grid = array.metadata.encode_chunk_key, np.ndindex(stored.checksums.shape)
    wanted = {f"{stored.variable}/{encode(index)}" for index in grid}
    pages = obstore.list(client, prefix=stored.variable)
    stored_keys = sorted(wanted & {item["path"] for page in pages for item in page})
    if not stored_keys:
        raise UserError(
            "store", f"no chunk of {stored.locate('zarr').url}", "a Zarr array with data"
        )
    return stored_keys


def _read_all(location: Location, keys: Sequence[str], n_connections: int) -> list[int]:
    """Run the reads on fsspec's own loop: that of a notebook is running already."""
    return list(
        fsspec.asyn.sync(fsspec.asyn.get_loop(), _read_objects, location, keys, n_connections)
    )


async def _read_objects(location: Location, keys: Sequence[str], n_connections: int) -> list[int]:
    store, slots = location.obstore(), asyncio.Semaphore(n_connections)

    async def read_one(key: str) -> int:
        async with slots:
            response = await obstore.get_async(store, key)
            return xxhash.xxh3_64_intdigest(await response.bytes_async())

    return list(await asyncio.gather(*map(read_one, keys)))


def count_requests(trace: Sequence[RequestRow], n_connections: int) -> dict[str, float]:
    """Summarise the requests of a read."""
    counts: dict[str, float] = {"n_threads": n_connections}
    if not trace:
        return counts
    reads = [request for request in trace if request.tag == "read"]
    busy_s = sum(request.end_s - request.start_s for request in reads)
    first_s = min((request.start_s for request in reads), default=0.0)
    span_s = max((request.end_s for request in reads), default=0.0) - first_s
    return counts | {
        "n_requests": len(reads),
        "wire_nbytes": sum(request.nbytes for request in reads),
        "n_open_requests": len(trace) - len(reads),
        "n_new_connections": sum(request.is_first for request in reads),
        "n_failed_requests": sum(
            not 200 <= request.status < 300 or request.is_cut for request in reads
        ),
        "mean_in_flight": round(busy_s / span_s, 3) if span_s else float(bool(reads)),
        "max_in_flight": max_in_flight(reads),
    }


def max_in_flight(trace: Sequence[RequestRow]) -> int:
    """Count the requests that were in flight at once, at most."""
    moments = sorted([(r.start_s, 1) for r in trace] + [(r.end_s, -1) for r in trace])
    return max(itertools.accumulate(change for _, change in moments), default=0)


def open_array(stored: StoredArray, reader: ArrayReader) -> da.Array:
    """Open a stored array as a Dask array, a stored chunk a block."""
    chunks = dict(zip(stored.dimensions, stored.chunk_shape, strict=True))
    dataset = reader.open(stored.locate(reader.layout), chunks)
    corner = tuple(slice(n) for n in stored.shape)
    array: da.Array = dataset[stored.variable].data[corner]
    return array


def read_into_sink(array: da.Array, chunk_shape: tuple[int, ...]) -> da.Array:
    """Describe a read of the whole array that keeps nothing but checksums.

    Each task reads its block, computes the XXH3 of each stored chunk in it
    and throws the block away, so that memory holds the blocks in flight only,
    and every measured read can be checked against what was written.
    """
    n_per_block = [
        tuple(-(-n // c) for n in extents)
        for extents, c in zip(array.chunks, chunk_shape, strict=True)
    ]
    sums: da.Array = array.map_blocks(
        checksum_chunks,  # type: ignore[arg-type]  # dask means the blocks of what it calls Array
        chunk_shape,
        dtype=np.uint64,
        chunks=n_per_block,
        meta=np.empty((0,) * array.ndim, np.uint64),
    )
    return sums


def checksum_chunks(block: NDArray[np.float32], chunk_shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """Compute the XXH3 of each chunk in a block of whole chunks."""
    parts = readers.iterate_blocks(block.shape, chunk_shape)
    return arrange_checksums((checksum(block[part]) for part in parts), block.shape, chunk_shape)


def check_values(checksums: NDArray[np.uint64], stored: StoredArray) -> str:
    """Compare the checksums of a read with those of what was written."""
    wrong = np.argwhere(checksums != stored.checksums)
    if len(wrong):
        raise CheckError(
            f"{len(wrong)} of {stored.n_chunks} chunks differ from what was written,"
            f" first at {tuple(int(i) for i in wrong[0])}"
        )
    return f"xxh3 of {stored.n_chunks} chunks"
