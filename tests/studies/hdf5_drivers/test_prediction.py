"""What the study predicts of drivers with caches is what the proxy counts, and faults make no rows."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import obstore
import pandas as pd
import pytest

from advisors.hdf5.recording import iterate_chunks
from helpers.benchmark import ranking as rankings
from helpers.benchmark import statistics
from helpers.benchmark.record import read_records
from helpers.errors import UserError
from helpers.models.caches import Parts, Read, Reading, read_through
from helpers.models.transfer import ClientCosts, Network
from helpers.netem.profiles import Faults, FirstByte, Profile, get_profile, take_scatter_out
from helpers.netem.proxy import Request
from helpers.objectstore.testbed import Testbed
from helpers.paths import ROOT
from helpers.plotting.tables import trace_of
from studies.hdf5_drivers import drivers, files, findings, prediction, tasks, workload
from studies.hdf5_drivers import session as sessions
from studies.hdf5_drivers.files import Granule
from studies.hdf5_drivers.findings import find_targets
from studies.hdf5_drivers.ros3 import find_ros3, why_absent
from studies.hdf5_drivers.workload import Bench

MIB = 2**20
LAYOUTS = ["original", "paged-4mib"]
COSTS = dict.fromkeys(("fsspec", "ros3", "obstore"), ClientCosts())


@pytest.fixture(scope="module")
def stored(testbed: Testbed) -> files.StoredFile:
    """Store a granule that is larger than blocks of a MiB."""
    return files.prepare_granule(
        Granule(200_000), testbed.near, layouts=LAYOUTS, group="gt1l/heights"
    )


@pytest.fixture(scope="module")
def bench(stored: files.StoredFile, testbed: Testbed, session: sessions.Session) -> Bench:
    """Put file, network and interpreter together."""
    return Bench(stored, testbed, session)


def skip_without_ros3(driver: drivers.Driver) -> None:
    """Skip what this machine does not have."""
    if driver.family == "ros3" and find_ros3() is None:
        pytest.skip(why_absent())


DETERMINISTIC = (
    "fsspec-readahead",
    "fsspec-first",
    "fsspec-tuned",
    "ros3",
    "ros3-none",
    "ros3-first",
    "ros3-tuned",
)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [*DETERMINISTIC, "obstore-tuned"])
def test_requests_are_predicted_exactly(name: str, layout: str, bench: Bench) -> None:
    """From the trace without a cache follow the requests and bytes with one."""
    driver = drivers.DRIVERS[name]
    skip_without_ros3(driver)
    chosen = [driver]
    if name == "fsspec-tuned":  # blocks below the length of the file as well
        chosen += workload.vary([1], [8], [layout], bench.stored)
    recorded = prediction.record_library([layout], bench)[layout]
    for each in chosen:
        trace = workload.trace_once(workload.FileRead(bench, each, layout, "variables"))
        found = prediction.predict_drivers(each, recorded, Network(), COSTS)
        assert found is not None
        counted = (len(trace), sum(request.nbytes for request in trace))
        assert (found.n_requests, found.nbytes) == counted, each.name


def write_large(path: Path) -> tuple[tuple[str, ...], set[int]]:
    """Write three variables whose chunks of a MiB lie between one another, in 48 MB."""
    names = ("a", "b", "c")
    with h5py.File(path, "w") as file:
        made = [
            file.create_dataset(name, shape=(16, MIB // 4), dtype="f4", chunks=(1, MIB // 4))
            for name in names
        ]
        for row in range(16):
            for dataset in made:
                dataset[row] = np.float32(row)
    with h5py.File(path) as file:
        return names, {at for name in names for _, at, _ in iterate_chunks(file[name])}


def test_blocks_of_ros3_are_predicted(
    tmp_path: Path, testbed: Testbed, session: sessions.Session
) -> None:
    """In a file of several of its blocks, ROS3 asks for what its model asks for, in parts."""
    skip_without_ros3(drivers.DRIVERS["ros3"])
    path = tmp_path / "large.h5"
    names, chunks = write_large(path)
    obstore.put(testbed.near.obstore(), path.name, path)
    task = tasks.Task("variables", names, (0, 1))

    def trace_of(name: str) -> list[Request]:
        session.forget()
        testbed.take_trace()
        session.open(drivers.DRIVERS[name], testbed.far / path.name)
        session.run(task)
        return sorted(testbed.take_trace(), key=lambda request: request.start_s)

    plain, real = trace_of("fsspec-none"), trace_of("ros3")
    session.forget()
    spans = [(each.range_start or 0, each.nbytes) for each in plain if each.nbytes]
    reading = Reading(tuple(Read(*span, is_metadata=span[0] not in chunks) for span in spans))
    recorded = prediction.Recorded(reading, 1, path.stat().st_size, 0, 0, tuple(chunks))
    found = prediction.predict_drivers(drivers.DRIVERS["ros3"], recorded, Network(), COSTS)
    assert found is not None and len(plain) > 48
    assert (found.n_requests, found.nbytes) == (len(real), sum(each.nbytes for each in real))


def test_parts_end_at_multiples() -> None:
    """A read across two multiples is three requests."""
    behind = read_through(Parts(10), Reading((Read(5, 20),)), file_nbytes=100)
    assert [(read.offset, read.nbytes) for read in behind.reads] == [(5, 5), (10, 10), (20, 5)]


FAULTS = {"503": Faults(error_503=0.3), "reset": Faults(reset=0.3), "torn": Faults(truncate=0.3)}
READERS = (
    "fsspec-none",
    "fsspec-tuned",
    "obstore-tuned",
    "ros3",
    "ros3-none",
    "h5coro",
    "pyfive",
    "references",
)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", READERS)
def test_faults_are_retried_or_refused(
    name: str,
    fault: str,
    stored: files.StoredFile,
    testbed: Testbed,
    session: sessions.Session,
    bench: Bench,
) -> None:
    """A client gets over a fault by its own retries, or the read is an error: never a wrong row."""
    driver = drivers.DRIVERS[name]
    skip_without_ros3(driver)
    files.prepare_granule(
        Granule(200_000), testbed.near, layouts=["references"], group="gt1l/heights"
    )
    layout = "references" if name == "references" else "original"
    testbed.emulate(Profile("faulty", faults=FAULTS[fault]))
    way = workload.FileRead(bench, driver, layout, "variables")
    try:
        way.prepare()
        answer: tasks.Answer | None = way.read(way.open())
    except UserError:
        answer = None  # refused: `measure_blocks` ends, and writes no row
    finally:
        testbed.emulate(get_profile("loopback"))
        session.forget()
    assert answer in (None, stored.answers["variables"])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ros3_without_caches_asks_as_the_file_object_does(layout: str, bench: Bench) -> None:
    """With its caches off, each of the library's reads is a request: neither blocks nor pages."""
    skip_without_ros3(drivers.DRIVERS["ros3-none"])
    looks = workload.trace_reads(
        [drivers.DRIVERS[name] for name in ("fsspec-none", "ros3-none")],
        [layout],
        bench,
    )[layout]
    spans = {
        name: sorted((each.range_start or 0, each.nbytes) for each in trace if each.nbytes)
        for name, trace in looks.items()
    }
    assert spans["ros3-none"] == spans["fsspec-none"]


