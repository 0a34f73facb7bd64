"""Every driver reads what was written, over the proxy, and the trace shows how."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import h5py
import obstore
import pytest

from helpers.arrays.reads import max_in_flight
from helpers.benchmark.contender import CheckError
from studies.hdf5_drivers.drivers import (
    DRIVERS,
    ONE_VARIABLE,
    VARIABLES,
    Tree,
    fetch_whole,
    find_absent,
    prove,
    read_all,
)
from studies.hdf5_drivers.files import FILE_LAYOUTS, THREE_VARIABLES
from studies.hdf5_drivers.workload import (
    FileRead,
    make_contenders,
    summarise_trace,
    trace_once,
    trace_reads,
)
from wire.bed.networks import Faults, Profile, get_profile
from wire.bed.requests import RequestRow
from wire.bed.testbed import Testbed


@pytest.mark.parametrize("layout", FILE_LAYOUTS)
@pytest.mark.parametrize("name", [name for name in DRIVERS if DRIVERS[name].service == "s3"])
def test_every_driver_reads_right(name: str, layout: str, way: FileRead) -> None:
    """Each task on each layout answers as the original on local disk does."""
    if reason := find_absent([name]).get(name):
        pytest.skip(reason)
    for task in (VARIABLES, ONE_VARIABLE):
        trace = trace_once(replace(way, driver=DRIVERS[name], layout=layout, task=task))
        assert trace, f"{task} on {layout} passed no network"
        # one request may begin before the proxy has noted the end of another
        assert max_in_flight(trace) <= DRIVERS[name].concurrency + 1


@pytest.mark.parametrize("name", [name for name in DRIVERS if DRIVERS[name].service != "s3"])
def test_other_providers_are_read_right(
    name: str, way: FileRead, services: dict[str, Testbed]
) -> None:
    """Behind the interface of another provider the same file answers the same, over its own network."""
    if reason := find_absent([name]).get(name):
        pytest.skip(reason)
    driver = DRIVERS[name]
    way.testbed.take_trace()
    trace = trace_once(replace(way, driver=driver, testbed=services[driver.service]))
    assert trace and not way.testbed.take_trace(), "it was read from S3"
    assert not any(request.status >= 400 for request in trace)
    # gcsfs asks for the object and for its folder at once
    assert max_in_flight(trace) <= max(2, driver.concurrency) + 1


def test_of_scattered_chunks_gcsfs_fetches_hardly_ahead(
    way: FileRead, services: dict[str, Testbed]
) -> None:
    """Its default makes many more requests than blocks do, and moves fewer bytes than the file has."""
    if reason := find_absent(["gcsfs"]).get("gcsfs"):
        pytest.skip(reason)
    traces = {
        name: trace_once(replace(way, driver=DRIVERS[name], testbed=services["google"]))
        for name in ("gcsfs", "gcsfs-blocks")
    }
    file_nbytes = way.stored.properties["original"].file_nbytes
    moved = {name: sum(request.nbytes for request in trace) for name, trace in traces.items()}
    assert len(traces["gcsfs"]) > 5 * len(traces["gcsfs-blocks"])
    assert moved["gcsfs"] < 0.7 * file_nbytes < moved["gcsfs-blocks"]


def test_the_default_is_what_s3fs_opens(way: FileRead) -> None:
    """Nothing is set, and a file below its read-ahead comes whole, but once for each step back."""
    assert not DRIVERS["fsspec-readahead"].settings and not DRIVERS["xarray"].settings
    trace = trace_once(way)
    assert max(each.nbytes for each in trace) > 0.9 * way.stored.properties["original"].file_nbytes


def test_a_whole_file_is_held_once(way: FileRead, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range goes to its place and is let go, so that memory holds the file and a range a thread."""
    fetch, alive, most = obstore.get_range, weakref.WeakSet[Any](), [0]

    class Part(bytearray):
        """Bytes of a range that can be watched."""

        __hash__ = object.__hash__

    def watch(*where: Any, **span: int) -> Part:
        part = Part(fetch(*where, **span))
        alive.add(part)
        most.append(len(alive))
        return part

    monkeypatch.setattr(obstore, "get_range", watch)
    found = fetch_whole(way.stored.locate("original"), 50_000, 3)
    monkeypatch.undo()
    nbytes = way.stored.properties["original"].file_nbytes
    assert nbytes == len(found.getvalue()) > 20 * 50_000 and max(most) <= 4
    with h5py.File(found) as file:
        assert prove(read_all(Tree(file), THREE_VARIABLES)) == way.stored.answers[VARIABLES]


