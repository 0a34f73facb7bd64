"""The harness reads past the proxy and through it, and the same bytes in chunks of any number."""

from __future__ import annotations

import time

import pandas as pd
import pytest

from studies.harness import findings, workload
from studies.harness.parameters import Parameters
from tests.refusals import refused
from tests.stores import make_location, make_stored
from wire.bed.networks import get_profile
from wire.bed.proxy import open_proxy
from wire.bed.testbed import Server, Testbed


def test_only_what_goes_through_the_proxy_is_traced(server: Server) -> None:
    """Both ways read the same objects; a task a chunk asks once for each."""
    stored = make_stored(make_location(server, "harness"))
    with open_proxy(server.endpoint_url, profile=get_profile("loopback")) as proxy:
        testbed = Testbed(stored.location, stored.location.through(proxy.endpoint_url), proxy)
        for is_direct in (True, False):
            raw = workload.read_raw(stored, testbed, 2, is_direct=is_direct)
            raw.prepare()
            found = raw.read(raw.open())
            assert ("n_requests" in raw.collect()) != is_direct
            assert raw.check(found) == f"xxh3 of {stored.n_chunks} objects"
        chunked = workload.ChunkedRead(stored, testbed)
        chunked.prepare()
        sums = chunked.open().compute()  # type: ignore[no-untyped-call]
        assert chunked.collect()["n_requests"] == stored.n_chunks
        assert chunked.check(sums) == f"xxh3 of {stored.n_chunks} chunks"
        for reader in workload.LADDER:
            whole = workload.WholeRead(stored, testbed, reader, 2)
            whole.prepare()
            sums = whole.open().compute()  # type: ignore[no-untyped-call]
            counted = whole.collect()
            assert counted["n_requests"] == stored.n_chunks and counted["max_in_flight"] <= 3
            assert whole.check(sums) == f"xxh3 of {stored.n_chunks} chunks"


@pytest.mark.parametrize("n_threads", [0, 1, 4])
def test_a_second_is_computed_or_waited_for(n_threads: int) -> None:
    """Threads compute it between them; who waits computes nothing."""
    before_s = time.process_time()
    held = workload.Held(n_threads, 1.0)
    assert held.check(held.read(None)).startswith("1.")
    spent_s = time.process_time() - before_s
    assert spent_s >= 0.99 if n_threads else spent_s < 0.5


def test_rungs_are_compared_with_the_lowest_of_their_kind() -> None:
    """What is charged takes as long at each dilation, and what is free gains with it."""
    rungs = findings.name_rungs([1.0, 5.0], 2)
    times = {"1": 2.0, "5": 1.0, "1 charged": 2.1, "5 charged": 2.1}
    lines = [
        (block, "s3fs", part, (1 + block) * s) for block in (0, 1) for part, s in times.items()
    ]
    rows = pd.DataFrame(lines, columns=["block", "contender", "part", "read_s"]).assign(
        phase="measured", client_s=lambda rows: rows["read_s"] / 2
    )
    found = findings.compare_rungs(rows, rungs).set_index(["dilation", "is_charged"])
    assert found["over_lowest"].to_dict() == pytest.approx(
        {(1.0, False): 1.0, (1.0, True): 1.0, (5.0, False): 0.5, (5.0, True): 1.0}
    )
    assert list(found.loc[(5.0, True), ["read_s", "client_s"]]) == pytest.approx([3.15, 1.575])


@pytest.mark.parametrize(
    ("values", "where", "allowed"),
    [
        ({"chunk_shapes": [[1, 10, 240, 320]]}, "chunk_shapes", "^at least 2"),
        ({"chunk_shapes": [[1, 99, 1, 1]] * 2}, "chunk_shape", "."),
        ({"ladder": [1.0]}, "processors", "^at least 1"),
        ({"store": "s3://mine/x", "profile": "loopback"}, "store", "^'embedded'$"),
    ],
)
def test_bad_parameters_are_one_line(values: dict[str, object], where: str, allowed: str) -> None:
    """Before anything is written or measured."""
    with refused(f"case: {where}", allowed=allowed):
        Parameters.check(values, "case")