def make_rows(times_s: dict[tuple[str, str], float], *, requests: int = 100) -> pd.DataFrame:
    """Make a record of two blocks of contenders that take these times."""
    lines = [
        {
            "contender": name,
            "layout": layout,
            "task": "variables",
            "phase": "measured",
            "control_of": "",
            "block": block,
            "point": "",
            "open_s": 0.0,
            "read_s": seconds,
            "trace": json.dumps(
                {
                    "all_requests": requests,
                    "all_nbytes": 8e6,
                    "over_read": 2.0,
                    "n_open_requests": 3,
                    "dependency_depth": 3,
                }
            ),
        }
        for block in range(2)
        for (name, layout), seconds in times_s.items()
    ]
    return pd.DataFrame(lines)


BEST = ("fsspec-tuned", "paged-4mib")


@pytest.mark.parametrize(
    ("slow_s", "told"),
    [
        (10.0, "^yes$"),  # 25 times
        # 10 times; 4 MB needed are 0.4 s at 10 MB/s, and a first byte 0.1 s: at most 8 times
        (
            4.0,
            r"^no: fsspec-tuned on paged-4mib takes 0.4 s, of which it waits 0.3 s for 3 answers .* at most 8 times$",
        ),
    ],
)
def test_the_target_is_met_or_explained(slow_s: float, told: str) -> None:
    """Where twentyfold is missed, the trace says where the time goes, and what is the most."""
    rows = make_rows({("fsspec-none", "original"): slow_s, BEST: 0.4})
    found = find_targets(rows, BEST, Profile("p", FirstByte(0.1, 0.1), stream_mb_per_s=10))
    assert re.match(told, found["target-gain"]), found
    assert found["target-requests-to-open"] == "3, met"


