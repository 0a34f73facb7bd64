"""Every read from a store that fails is right or refused by a stated deadline; `make faults` writes the table.

What is killed in mid-read costs its read, and nothing that was measured before.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np
import pandas as pd
import psutil
import pytest

from helpers.arrays import readers, reads
from helpers.arrays.readers import READERS, ArrayReader
from helpers.arrays.reads import RawRead
from helpers.arrays.stores import StoredArray
from helpers.benchmark import loop
from helpers.benchmark.contender import CheckError, Contender
from helpers.benchmark.loop import Budget, MeasurementError, measure_blocks
from helpers.benchmark.provenance import Provenance
from helpers.benchmark.record import Record
from helpers.paths import ROOT
from tests.refusals import refused
from tests.stores import make_location, make_stored
from wire.bed import locations
from wire.bed.networks import FAULTS, Faults, FirstByte, Profile
from wire.bed.proxy import open_proxy
from wire.bed.requests import RequestRow
from wire.bed.testbed import Server, Testbed, open_server
from wire.deadline import deadline

pytestmark = [
    pytest.mark.slow,
    # what clients leave behind of requests that failed, which no test of ours is about
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

N_READS = {0.1: 6, 0.01: 18}  # at each probability of a fault, so many that each meets some
DEADLINE_S = 60.0
SOUND = Profile("sound")
# slow enough that a read is under way when a signal comes
LATE = Profile("late", first_byte_s=FirstByte(0.4, 0.4))
RULE: dict[str, Any] = {"seed": 1, "n_warm_ups": 0, "dilation": 1}


def make_faulty(**rates: float) -> Profile:
    """Make a network without limits on which requests fail at these rates; stalls outlast any time-out."""
    return Profile("faulty", faults=Faults(stall_s=600.0, **rates))


@dataclass(frozen=True, slots=True)
class Ended:
    """How a read ended."""

    how: Literal["right", "refused", "found wrong"]
    said: str  # what the user sees; empty of a read that is right
    seconds: float
    trace: Sequence[RequestRow]


@contextmanager
def impatient_clients() -> Iterator[None]:
    """Let clients repeat a request after a second or two, where they would wait for 15 or 30."""
    with mock.patch.multiple(locations, SILENCE_S=1, REQUEST_S=2):
        readers.forget_clients({})
        yield
    readers.forget_clients({})


def read_once(testbed: Testbed, stored: StoredArray, reader: ArrayReader) -> Ended:
    """Read an array as one worker does, and check it."""
    readers.forget_data(dict(reader.zarr_config))
    testbed.take_trace()
    start, how, said = time.monotonic(), "right", ""
    try:
        with deadline(DEADLINE_S):
            array = reads.open_array(stored.seen_from(testbed.far), reader)
            sink = reads.read_into_sink(array, stored.chunk_shape)
            sums = np.asarray(sink.compute(scheduler="threads", num_workers=4))  # type: ignore[no-untyped-call]
        reads.check_values(sums, stored)
    except CheckError as error:
        how, said = "found wrong", str(error)
    except Exception as error:
        how, said = "refused", f"{type(error).__name__}: {error}"
    return Ended(how, clean(said), time.monotonic() - start, testbed.take_trace())  # type: ignore[arg-type]


def clean(said: str) -> str:
    """Leave of a message what is the same in each run, and cut it to a line."""
    text = re.sub(r"https?://[^\s'\",]+", "URL", " ".join(said.split()))
    text = re.sub(r"\b\d[\d.]*(?:[mµn]?s)?\b", "N", text)
    return text if len(text) <= 90 else f"{text[:90].rpartition(' ')[0]} ..."


def summarise(ended: Sequence[Ended], *, n_sound: int) -> dict[str, Any]:
    """Count how reads ended; a read without faults takes `n_sound` requests."""
    hows = Counter(each.how for each in ended)
    said = Counter(each.said for each in ended if each.said)
    rows = [row for each in ended for row in each.trace]
    # what is not there is an answer
    failed = [r for r in rows if r.status != 404 and (not 200 <= r.status < 300 or r.is_cut)]
    right = [each for each in ended if each.how == "right"]
    return {
        "n_reads": len(ended),
        "n_right": hows["right"],
        "n_refused": hows["refused"],
        "n_found_wrong": hows["found wrong"],
        "n_requests": len(rows),
        "n_failed_requests": len(failed),
        "n_retries": sum(max(0, len(each.trace) - n_sound) for each in right),
        "longest_s": round(max(each.seconds for each in ended), 1),
        "saw": said.most_common(1)[0][0] if said else "",
    }


def main() -> None:
    """Read through every reader under every fault, and write the table that the page on method shows."""
    lines = []
    with (
        tempfile.TemporaryDirectory() as folder,
        open_server(Path(folder) / "store") as server,
        open_proxy(server.endpoint_url, profile=SOUND) as proxy,
        impatient_clients(),
    ):
        near = make_location(server, "faults")
        testbed, stored = Testbed(near, near.through(proxy.endpoint_url), proxy), make_stored(near)
        for reader in READERS.values():
            print(reader.name, file=sys.stderr, flush=True)
            testbed.emulate(SOUND)
            n_sound = len(read_once(testbed, stored, reader).trace)
            for fault in FAULTS:
                for rate, n in N_READS.items():
                    testbed.emulate(make_faulty(**{fault: rate}))
                    ended = [read_once(testbed, stored, reader) for _ in range(n)]
                    what = {"reader": reader.name, "fault": fault, "rate": rate}
                    lines.append(what | summarise(ended, n_sound=n_sound))
    table = ROOT / "results" / "reference" / "faults.csv"
    pd.DataFrame(lines).to_csv(table, index=False, lineterminator="\n")


@pytest.fixture(scope="module")
def testbed(server: Server) -> Iterator[Testbed]:
    """Put a proxy that can fail before the store of the tests."""
    near = make_location(server, "faults")
    with open_proxy(server.endpoint_url, profile=SOUND) as proxy:
        yield Testbed(near, near.through(proxy.endpoint_url), proxy)


@pytest.fixture(scope="module")
def stored(testbed: Testbed) -> StoredArray:
    """Store the small array in every layout."""
    return make_stored(testbed.near)


@pytest.mark.parametrize("name", READERS)
def test_a_read_is_right_or_refused(testbed: Testbed, stored: StoredArray, name: str) -> None:
    """Of faults of every kind, none makes a reader hang or its wrong values pass."""
    with impatient_clients():
        testbed.emulate(make_faulty(**dict.fromkeys(FAULTS, 0.03)))
        ended = [read_once(testbed, stored, READERS[name]) for _ in range(2)]
        testbed.emulate(SOUND)
        assert read_once(testbed, stored, READERS[name]).how == "right"
    assert all(each.seconds < 2 * DEADLINE_S for each in ended)
    assert all(bool(each.said) == (each.how != "right") for each in ended)


def open_record(folder: Path) -> Record:
    """Open the record of these tests."""
    return Record(folder / "r.csv", study="s", provenance=Provenance({}, {}, {}))


def measure(
    folder: Path, testbed: Testbed, stored: StoredArray, n_blocks: int, **changed: Any
) -> pd.DataFrame:
    """Measure raw reads into the record."""
    raw = RawRead.of_array(stored, testbed, n_connections=4)
    contender = Contender("ceiling", raw, point={}, is_ceiling=True, **changed)
    return measure_blocks(
        [contender], open_record(folder), n_blocks=n_blocks, budget=Budget(1e-3), **RULE
    )


@pytest.mark.parametrize("victim", ["server", "proxy"])
def test_a_kill_in_mid_read_loses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    """The read is refused, by its deadline or when the proxy ends, and the next run goes on after the last row."""
    if victim == "server":
        monkeypatch.setattr(loop, "LEAST_DEADLINE_S", 4.0)
    why = "the proxy at .* has ended" if victim == "proxy" else ""
    for n_blocks, is_killed in ((1, False), (2, True), (2, False)):
        with ExitStack() as stack:
            server = stack.enter_context(open_server(tmp_path / "store"))
            proxy = stack.enter_context(open_proxy(server.endpoint_url, profile=SOUND))
            near = make_location(server, "kills")
            testbed = Testbed(near, near.through(proxy.endpoint_url), proxy)
            stored = make_stored(near, layouts=["zarr"])
            raw = RawRead.of_array(stored, testbed, n_connections=4)
            testbed.emulate(LATE)
            pid = proxy.pid if victim == "proxy" else find_server(tmp_path / "store")

            def read(
                location: Any, pid: int = pid, raw: RawRead = raw, dies: bool = is_killed
            ) -> Any:
                if dies:
                    threading.Timer(0.2, os.kill, [pid, signal.SIGKILL]).start()
                return raw.read(location)

            if is_killed:
                with refused(r".* block \d+", why, kind=MeasurementError):
                    measure(tmp_path, testbed, stored, n_blocks, read=read)
                assert len(open_record(tmp_path).rows) == 1
            else:
                found = measure(tmp_path, testbed, stored, n_blocks, read=read)
    assert found.loc[found["phase"] == "measured", "block"].tolist() == [0, 1]


def find_server(folder: Path) -> int:
    """Find the process that serves a folder, among those that this one started."""
    [pid] = [
        process.pid
        for process in psutil.Process().children(recursive=True)
        if "versitygw" in process.name() and str(folder) in " ".join(process.cmdline())
    ]
    return pid


if __name__ == "__main__":
    main()
