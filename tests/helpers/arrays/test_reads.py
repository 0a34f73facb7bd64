"""A read over the wire is what its trace, its checksums and its client say it is."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import h5py
import hypothesis.strategies as st
import numpy as np
import obstore
import pytest
import zarr
from hypothesis import given
from numpy.typing import NDArray
from s3fs import S3FileSystem
from xarray.backends.file_manager import FILE_CACHE
from zarr.storage import ObjectStore

from helpers.arrays import readers
from helpers.arrays.clusters import Cluster, open_cluster
from helpers.arrays.fields import FILL
from helpers.arrays.readers import CODECS, READERS, Codec, forget_clients, iterate_blocks
from helpers.arrays.reads import (
    ON_FILES,
    ArrayRead,
    RawRead,
    check_values,
    checksum_chunks,
    count_requests,
    list_chunks,
    open_array,
    read_into_sink,
)
from helpers.arrays.stores import StoredArray, prepare_array
from helpers.benchmark.contender import CheckError, Contender
from helpers.benchmark.loop import Budget, MeasurementError, measure_blocks
from helpers.benchmark.provenance import Provenance
from helpers.benchmark.record import Record
from tests.refusals import refused
from tests.stores import CHUNK_SHAPE, SHAPE, make_location, make_sample, make_stored
from wire.bed.locations import Location
from wire.bed.networks import FirstByte, Profile, get_profile
from wire.bed.proxy import open_proxy
from wire.bed.requests import RequestRow
from wire.bed.testbed import Server, Testbed, open_testbed


def make_row(
    start_s: float, end_s: float, *, tag: str = "read", status: int = 200, nbytes: int = 10
) -> RequestRow:
    """Make a row of a trace."""
    return RequestRow(start_s, start_s, end_s, 1, "GET", "/b/k", None, None, status, nbytes, tag)


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        # nothing traces: nothing is known but what was asked
        ([], {"n_threads": 4}),
        # one after the other: never two at once, also where one starts as another ends
        (
            [make_row(0, 1), make_row(1, 2), make_row(2, 3)],
            {"n_requests": 3, "wire_nbytes": 30, "mean_in_flight": 1.0, "max_in_flight": 1},
        ),
        # two at once for half of the time
        ([make_row(0, 2), make_row(1, 2)], {"mean_in_flight": 1.5, "max_in_flight": 2}),
        # a gap counts as time in which none is in flight
        ([make_row(0, 1), make_row(3, 4)], {"mean_in_flight": 0.5, "max_in_flight": 1}),
        # opening is counted apart, and not its bytes
        (
            [make_row(0, 1, tag="open"), make_row(1, 2), make_row(1, 2)],
            {"n_requests": 2, "n_open_requests": 1, "wire_nbytes": 20, "mean_in_flight": 2.0},
        ),
        # failures are those that are no success, of the read
        (
            [make_row(0, 1, status=503), make_row(1, 2, status=206), make_row(2, 3, status=0)],
            {"n_failed_requests": 2, "n_requests": 3},
        ),
        # all bytes came with the opening: a read of nothing, not an unknown one
        (
            [make_row(0, 1, tag="open")],
            {"n_requests": 0, "wire_nbytes": 0, "n_open_requests": 1, "max_in_flight": 0},
        ),
        # a moment too short for the clock
        ([make_row(1, 1)], {"mean_in_flight": 1.0}),
    ],
)
def test_counts_requests(trace: list[RequestRow], expected: dict[str, float]) -> None:
    """Counts of traces made by hand are those made by hand."""
    counts = count_requests(trace, 4)
    assert expected.items() <= counts.items()
    assert counts["n_threads"] == 4
    assert bool(trace) == ("n_requests" in counts)


@pytest.fixture(scope="module")
def testbed(server: Server) -> Iterator[Testbed]:
    """Trace the store of the tests."""
    near = make_location(server, "reads")
    with open_proxy(server.endpoint_url, profile=get_profile("loopback")) as proxy:
        yield Testbed(near, near.through(proxy.endpoint_url), proxy)


@pytest.fixture(scope="module")
def stored(testbed: Testbed) -> StoredArray:
    """Store the small array in every layout."""
    return make_stored(testbed.near)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Start two workers of two threads."""
    with open_cluster("local", threads_per_worker=2) as cluster:
        cluster.scale(2)
        yield cluster


def read_once(read: ArrayRead | RawRead) -> tuple[str, dict[str, float]]:
    """Make the steps of a measurement; return what was checked and what was counted."""
    read.prepare()
    opened: Any = read.open()
    checksums: Any = read.read(opened)
    checked = read.check(checksums)
    return checked, read.collect()