@pytest.mark.parametrize("is_torn", [False, True], ids=["another format", "torn"])
def test_bad_files(is_torn: bool, way: FileRead) -> None:
    """A file that is none is an error."""
    folder = way.testbed.near.obstore()
    key = f"{way.stored.location.prefix}/original.h5"
    torn = bytes(obstore.get_range(folder, key, start=0, end=200_000))
    obstore.put(folder, "bad.h5", torn if is_torn else b"no HDF5" * 1000)
    for name in ("fsspec-readahead", "fsspec-tuned", "obstore-whole"):
        with pytest.raises(OSError):  # in words of the library
            DRIVERS[name].open(way.testbed.far / "bad.h5", DRIVERS[name].settings)


FAULTS = {"503": Faults(error_503=0.3), "reset": Faults(reset=0.3), "torn": Faults(truncate=0.3)}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["fsspec-none", "fsspec-tuned", "obstore-whole", "references"])
def test_faults_are_retried_or_refused(name: str, fault: str, way: FileRead) -> None:
    """A client gets over a fault by its own retries, or the read is an error: never a wrong row."""
    way.testbed.emulate(Profile("faulty", faults=FAULTS[fault]))
    faulty = replace(way, driver=DRIVERS[name])
    try:
        faulty.prepare()
        values = faulty.read(faulty.open())
    except Exception:  # refused: `measure_blocks` ends, and writes no row
        values = None
    finally:
        way.testbed.emulate(get_profile("loopback"))
    if values is not None:
        assert faulty.check(values)


def test_a_wrong_value_is_found(way: FileRead) -> None:
    """The check compares with what was written, not with what was read."""
    lying = {VARIABLES: replace(way.stored.answers[VARIABLES], checksum="0")}
    with pytest.raises(CheckError, match="fsspec-readahead on original"):
        trace_once(replace(way, stored=replace(way.stored, answers=lying)))


@pytest.mark.parametrize(
    ("requests", "depth"),  # of each request: start and end in s, place and bytes
    [
        ([(0, 1, 0, 10), (1, 2, 10, 10), (2, 3, 20, 10)], 3),  # one after the other
        ([(0, 1, 0, 10), (0, 1, 0, 10), (0, 1, 0, 10)], 1),  # all at once
        ([(0, 9, 0, 20), (1, 2, 5, 5), (3, 4, 30, 5)], 2),  # a long one with two short ones
        ([(0, 2, 0, 10), (1, 3, 5, 10), (2, 4, 40, 10)], 2),  # overlapping by halves
    ],
)
def test_traces_are_summarised(requests: list[tuple[float, float, int, int]], depth: int) -> None:
    """The longest chain of requests that wait for one another, and bytes over those needed."""
    trace = [
        RequestRow(start_s, start_s, end_s, 1, "GET", "/b/k", at, nbytes, 206, nbytes, "read")
        for start_s, end_s, at, nbytes in requests
    ]
    found = summarise_trace(trace, needed_nbytes=10)
    assert found["dependency_depth"] == depth
    assert found["over_read"] == sum(request.nbytes for request in trace) / 10


def test_the_control_repeats_the_last_read(way: FileRead) -> None:
    """It is a copy of the last one of three variables; each is traced once."""
    asked = {
        VARIABLES: ["fsspec-tuned on original", "obstore-whole on front"],
        ONE_VARIABLE: ["fsspec-tuned on original"],
    }
    made = make_contenders(asked, way.stored, way.testbed, read=read_all)
    control = made[-1]
    assert (control.name, control.control_of) == ("control", "obstore-whole")
    assert control.point == {"layout": "front", "task": VARIABLES}
    assert [*trace_reads(made)] == asked[VARIABLES]
