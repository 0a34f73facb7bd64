"""What changes is served old, wrong or not at all, and outcomes are rows."""

from __future__ import annotations

import os
import signal
from concurrent.futures.process import BrokenProcessPool

import pandas as pd
import pytest

from helpers.benchmark import loop
from helpers.benchmark.provenance import Provenance
from helpers.benchmark.record import Record
from studies.caching_costs import staleness
from studies.caching_costs.staleness import ASKED, WATCHED, Trials, start_apart
from tests.stores import make_location
from wire.bed.testbed import Server

NEW, ERROR, OLD, WRONG = staleness.OUTCOMES
# after other values, another shape, another chunk grid, and a day more: that day, and the newest
KEPT_METADATA = [NEW, WRONG, ERROR, ERROR, OLD]
SHOWN = {
    "as-shipped": (KEPT_METADATA, "after a restart"),
    "none": ([NEW] * 5, "at once"),
    "lru": (KEPT_METADATA, "after 20 s"),
    "redis": (KEPT_METADATA, "after 20 s"),
    "lru-etag": ([NEW] * 5, "at once"),
    "redis-etag": ([NEW] * 5, "at once"),
    "lru-chunks": ([OLD, OLD, OLD, ERROR, OLD], "after 20 s"),
    # new values leave the metadata as they are, and with them the version
    "lru-etag-chunks": ([OLD, NEW, NEW, NEW, NEW], "after a restart"),
    "lru-icechunk": ([OLD, OLD, OLD, ERROR, OLD], "after 20 s"),
}


@pytest.fixture(scope="module")
def rows(server: Server, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """A record of one trial."""
    origin = Provenance({"name": "a"}, {}, {"n_blocks": 1}, "abc", False)
    file = Record(tmp_path_factory.mktemp("rows") / "a.csv", study="s", provenance=origin)
    trials = staleness.make_contenders(Trials(make_location(server, "changed"), ttl_s=20.0))
    return loop.measure_blocks(
        trials, file, seed=1, n_blocks=1, budget=loop.Budget(600.0), dilation=1, n_warm_ups=0,
        phase=staleness.PHASE,
    )  # fmt: skip


def test_what_each_cache_shows_after_each_change(rows: pd.DataFrame) -> None:
    """Ours serve new data after their time to live, titiler's never, one that knows versions at once."""
    table = staleness.tabulate_outcomes(rows)
    assert [*table.columns] == [*ASKED, "new data"] and [*table.index] == [*WATCHED]
    assert {name: ([*line[:-1]], line[-1]) for name, *line in table.itertuples()} == SHOWN


def test_trials_that_differ_say_how_often(rows: pd.DataFrame) -> None:
    """A cache that is wrong once in two trials is not told as if it were right."""
    other = rows.assign(block=1, trace=rows["trace"].str.replace("values|new", "values|wrong picture"))  # fmt: skip
    table = staleness.tabulate_outcomes(pd.concat([rows, other]))
    assert table.loc["none", "values"] == "new (1), wrong picture (1)"
    assert table.loc["none", "new data"] != "at once"


def test_the_process_apart_ends_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    """A user who interrupts a run sees what the run says, and no traceback of another process."""
    pool = start_apart.__wrapped__()  # one of its own: it does not live on
    os.kill(pool.submit(os.getpid).result(), signal.SIGINT)
    with pytest.raises(BrokenProcessPool):
        pool.submit(os.getpid).result()
    pool.shutdown()
    assert "Traceback" not in capfd.readouterr().err