@pytest.mark.parametrize("name", READERS)
def test_array_read_is_checked_and_counted(
    testbed: Testbed, stored: StoredArray, cluster: Cluster, name: str
) -> None:
    """Each reader's values are right on workers, and its requests and bytes are those needed."""
    checked, counts = read_once(ArrayRead(stored, READERS[name], testbed, cluster))
    assert checked == "xxh3 of 12 chunks"
    assert counts["n_threads"] == 4
    assert counts["n_failed_requests"] == 0
    chunk_nbytes = count_chunk_nbytes(stored)
    if name in ("zarr-s3fs", "zarr-zarrs"):  # ask for the size before each chunk
        assert (counts["n_requests"], counts["wire_nbytes"]) == (24, chunk_nbytes)
    elif READERS[name].layout != "netcdf":  # a file object asks as its read-ahead has it
        assert counts["n_requests"] == 12
    if READERS[name].layout == "zarr":
        assert counts["wire_nbytes"] == chunk_nbytes
    assert counts["max_in_flight"] >= counts["mean_in_flight"] >= 0


def count_chunk_nbytes(stored: StoredArray) -> int:
    """Sum the objects that hold chunks, as their client gets them."""
    client = stored.locate("zarr").obstore()
    return sum(len(obstore.get(client, key).bytes()) for key in list_chunks(stored))


def test_each_read_is_cold(testbed: Testbed, stored: StoredArray, cluster: Cluster) -> None:
    """A second read makes the requests of the first: nothing was kept but connections of fsspec."""
    ways: list[ArrayRead | RawRead] = [
        ArrayRead(stored, READERS[name], testbed, cluster)
        for name in ("netcdf-fsspec", "zarr-s3fs", "zarr-obstore", "zarr-zarrs")
    ]
    for i, read in enumerate([*ways, RawRead.of_array(stored, testbed, n_connections=2)]):
        (_, first), (_, second) = read_once(read), read_once(read)
        for name in ("n_open_requests",) if i == 0 else ("n_requests", "n_open_requests"):
            assert first[name] == second[name]
        assert (second["n_new_connections"] == 0) == (i < 2)


@pytest.mark.slow
def test_a_worker_that_dies_leaves_no_row(
    testbed: Testbed, stored: StoredArray, cluster: Cluster, tmp_path: Path
) -> None:
    """A read of which a part was done with fewer workers than its point says is no measurement."""
    record = Record(tmp_path / "r.csv", study="s", provenance=Provenance({}, {}, {}))

    def read(sink: da.Array) -> Any:
        if len(record.rows) != 1:
            return sink.compute()
        future = cluster.client.compute(sink)
        while not all(cluster.client.processing().values()):
            time.sleep(0.01)
        victim, *_ = cluster.client.run(os.getpid, workers=[*cluster.workers()]).values()
        os.kill(victim, signal.SIGKILL)
        return future.result()

    way = ArrayRead(stored, READERS["zarr-obstore"], testbed, cluster)
    rule: dict[str, Any] = {"seed": 1, "n_blocks": 3, "n_warm_ups": 0, "dilation": 1}
    rule |= {"budget": Budget(1000), "enter_group": lambda group: cluster.scale(int(group))}
    testbed.emulate(Profile("late", first_byte_s=FirstByte(0.3, 0.3)))
    try:
        with refused(
            r"a \{\}, measured block 1", "n_workers: 2; .*; allowed: ", kind=MeasurementError
        ) as told:
            measure_blocks([Contender("a", way, group="2", read=read)], record, **rule)
        assert "\n" not in str(told.value)
    finally:
        testbed.emulate(get_profile("loopback"))
    assert [json.loads(trace)["n_workers_obtained"] for trace in record.to_frame()["trace"]] == [2]


def test_workers_must_be_those_asked_for(
    testbed: Testbed, stored: StoredArray, cluster: Cluster
) -> None:
    """A read does not begin with another number of workers than the cluster was scaled to."""
    cluster.scale(2)
    read = ArrayRead(stored, READERS["zarr-obstore"], testbed, cluster)
    read.prepare()
    cluster.scale(1)
    with refused("n_workers", "^1; .* so the read is not kept"):
        cluster.check_workers()
    cluster.n_workers = 2
    with refused("n_workers", "^2; the local cluster has 1"):
        read.prepare()
    cluster.scale(2)
    read.prepare()


