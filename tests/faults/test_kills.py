"""What is killed in mid-read costs its read, and nothing that was measured before."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import CancelledError

from helpers.arrays.clusters import Cluster, open_cluster
from helpers.arrays.reads import RawRead
from helpers.benchmark import loop
from helpers.benchmark.contender import contend
from helpers.benchmark.loop import Budget, MeasurementError, measure_blocks
from helpers.benchmark.provenance import Provenance
from helpers.benchmark.record import Record, read_records
from helpers.errors import UserError
from helpers.netem.profiles import FirstByte, Profile
from helpers.netem.proxy import open_proxy
from helpers.objectstore.testbed import Testbed, open_server
from tests.conftest import running_gateway
from tests.helpers.arrays.test_clusters import running_scheduler
from tests.stores import make_location, make_stored

# Slow enough that a read is under way when the signal comes.
LATE = Profile("late", first_byte_s=FirstByte(0.4, 0.4))


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
        raw = RawRead.of_array(make_stored(near, layouts=["zarr"]), testbed, n_connections=4)
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
    monkeypatch.setattr(loop, "LEAST_DEADLINE_S", 4.0)
    measure(tmp_path, "", n_blocks=1)
    with pytest.raises(MeasurementError, match=r"block \d+: ") as told:
        measure(tmp_path, victim, n_blocks=2)
    assert "\n" not in str(told.value)
    assert len(read_records([tmp_path / "r.csv"])) == 1
    found = measure(tmp_path, "", n_blocks=2)
    assert found.loc[found["phase"] == "measured", "block"].tolist() == [0, 1]


def read_until_killed(cluster: Cluster, pid: int) -> None:
    """Begin a read whose scheduler is killed, and expect that it is refused at once."""
    cluster.scale(1)
    threading.Timer(0.3, os.kill, [pid, signal.SIGKILL]).start()
    start_s = time.monotonic()
    with loop.deadline(30.0), pytest.raises(CancelledError, match="scheduler-connection-lost"):
        cluster.client.submit(time.sleep, 60).result()
    assert time.monotonic() - start_s < 20


def test_a_scheduler_that_is_killed_ends_its_read(tmp_path: Path) -> None:
    """What was read is refused, and nothing that closes the cluster afterwards hides why."""
    with (
        running_scheduler(tmp_path, n_workers=1, n_threads=1) as address,
        open_cluster("address", threads_per_worker=1, address=address) as cluster,
    ):
        [pid] = [
            child.pid
            for child in psutil.Process().children(recursive=True)
            if "scheduler" in child.cmdline() and str(tmp_path) in " ".join(child.cmdline())
        ]
        read_until_killed(cluster, pid)


def test_a_gateway_that_goes_away_is_one_line(tmp_path: Path) -> None:
    """Its server, proxy and scheduler are gone in mid-read; that its workers may be left is told."""
    with (
        running_gateway(tmp_path) as gateway,
        pytest.raises(UserError, match="it went away .*ends when it is idle; allowed: ") as told,
        open_cluster("gateway", threads_per_worker=1, address=gateway.url) as cluster,
    ):
        read_until_killed(cluster, gateway.child.pid)
    assert "\n" not in str(told.value)
