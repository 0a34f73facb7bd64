"""What the study predicts of drivers with caches is what the proxy counts, and what its tables hold."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from advisors.hdf5.inspection import Read
from advisors.hdf5.prediction import read_through
from helpers.models.transfer import ClientCosts, Network
from studies.hdf5_drivers import drivers, findings, prediction, workload
from studies.hdf5_drivers.prediction import Parts, Ros3Cache
from studies.hdf5_drivers.workload import Bench
from tests.studies.hdf5_drivers.test_drivers import get_driver

COSTS = dict.fromkeys(("fsspec", "ros3", "obstore"), ClientCosts())
DETERMINISTIC = (
    "fsspec-readahead",
    "fsspec-first",
    "fsspec-tuned",
    "ros3",
    "ros3-none",
    "ros3-first",
    "ros3-tuned",
    "obstore-tuned",
    "obstore-whole",
)


@pytest.mark.parametrize("layout", ["original", "paged-4mib"])
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_requests_are_predicted_exactly(name: str, layout: str, bench: Bench) -> None:
    """From the trace without a cache follow the requests and bytes with one."""
    chosen = [get_driver(name, bench)]
    if name == "fsspec-tuned":  # blocks below the length of the file as well
        chosen += workload.vary([1], [8], [layout], bench.stored)
    recorded = prediction.record_library([layout], bench)[layout]
    for each in chosen:
        trace = workload.trace_once(workload.FileRead(bench, each, layout, "variables"))
        found = prediction.predict_driver(each, recorded, Network(), COSTS)
        assert found is not None
        counted = (len(trace), sum(request.nbytes for request in trace))
        assert (found.n_requests, found.nbytes) == counted, each.name


@pytest.mark.parametrize(
    ("cache", "reads", "asked"),
    [
        # the first block comes whole with the first read, wherever that is, and stays
        (Ros3Cache(100, 200), [(150, 10), (0, 8), (250, 10), (20, 8)], [0, 100, 200]),
        # one block of room next to the first: the second comes twice
        (Ros3Cache(100, 200), [(110, 9), (210, 9), (110, 9)], [0, 100, 200, 100]),
        # room for the first block alone: the rest is read as asked
        (Ros3Cache(100, 100), [(110, 9), (110, 9)], [0, 110, 110]),
        # a read across blocks brings each of them
        (Ros3Cache(100, 400), [(90, 120)], [0, 100, 200]),
        # paged file space: nothing is kept but the first block
        (Ros3Cache(100, 400, True), [(10, 9), (110, 9), (110, 9)], [0, 110, 110]),
        # no cache
        (Ros3Cache(0, 0), [(10, 9), (10, 9)], [10, 10]),
        # the client cuts at multiples
        (Parts(10), [(5, 20)], [5, 10, 20]),
    ],
)
def test_models_of_ros3(
    cache: Ros3Cache | Parts, reads: list[tuple[int, int]], asked: list[int]
) -> None:
    """The block cache of ROS3 and its client ask for the offsets that their sources say."""
    _, found = read_through([cache], [Read(*span) for span in reads], 1000)
    assert [read.offset for read in found] == asked


def make_rows(times_s: dict[tuple[str, str], float]) -> pd.DataFrame:
    """Make a record of two blocks of contenders that take these times."""
    trace = {"all_requests": 100, "all_nbytes": 8e6, "over_read": 2.0, "n_open_requests": 3}
    lines = [
        {"contender": name, "layout": layout, "task": "variables", "phase": "measured",
         "control_of": "", "block": block, "open_s": 0.25 * seconds, "read_s": 0.75 * seconds,
         "trace": json.dumps(trace)}
        for block in range(2)
        for (name, layout), seconds in times_s.items()
    ]  # fmt: skip
    rows = pd.DataFrame(lines)
    copy = rows[rows["contender"] == "fsspec-tuned"].assign(contender="control", control_of="fsspec-tuned")  # fmt: skip
    return pd.concat([rows, copy], ignore_index=True)


BEST = ("fsspec-tuned", "paged-4mib")


def test_tables_keep_one_order() -> None:
    """Rows come as the registry has drivers and layouts, whatever the order in a block."""
    rows = make_rows(
        {("zarr", "zarr"): 1.0, ("references", "references"): 1.0, ("ros3", "original"): 2.0}
        | {BEST: 1.0, ("fsspec-none", "original"): 3.0},
    )
    table = findings.tabulate_times(rows, ["variables", "tree"]).loc["variables"]
    assert list(table.index) == ["fsspec-none", "fsspec-tuned", "ros3", "zarr", "references"]
    assert {*table.columns} == {"original", "paged-4mib", "converted"}
    assert table.isna().loc["ros3", "paged-4mib"] and table.loc["zarr", "converted"] == 1


def test_pairs_are_judged_where_both_were_read() -> None:
    """By the time of opening and reading, on each layout; the repack suits tuned settings best."""
    rows = make_rows(
        {BEST: 1.0, ("fsspec-tuned", "front"): 2.0, ("fsspec-readahead", "paged-4mib"): 0.5}
        | {("fsspec-none", "original"): 3.0, ("obstore-whole", "rechunked-4mib"): 0.1}
    )
    reads = findings.select_reads(rows[rows["control_of"].eq("") | rows["layout"].eq("paged-4mib")])
    judged = findings.compare_pairs(reads, findings.TODAY_PAIRS)
    assert [*judged] == [("paged-4mib", "fsspec-tuned", "fsspec-readahead")]
    assert judged["paged-4mib", "fsspec-tuned", "fsspec-readahead"].ratio.centre == 2
    assert findings.find_repacked(reads) == "paged-4mib"


def test_predictions_stand_next_to_what_was_measured() -> None:
    """The recorded driver, of which nothing is predicted, is left out."""
    rows = make_rows({("fsspec-none", "original"): 3.0, ("fsspec-tuned", "original"): 1.0})
    names = ["driver", "layout", "predicted_s", "requests_predicted", "predicted_mb"]
    lines = [("fsspec-none", "original", 3, 100, 8), ("fsspec-tuned", "original", 1.5, 100, 8)]
    found = prediction.compare_predicted(rows, pd.DataFrame(lines, columns=names))
    assert found["driver"].tolist() == ["fsspec-tuned"] and found["error"].tolist() == [0.5]
    assert drivers.DRIVERS[prediction.RECORDED].settings["cache_type"] == "none"
