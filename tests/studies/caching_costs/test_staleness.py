"""What titiler itself keeps takes memory, and what is rewritten is served old, wrong or not at all."""

from __future__ import annotations

import os
import signal
from concurrent.futures.process import BrokenProcessPool

import pytest

from helpers.objectstore.testbed import Server
from studies.caching_costs.staleness import _start_apart, measure_growth, measure_staleness
from tests.stores import make_location
from tests.studies.caching_costs.tiles import make_datasets


def test_each_dataset_kept_takes_memory(server: Server) -> None:
    """The cache without bound grows with every dataset."""
    assert measure_growth(make_datasets(server), n_datasets=20) > 1000


def test_what_is_rewritten_is_told_apart(server: Server) -> None:
    """Ours serve new data after their time to live, titiler's never, one that knows versions at once."""
    caches = ["none", "as-shipped", "lru", "filecache", "lru-etag", "redis-etag", "lru-chunks"]
    found = measure_staleness(make_location(server, "rewritten"), caches, ttl_s=8.0)
    assert found["new data"].to_dict() == {
        "none": "at once",
        "as-shipped": "after a restart",
        "lru": "after 8 s",
        "filecache": "after 8 s",
        "lru-etag": "at once",
        "redis-etag": "at once",
        "lru-chunks": "after 8 s",
        "lru on Icechunk": "after 8 s",
    }
    lines = {str(name): line[:3] for name, *line in found.itertuples()}
    assert lines["none"] == lines["lru-etag"] == lines["redis-etag"] == ["new"] * 3
    # chunks are read anew, but where they lie and what they mean is remembered
    assert lines["as-shipped"] == lines["lru"]
    assert lines["lru"][:2] == ["new", "wrong picture"]
    for name in ("filecache", "lru-chunks", "lru on Icechunk"):
        assert lines[name] == ["old picture"] * 3


def test_the_process_apart_ends_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    """Whoever interrupts a run sees what the run says, and no traceback of a process they never met."""
    pool = _start_apart.__wrapped__()  # one of its own: it does not live on
    os.kill(pool.submit(os.getpid).result(), signal.SIGINT)
    with pytest.raises(BrokenProcessPool):
        pool.submit(os.getpid).result()
    pool.shutdown()
    assert "Traceback" not in capfd.readouterr().err
