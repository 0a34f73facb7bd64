"""What is killed in mid-read costs its read, and nothing that was measured before."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from helpers.arrays.reads import RawRead
from helpers.benchmark import loop
from helpers.benchmark.contender import contend
from helpers.benchmark.loop import Budget, MeasurementError, measure_blocks
from helpers.benchmark.provenance import Provenance
from helpers.benchmark.record import Record, read_records
from helpers.netem.profiles import FirstByte, Profile
from helpers.netem.proxy import open_proxy
from helpers.objectstore.testbed import Testbed, open_server
from tests.stores import make_location, make_stored

# Slow enough that a read is under way when the signal comes.
LATE = Profile("late", first_byte_s=FirstByte(0.5, 0.5))


def find_server(folder: Path) -> int:
    """Find the process that serves a folder, among those that this one started."""
    [found] = [
        process.pid
        for process in psutil.Process().children(recursive=True)
        if "versitygw" in process.name() and str(folder) in " ".join(process.cmdline())
    ]
    return found


def measure(folder: Path, victim: str, *, n_blocks: int) -> Any:
    """Measure with a store and a proxy of their own, one of which is killed in the second block."""
    record = Record(folder / "r.csv", study="s", case="c", provenance=Provenance({}, {}, {}))
    with ExitStack() as stack:
        server = stack.enter_context(open_server(folder / "store"))
        proxy = stack.enter_context(open_proxy(server.endpoint_url, profile=Profile("sound")))
        near = make_location(server, "kills")
        testbed = Testbed(near, near.through(proxy.endpoint_url), proxy)
        raw = RawRead.of_array(make_stored(near, layouts=["zarr"]), testbed, n_connections=2)
        testbed.emulate(LATE)
        pids = {"server": find_server(folder), "proxy": proxy.pid}

        def read(location: Any) -> list[int]:
            if victim and len(record.rows) == 1:
                threading.Timer(0.2, os.kill, [pids[victim], signal.SIGKILL]).start()
            return raw.read(location)

        contender = contend("ceiling", raw, point={}, read=read, is_ceiling=True)
        rule: dict[str, Any] = {"seed": 1, "n_warm_ups": 0, "target_width": 0.001}
        measure_blocks([contender], record, n_blocks=n_blocks, budget=Budget(1e-3), **rule)
    return read_records([record.path])


@pytest.mark.parametrize("victim", ["server", "proxy"])
def test_a_kill_in_mid_read_loses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    """The read is refused by its deadline, and the next run goes on after the last row."""
    monkeypatch.setattr(loop, "LEAST_DEADLINE_S", 6.0)
    measure(tmp_path, "", n_blocks=1)
    with pytest.raises(MeasurementError, match=r"block \d+: ") as told:
        measure(tmp_path, victim, n_blocks=2)
    assert "\n" not in str(told.value)
    assert len(read_records([tmp_path / "r.csv"])) == 1
    found = measure(tmp_path, "", n_blocks=2)
    assert found.loc[found["phase"] == "measured", "block"].tolist() == [0, 1]
