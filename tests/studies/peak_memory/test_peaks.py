"""The peak of each way is that of its read alone, and each way returns what was written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pandas as pd
import pytest

from helpers.benchmark.contender import CheckError
from studies.peak_memory import findings
from studies.peak_memory.reader import measure_peak
from studies.peak_memory.ways import WAYS
from studies.peak_memory.workload import PeakRead, StoredArray, write_layouts
from tests.stores import make_location
from wire.bed.networks import get_profile
from wire.bed.proxy import open_proxy
from wire.bed.testbed import Server, Testbed

SIDE = 512


@pytest.fixture(scope="module")
def place(server: Server) -> Iterator[tuple[StoredArray, Testbed]]:
    """Write an array of 16 MB in chunks of a MB, and serve it through a proxy that counts."""
    location = make_location(server, "peak-memory")
    with ExitStack() as stack:
        proxy = stack.enter_context(
            open_proxy(server.endpoint_url, profile=get_profile("loopback"))
        )
        testbed = Testbed(location, location.through(proxy.endpoint_url), proxy)
        yield write_layouts(location, n_steps=16, side=SIDE, seed=1), testbed


@pytest.mark.parametrize("name", WAYS)
def test_a_way_returns_what_was_written_and_holds_it(
    name: str, place: tuple[StoredArray, Testbed]
) -> None:
    """A peak is at least the values that are returned."""
    steps = PeakRead(name, *place)
    steps.prepare()
    answer = steps.read(None)
    traced = steps.collect()
    assert steps.check(answer).startswith("xxh3 of ")
    assert answer["peak_nbytes"] == traced["peak_nbytes"] >= answer["values_nbytes"]
    assert isinstance(traced["n_requests"], int) and traced["n_requests"] > 0


def test_other_values_are_refused(place: tuple[StoredArray, Testbed]) -> None:
    """Of as many bytes, too."""
    steps = PeakRead("shard-ranges", *place)
    with pytest.raises(CheckError, match="other values"):
        steps.check({"values_nbytes": 4 * SIDE**2, "digest": 1})


def test_a_peak_is_set_back_before_the_read() -> None:
    """What the process held and let go before does not count; what the read let go does."""
    np.ones(40_000_000).sum()  # 320 MB
    peak_nbytes, n_files, values = measure_peak(lambda: np.ones(10_000_000)[:10].astype(np.float32))
    assert values.nbytes == 40 and n_files == 0
    assert 70e6 < peak_nbytes < 200e6


def test_connections_count_as_open_files(place: tuple[StoredArray, Testbed]) -> None:
    """More concurrent requests hold more of them."""
    counts = {}
    for name in ("shard-ranges", "whole-10"):
        steps = PeakRead(name, *place)
        steps.prepare()
        counts[name] = steps.read(None)["n_files"]
    assert counts["whole-10"] > counts["shard-ranges"] > 0


def test_peaks_are_compared_within_blocks() -> None:
    """The first way over the second, and a claim only where the whole interval is above a fifth more."""
    names = {"file-joined": 200e6, "file-buffer": 100e6, "maximum-16": 11e6, "maximum-2": 10e6}
    rows = pd.DataFrame(
        [
            {"contender": name, "block": block, "control_of": "", "phase": "measured", "peak_nbytes": peak + block}
            for name, peak in names.items()
            for block in range(5)
        ]
    )  # fmt: skip
    ratios = findings.compare_peaks(rows)
    assert [*ratios] == ["file-twice", "threads-add"]
    assert ratios["file-twice"].centre == pytest.approx(2)
    claims = findings.judge_claims(ratios)
    assert claims["file-twice-holds"].holds and not claims["threads-add-holds"].holds
