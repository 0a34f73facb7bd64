"""What the study predicts of drivers with caches is what the proxy counts, and what its tables hold."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest

from studies.hdf5_drivers import findings, prediction, two_drivers
from studies.hdf5_drivers.drivers import DRIVERS, ONE_VARIABLE, VARIABLES
from studies.hdf5_drivers.workload import FileRead, trace_once
from wire.bed.networks import get_profile
from wire.hdf5.prediction import predict_read
from wire.models.transfer import network_of


@pytest.mark.parametrize("layout", ["original", "rechunked-8mib"])
def test_requests_are_predicted_exactly(layout: str, way: FileRead) -> None:
    """From what the library asks for follow the requests and bytes that the proxy counts, by each driver."""
    recorded = prediction.record_library(way.stored, layout)
    names = ("fsspec-none", "fsspec-readahead", "xarray", "fsspec-tuned", "obstore-whole")
    for name in names:
        trace = trace_once(replace(way, layout=layout, driver=DRIVERS[name]))
        found = predict_read(DRIVERS[name].method, recorded, network_of(get_profile("loopback")))
        counted = (len(trace), sum(request.nbytes for request in trace))
        assert (found.n_requests, found.nbytes) == counted, name


def test_a_longer_file_is_as_long_as_one_that_is_written(way: FileRead) -> None:
    """Chunks grow with the file, and a download with both."""
    recorded = {"original": prediction.record_library(way.stored, "original")}
    longer = prediction.enlarge(recorded["original"], 3)
    for chunks, before in zip(longer.chunks, recorded["original"].chunks, strict=True):
        assert len(chunks) == 3 * len(before) and chunks[-1].stop < longer.file_nbytes
    assert longer.file_nbytes == 3 * recorded["original"].file_nbytes
    found = prediction.predict_larger(
        ["obstore-whole on original"], recorded, get_profile("in-region"), [1, 3]
    )
    assert found["predicted_mb"].tolist() == [n * longer.file_nbytes / 3e6 for n in (1, 3)]


def make_rows(times_s: dict[tuple[str, str, str], float]) -> pd.DataFrame:
    """Make a record of two blocks of contenders that take these times."""
    trace = {"all_requests": 100, "all_nbytes": 8e6, "over_read": 2.0, "n_open_requests": 3}
    lines = [
        {"contender": name, "layout": layout, "task": task, "phase": "measured",
         "control_of": "", "block": block, "open_s": 0.25 * seconds, "read_s": 0.75 * seconds,
         "trace": json.dumps(trace)}
        for block in range(2)
        for (name, layout, task), seconds in times_s.items()
    ]  # fmt: skip
    rows = pd.DataFrame(lines)
    last = rows[(rows["contender"] == "obstore-whole") & (rows["task"] == VARIABLES)]
    copy = last.assign(contender="control", control_of="obstore-whole")
    return pd.concat([rows, copy], ignore_index=True)


TIMES = {
    ("fsspec-none", "original", VARIABLES): 8.0,
    ("fsspec-readahead", "original", VARIABLES): 4.0,
    ("obstore-whole", "original", VARIABLES): 1.0,
    ("fsspec-readahead", "original", ONE_VARIABLE): 2.0,
    ("obstore-whole", "original", ONE_VARIABLE): 0.5,
}


def test_the_busiest_read_is_not_the_slowest() -> None:
    """By its share of all processors; a read of references counts what its client computes."""
    times = {**TIMES, ("references", "original", VARIABLES): 3.0}
    rows = make_rows(times).assign(machine='{"n_cores": 2}', client_s=2.4)
    rows["real_open_s"], rows["real_read_s"] = rows["open_s"], rows["read_s"]
    busy_s = rows["contender"].map({"fsspec-none": 2.0, "obstore-whole": 0.8}).fillna(0.1)
    rows["trace"] = [json.dumps({"busy_s": seconds}) for seconds in busy_s]
    found = findings.find_processors(rows)
    assert found["busiest"].verdict == "obstore-whole on original"
    assert found["busiest"].value == pytest.approx(40)
    assert found["references-cpu-s"].value == pytest.approx(2.4)
    assert found["references-cpu-least-s"].value == pytest.approx(1.2)


def test_gains_are_over_the_default() -> None:
    """By the time of opening and reading, each task by itself; rows come in the registry's order."""
    rows = make_rows(TIMES)
    gains = findings.compare_all(rows)
    assert {one: found.value for one, found in gains.items()} == pytest.approx(
        {"fsspec-none on original": 0.5, "obstore-whole on original": 4}
    )
    # the verdict is of the read, not of the default that it is compared with
    verdicts = [found.verdict for found in gains.values()]
    assert verdicts == ["slower", "faster"]
    ones = findings.compare_one(rows)
    assert ones["obstore-whole on original"].centre == pytest.approx(4)
    assert findings.measured(rows)["contender"].iloc[0] == "fsspec-readahead"
    assert findings.make_key("fsspec-tuned on front") == "fsspec-tuned-on-front"


def test_predictions_stand_next_to_what_was_measured() -> None:
    """Each prediction has the median of its rows, and its error."""
    names = ["driver", "layout", "predicted_s", "requests_predicted", "predicted_mb"]
    lines = [("fsspec-none", "original", 6, 100, 8), ("obstore-whole", "original", 1.5, 100, 8)]
    found = prediction.compare_predicted(make_rows(TIMES), pd.DataFrame(lines, columns=names))
    assert found["error"].tolist() == [-0.25, 0.5]


def test_the_study_has_twenty_times_over_its_baseline() -> None:
    """By hand: 75.8 s of ROS3 at its best and 113.6 s of fsspec, of 2062 s."""
    found = two_drivers.read_study().set_index(["driver", "layout"])["over"]
    assert len(found) == 20 and found["fsspec-none", "original"] == 1
    assert found["ros3-tuned", "rechunked-8mib"] == pytest.approx(0.0368, abs=1e-4)
    assert found["fsspec-tuned", "paged-8mib"] == pytest.approx(0.0551, abs=1e-4)
    assert found["ros3-tuned", "original"] > 0.9  # its second row


def make_blocks(**seconds: float) -> pd.DataFrame:
    """Make rows of two blocks of drivers on the original, and a copy of the first."""
    names = [*seconds, "control"]
    lines = [
        {
            "contender": name.replace("_", "-"), "control_of": "fsspec-none" * (name == "control"),
            "layout": "original", "task": "variables", "phase": "measured", "block": block,
            "open_s": 0.0, "read_s": seconds.get(name, 10.0) * (1 + 0.01 * block),
            "trace": json.dumps({"all_requests": 7}),
        }
        for name in names for block in (0, 1)
    ]  # fmt: skip
    return pd.DataFrame(lines)


def test_ours_is_laid_over_the_baseline_and_compared() -> None:
    """A driver that takes half of the baseline; what was not measured is no finding."""
    rows = make_blocks(fsspec_none=10.0, ros3_none=5.0)
    ours = two_drivers.scale(rows).set_index("driver")["over"]
    assert ours["ros3-none"] == pytest.approx(0.5) and ours["fsspec-none"] == 1
    found = two_drivers.find_all(rows)
    assert found["no-cache-original"].value == pytest.approx(2.0)
    assert found["requests-ros3"].value == 7
    assert not {key for key in found if key.startswith(("equal", "gain", "paged"))}
    assert {key: one.holds for key, one in two_drivers.judge_claims(found).items()} == {
        "same-requests": True
    }