@pytest.mark.parametrize("n_connections", [1, 5])
def test_raw_read_is_the_same_objects(
    testbed: Testbed, stored: StoredArray, n_connections: int
) -> None:
    """The ceiling reads each chunk's object once, n at a time, and counts as its client does."""
    raw = RawRead.of_array(stored, testbed, n_connections=n_connections)
    testbed.emulate(Profile("late", first_byte_s=FirstByte(0.05, 0.05)))
    try:
        raw.prepare()
        sums = raw.read(raw.open())
        counts = raw.collect()
    finally:
        testbed.emulate(get_profile("loopback"))
    assert raw.check(sums) == "xxh3 of 12 objects"
    assert counts["n_requests"] == 12
    assert counts["wire_nbytes"] == count_chunk_nbytes(stored)
    # a row may end a moment after its client has asked again
    assert n_connections <= counts["max_in_flight"] <= n_connections + 1
    assert counts["n_open_requests"] == 0


def test_nothing_to_read_is_an_error(testbed: Testbed) -> None:
    """An array without chunks has no ceiling: it is refused, not read in no time."""
    other = make_stored(testbed.near / "empty", layouts=["zarr"])
    client = other.locate("zarr").obstore()
    obstore.delete(
        client,
        [f"temperature/c/{i}/{j}/0/{k}" for i in range(3) for j in range(2) for k in range(2)],
    )
    with refused("store", "^no chunk of s3://reads/empty/"):
        RawRead.of_array(other, testbed, n_connections=1)


def test_sink_has_one_checksum_a_chunk() -> None:
    """Blocks of several chunks give the checksums of the array cut into chunks."""
    values = np.random.default_rng(0).random((6, 10), np.float32)
    array = da.from_array(values, chunks=(2, 8))  # blocks of 2 by 2 chunks, the last clipped
    sums = read_into_sink(array, (1, 4))
    assert sums.shape == (6, 3)
    assert np.array_equal(sums.compute(scheduler="synchronous"), checksum_chunks(values, (1, 4)))


def test_a_wrong_chunk_is_named(stored: StoredArray) -> None:
    """The check passes what is right and says which chunk differs first."""
    assert check_values(stored.checksums, stored) == "xxh3 of 12 chunks"
    wrong = stored.checksums.copy()
    wrong[1, 1, 0, 0] += 1
    wrong[2, 0, 0, 1] += 1
    with pytest.raises(CheckError, match=r"^2 of 12 chunks differ .* at \(1, 1, 0, 0\)$"):
        check_values(wrong, stored)


def test_a_corner_is_read(stored: StoredArray) -> None:
    """An array described as smaller than it lies in the store is its corner."""
    corner = dataclasses.replace(
        stored, shape=(2, 4, 40, 50), checksums=stored.checksums[:2, :1, :, :1]
    )
    array = open_array(corner, READERS["zarr-obstore"])
    sums = read_into_sink(array, corner.chunk_shape).compute(scheduler="synchronous")
    assert check_values(sums, corner) == "xxh3 of 2 chunks"


@pytest.mark.parametrize("name", READERS)
def test_forgetting_leaves_nothing_open(stored: StoredArray, name: str) -> None:
    """After a read, forgetting closes clients, sessions and files without a warning."""
    reader = READERS[name]
    forget_clients(reader.zarr_config)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        array = open_array(stored, reader)
        read_into_sink(array, stored.chunk_shape).compute(scheduler="threads", num_workers=2)
        clients = list(S3FileSystem._cache.values())
        assert bool(clients) == (name.startswith("zarr-s3fs") or reader.layout == "netcdf")
        forget_clients({})
        assert all(client._s3 is None for client in clients)
        del array, clients
        gc.collect()
    assert [str(each.message) for each in caught if "nclosed" in str(each.message)] == []
    assert not S3FileSystem._cache
    assert not len(FILE_CACHE)


def test_readers_of_files_read_what_was_written(cluster: Cluster, tmp_path: Path) -> None:
    """Every reader that fits, on workers, value by value; nothing traces, and raw reads are there."""
    folder = tmp_path / "a project"
    folder.mkdir()
    with open_testbed(f"file://{folder}", get_profile("loopback")) as testbed:
        stored = prepare_array(
            make_sample(),
            testbed.near,
            chunk_shape=CHUNK_SHAPE,
            codec="blosc-zstd",
            layouts=("zarr", "netcdf"),
        )
        cluster.scale(1)
        for name in [name for name, reader in READERS.items() if not reader.needs_s3]:
            read = ArrayRead(stored, READERS[name], testbed, cluster)
            checked, counts = read_once(read)
            assert checked == "xxh3 of 12 chunks" and "n_requests" not in counts
            assert read.settings()["cache_state"] == ON_FILES
        raw = RawRead.of_array(stored, testbed, n_connections=2)
        assert read_once(raw)[0] == "xxh3 of 12 objects"
    assert [*folder.rglob("zarr.json")], "the array is in the folder that was named"


# Layouts are what they say they are.

WHOLE = make_sample().block((0,) * 4, SHAPE)


