"""What is rewritten is served old, wrong or not at all."""

from __future__ import annotations

import os
import signal
from concurrent.futures.process import BrokenProcessPool

import pytest

from helpers.objectstore.testbed import Server
from studies.caching_costs.caches import CACHES
from studies.caching_costs.staleness import _start_apart, measure_staleness
from tests.stores import make_location


def test_what_is_rewritten(server: Server) -> None:
    """Ours serve new data after their time to live, titiler's never, one that knows versions at once."""
    found = measure_staleness(make_location(server, "rewritten"), ttl_s=8.0)
    assert [*found.index] == [*CACHES, "lru on Icechunk"]
    assert found["new data"].to_dict() == {
        "as-shipped": "after a restart",
        "none": "at once",
        "lru": "after 8 s",
        "redis": "after 8 s",
        "lru-etag": "at once",
        "redis-etag": "at once",
        "lru-chunks": "after 8 s",
        "lru on Icechunk": "after 8 s",
    }
    lines = {str(name): line[:3] for name, *line in found.itertuples()}
    assert lines["none"] == lines["lru-etag"] == lines["redis-etag"] == ["new"] * 3
    # chunks are read anew, but where they lie and what they mean is remembered
    assert lines["as-shipped"] == lines["lru"] == lines["redis"]
    assert lines["lru"][:2] == ["new", "wrong picture"]
    for name in ("lru-chunks", "lru on Icechunk"):
        assert lines[name] == ["old picture"] * 3


def test_the_process_apart_ends_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    """A user who interrupts a run sees what the run says, and no traceback of another process."""
    pool = _start_apart.__wrapped__()  # one of its own: it does not live on
    os.kill(pool.submit(os.getpid).result(), signal.SIGINT)
    with pytest.raises(BrokenProcessPool):
        pool.submit(os.getpid).result()
    pool.shutdown()
    assert "Traceback" not in capfd.readouterr().err
