"""Every driver reads what was written, over the proxy, and the trace shows how."""

from __future__ import annotations

from dataclasses import replace

import obstore
import pytest

from helpers.arrays.reads import max_in_flight
from helpers.benchmark.contender import CheckError
from helpers.benchmark.provenance import imported
from helpers.errors import UserError
from helpers.netem.profiles import Faults, Profile, get_profile
from helpers.netem.proxy import Request
from studies.hdf5_drivers import drivers, tasks
from studies.hdf5_drivers import session as sessions
from studies.hdf5_drivers.workload import (
    Bench,
    FileRead,
    make_contenders,
    make_control,
    pair_up,
    summarise_trace,
    trace_once,
    vary,
)
from tests.studies.hdf5_drivers.conftest import LAYOUTS


def get_driver(name: str, bench: Bench) -> drivers.Driver:
    """Look a driver up, or skip where this h5py has no ROS3."""
    versions, driver = bench.session.describe(), drivers.DRIVERS[name]
    if driver.family == "ros3" and versions["ros3"] != "True":
        pytest.skip(sessions.why_absent(versions))
    return driver


def test_the_interpreter_tells_what_it_imported(bench: Bench) -> None:
    """Libraries without HDF5 are named, and the HDF5 that is loaded there."""
    found, versions = bench.session.call(imported), bench.session.describe()
    assert (found["HDF5 of h5py"], found["h5py"]) == (versions["hdf5"], versions["h5py"])
    assert all({*driver.client.libraries} <= {*found} for driver in drivers.DRIVERS.values())


@pytest.mark.parametrize("name", drivers.DRIVERS)
def test_every_driver_reads_right(name: str, bench: Bench) -> None:
    """Each task on each layout answers as the original on local disk does."""
    driver = get_driver(name, bench)
    for _, layout in pair_up([driver], LAYOUTS, bench.stored):
        for task in tasks.TASKS if name in drivers.LISTERS else tasks.ON_VALUES:
            trace = trace_once(FileRead(bench, driver, layout, task))
            assert trace, f"{task} on {layout} passed no network"
            # listing may ask for every object of a group at once; and one request may begin before
            # the proxy has noted the end of another
            if task == "variables":
                assert max_in_flight(trace) <= driver.in_flight + 1, layout


def test_drivers_need_no_setting_of_the_users(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token of another account and a proxy have no part in reads of a store on this machine."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-another-account")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with sessions.open_session(bench.testbed.far) as running:
        for driver in drivers.DRIVERS.values():
            if driver.family != "ros3":
                _, layout = next(iter(pair_up([driver], LAYOUTS, bench.stored)))
                assert trace_once(FileRead(replace(bench, session=running), driver, layout))


def test_a_page_buffer_below_a_page_is_refused(bench: Bench) -> None:
    """It is said before anything is measured, naming driver, layout and both sizes."""
    with pytest.raises(UserError, match="page_buf_size: 1048576 for .* on paged-4mib; .*4194304"):
        vary([8], [1], ["paged-4mib"], bench.stored)


def test_a_missing_ros3_is_named() -> None:
    """The other drivers go on; nothing left is refused."""
    present, absent = drivers.get_drivers(["ros3", "h5coro"], has_ros3=False)
    assert ([driver.name for driver in present], absent) == (["h5coro"], ["ros3"])
    with pytest.raises(UserError, match="one that is built in"):
        drivers.get_drivers(["ros3"], has_ros3=False)


@pytest.mark.parametrize("is_torn", [False, True], ids=["another format", "torn"])
@pytest.mark.parametrize("name", ["fsspec-tuned", "obstore-tuned", "pyfive-tuned"])
def test_bad_files(name: str, is_torn: bool, bench: Bench) -> None:
    """A file that is none is an error of one line, and the interpreter goes on."""
    folder, session = bench.testbed.near.obstore(), bench.session
    key = f"{bench.stored.location.prefix}/original.h5"
    torn = bytes(obstore.get_range(folder, key, start=0, end=200_000))
    obstore.put(folder, "bad.h5", torn if is_torn else b"no HDF5" * 1000)
    with pytest.raises(UserError, match="^driver: (open|run) failed: [^\n]*$"):
        session.open(drivers.DRIVERS[name], bench.testbed.far / "bad.h5")
        session.run(bench.stored.tasks["variables"])
    session.forget()
    assert session.describe()["hdf5"]