def test_a_target_that_was_not_asked_is_not_judged() -> None:
    """Without the untuned driver on the original there is nothing to compare with."""
    found = find_targets(make_rows({BEST: 0.4}), BEST, get_profile("in-region"))
    assert found.pop("target-requests-to-open") == "3, met"
    assert set(found.values()) == {"not measured"}
    today = findings.name_read(findings.DEFAULT, findings.ORIGINAL)
    rows = make_rows({BEST: 0.4, findings.split_read(today): 2.0})
    assert (
        find_targets(rows, BEST, get_profile("in-region"))["headline"]
        == "5 times over s3fs as it is"
    )


def test_tables_keep_one_order() -> None:
    """Rows come as the registry has drivers and layouts, whatever the order in a block."""
    rows = make_rows(
        {("zarr", "zarr"): 1.0, ("references", "references"): 1.0, ("ros3", "original"): 2.0}
        | {BEST: 1.0, ("fsspec-none", "original"): 3.0},
    )
    table = findings.tabulate_times(rows, task="variables")
    assert list(table.index) == ["fsspec-none", "fsspec-tuned", "ros3", "zarr", "references"]
    assert list(table.columns) == ["original", "paged-4mib", "converted"]
    assert table.isna().loc["ros3", "paged-4mib"]


def test_a_steady_network_has_the_same_mean() -> None:
    """First bytes without scatter take the mean of a log-normal time, not its median."""
    found = take_scatter_out(get_profile("in-region"))
    assert found.first_byte_s is not None
    # sigma = ln(100 / 30) / 1.645 = 0.732, so 30 ms x exp(0.732^2 / 2)
    assert found.first_byte_s.median_s == pytest.approx(0.0392, abs=1e-4)
    assert found.first_byte_s.p95_s == found.first_byte_s.median_s
    assert found.stream_mb_per_s == get_profile("in-region").stream_mb_per_s


def test_drivers_of_conversions_alone_are_refused(bench: Bench) -> None:
    """The study compares with HDF5 files; without a driver for them it does not begin."""
    chosen, read = [drivers.DRIVERS["fsspec-tuned"]], bench.session.run
    made = workload.make_contenders(chosen, ["original"], ["variables"], bench, read=read)
    made = [replace(one, name="zarr", point={**one.point, "layout": "zarr"}) for one in made]
    with pytest.raises(UserError, match=r"^drivers: zarr; allowed: also .* of HDF5 files"):
        workload.make_control(made)


def judge(ratio: float) -> statistics.Comparison:
    """Give the verdict on a narrow interval around a ratio."""
    return statistics.judge(statistics.Interval(ratio, 0.98 * ratio, 1.02 * ratio, 5), 1.03)


def test_claims_are_told_with_their_settings() -> None:
    """Both sides of the claim are named, with the settings in which each holds."""
    judged = {
        ("original", "ros3", "fsspec-none"): judge(0.5),
        ("paged-4mib", "ros3", "fsspec-none"): judge(0.6),
        ("original", "ros3-tuned", "fsspec-tuned"): judge(1.3),
        ("paged-8mib", "ros3", "fsspec-none"): judge(0.99),
    }
    found = findings.find_claims(judged)
    assert found["ros3-faster"] == "ros3 over fsspec-none on original, paged-4mib"
    assert found["ros3-slower"] == "ros3-tuned over fsspec-tuned on original"
    assert (found["ros3-undecided"], found["claims-judged"]) == ("1", "4")
    assert findings.find_claims({})["ros3-slower"] == "not measured"


def reference(case: str) -> pd.DataFrame:
    """Read a reference record."""
    return read_records([ROOT / "results" / "reference" / "hdf5-drivers" / f"{case}.csv"])


@pytest.mark.parametrize("case", ["in-region", "layouts"])
def test_noise_is_of_what_is_judged(case: str) -> None:
    """Ratios are of opening and reading, and so is the noise: not of reading alone."""
    rows = reference(case)
    reads = findings.select_reads(rows)
    found = statistics.noise_ratio(reads, "control", value="total_s")
    assert found != pytest.approx(statistics.noise_ratio(reads, "control"), rel=1e-3)
    ranking = rankings.rank(reads, control="control", value="total_s")
    told = findings.find_all(rows, get_profile("in-region"), VERSIONS, ranking=ranking)
    assert float(told["aa-noise"].removesuffix(" %")) == pytest.approx(100 * (found - 1), rel=0.05)


VERSIONS = {"ros3": "True", "hdf5": "2"}


