"""Every driver reads what was written, over the proxy, and the trace shows how."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import obstore
import pytest

from helpers.arrays.reads import max_in_flight
from helpers.benchmark.contender import CheckError
from helpers.benchmark.provenance import imported, write_rows
from helpers.errors import UserError
from helpers.netem.profiles import Profile, get_profile
from helpers.netem.proxy import Request
from helpers.objectstore.testbed import Testbed
from studies.hdf5_drivers import drivers, files, findings, granules, tasks
from studies.hdf5_drivers import session as sessions
from studies.hdf5_drivers.file_layouts import CONVERSIONS
from studies.hdf5_drivers.files import Granule
from studies.hdf5_drivers.ros3 import find_ros3, why_absent
from studies.hdf5_drivers.workload import (
    Bench,
    FileRead,
    count_distinct_nbytes,
    critical_path,
    pair_up,
    summarise_trace,
    trace_once,
    vary,
)

LAYOUTS = ["original", "paged-4mib", *CONVERSIONS]


@pytest.fixture(scope="module")
def stored(testbed: Testbed) -> files.StoredFile:
    """Store a small granule in the layouts of the tests."""
    granule = Granule(60_000)
    return files.prepare_granule(granule, testbed.near, layouts=LAYOUTS, group="gt1l/heights")


@pytest.fixture(scope="module")
def bench(stored: files.StoredFile, testbed: Testbed, session: sessions.Session) -> Bench:
    """Put file, network and interpreter together."""
    return Bench(stored, testbed, session)


def test_the_interpreter_tells_what_it_imported(session: sessions.Session) -> None:
    """Libraries without HDF5 are named, and the HDF5 that is loaded there."""
    found = session.call(imported)
    assert {"h5coro", "pyfive", "s3fs", "obstore"} <= {*found}
    assert found["HDF5 of h5py"] == session.describe()["hdf5"]
    assert found["h5py"] == session.describe()["h5py"]
    assert all({*driver.client.libraries} <= {*found} for driver in drivers.DRIVERS.values())


@pytest.mark.parametrize("name", drivers.DRIVERS)
def test_every_driver_reads_right(name: str, stored: files.StoredFile, bench: Bench) -> None:
    """Each task on each layout answers as the original on local disk does."""
    driver = drivers.DRIVERS[name]
    if driver.family == "ros3" and find_ros3() is None:
        pytest.skip(why_absent())
    for _, layout in pair_up([driver], LAYOUTS, stored):
        for task in tasks.TASKS:
            trace = trace_once(FileRead(bench, driver, layout, task))
            assert trace, f"{task} on {layout} passed no network"
            # listing may ask for every object of a group at once; and one request may begin before
            # the proxy has noted the end of another
            if task == "variables":
                assert max_in_flight(trace) <= driver.in_flight + 1, layout


def test_drivers_need_no_setting_of_the_users(
    stored: files.StoredFile, testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token of another account and a proxy have no part in reads of a store on this machine."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-another-account")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with sessions.open_session(testbed.far, find_ros3()) as running:
        for driver in drivers.DRIVERS.values():
            if driver.family == "ros3" and find_ros3() is None:
                continue
            _, layout = next(iter(pair_up([driver], LAYOUTS, stored)))
            assert trace_once(
                FileRead(Bench(stored, testbed, running), driver, layout, "variables")
            )


def test_granules_are_read_at_once(
    testbed: Testbed, session: sessions.Session, tmp_path: Path
) -> None:
    """As many interpreters as granules read what was written, and the page tells what it gains."""
    ways = ((findings.TUNED, "original"), ("references-rechunked", "references-rechunked"))
    plan = granules.Plan(6000, 2, 1.0, profile="loopback", counts=(1, 2), ways=ways)
    with sessions.open_session(testbed.far, None) as other:
        rows = granules.measure_granules(testbed, [session, other], plan)
        with pytest.raises(CheckError, match="fsspec-tuned on original"):
            granules._read_at_once(
                testbed,
                [session, other],
                [replace(one, answers={"variables": one.answers["tree"]}) for one in _two(testbed)],
                drivers.DRIVERS["fsspec-tuned"],
                "original",
            )
    asked = [(row["block"], row["driver"], row["n_granules"]) for row in rows]
    assert sorted(asked) == [(b, d, n) for b in (0, 1) for d, _ in ways for n in (1, 2)]
    alone, both = (
        next(r for r in rows if (r["driver"], r["n_granules"]) == (ways[0][0], n)) for n in (1, 2)
    )
    assert both["requests"] >= 2 * alone["requests"] > 0
    assert both["nbytes"] == pytest.approx(2 * alone["nbytes"], rel=0.1)
    record = tmp_path / "granules.csv"
    assert "Not measured yet" in granules.render_granules(record)
    for row in rows:  # a second for one, and one and a half for two
        row.update(seconds=0.5 + row["n_granules"] / 2, nbytes=1e8 * row["n_granules"])
        row["profile"] = "in-region"
    write_rows(record, rows, ["python"])
    page = granules.render_granules(record)
    # two take 200 MB of a link of 200 MB/s
    assert "| tuned, as written | 1 | 1.5 | 1.3 (1.3 to 1.3) | 2 |" in page


def _two(testbed: Testbed) -> list[files.StoredFile]:
    return [
        files.prepare_granule(Granule(6000, 2018 + at), testbed.near, layouts=["original"])
        for at in range(2)
    ]


def test_a_wrong_value_is_found(bench: Bench) -> None:
    """The check compares with what was written, not with what was read."""
    lying = {
        **bench.stored.answers,
        "variables": replace(bench.stored.answers["variables"], checksum="0"),
    }
    bench = replace(bench, stored=replace(bench.stored, answers=lying))
    way = FileRead(bench, drivers.DRIVERS["fsspec-tuned"], "original")
    with pytest.raises(Exception, match="fsspec-tuned on original"):
        trace_once(way)


def test_settings_reach_the_client(bench: Bench) -> None:
    """Smaller blocks make more requests of fewer bytes."""
    counts = []
    for driver in vary([1, 8], [8], ["paged-4mib"], bench.stored):
        trace = trace_once(FileRead(bench, driver, "paged-4mib", "variables"))
        counts.append((len(trace), max(request.nbytes for request in trace)))
    assert counts[0][1] <= 2 * 2**20 < counts[1][1]


def test_a_page_buffer_below_a_page_is_refused(stored: files.StoredFile) -> None:
    """It is said before anything is measured, naming driver, layout and both sizes."""
    with pytest.raises(UserError, match="page_buf_size: 1048576 for .* on paged-4mib; .*4194304"):
        vary([8], [1], ["paged-4mib"], stored)


def test_a_missing_ros3_is_named() -> None:
    """The other drivers go on; nothing left is refused."""
    present, absent = drivers.get_drivers(["ros3", "h5coro"], has_ros3=False)
    assert ([driver.name for driver in present], absent) == (["h5coro"], ["ros3"])
    with pytest.raises(UserError, match="one that is built in"):
        drivers.get_drivers(["ros3"], has_ros3=False)
    with pytest.raises(UserError, match="drivers: nc4; allowed: fsspec-none"):
        drivers.get_drivers(["nc4"], has_ros3=True)


@pytest.mark.parametrize("content", [b"no HDF5" * 1000, None])  # another format, a torn file
@pytest.mark.parametrize("name", ["fsspec-tuned", "obstore-tuned", "pyfive"])
def test_bad_files(
    content: bytes | None,
    name: str,
    stored: files.StoredFile,
    testbed: Testbed,
    session: sessions.Session,
) -> None:
    """A file that is none is an error of one line, and the interpreter goes on."""
    folder = testbed.near.obstore()
    if content is None:
        key = f"{stored.location.prefix}/original.h5"
        content = bytes(obstore.get_range(folder, key, start=0, end=200_000))
    obstore.put(folder, "bad.h5", content)
    task = stored.tasks["variables"]
    with pytest.raises(UserError, match="^driver: (open|run) failed: [^\n]*$"):
        session.open(drivers.DRIVERS[name], testbed.far / "bad.h5")
        session.run(task)
    session.forget()
    assert session.describe()["hdf5"]


def test_a_missing_variable_is_named(
    stored: files.StoredFile, testbed: Testbed, session: sessions.Session
) -> None:
    """The message says which."""
    session.open(drivers.DRIVERS["fsspec-tuned"], stored.seen_from(testbed.far).at("original"))
    task = replace(stored.tasks["variables"], variables=("gt1l/heights/depth",))
    with pytest.raises(UserError, match="gt1l/heights/depth"):
        session.run(task)
    session.forget()


def make_request(start_s: float, end_s: float, *, at: int = 0, nbytes: int = 0) -> Request:
    """Make a row of a trace."""
    return Request(start_s, start_s, end_s, 1, "GET", "/b/k", at, nbytes, 206, nbytes, "read")


@pytest.mark.parametrize(
    ("spans", "depth"),
    [
        ([], 0),
        ([(0, 1), (1, 2), (2, 3)], 3),  # one after the other
        ([(0, 1), (0, 1), (0, 1)], 1),  # all at once
        ([(0, 9), (1, 2), (3, 4)], 2),  # a long one beside two short ones
        ([(0, 2), (1, 3), (2, 4)], 2),  # overlapping by halves
    ],
)
def test_critical_path(spans: list[tuple[float, float]], depth: int) -> None:
    """The longest chain of requests that wait for one another."""
    assert critical_path([make_request(*span) for span in spans]) == depth


@pytest.mark.parametrize(
    ("ranges", "distinct"),
    [
        ([], 0),
        ([(0, 10), (10, 10)], 20),  # side by side
        ([(0, 10), (0, 10)], 10),  # twice the same
        ([(0, 10), (5, 10)], 15),  # overlapping
        ([(0, 20), (5, 5), (30, 5)], 25),  # one inside another
    ],
)
def test_distinct_bytes(ranges: list[tuple[int, int]], distinct: int) -> None:
    """Bytes fetched twice count once."""
    trace = [make_request(0, 1, at=at, nbytes=nbytes) for at, nbytes in ranges]
    assert count_distinct_nbytes(trace) == distinct


def test_over_read() -> None:
    """Bytes fetched over bytes needed."""
    trace = [make_request(0, 1, nbytes=300), make_request(1, 2, nbytes=100)]
    found = summarise_trace(trace, needed_nbytes=200)
    assert (found["over_read"], found["repeated_nbytes"]) == (2.0, 100)


def test_profiles_slow_a_driver_down_by_its_critical_path(bench: Bench) -> None:
    """A driver without a cache has a chain as long as its requests."""
    driver = drivers.DRIVERS["fsspec-none"]
    trace = trace_once(FileRead(bench, driver, "original", "variables"))
    assert critical_path(trace) > 0.8 * len(trace) > 10
    assert isinstance(get_profile("loopback"), Profile)
