"""The ways to read that the acceptance thresholds compare, each part beside what it is held against."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

import dask.array as da
import numpy as np
import obstore
import psutil
import xxhash
import zarr
from numpy.typing import NDArray
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from helpers.arrays import reads, stores
from helpers.arrays.clusters import Cluster
from helpers.arrays.direct import DirectArray, open_direct
from helpers.arrays.readers import READERS
from helpers.arrays.receiving import Receiver
from helpers.arrays.stores import StoredArray
from helpers.benchmark.contender import Steps
from helpers.benchmark.memory import Peak, watch_memory
from helpers.benchmark.provenance import n_cores
from helpers.objectstore.testbed import Testbed

BEST = "zarr-obstore-in-place"
BATCHED = "zarr-obstore-batched"
A_TASK_A_CHUNK = "zarr-obstore"
TODAY, OF_2020 = "zarr-s3fs", "zarr-s3fs-one-get"
NETCDF = "netcdf-fsspec"
ALONE = "decoding alone"
DIRECT = "zarr-direct"
RECEIVED, DECODED = "received alone", "decoded into place alone"
GROWTH = 4
"""How many times the bytes of the small read the large one has."""

_FREE = "loopback"
_N_FREE = 4  # connections where everything runs in one process
_PROBE_NBYTES, _N_PROBES, _N_PROBE_CONNECTIONS = 32_000_000, 16, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to read, the part of the page that it belongs to, and the network it reads over."""

    part: str
    name: str
    steps: Steps
    profile: str
    concurrency: int
    # where its tasks run: on the workers, in this process, or nowhere, for it has none
    runs: Literal["cluster", "here", "alone"] = "cluster"
    n_chunks: int = 0
    is_ceiling: bool = False

    def facts(self) -> dict[str, Any]:
        """Tell what a comparison has to declare beside what the steps do."""
        return {"concurrency": self.concurrency, "profile": self.profile, "n_chunks": self.n_chunks}


class ProxyRead(reads.RawRead):
    """An object read raw over and over, and the processor time that the proxy takes meanwhile."""

    palette = ""

    def __init__(self, testbed: Testbed) -> None:
        nbytes = _N_PROBES * _PROBE_NBYTES
        testbed.probe_url()  # makes the object
        super().__init__(
            testbed.near,
            ["probe"] * _N_PROBES,
            testbed,
            n_connections=_N_PROBE_CONNECTIONS,
            array_nbytes=nbytes,
            stored_nbytes=nbytes,
            settings={"cache_state": reads.CACHE_STATE},
        )

    def prepare(self) -> None:
        """Empty the trace and note the processor time of the proxy."""
        super().prepare()
        self._before_s = self.testbed.proxy.cpu_s() if self.testbed.proxy else 0.0

    def collect(self) -> dict[str, float]:
        """Count what passed, and the processor time that it took the proxy."""
        spent_s = self.testbed.proxy.cpu_s() - self._before_s if self.testbed.proxy else 0.0
        return {**super().collect(), "proxy_cpu_s": spent_s}