@pytest.mark.parametrize("case", ["in-region", "layouts"])
def test_the_reference_names_no_winner_that_is_none(case: str) -> None:
    """Reads that cannot be told apart from the one with the shortest median are named with it."""
    rows = reference(case)
    reads = findings.select_reads(rows)
    ranking = rankings.rank(reads, control="control", value="total_s")
    found = findings.find_all(rows, get_profile("in-region"), VERSIONS, ranking=ranking)
    tied = [name for name, one in ranking.others.items() if one.verdict == "indistinguishable"]
    assert all(name in found["best-driver"] for name in [ranking.best, *tied])
    assert found["best-driver"].startswith("among the fastest: ") == bool(tied)
    assert found["best-layout"] == ranking.best.partition(" on ")[2]
    claims = findings.list_claims(reads, findings.CLAIMS)
    assert all(set(pair) <= set(reads["contender"]) for pair in claims.values()) and claims
    ways = findings.list_ways(reads)
    rule = {"control": "control", "value": "total_s"}
    n = 2 * reads["layout"].nunique()
    both = {w: statistics.compare(reads, *p, **rule, n_compared=n) for w, p in ways.items()}
    enough = [way for way, one in both.items() if one.verdict != "faster"]
    word = f"{' or '.join(enough)} alone, which" if enough else "settings and layout together: "
    decision = findings.find_decision(reads, ways, both)
    assert decision["decision"].startswith(word)
    assert decision["decision"].endswith(" by fetching the whole original at once")
    # What is held to thresholds is of the pair that they name, whichever read is the best.
    repacked = findings.find_repacked(reads)
    assert repacked == decision["decision-layout"] != findings.ORIGINAL
    assert found["headline"] == f"{decision['gain-both']} times, tuned and repacked"
    part = findings.measured(rows, "variables")
    part = part[(part["contender"] == findings.TUNED) & (part["layout"] == repacked)]
    n_open = trace_of(part)["n_open_requests"].median()
    assert found["target-requests-to-open"].startswith(f"{n_open:.0f}, ")
    assert findings.find_decision(reads, {}, {}) == {"decision": "not measured"}


def make_reads(control_s: tuple[float, ...] = (1.0, 1.0, 1.0)) -> pd.DataFrame:
    """Make reads of three blocks: a default, tuned settings that take longer, and their copy."""
    times_s = {"fsspec-readahead": (0.8, 0.79, 0.81), "fsspec-tuned": (1.0,) * 3}
    lines = [
        {"contender": name, "control_of": "", "block": block, "read_s": seconds}
        for name, all_s in {**times_s, "control": control_s}.items()
        for block, seconds in enumerate(all_s)
    ]
    rows = pd.DataFrame(lines).assign(
        open_s=0.0, layout="original", task="variables", phase="measured"
    )
    rows.loc[rows["contender"] == "control", "control_of"] = "fsspec-tuned"
    return findings.select_reads(rows)


def test_tuned_settings_are_judged_against_what_is_used_today() -> None:
    """Where they take longer than the default of s3fs, the page says so."""
    reads = make_reads()
    claims = findings.list_claims(reads, findings.TODAY)
    judged = {
        claim: statistics.compare(reads, *pair, control="control", value="total_s")
        for claim, pair in claims.items()
    }
    told = findings.find_today(judged)["tuned-against-today"]
    assert re.match(r"slower than fsspec-readahead on original \(1.25 \[1.2\d, 1.2\d\]", told)
    assert findings.find_today({})["tuned-against-today"] == "not measured"


@pytest.mark.parametrize(
    ("control_s", "told"),
    [
        ((1.0, 1.01, 1.05), "5 %"),
        ((1.0, 1.0, 0.8), "25 %, unstable"),  # in either direction: 1 over 0.8
    ],
)
def test_the_worst_control_is_told(control_s: tuple[float, ...], told: str) -> None:
    """In one block a driver differs from itself by more than the noise of the mean."""
    assert findings.tell_worst_control(make_reads(control_s)) == told


@pytest.mark.parametrize(
    ("nbytes", "told"),
    [(44e6, "0.16 of 270 MB: it fits whole"), (300e6, "1.1 of 270 MB: it does not fit")],
)
def test_files_are_told_over_the_cache(nbytes: float, told: str) -> None:
    """The block cache keeps 32 blocks of 8 MiB."""
    assert findings.tell_cache(nbytes) == told


def test_the_control_repeats_what_is_judged(bench: Bench) -> None:
    """It is a copy of the last that reads variables; without one nothing is measured."""
    chosen, read = [drivers.DRIVERS["fsspec-tuned"]], bench.session.run
    made = workload.make_contenders(chosen, LAYOUTS, ["variables", "tree"], bench, read=read)
    control = workload.make_control(made)
    assert (control.name, control.control_of) == ("control", "fsspec-tuned")
    assert control.point == {"layout": LAYOUTS[-1], "task": "variables"}
    made = workload.make_contenders(chosen, LAYOUTS, ["tree"], bench, read=read)
    with pytest.raises(UserError, match="^drivers: fsspec-tuned; allowed: also one that reads var"):
        workload.make_control(made)