@pytest.fixture(scope="module")
def location(server: Server) -> Location:
    """Locate a bucket for layouts of every codec."""
    return make_location(server, "formats")


def read(stored: StoredArray, name: str) -> NDArray[np.uint64]:
    """Read by a reader and return checksums."""
    reader = READERS[name]
    forget_clients(reader.zarr_config)
    array = open_array(stored, reader)
    sums = read_into_sink(array, stored.chunk_shape)
    return np.asarray(sums.compute(scheduler="threads", num_workers=2))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", READERS)
def test_reads_what_was_written(location: Location, name: str, codec: Codec) -> None:
    """Checksums through each reader and codec are those of the sample itself."""
    stored = make_stored(location, codec=codec)
    assert np.array_equal(read(stored, name), stored.checksums)
    reader = READERS[name]
    array = open_array(stored, reader)
    assert array.chunksize == CHUNK_SHAPE
    assert np.array_equal(array[1].compute(scheduler="synchronous"), WHOLE[1])


def spoil(location: Location, layout: str) -> None:
    """Flip every bit of 100 bytes in the middle of the first chunk's data."""
    client = location.obstore()
    if layout == "zarr":
        key, start = "zarr/temperature/c/0/0/0/0", 0
        size = len(obstore.get(client, key).bytes())
    else:
        key, refs = (
            "netcdf/array.nc",
            json.loads(bytes(obstore.get(client, "references/references.json").bytes())),
        )
        _, start, size = refs["refs"]["temperature/0.0.0.0"]
    body = bytearray(bytes(obstore.get(client, key).bytes()))
    middle = start + size // 2
    body[middle : middle + 100] = bytes(255 - value for value in body[middle : middle + 100])
    obstore.put(client, key, bytes(body))


@pytest.mark.parametrize("codec", ["none", "blosc-zstd"])
@pytest.mark.parametrize("name", READERS)
def test_corruption_is_found(location: Location, name: str, codec: Codec) -> None:
    """A read of other bytes ends in an error: of the codec's own, or of our check."""
    stored = make_stored(location / f"spoilt-{name}", codec=codec)
    check_values(read(stored, name), stored)
    spoil(stored.location, READERS[name].layout)
    of_codecs = () if codec == "none" else (RuntimeError, OSError)
    with pytest.raises((CheckError, *of_codecs)):
        check_values(read(stored, name), stored)


@pytest.mark.parametrize("codec", CODECS)
def test_layouts_are_as_asked(location: Location, codec: Codec, tmp_path: Path) -> None:
    """Zarr and HDF5 themselves say chunk shape, level 5, byte shuffle, codec, fill and dimensions."""
    stored = make_stored(location, codec=codec)
    array = zarr.open_array(
        ObjectStore(stored.locate("zarr").obstore()), path="temperature", mode="r"
    )
    found = array.metadata.to_dict()
    assert (array.chunks, array.dtype, array.fill_value) == (CHUNK_SHAPE, np.float32, FILL)
    assert found["dimension_names"] == readers.DIMENSIONS and found["zarr_format"] == 3
    asked = {"cname": codec.removeprefix("blosc-"), "clevel": 5, "shuffle": "shuffle"}
    for one in array.compressors:
        assert asked.items() <= one.to_dict()["configuration"].items()
    (path := tmp_path / "array.nc").write_bytes(
        bytes(obstore.get(stored.locate("netcdf").obstore(), "array.nc").bytes())
    )
    with h5py.File(path) as file:
        dataset = file["temperature"]
        properties = dataset.id.get_create_plist()
        assert (dataset.chunks, dataset.fillvalue) == (CHUNK_SHAPE, FILL)
        filters = [properties.get_filter(i) for i in range(properties.get_nfilters())]
    number = {"blosc-lz4": 1, "blosc-zstd": 5}  # of the compressor, in Blosc's own list
    told = [(code, options[4:7]) for code, _, options, _ in filters]
    assert len(array.compressors) == len(told) == (codec != "none")
    assert told == [(32001, (5, 1, number.get(codec)))] * len(told)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=3))
def test_blocks_cover_each_element_once(pairs: list[tuple[int, int]]) -> None:
    """Blocks are at most a chunk, in C order, and together the array."""
    shape, chunk_shape = tuple(n for n, _ in pairs), tuple(c for _, c in pairs)
    counts = np.zeros(shape, int)
    for block in iterate_blocks(shape, chunk_shape):
        assert all(s.stop - s.start <= c for s, c in zip(block, chunk_shape, strict=True))
        counts[block] += 1
    assert (counts == 1).all()
    starts = [tuple(s.start for s in block) for block in iterate_blocks(shape, chunk_shape)]
    assert starts == sorted(starts)
