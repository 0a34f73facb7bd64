"""Every read from a store that fails is right or refused, by a stated deadline."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from helpers.arrays.readers import READERS
from helpers.arrays.reads import RawRead, count_requests
from helpers.arrays.stores import StoredArray
from helpers.benchmark import loop
from helpers.benchmark.contender import Contender, contend
from helpers.benchmark.loop import Budget, MeasurementError, measure_blocks
from helpers.benchmark.provenance import Provenance
from helpers.benchmark.record import Record
from helpers.netem.profiles import FAULTS
from helpers.netem.proxy import open_proxy
from helpers.objectstore.testbed import Server, Testbed
from helpers.paths import ROOT
from tests.faults import reading
from tests.stores import make_location, make_stored

# What clients leave behind of requests that failed, which no test of ours is about.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def testbed(server: Server) -> Iterator[Testbed]:
    """Put a proxy that can fail before the store of the tests."""
    near = make_location(server, "faults")
    with open_proxy(server.endpoint_url, profile=reading.SOUND) as proxy:
        yield Testbed(near, near.through(proxy.endpoint_url), proxy)


@pytest.fixture(scope="module")
def stored(testbed: Testbed) -> StoredArray:
    """Store the small array in every layout."""
    return make_stored(testbed.near)


@pytest.mark.parametrize("name", READERS)
def test_a_read_is_right_or_refused(testbed: Testbed, stored: StoredArray, name: str) -> None:
    """Of faults of every kind, none makes a reader hang or its wrong values pass."""
    with reading.impatient_clients():
        testbed.emulate(reading.make_profile(**dict.fromkeys(FAULTS, 0.03)))
        ended = [reading.read_once(testbed, stored, READERS[name]) for _ in range(2)]
        testbed.emulate(reading.SOUND)
        assert reading.read_once(testbed, stored, READERS[name]).how == "right"
    assert all(one.seconds < 2 * reading.DEADLINE_S for one in ended)
    assert all(bool(one.said) == (one.how != "right") for one in ended)


@pytest.mark.slow
@pytest.mark.skipif("ARRAYS_TEST_BUILD" not in os.environ, reason="takes five minutes")
def test_the_table_of_faults(testbed: Testbed, stored: StoredArray) -> None:
    """Each reader meets each fault; whatever is only late or lost is repeated until it is right."""
    table = reading.tabulate(testbed, stored, lambda _line: None)
    assert len(table) == len(READERS) * len(FAULTS) * len(reading.N_READS)
    ended = table[["n_right", "n_refused", "n_found_wrong"]].sum(axis=1)
    assert (ended == table["n_reads"]).all()
    assert (table["longest_s"] < 2 * reading.DEADLINE_S).all()
    # only flipped bytes make wrong values
    assert set(table.loc[table["n_found_wrong"] > 0, "fault"]) <= {"corrupt"}
    assert (table["saw"].astype(bool) == (table["n_right"] < table["n_reads"])).all()


def test_the_published_table_is_of_every_reader_and_fault() -> None:
    """A reader that came since would be missing from the page on method without a word."""
    table = pd.read_csv(ROOT / "results" / "reference" / "faults.csv")
    asked = itertools.product(READERS, FAULTS, reading.N_READS)
    assert {*table[["reader", "fault", "rate"]].itertuples(index=False, name=None)} == {*asked}


def make_raw(testbed: Testbed, stored: StoredArray) -> RawRead:
    """Read the chunks as objects."""
    testbed.emulate(reading.SOUND)
    return RawRead.of_array(stored, testbed, n_connections=4)


def test_responses_cut_short_are_failures(testbed: Testbed, stored: StoredArray) -> None:
    """Their status is that of a success; the trace says that they did not come to their end."""
    raw = make_raw(testbed, stored)
    raw.prepare()
    location = raw.open()
    testbed.emulate(reading.make_profile(truncate=0.5))
    with reading.impatient_clients():
        raw.check(raw.read(location))
    trace = testbed.take_trace()
    cut = [one for one in trace if one.is_cut]
    assert cut and all(one.status in (200, 206) for one in cut)
    assert count_requests(trace, 4)["n_failed_requests"] == len(cut) == len(trace) - 12


def test_a_request_that_a_client_gives_up_is_a_failure(
    testbed: Testbed, stored: StoredArray
) -> None:
    """A stalled response is repeated by the client, and counts as one that failed."""
    with reading.impatient_clients():
        raw = make_raw(testbed, stored)
        raw.prepare()
        location = raw.open()
        testbed.emulate(reading.make_profile(stall=0.4))
        raw.check(raw.read(location))
    trace = testbed.take_trace()
    assert count_requests(trace, 4)["n_failed_requests"] == len(trace) - 12 > 0


def make_contender(raw: RawRead, **changed: Any) -> Contender:
    """Make a contender of a raw read."""
    return contend("ceiling", raw, point={"n_workers": 1}, is_ceiling=True, **changed)


RULE: dict[str, Any] = {"seed": 1, "n_warm_ups": 0, "target_width": 0.001}


def open_record(folder: Path) -> Record:
    """Open the record of these tests."""
    return Record(folder / "r.csv", study="s", case="c", provenance=Provenance({}, {}, {}))


def test_a_stalled_read_ends_by_its_deadline(
    testbed: Testbed, stored: StoredArray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused in one line, the rows before it stay, and the record goes on when asked again."""
    monkeypatch.setattr(loop, "LEAST_DEADLINE_S", 2.0)
    contender = make_contender(make_raw(testbed, stored))
    found = measure_blocks(
        [contender], open_record(tmp_path), n_blocks=1, budget=Budget(1.0), **RULE
    )
    assert found["read_deadline_s"].tolist() == [2.0]
    assert found["request_timeout_s"].tolist() == [30]
    testbed.emulate(reading.make_profile(stall=1.0))
    with pytest.raises(MeasurementError, match=r"block 0: read failed: .*not done in 2 s") as told:
        measure_blocks([contender], open_record(tmp_path), n_blocks=2, budget=Budget(1.0), **RULE)
    assert "\n" not in str(told.value)
    testbed.emulate(reading.SOUND)
    again = measure_blocks(
        [contender], open_record(tmp_path), n_blocks=2, budget=Budget(1.0), **RULE
    )
    assert again.loc[again["phase"] == "measured", "block"].tolist() == [0, 1]