FAULTS = {"503": Faults(error_503=0.3), "reset": Faults(reset=0.3), "torn": Faults(truncate=0.3)}
READERS = ("fsspec-none", "fsspec-tuned", "obstore-tuned", "ros3", "h5coro", "pyfive-tuned", "references")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", READERS)
def test_faults_are_retried_or_refused(name: str, fault: str, bench: Bench) -> None:
    """A client gets over a fault by its own retries, or the read is an error: never a wrong row."""
    driver = get_driver(name, bench)
    bench.testbed.emulate(Profile("faulty", faults=FAULTS[fault]))
    way = FileRead(bench, driver, "references" if name == "references" else "original")
    try:
        way.prepare()
        answer: tasks.Answer | None = way.read(way.open())
    except UserError:
        answer = None  # refused: `measure_blocks` ends, and writes no row
    finally:
        bench.testbed.emulate(get_profile("loopback"))
        bench.session.forget()
    assert answer in (None, bench.stored.answers["variables"])


def test_a_wrong_value_is_found(bench: Bench) -> None:
    """The check compares with what was written, not with what was read."""
    lying = {"variables": replace(bench.stored.answers["variables"], checksum="0")}
    bench = replace(bench, stored=replace(bench.stored, answers=lying))
    with pytest.raises(CheckError, match="fsspec-tuned on original"):
        trace_once(FileRead(bench, drivers.DRIVERS["fsspec-tuned"], "original"))


@pytest.mark.parametrize(
    ("requests", "depth", "repeated"),  # of each request: start and end in s, place and bytes
    [
        ([(0, 1, 0, 10), (1, 2, 10, 10), (2, 3, 20, 10)], 3, 0),  # one after the other
        ([(0, 1, 0, 10), (0, 1, 0, 10), (0, 1, 0, 10)], 1, 20),  # all at once, of the same
        ([(0, 9, 0, 20), (1, 2, 5, 5), (3, 4, 30, 5)], 2, 5),  # a long one with two short ones
        ([(0, 2, 0, 10), (1, 3, 5, 10), (2, 4, 40, 10)], 2, 5),  # overlapping by halves
    ],
)
def test_traces_are_summarised(
    requests: list[tuple[float, float, int, int]], depth: int, repeated: int
) -> None:
    """The longest chain of requests that wait for one another, and bytes fetched twice."""
    trace = [
        Request(start_s, start_s, end_s, 1, "GET", "/b/k", at, nbytes, 206, nbytes, "read")
        for start_s, end_s, at, nbytes in requests
    ]
    found = summarise_trace(trace, needed_nbytes=10)
    assert (found["dependency_depth"], found["repeated_nbytes"]) == (depth, repeated)
    assert found["over_read"] == sum(request.nbytes for request in trace) / 10


def test_the_control_repeats_what_is_judged(bench: Bench) -> None:
    """It is a copy of the last that reads variables; without one nothing is measured."""
    chosen, read = [drivers.DRIVERS["fsspec-tuned"]], bench.session.run
    made = make_contenders(
        chosen, ["original", "paged-4mib"], ["variables", "tree"], bench, read=read
    )
    control = make_control(made)
    assert (control.name, control.control_of) == ("control", "fsspec-tuned")
    assert control.point == {"layout": "paged-4mib", "task": "variables"}
    made = make_contenders(chosen, ["original", "paged-4mib"], ["tree"], bench, read=read)
    with pytest.raises(UserError, match="^drivers: fsspec-tuned; allowed: also one that reads var"):
        make_control(made)