class Held(Receiver):
    """The objects of a store as they lie in memory: nothing is fetched."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        paths = [item["path"] for page in obstore.list(store) for item in page]
        self.objects = {path: bytes(obstore.get(store, path).bytes()) for path in paths}

    def receive(self, key: str, buffer: bytearray) -> memoryview | None:
        """Give an object as it lies there."""
        return memoryview(self.objects[key]) if key in self.objects else None


class DirectRead(Steps):
    """The same array, fetched by some threads and decoded by others, into memory that is kept.

    It leaves the same checksums as the sink of the others. Of its two parts alone, one receives
    and neither decodes nor checks, and the other has in memory what it decodes.
    """

    palette = ""

    def __init__(self, stored: StoredArray, testbed: Testbed, name: str) -> None:
        self.stored, self.testbed, self.name = stored, testbed, name
        self.out = np.zeros(0 if name == RECEIVED else stored.shape, np.float32)

    def settings(self) -> dict[str, Any]:
        """Tell what a comparison has to hold equal, or declare."""
        more = {"layout": "zarr", "cache_state": reads.CACHE_STATE}
        return {"codec": self.stored.codec, "chunks_per_task": 1, **more}

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of the array, and those of the objects that hold it."""
        return self.stored.nbytes, self.stored.stored_nbytes["zarr"]

    def prepare(self) -> None:
        """Empty the trace."""
        self.testbed.take_trace()
        self.testbed.set_tag("open")

    def open(self) -> DirectArray:
        """Open the array with new connections, or take its objects into memory."""
        store = self.stored.seen_from(self.testbed.far).at("zarr").obstore()
        array = open_direct(store, self.stored.variable, n_requests=_N_FREE)
        if self.name == DECODED:
            array = dataclasses.replace(array, receiver=Held(store))
        self.testbed.set_tag("read")
        self._before_s = spend_s()
        return array

    def read(self, opened: DirectArray) -> NDArray[np.uint64] | dict[str, int]:
        """Read all chunks, and keep their checksums, or those of the objects that came."""
        bounds = [(0, n) for n in self.stored.shape]
        if self.name == RECEIVED:
            return opened.receive(bounds)
        found, chunk_shape = opened.read(bounds, self.out), self.stored.chunk_shape
        parts = np.array_split(found, -(-len(found) // chunk_shape[0]))
        with ThreadPoolExecutor(n_cores()) as pool:
            sums = pool.map(lambda part: reads.checksum_chunks(part, chunk_shape), parts)
            return np.concatenate([*sums])

    def check(self, found: NDArray[np.uint64] | dict[str, int]) -> str:
        """Compare the checksums with those of what was written, or of the objects in the store."""
        if not isinstance(found, dict):
            return reads.check_values(found, self.stored)
        held = Held(self.stored.at("zarr").obstore()).objects
        if found != {key: xxhash.xxh3_64_intdigest(held[key]) for key in found} or not found:
            raise reads.WrongValuesError("objects differ from those in the store")
        return f"xxh3 of {len(found)} objects"

    def collect(self) -> dict[str, float]:
        """Count what passed over the wire, and the processor time of all processes."""
        spent_s = spend_s() - self._before_s
        counts = reads.count_requests(self.testbed.take_trace(), _N_FREE)
        return {**counts, "cpu_s": spent_s}


def spend_s() -> float:
    """Add up the processor time of this process and of all that it started, until now."""
    me = psutil.Process()
    return float(sum(sum(one.cpu_times()[:2]) for one in [me, *me.children(recursive=True)]))


@dataclass(frozen=True, slots=True)
class MemoryRead(reads.ArrayRead):
    """The same array decoded from the memory of this process: nothing is fetched."""

    palette = ""

    def open(self) -> Any:
        """Take the objects into memory, and describe the same tasks over them."""
        location, prototype = self.stored.at("zarr"), default_buffer_prototype()
        paths = [item["path"] for page in obstore.list(location.obstore()) for item in page]
        held = {
            path: prototype.buffer.from_bytes(bytes(obstore.get(location.obstore(), path).bytes()))
            for path in paths
        }
        array = zarr.open_group(MemoryStore(held), mode="r")[self.stored.variable]
        block_shape = reads.task_block_shape(
            self.stored.shape, self.stored.chunk_shape, self.chunks_per_task
        )
        blocks = da.from_array(array, block_shape)  # type: ignore[no-untyped-call]
        return reads.read_into_sink(blocks, self.stored.chunk_shape)


@dataclass(frozen=True, slots=True)
class WatchedRead(reads.ArrayRead):
    """A read during which the memory of this process and of its children is watched."""

    watch: ExitStack = field(default_factory=ExitStack)
    peaks: list[Peak] = field(default_factory=list)

    def prepare(self) -> None:
        """Let the peaks begin anew."""
        reads.ArrayRead.prepare(self)  # of a class with slots, super() knows another one
        self.peaks.append(self.watch.enter_context(watch_memory()))

    def collect(self) -> dict[str, float]:
        """Count what passed, and the memory that all processes held at most."""
        self.watch.close()
        return {**reads.ArrayRead.collect(self), "peak_nbytes": self.peaks[-1].nbytes}


@dataclass(frozen=True, slots=True)
class Workload:
    """The checks of a case, as ways to read its arrays."""

    settings: Mapping[str, Any]
    testbed: Testbed
    cluster: Cluster

    def list_ways(self) -> list[Way]:
        """List the ways of every check, part by part; arrays that they need are made first."""
        listed = {
            "proxy": self._proxy,
            "ceiling": self._ceiling,
            "decoding": self._decoding,
            "read-path": self._read_path,
            "configuration-2020": self._configuration_2020,
            "netcdf": self._netcdf,
            "growth": self._growth,
            "overhead-per-chunk": self._overhead,
        }
        return [way for check in self.settings["checks"] for way in listed[check]()]

    def list_watched(self) -> list[Way]:
        """List the reads whose memory is compared, the small one first."""
        if "growth" not in self.settings["checks"]:
            return []
        return [*self._growth(WatchedRead)]

    def _array(self, i: int = 0, *, times: int = 1, layouts: tuple[Any, ...] = ("zarr",)) -> Any:
        """Find the array in one of the chunk shapes, some times as long, or make it."""
        n_times, *rest = self.settings["array_shape"]
        return stores.find_array(
            "enlarged-ocean-temperature",
            self.testbed.near,
            shape=(times * n_times, *rest),
            chunk_shape=tuple(self.settings["chunk_shapes"][i]),
            codec="blosc-zstd",
            layouts=layouts,
            seed=self.settings["seed"],
        )

    def _read(
        self,
        part: str,
        name: str,
        stored: StoredArray,
        batch: int,
        kind: type[reads.ArrayRead] = reads.ArrayRead,
        **other: Any,
    ) -> Way:
        """Read an array on the cluster over the network of the case, but for what is other."""
        cluster = other.pop("cluster", self.cluster)
        steps = kind(stored, READERS[name], self.testbed, cluster, batch)
        facts = {"profile": self.settings["profile"], "concurrency": self._n_threads()}
        return Way(part=part, name=name, steps=steps, n_chunks=stored.n_chunks, **(facts | other))

    def _raw(self, part: str, stored: StoredArray, n_connections: int, profile: str) -> Way:
        return Way(
            part=part,
            name="raw",
            steps=reads.RawRead.of_array(stored, self.testbed, n_connections=n_connections),
            profile=profile,
            concurrency=n_connections,
            runs="alone",
            n_chunks=stored.n_chunks,
            is_ceiling=True,
        )

    def _n_threads(self) -> int:
        return int(self.settings["n_workers"] * self.settings["threads_per_worker"])

    def _batch(self, i: int = 0) -> int:
        return int(self.settings["chunks_per_task"][i])

    def _proxy(self) -> Iterator[Way]:
        """Read directly and through the proxy."""
        direct = dataclasses.replace(self.testbed, far=self.testbed.near)
        for name, testbed in (("direct", direct), ("through the proxy", self.testbed)):
            yield Way(
                part="proxy",
                name=name,
                steps=ProxyRead(testbed),
                profile=_FREE,
                concurrency=_N_PROBE_CONNECTIONS,
                runs="alone",
            )

    def _ceiling(self) -> Iterator[Way]:
        """Read over the emulated network, which is slower than the processors."""
        stored = self._array()
        yield self._read("ceiling", BEST, stored, self._batch())
        yield self._raw("ceiling", stored, self._n_threads(), self.settings["profile"])

    def _decoding(self) -> Iterator[Way]:
        """Read with no network emulated, in this process, where the processors are the bottleneck."""
        stored, batch = self._array(), 2 * self._batch()  # as few tasks as there are processors
        here = dataclasses.replace(self.cluster, threads_per_worker=_N_FREE)
        more: dict[str, Any] = {"profile": _FREE, "concurrency": _N_FREE, "runs": "here"}
        for name in (BEST, BATCHED):
            yield self._read("decoding", name, stored, batch, cluster=here, **more)
        alone = self._read("decoding", BEST, stored, batch, MemoryRead, cluster=here, **more)
        yield dataclasses.replace(alone, name=ALONE)
        yield self._raw("decoding", stored, _N_FREE, _FREE)

    def _read_path(self) -> Iterator[Way]:
        """Read with no network by our own threads, whole and each part alone, beside the best path."""
        stored, part = self._array(), "read-path"
        here = dataclasses.replace(self.cluster, threads_per_worker=_N_FREE)
        more: dict[str, Any] = {"profile": _FREE, "concurrency": _N_FREE}
        yield self._read(part, BEST, stored, 2 * self._batch(), cluster=here, runs="here", **more)
        more |= {"part": part, "n_chunks": stored.n_chunks, "runs": "alone"}
        for name in (DIRECT, RECEIVED, DECODED):
            yield Way(name=name, steps=DirectRead(stored, self.testbed, name), **more)
        yield self._raw(part, stored, _N_FREE, _FREE)

    def _configuration_2020(self) -> Iterator[Way]:
        """Read with the clients and the tasks of 2020, at several chunk shapes."""
        for i in range(len(self.settings["chunk_shapes"])):
            stored = self._array(i)
            part = f"2020-{name_size(stored.nbytes / stored.n_chunks)}"
            for name in (BEST, OF_2020, TODAY):
                yield self._read(part, name, stored, self._batch(i))
            yield self._raw(part, stored, self._n_threads(), self.settings["profile"])

    def _netcdf(self) -> Iterator[Way]:
        """Read the same array as netCDF through a file object, with three read-aheads."""
        stored = self._array(layouts=("zarr", "netcdf"))
        for name in (BEST, NETCDF, f"{NETCDF}-5mib", f"{NETCDF}-50mib"):
            yield self._read("netcdf", name, stored, self._batch())

    def _growth(self, kind: type[reads.ArrayRead] = reads.ArrayRead) -> Iterator[Way]:
        """Read an array, and one of four times the bytes."""
        for times in (1, GROWTH):
            stored = self._array(times=times)
            yield self._read(f"growth-{times}", BEST, stored, self._batch(), kind)

    def _overhead(self) -> Iterator[Way]:
        """Read the same bytes in more and more chunks, with no network emulated."""
        for i in range(len(self.settings["chunk_shapes"])):
            stored = self._array(i)
            for name, batch in ((A_TASK_A_CHUNK, 1), (BEST, self._batch(i))):
                yield self._read(f"overhead-{stored.n_chunks}", name, stored, batch, profile=_FREE)


def name_size(chunk_nbytes: float) -> str:
    """Say to which of three sizes a chunk belongs.

    Examples
    --------
    >>> [name_size(nbytes) for nbytes in (0.5e6, 3.5e6, 14e6)]
    ['small', 'medium', 'large']
    """
    return "small" if chunk_nbytes < 2e6 else "medium" if chunk_nbytes < 8e6 else "large"
